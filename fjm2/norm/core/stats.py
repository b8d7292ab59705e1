"""Counters, read alike by tests, `fjm2 top`, traces and the admin page."""

from collections import Counter
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any


class Drop(Enum):
    """Why a datagram, or what it asked for, was not acted on."""

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
    PAUSED = "the application takes no more at the moment"
    NOT_RECEIVING = "this node only sends"
    NOT_OURS = "meant for another node"
    UNKNOWN_OBJECT = "a request for what is not held any more"
    RATE_LIMITED = "a request that came again too soon"


@dataclass(slots=True)
class Stats:
    """What a session has done since it began."""

    datagrams_sent: int = 0
    """Of all kinds."""
    bytes_sent: int = 0
    """NORM messages, UDP and IP headers excluded."""
    datagrams_received: int = 0
    """Of all kinds, those dropped included."""
    bytes_received: int = 0
    """Likewise."""
    segments_sent: int = 0
    """Source segments, the first time each."""
    payload_bytes_sent: int = 0
    """Application bytes, likewise."""
    messages_sent: int = 0
    """Messages handed over to streams."""
    objects_sent: int = 0
    """Objects of which every segment has been sent once."""
    objects_received: int = 0
    """Objects that arrived complete."""
    objects_lost: int = 0
    """Objects, or parts of streams, given up."""
    payload_bytes_received: int = 0
    """Application bytes handed up."""
    bytes_lost: int = 0
    """Of streams: bytes that will not be handed up, though what follows them is."""
    duplicate_segments_received: int = 0
    """Segments that were there already."""
    segments_decoded: int = 0
    """Source segments made from parity."""
    nacks_sent: int = 0
    """Requests for repair."""
    nacks_suppressed: int = 0
    """NACKs not sent because others, or the sender, had said it all."""
    nacks_received: int = 0
    """Requests for repair, meant for this sender."""
    acks_sent: int = 0
    """Confirmations."""
    acks_received: int = 0
    """Confirmations, meant for this sender."""
    repair_segments_sent: int = 0
    """Source segments, sent again."""
    parity_segments_sent: int = 0
    """Proactive and as repair."""
    flushes_sent: int = 0
    """CMD(FLUSH), by which receivers learn what they miss at the end."""
    squelches_sent: int = 0
    """CMD(SQUELCH): what was asked for is not held any more."""
    probes_sent: int = 0
    """CMD(CC), by which round trips are measured."""
    window_waits: int = 0
    """Times that a stream's writer found no room."""
    grtt_s: float = 0.0
    """The sender's estimate of the group's greatest round-trip time."""
    drops: Counter[Drop] = field(default_factory=Counter)
    """What was not acted on, by reason."""

    def drop(self, reason: Drop, count: int = 1) -> None:
        """Count what was not acted on."""
        self.drops[reason] += count

    def as_dict(self) -> dict[str, Any]:
        """All counters by name, ready for JSON."""
        return {**self.counters(), "grtt_s": self.grtt_s, "drops": self.drops_by_name()}

    def counters(self) -> dict[str, int]:
        """All that is counted by name; drops have names of their own."""
        return {name: getattr(self, name) for name in _COUNTERS}

    def drops_by_name(self) -> dict[str, int]:
        """What was not acted on. Another thread may ask, too: what counts goes on meanwhile."""
        return {reason.name.lower(): count for reason, count in dict(self.drops).items()}


_COUNTERS = tuple(item.name for item in fields(Stats) if item.name not in ("grtt_s", "drops"))
