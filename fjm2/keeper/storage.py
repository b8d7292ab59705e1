"""The journal as a member's storage: `JournalStorage` writes, and `remember` reads what is there at the start."""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from fjm2.base.errors import JournalError
from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet
from fjm2.cell.ledger_table import Span
from fjm2.cell.replica import NOBODY, Remembered, StoredEntry
from fjm2.cell.wire.fields import Member
from fjm2.cell.wire.ranges import DECISION_LANE
from fjm2.cell.wire.records import decode_entry
from fjm2.store.config import Need
from fjm2.store.disk import Disk
from fjm2.store.journal import Journal
from fjm2.store.queue import APPEND_BYTES_MAX
from fjm2.store.runs import Run

_READ_BYTES: Final = 1 << 20
"""Bytes of decisions that are read at a time."""
_ALL: Final = RangeSet([(1, 1 << 64)])


class Append(Protocol):
    """A function that has runs written: `Journal.append`, or `Committer.append`, which also starts the commit."""

    def __call__(self, runs: Sequence[Run], need: Need) -> int | None:
        """Return the LSN of the batch that the runs are in, or None if there is no room."""


class JournalStorage:
    """The journal of a keeper, as its cell writes it. Implements `fjm2.cell.context.Storage`."""

    def __init__(self, journal: Journal, append: Append) -> None:
        self._journal = journal
        self._append = append

    def store_frames(
        self,
        ledger: Ledger,
        first: int,
        frames: Sequence[bytes],
        *,
        is_fetched: bool = False,
        is_urgent: bool = False,
    ) -> int | None:
        """Append frames. Fetched ones may use some of the room that messages may not, and urgent ones all of it."""
        run = Run.of(ledger, first, frames)
        need = Need.URGENT if is_urgent else _need(is_fetched=is_fetched)
        return self._write(run, need) if run.size <= APPEND_BYTES_MAX else None

    def store_counted(self, ledger: Ledger, first: int, count: int, *, is_fetched: bool = False) -> int | None:
        """Append that sequences need no keeping."""
        return self._write(Run.counted(ledger, first, count), _need(is_fetched=is_fetched))

    def store_late(self, ledger: Ledger, first: int, frames: Sequence[bytes]) -> int | None:
        """Append frames of sequences that were counted before."""
        run = Run.of(ledger, first, frames).as_late()
        return self._write(run, Need.FETCHED) if run.size <= APPEND_BYTES_MAX else None

    def store_settled(self, cell_id: int, version: int) -> int | None:
        """Append that no frames are in doubt that tables through a version ask for.

        The versions are counted like sequences of a ledger.
        """
        return self._write(Run.counted(_settled_of(cell_id), version, 1), Need.URGENT)

    def store_promise(self, cell_id: int, epoch: int, voted_for: bytes) -> int | None:
        """Append a promise."""
        return self._write(Run.promise(promises_of(cell_id), epoch, voted_for), Need.URGENT)

    def _write(self, run: Run, need: Need) -> int | None:
        # A journal that has failed takes nothing. The keeper is about to end.
        return None if self._journal.error is not None else self._append([run], need)

    def poll_refused(self) -> list[int]:
        """Return the LSNs of batches that the disk had no room for after all, each of them once."""
        refused = list(self._journal.refused)
        self._journal.refused.clear()
        return refused

    def live(self, ledger: Ledger, first: int, end: int) -> RangeSet:
        """Return the sequences first, ..., end - 1 whose frames can be read."""
        return self._journal.live(ledger, first, end)

    @property
    def has_room(self) -> bool:
        """True if the store takes messages."""
        return not self._journal.is_full

    def forget(self, ledger: Ledger) -> None:
        """Give up a ledger, with all sequences that are known of it."""
        self._journal.forget(ledger, _ALL)

    def release(self, ledger: Ledger, ranges: Iterable[tuple[int, int]]) -> None:
        """Give up frames. Their sequences stay known, so that they are not stored again."""
        self._journal.release(ledger, ranges)

    def release_decisions(self, cell_id: int, before: int) -> None:
        """Give up the entries of the decision log before an index, in the ledgers of all epochs."""
        for ledger in self._journal.ledgers():
            if ledger.lane == DECISION_LANE and ledger.producer_id == cell_id:
                self._journal.release(ledger, [(1, before)])


def _need(*, is_fetched: bool) -> Need:
    return Need.FETCHED if is_fetched else Need.MESSAGE


def promises_of(cell_id: int) -> Ledger:
    """Return the ledger that the promises of a cell's members are filed under."""
    return Ledger(cell_id, 0, DECISION_LANE)


def _settled_of(cell_id: int) -> Ledger:
    """Return the ledger of table versions. No manager ever has its epoch."""
    return Ledger(cell_id, 0xFFFF_FFFF, DECISION_LANE)


def member_of(journal: Journal) -> Member:
    """Return the keeper that a store belongs to, in the present incarnation of the store."""
    return Member(journal.identity.keeper_id, journal.identity.incarnation)


def remember(journal: Journal, disk: Disk) -> Remembered:
    """Return what a store holds of a cell, when its keeper starts.

    Sequences that were counted or released stay known: they are spans like those of frames. Raise JournalError if the
    disk does not give an entry of the decision log. What the keeper confirmed is lost then: open the journal with
    `renew`, so that it returns in another incarnation.
    """
    cell_id = _cell_of(journal)
    epoch, voted_for = journal.promised(promises_of(cell_id)) or (0, NOBODY)
    entries: list[StoredEntry] = []
    spans: list[Span] = []
    for ledger in journal.ledgers():
        if ledger.lane != DECISION_LANE:
            spans += [Span(ledger, first, end) for first, end in journal.known(ledger)]
        elif ledger.producer_id == cell_id:
            entries += _entries(journal, disk, ledger)
    kept = {ledger for ledger in journal.ledgers() if journal.waiting_frames(ledger)}
    settled = journal.known(_settled_of(cell_id))
    opened = journal.recovered.identity if journal.recovered else None
    return Remembered(
        cell_id,
        epoch,
        voted_for,
        entries,
        spans,
        journal.lsn,
        kept,
        settled.last if settled else 0,
        opened.incarnation if opened else 0,
    )


def _cell_of(journal: Journal) -> int:
    """Return the cell of a store. The identity is written after the first decision or promise, so it may lack it."""
    if journal.identity.cell_id:
        return journal.identity.cell_id
    names = [*journal.ledgers(), *journal.contents.promises]
    return next((ledger.producer_id for ledger in names if ledger.lane == DECISION_LANE), 0)


def _entries(journal: Journal, disk: Disk, ledger: Ledger) -> list[StoredEntry]:
    """Return the entries of one epoch."""
    entries: list[StoredEntry] = []
    at: int | None = 1
    while at is not None:
        read = journal.read(ledger, _ALL, _READ_BYTES, at)
        for index, data in zip(read.sequences.tolist(), read.fetch(disk), strict=True):
            # The journal verifies what comes after its checkpoint. Only decisions before it may be damaged unnoticed.
            if data is None or decode_entry(data) is None:
                raise JournalError(
                    f"entry {index} of the decision log {ledger} cannot be read: expected what was confirmed; "
                    "open the store with renew"
                )
            entries.append(StoredEntry(ledger.producer_epoch, index, data))
        at = read.resume_at
    return entries
