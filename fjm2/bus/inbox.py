"""What a consumer has received and its session has not yet taken: bounded, and ordered by priority."""

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
"""Called with each message; in `fjm2.jms` it may be a coroutine function."""


class Overflow(Enum):
    """What a full consumer does."""

    BLOCK = "block"
    """Hold back the senders, and with them all that this process receives from the bus."""
    DROP_OLDEST = "drop_oldest"
    """Drop the oldest message of the lowest priority, to make room."""
    DROP_NEWEST = "drop_newest"
    """Drop the newest message of the lowest priority."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """What a consumer may hold, messages that are not yet acknowledged included."""

    overflow: Overflow = Overflow.BLOCK
    messages_max: int = 100_000
    bytes_max: int = 64 << 20

    def __post_init__(self) -> None:
        if self.messages_max < 1:
            raise ConfigError(f"messages_max={self.messages_max}: expected at least 1")
        if self.bytes_max < 1:
            raise ConfigError(f"bytes_max={self.bytes_max}: expected at least 1")


def overflow_of(value: "Overflow | str") -> Overflow:
    try:
        return Overflow(value)
    except ValueError:
        known = ", ".join(repr(one.value) for one in Overflow)
        raise ConfigError(f"overflow={value!r}: expected one of {known}") from None


class Received(Protocol):
    """What the router hands out."""

    @property
    def head(self) -> bytes: ...
    @property
    def body(self) -> bytes: ...
    @property
    def header(self) -> Header: ...
    @property
    def has_gap(self) -> bool: ...


class Delivery:
    """A message that was handed to the client, or is to be."""

    __slots__ = ("count", "has_gap", "inbox", "received", "serial")

    def __init__(self, received: Received, inbox: "Inbox", count: int, serial: int, has_gap: bool) -> None:
        self.received = received
        self.inbox = inbox
        self.count = count
        """How often it was delivered, the coming time included."""
        self.serial = serial
        """Its place in the order in which the session delivered its messages first."""
        self.has_gap = has_gap


def is_expired(received: Received, now_ms: float) -> bool:
    return 0 < received.header[EXPIRATION] <= now_ms


class Inbox:
    """The subscription of one consumer, with what it holds. The router calls `deliver`, the session takes."""

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
    """Whether others may take what waits: then none takes more than it works on."""

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
        """A connection the messages of which are not wanted."""
        self.settings = settings
        self._messages_max = settings.messages_max
        self._bytes_max = settings.bytes_max
        self.listener: MessageListener | None = None
        self.again: deque[Delivery] = deque()
        """What is to be delivered once more, before anything else."""
        self.is_full = False
        """The router takes no more from the bus; stays unset where overflow means to drop."""
        self.times_full = 0
        self.is_closed = False
        self.wake: Callable[[], None] | None = None
        """Set by those who wait for a message."""
        self.held = 0
        """Messages in here, and those that were taken and not acknowledged."""
        self.held_bytes = 0
        self.messages_received = 0
        self.messages_dropped = 0
        self.on_room = on_room
        self.on_full = on_full
        """Called with the number of messages that were dropped, 0 if none, when it happens first after a message was
        taken."""
        self._queues: tuple[deque[Received], ...] = tuple(deque() for _ in range(PRIORITY_MAX + 1))
        self._top = 0
        """No queue above this priority has messages."""
        self._dropped = 0
        self.has_gap = False
        """Messages were dropped before the next one."""

    # From the router.

    def deliver(self, received: Received) -> None:
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
            # A run that was already taken from the bus may take it somewhat above its bounds.
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
        """The least important first."""
        for queue in self._queues:
            if queue:
                return queue.popleft() if overflow is Overflow.DROP_OLDEST else queue.pop()
        return None

    # For the session.

    def pop(self) -> Received | None:
        """The next that was never delivered, of the highest priority. It stays among those held."""
        while True:
            queue = self._queues[self._top]
            if queue:
                return queue.popleft()
            if not self._top:
                return None
            self._top -= 1

    def put_back(self, received: Received) -> None:
        """As if it had not been popped."""
        priority = received.header[PRIORITY]
        self._queues[priority].appendleft(received)
        self._top = max(self._top, priority)

    def release(self, received: Received) -> None:
        """It needs no longer be held."""
        self.held -= 1
        self.held_bytes -= received.header[FRAME_BYTES]
        if self.is_full and self.held * 2 <= self._messages_max and self.held_bytes * 2 <= self._bytes_max:
            self.is_full = False
            self.on_room()

    def take_gap(self) -> bool:
        """Whether messages were dropped here since the last time."""
        has_gap, self.has_gap = self.has_gap, False
        return has_gap

    def take_dropped(self) -> int:
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
        """What was never delivered, by falling priority."""
        return reversed(self._queues)

    def pop_again(self) -> Delivery | None:
        """The first to be delivered once more. What has expired vanishes."""
        while self.again:
            delivery = self.again.popleft()
            if not is_expired(delivery.received, time() * 1000):
                return delivery
            self.release(delivery.received)
        return None
