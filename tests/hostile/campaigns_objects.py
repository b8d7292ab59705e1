"""Campaigns that lie about objects: their number, their sizes, and how they are coded.

Most datagrams are well formed. The values in EXT_FTIs, and how often these values change, cause the harm.
"""

from collections.abc import Iterator

from .campaigns import Campaigns
from .datagrams import fti
from .target import TARGET, Shot


class ObjectCampaigns(Campaigns):
    def run_fti_lies(self) -> Iterator[Shot]:
        random = self.random
        while True:
            fake = self.fake()
            for _ in range(random.randrange(1, 30)):
                fec_id, ext = self.lie()
                fake.object_id = (fake.object_id + random.choice((0, 1, 1, 2, 255, 256, 0x7FFF))) & 0xFFFF
                flags = random.choice((0, 0, 4, 0x10, 0x20, 0x24, 1, 0xFF))
                for _ in range(random.randrange(1, 5)):
                    block, symbol = self.some(1 << 32), self.some(1 << 16)
                    if random.random() < 0.5:
                        block, symbol = random.randrange(3), random.randrange(4)
                    size = random.choice((0, 1, 8, 9, 100, 1400, 9000))
                    with_fti = ext if random.random() < 0.8 else b""
                    yield Shot(
                        fake.data(block, symbol, bytes(size), fti=with_fti, flags=flags, fec_id=fec_id), fake.address
                    )
                    if random.random() < 0.2:
                        yield Shot(fake.flush(block, symbol, TARGET.to_bytes(4, "big"), fec_id), fake.address)

    def run_fti_changes(self) -> Iterator[Shot]:
        random = self.random
        while True:
            fake = self.fake()
            flags = random.choice((0, 0x20))
            for _ in range(20):
                fec_id, ext = random.choice(
                    (
                        self.lie(),
                        (5, fti(5, 5000, 100, 10, 5)),
                        (2, fti(2, 5000, 99, 10, 5, 16)),
                        (129, fti(129, 5000, 100, 10)),
                    )
                )
                symbol = random.randrange(20)
                yield Shot(
                    fake.data(random.randrange(6), symbol, bytes(100), fti=ext, flags=flags, fec_id=fec_id),
                    fake.address,
                )
                yield Shot(
                    fake.data(0, symbol, bytes(100), flags=flags, fec_id=random.choice((0, 2, 5, 129))), fake.address
                )
                yield Shot(
                    fake.flush(random.randrange(6), symbol, TARGET.to_bytes(4, "big"), random.choice((0, 2, 5, 129))),
                    fake.address,
                )

    def run_fake_senders(self) -> Iterator[Shot]:
        while True:
            fake = self.fake()
            yield Shot(fake.data(0, 0, bytes(100), fti=fti(5, 1 << 24, 1000, 64)), fake.address)

    def run_tiny_objects(self) -> Iterator[Shot]:
        while True:
            fake = self.fake()
            yield Shot(fake.data(0, 0, b"tiny", fti=fti(5, 4, 1000, 64)), fake.address)

    def run_many_objects(self) -> Iterator[Shot]:
        """Announce many large objects, all by one sender that stays."""
        random = self.random
        while True:
            fake = self.fake()
            flags = random.choice((0, 0x20, 0x04))
            size = random.choice((1 << 24, 1 << 24, 100_000))
            for _ in range(700):
                yield Shot(
                    fake.data(0, random.randrange(60), bytes(20), fti=fti(5, size, 1000, 64), flags=flags), fake.address
                )
                fake.object_id = (fake.object_id + random.choice((1, 1, 1, 2, 3))) & 0xFFFF

    def run_infos(self) -> Iterator[Shot]:
        while True:
            fake = self.fake()
            for _ in range(300):
                fake.object_id = fake.object_id + 1 & 0xFFFF
                yield Shot(fake.info(bytes(8000), fti(5, 1 << 20, 65_000, 64)), fake.address)

    def run_object_jumps(self) -> Iterator[Shot]:
        random = self.random
        while True:
            fake = self.fake()
            for _ in range(100):
                fake.object_id = (
                    fake.object_id + random.choice((1, 200, 300, 0x7FFE, 0x7FFF, 0x8000, 0x8001))
                ) & 0xFFFF
                yield Shot(
                    fake.data(0, 0, bytes(50), fti=fti(5, 5000, 100, 10), flags=random.choice((0, 0x20))), fake.address
                )
