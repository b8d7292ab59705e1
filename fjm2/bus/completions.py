"""Outcomes of asynchronous sends, reported in the order in which the messages were sent."""

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, InvalidStateError
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from fjm2.base.functions import check_methods
from fjm2.messages.errors import JMSError

from .callbacks import Callbacks
from .errors import UnconfirmedError


class Receipt:
    """Futures that decide the outcome of a send, for callers that do not await the outcome in `publish`.

    A send without any of them succeeds when the network has its message. All messages of a transaction share a receipt.
    """

    # Class attributes, not `__init__`: most sends have none of the futures, and need not pay for a call.

    confirmed: "asyncio.Future[JMSError | None] | None" = None
    """Future of the confirmation, which other messages share; None if the message is not PERSISTENT."""
    stored: "list[asyncio.Future[None]] | None" = None
    """Futures that the `Gate` returned for the messages; None if there are none."""
    sent: "asyncio.Future[JMSError | None] | None" = None
    """Future of a file, or of a message that a gate holds back: done when it is sent, with the error that prevented
    that, or None."""
    has_room: bool = False
    """True if a gate that holds the message back has room for more, so that its sender need not wait."""
    asks_subscribers: bool = True
    """False if the outcome is not that subscribers confirm the message: they are asked in the background."""

    def add_stored(self, stored: "asyncio.Future[None]") -> None:
        """Add a future that the `Gate` returned."""
        if self.stored is None:
            self.stored = [stored]
        elif self.stored[-1] is not stored:  # messages that follow each other often share one
            self.stored.append(stored)


_GATE_GRACE_S: Final = 0.5
"""Time beyond the time limit in which a gate itself may tell why it gave a message up."""
_UNCONFIRMED: Final = Receipt()
"""Receipt of the sends that have only to be handed to the network."""


class CompletionListener(Protocol):
    """A listener to the outcomes of asynchronous sends. One of its methods is called once for each send."""

    def on_completion(self, message: Any, /) -> Any:
        """Handle success: all known subscribers have confirmed the message, or it needs no confirmation."""

    def on_exception(self, message: Any, error: Exception, /) -> Any:
        """Handle failure: the message could not be sent, or was not confirmed."""


def check_listener(name: str, value: object) -> None:
    """Raise TypeError unless a completion listener is None or has its methods."""
    if value is not None:
        check_methods(name, value, ("on_completion", "on_exception"), "CompletionListener")


class Outcome(Protocol):
    """Future of the outcome of a send: of asyncio, or for a thread."""

    def done(self) -> bool: ...
    def set_result(self, result: None, /) -> None: ...
    def set_exception(self, exception: Any, /) -> None: ...
    def exception(self) -> BaseException | None: ...


SendWithReceipt: TypeAlias = tuple[Receipt | None, object, Outcome, CompletionListener | None]
"""Receipt, message, future of the outcome, and listener of a send. A send in an open transaction has no receipt, and
always succeeds."""
Send: TypeAlias = Outcome | SendWithReceipt
"""A send whose outcome is awaited. One that succeeds when the network has its message, and that has no listener, is
kept as the future alone: a tuple for each message would take a good part of the time of its send."""
_CANCELLED: Final = (asyncio.InvalidStateError, InvalidStateError)
"""Errors of telling a future how a send ended, if the future was cancelled."""


