"""Consumers for threads. Their `receive` blocks the calling thread."""

from typing import Self, TypeVar

from fjm2.bus.inbox import MessageListener
from fjm2.bus.statistics import ConsumerStatistics
from fjm2.jms import consumer as aio_consumer
from fjm2.jms.listener_task import ThreadListener
from fjm2.messages.destination import Destination
from fjm2.messages.message import Message

from .closing import Closable
from .loop_thread import call, run
from .session_threads import SessionThreads

_T = TypeVar("_T")


class MessageConsumer(Closable):
    """Receives messages. `for message in consumer` ends when the consumer is closed."""

    def __init__(self, inner: aio_consumer.MessageConsumer, threads: SessionThreads) -> None:
        self._inner = inner
        self._threads = threads

    @property
    def destination(self) -> Destination:
        """Destination that the consumer receives from."""
        return self._inner.destination

    @property
    def no_local(self) -> bool:
        """True if the consumer gets no messages that its own connection sends."""
        return self._inner.no_local

    @property
    def message_selector(self) -> str | None:
        """Condition that messages must meet; None for all messages."""
        return self._inner.message_selector

    @property
    def message_listener(self) -> MessageListener | None:
        """Function that is called with each message, in a thread of the session."""
        listener = self._inner.message_listener
        return listener.listener if isinstance(listener, ThreadListener) else listener

    @message_listener.setter
    def message_listener(self, listener: MessageListener | None) -> None:
        run(setattr, self._inner, "message_listener", listener and self._threads.listener_of(listener))

    def statistics(self) -> ConsumerStatistics:
        """Return the counters and the present state of the consumer."""
        return run(self._inner.statistics)

    def __repr__(self) -> str:
        return repr(self._inner)

    def ready(self) -> None:
        """Wait until the known senders know of this consumer, and it has caught up with them."""
        call(self._inner.ready())

    def receive(self, timeout: float | None = None) -> Message | None:
        """Return the next message. Return None after `timeout` seconds, or when the consumer is closed."""
        return call(self._inner.receive(timeout))

    def receive_no_wait(self) -> Message | None:
        """Return the next message if one is waiting, otherwise None."""
        return self.receive(0)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        try:
            return call(self._inner.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """End the subscription, and wake up waiting receives. The consumer's own listener may call this, too."""
        call(self._inner.close())


class JMSConsumer(MessageConsumer):
    """A consumer of a context, which also returns bodies."""

    _inner: aio_consumer.JMSConsumer

    def receive_body(self, type: type[_T], timeout: float | None = None) -> _T | None:  # noqa: A002
        """Return the body of the next message. Raise MessageFormatError if the message has no body, or one of another
        type."""
        return call(self._inner.receive_body(type, timeout))

    def receive_body_no_wait(self, type: type[_T]) -> _T | None:  # noqa: A002
        """Return the body of the next message if one is waiting, otherwise None."""
        return self.receive_body(type, 0)
