"""Segments: the files that hold batches, which of them are free, and how much room there is."""

from dataclasses import dataclass

from .config import RESERVED_SEGMENTS, StoreConfig
from .format.batches import SEGMENT_HEAD_BYTES, SegmentHead

PREFIX = "segment-"


@dataclass(slots=True, eq=False)
class Segment:
    """A file of batches."""

    number: int
    file: int
    """Number of the open file; negative until it is created."""
    size: int
    """Length of the file."""
    salt: int = 0
    """Salt of the present use. It changes before anything is written over."""
    first_lsn: int = 0
    last_lsn: int = 0
    """LSN of the last batch that was placed in it."""
    end: int = SEGMENT_HEAD_BYTES
    """Offset behind the last batch that was placed in it."""
    is_damaged: bool = False
    """True if compaction found a bad batch. It is not compacted again."""

    @property
    def name(self) -> str:
        """Name of the file."""
        return f"{PREFIX}{self.number}"

    @property
    def rest(self) -> int:
        """Bytes behind the last batch."""
        return self.size - self.end

    def begin(self, salt: int, first_lsn: int) -> SegmentHead:
        """Start a new use, and return the head to write."""
        self.salt, self.first_lsn, self.last_lsn, self.end = salt, first_lsn, first_lsn - 1, SEGMENT_HEAD_BYTES
        return SegmentHead(self.number, salt, first_lsn, self.size)


class Space:
    """All segments of a store.

    Batches that wait are placed in advance (`has_room`, `plan`), so that a batch that is accepted finds its room.
    """

    def __init__(self, config: StoreConfig) -> None:
        self._config = config
        self.used: dict[int, Segment] = {}
        """Segments with batches, by number."""
        self.free: list[Segment] = []
        """Segments of the usual length that may be used anew."""
        self.preparing: Segment | None = None
        """Segment that is being written with zeros."""
        self.removing: set[int] = set()
        """Numbers of segments whose files are still to be deleted. Their numbers are not given before."""
        self.active: Segment | None = None
        """Segment that the next batch goes to, if it fits."""
        self.is_disk_full = False
        """True after the disk refused a new segment, until it gives one. Whatever is promised a place in one that never
        comes would be written into the reserve."""
        self.has_refused = False
        """True after a batch that needs a segment of its own found a full disk, until the disk gives a segment. There
        may be enough others, so that nobody would ask the disk again."""
        self._is_asking = False
        self.bytes = 0
        """Bytes that all segments take."""
        self._planned_rest = 0
        self._planned_segments = 0
        self._planned_big_bytes = 0

    @property
    def capacity(self) -> int:
        """Bytes of batches that a segment of the usual length holds."""
        return self._config.segment_bytes - SEGMENT_HEAD_BYTES

    @property
    def creatable(self) -> int:
        """Number of segments that may be created, the one in preparation included."""
        if self.is_disk_full:
            return 0
        left = self._config.store_bytes_max - self.bytes - self._planned_big_bytes
        return max(0, left // self._config.segment_bytes) + (self.preparing is not None)

    def is_big(self, length: int) -> bool:
        """Return True if a batch needs a segment of its own."""
        return length > self.capacity

    def reset_plan(self) -> None:
        """Plan from the present state: no batch waits."""
        self._planned_rest = self.active.rest if self.active else 0
        self._planned_segments = self._planned_big_bytes = 0

    def has_room(self, length: int, reserve: int) -> bool:
        """Return True if a batch fits behind those that are planned and leaves so many segments free."""
        left = len(self.free) + self.creatable - self._planned_segments
        if self.is_big(length):
            missing = max(0, reserve + self._planned_segments - len(self.free))
            taken = self.bytes + self._planned_big_bytes + missing * self._config.segment_bytes
            size = length + SEGMENT_HEAD_BYTES
            self.has_refused |= self.is_disk_full
            return not self.is_disk_full and taken + size <= self._config.store_bytes_max
        return left - (length > self._planned_rest) >= reserve

    def plan(self, length: int) -> None:
        """Count a batch that waits."""
        if self.is_big(length):
            self._planned_big_bytes += length + SEGMENT_HEAD_BYTES
        elif length <= self._planned_rest:
            self._planned_rest -= length
        else:
            self._planned_segments += 1
            self._planned_rest = self.capacity - length

    def prepare(self) -> Segment | None:
        """Return a segment to create if one is wanted: for the reserve, for what is planned, and one ahead."""
        wanted = RESERVED_SEGMENTS + 1 + self._planned_segments
        is_asking, self._is_asking = self._is_asking, False
        is_allowed = self.bytes + self._planned_big_bytes + self._config.segment_bytes <= self._config.store_bytes_max
        may_create = self.creatable or (is_asking and is_allowed)
        has_enough = len(self.free) >= wanted and not self.has_refused
        if self.preparing is not None or has_enough or not may_create:
            return None
        self.preparing = self._create(self._config.segment_bytes)
        return self.preparing

    def prepared(self, is_disk_full: bool) -> None:
        """Take up the segment that was prepared, unless the disk had no room for it."""
        assert self.preparing is not None
        self.is_disk_full = is_disk_full
        if is_disk_full:
            self.bytes -= self.preparing.size
        else:
            self.free.append(self.preparing)
            self.has_refused = False
        self.preparing = None

    def ask_again(self) -> None:
        """Ask a full disk for a segment once more."""
        self._is_asking = True

    def leave_alone(self) -> None:
        """Create no segment: it would take the room that was made for a checkpoint."""
        self.is_disk_full = True
        self._is_asking = False

    def _create(self, size: int) -> Segment:
        taken = self.used.keys() | {segment.number for segment in self.free} | self.removing
        if self.preparing is not None:
            taken.add(self.preparing.number)
        self.bytes += size
        return Segment(next(number for number in range(len(taken) + 1) if number not in taken), -1, size)

    def take(self, length: int) -> tuple[Segment, bool] | None:
        """Return the segment for a batch, and True if its use begins with it. None if no segment is free."""
        if self.is_big(length):
            segment = self._create(length + SEGMENT_HEAD_BYTES)
            self.used[segment.number] = segment
            return segment, True
        if self.active is not None and length <= self.active.rest:
            return self.active, False
        if not self.free:
            return None
        self.active = self.free.pop(0)
        self.used[self.active.number] = self.active
        return self.active, True

    def refuse(self, segment: Segment) -> None:
        """Give up a segment of its own for a batch: the disk had no room."""
        del self.used[segment.number]
        self.bytes -= segment.size
        self.is_disk_full = True

    def drop(self, number: int) -> Segment | None:
        """Take a dead segment out of use. Return it if its file is to be deleted, because its length is unusual."""
        segment = self.used.pop(number)
        if segment.size == self._config.segment_bytes:
            self.free.append(Segment(number, segment.file, segment.size))
            # Reads that were planned before find another salt.
            segment.salt = -1
            return None
        segment.salt = -1
        self.removing.add(number)
        return segment

    def give_back(self) -> Segment | None:
        """Take a free segment away, so that its file can make room for a checkpoint."""
        if not self.free:
            return None
        segment = self.free.pop()
        self.removing.add(segment.number)
        return segment

    def removed(self, segments: list[Segment]) -> None:
        """Take up that files are deleted, which may have made room on the disk."""
        for segment in segments:
            self.removing.discard(segment.number)
            self.bytes -= segment.size
        self.ask_again()
