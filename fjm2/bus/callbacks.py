"""Callbacks of the application, called one after the other in a task of their own."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from inspect import isawaitable
from typing import Any

from fjm2.base.done import DONE
from fjm2.base.functions import function_name
from fjm2.base.logs import Log
from fjm2.base.quantities import repr_of

log = Log("fjm2.jms")

calling_thread_of: ContextVar[object] = ContextVar("calling_thread_of", default=None)
"""Owner of the callbacks that the current thread runs, or None. Code that runs callbacks in threads sets it."""


async def invoke(function: Callable[..., Any], *arguments: object) -> None:
    """Call a function. If it is a coroutine function, await its result."""
    result = function(*arguments)
    if isawaitable(result):
        await result


def raised_by_callback(error: BaseException) -> BaseException:
    """Return the error that a callback raised, or raise it again if the current task is being cancelled.

    A callback may also raise CancelledError because something it waited for was cancelled. That is an ordinary error.
    """
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        raise error
    return error


class Callbacks:
    """A queue of calls. If a call raises an exception, that is logged, and the next call is made all the same."""

    def __init__(self, owner: object) -> None:
        self._owner = owner
        self._calls: deque[tuple[Callable[..., Any], tuple[object, ...]]] = deque()
        self._is_calling = False
        self._task: asyncio.Task[None] | None = None

    def post(self, function: Callable[..., Any], *arguments: object) -> None:
        """Queue a call of `function`. It is made after all calls posted before."""
        self._calls.append((function, arguments))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def pending(self) -> int:
        """Number of calls that have not returned."""
        return len(self._calls) + self._is_calling

    def is_current(self) -> bool:
        """Return True if called from within a callback of this queue."""
        if calling_thread_of.get() is self._owner:
            return True
        return self._task is not None and asyncio.current_task() is self._task

    def drained(self) -> Awaitable[object]:
        """Return an awaitable that waits until all calls posted so far have returned. In a callback of this queue it
        does not wait."""
        return DONE if self._task is None or self.is_current() else asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._calls:
                function, arguments = self._calls.popleft()
                self._is_calling = True
                try:
                    await self._call(function, *arguments)
                finally:
                    self._is_calling = False
        finally:
            self._task = None

    async def _call(self, function: Callable[..., Any], *arguments: object) -> None:
        try:
            await invoke(function, *arguments)
        except (Exception, asyncio.CancelledError) as error:
            raised_by_callback(error)
            name = function_name(function)
            text = f"{name} raised {repr_of(error)}, and nobody is told: catch in it what it can raise"
            log.tell(logging.ERROR, "callback_failed", text, about=(name, type(error)), error=error)
