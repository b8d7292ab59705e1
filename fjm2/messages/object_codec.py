"""Codecs that turn the object of an ObjectMessage into bytes and back.

Data from a multicast network is never unpickled unless the application asks for it and names the classes.
"""

import io
import pickle
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Any, Final, Protocol, cast

from .errors import JMSSecurityError, MessageFormatError
from .types import conversion_of, decode_text, encode_text, shown


class ObjectFormat(IntEnum):
    """Format of an encoded object, given by its first byte."""

    SAFE = 0
    PICKLE = 1


class ObjectCodec(Protocol):
    """A codec that turns objects into bytes and back. It is a setting of the connection."""

    def encode(self, value: object) -> bytes:
        """Return the encoded object. Raise MessageFormatError if it cannot be encoded."""

    def decode(self, data: bytes) -> object:
        """Return the object. Raise MessageFormatError if it cannot be decoded, JMSSecurityError if the codec refuses
        it."""


DEPTH_MAX: Final = 100
"""Greatest depth of nested lists, tuples and dicts. It bounds recursion, and refuses objects that contain
themselves."""

_SAME_HASH_KEYS_MAX: Final = 100
"""Greatest number of keys with equal hashes in a dict. Integers with equal hashes are easy to forge, and inserting n of
them takes n² comparisons."""

_NONE, _FALSE, _TRUE, _INT, _FLOAT, _TEXT, _BYTES, _LIST, _TUPLE, _DICT = range(10)
_DOUBLE = struct.Struct("!d")
_SIZED = struct.Struct("!BI")
_SIZE = struct.Struct("!I")


class SafeCodec:
    """Encodes None, bool, int, float, str, bytes, and lists, tuples and dicts of these. Subclasses of them are
    refused."""

    def encode(self, value: object) -> bytes:
        """Return the encoded object. Raise MessageFormatError if it contains a value of any other type."""
        try:
            return bytes((ObjectFormat.SAFE,)) + b"".join(_encode(value, 0))
        except MessageFormatError as error:
            path = _path_to_fault(value, 0) or ()
            place = "".join(f"[{key!r:.40}]" for key in path) if len(path) <= DEPTH_MAX else ""
            raise MessageFormatError(f"{place}: {error}" if place else str(error)) from None

    def decode(self, data: bytes) -> object:
        """Return the decoded object. Raise MessageFormatError if it is malformed, JMSSecurityError if it is pickled."""
        if data[:1] == bytes((ObjectFormat.PICKLE,)):
            raise JMSSecurityError("a pickled object is refused unless the connection has a PickleCodec")
        if data[:1] != bytes((ObjectFormat.SAFE,)):
            raise MessageFormatError("an object of an unknown format")
        value, end = _decode(data, 1, 0)
        if end != len(data):
            raise MessageFormatError(f"{len(data) - end} bytes follow the object")
        return value


def _encode(value: object, depth: int) -> Iterator[bytes]:
    if depth > DEPTH_MAX:
        raise MessageFormatError(f"an object is nested more than {DEPTH_MAX} levels deep, or contains itself")
    kind = type(value)
    if kind in _LEAF_ENCODERS:
        yield _LEAF_ENCODERS[kind](value)
    elif isinstance(value, list | tuple) and kind in (list, tuple):
        yield _SIZED.pack(_LIST if kind is list else _TUPLE, len(value))
        for item in value:
            yield from _encode(item, depth + 1)
    elif isinstance(value, dict) and kind is dict:
        yield _SIZED.pack(_DICT, len(value))
        for pair in value.items():
            for part in pair:
                yield from _encode(part, depth + 1)
    else:
        raise MessageFormatError(
            f"{kind.__name__} cannot be sent: expected None, bool, int, float, str, bytes, or a list, tuple or dict of "
            f"these; {conversion_of(value)}, or name its class in a PickleCodec"
        )


def _path_to_fault(value: object, depth: int) -> tuple[object, ...] | None:
    """Return the keys that lead to the first part of an object that cannot be encoded, as in `("items", 2)`; () if it
    is the object itself, and None if there is no such part.

    A part that is too deep is one: an object that contains itself has too many others to look at.
    """
    if depth > DEPTH_MAX:
        return ()
    parts: Iterable[tuple[object, object]]
    if type(value) is dict:
        parts = (pair for key, item in value.items() for pair in ((key, key), (key, item)))
    elif type(value) in (list, tuple):
        parts = enumerate(cast(Sequence[object], value))
    else:
        try:
            _LEAF_ENCODERS[type(value)](value)
        except (KeyError, MessageFormatError):
            return ()
        return None
    for key, part in parts:
        path = _path_to_fault(part, depth + 1)
        if path is not None:
            return key, *path
    return None


