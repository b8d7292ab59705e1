"""What happened to peers, for logs and for what lies above the tunnel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fjm2.norm import Address

    from .peer import Peer


@dataclass(frozen=True, slots=True)
class PeerUp:
    """A peer can be sent to."""

    peer: Peer
    address: Address


@dataclass(frozen=True, slots=True)
class PeerDown:
    """A peer can't be sent to any more."""

    peer: Peer
    reason: str
    """It is "silent", "deaf" (it is heard, and does not hear us), has said "goodbye", its keys have "expired", or it
    was "removed"."""


@dataclass(frozen=True, slots=True)
class PeerMoved:
    """A peer is heard from another address, and is sent to there from now on."""

    peer: Peer
    before: Address
    address: Address


@dataclass(frozen=True, slots=True)
class PathMtuChanged:
    """Longer packets than before get through, or only shorter ones."""

    peer: Peer
    mtu_bytes: int


@dataclass(frozen=True, slots=True)
class ClockBehind:
    """A peer that is not connected calls with a time long before any that is accepted: a replay, or a clock to be set.

    It may also have been ahead, before the peer was restarted: what it said then counts.
    """

    peer: Peer
    behind_s: float


Event = PeerUp | PeerDown | PeerMoved | PathMtuChanged | ClockBehind
