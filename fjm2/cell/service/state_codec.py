"""The decided state to bytes and back, for snapshots and for the manager's draft."""

import struct
from typing import Final

from fjm2.base.ranges import RangeSet
from fjm2.cell.subscription_table import SubscriptionKey, key_of
from fjm2.cell.wire.fields import FieldReader, MalformedError, encode_text, pack, require
from fjm2.cell.wire.ranges import encode_ledger, encode_spans, read_ledger, read_spans
from fjm2.cell.wire.records import Subscription
from fjm2.cell.wire.requests import SUBSCRIPTION_FLAGS, read_place

from .cursors import ClosedLedger, ConsumerKey, Cursor
from .decided import Decided, Session

VERSION: Final = 2
_HEAD = struct.Struct(">IQQQQ")
_COUNT = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_CLOSED = struct.Struct(">QQ")
_SESSION = struct.Struct(">QB")
_FLAGS = struct.Struct(">B")
_CONSUMER = struct.Struct(">QII")


def encode_state(state: Decided) -> bytes:
    """Return a state as bytes. Members that applied the same entries get the same bytes."""
    parts = [pack(_HEAD, VERSION, state.index, state.time_ms, state.table_version, state.closed_count)]
    parts.append(pack(_COUNT, len(state.through)))
    parts += (encode_ledger(ledger) + pack(_U64, through) for ledger, through in state.through.items())
    parts.append(pack(_COUNT, len(state.closed)))
    for ledger, (since_ms, final, number) in state.closed.items():
        parts.append(encode_ledger(ledger) + pack(_CLOSED, since_ms, number) + encode_spans(final))
    parts.append(pack(_COUNT, len(state.sessions)))
    for number, session in state.sessions.items():
        head = pack(_SESSION, number, session.mode)
        parts.append(head + encode_ledger(session.ledger) + encode_text(session.client_id))
    parts.append(pack(_COUNT, len(state.cursors)))
    for cursor in state.cursors.values():
        parts.append(_encode_cursor(cursor))
    return b"".join(parts)


def _encode_cursor(cursor: Cursor) -> bytes:
    flags, destination, *texts = cursor.subscription
    parts = [pack(_FLAGS, flags), destination.encode(), *(encode_text(text) for text in texts)]
    parts.append(pack(_U64, cursor.closed_before))
    parts.append(pack(_COUNT, len(cursor.consumers)))
    parts += (pack(_CONSUMER, *key, credit) for key, credit in cursor.consumers.items())
    acknowledged = list(cursor.acknowledged())
    parts.append(pack(_COUNT, len(acknowledged)))
    parts += (encode_ledger(ledger) + _encode_ranges(ranges) for ledger, ranges in acknowledged)
    handed, returned = list(cursor.handed()), list(cursor.returned())
    parts.append(pack(_COUNT, len(handed)))
    for (session, number), ledger, held in handed:
        parts.append(pack(_CONSUMER, session, number, 0) + encode_ledger(ledger) + _encode_ranges(held))
    parts.append(pack(_COUNT, len(returned)))
    parts += (encode_ledger(ledger) + _encode_ranges(ranges) for ledger, ranges in returned)
    return b"".join(parts)


def _encode_ranges(ranges: RangeSet) -> bytes:
    return encode_spans(tuple((first, end - 1) for first, end in ranges))


def decode_state(data: bytes) -> Decided | None:
    """Return the state that `data` encodes, or None if it is malformed or of another version."""
    reader = FieldReader(data)
    state = Decided()
    try:
        version, state.index, state.time_ms, state.table_version, state.closed_count = reader.unpack(_HEAD)
        require(version == VERSION)
        for _ in range(_count(reader)):
            ledger = read_ledger(reader)
            (state.through[ledger],) = reader.unpack(_U64)
        for _ in range(_count(reader)):
            ledger = read_ledger(reader)
            since_ms, number = reader.unpack(_CLOSED)
            state.closed[ledger] = ClosedLedger(since_ms, read_spans(reader), number)
        for _ in range(_count(reader)):
            number, mode = reader.unpack(_SESSION)
            ledger = read_ledger(reader)
            require(number not in state.sessions)
            state.add_session(number, Session(ledger, mode, reader.text()))
        for _ in range(_count(reader)):
            _read_cursor(reader, state)
        reader.end()
    except MalformedError:
        return None
    _link_consumers(state)
    return state


def _count(reader: FieldReader) -> int:
    (count,) = reader.unpack(_COUNT)
    require(count <= reader.remaining)  # each takes a byte at least, so that no forged count takes long
    return count


def _read_cursor(reader: FieldReader, state: Decided) -> None:
    (flags,) = reader.unpack(_FLAGS)
    require(not flags & ~SUBSCRIPTION_FLAGS)
    subscription = Subscription(flags, read_place(reader), reader.text(), reader.text(), reader.text())
    key = key_of(subscription)
    require(key not in state.cursors)
    (closed_before,) = reader.unpack(_U64)
    cursor = state.cursors[key] = Cursor(subscription, (), state.closed, closed_before)
    for _ in range(_count(reader)):
        session, number, credit = reader.unpack(_CONSUMER)
        require(session in state.sessions)
        cursor.consumers[ConsumerKey(session, number)] = credit
    for _ in range(_count(reader)):
        ledger = read_ledger(reader)
        for first, last in read_spans(reader):
            cursor.acknowledge(ledger, first, last + 1)
    for _ in range(_count(reader)):
        session, number, zero = reader.unpack(_CONSUMER)
        require(ConsumerKey(session, number) in cursor.consumers and not zero)
        ledger = read_ledger(reader)
        for first, last in read_spans(reader):
            cursor.hand(ConsumerKey(session, number), ledger, first, last + 1)
    for _ in range(_count(reader)):
        ledger = read_ledger(reader)
        for first, last in read_spans(reader):
            cursor.note_again(ledger, first, last + 1)
    state.link(key, cursor)


def _link_consumers(state: Decided) -> None:
    """Give sessions their consumers, in the order of the numbers."""
    found: list[tuple[ConsumerKey, SubscriptionKey]] = [
        (consumer, key) for key, cursor in state.cursors.items() for consumer in cursor.consumers
    ]
    for consumer, key in sorted(found):
        state.sessions[consumer.session].consumers[consumer.number] = key
