"""A bus seen from outside: by who announces himself, what is sent, and what is asked for again.

`BusWatch` is told what comes, and tells what it knows in a `BusReport`; `Listening` feeds it from a bus, without
sending anything there: nobody waits for an onlooker, and nobody knows of it.
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
