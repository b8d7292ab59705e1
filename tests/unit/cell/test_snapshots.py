"""Tests of snapshots: one entry in place of all before it, on disk, in memory, and for members that lag."""

from random import Random
from typing import Any

import pytest
from single_keepers import BUS_KEY, CELL_ID, FOUNDED, LEDGER, ME, MEMBERS, Store, body, cell, sent

from fjm2.base.errors import ConfigError
from fjm2.base.ledger import Ledger
from fjm2.cell.cell import Cell
from fjm2.cell.context import Context
from fjm2.cell.decision_log import Appended
from fjm2.cell.ledger_table import Span
from fjm2.cell.outgoing import SendEntry, State, TableChanged
from fjm2.cell.replica import Remembered, Replica, StoredEntry, last_chain
from fjm2.cell.service.section import ServiceSection
from fjm2.cell.wire.commands import Fetch, VoteAnswer, VoteFlag
from fjm2.cell.wire.ranges import DECISION_LANE, Range
from fjm2.cell.wire.records import (
    CloseRecord,
    ConfigureRecord,
    EntryBody,
    FenceRecord,
    OpenRecord,
    SectionRecord,
    Subscription,
    TableRecord,
    TimeRecord,
    decode_entry,
)
from fjm2.cell.wire.requests import Place

SUBSCRIPTION = Subscription(1, Place(0, "topic"), "client", "name", "")
CLOSED = Ledger(7, 0, 1)
ENTRIES = [
    body(0, OpenRecord()),
    body(1, TableRecord(1, True, SUBSCRIPTION, ()), FenceRecord(CLOSED), FenceRecord(LEDGER)),
    body(1, TimeRecord(5000), CloseRecord(CLOSED, ((1, 2),))),
    body(1, ConfigureRecord(257, 3, MEMBERS[1:4], False)),
    body(1, TimeRecord(6000)),
]
LAST = 1 + len(ENTRIES)
"""Index of the last of these entries. The founding is the first one."""


class Member:
    """A member of the cell, with a store that syncs when the test says so."""

    def __init__(self, remembered: Remembered | None = None, sections: Any = (), snapshot_entries: int = 4) -> None:
        self.store = Store()
        self.context = Context(ME, 1, BUS_KEY, self.store, Random(1))
        remembered = remembered or Remembered(CELL_ID, 1, entries=(FOUNDED,))
        self.held = Replica(self.context, remembered, 0.0, sections=sections, snapshot_entries=snapshot_entries)

    def sync(self) -> None:
        self.held.handle_synced(self.store.lsn)

    def decide(self, entries: list[bytes] = ENTRIES, first: int = 2) -> None:
        """Take entries of epoch 1, and commit them. The frames that they refer to are on disk."""
        self.held.store_frames(CLOSED, 1, [b"1", b"2"], 0.0, is_fetched=True)
        for index, data in enumerate(entries, first):
            assert self.held.offer_entry(1, index, data, 0.0) is Appended.ADDED
        self.sync()
        self.held.commit(first + len(entries) - 1, 0.0)

    def snapshot(self) -> StoredEntry:
        """Take a snapshot, and return it as the store has it."""
        self.held.take_snapshot()
        ledger, index, (data,) = self.store.writes[-1]  # type: ignore[misc]
        assert ledger == Ledger(CELL_ID, 1, DECISION_LANE)
        return StoredEntry(1, index, data)


def decided(sections: Any = ()) -> tuple[Member, StoredEntry]:
    """Return a member that has decided all entries, and its snapshot, on disk."""
    member = Member(sections=sections)
    member.decide()
    snapshot = member.snapshot()
    member.sync()
    return member, snapshot


def test_a_snapshot_is_taken_when_the_log_has_grown() -> None:
    member = Member(snapshot_entries=7)
    member.decide()
    writes = member.store.lsn
    member.held.take_snapshot()
    assert member.store.lsn == writes
    member.decide([body(1, TimeRecord(7000))], LAST + 1)
    assert member.snapshot().index == LAST + 1
    member.held.take_snapshot()  # one at a time
    assert member.snapshot().index == LAST + 1


def test_a_log_begins_with_its_snapshot_after_a_restart() -> None:
    member, snapshot = decided()
    assert member.store.released == [(CELL_ID, LAST)]
    held = {CLOSED: [(1, 3)]}
    spans = [Span(ledger, *span) for ledger, found in held.items() for span in found]
    again = Member(Remembered(CELL_ID, 1, entries=(snapshot,), spans=spans)).held
    assert again.decided_state == member.held.decided_state
    assert (again.log.first_index, again.log.last_index, again.log.committed) == (LAST + 1, LAST, LAST)
    assert (again.confirmable, again.log.on_disk, again.log.last_epoch) == (LAST, LAST, 1)
    assert again.table.subscriptions == [SUBSCRIPTION]
    assert again.ledgers.is_closed(CLOSED)
    assert again.ledgers.is_fenced(LEDGER)
    assert again.log.fence_index(LEDGER) == 3
    assert again.log.membership.number == 257
    assert [record.number for record in again.log.membership.configurations] == [1, 257]
    assert again.offer_entry(1, LAST + 1, body(1), 0.0) is Appended.ADDED


