"""Hostile datagrams at an engine that is at work.

The engine under attack receives from an honest sender and sends to an honest receiver, in virtual time and with losses.
Whatever else it is sent: no exception, bounded memory, bounded time for each datagram, a bounded number of events, no
more bytes out than the bytes in and the configured rate account for; and what the honest ones send arrives unaltered,
as long as nobody speaks in their names.
"""

import argparse
import gc
import struct
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from fuzz import Mutator

from fjm2.norm.config import Fec, ReceiverConfig, SenderConfig, SessionConfig, Sync
from fjm2.norm.engine import Engine
from fjm2.norm.events import Event, ObjectCompleted, StreamLost, StreamReceived
from fjm2.norm.ranges import RangeSet
from fjm2.norm.sources import MemorySource
from fjm2.norm.train import Address, Train

GROUP: Address = ("239.255.0.1", 6003)
HONEST_SENDER, TARGET, HONEST_RECEIVER = 0xA5C39E71, 0xB6D48F62, 0xC7E5A053  # none that a mutation makes by chance
DELAY_S = 0.002
HONEST_LOSS = 0.02
EPOCH_CASES = 100_000
"""So many datagrams one arena has to stand."""

SLOWEST_S = 0.05
SLOWEST_PER_BYTE_S = 1.5e-6
"""Of what is long on the wire: a datagram of 64 KiB may take longer than one of 100 bytes."""
MEAN_MOST_S = 200e-6
EVENTS_AT_ONCE = 600
"""Most events that one train of few datagrams leads to: all objects of a window may be lost at once."""
AMPLIFICATION_MOST = 12.0
AMPLIFICATION_FREE = 4096
"""Bytes that may go to an address besides."""
HEADERS_BYTES = 28
"""IP and UDP, which whoever sends has to pay for, too."""
START = 100.0
QUIET_S = 0.5
"""In which the honest ones get to know each other: attackers and losses come later."""
RESIDENT_FREE = 150 << 20
TIMERS = "(timers)"
RECOVERY_S = 120.0
"""Virtual seconds that the honest transfers may take to end when the attack is over."""


# Datagrams, from the RFC's field tables: what the codec would refuse to write is wanted here.

_COMMON = struct.Struct(">BBHI")
_SENDER = struct.Struct(">HBB")
_OBJECT = struct.Struct(">BBH")
_RECEIVER = struct.Struct(">IHBBII")
_ITEM = struct.Struct(">BBHI")
_WIDE_ITEM = struct.Struct(">BBHQ")


@dataclass(slots=True)
class Fake:
    """A sender that is none."""

    node_id: int
    instance_id: int
    address: Address
    grtt_q: int = 106
    backoff_gsize: int = 0x42
    sequence: int = 0
    object_id: int = 0

    def message(self, kind: int, rest: bytes, extensions: bytes = b"", content: bytes = b"", words: int = 0) -> bytes:
        """INFO, DATA or CMD; `rest` is what follows the fields that all of them have."""
        self.sequence = self.sequence + 1 & 0xFFFF
        head = _SENDER.pack(self.instance_id, self.grtt_q, self.backoff_gsize) + rest + extensions
        words = words or (8 + len(head)) // 4
        return _COMMON.pack(0x10 | kind, words & 255, self.sequence, self.node_id) + head + content

    def data(
        self, block: int, symbol: int, payload: bytes, *, fti: bytes = b"", flags: int = 0, fec_id: int = 5
    ) -> bytes:
        rest = _OBJECT.pack(flags, fec_id, self.object_id) + payload_id(fec_id, block, symbol)
        return self.message(2, rest, fti, payload)

    def info(self, content: bytes, fti: bytes, flags: int = 4, fec_id: int = 5) -> bytes:
        return self.message(1, _OBJECT.pack(flags, fec_id, self.object_id), fti, content)

    def command(self, flavor: int, rest: bytes = b"\0\0\0", extensions: bytes = b"", content: bytes = b"") -> bytes:
        return self.message(3, bytes((flavor,)) + rest, extensions, content)

    def flush(self, block: int, symbol: int, nodes: bytes = b"", fec_id: int = 5, flavor: int = 1) -> bytes:
        rest = struct.pack(">BH", fec_id, self.object_id) + payload_id(fec_id, block, symbol)
        return self.command(flavor, rest, content=nodes)

    def probe(self, nodes: bytes = b"", rate: bool = True) -> bytes:
        rest = struct.pack(">BHII", 0, self.sequence, 1000 + self.sequence, 5)
        return self.command(4, rest, b"\x80\0\x40\x05" if rate else b"", nodes)


