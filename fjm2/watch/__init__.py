"""A bus seen from outside: reconstructs its state from its packets, without sending anything.

`BusWatch` takes packets and returns a `BusReport`. `Listening` feeds it from the network as a silent listener: members
do not know of it, and none waits for its confirmations.
"""

from .bus import BusWatch
from .listening import Listening
from .report import BusReport, ConnectionReport, GatewayReport, ReceiverReport, SenderReport, TopicReport
from .topics import known_as

__all__ = [
    "BusReport",
    "BusWatch",
    "ConnectionReport",
    "GatewayReport",
    "Listening",
    "ReceiverReport",
    "SenderReport",
    "TopicReport",
    "known_as",
]
