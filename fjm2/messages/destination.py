"""Destinations of messages: topics and queues. They are frozen and hashable. Two are equal if kind and name are."""

import re
import zlib
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, NoReturn, Self

from .errors import InvalidDestinationError

NAME_BYTES_MAX = 0xFFFF  # a frame has 16 bits for the length

# The two bits of a frame's flags that give the kind of its destination.
QUEUE_FLAG = 32
TEMPORARY_FLAG = 64
KIND_FLAGS = QUEUE_FLAG | TEMPORARY_FLAG

_SCHEMES = re.compile(r"^(temp-)?(topic|queue)://+")
"""Schemes that other providers write before a name."""
_SHOWN_CHARACTERS_MAX = 60
"""Length of an excerpt in an error message, so that it fits a line of a log."""


class Destination:
    """Base of topics and queues.

    `encoded_name`, `kind_flags` and `frame_hash` are the fields of a destination in a frame.
    """

    __slots__ = ("encoded_name", "frame_hash", "name")
    kind_flags: ClassVar[int]
    _SCHEME: ClassVar[str]

    name: str
    """Name of the destination, without the scheme."""
    encoded_name: bytes
    frame_hash: int

    def __init__(self, name: str) -> None:
        if type(self) is Destination:
            raise TypeError("Destination is the base of Topic and Queue: expected one of them")
        if not isinstance(name, str) or not name:
            raise InvalidDestinationError(f"{name!r} is not a destination name: expected a non-empty string")
        try:
            encoded = name.encode()
        except UnicodeEncodeError:
            raise InvalidDestinationError(
                f"the name {name!r} contains a lone surrogate: expected characters that UTF-8 can encode"
            ) from None
        if len(encoded) > NAME_BYTES_MAX:
            raise InvalidDestinationError(
                f"the name {name[:20]!r}... has {len(encoded)} bytes: expected at most {NAME_BYTES_MAX}"
            )
        object.__setattr__(self, "name", str.__str__(name))
        object.__setattr__(self, "encoded_name", encoded)
        object.__setattr__(self, "frame_hash", zlib.crc32(encoded, zlib.crc32(bytes((self.kind_flags,)))))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a destination is frozen: {name} cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a destination is frozen: {name} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Destination):
            return NotImplemented
        return self.name == other.name and self.kind_flags == other.kind_flags

    def __hash__(self) -> int:
        return self.frame_hash

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name,)

    def __str__(self) -> str:
        return f"{self._SCHEME}://{self.name}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


def called(kind: type[Destination], name: str) -> str:
    """Return the call that makes a destination, to be copied from an error message into a program."""
    quoted = repr(name) if '"' in name or not name.isprintable() or "\\" in name else f'"{name}"'
    return f"{kind.__name__}({quoted})"


def not_a_destination(value: object, kind: type[Destination] | None = None) -> InvalidDestinationError:
    """Return the error for a value where a destination of some kind, by default a topic, is expected."""
    wanted = Topic if kind is None else kind
    name = "prices"
    if isinstance(value, Destination):
        name = value.name
    elif isinstance(value, str) and value:
        name = _SCHEMES.sub("", value) or name
    text = repr(value)
    shown = text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}..."
    call = called(wanted, name if len(name) <= _SHOWN_CHARACTERS_MAX else "prices")
    return InvalidDestinationError(
        f"{shown} is no {wanted.__name__.lower() if kind else 'destination'}: expected {call}"
    )


class Topic(Destination):
    """A destination whose messages go to every subscription."""

    __slots__ = ()
    kind_flags = 0
    _SCHEME = "topic"

    @property
    def topic_name(self) -> str:
        """The same as `name`."""
        return self.name


class Queue(Destination):
    """A destination whose messages each go to one consumer."""

    __slots__ = ()
    kind_flags = QUEUE_FLAG
    _SCHEME = "queue"

    @property
    def queue_name(self) -> str:
        """The same as `name`."""
        return self.name


class _Temporary(Destination):
    """A destination that lives as long as the connection that created it.

    The connection passes `on_delete`. A destination received in a message has no `on_delete`, and cannot be deleted.
    """

    __slots__ = ()

    def __init__(self, name: str, on_delete: Callable[[Any], Awaitable[None]] | None = None) -> None:
        super().__init__(name)
        object.__setattr__(self, "_on_delete", on_delete)

    _on_delete: Callable[[Any], Awaitable[None]] | None

    async def delete(self) -> None:
        """Delete the destination.

        Raise IllegalStateError if it has consumers, InvalidDestinationError if another connection owns it.
        """
        if self._on_delete is None:
            raise InvalidDestinationError(
                f"{self} belongs to another connection: only the connection that created it can delete it"
            )
        await self._on_delete(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.delete()


class TemporaryTopic(_Temporary, Topic):
    """A topic that only its own connection can consume from."""

    __slots__ = ("_on_delete",)
    kind_flags = TEMPORARY_FLAG
    _SCHEME = "temp-topic"


class TemporaryQueue(_Temporary, Queue):
    """A queue that only its own connection can consume from."""

    __slots__ = ("_on_delete",)
    kind_flags = QUEUE_FLAG | TEMPORARY_FLAG
    _SCHEME = "temp-queue"


_CLASSES: dict[int, type[Destination]] = {
    kind.kind_flags: kind for kind in (Topic, Queue, TemporaryTopic, TemporaryQueue)
}
_SEEN_MAX = 1024  # entries of a cache: more than a node sees, and a bound on forged names
_seen: dict[tuple[int, bytes], Destination] = {}


def destination_from(flags: int, encoded_name: bytes) -> Destination:
    """Return the destination that a frame names. Raise InvalidDestinationError if its name is invalid."""
    key = flags & KIND_FLAGS, encoded_name
    known = _seen.get(key)
    if known is not None:
        return known
    try:
        name = encoded_name.decode()
    except UnicodeDecodeError:
        raise InvalidDestinationError("a destination name is not UTF-8") from None
    if len(_seen) >= _SEEN_MAX:
        _seen.clear()
    made = _seen[key] = _CLASSES[key[0]](name)
    return made
