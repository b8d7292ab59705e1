"""A session's sending half: frames of messages, the open transaction, and what became of asynchronous sends."""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Coroutine
from time import time_ns
from typing import Any, Protocol, TypeAlias

from fjm2.bus.callbacks import Callbacks, invoke
from fjm2.bus.errors import UnconfirmedError
from fjm2.messages.destination import QUEUE_FLAG, TEMPORARY_FLAG, Destination
from fjm2.messages.errors import IllegalStateError, InvalidDestinationError, JMSError, TransactionRolledBackError
from fjm2.messages.foreign import adopt, stamp_foreign
from fjm2.messages.frame import Parts, seal
from fjm2.messages.header import PERSISTENT, Transaction
from fjm2.messages.message import Message

from .endpoint import Endpoint
from .unsupported import refuse


class CompletionListener(Protocol):
    """What an asynchronous send calls, once, when its outcome is known."""

    def on_completion(self, message: Any, /) -> Any:
        """All known subscribers have confirmed the message, or nobody had to."""

    def on_exception(self, message: Any, error: Exception, /) -> Any:
        """The message could not be sent, or was not confirmed."""


Post: TypeAlias = tuple[Destination, int, Parts, int]
"""A message as it was when it was sent: where to, its priority, its frame, and its flags."""


_Publish: TypeAlias = Callable[[Destination, int, Parts], Awaitable[None] | None]


