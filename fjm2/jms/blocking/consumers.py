"""Consumers whose receives wait in the calling thread."""

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
    """`for message in consumer` ends when the consumer is closed."""

    def __init__(self, inner: aio_consumer.MessageConsumer, threads: SessionThreads) -> None:
        self._inner = inner
        self._threads = threads

    @property
    def destination(self) -> Destination:
        """What it consumes from."""
        return self._inner.destination

    @property
    def no_local(self) -> bool:
        """Whether it leaves out what its own connection sends."""
        return self._inner.no_local

    @property
    def message_selector(self) -> str | None:
        """The condition that messages have to meet; None if there is none."""
        return self._inner.message_selector

    @property
    def message_listener(self) -> MessageListener | None:
        """A function of the message; it runs in a thread of the session."""
        listener = self._inner.message_listener
        return listener.listener if isinstance(listener, ThreadListener) else listener

    @message_listener.setter
    def message_listener(self, listener: MessageListener | None) -> None:
        run(setattr, self._inner, "message_listener", listener and self._threads.listener_of(listener))

    def statistics(self) -> ConsumerStatistics:
        """What it has done so far, and how it stands."""
        return run(self._inner.statistics)

    def __repr__(self) -> str:
        return repr(self._inner)

    def ready(self) -> None:
        """Wait until the known senders know of this consumer, and it has caught up with them."""
        call(self._inner.ready())

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message. None when so many seconds are over, or the consumer is closed."""
        return call(self._inner.receive(timeout))

    def receive_no_wait(self) -> Message | None:
        """The next message if there is one."""
        return self.receive(0)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        try:
            return call(self._inner.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """End the subscription and what waits for it. Its own listener may do this, too."""
        call(self._inner.close())


class JMSConsumer(MessageConsumer):
    """The consumer of a context, which gives bodies as well."""

    _inner: aio_consumer.JMSConsumer

    def receive_body(self, type: type[_T], timeout: float | None = None) -> _T | None:  # noqa: A002
        """The body of the next message. MessageFormatError if it is none of this type, or there is none."""
        return call(self._inner.receive_body(type, timeout))

    def receive_body_no_wait(self, type: type[_T]) -> _T | None:  # noqa: A002
        """The body of the next message if there is one."""
        return self.receive_body(type, 0)
