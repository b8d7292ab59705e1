"""The subscriptions of one connection, and the reports of consumers that are full."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from fjm2.messages.destination import Destination
from fjm2.messages.selector import Selector

from .errors import ConsumerFullError, MessagesDroppedError, MessagesExpiredError, MessagesLostError
from .inbox import ConsumerSettings, Inbox
from .losses.kinds import Loss
from .losses.names import Remedy, counted

if TYPE_CHECKING:
    from .bus import Bus

_LOSSES_REPORTED_AFTER_S: Final = {Loss.OVERFLOW: 0.1, Loss.UNSELECTABLE: 0.1, Loss.EXPIRED: 1.0}
"""Losses of one kind within this time are reported together: there may be thousands. Messages that expire, expire as
their sender wants: nobody waits for the report."""
_FULL_REPORTED_AFTER_S = 0.5
"""Time for which a consumer must be full before that is reported. To be full for less only slows senders to its own
pace."""


class Subscriptions:
    """Subscriptions of a connection: inboxes that the router fills, and topics that the connection announces."""

    def __init__(
        self,
        bus: "Bus",
        connection_id: int,
        default: ConsumerSettings,
        announce: Callable[[], None],
        report: Callable[[Exception], None],
    ) -> None:
        self.inboxes: dict[Inbox, None] = {}
        self.messages_dropped = 0
        """Messages dropped by full consumers."""
        self._bus = bus
        self._connection_id = connection_id
        self._default = default
        self._announce = announce
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._subscribed: Counter[int] = Counter()
        """Number of inboxes by the hash of their destination."""

    @property
    def topics(self) -> "Counter[int]":
        """Hashes of the destinations subscribed to."""
        return self._subscribed

    def add(
        self,
        destination: Destination,
        selector: Selector | None = None,
        no_local: bool = False,
        settings: ConsumerSettings | None = None,
    ) -> Inbox:
        """Subscribe to a destination. Return the inbox that receives its messages."""
        left_out = self._connection_id if no_local else None
        router = self._bus.router
        inbox = Inbox(destination, selector, left_out, settings or self._default, router.resume, self._on_full)
        self.inboxes[inbox] = None
        router.add(inbox)
        self._subscribed[destination.frame_hash] += 1
        if self._subscribed[destination.frame_hash] == 1:
            self._announce()
        return inbox

    def remove(self, inbox: Inbox) -> None:
        """End a subscription. Calling this twice does no harm."""
        if inbox in self.inboxes:
            del self.inboxes[inbox]
            for loss in _LOSSES_REPORTED_AFTER_S:
                self._report_losses(inbox, loss)
            self._bus.router.remove(inbox)
            self._bus.router.resume()
            topic = inbox.destination.frame_hash
            self._subscribed[topic] -= 1
            if not self._subscribed[topic]:
                del self._subscribed[topic]
                self._announce()

    def is_consumed(self, destination: Destination) -> bool:
        """Return True if an inbox is subscribed to the destination."""
        if destination.frame_hash not in self._subscribed:
            return False
        return any(inbox.destination == destination for inbox in self.inboxes)

    def _on_full(self, inbox: Inbox, loss: Loss | None) -> None:
        if loss is Loss.GIVEN_UP:
            inbox.take_losses(loss)  # the listener's task has reported it
        elif loss is not None:
            self._loop.call_later(_LOSSES_REPORTED_AFTER_S[loss], self._report_losses, inbox, loss)
        else:
            self._loop.call_later(_FULL_REPORTED_AFTER_S, self._report_full, inbox, inbox.times_full)

    def _report_full(self, inbox: Inbox, times_full: int) -> None:
        if inbox.is_full and inbox.times_full == times_full and inbox in self.inboxes:
            self._report(ConsumerFullError(inbox.destination, inbox.held))

    def _report_losses(self, inbox: Inbox, loss: Loss) -> None:
        count = inbox.take_losses(loss)
        if not count:
            return
        match loss:
            case Loss.EXPIRED:
                self._report(MessagesExpiredError(inbox.destination, count))
            case Loss.UNSELECTABLE:
                text = f"{counted(count, 'message')} for a consumer of {inbox.destination} could not be read"
                self._report(MessagesLostError(Remedy.LOST.after(text), topics=(inbox.destination,), messages=count))
            case _:
                self._bus.stats.messages_dropped += count
                self.messages_dropped += count
                self._report(MessagesDroppedError(inbox.destination, count))
