"""An open connection as its sessions see it: its place on the bus, identity, settings, and exception listener."""

import secrets
from collections.abc import Awaitable, Callable, Hashable
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fjm2.bus.callbacks import Callbacks
from fjm2.bus.closing import CloseDeadline
from fjm2.bus.confirmation import Confirmation
from fjm2.bus.gates.gated_publication import Gate
from fjm2.bus.inbox import Inbox
from fjm2.bus.problems import log_problem
from fjm2.bus.publication import Outbox
from fjm2.bus.statistics import ConnectionStatistics
from fjm2.bus.subscriptions import Subscriptions
from fjm2.bus.waiting.home_loop import HomeLoop
from fjm2.messages.destination import QUEUE_FLAG, TEMPORARY_FLAG, Destination, TopicPattern, not_sendable
from fjm2.messages.errors import IllegalStateError, JMSError
from fjm2.messages.frame import FrameWriter

from .metadata import refuse
from .sends.sending import Sending
from .settings import ClientSettings
from .temporary import Temporaries

if TYPE_CHECKING:
    from fjm2.bus.bus import Bus
    from fjm2.outbox.drive.disk_outbox import DiskOutbox
    from fjm2.telemetry import Telemetry

    from .durable.client import DurableClient
    from .last_values.client import ValuesClient
    from .sends.cell_driver import CellDriver

_SESSIONS_SHARE = 0.5
"""Share of a connection's close deadline that its sessions may use up. The bus has the rest."""


