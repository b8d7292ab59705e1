"""What happened to peers, for logs and for what lies above the tunnel."""

from dataclasses import dataclass
from typing import Protocol

from fjm2.norm import Address


class EventPeer(Protocol):
    """The part of a `Peer` that those who take events need: whose event it is."""

    @property
    def id(self) -> int: ...
    @property
    def name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class PeerUp:
    """A peer can be sent to."""

    peer: EventPeer
    address: Address


@dataclass(frozen=True, slots=True)
class PeerDown:
    """A peer can't be sent to any more."""

    peer: EventPeer
    reason: str
    """It is "silent", "deaf" (it is heard, and does not hear us), has said "goodbye", its keys have "expired", or it
    was "removed"."""


@dataclass(frozen=True, slots=True)
class PeerMoved:
    """A peer is heard from another address, and is sent to there from now on."""

    peer: EventPeer
    before: Address
    address: Address


@dataclass(frozen=True, slots=True)
class PathMtuChanged:
    """Longer packets than before get through, or only shorter ones."""

    peer: EventPeer
    mtu_bytes: int


@dataclass(frozen=True, slots=True)
class ClockBehind:
    """A peer that is not connected calls with a time long before any that is accepted: a replay, or a clock to be set.

    It may also have been ahead, before the peer was restarted: what it said then counts.
    """

    peer: EventPeer
    behind_s: float


Event = PeerUp | PeerDown | PeerMoved | PathMtuChanged | ClockBehind
