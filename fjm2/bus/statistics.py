"""Statistics of buses, connections, sessions, producers and consumers: snapshots that do not change.

The module also has the list of a bus's counters and gauges, and `BusStats`, in which a bus counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fjm2.base.instruments import counter, gauge

if TYPE_CHECKING:
    from fjm2.norm import SessionStatistics as LaneStatistics

BUS_INSTRUMENTS: Final = (
    gauge("connections", "connections", "Connections of this process that share the bus.", metric="fjm2_connections"),
    gauge("peers", "connections", "Known connections of other processes.", metric="fjm2_peers"),
    counter("messages_sent", "messages", "Messages that entered the send buffer of a lane: the sum over the lanes."),
    counter(
        "frames_received",
        "messages",
        "Messages received from other processes, whether or not a consumer here wants them.",
        metric="fjm2_received_messages_total",
        trace="frames_received",
    ),
    counter(
        "deliveries",
        "messages",
        "Messages given to consumers of this process: one that goes to two consumers counts twice.",
        metric="fjm2_delivered_messages_total",
        trace="messages_received",
        is_column=True,
    ),
    counter(
        "messages_dropped",
        "messages",
        "Messages dropped by consumers that were full.",
        metric="fjm2_dropped_messages_total",
    ),
    counter(
        "consumers_let_go",
        "times",
        "Times that senders stopped waiting for a full consumer, because it took no message for `block_s`.",
        metric="fjm2_let_go_consumers_total",
    ),
    counter(
        "frames_expired",
        "messages",
        "Messages that had expired when they arrived, and that a consumer of this process would have got.",
        metric="fjm2_expired_messages_total",
        trace="frames_expired",
    ),
    counter(
        "frames_malformed",
        "messages",
        "Malformed messages: evaluating a selector, or reading their transaction, failed.",
        metric="fjm2_malformed_messages_total",
    ),
    counter(
        "frame_drops",
        "messages",
        "Frames dropped because they could not be read, by reason: `unknown`, `malformed`, `too_large`, `cut`.",
        metric="fjm2_frame_drops_total",
        label="reason",
    ),
    counter(
        "outages",
        "outages",
        "Outages of subscribers: each began when a subscriber did not confirm in time.",
        metric="fjm2_outages_total",
    ),
    counter(
        "streams_cut",
        "times",
        "Times that a sender's stream had to start over, because its incomplete messages took too much memory.",
        metric="fjm2_cut_streams_total",
    ),
    counter(
        "announcements_refused",
        "announcements",
        "Announcements of other connections refused, because they are invalid or there is no room for them.",
        metric="fjm2_refused_announcements_total",
    ),
    counter(
        "signals_unknown",
        "signals",
        "Commands, acknowledgements and requests for them that were ignored, because this process does not know their "
        "kind.",
        metric="fjm2_unknown_signals_total",
    ),
    counter(
        "reports_suppressed",
        "reports",
        "Problems not reported to exception listeners, because there were too many in a second.",
        metric="fjm2_suppressed_reports_total",
    ),
    gauge(
        "subscribers_down",
        "subscribers",
        "Subscribers that did not confirm in time, and that nobody waits for until they confirm again.",
        metric="fjm2_down_subscribers",
    ),
    gauge(
        "subscribers_full",
        "subscribers",
        "Subscribers of other processes that are full, so that this process waits for them.",
        metric="fjm2_full_subscribers",
    ),
    gauge(
        "transactions_held",
        "transactions",
        "Transactions received in part, and not complete yet.",
        metric="fjm2_held_transactions",
    ),
    gauge(
        "outbox_messages",
        "messages",
        "Messages in outboxes of this process that keepers are not known to have stored.",
        metric="fjm2_outbox_messages",
    ),
    gauge("consumers", "consumers", "Consumers of this process.", metric="fjm2_consumers"),
    gauge(
        "consumers_full",
        "consumers",
        "Consumers that are full. While one is full, nothing more is read from the network, and senders wait.",
        metric="fjm2_full_consumers",
    ),
    gauge(
        "messages_held",
        "messages",
        "Messages held by consumers: waiting, or taken and not acknowledged.",
        metric="fjm2_held_messages",
    ),
    gauge("held_bytes", "bytes", "Bytes of the messages held by consumers.", metric="fjm2_held_bytes"),
    counter(
        None,
        "messages",
        "Messages lost in this process: dropped by full consumers, malformed, or not readable as messages.",
        trace="messages_lost",
        is_column=True,
    ),
)
"""Counters and gauges of a bus, in the order of the fields of `BusStatistics`. Lanes have counters of their own."""
BUS_COUNTERS: Final = tuple(one for one in BUS_INSTRUMENTS if one.kind == "counter" and one.metric and not one.label)
"""Counters that are in `BusStats`. Messages sent are counted by lanes, and frames dropped by readers of streams."""


@dataclass(slots=True)
class BusStats:
    """Counters of a bus since it opened. The bus, its router and its table of presence share one such object."""

    # Fields of BusStats: begin (make counters)
    frames_received: int = 0
    """Messages received from other processes, whether or not a consumer here wants them."""
    deliveries: int = 0
    """Messages given to consumers of this process: one that goes to two consumers counts twice."""
    messages_dropped: int = 0
    """Messages dropped by consumers that were full."""
    consumers_let_go: int = 0
    """Times that senders stopped waiting for a full consumer, because it took no message for `block_s`."""
    frames_expired: int = 0
    """Messages that had expired when they arrived, and that a consumer of this process would have got."""
    frames_malformed: int = 0
    """Malformed messages: evaluating a selector, or reading their transaction, failed."""
    outages: int = 0
    """Outages of subscribers: each began when a subscriber did not confirm in time."""
    streams_cut: int = 0
    """Times that a sender's stream had to start over, because its incomplete messages took too much memory."""
    announcements_refused: int = 0
    """Announcements of other connections refused, because they are invalid or there is no room for them."""
    signals_unknown: int = 0
    """Commands, acknowledgements and requests for them that were ignored, because this process does not know their
    kind."""
    reports_suppressed: int = 0
    """Problems not reported to exception listeners, because there were too many in a second."""
    # Fields of BusStats: end

    def counters(self) -> dict[str, int]:
        """Return the counters by name."""
        return {name: getattr(self, name) for name in _NAMES}

    def traced(self) -> dict[str, int]:
        """Return the counters that traces record, by their keys there."""
        return {key: getattr(self, name) for name, key in _TRACED.items()}


