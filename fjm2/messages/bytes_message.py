"""A message whose body is raw bytes, big-endian, as Java's DataOutputStream writes them."""

import re
import struct
from collections.abc import Callable
from typing import Any, Final, cast

from fjm2.base.quantities import counted

from .errors import MessageEOFError, MessageFormatError, NullValueError
from .header import Kind
from .message import UNREAD, Message
from .sequential import SequentialMessage
from .types import (
    Byte,
    Char,
    Float,
    Int,
    Long,
    Short,
    shown,
    to_stored_boolean,
    to_stored_bytes,
    to_stored_double,
    to_stored_object,
)

UTF_BYTES_MAX = 0xFFFF  # the length before the string has 16 bits

_BOOLEAN, _BYTE, _UNSIGNED_BYTE = struct.Struct("!?"), struct.Struct("!b"), struct.Struct("!B")
_SHORT, _UNSIGNED_SHORT, _CHAR = struct.Struct("!h"), struct.Struct("!H"), struct.Struct("!H")
_INT, _LONG, _FLOAT, _DOUBLE = struct.Struct("!i"), struct.Struct("!q"), struct.Struct("!f"), struct.Struct("!d")
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")


def encode_modified_utf8(text: str) -> bytes:
    """Return a text in modified UTF-8, as Java writes it.

    NUL becomes two bytes, and a character beyond U+FFFF becomes two surrogates of three bytes each.
    """
    if text.isascii() and "\0" not in text:
        return text.encode()
    pairs = _ASTRAL.sub(lambda match: _surrogates(ord(match[0]) - 0x10000), text)
    return pairs.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")


def _surrogates(bits: int) -> str:
    return chr(0xD800 | bits >> 10) + chr(0xDC00 | bits & 0x3FF)


def decode_modified_utf8(data: bytes) -> str:
    """Return the text that `data` encodes. Raise MessageFormatError if it is not modified UTF-8."""
    if data.isascii():
        return data.decode()
    try:
        text = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise MessageFormatError("a string is not modified UTF-8") from error
    if max(text) > "\uffff":
        raise MessageFormatError("a string has a character of four bytes, which modified UTF-8 does not allow")
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


_PREVIEW_BYTES_MAX: Final = 20
"""Bytes of the body that `repr` shows. Each takes up to four characters."""


