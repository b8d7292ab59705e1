"""Consumers for threads. Their `receive` blocks the calling thread."""

from collections.abc import Callable
from typing import Any, Self, TypeVar, cast, overload

from fjm2.bus.inbox import MessageListener
from fjm2.bus.statistics import ConsumerStatistics
from fjm2.jms import consumer as aio_consumer
from fjm2.jms.consumer import typed_listener
from fjm2.jms.listener_task import ThreadListener
from fjm2.messages.destination import Destination
from fjm2.messages.files.file_message import ProgressListener
from fjm2.messages.message import Message

from .closing import Closable
from .loop_thread import call, run
from .session_threads import SessionThreads

_T = TypeVar("_T")
_M = TypeVar("_M", bound=Message)


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

    @property
    def on_progress(self) -> ProgressListener | None:
        """Function called while files are received, several times a second. It runs in the loop of FJM2."""
        return self._inner.on_progress

    @on_progress.setter
    def on_progress(self, listener: ProgressListener | None) -> None:
        self._inner.on_progress = listener

    def statistics(self) -> ConsumerStatistics:
        """Return the counters and the present state of the consumer."""
        return run(self._inner.statistics)

    def __repr__(self) -> str:
        return repr(self._inner)

    def ready(self) -> None:
        """Wait until the known senders know of this consumer, and it has caught up with them."""
        call(self._inner.ready())

    def listen(self, type: type[_T], listener: Callable[[_T], Any]) -> None:  # noqa: A002
        """Call a function with each message of a class, or with each body of a type, in a thread of the session.

        With `TextMessage`, the listener gets text messages; with `str`, their texts. A message of another kind goes to
        the exception listener as a MessageFormatError, and counts as delivered.
        """
        report = self._threads.core.endpoint.report
        self.message_listener = typed_listener(type, listener, lambda error: run(report, error))

    @overload
    def receive(self, *, timeout: float | None = None) -> Message | None: ...
    @overload
    def receive(self, timeout: float | None, /) -> Message | None: ...
    @overload
    def receive(self, type: type[_M], timeout: float | None = None) -> _M | None: ...
    def receive(self, type: Any = None, timeout: float | None = None) -> Message | None:  # noqa: A002
        """Return the next message. Return None after `timeout` seconds, or when the consumer is closed.

        With a class, raise MessageFormatError if the message is of another class. In AUTO_ACKNOWLEDGE and
        DUPS_OK_ACKNOWLEDGE mode, the next call gets that message again.
        """
        return cast(Message | None, call(self._inner.receive(type, timeout)))

    @overload
    def receive_no_wait(self) -> Message | None: ...
    @overload
    def receive_no_wait(self, type: type[_M]) -> _M | None: ...
    def receive_no_wait(self, type: Any = None) -> Message | None:  # noqa: A002
        """Return the next message as `receive` does, if one is waiting, otherwise None."""
        return cast(Message | None, self.receive(type, 0))

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
