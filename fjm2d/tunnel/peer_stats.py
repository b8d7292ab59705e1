"""Counters of a peer, read alike by tests, metrics and the status page."""

from collections import Counter
from dataclasses import asdict, dataclass, field

from .wire import Drop


@dataclass(slots=True)
class PeerStats:
    """What has gone to a peer and come from it. Bytes are those of UDP datagrams."""

    datagrams_sent: int = 0
    bytes_sent: int = 0
    trains_sent: int = 0
    datagrams_received: int = 0
    bytes_received: int = 0
    trains_received: int = 0
    handshakes_sent: int = 0
    handshakes_answered: int = 0
    handshakes_completed: int = 0
    probes_sent: int = 0
    probes_answered: int = 0
    """Of ours."""
    split: int = 0
    """Datagrams sent in parts."""
    moves: int = 0
    drops: Counter[Drop] = field(default_factory=Counter)

    def note_sent(self, count: int, size: int) -> None:
        """A train has been sealed."""
        self.trains_sent += 1
        self.datagrams_sent += count
        self.bytes_sent += size

    def note_received(self, count: int, size: int) -> None:
        """A train has proved authentic."""
        self.trains_received += 1
        self.datagrams_received += count
        self.bytes_received += size

    def as_dict(self) -> dict[str, object]:
        """All counters by name, ready for JSON."""
        drops = {reason.name.lower(): self.drops[reason] for reason in Drop if self.drops[reason]}
        return {**asdict(self), "drops": drops}


class Flow:
    """What goes to a peer and comes from it now, from looking at its counters every second or so."""

    __slots__ = ("_at", "_received", "_sent", "received_bps", "sent_bps")

    def __init__(self, now: float) -> None:
        self._at = now
        self._sent = self._received = 0
        self.sent_bps = 0.0
        self.received_bps = 0.0

    def look(self, stats: PeerStats, now: float) -> None:
        """Bits a second since the last look."""
        if now <= self._at:
            return
        self.sent_bps = 8 * (stats.bytes_sent - self._sent) / (now - self._at)
        self.received_bps = 8 * (stats.bytes_received - self._received) / (now - self._at)
        self._at, self._sent, self._received = now, stats.bytes_sent, stats.bytes_received
