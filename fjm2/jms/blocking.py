"""The same API for programs that wait: `fjm2.jms` without `await`.

Every call runs on one event loop in a thread of its own. Listeners run in a thread of their session.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from types import TracebackType
from typing import Any, NoReturn, ParamSpec, Self, TypeVar

from fjm2.base.done import DONE, Done
from fjm2.base.readings import Counted
from fjm2.bus.closing import close_timeout_after
from fjm2.bus.publication import Post
from fjm2.messages.destination import TemporaryQueue as AioTemporaryQueue
from fjm2.messages.destination import TemporaryTopic as AioTemporaryTopic
from fjm2.messages.message_factory import MessageFactory

from . import (
    DEFAULT_DELIVERY_DELAY,
    DEFAULT_DELIVERY_MODE,
    DEFAULT_PRIORITY,
    DEFAULT_TIME_TO_LIVE,
    BusError,
    BusStatistics,
    Byte,
    BytesMessage,
    Char,
    CompletionListener,
    ConnectionMetaData,
    ConnectionStatistics,
    ConsumerFullError,
    ConsumerStatistics,
    DeliveryMode,
    Destination,
    Double,
    ExceptionListener,
    Float,
    IllegalStateError,
    Int,
    InvalidClientIDError,
    InvalidDestinationError,
    InvalidSelectorError,
    JMSError,
    JMSRuntimeError,
    JMSSecurityError,
    ListenerError,
    Long,
    MapMessage,
    Message,
    MessageEOFError,
    MessageFormatError,
    MessageListener,
    MessageNotReadableError,
    MessageNotWriteableError,
    MessageProtocol,
    MessagesDroppedError,
    MessagesLostError,
    NullValueError,
    NumberFormatError,
    ObjectCodec,
    ObjectMessage,
    Overflow,
    PickleCodec,
    ProducerStatistics,
    Properties,
    PropertyValue,
    Queue,
    QueueRequestor,
    ResourceAllocationError,
    SafeCodec,
    Selector,
    SessionMode,
    SessionStatistics,
    Short,
    StreamMessage,
    TextMessage,
    Topic,
    TransactionInProgressError,
    TransactionRolledBackError,
    UnconfirmedError,
)
from . import connection as aio_connection
from . import consumer as aio_consumer
from . import context as aio_context
from . import factory as aio_factory
from . import requestor as aio_requestor
from . import session as aio_session
from .jms_producer import AnyJMSProducer
from .listener_task import ThreadListener
from .producer import AnyProducer
from .threads import LOOP, CallbackThread, Door, Later, ThreadCompletion, in_loop, work_through

_T = TypeVar("_T")
_P = ParamSpec("_P")

__all__ = [
    "DEFAULT_DELIVERY_DELAY",
    "DEFAULT_DELIVERY_MODE",
    "DEFAULT_PRIORITY",
    "DEFAULT_TIME_TO_LIVE",
    "BusError",
    "BusStatistics",
    "Byte",
    "BytesMessage",
    "Char",
    "CompletionListener",
    "Connection",
    "ConnectionFactory",
    "ConnectionMetaData",
    "ConnectionStatistics",
    "ConsumerFullError",
    "ConsumerStatistics",
    "DeliveryMode",
    "Destination",
    "Double",
    "ExceptionListener",
    "Float",
    "IllegalStateError",
    "Int",
    "InvalidClientIDError",
    "InvalidDestinationError",
    "InvalidSelectorError",
    "JMSConsumer",
    "JMSContext",
    "JMSError",
    "JMSProducer",
    "JMSRuntimeError",
    "JMSSecurityError",
    "ListenerError",
    "Long",
    "MapMessage",
    "Message",
    "MessageConsumer",
    "MessageEOFError",
    "MessageFormatError",
    "MessageListener",
    "MessageNotReadableError",
    "MessageNotWriteableError",
    "MessageProducer",
    "MessageProtocol",
    "MessagesDroppedError",
    "MessagesLostError",
    "NullValueError",
    "NumberFormatError",
    "ObjectCodec",
    "ObjectMessage",
    "Overflow",
    "PickleCodec",
    "ProducerStatistics",
    "Properties",
    "PropertyValue",
    "Queue",
    "QueueRequestor",
    "ResourceAllocationError",
    "SafeCodec",
    "Selector",
    "Session",
    "SessionMode",
    "SessionStatistics",
    "Short",
    "StreamMessage",
    "TemporaryQueue",
    "TemporaryTopic",
    "TextMessage",
    "Topic",
    "TopicRequestor",
    "TransactionInProgressError",
    "TransactionRolledBackError",
    "UnconfirmedError",
]

_call = LOOP.call


def _run(function: Callable[_P, _T], *arguments: _P.args, **options: _P.kwargs) -> _T:
    return _call(in_loop(function, *arguments, **options))


class _Closing:
    """Leaving the `with` block closes it."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_after(kind)

    def _close_after(self, kind: type[BaseException] | None) -> None:  # noqa: ARG002 - a connection looks at it
        self.close()


