"""The subscriptions of one connection, and the reports of consumers that are full."""

import asyncio
import os
import socket
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from fjm2.base.quantities import counted
from fjm2.messages.destination import Destination
from fjm2.messages.errors import JMSError
from fjm2.messages.selector import Selector

from .errors import ConsumerFullError, MessagesDroppedError, MessagesExpiredError, MessagesLostError
from .inbox import ConsumerSettings, Inbox
from .losses.kinds import Loss
from .losses.names import Remedy
from .waiting.patience import Patience, Verdict

if TYPE_CHECKING:
    from .bus import Bus

_LOSSES_REPORTED_AFTER_S: Final = {Loss.OVERFLOW: 0.1, Loss.UNSELECTABLE: 0.1, Loss.EXPIRED: 1.0}
"""Losses of one kind within this time are reported together: there may be thousands. Messages that expire, expire as
their sender wants: nobody waits for the report."""
_LET_GO_REPORTED_AFTER_S: Final = 1.0
"""Time within which messages dropped by a consumer that was let go are reported together. It may drop for hours."""


_I = TypeVar("_I", bound=Inbox)


class _Owned:
    """An inbox's owner, and the patience with it."""

    __slots__ = ("check", "patience", "session")

    def __init__(self, inbox: Inbox, session: int | None) -> None:
        self.session = session
        """Number of the session; None for a temporary queue, which belongs to the connection."""
        self.patience = Patience(inbox.settings.block_s)
        self.check: asyncio.TimerHandle | None = None
        """Next check of the patience, while the inbox is full."""


class Subscriptions:
    """Subscriptions of a connection: inboxes that the router fills, and topics that the connection announces."""

    def __init__(
        self,
        bus: "Bus",
        connection_id: int,
        default: ConsumerSettings,
        announce: Callable[[], None],
        report: Callable[[JMSError], None],
        name: Callable[[], str],
    ) -> None:
        """`name` returns the name of the connection for reports."""
        self.inboxes: dict[Inbox, _Owned] = {}
        self.messages_dropped = 0
        """Messages dropped by full consumers."""
        self._bus = bus
        self._connection_id = connection_id
        self._default = default
        self._announce = announce
        self._report = report
        self._name = name
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
        session: int | None = None,
        kind: type[_I] = Inbox,  # type: ignore[assignment]
    ) -> _I:
        """Subscribe to a destination for the session with a number. Return the inbox, of some kind, that receives the
        messages."""
        left_out = self._connection_id if no_local else None
        router = self._bus.router
        inbox = kind(destination, selector, left_out, settings or self._default, router.resume, self._on_full)
        inbox.on_runs = router.targets.deliver_in_runs
        self.inboxes[inbox] = _Owned(inbox, session)
        router.add(inbox)
        self._subscribed[destination.frame_hash] += 1
        if self._subscribed[destination.frame_hash] == 1:
            self._announce()
        return inbox

    def remove(self, inbox: Inbox) -> None:
        """End a subscription. Calling this twice does no harm."""
        owned = self.inboxes.pop(inbox, None)
        if owned is not None:
            if owned.check is not None:
                owned.check.cancel()
            for loss in _LOSSES_REPORTED_AFTER_S:
                self._report_losses(inbox, loss)
            self._bus.router.remove(inbox)
            self._bus.router.resume()
            topic = inbox.destination.frame_hash
            self._subscribed[topic] -= 1
            if not self._subscribed[topic]:
                del self._subscribed[topic]
                self._announce()

    def adopt(self, inbox: Inbox, session: int) -> None:
        """Report the losses of an inbox that somebody else fills."""
        self.inboxes[inbox] = _Owned(inbox, session)

    def release(self, inbox: Inbox) -> None:
        """End what `adopt` began. Calling this twice does no harm."""
        if self.inboxes.pop(inbox, None) is not None:
            for loss in _LOSSES_REPORTED_AFTER_S:
                self._report_losses(inbox, loss)

    def report_loss(self, inbox: Inbox, loss: Loss | None) -> None:
        """Report a kind of loss of an inbox soon. An adopted inbox that is full holds nobody back: None is ignored."""
        if loss is not None:
            self._on_full(inbox, loss)

    def begin_closing(self) -> None:
        """Deliver nothing more, and make no sender wait. Call `remove` for each inbox later."""
        for inbox in list(self.inboxes):
            inbox.close()

    def is_consumed(self, destination: Destination) -> bool:
        """Return True if an inbox is subscribed to the destination."""
        if destination.frame_hash not in self._subscribed:
            return False
        return any(inbox.destination == destination for inbox in self.inboxes)

    def _on_full(self, inbox: Inbox, loss: Loss | None) -> None:
        if loss in (Loss.GIVEN_UP, Loss.FILE):
            inbox.take_losses(loss)  # the listener's task, or the bus, has reported it
        elif loss is not None:
            delay_s = _LET_GO_REPORTED_AFTER_S if inbox.is_let_go else _LOSSES_REPORTED_AFTER_S[loss]
            self._loop.call_later(delay_s, self._report_losses, inbox, loss)
        else:
            self._note_full(inbox)

    def _note_full(self, inbox: Inbox) -> None:
        owned = self.inboxes.get(inbox)
        if owned is not None:
            owned.patience.note_full(inbox.progress, self._loop.time())
            if owned.check is None:
                self._check_soon(inbox, owned)

    def _check_soon(self, inbox: Inbox, owned: _Owned) -> None:
        delay_s = owned.patience.next_check_s(self._loop.time())
        owned.check = self._loop.call_later(delay_s, self._check_full, inbox, owned)

    def _check_full(self, inbox: Inbox, owned: _Owned) -> None:
        owned.check = None
        now, patience = self._loop.time(), owned.patience
        if not inbox.is_full:
            patience.note_room(now)
            return
        verdict = patience.check(inbox.progress, now)
        if verdict is not None:
            self._report(self._full_error(inbox, owned, is_let_go=verdict is Verdict.LET_GO))
        if verdict is Verdict.LET_GO:
            self._bus.stats.consumers_let_go += 1
            inbox.let_go()
        else:
            self._check_soon(inbox, owned)

    def _full_error(self, inbox: Inbox, owned: _Owned, is_let_go: bool) -> ConsumerFullError:
        return ConsumerFullError(
            inbox.destination,
            inbox.held,
            taken=owned.patience.taken,
            selector=None if inbox.selector is None else inbox.selector.text,
            session=owned.session,
            program=f"{self._name()} (pid {os.getpid()} on {socket.gethostname()})",
            block_s=inbox.settings.block_s,
            is_let_go=is_let_go,
        )

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
                for sender_id, discarded in inbox.take_discarded().items():
                    self._bus.membership.discards.note(sender_id, discarded)
                self._report(MessagesDroppedError(inbox.destination, count))
