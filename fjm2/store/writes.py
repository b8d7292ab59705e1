"""Writes: pieces of work on the disk that the journal hands out one at a time. `perform` may run in another thread."""

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from .disk import Buffer, Disk
from .format.batches import BATCH_HEAD, BatchHead, SegmentHead, encode_segment_head, seal_batch
from .format.checkpoints import PREFIX, checkpoint_number
from .format.checksums import PREFERRED
from .runs import RUN_HEAD, Run
from .segments import Segment

ZEROS = bytes(1 << 20)
"""Zeros of one step of preparing a segment."""
NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
"""Errors that say that the disk is full. Any other error is final."""


class Write(Protocol):
    """A piece of work."""

    def perform(self, disk: Disk) -> None:
        """Do it, and return when it is on the medium. Raise OSError if it failed: then the store has failed."""


@dataclass(slots=True, eq=False)
class BatchWrite:
    """One batch: a group commit."""

    runs: list[Run]
    lsn: int
    segment: Segment
    offset: int
    length: int
    previous: int
    incarnation: int
    new_use: SegmentHead | None
    """Head of the segment, if its use begins with this batch."""
    is_big: bool
    """True if the batch has a segment of its own, which is created now."""
    checksum: int = 0
    """Checksum of the batch, once it is performed."""
    has_no_room: bool = False
    """True if there was no room on the disk for a segment of its own. Nothing is left of it."""

    def perform(self, disk: Disk) -> None:
        """Write and sync the batch."""
        parts: list[Buffer] = []
        for run in self.runs:
            parts += run.encode()
        salt = self.segment.salt
        head = BatchHead(PREFERRED, 0, 0, self.previous, self.lsn, salt, self.incarnation, len(self.runs))
        self.checksum = seal_batch(parts, head)
        if self.is_big:
            self._write_big(disk, parts)
            return
        if self.new_use is not None:
            # Recovery relies on this head being there before any batch of the new use.
            disk.pwritev(self.segment.file, [encode_segment_head(self.new_use)], 0)
            disk.fdatasync(self.segment.file)
        disk.pwritev(self.segment.file, parts, self.offset)
        disk.fdatasync(self.segment.file)

    def _write_big(self, disk: Disk, parts: list[Buffer]) -> None:
        assert self.new_use is not None
        file = disk.open(self.segment.name)
        self.segment.file = file
        try:
            disk.pwritev(file, [encode_segment_head(self.new_use)], 0)
            disk.fdatasync(file)
            disk.sync_directory()
            disk.pwritev(file, parts, self.offset)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            disk.close(file)
            disk.unlink(self.segment.name)
            self.has_no_room = True
            return
        disk.fdatasync(file)

    def places(self) -> Iterator[tuple[Run, int]]:
        """Yield each run with the offset of its data in the segment."""
        at = self.offset + BATCH_HEAD.size
        for run in self.runs:
            yield run, at + RUN_HEAD.size + 4 * len(run.lengths)
            at += run.size


@dataclass(slots=True, eq=False)
class SegmentWrite:
    """One step of preparing a segment: zeros. A segment gets its name when it is complete."""

    segment: Segment
    _done: int = 0
    has_no_room: bool = False
    """True if the disk is full. Nothing is left of the segment."""

    @property
    def is_done(self) -> bool:
        """True if the segment is complete."""
        return self._done == self.segment.size

    def perform(self, disk: Disk) -> None:
        """Write and sync the next zeros."""
        temporary = f"{self.segment.name}.tmp"
        if not self._done:
            self.segment.file = disk.open(temporary)
        part = ZEROS[: self.segment.size - self._done]
        try:
            disk.pwritev(self.segment.file, [part], self._done)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            disk.close(self.segment.file)
            disk.unlink(temporary)
            self.has_no_room = True
            return
        disk.fdatasync(self.segment.file)
        self._done += len(part)
        if self.is_done:
            disk.rename(temporary, self.segment.name)
            disk.sync_directory()


@dataclass(slots=True, eq=False)
class CheckpointWrite:
    """One step of writing a checkpoint. The last step gives it its name, and removes all but the two newest."""

    number: int
    pieces: Iterator[bytes]
    kept: list[int]
    """Numbers of good checkpoints on disk, oldest first. The new one is added when it is there."""
    dead: set[int]
    """Segments that were dead when the snapshot was taken."""
    size: int = 0
    is_done: bool = False
    has_no_room: bool = False
    """True if the disk is full. Nothing is left of the checkpoint."""
    _file: int = field(default=-1)

    def perform(self, disk: Disk) -> None:
        """Write and sync the next piece."""
        temporary = f"{PREFIX}{self.number}.tmp"
        if self._file < 0:
            self._file = disk.open(temporary)
        piece = next(self.pieces, None)
        if piece is not None:
            try:
                disk.pwritev(self._file, [piece], self.size)
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                disk.close(self._file)
                disk.unlink(temporary)
                self.has_no_room = True
                return
            disk.fdatasync(self._file)
            self.size += len(piece)
            return
        disk.close(self._file)
        disk.rename(temporary, f"{PREFIX}{self.number}")
        disk.sync_directory()
        self.kept = [*self.kept[-1:], self.number]
        remove_checkpoints(disk, self.kept)
        self.is_done = True


@dataclass(slots=True, eq=False)
class Removal:
    """Removes files of dead segments that are not of the usual length, or old checkpoints, to make room."""

    segments: list[Segment] = field(default_factory=list)
    kept_checkpoints: list[int] | None = None
    is_for_checkpoint: bool = False
    """True if the room is for a checkpoint."""

    def perform(self, disk: Disk) -> None:
        """Remove the files."""
        for segment in self.segments:
            disk.close(segment.file)
            disk.unlink(segment.name)
        if self.kept_checkpoints is not None:
            remove_checkpoints(disk, self.kept_checkpoints)
        disk.sync_directory()


def remove_checkpoints(disk: Disk, kept: list[int]) -> None:
    """Remove all checkpoints but these."""
    for name in disk.names():
        number = checkpoint_number(name)
        if number is not None and number not in kept:
            disk.unlink(name)
