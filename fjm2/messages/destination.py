"""Destinations of messages: topics and queues, and patterns of topics.

They are frozen and hashable. Two are equal if kind and name are.
"""

import logging
import re
import zlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, Final, Generic, NoReturn, Self, TypeVar, cast

from fjm2.base.logs import Log

from .errors import InvalidDestinationError

log = Log("fjm2.jms")

NAME_BYTES_MAX = 0xFFFF  # a frame has 16 bits for the length

# The two bits of a frame's flags that give the kind of its destination.
QUEUE_FLAG = 32
TEMPORARY_FLAG = 64
KIND_FLAGS = QUEUE_FLAG | TEMPORARY_FLAG
PATTERN_FLAG = 128
"""Kind of a pattern, which no frame carries."""
_NO_HASH_BIT = 1 << 32
"""Bit above those of a hash in a frame."""

_LEVEL = re.compile(r"(?:^|[./])[^./]*")
"""One level of a name, with the separator before it. A level may be empty."""
_OWN_LEVEL: Final = "FJM2"
"""First level of topics that buses send to one another. Only patterns that begin with it match them."""

_SCHEMES = re.compile(r"^(temp-)?(topic|queue)://+")
"""Schemes that other providers write before a name."""
_ODD = re.compile(r"[*>#+]|://")
"""Characters that names of topics seldom have on purpose."""
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
        object.__setattr__(self, "frame_hash", hash_of(self.kind_flags, encoded))

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
    text = value.name if isinstance(value, Destination) else value if isinstance(value, str) else ""
    name = _SCHEMES.sub("", text)
    is_known = 0 < len(name) <= _SHOWN_CHARACTERS_MAX
    call = called(wanted, name) if is_known else f"one, such as {called(wanted, 'prices')}"
    shown = repr(value)
    if len(shown) > _SHOWN_CHARACTERS_MAX:
        shown = f"{shown[:_SHOWN_CHARACTERS_MAX]}..."
    return InvalidDestinationError(
        f"{shown} is no {wanted.__name__.lower() if kind else 'destination'}: expected {call}"
    )


_topics: "dict[str, Topic]" = {}
"""Topics by name. Programs name the same few in each call, and to make a topic takes half as long as to send to it.
Cleared when full."""


class Topic(Destination):
    """A destination whose messages go to every subscription. For several topics at once, see `TopicPattern`."""

    __slots__ = ()
    kind_flags = 0
    _SCHEME = "topic"

    def __new__(cls, name: str, *_: Any) -> Self:
        known = _topics.get(name) if cls is Topic and type(name) is str else None
        return object.__new__(cls) if known is None else cast(Self, known)

    def __init__(self, name: str) -> None:
        if type(name) is str and _topics.get(name) is self:
            return
        super().__init__(name)
        if self.kind_flags:
            return
        if _ODD.search(name):
            _tell_odd_topic(name)
        elif type(self) is Topic and len(self.encoded_name) <= SEEN_BYTES_MAX:
            if len(_topics) >= _SEEN_MAX:
                _topics.clear()
            _topics[self.name] = self

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


