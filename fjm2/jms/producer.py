"""Producers, and the options of their sends."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Iterable, Mapping
from inspect import currentframe
from time import perf_counter
from types import TracebackType
from typing import Any, Self, TypedDict
from weakref import ref

from fjm2.base.functions import FixedAttributes
from fjm2.base.logs import Log
from fjm2.base.quantities import counted, duration_text
from fjm2.bus.completions import CompletionListener, check_listener
from fjm2.bus.publication import BatchPost, Outbox, Post
from fjm2.bus.statistics import ProducerStatistics
from fjm2.bus.waiting.room import Room
from fjm2.messages.delivery import DEFAULT_PRIORITY, DeliveryMode
from fjm2.messages.destination import Destination, not_a_destination
from fjm2.messages.errors import IllegalStateError, InvalidDestinationError, JMSError
from fjm2.messages.files.file_message import FileMessage
from fjm2.messages.header import DELAYED, NO_MESSAGE_ID, NO_TIMESTAMP, PERSISTENT, PRIORITY_MAX
from fjm2.messages.message import Message
from fjm2.messages.properties import PropertyColumn
from fjm2.messages.types import PropertyValue

from .batches.outgoing import frame_batch, listed, messages_in, sendable
from .last_values.need import Need, need_of, need_of_all
from .last_values.retaining import Retain, Retaining

log = Log("fjm2.jms")

_LONG_MAX = (1 << 63) - 1


def check_delivery_mode(value: int) -> int:
    """Return the flag of a delivery mode. Raise JMSError if there is no such mode."""
    if type(value) is bool or value not in (1, 2):
        raise JMSError(f"delivery_mode={value!r}: expected DeliveryMode.PERSISTENT or DeliveryMode.NON_PERSISTENT")
    return PERSISTENT if value == DeliveryMode.PERSISTENT else 0


def check_priority(value: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= PRIORITY_MAX:
        raise JMSError(f"priority={value!r}: expected a whole number from 0 to {PRIORITY_MAX}")
    return value


def check_time_to_live(value: int) -> int:
    # Half of the range: the sum with the present time has to be a long, too.
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LONG_MAX >> 1:
        raise JMSError(f"time_to_live={value!r}: expected whole milliseconds, or 0 for ever")
    return value


def check_delivery_delay(value: int) -> int:
    # As for the time to live.
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LONG_MAX >> 1:
        raise JMSError(f"delivery_delay={value!r}: expected whole milliseconds, or 0 to deliver at once")
    return value


def delayed(message: object, flags: int, time_to_live: int, delivery_delay: int) -> int:
    """Return the flags of a message. Raise JMSError if it cannot be delayed, or would expire before it is due."""
    if not delivery_delay:
        return flags
    if isinstance(message, FileMessage):
        raise JMSError(f"delivery_delay={delivery_delay}: a file cannot be delayed: expected 0")
    if 0 < time_to_live <= delivery_delay:
        raise JMSError(
            f"time_to_live={time_to_live}: the message would have expired at its delivery: expected more than "
            f"delivery_delay={delivery_delay}, or 0 for ever"
        )
    return flags | DELAYED


def check_destination(destination: object) -> Destination:
    if not isinstance(destination, Destination):
        if isinstance(destination, Message):
            raise InvalidDestinationError(
                f"{destination!r} is no destination: a MessageProducer takes send(message, destination), "
                "a context and its producers take send(destination, message)"
            )
        raise not_a_destination(destination)
    return destination


class MessageOptions(TypedDict, total=False):
    """Options of one message, for `send`, `reply` and `request` of a context. All may be left out."""

    properties: Mapping[str, PropertyValue] | None
    """Properties of the message."""
    delivery_mode: int | None
    """PERSISTENT, the default, or NON_PERSISTENT."""
    priority: int | None
    """Priority, 0 to 9; 4 by default."""
    time_to_live: int | None
    """Milliseconds after which the message is not delivered any more; 0, the default, means for ever."""
    delivery_delay: int | None
    """Milliseconds before which the message is not delivered; 0 by default."""
    correlation_id: str | None
    """Text that links the message to another."""
    type: str | None
    """JMSType of the message, a name of the application's choice."""
    retain: Retain
    """True, or the name of a property: keepers keep the message as the last value of its topic, or of its topic for
    this value of the property. False by default."""


_Caller = asyncio.Task[Any] | threading.Thread


def _caller() -> _Caller:
    """Return the task that calls, or the thread if there is no task."""
    try:
        return asyncio.current_task() or threading.current_thread()
    except RuntimeError:  # no event loop in this thread
        return threading.current_thread()