def payload_id(fec_id: int, block: int, symbol: int, length: int = 64) -> bytes:
    match fec_id:
        case 129:
            return struct.pack(">IHH", block & 0xFFFFFFFF, length & 0xFFFF, symbol & 0xFFFF)
        case 0:
            return struct.pack(">HH", block & 0xFFFF, symbol & 0xFFFF)
        case _:
            return struct.pack(">I", (block << 8 | symbol & 255) & 0xFFFFFFFF)


def fti(fec_id: int, size: int, segment: int, block: int, parity: int = 0, bits: int = 8, group: int = 1) -> bytes:
    head = struct.pack(">HI", size >> 32 & 0xFFFF, size & 0xFFFFFFFF)
    match fec_id:
        case 0:
            return b"\x40\x04" + head + struct.pack(">HHI", 0, segment, block & 0xFFFFFFFF)
        case 2:
            return b"\x40\x04" + head + struct.pack(">BBHHH", bits, group, segment, block & 0xFFFF, parity & 0xFFFF)
        case 129:
            return (
                b"\x40\x04" + head + struct.pack(">HHHH", group - 1 & 0xFFFF, segment, block & 0xFFFF, parity & 0xFFFF)
            )
        case _:
            return b"\x40\x03" + head + struct.pack(">HBB", segment, block & 255, parity & 255)


def feedback(
    kind: int,
    source: int,
    sender: int,
    instance: int,
    content: bytes = b"",
    ack: tuple[int, int] = (0, 0),
    response: tuple[int, int] = (0, 0),
    extensions: bytes = b"",
) -> bytes:
    """A NACK or an ACK."""
    words = 6 + len(extensions) // 4
    fields = _RECEIVER.pack(sender, instance, *ack, *response)
    return _COMMON.pack(0x10 | kind, words, 0, source) + fields + extensions + content


def request(form: int, flags: int, items: bytes, length: int | None = None) -> bytes:
    return struct.pack(">BBH", form, flags, (len(items) if length is None else length) & 0xFFFF) + items


def item(object_id: int, block: int = 0, symbol: int = 0, fec_id: int = 5) -> bytes:
    return struct.pack(">BBH", fec_id, 0, object_id & 0xFFFF) + payload_id(fec_id, block, symbol)


class Shot(NamedTuple):
    """What is fired at the target at once."""

    data: bytes
    address: Address
    segment_bytes: int = 0
    """Of a train; 0 for a single datagram."""
    by_unicast: bool = False


class Broken(Exception):  # noqa: N818 - what it is, is said by its text
    """Something that was promised did not hold."""


# The attacker.


