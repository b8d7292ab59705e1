"""What all sessions of a connection share: its place on the bus, its identity, its settings, and whom to tell."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from fjm2.bus.callbacks import Callbacks
from fjm2.bus.closing import CloseDeadline
from fjm2.bus.confirmation import Confirmation
from fjm2.bus.errors import ConsumerFullError, MessagesDroppedError
from fjm2.bus.inbox import ConsumerSettings, Inbox
from fjm2.bus.problems import log_problem
from fjm2.bus.statistics import ConnectionStatistics
from fjm2.messages.destination import Destination
from fjm2.messages.errors import IllegalStateError
from fjm2.messages.frame import FrameWriter
from fjm2.messages.selector import Selector

from .settings import ClientSettings

if TYPE_CHECKING:
    from fjm2.bus.bus import Bus
    from fjm2.telemetry import Telemetry

_DROPS_REPORTED_AFTER_S = 0.1
_FULL_REPORTED_AFTER_S = 0.5
"""A consumer that is soon less full again only keeps the senders to its own pace."""

_SESSIONS = 0.5
"""The part of a connection's patience that its sessions have."""


class Endpoint:
    def __init__(self, bus: "Bus", settings: ClientSettings) -> None:
        self.bus = bus
        self.settings = settings
        self.loop = asyncio.get_running_loop()
        self.connection_id = secrets.randbits(64)
        self.telemetry: Telemetry | None = None
        self.writer = self._new_writer(settings)
        self.client_id = settings.client_id
        self.exception_listener: Callable[[Exception], Any] | None = None
        self.reports = Callbacks(self)
        self.confirmation = Confirmation(bus, self.report)
        self.is_closed = False
        self._closing: CloseDeadline | None = None
        self.temporary_prefix = f"{self.connection_id:016x}-"
        self.temporaries: set[Destination] = set()
        """Temporary destinations of this connection; of their prefix there are no others."""
        self._subscribed: dict[Inbox, None] = {}
        self._topics: Counter[int] = Counter()
        """Hashes of what they subscribe to, and how many do."""
        self._transactions = 0
        self._messages_dropped = 0

    @property
    def name(self) -> str:
        """What people know it by."""
        return self.client_id or f"{self.connection_id:016x}"

    def _new_writer(self, settings: ClientSettings) -> FrameWriter:
        if settings.telemetry is False:
            return FrameWriter(self.connection_id)
        from fjm2.telemetry import Telemetry  # which is there only with the extra

        from .tracing import TracingWriter

        self.telemetry = Telemetry(None if settings.telemetry is True else settings.telemetry)
        return TracingWriter(self.connection_id, self.telemetry)

    def report(self, error: Exception) -> None:
        """Tell the exception listener, or else the log."""
        if self.exception_listener is None:
            log_problem(error)
        else:
            self.reports.post(self.exception_listener, error)

    def check_open(self) -> None:
        if self.is_closed:
            raise IllegalStateError("the connection is closed")
        self.check_loop()

    def check_loop(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        if loop is not self.loop:
            raise IllegalStateError("a connection is used in the event loop that it was opened in, and nowhere else")

    def statistics(self, sessions: int) -> ConnectionStatistics:
        """Of the connection, which has so many sessions."""
        inboxes = list(self._subscribed)
        return ConnectionStatistics(
            sessions=sessions,
            messages_sent=self.writer.number,
            messages_unconfirmed=0 if self.is_closed else self.confirmation.pending,
            messages_dropped=self._messages_dropped,
            consumers=len(inboxes),
            consumers_full=sum(inbox.is_full for inbox in inboxes),
            messages_held=sum(inbox.held for inbox in inboxes),
            held_bytes=sum(inbox.held_bytes for inbox in inboxes),
            bus=self.bus.statistics(),
        )

    # The end.

    def begin_closing(self, timeout_s: float | None = None) -> CloseDeadline:
        """How long the connection's close waits, from now on, unless it is being closed already."""
        if self._closing is None:
            self._closing = CloseDeadline(self.bus, self.settings.close_timeout_s, timeout_s)
        return self._closing

    def closing(self) -> AbstractAsyncContextManager[None]:
        """TimeoutError when what closes waits no more. The close of the connection leaves the bus half its patience."""
        if self._closing is None:
            return CloseDeadline(self.bus, self.settings.close_timeout_s).wait()
        return self._closing.wait(_SESSIONS)

    def is_deleted(self, destination: Destination) -> bool:
        """Whether it was a temporary destination of this connection, and is no more."""
        return destination.name.startswith(self.temporary_prefix) and destination not in self.temporaries

    def next_transaction(self) -> int:
        self._transactions += 1
        return self._transactions

    # Subscriptions.

    def subscribe(
        self, destination: Destination, selector: Selector | None, no_local: bool, settings: ConsumerSettings
    ) -> Inbox:
        left_out = self.connection_id if no_local else None
        inbox = Inbox(destination, selector, left_out, settings, self.bus.router.resume, self._on_full)
        self._subscribed[inbox] = None
        self.bus.router.add(inbox)
        self._topics[destination.frame_hash] += 1
        if self._topics[destination.frame_hash] == 1:
            self.announce()
        return inbox

    def unsubscribe(self, inbox: Inbox) -> None:
        if inbox in self._subscribed:
            del self._subscribed[inbox]
            self._report_drops(inbox)
            self.bus.router.remove(inbox)
            self.bus.router.resume()
            topic = inbox.destination.frame_hash
            self._topics[topic] -= 1
            if not self._topics[topic]:
                del self._topics[topic]
                if not self.is_closed:
                    self.announce()

    def is_consumed(self, destination: Destination) -> bool:
        return any(inbox.destination == destination for inbox in self._subscribed)

    async def ready(self) -> None:
        self.check_open()
        await self.bus.ready()

    def announce(self) -> None:
        self.bus.announce(self.connection_id, self.client_id, self._topics.keys())

    def _on_full(self, inbox: Inbox, dropped: int) -> None:
        """What is dropped in the next moments is told together."""
        if dropped:
            self.loop.call_later(_DROPS_REPORTED_AFTER_S, self._report_drops, inbox)
        else:
            self.loop.call_later(_FULL_REPORTED_AFTER_S, self._report_full, inbox, inbox.times_full)

    def _report_full(self, inbox: Inbox, times_full: int) -> None:
        if inbox.is_full and inbox.times_full == times_full and inbox in self._subscribed:
            self.report(ConsumerFullError(inbox.destination, inbox.held))

    def _report_drops(self, inbox: Inbox) -> None:
        dropped = inbox.take_dropped()
        if dropped:
            self.bus.stats.messages_dropped += dropped
            self._messages_dropped += dropped
            self.report(MessagesDroppedError(inbox.destination, dropped))
