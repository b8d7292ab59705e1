"""Counters of UDP sockets."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class UdpStats:
    """Errors and waits of the sockets of a transport."""

    send_errors: Counter[int] = field(default_factory=Counter)
    """Sends that the kernel refused, by errno. Their datagrams are lost."""
    receive_errors: Counter[int] = field(default_factory=Counter)
    """Receives that raised an error, by errno."""
    sends_blocked: int = 0
    """Sends for which the kernel had no room."""
    offload_refused: int = 0
    """Trains that the kernel refused to segment. Trains with segments as long go datagram by datagram from then on."""
    truncated_dropped: int = 0
    """Receives longer than the buffer, dropped."""
    empty_dropped: int = 0
    """Datagrams without content, dropped."""
