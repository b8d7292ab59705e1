"""NORM (RFC 5740) for Python: reliable multicast of objects and streams.

Applications use `Session`, with asyncio. `Engine` is the protocol alone, without sockets and clocks.
"""

from .core import events
from .core.config import Fec, Flow, ReceiverConfig, SenderConfig, SessionConfig, Sync
from .core.engine import Engine
from .core.receive.incoming_object import ObjectProgress
from .core.send.sources import FileSource, MemorySource, Source
from .core.stats import Drop, Stats
from .core.train import Address, Train
from .net.interfaces import Interface
from .net.session import IncomingMessages, OutgoingMessages, OutgoingStream, Session
from .net.statistics import SessionStatistics, StreamStatistics
from .net.udp import LinkState, TrainSocket, UdpConfig, UdpSocket, UdpStats, UdpTransport

__all__ = [
    "Address",
    "Drop",
    "Engine",
    "Fec",
    "FileSource",
    "Flow",
    "IncomingMessages",
    "Interface",
    "LinkState",
    "MemorySource",
    "ObjectProgress",
    "OutgoingMessages",
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
