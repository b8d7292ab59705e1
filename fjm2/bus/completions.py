"""Outcomes of asynchronous sends, told in the order in which the messages were sent."""

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
    """Conditions of a send's outcome, for callers that wait for the outcome apart from room.

    All messages of a transaction share one receipt.
    """

    __slots__ = ("number", "stored")

    def __init__(self) -> None:
        self.number: int | None = None
        """Number to confirm; None if the message is not PERSISTENT."""
        self.stored: list[asyncio.Future[None]] = []
        """Futures of the gate."""


class CompletionListener(Protocol):
    """Called once by an asynchronous send, when its outcome is known."""

    def on_completion(self, message: Any, /) -> Any:
        """Handle success: all known subscribers have confirmed the message, or none had to."""

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
        """Give each send `timeout_s` to be confirmed. `flushed` waits until the network has been given everything."""
        super().__init__(owner)
        self._confirmation = confirmation
        self._wait_flushed = flushed
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._added = 0
        self._flushed = 0
        """Number of sends that were handed to the network."""
        self._waiting: asyncio.Timeout | None = None
        """Limit of the one wait that is under way."""
        self._closes_at = math.inf

    def add(
        self, receipt: Receipt | None, message: object, listener: CompletionListener | None
    ) -> asyncio.Future[None]:
        """Return a future of a send's outcome. A send without a receipt belongs to a transaction: it succeeds."""
        self._added += 1
        future: asyncio.Future[None] = self._loop.create_future()
        self.post(self._complete, receipt, self._added, message, future, listener)
        return future

    async def confirm(self, number: int) -> None:
        """Raise UnconfirmedError unless all known subscribers confirm a transaction."""
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

    def _limit(self) -> asyncio.Timeout:
        """Limit the wait for an outcome. `close` shortens it."""
        until = self._loop.time() + self._timeout_s
        self._waiting = asyncio.timeout_at(min(until, self._closes_at))
        return self._waiting

    async def close(self, limit: AbstractAsyncContextManager[None]) -> None:
        """Wait for all outcomes until the limit raises TimeoutError. Sends without an outcome by then fail."""
        with contextlib.suppress(TimeoutError):
            async with limit:
                await self.drained()
        self._closes_at = self._loop.time()
        with contextlib.suppress(RuntimeError):  # that wait is over
            if self._waiting is not None:
                self._waiting.reschedule(self._closes_at)
        await self.drained()


async def wait_until_stored(stored: asyncio.Future[None]) -> None:
    """Wait for a future of the gate. Raise the error that it holds, or UnconfirmedError if the gate cancelled it.

    If the wait is cancelled, the future is not: other messages may share it.
    """
    await asyncio.wait([stored])
    if stored.cancelled():
        raise UnconfirmedError("the message may not have been stored: its gate gave up")
    stored.result()


async def _error_of(stored: asyncio.Future[None]) -> JMSError | None:
    """Return the JMSError that a gate raised."""
    try:
        await wait_until_stored(stored)
    except JMSError as error:
        return error
    return None