class TemporaryTopic(AioTemporaryTopic):
    """A topic that only its own connection consumes from; leaving `with topic` deletes it."""

    __slots__ = ()

    def delete(self) -> None:  # type: ignore[override]
        """IllegalStateError while it has consumers, InvalidDestinationError if another connection owns it."""
        _call(super().delete())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.delete()


class TemporaryQueue(AioTemporaryQueue):
    """A queue that only its own connection consumes from; leaving `with queue` deletes it."""

    __slots__ = ()

    def delete(self) -> None:  # type: ignore[override]
        """IllegalStateError while it has consumers, InvalidDestinationError if another connection owns it."""
        _call(super().delete())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.delete()


class _Threads:
    """What the objects of one session share."""

    def __init__(self, session: aio_session.SessionCore, door: Door) -> None:
        self.session, self.door = session, door
        name = door.name_session()
        self.listeners = CallbackThread(session.dispatcher, session.endpoint, f"{name}-listeners")
        self.completions = CallbackThread(session.outbox, session.endpoint, f"{name}-completions")
        session.dispatcher.opener.acknowledge_hook = self.acknowledge

    def call(self, function: Callable[_P, Any], *arguments: _P.args, **options: _P.kwargs) -> Any:
        """Await a coroutine function, behind everything that was sent before."""
        return _call(self._behind(function, *arguments, **options))

    async def _close_behind(self, close: Callable[[], Awaitable[None]]) -> None:
        """Likewise, but what holds up those that were sent before does not hold up a close."""
        await self.door.drained(self.session.endpoint.closing())
        await close()

    async def _behind(self, function: Callable[_P, Any], *arguments: _P.args, **options: _P.kwargs) -> Any:
        await self.door.drained(nullcontext())
        return await function(*arguments, **options)

    def send_listened(self, post: Post, message: Any, listener: CompletionListener | None) -> None:
        """With the lock of the door held."""
        if listener is None:
            self.door.put(self.session.outbox.put, post)
        else:
            self.send_async(post, message, listener)

    def send_async(self, post: Post, message: Any, listener: CompletionListener | None) -> Future[None]:
        """Likewise; done when the outcome is known."""
        listening = None if listener is None else ThreadCompletion(self.completions, listener)
        later = Later(self.session.outbox, message, listening)
        self.door.put(later.put, post)
        return later.outcome

    def listener_of(self, listener: MessageListener) -> ThreadListener:
        async def run(messages: list[Message], is_interrupted: Callable[[], bool]) -> tuple[int, BaseException | None]:
            called = self.session.dispatcher.wrap_listener(listener)
            return await self.listeners.run(work_through, called, messages, is_interrupted)

        return ThreadListener(run, listener)

    def acknowledge(self) -> Done:
        _run(self.session.dispatcher.acknowledge)
        return DONE

    def close(self) -> None:
        self.listeners.close()
        self.completions.close()