def test_the_driver_hears_of_the_subscriptions_of_a_snapshot() -> None:
    _, snapshot = decided()
    again = Member(Remembered(CELL_ID, 1, entries=(snapshot,)))
    assert TableChanged(1, True, SUBSCRIPTION, ()) in again.context.events


def test_a_snapshot_waits_for_the_frames_that_its_decisions_refer_to() -> None:
    member = Member()
    for index, data in enumerate(ENTRIES, 2):
        member.held.offer_entry(1, index, data, 0.0)
    member.sync()
    member.held.commit(LAST, 0.0)
    writes = member.store.lsn
    member.held.take_snapshot()
    assert member.store.lsn == writes
    member.held.store_frames(CLOSED, 1, [b"1", b"2"], 0.0, is_fetched=True)
    member.sync()
    assert member.snapshot().index == LAST


def test_a_member_that_lags_takes_the_snapshot_and_confirms_it_with_the_frames_it_refers_to() -> None:
    member, snapshot = decided()
    other = Member()
    assert other.held.offer_entry(1, LAST, snapshot.data, 1.0) is Appended.ADDED
    assert other.held.decided_state == member.held.decided_state
    other.sync()
    assert other.held.decision_progress().on_disk == 0
    assert other.held.lacking_references() == [Range(CLOSED, 1, 2)]
    other.held.store_frames(CLOSED, 1, [b"1", b"2"], 1.0, is_fetched=True)
    other.sync()
    assert other.held.decision_progress().on_disk == LAST
    assert other.store.writes[0] == (Ledger(CELL_ID, 1, DECISION_LANE), LAST, (snapshot.data,))
    assert other.held.offer_entry(1, LAST, snapshot.data, 1.0) is Appended.KNOWN
    assert other.held.offer_entry(1, 3, ENTRIES[1], 1.0) is Appended.KNOWN


def test_entries_of_another_branch_are_gone_with_a_snapshot() -> None:
    _, snapshot = decided()
    other = Member()
    other.held.offer_entry(0, 2, body(0, TimeRecord(1)), 0.0)
    other.held.offer_entry(1, LAST, snapshot.data, 1.0)
    assert (other.held.log.first_index, other.held.log.last_index) == (LAST + 1, LAST)
    stale = [StoredEntry(2, 2, body(0, OpenRecord())), StoredEntry(2, LAST + 1, body(2))]
    after = StoredEntry(1, LAST + 1, body(1))
    assert last_chain([FOUNDED, *stale, after, snapshot]) == [snapshot, after]


def test_a_snapshot_of_decisions_that_are_known_changes_nothing() -> None:
    member, snapshot = decided()
    other = Member()
    other.decide()
    assert other.held.offer_entry(1, LAST, snapshot.data, 1.0) is Appended.KNOWN
    assert other.held.log.first_index == 1
    behind = Member()
    for index, data in enumerate(ENTRIES, 2):
        behind.held.offer_entry(1, index, data, 0.0)
    behind.held.offer_entry(1, LAST, snapshot.data, 1.0)
    assert behind.held.log.committed == LAST  # a snapshot is of committed decisions
    assert member.held.decided_state == behind.held.decided_state


@pytest.mark.parametrize("name", ["table/1", "unknown/1"])
def test_a_snapshot_with_missing_or_unknown_sections_is_refused(name: str) -> None:
    _, snapshot = decided()
    found = decode_entry(snapshot.data)
    assert found is not None
    records = tuple(each for each in found.sections if each.name != name)
    if len(records) == len(found.sections):
        records = (*records, SectionRecord(name, b""))
    data = EntryBody(1, LAST, records).encode()
    other = Member()
    before = other.held.decided_state
    assert other.held.offer_entry(1, LAST, data, 1.0) is Appended.REFUSED
    assert (other.held.decided_state, other.held.log.last_index) == (before, 1)
    with pytest.raises(ConfigError, match="begins with a state that is not known, at index 6"):
        Member(Remembered(CELL_ID, 1, entries=(StoredEntry(1, LAST, data),)))


def test_a_snapshot_with_a_flipped_bit_is_refused() -> None:
    _, snapshot = decided()
    for at in range(20, len(snapshot.data), 7):
        data = bytearray(snapshot.data)
        data[at] ^= 1
        other = Member()
        before = other.held.decided_state
        assert other.held.offer_entry(1, LAST, bytes(data), 1.0) is Appended.REFUSED
        assert other.held.decided_state == before


def test_a_snapshot_without_room_is_taken_later() -> None:
    member = Member()
    member.decide()
    member.store.is_full, member.store.has_reserve = True, False
    member.held.take_snapshot()
    member.store.is_full = False
    assert member.snapshot().index == LAST
    member.store.refused = [member.store.lsn]
    member.sync()
    assert member.held.log.snapshot_index == 0
    assert member.snapshot().index == LAST
    member.sync()
    assert member.held.log.snapshot_index == LAST


