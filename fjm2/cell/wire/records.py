"""Records of decisions, and the entries of the decision log that hold them."""

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Final, NamedTuple

from fjm2.base.ledger import Ledger

from .fields import FieldReader, MalformedError, Member, check_count, encode_text, pack, read_members, require
from .ranges import (
    Position,
    Range,
    Spans,
    encode_ledger,
    encode_positions,
    encode_spans,
    read_ledger,
    read_positions,
    read_range,
    read_spans,
)
from .requests import SUBSCRIPTION_FLAGS, Place, read_place

CONFIGURED_MAX: Final = 6
"""Most members of a configuration: five, and one more during a change."""
RECORDS_MAX: Final = 10_000
"""Most records of an entry. It bounds what one entry costs a follower at once."""
CONTENT_BYTES_MAX: Final = (1 << 24) - 1
"""Size in bytes of the longest record: its length has three bytes."""

_ENTRY = struct.Struct(">IIQ")
_CONFIGURE = struct.Struct(">IBBBB")
_TABLE = struct.Struct(">QBB")
_APPLY = struct.Struct(">QI")
_VERDICT = struct.Struct(">QB")
_RETURN = struct.Struct(">QB")
_U64 = struct.Struct(">Q")
_CHECKSUM = struct.Struct(">I")


class RecordType(IntEnum):
    """Types of records."""

    OPEN = 1
    CONFIGURE = 2
    TABLE = 3
    APPLY = 4
    HAND = 5
    RETURN = 6
    MOVE = 7
    EXPIRE = 8
    FENCE = 9
    CLOSE = 10
    TIME = 11
    SECTION = 12


@dataclass(frozen=True, slots=True)
class OpenRecord:
    """The first record of an epoch."""

    type: ClassVar = RecordType.OPEN

    def encode(self) -> bytes:
        return b""


@dataclass(frozen=True, slots=True)
class ConfigureRecord:
    """A configuration of the cell, begun or complete."""

    type: ClassVar = RecordType.CONFIGURE
    number: int
    members_wanted: int
    members: tuple[Member, ...]
    is_complete: bool

    def encode(self) -> bytes:
        check_count("members", len(self.members), 1, CONFIGURED_MAX)
        head = pack(_CONFIGURE, self.number, self.members_wanted, len(self.members), int(self.is_complete), 0)
        return head + b"".join(member.encode() for member in self.members)


class Subscription(NamedTuple):
    """A durable or shared subscription."""

    flags: int
    """`SubscriptionFlag`s."""
    destination: Place
    client_id: str
    name: str
    selector: str


@dataclass(frozen=True, slots=True)
class TableRecord:
    """A change of the table: a subscription added or dropped, and the positions at which it begins."""

    type: ClassVar = RecordType.TABLE
    version: int
    is_added: bool
    subscription: Subscription
    starts: tuple[Position, ...]
    """First sequence of each ledger that the subscription gets. It gets all of the ledgers that are not named."""

    def encode(self) -> bytes:
        flags, destination, *texts = self.subscription
        head = pack(_TABLE, self.version, int(self.is_added), flags) + destination.encode()
        return head + b"".join(encode_text(text) for text in texts) + encode_positions(self.starts)


class Verdict(NamedTuple):
    """The decision on one request."""

    sequence: int
    reason: int
    """0 for a request that is granted, otherwise why it is refused (`fjm2.cell.service.reasons`)."""


@dataclass(frozen=True, slots=True)
class ApplyRecord:
    """The decision on all requests in a client's ledger through a sequence."""

    type: ClassVar = RecordType.APPLY
    ledger: Ledger
    through: int
    verdicts: tuple[Verdict, ...]
    """In the order in which they were decided. A request through `through` that is not named was not decided, and never
    will be: the manager had no room for it. The client sends it again."""

    def encode(self) -> bytes:
        head = encode_ledger(self.ledger) + pack(_APPLY, self.through, len(self.verdicts))
        return head + b"".join(pack(_VERDICT, *each) for each in self.verdicts)


class Hand(NamedTuple):
    """A range that is handed to a session."""

    range: Range
    session: int


@dataclass(frozen=True, slots=True)
class HandRecord:
    """Ranges that are handed to sessions."""

    type: ClassVar = RecordType.HAND
    hands: tuple[Hand, ...]

    def encode(self) -> bytes:
        return b"".join(hand.range.encode() + pack(_U64, hand.session) for hand in self.hands)


@dataclass(frozen=True, slots=True)
class ReturnRecord:
    """All that a session holds goes back."""

    type: ClassVar = RecordType.RETURN
    session: int
    reason: int

    def encode(self) -> bytes:
        return pack(_RETURN, self.session, self.reason)


@dataclass(frozen=True, slots=True)
class MoveRecord:
    """A range moves to another queue."""

    type: ClassVar = RecordType.MOVE
    range: Range
    destination: Place

    def encode(self) -> bytes:
        return self.range.encode() + self.destination.encode()


@dataclass(frozen=True, slots=True)
class ExpireRecord:
    """The messages of a range have expired."""

    type: ClassVar = RecordType.EXPIRE
    range: Range

    def encode(self) -> bytes:
        return self.range.encode()


@dataclass(frozen=True, slots=True)
class FenceRecord:
    """Members refuse further frames of a ledger."""

    type: ClassVar = RecordType.FENCE
    ledger: Ledger

    def encode(self) -> bytes:
        return encode_ledger(self.ledger)


@dataclass(frozen=True, slots=True)
class CloseRecord:
    """The final set of a ledger's sequences. All others are refused for ever."""

    type: ClassVar = RecordType.CLOSE
    ledger: Ledger
    final: Spans

    def encode(self) -> bytes:
        return encode_ledger(self.ledger) + encode_spans(self.final)


