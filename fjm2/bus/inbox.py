"""Messages received for a consumer and not yet taken by its session, bounded, and ordered by priority."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from time import time
from typing import Any, Protocol, TypeAlias

from fjm2.base.errors import ConfigError
from fjm2.messages.destination import Destination
from fjm2.messages.header import EXPIRATION, FRAME_BYTES, PRIORITY, PRIORITY_MAX, Header
from fjm2.messages.selector import Selector

from .statistics import ConsumerStatistics

MessageListener: TypeAlias = Callable[[Any], Any]
"""A function that is called with each message. In `fjm2.jms` it may be a coroutine function."""


class Overflow(Enum):
    """Behaviour of a full consumer."""

    BLOCK = "block"
    """Make senders wait. Meanwhile this process receives nothing from the bus at all."""
    DROP_OLDEST = "drop_oldest"
    """Drop the oldest message of the lowest priority."""
    DROP_NEWEST = "drop_newest"
    """Drop the newest message of the lowest priority."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """Limits of the messages that a consumer holds, including those taken but not acknowledged."""

    overflow: Overflow = Overflow.BLOCK
    messages_max: int = 100_000
    bytes_max: int = 64 << 20

    def __post_init__(self) -> None:
        if self.messages_max < 1:
            raise ConfigError(f"messages_max={self.messages_max}: expected at least 1")
        if self.bytes_max < 1:
            raise ConfigError(f"bytes_max={self.bytes_max}: expected at least 1")


def overflow_of(value: "Overflow | str") -> Overflow:
    """Return the Overflow that has a name, such as "block". Raise ConfigError if there is none."""
    try:
        return Overflow(value)
    except ValueError:
        known = ", ".join(repr(one.value) for one in Overflow)
        raise ConfigError(f"overflow={value!r}: expected one of {known}") from None


class Received(Protocol):
    """A message as the router delivers it."""

    @property
    def head(self) -> bytes: ...
    @property
    def body(self) -> bytes: ...
    @property
    def header(self) -> Header: ...
    @property
    def has_gap(self) -> bool: ...


class Delivery:
    """One delivery of a message to the application, the first or a later one."""

    __slots__ = ("count", "has_gap", "inbox", "received", "serial")

    def __init__(self, received: Received, inbox: "Inbox", count: int, serial: int, has_gap: bool) -> None:
        self.received = received
        self.inbox = inbox
        self.count = count
        """Number of deliveries of the message, this one included."""
        self.serial = serial
        """Position of the message in the order of the session's first deliveries."""
        self.has_gap = has_gap


def is_expired(received: Received, now_ms: float) -> bool:
    return 0 < received.header[EXPIRATION] <= now_ms


