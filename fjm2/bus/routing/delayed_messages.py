"""Delayed messages that wait in this process for their delivery times, for the subscriptions that wanted them."""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count
from time import time
from typing import Any, Final, Generic, NamedTuple, TypeVar

S = TypeVar("S")

BYTES_MAX: Final = 64 << 20
"""Most bytes of all delayed messages of a process. What does not fit counts as dropped."""
_MESSAGE_BYTES: Final = 500
"""Estimated memory of a message beside its frame."""
_CLOCK_S: Final = 60.0
"""Longest time without a look at the clock, which may be set."""


class _Waiting(NamedTuple):
    """A message that waits. Those of one time are in the order in which they came."""

    due_ms: int
    number: int
    size: int
    subscriptions: list[Any]
    deliver: Callable[[list[Any]], None]


class DelayedMessages(Generic[S]):
    """Holds messages, and delivers them when they are due."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.bytes = 0
        """Bytes of all messages that wait."""
        self._bytes_max = bytes_max
        self._waiting: list[_Waiting] = []
        """A heap."""
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def hold(
        self,
        due_ms: int,
        size: int,
        subscriptions: list[S],
        deliver: Callable[[list[S]], None],
    ) -> bool:
        """Call `deliver` at a time, in milliseconds since the epoch, with those of a message's subscriptions that are
        still there. Return False if there is no room for a message of that size."""
        waiting = _Waiting(due_ms, next(self._numbers), size + _MESSAGE_BYTES, subscriptions, deliver)
        if self.bytes and self.bytes + waiting.size > self._bytes_max:
            return False
        self.bytes += waiting.size
        heapq.heappush(self._waiting, waiting)
        if self._waiting[0] is waiting:
            self._arm()
        return True

    def forget(self, subscription: S) -> None:
        """Deliver nothing more to a subscription."""
        for waiting in self._waiting:
            if subscription in waiting.subscriptions:
                waiting.subscriptions.remove(subscription)
        if not all(waiting.subscriptions for waiting in self._waiting):
            self._waiting = [waiting for waiting in self._waiting if waiting.subscriptions]
            heapq.heapify(self._waiting)
            self.bytes = sum(waiting.size for waiting in self._waiting)
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            wait_s = self._waiting[0].due_ms / 1000 - time()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(min(max(wait_s, 0.0), _CLOCK_S), self._deliver_due)

    def _deliver_due(self) -> None:
        self._timer = None
        now_ms = time() * 1000
        while self._waiting and self._waiting[0].due_ms <= now_ms:
            waiting = heapq.heappop(self._waiting)
            self.bytes -= waiting.size
            waiting.deliver(waiting.subscriptions)
        self._arm()
