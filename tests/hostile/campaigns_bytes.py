"""Campaigns of malformed datagrams: noise, mutated captures, trains with wrong segment sizes, invalid extensions.

Most of these datagrams have no meaning. The codec and the readers of trains must refuse them.
"""

import struct
from collections.abc import Iterator

from .campaigns import Campaigns
from .datagrams import fti, payload_id
from .target import Shot


class ByteCampaigns(Campaigns):
    def run_noise(self) -> Iterator[Shot]:
        random, address = self.random, self.fake().address
        while True:
            yield Shot(random.randbytes(random.choice((0, 1, 7, 8, 16, 40, 300))) or b"\x12", address)
            yield Shot(bytes((0x10 | random.randrange(8), random.randrange(12))) + random.randbytes(60), address)

    def run_golden(self) -> Iterator[Shot]:
        address = self.fake().address
        while True:
            data = self._mutator.datagram()
            if data:
                yield Shot(data, address, 0, self.random.random() < 0.5)

    def run_golden_trains(self) -> Iterator[Shot]:
        address = self.fake().address
        while True:
            data, segment_bytes = self._mutator.train()
            if data:
                yield Shot(data, address, segment_bytes)

    def run_segment_sizes(self) -> Iterator[Shot]:
        """Send good and bad DATA in trains whose segment size does not match the DATA."""
        random = self.random
        while True:
            fake = self.fake()
            ext = fti(5, 100_000, 100, 50, random.choice((0, 10)))
            stream = random.choice((0, 0x20))
            rows = [fake.data(0, at, bytes(random.choice((100, 108))), fti=ext, flags=stream) for at in range(20)]
            joined = b"".join(rows)
            yield Shot(joined, fake.address, len(rows[0]))
            for _ in range(10):
                size = random.choice((1, 8, 20, 28, 36, 127, 128, 129, len(rows[0]) + 1, 65_535, 1 + self.some(300)))
                yield Shot(joined[: max(1, 60 * size)], fake.address, size)

    def run_extensions(self) -> Iterator[Shot]:
        random = self.random
        while True:
            fake = self.fake()
            head = random.choice((0, 1, 3, 64, 65, 128, 255, random.getrandbits(8)))
            bad = bytes((head, random.choice((0, 0, 1, 3, 4, 255)), 0, 0)) + random.randbytes(4 * random.randrange(5))
            rest = struct.pack(">BBH", 0, 5, fake.object_id) + payload_id(5, 0, 0)
            yield Shot(fake.message(2, rest, bad, b"x" * 50), fake.address)
            yield Shot(fake.message(2, rest, bad, b"x" * 50, words=random.randrange(256)), fake.address)
            yield Shot(fake.command(random.randrange(9), b"\0\0\0", bad), fake.address)
