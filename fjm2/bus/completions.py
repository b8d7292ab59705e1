"""Outcomes of asynchronous sends, reported in the order in which the messages were sent."""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from fjm2.messages.errors import JMSError

from .callbacks import Callbacks, invoke
from .confirmation import Confirmation
from .errors import UnconfirmedError


class Receipt:
    """Conditions that decide the outcome of a send, for callers that await the outcome separately from room in the
    buffer.

    All messages of a transaction share one receipt.
    """

    __slots__ = ("number", "sent", "stored")

    def __init__(self) -> None:
        self.number: int | None = None
        """Number by which `Confirmation` knows the message; None if the message is not PERSISTENT."""
        self.stored: list[asyncio.Future[None]] = []
        """Futures that the `Gate` returned for the messages."""
        self.sent: asyncio.Future[JMSError | None] | None = None
        """Future of a file: done when its last part is sent, with the error that prevented that, or None."""


class CompletionListener(Protocol):
    """A listener to the outcomes of asynchronous sends. One of its methods is called once for each send."""

    def on_completion(self, message: Any, /) -> Any:
        """Handle success: all known subscribers have confirmed the message, or it needs no confirmation."""

    def on_exception(self, message: Any, error: Exception, /) -> Any:
        """Handle failure: the message could not be sent, or was not confirmed."""


class Completions(Callbacks):
    """The asynchronous sends of one session. Each waits for its outcome in turn, then calls its listener."""

    def __init__(
        self,
        owner: object,
        confirmation: Confirmation,
        flushed: Callable[[], Awaitable[None]],
        timeout_s: float,
    ) -> None:
        """Allow each send `timeout_s` seconds for its confirmation. `flushed` waits until all messages are in the send
        buffers."""
        super().__init__(owner)
        self._confirmation = confirmation
        self._wait_flushed = flushed
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._added = 0
        self._flushed = 0
        """Number of the latest send that is known to have been handed to the network."""
        self._waiting: asyncio.Timeout | None = None
        """Time limit of the wait for an outcome that is under way."""
        self._closes_at = math.inf

    def add(
        self, receipt: Receipt | None, message: object, listener: CompletionListener | None
    ) -> asyncio.Future[None]:
        """Add a send, and return a future of its outcome.

        A send without a receipt belongs to an open transaction. Its outcome is always success.
        """
        self._added += 1
        future: asyncio.Future[None] = self._loop.create_future()
        self.post(self._complete, receipt, self._added, message, future, listener)
        return future

    async def confirm(self, number: int) -> None:
        """Wait until all known subscribers have confirmed the transaction with this number. Raise UnconfirmedError if
        some do not."""
        try:
            async with asyncio.timeout(self._timeout_s):
                error = await self._confirmation.wait(number)
        except TimeoutError:
            error = UnconfirmedError("timed out: not all subscribers confirmed the transaction")
        if error is not None:
            raise error

    async def _complete(
        self,
        receipt: Receipt | None,
        place: int,
        message: object,
        future: asyncio.Future[None],
        listener: CompletionListener | None,
    ) -> None:
        error = None if receipt is None else await self._outcome(receipt, place)
        if not future.done():
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
                if listener is not None:
                    future.exception()  # mark it as retrieved: the listener is told
        if listener is not None and error is None:
            await invoke(listener.on_completion, message)
        elif listener is not None:
            await invoke(listener.on_exception, message, error)

    async def _outcome(self, receipt: Receipt, place: int) -> JMSError | None:
        try:
            if receipt.sent is not None:
                async with self._limit(math.inf):
                    error = await asyncio.shield(receipt.sent)
                if error is not None:
                    return error
            for stored in receipt.stored:
                async with self._limit():
                    error = await _error_of(stored)
                if error is not None:
                    return error
            if receipt.number is not None:
                async with self._limit():
                    return await self._confirmation.wait(receipt.number)
            if place > self._flushed:
                added = self._added
                async with self._limit():
                    await self._wait_flushed()
                self._flushed = added
        except TimeoutError:
            return UnconfirmedError("timed out: the message may not have been sent or confirmed")
        except Exception as failure:
            return JMSError(f"the message may not have been sent: {failure}", linked_exception=failure)
        return None

    def _limit(self, timeout_s: float | None = None) -> asyncio.Timeout:
        """Return a time limit for waiting for an outcome. `close` shortens it."""
        until = self._loop.time() + (self._timeout_s if timeout_s is None else timeout_s)
        until = min(until, self._closes_at)
        self._waiting = asyncio.timeout_at(None if until == math.inf else until)
        return self._waiting

    async def close(self, limit: AbstractAsyncContextManager[None]) -> None:
        """Wait for all outcomes until `limit` raises TimeoutError. Sends that have no outcome by then fail."""
        with contextlib.suppress(TimeoutError):
            async with limit:
                await self.drained()
        self._closes_at = self._loop.time()
        with contextlib.suppress(RuntimeError):  # that wait is over
            if self._waiting is not None:
                self._waiting.reschedule(self._closes_at)
        await self.drained()


async def wait_until_stored(stored: asyncio.Future[None]) -> None:
    """Wait for a future that a `Gate` returned. Raise its exception, or UnconfirmedError if the gate cancelled it.

    Cancelling this wait does not cancel the future, which other messages may share.
    """
    await asyncio.wait([stored])
    if stored.cancelled():
        raise UnconfirmedError(
            "the message may not have been stored: its gate gave up; send it again if a duplicate does no harm"
        )
    stored.result()


async def _error_of(stored: asyncio.Future[None]) -> JMSError | None:
    """Wait for a future that a `Gate` returned. Return the JMSError that it raises, or None."""
    try:
        await wait_until_stored(stored)
    except JMSError as error:
        return error
    return None
