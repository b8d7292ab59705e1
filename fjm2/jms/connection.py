"""Connections: one identity on a bus, with the sessions that share it."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias

from fjm2.base.done import DONE
from fjm2.base.readings import Counted
from fjm2.bus.closing import limit_of
from fjm2.bus.errors import UnconfirmedError
from fjm2.bus.statistics import ConnectionStatistics
from fjm2.messages.destination import Destination
from fjm2.messages.errors import IllegalStateError, InvalidClientIDError, JMSError

from .endpoint import Endpoint
from .metadata import ConnectionMetaData
from .producer import check_destination
from .session import Session
from .settings import ClientSettings, SessionMode
from .temporary import Temporaries
from .unsupported import refuse

if TYPE_CHECKING:
    from fjm2.bus.config import BusConfig
    from fjm2.bus.reports import BusReport

ExceptionListener: TypeAlias = Callable[[Exception], Any]
"""Called with what no call can report; in `fjm2.jms` it may be a coroutine function."""

_claimed: dict[tuple[str, int, str], asyncio.AbstractEventLoop] = {}
"""Client ids in this process, with the group and port of their bus; a connection does not outlive its loop."""


def mode_of(mode: int, transacted: bool) -> SessionMode:
    """What a session is to be; JMSError if there is no such mode."""
    if transacted:
        return SessionMode.SESSION_TRANSACTED
    try:
        return SessionMode(mode)
    except ValueError:
        raise JMSError(f"mode={mode!r}: expected one of SessionMode") from None


class Connection:
    """Opens by `await connection` or `async with connection`. Nothing is delivered before `start()`."""

    def __init__(self, config: "BusConfig", settings: ClientSettings) -> None:
        """A connection is made by a ConnectionFactory."""
        self._config = config
        self._settings = settings
        self._endpoint: Endpoint | None = None
        self._temporaries: Temporaries | None = None
        self._sessions: list[Session] = []
        self._claim: tuple[str, int, str] | None = None
        self._is_started = False
        self._is_used = False
        self._is_closing = False

    # Life.

    def __await__(self) -> Generator[Any, None, Self]:
        return self._open().__await__()

    async def _open(self) -> Self:
        if self._is_closing:
            raise IllegalStateError("the connection is closed")
        if self._endpoint is None:
            if self._settings.client_id is not None:
                self._claim_id(self._settings.client_id)
            try:
                from fjm2.bus.bus import Bus  # not before it is needed: see ConnectionFactory

                bus = await Bus.open(self._config)
            except BaseException:
                self._release_id()
                raise
            self._endpoint = Endpoint(bus, self._settings)
            self._temporaries = Temporaries(self._endpoint)
            bus.add_listener(self._take_report)
            self._endpoint.announce()
        return self

    def start(self) -> Awaitable[None]:
        """Deliver messages from now on. Twice does no harm; there is nothing to wait for."""
        self._use()
        self._is_started = True
        for session in self._sessions:
            session._dispatcher.start()
        return DONE

    async def stop(self) -> None:
        """No more deliveries: when this returns, no listener runs. Receives that wait go on waiting."""
        self._use()
        for session in self._sessions:
            session._dispatcher.check_not_in_listener("stop")
        self._is_started = False
        for session in self._sessions:
            session._dispatcher.halt()
        for session in list(self._sessions):
            await session._dispatcher.stop()

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Close all that was made by it, and wait for listeners, receives, and what was sent to arrive.

        Transactions are rolled back, nothing is acknowledged. It waits as long as anything goes on, and gives up when
        nothing has for `close_timeout_s`, or, listeners apart, after `timeout` seconds in all; what is not confirmed by
        then is reported. Who is cancelled waits no longer. Twice does no harm.
        """
        endpoint, temporaries = self._endpoint, self._temporaries
        self._begin_closing(timeout)
        if self._is_closing or endpoint is None or temporaries is None:
            self._is_closing = True
            return
        endpoint.check_loop()
        self._is_closing = True
        patience = endpoint.begin_closing()
        try:
            for session in self._sessions:
                session._dispatcher.halt()
            for session in list(self._sessions):
                await session.close()
            if endpoint.bus.is_shared:
                await self._confirm(endpoint)
        except asyncio.CancelledError:
            patience.end()
            raise
        finally:  # who is cancelled, say by a listener that hangs, leaves the bus all the same
            temporaries.close()
            endpoint.is_closed = True
            endpoint.bus.withdraw(endpoint.connection_id)
            self._release_id()
            await endpoint.confirmation.close()
            await endpoint.bus.close(patience)
            endpoint.bus.remove_listener(self._take_report)
        await endpoint.reports.drained()

    def _begin_closing(self, timeout_s: float | None) -> None:
        """The time for it runs from now on."""
        for session in self._sessions:
            session._check_may_close()
        if self._endpoint is not None:
            self._endpoint.begin_closing(timeout_s)

    async def _confirm(self, endpoint: Endpoint) -> None:
        """The last connection leaves it to the bus. Failures have been reported, but not that the time is over."""
        try:
            async with endpoint.closing():
                await endpoint.confirmation.settled()
        except TimeoutError:
            endpoint.report(UnconfirmedError("not all subscribers confirmed persistent messages before the close"))

    async def __aenter__(self) -> Self:
        return await self._open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(limit_of(kind, self._settings.close_timeout_s))

    def _take_report(self, report: "BusReport") -> None:
        from fjm2.bus.bus_errors import error_of

        self._report(error_of(report))

    def _report(self, error: Exception) -> None:
        if self._endpoint is not None:
            self._endpoint.report(error)

    def _check_open(self) -> Endpoint:
        if self._is_closing:
            raise IllegalStateError("the connection is closed")
        if self._endpoint is None:
            raise IllegalStateError("the connection is not open: await it, or use it in `async with`")
        self._endpoint.check_open()
        return self._endpoint

    def _use(self) -> None:
        self._check_open()
        self._is_used = True

    def __repr__(self) -> str:
        state = "closed" if self._is_closing else "not open" if self._endpoint is None else "open"
        name = "" if self.client_id is None else f" {self.client_id!r}"
        return f"<Connection{name} to {self._config.to_uri()}, {state}>"

    # Others.

    async def ready(self) -> None:
        """Wait, a second at the most, until those who are there are known, and know of this connection's consumers."""
        await self._check_open().ready()

    def subscribers(self, dest: Destination) -> int:
        """How many connections are known to consume from it, this one included; `ready` waits until all are."""
        return self._check_open().bus.subscribers(check_destination(dest))

    # Sessions.

    def create_session(self, mode: int = SessionMode.AUTO_ACKNOWLEDGE, *, transacted: bool = False) -> Session:
        """With `transacted` the mode does not matter."""
        self._use()
        return self._create_session(mode_of(mode, transacted))

    def _create_session(self, mode: SessionMode) -> Session:
        self._check_open()
        assert self._temporaries is not None
        session = Session(self._temporaries, mode, self._sessions.remove)
        self._sessions.append(session)
        if self._is_started:
            session._dispatcher.start()
        return session

    # Identity.

    @property
    def client_id(self) -> str | None:
        """To be set once, before anything else is done with the connection, unless the factory has one."""
        return self._settings.client_id if self._endpoint is None else self._endpoint.client_id

    @client_id.setter
    def client_id(self, value: str | None) -> None:
        endpoint = self._check_open()
        if not isinstance(value, str) or not value:
            raise InvalidClientIDError(f"client_id={value!r}: expected a text")
        if endpoint.client_id is not None:
            raise IllegalStateError(f"the client id is set already: {endpoint.client_id!r}")
        if self._is_used:
            raise IllegalStateError("the client id is set before anything else is done with the connection")
        self._claim_id(value)
        endpoint.client_id = value
        endpoint.announce()

    def _claim_id(self, client_id: str) -> None:
        claim = self._config.group, self._config.port, client_id
        if claim in _claimed and not _claimed[claim].is_closed():
            raise InvalidClientIDError(f"client_id={client_id!r}: in use")
        _claimed[claim] = asyncio.get_running_loop()
        self._claim = claim

    def _release_id(self) -> None:
        if self._claim is not None:
            _claimed.pop(self._claim, None)

    @property
    def meta_data(self) -> ConnectionMetaData:
        """Versions, and what is there and what is not."""
        self._check_open()
        return ConnectionMetaData()

    def statistics(self) -> ConnectionStatistics:
        """What it, and its bus, have done so far, and how they stand. IllegalStateError before it is open."""
        if self._endpoint is None:
            self._check_open()
        assert self._endpoint is not None
        return self._endpoint.statistics(len(self._sessions))

    @property
    def counted(self) -> Counted:
        """What a TraceRecorder records of it: the bus, which the process's other connections to the URI share."""
        return self._check_open().bus

    @property
    def exception_listener(self) -> ExceptionListener | None:
        """A function or coroutine function of an exception: it hears what no call can report, one at a time."""
        return self._check_open().exception_listener

    @exception_listener.setter
    def exception_listener(self, listener: ExceptionListener | None) -> None:
        self._check_open().exception_listener = listener

    # What is not offered.

    def create_connection_consumer(self, *_: object, **__: object) -> NoReturn:
        """NotImplementedError: a facility of application servers."""
        refuse("connection consumers")

    create_shared_connection_consumer = create_connection_consumer
    """NotImplementedError, likewise."""
    create_durable_connection_consumer = create_connection_consumer
    """NotImplementedError, likewise."""
    create_shared_durable_connection_consumer = create_connection_consumer
    """NotImplementedError, likewise."""
