"""The simplified API: a context is a session and its connection in one."""

import asyncio
from collections.abc import Awaitable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, Unpack

from fjm2.base.functions import FixedAttributes
from fjm2.base.readings import Counted
from fjm2.bus.closing import close_timeout_after
from fjm2.bus.inbox import Inbox, Overflow
from fjm2.bus.statistics import ConnectionStatistics
from fjm2.messages.destination import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic
from fjm2.messages.errors import IllegalStateError, NoReplyError
from fjm2.messages.message import Message
from fjm2.messages.message_factory import MessageFactory
from fjm2.messages.object_codec import ObjectCodec

from .connection import Connection, ConnectionCore, ExceptionListener, mode_of
from .connection import core_of as connection_core_of
from .consumer import JMSConsumer, check_timeout
from .jms_producer import JMSProducer, send_alone
from .metadata import ConnectionMetaData
from .producer import MessageOptions
from .requestor import REQUEST_TIMEOUT_S, Replies, reply_options
from .session import Session, SessionCore
from .session import core_of as session_core_of
from .settings import OverflowName, SessionMode

if TYPE_CHECKING:
    from fjm2.bus.membership import Subscriber

_NAMED_AFTER_S = 0.1
"""Time after which a request without a reply notes whom it asked: quick requests do not pay for it, and hardly anybody
leaves before."""
CLOSED_TEXT = "the context is closed: use it before its block ends, or create another one"


