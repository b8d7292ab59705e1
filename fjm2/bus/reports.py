"""Reports of a bus to its listeners: losses, and other events that no call can raise.

BusReport
├── BytesLost             part of a sender's stream is lost
├── StreamsMissed         whole streams of a sender are lost
├── SenderLost            a sender is gone, and had not finished its streams
├── MessagesUnreadable    messages of a sender could not be read, and were skipped
├── TransactionDropped    a transaction did not become complete
├── FileDropped           a file did not become whole
├── SubscriberEvicted     a receiver held us up in vain, and is not waited for any more
├── SubscriberFull        a receiver is full, and our sender waits for it
├── SubscriberReady       a receiver that was full takes messages again, or is gone
├── Impersonation         messages in a sender's name were refused
├── LostAfterConfirmation a subscriber lost messages that it may have confirmed before
├── NotConfirmed          the bus closed before everything was sent and confirmed
├── NodeIdCollision       another node uses our node id
├── ClientIdDuplicated    another connection uses one of our client ids
├── InterfaceChanged      the network interface went down, or came back
└── SendingRefused        the kernel refuses what this host sends
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from fjm2.base.quantities import counted, node_text
from fjm2.messages.destination import Destination
from fjm2.messages.errors import InvalidClientIDError, JMSError
from fjm2.norm import Address
from fjm2.norm.events import Doubt, EvictionReason, LossReason

from .errors import BusError, MessagesLostError, UnconfirmedError
from .losses.names import PeerName, Remedy, clock_text, listed
from .presence import Clock, Handle
from .statistics import BusStats

_REPORTS_PER_S_MAX = 100
"""Greatest number of reports passed on in a second. More would let a flood of hostile packets become a flood of
callbacks and logs."""
_LOSSES_INTERVAL_S = 1.0
"""Shortest time between two reports of bytes that a sender's stream lost. A receiver that cannot keep up has hundreds
of gaps a second, and each would be a line in the log."""
_TIMER_S = 0.01
"""Shortest time for which a timer is set. A loop whose clock is that coarse may call it early, and is not to spin."""


@dataclass(frozen=True, slots=True)
class BusReport:
    """Base of all reports."""

    def error(self) -> JMSError:
        """Return the exception for the exception listener."""
        return BusError(str(self))


@dataclass(frozen=True, slots=True)
class LossDetails:
    """Circumstances of a loss, as far as they are known."""

    sender: PeerName
    topics: tuple[Destination, ...] = ()
    """Destinations of consumers here that the sender has sent to lately. It may send to others, too."""
    messages: int | None = None
    """Estimated number of messages: the lost bytes, divided by the mean size of the sender's messages."""
    since: float | None = None
    """Time when the last message before the loss had come, within a second, in seconds since the epoch."""
    until: float | None = None
    """Time when the loss was noticed, in seconds since the epoch."""

    @property
    def count(self) -> str:
        """The estimated number, with its noun."""
        return "messages" if self.messages is None else f"about {counted(self.messages, 'message')}"

    @property
    def span(self) -> str:
        """Time span of the loss, as part of a sentence."""
        if self.since is None or self.until is None:
            return ""
        first, last = clock_text(self.since), clock_text(self.until)
        return f" at {last}" if first == last else f" between {first} and {last}"

    @property
    def destinations(self) -> str:
        """Destinations that the sender sends to, as part of a sentence."""
        return f" (it sends to {listed(self.topics)})" if self.topics else ""

    @property
    def lost(self) -> str:
        """Statement of the loss, as part of a sentence."""
        return f"{self.count} of {self.sender} got lost{self.span}{self.destinations}"

    def error(self, reason: str) -> MessagesLostError:
        """Return the exception for the exception listener."""
        return MessagesLostError(
            reason,
            client_ids=self.sender.client_ids,
            host=self.sender.host,
            topics=self.topics,
            messages=self.messages,
            since=self.since,
            until=self.until,
        )


@dataclass(frozen=True, slots=True)
class BytesLost(BusReport):
    """Bytes of a sender's stream, and the messages in them, are lost. The sender's next message has a gap flag."""

    sender_id: int
    lane: int | None
    """Number of the sender's lane; None if unknown."""
    start: int
    end: int | None
    """Position in the stream after the lost bytes; None if unknown."""
    reason: LossReason
    details: LossDetails
    gaps: int = 1
    """Number of gaps that the report sums up. Between them, messages arrived."""

    def __str__(self) -> str:
        where = "" if self.gaps == 1 else f", in {counted(self.gaps, 'gap')}"
        return Remedy.LOST.after(f"{self.details.lost}{where}: {self.reason.value}")

    def plus(self, later: "BytesLost") -> "BytesLost":
        """Return one report of this loss and a later one of the same sender."""
        first, last = self.details, later.details
        is_known = first.messages is not None and last.messages is not None
        messages = (first.messages or 0) + (last.messages or 0) if is_known else None
        details = replace(last, messages=messages, since=first.since)
        return replace(self, end=later.end, details=details, gaps=self.gaps + later.gaps)

    def error(self) -> JMSError:
        return self.details.error(str(self))


