"""The journal: runs in, one write at a time out, and frames back. It does no I/O but at opening.

`append` takes runs, `poll_write` returns the next piece of work for the disk, and `handle_synced` takes it back when it
is done: only then do its runs count. `handle_failed` ends the journal: the kernel marks pages as clean after a failed
sync, so a second try would prove nothing (Rebello et al., ATC 2020).
"""

from collections.abc import Iterable, Sequence
from random import Random
from typing import NamedTuple

from fjm2.base.errors import JournalError
from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet

from .compaction import CompactionRead
from .config import Need, StoreConfig
from .contents import Contents
from .disk import Buffer
from .format.checkpoints import Position
from .format.identity import Identity
from .housekeeping import Housekeeping, IdentityWrite
from .index import Entries
from .queue import BatchQueue
from .reader import Read, limited, nothing_read
from .recovery import Recovered
from .runs import Kind, Run
from .segments import Space
from .verification import Damage
from .writes import BatchWrite, Write

_SALT_BITS = 63


class StoreUse(NamedTuple):
    """Bytes of a store."""

    allowed: int
    """The setting `store_bytes_max`."""
    used: int
    """Bytes of all segments."""
    live: int
    """Bytes of live frames."""
    waiting: int
    """Bytes that wait for the disk in memory."""


