"""Counters of a NORM session's engine: their list, and the object that holds their values."""

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from fjm2.base.instruments import Instrument, counter, gauge


class Drop(Enum):
    """Reason why a datagram, or a request in it, was not acted on."""

    MALFORMED = "no NORM message"
    OWN = "our own, looped back"
    UNSUPPORTED = "a FEC scheme or message that is not supported"
    NO_FTI = "an object of which nothing is known yet"
    FTI_MISMATCH = "disagrees with what the sender said of the object before"
    OVERSIZE = "a payload longer than the segment size"
    BAD_POSITION = "a position beyond its object"
    UNSYNCHRONIZED = "before the point where reception began"
    OUT_OF_WINDOW = "too far ahead of, or behind, what is being received"
    TOO_LARGE = "an object larger than allowed"
    NO_MEMORY = "the bound on memory is reached"
    TOO_MANY_SENDERS = "the bound on remote senders is reached"
    STALE_INSTANCE = "for an earlier incarnation of a sender"
    STRANGER = "of an unknown sender, while too many appear"
    IMPOSTOR = "in the name of a sender that is heard from elsewhere"
    IMPLAUSIBLE = "contradicts what its sender was seen to do, and is not proven"
    PAUSED = "the application takes no more at the moment"
    NOT_RECEIVING = "this node only sends"
    NOT_OURS = "meant for another node"
    UNKNOWN_OBJECT = "a request for what is not held any more"
    PASSING = "data of which its sender wants nothing kept, where nothing else is received"
    RATE_LIMITED = "a request that came again too soon"


def _counter(name: str, unit: str, sentence: str, metric: str) -> Instrument:
    """Return the instrument of a counter that traces record and that has a column in the warehouse."""
    return counter(name, unit, sentence, metric=metric, trace=name, is_column=True)


COUNTERS: Final = (
    _counter("datagrams_sent", "datagrams", "Datagrams sent, of all message types.", "fjm2_sent_datagrams_total"),
    _counter(
        "bytes_sent", "bytes", "Bytes of NORM messages sent, without UDP and IP headers.", "fjm2_sent_bytes_total"
    ),
    _counter(
        "datagrams_received",
        "datagrams",
        "Datagrams received, including those dropped.",
        "fjm2_received_datagrams_total",
    ),
    _counter(
        "bytes_received",
        "bytes",
        "Bytes of NORM messages received, without UDP and IP headers, including those dropped.",
        "fjm2_received_bytes_total",
    ),
    _counter("segments_sent", "segments", "Source segments sent for the first time.", "fjm2_sent_segments_total"),
    _counter(
        "payload_bytes_sent", "bytes", "Application bytes sent for the first time.", "fjm2_sent_payload_bytes_total"
    ),
    _counter("messages_sent", "messages", "Messages that entered a stream's send buffer.", "fjm2_sent_messages_total"),
    _counter("objects_sent", "objects", "Objects of which every segment was sent once.", "fjm2_sent_objects_total"),
    _counter("objects_received", "objects", "Objects received completely.", "fjm2_received_objects_total"),
    _counter("objects_lost", "objects", "Objects, or parts of streams, given up.", "fjm2_lost_objects_total"),
    _counter(
        "payload_bytes_received",
        "bytes",
        "Application bytes delivered to the application.",
        "fjm2_received_payload_bytes_total",
    ),
    _counter(
        "bytes_lost",
        "bytes",
        "Bytes of streams that are lost for good: delivery went on after the gap.",
        "fjm2_lost_bytes_total",
    ),
    _counter(
        "duplicate_segments_received",
        "segments",
        "Segments received that were already there.",
        "fjm2_received_duplicate_segments_total",
    ),
    _counter("segments_decoded", "segments", "Source segments rebuilt from parity.", "fjm2_decoded_segments_total"),
    _counter("nacks_sent", "NACKs", "Repair requests (NACKs) sent.", "fjm2_sent_nacks_total"),
    _counter(
        "nacks_suppressed",
        "NACKs",
        "NACKs not sent because other receivers, or the sender, had covered everything in them.",
        "fjm2_suppressed_nacks_total",
    ),
    _counter("nacks_received", "NACKs", "NACKs received by this sender.", "fjm2_received_nacks_total"),
    _counter("acks_sent", "ACKs", "Acknowledgements (ACKs) sent.", "fjm2_sent_acks_total"),
    _counter("acks_received", "ACKs", "ACKs received by this sender.", "fjm2_received_acks_total"),
    _counter(
        "repair_segments_sent", "segments", "Source segments sent again as repair.", "fjm2_sent_repair_segments_total"
    ),
    _counter(
        "parity_segments_sent",
        "segments",
        "Parity segments sent, both proactively and as repair.",
        "fjm2_sent_parity_segments_total",
    ),
    _counter(
        "flushes_sent",
        "messages",
        "CMD(FLUSH) messages sent: they tell receivers where the data ends, so that these can ask for what they miss.",
        "fjm2_sent_flushes_total",
    ),
    _counter(
        "squelches_sent",
        "messages",
        "CMD(SQUELCH) messages sent: they answer requests for data that is no longer held.",
        "fjm2_sent_squelches_total",
    ),
    _counter(
        "probes_sent", "messages", "CMD(CC) messages sent, which measure round-trip times.", "fjm2_sent_probes_total"
    ),
    _counter(
        "window_waits",
        "times",
        "Times that a writer of a stream found no room: receivers, or the rate, hold the sender back.",
        "fjm2_window_waits_total",
    ),
)
"""Counters of the engine, in the order of the fields of `Stats`."""
GRTT: Final = gauge(
    "grtt_s",
    "s",
    "Greatest round-trip time of the group, as the sender estimates it.",
    metric="fjm2_grtt_seconds",
    trace="grtt_s",
    is_column=True,
)
DROPS: Final = counter(
    "drops",
    "datagrams",
    "Datagrams received and not acted on, by reason: the names of `Drop` in lower case.",
    metric="fjm2_drops_total",
    label="reason",
)


