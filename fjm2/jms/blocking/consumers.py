"""Consumers for threads. Their `receive` blocks the calling thread."""

from collections.abc import Callable
from functools import partial
from types import UnionType
from typing import Any, Self, TypeVar, cast, overload

from fjm2.base.functions import FixedAttributes, check_callback, check_progress_listener, check_type
from fjm2.bus.inbox import MessageListener
from fjm2.bus.statistics import ConsumerStatistics
from fjm2.jms import consumer as aio_consumer
from fjm2.jms.batches import incoming as aio_batches
from fjm2.jms.batches.incoming import MESSAGES_MAX, Batch
from fjm2.jms.consumer import check_receive, check_timeout, typed_listener
from fjm2.jms.listener_task import ThreadListener
from fjm2.messages.destination import Destination
from fjm2.messages.files.file_message import ProgressListener
from fjm2.messages.message import Message

from .callback_thread import without_exit
from .closing import Closable
from .loop_thread import call, run
from .receiver import Receiver
from .session_threads import SessionThreads

_T = TypeVar("_T")
_M = TypeVar("_M", bound=Message)


class MessageConsumer(FixedAttributes, Closable):
    """Receives messages. `for message in consumer` ends when the consumer is closed."""

    __slots__ = ("_inner", "_on_progress", "_receiver", "_threads")

    def __init__(self, inner: aio_consumer.MessageConsumer, threads: SessionThreads) -> None:
        self._inner = inner
        self._threads = threads
        self._receiver = Receiver(inner)
        self._on_progress: ProgressListener | None = None

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
        check_callback("message_listener", listener, is_awaited=False)
        called = None if listener is None else self._threads.listener_of(listener)
        run(setattr, self._inner, "message_listener", called)

    @property
    def on_progress(self) -> ProgressListener | None:
        """Function called while files are received, several times a second. It runs in the loop of FJM2."""
        return self._on_progress

    @on_progress.setter
    def on_progress(self, listener: ProgressListener | None) -> None:
        check_progress_listener(listener)
        self._inner.on_progress = None if listener is None else partial(without_exit, listener)
        self._on_progress = listener

    def statistics(self) -> ConsumerStatistics:
        """Return the counters and the present state of the consumer."""
        return run(self._receiver.statistics)

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
        check_callback("listener", listener, is_awaited=False)
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
        if timeout is not None:
            check_receive(type, timeout)
        return self._receiver.receive(type, timeout)

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
        message = self._receiver.receive_in_loop()
        if message is None:
            raise StopIteration
        return message

    def batches(self, max_messages: int = MESSAGES_MAX, max_wait: float = 0.0) -> "Batches":
        """Return the messages in batches, for `for batch in consumer.batches()`.

        A batch has at most `max_messages` messages. The loop waits for the first, and then up to `max_wait` seconds for
        more; with 0, a batch has the messages that wait. In AUTO_ACKNOWLEDGE and DUPS_OK_ACKNOWLEDGE mode, a batch is
        acknowledged when the loop asks for the next one.
        """
        return Batches(run(self._inner.batches, max_messages, max_wait))

    def close(self) -> None:
        """End the subscription, and wake up waiting receives. The consumer's own listener may call this, too."""
        call(self._inner.close())


class Batches:
    """The batches of a consumer. `for batch in consumer.batches()` ends when the consumer is closed."""

    def __init__(self, inner: aio_batches.Batches) -> None:
        """Use `consumer.batches()` instead."""
        self._inner = inner

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        batch = call(self._next())
        if batch is None:
            raise StopIteration
        return batch

    async def _next(self) -> Batch | None:
        return await anext(self._inner, None)


class JMSConsumer(MessageConsumer):
    """A consumer of a context, which also returns bodies."""

    __slots__ = ()

    _inner: aio_consumer.JMSConsumer

    @overload
    def receive_body(self, type: type[_T], timeout: float | None = None) -> _T | None: ...
    @overload
    def receive_body(self, type: UnionType, timeout: float | None = None) -> Any: ...
    def receive_body(self, type: Any, timeout: float | None = None) -> Any:  # noqa: A002
        """Return the body of the next message. Raise MessageFormatError if the message has no body, or one of another
        type."""
        check_type(type)
        check_timeout(timeout)
        return self._receiver.receive_body(type, timeout)

    @overload
    def receive_body_no_wait(self, type: type[_T]) -> _T | None: ...
    @overload
    def receive_body_no_wait(self, type: UnionType) -> Any: ...
    def receive_body_no_wait(self, type: Any) -> Any:  # noqa: A002
        """Return the body of the next message if one is waiting, otherwise None."""
        return self.receive_body(type, 0)