@dataclass(frozen=True, slots=True)
class StreamsMissed(BusReport):
    """Whole streams of a sender are lost."""

    sender_id: int
    lane: int | None
    count: int
    details: LossDetails

    def __str__(self) -> str:
        return Remedy.LOST.after(f"{self.details.lost}: nothing of {counted(self.count, 'stream')} could be read")

    def error(self) -> JMSError:
        return self.details.error(str(self))


@dataclass(frozen=True, slots=True)
class SenderLost(BusReport):
    """A sender left or fell silent before it finished its streams. Its last messages may be missing."""

    sender_id: int
    lane: int | None
    reason: LossReason
    details: LossDetails

    @property
    def client_id(self) -> str | None:
        """Client id of the sender's first connection, if known."""
        return next(iter(self.details.sender.client_ids), None)

    def __str__(self) -> str:
        told = self.details
        heard = "" if told.since is None else f" after {clock_text(told.since)}"
        missing = f"its last messages may be missing{heard}{told.destinations}"
        return Remedy.LOST.after(f"{told.sender} is gone: {self.reason.value}; {missing}")

    def error(self) -> JMSError:
        return self.details.error(str(self))


@dataclass(frozen=True, slots=True)
class MessagesUnreadable(BusReport):
    """Messages of a sender were skipped, because they could not be read. The next one has a gap flag."""

    sender_id: int
    count: int
    """Number of places in the sender's stream where messages were skipped."""
    reason: str
    details: LossDetails

    def __str__(self) -> str:
        told = self.details
        skipped = f"messages of {told.sender} were skipped at {counted(self.count, 'place')}{told.destinations}"
        return Remedy.LOST.after(f"{skipped}: {self.reason}")

    def error(self) -> JMSError:
        return self.details.error(str(self))


def _owner(connection_id: int, details: LossDetails | None) -> str:
    """Return the name of a sender or, as long as it is not known, of its connection."""
    return f"connection {connection_id:016x}" if details is None else str(details.sender)


@dataclass(frozen=True, slots=True)
class TransactionDropped(BusReport):
    """No message of a transaction is delivered, because some were not received."""

    connection_id: int
    number: int
    received: int
    size: int
    reason: str
    senders: frozenset[int] = frozenset()
    """Node ids of the lanes that sent it."""
    details: LossDetails | None = None
    """Filled in by the bus, which knows names."""

    def __str__(self) -> str:
        owner = _owner(self.connection_id, self.details)
        parts = f"{self.received} of {counted(self.size, 'message')}"
        return Remedy.LOST.after(f"transaction {self.number} of {owner} was dropped with {parts}: {self.reason}")

    def error(self) -> JMSError:
        return MessagesLostError(str(self)) if self.details is None else self.details.error(str(self))


@dataclass(frozen=True, slots=True)
class FileDropped(BusReport):
    """A file that a consumer here wants did not become whole. The part of it that arrived is deleted."""

    sender_id: int
    connection_id: int
    name: str
    size: int
    received: int
    """Bytes that had arrived."""
    reason: str
    is_cancelled: bool = False
    """True if the sender said so."""
    details: LossDetails | None = None
    """Filled in by the bus, which knows names."""

    def __str__(self) -> str:
        owner = _owner(self.connection_id, self.details)
        parts = f"{self.received:,} of {counted(self.size, 'byte')}"
        return Remedy.LOST.after(f"file {self.name!r} of {owner} was dropped with {parts}: {self.reason}")

    def error(self) -> JMSError:
        return MessagesLostError(str(self)) if self.details is None else self.details.error(str(self))


@dataclass(frozen=True, slots=True)
class SubscriberEvicted(BusReport):
    """A receiver held our sender up in vain. Our sender does not wait for it any more."""

    node_id: int
    lane: int
    name: PeerName
    reason: EvictionReason = EvictionReason.SILENT

    @property
    def client_id(self) -> str | None:
        """Client id of the receiver's first connection, if known."""
        return next(iter(self.name.client_ids), None)

    def __str__(self) -> str:
        did = "is silent" if self.reason is EvictionReason.SILENT else "answers, but makes no progress"
        return Remedy.UNCONFIRMED.after(f"{self.name} {did}, and is not waited for any more")

    def error(self) -> JMSError:
        return BusError(str(self), "subscriber_evicted")


