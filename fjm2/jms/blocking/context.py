"""Contexts for threads."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, Unpack

from fjm2.base.functions import FixedAttributes
from fjm2.base.readings import Counted
from fjm2.bus.inbox import Overflow
from fjm2.bus.statistics import ConnectionStatistics
from fjm2.jms import context as aio_context
from fjm2.jms import session as aio_session
from fjm2.jms.connection import ExceptionListener
from fjm2.jms.consumer import check_timeout
from fjm2.jms.metadata import ConnectionMetaData
from fjm2.jms.producer import MessageOptions
from fjm2.jms.requestor import REQUEST_TIMEOUT_S, reply_options
from fjm2.jms.settings import OverflowName, SessionMode
from fjm2.messages.destination import Destination, Queue, Topic
from fjm2.messages.errors import JMSError
from fjm2.messages.message import Message
from fjm2.messages.message_factory import MessageFactory
from fjm2.messages.object_codec import ObjectCodec

from .closing import Closable
from .connection import Connection
from .connection import threads_of as connection_threads_of
from .consumers import JMSConsumer
from .loop_thread import call, run
from .producers import JMSProducer
from .session import Session
from .session import threads_of as session_threads_of
from .temporary import TemporaryQueue, TemporaryTopic


class JMSContext(FixedAttributes, MessageFactory, Closable):
    """A session and its connection in one. The connection closes with the last context that shares it."""

    __slots__ = ("_connection", "_inner", "_sender", "_session", "_shared_threads", "_threads")

    def __init__(self, inner: aio_context.JMSContext, connection: Connection) -> None:
        """Use a ConnectionFactory, or another context, instead. The context is open from the start."""
        self._inner, self._connection = inner, connection
        self._shared_threads = connection_threads_of(connection)
        self._session = Session(aio_session.Session(aio_context.session_of(inner)), self._shared_threads)
        self._threads = session_threads_of(self._session)
        self._sender = JMSProducer(self._threads)  # of `send`: nobody sets its options

    def _check_usable(self) -> ObjectCodec:
        return self._threads.core.check_usable()

    def __repr__(self) -> str:
        return repr(self._inner)

    def ready(self) -> None:
        """Wait until the connections on the bus are known. See `Connection.ready`."""
        self._connection.ready()

    def subscribers(self, dest: Destination) -> int:
        """Return the number of known connections that consume from `dest`. See `Connection.subscribers`."""
        return self._connection.subscribers(dest)

    def create_context(self, mode: int = SessionMode.AUTO_ACKNOWLEDGE) -> "JMSContext":
        """Create a context with another session on the same connection."""
        return JMSContext(run(self._inner.create_context, mode), self._connection)

    def close(self, timeout: float | None = None) -> None:
        """Close the session and, if no other context uses it, the connection. See `Connection.close`."""
        check_timeout(timeout)
        close, is_last = self._inner.close, aio_context.shared_connection_of(self._inner).users <= 1
        shared, own = self._shared_threads, self._threads
        call(shared.close_behind(close, timeout) if is_last else own.close_behind(close))
        own.close()

    def _close_after(self, kind: type[BaseException] | None) -> None:
        self.close(self._shared_threads.close_timeout_after(kind))

    def start(self) -> None:
        """Deliver messages from now on. The first consumer does this unless `auto_start` is off."""
        run(self._inner.start)

    def stop(self) -> None:
        """Stop delivering messages to all contexts of the connection, until it is started again."""
        call(self._inner.stop())

    @property
    def auto_start(self) -> bool:
        """True if the first consumer starts the connection. This is the default."""
        return self._inner.auto_start

    @auto_start.setter
    def auto_start(self, value: bool) -> None:
        self._inner.auto_start = value

    @property
    def client_id(self) -> str | None:
        """Client id of the connection. Set it once, before the context is used for anything else."""
        return self._inner.client_id

    @client_id.setter
    def client_id(self, value: str | None) -> None:
        run(setattr, self._inner, "client_id", value)

    @property
    def meta_data(self) -> ConnectionMetaData:
        """Versions of Jakarta Messaging and of FJM2, and the facilities that this release does not offer."""
        return self._connection.meta_data

    def statistics(self) -> ConnectionStatistics:
        """Return the counters and the present state of the connection. See `Connection.statistics`."""
        return self._connection.statistics()

    @property
    def counted(self) -> Counted:
        """The bus of the connection, which a TraceRecorder records."""
        return self._connection.counted

    @property
    def exception_listener(self) -> ExceptionListener | None:
        """Function called with errors of the connection that no call can report."""
        return self._connection.exception_listener

    @exception_listener.setter
    def exception_listener(self, listener: ExceptionListener | None) -> None:
        self._connection.exception_listener = listener

    @property
    def transacted(self) -> bool:
        """True if messages are sent, and acknowledged, only by a commit."""
        return self._inner.transacted

    @property
    def session_mode(self) -> SessionMode:
        """Mode in which received messages are acknowledged."""
        return self._inner.session_mode

    def commit(self) -> None:
        """Send the messages of the transaction, acknowledge the messages received in it, and wait for confirmation."""
        self._threads.call(self._inner.commit)

    def rollback(self) -> None:
        """Drop the messages sent in the transaction. Messages received in it are delivered again."""
        self._threads.call(self._inner.rollback)

    def recover(self) -> None:
        """Redeliver messages, beginning with the first one that is not acknowledged."""
        call(self._inner.recover())

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """`with context.transaction():` commits, or rolls back if an exception leaves the block."""
        with self._session.transaction() as session:
            yield session

    def acknowledge(self) -> None:
        """Acknowledge all messages received so far. Has an effect in CLIENT_ACKNOWLEDGE mode only."""
        self._threads.acknowledge()

    def create_temporary_topic(self) -> TemporaryTopic:
        """Create a topic that lives as long as the connection. Only this connection can consume from it."""
        return self._session.create_temporary_topic()

    def create_temporary_queue(self) -> TemporaryQueue:
        """Create a queue that lives as long as the connection. Only this connection can consume from it."""
        return self._session.create_temporary_queue()

    def create_producer(self) -> JMSProducer:
        """Create a producer for any destination."""
        run(self._inner.create_producer)
        return JMSProducer(self._threads)

    def create_consumer(
        self,
        dest: Destination,
        selector: str | None = None,
        no_local: bool = False,
        *,
        overflow: Overflow | OverflowName | None = None,
        messages_max: int | None = None,
        bytes_max: int | None = None,
        block_s: float | str | None = None,
        last_values: bool = False,
    ) -> JMSConsumer:
        """Create a consumer. See `Session.create_consumer`. Starts the connection unless `auto_start` is off."""
        bounds: dict[str, Any] = {"overflow": overflow, "messages_max": messages_max, "bytes_max": bytes_max}
        bounds |= {"block_s": block_s, "last_values": last_values}
        return JMSConsumer(run(self._inner.create_consumer, dest, selector, no_local, **bounds), self._threads)

    def create_shared_consumer(self, topic: Topic, name: str, selector: str | None = None) -> JMSConsumer:
        """Create a consumer of a shared subscription. See `Session.create_shared_consumer`. Starts the connection
        unless `auto_start` is off."""
        inner = call(self._inner.create_shared_consumer(topic, name, selector))
        return JMSConsumer(inner, self._threads)

    def create_durable_consumer(
        self, topic: Topic, name: str, selector: str | None = None, no_local: bool = False
    ) -> JMSConsumer:
        """Create a consumer of a durable subscription. See `Session.create_durable_consumer`. Starts the connection
        unless `auto_start` is off."""
        inner = call(self._inner.create_durable_consumer(topic, name, selector, no_local))
        return JMSConsumer(inner, self._threads)

    def create_shared_durable_consumer(self, topic: Topic, name: str, selector: str | None = None) -> JMSConsumer:
        """Create a consumer of a shared durable subscription. See `Session.create_shared_durable_consumer`. Starts the
        connection unless `auto_start` is off."""
        inner = call(self._inner.create_shared_durable_consumer(topic, name, selector))
        return JMSConsumer(inner, self._threads)

    def create_browser(self, queue: Queue, selector: str | None = None) -> NoReturn:
        """Raise ResourceAllocationError, because this release does not offer this method."""
        run(self._inner.create_browser, queue, selector)

    def unsubscribe(self, name: str) -> None:
        """End a durable subscription. See `Session.unsubscribe`."""
        call(self._inner.unsubscribe(name))

    def send(
        self,
        dest: Destination,
        body: Any = None,
        *,
        reply_to: Destination | None = None,
        **options: Unpack[MessageOptions],
    ) -> None:
        """Send a message, or a body (str, bytes, mapping, None, or any other object) as a message of its kind.

        `options` are the items of `MessageOptions`. Nothing is kept for the next message, so that any number of
        threads may share the context.
        """
        self._sender.send(dest, body, reply_to=reply_to, **options)

    def reply(self, request: Message, body: Any = None, **options: Unpack[MessageOptions]) -> None:
        """Send a message, or a body, to the `reply_to` of a request. Its correlation id is the id of the request.

        Raise InvalidDestinationError if the request has no `reply_to`.
        """
        destination, options = reply_options(request, options)
        self.send(destination, body, **options)

    def request(
        self,
        dest: Destination,
        body: Any = None,
        timeout: float | None = REQUEST_TIMEOUT_S,
        **options: Unpack[MessageOptions],
    ) -> Message:
        """Send a message, or a body, and return the first reply to it. Raise NoReplyError after `timeout` seconds."""
        reply: Message = self._threads.call(self._inner.request, dest, body, timeout, **options)
        return reply

    def request_many(
        self,
        dest: Destination,
        body: Any = None,
        timeout: float | None = None,
        count: int | None = None,
        **options: Unpack[MessageOptions],
    ) -> list[Message]:
        """Send a message, or a body, and return `count` replies to it, or all that arrive within `timeout` seconds."""
        replies: list[Message] = self._threads.call(self._inner.request_many, dest, body, timeout, count, **options)
        return replies


def reporter_of(context: JMSContext) -> Callable[[JMSError, Hashable], None]:
    """Return the function that passes an error to the exception listener of a context's connection, or to the log: see
    `Endpoint.report`."""
    report = context._threads.core.endpoint.report
    return lambda error, about: run(report, error, about)
