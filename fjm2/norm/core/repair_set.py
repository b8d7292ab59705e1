"""Sets of parts of one object that must be repaired, or were repaired recently."""

from collections import deque
from itertools import islice

from fjm2.base.ranges import RangeSet

from .timers import NEVER

INFO_INDEX = -1
"""Segment index that stands for an object's INFO."""
_RANGES_COMPARED_MAX = 1024
"""Maximum number of repaired ranges whose times are compared with that of one request, because it takes time."""


class RepairSet:
    """Parts of one object to repair: source segments by index, parity symbols by block, and the INFO."""

    __slots__ = ("info", "parity", "segments")

    def __init__(self) -> None:
        self.segments = RangeSet()
        self.parity: dict[int, set[int]] = {}
        """Parity rows requested, by block. Only their number counts while the sender has rows that it never sent."""
        self.info = False

    def merge(self, other: "RepairSet") -> int:
        """Add all of another set, and return the number of parts that were new."""
        before = len(self)
        self.segments.update(other.segments)
        for block, rows in other.parity.items():
            self.parity.setdefault(block, set()).update(rows)
        self.info |= other.info
        return len(self) - before

    def limit(self, count: int) -> None:
        """Keep only the first `count` segments, and no parity."""
        self.parity.clear()
        for start, end in self.segments:
            if end - start >= count:
                self.segments.remove(start + count, self.segments.last + 1)
                return
            count -= end - start

    def clear(self) -> None:
        """Remove everything."""
        self.segments.clear()
        self.parity.clear()
        self.info = False

    def __len__(self) -> int:
        return len(self.segments) + sum(map(len, self.parity.values())) + self.info

    def __bool__(self) -> bool:
        return self.info or bool(self.segments) or bool(self.parity)


class RecentRequests:
    """Ranges of segments, or of objects, that a receiver requested a moment ago. It does not request them again yet."""

    __slots__ = ("_requested", "_segments")

    def __init__(self) -> None:
        self._segments = RangeSet()
        self._requested: deque[tuple[float, int, int]] = deque()
        """Time of each request, and the range; oldest first."""

    def add(self, start: int, end: int, now: float) -> None:
        """Remember that a range is requested."""
        self._segments.add(start, end)
        self._requested.append((now, start, end))

    def __len__(self) -> int:
        """Return the number of ranges remembered."""
        return len(self._requested)

    def fresh(self, start: int, end: int, since: float) -> list[tuple[int, int]]:
        """Return the parts of a range that were not requested after the time `since`. Forget older requests."""
        while self._requested and self._requested[0][0] <= since:
            _, old_start, old_end = self._requested.popleft()
            self._segments.remove(old_start, old_end)
        return list(self._segments.gaps(start, end))


class RecentRepairs:
    """Ranges of segments that a sender repaired a moment ago, and when.

    It ignores requests for them that are older than the repair.
    """

    __slots__ = ("_repaired", "_segments")

    def __init__(self) -> None:
        self._segments = RangeSet()
        self._repaired: deque[tuple[float, float, int, int]] = deque()
        """Time until which a range is remembered, time at which it was repaired, and the range; oldest first."""

    def add(self, start: int, end: int, now: float, until: float) -> None:
        """Remember until the time `until` that a range was repaired."""
        self._segments.add(start, end)
        self._repaired.append((until, now, start, end))

    def sent_after(self, asked_at: float, now: float) -> RangeSet:
        """Return the ranges whose repairs were sent after the time `asked_at`, or all if it is -NEVER.

        A repair that was sent at `asked_at` reached the receiver just as it sent its request, so the receiver requested
        these ranges before it could have the repairs. Read the result before the next call only.
        """
        repaired = self._repaired
        while repaired and repaired[0][0] <= now:
            _, _, start, end = repaired.popleft()
            self._segments.remove(start, end)
        if asked_at == -NEVER:
            return self._segments
        later = RangeSet()
        for _, at, start, end in islice(reversed(repaired), _RANGES_COMPARED_MAX):
            if at < asked_at:
                return later
            later.add(start, end)
        return later if len(repaired) <= _RANGES_COMPARED_MAX else self._segments