class BytesMessage(SequentialMessage):
    """A message whose body is bytes. It is write-only when new, and read-only once received or `reset`.

    A failed read does not move the position.
    """

    __slots__ = ()
    _kind = Kind.BYTES
    """Kind of the message: its body is bytes."""

    def __init__(self, data: bytes | bytearray | memoryview = b"") -> None:
        Message.__init__(self)  # `super()` takes a third of the whole call
        if data:
            self._body = data if type(data) is bytes else to_stored_bytes(data)

    @property
    def body_length(self) -> int:
        """Length of the whole body in bytes, independent of the position."""
        return len(self._readable())

    def _preview(self) -> str:
        body = self._encoded_body if self._body is UNREAD else self._body
        data = bytes(body[:_PREVIEW_BYTES_MAX]) if body else b""
        size = len(body) if body else 0
        return f"{data!r}... of {counted(size, 'byte')}" if size > len(data) else repr(data)

    def read_boolean(self) -> bool:
        """Read a boolean from one byte: 0 is False, anything else is True."""
        return cast(bool, self._read(_BOOLEAN))

    def read_byte(self) -> int:
        """Read a signed integer of one byte."""
        return cast(int, self._read(_BYTE))

    def read_unsigned_byte(self) -> int:
        """Read an unsigned integer of one byte."""
        return cast(int, self._read(_UNSIGNED_BYTE))

    def read_short(self) -> int:
        """Read a signed integer of two bytes."""
        return cast(int, self._read(_SHORT))

    def read_unsigned_short(self) -> int:
        """Read an unsigned integer of two bytes."""
        return cast(int, self._read(_UNSIGNED_SHORT))

    def read_char(self) -> str:
        """Read a character from two bytes, a UTF-16 code unit."""
        return chr(cast(int, self._read(_CHAR)))

    def read_int(self) -> int:
        """Read a signed integer of four bytes."""
        return cast(int, self._read(_INT))

    def read_long(self) -> int:
        """Read a signed integer of eight bytes."""
        return cast(int, self._read(_LONG))

    def read_float(self) -> float:
        """Read a float of four bytes."""
        return cast(float, self._read(_FLOAT))

    def read_double(self) -> float:
        """Read a float of eight bytes."""
        return cast(float, self._read(_DOUBLE))

    def read_utf(self) -> str:
        """Read a string in modified UTF-8, preceded by its length in two bytes."""
        data = self._readable()
        at = self._position
        length = self._peek(_UNSIGNED_SHORT)
        if at + 2 + length > len(data):
            raise MessageEOFError(f"a string of {length} bytes is truncated: {len(data) - at - 2} bytes are left")
        text = decode_modified_utf8(data[at + 2 : at + 2 + length])
        self._position += 2 + length
        return text

    def read_bytes(self, n: int = -1) -> bytes | None:
        """Read `n` bytes, or all that are left if there are fewer or `n` is negative. Return None at the end."""
        data = self._readable()
        at = self._position
        if at >= len(data) and n:
            return None
        piece = data[at:] if n < 0 else data[at : at + n]
        self._position += len(piece)
        return piece

    def _peek(self, layout: struct.Struct) -> Any:
        try:
            return layout.unpack_from(self._readable(), self._position)[0]
        except struct.error:
            raise MessageEOFError(f"fewer than {layout.size} bytes are left") from None

    def _read(self, layout: struct.Struct) -> Any:
        value = self._peek(layout)
        self._position += layout.size
        return value

    def write_boolean(self, value: bool) -> None:
        """Write a boolean as one byte: 0 for False, 1 for True."""
        self._write(_BOOLEAN.pack(to_stored_boolean(value)))

    def write_byte(self, value: int) -> None:
        """Write a signed integer of one byte."""
        self._write(_BYTE.pack(Byte(value)))

    def write_short(self, value: int) -> None:
        """Write a signed integer of two bytes."""
        self._write(_SHORT.pack(Short(value)))

    def write_char(self, value: str) -> None:
        """Write a character as two bytes, a UTF-16 code unit."""
        self._write(_CHAR.pack(ord(Char(value))))

    def write_int(self, value: int) -> None:
        """Write a signed integer of four bytes."""
        self._write(_INT.pack(Int(value)))

    def write_long(self, value: int) -> None:
        """Write a signed integer of eight bytes."""
        self._write(_LONG.pack(Long(value)))

    def write_float(self, value: float) -> None:
        """Write a float of four bytes."""
        self._write(_FLOAT.pack(Float(value)))

    def write_double(self, value: float) -> None:
        """Write a float of eight bytes."""
        self._write(_DOUBLE.pack(to_stored_double(value)))

    def write_utf(self, value: str) -> None:
        """Write a string in modified UTF-8, preceded by its length in two bytes. The string may take at most 65,535
        bytes."""
        if not isinstance(value, str):
            raise MessageFormatError(f"{shown(value)} is not a text: expected a str")
        encoded = encode_modified_utf8(value)
        if len(encoded) > UTF_BYTES_MAX:
            raise MessageFormatError(f"a string of {len(encoded)} bytes: expected at most {UTF_BYTES_MAX}")
        self._write(_UNSIGNED_SHORT.pack(len(encoded)) + encoded)

    def write_bytes(self, value: bytes | bytearray | memoryview, offset: int = 0, length: int | None = None) -> None:
        """Write bytes, or a part of them. The length is not written."""
        if type(value) is not bytes or offset or length is not None:
            value = to_stored_bytes(value, offset, length)
        self._write(value)

    def write_object(self, value: object) -> None:
        """Write a value in the format of its type: a primitive, a string as `write_utf` does, or bytes."""
        if value is None:
            raise NullValueError("a BytesMessage cannot hold null")
        stored = to_stored_object(value)
        _WRITERS[type(stored)](self, stored)

    def _get_body(self) -> bytes:
        if not self._is_body_read_only:
            raise MessageFormatError("the body is write-only: call reset() to read it")
        self._position = 0
        return self._readable()

    def _is_nothing(self, body: object) -> bool:
        return not body


_WRITERS: dict[type, Callable[[BytesMessage, Any], None]] = {
    bool: BytesMessage.write_boolean,
    Byte: BytesMessage.write_byte,
    Short: BytesMessage.write_short,
    int: BytesMessage.write_int,
    Long: BytesMessage.write_long,
    Float: BytesMessage.write_float,
    float: BytesMessage.write_double,
    Char: BytesMessage.write_char,
    str: BytesMessage.write_utf,
    bytes: BytesMessage.write_bytes,
}