@dataclass(frozen=True, slots=True)
class SubscriberFull(BusReport):
    """A receiver has been full for a while, because its application takes messages too slowly. Our sender waits for
    it."""

    node_id: int
    name: PeerName
    full_s: float
    """Time for which it has been full, in seconds."""

    def __str__(self) -> str:
        text = f"{self.name} is full, and holds this sender back: its application takes messages too slowly, or none"
        return Remedy.FULL.after(text)

    def error(self) -> JMSError:
        return BusError(str(self), "subscriber_full")


@dataclass(frozen=True, slots=True)
class SubscriberReady(BusReport):
    """A receiver that was full does not hold our sender back any more."""

    node_id: int
    name: PeerName
    full_s: float
    """Time for which it was full, in seconds."""
    within_s: float
    """Time since it was full first, in seconds. Within this time, it may have been full several times."""
    is_gone: bool
    """True if our sender waits for it no longer, because it has left or was given up."""

    def __str__(self) -> str:
        times = f"{self.full_s:.1f} s" + ("" if self.within_s < 1.1 * self.full_s else f" of {self.within_s:.1f} s")
        return f"{self.name} {'is gone' if self.is_gone else 'takes messages again'}: it was full for {times}"

    def error(self) -> JMSError:
        return BusError(str(self), "subscriber_ready")


@dataclass(frozen=True, slots=True)
class Impersonation(BusReport):
    """Messages in the name of a sender were refused, because what the sender itself sends contradicts them."""

    sender_id: int
    lane: int | None
    name: PeerName
    """Name of the sender, not of the node that the messages came from."""
    address: Address
    """Address that the refused messages came from. It can be forged."""
    doubt: Doubt

    def __str__(self) -> str:
        host, port = self.address
        return f"messages from {host} port {port} in the name of {self.name} were refused: {self.doubt.value}"

    def error(self) -> JMSError:
        return BusError(str(self), "sender_impersonated")


@dataclass(frozen=True, slots=True)
class LostAfterConfirmation(BusReport):
    """A subscriber lost messages of ours, and has confirmed these or others."""

    node_id: int
    lane: int
    name: PeerName
    messages: int | None
    """Number of messages lost, as far as they could be counted; None if they could not."""
    size: int | None
    """Number of bytes lost, as far as they could be counted; None if they could not."""

    def __str__(self) -> str:
        counts = [counted(self.messages, "message")] if self.messages else []
        counts += [counted(self.size, "byte")] if self.size else []
        lost = " and ".join(counts) or "messages"
        return Remedy.LOST.after(f"{self.name} lost {lost} that it may have confirmed before")

    def error(self) -> JMSError:
        return BusError(str(self), "lost_after_confirmation")


@dataclass(frozen=True, slots=True)
class NotConfirmed(BusReport):
    """The bus closed before everything published was confirmed."""

    nodes: frozenset[int]
    """Node ids of subscribers that did not confirm."""
    unsent_bytes: int
    names: tuple[PeerName, ...] = ()
    """Names of these subscribers."""

    def __str__(self) -> str:
        left = []
        if self.nodes:
            names = f" ({listed(self.names)})" if self.names else ""
            left.append(f"{counted(len(self.nodes), 'subscriber')} that did not confirm{names}")
        if self.unsent_bytes:
            left.append(f"{counted(self.unsent_bytes, 'byte')} not sent")
        return Remedy.UNCONFIRMED.after(f"closed with {', and '.join(left)}")

    def error(self) -> JMSError:
        return UnconfirmedError(str(self), self.nodes, subscribers=tuple(map(str, self.names)))


@dataclass(frozen=True, slots=True)
class NodeIdCollision(BusReport):
    """Another node uses our node id. Receivers cannot tell the two apart."""

    node_id: int
    address: Address
    has_another: bool
    """True if we draw a new id. Messages that were sent under the old id and are not confirmed may be lost."""

    def __str__(self) -> str:
        then = "a new one is drawn, but the last messages" if self.has_another else "messages"
        return f"node id {node_text(self.node_id)} is also in use at {self.address[0]}: {then} may be lost"

    def error(self) -> JMSError:
        return BusError(str(self), "node_id_collided")


