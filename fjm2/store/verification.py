"""Checks of batches on disk, by their checksums."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fjm2.base.ledger import Ledger

from .contents import Contents, entries_of
from .disk import SECTOR_BYTES, Disk
from .format.batches import BATCH_HEAD, CHECKED_FROM, SEGMENT_HEAD_BYTES, BatchHead, parse_batch_head
from .format.checksums import checksum_of
from .index import OFFSET, Entries, Sequences, spans
from .segments import Segment

_WHOLE_BYTES_MAX = 8 << 20
"""Length up to which a batch is read at once. Longer ones are read in pieces: no length on disk costs memory."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A range of a file that is not as it was written."""

    file: str
    offset: int
    size: int
    reason: str
    is_lost: bool = True
    """False if something else holds the same: the damage is repaired when the store is opened."""

    def __str__(self) -> str:
        return f"{self.file}: {self.size} bytes at offset {self.offset}: {self.reason}"


class StoredBatch(NamedTuple):
    """A batch on disk."""

    offset: int
    head: BatchHead
    whole: bytes | None
    """All bytes, unless there are too many to read at once."""
    is_good: bool
    """True if the checksum is right."""


def read_batch(disk: Disk, segment: Segment, offset: int, salt: int | None) -> StoredBatch | None:
    """Return the batch at an offset, or None if there is no head of a batch of this use."""
    head = parse_batch_head(disk.pread(segment.file, BATCH_HEAD.size, offset), segment.size - offset)
    if head is None or (salt is not None and head.salt != salt):
        return None
    checksum, at, end = 0, offset, offset + head.length
    whole: bytes | None = None
    while at < end:
        piece = disk.pread(segment.file, min(_WHOLE_BYTES_MAX, end - at), at)
        if not piece:
            return StoredBatch(offset, head, None, False)
        checked = memoryview(piece)[CHECKED_FROM:] if at == offset else memoryview(piece)
        checksum = checksum_of(head.algorithm, [checked], checksum)
        at += len(piece)
        whole = piece if len(piece) == head.length else None
    return StoredBatch(offset, head, whole, checksum == head.checksum)


def bad_batches(disk: Disk, segment: Segment) -> Iterator[Damage]:
    """Yield the bad ranges of a segment, from its first batch to its last one. A use has no gaps between batches."""
    at, lsn, checksum = SEGMENT_HEAD_BYTES, segment.first_lsn - 1, None
    bad_from = None
    while at < segment.end:
        try:
            batch = read_batch(disk, segment, at, segment.salt)
        except OSError as error:
            yield Damage(segment.name, at, segment.end - at, f"the disk does not give it: {error.strerror}")
            return
        if batch is None or not batch.is_good or batch.head.lsn <= lsn:
            bad_from = at if bad_from is None else bad_from
            at += SECTOR_BYTES
            continue
        head = batch.head
        if bad_from is not None:
            yield Damage(segment.name, bad_from, at - bad_from, f"no good batch before batch {head.lsn}")
        elif checksum is not None and head.lsn == lsn + 1 and head.previous != checksum:
            yield Damage(segment.name, at, head.length, f"batch {head.lsn} does not follow the one before")
        at, lsn, checksum, bad_from = at + head.length, head.lsn, head.checksum, None
    if bad_from is not None:
        yield Damage(segment.name, bad_from, segment.end - bad_from, "no good batch up to the end")


def lost_frames(
    disk: Disk, contents: Contents, segments: Iterable[Segment]
) -> Iterator[tuple[Damage, list[tuple[Ledger, Sequences]]]]:
    """Yield each bad range with live frames, and their sequences by ledger. All segments with live frames are read.

    A bad range without live frames has lost nothing: what else batches say is in a checkpoint, or recovery missed it.
    """
    for segment in segments:
        if segment.number not in contents.live or segment.file < 0:
            continue
        damages = list(bad_batches(disk, segment))
        entries = entries_of(contents, segment.number) if damages else []
        for damage in damages:
            lost = [(ledger, _inside(each, damage)) for ledger, each in entries]
            if any(len(sequences) for _, sequences in lost):
                yield damage, lost


def forget_lost(disk: Disk, contents: Contents, segments: Iterable[Segment]) -> list[Damage]:
    """Forget the live frames in bad batches, as if they had never been there, and return the bad ranges."""
    damages = []
    for damage, lost in list(lost_frames(disk, contents, segments)):
        damages.append(damage)
        for ledger, sequences in lost:
            for first, end in spans(sequences):
                contents.forget(ledger, first, end)
    return damages


def _inside(entries: Entries, damage: Damage) -> Sequences:
    offsets = entries.places[:, OFFSET].astype(np.int64)
    return entries.sequences[(offsets >= damage.offset) & (offsets < damage.offset + damage.size)]