class Attacker:
    """Campaigns against a target. Each is an endless stream of shots; the same seed makes the same ones."""

    def __init__(self, random: Random, target: "Sight", is_forging: bool) -> None:
        self.random = random
        self.target = target
        self.is_forging = is_forging
        self._ids = count(1)
        self._mutator = Mutator(random.getrandbits(32))
        self.campaigns: dict[str, Callable[[], Iterator[Shot]]] = {
            name.removeprefix("run_"): getattr(self, name)
            for name in dir(self)
            if name.startswith("run_") and (is_forging or not name.startswith("run_forged"))
        }

    def fake(self, **fields: Any) -> Fake:
        """A sender nobody has heard of."""
        number = next(self._ids)
        random = self.random
        if random.random() < 0.3:
            fields.setdefault("grtt_q", random.choice((0, 1, 32, 76, 106, 166, 255)))
            fields.setdefault("backoff_gsize", random.choice((0, 0x0F, 0x40, 0xF7, 0xFF, random.getrandbits(8))))
        object_id = random.choice((0, 1, 0x7FFF, 0x8000, 0xFFFF, random.getrandbits(16)))
        address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}", 6003
        return Fake(number, random.getrandbits(16), address, **{"object_id": object_id, **fields})

    def some(self, most: int) -> int:
        """A number below, more often at the ends."""
        random = self.random
        return random.choice((0, 1, most - 1, most >> 1, random.randrange(most), random.randrange(most), 2 % most))

    def lie(self) -> tuple[int, bytes]:
        """A FEC id and what an EXT_FTI may say of it."""
        random = self.random
        fec_id = random.choice((0, 2, 5, 129))
        size = random.choice((0, 1, 100, 5000, 1 << 20, 1 << 30, (1 << 30) + 1, (1 << 48) - 1, random.getrandbits(48)))
        segment = random.choice((0, 1, 2, 16, 100, 1400, 65_000, 65_001, 65_535, random.getrandbits(16)))
        block = random.choice((0, 1, 2, 64, 200, 255, 256, 65_535, 0xFFFFFFFF, random.getrandbits(32)))
        parity = random.choice((0, 0, 1, 10, 128, 254, 255, 1000, 65_535))
        bits = random.choice((0, 1, 8, 8, 16, 16, 17, 255))
        return fec_id, fti(fec_id, size, segment, block, parity, bits, random.choice((1, 1, 1, 0, 2, 255)))

    # Bytes.

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
        """Good and bad DATA in trains whose segment size fits nothing."""
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
            rest = _OBJECT.pack(0, 5, fake.object_id) + payload_id(5, 0, 0)
            yield Shot(fake.message(2, rest, bad, b"x" * 50), fake.address)
            yield Shot(fake.message(2, rest, bad, b"x" * 50, words=random.randrange(256)), fake.address)
            yield Shot(fake.command(random.randrange(9), b"\0\0\0", bad), fake.address)

    # Objects.

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
        """Claims of much, by one sender that lives on."""
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

    def run_fragments(self) -> Iterator[Shot]:
        """As many gaps as can be, in a train each."""
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
        """All blocks there can be are to be missing."""
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
        """Parity alone, more of it than can be used, of all lengths; now and then enough to decode."""
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
        """A symbol that is none before the first of all, in one train."""
        random = self.random
        while True:
            fake = self.fake()
            ext = fti(5, 2000, 100, 10, random.choice((0, 5)))
            places = [random.choice(((0, 10), (0, 255), (1 << 23, 0), (0, 0), (0, 1), (1, 0))) for _ in range(8)]
            rows = [fake.data(block, symbol, bytes(100), fti=ext) for block, symbol in places]
            yield Shot(b"".join(rows), fake.address, len(rows[0]))

    # Streams.

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
        """All that a stream can have waiting, then the segment that all of it waits for."""
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

    # Commands.

    def run_probes(self) -> Iterator[Shot]:
        """Each names the target, so that it answers at once."""
        random = self.random
        while True:
            fake = self.fake(grtt_q=random.choice((0, 106)), backoff_gsize=random.choice((0, 0x42)))
            for _ in range(30):
                node = struct.pack(
                    ">IBBH", TARGET, random.getrandbits(8), random.getrandbits(8), random.getrandbits(16)
                )
                yield Shot(fake.probe(node * random.choice((1, 1, 1, 200)), random.random() < 0.9), fake.address)

    def run_watermarks(self) -> Iterator[Shot]:
        """Confirmations are asked for, of nothing and of something."""
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
        """A sender that begins anew with every datagram."""
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

    # Requests and answers.

    def run_nacks(self) -> Iterator[Shot]:
        """For what the target sends: everything, again and again."""
        random, target = self.random, self.target
        while True:
            source, address = next(self._ids), self.fake().address
            near = target.object_id
            kind = random.randrange(8)
            if kind == 0:  # all objects
                content = request(2, 8 | random.choice((0, 4)), item(near - 300) + item(near + random.choice((0, 300))))
            elif kind == 1:  # all blocks, of all
                content = b"".join(
                    request(2, 2, item(near - step) + item(near - step, (1 << 24) - 1)) for step in range(20)
                )
                content += b"".join(request(2, 2, item(near - step) + item(near - step, 3)) for step in range(20))
            elif kind == 2:  # symbols, wherever
                items = b"".join(item(near - random.randrange(3), self.some(300), self.some(256)) for _ in range(100))
                content = request(random.choice((1, 2, 3)), random.choice((1, 1, 2, 5)), items)
            elif kind == 3:  # every second one, of a lot
                content = request(
                    1, 1, b"".join(item(near, block, 2 * symbol) for block in range(8) for symbol in range(20))
                )
            elif kind == 4:  # as much as a datagram holds, all of it about everything
                pair = item(near - 255) + item(near)
                content = request(2, 8, pair * (4000 if random.random() < 0.05 else 80))
            elif kind == 5:
                content = request(
                    random.randrange(5),
                    random.getrandbits(8),
                    random.randbytes(self.some(400)),
                    random.choice((None, 0xFFFF, 4)),
                )
            elif kind == 6:  # other codes
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
        """What others ask of a sender that the target is about to ask, too."""
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
        """Little is sent, a lot is missing: what does the target say to that, and how often?"""
        random = self.random
        while True:
            fake = self.fake(grtt_q=0, backoff_gsize=random.choice((0, 0x42)))
            segment = random.choice((16, 1000, 65_000))
            ext = fti(5, 1 << 24, segment, 2)
            for at in range(0, 200, 2):
                yield Shot(fake.data(*divmod(at, 2), bytes(16), fti=ext), fake.address)
            for _ in range(200):
                yield Shot(fake.flush(200, 0), fake.address)

    # In others' names.

    def run_own_id(self) -> Iterator[Shot]:
        """In the target's own."""
        random, target = self.random, self.target
        fake = Fake(TARGET, target.instance_id, ("10.9.9.9", 1))
        while True:
            yield Shot(fake.data(0, 0, bytes(100), fti=fti(5, 5000, 100, 10)), fake.address)
            yield Shot(fake.probe(), fake.address)
            yield Shot(feedback(4, TARGET, TARGET, target.instance_id, request(2, 8, item(0) + item(9))), fake.address)
            yield Shot(feedback(5, TARGET, HONEST_SENDER, 0, item(0), (2, 0)), fake.address)
            yield Shot(fake.command(random.randrange(1, 9)), fake.address)

    def run_forged_replay(self) -> Iterator[Shot]:
        """What the honest ones sent, altered."""
        random, seen = self.random, self.target.seen
        while True:
            if not seen:
                yield Shot(b"\x12", self.fake().address)
                continue
            data = bytearray(random.choice(seen))
            for _ in range(random.choice((0, 1, 1, 2, 4))):
                at = random.randrange(min(len(data), 48))
                if at not in range(4, 10) and at > 1:
                    data[at] = random.choice((0, 1, 255, random.getrandbits(8), data[at] ^ 1 << random.randrange(8)))
            yield Shot(bytes(data), ("h", 1))

    def run_forged_sender(self) -> Iterator[Shot]:
        """The honest sender's name, and what comes to mind."""
        random = self.random
        inner = [
            self.run_streams,
            self.run_squelches,
            self.run_fti_lies,
            self.run_commands,
            self.run_probes,
            self.run_parity,
        ]
        honest = struct.pack(">I", HONEST_SENDER)
        while True:
            for shot in islice(random.choice(inner)(), 50):
                data = bytearray(shot.data)
                data[4:8] = honest
                data[8:10] = struct.pack(">H", self.target.sender_instance_id)
                if len(data) > 16 and data[0] == 0x12 and random.random() < 0.8:
                    data[14:16] = struct.pack(">H", self.target.sender_object_id & 0xFFFF)
                yield Shot(bytes(data), ("h", 1), shot.segment_bytes and len(data))


