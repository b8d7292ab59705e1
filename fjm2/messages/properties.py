"""Message properties: valid names, encoding, and the mapping that applications see.

An encoded property is the length of its name (2 bytes), the name in UTF-8, and a tagged value.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, Union, cast

from fjm2.base.quantities import shortened

from .errors import MessageFormatError
from .selector.names import is_identifier, keyword
from .types import Char, PropertyValue, Value, decode_text, to_stored_property, to_stored_string
from .values import Tag, decode_value, encode_value, entries_encoder, excerpt, value_end

if TYPE_CHECKING:
    from numpy.typing import NDArray

PropertyColumn: TypeAlias = Union[PropertyValue, Sequence[PropertyValue], "NDArray[Any]"]
"""A value that all messages of a batch get, or a list or array of one value for each."""

GROUP_ID: Final = "JMSXGroupID"
GROUP_SEQUENCE: Final = "JMSXGroupSeq"
DELIVERY_COUNT: Final = "JMSXDeliveryCount"

_CLIENTS_OWN: dict[str, type] = {GROUP_ID: str, GROUP_SEQUENCE: int}
"""Names beginning with JMS that applications may set, with the types of their values."""

_NAME_BYTES_MAX = 0xFFFF  # the wire has 16 bits for the length
_NAMES_MAX = 4096  # entries of a cache: far more than programs use, and a bound for those that make names up
_KNOWN_NAME_CHARACTERS_MAX = 64  # longer names are rare, and would cost memory
_SHOWN_MAX = 4
"""Properties that `repr` of a message shows."""
_SHOWN_CHARACTERS_MAX = 20
"""Characters of a property's name that it shows."""
_LENGTH = struct.Struct("!H")
_STRING_TAG = int(Tag.STRING)


@lru_cache(_NAMES_MAX)
def _encode_short(name: str) -> bytes:
    encoded = name.encode()
    return _LENGTH.pack(len(encoded)) + encoded


def _encode_name(name: str) -> bytes:
    if len(name) <= _KNOWN_NAME_CHARACTERS_MAX:
        return _encode_short(name)
    encoded = name.encode()
    if len(encoded) > _NAME_BYTES_MAX:
        raise ValueError(f"a name of {len(encoded)} bytes: expected at most {_NAME_BYTES_MAX}")
    return _LENGTH.pack(len(encoded)) + encoded


_reserved_names = {name: _encode_name(name) for name in _CLIENTS_OWN}

known_names: dict[str, bytes] = {}
"""Encoded names that were checked and may be set to any value, by name. Cleared when full."""


def check_name(name: str, value: PropertyValue) -> None:
    """Raise ValueError if applications may not set this property, or MessageFormatError if not to a value of this
    type."""
    if not isinstance(name, str) or not name:
        raise ValueError(f"{name!r} is not a property name: expected a non-empty string")
    if word := keyword(name):
        raise ValueError(f"{name!r} is not a property name: {word} is a word of selectors, in any case of its letters")
    if not is_identifier(name):
        raise ValueError(f"{name!r} is not a property name: expected letters, digits, _ and $, with no digit first")
    if name.startswith("JMS"):
        _check_reserved(name, value)
        return
    encoded = _encode_name(name)
    if len(known_names) >= _NAMES_MAX:
        known_names.clear()
    known_names[name] = encoded


def stored_property(
    name: str, value: Any, convert: Callable[[Any], PropertyValue] = to_stored_property
) -> PropertyValue:
    """Return the value of a property as it is stored. Raise MessageFormatError if it cannot be converted."""
    try:
        return convert(value)
    except MessageFormatError as error:
        raise type(error)(f"property {name!r}: {error}") from None


def stored_text(name: str, value: str | None) -> str | None:
    """Return a text header as it is stored. Raise MessageFormatError if it is no text."""
    try:
        return to_stored_string(value)
    except MessageFormatError as error:
        raise type(error)(f"{name}: {error}") from None


def checked_property(name: str, value: object) -> PropertyValue:
    """Return the value of a property as it is stored. Raise an error if an application may not set it."""
    stored = stored_property(name, value)
    if name not in known_names:
        check_name(name, stored)
    return stored


def _check_reserved(name: str, value: PropertyValue) -> None:
    if name not in _CLIENTS_OWN:
        raise ValueError(f"{name} cannot be set by applications: expected a name that does not begin with JMS")
    if value is not None and type(value) is not _CLIENTS_OWN[name]:
        raise MessageFormatError(f"{name} expects a value of type {_CLIENTS_OWN[name].__name__}")


