"""The queue between sending threads and the event loop."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager
from time import perf_counter
from typing import Final

from fjm2.base.quantities import counted
from fjm2.bus.completions import CompletionListener
from fjm2.bus.errors import UnconfirmedError
from fjm2.bus.publication import Outbox, Post
from fjm2.messages.errors import IllegalStateError
from fjm2.messages.files.file_message import FileBody
from fjm2.messages.header import FRAME_BYTES, HEADER

from .loop_thread import LOOP

Put = Callable[[Post], Awaitable[None] | None]
"""A function that puts a `Post` into an outbox. It returns an awaitable if there is no room."""

_QUEUED_BYTES_MAX: Final = 4 << 20
_QUEUED_POSTS_MAX: Final = 5_000
"""Limits of the queue, in bytes and in posts. Senders wait while more is queued. The limits are large enough for
bursts, and small enough to bound memory and delay."""


class SendQueue:
    """Queue of the messages that threads send on one connection, in order. It wakes the loop once for a burst, not once
    for each message."""

    def __init__(self, report: Callable[[Exception], None]) -> None:
        self._report = report
        self.lock = threading.Lock()
        """Held while a frame is made and queued, so that frames are queued in the order of their numbers."""
        self._posts: list[tuple[Put, Post]] = []
        self._size = 0
        self._unsent = 0
        """Number of posts of the batch in progress that are not yet put into an outbox."""
        self._task: Future[None] | None = None
        self._is_closed = False

    def put(self, put: Put, post: Post) -> None:
        """Queue a post, which `put` will put into an outbox. The caller holds the lock."""
        if self._is_closed:
            raise IllegalStateError("the connection is closed: create another one")
        self._posts.append((put, post))
        self._size += HEADER.unpack_from(post[2][0])[FRAME_BYTES]
        if self._task is None:
            self._task = LOOP.submit(self._forward())

    def put_any(self, outbox: Outbox, post: Post) -> "FileSend | None":
        """Queue a post like `put`. If it has a file, return what tells when the whole file is sent."""
        if type(post[2][1]) is not FileBody:
            self.put(outbox.put, post)
            return None
        sending = FileSend(outbox)
        self.put(sending.put, post)
        return sending

    def wait_for_room(self) -> float | None:
        """Wait until there is room. Return the seconds waited; None if there was room. The caller does not hold the
        lock."""
        task = self._task
        if task is None or (self._size <= _QUEUED_BYTES_MAX and len(self._posts) <= _QUEUED_POSTS_MAX):
            return None
        began = perf_counter()
        try:
            task.result()
        except CancelledError:
            raise IllegalStateError("the connection is closed: create another one") from None
        return perf_counter() - began

    async def drained(self, limit: AbstractAsyncContextManager[None]) -> bool:
        """Wait until everything queued so far has been put into outboxes. Return False if `limit` ended the wait
        before."""
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
        """Wait until everything queued has been put into outboxes. If `limit` ends the wait before, drop the rest, and
        refuse further posts."""
        if await self.drained(limit):
            return
        with self.lock:
            self._is_closed = True
            task, posts, self._posts, self._size = self._task, self._posts, [], 0
        if task is not None:
            task.cancel()
        unsent = counted(len(posts) + self._unsent, "message")
        self._report(UnconfirmedError(f"closed with {unsent} not sent"))

    async def _forward(self) -> None:
        while True:
            with self.lock:
                posts, self._posts, self._size = self._posts, [], 0
                if not posts:
                    self._task = None
                    return
            self._unsent = len(posts)
            for put, post in posts:
                self._unsent -= 1
                try:
                    waiting = put(post)
                    if waiting is not None:
                        await waiting
                except Exception as error:
                    self._report(error)
            await asyncio.sleep(0)


class PendingSend:
    """A send whose outcome a thread or a completion listener waits for."""

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


class FileSend:
    """A send of a file. A thread waits for its end, and messages of other sessions need not."""

    def __init__(self, outbox: Outbox) -> None:
        self.outcome: Future[None] = Future()
        """Done when the whole file is sent, or could not be."""
        self._outbox = outbox
        self._task: asyncio.Task[None] | None = None

    def put(self, post: Post) -> None:
        self.outcome.set_running_or_notify_cancel()
        self._task = asyncio.get_running_loop().create_task(self._run(post))

    async def _run(self, post: Post) -> None:
        try:
            waiting = self._outbox.put(post)
            if waiting is not None:
                await waiting
        except asyncio.CancelledError:
            self.outcome.set_exception(IllegalStateError("the connection is closed"))
            raise
        except Exception as error:
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(None)