class MessageProducer(AnyProducer, _Closing):
    """Sends to its destination or, if it has none, to that of each send."""

    def __init__(self, threads: _Threads, destination: Destination | None) -> None:
        super().__init__(threads.session.outbox, destination)
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
    ) -> None:
        """Send the message as it is now; within a transaction, when it is committed."""
        with self._threads.door.lock:
            post = self._frame(message, dest, delivery_mode, priority, time_to_live)
            self._threads.send_listened(post, message, on_complete)
        self._note_sent(self._threads.door.wait_room())

    def send_async(
        self,
        message: Any,
        dest: Destination | None = None,
        *,
        delivery_mode: int | None = None,
        priority: int | None = None,
        time_to_live: int | None = None,
    ) -> Future[None]:
        """Likewise; the future is done when the outcome is known."""
        with self._threads.door.lock:
            post = self._frame(message, dest, delivery_mode, priority, time_to_live)
            self._note_sent(None)
            return self._threads.send_async(post, message, None)

    def close(self) -> None:
        """Wait for asynchronous sends. Twice does no harm."""
        _call(self._threads._close_behind(self._close))

    async def _close(self) -> None:
        self._outbox.check_not_in_callback("close")
        self._is_closed = True
        await self._outbox.completions.drained()


class JMSProducer(AnyJMSProducer):
    """Made by `context.create_producer()`: costs little, is bound to no destination and needs no closing."""

    def __init__(self, threads: _Threads) -> None:
        super().__init__(threads.session.outbox)
        self._threads = threads

    def send(
        self, dest: Destination, body: Any = None, *, properties: Mapping[str, PropertyValue] | None = None
    ) -> Self:
        """Send a message, or a body as the message of its kind: str, bytes, dict, None, any other object.

        The producer's properties and headers override the message's own; `properties` are for this message alone, and
        override both.
        """
        with self._threads.door.lock:
            self._threads.send_listened(*self._frame(dest, body, properties), self._async_listener)
        self._note_sent(self._threads.door.wait_room())
        return self


