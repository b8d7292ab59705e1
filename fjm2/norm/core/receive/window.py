"""Which objects of a remote sender a receiver is after: those from its point of synchronisation on, done or open.

Objects are known here by a count that does not wrap. Its low 16 bits are the transport id on the wire.
"""

from collections.abc import Iterator

from fjm2.norm.core.partition import UNBOUNDED
from fjm2.norm.core.ranges import OBJECT_ID, RangeSet

from .incoming_object import IncomingObject

_EPOCH = 1 << 32
"""Room for counting backwards from the first object heard of."""


class ObjectWindow:
    """The objects of one sender, by count."""

    __slots__ = ("_done", "_origin", "_passed_over", "_size", "end", "is_synced", "open", "start")

    def __init__(self, size: int) -> None:
        self._size = size
        self._done = RangeSet()
        self._origin = 0
        """Nothing earlier was ever wanted."""
        self._passed_over = RangeSet()
        """What was never wanted of what comes later."""
        self.open: dict[int, IncomingObject] = {}
        """What is being received."""
        self.is_synced = False
        self.start = 0
        """The first object wanted."""
        self.end = 0
        """After the last object that the sender is known to have sent of."""

    def sync(self, object_id: int, back: int = 0) -> None:
        """Begin with an object, or so many before it."""
        self.is_synced = True
        self.end = _EPOCH + object_id
        self.start = self._origin = self.end - back

    def count_of(self, object_id: int) -> int:
        """The count of an object, taken as near to the newest one as its id allows."""
        return OBJECT_ID.unwrap(object_id, max(self.end - 1, self.start))

    def is_done(self, count: int) -> bool:
        """Whether an object is not wanted any more, or never was."""
        return count < self.start or count in self._done

    def reach_back(self, count: int) -> bool:
        """Want a stream, too, that began before the first object wanted and goes on. False if it is over for us."""
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
        """An object is complete, or given up."""
        self.open.pop(count, None)
        self.skip(count, count + 1)

    def skip(self, start: int, end: int) -> None:
        """Objects that are not open are given up."""
        self._done.add(start, end)
        first_open = self._done.end_of(self.start)
        if first_open > self.start:
            self._done.remove(self.start, first_open)
            self.start = first_open
            self.end = max(self.end, first_open)

    def extend(self, end: int) -> list[int]:
        """The sender has sent of all objects before `end`. What falls out of the window for it, as far as heard of.

        Streams go on while objects come and go; they only must not become too many.
        """
        self.end = max(self.end, end)
        behind = self.end - self._size
        late = sorted(count for count in self.open if count < behind)
        streams = [count for count in late if self.open[count].layout.partition.segments == UNBOUNDED]
        kept = set(streams[-self._size :])
        return [count for count in late if count not in kept]

    def trim(self) -> list[tuple[int, int]]:
        """Want nothing that has fallen out of the window. The ranges never heard of that gives up."""
        behind = self.end - self._size
        if behind <= self.start:
            return []
        unheard = [(start, min(stop, behind)) for start, stop in self.unheard() if start < behind]
        for start, stop in unheard:
            self.skip(start, stop)
        return unheard

    def unheard(self) -> Iterator[tuple[int, int]]:
        """Ranges of objects of which nothing has come."""
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
        """Whether of any object nothing has come."""
        return self.end - self.start > len(self.open) + len(self._done)
