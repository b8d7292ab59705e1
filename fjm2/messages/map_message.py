"""A message whose body is a mapping of names to typed values."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final, cast

from fjm2.base.quantities import counted, shortened

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
    read_item,
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
from .values import decode_value, encode_value, entries_encoder, excerpt

_PREVIEW_ITEMS_MAX: Final = 5
"""Items that `repr` shows."""
_PREVIEW_BYTES_MAX: Final = 1 << 16
"""Longest received body that is decoded for `repr`. Of a longer one, only the size is shown."""


class MapMessage(Message, Mapping[str, Value]):
    """A message whose body is a set of named values, without order. It is read as a mapping, and written by its
    setters.

    A message is equal only to itself, and true even when empty.
    """

    __slots__ = ()
    _kind = Kind.MAP
    """Kind of the message: its body is a map."""

    def __init__(self, items: Mapping[str, object] | None = None) -> None:
        super().__init__()
        self._body = {}
        if items is not None:
            if not hasattr(items, "items"):
                raise MessageFormatError(f"items={shown(items)}: expected a dict of names and values")
            for name, value in items.items():
                self.set_object(name, value)

    def clear_body(self) -> None:
        """Remove all items, and make the body writable."""
        super().clear_body()
        self._body = {}

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
        """Return the names of all items."""
        return set(self._items())

    def item_exists(self, name: str) -> bool:
        """Return True if the item is set, even to None."""
        return name in self._items()

    def get_boolean(self, name: str) -> bool:
        """Return the item as a boolean. Raise MessageFormatError if it cannot be converted."""
        return read_item(read_boolean, self._items(), name)

    def get_byte(self, name: str) -> int:
        """Return the item as a byte. Raise MessageFormatError if it cannot be converted."""
        return read_item(read_byte, self._items(), name)

    def get_short(self, name: str) -> int:
        """Return the item as a short. Raise MessageFormatError if it cannot be converted."""
        return read_item(read_short, self._items(), name)

    def get_char(self, name: str) -> str:
        """Return the item as a character. Raise MessageFormatError if it cannot be converted."""
        return read_item(read_char, self._items(), name)

    def get_int(self, name: str) -> int:
        """Return the item as an int. Raise MessageFormatError if it cannot be converted."""
        return read_item(read_int, self._items(), name)

    def get_long(self, name: str) -> int:
        """Return the item as a long. Raise MessageFormatError if it cannot be converted."""
        return read_item(read_long, self._items(), name)

    def get_float(self, name: str) -> float:
        """Return the item as a float. Raise MessageFormatError if it cannot be converted."""
        return read_item(read_float, self._items(), name)

    def get_double(self, name: str) -> float:
        """Return the item as a double. Raise MessageFormatError if it cannot be converted."""
        return read_item(read_double, self._items(), name)

    def get_string(self, name: str) -> str | None:
        """Return the item as a string. Raise MessageFormatError if it cannot be converted."""
        return read_item(read_string, self._items(), name)

    def get_bytes(self, name: str) -> bytes | None:
        """Return the item as a byte array. Raise MessageFormatError if it cannot be converted."""
        return read_item(read_bytes, self._items(), name)

    def get_object(self, name: str) -> Value:
        """Return the value of the item with the type that it was set with; None if the item does not exist."""
        return self._items().get(name)

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
        """Set an item of type float, which keeps 32 bits of the value."""
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
        """Set an item to a copy of a byte array, or of a part of it."""
        self._set(name, None if value is None else to_stored_bytes(value, offset, length))

    def set_object(self, name: str, value: object) -> None:
        """Set an item with the type of the value. An int becomes an int if it fits 32 bits, a long otherwise."""
        try:
            stored = to_stored_object(value)
        except MessageFormatError as error:
            raise type(error)(f"item {name!r}: {error}") from None
        self._set(name, stored)

    def _set(self, name: str, value: Value) -> None:
        self._check_body_writeable()
        self._body[_stored_name(name)] = value
        self._encoded_body = None

    def _items(self) -> dict[str, Value]:
        if self._body is UNREAD:
            self._load_body()
        return cast(dict[str, Value], self._body)

    def _get_body(self) -> dict[str, Value]:
        return dict(self._items())

    def _preview(self) -> str:
        if self._body is UNREAD and self._encoded_body is not None and len(self._encoded_body) > _PREVIEW_BYTES_MAX:
            return f"a map of {counted(len(self._encoded_body), 'byte')}"
        items = self._items()
        some = [f"{shortened(name, 20)}={excerpt(value)}" for name, value in islice(items.items(), _PREVIEW_ITEMS_MAX)]
        return f"{', '.join(some)}, ... of {counted(len(items), 'item')}" if len(items) > len(some) else ", ".join(some)

    def _load_body(self) -> None:
        if self._body is UNREAD and self._encoded_body is not None:
            self._body = _decode_items(self._encoded_body)

    def _encode_body(self) -> bytes:
        if self._encoded_body is None:
            self._encoded_body = encode_items(self._items())
        return self._encoded_body


_NAMES_MAX: Final = 4096
"""Entries of a cache: far more than programs use, and a bound for those that make names up."""
_NAME_CHARACTERS_MAX: Final = 64
"""Longest name in the cache: longer ones rarely repeat, and would cost memory."""
_known_names: dict[str, bytes] = {}
"""Encoded names of items. Cleared when full."""


def _encode_item(name: str, value: object) -> bytes:
    encoded = encode_value(to_stored_object(value))
    return _encode_name(_stored_name(name)) + encoded


def _stored_name(name: str) -> str:
    if not isinstance(name, str) or not name:
        raise ValueError(f"{name!r} is not the name of an item: expected a string that is not empty")
    return cast(str, to_stored_string(name))


def _encode_name(name: str) -> bytes:
    encoded = encode_value(name)
    if len(name) <= _NAME_CHARACTERS_MAX:
        if len(_known_names) >= _NAMES_MAX:
            _known_names.clear()
        _known_names[name] = encoded
    return encoded


encode_items: Final = entries_encoder(_known_names, _encode_item, has_bytes=True)
"""Function that returns the body of a `MapMessage` with these items. It raises MessageFormatError or ValueError if the
message would refuse them."""


def _decode_items(data: bytes) -> dict[str, Value]:
    """Return the items that `data` encodes. Names are encoded as values of type String."""
    items: dict[str, Value] = {}
    at = 0
    while at < len(data):
        name, at = decode_value(data, at, len(data))
        if type(name) is not str or not name:
            raise MessageFormatError("an item without a name")
        items[name], at = decode_value(data, at, len(data))
    return items
