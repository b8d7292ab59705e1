"""Connection factories for threads."""

from typing import NoReturn, Unpack

from fjm2.base.functions import FixedAttributes
from fjm2.jms import context as aio_context
from fjm2.jms import factory as aio_factory
from fjm2.jms.settings import ConnectionOptions, SessionMode

from .connection import Connection
from .context import JMSContext
from .loop_thread import call


class ConnectionFactory(FixedAttributes):
    """Creates connections and contexts that are open. Takes the arguments of `fjm2.jms.ConnectionFactory`."""

    __slots__ = ("_inner",)

    def __init__(self, uri: str | None = None, **options: Unpack[ConnectionOptions]) -> None:
        self._inner = aio_factory.ConnectionFactory(uri, **options)

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def uri(self) -> str:
        """URI of the bus, with all of its options."""
        return self._inner.uri

    def create_connection(self, user: str | None = None, password: str | None = None) -> Connection:
        """Open a connection. User and password are ignored."""
        return Connection(call(self._inner.create_connection(user, password)))

    def create_context(
        self, mode: int = SessionMode.AUTO_ACKNOWLEDGE, user: str | None = None, password: str | None = None
    ) -> JMSContext:
        """Open a session and its connection in one. User and password are ignored."""
        inner = call(self._inner.create_context(mode, user, password))
        return JMSContext(inner, Connection(aio_context.shared_connection_of(inner).connection))

    def create_topic_connection(self, *_: object, **__: object) -> NoReturn:
        """Raise ResourceAllocationError, because this release does not offer this method."""
        self._inner.create_topic_connection()

    create_queue_connection = create_topic_connection
    """Raise ResourceAllocationError, because this release does not offer this method."""

    def create_xa_connection(self, *_: object, **__: object) -> NoReturn:
        """Raise NotImplementedError, because FJM2 does not offer XA transactions."""
        self._inner.create_xa_connection()

    create_xa_context = create_xa_connection
    """Raise NotImplementedError, because FJM2 does not offer XA transactions."""