class MessageConsumer(_Closing):
    """`for message in consumer` ends when the consumer is closed."""

    def __init__(self, inner: aio_consumer.MessageConsumer, threads: _Threads) -> None:
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
        _run(setattr, self._inner, "message_listener", listener and self._threads.listener_of(listener))

    def statistics(self) -> ConsumerStatistics:
        """What it has done so far, and how it stands."""
        return _run(self._inner.statistics)

    def __repr__(self) -> str:
        return repr(self._inner)

    def ready(self) -> None:
        """Wait until the known senders know of this consumer, and it has caught up with them."""
        _call(self._inner.ready())

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message. None when so many seconds are over, or the consumer is closed."""
        return _call(self._inner.receive(timeout))

    def receive_no_wait(self) -> Message | None:
        """The next message if there is one."""
        return self.receive(0)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        try:
            return _call(self._inner.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """End the subscription and what waits for it. Its own listener may do this, too."""
        _call(self._inner.close())


class JMSConsumer(MessageConsumer):
    """The consumer of a context, which gives bodies as well."""

    _inner: aio_consumer.JMSConsumer

    def receive_body(self, type: type[_T], timeout: float | None = None) -> _T | None:  # noqa: A002
        """The body of the next message. MessageFormatError if it is none of this type, or there is none."""
        return _call(self._inner.receive_body(type, timeout))

    def receive_body_no_wait(self, type: type[_T]) -> _T | None:  # noqa: A002
        """The body of the next message if there is one."""
        return self.receive_body(type, 0)


class Session(MessageFactory, _Closing):
    """Made by `connection.create_session()`; leaving `with session` closes it."""

    def __init__(self, inner: aio_session.Session, door: Door) -> None:
        self._inner = inner
        self._threads = _Threads(aio_session.core_of(inner), door)

    def __repr__(self) -> str:
        return repr(self._inner)

    def _check_usable(self) -> ObjectCodec:
        return self._threads.session.check_usable()

    @property
    def transacted(self) -> bool:
        """Whether what is sent and received waits for a commit."""
        return self._inner.transacted

    @property
    def acknowledge_mode(self) -> SessionMode:
        """Who acknowledges what is received, and when."""
        return self._inner.acknowledge_mode

    def statistics(self) -> SessionStatistics:
        """How it stands."""
        return _run(self._inner.statistics)

    def create_temporary_topic(self) -> TemporaryTopic:
        """A topic that lives with the connection, of which only it consumes."""
        made = _run(self._inner.create_temporary_topic)
        return TemporaryTopic(made.name, made._on_delete)

    def create_temporary_queue(self) -> TemporaryQueue:
        """Likewise a queue."""
        made = _run(self._inner.create_temporary_queue)
        return TemporaryQueue(made.name, made._on_delete)

    def create_producer(self, dest: Destination | None = None) -> MessageProducer:
        """For one destination or, with None, for any."""
        _run(self._inner.create_producer, dest)
        return MessageProducer(self._threads, dest)

    def create_consumer(
        self,
        dest: Destination,
        selector: str | None = None,
        no_local: bool = False,
        *,
        overflow: Overflow | str | None = None,
        messages_max: int | None = None,
        bytes_max: int | None = None,
    ) -> MessageConsumer:
        """A subscription of its own. What it may hold, and what it does when it is full, is the factory's if not given.

        With `no_local` it gets nothing that its own connection sends.
        """
        bounds: dict[str, Any] = {"overflow": overflow, "messages_max": messages_max, "bytes_max": bytes_max}
        inner = _run(self._inner.create_consumer, dest, selector, no_local, **bounds)
        return MessageConsumer(inner, self._threads)

    def create_shared_consumer(self, topic: Topic, name: str, selector: str | None = None) -> NoReturn:
        """ResourceAllocationError: not in this release."""
        _run(self._inner.create_shared_consumer, topic, name, selector)

    def create_durable_consumer(
        self, topic: Topic, name: str, selector: str | None = None, no_local: bool = False
    ) -> NoReturn:
        """ResourceAllocationError: not in this release."""
        _run(self._inner.create_durable_consumer, topic, name, selector, no_local)

    create_durable_subscriber = create_durable_consumer
    """ResourceAllocationError: not in this release."""

    def create_shared_durable_consumer(self, topic: Topic, name: str, selector: str | None = None) -> NoReturn:
        """ResourceAllocationError: not in this release."""
        _run(self._inner.create_shared_durable_consumer, topic, name, selector)

    def unsubscribe(self, name: str) -> NoReturn:
        """InvalidDestinationError: there are no durable subscriptions in this release."""
        _run(self._inner.unsubscribe, name)

    def create_browser(self, queue: Queue, selector: str | None = None) -> NoReturn:
        """ResourceAllocationError: not in this release."""
        _run(self._inner.create_browser, queue, selector)

    def commit(self) -> None:
        """Send what the transaction holds, acknowledge what was received in it, and wait for confirmation."""
        self._threads.call(self._inner.commit)

    def rollback(self) -> None:
        """Forget what the transaction holds; what was received in it is delivered again."""
        self._threads.call(self._inner.rollback)

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """`with session.transaction():` commits, or rolls back if an exception leaves the block."""
        _run(self._threads.session.check_transacted, "transaction")
        with _Ending(self):
            yield self

    def recover(self) -> None:
        """Deliver again, from the first message on that is not acknowledged."""
        _call(self._inner.recover())

    def close(self) -> None:
        """Wait for listeners, receives and asynchronous sends; roll back. Twice does no harm."""
        _call(self._threads._close_behind(self._inner.close))
        self._threads.close()


class _Ending:
    """Commits at the end, or rolls back."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        end = self._session.commit if kind is None else self._session.rollback
        end()


