"""Between threads and the event loop: calls into it, callbacks out of it, and one door for what is sent.

One loop serves all blocking connections of a process, in a thread of its own.
"""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from time import perf_counter
from typing import Any, ParamSpec, TypeVar

from fjm2.bus.callbacks import calling_thread_of
from fjm2.bus.completions import CompletionListener
from fjm2.bus.errors import UnconfirmedError
from fjm2.bus.publication import Outbox, Post
from fjm2.messages.errors import IllegalStateError
from fjm2.messages.header import FRAME_BYTES, HEADER
from fjm2.messages.message import Message

from .endpoint import Endpoint

_T = TypeVar("_T")
_P = ParamSpec("_P")

Put = Callable[[Post], Awaitable[None] | None]

_DOOR_BYTES_MAX = 4 << 20
_DOOR_POSTS_MAX = 5_000
"""So much waits in front of the loop before a sender does."""


class LoopThread:
    """Started by its first use; ends with the process. A forked process starts one of its own."""

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
        """Wait for the outcome. An interrupted caller cancels it."""
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
            raise IllegalStateError("a blocking call in the thread of the event loop would never return")
        return asyncio.run_coroutine_threadsafe(_wait_for(awaitable), loop)


async def _wait_for(awaitable: Awaitable[_T]) -> _T:
    return await awaitable


async def in_loop(function: Callable[_P, _T], *arguments: _P.args, **options: _P.kwargs) -> _T:
    """For calls that wait for nothing, but are the loop's thread's only."""
    return function(*arguments, **options)


LOOP = LoopThread()


class Door:
    """What threads send through one connection, in order: the loop is called once a burst, not once a message."""

    def __init__(self, report: Callable[[Exception], None]) -> None:
        self._report = report
        self._sessions = 0
        self.lock = threading.Lock()
        """Held while a frame is made, so that their order is that of their numbers."""
        self._posts: list[tuple[Put, Post]] = []
        self._size = 0
        self._handing = 0
        """So many of those that were taken from there are still to be put."""
        self._task: Future[None] | None = None
        self._is_closed = False

    def name_session(self) -> str:
        """For its threads: they are counted."""
        self._sessions += 1
        return f"session-{self._sessions}"

    def put(self, put: Put, post: Post) -> None:
        """Have it put into an outbox; with the lock held."""
        if self._is_closed:
            raise IllegalStateError("the connection is closed")
        self._posts.append((put, post))
        self._size += HEADER.unpack_from(post[2][0])[FRAME_BYTES]
        if self._task is None:
            self._task = LOOP.submit(self._hand_over())

    def wait_room(self) -> float | None:
        """Without the lock. For how long it waited; None if there was room."""
        task = self._task
        if task is None or (self._size <= _DOOR_BYTES_MAX and len(self._posts) <= _DOOR_POSTS_MAX):
            return None
        began = perf_counter()
        try:
            task.result()
        except CancelledError:
            raise IllegalStateError("the connection is closed") from None
        return perf_counter() - began

    async def drained(self, limit: AbstractAsyncContextManager[None]) -> bool:
        """All that was put in so far is with the bus. False if the limit's time was over before."""
        task = self._task
        if task is None:
            return True
        try:
            async with limit:
                await asyncio.wait([asyncio.wrap_future(task)])
        except TimeoutError:
            return False
        return True

    async def close(self, limit: AbstractAsyncContextManager[None]) -> None:
        """Likewise; what is not with the bus by then never will be, and nothing more is taken."""
        if await self.drained(limit):
            return
        with self.lock:
            self._is_closed = True
            task, posts, self._posts, self._size = self._task, self._posts, [], 0
        if task is not None:
            task.cancel()
        self._report(UnconfirmedError(f"{len(posts) + self._handing} messages were not sent before the close"))

    async def _hand_over(self) -> None:
        while True:
            with self.lock:
                posts, self._posts, self._size = self._posts, [], 0
                if not posts:
                    self._task = None
                    return
            self._handing = len(posts)
            for put, post in posts:
                self._handing -= 1
                try:
                    waiting = put(post)
                    if waiting is not None:
                        await waiting
                except Exception as error:
                    self._report(error)
            await asyncio.sleep(0)


def _without_exit(function: Callable[..., _T], *arguments: object) -> _T:
    """In the loop's thread a SystemExit would end the loop, and with it every connection of the process."""
    try:
        return function(*arguments)
    except Exception:
        raise
    except BaseException as error:
        raise RuntimeError(f"a callback ended with {error!r}") from error


class CallbackThread:
    """Where callbacks of one owner run, one at a time; it is started by the first."""

    def __init__(self, owner: object, endpoint: Endpoint | None, name: str) -> None:
        self._owner = owner
        self._endpoint = endpoint
        self._name = name
        self._executor: ThreadPoolExecutor | None = None

    async def run(self, function: Callable[..., _T], *arguments: object) -> _T:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, initializer=self._begin)
        return await asyncio.get_running_loop().run_in_executor(self._executor, _without_exit, function, *arguments)

    def _begin(self) -> None:
        """For those who look at threads: which connection it is of, and what for."""
        connection = "closed" if self._endpoint is None else self._endpoint.name
        threading.current_thread().name = f"fjm2-{connection}-{self._name}"
        calling_thread_of.set(self._owner)

    def bind(self, function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        """A coroutine function that runs the function there."""

        async def run(*arguments: object) -> Any:
            return await self.run(function, *arguments)

        return run

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=False)


class Later:
    """A send the outcome of which a thread asks for, or a listener."""

    def __init__(self, outbox: Outbox, message: object, listener: CompletionListener | None) -> None:
        self.outcome: Future[None] = Future()
        self._outbox = outbox
        self._message = message
        self._listener = listener

    def put(self, post: Post) -> Awaitable[None] | None:
        try:
            future, waiting = self._outbox.put_async(post, self._message, self._listener)
        except Exception as error:
            self.outcome.set_exception(error)
            return None
        future.add_done_callback(self._finish)
        return waiting

    def _finish(self, future: asyncio.Future[None]) -> None:
        error = future.exception()
        if not self.outcome.set_running_or_notify_cancel():
            return
        if error is None:
            self.outcome.set_result(None)
        else:
            self.outcome.set_exception(error)


class ThreadCompletion:
    """A completion listener whose methods run in a thread."""

    def __init__(self, thread: CallbackThread, listener: CompletionListener) -> None:
        self.on_completion = thread.bind(listener.on_completion)
        self.on_exception = thread.bind(listener.on_exception)


def work_through(
    listener: Callable[[Message], Any], messages: list[Message], is_interrupted: Callable[[], bool]
) -> tuple[int, BaseException | None]:
    """See `dispatcher.RunBatch`."""
    for done, message in enumerate(messages):
        try:
            listener(message)
        except BaseException as error:
            return done, error
        if is_interrupted():
            return done + 1, None
    return len(messages), None