class Completions(Callbacks):
    """The asynchronous sends of one session. Each waits for its outcome in turn, then calls its listener."""

    def __init__(
        self,
        owner: object,
        flushed: Callable[[], Awaitable[None]],
        timeout_s: float,
    ) -> None:
        """Allow each send `timeout_s` seconds for its confirmation. `flushed` waits until all messages are in the send
        buffers."""
        super().__init__(owner)
        self._wait_flushed = flushed
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self.new_outcome: Callable[[], asyncio.Future[None]] = partial(asyncio.Future, loop=self._loop)
        """Function that returns a future of the outcome of a send. It is faster than `create_future` of asyncio."""
        self._sends: deque[Send] = deque()
        """Sends whose turn has not come."""
        self._is_completing = False
        """True if the outcomes of sends are being waited for, or will be."""
        self._is_waiting = False
        """True while a send has its turn."""
        self._taken = 0
        """Number of the send that has its turn."""
        self._flushed = 0
        """Number of the latest send that is known to have been handed to the network."""
        self._waiting: asyncio.Timeout | None = None
        """Time limit of the wait for an outcome that is under way."""
        self._closes_at = math.inf
        self._spare: Receipt | None = None
        """An empty receipt that no send has."""
        self._latest: Receipt | None = None
        """Receipt of the latest send that only a gate holds back."""

    def add(self, send: Send) -> None:
        """Add a send, and tell its future how it ends."""
        self._sends.append(send)
        if not self._is_completing:
            self._is_completing = True
            self.post(self._complete)

    def new_receipt(self) -> Receipt:
        """Return an empty receipt for a send. Pass it to `add_told` when the message is published."""
        receipt, self._spare = self._spare, None
        return receipt or Receipt()

    def add_told(
        self, receipt: Receipt | None, message: object, outcome: Outcome, listener: CompletionListener | None
    ) -> None:
        """Add a send, and tell its future and its listener how it ends."""
        if receipt is not None and receipt.stored is not None and receipt.confirmed is None and receipt.sent is None:
            receipt = self._shared(receipt, receipt.stored)
        self.add((receipt, message, outcome, listener))

    def _shared(self, receipt: Receipt, stored: "list[asyncio.Future[None]]") -> Receipt:
        """Return a receipt that tells the same: messages of a stream share the future of their gate, and so that."""
        latest = self._latest
        if latest is None or latest.stored is None or stored != latest.stored:
            self._latest = receipt
            return receipt
        receipt.stored = None
        self._spare = receipt
        return latest

    @property
    def pending(self) -> int:
        calls = super().pending - self._is_completing
        return calls + len(self._sends) + self._is_waiting

    async def confirm(self, confirmed: asyncio.Future[JMSError | None]) -> None:
        """Wait for the confirmation of a transaction. Raise UnconfirmedError if some subscribers do not confirm it."""
        try:
            async with asyncio.timeout(self._timeout_s):
                error = await asyncio.shield(confirmed)
        except TimeoutError:
            error = UnconfirmedError("timed out: not all subscribers confirmed the transaction")
        if error is not None:
            raise error

    async def _complete(self) -> None:
        """Wait for the outcomes of all sends, in turn, and tell them."""
        sends, known = self._sends, _UNCONFIRMED
        self._is_waiting = True
        try:
            while sends:
                send = sends.popleft()
                self._taken += 1
                if isinstance(send, tuple):
                    receipt, message, outcome, listener = send
                    if receipt is known and listener is None:  # many sends share one that has succeeded
                        try:  # noqa: SIM105 - without a call for each message
                            outcome.set_result(None)
                        except _CANCELLED:
                            pass
                        continue
                elif self._taken <= self._flushed:
                    try:  # noqa: SIM105 - without a call for each message
                        send.set_result(None)
                    except _CANCELLED:
                        pass
                    continue
                else:
                    receipt, message, outcome, listener = _UNCONFIRMED, None, send, None
                is_known = receipt is None or self._has_succeeded(receipt)
                error = None if is_known or receipt is None else await self._outcome(receipt)
                if receipt is not None and receipt.stored is not None and error is None:
                    known = receipt
                _tell(outcome, error)
                if error is not None and listener is not None and outcome.done():
                    with contextlib.suppress(asyncio.CancelledError, CancelledError):
                        outcome.exception()  # mark it as retrieved: the listener is told
                if listener is not None and error is None:
                    await self._call(listener.on_completion, message)
                elif listener is not None:
                    await self._call(listener.on_exception, message, error)
        finally:
            self._is_waiting = self._is_completing = False

    def _has_succeeded(self, receipt: Receipt) -> bool:
        """Return True if a send is known to have succeeded, so that nothing has to be awaited."""
        confirmed = receipt.confirmed
        if receipt.sent is not None:
            return False
        if receipt.stored is not None:
            # Messages of one turn share a future: most find it done, and need no wait of their own.
            return confirmed is None and all(map(_has_result, receipt.stored))
        if confirmed is None:
            return self._taken <= self._flushed
        return confirmed.done() and not confirmed.cancelled() and confirmed.result() is None

    async def _outcome(self, receipt: Receipt) -> JMSError | None:
        confirmed = receipt.confirmed
        try:
            if receipt.sent is not None:
                async with self._limit(math.inf):
                    error = await asyncio.shield(receipt.sent)
                if error is not None:
                    return error
                confirmed = receipt.confirmed
            for stored in receipt.stored or ():
                async with self._limit(self._timeout_s + _GATE_GRACE_S):
                    error = await _error_of(stored)
                if error is not None:
                    return error
            if confirmed is not None:
                if not confirmed.done():
                    async with self._limit():
                        await asyncio.shield(confirmed)
                return confirmed.result()
            if self._taken > self._flushed:
                added = self._taken + len(self._sends)
                async with self._limit():
                    await self._wait_flushed()
                self._flushed = added
        except TimeoutError:
            return _timed_out()
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


def _tell(outcome: Outcome, error: JMSError | None) -> None:
    """Set the outcome of a send, unless it was cancelled."""
    with contextlib.suppress(*_CANCELLED):
        if error is None:
            outcome.set_result(None)
        else:
            outcome.set_exception(error)


def _timed_out() -> UnconfirmedError:
    return UnconfirmedError("timed out: the message may not have been sent or confirmed")


async def wait_until_stored(stored: asyncio.Future[None], timeout_s: float | None = None) -> None:
    """Wait for a future that a `Gate` returned. Raise its exception, or UnconfirmedError if the gate cancelled it, or
    if it is not done in time. A gate that has the same time limit can tell why it gave up.

    Cancelling this wait does not cancel the future, which other messages may share.
    """
    await asyncio.wait([stored], timeout=None if timeout_s is None else timeout_s + _GATE_GRACE_S)
    if not stored.done():
        raise _timed_out()
    if stored.cancelled():
        raise UnconfirmedError(
            "the message may not have been stored: its gate gave up; send it again if a duplicate does no harm"
        )
    stored.result()


def _has_result(future: asyncio.Future[None]) -> bool:
    """Return True if a future is done, and did not fail."""
    return future.done() and not future.cancelled() and future.exception() is None


async def _error_of(stored: asyncio.Future[None]) -> JMSError | None:
    """Wait for a future that a `Gate` returned. Return the JMSError that it raises, or None."""
    try:
        await wait_until_stored(stored)
    except JMSError as error:
        return error
    return None