class Connection(_Closing):
    """Nothing is delivered before `start()`."""

    def __init__(self, inner: aio_connection.Connection) -> None:
        """A connection is made, and open, by a ConnectionFactory."""
        self._inner, self._core = inner, aio_connection.core_of(inner)
        self._door = Door(self._core.report)
        self._sessions: list[Session] = []
        self._exceptions = CallbackThread(self._core.endpoint, self._core.endpoint, "exceptions")
        self._exception_listener: ExceptionListener | None = None

    def start(self) -> None:
        """Deliver messages from now on. Twice does no harm."""
        _run(self._inner.start)

    def stop(self) -> None:
        """No more deliveries: when this returns, no listener runs. Receives that wait go on waiting."""
        _call(self._inner.stop())

    def close(self, timeout: float | None = None) -> None:
        """Close all that was made by it, and wait for listeners, receives, and what was sent to arrive.

        Transactions are rolled back, nothing is acknowledged. It waits as long as anything goes on, and gives up when
        nothing has for `close_timeout_s`, or, listeners apart, after `timeout` seconds in all; what is not confirmed by
        then is reported. Twice does no harm.
        """
        _call(self._close_behind(self._inner.close, timeout))
        for session in self._sessions:
            session._threads.close()
        self._exceptions.close()

    async def _close_behind(self, close: Callable[[float | None], Awaitable[None]], timeout_s: float | None) -> None:
        """What holds up those that were sent before does not hold up a close."""
        self._core.begin_closing(timeout_s)
        if self._core.endpoint is not None:
            await self._door.close(self._core.endpoint.closing())
        await close(timeout_s)

    def _close_after(self, kind: type[BaseException] | None) -> None:
        self.close(close_timeout_after(kind, self._core.settings.close_timeout_s))

    def __repr__(self) -> str:
        return repr(self._inner)

    def ready(self) -> None:
        """Wait, a second at the most, until those who are there are known, and know of this connection's consumers."""
        _call(self._inner.ready())

    def subscribers(self, dest: Destination) -> int:
        """How many connections are known to consume from it, this one included; `ready` waits until all are."""
        return _run(self._inner.subscribers, dest)

    def create_session(self, mode: int = SessionMode.AUTO_ACKNOWLEDGE, *, transacted: bool = False) -> Session:
        """With `transacted` the mode does not matter."""
        session = Session(_run(self._inner.create_session, mode, transacted=transacted), self._door)
        self._sessions.append(session)
        return session

    @property
    def client_id(self) -> str | None:
        """To be set once, before anything else is done with the connection, unless the factory has one."""
        return self._inner.client_id

    @client_id.setter
    def client_id(self, value: str | None) -> None:
        _run(setattr, self._inner, "client_id", value)

    @property
    def meta_data(self) -> ConnectionMetaData:
        """Versions, and what is there and what is not."""
        meta_data: ConnectionMetaData = _run(getattr, self._inner, "meta_data")
        return meta_data

    def statistics(self) -> ConnectionStatistics:
        """What it, and its bus, have done so far, and how they stand."""
        return _run(self._inner.statistics)

    @property
    def counted(self) -> Counted:
        """What a TraceRecorder records of it: the bus, which the process's other connections to the URI share."""
        bus: Counted = _run(getattr, self._inner, "counted")
        return bus

    @property
    def exception_listener(self) -> ExceptionListener | None:
        """A function of an exception: it hears what no call can report, one at a time, in a thread of its own."""
        _run(getattr, self._inner, "exception_listener")
        return self._exception_listener

    @exception_listener.setter
    def exception_listener(self, listener: ExceptionListener | None) -> None:
        _run(setattr, self._inner, "exception_listener", listener and self._exceptions.bind(listener))
        self._exception_listener = listener

    def create_connection_consumer(self, *_: object, **__: object) -> NoReturn:
        """NotImplementedError: a facility of application servers."""
        _run(self._inner.create_connection_consumer)

    create_shared_connection_consumer = create_connection_consumer
    """NotImplementedError, likewise."""
    create_durable_connection_consumer = create_connection_consumer
    """NotImplementedError, likewise."""
    create_shared_durable_connection_consumer = create_connection_consumer
    """NotImplementedError, likewise."""