class Journal:
    """Frames of all ledgers of one store. `open_journal` makes one."""

    def __init__(
        self,
        config: StoreConfig,
        random: Random,
        identity: Identity,
        contents: Contents,
        space: Space,
        position: Position,
    ) -> None:
        self._config, self._random = config, random
        self.identity = identity
        self.contents = contents
        self._space = space
        self._durable = position
        self.queue = BatchQueue(config, space, position.lsn + 1)
        self.housekeeping = Housekeeping(config, space, contents)
        self.refused: list[int] = []
        """LSNs of appends that the disk had no room for after all. Their runs are gone. The caller takes them out."""
        self.error: OSError | None = None
        """Error that ended the journal."""
        self._on_disk: Write | None = None
        self._is_batch_next = True
        self.state: Buffer = b""
        """State that the caller gave to the checkpoint that was recovered."""
        self.recovered: Recovered | None = None
        """Findings of recovery."""

    @property
    def lsn(self) -> int:
        """Number of the last batch on disk."""
        return self._durable.lsn

    @property
    def is_full(self) -> bool:
        """True while nothing is left but what messages may not fill."""
        return self.housekeeping.is_full()

    @property
    def use(self) -> StoreUse:
        """Bytes used and allowed."""
        return StoreUse(self._config.store_bytes_max, self._space.bytes, self.contents.live_bytes, self.queue.bytes)

    @property
    def damages(self) -> list[Damage]:
        """Damage that compaction met."""
        return self.housekeeping.damages

    def ledgers(self) -> list[Ledger]:
        """Return the names of all ledgers."""
        return list(self.contents.ledgers)

    def known(self, ledger: Ledger) -> RangeSet:
        """Return the sequences that are on disk, were on disk, or were counted. Do not change them."""
        index = self.contents.ledgers.get(ledger)
        return index.known if index is not None else RangeSet()

    def waiting_frames(self, ledger: Ledger) -> int:
        """Return the number of live frames of a ledger."""
        index = self.contents.ledgers.get(ledger)
        return index.count if index is not None else 0

    def live(self, ledger: Ledger, first: int, end: int) -> RangeSet:
        """Return the sequences first, ..., end - 1 whose frames are on disk and not released."""
        index = self.contents.ledgers.get(ledger)
        return index.live(first, end) if index is not None else RangeSet()

    def promised(self, ledger: Ledger) -> tuple[int, bytes] | None:
        """Return the highest epoch promised, and the id of the keeper voted for."""
        return self.contents.promises.get(ledger)

    def append(self, runs: Sequence[Run], need: Need = Need.MESSAGE) -> int | None:
        """Have runs written in one batch, and return its LSN. They count when `lsn` has reached it.

        Return None if there is no room, in the store or in memory: `need` tells how much of the reserve they may use.
        Raises JournalError if the journal has ended, and ValueError for more than 2 GiB.
        """
        if self.error is not None:
            raise JournalError(
                f"the store has failed ({self.error}): expected a restart, which finds out what it holds"
            )
        return self.queue.append(runs, need)

    def release(self, ledger: Ledger, ranges: Iterable[tuple[int, int]]) -> None:
        """Give up frames. Their sequences stay known, so that they are not stored twice.

        A release is on disk with the next checkpoint. After a restart before that the frames are back: release them
        again when you replay what made you release them.
        """
        for first, end in ranges:
            self.contents.release(ledger, first, end)

    def forget(self, ledger: Ledger, ranges: Iterable[tuple[int, int]]) -> None:
        """Give up frames and forget their sequences, so that they can be stored again: because they were damaged."""
        for first, end in ranges:
            self.contents.forget(ledger, first, end)

    def read(self, ledger: Ledger, ranges: RangeSet, bytes_max: int, first: int = 0) -> Read:
        """Return a plan to read the live frames with these sequences, from `first` on, of about `bytes_max` bytes.

        It costs as much as it returns, however much waits. Go on from its `resume_at`.
        """
        index = self.contents.ledgers.get(ledger)
        if index is None or not ranges:
            return nothing_read()
        parts: list[Entries] = []
        size = 0
        for low, high in ranges.within(first, ranges.last + 1):
            for part in index.entries(low, high):
                part = limited(part, bytes_max - size)
                parts.append(part)
                size += part.size
                if size >= bytes_max:
                    return self._read(parts, int(part.sequences[-1]) + 1)
        return self._read(parts, None)

    def _read(self, parts: list[Entries], resume_at: int | None) -> Read:
        if not parts:
            return nothing_read()
        return Read.of(parts, resume_at, self._space.used)

    def poll_write(self) -> Write | None:
        """Return the next piece of work, or None if there is none or one is under way."""
        if self._on_disk is not None or self.error is not None:
            return None
        # Batches take turns with other work, so that neither waits long for the other.
        if self._is_batch_next:
            write = self._next_batch() or self.housekeeping.poll(self.lsn)
        else:
            write = self.housekeeping.poll(self.lsn) or self._next_batch()
        self._is_batch_next = not isinstance(write, BatchWrite)
        self._on_disk = write
        return write

    def _next_batch(self) -> BatchWrite | None:
        length = self.queue.next_length
        taken = self._space.take(length) if length else None
        if taken is None:
            return None
        segment, is_new = taken
        batch = self.queue.pop()
        head = segment.begin(self._random.getrandbits(_SALT_BITS), batch.lsn) if is_new else None
        offset = segment.end
        segment.end, segment.last_lsn = offset + length, batch.lsn
        self.queue.plan()
        previous, incarnation = self._durable.checksum, self.identity.incarnation
        is_big = self._space.is_big(length)
        return BatchWrite(batch.runs, batch.lsn, segment, offset, length, previous, incarnation, head, is_big)

    def handle_synced(self, write: Write) -> int:
        """Take back a piece of work that is done, and return the number of the last batch on disk."""
        if write is not self._on_disk:
            raise ValueError("this write is not the one that poll_write returned last")
        self._on_disk = None
        if isinstance(write, BatchWrite):
            self._handle_batch(write)
        elif isinstance(write, CompactionRead):
            self.housekeeping.copied(write, self.queue.append(write.runs, Need.COPIED) if write.runs else None)
        else:
            self.housekeeping.handle_done(write)
        return self.lsn

    def _handle_batch(self, write: BatchWrite) -> None:
        if write.has_no_room:
            self._space.refuse(write.segment)
            self.queue.refuse(write.lsn)
            self.refused.append(write.lsn)
            self.queue.plan()
            return
        number = write.segment.number
        for run, data_offset in write.places():
            if run.kind is Kind.PROMISE:
                self.contents.promise(run.ledger, run.first, bytes(run.data))
            else:
                self.contents.apply(run, number, data_offset)
        self._durable.lsn, self._durable.checksum = write.lsn, write.checksum
        if not write.is_big:
            self._durable.segment, self._durable.end = number, write.offset + write.length
        self.housekeeping.count(write.length)

    def handle_failed(self, error: OSError) -> None:
        """End the journal: the disk failed. Nothing more is written; `mark_failed` makes the next life a new one."""
        self.error = error

    @property
    def wants_checkpoint(self) -> bool:
        """True if `start_checkpoint` should be called: much was written since the last one, or it would make room."""
        return self.housekeeping.wants_checkpoint(self.lsn)

    def start_checkpoint(self, state: Buffer = b"") -> bool:
        """Write a checkpoint of what is on disk now, with a state of the caller. False if one is being written."""
        return self.housekeeping.start_checkpoint(self._durable, self.identity.incarnation, state)

    def retry(self) -> None:
        """Ask a disk that was full for room again. Call it now and then while `is_full`: others may have made room."""
        self.housekeeping.retry()

    def set_cell(self, cell_id: int) -> None:
        """Have the id of the keeper's cell written into the file `identity`, unless it is there."""
        if cell_id != self.identity.cell_id:
            self.identity = self.identity.of_cell(cell_id)
            self.housekeeping.add(IdentityWrite(self.identity))
