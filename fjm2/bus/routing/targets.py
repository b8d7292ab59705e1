"""Which subscriptions get the messages of a destination.

Most frames need one look-up of a hash. With subscriptions to patterns of topics, they need one look-up of a name:
patterns are matched once for each topic, and the result is remembered.
"""

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, Protocol

from fjm2.messages.destination import (
    KIND_FLAGS,
    SEEN_BYTES_MAX,
    Destination,
    PatternTable,
    Topic,
    TopicPattern,
    destination_from,
    hash_of,
    name_from,
)
from fjm2.messages.errors import InvalidDestinationError, MessageFormatError
from fjm2.messages.frame import SKIPPED_HEADER, Frame, is_sent_to, look_up
from fjm2.messages.header import CONNECTION_ID, DESTINATION_HASH, FLAGS, HEADER_BYTES, NAME_BYTES, Header
from fjm2.messages.selector import Selector

from ..losses.kinds import Gap, Loss
from ..statistics import BusStats
from .delayed_messages import DelayedMessages

if TYPE_CHECKING:
    from fjm2.messages.batches.frame_run import FrameRun

_NAMES_MAX: Final = 4096
"""Greatest number of topics of which the patterns that match are remembered: more than a bus has in use at a time.
Forged names take a few megabytes at most, because long ones are not remembered."""


class Received:
    """A message as it was received. It is decoded by the session that it is delivered to."""

    __slots__ = ("body", "gap", "head", "header", "sender_id")

    def __init__(self, head: bytes, body: bytes, header: Header, sender_id: int, gap: Gap | None) -> None:
        self.head = head
        """The frame without its body."""
        self.body = body
        self.header = header
        self.sender_id = sender_id
        """Node id of the lane that sent the message, or of our first lane if this process published it."""
        self.gap = gap
        """Reason why messages of this sender are missing before it, for this subscription; None if none are."""

    @property
    def has_gap(self) -> bool:
        return self.gap is not None

    def behind(self, gap: Gap) -> "Received":
        """Return this message with a gap before it."""
        return Received(self.head, self.body, self.header, self.sender_id, max(gap, self.gap or gap))


class ReceivedRun:
    """Messages as they were received together."""

    __slots__ = ("frames", "header", "sender_id")

    def __init__(self, frames: "FrameRun", sender_id: int) -> None:
        self.frames = frames
        self.header = frames.header
        """Header of the first message. All have its priority, and none expires."""
        self.sender_id = sender_id

    def __len__(self) -> int:
        return len(self.frames)

    def split(self, count: int) -> tuple["ReceivedRun", "ReceivedRun"]:
        """Return the first `count` messages, and the others. There must be others."""
        first, rest = self.frames.split(count)
        return ReceivedRun(first, self.sender_id), ReceivedRun(rest, self.sender_id)

    def messages(self) -> Iterator[Received]:
        """Return the messages one by one."""
        for buffer, start, body, end, header in self.frames:
            yield Received(buffer[start:body], buffer[body:end], header, self.sender_id, None)


class Subscription(Protocol):
    """A receiver of messages. Must be hashable by identity."""

    @property
    def destination(self) -> Destination: ...
    @property
    def selector(self) -> Selector | None: ...
    @property
    def left_out(self) -> int | None:
        """Id of a connection whose messages the subscription does not want, or None."""

    @property
    def is_full(self) -> bool:
        """True while the subscription has no room for more messages. It calls `Router.resume` once it has room
        again."""

    @property
    def held(self) -> int:
        """Number of messages that wait in the subscription, plus those taken from it and not acknowledged."""

    @property
    def held_bytes(self) -> int: ...

    def deliver(self, received: Received, /) -> None:
        """Accept a message from the router. Must not raise or wait."""

    def miss(self, header: Header, loss: Loss, /) -> None:
        """Note that it does not get a message that it wants. Must not raise or wait."""


class RunSubscription(Subscription, Protocol):
    """A receiver of messages that also takes several at once."""

    @property
    def takes_runs(self) -> bool:
        """True if it takes several messages at once now."""

    def deliver_run(self, run: ReceivedRun, /) -> None:
        """Accept messages from the router. Must not raise or wait."""


class Target:
    """A destination and its subscriptions."""

    __slots__ = ("destination", "subscriptions")

    def __init__(self, destination: Destination, subscriptions: tuple[Subscription, ...]) -> None:
        self.destination = destination
        self.subscriptions = subscriptions


Targets = tuple[Target, ...]
"""Destinations with the same hash."""