@dataclass(slots=True)
class Sight:
    """What an attacker can see."""

    instance_id: int
    object_id: int = 0
    sender_instance_id: int = 0
    sender_object_id: int = 0
    now: float = 0.0
    seen: deque[bytes] = field(default_factory=lambda: deque(maxlen=200))


# The arena.


@dataclass(slots=True)
class Honest:
    """One honest way: who sends, and what has to come out at the other end."""

    objects: dict[int, bytes] = field(default_factory=dict)
    stream_id: int = -1
    written: bytearray = field(default_factory=bytearray)
    read: bytearray = field(default_factory=bytearray)
    received: set[int] = field(default_factory=set)
    first_waiting_since: float = 0.0


@dataclass(slots=True)
class Figures:
    """What came of it all."""

    kinds: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    slowest: dict[str, float] = field(default_factory=dict)
    drops: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    amplification: dict[str, float] = field(default_factory=dict)
    elements_most: int = 0
    used_most: int = 0
    objects: int = 0
    """Honest ones, delivered under attack."""


SENDERS = (
    SenderConfig(segment_bytes=500, rate_bps=4e6, grtt_max_s=0.25, cache_bytes=1 << 20, stream_bytes=1 << 19),
    SenderConfig(
        segment_bytes=500,
        block_segments=20,
        fec=Fec.RS,
        parity_segments=10,
        rate_bps=4e6,
        grtt_max_s=0.25,
        cache_bytes=1 << 20,
        stream_bytes=1 << 19,
        auto_parity=1,
    ),
    SenderConfig(segment_bytes=500, fec=Fec.NOCODE, rate_bps=4e6, grtt_max_s=0.25, stream_bytes=1 << 19),
)


