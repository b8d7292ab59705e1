"""What all sessions of a connection share: its place on the bus, its identity, its settings, and whom to tell."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .callbacks import LOGGER, Callbacks
from .confirmation import Confirmation
from .destination import Destination
from .errors import IllegalStateError
from .frame import FrameWriter
from .inbox import Inbox
from .reports import ConsumerFullError, MessagesDroppedError
from .selector import Selector
from .settings import ClientSettings, ConsumerSettings

if TYPE_CHECKING:
    from .bus import Bus

_DROPS_REPORTED_AFTER_S = 0.1
_FULL_REPORTED_AFTER_S = 0.5
"""A consumer that is soon less full again only keeps the senders to its own pace."""


class Endpoint:
    def __init__(self, bus: "Bus", settings: ClientSettings) -> None:
        self.bus = bus
        self.settings = settings
        self.loop = asyncio.get_running_loop()
        self.connection_id = secrets.randbits(64)
        self.writer = FrameWriter(self.connection_id)
        self.client_id = settings.client_id
        self.exception_listener: Callable[[Exception], Any] | None = None
        self.reports = Callbacks(self)
        self.confirmation = Confirmation(bus, self.report)
        self.is_closed = False
        self._closing_since: float | None = None
        self.temporary_prefix = f"{self.connection_id:016x}-"
        self.temporaries: set[Destination] = set()
        """Temporary destinations of this connection; of their prefix there are no others."""
        self._subscribed: dict[Inbox, None] = {}
        self._topics: Counter[int] = Counter()
        """Hashes of what they subscribe to, and how many do."""
        self._transactions = 0

    def report(self, error: Exception) -> None:
        """Tell the exception listener."""
        if self.exception_listener is None:
            LOGGER.warning("%s: %s", type(error).__name__, error)
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

    # The end.

    def begin_closing(self) -> None:
        """The time for closing runs from now on, unless it does already."""
        if self._closing_since is None:
            self._closing_since = self.loop.time()

    @property
    def confirm_by(self) -> float:
        """Until when a close waits for confirmations. That of the connection leaves the bus half of its time."""
        timeout_s = self.settings.close_timeout_s
        since = self._closing_since
        return self.loop.time() + timeout_s if since is None else since + timeout_s / 2

    @property
    def closing_s(self) -> float:
        """What is left of the time for closing."""
        self.begin_closing()
        assert self._closing_since is not None
        return max(self._closing_since + self.settings.close_timeout_s - self.loop.time(), 0.0)

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
            self.bus.messages_dropped += dropped
            self.report(MessagesDroppedError(inbox.destination, dropped))
