"""The task in which a session calls its message listeners, one at a time, a batch of messages in one step."""

import asyncio
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from time import perf_counter
from typing import Any

from fjm2.bus.callbacks import calling_thread_of, raised_by_callback
from fjm2.bus.errors import ListenerError
from fjm2.bus.inbox import Delivery, Inbox
from fjm2.messages.header import EXPIRATION, KIND, Kind
from fjm2.messages.message import Message, open_message

from .deliveries import Deliveries, Opener
from .ready_queue import ReadyQueue

TURN_S = 0.002
"""Time for which listeners run before other tasks of the loop get their turn."""
_BATCH_MESSAGES_MAX = 64
"""Greatest number of messages of one consumer before the next consumer's turn: enough to spread the cost of a turn, and
still fair."""

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
        report: Callable[[Exception], None],
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
        self._has_work = asyncio.Event()
        self.ready = ReadyQueue(self._has_work.set)
        """Inboxes that have messages for their listeners."""

    def listen(self, inbox: Inbox, listener: Any) -> None:
        """Set the listener of an inbox. None removes it. The first listener starts the task."""
        inbox.listener = listener
        if listener is None:
            self.ready.remove(inbox)
        elif not inbox.is_closed:
            self.ready.add(inbox)
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        """Make the task look for messages again."""
        self._has_work.set()

    def interrupt(self, *, recovers_current: bool = False) -> None:
        """End the batch after the current message. With `recovers_current`, deliver that message again."""
        if self.running is not None:
            self._is_interrupted = True
            if recovers_current:
                self._recovers_current = True

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
                self._has_work.clear()
                await self._has_work.wait()
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
                may_go_on = self.is_started and not self._is_ending and perf_counter() < end
                inbox = ready.begin_turn() if may_go_on else None
            await asyncio.sleep(0)

    def _batch_of(self, inbox: Inbox, end: float) -> Awaitable[None]:
        """Return a coroutine that delivers messages of an inbox to its listener."""
        listener: Any = inbox.listener
        if isinstance(listener, ThreadListener):
            return self._run_in_thread(inbox, listener)
        if self.wrap_listener is not _unwrapped:
            listener = self.wrap_listener(listener)
        if inbox.again or self._deliveries.is_tracking:
            return self._run_any(inbox, listener)
        return self._run_new(inbox, listener, end)

    async def _run_any(self, inbox: Inbox, listener: Any) -> None:
        """Deliver messages of any kind. Redelivered messages are in the order of all inboxes: the next one may be
        another inbox's."""
        for _ in range(1 if inbox.again else _BATCH_MESSAGES_MAX):
            delivery = self._opener.take(inbox)
            if delivery is None or not await self._run_one(delivery, listener):
                return

    def _end_interrupt(self) -> None:
        self._is_interrupted = self._recovers_current = False
        self._on_interrupted()

    async def _run_new(self, inbox: Inbox, listener: Any, end: float) -> None:
        """Deliver new messages of a session that acknowledges them by itself. This is the short way, which most
        messages take."""
        pop, release, destination = inbox.pop, inbox.release, inbox.message_destination
        hook = self._opener.acknowledge_hook
        # Looking for one message more costs a consumer that has just one as much as that message.
        count = _BATCH_MESSAGES_MAX if inbox.is_shared else min(inbox.held, _BATCH_MESSAGES_MAX)
        for _ in range(count):
            received = pop()
            if received is None:
                return
            header = received.header
            if header[EXPIRATION] or received.gap is not None or inbox.gaps or header[KIND] == _OBJECT:
                inbox.put_back(received)
                delivery = self._opener.take(inbox)
                if delivery is None or not await self._run_one(delivery, listener):
                    return
                continue
            message = open_message(received.head, received.body, header, 1, hook, destination)
            try:
                result = listener(message)
                if result is not None and isawaitable(result):
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
            self._report(ListenerError("a message listener raised", linked_exception=error))
        if not is_tracking:
            if self._recovers_current:
                self._deliveries.deliver_again(delivery)
            else:
                delivery.inbox.release(delivery.received)
        return not self._is_interrupted

    def _fail(self, delivery: Delivery, error: BaseException) -> None:
        if not self._deliveries.retry(delivery):
            reason = f"a message listener raised {delivery.count} times at {self._opener.open(delivery).message_id}"
            self._report(ListenerError(reason, linked_exception=error))

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
            return self._is_interrupted

        done, error = await listener.run(messages, is_over)
        failed = batch[done] if error is not None else None
        for delivery in reversed(batch[done + (failed is not None) :]):
            self._deliveries.give_back(delivery)
        if is_tracking:
            if error is not None:
                self._report(ListenerError("a message listener raised", linked_exception=error))
            return
        finished = batch[:done]
        if failed is not None and error is not None:
            self._fail(failed, error)
        elif self._recovers_current and finished:
            self._deliveries.deliver_again(finished.pop())
        for delivery in finished:
            inbox.release(delivery.received)
