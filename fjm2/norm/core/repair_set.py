"""Sets of parts of one object that must be repaired, or were repaired recently."""

from collections import deque

from .ranges import RangeSet

INFO_INDEX = -1
"""Segment index that stands for an object's INFO."""


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


class RecentRepairs:
    """Ranges of segments, or of objects, that were repaired or requested a moment ago.

    A sender ignores requests for what it has just repaired, because they are older than the repair. A receiver does
    not request again what it has just requested.
    """

    __slots__ = ("_expiry", "_segments")

    def __init__(self) -> None:
        self._segments = RangeSet()
        self._expiry: deque[tuple[float, int, int]] = deque()

    def add(self, start: int, end: int, until: float) -> None:
        """Remember a range until the time `until`."""
        self._segments.add(start, end)
        self._expiry.append((until, start, end))

    def __len__(self) -> int:
        """Return the number of ranges remembered."""
        return len(self._expiry)

    def fresh(self, start: int, end: int, now: float) -> list[tuple[int, int]]:
        """Return the parts of a range that were not handled recently."""
        while self._expiry and self._expiry[0][0] <= now:
            _, old_start, old_end = self._expiry.popleft()
            self._segments.remove(old_start, old_end)
        return list(self._segments.gaps(start, end))
