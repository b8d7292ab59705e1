"""Work of the journal between batches: segments prepared ahead, checkpoints, reuse of dead segments, and compaction."""

from dataclasses import dataclass, replace

from .compaction import CompactionRead
from .config import RESERVED_SEGMENTS, Need, StoreConfig
from .contents import Contents, entries_of
from .disk import Buffer, Disk
from .format.batches import BATCH_HEAD, SEGMENT_HEAD_BYTES, padded
from .format.checkpoints import Position, Snapshot, encode
from .format.identity import Identity, write_identity
from .runs import RUN_HEAD
from .segments import Segment, Space
from .verification import Damage
from .writes import NO_ROOM, CheckpointWrite, Removal, SegmentWrite, Write


@dataclass(slots=True, eq=False)
class IdentityWrite:
    """Writes the file `identity` anew."""

    identity: Identity
    has_no_room: bool = False
    """True if the disk is full. The file is as it was."""

    def perform(self, disk: Disk) -> None:
        """Write and sync the file."""
        try:
            write_identity(disk, self.identity)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self.has_no_room = True


@dataclass(slots=True)
class _Checkpoints:
    kept: list[int]
    """Numbers of good checkpoints on disk, oldest first."""
    number: int
    """Highest number that was ever given."""
    dead: set[int]
    """Segments that were dead in the newest one. They may be reused when there is a newer one: then no checkpoint on
    disk needs them."""
    batches: int = 0
    """Batches since the newest one."""
    bytes: int = 0
    write: CheckpointWrite | None = None
    """The one that is being written."""
    has_failed: bool = False
    """True if the disk had no room for the last one, until something is deleted or `retry` is called."""


