"""Leaps of a sender: positions so far ahead that what lies between would be given up.

One datagram does not prove that a sender is there: anyone can send it. Several do, if none comes from where the sender
was. What is refused meanwhile can be requested again.
"""

LEAP_DATAGRAMS = 3
"""Datagrams, or runs of them, that prove a leap."""
LEAP_S = 0.01
"""Time over which they must come, at least: a sender that still is where it was is heard within it if it is busy."""

_CLAIM_S = 1.0
"""A leap that is not proven by then is false."""


class LeapGuard:
    """Position of a sender, as far as it is proven. Positions are segments of a stream, or counts of objects."""

    __slots__ = ("_began_at", "_count", "_end", "_is_refused", "_start", "_was_false", "front", "near")

    def __init__(self, near: int) -> None:
        self.front = 0
        """First position that needs a proof. All positions before it are proven, or are close enough to proven ones."""
        self.near = near
        """Distance that needs no proof."""
        self._start = self._end = 0
        """Range of the leap that is being proven."""
        self._count = 0
        """Messages that prove it so far; 0 if there is none."""
        self._began_at = 0.0
        self._is_refused = False
        """True if any of them was refused."""
        self._was_false = False

    def admits(self, first: int, end: int, limit: int, now: float) -> bool:
        """Return True if the sender may be at a range of positions. Up to `limit`, a false leap does no harm."""
        if self._is_refused and now - self._began_at > _CLAIM_S:
            self._forget_leap()
        if first <= self.front + self.near:
            if end > self.front:
                self.front = end
                self._forget_leap()
            return True
        if self.is_proven(first, end, now):
            self.front = end
            return True
        self._is_refused |= end > limit
        return end <= limit

    def is_proven(self, first: int, end: int, now: float) -> bool:
        """Note a message that is not where the sender was. Return True if it is one too many to be a forgery."""
        if not self._count or not self._start - self.near <= first <= self._end + self.near:
            self._start, self._end, self._began_at = first, end, now
            self._count, self._is_refused = 0, False
        self._start, self._end = min(self._start, first), max(self._end, end)
        self._count += 1
        if self._count < LEAP_DATAGRAMS or now - self._began_at < LEAP_S:
            return False
        self._count, self._is_refused = 0, False
        return True

    def _forget_leap(self) -> None:
        """Forget a leap that the sender contradicts, or does not prove."""
        self._was_false |= self._is_refused
        self._count, self._is_refused = 0, False

    def take_false(self) -> bool:
        """Return True if the sender has contradicted a leap since the last call."""
        was_false, self._was_false = self._was_false, False
        return was_false
