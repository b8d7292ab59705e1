"""Campaigns of hostile feedback: NACKs to the target, NACKs that it overhears, and reasons for it to send NACKs.

Fake receivers send NACKs and ACKs to the target as a sender, and to senders that the target receives from.
"""

import struct
from collections.abc import Iterator

from .campaigns import Campaigns
from .datagrams import feedback, fti, item, request
from .target import TARGET, Shot


class FeedbackCampaigns(Campaigns):
    def run_nacks(self) -> Iterator[Shot]:
        """Send NACKs for everything that the target sends, again and again."""
        random, target = self.random, self.target
        while True:
            source, address = next(self._ids), self.fake().address
            near = target.object_id
            kind = random.randrange(8)
            if kind == 0:  # all objects
                content = request(2, 8 | random.choice((0, 4)), item(near - 300) + item(near + random.choice((0, 300))))
            elif kind == 1:  # all blocks of many objects
                content = b"".join(
                    request(2, 2, item(near - step) + item(near - step, (1 << 24) - 1)) for step in range(20)
                )
                content += b"".join(request(2, 2, item(near - step) + item(near - step, 3)) for step in range(20))
            elif kind == 2:  # symbols anywhere
                items = b"".join(item(near - random.randrange(3), self.some(300), self.some(256)) for _ in range(100))
                content = request(random.choice((1, 2, 3)), random.choice((1, 1, 2, 5)), items)
            elif kind == 3:  # every second symbol of many blocks
                content = request(
                    1, 1, b"".join(item(near, block, 2 * symbol) for block in range(8) for symbol in range(20))
                )
            elif kind == 4:  # as many requests for all objects as a datagram holds
                pair = item(near - 255) + item(near)
                content = request(2, 8, pair * (4000 if random.random() < 0.05 else 80))
            elif kind == 5:
                content = request(
                    random.randrange(5),
                    random.getrandbits(8),
                    random.randbytes(self.some(400)),
                    random.choice((None, 0xFFFF, 4)),
                )
            elif kind == 6:  # other FEC codes
                content = request(
                    1, 1, item(near, self.some(1 << 32), self.some(1 << 16), random.choice((0, 2, 129))) * 50
                )
            else:  # erasures
                content = request(3, 1, b"".join(item(near, block, self.some(256)) for block in range(50)))
            response = random.choice(((0, 0), (int(target.now), 5), (0xFFFFFFFF, 0xFFFFFFFF), (1, 1)))
            data = feedback(4, source, TARGET, target.instance_id, content, response=response)
            yield Shot(data[:65_507], address, 0, random.random() < 0.5)

    def run_acks(self) -> Iterator[Shot]:
        random, target = self.random, self.target
        while True:
            source, address = next(self._ids), self.fake().address
            seconds = max(0, int(target.now) + random.choice((1, 0, -1, 2, -100)))
            response = random.choice(((seconds, random.randrange(1_000_000)), (0xFFFFFFFF, 0), (0, 0xFFFFFFFF), (0, 0)))
            position = item(target.object_id, self.some(50), self.some(64))
            cc = struct.pack(
                ">BBHBBHHH",
                3,
                3,
                *(random.getrandbits(16), random.getrandbits(8), random.getrandbits(8)),
                *(random.getrandbits(16) for _ in range(3)),
            )
            ack = random.choice(((1, 0), (2, 0), (2, 0), (16, 3), (random.getrandbits(8), 0)))
            content = position if ack[0] == 2 else random.randbytes(random.randrange(20))
            yield Shot(
                feedback(5, source, TARGET, target.instance_id, content, ack, response, random.choice((b"", cc))),
                address,
                0,
                random.random() < 0.5,
            )

    def run_overheard(self) -> Iterator[Shot]:
        """Send NACKs of fake receivers for what the target is about to request itself."""
        random = self.random
        while True:
            fake = self.fake(grtt_q=random.choice((166, 200, 255)), backoff_gsize=0xF2)
            fec_id = random.choice((5, 129))
            ext = fti(fec_id, 1 << 24, random.choice((1, 100)), 200, random.choice((0, 50)))
            for at in range(5):
                yield Shot(fake.data(at, 1, b"x", fti=ext, fec_id=fec_id), fake.address)
                fake.object_id = fake.object_id + 1 & 0xFFFF
            for _ in range(30):
                near = fake.object_id - random.randrange(6)
                many = 2000 if random.random() < 0.05 else 50
                if random.random() < 0.5:
                    items = b"".join(
                        item(near, random.randrange(1 << 16), random.randrange(200), fec_id) for _ in range(many)
                    )
                    content = request(random.choice((1, 3)), random.choice((1, 2, 5)), items)
                else:
                    pair = item(near, self.some(1 << 20), 0, fec_id) + item(
                        near + random.randrange(6), self.some(1 << 20), 65_535, fec_id
                    )
                    content = request(2, random.choice((1, 2, 8)), pair * (many // 2))
                yield Shot(feedback(4, next(self._ids), fake.node_id, fake.instance_id, content), fake.address)

    def run_starving(self) -> Iterator[Shot]:
        """Simulate a sender that sends little, so that the target lacks much and has reason to send many NACKs."""
        random = self.random
        while True:
            fake = self.fake(grtt_q=0, backoff_gsize=random.choice((0, 0x42)))
            segment = random.choice((16, 1000, 65_000))
            ext = fti(5, 1 << 24, segment, 2)
            for at in range(0, 200, 2):
                yield Shot(fake.data(*divmod(at, 2), bytes(16), fti=ext), fake.address)
            for _ in range(200):
                yield Shot(fake.flush(200, 0), fake.address)