class Endpoint:
    """State and services of one open connection, which all of its sessions share."""

    def __init__(
        self, bus: "Bus", settings: ClientSettings, gate: Gate | None = None, outbox: "DiskOutbox | None" = None
    ) -> None:
        self.bus = bus
        self.settings = settings
        self._home = HomeLoop()
        self.connection_id = secrets.randbits(64)
        self.telemetry: Telemetry | None = None
        self.writer = self._new_writer(settings)
        self.client_id = settings.client_id
        self.exception_listener: Callable[[JMSError], Any] | None = None
        self.callbacks = Callbacks(self)
        """Calls of the exception listener."""
        self.sending = self._new_sending(gate, outbox)
        self.subscriptions = Subscriptions(
            bus, self.connection_id, settings.consumer, self.announce, self.report, lambda: self.title
        )
        self.temporaries = Temporaries(self.connection_id, self.subscriptions, bus.presence.has_closed)
        self.is_closed = False
        self._durable: DurableClient | None = None
        self._deadline: CloseDeadline | None = None
        """Deadline of the connection's close; None until the close begins."""

    @property
    def confirmation(self) -> Confirmation:
        """Confirmation of persistent messages by subscribers."""
        return self.sending.confirmation

    @property
    def name(self) -> str:
        """Client id of the connection or, if it has none, the connection id."""
        return self.client_id or f"{self.connection_id:016x}"

    @property
    def title(self) -> str:
        """Name of the connection in sentences."""
        return f"connection {self.name}" if self.client_id is None else repr(self.client_id)

    def _new_sending(self, gate: Gate | None, outbox: "DiskOutbox | None") -> Sending:
        if outbox is None:
            return Sending(self.bus, self.settings, self.report, gate)
        from .sends.outbox_sending import OutboxSending  # only now: it loads the store

        return OutboxSending(self.bus, self.settings, self.report, outbox)

    def _new_writer(self, settings: ClientSettings) -> FrameWriter:
        if settings.telemetry is False:
            return FrameWriter(self.connection_id)
        from fjm2.telemetry import Telemetry  # needs the extra fjm2[otel]

        from .tracing import TracingWriter

        self.telemetry = Telemetry(None if settings.telemetry is True else settings.telemetry)
        return TracingWriter(self.connection_id, self.telemetry)

    def new_outbox(self, is_transacted: bool) -> Outbox:
        """Return the sending half of a new session."""
        return self.sending.new_outbox(self.writer, self.check_sendable, is_transacted)

    def check_sendable(self, destination: Destination) -> None:
        """Raise JMSError if nothing can be sent to a destination."""
        if isinstance(destination, TopicPattern):
            raise not_sendable(destination)
        if destination.kind_flags == QUEUE_FLAG:
            refuse("queues", destination)
        if destination.kind_flags & TEMPORARY_FLAG:
            self.temporaries.check_alive(destination)

    def report(self, error: JMSError, about: Hashable = None) -> None:
        """Pass an error to the exception listener, or to the log if there is no listener: there once in ten seconds
        for each value of `about`."""
        if self.exception_listener is None:
            log_problem(error, about)
        else:
            self.callbacks.post(self.exception_listener, error)

    def check_open(self) -> None:
        """Raise IllegalStateError if the connection is closed, or used in another event loop."""
        if self.is_closed:
            raise IllegalStateError("the connection is closed: create another one")
        self.check_loop()

    def check_loop(self) -> None:
        """Raise IllegalStateError outside the event loop that opened the connection."""
        self._home.check()

    def statistics(self, sessions: int) -> ConnectionStatistics:
        """Return the statistics of the connection, which has `sessions` open sessions."""
        inboxes = list(self.subscriptions.inboxes)
        return ConnectionStatistics(
            sessions=sessions,
            messages_sent=self.writer.number,
            messages_unconfirmed=0 if self.is_closed else self.confirmation.pending,
            messages_dropped=self.subscriptions.messages_dropped,
            consumers=len(inboxes),
            consumers_full=sum(inbox.is_full for inbox in inboxes),
            messages_held=sum(inbox.held for inbox in inboxes),
            held_bytes=sum(inbox.held_bytes for inbox in inboxes),
            bus=self.bus.statistics(),
        )

    def begin_closing(self, timeout_s: float | None = None) -> CloseDeadline:
        """Return the deadline of the connection's close. The first call sets it."""
        if self._deadline is None:
            self._deadline = self.bus.close_deadline(self.settings.close_timeout_s, timeout_s)
        return self._deadline

    def closing(self) -> AbstractAsyncContextManager[None]:
        """Return a context manager that raises TimeoutError when the close of the connection, or of a session, has to
        give up."""
        if self._deadline is None:
            return self.bus.close_deadline(self.settings.close_timeout_s).wait()
        return self._deadline.wait(_SESSIONS_SHARE)

    async def ready(self) -> None:
        """Wait until the connections on the bus are known, and keepers if there are any; see `Bus.ready`."""
        self.check_open()
        await self.bus.ready()
        await self.sending.ready()

    def ready_of(self, inbox: Inbox) -> Callable[[], Awaitable[None]]:
        """Return the function that waits until a consumer is ready."""
        return self.values.ready_of(inbox) if "values" in self.__dict__ else self.ready

    async def cell(self, subject: str) -> "CellDriver":
        """Return what deals with the cell, for a call about `subject`. Raise ResourceAllocationError if there is no
        sign of a cell, or none serves for `confirm_timeout_s`."""
        driver = await self.sending.heard_cell()
        self.check_open()
        if driver is None:
            from .sends.keepers_known import no_keeper

            raise no_keeper(subject, self.bus)
        return driver

    async def durable_client(self, subject: str) -> "DurableClient":
        """Return the connection's part in the service of a cell, for a call about `subject`. Raise
        ResourceAllocationError as `cell` does."""
        driver = await self.cell(subject)
        if self._durable is None:
            from .durable.client import DurableClient  # only now: programs without durable subscriptions do not need it

            self._durable = DurableClient(self.bus, driver, self.sending)
        return self._durable

    @cached_property
    def values(self) -> "ValuesClient":
        """The connection's part in last values, from the first use on."""
        from .last_values.client import ValuesClient  # only now: programs without last values do not need it

        return ValuesClient(self)

    async def leave_cell(self) -> None:
        """End the connection's part in the service of a cell, once its sessions are closed."""
        if "values" in self.__dict__:
            await self.values.close()
            del self.values
        if self._durable is not None:
            durable, self._durable = self._durable, None
            await durable.close()

    def announce(self) -> None:
        """Announce the client id and the subscriptions, unless the connection is closed."""
        if not self.is_closed:
            self.bus.announce(self.connection_id, self.client_id, self.subscriptions.topics.keys())
