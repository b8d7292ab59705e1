"""Events that a session received and its application has not taken yet."""

import asyncio
from collections import deque
from typing import Protocol

from fjm2.norm.core.events import AckReceived, CommandReceived, Event, ObjectCompleted, StreamReceived

EVENT_BYTES_MAX = 64 << 20
"""Bytes of content of waiting events at which reception pauses. They take memory of the process."""
EVENTS_MAX = 65_536
"""Number of waiting events at which reception pauses. Small events cost memory, too."""
_OWN_EVENTS_MAX = 1_000
"""Maximum number of events that wait in a session that only sends. Its application need not take them, so the oldest
are dropped."""


class Pausable(Protocol):
    """A source of events that can be told to stop receiving."""

    is_paused: bool
    """True while nothing is received."""


class EventQueue:
    """Queue of events. It pauses the source of events when the queue is full, and resumes it when half is free."""

    __slots__ = ("_is_sender_only", "_source", "_waiters", "waiting", "waiting_bytes")

    def __init__(self, is_sender_only: bool) -> None:
        """Begin empty. If `is_sender_only`, keep only the latest events, because the application need not take them."""
        self._is_sender_only = is_sender_only
        self.waiting: deque[Event] = deque()
        """Waiting events, oldest first. Other code may read this, but must not change it."""
        self.waiting_bytes = 0
        """Bytes of content of the waiting events."""
        self._waiters: list[asyncio.Future[None]] = []
        """Futures of the coroutines that are in `wait`."""
        self._source: Pausable | None = None

    def attach(self, source: Pausable) -> None:
        """Pause and resume `source` from now on."""
        self._source = source

    def put(self, event: Event) -> None:
        """Append an event."""
        if self._is_sender_only and len(self.waiting) >= _OWN_EVENTS_MAX:
            self.waiting_bytes -= _content_bytes(self.waiting.popleft())
        self.waiting.append(event)
        self.waiting_bytes += len(event.data) if type(event) is StreamReceived else _content_bytes(event)
        is_full = self.waiting_bytes >= EVENT_BYTES_MAX or len(self.waiting) >= EVENTS_MAX
        if is_full and self._source is not None:
            self._source.is_paused = True
        if self._waiters:
            self.wake()

    def take(self) -> Event | None:
        """Remove and return the next event, or return None if no event waits."""
        if not self.waiting:
            return None
        event = self.waiting.popleft()
        self.waiting_bytes -= len(event.data) if type(event) is StreamReceived else _content_bytes(event)
        source = self._source
        if (
            source is not None
            and source.is_paused
            and self.waiting_bytes * 2 < EVENT_BYTES_MAX
            and len(self.waiting) * 2 < EVENTS_MAX
        ):
            source.is_paused = False
        return event

    async def wait(self) -> None:
        """Wait until the next `put` or `wake`."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            raise

    def wake(self) -> None:
        """Wake the coroutines that are in `wait`, although no event has arrived."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _content_bytes(event: Event) -> int:
    """Return the size of the content of an event that is no `StreamReceived`."""
    if isinstance(event, CommandReceived | AckReceived):
        return len(event.content)
    if isinstance(event, ObjectCompleted) and event.data is not None:
        return event.size
    return 0
