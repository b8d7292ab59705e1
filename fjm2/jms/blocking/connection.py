"""Connections for threads."""

from typing import NoReturn

from fjm2.base.functions import FixedAttributes, check_callback
from fjm2.base.readings import Counted
from fjm2.bus.statistics import ConnectionStatistics
from fjm2.jms import connection as aio_connection
from fjm2.jms.connection import ExceptionListener
from fjm2.jms.metadata import ConnectionMetaData
from fjm2.jms.settings import SessionMode
from fjm2.messages.destination import Destination

from .closing import Closable
from .connection_threads import ConnectionThreads
from .loop_thread import call, run
from .session import Session


class Connection(FixedAttributes, Closable):
    """One identity on a bus, and the sessions that share it. Nothing is delivered before `start()`."""

    __slots__ = ("_exception_listener", "_inner", "_threads")

    def __init__(self, inner: aio_connection.Connection) -> None:
        """Use a ConnectionFactory instead. The connection is open from the start."""
        self._inner = inner
        self._threads = ConnectionThreads(aio_connection.core_of(inner))
        self._exception_listener: ExceptionListener | None = None

    def start(self) -> None:
        """Deliver messages from now on. Calling this twice does no harm."""
        run(self._inner.start)

    def stop(self) -> None:
        """Stop delivering messages. When this returns, no listener runs. Waiting receives go on waiting."""
        call(self._inner.stop())

    def close(self, timeout: float | None = None) -> None:
        """Close all sessions. Wait for listeners and receives to return, and for everything sent to arrive.

        Transactions are rolled back, and nothing is acknowledged. The close waits for listeners in any case, and for
        everything else while there is progress. It gives up after `close_timeout_s` seconds without progress, or after
        `timeout` seconds in all, and reports what is not confirmed by then. Calling it twice does no harm.
        """
        call(self._threads.close_behind(self._inner.close, timeout))
        self._threads.close()

    def _close_after(self, kind: type[BaseException] | None) -> None:
        self.close(self._threads.close_timeout_after(kind))

    def __repr__(self) -> str:
        return repr(self._inner)

    def ready(self) -> None:
        """Wait until the connections on the bus are known, and know this connection's consumers. Wait a second at
        most."""
        call(self._inner.ready())

    def subscribers(self, dest: Destination) -> int:
        """Return the number of known connections that consume from `dest`, this one included. See `ready`.

        Connections of other processes that consume from a pattern count for every topic: their patterns are not known.
        """
        return run(self._inner.subscribers, dest)

    def create_session(self, mode: int = SessionMode.AUTO_ACKNOWLEDGE, *, transacted: bool = False) -> Session:
        """Create a session. With `transacted`, the mode does not matter."""
        return Session(run(self._inner.create_session, mode, transacted=transacted), self._threads)

    @property
    def client_id(self) -> str | None:
        """Client id of the connection. Set it once, before any other use, unless the factory has set it."""
        return self._inner.client_id

    @client_id.setter
    def client_id(self, value: str | None) -> None:
        run(setattr, self._inner, "client_id", value)

    @property
    def meta_data(self) -> ConnectionMetaData:
        """Versions of Jakarta Messaging and of FJM2, and the facilities that this release does not offer."""
        meta_data: ConnectionMetaData = run(getattr, self._inner, "meta_data")
        return meta_data

    def statistics(self) -> ConnectionStatistics:
        """Return the counters and the present state of the connection and its bus."""
        return run(self._inner.statistics)

    @property
    def counted(self) -> Counted:
        """The bus, which a TraceRecorder records. All connections of the process to the same URI share it."""
        bus: Counted = run(getattr, self._inner, "counted")
        return bus

    @property
    def exception_listener(self) -> ExceptionListener | None:
        """Function called with errors that no call can report, one at a time, in a thread of its own."""
        run(getattr, self._inner, "exception_listener")
        return self._exception_listener

    @exception_listener.setter
    def exception_listener(self, listener: ExceptionListener | None) -> None:
        check_callback("exception_listener", listener, is_awaited=False)
        bound = None if listener is None else self._threads.exceptions.bind(listener)
        run(setattr, self._inner, "exception_listener", bound)
        self._exception_listener = listener

    def create_connection_consumer(self, *_: object, **__: object) -> NoReturn:
        """Raise NotImplementedError, because connection consumers are a facility of application servers."""
        run(self._inner.create_connection_consumer)

    create_shared_connection_consumer = create_connection_consumer
    """Raise NotImplementedError."""
    create_durable_connection_consumer = create_connection_consumer
    """Raise NotImplementedError."""
    create_shared_durable_connection_consumer = create_connection_consumer
    """Raise NotImplementedError."""


def threads_of(connection: Connection) -> ConnectionThreads:
    """Return the threads of a connection, for other parts of this package."""
    return connection._threads