class SharedConnection:
    """A connection, and the number of contexts that use it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.core: Final[ConnectionCore] = connection_core_of(connection)
        self.users = 0


class JMSContext(FixedAttributes, MessageFactory):
    """A session and its connection in one. It opens by `await context` or `async with context`.

    The connection closes with the last context that shares it.
    """

    __slots__ = ("_auto_start", "_is_closed", "_is_closing", "_mode", "_replies", "_sender", "_session", "_shared")

    def __init__(self, shared: SharedConnection, mode: SessionMode) -> None:
        """Use a ConnectionFactory, or `create_context` of another context, instead."""
        self._shared = shared
        self._mode = mode
        self._session: Session | None = None
        self._replies: Replies | None = None
        self._sender: JMSProducer | None = None
        """Producer of `send`. Nobody sets its options."""
        self._auto_start = True
        self._is_closing = self._is_closed = False

    def __await__(self) -> Generator[Any, None, Self]:
        return self._open().__await__()

    async def _open(self) -> Self:
        if self._is_closed:
            raise IllegalStateError(CLOSED_TEXT)
        if self._session is None:
            await self._shared.connection
            self._begin()
        return self

    def _begin(self) -> Session:
        self._session = Session(self._shared.core.create_session(self._mode))
        self._shared.users += 1
        return self._session

    @property
    def _own(self) -> Session:
        """Session of this context. If the connection is open, the first use opens the session."""
        if self._is_closed:
            raise IllegalStateError(CLOSED_TEXT)
        return self._session or self._begin()

    def create_context(self, mode: int = SessionMode.AUTO_ACKNOWLEDGE) -> "JMSContext":
        """Create a context with another session on the same connection."""
        session_core_of(self._own).check_open()
        made = JMSContext(self._shared, mode_of(mode, transacted=False))
        made._begin()
        return made

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Close the session and, if no other context uses it, the connection. See `Connection.close`.

        The listener that runs meanwhile may use the context to its end.
        """
        check_timeout(timeout)
        if self._is_closing:
            return
        if self._session is None:
            self._is_closed = True
            return
        core = session_core_of(self._session)
        if core.is_cut_off:
            return
        core.check_may_close()
        self._is_closing = True
        is_last = self._shared.users == 1
        if is_last:
            core.endpoint.begin_closing(timeout)
        try:
            await self._session.close()
            if self._replies is not None:
                await self._replies.close()
        except asyncio.CancelledError:
            if is_last:
                core.endpoint.begin_closing().expire()
            raise
        finally:  # leave the connection even if cancelled, for example because a listener hangs
            self._is_closed = True
            self._shared.users -= 1
            if not self._shared.users:
                await self._shared.connection.close()

    async def __aenter__(self) -> Self:
        return await self._open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(close_timeout_after(kind, self._shared.core.settings.close_timeout_s))

    @property
    def _connection(self) -> Connection:
        if self._is_closed:
            raise IllegalStateError(CLOSED_TEXT)
        return self._shared.connection

    def start(self) -> Awaitable[None]:
        """Deliver messages from now on. Creating a consumer does this by itself if `auto_start` is set."""
        return self._connection.start()

    async def stop(self) -> None:
        """Stop delivering messages to all contexts of the connection, until it is started again."""
        await self._connection.stop()

    @property
    def auto_start(self) -> bool:
        """True if creating a consumer starts the connection. This is the default."""
        return self._auto_start

    @auto_start.setter
    def auto_start(self, value: bool) -> None:
        self._auto_start = bool(value)

    @property
    def client_id(self) -> str | None:
        """Name of the connection. Set it before any other use."""
        return self._connection.client_id

    @client_id.setter
    def client_id(self, value: str | None) -> None:
        self._connection.client_id = value

    @property
    def meta_data(self) -> ConnectionMetaData:
        """Versions of Jakarta Messaging and of FJM2, and the facilities that this release does not offer."""
        return self._connection.meta_data

    def statistics(self) -> ConnectionStatistics:
        """Return the statistics of the connection; see `Connection.statistics`."""
        return self._shared.connection.statistics()

    @property
    def counted(self) -> Counted:
        """Source of counters for a TraceRecorder; see `Connection.counted`."""
        return self._connection.counted

    @property
    def exception_listener(self) -> ExceptionListener | None:
        """Function called with each problem of the connection that no call can raise."""
        return self._connection.exception_listener

    @exception_listener.setter
    def exception_listener(self, listener: ExceptionListener | None) -> None:
        self._connection.exception_listener = listener

    async def ready(self) -> None:
        """Wait until the connections on the bus are known; see `Connection.ready`."""
        await self._connection.ready()

    def subscribers(self, dest: Destination) -> int:
        """Return the number of known connections that consume from `dest`; see `Connection.subscribers`."""
        return self._connection.subscribers(dest)

    def __repr__(self) -> str:
        return f"<JMSContext {self._mode.name}{', closed' if self._is_closed else ''} of {self._shared.connection!r}>"

    @property
    def transacted(self) -> bool:
        """True if messages are sent, and acknowledged, only by a commit."""
        return self._mode is SessionMode.SESSION_TRANSACTED

    @property
    def session_mode(self) -> SessionMode:
        """Mode of acknowledging received messages."""
        return self._mode

    async def commit(self) -> None:
        """Send the messages of the transaction, acknowledge the messages received in it, and wait for confirmation."""
        await self._used().commit()

    async def rollback(self) -> None:
        """Drop the messages sent in the transaction. Messages received in it are delivered again."""
        await self._used().rollback()

    async def recover(self) -> None:
        """Redeliver messages, beginning with the first one that is not acknowledged."""
        await self._used().recover()

    def transaction(self) -> AbstractAsyncContextManager[Session]:
        """`async with context.transaction():` commits, or rolls back if an exception leaves the block."""
        return self._used().transaction()

    def acknowledge(self) -> Awaitable[None]:
        """Acknowledge everything received so far, in CLIENT_ACKNOWLEDGE mode."""
        return session_core_of(self._used()).dispatcher.acknowledge()

    def _used(self) -> Session:
        """Return the session, and note that the connection is used: its client id can no longer be set."""
        connection_core_of(self._connection).use()
        return self._own

    def _check_usable(self) -> ObjectCodec:
        return session_core_of(self._own).check_usable()

    def create_temporary_topic(self) -> TemporaryTopic:
        """Create a topic that lives as long as the connection. Only this connection can consume from it."""
        return self._used().create_temporary_topic()

    def create_temporary_queue(self) -> TemporaryQueue:
        """Create a queue that lives as long as the connection. Only this connection can consume from it."""
        return self._used().create_temporary_queue()

    def create_producer(self) -> JMSProducer:
        """Create a producer for any destination."""
        core = session_core_of(self._used())
        core.check_open()
        return JMSProducer(core.outbox, core.retaining)

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
        """Create a consumer as `Session.create_consumer` does, and start the connection unless `auto_start` is off."""
        core = session_core_of(self._used())
        limits = overflow, messages_max, bytes_max, block_s
        inbox = core.open_inbox(dest, selector, no_local, *limits, last_values=last_values)
        return self._started(inbox, no_local)

    async def create_shared_consumer(self, topic: Topic, name: str, selector: str | None = None) -> JMSConsumer:
        """Create a consumer of a shared subscription as `Session.create_shared_consumer` does, and start the connection
        unless `auto_start` is off."""
        core = session_core_of(self._used())
        inbox = await core.open_durable_inbox(topic, name, selector, False, is_shared=True, is_durable=False)
        return self._started(inbox, False)

    async def create_durable_consumer(
        self, topic: Topic, name: str, selector: str | None = None, no_local: bool = False
    ) -> JMSConsumer:
        """Create a consumer of a durable subscription as `Session.create_durable_consumer` does, and start the
        connection unless `auto_start` is off."""
        core = session_core_of(self._used())
        return self._started(await core.open_durable_inbox(topic, name, selector, no_local, is_shared=False), no_local)

    async def create_shared_durable_consumer(self, topic: Topic, name: str, selector: str | None = None) -> JMSConsumer:
        """Create a consumer of a shared durable subscription as `Session.create_shared_durable_consumer` does, and
        start the connection unless `auto_start` is off."""
        core = session_core_of(self._used())
        return self._started(await core.open_durable_inbox(topic, name, selector, False, is_shared=True), False)

    def _started(self, inbox: Inbox, no_local: bool) -> JMSConsumer:
        core = session_core_of(self._own)
        if self._auto_start:
            self.start()
        return JMSConsumer(core.dispatcher, inbox, no_local, core.endpoint.ready_of(inbox), core.close_inbox)

    def create_browser(self, queue: Queue, selector: str | None = None) -> NoReturn:
        """Raise ResourceAllocationError, because this release does not offer this method."""
        self._used().create_browser(queue, selector)

    async def unsubscribe(self, name: str) -> None:
        """End a durable subscription; see `Session.unsubscribe`."""
        await self._used().unsubscribe(name)

    def send(
        self,
        dest: Destination,
        body: Any = None,
        *,
        reply_to: Destination | None = None,
        **options: Unpack[MessageOptions],
    ) -> Coroutine[Any, Any, None]:
        """Send a message, or a body (str, bytes, mapping, None, or any other object) as a message of its kind.

        `options` are the items of `MessageOptions`. Nothing is kept for the next message, so that any number of tasks
        may share the context.
        """
        return send_alone(self._sender or self._new_sender(), dest, body, reply_to, options)

    def _new_sender(self) -> JMSProducer:
        self._sender = self.create_producer()
        return self._sender

    async def reply(self, request: Message, body: Any = None, **options: Unpack[MessageOptions]) -> None:
        """Send a message, or a body, to the `reply_to` of a request. Its correlation id is the id of the request.

        Raise InvalidDestinationError if the request has no `reply_to`.
        """
        destination, options = reply_options(request, options)
        await self.send(destination, body, **options)

    async def request(
        self,
        dest: Destination,
        body: Any = None,
        timeout: float | None = REQUEST_TIMEOUT_S,  # noqa: ASYNC109
        **options: Unpack[MessageOptions],
    ) -> Message:
        """Send a message, or a body, and return the first reply.

        A reply carries the request's message id or correlation id as its correlation id. Raise NoReplyError after
        `timeout` seconds; with None, wait for ever.
        """
        requests = self._requests()
        membership = connection_core_of(self._connection).check_open().bus.membership
        earlier: dict[int, Subscriber] | None = None
        loop = asyncio.get_running_loop()

        def note() -> None:
            nonlocal earlier
            earlier = membership.known_subscribers(dest)

        asked_at = loop.time()
        noting = loop.call_later(_NAMED_AFTER_S, note)
        try:
            replies = await requests.request(dest, body, timeout, 1, options)
        finally:
            noting.cancel()
        if not replies:
            asked = membership.describe_asked(dest, asked_at, earlier)
            raise NoReplyError(f"no reply from {dest} within {timeout:g} s: {asked}")
        return replies[0]

    async def request_many(
        self,
        dest: Destination,
        body: Any = None,
        timeout: float | None = None,  # noqa: ASYNC109
        count: int | None = None,
        **options: Unpack[MessageOptions],
    ) -> list[Message]:
        """Send a message, or a body, and return `count` replies, or all that arrive within `timeout` seconds."""
        if timeout is None and count is None:
            raise ValueError("timeout or count: expected at least one of them, or the call would never end")
        return await self._requests().request(dest, body, timeout, count, options)

    def _requests(self) -> Replies:
        if self.transacted:
            raise IllegalStateError(
                "a request in a transaction would be sent only by the commit: expected a context that is not transacted"
            )
        session_core_of(self._used()).check_open()
        if self._replies is None:
            self._replies = Replies(self._connection.create_session())
        if self._auto_start:
            self.start()
        return self._replies


def shared_connection_of(context: JMSContext) -> SharedConnection:
    """Return the connection of a context, for other parts of this package."""
    return context._shared


def session_of(context: JMSContext) -> SessionCore:
    """Return the inside of a context's session, for other parts of this package."""
    return session_core_of(context._own)