def travels(name: str) -> bool:
    """Return True if a property is sent, because the client has set it and not the receiver."""
    return not name.startswith("JMS") or name in _CLIENTS_OWN


def _entry(name: str) -> bytes:
    return known_names.get(name) or _reserved_names.get(name) or _encode_name(name)


def _encode_stored(name: str, value: PropertyValue) -> bytes:
    return _entry(name) + encode_value(value)


def _encode_given(name: str, value: PropertyValue) -> bytes:
    return _encode_stored(name, checked_property(name, value))


encode_properties: Final = entries_encoder(known_names, _encode_stored)
"""Function that returns properties encoded, for values as messages store them."""
encode_given: Final = entries_encoder(known_names, _encode_given)
"""Function that returns properties encoded, for values as applications pass them. It raises an error if an application
may not set one of them."""


def decode_properties(data: bytes, at: int, end: int) -> dict[str, PropertyValue]:
    """Return the properties. If a name occurs twice, the first one counts, as in `find_property`."""
    properties: dict[str, PropertyValue] = {}
    while at < end:
        name_end = _name_end(data, at, end)
        name = decode_text(data[at + _LENGTH.size : name_end])
        value, at = decode_value(data, name_end, end)
        properties.setdefault(name, _check_type(value))
    return properties


def find_property(data: bytes, at: int, end: int, name: str) -> PropertyValue:
    """Return the value of one property, or None. No other property is decoded."""
    try:
        entry = known_names.get(name) or _encode_name(name)
    except ValueError:
        return None
    found = data.find(entry, at, end)
    # The bytes of the name may also occur inside a value, so walk from property to property to verify the match.
    while found >= at:
        if found == at:
            return _check_type(decode_value(data, at + len(entry), end)[0])
        at = value_end(data, _name_end(data, at, end), end)
        if found < at:
            found = data.find(entry, at, end)
    return None


def place_of(data: bytes, at: int, end: int, name: str, structure: list[int]) -> int | None:
    """Return the index of the tag of a property, or None if there is no such property. Raise MessageFormatError if the
    properties up to it are malformed.

    Add to `structure` the indexes of all bytes that decide where the property is: the names before it and its own, and
    tags and lengths before it.
    """
    try:
        entry = known_names.get(name) or _encode_name(name)
    except ValueError:
        return None
    while at < end:
        name_end = _name_end(data, at, end)
        structure += range(at, name_end)
        is_found = data[at:name_end] == entry
        at = value_end(data, name_end, end)
        if is_found:
            return name_end
        structure += range(name_end, name_end + (1 if data[name_end] < _STRING_TAG else 5))
    return None


def _check_type(value: Value) -> PropertyValue:
    if type(value) is bytes or type(value) is Char:
        raise MessageFormatError("a property of type char or byte[]: expected one of the property types")
    return cast(PropertyValue, value)


def _name_end(data: bytes, at: int, end: int) -> int:
    if at + _LENGTH.size <= end:
        name_end = at + _LENGTH.size + (data[at] << 8 | data[at + 1])
        if name_end < end:
            return name_end
    raise MessageFormatError("a truncated property")


def preview(properties: Mapping[str, PropertyValue]) -> str:
    """Return the first few properties, with the beginnings of their values, for `repr`."""
    names = sorted(properties.keys() - {DELIVERY_COUNT})
    shown = [f"{shortened(name, _SHOWN_CHARACTERS_MAX)}={excerpt(properties[name])}" for name in names[:_SHOWN_MAX]]
    return ", ".join([*shown, "..."] if len(names) > len(shown) else shown)


class HasProperties(Protocol):
    """The methods of a message that `Properties` needs."""

    def property_exists(self, name: str) -> bool: ...
    def property_names(self) -> set[str]: ...
    def get_object_property(self, name: str) -> PropertyValue: ...
    def set_object_property(self, name: str, value: PropertyValue) -> None: ...


class Properties(Mapping[str, PropertyValue]):
    """The properties of a message as a mapping. Items can be set; single items cannot be deleted."""

    __slots__ = ("_message",)

    def __init__(self, message: HasProperties) -> None:
        self._message = message

    def __getitem__(self, name: str) -> PropertyValue:
        if not self._message.property_exists(name):
            raise KeyError(name)
        return self._message.get_object_property(name)

    def __setitem__(self, name: str, value: PropertyValue) -> None:
        self._message.set_object_property(name, value)

    def __iter__(self) -> Iterator[str]:
        return iter(self._message.property_names())

    def __len__(self) -> int:
        return len(self._message.property_names())

    def __repr__(self) -> str:
        return f"Properties({dict(self)!r})"
