"""Settings, counters and output functions that all receivers of a node share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from fjm2.norm.core.config import ReceiverConfig
from fjm2.norm.core.events import Event
from fjm2.norm.core.stats import Stats
from fjm2.norm.core.train import Address
from fjm2.norm.core.wire import Message

from .claims import Disputes


@dataclass(slots=True)
class ReceiverContext:
    """Settings, counters and output functions that all receivers of a node share."""

    node_id: int
    config: ReceiverConfig
    random: Random
    stats: Stats
    emit: Callable[[Event], None]
    """Function that passes an event to the application."""
    send: Callable[[Message, Address | None], None]
    """Function that sends a message to an address, or to the group if the address is None."""
    group_is_multicast: bool
    disputes: Disputes = field(init=False)
    """Reports of false messages in the names of senders."""
    is_leaving: bool = False
    """True once this node has told senders that it leaves. What it does not get from then on is no loss."""
    is_silent: bool = False
    """True if nothing is to be sent to remote senders: so it was set, or this node has said goodbye."""
    is_full: bool = False
    """True while the application takes nothing, so that what arrives is dropped."""
    used_bytes: int = 0
    """Memory of all objects that are being received, in bytes."""

    def __post_init__(self) -> None:
        self.disputes = Disputes(self.emit)
