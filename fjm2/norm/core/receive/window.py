"""Objects of a remote sender that a receiver wants: those after the point where reception began that are not done.

Objects are known here by a count that does not wrap. Its low 16 bits are the transport id on the wire.
"""

from collections.abc import Iterator

from fjm2.base.ranges import RangeSet
from fjm2.norm.core.partition import UNBOUNDED
from fjm2.norm.core.ranges import OBJECT_ID

from .incoming_object import IncomingObject

_FIRST_COUNT = 1 << 32
"""Count of the object with transport id 0 in the first round. It leaves room to count backwards from the first object
known."""


class ObjectWindow:
    """Objects of one sender, by their count: a number that does not wrap, with the transport id in its low 16 bits."""

    __slots__ = ("_done", "_origin", "_passed_over", "_size", "end", "is_synced", "open", "start")

    def __init__(self, size: int) -> None:
        self._size = size
        self._done = RangeSet()
        self._origin = 0
        """Count of the first object that was ever wanted."""
        self._passed_over = RangeSet()
        """Counts of later objects that were never wanted."""
        self.open: dict[int, IncomingObject] = {}
        """Objects that are being received, by count."""
        self.is_synced = False
        self.start = 0
        """Count of the first object wanted."""
        self.end = 0
        """Count after the last object that the sender is known to have begun."""

    def sync(self, object_id: int, back: int = 0) -> None:
        """Begin reception with an object, or `back` objects before it."""
        self.is_synced = True
        self.end = _FIRST_COUNT + object_id
        self.start = self._origin = self.end - back

    def count_of(self, object_id: int) -> int:
        """Return the count of the object with a transport id: of all possible counts, the one nearest to `end`."""
        return OBJECT_ID.unwrap(object_id, max(self.end - 1, self.start))

    def is_done(self, count: int) -> bool:
        """Return True if an object is not wanted any more, or never was."""
        return count < self.start or count in self._done

    def reach_back(self, count: int) -> bool:
        """Want a stream that began earlier and still continues. Return False if it was received or given up before."""
        if count >= self._origin and count not in self._passed_over:
            return False
        self._passed_over.add(count + 1, self._origin)
        self._passed_over.remove(count, count + 1)
        self._origin = min(self._origin, count)
        self._done.add(count + 1, self.start)
        self._done.remove(count, count + 1)
        self.start = min(self.start, count)
        return True

    def add(self, count: int, item: IncomingObject) -> None:
        self.open[count] = item

    def close(self, count: int) -> None:
        """Remove an object that is complete or given up."""
        self.open.pop(count, None)
        self.skip(count, count + 1)

    def reopen(self, count: int) -> None:
        """Want an object again that was given up."""
        self._done.add(count + 1, self.start)
        self._done.remove(count, count + 1)
        self.start = min(self.start, count)

    def resync(self, object_id: int) -> None:
        """Begin anew with an object. Nothing may be open."""
        self._done = RangeSet()
        self._passed_over = RangeSet()
        self.sync(object_id)

    def skip(self, start: int, end: int) -> None:
        """Give up the objects from `start` to before `end`, none of which is open."""
        self._done.add(start, end)
        self.end = max(self.end, end)
        first_open = self._done.end_of(self.start)
        if first_open > self.start:
            self._done.remove(self.start, first_open)
            self.start = first_open

    def extend(self, end: int) -> list[int]:
        """Note that the sender has begun all objects before `end`. Return the open ones that the window leaves behind.

        Streams may stay open while objects come and go, as long as there are not too many of them.
        """
        self.end = max(self.end, end)
        behind = self.end - self._size
        late = sorted(count for count in self.open if count < behind)
        streams = [count for count in late if self.open[count].layout.partition.segments == UNBOUNDED]
        kept = set(streams[-self._size :])
        return [count for count in late if count not in kept]

    def trim(self) -> list[tuple[int, int]]:
        """Give up the objects that lie before the window and of which nothing has arrived. Return the ranges of their
        counts."""
        behind = self.end - self._size
        if behind <= self.start:
            return []
        unheard = [(start, min(stop, behind)) for start, stop in self.unheard() if start < behind]
        for start, stop in unheard:
            self.skip(start, stop)
        return unheard

    def unheard(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of the counts of objects of which nothing has arrived."""
        heard = sorted(self.open)
        at = 0
        for start, end in self._done.gaps(self.start, self.end):
            while at < len(heard) and heard[at] < end:
                if start < heard[at]:
                    yield start, heard[at]
                start = heard[at] + 1
                at += 1
            if start < end:
                yield start, end

    @property
    def has_unheard(self) -> bool:
        """True if there is an object of which nothing has arrived."""
        return self.end - self.start > len(self.open) + len(self._done)
