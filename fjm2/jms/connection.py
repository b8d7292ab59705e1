"""Connections, each of which is one identity on a bus, shared by its sessions."""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Generator
from enum import Enum, auto
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeAlias
from weakref import WeakSet

from fjm2.base.done import DONE
from fjm2.base.functions import FixedAttributes, check_callback
from fjm2.base.readings import Counted
from fjm2.bus.closing import CloseDeadline, close_timeout_after
from fjm2.bus.errors import UnconfirmedError
from fjm2.bus.statistics import ConnectionStatistics
from fjm2.messages.destination import Destination
from fjm2.messages.errors import IllegalStateError, InvalidClientIDError, JMSError

from .consumer import check_timeout
from .endpoint import Endpoint
from .metadata import ConnectionMetaData, refuse
from .producer import check_destination
from .sends.own_keeper import OwnKeeper
from .session import Session, SessionCore
from .settings import ClientSettings, SessionMode, can_be_encoded

if TYPE_CHECKING:
    from fjm2.bus.config import BusConfig
    from fjm2.bus.gates.gated_publication import Gate
    from fjm2.bus.reports import BusReport
    from fjm2.outbox.drive.disk_outbox import DiskOutbox

ExceptionListener: TypeAlias = Callable[[JMSError], Any]
"""A function that is called with each problem that no call can raise. In `fjm2.jms` it may be a coroutine function."""

_claimed: dict[tuple[str, int, str], asyncio.AbstractEventLoop] = {}
"""Event loop of each client id in use in this process, by group, port and client id. A closed loop frees its client
ids."""
CUT_OFF_TEXT = "the connection was opened in another process, which forked this one: open a connection in the child"


def mode_of(mode: int, transacted: bool) -> SessionMode:
    """Return the mode of a session. Raise JMSError if there is no such mode."""
    if isinstance(mode, bool):  # the first argument of Java's createSession; as an int, False would be a mode
        raise JMSError(f"mode={mode}: expected a SessionMode; for a transacted session, pass transacted=True")
    if transacted:
        return SessionMode.SESSION_TRANSACTED
    try:
        return SessionMode(mode)
    except ValueError:
        raise JMSError(
            f"mode={mode!r}: expected one of {', '.join(f'SessionMode.{one.name}' for one in SessionMode)}"
        ) from None


class ConnectionState(Enum):
    """Lifecycle of a connection."""

    NEW = auto()
    """The connection has not been opened yet."""
    OPEN = auto()
    CLOSED = auto()
    """`close` was called, and may still be waiting."""
    CUT_OFF = auto()
    """This process is a forked child, and the connection is its parent's. Closing it does nothing."""


MOVES: Final = {
    ConnectionState.NEW: {ConnectionState.OPEN, ConnectionState.CLOSED},
    ConnectionState.OPEN: {ConnectionState.CLOSED, ConnectionState.CUT_OFF},
    ConnectionState.CLOSED: {ConnectionState.CUT_OFF},
    ConnectionState.CUT_OFF: set[ConnectionState](),
}
"""States that may follow each state."""


