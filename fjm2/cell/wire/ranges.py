"""Names of ledgers, and ranges of their sequences, to bytes and back."""

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from fjm2.base.ledger import SEQUENCE_MAX, Ledger

from .fields import FieldReader, MalformedError, check_count, pack, require

DECISION_LANE: Final = 255
"""Lane of the ledgers that are decision logs. Their producer id is the cell id, their producer epoch the epoch."""
RANGES_MAX: Final = 2000
"""Most ranges in a message: as many as a UDP datagram of 64 KB holds."""

_NAME = struct.Struct(">QIBBH")
_RANGE = struct.Struct(">QIBBHQII")
_SPAN = struct.Struct(">QQ")
_POSITION = struct.Struct(">QIBBHQ")
_COUNT = struct.Struct(">I")
NAME_BYTES: Final = _NAME.size
RANGE_BYTES: Final = _RANGE.size


COUNT_MAX: Final = 0xFFFF_FFFF
"""Largest count that a range can name."""


@dataclass(frozen=True, slots=True)
class Range:
    """Consecutive sequences of a ledger, as a consumer names them."""

    ledger: Ledger
    first: int
    count: int
    consumer: int = 0
    deliveries: int = 0
    """Number of times that these messages have been delivered; 255 stands for more, too."""

    @property
    def last(self) -> int:
        return self.first + self.count - 1

    def encode(self) -> bytes:
        """Return the 32 bytes of the range."""
        if not 1 <= self.first <= self.last <= SEQUENCE_MAX:
            raise ValueError(f"count={self.count} from sequence {self.first}: expected one or more, from 1 on")
        return pack(_RANGE, *self.ledger, self.deliveries, 0, self.first, self.count, self.consumer)


class Position(NamedTuple):
    """One sequence of a ledger."""

    ledger: Ledger
    sequence: int

    def encode(self) -> bytes:
        return pack(_POSITION, *self.ledger, 0, 0, self.sequence)


Spans = tuple[tuple[int, int], ...]
"""A set of sequences: its ranges [first, last] in ascending order, with gaps between them."""


def encode_ledger(ledger: Ledger) -> bytes:
    """Return the 16 bytes of a ledger's name."""
    return pack(_NAME, *ledger, 0, 0)


def read_ledger(reader: FieldReader) -> Ledger:
    """Read the name of a ledger."""
    producer_id, producer_epoch, lane, deliveries, zero = reader.unpack(_NAME)
    require(not deliveries and not zero)
    return Ledger(producer_id, producer_epoch, lane)


def read_range(reader: FieldReader) -> Range:
    """Read a range."""
    producer_id, producer_epoch, lane, deliveries, zero, first, count, consumer = reader.unpack(_RANGE)
    require(not zero and first >= 1 and count >= 1 and first + count - 1 <= SEQUENCE_MAX)
    return Range(Ledger(producer_id, producer_epoch, lane), first, count, consumer, deliveries)


def read_ranges(reader: FieldReader, count: int) -> tuple[Range, ...]:
    """Read `count` ranges."""
    require(count <= RANGES_MAX and reader.remaining >= count * RANGE_BYTES)
    return tuple(read_range(reader) for _ in range(count))


def encode_ranges(ranges: tuple[Range, ...]) -> bytes:
    """Return ranges end to end."""
    check_count("ranges", len(ranges), 0, RANGES_MAX)
    return b"".join(each.encode() for each in ranges)


def read_positions(reader: FieldReader) -> tuple[Position, ...]:
    """Read a number of positions, and the positions."""
    (count,) = reader.unpack(_COUNT)
    require(reader.remaining >= count * _POSITION.size)
    positions = []
    for _ in range(count):
        producer_id, producer_epoch, lane, deliveries, zero, sequence = reader.unpack(_POSITION)
        require(not deliveries and not zero)
        positions.append(Position(Ledger(producer_id, producer_epoch, lane), sequence))
    return tuple(positions)


def encode_positions(positions: tuple[Position, ...]) -> bytes:
    return pack(_COUNT, len(positions)) + b"".join(each.encode() for each in positions)


def read_spans(reader: FieldReader) -> Spans:
    """Read a number of spans, and the spans."""
    (count,) = reader.unpack(_COUNT)
    require(reader.remaining >= count * _SPAN.size)
    spans = []
    free = 1
    for _ in range(count):
        first, last = reader.unpack(_SPAN)
        require(free <= first <= last)
        spans.append((first, last))
        free = last + 2  # spans that touch would be one span
    return tuple(spans)


def encode_spans(spans: Spans) -> bytes:
    data = pack(_COUNT, len(spans)) + b"".join(pack(_SPAN, first, last) for first, last in spans)
    try:
        read_spans(FieldReader(data))
    except MalformedError:
        raise ValueError(f"{spans}: expected spans in ascending order, with gaps between them") from None
    return data
