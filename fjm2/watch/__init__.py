"""A bus seen from outside. Its state is reconstructed from its packets, and nothing is sent.

`BusWatch` takes packets and returns a `BusReport`. `Listening` passes it the packets from the network as a silent
listener: members of the bus do not know of it, and do not wait for its confirmations.
"""

from .bus import BusWatch
from .listening import Listening
from .report import BusReport, ConnectionReport, GatewayReport, KeeperReport, ReceiverReport, SenderReport, TopicReport
from .topics import known_as

__all__ = [
    "BusReport",
    "BusWatch",
    "ConnectionReport",
    "GatewayReport",
    "KeeperReport",
    "Listening",
    "ReceiverReport",
    "SenderReport",
    "TopicReport",
    "known_as",
]
