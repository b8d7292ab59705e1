"""A message whose body is a sequence of typed values."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from fjm2.base.quantities import counted

from .errors import MessageEOFError, MessageFormatError
from .header import Kind
from .message import UNREAD
from .sequential import SequentialMessage
from .types import (
    Byte,
    Char,
    Float,
    Long,
    Short,
    Value,
    read_boolean,
    read_byte,
    read_bytes,
    read_char,
    read_double,
    read_float,
    read_int,
    read_long,
    read_short,
    read_string,
    shown,
    to_stored_boolean,
    to_stored_bytes,
    to_stored_double,
    to_stored_int,
    to_stored_object,
    to_stored_string,
)
from .values import decode_value, encode_value

_T = TypeVar("_T")


class StreamMessage(SequentialMessage):
    """A message whose body is a sequence of values. It is write-only when new, and read-only once received or `reset`.

    Values are read in the order in which they were written. A failed read does not move the position, so that the value
    can be read again as another type.
    """

    __slots__ = ("_array", "_array_position")
    _kind = Kind.STREAM
    """Kind of the message: its body is a stream of values."""

    _array: bytes | None
    """Byte array that is being read in pieces, or None. `_position` is already after it."""
    _array_position: int

    def __init__(self, values: Iterable[object] = ()) -> None:
        super().__init__()
        self._prepare()
        if not isinstance(values, Iterable):
            raise MessageFormatError(f"values={shown(values)}: expected a list, or another iterable, of values")
        for value in values:
            self.write_object(value)

    def _prepare(self) -> None:
        self._array = None
        self._array_position = 0

    def clear_body(self) -> None:
        """Remove all values, and make the body writable."""
        super().clear_body()
        self._prepare()

    def reset(self) -> None:
        """Make the body readable, and begin at the first value."""
        super().reset()
        self._prepare()

    def _preview(self) -> str:
        return f"values of {counted(len((self._encoded_body if self._body is UNREAD else self._body) or b''), 'byte')}"

    def read_boolean(self) -> bool:
        """Return the next value as a boolean. Raise MessageFormatError if it cannot be converted."""
        return self._read(read_boolean)

    def read_byte(self) -> int:
        """Return the next value as a byte. Raise MessageFormatError if it cannot be converted."""
        return self._read(read_byte)

    def read_short(self) -> int:
        """Return the next value as a short. Raise MessageFormatError if it cannot be converted."""
        return self._read(read_short)

    def read_char(self) -> str:
        """Return the next value as a character. Raise MessageFormatError if it cannot be converted."""
        return self._read(read_char)

    def read_int(self) -> int:
        """Return the next value as an int. Raise MessageFormatError if it cannot be converted."""
        return self._read(read_int)

    def read_long(self) -> int:
        """Return the next value as a long. Raise MessageFormatError if it cannot be converted."""
        return self._read(read_long)

    def read_float(self) -> float:
        """Return the next value as a float. Raise MessageFormatError if it cannot be converted."""
        return self._read(read_float)

    def read_double(self) -> float:
        """Return the next value as a double. Raise MessageFormatError if it cannot be converted."""
        return self._read(read_double)

    def read_string(self) -> str | None:
        """Return the next value as a string. Raise MessageFormatError if it cannot be converted."""
        return self._read(read_string)

    def read_object(self) -> Value:
        """Return the next value with the type that it was written with."""
        return self._read(_as_it_is)

    def read_bytes(self, n: int = -1) -> bytes | None:
        """Return the next piece of a byte array: `n` bytes, or the rest if it is shorter or `n` is negative.

        A piece shorter than `n` is the last one. If the last piece has exactly `n` bytes, the next call returns None
        once. Until then, no other value can be read. A null is returned as None, too.
        """
        if self._array is None:
            array = self._read(read_bytes)
            if array is None:
                return None
            self._array, self._array_position = array, 0
        elif self._array_position >= len(self._array):
            self._array = None
            return None
        return self._next_piece(self._array, n)

    def _next_piece(self, array: bytes, n: int) -> bytes:
        at = self._array_position
        piece = array[at:] if n < 0 else array[at : at + n]
        if n < 0 or len(piece) < n:
            self._array = None
        else:
            self._array_position = at + n
        return piece

    def _read(self, convert: Callable[[Value], _T]) -> _T:
        data = self._readable()
        if self._array is not None:
            raise MessageFormatError("a byte array has been read in part: read it to its end first")
        if self._position >= len(data):
            raise MessageEOFError("no values are left")
        value, after = decode_value(data, self._position, len(data))
        converted = convert(value)
        self._position = after
        return converted

    def write_boolean(self, value: bool) -> None:
        """Append a boolean."""
        self._write(encode_value(to_stored_boolean(value)))

    def write_byte(self, value: int) -> None:
        """Append a byte."""
        self._write(encode_value(Byte(value)))

    def write_short(self, value: int) -> None:
        """Append a short."""
        self._write(encode_value(Short(value)))

    def write_char(self, value: str) -> None:
        """Append a character."""
        self._write(encode_value(Char(value)))

    def write_int(self, value: int) -> None:
        """Append an int."""
        self._write(encode_value(to_stored_int(value)))

    def write_long(self, value: int) -> None:
        """Append a long."""
        self._write(encode_value(Long(value)))

    def write_float(self, value: float) -> None:
        """Append a float."""
        self._write(encode_value(Float(value)))

    def write_double(self, value: float) -> None:
        """Append a double."""
        self._write(encode_value(to_stored_double(value)))

    def write_string(self, value: str | None) -> None:
        """Append a string."""
        self._write(encode_value(to_stored_string(value)))

    def write_bytes(
        self, value: bytes | bytearray | memoryview | None, offset: int = 0, length: int | None = None
    ) -> None:
        """Append a byte array, or a part of one."""
        self._write(encode_value(None if value is None else to_stored_bytes(value, offset, length)))

    def write_object(self, value: object) -> None:
        """Append a value with its own type."""
        self._write(encode_value(to_stored_object(value)))

    def _get_body(self) -> object:
        raise MessageFormatError("a StreamMessage has no body to return whole: read its values one by one")


def _as_it_is(value: Value) -> Value:
    return value
