"""A session's receiving half: calls of `receive`, listeners, acknowledgement and redelivery."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from functools import partial
from typing import Any, Final

from fjm2.base.done import DONE
from fjm2.base.wait import Wait
from fjm2.bus.inbox import Delivery, Inbox
from fjm2.bus.waiting.home_loop import HomeLoop
from fjm2.messages.errors import IllegalStateError, JMSError
from fjm2.messages.object_codec import ObjectCodec

from .deliveries import BatchItem, Deliveries, Opener, may_deliver, messages_in
from .listener_task import ListenerTask
from .runs import Run
from .settings import SessionMode

TOLD_AFTER_S: Final = 5.0
"""Time after which a wait for a listener is told."""
ANOTHER_SESSION: Final = "use another session, from connection.create_session() or context.create_context()"
"""Remedy for a session that is in use."""


class DispatcherState(Enum):
    """Lifecycle of a session's receiving half."""

    OPEN = auto()
    CLOSING = auto()
    """Waiting receives return, and the running listener finishes. The listener may still use the session."""
    CLOSED = auto()


MOVES: Final = {
    DispatcherState.OPEN: {DispatcherState.CLOSING},
    DispatcherState.CLOSING: {DispatcherState.CLOSED},
    DispatcherState.CLOSED: set[DispatcherState](),
}
"""States that may follow each state."""


def _check_consumer(inbox: Inbox) -> None:
    """Raise IllegalStateError if the consumer of an inbox is closed."""
    if inbox.is_closed:
        raise IllegalStateError("the consumer is closed: create another one")


