"""The replicated log of decisions, as one member holds it. Indexes count from 1."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from fjm2.base.ledger import Ledger

from .configuration import Membership
from .ledger_table import Span
from .wire.ranges import Range
from .wire.records import (
    ApplyRecord,
    CloseRecord,
    ConfigureRecord,
    EntryBody,
    ExpireRecord,
    FenceRecord,
    HandRecord,
    MoveRecord,
    Record,
    TableRecord,
)


class Entry(NamedTuple):
    """An entry of the log."""

    epoch: int
    body: EntryBody
    data: bytes
    """The body as bytes, which are stored and sent unchanged."""


@dataclass(frozen=True, slots=True)
class _Expected:
    """An entry that is in the log of the promised epoch's manager: a newer entry of that log names it."""

    promised: int
    index: int
    epoch: int


class Appended(Enum):
    """Results of offering an entry to the log."""

    ADDED = auto()
    KNOWN = auto()
    GAP = auto()
    """Entries before it are missing, or were dropped because the manager's log has others there."""
    REFUSED = auto()
    """It contradicts entries that it may not replace."""


class DecisionLog:
    """Entries in order. An entry is taken only behind the entry that its manager had before it."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self.first_index = 1
        """Index of the first entry that is held. Those before it are gone: a snapshot stands for them."""
        self._epoch_before = 0
        """Epoch of the entry before the first one that is held."""
        self._snapshot: Entry | None = None
        self.snapshot_index = 0
        """Index of the entry that stands for itself and all before it; 0 without one."""
        self._configurations: list[tuple[int, ConfigureRecord]] = []
        self._fences: dict[Ledger, int] = {}
        """Index of the last entry that fences a ledger."""
        self.added_bytes = 0
        """Bytes of all entries that were ever added."""
        self._expected = _Expected(0, 0, 0)
        self.membership = Membership()
        """The configurations that count, committed or not: those of the newest CONFIGURE records."""
        self.written = 0
        """Index through which the log was given to the store."""
        self.on_disk = 0
        """Index through which the log is on disk."""
        self.committed = 0
        """Index through which the log can never change."""

    @property
    def last_index(self) -> int:
        return self.first_index - 1 + len(self._entries)

    @property
    def last_epoch(self) -> int:
        return self._entries[-1].epoch if self._entries else self._epoch_before

    def entry(self, index: int) -> Entry:
        """Return the entry at an index from `first_index` to `last_index`, or the snapshot at its index."""
        if index < self.first_index:
            assert self._snapshot is not None
            assert index == self.snapshot_index
            return self._snapshot
        return self._entries[index - self.first_index]

    @property
    def snapshot(self) -> Entry | None:
        """The entry that stands for all up to `snapshot_index`."""
        return self._snapshot

    def epoch_at(self, index: int) -> int:
        """Return the epoch of an entry; 0 for index 0, and -1 beyond the end and for entries that are gone."""
        at = index - self.first_index
        if at >= len(self._entries) or at < -1:
            return -1
        return self._entries[at].epoch if at >= 0 else self._epoch_before

    def next_after(self, index: int) -> int:
        """Return the index of the entry after another one, or that of the snapshot if that entry is gone."""
        return index + 1 if index + 1 >= self.first_index else self.snapshot_index

    def offer(self, epoch: int, index: int, entry: Entry, promised: int) -> Appended:
        """Add an entry if it follows the entry that its manager had before it.

        Only an entry of the promised epoch, or one that such an entry named before, replaces others. An entry of an
        older manager may be added, as if it had come in time, but it takes nothing away.
        """
        if index < 1:
            return Appended.REFUSED
        if index < self.first_index or self.epoch_at(index) == epoch:
            return Appended.KNOWN
        before = entry.body.previous_epoch
        if before > epoch or (index == 1 and before):
            return Appended.REFUSED
        has_authority = epoch == promised or self._expected == _Expected(promised, index, epoch)
        if has_authority:
            self._expect(promised, index - 1, before)
        if index > self.last_index + 1:
            return Appended.GAP
        if self.epoch_at(index - 1) != before:
            if has_authority and index - 1 > self.committed:
                self._truncate(index - 2)
                return Appended.GAP
            return Appended.REFUSED
        if index <= self.last_index:
            if not has_authority or index <= self.committed:
                return Appended.REFUSED
            self._truncate(index - 1)
        self.add(entry)
        return Appended.ADDED

    def _expect(self, promised: int, index: int, epoch: int) -> None:
        """Note what the manager has at an index. Of several such entries that are missing, the first one counts."""
        known = self._expected
        is_open = known.promised == promised and self.epoch_at(known.index) != known.epoch
        if self.epoch_at(index) != epoch and not (is_open and known.index < index):
            self._expected = _Expected(promised, index, epoch)

    def next_wanted(self, promised: int) -> int:
        """Return the index of the first entry that has to be fetched."""
        known = self._expected
        if known.promised == promised and self.epoch_at(known.index) != known.epoch:
            return min(known.index, self.last_index + 1)
        return self.last_index + 1

    def add(self, entry: Entry) -> int:
        """Append an entry of the member itself, or one that is known to follow. Return its index."""
        self._entries.append(entry)
        self.added_bytes += len(entry.data)
        index = self.last_index
        for record in entry.body.records:
            if isinstance(record, ConfigureRecord):
                self._configurations.append((index, record))
                self._count_configurations()
            elif isinstance(record, FenceRecord):
                self._fences[record.ledger] = index
        return index

    def _truncate(self, last: int) -> None:
        """Drop all entries behind `last`. Other entries will take their places."""
        del self._entries[last + 1 - self.first_index :]
        self._fences = {ledger: at for ledger, at in self._fences.items() if at <= last}
        self.written, self.on_disk = min(self.written, last), min(self.on_disk, last)
        while self._configurations and self._configurations[-1][0] > last:
            self._configurations.pop()
        self._count_configurations()

    def _count_configurations(self) -> None:
        newest = [record for _, record in self._configurations[-2:]]
        self.membership = Membership(tuple(newest if newest and not newest[-1].is_complete else newest[-1:]))

    def next_unwritten(self) -> Entry | None:
        """Return the first entry that the store has not been given, or None."""
        return self.entry(self.written + 1) if self.written < self.last_index else None

    def note_on_disk(self, epoch: int, index: int) -> None:
        """Note that an entry is on disk. It may have been replaced meanwhile, or follow one that the disk refused."""
        if index == self.on_disk + 1 and self.epoch_at(index) == epoch:
            self.on_disk = index

    def note_refused(self, epoch: int, index: int) -> None:
        """Note that the disk had no room for an entry after all: it is to be written again, with all behind it."""
        if self.epoch_at(index) == epoch:
            self.written = min(self.written, index - 1)

    def configuration_at(self, index: int) -> ConfigureRecord | None:
        """Return the newest configuration in the entries through an index."""
        return next((record for at, record in reversed(self._configurations) if at <= index), None)

    def configuration_index(self) -> int:
        """Return the index of the newest CONFIGURE record; 0 without one."""
        return self._configurations[-1][0] if self._configurations else 0

    def fence_index(self, ledger: Ledger) -> int:
        """Return the index of the last entry that fences a ledger; 0 if there is none."""
        return self._fences.get(ledger, 0)

    def forget_fence(self, ledger: Ledger) -> None:
        """Forget where a ledger was fenced, because it is closed."""
        self._fences.pop(ledger, None)

    def fenced(self, after: int) -> list[Ledger]:
        """Return the ledgers that entries behind an index fence."""
        return [ledger for ledger, index in self._fences.items() if index > after]

    @property
    def hashes_ahead(self) -> list[int]:
        """Destinations of the subscriptions that are in the log and not committed.

        Their frames are kept: a publisher knows of a subscription when it is committed, and then W members have it.
        """
        return [
            record.subscription.destination.frame_hash
            for record in self._tables_after(self.committed)
            if record.is_added
        ]

    @property
    def table_version_ahead(self) -> int:
        """Newest version of the table that is in the log and not committed; 0 without one."""
        return max((record.version for record in self._tables_after(self.committed)), default=0)

    def versions_after(self, index: int) -> list[int]:
        """Return the versions of the table in the entries behind an index, as far as they are held."""
        return [record.version for record in self._tables_after(index)]

    def _tables_after(self, index: int) -> Iterator[TableRecord]:
        return (
            record
            for at in range(max(index + 1, self.first_index), self.last_index + 1)
            for record in self.entry(at).body.records
            if isinstance(record, TableRecord)
        )

    # Snapshots

    def configurations_at(self, index: int) -> list[tuple[int, ConfigureRecord]]:
        """Return the configurations through an index that may count, with the indexes of their entries."""
        return [each for each in self._configurations if each[0] <= index][-2:]

    def fences_at(self, index: int) -> list[tuple[int, Ledger]]:
        """Return the ledgers that entries through an index fence, with the indexes of these entries."""
        return sorted((at, ledger) for ledger, at in self._fences.items() if at <= index)

    def restore(self, configurations: list[tuple[int, ConfigureRecord]], fences: list[tuple[int, Ledger]]) -> None:
        """Take what a snapshot tells of the entries before it."""
        self._configurations = configurations
        self._fences = {ledger: at for at, ledger in fences}
        self._count_configurations()

    def begin_with(self, index: int, entry: Entry) -> None:
        """Put the snapshot of another log in place of all entries. It is still to be written."""
        self._entries.clear()
        self.first_index, self._epoch_before = index + 1, entry.epoch
        self._snapshot, self.snapshot_index = entry, index
        self.written = self.on_disk = index - 1
        self.committed = index

    def shorten(self, index: int, entry: Entry) -> None:
        """Take a snapshot of one's own that is on disk, and drop the entries through the one before.

        Those between the two are held for members that lag a little.
        """
        before = self.snapshot_index
        if before >= self.first_index:
            self._epoch_before = self.epoch_at(before)
            del self._entries[: before + 1 - self.first_index]
            self.first_index = before + 1
        self._snapshot, self.snapshot_index = entry, index


def spans_of(record: Record) -> list[Span]:
    """Return the frames that a decision refers to."""
    match record:
        case HandRecord():
            return [_span(hand.range) for hand in record.hands]
        case MoveRecord() | ExpireRecord():
            return [_span(record.range)]
        case ApplyRecord():
            return [Span(record.ledger, verdict.sequence, verdict.sequence + 1) for verdict in record.verdicts]
        case CloseRecord():
            return [Span(record.ledger, first, last + 1) for first, last in record.final]
        case _:
            return []


def _span(each: Range) -> Span:
    return Span(each.ledger, each.first, each.last + 1)