class JMSContext(MessageFactory, _Closing):
    """A session and its connection in one; the connection closes with the last context that shares it."""

    def __init__(self, inner: aio_context.JMSContext, connection: Connection) -> None:
        """A context is made, and open, by a ConnectionFactory, or by another context."""
        self._inner = inner
        self._connection = connection
        self._session = Session(aio_session.Session(aio_context.session_of(inner)), connection._door)
        connection._sessions.append(self._session)

    @property
    def _threads(self) -> _Threads:
        return self._session._threads

    def _check_usable(self) -> ObjectCodec:
        return self._threads.session.check_usable()

    def __repr__(self) -> str:
        return repr(self._inner)

    def ready(self) -> None:
        """Wait until those who are there are known, see `Connection.ready`."""
        self._connection.ready()

    def subscribers(self, dest: Destination) -> int:
        """How many connections are known to consume from it, see `Connection.subscribers`."""
        return self._connection.subscribers(dest)

    def create_context(self, mode: int = SessionMode.AUTO_ACKNOWLEDGE) -> "JMSContext":
        """Another session on the same connection."""
        return JMSContext(_run(self._inner.create_context, mode), self._connection)

    def close(self, timeout: float | None = None) -> None:
        """Close the session and, if no other context uses it, the connection: see there. Twice does no harm."""
        if aio_context.shared_connection_of(self._inner).users > 1:
            _call(self._threads._close_behind(self._inner.close))
        else:
            _call(self._connection._close_behind(self._inner.close, timeout))
        self._threads.close()

    def _close_after(self, kind: type[BaseException] | None) -> None:
        self.close(close_timeout_after(kind, self._connection._core.settings.close_timeout_s))

    def start(self) -> None:
        """Deliver messages from now on; the first consumer does so by itself if `auto_start` is set."""
        _run(self._inner.start)

    def stop(self) -> None:
        """No more deliveries to any context of the connection, until it is started again."""
        _call(self._inner.stop())

    @property
    def auto_start(self) -> bool:
        """Whether the first consumer starts the connection. On by default."""
        return self._inner.auto_start

    @auto_start.setter
    def auto_start(self, value: bool) -> None:
        self._inner.auto_start = value

    @property
    def client_id(self) -> str | None:
        """What others know the connection by. To be set before anything else is done with it."""
        return self._inner.client_id

    @client_id.setter
    def client_id(self, value: str | None) -> None:
        _run(setattr, self._inner, "client_id", value)

    @property
    def meta_data(self) -> ConnectionMetaData:
        """Versions, and what is there and what is not."""
        return self._connection.meta_data

    def statistics(self) -> ConnectionStatistics:
        """As `Connection.statistics`, of its connection."""
        return self._connection.statistics()

    @property
    def counted(self) -> Counted:
        """What a TraceRecorder records of its connection."""
        return self._connection.counted

    @property
    def exception_listener(self) -> ExceptionListener | None:
        """A function of an exception: it hears what no call of this connection can report."""
        return self._connection.exception_listener

    @exception_listener.setter
    def exception_listener(self, listener: ExceptionListener | None) -> None:
        self._connection.exception_listener = listener

    @property
    def transacted(self) -> bool:
        """Whether what is sent and received waits for a commit."""
        return self._inner.transacted

    @property
    def session_mode(self) -> SessionMode:
        """Who acknowledges what is received, and when."""
        return self._inner.session_mode

    def commit(self) -> None:
        """Send what the transaction holds, acknowledge what was received in it, and wait for confirmation."""
        self._threads.call(self._inner.commit)

    def rollback(self) -> None:
        """Forget what the transaction holds; what was received in it is delivered again."""
        self._threads.call(self._inner.rollback)

    def recover(self) -> None:
        """Deliver again, from the first message on that is not acknowledged."""
        _call(self._inner.recover())

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """`with context.transaction():` commits, or rolls back if an exception leaves the block."""
        with self._session.transaction() as session:
            yield session

    def acknowledge(self) -> None:
        """In CLIENT_ACKNOWLEDGE mode, all that was received so far."""
        self._threads.acknowledge()

    def create_temporary_topic(self) -> TemporaryTopic:
        """A topic that lives with the connection, of which only it consumes."""
        return self._session.create_temporary_topic()

    def create_temporary_queue(self) -> TemporaryQueue:
        """A queue that lives with the connection, of which only it consumes."""
        return self._session.create_temporary_queue()

    def create_producer(self) -> JMSProducer:
        """A producer for any destination."""
        _run(self._inner.create_producer)
        return JMSProducer(self._threads)

    def create_consumer(
        self,
        dest: Destination,
        selector: str | None = None,
        no_local: bool = False,
        *,
        overflow: Overflow | str | None = None,
        messages_max: int | None = None,
        bytes_max: int | None = None,
    ) -> JMSConsumer:
        """As `Session.create_consumer`; starts the connection unless `auto_start` is off."""
        bounds: dict[str, Any] = {"overflow": overflow, "messages_max": messages_max, "bytes_max": bytes_max}
        return JMSConsumer(_run(self._inner.create_consumer, dest, selector, no_local, **bounds), self._threads)

    def create_shared_consumer(self, topic: Topic, name: str, selector: str | None = None) -> NoReturn:
        """ResourceAllocationError: not in this release."""
        _run(self._inner.create_shared_consumer, topic, name, selector)

    def create_durable_consumer(
        self, topic: Topic, name: str, selector: str | None = None, no_local: bool = False
    ) -> NoReturn:
        """ResourceAllocationError: not in this release."""
        _run(self._inner.create_durable_consumer, topic, name, selector, no_local)

    def create_shared_durable_consumer(self, topic: Topic, name: str, selector: str | None = None) -> NoReturn:
        """ResourceAllocationError: not in this release."""
        _run(self._inner.create_shared_durable_consumer, topic, name, selector)

    def create_browser(self, queue: Queue, selector: str | None = None) -> NoReturn:
        """ResourceAllocationError: not in this release."""
        _run(self._inner.create_browser, queue, selector)

    def unsubscribe(self, name: str) -> NoReturn:
        """InvalidDestinationError: there are no durable subscriptions in this release."""
        _run(self._inner.unsubscribe, name)

    def request(self, dest: Destination, message: Message, timeout: float | None = None) -> Message | None:
        """Send a message, and wait for the first reply to it; None when so many seconds are over."""
        reply: Message | None = self._threads.call(self._inner.request, dest, message, timeout)
        return reply

    def request_many(
        self, dest: Destination, message: Message, timeout: float | None = None, count: int | None = None
    ) -> list[Message]:
        """Likewise, for so many replies, or all that come in the time."""
        replies: list[Message] = self._threads.call(self._inner.request_many, dest, message, timeout, count)
        return replies


