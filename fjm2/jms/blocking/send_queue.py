"""The queue between sending threads and the event loop."""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager
from functools import partial
from time import perf_counter
from typing import Any, Final
from weakref import WeakSet

from fjm2.base.quantities import counted
from fjm2.bus.completions import CompletionListener, Receipt
from fjm2.bus.errors import UnconfirmedError
from fjm2.bus.publication import BatchPost, Outbox, Post
from fjm2.messages.errors import IllegalStateError, JMSError
from fjm2.messages.files.file_message import FileBody
from fjm2.messages.header import FRAME_BYTES, HEADER

from .callback_thread import without_exit
from .loop_thread import LOOP

_queues: Final = WeakSet["SendQueue"]()
Put = Callable[[Any], Awaitable[None] | None]
"""A function that puts a `Post` or a `BatchPost` into an outbox. It returns an awaitable if there is no room."""
Drop = Callable[[Exception], None]
"""A function that tells those who wait for a send that it failed, before it was put into an outbox."""

_QUEUED_BYTES_MAX: Final = 4 << 20
_QUEUED_POSTS_MAX: Final = 5_000
"""Limits of the queue, in bytes and in posts. Senders wait while more is queued. The limits are large enough for
bursts, and small enough to bound memory and delay."""


class SendQueue:
    """Queue of the messages that threads send on one connection, in order. It wakes the loop once for a burst, not once
    for each message."""

    def __init__(self, report: Callable[[JMSError], None]) -> None:
        self._report = report
        self.lock = threading.Lock()
        """Held while a frame is made and queued, so that frames are queued in the order of their numbers."""
        self._posts: list[tuple[Put, Post | BatchPost, Drop | None]] = []
        self._size = 0
        self._batch: deque[tuple[Put, Post | BatchPost, Drop | None]] = deque()
        """Posts that were taken from the queue together, and are not yet put into an outbox. Only the loop uses it."""
        self._task: Future[None] | None = None
        self._is_closed = False
        _queues.add(self)

    def cut_off(self) -> None:
        """Forget what a forked process took over: posts that its parent sends, and a lock that a thread may hold."""
        self.lock, self._task, self._posts, self._size = threading.Lock(), None, [], 0

    def put(self, put: Put, post: Post, drop: Drop | None = None) -> None:
        """Queue a post, which `put` will put into an outbox. `drop` is called if the queue is closed before. The caller
        holds the lock."""
        if self._is_closed:
            raise IllegalStateError("the connection is closed: create another one")
        self._posts.append((put, post, drop))
        self._size += HEADER.unpack_from(post[2][0])[FRAME_BYTES]
        if self._task is None:
            self._task = LOOP.submit(self._forward())

    def put_batch(self, outbox: Outbox, post: BatchPost) -> "BatchSend | None":
        """Queue the frames of a batch like `put`, an array at a time. Return a future if the send ends only when they
        are stored."""
        if not post[2] or not outbox.waits_until_stored(post[0], post[3]):
            self._put_arrays(outbox.put_many, post, None)
            return None
        sending = BatchSend(outbox, len(post[2]))
        self._put_arrays(sending.put, post, sending.drop)
        return sending

    def _put_arrays(self, put: Put, post: BatchPost, drop: Drop | None) -> None:
        if self._is_closed:
            raise IllegalStateError("the connection is closed: create another one")
        destination, priority, arrays, flags = post
        self._posts += [(put, (destination, priority, [frames], flags), drop) for frames in arrays]
        self._size += sum(frames.size for frames in arrays)
        if self._task is None:
            self._task = LOOP.submit(self._forward())

    def put_any(self, outbox: Outbox, post: Post) -> "FileSend | None":
        """Queue a post like `put`. If it has a file, return what tells when the whole file is sent."""
        if type(post[2][1]) is not FileBody:
            self.put(outbox.put, post)
            return None
        guard_progress(post)
        sending = FileSend(outbox)
        self.put(sending.put, post, sending.drop)
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
        dropped = [*self._batch, *posts]
        self._batch.clear()
        for _, _, drop in dropped:
            if drop is not None:
                drop(IllegalStateError("the connection was closed before the message was sent"))
        messages = sum(sum(map(len, post[2])) if isinstance(post[2], list) else 1 for _, post, _ in dropped)
        self._report(UnconfirmedError(f"closed with {counted(messages, 'message')} not sent"))

    async def _forward(self) -> None:
        while True:
            with self.lock:
                posts, self._posts, self._size = self._posts, [], 0
                if not posts:
                    self._task = None
                    return
            self._batch.extend(posts)
            while self._batch:
                put, post, _ = self._batch.popleft()
                try:
                    waiting = put(post)
                    if waiting is not None:
                        await waiting
                except JMSError as error:
                    self._report(error)
                except Exception as error:
                    self._report(JMSError(f"a message was not sent: {error!r}", linked_exception=error))
            await asyncio.sleep(0)


