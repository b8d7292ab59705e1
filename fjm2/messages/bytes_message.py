"""A message whose body is bytes, untyped and big-endian, as Java's DataOutputStream writes them."""

import re
import struct
from collections.abc import Callable
from typing import Any, cast

from .errors import MessageEOFError, MessageFormatError, NullValueError
from .header import Kind
from .sequential import SequentialMessage
from .types import (
    Byte,
    Char,
    Float,
    Int,
    Long,
    Short,
    to_stored_boolean,
    to_stored_bytes,
    to_stored_double,
    to_stored_object,
)

UTF_BYTES_MAX = 0xFFFF

_BOOLEAN, _BYTE, _UNSIGNED_BYTE = struct.Struct("!?"), struct.Struct("!b"), struct.Struct("!B")
_SHORT, _UNSIGNED_SHORT, _CHAR = struct.Struct("!h"), struct.Struct("!H"), struct.Struct("!H")
_INT, _LONG, _FLOAT, _DOUBLE = struct.Struct("!i"), struct.Struct("!q"), struct.Struct("!f"), struct.Struct("!d")
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")


def encode_modified_utf8(text: str) -> bytes:
    """Java's own UTF-8: NUL takes two bytes, a character beyond U+FFFF is two surrogates of three bytes each."""
    if text.isascii() and "\0" not in text:
        return text.encode()
    pairs = _ASTRAL.sub(lambda match: _surrogates(ord(match[0]) - 0x10000), text)
    return pairs.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")


def _surrogates(bits: int) -> str:
    return chr(0xD800 | bits >> 10) + chr(0xDC00 | bits & 0x3FF)


def decode_modified_utf8(data: bytes) -> str:
    """MessageFormatError if it is none."""
    if data.isascii():
        return data.decode()
    try:
        text = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise MessageFormatError("a string that is no modified UTF-8") from error
    if max(text) > "\uffff":
        raise MessageFormatError("a string with a character of four bytes, which modified UTF-8 has not")
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


class BytesMessage(SequentialMessage):
    """Write-only when new, read-only once received or `reset`. A read that fails leaves the position where it was."""

    __slots__ = ()
    _kind = Kind.BYTES
    """Bytes."""

    @property
    def body_length(self) -> int:
        """All of the body, in bytes, however much of it was read."""
        return len(self._readable())

    # Reading.

    def read_boolean(self) -> bool:
        """Read one byte, which is 0 for false."""
        return cast(bool, self._read(_BOOLEAN))

    def read_byte(self) -> int:
        """Read one byte, with sign."""
        return cast(int, self._read(_BYTE))

    def read_unsigned_byte(self) -> int:
        """Read one byte, without sign."""
        return cast(int, self._read(_UNSIGNED_BYTE))

    def read_short(self) -> int:
        """Read two bytes, with sign."""
        return cast(int, self._read(_SHORT))

    def read_unsigned_short(self) -> int:
        """Read two bytes, without sign."""
        return cast(int, self._read(_UNSIGNED_SHORT))

    def read_char(self) -> str:
        """Read two bytes, a UTF-16 unit."""
        return chr(cast(int, self._read(_CHAR)))

    def read_int(self) -> int:
        """Read four bytes, with sign."""
        return cast(int, self._read(_INT))

    def read_long(self) -> int:
        """Read eight bytes, with sign."""
        return cast(int, self._read(_LONG))

    def read_float(self) -> float:
        """Read a float of four bytes."""
        return cast(float, self._read(_FLOAT))

    def read_double(self) -> float:
        """Read a float of eight bytes."""
        return cast(float, self._read(_DOUBLE))

    def read_utf(self) -> str:
        """A string in modified UTF-8 behind its length of two bytes."""
        data = self._readable()
        at = self._position
        length = self._peek(_UNSIGNED_SHORT)
        if at + 2 + length > len(data):
            raise MessageEOFError(f"a string of {length} bytes, of which {len(data) - at - 2} are left")
        text = decode_modified_utf8(data[at + 2 : at + 2 + length])
        self._position += 2 + length
        return text

    def read_bytes(self, n: int = -1) -> bytes | None:
        """The next `n` bytes, or all that are left if there are fewer or `n` is negative; None at the end."""
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

    # Writing.

    def write_boolean(self, value: bool) -> None:
        """Write one byte, which is 0 for false."""
        self._write(_BOOLEAN.pack(to_stored_boolean(value)))

    def write_byte(self, value: int) -> None:
        """Write one byte, with sign."""
        self._write(_BYTE.pack(Byte(value)))

    def write_short(self, value: int) -> None:
        """Write two bytes, with sign."""
        self._write(_SHORT.pack(Short(value)))

    def write_char(self, value: str) -> None:
        """Write two bytes, a UTF-16 unit."""
        self._write(_CHAR.pack(ord(Char(value))))

    def write_int(self, value: int) -> None:
        """Write four bytes, with sign."""
        self._write(_INT.pack(Int(value)))

    def write_long(self, value: int) -> None:
        """Write eight bytes, with sign."""
        self._write(_LONG.pack(Long(value)))

    def write_float(self, value: float) -> None:
        """Write a float of four bytes."""
        self._write(_FLOAT.pack(Float(value)))

    def write_double(self, value: float) -> None:
        """Write a float of eight bytes."""
        self._write(_DOUBLE.pack(to_stored_double(value)))

    def write_utf(self, value: str) -> None:
        """A string of at most 65,535 bytes in modified UTF-8, behind its length of two bytes."""
        if not isinstance(value, str):
            raise MessageFormatError(f"{value!r} is no text")
        encoded = encode_modified_utf8(value)
        if len(encoded) > UTF_BYTES_MAX:
            raise MessageFormatError(f"a string of {len(encoded)} bytes: at most {UTF_BYTES_MAX} fit")
        self._write(_UNSIGNED_SHORT.pack(len(encoded)) + encoded)

    def write_bytes(self, value: bytes | bytearray | memoryview, offset: int = 0, length: int | None = None) -> None:
        """The bytes as they are, or a part of them, without their length."""
        if type(value) is not bytes or offset or length is not None:
            value = to_stored_bytes(value, offset, length)
        self._write(value)

    def write_object(self, value: object) -> None:
        """A value with the layout of its type: a primitive one, a string as `write_utf`, or bytes."""
        if value is None:
            raise NullValueError("null has no form in a BytesMessage")
        stored = to_stored_object(value)
        _WRITERS[type(stored)](self, stored)

    # As a whole.

    def _get_body(self) -> bytes:
        if not self._is_body_read_only:
            raise MessageFormatError("a BytesMessage that is being written has no body to give: reset() it first")
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
