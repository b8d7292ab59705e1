"""A message whose body is a mapping of names to typed values."""

from collections.abc import Iterator, Mapping
from typing import cast

from .errors import MessageFormatError
from .header import Kind
from .message import UNREAD, Message
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


class MapMessage(Message, Mapping[str, Value]):
    """Names and values, in any order. It can be read as a mapping; values are set by the setters.

    It is equal to itself only, and true even when empty, as any message.
    """

    __slots__ = ()
    _kind = Kind.MAP
    """A mapping."""

    def __init__(self) -> None:
        super().__init__()
        self._body = {}

    def clear_body(self) -> None:
        """Remove all items; the message can be written to again."""
        super().clear_body()
        self._body = {}

    # The mapping.

    def __getitem__(self, name: str) -> Value:
        return self._items()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items())

    def __len__(self) -> int:
        return len(self._items())

    def __bool__(self) -> bool:
        return True

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def map_names(self) -> set[str]:
        """Names of all items."""
        return set(self._items())

    def item_exists(self, name: str) -> bool:
        """Whether it was set, be it to None."""
        return name in self._items()

    # Reading.

    def get_boolean(self, name: str) -> bool:
        """The item as a boolean. MessageFormatError if it cannot be read as one."""
        return read_boolean(self._items().get(name))

    def get_byte(self, name: str) -> int:
        """The item as a byte. MessageFormatError if it cannot be read as one."""
        return read_byte(self._items().get(name))

    def get_short(self, name: str) -> int:
        """The item as a short. MessageFormatError if it cannot be read as one."""
        return read_short(self._items().get(name))

    def get_char(self, name: str) -> str:
        """The item as a character. MessageFormatError if it cannot be read as one."""
        return read_char(self._items().get(name))

    def get_int(self, name: str) -> int:
        """The item as an int. MessageFormatError if it cannot be read as one."""
        return read_int(self._items().get(name))

    def get_long(self, name: str) -> int:
        """The item as a long. MessageFormatError if it cannot be read as one."""
        return read_long(self._items().get(name))

    def get_float(self, name: str) -> float:
        """The item as a float. MessageFormatError if it cannot be read as one."""
        return read_float(self._items().get(name))

    def get_double(self, name: str) -> float:
        """The item as a double. MessageFormatError if it cannot be read as one."""
        return read_double(self._items().get(name))

    def get_string(self, name: str) -> str | None:
        """The item as a string. MessageFormatError if it cannot be read as one."""
        return read_string(self._items().get(name))

    def get_bytes(self, name: str) -> bytes | None:
        """The item as a byte array. MessageFormatError if it cannot be read as one."""
        return read_bytes(self._items().get(name))

    def get_object(self, name: str) -> Value:
        """The value with the type it was set with; None if there is none."""
        return self._items().get(name)

    # Writing.

    def set_boolean(self, name: str, value: bool) -> None:
        """Set an item of type boolean."""
        self._set(name, to_stored_boolean(value))

    def set_byte(self, name: str, value: int) -> None:
        """Set an item of type byte."""
        self._set(name, Byte(value))

    def set_short(self, name: str, value: int) -> None:
        """Set an item of type short."""
        self._set(name, Short(value))

    def set_char(self, name: str, value: str) -> None:
        """Set an item of type character."""
        self._set(name, Char(value))

    def set_int(self, name: str, value: int) -> None:
        """Set an item of type int."""
        self._set(name, to_stored_int(value))

    def set_long(self, name: str, value: int) -> None:
        """Set an item of type long."""
        self._set(name, Long(value))

    def set_float(self, name: str, value: float) -> None:
        """Keeps 32 bits of the value."""
        self._set(name, Float(value))

    def set_double(self, name: str, value: float) -> None:
        """Set an item of type double."""
        self._set(name, to_stored_double(value))

    def set_string(self, name: str, value: str | None) -> None:
        """Set an item of type string."""
        self._set(name, to_stored_string(value))

    def set_bytes(
        self, name: str, value: bytes | bytearray | memoryview | None, offset: int = 0, length: int | None = None
    ) -> None:
        """A copy of a byte array, or of a part of one."""
        self._set(name, None if value is None else to_stored_bytes(value, offset, length))

    def set_object(self, name: str, value: object) -> None:
        """A value with the type it has; an int is an int if 32 bits hold it, otherwise a long."""
        self._set(name, to_stored_object(value))

    def _set(self, name: str, value: Value) -> None:
        self._check_body_writeable()
        if not isinstance(name, str) or not name:
            raise ValueError(f"{name!r} is no name of an item")
        self._body[to_stored_string(name)] = value
        self._encoded_body = None

    # As a whole.

    def _items(self) -> dict[str, Value]:
        if self._body is UNREAD:
            self._load_body()
        return cast(dict[str, Value], self._body)

    def _get_body(self) -> dict[str, Value]:
        return dict(self._items())

    def _is_nothing(self, body: object) -> bool:
        return not body

    def _load_body(self) -> None:
        if self._body is UNREAD and self._encoded_body is not None:
            self._body = _decode_items(self._encoded_body)

    def _encode_body(self) -> bytes:
        if self._encoded_body is None:
            items = self._items().items()
            self._encoded_body = b"".join([encode_value(part) for item in items for part in item])
        return self._encoded_body


def _decode_items(data: bytes) -> dict[str, Value]:
    """Names are values too, of type String."""
    items: dict[str, Value] = {}
    at = 0
    while at < len(data):
        name, at = decode_value(data, at, len(data))
        if type(name) is not str or not name:
            raise MessageFormatError("an item without name")
        items[name], at = decode_value(data, at, len(data))
    return items
