"""How long a close waits for what was accepted: as long as the bus gets on with it."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from typing import Protocol

_LOOK_S = 0.05
"""So often is it looked whether anything went on."""


class Progress(Protocol):
    """What it takes of the bus."""

    @property
    def progress(self) -> tuple[int, int]:
        """Steps towards the end: what was sent and confirmed; and repairs, which anybody may ask for."""

    @property
    def repairs_max(self) -> int:
        """So many repairs may be needed for all that is still held."""


class CloseDeadline:
    """Lasts until nothing has gone on for so long, or so much time is over in all."""

    def __init__(self, bus: Progress, still_s: float, timeout_s: float | None = None) -> None:
        self._bus = bus
        self._loop = asyncio.get_running_loop()
        self._still_s = still_s
        self._timeout_s = math.inf if timeout_s is None else timeout_s
        self._began = self._moved_at = self._looked_at = self._loop.time()
        self._steps, self._repairs = bus.progress
        self._repairs_most = self._repairs + bus.repairs_max

    def end(self) -> None:
        """Who waits is in no mood to wait any more."""
        self._timeout_s = 0.0

    def until(self, share: float = 1.0) -> float:
        """When it is over, as things are now. With a part of it, something is left for those who come later."""
        now = self._loop.time()
        self._moved_at += max(now - self._looked_at - 2 * _LOOK_S, 0.0)  # nobody looked: it is not known what went on
        self._looked_at = now
        steps, repairs = self._bus.progress
        repairs = min(repairs, self._repairs_most)
        if (steps, repairs) != (self._steps, self._repairs):
            self._steps, self._repairs, self._moved_at = steps, repairs, now
        left_s = (1.0 - share) * min(self._still_s, self._timeout_s)
        return min(self._moved_at + share * self._still_s, self._began + self._timeout_s - left_s)

    @contextlib.asynccontextmanager
    async def wait(self, share: float = 1.0) -> AsyncIterator[None]:
        """TimeoutError when it is over."""
        async with asyncio.timeout_at(self.until(share)) as timeout:
            looking = self._loop.create_task(self._look(timeout, share))
            try:
                yield
            finally:
                looking.cancel()

    async def _look(self, limit: asyncio.Timeout, share: float) -> None:
        while not limit.expired():
            limit.reschedule(self.until(share))
            await asyncio.sleep(_LOOK_S)


def limit_of(kind: type[BaseException] | None, still_s: float) -> float | None:
    """How long a close may take in all that follows an exception: Ctrl-C and cancellations have no time."""
    return None if kind is None or issubclass(kind, Exception) else still_s
