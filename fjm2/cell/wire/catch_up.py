"""Commands by which a durable subscriber learns what it has not acknowledged: one page of one ledger at a time."""

import struct
from dataclasses import dataclass
from enum import IntFlag
from typing import ClassVar, Final

from fjm2.base.ledger import SEQUENCE_MAX, Ledger, is_older

from .fields import FieldReader, check_count, pack, require
from .kinds import Kind
from .ranges import Spans, encode_ledger, read_ledger

PAGE_SPANS_MAX: Final = 64
"""Most spans of a page: as many as a datagram of 1,400 bytes holds."""

_QUERY = struct.Struct(">BBHIIIQQ")
_PAGE = struct.Struct(">BBHIIIQQ")
_U64 = struct.Struct(">Q")
_COVER = struct.Struct(">QQQ")
_SPAN = struct.Struct(">QQ")


class _Flag(IntFlag):
    """Flags of a page."""

    NEXT = 1
    OLDER = 2
    FINAL = 4
    HINT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchUpQuery:
    """A consumer's question for the messages of a ledger that its subscription has not acknowledged.

    The keeper that is asked answers with a page, and sends the frames that the page names on the replay group.
    """

    kind: ClassVar = Kind.CATCH_UP_QUERY
    is_exact: bool
    """False: a hint is enough, about this ledger or the next one that has messages for the destination."""
    reply_to: int
    """Node that asks."""
    keeper_node: int
    """Node of the keeper that is asked. The others stay silent."""
    consumer: int
    cell_id: int
    session: int
    ledger: Ledger
    first: int
    """Sequence from which on to answer."""

    def encode(self) -> bytes:
        head = pack(
            _QUERY,
            self.kind,
            int(self.is_exact),
            0,
            self.reply_to,
            self.keeper_node,
            self.consumer,
            self.cell_id,
            self.session,
        )
        return head + encode_ledger(self.ledger) + pack(_U64, self.first)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchUpPage:
    """The messages of a ledger from `first` through `through` that a subscription has not acknowledged."""

    kind: ClassVar = Kind.CATCH_UP_PAGE
    is_hint: bool
    """True: the page decides about nothing, and has one span at most: the last message."""
    reply_to: int
    """Node that asked."""
    consumer: int
    cell_id: int
    session: int
    ledger: Ledger
    first: int
    through: int
    """Last sequence that the page decides about: what is not in its spans is not for the subscription, or acknowledged.
    `first` - 1 if it decides about nothing."""
    acknowledged: int
    """Last sequence that the subscription has acknowledged. Later frames may be taken as they are heard."""
    is_final: bool
    """True if the ledger is closed, and has nothing behind the page."""
    older_ledger: Ledger | None
    """Older ledger of the same producer and lane that has, or may get, messages which the subscription has not
    acknowledged. Nothing of this one is to be delivered before. None if there is none."""
    next_ledger: Ledger | None
    """Next ledger that has messages for the subscription."""
    spans: Spans

    def encode(self) -> bytes:
        check_count("spans", len(self.spans), 0, PAGE_SPANS_MAX)
        if not _is_within(self.spans, self.first, self.through):
            raise ValueError(f"{self.spans}: expected ascending spans from {self.first} through {self.through}")
        flags = _Flag(0)
        flags |= _Flag.NEXT if self.next_ledger is not None else flags
        flags |= _Flag.OLDER if self.older_ledger is not None else flags
        flags |= _Flag.FINAL if self.is_final else flags
        flags |= _Flag.HINT if self.is_hint else flags
        head = pack(
            _PAGE,
            self.kind,
            int(flags),
            len(self.spans),
            self.reply_to,
            self.consumer,
            0,
            self.cell_id,
            self.session,
        )
        named = self.ledger, self.next_ledger or _NO_LEDGER, self.older_ledger or _NO_LEDGER
        ledgers = b"".join(encode_ledger(each) for each in named)
        cover = pack(_COVER, self.first, self.through, self.acknowledged)
        return head + ledgers + cover + b"".join(pack(_SPAN, *span) for span in self.spans)


_NO_LEDGER: Final = Ledger(0, 0, 0)


def decode_query(reader: FieldReader) -> CatchUpQuery:
    """Read a consumer's question."""
    _, is_exact, zero, reply_to, keeper_node, consumer, cell_id, session = reader.unpack(_QUERY)
    require(is_exact <= 1 and not zero)
    ledger = read_ledger(reader)
    (first,) = reader.unpack(_U64)
    require(1 <= first <= SEQUENCE_MAX)
    return CatchUpQuery(
        is_exact=bool(is_exact),
        reply_to=reply_to,
        keeper_node=keeper_node,
        consumer=consumer,
        cell_id=cell_id,
        session=session,
        ledger=ledger,
        first=first,
    )


def decode_page(reader: FieldReader) -> CatchUpPage:
    """Read a page."""
    _, flags, count, reply_to, consumer, zero, cell_id, session = reader.unpack(_PAGE)
    require(flags <= int(_Flag.NEXT | _Flag.OLDER | _Flag.FINAL | _Flag.HINT) and count <= PAGE_SPANS_MAX and not zero)
    ledger, next_ledger, older_ledger = read_ledger(reader), read_ledger(reader), read_ledger(reader)
    require(bool(flags & _Flag.NEXT) or next_ledger == _NO_LEDGER)
    require(is_older(older_ledger, ledger) if flags & _Flag.OLDER else older_ledger == _NO_LEDGER)
    first, through, acknowledged = reader.unpack(_COVER)
    require(first >= 1)
    spans = tuple((low, high) for low, high in (reader.unpack(_SPAN) for _ in range(count)))
    require(_is_within(spans, first, through))
    return CatchUpPage(
        is_hint=bool(flags & _Flag.HINT),
        reply_to=reply_to,
        consumer=consumer,
        cell_id=cell_id,
        session=session,
        ledger=ledger,
        first=first,
        through=through,
        acknowledged=acknowledged,
        is_final=bool(flags & _Flag.FINAL),
        older_ledger=older_ledger if flags & _Flag.OLDER else None,
        next_ledger=next_ledger if flags & _Flag.NEXT else None,
        spans=spans,
    )


def _is_within(spans: Spans, first: int, through: int) -> bool:
    """Return True if spans ascend, with gaps between them, and none goes beyond the page."""
    free = first
    for low, high in spans:
        if not free <= low <= high <= through:
            return False
        free = high + 2
    return through >= first - 1