_NAMES: Final = tuple(one.name for one in BUS_COUNTERS)
_TRACED: Final = {one.name: one.trace for one in BUS_COUNTERS if one.trace}


@dataclass(frozen=True, slots=True, kw_only=True)
class BusStatistics:
    """Counters and state of a bus: what all connections of the process to the same URI share."""

    # Fields of BusStatistics: begin (make counters)
    connections: int
    """Connections of this process that share the bus."""
    peers: int
    """Known connections of other processes."""
    messages_sent: int
    """Messages that entered the send buffer of a lane: the sum over the lanes."""
    frames_received: int
    """Messages received from other processes, whether or not a consumer here wants them."""
    deliveries: int
    """Messages given to consumers of this process: one that goes to two consumers counts twice."""
    messages_dropped: int
    """Messages dropped by consumers that were full."""
    consumers_let_go: int
    """Times that senders stopped waiting for a full consumer, because it took no message for `block_s`."""
    frames_expired: int
    """Messages that had expired when they arrived, and that a consumer of this process would have got."""
    frames_malformed: int
    """Malformed messages: evaluating a selector, or reading their transaction, failed."""
    frame_drops: Mapping[str, int]
    """Frames dropped because they could not be read, by reason: `unknown`, `malformed`, `too_large`, `cut`."""
    outages: int
    """Outages of subscribers: each began when a subscriber did not confirm in time."""
    streams_cut: int
    """Times that a sender's stream had to start over, because its incomplete messages took too much memory."""
    announcements_refused: int
    """Announcements of other connections refused, because they are invalid or there is no room for them."""
    signals_unknown: int
    """Commands, acknowledgements and requests for them that were ignored, because this process does not know their
    kind."""
    reports_suppressed: int
    """Problems not reported to exception listeners, because there were too many in a second."""
    subscribers_down: int
    """Subscribers that did not confirm in time, and that nobody waits for until they confirm again."""
    subscribers_full: int
    """Subscribers of other processes that are full, so that this process waits for them."""
    transactions_held: int
    """Transactions received in part, and not complete yet."""
    outbox_messages: int
    """Messages in outboxes of this process that keepers are not known to have stored."""
    consumers: int
    """Consumers of this process."""
    consumers_full: int
    """Consumers that are full. While one is full, nothing more is read from the network, and senders wait."""
    messages_held: int
    """Messages held by consumers: waiting, or taken and not acknowledged."""
    held_bytes: int
    """Bytes of the messages held by consumers."""
    # Fields of BusStatistics: end
    lanes: Mapping[int, "LaneStatistics"]
    """Statistics of the NORM session of each lane, by lane number. Only lane 0 and lanes that have sent are present."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionStatistics:
    """Counters and state of a connection, and of its bus."""

    sessions: int
    """Sessions that are open."""
    messages_sent: int
    """Messages sent by its producers, including those of transactions that are open or were rolled back."""
    messages_unconfirmed: int
    """Persistent messages sent that some known subscriber has not confirmed yet; 0 when closed."""
    messages_dropped: int
    """Messages dropped by consumers that were full."""
    consumers: int
    """Consumers that are open."""
    consumers_full: int
    """Consumers that are full and hold the senders back."""
    messages_held: int
    """Messages held by consumers: waiting, or taken and not acknowledged."""
    held_bytes: int
    """Bytes of the messages held by consumers."""
    bus: BusStatistics
    """The bus, which other connections of this process to the same URI share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStatistics:
    """Current state of a session."""

    consumers: int
    """Consumers that are open."""
    messages_unacknowledged: int
    """Messages taken and not acknowledged. In AUTO and DUPS_OK mode, these are the messages that loops are
    processing."""
    messages_uncommitted: int
    """Messages sent in the open transaction."""
    outcomes_awaited: int
    """Asynchronous sends whose outcome is not known yet, or not yet reported to the completion listener."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerStatistics:
    """Counters of a producer since it was created."""

    messages_sent: int
    """Messages accepted by `send`, including those of transactions."""
    sends_waited: int
    """Sends that had to wait for room, because receivers or the rate limit hold the sender back."""
    waited_s: float
    """Total time that sends waited for room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStatistics:
    """Counters and state of a consumer. For a temporary queue, they are those of the whole queue."""

    messages_received: int
    """Messages received from the bus, including those that were dropped later."""
    messages_waiting: int
    """Messages that were not taken yet."""
    messages_held: int
    """Messages waiting, or taken and not acknowledged. `messages_max` limits them."""
    held_bytes: int
    """Bytes of the messages held. `bytes_max` limits them."""
    messages_dropped: int
    """Messages dropped because the consumer was full."""
    times_full: int
    """Times that the consumer became full and held the senders back."""
    is_full: bool
    """True while the consumer is full and holds the senders back."""