class Arena:
    """The target, its honest partners, and the time that passes for them."""

    def __init__(self, seed: int, *, is_forging: bool = False, figures: Figures | None = None) -> None:
        random = self.random = Random(seed)
        self.figures = figures or Figures()
        self.is_forging = is_forging
        self.is_unicast = random.random() < 0.5
        self.receiver_config = ReceiverConfig(
            sync=random.choice(list(Sync)),
            unicast_nack=self.is_unicast,
            object_bytes_max=1 << 30,
            stream_bytes_max=1 << 19,
            total_bytes_max=32 << 20,
            objects_max=random.choice((16, 256)),
            senders_max=random.choice((16, 128, 1024)),
        )
        self.sender_config = random.choice(SENDERS)
        self.step_s = random.choice((2e-6, 5e-5, 5e-5, 1e-3))
        """Between two hostile datagrams."""
        others = SessionConfig(node_id=HONEST_SENDER, sender=random.choice(SENDERS))
        self.sender = Engine(others, GROUP, random=Random(seed + 1))
        config = SessionConfig(node_id=TARGET, sender=self.sender_config, receiver=self.receiver_config)
        self.target = Engine(config, GROUP, random=Random(seed + 2))
        self.receiver = Engine(SessionConfig(node_id=HONEST_RECEIVER), GROUP, random=Random(seed + 3))
        self.addresses: dict[Engine, Address] = {self.sender: ("h", 1), self.target: ("t", 1), self.receiver: ("r", 1)}
        self.engines = {address: engine for engine, address in self.addresses.items()}
        for engine, address in self.addresses.items():
            engine.own_address = address
        self.now = START
        self.way: deque[tuple[float, Engine, Train, bool]] = deque()
        self.ways = {self.sender: Honest(), self.target: Honest()}
        self.sight = Sight(self.target._sender.instance_id, now=self.now)
        self.sight.sender_instance_id = self.sender._sender.instance_id
        self.attacker = Attacker(Random(seed + 4), self.sight, is_forging)
        self.bytes_in: Counter[Address] = Counter()
        self.bytes_out: Counter[Address] = Counter()
        self.group_in = 0
        self.resident_at_start = resident_bytes()
        self.next_content_at = self.now
        self.is_over = False
        for engine, way in self.ways.items():
            way.stream_id = engine.open_stream(None, self.now)
        self.sent_by_target_at_start = 0

    # Honest work.

    def work(self) -> None:
        """Give the honest ones something to do now and then, and carry what they say."""
        if self.now >= self.next_content_at and not self.is_over:
            self.next_content_at = self.now + 0.1
            for engine, way in self.ways.items():
                content = self.random.randbytes(self.random.randrange(1, 8000))
                if len(way.objects) - len(way.received) < 20 and engine.has_room(len(content)):
                    info = content[:20] if self.random.random() < 0.3 else None
                    way.objects[engine.enqueue(MemorySource(content), info, False, self.now)] = content
                taken = engine.write(way.stream_id, memoryview(content), [0])
                way.written += content[:taken]
                engine.flush(way.stream_id)
                self.settle(engine)
        while self.way and self.way[0][0] <= self.now:
            _, engine, train, by_unicast = self.way.popleft()
            engine.receive_train(train, self.now, by_unicast)
            self.settle(engine)
        for engine in self.addresses:
            if engine.poll_timeout() <= self.now:
                started = time.thread_time()
                engine.handle_timeout(self.now)
                if engine is self.target:
                    self.note_time(TIMERS, time.thread_time() - started, SLOWEST_S)
                self.settle(engine)

    def settle(self, engine: Engine) -> int:
        """Send what an engine has to send, take what happened. How many events there were."""
        while (train := engine.poll_train(self.now)) is not None:
            self.carry(engine, train)
        number = 0
        while (event := engine.poll_event()) is not None:
            number += 1
            self.take(engine, event)
        return number

    def carry(self, engine: Engine, train: Train) -> None:
        if train.data.size == 0:
            raise Broken("an empty train was sent")
        data = train.data.copy()
        if engine is self.target:
            self.note_out(train)
        elif engine is self.sender:
            self.sight.seen.append(data[: train.segment_bytes].tobytes())
            if data[0] == 0x12:
                self.sight.sender_object_id = int(data[14]) << 8 | int(data[15])
        for other in self.addresses:
            is_meant = train.address in (GROUP, self.addresses[other])
            if other is not engine and is_meant:
                left = self.lose(data, train.segment_bytes)
                if left.size:
                    arriving = Train(left, train.segment_bytes, self.addresses[engine])
                    self.way.append((self.now + DELAY_S, other, arriving, train.address != GROUP))

    def note_out(self, train: Train) -> None:
        """Count what the target says, by whom it goes to."""
        size = train.data.size + HEADERS_BYTES * train.count
        if int(train.data[0]) & 15 in (4, 5):
            self.bytes_out[train.address] += size
        if train.data[0] == 0x12 and train.data[12] & 0x20 == 0:
            self.sight.object_id = int(train.data[14]) << 8 | int(train.data[15])

    def lose(self, data: np.ndarray, segment_bytes: int) -> np.ndarray:
        number = 0 if self.now < START + QUIET_S else -(-data.size // segment_bytes)
        lost = [at for at in range(number) if self.random.random() < HONEST_LOSS]
        if not lost:
            return data
        rows = [data[at * segment_bytes : (at + 1) * segment_bytes] for at in range(number) if at not in lost]
        return np.concatenate(rows) if rows else data[:0]

    def take(self, engine: Engine, event: Event) -> None:
        if engine is self.target:
            self.figures.events[type(event).__name__] += 1
        source = {self.target: HONEST_SENDER, self.receiver: TARGET}.get(engine)
        if source is None or getattr(event, "sender_id", None) != source:
            return
        way = self.ways[self.sender if source == HONEST_SENDER else self.target]
        if self.is_forging and source == HONEST_SENDER:
            return
        match event:
            case ObjectCompleted():
                if bytes(event.data or b"") != way.objects.get(event.object_id):
                    raise Broken(f"object {event.object_id} altered")
                way.received.add(event.object_id)
                self.figures.objects += 1
            case StreamReceived():
                if event.start != len(way.read):
                    raise Broken(f"stream goes on at {event.start}, expected {len(way.read)}")
                way.read += event.data
                if way.read[event.start :] != way.written[event.start : len(way.read)]:
                    raise Broken("stream altered")
            case StreamLost():
                raise Broken(f"honest stream lost {event}")

    # The attack.

    def fire(self, kind: str, shot: Shot) -> None:
        """One hostile train, and a look at what it did."""
        data = np.frombuffer(shot.data, np.uint8)
        train = Train(data, shot.segment_bytes or data.size, shot.address)
        target = self.target
        self.bytes_in[shot.address] += data.size + HEADERS_BYTES * train.count
        self.group_in += data.size + HEADERS_BYTES * train.count
        self.sight.now = self.now + 1.0  # as probes tell it
        decoded = target.stats.segments_decoded
        started = time.thread_time()
        target.receive_train(train, self.now, shot.by_unicast)
        target.poll_timeout()
        elapsed = time.thread_time() - started
        if target.poll_timeout() <= self.now:
            target.handle_timeout(self.now)
            target.poll_timeout()
            elapsed = time.thread_time() - started
        number = self.settle(target)
        if number > EVENTS_AT_ONCE + 4 * train.count:
            raise Broken(f"{number} events after one train")
        slowest = SLOWEST_S + SLOWEST_PER_BYTE_S * data.size + 50e-6 * train.count
        slowest += 0.3 if target.stats.segments_decoded > decoded else 0.0
        self.note_time(kind, elapsed, slowest)
        if target.memory_bytes > self.receiver_config.total_bytes_max:
            raise Broken(f"{target.memory_bytes:,} bytes used, {self.receiver_config.total_bytes_max:,} allowed")

    def note_time(self, kind: str, elapsed: float, most: float) -> None:
        figures = self.figures
        figures.kinds[kind] += 1
        figures.seconds[kind] += elapsed
        figures.slowest[kind] = max(figures.slowest.get(kind, 0.0), elapsed)
        if elapsed > most:
            raise Broken(f"{kind} took {elapsed * 1e3:.1f} ms")

    def check(self) -> None:
        """What need not be looked at after every datagram."""
        figures = self.figures
        elements, array_bytes = count_elements(self.target)
        config = self.receiver_config
        if array_bytes > (config.senders_max + 2) * config.total_bytes_max:
            raise Broken(f"arrays of {array_bytes:,} bytes, {config.senders_max} senders may exist")
        if (resident := resident_bytes() - self.resident_at_start) > 1.5 * config.total_bytes_max + RESIDENT_FREE:
            raise Broken(f"{resident:,} bytes more are resident than at the start")
        figures.elements_most = max(figures.elements_most, elements)
        figures.used_most = max(figures.used_most, self.target.memory_bytes)
        if elements > elements_allowed(self.target.config):
            raise Broken(f"{elements:,} elements, {elements_allowed(self.target.config):,} allowed")
        kind = "unicast" if self.is_unicast else "group"
        group_in = self.group_in + 10_000
        for address, size in self.bytes_out.items():
            if address in self.engines:
                continue
            came = group_in if address == GROUP else self.bytes_in[address]
            if size > AMPLIFICATION_FREE:
                figures.amplification[kind] = max(figures.amplification.get(kind, 0.0), size / max(came, 1))
            if size > AMPLIFICATION_MOST * came + AMPLIFICATION_FREE:
                raise Broken(f"{size:,} bytes to {address}, {came:,} came from there")
        sent, elapsed = self.target.stats.bytes_sent, self.now - START
        rate = (self.sender_config.rate_bps or 0) / 8
        # Commands and answers are not paced: those are few, or bounded by what came in.
        if sent > rate * (elapsed + 0.1) + 2 * sum(self.bytes_out.values()) + 50_000 + 30_000 * elapsed:
            raise Broken(f"{sent:,} bytes sent in {elapsed:.2f} s")

    def end(self) -> None:
        """The attack is over: what the honest ones have sent must arrive."""
        self.is_over = True
        deadline = self.now + RECOVERY_S
        while self.now < deadline and not self.is_done:
            nearest = min(engine.poll_timeout() for engine in self.addresses)
            nearest = min(nearest, self.way[0][0] if self.way else nearest)
            if nearest > deadline:
                break
            self.now = max(self.now + 1e-6, nearest)
            self.work()
        for reason, number in self.target.stats.drops.items():
            self.figures.drops[reason.name] += number
        if not self.is_done:
            raise Broken("; ".join(self.lacking()))

    @property
    def is_done(self) -> bool:
        return not any(self.lacking())

    def lacking(self) -> Iterator[str]:
        for engine, way in self.ways.items():
            if self.is_forging and engine is self.sender:
                continue
            name = "to" if engine is self.sender else "from"
            if way.received != way.objects.keys():
                yield f"objects {sorted(way.objects.keys() - way.received)[:9]} {name} the target did not arrive"
            if way.read != way.written:
                yield f"{len(way.read):,} of {len(way.written):,} bytes of the stream {name} the target arrived"


def elements_allowed(config: SessionConfig) -> int:
    """How many elements all containers of an engine together may have."""
    receiver, sender = config.receiver or ReceiverConfig(), config.sender
    own = 60 * sender.cache_objects + 8 * (sender.cache_bytes + 4 * sender.stream_bytes) // sender.segment_bytes
    remote = receiver.senders_max * (3 * 2048 + 40 * receiver.objects_max)
    return own + remote + receiver.total_bytes_max // 40 + 50_000


def resident_bytes() -> int:
    """Of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def count_elements(engine: Engine) -> tuple[int, int]:
    """Elements of all containers that an engine holds, however deep, and the bytes of its arrays, touched or not."""
    total = array_bytes = 0
    seen: set[int] = set()
    waiting: list[Any] = [engine]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, dict):
            total += len(thing)
            waiting += thing.keys()
            waiting += thing.values()
        elif isinstance(thing, (list, set, frozenset, deque, tuple)):
            total += len(thing)
            if not (thing and isinstance(next(iter(thing)), (int, float, bytes))):
                waiting += thing
        elif isinstance(thing, RangeSet):
            total += 2 * thing.range_count
        elif isinstance(thing, np.ndarray):
            array_bytes += thing.nbytes if thing.base is None else 0
        elif type(thing).__module__.startswith("fjm2.") and not isinstance(thing, (type, Enum)):
            waiting += _attributes(thing)
        elif hasattr(thing, "__self__"):
            waiting.append(thing.__self__)
    return total, array_bytes


def _attributes(thing: object) -> Iterator[object]:
    yield from getattr(thing, "__dict__", {}).values()
    for name in _slots(type(thing)):
        if hasattr(thing, name):
            yield getattr(thing, name)


@cache
def _slots(kind: type) -> tuple[str, ...]:
    return tuple(name for base in kind.__mro__ for name in getattr(base, "__slots__", ()) if isinstance(name, str))


# Running it.


def attack(
    cases: int,
    seed: int,
    *,
    only: str | None = None,
    is_forging: bool | None = None,
    figures: Figures | None = None,
    progress: Callable[[int], None] | None = None,
) -> Figures:
    """Fire so many datagrams or trains at targets. A Broken, with what reproduces it, where one does not stand it."""
    figures = figures or Figures()
    done = 0
    for epoch in count():
        if done >= cases:
            break
        number = min(EPOCH_CASES, cases - done)
        epoch_seed = seed + epoch
        is_forged = epoch % 3 == 2 if is_forging is None else is_forging
        _attack_once(number, epoch_seed, only, is_forged, figures, done, progress)
        done += number
    mean_s = sum(figures.seconds.values()) / max(1, figures.kinds.total())
    if mean_s > MEAN_MOST_S and cases >= 10_000 and only is None:
        raise Broken(f"{mean_s * 1e6:.0f} us a datagram on average; seed {seed}")
    return figures


def _attack_once(
    cases: int,
    seed: int,
    only: str | None,
    is_forging: bool,
    figures: Figures,
    before: int,
    progress: Callable[[int], None] | None,
) -> None:
    gc.collect()
    gc.freeze()  # what others have made is not to cost time here
    arena = Arena(seed, is_forging=is_forging, figures=figures)
    attacker = arena.attacker
    names = [only] if only else list(attacker.campaigns)
    under_way: list[tuple[str, Iterator[Shot], list[int]]] = []
    name, shot = "", None
    try:
        arena.work()
        while arena.now < START + QUIET_S:
            arena.now += 1e-3
            arena.work()
        for number in range(cases):
            while len(under_way) < 4:
                name = attacker.random.choice(names)
                length = attacker.random.choice((20, 200, 2000, 8000))
                under_way.append((name, attacker.campaigns[name](), [length]))
            at = attacker.random.randrange(4)
            name, shots, left = under_way[at]
            left[0] -= 1
            if left[0] <= 0:
                del under_way[at]
            shot = next(shots)
            arena.fire(name, shot)
            arena.now += arena.step_s
            arena.work()
            if number % 4096 == 4095:
                arena.check()
                if progress is not None:
                    progress(before + number + 1)
        arena.check()
        name, shot = "the end", None
        arena.end()
    except Exception as error:
        what = str(error) if isinstance(error, Broken) else f"{type(error).__name__}: {error}"
        only_text = f" --only {only}" if only else ""
        options = f"--seed {seed} --cases {cases}{only_text}{' --forging' if is_forging else ' --honest'}"
        last = "" if shot is None else f"\nlast: {shot.data[:200].hex()} ({len(shot.data)} bytes, {shot.segment_bytes})"
        raise Broken(f"{name}: {what}\nto reproduce: python tests/hostile.py {options}{last}") from error
    finally:
        gc.unfreeze()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="hostile.py",
        description=__doc__,
        epilog="Exit status: 0 if all went as promised, 1 if not (what reproduces it is printed), 130 if interrupted.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--cases", type=int, default=10_000_000, metavar="N", help="datagrams or trains (default: 10,000,000)")
    add("--seed", type=int, metavar="S", help="makes the same cases again (default: a new one, which is printed)")
    add("--only", metavar="KIND", help="this kind of attack and no other")
    add("--forging", action="store_true", help="only attackers that speak in the honest sender's name, too")
    add("--honest", action="store_true", help="only attackers that do not")
    options = parser.parse_args(arguments)
    seed = Random().getrandbits(32) if options.seed is None else options.seed
    is_forging = True if options.forging else False if options.honest else None
    print(f"seed {seed}, {options.cases:,} cases", flush=True)
    figures = Figures()
    started = time.perf_counter()
    show_progress = sys.stderr.isatty()

    def progress(done: int) -> None:
        if show_progress:
            rate = done / (time.perf_counter() - started)
            print(f"\r{done:,} cases, {rate:,.0f} cases/s, {done / options.cases:.0%} ", end="", file=sys.stderr)

    status = 0
    try:
        attack(options.cases, seed, only=options.only, is_forging=is_forging, figures=figures, progress=progress)
    except KeyboardInterrupt:
        status = 130
    except Broken as broken:
        print(f"\n{broken}", file=sys.stderr)
        if broken.__cause__ is not None and not isinstance(broken.__cause__, Broken):
            raise
        status = 1
    _print_summary(figures, time.perf_counter() - started)
    return status


def _print_summary(figures: Figures, elapsed_s: float) -> None:
    for kind, number in sorted(figures.kinds.items(), key=lambda pair: -pair[1]):
        mean_us = figures.seconds[kind] / number * 1e6
        print(f"{number:>10,}  {kind:<18} mean {mean_us:6.0f} us, slowest {figures.slowest[kind] * 1e3:6.1f} ms")
    for title, counts in (("dropped", figures.drops), ("events", figures.events)):
        print(f"{title}: " + ", ".join(f"{name} {number:,}" for name, number in counts.most_common()))
    factors = ", ".join(f"{kind} {factor:.2f}" for kind, factor in sorted(figures.amplification.items()))
    print(f"bytes out for one in: {factors or 'nothing to speak of'}")
    print(f"most elements {figures.elements_most:,}, most memory {figures.used_most:,} bytes")
    print(f"honest objects that arrived: {figures.objects:,}")
    total = figures.kinds.total() - figures.kinds[TIMERS]
    print(f"{total:>10,}  cases in {elapsed_s:.1f} s, {total / elapsed_s:,.0f} cases/s")


if __name__ == "__main__":
    sys.exit(main())