class Dispatcher:
    """Hands messages to the consumers of one session: to receives, one for each consumer, or to one listener at a
    time."""

    def __init__(
        self, mode: SessionMode, codec: ObjectCodec, redeliveries_max: int, report: Callable[[JMSError], None]
    ) -> None:
        self.mode = mode
        self.report: Final = report
        """Function that passes an error to the exception listener."""
        self.inboxes: Final[dict[Inbox, None]] = {}
        """Inboxes of the session's open consumers."""
        self.deliveries: Final = Deliveries(mode, redeliveries_max, self._note_again)
        self.opener: Final = Opener(codec, self.acknowledge)
        self._changed = asyncio.Event()
        """Set after each batch of a listener, and after each receive that waited, for callers that wait until these
        end."""
        self.listeners: Final = ListenerTask(self, self.opener, self.deliveries, report, self._changed.set)
        self.home: Final = HomeLoop()
        self.decide: Callable[[], Awaitable[None]] | None = None
        """Function that has the cell decide what was acknowledged of durable subscriptions, and returns an awaitable
        of the decision. None if the session has none."""
        self.has_threads = False
        """True if threads use the session. JMS then allows only one receive at a time."""
        self.closed_text = "the session, or its context, is closed: create another one"
        """Text of the error of a call when the session is closed."""
        self._state = DispatcherState.OPEN
        self._runs: dict[Inbox, Run] = {}
        """Runs of the consumers that threads use."""
        self._gathered: dict[Inbox, list[BatchItem]] = {}
        """Messages of batches that wait for more."""
        self._receiving: dict[Inbox, Callable[[], None]] = {}
        """Inboxes that a receive waits at, and the function that wakes it."""

    def start(self) -> None:
        """Deliver messages from now on. Calling this twice does no harm."""
        self.listeners.is_started = True
        self.listeners.wake()
        for wake in self._receiving.values():
            wake()

    async def stop(self) -> None:
        """Stop delivering messages, and wait for the running listener. Waiting receives go on waiting."""
        self.halt()
        await self._while(lambda: self.listeners.running is not None)

    def halt(self) -> None:
        """Stop delivering messages, without waiting for the running listener."""
        self.listeners.is_started = False
        self.listeners.interrupt()
        self._take_back()

    def begin_closing(self) -> None:
        """Deliver nothing more, and make no sender wait. Waiting receives return None."""
        for run in self._runs.values():
            run.take_back()
        for inbox in list(self.inboxes):
            inbox.close()

    def cut_off(self, text: str) -> None:
        """Refuse all calls from now on with this text. Wait for nothing, and wake nobody."""
        self._state, self.closed_text = DispatcherState.CLOSED, text
        for run in self._runs.values():
            run.cut_off()
        for inbox in self.inboxes:
            inbox.is_closed = True

    async def close(self) -> None:
        """Close the receiving half. Wait for the running listener, which can go on using the session. A waiting receive
        returns None."""
        self._move_to(DispatcherState.CLOSING)
        self.listeners.begin_ending()
        self.begin_closing()
        self.listeners.wake()
        await self._while(lambda: self.listeners.running is not None or bool(self._receiving))
        await self.listeners.ended()
        self._move_to(DispatcherState.CLOSED)

    def _move_to(self, state: DispatcherState) -> None:
        if state not in MOVES[self._state]:
            raise AssertionError(f"{self._state} to {state}")
        self._state = state

    def add(self, inbox: Inbox) -> None:
        """Begin to deliver the messages of an inbox."""
        self.inboxes[inbox] = None

    async def close_inbox(self, inbox: Inbox) -> None:
        """Close an inbox. Wait for its listener, unless that is the caller. A receive that waits at the inbox returns
        None."""
        if inbox.is_closed:
            return
        inbox.close()
        self.listeners.interrupt()
        del self.inboxes[inbox]
        run = self._runs.pop(inbox, None)
        if run is not None:
            run.take_back()
        self.listeners.ready.remove(inbox)
        self._wake(inbox)
        is_called = self.listeners.is_current()
        await self._while(lambda: (self.listeners.running is inbox and not is_called) or inbox in self._receiving)
        if not inbox.is_shared:
            self.deliveries.acknowledge_batch(inbox)

    def check_not_closed(self) -> None:
        """Raise IllegalStateError if the session is closed. Any thread may ask."""
        if self._state is DispatcherState.CLOSED:
            raise IllegalStateError(self.closed_text)

    def check_open(self) -> None:
        """Raise IllegalStateError if the session is closed, or used in another event loop."""
        if self._state is DispatcherState.CLOSED:
            raise IllegalStateError(self.closed_text)
        self.home.check()

    def check_not_in_listener(self, call: str) -> None:
        """Raise IllegalStateError if called in a listener of this session, because `call` would wait for its own
        caller."""
        if self.listeners.is_current():
            raise IllegalStateError(
                f"{call} in a message listener of the same session would wait for itself: call it in another task"
            )

    def check_not_listening(self, call: str) -> None:
        """Raise IllegalStateError if the session has a listener and the caller is no listener. JMS leaves such a
        session to listeners."""
        if self.listeners.is_started and self.listeners.ready.has_listener and not self.listeners.is_current():
            raise IllegalStateError(
                f"{call}: the session has a message listener, and only that may use it: {ANOTHER_SESSION}"
            )

    async def _while(self, is_busy: Callable[[], bool]) -> None:
        """Wait while listeners or receives keep something busy. Name the listener if it takes long."""
        told_after_s: float | None = TOLD_AFTER_S
        while is_busy():
            self._changed.clear()
            try:
                async with asyncio.timeout(told_after_s):
                    await self._changed.wait()
            except TimeoutError:
                told_after_s = None
                self.listeners.tell_running()

    def _note_again(self, delivery: Delivery) -> None:
        self.listeners.ready.put_again(delivery)

    def _wake(self, inbox: Inbox) -> None:
        self.listeners.wake()
        if inbox.wake is not None:
            inbox.wake()

    @property
    def wrap_listener(self) -> Callable[[Any], Any]:
        """Function that wraps each listener before it is called. Telemetry sets it, to put a span around each call."""
        return self.listeners.wrap_listener

    @wrap_listener.setter
    def wrap_listener(self, wrap: Callable[[Any], Any]) -> None:
        self.listeners.wrap_listener = wrap

    def listen(self, inbox: Inbox, listener: Any) -> None:
        """Set the listener of an inbox, which is called from the next message on. None removes it."""
        if listener is not None:
            _check_consumer(inbox)
        if listener is not None and self._receiving:
            raise IllegalStateError(
                f"a receive is waiting on this session, which cannot have a listener as well: {ANOTHER_SESSION}"
            )
        self._take_back()
        self.deliveries.end_batches(inbox)
        self.listeners.interrupt()
        self.listeners.listen(inbox, listener)

    def add_run(self, inbox: Inbox, tell: Callable[[Callable[[], object]], object]) -> Run:
        """Return the run by which the thread of a consumer receives. `tell` calls a function soon in the loop."""
        run = self._runs[inbox] = Run(inbox, self.deliveries, tell)
        return run

    def _take_back(self) -> None:
        """Take back what threads have not taken, and the batches that wait for more, before something that concerns all
        messages that wait."""
        for run in self._runs.values():
            run.take_back()
        for inbox, items in self._gathered.items():
            self.deliveries.give_back_batch(items)
            items.clear()
            self._receiving[inbox]()

    async def receive_run(self, inbox: Inbox, timeout_s: float | None) -> bool:
        """Wait for the next message like `receive`. Hand it over to the run of the inbox, with those that wait behind
        it. Return False if there is none."""
        run = self._runs.get(inbox)
        if run is not None:
            run.take_back()
        delivery = await self.receive(inbox, timeout_s)
        if delivery is None or run is None:
            return False
        run.fill(delivery, self.opener)
        return True

    async def receive(self, inbox: Inbox, timeout_s: float | None) -> Delivery | None:
        """Return the next message, or None after `timeout_s`, or if the consumer is closed meanwhile.

        The caller lets `opener` open the delivery, and tells `deliveries` what becomes of it.
        """
        self._check_may_receive(inbox, "receive")
        if inbox.takes_runs:
            self.deliveries.end_batches(inbox)
        delivery = self.opener.take(inbox) if self.listeners.is_started else None
        if delivery is not None:
            return delivery
        if timeout_s is not None:
            if not isinstance(timeout_s, int | float):
                raise TypeError(f"timeout={timeout_s!r}: expected seconds, or None to wait for ever")
            if timeout_s <= 0:
                if not inbox.is_settling:
                    return None
                await inbox.settled()  # otherwise a message that waits would seem not to be there
                return self.opener.take(inbox) if self.listeners.is_started and not inbox.is_closed else None
        return await self._wait(inbox, timeout_s)

    async def receive_batch(self, inbox: Inbox, messages_max: int, wait_s: float) -> list[BatchItem]:
        """Return the next messages; none if the consumer is closed meanwhile. Wait for the first, and then for others,
        for up to `wait_s`, while there is room for them."""
        self._check_may_receive(inbox, "batches")
        run = self._runs.get(inbox)
        if run is not None:
            run.take_back()
        inbox.begin_runs()

        def take(count_max: int) -> list[BatchItem]:
            if not self.listeners.is_started or inbox.is_closed:
                return []
            return self.opener.take_many(inbox, count_max)

        items = take(messages_max)
        if items and (wait_s <= 0 or messages_in(items) >= messages_max):
            return items
        arrived = asyncio.Event()
        inbox.wake = self._receiving[inbox] = arrived.set
        self._gathered[inbox] = items

        async def more() -> None:
            await arrived.wait()
            arrived.clear()
            items.extend(take(messages_max - messages_in(items)))

        try:
            while True:
                while not items and not inbox.is_closed:
                    await more()
                if wait_s > 0:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(wait_s):
                            while messages_in(items) < messages_max and not (inbox.is_closed or inbox.has_little_room):
                                await more()
                if not may_deliver(inbox, items):
                    self.deliveries.give_back_batch(items)
                    items.clear()
                if items or inbox.is_closed:  # unless a stop or a recover took them back
                    break
        except BaseException:
            self.deliveries.give_back_batch(items)
            raise
        finally:
            inbox.wake = None
            del self._receiving[inbox], self._gathered[inbox]
            self._changed.set()
        return items

    def _check_may_receive(self, inbox: Inbox, call: str) -> None:
        self.check_open()
        _check_consumer(inbox)
        if inbox in self._receiving:
            raise IllegalStateError(
                f"another receive is waiting at this consumer of {inbox.destination}, which can have only one:"
                " create a consumer for each task"
            )
        if self._receiving and self.has_threads:
            raise IllegalStateError(
                f"another receive is waiting on this session, which can have only one: {ANOTHER_SESSION}"
            )
        if self.listeners.ready.has_listener:
            raise IllegalStateError(f"{call}: the session has a message listener: {ANOTHER_SESSION}")

    async def _wait(self, inbox: Inbox, timeout_s: float | None) -> Delivery | None:
        wait = Wait()
        inbox.wake = self._receiving[inbox] = wait.wake
        try:
            if timeout_s is not None:
                wait.end_after(timeout_s)
            while not wait.is_over:
                await wait
                if inbox.is_closed:
                    return None
                delivery = self.opener.take(inbox) if self.listeners.is_started else None
                if delivery is not None:
                    return delivery
        finally:
            wait.close()
            inbox.wake = None
            del self._receiving[inbox]
            self._changed.set()
        return None

    def acknowledge(self) -> Awaitable[None]:
        """Acknowledge everything delivered so far, in CLIENT_ACKNOWLEDGE mode."""
        self.check_open()
        if self.mode is SessionMode.CLIENT_ACKNOWLEDGE:
            self.acknowledge_all()
            if self.decide is not None:
                return self.decide()
        return DONE

    def acknowledge_all(self) -> None:
        """Acknowledge everything delivered so far."""
        self.deliveries.acknowledge_all()

    def begin_commit(self) -> Callable[[], None]:
        """Return a function that acknowledges the messages delivered so far. A commit calls it after it has waited:
        messages that other tasks receive meanwhile belong to the next transaction."""
        return partial(self.deliveries.acknowledge, self.deliveries.unacknowledged)

    def recover(self) -> None:
        """Redeliver messages, beginning with the first one that is not acknowledged."""
        self._take_back()
        self.listeners.interrupt(recovers_current=True)
        for inbox in self.deliveries.recover():
            self._wake(inbox)