@dataclass(frozen=True, slots=True)
class TimeRecord:
    """The time for all that is decided after it."""

    type: ClassVar = RecordType.TIME
    milliseconds: int
    """Milliseconds since 1970."""

    def encode(self) -> bytes:
        return pack(_U64, self.milliseconds)


@dataclass(frozen=True, slots=True)
class SectionRecord:
    """A part of the decided state, in an entry that stands for all entries before it.

    It has a checksum of its own: it is read again long after the batch that it came in was verified.
    """

    type: ClassVar = RecordType.SECTION
    name: str
    data: bytes

    def encode(self) -> bytes:
        content = encode_text(self.name) + self.data
        return pack(_CHECKSUM, zlib.crc32(content)) + content


Record = (
    OpenRecord
    | ConfigureRecord
    | TableRecord
    | ApplyRecord
    | HandRecord
    | ReturnRecord
    | MoveRecord
    | ExpireRecord
    | FenceRecord
    | CloseRecord
    | TimeRecord
    | SectionRecord
)


@dataclass(frozen=True, slots=True)
class EntryBody:
    """The body of an entry of the decision log. Its epoch and index are those of its frame in the ledger."""

    previous_epoch: int
    """Epoch of the entry before this one."""
    committed: int
    """Index through which the manager knew the log as committed."""
    records: tuple[Record, ...]

    @property
    def sections(self) -> tuple[SectionRecord, ...]:
        """The sections of a snapshot; none for any other entry."""
        return tuple(record for record in self.records if isinstance(record, SectionRecord))

    def encode(self) -> bytes:
        check_count("records", len(self.records), 0, RECORDS_MAX)
        parts = [pack(_ENTRY, self.previous_epoch, len(self.records), self.committed)]
        for record in self.records:
            content = record.encode()
            check_count("bytes of a record", len(content), 0, CONTENT_BYTES_MAX)
            parts += (bytes((record.type,)), len(content).to_bytes(3), content)
        return b"".join(parts)


def decode_entry(body: bytes) -> EntryBody | None:
    """Return the entry that `body` encodes, or None if it is malformed or has a record of an unknown type.

    An entry with an unknown record is refused as a whole: a follower that left a decision out would decide differently.
    """
    reader = FieldReader(body)
    try:
        previous_epoch, count, committed = reader.unpack(_ENTRY)
        require(count <= RECORDS_MAX)
        records = tuple(_read_record(reader) for _ in range(count))
        reader.end()
        entry = EntryBody(previous_epoch, committed, records)
        require(len(entry.sections) in (0, len(records)))  # a snapshot has nothing else
    except MalformedError:
        return None
    return entry


def _read_record(reader: FieldReader) -> Record:
    head = reader.take(4)
    decode = _DECODERS.get(head[0])
    if decode is None:
        raise MalformedError
    content = FieldReader(reader.take(int.from_bytes(head[1:])))
    record = decode(content)
    content.end()
    return record


def read_configure(reader: FieldReader) -> ConfigureRecord:
    """Read the content of a CONFIGURE record."""
    number, members_wanted, count, state, zero = reader.unpack(_CONFIGURE)
    require(1 <= count <= CONFIGURED_MAX and state <= 1 and not zero)
    return ConfigureRecord(number, members_wanted, read_members(reader, count), bool(state))


def _decode_section(reader: FieldReader) -> SectionRecord:
    (checksum,) = reader.unpack(_CHECKSUM)
    content = reader.take(reader.remaining)
    require(zlib.crc32(content) == checksum)
    reader = FieldReader(content)
    name = reader.text()
    return SectionRecord(name, reader.take(reader.remaining))


def _decode_table(reader: FieldReader) -> TableRecord:
    version, added, flags = reader.unpack(_TABLE)
    require(added <= 1 and not flags & ~SUBSCRIPTION_FLAGS)
    subscription = Subscription(flags, read_place(reader), reader.text(), reader.text(), reader.text())
    return TableRecord(version, bool(added), subscription, read_positions(reader))


def _decode_apply(reader: FieldReader) -> ApplyRecord:
    ledger = read_ledger(reader)
    through, count = reader.unpack(_APPLY)
    require(reader.remaining >= count * _VERDICT.size)
    return ApplyRecord(ledger, through, tuple(Verdict(*reader.unpack(_VERDICT)) for _ in range(count)))


def _decode_hand(reader: FieldReader) -> HandRecord:
    hands = []
    while reader.remaining:
        handed = read_range(reader)
        hands.append(Hand(handed, *reader.unpack(_U64)))
    return HandRecord(tuple(hands))


_DECODERS: Final[dict[int, Callable[[FieldReader], Record]]] = {
    RecordType.OPEN: lambda _: OpenRecord(),
    RecordType.CONFIGURE: read_configure,
    RecordType.TABLE: _decode_table,
    RecordType.APPLY: _decode_apply,
    RecordType.HAND: _decode_hand,
    RecordType.RETURN: lambda reader: ReturnRecord(*reader.unpack(_RETURN)),
    RecordType.MOVE: lambda reader: MoveRecord(read_range(reader), read_place(reader)),
    RecordType.EXPIRE: lambda reader: ExpireRecord(read_range(reader)),
    RecordType.FENCE: lambda reader: FenceRecord(read_ledger(reader)),
    RecordType.CLOSE: lambda reader: CloseRecord(read_ledger(reader), read_spans(reader)),
    RecordType.TIME: lambda reader: TimeRecord(*reader.unpack(_U64)),
    RecordType.SECTION: _decode_section,
}
