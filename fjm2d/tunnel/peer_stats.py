"""Counters of a peer, which tests, metrics, traces and the status page all read."""

from collections import Counter
from dataclasses import asdict, dataclass, field

from .wire import Drop


@dataclass(slots=True)
class PeerStats:
    """Counters of the link to a peer. Bytes are those of UDP datagrams, without UDP and IP headers."""

    # Fields of PeerStats: begin (make counters)
    datagrams_sent: int = 0
    """Tunnel datagrams sent."""
    bytes_sent: int = 0
    """Bytes of tunnel datagrams sent."""
    trains_sent: int = 0
    """Trains of tunnel datagrams sent."""
    datagrams_received: int = 0
    """Authentic tunnel datagrams received."""
    bytes_received: int = 0
    """Bytes of authentic tunnel datagrams received."""
    trains_received: int = 0
    """Trains of authentic tunnel datagrams received."""
    handshakes_sent: int = 0
    """Handshakes begun."""
    handshakes_answered: int = 0
    """Handshakes of the peer answered."""
    handshakes_completed: int = 0
    """Handshakes completed."""
    probes_sent: int = 0
    """Probes of round-trip time and loss sent."""
    probes_answered: int = 0
    """Probes sent that the peer answered."""
    split: int = 0
    """Datagrams sent in parts because they are too long for the path."""
    moves: int = 0
    """Times that the peer changed its address."""
    # Fields of PeerStats: end
    drops: Counter[Drop] = field(default_factory=Counter)
    """Datagrams not sent to the peer, or received from it and not acted on, by reason."""

    def note_sent(self, count: int, size: int) -> None:
        """Count a train that was sealed."""
        self.trains_sent += 1
        self.datagrams_sent += count
        self.bytes_sent += size

    def note_received(self, count: int, size: int) -> None:
        """Count a train that proved authentic."""
        self.trains_received += 1
        self.datagrams_received += count
        self.bytes_received += size

    def as_dict(self) -> dict[str, object]:
        """Return all counters by name, ready for JSON."""
        drops = {reason.name.lower(): self.drops[reason] for reason in Drop if self.drops[reason]}
        return {**asdict(self), "drops": drops}


class Flow:
    """Current traffic of a link in both directions, from its counters, which `look` reads about once a second."""

    __slots__ = ("_at", "_received", "_sent", "received_bps", "sent_bps")

    def __init__(self, now: float) -> None:
        self._at = now
        self._sent = self._received = 0
        self.sent_bps = 0.0
        self.received_bps = 0.0

    def look(self, stats: PeerStats, now: float) -> None:
        """Update the rates, in bits a second, to the average since the last look."""
        if now <= self._at:
            return
        self.sent_bps = 8 * (stats.bytes_sent - self._sent) / (now - self._at)
        self.received_bps = 8 * (stats.bytes_received - self._received) / (now - self._at)
        self._at, self._sent, self._received = now, stats.bytes_sent, stats.bytes_received
