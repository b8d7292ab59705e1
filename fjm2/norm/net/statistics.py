"""Snapshots of the counters of sessions and streams, and the list of a session's counters and gauges."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fjm2.base.instruments import counter, gauge
from fjm2.norm.core.stats import COUNTERS, DROPS, GRTT

SESSION_INSTRUMENTS: Final = (
    *COUNTERS,
    counter(
        "send_errors",
        "sends",
        "Sends that the kernel refused. Their data are lost for now, and repaired later.",
        metric="fjm2_send_errors_total",
    ),
    counter(
        "sends_blocked",
        "times",
        "Times that the kernel's send buffer was full and the session waited for it.",
        metric="fjm2_blocked_sends_total",
    ),
    counter(
        "kernel_drops",
        "datagrams",
        "Datagrams that the kernel dropped because a socket's receive buffer was full. Starts again from 0 with new "
        "sockets, and is 0 when closed.",
        metric="fjm2_kernel_drops_total",
    ),
    DROPS,
    GRTT,
    gauge(
        "queue_bytes",
        "bytes",
        "Bytes written to streams that have no place in a send buffer yet.",
        metric="fjm2_queue_bytes",
        trace="queue_bytes",
        is_column=True,
    ),
    gauge(
        "events_waiting",
        "events",
        "Events received that the application has not taken yet.",
        metric="fjm2_waiting_events",
    ),
    gauge("events_waiting_bytes", "bytes", "Bytes held by these events.", metric="fjm2_waiting_event_bytes"),
    gauge("receivers", "nodes", "Receivers that flow control waits for.", metric="fjm2_receivers"),
    gauge(
        "receivers_evicted",
        "nodes",
        "Receivers that flow control gave up waiting for, and that have neither come back nor left.",
        metric="fjm2_evicted_receivers",
    ),
    gauge(
        "is_paused",
        "bool",
        "True while nothing more is received until the application takes events.",
        metric="fjm2_paused",
    ),
    gauge(
        "is_down",
        "bool",
        "True while there is no way out: the interface is down, or the last send found no route or was refused.",
        metric="fjm2_down",
    ),
    gauge(
        "warnings",
        "warnings",
        "Problems that the operator of this host should fix; `Session.warnings` has their texts.",
        metric="fjm2_warnings",
    ),
)
"""Counters and gauges of a session, in the order of the fields of `SessionStatistics`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStatistics:
    """Counters of a session since it opened, and its current state. No counter falls, except `kernel_drops`."""

    # Fields of SessionStatistics: begin (make counters)
    datagrams_sent: int
    """Datagrams sent, of all message types."""
    bytes_sent: int
    """Bytes of NORM messages sent, without UDP and IP headers."""
    datagrams_received: int
    """Datagrams received, including those dropped."""
    bytes_received: int
    """Bytes of NORM messages received, without UDP and IP headers, including those dropped."""
    segments_sent: int
    """Source segments sent for the first time."""
    payload_bytes_sent: int
    """Application bytes sent for the first time."""
    messages_sent: int
    """Messages that entered a stream's send buffer."""
    objects_sent: int
    """Objects of which every segment was sent once."""
    objects_received: int
    """Objects received completely."""
    objects_lost: int
    """Objects, or parts of streams, given up."""
    payload_bytes_received: int
    """Application bytes delivered to the application."""
    bytes_lost: int
    """Bytes of streams that are lost for good: delivery went on after the gap."""
    duplicate_segments_received: int
    """Segments received that were already there."""
    segments_decoded: int
    """Source segments rebuilt from parity."""
    nacks_sent: int
    """Repair requests (NACKs) sent."""
    nacks_suppressed: int
    """NACKs not sent because other receivers, or the sender, had covered everything in them."""
    nacks_received: int
    """NACKs received by this sender."""
    acks_sent: int
    """Acknowledgements (ACKs) sent."""
    acks_received: int
    """ACKs received by this sender."""
    repair_segments_sent: int
    """Source segments sent again as repair."""
    parity_segments_sent: int
    """Parity segments sent, both proactively and as repair."""
    flushes_sent: int
    """CMD(FLUSH) messages sent: they tell receivers where the data ends, so that these can ask for what they miss."""
    squelches_sent: int
    """CMD(SQUELCH) messages sent: they answer requests for data that is no longer held."""
    probes_sent: int
    """CMD(CC) messages sent, which measure round-trip times."""
    window_waits: int
    """Times that a writer of a stream found no room: receivers, or the rate, hold the sender back."""
    send_errors: int
    """Sends that the kernel refused. Their data are lost for now, and repaired later."""
    sends_blocked: int
    """Times that the kernel's send buffer was full and the session waited for it."""
    kernel_drops: int
    """Datagrams that the kernel dropped because a socket's receive buffer was full. Starts again from 0 with new
    sockets, and is 0 when closed."""
    drops: Mapping[str, int]
    """Datagrams received and not acted on, by reason: the names of `Drop` in lower case."""
    grtt_s: float
    """Greatest round-trip time of the group, as the sender estimates it."""
    queue_bytes: int
    """Bytes written to streams that have no place in a send buffer yet."""
    events_waiting: int
    """Events received that the application has not taken yet."""
    events_waiting_bytes: int
    """Bytes held by these events."""
    receivers: int
    """Receivers that flow control waits for."""
    receivers_evicted: int
    """Receivers that flow control gave up waiting for, and that have neither come back nor left."""
    is_paused: bool
    """True while nothing more is received until the application takes events."""
    is_down: bool
    """True while there is no way out: the interface is down, or the last send found no route or was refused."""
    warnings: int
    """Problems that the operator of this host should fix; `Session.warnings` has their texts."""
    # Fields of SessionStatistics: end


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStatistics:
    """Counters of an outgoing stream since it was opened."""

    messages_sent: int
    """Messages that entered the stream's send buffer."""
    payload_bytes_sent: int
    """Bytes that entered the stream's send buffer."""
    queue_messages: int
    """Messages written that have no place in the send buffer yet."""
    queue_bytes: int
    """Bytes written that have no place in the send buffer yet."""
    is_closed: bool
    """True if nothing more can be written."""
