"""Connection factories for threads."""

from typing import Any, NoReturn

from fjm2.jms import context as aio_context
from fjm2.jms import factory as aio_factory
from fjm2.jms.settings import SessionMode

from .connection import Connection
from .context import JMSContext
from .loop_thread import call


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
        return Connection(call(self._inner.create_connection(user, password)))

    def create_context(
        self, mode: int = SessionMode.AUTO_ACKNOWLEDGE, user: str | None = None, password: str | None = None
    ) -> JMSContext:
        """Likewise a session and its connection in one."""
        inner = call(self._inner.create_context(mode, user, password))
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