class ConnectionFactory:
    """As `fjm2.jms.ConnectionFactory`; what it makes is open."""

    def __init__(self, uri: str | None = None, **options: Any) -> None:
        self._inner = aio_factory.ConnectionFactory(uri, **options)

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def uri(self) -> str:
        """The bus, with all options that are its own."""
        return self._inner.uri

    def create_connection(self, user: str | None = None, password: str | None = None) -> Connection:
        """Open a connection. User and password are not looked at."""
        return Connection(_call(self._inner.create_connection(user, password)))

    def create_context(
        self, mode: int = SessionMode.AUTO_ACKNOWLEDGE, user: str | None = None, password: str | None = None
    ) -> JMSContext:
        """Likewise a session and its connection in one."""
        inner = _call(self._inner.create_context(mode, user, password))
        return JMSContext(inner, Connection(aio_context.shared_connection_of(inner).connection))

    def create_topic_connection(self, *_: object, **__: object) -> NoReturn:
        """ResourceAllocationError: not in this release."""
        self._inner.create_topic_connection()

    create_queue_connection = create_topic_connection
    """ResourceAllocationError: not in this release."""

    def create_xa_connection(self, *_: object, **__: object) -> NoReturn:
        """NotImplementedError."""
        self._inner.create_xa_connection()

    create_xa_context = create_xa_connection
    """NotImplementedError."""


class TopicRequestor(_Closing):
    """Asks whoever listens on a topic, and takes the first reply. One request at a time; the session is its own."""

    def __init__(self, session: Session, topic: Topic) -> None:
        self._threads = session._threads
        self._inner = _run(aio_requestor.TopicRequestor, session._inner, topic)

    def request(self, message: Message, timeout: float | None = None) -> Message | None:
        """Send the message with a reply-to, and wait for a reply to it; None when so many seconds are over."""
        reply: Message | None = self._threads.call(self._inner.request, message, timeout)
        return reply

    def close(self) -> None:
        """Close the session, and delete the topic of replies."""
        self._threads.call(self._inner.close)
        self._threads.close()
