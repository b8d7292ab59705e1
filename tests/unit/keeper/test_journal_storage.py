"""Tests of the journal as a cell's storage: what is written is what a keeper remembers at its next start."""

import errno
from random import Random

import pytest
from stores import SMALL, Store

from fjm2.base.errors import JournalError
from fjm2.base.ledger import Ledger
from fjm2.cell.ledger_table import Span
from fjm2.cell.replica import NOBODY, Remembered, StoredEntry
from fjm2.cell.wire.fields import Member
from fjm2.cell.wire.ranges import DECISION_LANE
from fjm2.cell.wire.records import EntryBody, SectionRecord, TimeRecord
from fjm2.keeper.storage import JournalStorage, member_of
from fjm2.store.config import Need, StoreConfig
from fjm2.store.journal import Journal

CELL = 77
VOTED = bytes(range(16))
WRITER = Ledger(5, 0, 1)
FOUNDED, OPENED, DECIDED = (EntryBody(0, 0, (TimeRecord(time),)).encode() for time in range(3))
LONG = EntryBody(0, 0, (SectionRecord("part", bytes(2000)),)).encode()


def decisions(epoch: int, cell_id: int = CELL) -> Ledger:
    return Ledger(cell_id, epoch, DECISION_LANE)


def remembered(store: Store) -> Remembered:
    """Return what the store holds after its process was killed."""
    store.kill()
    return store.remember()


def test_an_empty_store_remembers_nothing() -> None:
    store = Store()
    assert store.remember() == Remembered(entries=[], spans=[], kept=set())
    assert member_of(store.journal) == Member(store.journal.identity.keeper_id, store.journal.identity.incarnation)


def test_frames_promises_and_decisions_of_all_epochs_are_remembered() -> None:
    store = Store()
    storage = store.storage
    assert storage.store_frames(WRITER, 1, [b"one", b"two"]) == 1
    assert storage.store_promise(CELL, 3, VOTED) == 1
    assert storage.store_frames(decisions(0), 1, [FOUNDED], is_urgent=True) == 1
    store.sync()
    assert storage.store_frames(decisions(3), 2, [OPENED, DECIDED], is_urgent=True) == 2
    store.sync()
    found = remembered(store)
    assert (found.cell_id, found.promised, found.voted_for, found.lsn) == (CELL, 3, VOTED, 2)
    assert sorted(found.entries, key=lambda entry: entry.index) == [
        StoredEntry(0, 1, FOUNDED),
        StoredEntry(3, 2, OPENED),
        StoredEntry(3, 3, DECIDED),
    ]
    assert found.spans == [Span(WRITER, 1, 3)]


def test_the_highest_promise_counts() -> None:
    store = Store()
    store.storage.store_promise(CELL, 8, VOTED)
    store.storage.store_promise(CELL, 9, NOBODY)
    store.sync()
    found = remembered(store)
    assert (found.promised, found.voted_for) == (9, NOBODY)


def test_the_cell_of_the_identity_counts_and_that_of_the_log_until_it_is_written() -> None:
    store = Store()
    store.storage.store_frames(WRITER, 1, [b"frame"])
    store.storage.store_promise(CELL, 1, VOTED)
    store.sync()
    assert remembered(store).cell_id == CELL
    store.journal.set_cell(CELL + 1)
    store.sync()
    found = remembered(store)
    assert (found.cell_id, found.promised, found.entries) == (CELL + 1, 0, [])


def test_counted_and_released_sequences_stay_known_and_are_not_live() -> None:
    store = Store()
    storage = store.storage
    storage.store_frames(WRITER, 1, [b"1", b"2", b"3"])
    storage.store_counted(WRITER, 4, 3)
    storage.store_frames(WRITER, 7, [b"7"])
    store.sync()
    storage.release(WRITER, [(2, 3)])
    store.checkpoint()
    found = remembered(store)
    assert found.spans == [Span(WRITER, 1, 8)]
    assert list(store.storage.live(WRITER, 1, 100)) == [(1, 2), (3, 4), (7, 8)]
    assert list(store.storage.live(Ledger(6, 0, 1), 1, 100)) == []


def test_what_was_not_synced_is_not_remembered_after_a_power_cut() -> None:
    for seed in range(20):
        store = Store(seed)
        store.storage.store_frames(WRITER, 1, [b"synced"])
        store.sync()
        store.storage.store_frames(WRITER, 2, [b"not"])
        write = store.journal.poll_write()
        assert write is not None
        store.power_cut()
        assert store.remember().spans == [Span(WRITER, 1, 2)]


def test_decisions_and_promises_go_on_when_there_is_no_room_for_frames() -> None:
    store = Store()
    storage, at = store.storage, 1
    while storage.store_frames(WRITER, at, [bytes(2000)]) is not None:
        store.sync()
        at += 1
    assert store.journal.is_full
    assert storage.store_counted(WRITER, at, 5) is None
    assert storage.store_promise(CELL, 1, VOTED) is not None
    assert storage.store_frames(decisions(1), 1, [LONG], is_urgent=True) is not None
    assert storage.store_frames(WRITER, at, [bytes(2000)], is_urgent=True) is not None  # a request
    store.sync()
    assert remembered(store).promised == 1


def test_a_batch_that_the_disk_refused_is_told_once() -> None:
    store = Store()
    store.disk.capacity = store.disk_bytes() + 1000
    lsn = store.storage.store_frames(WRITER, 1, [bytes(SMALL.segment_bytes)])
    assert lsn is not None
    store.sync()
    assert store.storage.poll_refused() == [lsn]
    assert store.storage.poll_refused() == []
    assert store.journal.lsn == lsn
    assert remembered(store).spans == []


