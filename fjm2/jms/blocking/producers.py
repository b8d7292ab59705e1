"""Producers whose sends wait for room in the send queue of their connection."""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Self

from fjm2.bus.completions import CompletionListener, check_listener
from fjm2.jms.batches.outgoing import listed, messages_in
from fjm2.jms.jms_producer import AnyJMSProducer
from fjm2.jms.last_values.need import Need, need_of, need_of_all
from fjm2.jms.last_values.retaining import Retain, check_retain
from fjm2.jms.producer import AnyProducer
from fjm2.messages.destination import Destination
from fjm2.messages.properties import PropertyColumn
from fjm2.messages.types import PropertyValue

from .closing import Closable
from .loop_thread import call
from .session_threads import SessionThreads


def _admit(threads: SessionThreads, dest: Destination | None, retain: Retain, message: Any) -> None:
    """Wait until keepers have room for a last value, if the message is to be one. The caller does not hold the lock of
    the queue."""
    if retain is not False:
        _wait_for_room(threads, dest, retain, need_of(message))


def _admit_many(
    threads: SessionThreads, dest: Destination | None, retain: Retain, bodies: Iterable[Any]
) -> Iterable[Any]:
    """Wait until keepers have room for last values, if the bodies are to be some. Return the bodies."""
    if retain is False:
        return bodies
    values = listed(bodies)
    _wait_for_room(threads, dest, retain, need_of_all(values))
    return values


def _wait_for_room(threads: SessionThreads, dest: Destination | None, retain: Retain, need: Need) -> None:
    check_retain(retain)
    retaining = threads.core.retaining
    if not retaining.may_send(need):
        threads.call(retaining.room_for, dest, need)


class MessageProducer(AnyProducer, Closable):
    """Sends messages to its destination or, if it has none, to the destination that each send names."""

    __slots__ = ("_threads",)

    def __init__(self, threads: SessionThreads, destination: Destination | None) -> None:
        super().__init__(threads.core.outbox, threads.core.retaining, destination)
        self._threads = threads

    def send(
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
        """Send the message as it is now, or, in a transaction, keep it for the commit. Wait while the send queue is
        full.

        With `retain`, keepers keep the message for consumers with `last_values`, until a later one takes its place: one
        message of the topic, or of each value of the property that `retain` names. An empty body removes it. This waits
        until keepers have stored the message. Raise ResourceAllocationError without a keeper.
        """
        self._admit(message, dest, retain, on_complete)
        with self._threads.queue.lock:
            post = self._frame(message, dest, delivery_mode, priority, time_to_live, retain)
            waiting = self._threads.send(post, message, on_complete)
        self._note_sent(self._threads.wait(waiting))

    def send_many(
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
        bodies = _admit_many(self._threads, dest or self._destination, retain, bodies)
        with self._threads.queue.lock:
            post = self._frame_many(bodies, dest, properties, delivery_mode, priority, time_to_live, retain)
            sending = self._threads.send_many(post, None, None)
        self._note_sent(self._threads.wait(sending), messages_in(post))

    def send_async(
        self,
        message: Any,
        dest: Destination | None = None,
        *,
        delivery_mode: int | None = None,
        priority: int | None = None,
        time_to_live: int | None = None,
        retain: Retain = False,
    ) -> Future[None]:
        """Send the message like `send`. The future is done when the outcome is known."""
        self._admit(message, dest, retain)
        with self._threads.queue.lock:
            post = self._frame(message, dest, delivery_mode, priority, time_to_live, retain)
            self._note_sent(None)
            return self._threads.send_async(post, message, None)

    def _admit(
        self, message: Any, dest: Destination | None, retain: Retain, on_complete: CompletionListener | None = None
    ) -> None:
        """Check the listener, and wait until keepers have room for the message, if it is to be a last value."""
        check_listener("on_complete", on_complete)
        _admit(self._threads, dest or self._destination, retain, message)

    def close(self) -> None:
        """Close the producer, and wait for asynchronous sends of its session. Calling this twice does no harm."""
        call(self._threads.close_behind(self._close))

    async def _close(self) -> None:
        self._outbox.check_not_in_callback("close")
        self._is_closed = True
        await self._outbox.completions.drained()


class JMSProducer(AnyJMSProducer):
    """Sends messages of a context to any destination. Cheap to create, and needs no closing."""

    __slots__ = ("_threads",)

    def __init__(self, threads: SessionThreads) -> None:
        super().__init__(threads.core.outbox, threads.core.retaining)
        self._threads = threads

    def send(
        self,
        dest: Destination,
        body: Any = None,
        *,
        properties: Mapping[str, PropertyValue] | None = None,
        delivery_mode: int | None = None,
        priority: int | None = None,
        time_to_live: int | None = None,
        delivery_delay: int | None = None,
        correlation_id: str | None = None,
        reply_to: Destination | None = None,
        type: str | None = None,  # noqa: A002
        retain: Retain = False,
    ) -> Self:
        """Send a message, or a body as a message of its kind: str, bytes, mapping, path, None or any other object.

        The producer's options, headers and properties override those of the message. The arguments override both, for
        this message alone. With `retain`, keepers keep the message as a last value; see `MessageProducer.send`.
        """
        options = properties, delivery_mode, priority, time_to_live, delivery_delay, correlation_id, reply_to, type
        return self._send(dest, body, (*options, retain), retain)

    def _send(self, dest: Destination, body: Any, options: tuple[Any, ...], retain: Retain) -> Self:
        _admit(self._threads, dest, retain, body)
        with self._threads.queue.lock:
            waiting = self._threads.send(*self._frame(dest, body, *options), self._async_listener)
        self._note_sent(self._threads.wait(waiting))
        return self

    def send_many(
        self,
        dest: Destination,
        bodies: Iterable[Any],
        properties: Mapping[str, PropertyColumn] | None = None,
        *,
        delivery_mode: int | None = None,
        priority: int | None = None,
        time_to_live: int | None = None,
        retain: Retain = False,
    ) -> Self:
        """Send a message for each body, in order, as `send` does one by one. If all bodies are bytes, or all are texts,
        this takes a fraction of the time.

        A property is one value for all messages, or a list or numpy array with one for each. Nothing is sent if a body
        or a property cannot be.
        """
        options = properties, delivery_mode, priority, time_to_live, retain
        return self._send_many(dest, _admit_many(self._threads, dest, retain, bodies), options)

    def _send_many(self, dest: Destination, bodies: Iterable[Any], options: tuple[Any, ...]) -> Self:
        with self._threads.queue.lock:
            post, messages = self._frame_many(dest, bodies, *options)
            sending = self._threads.send_many(post, messages, self._async_listener)
        self._note_sent(self._threads.wait(sending), messages_in(post))
        return self