class TopicPattern(Destination):
    """The topics whose names match a pattern, to consume from.

    `*` stands for one level of a name, and `>` at the end for one or more. A `.` or a `/` separates levels, and has to
    be the same in the name: "prices.*" matches "prices.eur", but neither "prices.eur.spot" nor "prices/eur". Nothing
    can be sent to a pattern.
    """

    __slots__ = ("levels",)
    kind_flags = PATTERN_FLAG
    _SCHEME = "topic"

    levels: tuple[str, ...]
    """Levels of the pattern, each with the separator before it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        levels = tuple(_LEVEL.findall(name))
        for number, level in enumerate(levels):
            word = level[number > 0 :]
            if has_wildcards(word) and word not in ("*", ">"):
                raise InvalidDestinationError(
                    f"{self!r}: the level {word!r} has more than a wildcard: expected '*' or '>' alone"
                )
            if word == ">" and number < len(levels) - 1:
                raise InvalidDestinationError(
                    f"{self!r}: expected '>' at the end only, as it matches all further levels"
                )
        object.__setattr__(self, "levels", levels)
        meant = _translated(levels)
        if meant != name and not _is_told(name):
            text = f"{called(TopicPattern, name)}: # and + are ordinary levels, as of topics: use "
            log.tell(logging.WARNING, "wildcard_unknown", text + called(TopicPattern, meant), about=name)
        # No frame has such a hash: a topic of the same name is another destination.
        object.__setattr__(self, "frame_hash", self.frame_hash | _NO_HASH_BIT)

    def matches(self, topic: Topic | str) -> bool:
        """Return True if a topic, or the topic of a name, matches. Temporary topics do not."""
        if not isinstance(topic, str):
            return topic.kind_flags == Topic.kind_flags and self.matches(topic.name)
        found: PatternTable[None] = PatternTable()
        found.add(self, None)
        return bool(found.find(topic))


def has_wildcards(name: str) -> bool:
    """Return True if a name looks like a pattern of topics."""
    return "*" in name or ">" in name


_TOLD_MAX: Final = 1024
"""Greatest number of names that are told: a program that has more has heard of it."""
_told: set[str] = set()


def _is_told(name: str) -> bool:
    """Return True if a name was told before. It counts as told from now on."""
    if name in _told or len(_told) >= _TOLD_MAX:
        return True
    _told.add(name)
    return False


def _tell_odd_topic(name: str) -> None:
    """Warn once of a topic whose name looks like a pattern, or like a topic as `str` shows it."""
    scheme = _SCHEMES.match(name)
    if scheme is not None:
        if not _is_told(name):
            plain = called(Topic, name[scheme.end() :] or "prices")
            text = f"{called(Topic, name)} is another topic than {plain}: use that, without {scheme[0]}"
            if scheme[0].startswith("queue"):
                text = f"{called(Topic, name)} is a topic: of queues, there are only temporary ones; or use {plain}"
            log.tell(logging.WARNING, "scheme_in_topic", text, about=name)
        return
    meant = _translated(_LEVEL.findall(name))
    if (meant == name and not has_wildcards(name)) or _is_told(name):
        return
    try:
        TopicPattern(meant)
    except InvalidDestinationError:
        meant = "prices.>"
    text = (
        f"{called(Topic, name)} is one topic, of this very name: to consume from all topics that match a pattern, use "
    )
    log.tell(logging.WARNING, "wildcard_in_topic", text + called(TopicPattern, meant), about=name)


def _translated(levels: Sequence[str]) -> str:
    """Return a pattern with `>` and `*` in place of `#` and `+`, the wildcards of MQTT and AMQP."""
    words = list(levels)
    for number, level in enumerate(levels):
        word = level[number > 0 :]
        if word == "+":
            words[number] = level[:-1] + "*"
        elif word == "#" and number == len(levels) - 1:
            words[number] = level[:-1] + ">"
    return "".join(words)


def not_sendable(pattern: TopicPattern) -> InvalidDestinationError:
    """Return the error for a pattern where one destination is expected."""
    return InvalidDestinationError(f"{pattern!r} is a pattern, to consume from: expected one topic to send to")


def is_pattern_hash(frame_hash: int) -> bool:
    """Return True if a `frame_hash` is that of a pattern."""
    return bool(frame_hash & _NO_HASH_BIT)


_T = TypeVar("_T")


class _Node(Generic[_T]):
    """The items of all patterns that have the same levels so far."""

    __slots__ = ("children", "ends", "rests")

    def __init__(self) -> None:
        self.children: dict[str, _Node[_T]] = {}
        """Nodes by the next level, `*` included."""
        self.ends: list[_T] = []
        """Items of the patterns that end here."""
        self.rests: dict[str, list[_T]] = {}
        """Items of the patterns that end with `>`, by the separator before it."""

    def items(self, level: str | None) -> list[_T]:
        """Return the items of the patterns that end here, or with a level `>`."""
        return self.ends if level is None else self.rests.setdefault(level[:-1], [])

    def __bool__(self) -> bool:
        return bool(self.children or self.ends or self.rests)


class PatternTable(Generic[_T]):
    """Items by pattern. The time to find those that match depends on the patterns' levels, not on their number."""

    def __init__(self) -> None:
        self._root: _Node[_T] = _Node()

    def __bool__(self) -> bool:
        return bool(self._root)

    def add(self, pattern: TopicPattern, item: _T) -> None:
        """Add an item to a pattern."""
        levels, rest = _split(pattern)
        node = self._root
        for level in levels:
            node = node.children.setdefault(level, _Node())
        node.items(rest).append(item)

    def remove(self, pattern: TopicPattern, item: _T) -> None:
        """Remove an item from a pattern. Calling this twice does no harm."""
        levels, rest = _split(pattern)
        path = [self._root]
        for level in levels:
            if level not in path[-1].children:
                return
            path.append(path[-1].children[level])
        items = path[-1].items(rest)
        if item in items:
            items.remove(item)
        if rest is not None and not items:
            del path[-1].rests[rest[:-1]]
        for level in reversed(levels):
            if path.pop():
                break
            del path[-1].children[level]

    def find(self, name: str) -> list[_T]:
        """Return the items of all patterns that match the name of a topic."""
        found: list[_T] = []
        nodes = [self._root]
        for place in _LEVEL.finditer(name):
            level = place[0]
            separator = level[:1] if level.startswith((".", "/")) else ""
            if level == _OWN_LEVEL:
                nodes = [child for node in nodes if (child := node.children.get(level)) is not None]
                continue
            following = []
            for node in nodes:
                found += node.rests.get(separator, ())
                if level in node.children:
                    following.append(node.children[level])
                if level != separator + "*" and separator + "*" in node.children:
                    following.append(node.children[separator + "*"])
            if not following:
                return found
            nodes = following
        for node in nodes:
            found += node.ends
        return found


