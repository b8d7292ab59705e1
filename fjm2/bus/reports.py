"""Reports of a bus to its listeners: losses, and other events that no call can raise.

BusReport
├── BytesLost             part of a sender's stream is lost
├── StreamsMissed         whole streams of a sender are lost
├── SenderLost            a sender is gone, and had not finished its streams
├── TransactionDropped    a transaction did not become complete
├── SubscriberEvicted     a receiver was silent, and is not waited for any more
├── NotConfirmed          the bus closed before everything was sent and confirmed
├── NodeIdCollision       another node uses our node id
├── ClientIdDuplicated    another connection uses one of our client ids
└── InterfaceChanged      the network interface went down, or came back
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
"""Greatest number of reports passed on in a second. More would let a flood of hostile packets become a flood of
callbacks and logs."""


@dataclass(frozen=True, slots=True)
class BusReport:
    """Base of all reports."""

    def error(self) -> JMSError:
        """Return the exception for the exception listener."""
        return BusError(str(self))


@dataclass(frozen=True, slots=True)
class BytesLost(BusReport):
    """Bytes of a sender's stream, and the messages in them, are lost. The sender's next message has `has_gap` set."""

    sender_id: int
    lane: int | None
    """Number of the sender's lane; None if unknown."""
    start: int
    end: int | None
    """Position in the stream after the lost bytes; None if unknown."""
    reason: LossReason

    def __str__(self) -> str:
        end = "an unknown place" if self.end is None else self.end
        return f"bytes {self.start} to {end} of sender {self.sender_id:#x} are lost: {self.reason.value}"

    def error(self) -> JMSError:
        return MessagesLostError(str(self))


@dataclass(frozen=True, slots=True)
class StreamsMissed(BusReport):
    """Whole streams of a sender are lost."""

    sender_id: int
    lane: int | None
    count: int

    def __str__(self) -> str:
        return f"{self.count} streams of sender {self.sender_id:#x} were missed"

    def error(self) -> JMSError:
        return MessagesLostError(str(self))


@dataclass(frozen=True, slots=True)
class SenderLost(BusReport):
    """A sender left or fell silent before it finished its streams. Its last messages may be missing."""

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
    """No message of a transaction is delivered, because some were not received."""

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
    """A receiver was silent for too long. Our sender does not wait for it any more."""

    node_id: int
    lane: int
    client_id: str | None
    """Client id of the receiver's connection, if known."""

    def __str__(self) -> str:
        name = "" if self.client_id is None else f"{self.client_id!r}, "
        return f"{name}receiver {self.node_id:#x} is silent, and is not waited for any more"

    def error(self) -> JMSError:
        return BusError(str(self), "subscriber_evicted")


@dataclass(frozen=True, slots=True)
class NotConfirmed(BusReport):
    """The bus closed before everything published was confirmed."""

    nodes: frozenset[int]
    """Node ids of subscribers that did not confirm."""
    unsent_bytes: int

    def __str__(self) -> str:
        return f"closed with {len(self.nodes)} subscribers that did not confirm, and {self.unsent_bytes} bytes not sent"

    def error(self) -> JMSError:
        return UnconfirmedError(str(self), self.nodes)


@dataclass(frozen=True, slots=True)
class NodeIdCollision(BusReport):
    """Another node uses our node id. Receivers cannot tell the two apart."""

    node_id: int
    address: Address
    has_another: bool
    """True if we draw a new id. Messages that were sent under the old id and are not confirmed may be lost."""

    def __str__(self) -> str:
        then = "a new one is drawn, but the last messages" if self.has_another else "messages"
        return f"node id {self.node_id:#x} is also in use at {self.address[0]}: {then} may be lost"

    def error(self) -> JMSError:
        return BusError(str(self), "node_id_collided")


@dataclass(frozen=True, slots=True)
class ClientIdDuplicated(BusReport):
    """Another connection announced one of our client ids."""

    client_id: str
    node_id: int

    def __str__(self) -> str:
        return f"client id {self.client_id!r} is also in use at node {self.node_id:#x}"

    def error(self) -> JMSError:
        return InvalidClientIDError(str(self))


@dataclass(frozen=True, slots=True)
class InterfaceChanged(BusReport):
    """The network interface went down, or came back."""

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
        """Call `listener` with each report. The listener must not raise or wait."""
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
