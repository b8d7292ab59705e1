"""NORM (RFC 5740) for Python: reliable multicast of objects and streams.

`Session` is what applications use, with asyncio. `Engine` is the protocol alone, without sockets and clocks.
"""

from . import events
from .config import Fec, Flow, ReceiverConfig, SenderConfig, SessionConfig, Sync
from .engine import Engine
from .incoming import ObjectProgress
from .interfaces import Interface
from .session import OutgoingStream, Session
from .sources import FileSource, MemorySource, Source
from .statistics import SessionStatistics, StreamStatistics
from .stats import Drop, Stats
from .train import Address, Train
from .udp import LinkState, TrainSocket, UdpConfig, UdpSocket, UdpStats, UdpTransport

__all__ = [
    "Address",
    "Drop",
    "Engine",
    "Fec",
    "FileSource",
    "Flow",
    "Interface",
    "LinkState",
    "MemorySource",
    "ObjectProgress",
    "OutgoingStream",
    "ReceiverConfig",
    "SenderConfig",
    "Session",
    "SessionConfig",
    "SessionStatistics",
    "Source",
    "Stats",
    "StreamStatistics",
    "Sync",
    "Train",
    "TrainSocket",
    "UdpConfig",
    "UdpSocket",
    "UdpStats",
    "UdpTransport",
    "events",
]