class TargetTable:
    """All subscriptions of a process, by destination."""

    def __init__(self, stats: BusStats) -> None:
        self.by_hash: Final[dict[int, Targets]] = {}
        """Subscriptions by the hash of their destination, those to patterns included."""
        self.has_patterns = False
        """True if there are subscriptions to patterns. Frames then need `of_frame` instead of `by_hash`."""
        self.batched: Final[dict[Subscription, RunSubscription]] = {}
        """Subscriptions that may take several messages at once: those of consumers of batches."""
        self._stats = stats
        self._patterns: PatternTable[Subscription] = PatternTable()
        self._of_known_name = lru_cache(_NAMES_MAX)(self._of_name)
        self._matched: dict[int, Destination] = {}
        """Topics that matched a pattern, by hash."""
        self.delayed: Final[DelayedMessages[Subscription]] = DelayedMessages()
        """Messages that subscriptions get later."""

    def add(self, subscription: Subscription) -> None:
        """Add a subscription."""
        destination = subscription.destination
        targets = self.by_hash.get(destination.frame_hash, ())
        same = next((target for target in targets if target.destination == destination), None)
        others = tuple(target for target in targets if target is not same)
        subscriptions = (*(same.subscriptions if same else ()), subscription)
        self.by_hash[destination.frame_hash] = (*others, Target(destination, subscriptions))
        if isinstance(destination, TopicPattern):
            self._patterns.add(destination, subscription)
        self._note_change()

    def deliver_in_runs(self, subscription: RunSubscription) -> None:
        """Deliver several messages at once to a subscription that takes them, where it is the only one."""
        self.batched[subscription] = subscription

    def run_subscription(self, buffer: bytes, start: int, header: Header) -> RunSubscription | None:
        """Return the subscription that takes the run which begins with a frame, if it wants all of it, and no other
        wants any. There must be no patterns."""
        targets = self.by_hash.get(header[DESTINATION_HASH], ())
        if len(targets) != 1 or len(targets[0].subscriptions) != 1:
            return None
        one = self.batched.get(targets[0].subscriptions[0])
        if one is None or not one.takes_runs or one.selector is not None or one.left_out == header[CONNECTION_ID]:
            return None
        return one if is_sent_to(buffer, start, header, one.destination) else None

    def remove(self, subscription: Subscription) -> None:
        """Remove a subscription. Calling this twice does no harm."""
        destination = subscription.destination
        self.delayed.forget(subscription)
        self.batched.pop(subscription, None)
        kept = []
        for target in self.by_hash.get(destination.frame_hash, ()):
            subscriptions = target.subscriptions
            if subscription in subscriptions:
                index = subscriptions.index(subscription)
                subscriptions = subscriptions[:index] + subscriptions[index + 1 :]
            if subscriptions:
                kept.append(Target(target.destination, subscriptions))
        if kept:
            self.by_hash[destination.frame_hash] = tuple(kept)
        else:
            self.by_hash.pop(destination.frame_hash, None)
        if isinstance(destination, TopicPattern):
            self._patterns.remove(destination, subscription)
        self._note_change()

    def _note_change(self) -> None:
        self._of_known_name.cache_clear()
        self._matched.clear()
        self.has_patterns = bool(self._patterns)

    @property
    def subscriptions(self) -> list[Subscription]:
        """All subscriptions."""
        return [one for targets in list(self.by_hash.values()) for target in targets for one in target.subscriptions]

    @property
    def destinations(self) -> frozenset[Destination]:
        """Destinations subscribed to."""
        return frozenset(target.destination for targets in self.by_hash.values() for target in targets)

    def destinations_of(self, frame_hash: int) -> tuple[Destination, ...]:
        """Return the destinations with a hash that are subscribed to, as far as their names have been heard."""
        named = tuple(target.destination for target in self.by_hash.get(frame_hash, ()))
        matched = self._matched.get(frame_hash)
        return named if matched is None or matched in named else (*named, matched)

    def of_frame(self, frame: Frame) -> Targets | None:
        """Return the destinations that a frame may go to, and their subscriptions. Patterns count as those topics that
        match."""
        buffer, start, _, _, header = frame
        if not self.has_patterns or header[FLAGS] & KIND_FLAGS or header is SKIPPED_HEADER:
            return self.by_hash.get(header[DESTINATION_HASH])
        name_at = start + HEADER_BYTES
        return self.of_topic(buffer[name_at : name_at + header[NAME_BYTES]])

    def of_destination(self, destination: Destination) -> Targets | None:
        """Return a destination and its subscriptions, those to patterns included. Return None if there are none."""
        if self.has_patterns and not destination.kind_flags:
            return self.of_topic(destination.encoded_name)
        return self.by_hash.get(destination.frame_hash)

    def of_topic(self, name: bytes) -> Targets | None:
        """Return a topic and its subscriptions, those to patterns included. Return None if there are none."""
        try:
            return self._of_known_name(name) if len(name) <= SEEN_BYTES_MAX else self._of_name(name)
        except InvalidDestinationError:
            self._stats.frames_malformed += 1
            return None

    def _of_name(self, name: bytes) -> Targets | None:
        # A destination is made only for names that match: forged ones may be long.
        targets = self.by_hash.get(hash_of(Topic.kind_flags, name), ())
        named = tuple(one for one in targets if (one.destination.encoded_name, one.destination.kind_flags) == (name, 0))
        found = self._patterns.find(name_from(name))
        if not found:
            return named or None
        topic = named[0].destination if named else destination_from(Topic.kind_flags, name)
        if len(name) <= SEEN_BYTES_MAX and len(self._matched) < _NAMES_MAX:
            self._matched[topic.frame_hash] = topic
        return (Target(topic, (*(named[0].subscriptions if named else ()), *found)),)

    def wanting(self, frame: Frame, targets: Targets) -> list[Subscription]:
        """Return the subscriptions that want a message."""
        buffer, start, _, _, header = frame
        return [
            one
            for target in targets
            if is_sent_to(buffer, start, header, target.destination)
            for one in target.subscriptions
            if one.left_out != header[CONNECTION_ID]
            and (one.selector is None or self.is_selected(one.selector, frame, one))
        ]

    def is_selected(self, selector: Selector, frame: Frame, one: Subscription) -> bool:
        """Return True if the selector of a subscription matches a message."""
        buffer, start, _, _, header = frame
        try:
            return selector.evaluate(partial(look_up, buffer, start, header))
        except MessageFormatError:
            self._stats.frames_malformed += 1
            one.miss(header, Loss.UNSELECTABLE)
            return False