@dataclass(frozen=True, slots=True)
class ClientIdDuplicated(BusReport):
    """Another connection announced one of our client ids."""

    client_id: str
    node_id: int
    host: str | None = None

    def __str__(self) -> str:
        node = f"node {node_text(self.node_id)}"
        place = node if self.host is None else f"{self.host} ({node})"
        return f"client id {self.client_id!r} is also in use at {place}"

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


@dataclass(frozen=True, slots=True)
class SendingRefused(BusReport):
    """The kernel refuses what a lane sends, most likely because of a firewall."""

    interface: str
    reason: str
    """Error message of the operating system."""

    def __str__(self) -> str:
        return f"the kernel refuses what this host sends over {self.interface}: {self.reason}"

    def error(self) -> JMSError:
        return BusError(str(self), "sends_refused")


Listener = Callable[[BusReport], None]


class LossSums:
    """Sums up lost bytes, so that each sender's are told once a second at most, however many gaps there are."""

    def __init__(self, tell: Callable[[BytesLost], None], clock: Clock) -> None:
        """Call `tell` with each report: at once, or a second after the last one of the sender."""
        self._tell = tell
        self._clock = clock
        self._told_at: dict[tuple[int, LossReason], float] = {}
        """Times of the last reports, by sender and reason, the longest ago first."""
        self._waiting: dict[tuple[int, LossReason], tuple[float, BytesLost]] = {}
        """Sums that are not told yet, and the times when they are due, in the order in which they began to wait."""
        self._handle: Handle | None = None

    def note(self, report: BytesLost) -> None:
        """Tell of a loss, or add it to those of the same sender and reason that wait."""
        key, now = (report.sender_id, report.reason), self._clock.time()
        told_at = self._told_at.get(key, -_LOSSES_INTERVAL_S)
        if key in self._waiting:
            due_at, before = self._waiting[key]
            self._waiting[key] = due_at, before.plus(report)
        elif now - told_at >= _LOSSES_INTERVAL_S:
            self._tell_now(key, report, now)
        else:
            self._waiting[key] = told_at + _LOSSES_INTERVAL_S, report
            self._wake()

    def tell_waiting(self) -> None:
        """Tell of all losses that wait, due or not."""
        waiting, self._waiting = self._waiting, {}
        for _, report in waiting.values():
            self._tell(report)
        self._wake()

    def _tell_now(self, key: tuple[int, LossReason], report: BytesLost, now: float) -> None:
        self._told_at.pop(key, None)
        self._told_at[key] = now
        while now - next(iter(self._told_at.values())) >= _LOSSES_INTERVAL_S:
            del self._told_at[next(iter(self._told_at))]
        self._tell(report)

    def _tell_due(self) -> None:
        self._handle, now = None, self._clock.time()
        while self._waiting:
            key, (due_at, report) = next(iter(self._waiting.items()))
            if due_at > now:  # this sender's last report is less than a second ago, or the timer came early
                break
            del self._waiting[key]
            self._tell_now(key, report, now)
        self._wake()

    def _wake(self) -> None:
        """Have `_tell_due` called when the first sum is due. Another may be due up to a second earlier, and waits."""
        if self._waiting and self._handle is None:
            due_at, _ = next(iter(self._waiting.values()))
            self._handle = self._clock.call_later(max(due_at - self._clock.time(), _TIMER_S), self._tell_due)
        elif not self._waiting and self._handle is not None:
            self._handle.cancel()
            self._handle = None


class Reporter:
    """Passes reports to all listeners, up to a bounded rate."""

    def __init__(self, stats: BusStats) -> None:
        self._stats = stats
        self._loop = asyncio.get_running_loop()
        self._listeners: list[Listener] = []
        self._second_began_at, self._reported = 0.0, 0
        self._sums = LossSums(self._pass_on, self._loop)

    @property
    def has_listeners(self) -> bool:
        return bool(self._listeners)

    def add_listener(self, listener: Listener) -> None:
        """Call `listener` with each report. The listener must not raise or wait."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        """Stop calling `listener`. Calling this twice does no harm."""
        if listener in self._listeners:
            self._sums.tell_waiting()
            self._listeners.remove(listener)

    def report(self, report: BusReport) -> None:
        """Pass on a report, or add it to one that waits: lost bytes are summed up."""
        if isinstance(report, BytesLost):
            self._sums.note(report)
        else:
            self._pass_on(report)

    def _pass_on(self, report: BusReport) -> None:
        now = self._loop.time()
        if now - self._second_began_at >= 1.0:
            self._second_began_at, self._reported = now, 0
        self._reported += 1
        if self._reported > _REPORTS_PER_S_MAX:
            self._stats.reports_suppressed += 1
            return
        for listener in list(self._listeners):
            listener(report)