class Outbox:
    def __init__(self, endpoint: Endpoint, is_transacted: bool) -> None:
        self.endpoint = endpoint
        self.is_closed = False
        self.completions = Callbacks(self)
        """Asynchronous sends, in order: each waits for its outcome there, and calls its listener."""
        self._pending: list[Post] | None = [] if is_transacted else None
        self._publish: _Publish = endpoint.bus.publish
        self._write = endpoint.writer.write
        self._accept = endpoint.confirmation.accept_unasked
        self._added = 0
        self._waiting: asyncio.Timeout | None = None
        self._closes_at = math.inf
        self._flushed = 0
        """So many of the asynchronous sends were handed to the network."""

    # One message.

    def frame(self, message: object, destination: Destination, flags: int, priority: int, time_to_live: int) -> Post:
        """The message as it is now. Its headers are stamped."""
        if self.is_closed:
            raise IllegalStateError("the session is closed")
        if destination.kind_flags:
            self.check_destination(destination)
        now = time_ns() // 1_000_000
        expiration = now + time_to_live if time_to_live else 0
        if isinstance(message, Message):
            parts = self._write(message, destination, flags, priority, now, expiration)
        else:
            copy = adopt(message, self.endpoint.settings.codec)
            parts = self._write(copy, destination, flags, priority, now, expiration)
            stamp_foreign(message, copy)
        return destination, priority, parts, flags

    def send(
        self, message: object, destination: Destination, flags: int, priority: int, time_to_live: int
    ) -> Awaitable[None] | None:
        """Frame it and put it. Most messages have a short way."""
        if self._pending is not None or self.is_closed or destination.kind_flags or not isinstance(message, Message):
            return self.put(self.frame(message, destination, flags, priority, time_to_live))
        now = time_ns() // 1_000_000
        expiration = now + time_to_live if time_to_live else 0
        parts = self._write(message, destination, flags, priority, now, expiration)
        if flags & PERSISTENT:
            self._accept()
        return self._publish(destination, priority, parts)

    def check_destination(self, destination: Destination) -> None:
        """Whether anything can be sent there."""
        if destination.kind_flags == QUEUE_FLAG:
            refuse("queues")
        if destination.kind_flags & TEMPORARY_FLAG and self.endpoint.is_deleted(destination):
            raise InvalidDestinationError(f"{destination} was deleted")

    def put(self, post: Post) -> Awaitable[None] | None:
        """Send it, or keep it for the commit. What is returned is to be awaited: there is no room for more."""
        if self._pending is not None:
            self._pending.append(post)
            return None
        destination, priority, parts, flags = post
        if flags & PERSISTENT:
            self._accept()
        return self._publish(destination, priority, parts)

    def put_async(
        self, post: Post, message: object, listener: CompletionListener | None
    ) -> tuple[asyncio.Future[None], Awaitable[None] | None]:
        """Likewise; the future tells the outcome."""
        number, waiting = None, None
        if self._pending is not None:
            self._pending.append(post)
        else:
            destination, priority, parts, flags = post
            if flags & PERSISTENT:
                number = self.endpoint.confirmation.accept()
            waiting = self._publish(destination, priority, parts)
        self._added += 1
        future: asyncio.Future[None] = self.endpoint.loop.create_future()
        self.completions.post(self._complete, number, self._added, message, future, listener)
        return future, waiting

    async def _complete(
        self,
        number: int | None,
        place: int,
        message: object,
        future: asyncio.Future[None],
        listener: CompletionListener | None,
    ) -> None:
        error = await self._outcome(number, place)
        if not future.done():
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
                if listener is not None:
                    future.exception()  # the listener hears of it
        if listener is not None and error is None:
            await invoke(listener.on_completion, message)
        elif listener is not None:
            await invoke(listener.on_exception, message, error)

    async def _outcome(self, number: int | None, place: int) -> JMSError | None:
        try:
            if number is not None:
                async with self._limit():
                    return await self.endpoint.confirmation.wait(number)
            if self._pending is None and place > self._flushed:
                added = self._added
                async with self._limit():
                    await self.endpoint.bus.flushed()
                self._flushed = added
        except TimeoutError:
            return UnconfirmedError("the time is over, and the message is perhaps not confirmed, or not sent")
        except Exception as failure:
            return JMSError(f"the message was perhaps not sent: {failure}", linked_exception=failure)
        return None

    def _limit(self) -> asyncio.Timeout:
        """Of the one wait for an outcome; a close makes it shorter."""
        until = self.endpoint.loop.time() + self.endpoint.settings.confirm_timeout_s
        self._waiting = asyncio.timeout_at(min(until, self._closes_at))
        return self._waiting

    async def close(self) -> None:
        """Wait for asynchronous sends as long as there is patience; drop the transaction."""
        self.rollback()
        with contextlib.suppress(TimeoutError):
            async with self.endpoint.closing():
                await self.completions.drained()
        self._closes_at = self.endpoint.loop.time()
        with contextlib.suppress(RuntimeError):  # that wait is over
            if self._waiting is not None:
                self._waiting.reschedule(self._closes_at)
        await self.completions.drained()
        self.is_closed = True

    def check_not_in_callback(self, call: str) -> None:
        if self.completions.is_current():
            raise IllegalStateError(f"{call} is not for a completion listener of the session itself")

    # The transaction.

    @property
    def uncommitted(self) -> int:
        """Messages in it."""
        return len(self._pending or ())

    def rollback(self) -> None:
        if self._pending is not None:
            self._pending = []

    async def commit(self) -> int | None:
        """Send what the transaction holds; the number to confirm, if anything in it is persistent.

        TransactionRolledBackError if nothing of it went out, UnconfirmedError if that is in doubt. Who is cancelled
        has sent it all the same.
        """
        posts, self._pending = self._pending or [], []
        size, number = len(posts), self.endpoint.next_transaction()
        sent = 0

        def publish() -> Awaitable[None] | None:
            nonlocal sent
            destination, priority, parts, _ = posts[sent]
            sealed = parts if size == 1 else seal(parts, Transaction(number, sent, size))
            waiting = self._publish(destination, priority, sealed)
            sent += 1
            return waiting

        try:
            for destination, *_ in posts:
                if destination.kind_flags:
                    self.check_destination(destination)
            while sent < size:
                waiting = publish()
                if waiting is not None:
                    await waiting
        except asyncio.CancelledError:
            # Receivers would wait for the rest, and hold back what is committed next.
            while sent < size:
                waiting = publish()
                if isinstance(waiting, Coroutine):
                    waiting.close()
            raise
        except Exception as failure:
            if not sent:
                reason = f"the transaction was rolled back: {failure}"
                raise TransactionRolledBackError(reason, linked_exception=failure) from failure
            raise UnconfirmedError(f"the transaction is in doubt: {failure}") from failure
        return self.endpoint.confirmation.accept() if any(flags & PERSISTENT for *_, flags in posts) else None

    async def confirm(self, number: int) -> None:
        """UnconfirmedError if not all known subscribers confirm it."""
        try:
            async with asyncio.timeout(self.endpoint.settings.confirm_timeout_s):
                error = await self.endpoint.confirmation.wait(number)
        except TimeoutError:
            error = UnconfirmedError("the time is over, and not all subscribers confirmed the transaction")
        if error is not None:
            raise error
