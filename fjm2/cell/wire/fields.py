"""Fields that several messages share, and the reader that all decoders use."""

import struct
from typing import Final, NamedTuple

KEEPER_ID_BYTES: Final = 16
MEMBER_BYTES: Final = KEEPER_ID_BYTES + 8
TEXT_BYTES_MAX: Final = 0xFFFF
"""Size in bytes of the longest text: its length is a u16."""

_U16 = struct.Struct(">H")
_U64 = struct.Struct(">Q")


class MalformedError(Exception):
    """Bytes that are not what they should be. Decoders raise and catch it; it never leaves this package."""


class FieldReader:
    """Reads the fields of a message from its start to its end. Raises MalformedError where they do not fit."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def remaining(self) -> int:
        """Number of bytes that have not been read."""
        return len(self._data) - self._at

    def unpack(self, fields: struct.Struct) -> tuple[int, ...]:
        """Read fields that are all integers."""
        return tuple(self.unpack_any(fields))

    def unpack_any(self, fields: struct.Struct) -> tuple:  # type: ignore[type-arg]
        """Read fields, of which some are bytes."""
        if self.remaining < fields.size:
            raise MalformedError
        values = fields.unpack_from(self._data, self._at)
        self._at += fields.size
        return values

    def take(self, size: int) -> bytes:
        """Read `size` bytes."""
        if self.remaining < size:
            raise MalformedError
        self._at += size
        return self._data[self._at - size : self._at]

    def text(self) -> str:
        """Read a text: its length in bytes as u16, and UTF-8."""
        (size,) = self.unpack(_U16)
        try:
            return self.take(size).decode()
        except UnicodeDecodeError:
            raise MalformedError from None

    def end(self) -> None:
        """Check that all bytes have been read."""
        require(not self.remaining)


def require(condition: bool) -> None:
    """Raise MalformedError if a condition of the format does not hold."""
    if not condition:
        raise MalformedError


def encode_text(text: str) -> bytes:
    """Return a text as `FieldReader.text` reads it."""
    data = text.encode()
    if len(data) > TEXT_BYTES_MAX:
        raise ValueError(f"a text of {len(data)} bytes: expected at most {TEXT_BYTES_MAX}")
    return _U16.pack(len(data)) + data


def pack(fields: struct.Struct, *values: int | bytes) -> bytes:
    """Return fields as bytes. Raise ValueError if a value does not fit."""
    try:
        return fields.pack(*values)
    except struct.error as error:
        raise ValueError(f"{values}: expected values that fit into their fields ({error})") from None


def check_count(what: str, count: int, count_min: int, count_max: int) -> None:
    """Raise ValueError if a message would have too few or too many parts."""
    if not count_min <= count <= count_max:
        raise ValueError(f"{count} {what}: expected {count_min} to {count_max}")


class Member(NamedTuple):
    """A keeper in one incarnation of its store.

    Configurations name members so, because a store that lost something is another member: what it confirmed before, it
    cannot vouch for.
    """

    keeper_id: bytes
    incarnation: int

    def encode(self) -> bytes:
        return check_keeper_id(self.keeper_id) + pack(_U64, self.incarnation)


def check_keeper_id(keeper_id: bytes) -> bytes:
    """Return a keeper id. Raise ValueError if it has another length."""
    if len(keeper_id) != KEEPER_ID_BYTES:
        raise ValueError(f"keeper id {keeper_id.hex()}: expected {KEEPER_ID_BYTES} bytes")
    return keeper_id


def read_members(reader: FieldReader, count: int) -> tuple[Member, ...]:
    """Read `count` members, of which no two have the same keeper id."""
    members = tuple(Member(reader.take(KEEPER_ID_BYTES), *reader.unpack(_U64)) for _ in range(count))
    require(len({member.keeper_id for member in members}) == count)
    return members