def _encode_int(value: int) -> bytes:
    return _sized(_INT, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def _sized(tag: int, content: bytes) -> bytes:
    return _SIZED.pack(tag, len(content)) + content


_LEAF_ENCODERS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda _: bytes((_NONE,)),
    bool: lambda value: bytes((_TRUE if value else _FALSE,)),
    int: _encode_int,
    float: lambda value: bytes((_FLOAT,)) + _DOUBLE.pack(value),
    str: lambda value: _sized(_TEXT, encode_text(value)),
    bytes: lambda value: _sized(_BYTES, value),
}


def _decode(data: bytes, at: int, depth: int) -> tuple[object, int]:
    if depth > DEPTH_MAX:
        raise MessageFormatError(f"an object is nested more than {DEPTH_MAX} levels deep")
    tag, at = _take(data, at, 1)[0], at + 1
    if tag <= _TRUE:
        return (None, False, True)[tag], at
    if tag == _FLOAT:
        return _DOUBLE.unpack(_take(data, at, _DOUBLE.size))[0], at + _DOUBLE.size
    size, at = _SIZE.unpack(_take(data, at, _SIZE.size))[0], at + _SIZE.size
    if tag in _LEAF_DECODERS:
        return _LEAF_DECODERS[tag](_take(data, at, size)), at + size
    if tag > _DICT:
        raise MessageFormatError(f"an object with the unknown tag {tag}")
    return _decode_items(data, at, depth, tag, size)


def _decode_items(data: bytes, at: int, depth: int, tag: int, size: int) -> tuple[object, int]:
    items = []
    # `size` is only a claim, but every item takes at least one byte, so the loop ends at the end of the data.
    for _ in range(size * 2 if tag == _DICT else size):
        item, at = _decode(data, at, depth + 1)
        items.append(item)
    if tag == _LIST:
        return items, at
    if tag == _TUPLE:
        return tuple(items), at
    keys = items[::2]
    try:
        hashes = Counter(map(hash, keys))
    except TypeError as error:
        raise MessageFormatError("a dict with an unhashable key") from error
    if max(hashes.values(), default=0) > _SAME_HASH_KEYS_MAX:
        raise MessageFormatError(f"a dict with more than {_SAME_HASH_KEYS_MAX} keys of the same hash")
    return dict(zip(keys, items[1::2], strict=True)), at


def _take(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise MessageFormatError("a truncated object")
    return data[at : at + size]


_LEAF_DECODERS: dict[int, Callable[[bytes], object]] = {
    _INT: lambda content: int.from_bytes(content, "big", signed=True),
    _TEXT: decode_text,
    _BYTES: bytes,
}


class PickleCodec:
    """Pickles objects that are sent, and unpickles received objects that are made of the given classes only.

    Naming a class allows everything that its constructor and `__setstate__` do with arguments from the network: name
    only harmless ones. Objects from a SafeCodec are decoded, too.
    """

    def __init__(self, classes: Collection[type]) -> None:
        if not isinstance(classes, Collection) or not all(isinstance(kind, type) for kind in classes):
            raise TypeError(f"classes={shown(classes)}: expected a list of classes, as in PickleCodec([Order])")
        self._classes = {(kind.__module__, kind.__qualname__): kind for kind in classes}

    def encode(self, value: object) -> bytes:
        """Return the pickled object. Raise MessageFormatError if it cannot be pickled."""
        try:
            return bytes((ObjectFormat.PICKLE,)) + pickle.dumps(value, protocol=4)
        except Exception as error:
            raise MessageFormatError(f"the object cannot be pickled: {error}") from error

    def decode(self, data: bytes) -> object:
        """Return the decoded object.

        Raise MessageFormatError if it is malformed, JMSSecurityError if it contains a class that was not named.
        """
        if data[:1] != bytes((ObjectFormat.PICKLE,)):
            return SAFE_CODEC.decode(data)
        try:
            return _Unpickler(data[1:], self._classes).load()
        except JMSSecurityError:
            raise
        except Exception as error:
            raise MessageFormatError(f"the object cannot be unpickled: {error}") from error


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, classes: dict[tuple[str, str], type]) -> None:
        super().__init__(io.BytesIO(data))
        self._classes = classes

    def find_class(self, module: str, name: str) -> type:
        if (module, name) not in self._classes:
            raise JMSSecurityError(f"unpickling {module}.{name} is refused: the codec does not list this class")
        return self._classes[module, name]


SAFE_CODEC: Final = SafeCodec()
