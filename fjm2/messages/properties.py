"""Message properties: valid names, encoding, and the mapping that applications see.

An encoded property is the length of its name (2 bytes), the name in UTF-8, and a tagged value.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import Final, Protocol, cast

from .errors import MessageFormatError
from .selector.names import is_identifier
from .types import Char, PropertyValue, Value, decode_text
from .values import Tag, decode_value, encode_value, value_end

GROUP_ID: Final = "JMSXGroupID"
GROUP_SEQUENCE: Final = "JMSXGroupSeq"
DELIVERY_COUNT: Final = "JMSXDeliveryCount"

_CLIENTS_OWN: dict[str, type] = {GROUP_ID: str, GROUP_SEQUENCE: int}
"""Names beginning with JMS that applications may set, with the types of their values."""

_NAME_BYTES_MAX = 0xFFFF  # the wire has 16 bits for the length
_NAMES_MAX = 4096  # entries of a cache: far more than programs use, and a bound for those that make names up
_LENGTH = struct.Struct("!H")
_INT = struct.Struct("!Bi")
_STRING = struct.Struct("!BI")
_INT_TAG, _STRING_TAG = int(Tag.INT), int(Tag.STRING)


def _encode_name(name: str) -> bytes:
    encoded = name.encode()
    if len(encoded) > _NAME_BYTES_MAX:
        raise ValueError(f"a name of {len(encoded)} bytes: expected at most {_NAME_BYTES_MAX}")
    return _LENGTH.pack(len(encoded)) + encoded


_reserved_names = {name: _encode_name(name) for name in _CLIENTS_OWN}

known_names: dict[str, bytes] = {}
"""Encoded names that were checked and may be set to any value, by name. Cleared when full."""


_known_texts: dict[tuple[str, PropertyValue], bytes] = {}
"""Encoded properties with short text values, by name and value. Most programs repeat a few."""
_KNOWN_TEXT_BYTES_MAX = 64  # longer texts rarely repeat, and would cost memory


def check_name(name: str, value: PropertyValue) -> None:
    """Raise ValueError if applications may not set this property, or MessageFormatError if not to a value of this
    type."""
    if not isinstance(name, str) or not name:
        raise ValueError(f"{name!r} is not a property name: expected a non-empty string")
    if not is_identifier(name):
        raise ValueError(f"{name!r} is not a property name: expected letters, digits, _ and $, with no digit first")
    if name.startswith("JMS"):
        _check_reserved(name, value)
        return
    encoded = _encode_name(name)
    if len(known_names) >= _NAMES_MAX:
        known_names.clear()
    known_names[name] = encoded


def _check_reserved(name: str, value: PropertyValue) -> None:
    if name not in _CLIENTS_OWN:
        raise ValueError(f"{name} cannot be set by applications: expected a name that does not begin with JMS")
    if value is not None and type(value) is not _CLIENTS_OWN[name]:
        raise MessageFormatError(f"{name} expects a value of type {_CLIENTS_OWN[name].__name__}")


def travels(name: str) -> bool:
    """Return True if a property is sent, because the client has set it and not the receiver."""
    return not name.startswith("JMS") or name in _CLIENTS_OWN


def encode_properties(properties: Mapping[str, PropertyValue]) -> bytes:
    parts = []
    for item in properties.items():
        name, value = item
        if type(value) is str:
            parts.append(_known_texts.get(item) or _encode_text(name, value))
        elif type(value) is int:
            parts.append((known_names.get(name) or _entry(name)) + _INT.pack(_INT_TAG, value))
        else:
            parts.append(_entry(name) + encode_value(value))
    return b"".join(parts)


def _entry(name: str) -> bytes:
    return known_names.get(name) or _reserved_names.get(name) or _encode_name(name)


def _encode_text(name: str, value: str) -> bytes:
    content = value.encode()
    encoded = _entry(name) + _STRING.pack(_STRING_TAG, len(content)) + content
    if len(encoded) <= _KNOWN_TEXT_BYTES_MAX:
        if len(_known_texts) >= _NAMES_MAX:
            _known_texts.clear()
        _known_texts[name, value] = encoded
    return encoded


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
