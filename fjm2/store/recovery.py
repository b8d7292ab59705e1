"""Recovery: what a directory holds, found without changing it.

The newest good checkpoint comes first, then the batches behind it, up to the first bad one. If a good batch of the same
use lies behind that, or a segment was begun later, then what was confirmed is damaged. Otherwise it is a torn tail.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from .contents import Contents, entries_of
from .disk import SECTOR_BYTES, Disk
from .format.batches import (
    BATCH_HEAD,
    MAGICS,
    SEGMENT_HEAD_BYTES,
    BatchHead,
    SegmentHead,
    parse_batch_head,
    parse_segment_head,
)
from .format.checkpoints import Position, Snapshot, checkpoint_number, decode
from .format.identity import IDENTITY, Identity, read_identity
from .index import spans
from .runs import KEEPER_ID_BYTES, Kind, parse_runs
from .segments import PREFIX, Segment
from .verification import Damage, StoredBatch, read_batch

FAILED = "failed"
"""Name of the file that says that a sync failed, so that the next life is a new incarnation."""
_WINDOW_BYTES = 4 << 20
_SALT = slice(24, 32)
_CHECKPOINTS = 2
_DAMAGES_MAX = 1000
"""Sectors that are listed if the disk does not give them. A disk that gives nothing needs no longer list."""
_SEGMENT_BYTES_MAX = 1 << 32
"""Length of a segment up to which offsets fit the index."""


@dataclass(slots=True)
class Recovered:
    """Content of a directory."""

    identity: Identity | None
    is_empty: bool
    """True if no store was ever there."""
    snapshot: Snapshot
    """The newest good checkpoint, with all good batches behind it taken up."""
    free: list[Segment] = field(default_factory=list)
    """Files of segments that hold nothing that counts."""
    damages: list[Damage] = field(default_factory=list)
    """Damage to what was confirmed."""
    notes: list[Damage] = field(default_factory=list)
    """Damage that cost nothing, because something else holds the same. It is repaired when the store is opened."""
    bad_heads: list[Segment] = field(default_factory=list)
    """Segments whose head is bad. The batches in them say the same."""
    bad_checkpoints: list[str] = field(default_factory=list)
    """Files of checkpoints that are bad, beside a good one."""
    torn: Damage | None = None
    """Tail of a write that a power cut interrupted. It was never confirmed."""
    last: tuple[Segment, int, int] | None = None
    """Segment, offset and length of the last batch."""
    checkpoints: list[int] = field(default_factory=list)
    """Numbers of good checkpoints, oldest first."""
    checkpoint_number: int = 0
    """Highest number of a checkpoint, good or not."""
    batches: int = 0
    """Number of batches behind the checkpoint."""
    batch_bytes: int = 0
    has_failed: bool = False
    """True if the last life ended because a sync failed."""
    leftovers: list[str] = field(default_factory=list)
    """Files that were never completed."""


def recover(disk: Disk) -> Recovered:
    """Return the content of a directory. Raise ConfigError if it is of a newer format; change nothing."""
    names = disk.names()
    try:
        identity = read_identity(disk)
    except OSError:
        identity = None
    checkpoints = sorted(number for name in names if (number := checkpoint_number(name)) is not None)
    is_empty = (
        IDENTITY not in names and not checkpoints and not any(_segment_number(name) is not None for name in names)
    )
    found = Recovered(identity, is_empty, Snapshot(0, Position(), Contents(), [], set()))
    found.leftovers = [name for name in names if name.endswith(".tmp")]
    found.has_failed = FAILED in names
    if identity is None and not is_empty:
        found.damages.append(Damage(IDENTITY, 0, _size(disk, IDENTITY), "missing, or its checksum is wrong"))
    _read_checkpoints(disk, found, checkpoints)
    _Scan(disk, found).run()
    return found


def _size(disk: Disk, name: str) -> int:
    if name not in disk.names():
        return 0
    file = disk.open(name)
    try:
        return disk.size(file)
    finally:
        disk.close(file)


def _segment_number(name: str) -> int | None:
    digits = name.removeprefix(PREFIX)
    is_number = name.startswith(PREFIX) and digits.isdecimal() and digits.isascii() and len(digits) <= 9
    return int(digits) if is_number else None


def _read_checkpoints(disk: Disk, found: Recovered, numbers: list[int]) -> None:
    """Take up the newest good checkpoint. Both are read, so that a bad older one is known too."""
    found.checkpoint_number = numbers[-1] if numbers else 0
    bad: list[Damage] = []
    taken: Snapshot | None = None
    for number in reversed(numbers[-_CHECKPOINTS:]):
        name = f"checkpoint-{number}"
        # The older one is only held ready. Memory has room for one index.
        snapshot = decode(disk, name) if taken is None else taken
        if snapshot is None:
            bad.append(Damage(name, 0, _size(disk, name), "its checksum is wrong", is_lost=False))
            continue
        taken = snapshot
        found.checkpoints.insert(0, number)
    if taken is not None:
        found.snapshot = taken
        found.notes += bad
        found.bad_checkpoints = [damage.file for damage in bad]
    else:
        found.damages += [replace(damage, is_lost=True) for damage in bad]


class _Scan:
    """Reads the batches behind the checkpoint."""

    def __init__(self, disk: Disk, found: Recovered) -> None:
        self._disk, self._found = disk, found
        self._segments: dict[int, Segment] = {}
        self._heads: dict[int, SegmentHead | None] = {}
        self._used = {segment.number: segment for segment in found.snapshot.segments}
        self._incarnations = {found.snapshot.incarnation} | ({found.identity.incarnation} if found.identity else set())
        if not found.checkpoints:
            self._incarnations.discard(0)

    def run(self) -> None:
        """Take up all good batches, and note where they end and why."""
        self._open_segments()
        position = self._found.snapshot.position
        while True:
            while self._take_next():
                pass
            damage, target = self._end()
            if damage is None:
                break
            self._found.damages.append(damage)
            if target is None:
                # Batches that are gone had numbers up to the segment that was begun last.
                position.lsn = max([position.lsn, *self._later_uses()])
                break
            self._jump(target)
        used = set(self._used)
        self._found.snapshot.segments = list(self._used.values())
        self._found.free = [segment for number, segment in self._segments.items() if number not in used]

    def _open_segments(self) -> None:
        for name in self._disk.names():
            number = _segment_number(name)
            if number is None:
                continue
            file = self._disk.open(name)
            segment = self._used.get(number)
            size = min(self._disk.size(file), _SEGMENT_BYTES_MAX)
            if segment is not None and number in self._found.snapshot.dead and size != segment.size:
                # It was deleted after the checkpoint, and another one has its number.
                segment = None
                self._forget(number)
            if segment is None:
                segment = Segment(number, file, size)
            elif size < segment.size:
                self._found.damages.append(Damage(name, size, segment.size - size, "the file is too short"))
            segment.file, segment.size = file, size
            self._segments[number] = segment
            sector = self._pread(segment, SEGMENT_HEAD_BYTES, 0)
            head = parse_segment_head(sector)
            self._heads[number] = head
            if head is None and any(sector):
                damage = Damage(name, 0, SEGMENT_HEAD_BYTES, "the head of the segment is bad", is_lost=False)
                self._found.notes.append(damage)
                self._found.bad_heads.append(segment)
        for number in sorted(self._used.keys() - self._segments.keys()):
            segment = self._used[number]
            if number not in self._found.snapshot.dead:
                self._found.damages.append(Damage(segment.name, 0, segment.size, "the file is missing"))
                for ledger, entries in entries_of(self._found.snapshot.contents, number):
                    for first, end in spans(entries.sequences):
                        self._found.snapshot.contents.forget(ledger, first, end)
            self._forget(number)
        active = self._found.snapshot.position.segment
        if active is not None and active not in self._segments:
            self._found.snapshot.position.segment = None

    def _forget(self, number: int) -> None:
        """Take a segment off the list of those in use."""
        del self._used[number]
        self._found.snapshot.dead.discard(number)

    def _jump(self, target: "_Target") -> None:
        """Go on with a batch behind damage."""
        position, head = self._found.snapshot.position, target.batch.head
        self._begin(target.segment, head)
        position.segment, position.end = target.segment.number, target.batch.offset
        position.lsn, position.checksum = head.lsn - 1, head.previous
        if not self._take_next():
            # Its checksum is right and its runs are not, so it is damage of its own.
            position.lsn, position.checksum, position.end = head.lsn, head.checksum, position.end + head.length

    def _begin(self, segment: Segment, head: BatchHead) -> None:
        """Note that a segment is in use since a batch, unless it was before."""
        if segment.number not in self._used or segment.salt != head.salt:
            segment.salt, segment.first_lsn = head.salt, head.lsn
            self._used[segment.number] = segment
            self._found.snapshot.dead.discard(segment.number)

    def _uses_after(self, lsn: int) -> Iterator[tuple[Segment, SegmentHead]]:
        """Yield the segments whose use began after a batch."""
        for number, head in self._heads.items():
            if head is not None and head.first_lsn > lsn:
                yield self._segments[number], head

    def _later_uses(self) -> Iterator[int]:
        """Yield numbers of batches that were confirmed before a later segment was begun."""
        return (head.first_lsn - 1 for _, head in self._uses_after(self._found.snapshot.position.lsn + 1))

    def _candidates(self) -> Iterator[tuple[Segment, int, int | None]]:
        """Yield the places where the next batch may be: segment, offset, and salt if it is known."""
        position = self._found.snapshot.position
        for segment, head in self._uses_after(position.lsn):
            if head.first_lsn == position.lsn + 1:
                yield segment, SEGMENT_HEAD_BYTES, head.salt
        if position.segment is not None:
            active = self._segments[position.segment]
            yield active, position.end, active.salt
        for number, known in self._heads.items():
            # A head that is bad tells no salt. The first batch has it too, and a chain of checksums that only we know.
            if known is None and number not in self._used:
                yield self._segments[number], SEGMENT_HEAD_BYTES, None

    def _take_next(self) -> bool:
        """Take up the next batch. Return False if it is nowhere."""
        position = self._found.snapshot.position
        for segment, offset, salt in self._candidates():
            batch = self._good_batch(segment, offset, salt)
            if batch is None or batch.head.lsn != position.lsn + 1 or batch.head.previous != position.checksum:
                continue
            if not self._apply(segment, batch):
                continue
            head = batch.head
            self._begin(segment, head)
            segment.last_lsn, segment.end = head.lsn, offset + head.length
            position.lsn, position.checksum = head.lsn, head.checksum
            # A segment of its own length is full, and the next batch goes on where the one before ended.
            if position.segment is None or segment.rest or position.segment == segment.number:
                position.segment, position.end = segment.number, segment.end
            self._found.last = segment, offset, head.length
            self._found.batches += 1
            self._found.batch_bytes += head.length
            return True
        return False

    def _good_batch(self, segment: Segment, offset: int, salt: int | None) -> StoredBatch | None:
        """Return a batch if all of it is as it was written."""
        try:
            batch = read_batch(self._disk, segment, offset, salt)
        except OSError as error:
            self._note_unreadable(segment, offset, SECTOR_BYTES, error)
            return None
        if batch is None or not batch.is_good:
            return None
        is_foreign = self._incarnations and batch.head.incarnation not in self._incarnations
        return None if is_foreign else batch

    def _pread(self, segment: Segment, size: int, offset: int) -> bytes:
        """Return bytes of a segment, with zeros for sectors that the disk does not give: these are damage."""
        try:
            return self._disk.pread(segment.file, size, offset)
        except OSError as error:
            if size <= SECTOR_BYTES:
                self._note_unreadable(segment, offset, size, error)
                return bytes(size)
        sectors = range(offset, offset + size, SECTOR_BYTES)
        return b"".join(self._pread(segment, min(SECTOR_BYTES, offset + size - at), at) for at in sectors)

    def _note_unreadable(self, segment: Segment, offset: int, size: int, error: OSError) -> None:
        damage = Damage(segment.name, offset, size, f"the disk does not give it: {error.strerror}")
        if damage not in self._found.damages and len(self._found.damages) < _DAMAGES_MAX:
            self._found.damages.append(damage)

    def _apply(self, segment: Segment, batch: StoredBatch) -> bool:
        """Take up the runs of a good batch. Return False if they are none."""
        start, end, whole = batch.offset, batch.offset + batch.head.length, batch.whole

        def fetch(at: int, size: int) -> bytes:
            if at + size > end:
                raise ValueError(f"{size} bytes at offset {at}: beyond the batch")
            return self._disk.pread(segment.file, size, at) if whole is None else whole[at - start : at - start + size]

        try:
            runs = list(parse_runs(fetch, start + BATCH_HEAD.size, end, batch.head.runs))
        except ValueError:
            return False
        except OSError as error:
            self._note_unreadable(segment, start, batch.head.length, error)
            return False
        contents = self._found.snapshot.contents
        for run in runs:
            if run.kind is Kind.PROMISE:
                contents.promise(run.ledger, run.first, fetch(run.data_offset, KEEPER_ID_BYTES))
            else:
                contents.apply(run, segment.number, run.data_offset)
        return True

    def _end(self) -> "tuple[Damage | None, _Target | None]":
        """Return why there is no next batch: the damage, and the first good batch behind it. No damage: a torn tail."""
        position = self._found.snapshot.position
        targets = [
            _Target(segment, batch)
            for segment, offset, salt in [*self._candidates(), *self._later_places()]
            if (batch := self._first_good(segment, offset, salt)) is not None
        ]
        place = next(self._candidates(), None)
        if not targets and not any(self._later_uses()):
            self._found.torn = self._torn()
            return None, None
        target = min(targets, key=lambda target: target.batch.head.lsn, default=None)
        if place is None:
            name = target.segment.name if target else "segment-0"
            return Damage(name, 0, SEGMENT_HEAD_BYTES, f"batch {position.lsn + 1} is missing"), target
        segment, offset, _ = place
        is_same = target is not None and target.segment is segment and target.batch.offset > offset
        end = target.batch.offset if target is not None and is_same else segment.size
        reason = f"batch {position.lsn + 1} is bad, and later ones were confirmed"
        return Damage(segment.name, offset, end - offset, reason), target

    def _later_places(self) -> Iterator[tuple[Segment, int, int | None]]:
        for segment, head in self._uses_after(self._found.snapshot.position.lsn + 1):
            yield segment, SEGMENT_HEAD_BYTES, head.salt

    def _torn(self) -> Damage | None:
        """Return the batch that was being written when the power went."""
        lsn = self._found.snapshot.position.lsn + 1
        for segment, offset, salt in self._candidates():
            data = self._pread(segment, BATCH_HEAD.size, offset)
            head = parse_batch_head(data, segment.size - offset)
            if head is not None and salt is not None and (head.salt, head.lsn) == (salt, lsn):
                return Damage(segment.name, offset, head.length, f"batch {lsn} was not written to its end")
        return None

    def _first_good(self, segment: Segment, offset: int, salt: int | None) -> StoredBatch | None:
        """Return the first good batch of a use, from an offset on, that comes after the last one taken up."""
        lsn = self._found.snapshot.position.lsn
        for at in range(offset, segment.size, _WINDOW_BYTES):
            data = self._pread(segment, min(_WINDOW_BYTES, segment.size - at), at)
            rows = np.frombuffer(data, np.uint8, len(data) // SECTOR_BYTES * SECTOR_BYTES).reshape(-1, SECTOR_BYTES)
            is_head = np.zeros(len(rows), bool)
            for magic in MAGICS:
                is_head |= (rows[:, :4] == np.frombuffer(magic, np.uint8)).all(axis=1)
            if salt is not None:
                is_head &= (rows[:, _SALT] == np.frombuffer(salt.to_bytes(8, "big"), np.uint8)).all(axis=1)
            for row in np.flatnonzero(is_head).tolist():
                batch = self._good_batch(segment, at + row * SECTOR_BYTES, salt)
                if batch is not None and batch.head.lsn > lsn:
                    return batch
        return None


class _Target(NamedTuple):
    segment: Segment
    batch: StoredBatch
