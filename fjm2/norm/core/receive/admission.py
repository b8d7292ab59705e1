"""Admission of unknown senders: bounds how many are received anew in a second, and chooses among them if there are
more."""

from fjm2.base.token_bucket import TokenBucket
from fjm2.norm.core.train import Address

_BURST = 512
"""Senders admitted at once at their first datagram. As many are admitted at once that were heard before. Together they
are as many as a node knows by default."""
_NEW_PER_S = 16.0
"""Senders admitted in a second at their first datagram, beyond the burst. Each costs about as much time as a hundred
other datagrams, so a flood of names that are used once costs little more than noise."""
_BACK_PER_S = 256.0
"""Senders admitted in a second that were heard before, beyond the burst."""
_SLOTS = 1 << 14
"""Number of unknown senders remembered. In the worst flood, as many appear in a fraction of a second."""
_AGAIN_MIN_S, _AGAIN_MAX_S = 0.005, 10.0
"""Times between two datagrams of an unknown sender that make it plausible."""


class Admission:
    """Admits unknown senders at their first datagram while they are few, and at a later one while they are many."""

    __slots__ = ("_back", "_keys", "_new", "_times")

    def __init__(self) -> None:
        self._new = TokenBucket(_NEW_PER_S, credit=_BURST)
        self._back = TokenBucket(_BACK_PER_S, credit=_BURST)
        self._keys: list[int] = []
        """Hashes of the senders that were not admitted, each in the slot that its hash selects. Made when needed."""
        self._times: list[float] = []
        """Time when each was first heard."""

    def admits(self, node_id: int, instance_id: int, address: Address, now: float) -> bool:
        """Return True if an unknown sender that was heard may be received."""
        bucket = self._new
        if bucket.refill(now, _BURST) < 1.0:
            bucket = self._back
            if not self._is_back(hash((node_id, instance_id, address)), now) or bucket.refill(now, _BURST) < 1.0:
                return False
        bucket.spend(1.0)
        return True

    def _is_back(self, key: int, now: float) -> bool:
        """Return True if a sender was heard a little earlier. Remember it otherwise."""
        if not self._keys:
            self._keys, self._times = [0] * _SLOTS, [0.0] * _SLOTS
        slot = key % _SLOTS
        if self._keys[slot] != key:
            self._keys[slot], self._times[slot] = key, now
            return False
        elapsed_s = now - self._times[slot]
        if elapsed_s > _AGAIN_MAX_S:
            self._times[slot] = now
        return _AGAIN_MIN_S <= elapsed_s <= _AGAIN_MAX_S
