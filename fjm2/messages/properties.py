"""A message's properties: their names, the bytes they travel as, and the mapping that users see.

Each property is the length of its name (2 bytes), the name in UTF-8, and a tagged value.
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
"""Of the names that begin with JMS, those that applications may set, with their types."""

_NAME_BYTES_MAX = 0xFFFF
_NAMES_MAX = 4096
_LENGTH = struct.Struct("!H")
_INT = struct.Struct("!Bi")
_STRING = struct.Struct("!BI")
_INT_TAG, _STRING_TAG = int(Tag.INT), int(Tag.STRING)


def _encode_name(name: str) -> bytes:
    encoded = name.encode()
    if len(encoded) > _NAME_BYTES_MAX:
        raise ValueError(f"a name of {len(encoded)} bytes: at most {_NAME_BYTES_MAX} fit")
    return _LENGTH.pack(len(encoded)) + encoded


_reserved_names = {name: _encode_name(name) for name in _CLIENTS_OWN}

known_names: dict[str, bytes] = {}
"""Names that any value may be set to, as they are encoded. Few programs use many; those that do start over at times."""


_known_texts: dict[tuple[str, PropertyValue], bytes] = {}
"""Names with short texts, encoded: there are mostly few, which come again and again."""
_KNOWN_TEXT_MAX = 64


def check_name(name: str, value: PropertyValue) -> None:
    """ValueError if no application may set a property of this name, MessageFormatError if not to this type of value."""
    if not isinstance(name, str) or not name:
        raise ValueError(f"{name!r} is no name of a property")
    if not is_identifier(name):
        raise ValueError(f"{name!r} is no identifier, and so no name of a property")
    if name.startswith("JMS"):
        _check_reserved(name, value)
        return
    encoded = _encode_name(name)
    if len(known_names) >= _NAMES_MAX:
        known_names.clear()
    known_names[name] = encoded


def _check_reserved(name: str, value: PropertyValue) -> None:
    if name not in _CLIENTS_OWN:
        raise ValueError(f"{name} is not for applications to set")
    if value is not None and type(value) is not _CLIENTS_OWN[name]:
        raise MessageFormatError(f"{name} is a property of type {_CLIENTS_OWN[name].__name__}")


def travels(name: str) -> bool:
    """Whether a property is the client's own, and not made where the message arrives."""
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
    if len(encoded) <= _KNOWN_TEXT_MAX:
        if len(_known_texts) >= _NAMES_MAX:
            _known_texts.clear()
        _known_texts[name, value] = encoded
    return encoded


def decode_properties(data: bytes, at: int, end: int) -> dict[str, PropertyValue]:
    """Of two with one name the first counts, as it does for `find_property`."""
    properties: dict[str, PropertyValue] = {}
    while at < end:
        name_end = _name_end(data, at, end)
        name = decode_text(data[at + _LENGTH.size : name_end])
        value, at = decode_value(data, name_end, end)
        properties.setdefault(name, _check_type(value))
    return properties


def find_property(data: bytes, at: int, end: int, name: str) -> PropertyValue:
    """The value of one property, or None: no other is decoded."""
    try:
        entry = known_names.get(name) or _encode_name(name)
    except ValueError:
        return None
    found = data.find(entry, at, end)
    # What looks like the name may stand inside of a value: only the walk tells where properties begin.
    while found >= at:
        if found == at:
            return _check_type(decode_value(data, at + len(entry), end)[0])
        at = value_end(data, _name_end(data, at, end), end)
        if found < at:
            found = data.find(entry, at, end)
    return None


def _check_type(value: Value) -> PropertyValue:
    if type(value) is bytes or type(value) is Char:
        raise MessageFormatError("a property of a type that properties have not")
    return cast(PropertyValue, value)


def _name_end(data: bytes, at: int, end: int) -> int:
    if at + _LENGTH.size <= end:
        name_end = at + _LENGTH.size + (data[at] << 8 | data[at + 1])
        if name_end < end:
            return name_end
    raise MessageFormatError("a property that is cut short")


class HasProperties(Protocol):
    """The part of a message that `Properties` shows as a mapping."""

    def property_exists(self, name: str) -> bool: ...
    def property_names(self) -> set[str]: ...
    def get_object_property(self, name: str) -> PropertyValue: ...
    def set_object_property(self, name: str, value: PropertyValue) -> None: ...


class Properties(Mapping[str, PropertyValue]):
    """A message's properties as a mapping that can be added to; one alone cannot be removed."""

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