def _split(pattern: TopicPattern) -> tuple[tuple[str, ...], str | None]:
    """Return the levels of a pattern without `>`, and the last level with its separator if it is `>`."""
    levels = pattern.levels
    return (levels[:-1], levels[-1]) if levels[-1][-1:] == ">" else (levels, None)


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
SEEN_BYTES_MAX: Final = 256
"""Length of the longest name that is remembered, so that forged names take less than a megabyte."""
_seen: dict[tuple[int, bytes], Destination] = {}


def destination_from(flags: int, encoded_name: bytes) -> Destination:
    """Return the destination that a frame names. Raise InvalidDestinationError if its name is invalid."""
    key = flags & KIND_FLAGS, encoded_name
    known = _seen.get(key)
    if known is not None:
        return known
    made = _received(_CLASSES[key[0]], name_from(encoded_name))
    if len(encoded_name) <= SEEN_BYTES_MAX:
        if len(_seen) >= _SEEN_MAX:
            _seen.clear()
        _seen[key] = made
    return made


def name_from(encoded_name: bytes) -> str:
    """Return the name that a frame has. Raise InvalidDestinationError if it is not UTF-8."""
    try:
        return encoded_name.decode()
    except UnicodeDecodeError:
        raise InvalidDestinationError("a destination name is not UTF-8") from None


def hash_of(kind_flags: int, encoded_name: bytes) -> int:
    """Return the hash by which frames and announcements name a destination."""
    return zlib.crc32(encoded_name, zlib.crc32(bytes((kind_flags,))))


def _received(kind: type[Destination], name: str) -> Destination:
    """Return a destination that is no program's own choice: nobody is warned of its name."""
    if kind is not Topic:
        return kind(name)
    made = object.__new__(Topic)
    Destination.__init__(made, name)
    return made