def test_a_journal_that_has_failed_takes_nothing() -> None:
    store = Store()
    store.journal.handle_failed(OSError(errno.EIO, "failed"))
    assert store.storage.store_frames(WRITER, 1, [b"1"]) is None
    assert store.storage.store_counted(WRITER, 1, 1) is None
    assert store.storage.store_promise(CELL, 1, VOTED) is None


def test_appends_go_through_the_function_that_was_given() -> None:
    store = Store()
    given: list[Need] = []

    def append(_runs: object, need: Need) -> int | None:
        given.append(need)
        return 5

    storage = JournalStorage(store.journal, append)
    assert storage.store_frames(WRITER, 1, [b"1"]) == 5
    assert storage.store_frames(decisions(1), 1, [b"1"], is_urgent=True) == 5
    assert storage.store_frames(WRITER, 2, [b"2"], is_fetched=True) == 5
    assert storage.store_counted(WRITER, 3, 1) == 5
    assert storage.store_counted(WRITER, 4, 1, is_fetched=True) == 5
    assert given == [Need.MESSAGE, Need.URGENT, Need.FETCHED, Need.MESSAGE, Need.FETCHED]


def test_long_logs_are_read_in_portions() -> None:
    store = Store(config=StoreConfig(segment_bytes=1 << 20, store_bytes_max=64 << 20))
    bodies = [EntryBody(1, 0, (SectionRecord("part", Random(n).randbytes(100_000)),)).encode() for n in range(40)]
    for index, data in enumerate(bodies, 1):
        store.storage.store_frames(decisions(1), index, [data], is_urgent=True)
        store.sync()
    assert [entry.data for entry in remembered(store).entries] == bodies


def test_a_decision_that_cannot_be_read_is_an_error() -> None:
    store = Store()
    store.storage.store_frames(decisions(1), 1, [DECIDED], is_urgent=True)
    store.sync()
    store.disk.fail = lambda call, _: errno.EIO if call == "pread" else 0
    with pytest.raises(JournalError, match=r"entry 1 of the decision log .* cannot be read"):
        store.remember()


def test_a_store_that_is_opened_anew_takes_the_same_sequences_no_second_time() -> None:
    store = Store()
    store.storage.store_frames(WRITER, 1, [b"first"])
    store.sync()
    store.storage.release(WRITER, [(1, 2)])
    store.checkpoint()
    store.kill()
    store.storage.store_frames(WRITER, 1, [b"again"])
    store.sync()
    assert not store.storage.live(WRITER, 1, 2)
    journal: Journal = store.journal
    assert list(journal.known(WRITER)) == [(1, 2)]


def test_a_decision_that_is_damaged_is_an_error() -> None:
    """Its batch came before the checkpoint, so that nothing verifies it."""
    store = Store()
    store.storage.store_frames(decisions(1), 1, [LONG], is_urgent=True)
    store.sync()
    store.checkpoint()
    name = next(name for name in store.disk.names() if LONG in store.disk.content(name))
    store.disk.flip(name, store.disk.content(name).index(LONG) + 500)
    store.disk.kill()
    with pytest.raises(JournalError, match=r"entry 1 of the decision log .* cannot be read"):
        remembered(store)


def test_a_snapshot_replaces_the_entry_at_its_index_and_the_entries_before_it() -> None:
    store = Store()
    for index in range(1, 6):
        store.storage.store_frames(decisions(index // 3), index, [DECIDED], is_urgent=True)
    store.sync()
    store.storage.store_frames(decisions(1), 5, [LONG], is_urgent=True)
    store.sync()
    store.storage.release_decisions(CELL, 5)
    assert [(entry.index, entry.data) for entry in store.remember().entries] == [(5, LONG)]
    # Before the next checkpoint the entries are back, and the snapshot is there all the same.
    found = remembered(store).entries
    assert sorted((entry.index, entry.data) for entry in found) == [*((n, DECIDED) for n in range(1, 5)), (5, LONG)]
    store.storage.release_decisions(CELL, 5)
    store.checkpoint()
    assert [(entry.index, entry.data) for entry in remembered(store).entries] == [(5, LONG)]
    assert list(store.journal.known(decisions(1))) == [(3, 6)]


def test_the_decisions_of_other_cells_and_frames_are_not_released_with_those_of_a_cell() -> None:
    store = Store()
    store.storage.store_frames(decisions(0, CELL + 1), 1, [DECIDED], is_urgent=True)
    store.storage.store_frames(WRITER, 1, [b"frame"])
    store.sync()
    store.storage.release_decisions(CELL, 9)
    assert store.storage.live(decisions(0, CELL + 1), 1, 2)
    assert store.storage.live(WRITER, 1, 2)


def test_frames_that_come_late_for_counted_sequences_are_there_after_a_restart() -> None:
    store = Store()
    store.storage.store_counted(WRITER, 1, 5)
    store.sync()
    store.storage.store_frames(WRITER, 2, [b"ignored"])
    store.storage.store_late(WRITER, 3, [b"three", b"four"])
    store.sync()
    assert list(store.storage.live(WRITER, 1, 9)) == [(3, 5)]
    assert remembered(store).spans == [Span(WRITER, 1, 6)]
    assert list(store.storage.live(WRITER, 1, 9)) == [(3, 5)]


def test_the_version_without_doubts_is_remembered() -> None:
    store = Store()
    store.storage.store_frames(decisions(0), 1, [FOUNDED], is_urgent=True)
    store.sync()
    assert store.remember().settled == 0
    for version in (2, 3):
        store.storage.store_settled(CELL, version)
        store.sync()
    found = remembered(store)
    assert (found.settled, len(found.entries), found.spans) == (3, 1, [])
