"""A session's receiving half: whose turn it is, who acknowledges what, and what is delivered once more.

Listeners run one at a time in the session's own task, a batch of messages in one step; `receive` takes directly. In
CLIENT_ACKNOWLEDGE and transacted mode all that was delivered is kept in order until it is acknowledged, otherwise only
the message that a listener or a loop is working on.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from time import perf_counter, time
from typing import Any, cast

from fjm2.base.done import DONE
from fjm2.bus.callbacks import calling_thread_of, raised_by_callback
from fjm2.bus.errors import ListenerError
from fjm2.bus.inbox import Delivery, Inbox, Received, is_expired
from fjm2.messages.errors import IllegalStateError, MessageFormatError
from fjm2.messages.header import EXPIRATION, KIND, Kind
from fjm2.messages.message import Message, open_message, put_property
from fjm2.messages.object_codec import ObjectCodec
from fjm2.messages.object_message import ObjectMessage

from .settings import SessionMode

TURN_S = 0.002
"""After so much work for listeners, others get their turn."""
_BATCH = 64
"""So many messages of one consumer before the next consumer's turn."""
GAP = "JMS_FJM2_Gap"

_OBJECT = int(Kind.OBJECT)


RunBatch = Callable[[list[Message], Callable[[], bool]], Awaitable[tuple[int, BaseException | None]]]
"""Works through messages until there are no more, one raises, or the function given says to stop: how many were done,
and what the next raised."""


class ThreadListener:
    """A listener that blocks, and therefore runs in a thread. It gets a batch of messages at a time."""

    def __init__(self, run: RunBatch, listener: Any) -> None:
        self.run = run
        self.listener = listener


def _itself(listener: Any) -> Any:
    return listener