@dataclass(slots=True)
class Stats:
    """Counters of a session since it opened."""

    # Fields of Stats: begin (make counters)
    datagrams_sent: int = 0
    """Datagrams sent, of all message types."""
    bytes_sent: int = 0
    """Bytes of NORM messages sent, without UDP and IP headers."""
    datagrams_received: int = 0
    """Datagrams received, including those dropped."""
    bytes_received: int = 0
    """Bytes of NORM messages received, without UDP and IP headers, including those dropped."""
    segments_sent: int = 0
    """Source segments sent for the first time."""
    payload_bytes_sent: int = 0
    """Application bytes sent for the first time."""
    messages_sent: int = 0
    """Messages that entered a stream's send buffer."""
    objects_sent: int = 0
    """Objects of which every segment was sent once."""
    objects_received: int = 0
    """Objects received completely."""
    objects_lost: int = 0
    """Objects, or parts of streams, given up."""
    payload_bytes_received: int = 0
    """Application bytes delivered to the application."""
    bytes_lost: int = 0
    """Bytes of streams that are lost for good: delivery went on after the gap."""
    duplicate_segments_received: int = 0
    """Segments received that were already there."""
    segments_decoded: int = 0
    """Source segments rebuilt from parity."""
    nacks_sent: int = 0
    """Repair requests (NACKs) sent."""
    nacks_suppressed: int = 0
    """NACKs not sent because other receivers, or the sender, had covered everything in them."""
    nacks_received: int = 0
    """NACKs received by this sender."""
    acks_sent: int = 0
    """Acknowledgements (ACKs) sent."""
    acks_received: int = 0
    """ACKs received by this sender."""
    repair_segments_sent: int = 0
    """Source segments sent again as repair."""
    parity_segments_sent: int = 0
    """Parity segments sent, both proactively and as repair."""
    flushes_sent: int = 0
    """CMD(FLUSH) messages sent: they tell receivers where the data ends, so that these can ask for what they miss."""
    squelches_sent: int = 0
    """CMD(SQUELCH) messages sent: they answer requests for data that is no longer held."""
    probes_sent: int = 0
    """CMD(CC) messages sent, which measure round-trip times."""
    window_waits: int = 0
    """Times that a writer of a stream found no room: receivers, or the rate, hold the sender back."""
    # Fields of Stats: end
    grtt_s: float = 0.0
    """Greatest round-trip time of the group, as the sender estimates it."""
    drops: Counter[Drop] = field(default_factory=Counter)
    """Datagrams received and not acted on, by reason."""

    def drop(self, reason: Drop, count: int = 1) -> None:
        """Count datagrams, or requests in them, that were not acted on."""
        self.drops[reason] += count

    def as_dict(self) -> dict[str, Any]:
        """Return all values by name, ready for JSON."""
        return {**self.counters(), "grtt_s": self.grtt_s, "drops": self.drops_by_name()}

    def counters(self) -> dict[str, int]:
        """Return the counters by name, without the drops."""
        return {name: getattr(self, name) for name in _NAMES}

    def drops_by_name(self) -> dict[str, int]:
        """Return the number of drops for each reason, by its name in lower case. Another thread may count meanwhile."""
        return {reason.name.lower(): count for reason, count in dict(self.drops).items()}


_NAMES: Final = tuple(one.name for one in COUNTERS)
