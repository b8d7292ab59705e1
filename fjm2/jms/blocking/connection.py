"""Connections for threads."""

from typing import NoReturn

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


class Connection(Closable):
    """Nothing is delivered before `start()`."""

    def __init__(self, inner: aio_connection.Connection) -> None:
        """A connection is made, and open, by a ConnectionFactory."""
        self._inner = inner
        self._threads = ConnectionThreads(aio_connection.core_of(inner))
        self._exception_listener: ExceptionListener | None = None

    def start(self) -> None:
        """Deliver messages from now on. Twice does no harm."""
        run(self._inner.start)

    def stop(self) -> None:
        """No more deliveries: when this returns, no listener runs. Receives that wait go on waiting."""
        call(self._inner.stop())

    def close(self, timeout: float | None = None) -> None:
        """Close all that was made by it, and wait for listeners, receives, and what was sent to arrive.

        Transactions are rolled back, nothing is acknowledged. It waits as long as anything goes on, and gives up when
        nothing has for `close_timeout_s`, or, listeners apart, after `timeout` seconds in all; what is not confirmed by
        then is reported. Twice does no harm.
        """
        call(self._threads.close_behind(self._inner.close, timeout))
        self._threads.close()

    def _close_after(self, kind: type[BaseException] | None) -> None:
        self.close(self._threads.close_timeout_after(kind))

    def __repr__(self) -> str:
        return repr(self._inner)

    def ready(self) -> None:
        """Wait, a second at the most, until those who are there are known, and know of this connection's consumers."""
        call(self._inner.ready())

    def subscribers(self, dest: Destination) -> int:
        """How many connections are known to consume from it, this one included; `ready` waits until all are."""
        return run(self._inner.subscribers, dest)

    def create_session(self, mode: int = SessionMode.AUTO_ACKNOWLEDGE, *, transacted: bool = False) -> Session:
        """With `transacted` the mode does not matter."""
        return Session(run(self._inner.create_session, mode, transacted=transacted), self._threads)

    @property
    def client_id(self) -> str | None:
        """To be set once, before anything else is done with the connection, unless the factory has one."""
        return self._inner.client_id

    @client_id.setter
    def client_id(self, value: str | None) -> None:
        run(setattr, self._inner, "client_id", value)

    @property
    def meta_data(self) -> ConnectionMetaData:
        """Versions, and what is there and what is not."""
        meta_data: ConnectionMetaData = run(getattr, self._inner, "meta_data")
        return meta_data

    def statistics(self) -> ConnectionStatistics:
        """What it, and its bus, have done so far, and how they stand."""
        return run(self._inner.statistics)

    @property
    def counted(self) -> Counted:
        """What a TraceRecorder records of it: the bus, which the process's other connections to the URI share."""
        bus: Counted = run(getattr, self._inner, "counted")
        return bus

    @property
    def exception_listener(self) -> ExceptionListener | None:
        """A function of an exception: it hears what no call can report, one at a time, in a thread of its own."""
        run(getattr, self._inner, "exception_listener")
        return self._exception_listener

    @exception_listener.setter
    def exception_listener(self, listener: ExceptionListener | None) -> None:
        run(setattr, self._inner, "exception_listener", listener and self._threads.exceptions.bind(listener))
        self._exception_listener = listener

    def create_connection_consumer(self, *_: object, **__: object) -> NoReturn:
        """NotImplementedError: a facility of application servers."""
        run(self._inner.create_connection_consumer)

    create_shared_connection_consumer = create_connection_consumer
    """NotImplementedError, likewise."""
    create_durable_connection_consumer = create_connection_consumer
    """NotImplementedError, likewise."""
    create_shared_durable_connection_consumer = create_connection_consumer
    """NotImplementedError, likewise."""


def threads_of(connection: Connection) -> ConnectionThreads:
    """Return the threads of a connection, for other parts of this package."""
    return connection._threads
