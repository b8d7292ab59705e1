"""The fixed header of a frame and its optional sections (docs/frames.md)."""

import struct
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeAlias

from .destination import KIND_FLAGS, Destination, destination_from
from .errors import InvalidDestinationError, MessageFormatError

VERSION: Final = 1  # version of the frame format
HEADER = struct.Struct("!BBBBIIH2xIIQQqq")
HEADER_BYTES: Final = HEADER.size

Header: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""Fields that `HEADER` unpacks. The constants below are their indexes."""
KIND: Final = 1
FLAGS: Final = 2
PRIORITY: Final = 3
FRAME_BYTES: Final = 4
DESTINATION_HASH: Final = 5
NAME_BYTES: Final = 6
PROPERTY_BYTES: Final = 7
SECTION_BYTES: Final = 8
CONNECTION_ID: Final = 9
NUMBER: Final = 10
TIMESTAMP: Final = 11
EXPIRATION: Final = 12

# Flags. The two for the kind of the destination are in `destination`.
PERSISTENT: Final = 1
NO_MESSAGE_ID: Final = 2
NO_TIMESTAMP: Final = 4
NULL_BODY: Final = 8
IN_TRANSACTION: Final = 16
IN_PARTS: Final = 128
DELAYED: Final = IN_PARTS
"""The same bit, for all kinds but files: the message is not delivered before its delivery time."""

# Marks, in the second of the two bytes that later versions of the header use.
MARKS_AT: Final = 15
"""Offset of the marks in a header. Receivers that do not know them ignore them."""
RETAINED: Final = 1
"""The message stays at keepers as a last value: see its section."""
REDELIVERED: Final = 2
"""The message may have been delivered before: it comes from the store of an earlier cell."""

RETAINED_SEND: Final = 1 << 8
"""Flag of a send whose message is a last value. Flags of a header are below it."""

NOT_WHOLE: Final = IN_TRANSACTION | IN_PARTS
"""Flags of frames that are not delivered by themselves."""

PRIORITY_MAX: Final = 9  # Jakarta Messaging 3.1, 3.4.10


class Kind(IntEnum):
    """Kind of message in a frame."""

    MESSAGE = 0
    TEXT = 1
    BYTES = 2
    MAP = 3
    STREAM = 4
    OBJECT = 5
    FILE = 6


KIND_MAX: Final = int(Kind.OBJECT)
"""Last kind whose messages are one frame each."""
FILE: Final = int(Kind.FILE)
"""Kind of messages that come in parts."""


class Section(IntEnum):
    """Content of an optional section."""

    CORRELATION_ID = 1
    CORRELATION_BYTES = 2
    REPLY_TO = 3
    TYPE = 4
    DELIVERY_DELAY = 5
    TRANSACTION = 6
    LEDGER = 7
    LEDGER_ZLIB = 8
    DECIDED = 9
    RETAINED = 10


_SECTION = struct.Struct("!BI")
_DELAY = struct.Struct("!q")
_NO_DELAY: Final = bytes(_DELAY.size)
_TRANSACTION = struct.Struct("!QII")
TRANSACTION_SECTION_BYTES: Final = _SECTION.size + _TRANSACTION.size
"""Bytes that a frame grows by when it becomes a message of a transaction."""


class Transaction(NamedTuple):
    """Transaction that a message belongs to, and the place of the message in it."""

    number: int
    """Number of the transaction, chosen by the sending connection."""
    place: int
    size: int


def make_section(tag: Section, content: bytes) -> bytes:
    return _SECTION.pack(tag, len(content)) + content


def destination_section(destination: Destination) -> bytes:
    return make_section(Section.REPLY_TO, bytes((destination.kind_flags,)) + destination.encoded_name)


def delay_section(delay_ms: int) -> bytes:
    return make_section(Section.DELIVERY_DELAY, _DELAY.pack(delay_ms))


def transaction_section(transaction: Transaction) -> bytes:
    return make_section(Section.TRANSACTION, _TRANSACTION.pack(*transaction))


DECIDED_SECTION: Final = make_section(Section.DECIDED, b"")
"""Section of the parts of a transaction that a cell of keepers commits or rolls back."""


def split_sections(data: bytes, at: int, end: int) -> dict[int, bytes]:
    """Return the contents of sections by tag. If a tag occurs twice, the first one counts."""
    sections: dict[int, bytes] = {}
    while at < end:
        if at + _SECTION.size > end:
            raise MessageFormatError("a truncated section")
        tag, length = _SECTION.unpack_from(data, at)
        at += _SECTION.size + length
        if at > end:
            raise MessageFormatError("a section longer than its frame")
        sections.setdefault(tag, data[at - length : at])
    return sections


def sections_of(frame: bytes, header: Header, start: int = 0) -> dict[int, bytes]:
    at = start + HEADER_BYTES + header[NAME_BYTES] + header[PROPERTY_BYTES]
    return split_sections(frame, at, at + header[SECTION_BYTES])


def decode_destination(content: bytes) -> Destination:
    if not content or content[0] & ~KIND_FLAGS:
        raise MessageFormatError("a destination of an unknown kind")
    try:
        return destination_from(content[0], content[1:])
    except InvalidDestinationError as error:
        raise MessageFormatError("an invalid destination") from error


def decode_delay(content: bytes) -> int:
    return int(_unpack(_DELAY, content)[0])


def is_delayed(header: Header) -> bool:
    """Return True if a frame is a message that is not delivered before its delivery time."""
    return bool(header[FLAGS] & DELAYED) and header[KIND] != FILE


def delivery_time_of(frame: bytes, header: Header, start: int = 0) -> int:
    """Return the delivery time of a frame, in milliseconds since the epoch. One with malformed sections has no delay:
    its receivers drop it."""
    try:
        return header[TIMESTAMP] + decode_delay(
            sections_of(frame, header, start).get(Section.DELIVERY_DELAY, _NO_DELAY)
        )
    except MessageFormatError:
        return header[TIMESTAMP]


def decode_transaction(content: bytes) -> Transaction:
    transaction = Transaction(*_unpack(_TRANSACTION, content))
    if transaction.place >= transaction.size:
        raise MessageFormatError(f"message {transaction.place} of a transaction of only {transaction.size}")
    return transaction


def _unpack(layout: struct.Struct, content: bytes) -> tuple[Any, ...]:
    if len(content) != layout.size:
        raise MessageFormatError(f"a section of {len(content)} bytes: expected {layout.size}")
    return layout.unpack(content)


def message_id_of(header: Header) -> str | None:
    if header[FLAGS] & NO_MESSAGE_ID:
        return None
    return f"ID:{header[CONNECTION_ID]:016x}-{header[NUMBER]}"
