"""One event loop in a background thread, which serves all blocking connections of a process."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Final, ParamSpec, TypeVar

from fjm2.messages.errors import IllegalStateError

_T = TypeVar("_T")
_P = ParamSpec("_P")


class LoopThread:
    """The event loop and its thread. They start at the first use, and end with the process. A forked child starts its
    own."""

    def __init__(self) -> None:
        self._reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="fjm2", daemon=True)
                self._thread.start()
            return self._loop

    def call(self, awaitable: Awaitable[_T]) -> _T:
        """Run an awaitable in the loop, and wait for its result. The awaitable is cancelled if the caller is
        interrupted."""
        future = self.submit(awaitable)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def submit(self, awaitable: Awaitable[_T]) -> Future[_T]:
        loop = self.loop
        if threading.current_thread() is self._thread:
            if isinstance(awaitable, Coroutine):
                awaitable.close()
            raise IllegalStateError(
                "a blocking call in the thread of the event loop would never return: use another thread"
            )
        return asyncio.run_coroutine_threadsafe(_wait_for(awaitable), loop)


async def _wait_for(awaitable: Awaitable[_T]) -> _T:
    return await awaitable


async def _call_in_loop(function: Callable[_P, _T], *arguments: _P.args, **options: _P.kwargs) -> _T:
    return function(*arguments, **options)


LOOP: Final = LoopThread()
call = LOOP.call


def run(function: Callable[_P, _T], *arguments: _P.args, **options: _P.kwargs) -> _T:
    """Call a function in the loop's thread, and wait for its result."""
    return call(_call_in_loop(function, *arguments, **options))