class ConnectionCore:
    """The inside of a connection, which `Connection`, `JMSContext` and the blocking API share."""

    def __init__(self, config: "BusConfig", settings: ClientSettings, gate: "Gate | None" = None) -> None:
        """Let `gate`, if there is one, see each frame before it is published."""
        self.config: Final = config
        self.settings: Final = settings
        self.endpoint: Endpoint | None = None
        """The connection as its sessions see it. Set when the connection opens, and kept when it closes."""
        self.sessions: Final[list[SessionCore]] = []
        self._gate = gate
        self._keeper = OwnKeeper(config, settings, self.report)
        self._claim: tuple[str, int, str] | None = None
        """Entry of the client id in `_claimed`."""
        self._sessions_made = 0
        self._state = ConnectionState.NEW
        self._is_started = False
        self._is_used = False
        """True if it is too late to set the client id."""

    @property
    def is_closed(self) -> bool:
        return self._state is ConnectionState.CLOSED

    @property
    def is_cut_off(self) -> bool:
        """True in a forked child, where nothing can be done with the connection, and closing it does nothing."""
        return self._state is ConnectionState.CUT_OFF

    def cut_off(self) -> None:
        """Leave the connection to the parent of this process, in a forked child: its loop and its threads do not run
        here. All calls raise IllegalStateError, but for `close`, which does nothing."""
        self._move_to(ConnectionState.CUT_OFF)
        if self.endpoint is not None:
            self.endpoint.is_closed = True
        for session in self.sessions:
            session.cut_off(CUT_OFF_TEXT)

    async def open(self) -> None:
        """Open the connection. Calling this twice does no harm."""
        if self.is_closed:
            raise IllegalStateError("the connection is closed: create another one")
        if self.endpoint is not None:
            return
        if self.settings.client_id is not None:
            self._claim_id(self.settings.client_id)
        outbox: DiskOutbox | None = None
        try:
            from fjm2.bus.bus import Bus  # only now: see ConnectionFactory

            await self._keeper.open()
            outbox = await self._open_outbox()
            bus = await Bus.open(self.config)
        except BaseException:
            self._release_id()
            if outbox is not None:
                await outbox.close()
            await self._keeper.close()
            raise
        self.endpoint = Endpoint(bus, self.settings, self._gate, outbox)
        self._move_to(ConnectionState.OPEN)
        _opened.add(self)
        bus.add_listener(self._handle_report)
        self.endpoint.announce()
        try:
            await self._keeper.serve(bus)
        except BaseException:
            await self.close()
            raise

    async def _open_outbox(self) -> "DiskOutbox | None":
        if self.settings.outbox is None:
            return None
        from .sends.outbox_sending import open_disk_outbox  # only now: most programs have no outbox

        return await open_disk_outbox(self.settings)

    def start(self) -> None:
        """Deliver messages from now on."""
        self.use()
        if not self._is_started:
            self._is_started = True
            for session in self.sessions:
                session.dispatcher.start()

    async def stop(self) -> None:
        """Stop delivering messages, and wait for running listeners."""
        self.use()
        for session in self.sessions:
            session.dispatcher.check_not_in_listener("stop")
        self._is_started = False
        for session in self.sessions:
            session.dispatcher.halt()
        for session in list(self.sessions):
            await session.dispatcher.stop()

    def create_session(self, mode: SessionMode) -> SessionCore:
        """Create a session, and return its core."""
        endpoint = self.check_open()
        if mode is SessionMode.SESSION_TRANSACTED and self.settings.outbox is not None:
            refuse("transactions beside an outbox")
        self._sessions_made += 1
        session = SessionCore(endpoint, mode, self._sessions_made, self.sessions.remove)
        self.sessions.append(session)
        if self._is_started:
            session.dispatcher.start()
        return session

    def begin_closing(self, timeout_s: float | None) -> None:
        """Set the deadline of the close. Raise IllegalStateError in a callback of a session, where `close` would wait
        for itself, and TypeError or ValueError for a wrong timeout."""
        check_timeout(timeout_s)
        if self.is_cut_off:
            return
        for session in self.sessions:
            session.check_may_close()
        if self.endpoint is not None:
            if not self.is_closed:
                self.endpoint.check_loop()
            self.endpoint.begin_closing(timeout_s)
            self.endpoint.subscriptions.begin_closing()

    async def close(self, timeout_s: float | None = None) -> None:
        """Close the connection; see `Connection.close`."""
        endpoint = self.endpoint
        self.begin_closing(timeout_s)
        if self.is_closed or self.is_cut_off:
            return
        self._move_to(ConnectionState.CLOSED)
        if endpoint is None:
            return
        deadline = endpoint.begin_closing()
        try:
            for session in self.sessions:
                session.dispatcher.halt()
            with contextlib.suppress(TimeoutError):
                async with endpoint.closing():
                    await endpoint.sending.settled()
            for session in list(self.sessions):
                await session.close()
            if endpoint.bus.is_shared:
                await self._confirm(endpoint)
        except asyncio.CancelledError:
            deadline.expire()
            raise
        finally:  # leave the bus even if cancelled, for example because a listener hangs
            endpoint.temporaries.close()
            endpoint.is_closed = True
            endpoint.bus.withdraw(endpoint.connection_id)
            self._release_id()
            try:
                await deadline.complete(self._leave(endpoint, deadline))
            finally:
                await self._keeper.close()
        await endpoint.callbacks.drained()

    async def _leave(self, endpoint: Endpoint, deadline: CloseDeadline) -> None:
        """Give up what other connections, or other programs, could not have before."""
        await endpoint.leave_cell()
        await endpoint.sending.close()
        await endpoint.bus.close(deadline)
        endpoint.bus.remove_listener(self._handle_report)

    async def _confirm(self, endpoint: Endpoint) -> None:
        """Wait until all persistent messages are confirmed. The last connection of a bus leaves that to the bus."""
        try:
            async with endpoint.closing():
                await asyncio.shield(endpoint.confirmation.outcome())
        except TimeoutError:
            endpoint.report(UnconfirmedError("not all subscribers confirmed persistent messages before the close"))

    def _move_to(self, state: ConnectionState) -> None:
        if state not in MOVES[self._state]:
            raise AssertionError(f"{self._state} to {state}")
        self._state = state

    def _handle_report(self, report: "BusReport") -> None:
        self.report(report.error())

    def report(self, error: JMSError) -> None:
        """Pass an error to the exception listener, or to the log if there is no listener."""
        if self.endpoint is not None:
            self.endpoint.report(error)

    def check_open(self) -> Endpoint:
        """Return the endpoint. Raise IllegalStateError unless the connection is open."""
        if self.is_cut_off:
            raise IllegalStateError(CUT_OFF_TEXT)
        if self.is_closed:
            raise IllegalStateError("the connection is closed: create another one")
        if self.endpoint is None:
            raise IllegalStateError("the connection is not open: await it, or use it in `async with`")
        self.endpoint.check_open()
        return self.endpoint

    def use(self) -> None:
        """Note that the connection is used, so that its client id can no longer be set."""
        self.check_open()
        self._is_used = True

    @property
    def client_id(self) -> str | None:
        return self.settings.client_id if self.endpoint is None else self.endpoint.client_id

    def set_client_id(self, value: object) -> None:
        """Set the client id; see `Connection.client_id`."""
        endpoint = self.check_open()
        if not isinstance(value, str) or not value:
            raise InvalidClientIDError(f"client_id={value!r}: expected a string that is not empty")
        if not can_be_encoded(value):
            raise InvalidClientIDError(f"client_id={value!r}: has a lone surrogate, expected what UTF-8 can encode")
        if endpoint.client_id is not None:
            raise IllegalStateError(
                f"client_id={value!r}: the connection is {endpoint.client_id!r} already, which cannot be changed"
            )
        if self._is_used:
            raise IllegalStateError(
                f"client_id={value!r}: expected before any use of it, as in ConnectionFactory(client_id=...)"
            )
        self._claim_id(value)
        endpoint.client_id = value
        endpoint.announce()

    def _claim_id(self, client_id: str) -> None:
        claim = self.config.group, self.config.port, client_id
        if claim in _claimed and not _claimed[claim].is_closed():
            raise InvalidClientIDError(
                f"client_id={client_id!r}: in use by another connection of this program; expected a name of its own"
            )
        _claimed[claim] = asyncio.get_running_loop()
        self._claim = claim

    def _release_id(self) -> None:
        if self._claim is not None:
            _claimed.pop(self._claim, None)

    def statistics(self) -> ConnectionStatistics:
        """Return the statistics of the connection; see `Connection.statistics`."""
        endpoint = self.endpoint or self.check_open()
        return endpoint.statistics(len(self.sessions))

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "not open" if self.endpoint is None else "open"
        name = "" if self.client_id is None else f" {self.client_id!r}"
        from fjm2.bus.bus import BUS_DEFAULTS  # only now: see ConnectionFactory

        return f"<Connection{name} to {self.config.to_uri(BUS_DEFAULTS)}, {state}>"


