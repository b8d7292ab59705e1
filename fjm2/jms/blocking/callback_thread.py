"""Threads that run callbacks of applications."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from fjm2.base.functions import function_name
from fjm2.base.quantities import repr_of
from fjm2.bus.callbacks import calling_thread_of
from fjm2.bus.completions import CompletionListener
from fjm2.jms.endpoint import Endpoint
from fjm2.messages.message import Message

_T = TypeVar("_T")


class CallbackThread:
    """A thread that runs the callbacks of one owner, one at a time. It starts with the first callback."""

    def __init__(self, owner: object, endpoint: Endpoint | None, name: str) -> None:
        self._owner = owner
        self._endpoint = endpoint
        self._name = name
        self._executor: ThreadPoolExecutor | None = None

    async def run(self, function: Callable[..., _T], *arguments: object) -> _T:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, initializer=self._begin)
        return await asyncio.get_running_loop().run_in_executor(self._executor, without_exit, function, *arguments)

    def _begin(self) -> None:
        """Name the thread after its connection and its purpose, for debuggers and for tools like `top`."""
        connection = "closed" if self._endpoint is None else self._endpoint.name
        threading.current_thread().name = f"fjm2-{connection}-{self._name}"
        calling_thread_of.set(self._owner)

    def bind(self, function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        """Return a coroutine function that runs a function in this thread, and has its name: logs show it."""

        async def run(*arguments: object) -> Any:
            return await self.run(function, *arguments)

        run.__qualname__ = function_name(function)
        return run

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=False)


def without_exit(function: Callable[..., _T], *arguments: object) -> _T:
    """Call a function. If it raises SystemExit, raise RuntimeError instead: SystemExit would end the loop, and so all
    connections of the process, but not the program."""
    try:
        return function(*arguments)
    except Exception:
        raise
    except BaseException as error:
        raise RuntimeError(
            f"a callback raised {repr_of(error)}, which in a thread does not end the program: end it in the main thread"
        ) from error


class ThreadCompletion:
    """A completion listener whose methods run in a callback thread."""

    def __init__(self, thread: CallbackThread, listener: CompletionListener) -> None:
        self.on_completion = thread.bind(listener.on_completion)
        self.on_exception = thread.bind(listener.on_exception)


def run_batch(
    listener: Callable[[Message], Any], messages: list[Message], is_interrupted: Callable[[], bool]
) -> tuple[int, BaseException | None]:
    """Call a listener with each message of a batch, until one fails or the batch is interrupted. See
    `ThreadListener`."""
    for done, message in enumerate(messages):
        try:
            listener(message)
        except BaseException as error:
            return done, error
        if is_interrupted():
            return done + 1, None
    return len(messages), None
