"""State that all peers of one endpoint share."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from fjm2.norm import Address

from .config import EndpointConfig
from .crypto.handshake import Entropy
from .events import Event
from .link_queue import LinkBucket
from .outbound import Outbound
from .session_owner import SessionOwner
from .wire import INDEX_END
from .workspace import Workspace


@dataclass(slots=True)
class Shared:
    """State that all peers of one endpoint share."""

    config: EndpointConfig
    random: Random
    entropy: Entropy
    wall_ns: Callable[[], int]
    started_ns: int
    """Wall time of the endpoint's start."""
    indexes: dict[int, SessionOwner]
    """Peers by the session indexes that their datagrams bear."""
    messages: deque[tuple[Address, bytes]]
    """Handshakes and probes that are waiting to be sent."""
    busy: dict[Outbound, None]
    """Links with data waiting, in the order of their turns."""
    events: deque[Event]
    workspace: Workspace
    uplink: LinkBucket | None
    """Token bucket that all links draw from; None if the uplink has no limit."""

    def draw_index(self) -> int:
        """Return a random session index that is not in use."""
        while True:
            index = int.from_bytes(self.entropy(4)) % INDEX_END
            if index not in self.indexes:
                return index
