"""The tunnel between gateways, without sockets and clocks: it takes bytes and times, and gives trains and events."""

from . import events
from .config import EndpointConfig, PeerConfig
from .endpoint import Endpoint
from .link_queue import LinkQueue
from .peer import Peer, PeerState, Received
from .peer_stats import PeerStats
from .wire import OVERHEAD_BYTES, Drop, Kind, group_hash

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