def guard_progress(post: Post) -> None:
    """Keep the progress listener of a file, if it has one, from ending the loop."""
    body = post[2][1]
    if isinstance(body, FileBody) and body.on_progress is not None:
        body.on_progress = partial(without_exit, body.on_progress)


class PendingSend(Future[None]):
    """A send whose outcome a thread or a completion listener waits for. It is the future of the outcome."""

    def __init__(
        self, outbox: Outbox, message: object, listener: CompletionListener | None, *, asks_subscribers: bool = True
    ) -> None:
        """See `Outbox.put_async`."""
        super().__init__()
        self._asks_subscribers = asks_subscribers
        self._outbox = outbox
        self._message = message
        self._listener = listener

    def put(self, post: Post) -> Awaitable[None] | None:
        """Put the message into the outbox."""
        try:
            return self._outbox.put_async(
                post, self._message, self._listener, self, asks_subscribers=self._asks_subscribers
            )
        except Exception as error:
            self._fail(error)
            return None

    def drop(self, error: Exception) -> None:
        """Fail, because the message was not put into the outbox."""
        if self._listener is not None:
            self._outbox.completions.post(self._listener.on_exception, self._message, error)
        self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self.set_running_or_notify_cancel():
            self.set_exception(error)


class BatchSend(Future[None]):
    """A send of a batch whose messages have to be stored. It is the future of the outcome, which a thread waits for."""

    def __init__(self, outbox: Outbox, arrays: int) -> None:
        super().__init__()
        self._outbox = outbox
        self._receipt = Receipt()
        self._left = arrays
        """Number of arrays that were not put into the outbox yet."""

    def put(self, post: BatchPost) -> Awaitable[None] | None:
        """Put one array into the outbox."""
        self._left -= 1
        if self.done():
            return None
        try:
            waiting = self._outbox.put_many(post, self._receipt)
        except Exception as error:
            self.drop(error)
            return None
        if waiting is not None:
            return self._wait(waiting)
        self._end()
        return None

    async def _wait(self, waiting: Awaitable[None]) -> None:
        try:
            await waiting
        except asyncio.CancelledError:
            self.drop(UnconfirmedError("the connection was closed before all messages of the batch were sent"))
            raise
        except Exception as error:
            self.drop(error)
        else:
            self._end()

    def _end(self) -> None:
        """Wait for the outcome, unless more arrays are to come. A batch larger than the gate's room has all futures of
        the gate only when the wait for room is over."""
        if not self._left:
            self._outbox.completions.add((self._receipt, None, self, None))

    def drop(self, error: Exception) -> None:
        """Fail, because an array was not put into the outbox."""
        if not self.done():
            self.set_exception(error)


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

    def drop(self, error: Exception) -> None:
        """Fail, because the file was not begun."""
        self.outcome.set_exception(error)

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


def _after_fork() -> None:
    for queue in list(_queues):
        queue.cut_off()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
