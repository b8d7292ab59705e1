"""Counters of UDP sockets."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class UdpStats:
    """Counters of a session's sockets: errors and waits."""

    send_errors: Counter[int] = field(default_factory=Counter)
    """Sends that the kernel refused, by errno. Their datagrams are lost."""
    receive_errors: Counter[int] = field(default_factory=Counter)
    """Attempts to receive that raised an error, by errno."""
    sends_blocked: int = 0
    """Attempts to send for which the kernel had no room."""
    offload_refused: int = 0
    """Trains that the kernel refused to segment. Such trains are sent datagram by datagram from then on."""
    truncated_dropped: int = 0
    """Trains and datagrams dropped because they were longer than the buffer."""
    empty_dropped: int = 0
    """Datagrams dropped because they had no content."""
