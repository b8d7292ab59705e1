"""Campaigns that lie about streams: the positions, lengths and order of their segments.

Streams jump ahead, go backwards, or make the target hold many segments until a missing one arrives.
"""

import struct
from collections.abc import Iterator

from .campaigns import Campaigns
from .datagrams import fti
from .target import Shot


class StreamCampaigns(Campaigns):
    def run_streams(self) -> Iterator[Shot]:
        random = self.random
        while True:
            fake = self.fake()
            ext = fti(
                5,
                random.choice((0, 1, 100, 100_000, (1 << 48) - 1)),
                100,
                random.choice((1, 10, 200)),
                random.choice((0, 0, 4)),
            )
            at = random.choice((0, 1 << 23, (1 << 24) - 2))
            for _ in range(200):
                at += random.choice((0, 1, 1, 1, 2, -1, 5, 500, 1 << 22))
                length = random.choice((0, 100, 100, 99, 1, 101, 65_535))
                start = random.choice((0, 0, 1, 100, 101, 65_535))
                head = struct.pack(
                    ">HHI", length, start, random.choice((0, at * 100 & 0xFFFFFFFF, random.getrandbits(32)))
                )
                body = bytes(random.choice((100, 100, min(length, 100), 0, 50)))
                yield Shot(
                    fake.data(at, random.choice((0, 0, 0, 1, 9)), head + body, fti=ext, flags=0x20), fake.address
                )

    def run_stream_hoard(self) -> Iterator[Shot]:
        """Send as much of a stream as can be held back until one segment arrives, then this segment."""
        random = self.random
        while True:
            fake = self.fake()
            ext = fti(5, 1 << 24, 1, 200)
            begin = fake.data(0, 0, struct.pack(">HHI", 1, 1, 0) + b"a", fti=ext, flags=0x20)
            yield Shot(begin, fake.address)
            for number in range(1, random.choice((5, 100, 400))):
                content = random.choice((b"\0\1\0\1", b"\0\1\0\0", b"\0\0\0\5", b"\xff\xff\0\0")) + bytes(4) + b"b"
                rows = [fake.data(*divmod(20 * number + step, 200), content, fti=ext, flags=0x20) for step in range(20)]
                yield Shot(b"".join(rows), fake.address, len(rows[0]))
            rows = [
                fake.data(0, step, struct.pack(">HHI", 1, 1, 0) + b"a", fti=ext, flags=0x20) for step in range(1, 20)
            ]
            yield Shot(b"".join(rows), fake.address, len(rows[0]))
