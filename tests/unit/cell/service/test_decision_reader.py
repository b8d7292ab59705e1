"""Tests of how a client reads decisions: in order, each once, and nothing that another manager wrote in vain."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from single_keepers import CELL_ID, body, heartbeat

from fjm2.base.ledger import Ledger
from fjm2.cell.service.reader import ENTRIES_MAX, CommittedEntry, DecisionReader
from fjm2.cell.wire.commands import Heartbeat, decode_command
from fjm2.cell.wire.ranges import DECISION_LANE, Range
from fjm2.cell.wire.records import OpenRecord, SectionRecord, TimeRecord


def beat(reader: DecisionReader, epoch: int, number: int, committed: int) -> None:
    command = decode_command(heartbeat(epoch, number, committed=committed))
    assert isinstance(command, Heartbeat)
    reader.receive_heartbeat(command)


def times(reader: DecisionReader) -> list[tuple[int, int]]:
    """Return index and time of each entry that is read."""
    return [
        (entry.index, record.milliseconds)
        for entry in reader.read()
        for record in entry.records
        if isinstance(record, TimeRecord)
    ]


def test_it_begins_at_what_is_committed_then() -> None:
    reader = DecisionReader()
    reader.receive_entry(1, 3, body(1, TimeRecord(3)))
    beat(reader, 1, 1, 3)
    assert times(reader) == []
    reader.receive_entry(1, 4, body(1, TimeRecord(4)))
    assert times(reader) == []  # it is not committed
    beat(reader, 1, 2, 4)
    assert times(reader) == [(4, 4)]
    assert times(reader) == []


def test_what_another_manager_wrote_in_vain_is_not_read() -> None:
    reader = DecisionReader()
    beat(reader, 1, 1, 1)
    reader.receive_entry(1, 2, body(1, TimeRecord(2)))
    reader.receive_entry(1, 3, body(1, TimeRecord(666)))  # of a manager that was cut off
    reader.receive_entry(2, 3, body(1, OpenRecord()))
    reader.receive_entry(2, 4, body(2, TimeRecord(4)))
    beat(reader, 2, 1, 4)
    assert times(reader) == [(2, 2), (4, 4)]
    beat(reader, 1, 99, 9)  # the old manager goes on for a moment
    assert times(reader) == []


def test_a_missing_entry_is_asked_for_and_nothing_behind_it_is_read() -> None:
    reader = DecisionReader()
    beat(reader, 1, 1, 1)
    reader.receive_entry(1, 2, body(1, TimeRecord(2)))
    reader.receive_entry(1, 4, body(1, TimeRecord(4)))
    beat(reader, 1, 2, 4)
    assert times(reader) == []
    fetch = reader.poll_fetch(9, 1.0)
    assert fetch is not None
    assert (fetch.reply_to, fetch.ranges) == (9, (Range(Ledger(CELL_ID, 1, DECISION_LANE), 2, 2),))
    assert reader.poll_fetch(9, 1.05) is None
    reader.receive_entry(1, 3, body(1, TimeRecord(3)))
    assert reader.poll_fetch(9, 2.0) is None
    assert times(reader) == [(2, 2), (3, 3), (4, 4)]


def test_an_entry_of_a_wrong_epoch_is_asked_for() -> None:
    reader = DecisionReader()
    beat(reader, 1, 1, 1)
    reader.receive_entry(1, 2, body(1, TimeRecord(666)))
    beat(reader, 3, 1, 2)
    assert times(reader) == []
    assert reader.poll_fetch(9, 1.0) is not None


def test_an_entry_of_a_wrong_epoch_is_asked_for_however_far_behind_the_others_it_is() -> None:
    """A client that has another entry there lacks the right one all the same."""
    reader = DecisionReader()
    beat(reader, 1, 1, 1)
    for index in range(2, 101):
        reader.receive_entry(1, index, body(1, TimeRecord(index)))  # the last one of a manager that was cut off
    for index in range(101, 201):
        reader.receive_entry(3, index, body(2 if index == 101 else 3, TimeRecord(index)))
    beat(reader, 3, 1, 200)
    assert times(reader) == []
    fetch = reader.poll_fetch(9, 1.0)
    assert fetch is not None
    assert fetch.ranges[0].first <= 100 <= fetch.ranges[0].last < fetch.ranges[0].first + 64
    reader.receive_entry(2, 100, body(1, TimeRecord(100)))
    assert [index for index, _ in times(reader)] == list(range(2, 201))


def test_memory_is_bounded_whatever_comes() -> None:
    reader = DecisionReader()
    beat(reader, 1, 1, 0)
    for index in range(1, 3 * ENTRIES_MAX):
        reader.receive_entry(index % 3, index, body(0, TimeRecord(index)))
        reader.receive_entry(9, index % 100 + 1, b"odd")
    beat(reader, 7, 1, (1 << 63) - 1)
    assert times(reader) == []
    fetch = reader.poll_fetch(9, 1.0)
    assert fetch is not None
    assert fetch.ranges[0].count <= ENTRIES_MAX


@given(st.integers(0, 1 << 32))
def test_entries_in_any_order_are_read_in_theirs(seed: int) -> None:
    random = Random(seed)
    entries = [(1, index, body(1, TimeRecord(index))) for index in range(1, 30)] * 2
    random.shuffle(entries)
    reader = DecisionReader()
    beat(reader, 1, 1, 0)
    found = []
    for number, entry in enumerate(entries, 2):
        reader.receive_entry(*entry)
        beat(reader, 1, number, random.randint(0, 29))
        found += times(reader)
    beat(reader, 1, 1000, 29)
    found += times(reader)
    assert found == [(index, index) for index in range(1, 30)]


def test_a_snapshot_is_read_in_place_of_entries_that_are_gone() -> None:
    reader = DecisionReader()
    beat(reader, 1, 1, 1)
    beat(reader, 1, 2, 9)
    for index in (7, 8, 9):
        reader.receive_entry(1, index, body(1, TimeRecord(index)))
    assert times(reader) == []
    snapshot = SectionRecord("time/1", b"")
    reader.receive_entry(1, 7, body(1, snapshot))
    assert list(reader.read()) == [
        CommittedEntry(7, (snapshot,)),
        CommittedEntry(8, (TimeRecord(8),)),
        CommittedEntry(9, (TimeRecord(9),)),
    ]
    assert reader.index == 9


def test_a_snapshot_is_not_read_if_all_entries_are_there() -> None:
    reader = DecisionReader()
    beat(reader, 1, 1, 1)
    for index in (2, 3):
        reader.receive_entry(1, index, body(1, TimeRecord(index)))
    reader.receive_entry(1, 3, body(1, SectionRecord("time/1", b"")))
    assert list(reader.read()) == []
    beat(reader, 1, 2, 3)
    assert times(reader) == [(2, 2), (3, 3)]


def test_entries_after_a_snapshot_far_ahead_are_asked_for() -> None:
    reader = DecisionReader()
    far = 3 * ENTRIES_MAX
    beat(reader, 1, 1, 1)
    beat(reader, 1, 2, far + 1)
    reader.receive_entry(1, far, body(1, SectionRecord("time/1", b"")))
    fetch = reader.poll_fetch(5, 0.0)
    assert fetch is not None
    assert fetch.ranges == (Range(Ledger(CELL_ID, 1, DECISION_LANE), far + 1, 1),)
    reader.receive_entry(1, far + 1, body(1, TimeRecord(1)))
    assert [entry.index for entry in reader.read()] == [far, far + 1]


def test_nothing_is_asked_for_that_a_snapshot_stands_for() -> None:
    reader = DecisionReader()
    beat(reader, 1, 1, 1)
    beat(reader, 1, 2, 5)
    reader.receive_entry(1, 7, body(1, SectionRecord("time/1", b"")))
    assert reader.poll_fetch(5, 0.0) is None
    assert list(reader.read()) == []
    beat(reader, 1, 3, 7)
    assert [entry.index for entry in reader.read()] == [7]
