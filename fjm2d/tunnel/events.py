"""Outputs of the tunnel: trains of peers, and events for logs and for the gateway."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fjm2.norm import Address

from ..kinds import Kind


class NamedPeer(Protocol):
    """The part of a `Peer` that readers of trains and events need."""

    @property
    def id(self) -> int: ...
    @property
    def name(self) -> str: ...


class Received(NamedTuple):
    """A train that a peer sent for the LAN, opened and checked."""

    peer: NamedPeer
    kind: Kind
    group: int
    hop_limit: int
    data: NDArray[np.uint8]
    """Borrowed until the endpoint receives the next train."""
    segment_bytes: int


@dataclass(frozen=True, slots=True)
class PeerUp:
    """Event: a peer is connected, so that trains can be sent to it."""

    peer: NamedPeer
    address: Address


@dataclass(frozen=True, slots=True)
class PeerDown:
    """Event: a peer is no longer connected, and no trains can be sent to it."""

    peer: NamedPeer
    reason: str
    """One of "silent", "deaf" (it is heard but does not hear us), "goodbye", "expired" (its keys), "removed"."""


@dataclass(frozen=True, slots=True)
class PeerMoved:
    """Event: a peer was heard from another address. Datagrams for it go there from now on."""

    peer: NamedPeer
    before: Address
    address: Address


@dataclass(frozen=True, slots=True)
class PathMtuChanged:
    """Event: the longest packet that gets through to a peer has become longer or shorter."""

    peer: NamedPeer
    mtu_bytes: int


@dataclass(frozen=True, slots=True)
class PathTooNarrow:
    """Event: not even the shortest packets that are split into get through to a peer, or they do again."""

    peer: NamedPeer
    is_over: bool
    """True if they get through again."""


@dataclass(frozen=True, slots=True)
class ClockBehind:
    """Event: a peer that is down calls with a timestamp far older than any that is accepted.

    Either the message is a replay, or the peer's clock is behind. The clock may also have been ahead until the peer
    was restarted: then the newest timestamp from before the restart still counts.
    """

    peer: NamedPeer
    behind_s: float


Event = PeerUp | PeerDown | PeerMoved | PathMtuChanged | PathTooNarrow | ClockBehind
