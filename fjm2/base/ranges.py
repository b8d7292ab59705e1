"""Sets of integers stored as ranges."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class RangeSet:
    """A set of integers, stored as ranges [start, end) that never touch each other.

    The bounds are in one sorted list, with starts at even positions and ends at odd ones. A number is inside a range if
    bisection finds an odd position for it.
    """

    __slots__ = ("_bounds",)

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._bounds: list[int] = []
        for start, end in ranges:
            self.add(start, end)

    def add(self, start: int, end: int) -> None:
        """Add the numbers start, ..., end - 1."""
        if start >= end:
            return
        bounds = self._bounds
        if bounds and bounds[-1] == start:  # nearly all ranges continue the last one
            bounds[-1] = end
            return
        if not bounds or bounds[-1] < start:
            bounds += (start, end)
            return
        left, right = bisect_left(bounds, start), bisect_right(bounds, end)
        bounds[left:right] = ([] if left & 1 else [start]) + ([] if right & 1 else [end])

    def remove(self, start: int, end: int) -> None:
        """Remove the numbers start, ..., end - 1. Numbers that are not in the set are ignored."""
        if start >= end:
            return
        bounds = self._bounds
        left, right = bisect_left(bounds, start), bisect_right(bounds, end)
        bounds[left:right] = ([start] if left & 1 else []) + ([end] if right & 1 else [])

    def clear(self) -> None:
        """Remove all numbers."""
        self._bounds.clear()

    def update(self, other: "RangeSet") -> None:
        """Add all numbers of another set."""
        for start, end in other:
            self.add(start, end)

    def copy(self) -> "RangeSet":
        """Return a copy."""
        twin = RangeSet()
        twin._bounds = self._bounds.copy()
        return twin

    def within(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges of the set between start and end. Ranges that go beyond are clipped."""
        if start >= end:
            return
        bounds = self._bounds
        at = bisect_right(bounds, start)
        if at & 1:
            at -= 1
        while at < len(bounds) and bounds[at] < end:
            yield max(bounds[at], start), min(bounds[at + 1], end)
            at += 2

    def gaps(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges between start and end that are not in the set."""
        for low, high in self.within(start, end):
            if start < low:
                yield start, low
            start = high
        if start < end:
            yield start, end

    def covers(self, start: int, end: int) -> bool:
        """Return True if all numbers start, ..., end - 1 are in the set."""
        left = bisect_right(self._bounds, start)
        return start >= end or (left & 1 == 1 and self._bounds[left] >= end)

    def end_of(self, number: int) -> int:
        """Return the end of the range that a number is in, or the number itself if it is in none."""
        at = bisect_right(self._bounds, number)
        return self._bounds[at] if at & 1 else number

    def end_before(self, number: int) -> int:
        """Return the end of the last range that ends at a number or before it, or 0 if there is none.

        The numbers from it to a number outside the set are all outside.
        """
        at = bisect_right(self._bounds, number)
        at -= at & 1
        return self._bounds[at - 1] if at else 0

    @property
    def first(self) -> int:
        """Smallest number. Raises IndexError if the set is empty."""
        return self._bounds[0]

    @property
    def last(self) -> int:
        """Largest number. Raises IndexError if the set is empty."""
        return self._bounds[-1] - 1

    @property
    def first_range(self) -> tuple[int, int]:
        """Lowest range. Raises IndexError if the set is empty."""
        return self._bounds[0], self._bounds[1]

    @property
    def range_count(self) -> int:
        """Number of ranges."""
        return len(self._bounds) // 2

    def __contains__(self, number: int) -> bool:
        return bisect_right(self._bounds, number) & 1 == 1

    def __bool__(self) -> bool:
        return bool(self._bounds)

    def __len__(self) -> int:
        return sum(self._bounds[1::2]) - sum(self._bounds[::2])

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._bounds[::2], self._bounds[1::2], strict=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeSet) and self._bounds == other._bounds

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"RangeSet({list(self)})"
