"""The simplified API: a context is a session and its connection in one."""

from collections.abc import Awaitable, Generator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, NoReturn, Self

from fjm2.counted import Counted

from .connection import Connection, ExceptionListener, mode_of
from .consumer import JMSConsumer
from .destination import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic
from .errors import IllegalStateError
from .jms_producer import JMSProducer
from .message import Message
from .message_factory import MessageFactory
from .metadata import ConnectionMetaData
from .object_codec import ObjectCodec
from .requestor import Replies
from .session import Session
from .settings import Overflow, SessionMode


class _Shared:
    """A connection, and how many contexts use it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.users = 0


class JMSContext(MessageFactory):
    """Opens by `await context` or `async with context`. Its connection closes with the last context that shares it."""

    def __init__(self, shared: _Shared, mode: SessionMode) -> None:
        """A context is made by a ConnectionFactory, or by another context."""
        self._shared = shared
        self._mode = mode
        self._session: Session | None = None
        self._replies: Replies | None = None
        self._auto_start = True
        self._is_closed = False

    @classmethod
    def of_connection(cls, connection: Connection, mode: int) -> Self:
        return cls(_Shared(connection), mode_of(mode, transacted=False))

    # Life.

    def __await__(self) -> Generator[Any, None, Self]:
        return self._open().__await__()

    async def _open(self) -> Self:
        if self._is_closed:
            raise IllegalStateError("the context is closed")
        if self._session is None:
            await self._shared.connection
            self._begin()
        return self

    def _begin(self) -> Session:
        self._session = self._shared.connection._create_session(self._mode)
        self._shared.users += 1
        return self._session

    @property
    def _own(self) -> Session:
        """The session. A context that shares an open connection opens by its first use."""
        if self._is_closed:
            raise IllegalStateError("the context is closed")
        return self._session or self._begin()

    def create_context(self, mode: int = SessionMode.AUTO_ACKNOWLEDGE) -> "JMSContext":
        """Another session on the same connection."""
        self._own._check_open()
        made = JMSContext(self._shared, mode_of(mode, transacted=False))
        made._begin()
        return made

    async def close(self) -> None:
        """Close the session and, if no other context uses it, the connection. Twice does no harm."""
        if self._is_closed or self._session is None:
            self._is_closed = True
            return
        self._session._check_may_close()
        self._is_closed = True
        if self._shared.users == 1:
            self._session._endpoint.begin_closing()
        if self._replies is not None:
            await self._replies.close()
        await self._session.close()
        self._shared.users -= 1
        if not self._shared.users:
            await self._shared.connection.close()

    async def __aenter__(self) -> Self:
        return await self._open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # The connection.

    @property
    def _connection(self) -> Connection:
        if self._is_closed:
            raise IllegalStateError("the context is closed")
        return self._shared.connection

    def start(self) -> Awaitable[None]:
        """Deliver messages from now on; the first consumer does so by itself if `auto_start` is set."""
        return self._connection.start()

    async def stop(self) -> None:
        await self._connection.stop()

    @property
    def auto_start(self) -> bool:
        return self._auto_start

    @auto_start.setter
    def auto_start(self, value: bool) -> None:
        self._auto_start = bool(value)

    @property
    def client_id(self) -> str | None:
        return self._connection.client_id

    @client_id.setter
    def client_id(self, value: str | None) -> None:
        self._connection.client_id = value

    @property
    def meta_data(self) -> ConnectionMetaData:
        return self._connection.meta_data

    @property
    def counted(self) -> Counted:
        """What a TraceRecorder records of its connection."""
        return self._connection.counted

    @property
    def exception_listener(self) -> ExceptionListener | None:
        return self._connection.exception_listener

    @exception_listener.setter
    def exception_listener(self, listener: ExceptionListener | None) -> None:
        self._connection.exception_listener = listener

    # The session.

    @property
    def transacted(self) -> bool:
        return self._mode is SessionMode.SESSION_TRANSACTED

    @property
    def session_mode(self) -> SessionMode:
        return self._mode

    async def commit(self) -> None:
        await self._used().commit()

    async def rollback(self) -> None:
        await self._used().rollback()

    async def recover(self) -> None:
        await self._used().recover()

    def transaction(self) -> AbstractAsyncContextManager[Session]:
        return self._used().transaction()

    def acknowledge(self) -> Awaitable[None]:
        """In CLIENT_ACKNOWLEDGE mode, all that was received so far."""
        return self._used()._dispatcher.acknowledge()

    def _used(self) -> Session:
        """Of a context that is used, the client id stays as it is."""
        self._connection._use()
        return self._own

    def _check_usable(self) -> ObjectCodec:
        return self._own._check_usable()

    def create_temporary_topic(self) -> TemporaryTopic:
        return self._used().create_temporary_topic()

    def create_temporary_queue(self) -> TemporaryQueue:
        return self._used().create_temporary_queue()

    def create_producer(self) -> JMSProducer:
        session = self._used()
        session._check_open()
        return JMSProducer(session._outbox)

    def create_consumer(
        self,
        dest: Destination,
        selector: str | None = None,
        no_local: bool = False,
        *,
        overflow: Overflow | str | None = None,
        max_messages: int | None = None,
        max_bytes: int | None = None,
    ) -> JMSConsumer:
        """As `Session.create_consumer`; starts the connection unless `auto_start` is off."""
        session = self._used()
        inbox = session._open_inbox(dest, selector, no_local, overflow, max_messages, max_bytes)
        if self._auto_start:
            self.start()
        return JMSConsumer(session._dispatcher, inbox, no_local, session._endpoint.ready, session._close_inbox)

    def create_shared_consumer(self, topic: Topic, name: str, selector: str | None = None) -> NoReturn:
        self._used().create_shared_consumer(topic, name, selector)

    def create_durable_consumer(
        self, topic: Topic, name: str, selector: str | None = None, no_local: bool = False
    ) -> NoReturn:
        self._used().create_durable_consumer(topic, name, selector, no_local)

    def create_shared_durable_consumer(self, topic: Topic, name: str, selector: str | None = None) -> NoReturn:
        self._used().create_shared_durable_consumer(topic, name, selector)

    def create_browser(self, queue: Queue, selector: str | None = None) -> NoReturn:
        self._used().create_browser(queue, selector)

    def unsubscribe(self, name: str) -> NoReturn:
        self._used().unsubscribe(name)

    # Requests.

    async def request(self, dest: Destination, message: Message, timeout: float | None = None) -> Message | None:  # noqa: ASYNC109
        """Send a message, and wait for the first reply to it; None when so many seconds are over.

        A reply is known by its correlation id: the request's message id, or its correlation id.
        """
        replies = await self._requests().request(dest, message, timeout, 1)
        return replies[0] if replies else None

    async def request_many(
        self,
        dest: Destination,
        message: Message,
        timeout: float | None = None,  # noqa: ASYNC109
        count: int | None = None,
    ) -> list[Message]:
        """Likewise, for so many replies, or all that come in the time."""
        if timeout is None and count is None:
            raise ValueError("timeout or count: expected one of them at least")
        return await self._requests().request(dest, message, timeout, count)

    def _requests(self) -> Replies:
        if self.transacted:
            raise IllegalStateError("a request in a transaction would leave only when it is committed")
        session = self._used()
        session._check_open()
        if self._replies is None:
            self._replies = Replies(self._connection.create_session())
        if self._auto_start:
            self.start()
        return self._replies