class Inbox:
    """The subscription of one consumer, and the messages that it holds. The router delivers, the session takes."""

    __slots__ = (
        "_bytes_max",
        "_dropped",
        "_messages_max",
        "_queues",
        "_top",
        "again",
        "destination",
        "has_gap",
        "held",
        "held_bytes",
        "is_closed",
        "is_full",
        "left_out",
        "listener",
        "messages_dropped",
        "messages_received",
        "on_full",
        "on_room",
        "selector",
        "settings",
        "times_full",
        "wake",
    )

    is_shared = False
    """True if several consumers share the messages. Each of them then takes one message at a time."""

    def __init__(
        self,
        destination: Destination,
        selector: Selector | None,
        left_out: int | None,
        settings: ConsumerSettings,
        on_room: Callable[[], None],
        on_full: Callable[["Inbox", int], None],
    ) -> None:
        self.destination = destination
        self.selector = selector
        self.left_out = left_out
        """Id of a connection whose messages the consumer does not want, or None."""
        self.settings = settings
        self._messages_max = settings.messages_max
        self._bytes_max = settings.bytes_max
        self.listener: MessageListener | None = None
        self.again: deque[Delivery] = deque()
        """Messages to deliver again, before all others."""
        self.is_full = False
        """True while the router takes nothing from the bus because of this inbox. It stays False in an inbox that drops
        messages."""
        self.times_full = 0
        self.is_closed = False
        self.wake: Callable[[], None] | None = None
        """Function that is called after each message delivered to the inbox, or None. It is set only while a caller
        waits, because calls take time."""
        self.held = 0
        """Number of messages in the inbox, plus those taken and not acknowledged."""
        self.held_bytes = 0
        self.messages_received = 0
        self.messages_dropped = 0
        self.on_room = on_room
        self.on_full = on_full
        """Function that is called with the inbox and 0 when the inbox becomes full, and with the inbox and 1 when it
        drops the first message since `take_dropped`."""
        self._queues: tuple[deque[Received], ...] = tuple(deque() for _ in range(PRIORITY_MAX + 1))
        self._top = 0
        """Priority above which all queues are empty."""
        self._dropped = 0
        self.has_gap = False
        """True if messages were dropped before the next message to deliver."""

    def deliver(self, received: Received) -> None:
        """Add a message that the router delivers."""
        header = received.header
        self.messages_received += 1
        self.held = held = self.held + 1
        self.held_bytes = held_bytes = self.held_bytes + header[FRAME_BYTES]
        priority = header[PRIORITY]
        self._queues[priority].append(received)
        if priority > self._top:
            self._top = priority
        if held > self._messages_max or held_bytes > self._bytes_max:
            self._overflow()
        if self.wake is not None:
            self.wake()

    def _overflow(self) -> None:
        overflow = self.settings.overflow
        if overflow is Overflow.BLOCK:
            # The rest of a run that was already taken from the bus may exceed the bounds.
            if not self.is_full:
                self.is_full = True
                self.times_full += 1
                self.on_full(self, 0)
            return
        while self.held > self._messages_max or self.held_bytes > self._bytes_max:
            dropped = self._drop(overflow)
            if dropped is None:
                return
            self.release(dropped)
            self.has_gap = True
            self.messages_dropped += 1
            self._dropped += 1
            if self._dropped == 1:
                self.on_full(self, 1)

    def _drop(self, overflow: Overflow) -> Received | None:
        """Remove and return the oldest or newest message of the lowest priority. Return None if there is no message."""
        for queue in self._queues:
            if queue:
                return queue.popleft() if overflow is Overflow.DROP_OLDEST else queue.pop()
        return None

    def pop(self) -> Received | None:
        """Remove and return the next new message of the highest priority, or None. It counts as held until
        `release`."""
        while True:
            queue = self._queues[self._top]
            if queue:
                return queue.popleft()
            if not self._top:
                return None
            self._top -= 1

    def put_back(self, received: Received) -> None:
        """Put back a message that `pop` returned."""
        priority = received.header[PRIORITY]
        self._queues[priority].appendleft(received)
        self._top = max(self._top, priority)

    def release(self, received: Received) -> None:
        """Stop counting a message as held. A full inbox has room again at half of its limits."""
        self.held -= 1
        self.held_bytes -= received.header[FRAME_BYTES]
        if self.is_full and self.held * 2 <= self._messages_max and self.held_bytes * 2 <= self._bytes_max:
            self.is_full = False
            self.on_room()

    def take_gap(self) -> bool:
        """Return True if messages were dropped since the last call."""
        has_gap, self.has_gap = self.has_gap, False
        return has_gap

    def take_dropped(self) -> int:
        """Return the number of messages dropped since the last call."""
        dropped, self._dropped = self._dropped, 0
        return dropped

    def statistics(self) -> ConsumerStatistics:
        return ConsumerStatistics(
            messages_received=self.messages_received,
            messages_waiting=len(self.again) + sum(map(len, self._queues)),
            messages_held=self.held,
            held_bytes=self.held_bytes,
            messages_dropped=self.messages_dropped,
            times_full=self.times_full,
            is_full=self.is_full,
        )

    def has_waiting(self) -> bool:
        return bool(self.again) or any(self._queues)

    def waiting(self) -> Iterator[deque[Received]]:
        """Return the queues of new messages, highest priority first."""
        return reversed(self._queues)

    def pop_again(self) -> Delivery | None:
        """Remove and return the next message to deliver again, or None. Expired messages are dropped."""
        while self.again:
            delivery = self.again.popleft()
            if not is_expired(delivery.received, time() * 1000):
                return delivery
            self.release(delivery.received)
        return None
