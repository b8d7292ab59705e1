"""Collisions of node ids: another node that uses ours."""

import math

from .train import Address

_DATAGRAMS = 3
"""Datagrams of another node that prove a collision: anyone can send one in our name."""
_PROOF_S = 0.02
"""Time over which they must come, at least."""
_MEMORY_S = 10.0
"""Time within which they must come: an idle node speaks that often. Also the shortest time between two reports."""


class CollisionDetector:
    """Decides when messages in our name show that another node has our id."""

    __slots__ = ("_address", "_began_at", "_count", "_reported_at")

    def __init__(self) -> None:
        self._address: Address | None = None
        """Address of the latest messages in our name."""
        self._began_at = -math.inf
        self._count = 0
        self._reported_at = -math.inf

    def is_proven(self, address: Address, now: float) -> bool:
        """Note a message in our name. Return True if a collision is to be reported now."""
        if address != self._address or now - self._began_at > _MEMORY_S:
            self._address, self._began_at, self._count = address, now, 0
        self._count += 1
        is_enough = self._count >= _DATAGRAMS and now - self._began_at >= _PROOF_S
        if not is_enough or now - self._reported_at < _MEMORY_S:
            return False
        self._reported_at = now
        return True
