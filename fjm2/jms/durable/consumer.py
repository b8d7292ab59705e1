"""A durable consumer of a session, and its place at the cell."""

import asyncio
from dataclasses import dataclass
from typing import Final, Protocol

from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet
from fjm2.cell.service.reasons import Reason
from fjm2.cell.wire.requests import SubscriptionFlag
from fjm2.messages.destination import Topic

from ..settings import SessionMode
from .inbox import DurableInbox

DONE_MAX: Final = 64
"""Messages that are acknowledged together at the latest, where nobody waits for it."""
DONE_S: Final = 0.1
"""Time after which messages are acknowledged at the latest, where nobody waits for it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A subscription that a consumer is for."""

    topic: Topic
    name: str
    selector: str
    no_local: bool
    is_shared: bool
    is_durable: bool = True
    """True if the subscription stays without consumers."""

    @property
    def flags(self) -> SubscriptionFlag:
        """The kind of the subscription, as the cell has it."""
        flags = SubscriptionFlag.DURABLE if self.is_durable else SubscriptionFlag(0)
        if self.is_shared:
            flags |= SubscriptionFlag.SHARED
        return flags | SubscriptionFlag.NO_LOCAL if self.no_local else flags

    def is_named(self, name: str, is_durable: bool) -> bool:
        """Return True for a subscription of a name. Those that are durable have names of their own."""
        return self.name == name and self.is_durable == is_durable

    def __str__(self) -> str:
        return f"{self.topic}, subscription {self.name!r}"


class ConsumerOwner(Protocol):
    """A client as its consumers see it."""

    def set_room(self, consumer: "DurableConsumer") -> None:
        """Tell the cell how many messages a consumer takes."""

    def acknowledge(self, consumer: "DurableConsumer", done: dict[Ledger, RangeSet]) -> "asyncio.Future[Reason]":
        """Have the cell acknowledge messages. Return a future of the decision."""


class SessionOwner(Protocol):
    """A session as its client sees it."""

    mode: SessionMode
    consumers: list["DurableConsumer"]

    def note_opened(self) -> None:
        """Note that the cell has opened it."""

    def note_ended(self, reason: Reason, lost: list["DurableConsumer"]) -> None:
        """Note that the cell has refused or ended it, and which consumers it had."""


class DurableConsumer:
    """A consumer. It has a handle while the cell knows it."""

    def __init__(self, client: ConsumerOwner, wanted: Wanted, inbox: DurableInbox, mode: SessionMode) -> None:
        self.wanted: Final = wanted
        self.inbox: Final = inbox
        self.handle = 0
        """Number by which the subscriber knows it; 0 while the cell does not."""
        self.session_number = 0
        """Number of its session at the cell."""
        self.outcome: asyncio.Future[Reason | int] | None = None
        """Result of the request for it: a refusal, or the version of the table that has the subscription."""
        self.closed: asyncio.Future[None] | None = None
        """Done when the cell has closed it; None before it was asked to."""
        self.settling: asyncio.Future[None] | None = None
        """Settling of the inbox that ends when the next acknowledgement of the session is stored."""
        self.is_placed = False
        """True from the time at which the cell made it until the cell lost it."""
        self.is_lingering = False
        """True if it is closed, and the client has messages of it that it did not acknowledge."""
        self._client = client
        self._mode = mode
        self._loop = asyncio.get_running_loop()
        self._flush: asyncio.Handle | None = None
        self._is_due = False
        """True if `_flush` is due in this turn."""
        inbox.on_done = self._note_done
        inbox.on_room = self._note_room

    @property
    def _waits_for_client(self) -> bool:
        return self._mode in (SessionMode.CLIENT_ACKNOWLEDGE, SessionMode.SESSION_TRANSACTED)

    def _note_room(self) -> None:
        if self.handle:
            self._client.set_room(self)

    def _note_done(self, is_handled: bool) -> None:
        if is_handled and self._waits_for_client:
            return  # acknowledge() or commit() comes next
        is_awaited = is_handled and self._mode is SessionMode.AUTO_ACKNOWLEDGE
        if is_awaited and self.handle:
            self.inbox.begin_settling()
        if is_awaited or self.inbox.done_count >= DONE_MAX:
            if not self._is_due:
                self._cancel()
                self._is_due = True
                self._flush = self._loop.call_soon(self.flush)
        elif self._flush is None:
            self._flush = self._loop.call_later(DONE_S, self.flush)

    def _cancel(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
        self._flush, self._is_due = None, False

    def flush(self) -> "asyncio.Future[Reason] | None":
        """Have the cell acknowledge what is done. Return a future of the decision; None if nothing is done."""
        self._cancel()
        if not self.handle or not self.inbox.done_count:
            return None
        self.settling = self.inbox.settling
        return self._client.acknowledge(self, self.inbox.take_done())

    def lose_place(self) -> None:
        """Note that the cell does not know the consumer any more."""
        self.handle = 0
        self._cancel()
        self.inbox.begin_life()
        if self.closed is not None and not self.closed.done():
            self.closed.set_result(None)
