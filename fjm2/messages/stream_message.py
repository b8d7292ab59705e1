"""A message whose body is a row of typed values."""

from collections.abc import Callable
from typing import TypeVar

from .errors import MessageEOFError, MessageFormatError
from .header import Kind
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
    """Write-only when new, read-only once received or `reset`. Values are read in the order they were written in.

    A read that fails leaves the position where it was: the value can be read again as another type.
    """

    __slots__ = ("_array", "_array_position")
    _kind = Kind.STREAM
    """A row of values."""

    _array: bytes | None
    """The byte array that is being read in pieces; `_position` is behind it already."""
    _array_position: int

    def __init__(self) -> None:
        super().__init__()
        self._prepare()

    def _prepare(self) -> None:
        self._array = None
        self._array_position = 0

    def clear_body(self) -> None:
        """Remove all values; the message can be written to again."""
        super().clear_body()
        self._prepare()

    def reset(self) -> None:
        """End writing; reading begins at the first value."""
        super().reset()
        self._prepare()

    # Reading.

    def read_boolean(self) -> bool:
        """The next value as a boolean. MessageFormatError if it cannot be read as one."""
        return self._read(read_boolean)

    def read_byte(self) -> int:
        """The next value as a byte. MessageFormatError if it cannot be read as one."""
        return self._read(read_byte)

    def read_short(self) -> int:
        """The next value as a short. MessageFormatError if it cannot be read as one."""
        return self._read(read_short)

    def read_char(self) -> str:
        """The next value as a character. MessageFormatError if it cannot be read as one."""
        return self._read(read_char)

    def read_int(self) -> int:
        """The next value as an int. MessageFormatError if it cannot be read as one."""
        return self._read(read_int)

    def read_long(self) -> int:
        """The next value as a long. MessageFormatError if it cannot be read as one."""
        return self._read(read_long)

    def read_float(self) -> float:
        """The next value as a float. MessageFormatError if it cannot be read as one."""
        return self._read(read_float)

    def read_double(self) -> float:
        """The next value as a double. MessageFormatError if it cannot be read as one."""
        return self._read(read_double)

    def read_string(self) -> str | None:
        """The next value as a string. MessageFormatError if it cannot be read as one."""
        return self._read(read_string)

    def read_object(self) -> Value:
        """The value with the type it was written with."""
        return self._read(_as_it_is)

    def read_bytes(self, n: int = -1) -> bytes | None:
        """The next piece of a byte array: `n` bytes, or all that are left of it if there are fewer or `n` is negative.

        A piece shorter than `n` is the last one. If the last one is exactly `n` bytes long, the next call gives None,
        once. Until either has happened, other values cannot be read. None as well for a null.
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
            raise MessageFormatError("a byte array has not been read to its end")
        if self._position >= len(data):
            raise MessageEOFError("no value is left")
        value, after = decode_value(data, self._position, len(data))
        converted = convert(value)
        self._position = after
        return converted

    # Writing.

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
        """One byte array, or a part of one."""
        self._write(encode_value(None if value is None else to_stored_bytes(value, offset, length)))

    def write_object(self, value: object) -> None:
        """A value with the type it has."""
        self._write(encode_value(to_stored_object(value)))

    # As a whole.

    def _get_body(self) -> object:
        raise MessageFormatError("a StreamMessage gives its values one by one")


def _as_it_is(value: Value) -> Value:
    return value
