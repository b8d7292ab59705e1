"""Streams that pass by those who receive only what is to be kept, an extension of FJM2.

DATA with the flag PASSING has nothing that is to be kept, and CMD(FLUSH) with EXT_PASSING is about such DATA. When a
sender begins to write what is to be kept, it sets neither any more, and the stream gets an INFO that names the first
segment of it. Other programs ignore all three.
"""

import struct
from typing import Final, NamedTuple

from .codes import VERSION, Flavor, MessageType, ObjectFlag
from .data import DATA_BYTE
from .extensions import Passing

_FLAGS_AT: Final = 12
"""Offset of the flags in DATA, and of the flavor in CMD (RFC 5740, 4.2)."""
_EXTENSIONS_AT: Final = 20
"""Offset of the extensions of a FLUSH whose payload id has four bytes, as those of all senders of FJM2 have."""
_PASSING: Final = int(ObjectFlag.PASSING)  # the flag itself is an Enum, which is slow
_MAGIC: Final = b"KEEP"
_INFO: Final = struct.Struct(">4sI")


class Test(NamedTuple):
    """A test of one byte of a datagram."""

    at: int
    """Offset of the byte."""
    value: int
    is_mask: bool = False
    """True if the byte has to have one of the bits of the value, False if it has to be the value."""


PASSES_BY: Final = (
    (Test(0, DATA_BYTE), Test(_FLAGS_AT, _PASSING, is_mask=True)),
    (
        Test(0, VERSION << 4 | MessageType.CMD),
        Test(1, (_EXTENSIONS_AT + len(Passing().encode())) // 4),
        Test(_FLAGS_AT, Flavor.FLUSH),
        Test(_EXTENSIONS_AT, Passing.HET),
    ),
)
"""Datagrams that pass by: all tests of one of these hold."""


def is_passing(data: memoryview, at: int) -> bool:
    """Return True if the datagram that begins at an offset is DATA of which nothing is to be kept."""
    return len(data) > at + _FLAGS_AT and data[at] == DATA_BYTE and data[at + _FLAGS_AT] & _PASSING != 0


def kept_info(payload_id: int) -> bytes:
    """Return the INFO of a stream that is to be kept from a segment on, whose payload id is given."""
    return _INFO.pack(_MAGIC, payload_id)


def kept_from(info: bytes) -> int | None:
    """Return the payload id in such an INFO, or None if it is another one."""
    if len(info) != _INFO.size or not info.startswith(_MAGIC):
        return None
    payload_id: int = _INFO.unpack(info)[1]
    return payload_id