def _place_outside() -> str:
    """Return file and line of the program that called this package."""
    frame = currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("fjm2.jms."):
        frame = frame.f_back
    return "an unknown place" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _is_running(caller: _Caller) -> bool:
    return caller.is_alive() if isinstance(caller, threading.Thread) else not caller.done()


class Sends:
    """Counters of one producer."""

    __slots__ = ("messages", "waited_s", "waits")

    def __init__(self) -> None:
        self.messages = 0
        """Number of messages sent."""
        self.waits = 0
        """Number of sends that waited for room."""
        self.waited_s = 0.0
        """Time for which they waited, in seconds."""

    def note_wait(self, seconds: float) -> None:
        self.waits += 1
        self.waited_s += seconds


class SendOptions(FixedAttributes):
    """Options of a producer. They apply to each send that has no values of its own."""

    __slots__ = ("_creator", "_delivery_delay", "_flags", "_priority", "_sends", "_setter", "_time_to_live")

    def __init__(self) -> None:
        self._creator = ref(_caller())
        self._setter: ref[_Caller] | None = None
        """Last task or thread, other than the creator, that has set an option."""
        self._flags = PERSISTENT
        self._priority = DEFAULT_PRIORITY
        self._time_to_live = 0
        self._delivery_delay = 0
        self._sends = Sends()

    def statistics(self) -> ProducerStatistics:
        """Return counters since the producer was created."""
        sends = self._sends
        return ProducerStatistics(messages_sent=sends.messages, sends_waited=sends.waits, waited_s=sends.waited_s)

    def _state(self) -> str:
        """Return the number of messages sent and the options that are not the default, for `repr`."""
        options = (
            counted(self._sends.messages, "message") + " sent" if self._sends.messages else "",
            "" if self._flags & PERSISTENT else "NON_PERSISTENT",
            "" if self._priority == DEFAULT_PRIORITY else f"priority {self._priority}",
            f"time to live {duration_text(self._time_to_live / 1000)}" if self._time_to_live else "",
            f"delivery delay {duration_text(self._delivery_delay / 1000)}" if self._delivery_delay else "",
        )
        return "".join(f", {option}" for option in options if option)

    def _note_setter(self) -> None:
        """Log a warning if two running tasks, or threads, have set options: each would send with those of the other.

        The creator may set options before others do.
        """
        caller = _caller()
        last = None if self._setter is None else self._setter()
        if last is not None and last is not caller and _is_running(last):
            place = _place_outside()
            log.tell(
                logging.WARNING,
                "producer_shared",
                f"at {place}, a second task or thread sets options of one producer, so each may send with those of the "
                "other: pass options to `send`, or create a producer for each (`create_producer` is cheap)",
                about=place,
                place=place,
            )
        if caller is not self._creator():
            self._setter = ref(caller)

    async def _wait(self, waiting: Awaitable[None]) -> None:
        """Wait for room, and count the wait."""
        began = perf_counter()
        try:
            await waiting
        finally:
            self._sends.note_wait(perf_counter() - began)

    def _note_sent(self, waited_s: float | None, messages: int = 1) -> None:
        """Count messages of the blocking API, and the seconds that it waited for room; None if it did not wait."""
        self._sends.messages += messages
        if waited_s is not None:
            self._sends.note_wait(waited_s)

    def _chosen(
        self, delivery_mode: int | None, priority: int | None, time_to_live: int | None
    ) -> tuple[int, int, int]:
        """Return flags, priority and time to live of a send. Arguments that are None become the producer's options."""
        flags = self._flags
        if delivery_mode is not None:
            flags = flags & ~PERSISTENT | check_delivery_mode(delivery_mode)
        priority = self._priority if priority is None else check_priority(priority)
        time_to_live = self._time_to_live if time_to_live is None else check_time_to_live(time_to_live)
        return flags, priority, time_to_live

    def _set_flag(self, flag: int, is_set: bool) -> None:
        self._note_setter()
        self._flags = self._flags | flag if is_set else self._flags & ~flag

    @property
    def disable_message_id(self) -> bool:
        """True if receivers do not need message ids."""
        return bool(self._flags & NO_MESSAGE_ID)

    @disable_message_id.setter
    def disable_message_id(self, value: bool) -> None:
        self._set_flag(NO_MESSAGE_ID, value)

    @property
    def disable_message_timestamp(self) -> bool:
        """True if receivers do not need timestamps."""
        return bool(self._flags & NO_TIMESTAMP)

    @disable_message_timestamp.setter
    def disable_message_timestamp(self, value: bool) -> None:
        self._set_flag(NO_TIMESTAMP, value)

    @property
    def delivery_mode(self) -> DeliveryMode:
        """PERSISTENT, the default, if subscribers confirm messages; otherwise NON_PERSISTENT."""
        return DeliveryMode.PERSISTENT if self._flags & PERSISTENT else DeliveryMode.NON_PERSISTENT

    @delivery_mode.setter
    def delivery_mode(self, value: int) -> None:
        self._set_flag(PERSISTENT, bool(check_delivery_mode(value)))

    @property
    def priority(self) -> int:
        """Priority, 0 to 9. Priorities 5 and 6, and 7 to 9, have a lane of their own."""
        return self._priority

    @priority.setter
    def priority(self, value: int) -> None:
        self._note_setter()
        self._priority = check_priority(value)

    @property
    def time_to_live(self) -> int:
        """Milliseconds from the send after which a message is not delivered any more; 0 means for ever."""
        return self._time_to_live

    @time_to_live.setter
    def time_to_live(self, value: int) -> None:
        self._note_setter()
        self._time_to_live = check_time_to_live(value)

    @property
    def delivery_delay(self) -> int:
        """Milliseconds from the send before which a message is not delivered; 0, the default, means at once.

        Only the subscriptions that exist at the send get it. Keepers hold it for those that are durable or shared, and
        the process of the consumer for all others.
        """
        return self._delivery_delay

    @delivery_delay.setter
    def delivery_delay(self, value: int) -> None:
        self._note_setter()
        self._delivery_delay = check_delivery_delay(value)


