"""Compaction: live frames of a nearly dead segment are read, to be appended again."""

from dataclasses import dataclass, field

from fjm2.base.ledger import Ledger

from .disk import Disk
from .index import Entries, spans
from .reader import Read
from .runs import Run
from .segments import Segment
from .verification import Damage, bad_batches


@dataclass(slots=True, eq=False)
class CompactionRead:
    """Reads the live frames of a segment. Nothing is copied out of a segment that is damaged."""

    segment: Segment
    salt: int
    entries: list[tuple[Ledger, Entries]]
    runs: list[Run] = field(default_factory=list)
    """The frames, once they are read."""
    damage: Damage | None = None

    def perform(self, disk: Disk) -> None:
        """Read the frames."""
        self.damage = next(bad_batches(disk, self.segment), None)
        if self.damage is not None:
            return
        for ledger, entries in self.entries:
            read = Read(entries.sequences, None, entries.places, {self.segment.number: (self.segment, self.salt)})
            frames = [frame for frame in read.fetch(disk) if frame is not None]
            if len(frames) < len(entries.sequences):
                self.damage = Damage(self.segment.name, 0, self.segment.size, "the disk does not give it")
                return
            at = 0
            for first, end in spans(entries.sequences):
                self.runs.append(Run.of(ledger, first, frames[at : at + end - first]))
                at += end - first
