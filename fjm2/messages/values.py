"""Encoding of typed values, of which properties, maps, streams and objects are made.

A value is a tag byte and its content, big-endian. Decoding trusts no length: a value that exceeds the given end raises
MessageFormatError.
"""

import struct
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Any, Final

from .errors import MessageFormatError
from .types import INT_MAX, INT_MIN, Byte, Char, Float, Long, Short, Value, decode_text, encode_text


class Tag(IntEnum):
    """Type of a value, given by its first byte."""

    NULL = 0
    FALSE = 1
    TRUE = 2
    BYTE = 3
    SHORT = 4
    INT = 5
    LONG = 6
    FLOAT = 7
    DOUBLE = 8
    CHAR = 9
    STRING = 10
    BYTES = 11


_NULL, _FALSE, _TRUE = bytes((Tag.NULL,)), bytes((Tag.FALSE,)), bytes((Tag.TRUE,))
_BYTE, _SHORT, _INT, _LONG = struct.Struct("!Bb"), struct.Struct("!Bh"), struct.Struct("!Bi"), struct.Struct("!Bq")
_FLOAT, _DOUBLE, _CHAR, _SIZED = struct.Struct("!Bf"), struct.Struct("!Bd"), struct.Struct("!BH"), struct.Struct("!BI")
# Plain ints: packing a member of an Enum takes twice as long.
_TRUE_TAG, _BYTE_TAG, _INT_TAG, _LONG_TAG = int(Tag.TRUE), int(Tag.BYTE), int(Tag.INT), int(Tag.LONG)
_STRING_TAG, _BYTES_TAG = int(Tag.STRING), int(Tag.BYTES)

_SIZE = struct.Struct("!I")
_EXCERPT_MAX = 20
"""Characters or bytes of a value that `repr` of a message shows."""
CONTENT_BYTES = (0, 0, 0, 1, 2, 4, 8, 4, 8, 2)
"""Number of bytes of the content by tag, for tags with content of a fixed size. For STRING and BYTES, content begins
with its length in 4 bytes."""


def _encode_string(value: str) -> bytes:
    content = encode_text(value)
    return _SIZED.pack(_STRING_TAG, len(content)) + content


_ENCODERS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda _: _NULL,
    bool: lambda value: _TRUE if value else _FALSE,
    Byte: lambda value: _BYTE.pack(Tag.BYTE, value),
    Short: lambda value: _SHORT.pack(Tag.SHORT, value),
    int: lambda value: _INT.pack(_INT_TAG, value),
    Long: lambda value: _LONG.pack(Tag.LONG, value),
    Float: lambda value: _FLOAT.pack(Tag.FLOAT, value),
    float: lambda value: _DOUBLE.pack(Tag.DOUBLE, value),
    Char: lambda value: _CHAR.pack(Tag.CHAR, ord(value)),
    str: _encode_string,
    bytes: lambda value: _SIZED.pack(_BYTES_TAG, len(value)) + value,
}


def encode_value(value: Value) -> bytes:
    """Return a stored value (see `types.to_stored_object`) with its tag."""
    return _ENCODERS[type(value)](value)


def _encode_integer(value: int) -> bytes:
    if INT_MIN <= value <= INT_MAX:
        return _INT.pack(_INT_TAG, value)
    return _LONG.pack(_LONG_TAG, Long(value))


OBJECT_ENCODERS: Final[dict[type, Callable[[Any], bytes]]] = {
    **{kind: _ENCODERS[kind] for kind in (type(None), bool, str, bytes)},
    int: _encode_integer,
    float: partial(_DOUBLE.pack, int(Tag.DOUBLE)),  # faster than a function of our own
}
"""Encoders of the most frequent types of values that applications pass. They check what `types.to_stored_object`
checks, and raise MessageFormatError."""


def excerpt(value: Value) -> str:
    """Return a value, or the beginning of a long one, for `repr`."""
    if isinstance(value, str | bytes) and len(value) > _EXCERPT_MAX:
        return f"{value[:_EXCERPT_MAX]!r}..."
    return repr(value)


_FIXED_DECODERS: tuple[tuple[struct.Struct, Callable[[Any], Value]], ...] = (
    (struct.Struct("!b"), Byte),
    (struct.Struct("!h"), Short),
    (struct.Struct("!i"), int),
    (struct.Struct("!q"), Long),
    (struct.Struct("!f"), Float),
    (struct.Struct("!d"), float),
    (struct.Struct("!H"), lambda code: Char(chr(code))),
)
"""Layouts and constructors for the tags from BYTE on."""


def value_end(data: bytes, at: int, end: int) -> int:
    """Return the index after the value that begins at `at`."""
    after = end + 1
    if at < end:
        tag = data[at]
        if tag < _STRING_TAG:
            after = at + 1 + CONTENT_BYTES[tag]
        elif tag > _BYTES_TAG:
            raise MessageFormatError(f"a value with the unknown tag {tag}")
        elif at + 5 <= end:
            after = at + 5 + _SIZE.unpack_from(data, at + 1)[0]
    if after > end:
        raise MessageFormatError("a truncated value")
    return after


def decode_value(data: bytes, at: int, end: int) -> tuple[Value, int]:
    """Return the value that begins at `at`, and the index after it."""
    after = value_end(data, at, end)
    tag = data[at]
    if tag >= _STRING_TAG:
        content = data[at + 5 : after]
        return decode_text(content) if tag == _STRING_TAG else content, after
    if tag <= _TRUE_TAG:
        return (None, False, True)[tag], after
    layout, make = _FIXED_DECODERS[tag - _BYTE_TAG]
    return make(layout.unpack_from(data, at + 1)[0]), after
