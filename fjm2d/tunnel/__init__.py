"""The tunnel between gateways, without sockets and clocks: bytes and times in, trains and events out."""

from ..kinds import Kind
from . import events
from .config import EndpointConfig, PeerConfig
from .endpoint import Endpoint
from .events import Received
from .link_queue import LinkQueue
from .peer import Peer, PeerState
from .peer_stats import PeerStats
from .wire import OVERHEAD_BYTES, Drop, group_hash

__all__ = [
    "OVERHEAD_BYTES",
    "Drop",
    "Endpoint",
    "EndpointConfig",
    "Kind",
    "LinkQueue",
    "Peer",
    "PeerConfig",
    "PeerState",
    "PeerStats",
    "Received",
    "events",
    "group_hash",
]
