"""What a bus tells its listeners: losses, and other things that no call can report.

BusReport
├── BytesLost             a part of a sender's stream will not come
├── StreamsMissed         streams of a sender of which nothing came
├── SenderLost            a sender is gone with its streams unfinished
├── TransactionDropped    messages of a transaction that never became complete
├── SubscriberEvicted     a receiver was waited for in vain, and is waited for no more
├── NotConfirmed          at the end: who had not confirmed, and what had not been sent
├── NodeIdCollision       another node uses our node id
├── ClientIdDuplicated    another connection uses a client id of ours
└── InterfaceChanged      the network interface went away, or came back
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from fjm2.messages.errors import InvalidClientIDError, JMSError
from fjm2.norm import Address
from fjm2.norm.events import LossReason

from .errors import BusError, MessagesLostError, UnconfirmedError
from .statistics import BusStats

_REPORTS_PER_S_MAX = 100
"""Reports passed on in a second. More would let a flood of hostile packets become a flood of callbacks and logs."""


@dataclass(frozen=True, slots=True)
class BusReport:
    """Base of all reports."""

    def error(self) -> JMSError:
        """Return the exception for the exception listener."""
        return BusError(str(self))


@dataclass(frozen=True, slots=True)
class BytesLost(BusReport):
    """Messages in these bytes will not come; the next message of the sender has `has_gap` set."""

    sender_id: int
    lane: int | None
    """Which of its connection's lanes the sender is; None if that is not known."""
    start: int
    end: int | None
    """Place in the stream after what is lost; None if that is not known."""
    reason: LossReason

    def __str__(self) -> str:
        end = "an unknown place" if self.end is None else self.end
        return f"bytes {self.start} to {end} of sender {self.sender_id:#x} are lost: {self.reason.value}"

    def error(self) -> JMSError:
        return MessagesLostError(str(self))


@dataclass(frozen=True, slots=True)
class StreamsMissed(BusReport):
    """Streams of which nothing came, and nothing will."""

    sender_id: int
    lane: int | None
    count: int

    def __str__(self) -> str:
        return f"{self.count} streams of sender {self.sender_id:#x} were missed"

    def error(self) -> JMSError:
        return MessagesLostError(str(self))


@dataclass(frozen=True, slots=True)
class SenderLost(BusReport):
    """A sender left or fell silent before it had finished its streams: its last messages may be missing."""

    sender_id: int
    lane: int | None
    client_id: str | None
    reason: LossReason

    def __str__(self) -> str:
        return f"sender {self.sender_id:#x} is gone: {self.reason.value}; its last messages may be missing"

    def error(self) -> JMSError:
        return MessagesLostError(str(self))


@dataclass(frozen=True, slots=True)
class TransactionDropped(BusReport):
    """None of the messages of a transaction is delivered, as some did not come."""

    connection_id: int
    number: int
    received: int
    size: int
    reason: str

    def __str__(self) -> str:
        return (
            f"transaction {self.number} of connection {self.connection_id:016x} was dropped "
            f"with {self.received} of {self.size} messages: {self.reason}"
        )

    def error(self) -> JMSError:
        return MessagesLostError(str(self))


@dataclass(frozen=True, slots=True)
class SubscriberEvicted(BusReport):
    """A receiver has been silent for too long, and our sender waits for it no more."""

    node_id: int
    lane: int
    client_id: str | None
    """Of the connection, if it is known."""

    def __str__(self) -> str:
        name = "" if self.client_id is None else f"{self.client_id!r}, "
        return f"{name}receiver {self.node_id:#x} is silent, and waited for no more"

    def error(self) -> JMSError:
        return BusError(str(self), "subscriber_evicted")


@dataclass(frozen=True, slots=True)
class NotConfirmed(BusReport):
    """The bus was closed before all that was published had been confirmed."""

    nodes: frozenset[int]
    """The subscribers that did not confirm it."""
    unsent_bytes: int

    def __str__(self) -> str:
        return f"closed with {len(self.nodes)} subscribers that did not confirm, and {self.unsent_bytes} bytes not sent"

    def error(self) -> JMSError:
        return UnconfirmedError(str(self), self.nodes)


@dataclass(frozen=True, slots=True)
class NodeIdCollision(BusReport):
    """Another node uses our node id: what either sends is taken for the other's."""

    node_id: int
    address: Address
    has_another: bool
    """A new id is drawn. What was sent under the old one, and not confirmed, may be lost."""

    def __str__(self) -> str:
        then = "another is drawn, but what was sent last" if self.has_another else "messages"
        return f"node id {self.node_id:#x} is in use at {self.address[0]}, too: {then} may be lost"

    def error(self) -> JMSError:
        return BusError(str(self), "node_id_collided")


@dataclass(frozen=True, slots=True)
class ClientIdDuplicated(BusReport):
    """Another connection has announced a client id of ours."""

    client_id: str
    node_id: int

    def __str__(self) -> str:
        return f"client id {self.client_id!r} is in use at node {self.node_id:#x}, too"

    def error(self) -> JMSError:
        return InvalidClientIDError(str(self))


@dataclass(frozen=True, slots=True)
class InterfaceChanged(BusReport):
    """The network interface went away, or came back."""

    interface: str
    is_up: bool

    def __str__(self) -> str:
        return f"interface {self.interface} is {'back' if self.is_up else 'down'}"

    def error(self) -> JMSError:
        return BusError(str(self), "interface_up" if self.is_up else "interface_down")


Listener = Callable[[BusReport], None]


class Reporter:
    """Passes reports to all listeners, up to a bounded rate."""

    def __init__(self, stats: BusStats) -> None:
        self._stats = stats
        self._loop = asyncio.get_running_loop()
        self._listeners: list[Listener] = []
        self._second_began_at, self._reported = 0.0, 0

    @property
    def has_listeners(self) -> bool:
        return bool(self._listeners)

    def add_listener(self, listener: Listener) -> None:
        """Call `listener` with each report. It must not raise or wait."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        """Stop calling `listener`. Calling this twice does no harm."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def report(self, report: BusReport) -> None:
        now = self._loop.time()
        if now - self._second_began_at >= 1.0:
            self._second_began_at, self._reported = now, 0
        self._reported += 1
        if self._reported > _REPORTS_PER_S_MAX:
            self._stats.reports_suppressed += 1
            return
        for listener in list(self._listeners):
            listener(report)