class Dispatcher:
    def __init__(
        self, mode: SessionMode, codec: ObjectCodec, redeliveries_max: int, report: Callable[[Exception], None]
    ) -> None:
        self.mode = mode
        self.inboxes: list[Inbox] = []
        self.is_closed = False
        self._is_closing = False
        self.acknowledge_hook: Callable[[], Awaitable[None]] = self.acknowledge
        """What `message.acknowledge()` calls."""
        self.around: Callable[[Any], Any] = _itself
        """Makes another listener of each, to be called in its place."""
        self._is_tracking = mode in (SessionMode.CLIENT_ACKNOWLEDGE, SessionMode.SESSION_TRANSACTED)
        self._codec = codec
        self._redeliveries_max = redeliveries_max
        self._report = report
        self._unacknowledged: list[Delivery] = []
        self._looped: dict[Inbox, Delivery] = {}
        """The message that the body of a consumer's loop is working on, where that is not tracked."""
        self._serial = 0
        self._is_started = False
        self._interrupt = False
        """Ends the batch after the current message."""
        self._recover_current = False
        self._running: Inbox | None = None
        """Whose listener is being called."""
        self._receiving_at: Inbox | None = None
        self._task: asyncio.Task[None] | None = None
        self._has_work = asyncio.Event()
        self._work_has_come = self._has_work.set
        self._changed = asyncio.Event()
        """Set after each batch and each receive, for those who wait that it ends."""

    # Life.

    def start(self) -> None:
        self._is_started = True
        self._has_work.set()
        for inbox in self.inboxes:
            if inbox.wake is not None:
                inbox.wake()

    async def stop(self) -> None:
        """No listener runs any more. Receives that wait go on waiting."""
        self.halt()
        while self._running is not None:
            await self._next_change()

    def halt(self) -> None:
        """Begin to stop."""
        self._is_started = False
        self._interrupt = True

    async def close(self) -> None:
        """Wait for the listener that runs, and keeps all service, and for a receive that waits, which gets None."""
        self._is_closing = self._interrupt = True
        for inbox in list(self.inboxes):
            inbox.is_closed = True
            self._wake(inbox)
        self._has_work.set()
        while self._running is not None or self._receiving_at is not None:
            await self._next_change()
        if self._task is not None:
            await self._task
        self.is_closed = True

    async def close_inbox(self, inbox: Inbox) -> None:
        """Wait for its listener, unless that is who asks, and for a receive that waits, which gets None."""
        if inbox.is_closed:
            return
        inbox.is_closed = self._interrupt = True
        self.inboxes.remove(inbox)
        self._wake(inbox)
        while (self._running is inbox and not self.is_in_listener()) or self._receiving_at is inbox:
            await self._next_change()

    def check_open(self) -> None:
        if self.is_closed:
            raise IllegalStateError("the session is closed")

    def is_in_listener(self) -> bool:
        if calling_thread_of.get() is self:
            return True
        return self._running is not None and asyncio.current_task() is self._task

    def check_not_in_listener(self, call: str) -> None:
        if self.is_in_listener():
            raise IllegalStateError(f"{call} is not for a listener of the session itself")

    def check_not_listening(self, call: str) -> None:
        """A session that listens is its listeners' only."""
        if self._is_started and self.has_listener() and not self.is_in_listener():
            raise IllegalStateError(f"{call} while the session has a message listener")

    def has_listener(self) -> bool:
        return any(inbox.listener is not None for inbox in self.inboxes)

    async def _next_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _wake(self, inbox: Inbox) -> None:
        self._has_work.set()
        if inbox.wake is not None:
            inbox.wake()

    # Consumers.

    def add(self, inbox: Inbox) -> None:
        self.inboxes.append(inbox)

    def listen(self, inbox: Inbox, listener: Any) -> None:
        """From the next message on."""
        if listener is not None and self._receiving_at is not None:
            raise IllegalStateError("a receive is waiting on this session: it cannot have a message listener")
        inbox.listener = listener
        self._interrupt = True
        self._has_work.set()
        if listener is not None and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    # Taking.

    async def receive(self, inbox: Inbox, timeout_s: float | None) -> Delivery | None:
        """The next message; None when the time is over or the consumer is closed."""
        self.check_open()
        if inbox.is_closed:
            raise IllegalStateError("the consumer is closed")
        if self._receiving_at is not None:
            raise IllegalStateError("another receive is waiting on this session")
        if self.has_listener():
            raise IllegalStateError("receive on a session that has a message listener")
        delivery = self._take(inbox) if self._is_started else None
        if delivery is not None or (timeout_s is not None and timeout_s <= 0):
            return delivery
        return await self._wait(inbox, timeout_s)

    async def _wait(self, inbox: Inbox, timeout_s: float | None) -> Delivery | None:
        arrived = asyncio.Event()
        inbox.wake = arrived.set
        self._receiving_at = inbox
        try:
            async with asyncio.timeout(timeout_s):
                while not inbox.is_closed:
                    delivery = self._take(inbox) if self._is_started else None
                    if delivery is not None:
                        return delivery
                    arrived.clear()
                    await arrived.wait()
        except TimeoutError:
            pass
        finally:
            inbox.wake = self._receiving_at = None
            self._changed.set()
        return None

    def _take(self, inbox: Inbox) -> Delivery | None:
        """Whatever is next there. The caller opens it, and says what becomes of it."""
        delivery = inbox.pop_again()
        if delivery is not None:
            return delivery
        received = self._pop(inbox)
        return None if received is None else self._deliver_first(received, inbox)

    def _pop(self, inbox: Inbox) -> Received | None:
        """The next that was never delivered, and has not expired."""
        while (received := inbox.pop()) is not None:
            if not received.header[EXPIRATION] or not is_expired(received, time() * 1000):
                return received
            inbox.release(received)
        return None

    def _deliver_first(self, received: Received, inbox: Inbox) -> Delivery:
        self._serial += 1
        return Delivery(received, inbox, 1, self._serial, received.has_gap or inbox.take_gap())

    def open(self, delivery: Delivery) -> Message:
        received = delivery.received
        message = open_message(
            received.head,
            received.body,
            received.header,
            delivery.count,
            self.acknowledge_hook,
            delivery.inbox.destination,
        )
        if received.header[KIND] == _OBJECT:
            cast(ObjectMessage, message).codec = self._codec
        if delivery.has_gap:
            with contextlib.suppress(MessageFormatError):  # which is for those to hear who ask for a property
                put_property(message, GAP, True)
        return message

    def consume(self, delivery: Delivery) -> None:
        """It was handed to the client, who acknowledges it, or else has done so thereby."""
        if self._is_tracking:
            self._unacknowledged.append(delivery)
        else:
            self._looped.pop(delivery.inbox, None)
            delivery.inbox.release(delivery.received)

    def consume_in_loop(self, delivery: Delivery) -> None:
        """It is acknowledged when the loop asks for the next; until then it may come again."""
        if self._is_tracking:
            self._unacknowledged.append(delivery)
        else:
            self._looped[delivery.inbox] = delivery

    def acknowledge_looped(self, inbox: Inbox) -> None:
        delivery = self._looped.pop(inbox, None)
        if delivery is not None:
            inbox.release(delivery.received)

    def refuse(self, delivery: Delivery) -> None:
        """The client could not use it: it counts as delivered, or comes again as if nothing had been."""
        if self._is_tracking:
            self._unacknowledged.append(delivery)
        else:
            self.give_back(delivery)

    def give_back(self, delivery: Delivery) -> None:
        """It was not handed to the client after all."""
        delivery.inbox.again.appendleft(delivery)

    # Acknowledging.

    def acknowledge(self) -> Awaitable[None]:
        """In CLIENT_ACKNOWLEDGE mode, all that was delivered so far."""
        self.check_open()
        if self.mode is SessionMode.CLIENT_ACKNOWLEDGE:
            self.acknowledge_all()
        return DONE

    @property
    def unacknowledged(self) -> int:
        """Messages that were delivered, and are not acknowledged."""
        return len(self._unacknowledged) + len(self._looped)

    def acknowledge_all(self) -> None:
        unacknowledged, self._unacknowledged = self._unacknowledged, []
        for delivery in unacknowledged:
            delivery.inbox.release(delivery.received)

    def recover(self) -> None:
        """Start over with the first message that is not acknowledged."""
        unacknowledged = [*self._looped.values(), *self._unacknowledged]
        self._unacknowledged = []
        self._looped.clear()
        self._recover_current = self._interrupt = True
        for delivery in reversed(unacknowledged):
            delivery.count += 1
            if delivery.inbox.is_closed:
                delivery.inbox.release(delivery.received)
            else:
                delivery.inbox.again.appendleft(delivery)
        for inbox in {delivery.inbox for delivery in unacknowledged}:
            self._wake(inbox)

    def take_unacknowledged(self, inbox: Inbox) -> list[Delivery]:
        """Forget what a consumer was given: it goes back to its queue."""
        mine = [delivery for delivery in self._unacknowledged if delivery.inbox is inbox]
        if inbox in self._looped:
            mine.append(self._looped.pop(inbox))
        self._unacknowledged = [delivery for delivery in self._unacknowledged if delivery.inbox is not inbox]
        return mine

    # Listeners.

    async def _run(self) -> None:
        while not self._is_closing:
            inbox = self._next_inbox() if self._is_started else None
            if inbox is None:
                await self._wait_for_work()
                continue
            end = perf_counter() + TURN_S
            while inbox is not None and self._is_started and not self._is_closing:
                await self._run_batch(inbox, end)
                inbox = self._next_inbox() if perf_counter() < end else None
            await asyncio.sleep(0)

    async def _wait_for_work(self) -> None:
        """Inboxes wake only those who wait: it costs something for each message."""
        self._has_work.clear()
        listening = [inbox for inbox in self.inboxes if inbox.listener is not None]
        for inbox in listening:
            inbox.wake = self._work_has_come
        await self._has_work.wait()
        for inbox in listening:
            if inbox.wake is self._work_has_come:  # by now it may be a receive's
                inbox.wake = None

    def _next_inbox(self) -> Inbox | None:
        """What is delivered once more comes first, in the order in which it was delivered; the others take turns."""
        listening = [inbox for inbox in self.inboxes if inbox.listener is not None and inbox.has_waiting()]
        if not listening:
            return None
        again = [inbox for inbox in listening if inbox.again]
        if again:
            return min(again, key=lambda inbox: inbox.again[0].serial)
        if len(listening) > 1:
            self.inboxes.remove(listening[0])
            self.inboxes.append(listening[0])
        return listening[0]

    async def _run_batch(self, inbox: Inbox, end: float) -> None:
        listener: Any = inbox.listener
        if not isinstance(listener, ThreadListener):
            listener = self.around(listener)
        self._running = inbox
        self._clear_interrupt()
        try:
            if isinstance(listener, ThreadListener):
                await self._run_in_thread(inbox, listener)
            elif inbox.again or self._is_tracking:
                # What comes again is in the order of all inboxes: the next one may be another's.
                for _ in range(1 if inbox.again else _BATCH):
                    delivery = self._take(inbox)
                    if delivery is None or not await self._run_one(delivery, listener):
                        return
            else:
                await self._run_new(inbox, listener, end)
        finally:
            self._running = None
            self._changed.set()

    def _clear_interrupt(self) -> None:
        self._interrupt = self._recover_current = False

    async def _run_new(self, inbox: Inbox, listener: Any, end: float) -> None:
        """The short way: messages that were never delivered, in a mode that acknowledges by itself."""
        pop, release, hook, destination = inbox.pop, inbox.release, self.acknowledge_hook, inbox.destination
        for _ in range(_BATCH):
            received = pop()
            if received is None:
                return
            header = received.header
            if header[EXPIRATION] or received.has_gap or inbox.has_gap or header[KIND] == _OBJECT:
                # Whatever is not plain goes the long way.
                inbox.put_back(received)
                delivery = self._take(inbox)
                if delivery is None or not await self._run_one(delivery, listener):
                    return
                continue
            message = open_message(received.head, received.body, header, 1, hook, destination)
            try:
                result = listener(message)
                if result is not None and isawaitable(result):
                    await result
            except (Exception, asyncio.CancelledError) as error:
                self._run_again(self._deliver_first(received, inbox), raised_by_callback(error))
                return
            if self._interrupt:
                if self._recover_current:
                    self._put_again(self._deliver_first(received, inbox))
                else:
                    release(received)
                return
            release(received)
            if perf_counter() > end:
                return

    async def _run_one(self, delivery: Delivery, listener: Any) -> bool:
        """Whether the batch may go on."""
        if self._is_tracking:
            self._unacknowledged.append(delivery)
        try:
            result = listener(self.open(delivery))
            if result is not None and isawaitable(result):
                await result
        except (Exception, asyncio.CancelledError) as error:
            raised_by_callback(error)
            if not self._is_tracking:
                self._run_again(delivery, error)
                return False
            self._report(ListenerError("a message listener raised", linked_exception=error))
        if not self._is_tracking:
            if self._recover_current:
                self._put_again(delivery)
            else:
                delivery.inbox.release(delivery.received)
        return not self._interrupt

    def _run_again(self, delivery: Delivery, error: BaseException) -> None:
        """After the listener raised, where nobody else would bring the message back."""
        if delivery.count <= self._redeliveries_max:
            self._put_again(delivery)
            return
        delivery.inbox.release(delivery.received)
        reason = f"a message listener raised {delivery.count} times at {self.open(delivery).message_id}"
        self._report(ListenerError(reason, linked_exception=error))

    def _put_again(self, delivery: Delivery) -> None:
        delivery.count += 1
        delivery.inbox.again.appendleft(delivery)

    async def _run_in_thread(self, inbox: Inbox, listener: ThreadListener) -> None:
        # What is tracked can be acknowledged or recovered in the middle of a batch, which therefore is one message.
        size = 1 if self._is_tracking or inbox.again or inbox.is_shared else _BATCH
        batch = [delivery for _ in range(size) if (delivery := self._take(inbox))]
        if not batch:
            return
        if self._is_tracking:
            self._unacknowledged += batch
        done, error = await listener.run([self.open(delivery) for delivery in batch], lambda: self._interrupt)
        failed = batch[done] if error is not None else None
        for delivery in reversed(batch[done + (failed is not None) :]):
            self.give_back(delivery)
        if self._is_tracking:
            if error is not None:
                self._report(ListenerError("a message listener raised", linked_exception=error))
            return
        worked = batch[:done]
        if failed is not None and error is not None:
            self._run_again(failed, error)
        elif self._recover_current and worked:
            self._put_again(worked.pop())
        for delivery in worked:
            inbox.release(delivery.received)