def test_entries_between_the_last_two_snapshots_are_held_for_members_that_lag_a_little() -> None:
    member, _ = decided()
    assert member.held.log.first_index == 1
    member.decide([body(1, TimeRecord(7000 + n)) for n in range(4)], LAST + 1)
    member.snapshot()
    member.sync()
    assert (member.held.log.first_index, member.held.log.snapshot_index) == (LAST + 1, LAST + 4)
    assert member.held.log.epoch_at(LAST) == 1
    assert member.held.log.epoch_at(LAST - 1) == -1


class Notes:
    """A section of another part of the state."""

    name = "notes/1"

    def __init__(self) -> None:
        self.index: int | None = 0
        self.notes = b""

    def encode(self, index: int) -> bytes:
        assert index == self.index
        return self.notes

    def decode(self, data: bytes) -> bytes | None:
        return data

    def adopt(self, state: bytes, index: int, now: float) -> None:
        del now
        self.notes, self.index = state, index


def test_a_snapshot_has_the_sections_of_others_and_waits_until_they_are_as_far() -> None:
    notes = Notes()
    member = Member(sections=[notes])
    member.decide()
    notes.index, notes.notes = LAST - 1, b"older"
    writes = member.store.lsn
    member.held.take_snapshot()
    assert member.store.lsn == writes
    notes.index, notes.notes = LAST, b"noted"
    snapshot = member.snapshot()
    others = Notes()
    Member(Remembered(CELL_ID, 1, entries=(snapshot,)), sections=[others])
    assert (others.notes, others.index) == (b"noted", LAST)
    assert Member().held.offer_entry(1, LAST, snapshot.data, 1.0) is Appended.REFUSED  # it knows no notes


def manager(*entries: StoredEntry) -> Cell:
    """Return a member with these entries that the others voted for."""
    keeper, store = cell(*entries)
    for now in (0.8, 0.9):
        keeper.handle_timeout(now)
        for flags in (VoteFlag.PRE_VOTE | VoteFlag.GRANTED, VoteFlag.GRANTED):
            for voter in MEMBERS[1:3]:
                answer = VoteAnswer(
                    flags=flags,
                    epoch=2,
                    cell_id=CELL_ID,
                    candidate=ME.keeper_id,
                    configuration=257,
                    last_epoch=1,
                    last_index=LAST,
                    voter=voter,
                )
                keeper.receive(answer.encode(), 9, now)
            keeper.handle_synced(store.lsn, now)
    assert keeper.state is State.RECOVERING
    return keeper


def test_a_manager_sends_its_snapshot_for_entries_that_are_gone_and_not_too_often() -> None:
    service = ServiceSection()
    service.state.index = LAST
    _, snapshot = decided([service])
    after = StoredEntry(1, LAST + 1, body(1, TimeRecord(7000)))
    keeper = manager(snapshot, after)
    sent(keeper)
    fetch = Fetch(reply_to=9, cell_id=CELL_ID, ranges=(Range(Ledger(CELL_ID, 2, DECISION_LANE), 1, 99),)).encode()
    keeper.receive(fetch, 9, 1.2)
    first = [message for message in sent(keeper) if isinstance(message, SendEntry)]
    assert first[0] == SendEntry(1, LAST, snapshot.data)
    assert first[1] == SendEntry(1, LAST + 1, after.data)
    keeper.receive(fetch, 9, 1.4)
    again = [message for message in sent(keeper) if isinstance(message, SendEntry)]
    assert again == first[1:]


@pytest.mark.parametrize("is_synced", [True, False])
def test_a_ledger_that_a_snapshot_closes_may_lack_messages_to_the_subscriptions_that_it_adds(is_synced: bool) -> None:
    """The subscription may have been added before the ledger was closed: others tell what is missing of it."""
    _, snapshot = decided()
    member = Member()
    member.held.store_counted(CLOSED, 1, 4, 0.0, is_fetched=False)
    if is_synced:
        member.sync()
    assert member.held.offer_entry(1, LAST, snapshot.data, 0.0) is Appended.ADDED
    assert list(member.held.ledgers.doubts) == [(CLOSED, 1, 3)]  # nobody has anything from behind the final set


@pytest.mark.parametrize(("settled", "doubtful"), [(0, [(CLOSED, 1, 3)]), (1, [])])
def test_such_doubts_come_back_after_a_restart(settled: int, doubtful: list[tuple[Ledger, int, int]]) -> None:
    _, snapshot = decided()
    store = Store()
    store.counted[CLOSED] = [(1, 5)]
    remembered = Remembered(CELL_ID, 1, entries=(snapshot,), spans=[Span(CLOSED, 1, 5)], settled=settled)
    held = Replica(Context(ME, 1, BUS_KEY, store, Random(1)), remembered, 0.0)
    assert list(held.ledgers.doubts) == doubtful
