"""Encoding of typed values, of which properties, maps, streams and objects are made.

A value is a tag byte and its content, big-endian. Decoding trusts no length: a value that exceeds the given end raises
MessageFormatError.
"""

import struct
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final

from .errors import MessageFormatError
from .types import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN, Byte, Char, Float, Long, Short, Value, decode_text, encode_text


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
_TRUE_TAG, _BYTE_TAG, _SHORT_TAG = int(Tag.TRUE), int(Tag.BYTE), int(Tag.SHORT)
_INT_TAG, _LONG_TAG, _FLOAT_TAG, _DOUBLE_TAG = int(Tag.INT), int(Tag.LONG), int(Tag.FLOAT), int(Tag.DOUBLE)
_CHAR_TAG, _STRING_TAG, _BYTES_TAG = int(Tag.CHAR), int(Tag.STRING), int(Tag.BYTES)

_SHORT_BYTES: Final = 128
_SHORT_HEADS: Final = tuple(_SIZED.pack(_STRING_TAG, size) for size in range(_SHORT_BYTES))
"""Tags and lengths of texts of fewer than 128 bytes: to pack them takes as long as to encode the text."""
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
    Byte: lambda value: _BYTE.pack(_BYTE_TAG, value),
    Short: lambda value: _SHORT.pack(_SHORT_TAG, value),
    int: lambda value: _INT.pack(_INT_TAG, value),
    Long: lambda value: _LONG.pack(_LONG_TAG, value),
    Float: lambda value: _FLOAT.pack(_FLOAT_TAG, value),
    float: lambda value: _DOUBLE.pack(_DOUBLE_TAG, value),
    Char: lambda value: _CHAR.pack(_CHAR_TAG, ord(value)),
    str: _encode_string,
    bytes: lambda value: _SIZED.pack(_BYTES_TAG, len(value)) + value,
}


def encode_value(value: Value) -> bytes:
    """Return a stored value (see `types.to_stored_object`) with its tag."""
    return _ENCODERS[type(value)](value)


def entries_encoder(
    names: Mapping[str, bytes], encode_other: Callable[[str, Any], bytes], *, has_bytes: bool = False
) -> Callable[[Mapping[str, Any]], bytes]:
    """Return a function that encodes names with their values, as the application passed them or as they are stored.

    `names` has encoded names. `encode_other` encodes, or refuses, an entry whose name is not among them or whose value
    is not of the most frequent types. A call of it takes twice as long as what is done here. `has_bytes` allows bytes.
    """

    def encode(entries: Mapping[str, Any]) -> bytes:
        parts = []
        for name, value in entries.items():
            entry, kind = names.get(name), type(value)
            if entry is None or type(name) is not str:
                parts.append(encode_other(name, value))
            elif kind is float:
                parts.append(entry + _DOUBLE.pack(_DOUBLE_TAG, value))
            elif kind is str:
                try:
                    content = value.encode()
                except UnicodeEncodeError:
                    parts.append(encode_other(name, value))
                    continue
                size = len(content)
                parts += entry, _SHORT_HEADS[size] if size < _SHORT_BYTES else _SIZED.pack(_STRING_TAG, size), content
            elif kind is int and LONG_MIN <= value <= LONG_MAX:
                is_int = INT_MIN <= value <= INT_MAX
                parts.append(entry + (_INT.pack(_INT_TAG, value) if is_int else _LONG.pack(_LONG_TAG, value)))
            elif kind is bytes and has_bytes:
                parts += entry, _SIZED.pack(_BYTES_TAG, len(value)), value
            elif kind is bool:
                parts.append(entry + (_TRUE if value else _FALSE))
            elif value is None:
                parts.append(entry + _NULL)
            else:
                parts.append(encode_other(name, value))
        return b"".join(parts)

    return encode


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
