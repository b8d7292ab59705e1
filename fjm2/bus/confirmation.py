"""Watermarks in the background: whether the known subscribers have what was sent PERSISTENT.

One watermark confirms everything sent before it, so that a round serves many messages. While somebody waits, rounds
follow each other at once; otherwise there are some a second.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Protocol

from fjm2.messages.errors import JMSError

from .errors import UnconfirmedError

_PAUSE_S = 0.1
"""Between rounds that nobody waits for."""


class Confirming(Protocol):
    """What it takes of the bus."""

    def confirmed(self) -> Awaitable[frozenset[int]]: ...


class Confirmation:
    __slots__ = ("_asked", "_bus", "_done", "_failed", "_report", "_task", "_unasked", "_waiters", "accepted")

    def __init__(self, bus: Confirming, report: Callable[[Exception], None]) -> None:
        self.accepted = 0
        """So many persistent messages were handed to the bus."""
        self._bus = bus
        self._report = report
        self._done = 0
        """So many of them are confirmed, or not, for good."""
        self._waiters: list[tuple[int, asyncio.Future[JMSError | None]]] = []
        self._asked = asyncio.Event()
        self._unasked = 0
        """So many were sent by calls that return before the outcome: failures of theirs are reported."""
        self._task: asyncio.Task[None] | None = None

    @property
    def pending(self) -> int:
        """So many are neither confirmed nor given up."""
        return self.accepted - self._done

    def accept(self) -> int:
        """One more; its number."""
        self.accepted += 1
        if self._task is None:
            self._start()
        return self.accepted

    def accept_unasked(self) -> None:
        """One more, of which nobody asks what became of it."""
        self._unasked += 1
        self.accepted += 1
        if self._task is None:
            self._start()

    def wait(self, number: int) -> Awaitable[JMSError | None]:
        """The outcome for a message: None if all known subscribers have it."""
        if number <= self._done:
            return _no_error()
        future: asyncio.Future[JMSError | None] = asyncio.get_running_loop().create_future()
        self._waiters.append((number, future))
        self._asked.set()
        return future

    def settled(self) -> Awaitable[JMSError | None]:
        """The outcome for all that was sent so far."""
        return self.wait(self.accepted)

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        waiters, self._waiters = self._waiters, []
        for _, future in waiters:
            if not future.done():
                future.set_result(UnconfirmedError("the connection was closed before it was confirmed"))

    async def _run(self) -> None:
        try:
            while self._done < self.accepted:
                await self._pause()
                await self._run_round()
        finally:
            self._task = None

    async def _pause(self) -> None:
        if not self._waiters:
            self._asked.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE_S):
                    await self._asked.wait()

    async def _run_round(self) -> None:
        upto, unasked = self.accepted, self._unasked
        self._unasked = 0
        error: JMSError | None = None
        try:
            missing = await self._bus.confirmed()
            if missing:
                error = UnconfirmedError(f"{len(missing)} subscribers did not confirm persistent messages", missing)
        except Exception as failure:
            error = UnconfirmedError(f"persistent messages could not be confirmed: {failure}")
            error.__cause__ = failure
        self._done = upto
        if error is not None and unasked:
            self._report(error)
        waiters, self._waiters = self._waiters, []
        for number, future in waiters:
            if number > upto:
                self._waiters.append((number, future))
            elif not future.done():
                future.set_result(error)


async def _no_error() -> None:
    return None
