"""The task in which a session calls its message listeners, one at a time, a batch of messages in one step."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from time import perf_counter
from types import CoroutineType
from typing import Any

from fjm2.base.functions import function_name
from fjm2.base.logs import Log
from fjm2.base.quantities import counted, repr_of, shortened
from fjm2.bus.callbacks import calling_thread_of, raised_by_callback
from fjm2.bus.errors import ListenerError
from fjm2.bus.inbox import Delivery, Inbox
from fjm2.bus.routing.targets import ReceivedRun
from fjm2.messages.errors import JMSError
from fjm2.messages.header import EXPIRATION, HEADER, KIND, Kind
from fjm2.messages.message import Message, open_message

from .deliveries import Deliveries, Opener, may_deliver
from .ready_queue import ReadyQueue

log = Log("fjm2.jms")

TURN_S = 0.002
"""Time for which listeners run before other tasks of the loop get their turn."""
_BATCH_MESSAGES_MAX = 64
"""Greatest number of messages of one consumer before the next consumer's turn: enough to spread the cost of a turn, and
still fair."""
_SHOWN_CHARACTERS_MAX = 120
"""Length to which an error shows an exception of a listener, and the name of a message: together, two lines or so."""

_OBJECT = int(Kind.OBJECT)

RunBatch = Callable[[list[Message], Callable[[], bool]], Awaitable[tuple[int, BaseException | None]]]
"""A function that calls a listener with each message, until a call raises or the function given returns True. It
returns the number of messages done, and the exception that the next message raised, or None."""


class ThreadListener:
    """A listener that blocks, and so runs in a thread. It gets a batch of messages at a time."""

    def __init__(self, run: RunBatch, listener: Any) -> None:
        self.run = run
        self.listener = listener


def _unwrapped(listener: Any) -> Any:
    return listener


class ListenerTask:
    """Calls the listeners of a session while it is started."""

    def __init__(
        self,
        owner: object,
        opener: Opener,
        deliveries: Deliveries,
        report: Callable[[JMSError], None],
        on_interrupted: Callable[[], None],
    ) -> None:
        """`owner` identifies calls from listeners that run in a thread; see `calling_thread_of`.

        Call `on_interrupted` when a batch has ended that `interrupt` cut short.
        """
        self.is_started = False
        """True while messages are delivered."""
        self.running: Inbox | None = None
        """Inbox whose listener is being called, or None."""
        self.wrap_listener: Callable[[Any], Any] = _unwrapped
        """Function that wraps each listener before it is called. Telemetry sets it, to put a span around each call."""
        self._owner = owner
        self._opener = opener
        self._deliveries = deliveries
        self._report = report
        self._on_interrupted = on_interrupted
        self._is_interrupted = False
        """True if the batch ends after the current message."""
        self._recovers_current = False
        """True if the current message is to be delivered again."""
        self._is_ending = False
        self._task: asyncio.Task[None] | None = None
        self._work: asyncio.Future[None] | None = None
        """Future at which the task waits for messages; None while it does not wait."""
        self.ready = ReadyQueue(self.wake)
        """Inboxes that have messages for their listeners."""

    def listen(self, inbox: Inbox, listener: Any) -> None:
        """Set the listener of an inbox. None removes it. The first listener starts the task."""
        inbox.listener = listener
        if listener is None:
            self.ready.remove(inbox)
            return
        if inbox.failure is not None:
            self._report(inbox.failure)
        if not inbox.is_closed:
            # Unless some messages come again, it gets them by the short way.
            if not (isinstance(listener, ThreadListener) or inbox.is_shared or self._deliveries.is_tracking):
                inbox.begin_runs()
            self.ready.add(inbox)
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        """Make the task look for messages again."""
        if self._work is not None and not self._work.done():
            self._work.set_result(None)

    def interrupt(self, *, recovers_current: bool = False) -> None:
        """End the batch after the current message. With `recovers_current`, deliver that message again."""
        if self.running is not None:
            self._is_interrupted = True
            if recovers_current:
                self._recovers_current = True

    def tell_running(self) -> None:
        """Log which listener is being called: somebody waits until it returns."""
        inbox = self.running
        if inbox is not None:
            listener = inbox.listener.listener if isinstance(inbox.listener, ThreadListener) else inbox.listener
            name = function_name(listener)
            log.tell(
                logging.WARNING,
                "listener_runs",
                f"the listener {name} of {inbox.destination} has not returned: stopping and closing wait for it, "
                "whatever their timeout; give what it waits for a limit",
                about=id(inbox),
            )

    def begin_ending(self) -> None:
        """End the task after the current message."""
        self._is_ending = self._is_interrupted = True

    async def ended(self) -> None:
        """Wait for the end of the task."""
        if self._task is not None:
            await self._task

    def is_current(self) -> bool:
        """Return True if called in a listener of this session."""
        if calling_thread_of.get() is self._owner:
            return True
        return self.running is not None and asyncio.current_task() is self._task

    async def _run(self) -> None:
        ready = self.ready
        while not self._is_ending:
            inbox = ready.begin_turn() if self.is_started else None
            if inbox is None:
                await self._wait()
                continue
            end = perf_counter() + TURN_S
            while inbox is not None:
                self.running = inbox
                try:
                    await self._batch_of(inbox, end)
                finally:
                    self.running = None
                    ready.end_turn(inbox)
                    if self._is_interrupted:
                        self._end_interrupt()
                if not self.is_started or self._is_ending:
                    break
                if perf_counter() >= end:
                    await asyncio.sleep(0)
                    break
                inbox = ready.begin_turn()

    async def _wait(self) -> None:
        """Wait for `wake`. A future costs less than an Event, and this is on the way of every lone message."""
        self._work = asyncio.get_running_loop().create_future()
        try:
            await self._work
        finally:
            self._work = None

    def _batch_of(self, inbox: Inbox, end: float) -> Awaitable[None]:
        """Return a coroutine that delivers messages of an inbox to its listener."""
        listener: Any = inbox.listener
        is_in_thread = isinstance(listener, ThreadListener)
        if not is_in_thread and self.wrap_listener is not _unwrapped:
            listener = self.wrap_listener(listener)
        if not (is_in_thread or inbox.is_shared or inbox.again or self._deliveries.is_tracking):
            if not inbox.takes_runs:
                inbox.begin_runs()
            return self._run_new(inbox, listener, end)
        inbox.end_runs()
        return self._run_in_thread(inbox, listener) if is_in_thread else self._run_any(inbox, listener, end)

    async def _run_any(self, inbox: Inbox, listener: Any, end: float) -> None:
        """Deliver messages of any kind. Messages that the session had before are in the order of all inboxes: the next
        one may be another inbox's. Consumers that share a queue get those that another one gave back."""
        is_next_known = not (inbox.again and (inbox.is_shared or self.ready.has_old_order))
        for _ in range(_BATCH_MESSAGES_MAX if is_next_known else 1):
            delivery = self._opener.take(inbox)
            if delivery is None or not await self._run_one(delivery, listener) or perf_counter() > end:
                return

    def _end_interrupt(self) -> None:
        self._is_interrupted = self._recovers_current = False
        self._on_interrupted()

    async def _run_new(self, inbox: Inbox, listener: Any, end: float) -> None:
        """Deliver new messages of a session that acknowledges them by itself. This is the short way, which most
        messages take."""
        pop, release, destination = inbox.pop, inbox.release, inbox.message_destination
        hook = self._opener.acknowledge_hook
        # No more than are held: most consumers have just one message, and to look for a second takes as long as to
        # deliver the first.
        for _ in range(min(inbox.held, _BATCH_MESSAGES_MAX)):
            if inbox.run_messages and (run := inbox.pop_run(_BATCH_MESSAGES_MAX)) is not None:
                if run.header[KIND] != _OBJECT:
                    await self._run_alike(inbox, run, listener, end)
                    return
                inbox.put_back_run(run)
                inbox.split_runs()
            received = pop()
            if received is None:
                return
            header = received.header
            if (
                header[EXPIRATION]
                or received.gap is not None
                or (inbox.gaps and inbox.has_gap_before(header))
                or header[KIND] == _OBJECT
            ):
                inbox.put_back(received)
                delivery = self._opener.take(inbox)
                if delivery is None or not await self._run_one(delivery, listener):
                    return
                continue
            message = open_message(received.head, received.body, header, 1, hook, destination)
            try:
                result = listener(message)
                if result is not None and (type(result) is CoroutineType or isawaitable(result)):
                    await result
            except (Exception, asyncio.CancelledError) as error:
                self._fail(self._opener.deliver_first(received, inbox), raised_by_callback(error))
                return
            if self._is_interrupted:
                if self._recovers_current:
                    self._deliveries.deliver_again(self._opener.deliver_first(received, inbox))
                else:
                    release(received)
                return
            release(received)
            if perf_counter() > end:
                return

    async def _run_alike(self, inbox: Inbox, run: ReceivedRun, listener: Any, end: float) -> None:
        """Deliver messages that were received together. They do not expire, and nothing is missing before them."""
        destination, hook = inbox.message_destination, self._opener.acknowledge_hook
        buffer, unpack, done = run.frames.buffer, HEADER.unpack_from, 0
        for start, body, stop in run.frames.places():
            header = unpack(buffer, start)
            message = open_message(buffer[start:body], buffer[body:stop], header, 1, hook, destination)
            try:
                result = listener(message)
                if result is not None and isawaitable(result):
                    await result
            except (Exception, asyncio.CancelledError) as error:
                received = inbox.end_run_at(run, done)
                self._fail(self._opener.deliver_first(received, inbox), raised_by_callback(error))
                return
            if self._recovers_current:
                received = inbox.end_run_at(run, done)
                self._deliveries.deliver_again(self._opener.deliver_first(received, inbox))
                return
            done += 1
            inbox.handled += 1
            if self._is_interrupted or perf_counter() > end:
                break
        if done < len(run):
            run, rest = run.split(done)
            inbox.put_back_run(rest)
        inbox.release_run(run)

    async def _run_one(self, delivery: Delivery, listener: Any) -> bool:
        """Deliver one message of any kind. Return True if the batch may go on."""
        is_tracking = self._deliveries.is_tracking
        if is_tracking:
            self._deliveries.track((delivery,))
        try:
            result = listener(self._opener.open(delivery))
            if result is not None and isawaitable(result):
                await result
        except (Exception, asyncio.CancelledError) as error:
            raised_by_callback(error)
            if not is_tracking:
                self._fail(delivery, error)
                return False
            self._report_failure(delivery, error, "")
        if not is_tracking:
            if self._recovers_current:
                self._deliveries.deliver_again(delivery)
            else:
                delivery.inbox.release(delivery.received)
        return not self._is_interrupted

    def _fail(self, delivery: Delivery, error: BaseException) -> None:
        if not self._deliveries.retry(delivery):
            self._report_failure(delivery, error, f" {counted(delivery.count, 'time')}, and does not get it again")

    def _report_failure(self, delivery: Delivery, error: BaseException, times: str) -> None:
        message = self._opener.open(delivery)
        about = shortened(f"{message.message_id} from {message.destination}", _SHOWN_CHARACTERS_MAX)
        raised = shortened(repr_of(error), _SHOWN_CHARACTERS_MAX)
        self._report(ListenerError(f"a message listener raised {raised} for {about}{times}", linked_exception=error))

    async def _run_in_thread(self, inbox: Inbox, listener: ThreadListener) -> None:
        is_tracking = self._deliveries.is_tracking
        # Tracked messages can be acknowledged or recovered in the middle of a batch, so the batch is one message.
        size = 1 if is_tracking or inbox.again or inbox.is_shared else _BATCH_MESSAGES_MAX
        batch = [delivery for _ in range(size) if (delivery := self._opener.take(inbox))]
        if not batch:
            return
        if is_tracking:
            self._deliveries.track(batch)
        messages = [self._opener.open(delivery) for delivery in batch]

        def is_over() -> bool:  # called in the listener's thread after each message
            inbox.handled += 1
            return self._is_interrupted or not may_deliver(inbox, batch[-1:])

        done, error = await listener.run(messages, is_over)
        failed = batch[done] if error is not None else None
        for delivery in reversed(batch[done + (failed is not None) :]):
            self._deliveries.give_back(delivery)
        if is_tracking:
            if error is not None:
                self._report_failure(batch[done], error, "")
            return
        finished = batch[:done]
        if failed is not None and error is not None:
            self._fail(failed, error)
        elif self._recovers_current and finished:
            self._deliveries.deliver_again(finished.pop())
        for delivery in finished:
            inbox.release(delivery.received)
