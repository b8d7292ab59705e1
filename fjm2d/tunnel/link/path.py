"""The path to one peer: the peer's address, and the longest packet that gets there."""

import math
from collections import deque

from fjm2.norm import Address

from ..events import Event, NamedPeer, PathMtuChanged, PathTooNarrow, PeerMoved
from ..wire import OVERHEAD_BYTES
from .liveness import Liveness
from .path_mtu import PathMtu, timeout_s

NEVER = math.inf
IPV4_BYTES = 28
"""Headers of IPv4 (20 bytes, RFC 791) and UDP (8 bytes, RFC 768)."""
IPV6_BYTES = 48
"""Headers of IPv6 (40 bytes, RFC 8200) and UDP."""
_MOVE_EVENT_S = 1.0
"""Least time between two reports of moves: an address translator may alternate between two ports for every packet."""
_ASSUMED_RTT_S = 0.3
"""Round-trip time assumed until it is measured: longer than most, so that slow paths are not given up early."""


class Path:
    """The path to one peer. It emits the events PeerMoved, PathMtuChanged and PathTooNarrow."""

    __slots__ = ("_events", "_moved_event_at", "_mtu", "_peer", "address", "datagram_bytes", "ip_bytes")

    def __init__(self, peer: NamedPeer, events: deque[Event], mtu_bytes: int | None, mtu_max_bytes: int) -> None:
        self.address: Address | None = None
        """Source of the peer's newest authentic datagram; None before the first session."""
        self.ip_bytes = IPV4_BYTES
        """Length of the IP and UDP headers of each packet."""
        self.datagram_bytes = 0
        """Length of the longest datagram that fits into one packet, before it is sealed."""
        self._peer = peer
        self._events = events
        self._mtu = PathMtu(mtu_bytes, mtu_max_bytes)
        self._moved_event_at = -NEVER
        self._resize()

    @property
    def mtu_bytes(self) -> int:
        """Longest IP packet that is sent to the peer."""
        return self._mtu.mtu

    @property
    def is_too_narrow(self) -> bool:
        """True if not even the shortest packets that datagrams are split into arrive at the peer."""
        return self._mtu.is_too_narrow

    @property
    def next_at(self) -> float:
        """Time at which `poll` is due."""
        return self._mtu.next_at

    def move_to(self, address: Address, now: float) -> bool:
        """Send to this address from now on. Return True if the peer was at another one before."""
        before, self.address = self.address, address
        self.ip_bytes = IPV6_BYTES if ":" in address[0] else IPV4_BYTES
        if before is not None:
            if now - self._moved_event_at >= _MOVE_EVENT_S:
                self._moved_event_at = now
                self._events.append(PeerMoved(self._peer, before, address))
            self._mtu.begin()
        self._resize()
        return before is not None

    def begin(self) -> None:
        """Start over for a peer that has come up: its path may have changed."""
        self._mtu.begin()
        self._resize()

    def stop(self) -> None:
        """Send no more probes: the peer is down."""
        self._mtu.stop()

    def confirm(self, now: float) -> None:
        """Begin the search, if it is due: the peer has answered a probe from its address."""
        self._mtu.confirm(now)

    def poll(self, now: float, rtt_s: float | None, liveness: Liveness) -> int | None:
        """Return the length of the packet with which to probe the path now; None if no probe is due."""
        before, was_too_narrow = self._mtu.mtu, self._mtu.is_too_narrow
        rtt_s = _ASSUMED_RTT_S if rtt_s is None else rtt_s
        is_answering = liveness.is_answering(now, timeout_s(rtt_s))
        packet_bytes = self._mtu.poll(now, rtt_s, liveness.is_flowing(now), is_answering)
        if self._mtu.mtu < before:
            self._report_mtu()
        if self._mtu.is_too_narrow and not was_too_narrow:
            self._events.append(PathTooNarrow(self._peer, is_over=False))
        return packet_bytes

    def note_arrived(self, packet_bytes: int, now: float) -> None:
        """Record that the peer answered a probe of this length."""
        was_too_narrow = self._mtu.is_too_narrow
        if self._mtu.note_arrived(packet_bytes, now):
            self._report_mtu()
        if was_too_narrow and not self._mtu.is_too_narrow:
            self._events.append(PathTooNarrow(self._peer, is_over=True))

    def note_too_long(self, datagram_bytes: int, now: float) -> None:
        """Record that the kernel refused a UDP payload of this length (EMSGSIZE)."""
        if self._mtu.note_too_long(datagram_bytes + self.ip_bytes, now):
            self._report_mtu()

    def _report_mtu(self) -> None:
        self._resize()
        self._events.append(PathMtuChanged(self._peer, self._mtu.mtu))

    def _resize(self) -> None:
        self.datagram_bytes = self._mtu.mtu - self.ip_bytes - OVERHEAD_BYTES