class AnyProducer(SendOptions):
    """Common part of the `MessageProducer` for asyncio and that for threads, which wait for room in different ways."""

    __slots__ = ("_destination", "_is_closed", "_outbox", "_retaining")

    def __init__(self, outbox: Outbox, retaining: Retaining, destination: Destination | None) -> None:
        super().__init__()
        self._outbox = outbox
        self._retaining = retaining
        self._destination = destination
        self._is_closed = False

    @property
    def destination(self) -> Destination | None:
        """Destination of all messages; None if each send names a destination."""
        return self._destination

    def __repr__(self) -> str:
        destination = self._destination or "any destination"
        is_closed = self._is_closed or self._outbox.is_closed
        return f"<MessageProducer to {destination}{self._state()}{', closed' if is_closed else ''}>"

    def _frame(
        self,
        message: Any,
        dest: Destination | None,
        delivery_mode: int | None,
        priority: int | None,
        time_to_live: int | None,
        retain: Retain,
    ) -> Post:
        """Frame a message, without sending it."""
        delay = self._delivery_delay
        destination, flags, level, lifetime = self._options(dest, delivery_mode, priority, time_to_live)
        flags = delayed(message, flags, lifetime, delay)
        post = self._outbox.frame(message, destination, flags, level, lifetime, delay)
        return post if retain is False else self._retaining.post(post, retain)

    def _options(
        self, dest: Destination | None, delivery_mode: int | None, priority: int | None, time_to_live: int | None
    ) -> tuple[Destination, int, int, int]:
        """Return destination, flags, priority and time to live of a send. Arguments that are None become the producer's
        options."""
        if self._is_closed:
            raise IllegalStateError("the producer is closed: create another one")
        destination = self._destination
        if destination is None:
            destination = check_destination(dest)
        elif dest is not None:
            raise NotImplementedError(
                f"this producer sends to {destination} only: expected no destination, or a producer made without one"
            )
        if delivery_mode is None and priority is None and time_to_live is None:
            return destination, self._flags, self._priority, self._time_to_live
        return destination, *self._chosen(delivery_mode, priority, time_to_live)

    def _frame_many(
        self,
        bodies: Iterable[Any],
        dest: Destination | None,
        properties: Mapping[str, PropertyColumn] | None,
        delivery_mode: int | None,
        priority: int | None,
        time_to_live: int | None,
        retain: Retain,
    ) -> BatchPost:
        """Frame a batch, without sending it."""
        destination, flags, priority, time_to_live = self._options(dest, delivery_mode, priority, time_to_live)
        delay = self._delivery_delay
        options = delayed(None, flags, time_to_live, delay), priority, time_to_live, delay
        post = frame_batch(self._outbox, destination, bodies, properties, options, sendable, lambda _: None)
        return post if retain is False else self._retaining.batch(post, retain)


