"""Leaps of a sender: positions so far ahead that what lies between would be given up.

One datagram does not prove that a sender is there: anyone can send it. Several do, if none comes from where the sender
was. What is refused meanwhile can be requested again.
"""

LEAP_DATAGRAMS = 3
"""Datagrams, or runs of them, that prove a leap."""
LEAP_S = 0.01
"""Time over which they must come, at least: a sender that still is where it was is heard within it if it is busy."""

_PROVEN_S = 1.0
"""Time after which a leap that is not proven is reported as false."""
_KEPT_S = 10.0
"""Time without a message after which a leap that is not proven is forgotten. Where round trips are long, a sender that
is idle flushes seldom."""
_LEAPS_MAX = 8
"""Leaps that are being proven at a time. A sender that flushes several streams is heard at several places in turn."""


class _Leap:
    """A range of positions that is being proven."""

    __slots__ = ("_began_at", "_count", "_end", "_start", "heard_at", "is_refused", "is_reported")

    def __init__(self, first: int, end: int, now: float) -> None:
        self._start, self._end = first, end
        self._count = 0
        self._began_at = self.heard_at = now
        self.is_refused = False
        """True if any of its messages was refused."""
        self.is_reported = False
        """True if it needs no report any more."""

    def is_near(self, first: int, distance: int) -> bool:
        return self._start - distance <= first <= self._end + distance

    @property
    def is_doubtful(self) -> bool:
        """True if a message was refused, and that is to be reported."""
        return self.is_refused and not self.is_reported

    def is_overdue(self, now: float) -> bool:
        return now - self._began_at > _PROVEN_S

    def prove(self, first: int, end: int, now: float) -> bool:
        """Note a message. Return True if the messages so far prove the leap."""
        self._start, self._end = min(self._start, first), max(self._end, end)
        self._count += 1
        self.heard_at = now
        return self._count >= LEAP_DATAGRAMS and now - self._began_at >= LEAP_S


class LeapGuard:
    """Position of a sender, as far as it is proven. Positions are segments of a stream, or counts of objects."""

    __slots__ = ("_leaps", "_was_false", "front", "near")

    def __init__(self, near: int) -> None:
        self.front = 0
        """First position that needs a proof. All positions before it are proven, or are close enough to proven ones."""
        self.near = near
        """Distance that needs no proof."""
        self._leaps: list[_Leap] = []
        """Leaps that are being proven, in the order in which they began."""
        self._was_false = False

    def admits(self, first: int, end: int, limit: int, now: float) -> bool:
        """Return True if the sender may be at a range of positions. Up to `limit`, a false leap does no harm."""
        if self._leaps:
            self._review(now)
        if first <= self.front + self.near:
            self.note_front(end)
            return True
        leap = self._leap_at(first, end, now)
        if leap.prove(first, end, now):
            self._leaps.remove(leap)
            for other in self._leaps:
                other.is_reported = True  # the sender has moved on, as these say
            self.front = end
            return True
        leap.is_refused |= end > limit
        return end <= limit

    def note_front(self, end: int) -> None:
        """Note that the sender was at all positions before `end`. If that is new, it contradicts leaps."""
        if end > self.front:
            self.front = end
            self._forget_leaps()

    def is_proven(self, first: int, end: int, now: float) -> bool:
        """Note a message that is not where the sender was. Return True if the messages so far prove the leap."""
        self._review(now)
        leap = self._leap_at(first, end, now)
        if not leap.prove(first, end, now):
            return False
        self._leaps.remove(leap)
        return True

    def take_false(self) -> bool:
        """Return True if the sender has contradicted a leap, or not proven it in time, since the last call."""
        was_false, self._was_false = self._was_false, False
        return was_false

    def _leap_at(self, first: int, end: int, now: float) -> _Leap:
        """Return the leap that a message belongs to, a new one if it belongs to none."""
        for leap in self._leaps:
            if leap.is_near(first, self.near):
                return leap
        if len(self._leaps) == _LEAPS_MAX:
            # The newest one gives way. If the oldest did, a sender at many places in turn would prove none of them.
            del self._leaps[-1]
        leap = _Leap(first, end, now)
        self._leaps.append(leap)
        return leap

    def _review(self, now: float) -> None:
        """Report leaps that are not proven in time, and forget those of which nothing was heard for long."""
        for leap in self._leaps:
            if leap.is_doubtful and leap.is_overdue(now):
                self._was_false = leap.is_reported = True
        self._leaps = [leap for leap in self._leaps if now - leap.heard_at <= _KEPT_S]

    def _forget_leaps(self) -> None:
        """Forget the leaps that the sender contradicts."""
        if self._leaps:
            self._was_false |= any(leap.is_doubtful for leap in self._leaps)
            self._leaps.clear()
