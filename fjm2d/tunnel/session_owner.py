"""Protocol of a peer, for the parts of the tunnel that find a peer by the index of a session."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fjm2.norm import Address

from .events import NamedPeer, Received
from .peer_stats import PeerStats
from .wire import Prefix, Response


class SessionOwner(NamedPeer, Protocol):
    """The part of a `Peer` that the endpoint needs after it has found the peer by a session index."""

    @property
    def is_up(self) -> bool: ...
    @property
    def stats(self) -> PeerStats: ...

    def receive_sealed(
        self, prefix: Prefix, data: NDArray[np.uint8], segment_bytes: int, address: Address, now: float
    ) -> list[Received]: ...

    def receive_response(self, response: Response, message: bytes, address: Address, now: float) -> None: ...
