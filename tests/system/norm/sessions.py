"""Helpers for tests of sessions on the loopback: open sessions, collect their events, and wait with a deadline."""

import asyncio
import contextlib
import functools
import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from random import Random
from typing import Any, TypeVar

import pytest
import uvloop

from fjm2.norm import SenderConfig, Session
from fjm2.norm.events import (
    Event,
    StreamReceived,
)

GROUP = "239.192.57.95"
DEADLINE_S = 10.0
"""Longest wait for something that must happen. Mostly it takes milliseconds."""
QUICK = SenderConfig(rate_bps=400e6, grtt_s=0.002, robust_factor=8)
"""Settings of a sender with a small round-trip time, as on the loopback, so that flushes are quick."""

_Event = TypeVar("_Event", bound=Event)
_Result = TypeVar("_Result")
Test = Callable[..., Coroutine[Any, Any, None]]


def on_each_loop(test: Test) -> Callable[..., None]:
    """Run a coroutine function as a test, on asyncio's loop and on uvloop. Errors in callbacks fail the test."""

    @pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
    @functools.wraps(test)
    def run(loop: str, **fixtures: Any) -> None:
        troubles: list[dict[str, Any]] = []
        factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.get_loop().set_exception_handler(lambda _, trouble: troubles.append(trouble))
            runner.run(test(**fixtures))
        assert not troubles

    signature = inspect.signature(test)
    added = inspect.Parameter("loop", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = signature.replace(parameters=[added, *signature.parameters.values()])  # type: ignore[attr-defined]
    return run


def new_session(port: int, **settings: Any) -> Session:
    return Session(**{"group": GROUP, "port": port, "interface": "127.0.0.1", "ttl": 0, "sender": QUICK, **settings})


async def soon(awaitable: Awaitable[_Result]) -> _Result:
    """Wait for the result of an awaitable, and return it. Fail after `DEADLINE_S`."""
    async with asyncio.timeout(DEADLINE_S):
        return await awaitable


class Listener:
    """A task that receives a session's events as they come, and keeps them."""

    def __init__(self, session: Session) -> None:
        self.events: list[Event] = []
        self._session = session
        self._came = asyncio.Event()
        self._task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for event in self._session:
            self.events.append(event)
            self._came.set()

    def all(self, kind: type[_Event]) -> list[_Event]:
        return [event for event in self.events if isinstance(event, kind)]

    async def until(self, is_true: Callable[[], object]) -> None:
        """Wait until a condition on the events is true. Fail after `DEADLINE_S`."""
        async with asyncio.timeout(DEADLINE_S):
            while not is_true():
                self._came.clear()
                await self._came.wait()

    async def some(self, kind: type[_Event], count: int = 1) -> list[_Event]:
        """Wait for at least `count` events of a kind, and return all events of this kind."""
        try:
            await self.until(lambda: len(self.all(kind)) >= count)
        except TimeoutError:
            told = "\n".join(str(event)[:200] for event in self.events[-20:])
            pytest.fail(f"{len(self.all(kind))} of {count} {kind.__name__}; the last events:\n{told}")
        return self.all(kind)

    async def one(self, kind: type[_Event]) -> _Event:
        return (await self.some(kind))[0]

    def stream_bytes(self) -> bytes:
        return b"".join(event.data for event in self.all(StreamReceived))

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@contextlib.asynccontextmanager
async def listening(session: Session) -> AsyncIterator[Listener]:
    """Open a session, and yield a listener that receives the session's events."""
    async with session:
        listener = Listener(session)
        try:
            yield listener
        finally:
            await listener.end()


async def until(is_true: Callable[[], object]) -> None:
    """Wait until a condition is true whose change no event reports."""
    async with asyncio.timeout(DEADLINE_S):
        while not is_true():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.002)


def content_of(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def noise(size: int, seed: int = 1) -> bytes:
    return Random(seed).randbytes(size)
