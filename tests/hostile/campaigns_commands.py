"""Campaigns of hostile commands: endless probes, watermarks and squelches, and senders that restart.

Each datagram is cheap to send, and makes the target answer or discard something.
"""

import struct
from collections.abc import Iterator

import numpy as np

from .campaigns import Campaigns
from .datagrams import fti, item, request
from .target import TARGET, Shot


class CommandCampaigns(Campaigns):
    def run_probes(self) -> Iterator[Shot]:
        """Send probes that name the target, so that it answers at once."""
        random = self.random
        while True:
            fake = self.fake(grtt_q=random.choice((0, 106)), backoff_gsize=random.choice((0, 0x42)))
            for _ in range(30):
                node = struct.pack(
                    ">IBBH", TARGET, random.getrandbits(8), random.getrandbits(8), random.getrandbits(16)
                )
                yield Shot(fake.probe(node * random.choice((1, 1, 1, 200)), random.random() < 0.9), fake.address)

    def run_watermarks(self) -> Iterator[Shot]:
        """Request confirmations of watermarks, for objects that exist and for others."""
        random = self.random
        while True:
            fake = self.fake(grtt_q=random.choice((0, 106, 255)), backoff_gsize=random.choice((0, 0x42)))
            nodes = TARGET.to_bytes(4, "big") * random.choice((1, 1, 300))
            yield Shot(fake.data(0, 0, b"tiny", fti=fti(5, 4, 1000, 64)), fake.address)
            for _ in range(30):
                yield Shot(
                    fake.flush(self.some(1 << 24), self.some(256), nodes, random.choice((5, 5, 129))), fake.address
                )

    def run_squelches(self) -> Iterator[Shot]:
        random = self.random
        while True:
            fake = self.fake()
            ext = fti(5, 5000, 100, 10)
            for _ in range(30):
                yield Shot(fake.data(0, 0, bytes(100), fti=ext, flags=random.choice((0, 0x20))), fake.address)
                fake.object_id = (fake.object_id + random.choice((1, 3, 200, 0x7FFF, 0x8000))) & 0xFFFF
                invalid = b"".join(
                    (fake.object_id + step & 0xFFFF).to_bytes(2, "big") for step in range(random.choice((0, 0, 5, 300)))
                )
                yield Shot(fake.flush(self.some(1 << 24), self.some(256), invalid, flavor=3), fake.address)
            everything = np.arange(32_000, dtype=">u2").tobytes()
            yield Shot(fake.flush(0, 0, everything, flavor=3), fake.address)

    def run_commands(self) -> Iterator[Shot]:
        random = self.random
        while True:
            fake = self.fake()
            yield Shot(fake.data(0, 1, bytes(100), fti=fti(5, 5000, 100, 10)), fake.address)
            for _ in range(10):
                adv = request(
                    random.randrange(1, 4),
                    random.getrandbits(4),
                    item(fake.object_id, self.some(99)) * 2 * random.randrange(1, 90),
                )
                yield Shot(fake.command(5, content=adv), fake.address)
                yield Shot(
                    fake.command(6, b"\0\1\1", content=TARGET.to_bytes(4, "big") * random.randrange(9)), fake.address
                )
                yield Shot(fake.command(7, content=random.randbytes(self.some(1000))), fake.address)
                if random.random() < 0.2:
                    yield Shot(fake.command(2), fake.address)

    def run_flip_flop(self) -> Iterator[Shot]:
        """Simulate a sender that restarts with every datagram."""
        random = self.random
        while True:
            fake = self.fake()
            ext = fti(5, 1 << 20, 1000, 64)
            for number in range(500):
                fake.instance_id = random.choice((number & 1, random.getrandbits(16)))
                fake.sequence = random.getrandbits(16)
                yield Shot(fake.data(0, 0, bytes(100), fti=ext, flags=random.choice((0, 0x20))), fake.address)
                if random.random() < 0.1:
                    yield Shot(fake.command(2), fake.address)