_opened: Final = WeakSet[ConnectionCore]()
"""Connections that were opened in this process."""


def _after_fork() -> None:
    _claimed.clear()
    for core in list(_opened):
        core.cut_off()
    _opened.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Connection(FixedAttributes):
    """One identity on a bus, and the sessions that share it.

    It opens by `await connection` or `async with connection`. Nothing is delivered before `start()`.
    """

    __slots__ = ("_core",)

    def __init__(self, core: ConnectionCore) -> None:
        """Use a ConnectionFactory instead."""
        self._core = core

    def __await__(self) -> Generator[Any, None, Self]:
        return self._open().__await__()

    async def _open(self) -> Self:
        await self._core.open()
        return self

    def start(self) -> Awaitable[None]:
        """Deliver messages from now on. Calling this twice does no harm. The awaitable returned is done already."""
        self._core.start()
        return DONE

    async def stop(self) -> None:
        """Stop delivering messages. When this returns, no listener runs. Waiting receives go on waiting."""
        await self._core.stop()

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Close all sessions. Wait for listeners and receives to return, and for everything sent to arrive.

        Transactions are rolled back, and nothing is acknowledged. The close waits for listeners in any case, and for
        everything else while there is progress. It gives up after `close_timeout_s` seconds without progress (longer if
        round trips are long), or after `timeout` seconds in all, and reports what is not confirmed by then. Cancelling
        the close ends the wait. Calling it twice does no harm.
        """
        await self._core.close(timeout)

    async def __aenter__(self) -> Self:
        return await self._open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(close_timeout_after(kind, self._core.settings.close_timeout_s))

    def __repr__(self) -> str:
        return repr(self._core)

    async def ready(self) -> None:
        """Wait until the connections on the bus are known, and know this connection's consumers. Wait a second at
        most."""
        await self._core.check_open().ready()

    def subscribers(self, dest: Destination) -> int:
        """Return the number of known connections that consume from `dest`, this one included. See `ready`.

        Connections of other processes that consume from a pattern count for every topic: their patterns are not known.
        """
        return self._core.check_open().bus.subscribers(check_destination(dest))

    def create_session(self, mode: int = SessionMode.AUTO_ACKNOWLEDGE, *, transacted: bool = False) -> Session:
        """Create a session. With `transacted`, the mode does not matter."""
        self._core.use()
        return Session(self._core.create_session(mode_of(mode, transacted)))

    @property
    def client_id(self) -> str | None:
        """Name of the connection. Set it once, before any other use, unless the factory has set it."""
        return self._core.client_id

    @client_id.setter
    def client_id(self, value: str | None) -> None:
        self._core.set_client_id(value)

    @property
    def meta_data(self) -> ConnectionMetaData:
        """Versions of Jakarta Messaging and of FJM2, and the facilities that this release does not offer."""
        self._core.check_open()
        return ConnectionMetaData()

    def statistics(self) -> ConnectionStatistics:
        """Return the statistics of the connection and its bus. Raise IllegalStateError if the connection was never
        open."""
        return self._core.statistics()

    @property
    def counted(self) -> Counted:
        """Source of counters for a TraceRecorder: the bus, shared with other connections to the same URI."""
        return self._core.check_open().bus

    @property
    def exception_listener(self) -> ExceptionListener | None:
        """Function or coroutine function called with each problem that no call can raise, one at a time."""
        return self._core.check_open().exception_listener

    @exception_listener.setter
    def exception_listener(self, listener: ExceptionListener | None) -> None:
        endpoint = self._core.check_open()
        check_callback("exception_listener", listener)
        endpoint.exception_listener = listener

    def create_connection_consumer(self, *_: object, **__: object) -> NoReturn:
        """Raise NotImplementedError, because connection consumers are a facility of application servers."""
        refuse("connection consumers")

    create_shared_connection_consumer = create_connection_consumer
    """Raise NotImplementedError."""
    create_durable_connection_consumer = create_connection_consumer
    """Raise NotImplementedError."""
    create_shared_durable_connection_consumer = create_connection_consumer
    """Raise NotImplementedError."""


def core_of(connection: Connection) -> ConnectionCore:
    """Return the inside of a connection, for other parts of this package."""
    return connection._core
