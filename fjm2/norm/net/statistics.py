"""What sessions and streams say of themselves: pictures of a moment, which do not change."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStatistics:
    """A session so far. Counters begin at 0 when it opens and never fall, but for `kernel_drops`."""

    datagrams_sent: int
    """Of all kinds."""
    bytes_sent: int
    """NORM messages, UDP and IP headers excluded."""
    datagrams_received: int
    """Of all kinds, those dropped included."""
    bytes_received: int
    """Likewise in bytes."""
    segments_sent: int
    """Source segments, the first time each."""
    payload_bytes_sent: int
    """Application bytes, likewise."""
    messages_sent: int
    """Messages handed over to streams."""
    objects_sent: int
    """Objects of which every segment has been sent once."""
    objects_received: int
    """Objects that arrived complete."""
    objects_lost: int
    """Objects, or parts of streams, given up."""
    payload_bytes_received: int
    """Application bytes handed up."""
    bytes_lost: int
    """Of streams: bytes that will not be handed up, though what follows them is."""
    duplicate_segments_received: int
    """Segments that were there already."""
    segments_decoded: int
    """Source segments made from parity."""
    nacks_sent: int
    """Requests for repair."""
    nacks_suppressed: int
    """Requests not sent because others, or the sender, had said it all."""
    nacks_received: int
    """Requests for repair, meant for this sender."""
    acks_sent: int
    """Confirmations."""
    acks_received: int
    """Confirmations, meant for this sender."""
    repair_segments_sent: int
    """Source segments, sent again."""
    parity_segments_sent: int
    """Proactive and as repair."""
    flushes_sent: int
    """Commands by which receivers learn at the end what they miss."""
    squelches_sent: int
    """Answers that what was asked for is not held any more."""
    probes_sent: int
    """Commands by which round trips are measured."""
    window_waits: int
    """Times that a stream's writer found no room: receivers, or the rate, hold the sender back."""
    send_errors: int
    """Sends that the kernel refused: what was to be sent is gone, and is repaired later."""
    sends_blocked: int
    """Times that the kernel was full, and was waited for."""
    kernel_drops: int
    """Datagrams that came and found the sockets' buffers full; from 0 again with new sockets, and 0 when closed."""
    drops: Mapping[str, int]
    """What was received and not acted on, by reason: the names of `Drop` in lower case."""

    grtt_s: float
    """The sender's estimate of the group's greatest round-trip time."""
    queue_bytes: int
    """Written to streams, and without a place in their buffers yet."""
    events_waiting: int
    """Received, and not taken by the application yet."""
    events_waiting_bytes: int
    """What these events hold."""
    receivers: int
    """Nodes that flow control waits for."""
    receivers_evicted: int
    """Nodes that it waited for in vain, and that have neither come back nor left."""
    is_paused: bool
    """Nothing more is received until the application takes events."""
    is_down: bool
    """There is no way out: the interface is down, or the last send found none."""
    warnings: int
    """What the operator of this host should know: `Session.warnings` says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStatistics:
    """A stream so far, as its writer sees it."""

    messages_sent: int
    """Messages that have a place in the buffer that the network is fed from, or had one."""
    payload_bytes_sent: int
    """Likewise in bytes."""
    queue_messages: int
    """Written, and without a place there yet."""
    queue_bytes: int
    """Likewise in bytes."""
    is_closed: bool
    """Nothing more can be written."""
