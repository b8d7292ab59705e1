"""Sets of repairs of one object."""

from collections import deque

from .ranges import RangeSet

INFO_INDEX = -1
"""Stands for an object's INFO where segments are meant by index."""


class RepairSet:
    """Repairs of one object: source segments by index, parity symbols by block, and its INFO."""

    __slots__ = ("info", "parity", "segments")

    def __init__(self) -> None:
        self.segments = RangeSet()
        self.parity: dict[int, set[int]] = {}
        """Block to parity rows asked for. Only their number counts, as long as there are fresh ones."""
        self.info = False

    def merge(self, other: "RepairSet") -> int:
        """Take up all of another one. How much of it was new."""
        before = len(self)
        self.segments.update(other.segments)
        for block, rows in other.parity.items():
            self.parity.setdefault(block, set()).update(rows)
        self.info |= other.info
        return len(self) - before

    def clear(self) -> None:
        self.segments.clear()
        self.parity.clear()
        self.info = False

    def __len__(self) -> int:
        return len(self.segments) + sum(map(len, self.parity.values())) + self.info

    def __bool__(self) -> bool:
        return self.info or bool(self.segments) or bool(self.parity)


class RecentRepairs:
    """Segments dealt with a moment ago, which need not be again: at the sender those repaired, of which requests are
    older than their repair; at a receiver those looked through and asked for.
    """

    __slots__ = ("_expiry", "_segments")

    def __init__(self) -> None:
        self._segments = RangeSet()
        self._expiry: deque[tuple[float, int, int]] = deque()

    def add(self, start: int, end: int, until: float) -> None:
        """Remember a repair for some time."""
        self._segments.add(start, end)
        self._expiry.append((until, start, end))

    def __len__(self) -> int:
        """So many calls of `add` are remembered."""
        return len(self._expiry)

    def fresh(self, start: int, end: int, now: float) -> list[tuple[int, int]]:
        """Those of a range that have not been dealt with recently."""
        while self._expiry and self._expiry[0][0] <= now:
            _, old_start, old_end = self._expiry.popleft()
            self._segments.remove(old_start, old_end)
        return list(self._segments.gaps(start, end))