class Housekeeping:
    """Chooses the next piece of work that is no batch. One piece is short, so that batches wait little for it."""

    def __init__(self, config: StoreConfig, space: Space, contents: Contents) -> None:
        self._config, self._space, self._contents = config, space, contents
        self._checkpoints = _Checkpoints([], 0, set())
        self._segment: SegmentWrite | None = None
        self._removals: list[Write] = []
        self._identity: Identity | None = None
        """Identity that the disk had no room for."""
        self._copied_lsn = 0
        self._next_look = 0
        """Released bytes at which a look for a segment to compact is worth a microsecond for each segment."""
        self.damages: list[Damage] = []
        """Damage that compaction met. Segments with damage are left as they are."""

    def restore(self, kept: list[int], number: int, dead: set[int], batches: int, size: int) -> None:
        """Go on from what recovery found."""
        self._checkpoints = _Checkpoints(kept, number, dead, batches, size)

    @property
    def checkpoint(self) -> CheckpointWrite | None:
        """The checkpoint that is being written."""
        return self._checkpoints.write

    def count(self, length: int) -> None:
        """Count a batch that is on disk."""
        self._checkpoints.batches += 1
        self._checkpoints.bytes += length

    def dead(self, lsn: int) -> set[int]:
        """Return the numbers of used segments that nothing behind a batch is live in."""
        active = self._space.active
        return {
            number
            for number, segment in self._space.used.items()
            if segment is not active and segment.last_lsn <= lsn and number not in self._contents.live
        }

    def is_full(self) -> bool:
        """Return True if nothing but the reserve is left, or if a long batch found no room."""
        space = self._space
        return space.has_refused or len(space.free) + space.creatable <= RESERVED_SEGMENTS

    def retry(self) -> None:
        """Ask the disk again for room that it did not have."""
        self._space.ask_again()
        self._checkpoints.has_failed = False
        if self._identity is not None:
            self.add(IdentityWrite(self._identity))
            self._identity = None

    def wants_checkpoint(self, lsn: int) -> bool:
        """Return True if much was written since the last checkpoint, or if one would make room."""
        if self._checkpoints.write is not None or self._checkpoints.has_failed:
            return False
        is_long = self._checkpoints.bytes >= self._config.checkpoint_bytes
        is_slow = self._checkpoints.batches >= self._config.checkpoint_batches
        return is_long or is_slow or (self.is_full() and bool(self.dead(lsn)))

    def start_checkpoint(self, position: Position, incarnation: int, state: Buffer) -> bool:
        """Start to write a checkpoint of the present contents. Return False if one is being written."""
        if self._checkpoints.write is not None:
            return False
        segments = [replace(segment) for segment in self._space.used.values() if segment.first_lsn <= position.lsn]
        for segment in segments:
            if segment.number == position.segment:
                # A batch may be on its way behind the position.
                segment.end, segment.last_lsn = position.end, min(segment.last_lsn, position.lsn)
        dead = self.dead(position.lsn)
        snapshot = Snapshot(incarnation, replace(position), self._contents, segments, dead, state)
        snapshot.freeze()
        self._checkpoints.number += 1
        self._checkpoints.write = CheckpointWrite(
            self._checkpoints.number, encode(snapshot), self._checkpoints.kept, snapshot.dead
        )
        self._checkpoints.batches = self._checkpoints.bytes = 0
        return True

    def add(self, write: Write) -> None:
        """Have a piece of work done soon."""
        self._removals.append(write)

    def poll(self, lsn: int) -> Write | None:
        """Return the next piece of work."""
        if self._removals:
            return self._removals.pop(0)
        if self._segment is None and (segment := self._space.prepare()) is not None:
            self._segment = SegmentWrite(segment)
        return self._segment or self._checkpoints.write or self._compaction(lsn)

    def handle_done(self, write: Write) -> None:
        """Take up the result of a piece of work. Copies of compaction are taken by the journal."""
        if isinstance(write, SegmentWrite) and (write.is_done or write.has_no_room):
            self._space.prepared(write.has_no_room)
            self._segment = None
        elif isinstance(write, Removal):
            self._space.removed(write.segments)
            self._checkpoints.has_failed = False
            if write.is_for_checkpoint:
                self._space.leave_alone()
        elif isinstance(write, IdentityWrite) and write.has_no_room:
            self._identity = write.identity
        elif isinstance(write, CheckpointWrite) and write.has_no_room:
            self._make_room()
        elif isinstance(write, CheckpointWrite) and write.is_done:
            self._reuse(write)

    def _reuse(self, write: CheckpointWrite) -> None:
        """Free the segments that neither of the two checkpoints on disk needs."""
        removed = [self._space.drop(number) for number in self._checkpoints.dead if number in self._space.used]
        files = [segment for segment in removed if segment is not None]
        if files:
            self._removals.append(Removal(files))
        dead = write.dead - self._checkpoints.dead
        self._checkpoints.kept, self._checkpoints.dead, self._checkpoints.write = write.kept, dead, None

    def _make_room(self) -> None:
        """Delete the older checkpoint, or else a free segment, and have a checkpoint tried again."""
        checkpoints = self._checkpoints
        checkpoints.write, checkpoints.bytes = None, self._config.checkpoint_bytes
        if len(checkpoints.kept) > 1:
            checkpoints.kept = checkpoints.kept[-1:]
            self._removals.append(Removal(kept_checkpoints=checkpoints.kept, is_for_checkpoint=True))
        elif (segment := self._space.give_back()) is not None:
            self._removals.append(Removal([segment], is_for_checkpoint=True))
        else:
            checkpoints.has_failed = True

    def _compaction(self, lsn: int) -> Write | None:
        """Return the work of reading the segment with the least live bytes, if live frames should be copied on."""
        released = self._contents.released_bytes
        if lsn < self._copied_lsn or (released < self._next_look and not self.is_full()):
            return None
        victim = self._victim(lsn)
        if victim is None:
            self._next_look = released + self._config.segment_bytes // 4
            return None
        live = self._contents.live[victim.number]
        # In the worst case each frame is a run of its own.
        copies = BATCH_HEAD.size + live.bytes + (RUN_HEAD.size + 4) * live.frames
        if self._space.is_big(padded(copies)) or not self._space.has_room(padded(copies), Need.COPIED):
            return None
        return CompactionRead(victim, victim.salt, entries_of(self._contents, victim.number))

    def _victim(self, lsn: int) -> Segment | None:
        live, space = self._contents.live, self._space
        found = [
            segment
            for number, segment in space.used.items()
            if number in live and segment is not space.active and segment.last_lsn <= lsn and not segment.is_damaged
            if segment.end - SEGMENT_HEAD_BYTES <= space.capacity
        ]
        if len(found) <= self._config.compact_segments and not (found and self.is_full()):
            return None
        share = self._config.compact_live
        if not self.is_full() and sum(live[s.number].bytes for s in found) >= share * sum(s.size for s in found):
            return None
        victim = min(found, key=lambda segment: live[segment.number].bytes)
        return victim if live[victim.number].bytes < share * victim.size else None

    def copied(self, read: CompactionRead, lsn: int | None) -> None:
        """Take up the result of reading a segment, whose copies are in the batch of this LSN."""
        self._copied_lsn = lsn or self._copied_lsn
        if read.damage is not None:
            read.segment.is_damaged = True
            self.damages.append(read.damage)
