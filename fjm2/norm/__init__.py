"""NORM (RFC 5740) for Python: reliable multicast of objects and streams.

`Session` is what applications use, with asyncio. `Engine` is the protocol alone, without sockets and clocks.
"""

from . import events
from .config import Fec, Flow, ReceiverConfig, SenderConfig, SessionConfig, Sync
from .driver import Driver
from .engine import Engine
from .session import OutgoingStream, Session
from .sources import FileSource, MemorySource
from .stats import Drop, Stats
from .train import Address, Train
from .udp import LinkState, TrainSocket, UdpConfig, UdpSocket, UdpStats, UdpTransport

__all__ = [
    "Address",
    "Driver",
    "Drop",
    "Engine",
    "Fec",
    "FileSource",
    "Flow",
    "LinkState",
    "MemorySource",
    "OutgoingStream",
    "ReceiverConfig",
    "SenderConfig",
    "Session",
    "SessionConfig",
    "Stats",
    "Sync",
    "Train",
    "TrainSocket",
    "UdpConfig",
    "UdpSocket",
    "UdpStats",
    "UdpTransport",
    "events",
]
