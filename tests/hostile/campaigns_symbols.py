"""Campaigns that lie about the parts of an object: endless gaps, blocks far ahead, useless parity, invalid symbols.

The objects themselves are plausible. The positions in them cost time and memory.
"""

from collections.abc import Iterator

from .campaigns import Campaigns
from .datagrams import fti
from .target import TARGET, Shot


class SymbolCampaigns(Campaigns):
    def run_fragments(self) -> Iterator[Shot]:
        """Send trains with as many gaps between their segments as possible."""
        random = self.random
        while True:
            fake = self.fake()
            segment = random.choice((1, 16, 100))
            flags = random.choice((0, 0, 0x20))
            parity = random.choice((0, 5))
            ext = fti(5, 1 << 24, segment, 200, parity)
            is_backwards = random.random() < 0.5
            payload = bytes(segment + (8 if flags else 0))
            for number in range(2000):
                first = (20 * (3000 - number) if is_backwards else 20 * number) * 2
                some = [fake.data(*divmod(first + 2 * step, 200), payload, fti=ext, flags=flags) for step in range(20)]
                yield Shot(b"".join(some), fake.address, len(some[0]))
                if number % 100 == 0:
                    yield Shot(fake.flush(random.choice((3000, 1 << 23)), 0), fake.address)

    def run_far_flushes(self) -> Iterator[Shot]:
        """Send FLUSHes and DATA far ahead, so that as many blocks as possible are missing."""
        random = self.random
        while True:
            fake = self.fake(grtt_q=random.choice((0, 76)))
            fec_id, bits = random.choice(((5, 8), (2, 16), (129, 8), (0, 8)))
            segment, block = random.choice((1, 100, 1400, 60_000)), random.choice((1, 2, 64, 200))
            flags = random.choice((0, 0x20))
            ext = fti(fec_id, 1 << 24, segment, block, random.choice((0, 1, 50)), bits)
            yield Shot(
                fake.data(0, 0, bytes(min(segment, 1000) + 8), fti=ext, flags=flags, fec_id=fec_id), fake.address
            )
            for _ in range(20):
                position = random.choice(
                    (1 << 31, 1 << 23, 1 << 15, 1 << 14, (1 << 24) - 1, 100, 1000, 20_000)
                ) - random.randrange(3)
                yield Shot(
                    fake.flush(position, 0, random.choice((b"", TARGET.to_bytes(4, "big"))), fec_id), fake.address
                )
                if random.random() < 0.3:
                    yield Shot(
                        fake.data(position, 0, bytes(min(segment, 1000)), fti=ext, flags=flags, fec_id=fec_id),
                        fake.address,
                    )

    def run_parity(self) -> Iterator[Shot]:
        """Send mostly parity, of all lengths and more than is useful.

        Sometimes the parity suffices to decode a block.
        """
        random = self.random
        while True:
            fake = self.fake()
            fec_id, bits = random.choice(((5, 8), (129, 8), (2, 16), (2, 8)))
            block = random.choice((1, 4, 60, 127))
            parity = random.choice((1, 4, 60, 127))
            segment = random.choice((1, 2, 99, 100, 1400, 65_000))
            flags = random.choice((0, 0x20))
            ext = fti(fec_id, 1 << 24, segment, block, parity, bits)
            for _ in range(200):
                at = random.choice((random.randrange(4), self.some(1 << 20)))
                symbol = block + random.randrange(parity + 2) if random.random() < 0.8 else random.randrange(block)
                size = random.choice((0, 1, 8, min(segment, 1400), min(segment, 1400) + 8))
                yield Shot(fake.data(at, symbol, bytes(size), fti=ext, flags=flags, fec_id=fec_id), fake.address)

    def run_wrap_of_symbols(self) -> Iterator[Shot]:
        """Send trains that mix invalid symbols with the first symbols of an object."""
        random = self.random
        while True:
            fake = self.fake()
            ext = fti(5, 2000, 100, 10, random.choice((0, 5)))
            places = [random.choice(((0, 10), (0, 255), (1 << 23, 0), (0, 0), (0, 1), (1, 0))) for _ in range(8)]
            rows = [fake.data(block, symbol, bytes(100), fti=ext) for block, symbol in places]
            yield Shot(b"".join(rows), fake.address, len(rows[0]))