class MessageProducer(AnyProducer):
    """Sends messages to its destination or, if it has none, to the destination that each send names."""

    __slots__ = ()

    async def send(
        self,
        message: Any,
        dest: Destination | None = None,
        *,
        delivery_mode: int | None = None,
        priority: int | None = None,
        time_to_live: int | None = None,
        on_complete: CompletionListener | None = None,
        retain: Retain = False,
    ) -> None:
        """Send the message as it is now, or, in a transaction, keep it for the commit.

        This waits only until there is room for the message. If subscribers do not confirm a persistent message,
        `on_complete` is told or, without it, the exception listener.

        With `retain`, keepers keep the message for consumers with `last_values`, until a later one takes its place: one
        message of the topic, or of each value of the property that `retain` names. An empty body removes it. This waits
        until keepers have stored the message. Raise ResourceAllocationError without a keeper.
        """
        check_listener("on_complete", on_complete)
        if on_complete is None and retain is False and not self._delivery_delay:
            destination, flags, level, lifetime = self._options(dest, delivery_mode, priority, time_to_live)
            waiting = self._outbox.send(message, destination, flags, level, lifetime)
        else:
            post = self._frame(message, dest, delivery_mode, priority, time_to_live, retain)
            if retain is not False:
                await self._retaining.admit(post[0], need_of(message))
            waiting = self._put(post, message, on_complete)
        self._sends.messages += 1
        if waiting is not None:
            await self._wait(waiting)

    def _put(self, post: Post, message: object, on_complete: CompletionListener | None) -> Awaitable[None] | None:
        if on_complete is None:
            return self._outbox.put(post)
        return self._outbox.put_async(post, message, on_complete, self._outbox.completions.new_outcome())

    async def send_many(
        self,
        bodies: Iterable[Any],
        dest: Destination | None = None,
        *,
        properties: Mapping[str, PropertyColumn] | None = None,
        delivery_mode: int | None = None,
        priority: int | None = None,
        time_to_live: int | None = None,
        retain: Retain = False,
    ) -> None:
        """Send a message for each body, in order, as `send` does one by one, for a fraction of the cost.

        Bodies are bytes, texts, or messages. A property is one value for all messages, or a list or numpy array with
        one for each. Nothing is sent if a body or a property cannot be.
        """
        if retain is not False:
            bodies = listed(bodies)
        post = self._frame_many(bodies, dest, properties, delivery_mode, priority, time_to_live, retain)
        if retain is not False:
            await self._retaining.admit(post[0], need_of_all(bodies))
        waiting = self._outbox.put_many(post)
        self._sends.messages += messages_in(post)
        if waiting is not None:
            await self._wait(waiting)

    def send_async(
        self,
        message: Any,
        dest: Destination | None = None,
        *,
        delivery_mode: int | None = None,
        priority: int | None = None,
        time_to_live: int | None = None,
        retain: Retain = False,
    ) -> Awaitable[None]:
        """Send the message as it is now, and return an awaitable of the outcome. The awaitable raises JMSError on
        failure."""
        outbox = self._outbox
        if retain is not False:
            return self._send_value(
                self._frame(message, dest, delivery_mode, priority, time_to_live, retain), message, need_of(message)
            )
        if self._delivery_delay:
            post = self._frame(message, dest, delivery_mode, priority, time_to_live, retain)
            outcome = outbox.completions.new_outcome()
            waiting = outbox.put_async(post, message, None, outcome)
        else:
            destination, flags, level, lifetime = self._options(dest, delivery_mode, priority, time_to_live)
            outcome = outbox.completions.new_outcome()
            waiting = outbox.send(message, destination, flags, level, lifetime, outcome)
        self._sends.messages += 1
        if waiting is None or isinstance(waiting, Room):
            return outcome  # which comes after there was room
        return _both(asyncio.ensure_future(self._wait(waiting)), outcome)

    def _send_value(self, post: Post, message: object, need: Need) -> Awaitable[None]:
        """Send a last value as `send_async` does."""
        if not self._retaining.may_send(need):
            return asyncio.ensure_future(self._send_value_later(post, message, need))
        outcome = self._outbox.completions.new_outcome()
        waiting = self._outbox.put_async(post, message, None, outcome)
        self._sends.messages += 1
        return outcome if waiting is None else _both(asyncio.ensure_future(self._wait(waiting)), outcome)

    async def _send_value_later(self, post: Post, message: object, need: Need) -> None:
        await self._retaining.room_for(post[0], need)
        outcome = self._outbox.completions.new_outcome()
        waiting = self._outbox.put_async(post, message, None, outcome)
        self._sends.messages += 1
        if waiting is not None:
            await self._wait(waiting)
        await outcome

    async def close(self) -> None:
        """Close the producer, and wait for asynchronous sends of its session. Calling this twice does no harm."""
        if not self._is_closed:
            self._outbox.check_loop()
        self._outbox.check_not_in_callback("close")
        self._is_closed = True
        await self._outbox.completions.drained()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def _both(first: Awaitable[Any], second: Awaitable[None]) -> None:
    await first
    await second
