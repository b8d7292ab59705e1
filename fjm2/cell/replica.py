"""The holdings of a member: promise, decision log, ledgers and table; and how far all that is on disk."""

from collections import deque
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from fjm2.base.errors import ConfigError
from fjm2.base.ledger import Ledger

from .context import Context, Storage
from .decision_log import Appended, DecisionLog, Entry, spans_of
from .doubts.readiness import Asked, TableReadiness
from .fetches import Fetches
from .ledger_table import LedgerTable, Span
from .outgoing import Decided, SendStored, TableChanged
from .snapshots.sections import Section
from .snapshots.snapshots import SNAPSHOT_ENTRIES, Snapshots
from .subscription_table import SubscriptionTable
from .times import REMEMBERED_MS
from .wire.commands import Counted
from .wire.ranges import COUNT_MAX, DECISION_LANE, Position, Range
from .wire.records import (
    ApplyRecord,
    CloseRecord,
    EntryBody,
    Record,
    SectionRecord,
    TableRecord,
    TimeRecord,
    decode_entry,
)
from .wire.stored import LEDGERS_MAX, Progress, Stored, StoredFlag, progress_array

NOBODY: Final = bytes(16)
"""Keeper id in the promise of a member that has heard of an epoch and voted for nobody."""


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry of the decision log as the store holds it."""

    epoch: int
    index: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Remembered:
    """Content of a store at the start of its keeper."""

    cell_id: int = 0
    promised: int = 0
    voted_for: bytes = NOBODY
    entries: Sequence[StoredEntry] = ()
    """All entries of the decision log, also those that others replaced. Their order does not matter."""
    spans: Sequence[Span] = ()
    lsn: int = 0
    kept: Container[Ledger] = ()
    """Ledgers that have frames. They are not forgotten before the driver has told which of these are needed."""
    settled: int = 0
    """Version of the table through which no frames were in doubt."""
    incarnation: int = 0
    """Incarnation of the store when it was opened. It is an older one if it was renewed just then, because the disk had
    failed: that loses nothing that was confirmed."""


class _Promise(NamedTuple):
    epoch: int
    voted_for: bytes


@dataclass(frozen=True, slots=True)
class _EntryMark:
    epoch: int
    index: int


@dataclass(frozen=True, slots=True)
class _SnapshotMark:
    index: int


@dataclass(frozen=True, slots=True)
class _CountedMark:
    span: Span


@dataclass(frozen=True, slots=True)
class _LateMark:
    """Frames of sequences that were counted before, and are known already."""

    span: Span


@dataclass(slots=True)
class _Pending:
    """Something that waits for the disk."""

    lsn: int
    mark: Span | _CountedMark | _LateMark | _Promise | _EntryMark | _SnapshotMark


@dataclass(slots=True)
class Synced:
    """Kinds of things that have reached the disk."""

    producers: set[int] = field(default_factory=set)
    """Writers whose ledgers have progressed."""
    has_promise: bool = False
    has_entries: bool = False


class Replica:
    """Holds what a member has stored, and what its last word is."""

    def __init__(
        self,
        context: Context,
        remembered: Remembered,
        now: float,
        *,
        sections: Sequence[Section] = (),
        snapshot_entries: int = SNAPSHOT_ENTRIES,
    ) -> None:
        """Take up what a store holds. `sections` are further parts of the decided state, which snapshots have."""
        self._context = context
        self.log = DecisionLog()
        self.ledgers = LedgerTable()
        self.table = SubscriptionTable()
        self.promise = _Promise(remembered.promised, remembered.voted_for)
        """Newest promise, perhaps not on disk."""
        self.promised_on_disk = remembered.promised
        self.heartbeat = 0
        """Number of the newest heartbeat heard of the promised epoch."""
        self.is_full = False
        self.durable_lsn = remembered.lsn
        self.confirmable = 0
        """Index through which the log, and all that it refers to, is on disk."""
        self.readiness = TableReadiness(context, self.log, self.ledgers, self.table, remembered.settled)
        self._applied = 0
        self.snapshots = Snapshots(self.log, self.ledgers, self.table, sections, snapshot_entries)
        self._pending: deque[_Pending] = deque()
        self.fetches = Fetches(context)
        context.cell_id = remembered.cell_id
        self.ledgers.pinned = remembered.kept
        for span in remembered.spans:
            self.ledgers.restore(span, now)
        known = set(self.ledgers.open_ledgers)
        for stored in last_chain(remembered.entries):
            body = decode_entry(stored.data)
            if body is None:
                break
            entry = Entry(stored.epoch, body, stored.data)
            if not body.sections:
                self.log.add(entry)
            elif self.snapshots.adopt(stored.index, entry, now):
                self._applied = stored.index
            else:
                raise ConfigError(
                    f"the decision log begins with a state that is not known, at index {stored.index}: "
                    "expected one of this version; use a newer FJM2"
                )
        self.log.on_disk = self.log.written = self.log.last_index
        for ledger in self.log.fenced(0):
            self.ledgers.fence(ledger, now)
        self._advance_confirmable()
        if self.table.version > remembered.settled:  # that of a snapshot, which may have closed any ledger since
            added = [starts for _, starts in self.table.state.subscriptions]
            self.readiness.doubt(Asked(added, remembered.settled, known), ())
        starts: list[tuple[Position, ...]] = []
        for index in range(self.log.first_index, self.log.last_index + 1):
            starts += starts_asked(self.log.entry(index).body.records, remembered.settled)
        self.readiness.doubt(Asked(starts, remembered.settled), ())
        # Each entry tells what its manager knew as committed.
        indexes = range(self.log.first_index, self.log.last_index + 1)
        self.commit(max((self.log.entry(index).body.committed for index in indexes), default=0), now)
        self._tell_table()

    # Writing

    def store_promise(self, epoch: int, voted_for: bytes) -> bool:
        """Promise an epoch, and with it a vote. Return False if the store has no room for it."""
        lsn = self._context.storage.store_promise(self._context.cell_id, epoch, voted_for)
        if lsn is None:
            return False
        if epoch > self.promise.epoch:
            self.heartbeat = 0
        self.promise = _Promise(epoch, voted_for)
        self._pending.append(_Pending(lsn, self.promise))
        return True

    def store_frames(
        self,
        ledger: Ledger,
        first: int,
        frames: Sequence[bytes],
        now: float,
        *,
        is_fetched: bool,
        is_urgent: bool = False,
    ) -> bool:
        """Store the frames of a ledger that are new. Return False if there is no room for some of them."""
        has_room = True
        for span in self.ledgers.accept(ledger, first, len(frames), now, is_fetched=is_fetched):
            part = frames[span.first - first : span.end - first]
            lsn = self._context.storage.store_frames(
                ledger, span.first, part, is_fetched=is_fetched, is_urgent=is_urgent
            )
            self._note(span, span, lsn, now, is_fetched=is_fetched, is_urgent=is_urgent)
            has_room = has_room and lsn is not None
        for low, end in self.ledgers.doubts.begin_writing(ledger, first, first + len(frames)):
            span = Span(ledger, low, end)
            lsn = self._context.storage.store_late(ledger, low, frames[low - first : end - first])
            if lsn is None:
                self.fetches.note_refused(now)
                self.ledgers.doubts.end_writing(*span)
            else:
                self._pending.append(_Pending(lsn, _LateMark(span)))
        return has_room

    def store_counted(
        self, ledger: Ledger, first: int, count: int, now: float, *, is_fetched: bool, sure: int | None = None
    ) -> bool:
        """Store that sequences of a ledger need no keeping, as far as they are new. Return False if there is no room
        for that.

        What was heard is sure, as the driver looks at the newest subscriptions in the log. What was fetched may be
        hearsay, and no more sure than through the version `sure` of the table.
        """
        has_room = True
        if not is_fetched:
            self.ledgers.doubts.resolve(ledger, first, first + count)
        for span in self.ledgers.accept(ledger, first, count, now, is_fetched=is_fetched):
            size = span.end - span.first
            lsn = self._context.storage.store_counted(ledger, span.first, size, is_fetched=is_fetched)
            self._note(span, _CountedMark(span), lsn, now, is_fetched=is_fetched)
            has_room = has_room and lsn is not None
            if sure is not None and lsn is not None:
                self.ledgers.doubts.add(ledger, [span[1:]], sure, is_hearsay=True)
        return has_room

    def take_counted(self, message: Counted, now: float, *, is_trusted: bool) -> None:
        """Take another keeper's word that sequences need no keeping, unless its table is older than this one's.

        A manager, and whoever follows the sender, takes it all the same, and doubts it.
        """
        sure = None if self.readiness.vouches(message) else message.table_version
        for each in self.readiness.believe(message, is_trusted=is_trusted):
            self.store_counted(each.ledger, each.first, each.count, now, is_fetched=True, sure=sure)

    def _note(
        self,
        span: Span,
        mark: Span | _CountedMark,
        lsn: int | None,
        now: float,
        *,
        is_fetched: bool = False,
        is_urgent: bool = False,
    ) -> None:
        """Have sequences count when their batch is on disk. Without room they may come again."""
        # A frame that may use the reserve does not tell that there is room for messages.
        self.is_full = lsn is None or ((is_urgent or is_fetched) and self.is_full)
        if is_fetched and lsn is None:
            self.fetches.note_refused(now)
        if lsn is None:
            self.ledgers.drop_unsynced((span,))
            return
        if isinstance(mark, _CountedMark):
            self.ledgers.counting.add(span)
        self._pending.append(_Pending(lsn, mark))

    def offer_entry(self, epoch: int, index: int, data: bytes, now: float) -> Appended:
        """Take an entry of the decision log, if it follows what is there."""
        body = decode_entry(data)
        if body is None:
            return Appended.REFUSED
        if body.sections:
            return self._offer_snapshot(index, Entry(epoch, body, data), now)
        fenced_before, before = self.log.last_index, self.readiness.asked
        result = self.log.offer(epoch, index, Entry(epoch, body, data), self.promise.epoch)
        self.confirmable = min(self.confirmable, self.log.last_index)
        if result is Appended.ADDED:
            self._doubt(Asked(starts_asked(body.records, 0), before))
            self.write_entries()
            for ledger in self.log.fenced(min(fenced_before, index - 1)):
                self.ledgers.fence(ledger, now)
        return result

    def _offer_snapshot(self, index: int, entry: Entry, now: float) -> Appended:
        """Take a snapshot of committed decisions, unless they are known."""
        is_known = index <= self.log.committed or self.log.epoch_at(index) == entry.epoch
        if is_known and (index <= self.confirmable or not self.is_stuck):
            self.commit(index, now)
            return Appended.KNOWN
        known, before, was_open = self.table.state.subscriptions, self.table.version, set(self.ledgers.open_ledgers)
        if not self.snapshots.adopt(index, entry, now):
            return Appended.REFUSED
        added = [starts for each, starts in self.table.state.subscriptions if (each, starts) not in known]
        self._doubt(Asked(added, before, was_open))
        self._applied = index
        self.confirmable = min(self.confirmable, index - 1)
        self.write_entries()
        self._tell_table()
        return Appended.ADDED

    def _tell_table(self) -> None:
        """Tell the driver of the subscriptions that came with a snapshot."""
        state = self.table.state
        if self.log.snapshot is not None:
            for subscription, starts in state.subscriptions:
                self.readiness.note(state.version, True, subscription)
                self._context.events.append(TableChanged(state.version, True, subscription, starts))
            if not state.subscriptions:
                self.readiness.reach(state.version)

    def _doubt(self, asked: Asked) -> None:
        unsynced = (each.mark.span for each in self._pending if isinstance(each.mark, _CountedMark))
        self.readiness.doubt(asked, unsynced)

    def propose(self, epoch: int, records: tuple[Record, ...], now: float) -> int:
        """Append an entry as the manager of an epoch. Return its index."""
        body = EntryBody(self.log.last_epoch, self.log.committed, records)
        data = body.encode()
        index = self.log.add(Entry(epoch, body, data))
        self.write_entries()
        for ledger in self.log.fenced(index - 1):
            self.ledgers.fence(ledger, now)
        return index

    def write_entries(self) -> None:
        """Have entries of the log written that are not. Call it again while the store has no room.

        No entry is written before the one that it follows: a log with a hole is worth nothing after a restart.
        """
        while (entry := self.log.next_unwritten()) is not None:
            ledger, index = self.decision_ledger(entry.epoch), self.log.written + 1
            lsn = self._context.storage.store_frames(ledger, index, (entry.data,), is_urgent=True)
            if lsn is None:
                return
            self.log.written = index
            self._pending.append(_Pending(lsn, _EntryMark(entry.epoch, index)))

    def take_snapshot(self) -> None:
        """Have a snapshot written if one is due. It replaces the entry that it includes last, and all before it."""
        taken = self.snapshots.take(self._applied, self.confirmable)
        if taken is None:
            return
        index, entry = taken
        ledger = self.decision_ledger(entry.epoch)
        lsn = self._context.storage.store_frames(ledger, index, (entry.data,), is_urgent=True)
        if lsn is None:
            self.snapshots.withdraw()
        else:
            self._pending.append(_Pending(lsn, _SnapshotMark(index)))

    def decision_ledger(self, epoch: int) -> Ledger:
        """Return the ledger of the decision log of an epoch."""
        return Ledger(self._context.cell_id, epoch, DECISION_LANE)

    # Syncing

    def handle_synced(self, lsn: int) -> Synced:
        """Note that everything through a batch is on disk. Return what that changed."""
        synced = Synced()
        for refused in self._context.storage.poll_refused():
            self._handle_refused(refused)
        self.durable_lsn = max(self.durable_lsn, lsn)
        while self._pending and self._pending[0].lsn <= lsn:
            match self._pending.popleft().mark:
                case _Promise(epoch=epoch):
                    self.promised_on_disk = max(self.promised_on_disk, epoch)
                    synced.has_promise = True
                case _EntryMark(epoch=epoch, index=index):
                    self.log.note_on_disk(epoch, index)
                    if index == self.log.snapshot_index:
                        self._context.storage.release_decisions(self._context.cell_id, index)
                    synced.has_entries = True
                case _SnapshotMark(index=index):
                    if self.snapshots.handle_written(index):
                        self._context.storage.release_decisions(self._context.cell_id, index)
                case _CountedMark(span=span) | (Span() as span):
                    self.ledgers.note_on_disk(span)
                    synced.producers.add(span.ledger.producer_id)
                case _LateMark(span=span):
                    self.ledgers.doubts.end_writing(*span)
                    self.ledgers.doubts.resolve(*span)
        before = self.confirmable
        self._advance_confirmable()
        synced.has_entries = synced.has_entries or self.confirmable > before
        return synced

    def _handle_refused(self, lsn: int) -> None:
        """Take out what was in a batch that the disk had no room for: it may come again."""
        refused = [pending.mark for pending in self._pending if pending.lsn == lsn]
        self._pending = deque(pending for pending in self._pending if pending.lsn != lsn)
        for mark in refused:
            match mark:
                case _EntryMark(epoch=epoch, index=index):
                    self.log.note_refused(epoch, index)
                case _SnapshotMark():
                    self.snapshots.withdraw()
                case _CountedMark(span=span) | (Span() as span):
                    self.is_full = True
                    self.ledgers.drop_unsynced((span,))
                    self.ledgers.doubts.resolve(*span)  # it is not known any more
                case _LateMark(span=span):
                    self.is_full = True
                    self.ledgers.doubts.end_writing(*span)

    def _advance_confirmable(self) -> None:
        """A decision is confirmed only together with all that it refers to."""
        while self.confirmable < self.log.on_disk:
            index = self.log.next_after(self.confirmable)
            if index > self.log.on_disk or any(not self.ledgers.is_on_disk(*span) for span in self._spans_of(index)):
                return
            if lacks_requests(self.log, index, self.ledgers, self._context.storage):
                return
            self.confirmable = index

    def give_up_lacking(self) -> None:
        """Take for lost what decisions refer to and the disk lacks, because nobody else can have it."""
        indexes = range(self.log.first_index, self.log.last_index + 1)
        spans = [span for index in indexes for span in self._spans_of(index)]
        for ledger, final, _ in self.ledgers.closed_ledgers:
            spans += [Span(ledger, first, last + 1) for first, last in final]
        self.give_up(spans)
        self._advance_confirmable()

    def give_up(self, spans: Sequence[Span]) -> None:
        """Take what was not seen of some ranges for lost. To readers it is known to be no messages."""
        for ledger, first, end in spans:
            for gap in self.ledgers.missing(ledger, first, end):
                lost = Span(ledger, *gap)
                self.ledgers.lost.add(lost)
                self.ledgers.restore(lost, -inf)
                self.ledgers.note_on_disk(lost)

    @property
    def is_stuck(self) -> bool:
        """True if only a snapshot helps: the next entry grants a request that nobody else may have any more."""
        index = self.log.next_after(self.confirmable)
        return self.confirmable < self.log.on_disk and lacks_requests(
            self.log, index, self.ledgers, self._context.storage
        )

    def _spans_of(self, index: int) -> Iterator[Span]:
        if index < self.log.first_index:
            yield from self.snapshots.awaited
            return
        for record in self.log.entry(index).body.records:
            yield from spans_of(record)

    # Decisions

    @property
    def decided_state(self) -> tuple[int, tuple[SectionRecord, ...]]:
        """Index of the decision that was applied last, and the state after it."""
        return self._applied, self.snapshots.state(self._applied)

    def commit(self, index: int, now: float) -> None:
        """Apply all decisions through an index, which the log is known to share with that of the manager."""
        log = self.log
        log.committed = max(log.committed, min(index, log.last_index))
        while self._applied < log.committed:
            self._applied += 1
            entry = log.entry(self._applied)
            for record in entry.body.records:
                self._apply(record, now)
            self._context.events.append(Decided(entry.epoch, self._applied, entry.body.records))

    def _apply(self, record: Record, now: float) -> None:
        match record:
            case TimeRecord():
                time = self.snapshots.time
                time.milliseconds = max(time.milliseconds, record.milliseconds)
                for ledger in self.ledgers.forget_closed(time.milliseconds - REMEMBERED_MS):
                    self._context.storage.forget(ledger)
            case CloseRecord():
                self.ledgers.close(record.ledger, record.final, now, self.snapshots.time.milliseconds)
                self.log.forget_fence(record.ledger)
            case TableRecord():
                if self.table.apply(record):
                    event = TableChanged(record.version, record.is_added, record.subscription, record.starts)
                    self.readiness.note(record.version, record.is_added, record.subscription)
                    self._context.events.append(event)
            case _:
                pass  # for the queue manager, which gets all decisions as events

    # Answers

    def send_stored(self, to_node: int, ledgers: Sequence[Progress]) -> None:
        """Tell a node how far ledgers are stored."""
        context = self._context
        # Those who are told that the store is full send nothing that would show that it is not.
        self.is_full = self.is_full and not context.storage.has_room
        configuration = self.log.configuration_at(self.log.on_disk)
        is_member = configuration is not None and context.me in configuration.members
        stored = Stored(
            flags=(StoredFlag.FULL if self.is_full else 0) | (0 if is_member else StoredFlag.DOES_NOT_COUNT),
            configuration=0 if configuration is None else configuration.number,
            cell_id=context.cell_id,
            keeper_id=context.me.keeper_id,
            incarnation=context.me.incarnation,
            table_version=self.readiness.version,
            durable_lsn=self.durable_lsn,
            promised_epoch=self.promised_on_disk,
            heartbeat=self.heartbeat if self.promise.epoch == self.promised_on_disk else 0,
            ledgers=progress_array(ledgers[-LEDGERS_MAX:]),
        )
        context.outgoing.append(SendStored(to_node, stored))

    def full_progress(self) -> list[Progress]:
        """Return the progress of the decision log and of all open ledgers."""
        return [self.decision_progress(), *(self.ledgers.progress(ledger) for ledger in self.ledgers.open_ledgers)]

    def decision_progress(self) -> Progress:
        """Return how far the log of the promised epoch is stored; 0 before its first entry is."""
        epoch = self.promised_on_disk
        on_disk = self.confirmable if self.log.epoch_at(self.confirmable) == epoch else 0
        return Progress(self.decision_ledger(epoch), on_disk, max(on_disk, self.log.on_disk if on_disk else 0))

    def fetch_decisions(self, through: int, now: float) -> None:
        """Ask the manager for the entries that are missing, unless it was done a moment ago."""
        first = self.confirmable + 1 if self.is_stuck else self.log.next_wanted(self.promise.epoch)
        if first <= through:
            ledger, count = self.decision_ledger(self.promise.epoch), min(through - first + 1, COUNT_MAX)
            self.fetches.ask_for_decisions(Range(ledger, first, count), now)

    def lacking(self, progresses: Sequence[Progress], now: float) -> list[Range]:
        """Return what another keeper has on disk, and this one has not seen and does not wait for."""
        return [
            Range(ledger, first, min(end - first, COUNT_MAX))
            for ledger, on_disk, _, is_closed in progresses
            if ledger.lane != DECISION_LANE and not is_closed and not self.ledgers.is_closed(ledger)
            for first, end in self.ledgers.missing(ledger, 1, on_disk + 1, now)
        ]

    def lacking_references(self) -> list[Range]:
        """Return what the next decision refers to, and this keeper has not seen."""
        if self.confirmable >= self.log.on_disk:
            return []
        return [
            Range(span.ledger, first, min(end - first, COUNT_MAX))
            for span in self._spans_of(self.log.next_after(self.confirmable))
            for first, end in self.ledgers.missing(*span)
        ]


def starts_asked(records: Sequence[Record], settled: int) -> list[tuple[Position, ...]]:
    """Return the starts of subscriptions that records add in versions behind one of the table."""
    return [
        each.starts for each in records if isinstance(each, TableRecord) and each.is_added and each.version > settled
    ]


def lacks_requests(log: DecisionLog, index: int, ledgers: LedgerTable, storage: Storage) -> bool:
    """Return True if an entry grants a request whose frame is not here, though its sequence is known: the others have
    released it, because their logs have the entry no more."""
    return index >= log.first_index and any(
        not storage.live(record.ledger, verdict.sequence, verdict.sequence + 1)
        for record in log.entry(index).body.records
        if isinstance(record, ApplyRecord)
        for verdict in record.verdicts
        if not verdict.reason
        and ledgers.is_on_disk(record.ledger, verdict.sequence, verdict.sequence + 1)
        and (record.ledger, verdict.sequence) not in ledgers.lost
    )


def last_chain(entries: Sequence[StoredEntry]) -> list[StoredEntry]:
    """Return the log that stored entries make: the newest one, and what each entry says was before it.

    Entries that were replaced are still in the store. The newest epoch decides: its manager had all that is before. An
    entry without one before it was never confirmed, because the disk had no room for that one.
    """
    before: dict[tuple[int, int], tuple[int, int]] = {}
    known: dict[tuple[int, int], StoredEntry] = {}
    for entry in sorted(entries, key=lambda each: each.index):
        body = decode_entry(entry.data)
        if body is None:
            continue
        at = (entry.epoch, entry.index)
        previous = (body.previous_epoch, entry.index - 1)
        if body.sections:
            # A snapshot is of committed decisions: what is before it, or beside it, counts no more.
            known, before = {at: entry}, {at: (-1, 0)}
        elif entry.index == 1 or previous in known:
            known[at], before[at] = entry, previous
    chain: list[StoredEntry] = []
    last = max(known, default=None)
    while last in known:
        chain.append(known[last])
        last = before[last]
    return chain[::-1]
