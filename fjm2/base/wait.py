"""The wait of one `receive` for a message."""

import asyncio
from collections.abc import Generator
from typing import Any


class Wait:
    """Awaitable that one coroutine waits for again and again, until a time is over.

    It costs less than an Event and a `timeout`, and every lone message that is received pays for it.
    """

    __slots__ = ("_future", "_loop", "_timer", "is_over")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.is_over = False
        """True once the time of `end_after` is over."""

    def __await__(self) -> Generator[Any, None, None]:
        """Wait for the next `wake`."""
        self._future = self._loop.create_future()
        return self._future.__await__()

    def wake(self) -> None:
        """Wake the coroutine that waits now."""
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def end_after(self, seconds: float) -> None:
        """Let the wait be over after a time."""
        self._timer = self._loop.call_later(seconds, self._end)

    def close(self) -> None:
        """End the wait before its time."""
        if self._timer is not None:
            self._timer.cancel()

    def _end(self) -> None:
        self.is_over = True
        self.wake()
