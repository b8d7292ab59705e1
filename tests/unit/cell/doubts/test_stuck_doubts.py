"""Tests of ledgers that stay in doubt: the manager closes them, without what cannot come any more."""

from typing import Any

import pytest
from single_keepers import CELL_ID, LEDGER, ME, MEMBERS, cell, heartbeat, replica, sent

from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet
from fjm2.cell.closing import HOLES_MAX, LedgerClosing
from fjm2.cell.doubts.repairs import Repairs
from fjm2.cell.fetches import FETCH_INTERVAL_S, FETCH_RANGES_MAX
from fjm2.cell.ledger_table import LedgerTable, Refusal, Span
from fjm2.cell.outgoing import SendCommand
from fjm2.cell.reports import Reports
from fjm2.cell.service.decided import Decided
from fjm2.cell.times import DOUBT_S
from fjm2.cell.wire.commands import Counted, CountedFlag, Fetch
from fjm2.cell.wire.fields import Member
from fjm2.cell.wire.ranges import DECISION_LANE, Range
from fjm2.cell.wire.records import (
    CloseRecord,
    ConfigureRecord,
    FenceRecord,
    OpenRecord,
    Record,
    Subscription,
    TableRecord,
)
from fjm2.cell.wire.requests import Place
from fjm2.cell.wire.stored import Progress, Stored, progress_array

EPOCH = 1
OTHERS = MEMBERS[1:3]
DOUBTED = CountedFlag.HEARSAY | CountedFlag.FENCED
TABLE = TableRecord(1, True, Subscription(1, Place(0, "topic"), "client", "name", ""), ())
LAST = 9


class Bench:
    """A manager that knows sequences through `LAST` of a ledger, and was told of some of them by a member in doubt.

    The members came together after the subscription that the doubt is about, or before it.
    """

    def __init__(self, *doubted: tuple[int, int], is_after: bool = True) -> None:
        self.held, self.store, self.context = replica()
        self.reports = Reports(EPOCH, CELL_ID)
        self.closing = LedgerClosing(self.context, self.held, self.reports, Decided())
        self.doubts = self.held.ledgers.doubts
        self.held.store_counted(LEDGER, 1, LAST, 0.0, is_fetched=False)
        self.doubts.add(LEDGER, doubted, is_hearsay=True)
        self.decide(OpenRecord())
        self.decide(TABLE)
        if is_after:
            self.decide(ConfigureRecord(257, 3, MEMBERS[:3], True))

    def decide(self, *records: Record) -> None:
        """Let the manager decide something that is committed at once."""
        index = self.held.propose(EPOCH, records, 0.0)
        self.held.handle_synced(self.store.lsn)
        self.held.commit(index, 0.0)

    def due(self, now: float = 1.0) -> list[Record]:
        """Return the FENCE and CLOSE records that are due."""
        return [each for each in self.closing.next_records(now) if isinstance(each, FenceRecord | CloseRecord)]

    def fence(self) -> None:
        """Let FENCE be decided, and confirmed by all members."""
        self.decide(FenceRecord(LEDGER))
        for member in OTHERS:
            index = self.held.log.last_index
            decisions = Progress(Ledger(CELL_ID, EPOCH, DECISION_LANE), index, index)
            stored = Stored(
                flags=0,
                configuration=1,
                cell_id=CELL_ID,
                keeper_id=member.keeper_id,
                incarnation=member.incarnation,
                table_version=0,
                durable_lsn=1,
                promised_epoch=EPOCH,
                heartbeat=1,
                ledgers=progress_array([decisions, Progress(LEDGER, LAST, LAST)]),
            )
            self.reports.note(stored, 2, 0.0, self.held.log.membership)

    def hear(self, member: Member, first: int, end: int, flags: int = DOUBTED) -> None:
        """Let a member say that it is in doubt, too."""
        ranges = (Range(LEDGER, first, end - first),)
        message = Counted(flags=flags, cell_id=CELL_ID, table_version=0, ranges=ranges)
        self.closing.lacks.note(message, member, self.held.log.membership)


def looked_at(bench: Bench, first: float, last: float) -> list[Record]:
    """Return the first decisions that are due from one time to another, with ten looks a second."""
    for tenth in range(round(10 * first), round(10 * last)):
        if due := bench.due(tenth / 10):
            return due
    return []


# Fencing


def test_a_ledger_that_stays_in_doubt_is_fenced() -> None:
    bench = Bench((3, 4))
    assert looked_at(bench, 1.0, 1.0 + DOUBT_S) == []
    assert looked_at(bench, 1.0 + DOUBT_S, 1.5 + DOUBT_S) == [FenceRecord(LEDGER)]


def test_a_ledger_whose_lowest_doubt_was_settled_gets_more_time() -> None:
    bench = Bench((3, 4), (5, 6))
    assert looked_at(bench, 1.0, 6.0) == []
    bench.doubts.resolve(LEDGER, 3, 4)
    assert looked_at(bench, 6.0, 6.0 + DOUBT_S) == []
    assert looked_at(bench, 6.0 + DOUBT_S, 6.5 + DOUBT_S) == [FenceRecord(LEDGER)]


def test_a_manager_that_was_held_up_counts_anew() -> None:
    bench = Bench((3, 4))
    assert looked_at(bench, 1.0, 6.0) == []
    assert looked_at(bench, 20.0, 20.0 + DOUBT_S) == []


def test_no_ledger_is_fenced_because_of_a_full_store() -> None:
    bench = Bench((3, 4))
    for tenth in range(300):
        bench.held.fetches.note_refused(tenth / 10)
        assert bench.due(tenth / 10) == []


# Closing


def test_what_no_member_has_is_no_part_of_the_final_set() -> None:
    bench = Bench((3, 5))
    bench.fence()
    for member in OTHERS:
        assert bench.due() == []
        bench.hear(member, 1, 9)
    assert bench.due() == [CloseRecord(LEDGER, ((1, 2), (5, LAST)))]


@pytest.mark.parametrize(("first", "flags"), [(3, int(CountedFlag.HEARSAY)), (4, int(DOUBTED))])
def test_a_ledger_is_not_closed_while_a_frame_may_come(first: int, flags: int) -> None:
    """A member that has not got FENCE may still get the frame from its writer."""
    bench = Bench((3, 5))
    bench.fence()
    bench.hear(OTHERS[0], 3, 5)
    bench.hear(OTHERS[1], first, 5, flags)
    assert bench.due() == []


def test_as_many_as_a_manager_reads_are_enough_if_they_were_members_before_the_subscription() -> None:
    bench = Bench((3, 5), is_after=False)
    bench.fence()
    bench.hear(OTHERS[0], 3, 5)
    assert bench.due() == [CloseRecord(LEDGER, ((1, 2), (5, LAST)))]


def test_a_member_that_took_another_one_s_place_proves_nothing() -> None:
    """Its predecessor may have had the frame, and a third member may still have it."""
    bench = Bench((3, 5))
    wiped = MEMBERS[2]._replace(incarnation=9)
    bench.decide(ConfigureRecord(258, 3, (ME, MEMBERS[1], wiped), True))
    bench.fence()
    bench.hear(wiped, 3, 5)
    assert bench.due() == []
    bench.hear(MEMBERS[1], 3, 5)
    assert bench.due() == [CloseRecord(LEDGER, ((1, 2), (5, LAST)))]


def test_members_say_it_again_in_another_configuration() -> None:
    bench = Bench((3, 5))
    bench.fence()
    bench.hear(OTHERS[0], 3, 5)
    bench.decide(ConfigureRecord(258, 3, MEMBERS[:3], True))
    bench.hear(OTHERS[1], 3, 5)
    assert bench.due() == []


def test_a_final_set_has_few_holes() -> None:
    bench = Bench()
    bench.held.store_counted(LEDGER, LAST + 1, 1000, 0.0, is_fetched=False)
    bench.held.handle_synced(bench.store.lsn)
    bench.doubts.add(LEDGER, [(each, each + 1) for each in range(3, 900, 2)], is_hearsay=True)
    bench.decide(FenceRecord(LEDGER))
    for member in OTHERS:
        bench.hear(member, 1, 1000)
    assert len(bench.closing._final_set(LEDGER)) == HOLES_MAX + 1
    assert sum(1 for _ in bench.doubts.within(LEDGER, 1, 1000)) == HOLES_MAX


def test_what_stays_in_doubt_after_the_end_waits_for_all_members() -> None:
    bench = Bench((3, 5), is_after=False)
    bench.decide(CloseRecord(LEDGER, ((1, LAST),)))
    bench.hear(OTHERS[0], 3, 5)
    bench.due()
    assert LEDGER in bench.doubts
    bench.hear(OTHERS[1], 3, 5)
    bench.due()
    assert LEDGER not in bench.doubts


# Members


def test_a_member_says_that_it_lacks_frames_of_a_fenced_ledger() -> None:
    keeper, store = cell()
    keeper.receive(heartbeat(1), 2, 1.0)
    keeper.receive_counted(LEDGER, 1, 5, 7, 1.0)
    keeper.handle_synced(store.lsn, 1.0)
    ledgers = keeper.replica.ledgers
    ledgers.doubts.add(LEDGER, [(2, 3)])
    ledgers.doubts.add(LEDGER, [(4, 5)], is_hearsay=True)
    ledgers.fence(LEDGER, 1.0)
    sent(keeper)
    keeper.receive(Fetch(reply_to=3, cell_id=CELL_ID, ranges=(Range(LEDGER, 2, 3),)).encode(), 3, 1.0)
    answers = {each.flags: each.ranges for each in sent(keeper) if isinstance(each, Counted)}
    assert answers == {
        0: (Range(LEDGER, 3, 1),),
        int(CountedFlag.FENCED): (Range(LEDGER, 2, 1),),
        int(DOUBTED): (Range(LEDGER, 4, 1),),
    }


def closed_with_a_hole() -> LedgerTable:
    table = LedgerTable()
    for first, count in ((1, 2), (4, 6)):  # number 3 was never heard of here
        table.accept(LEDGER, first, count, 0.0)
        table.note_on_disk(Span(LEDGER, first, first + count))
    table.doubts.add(LEDGER, [(2, 3), (5, 6)])
    table.close(LEDGER, ((1, 2), (4, 4), (6, 9)), 0.0, 0)
    return table


def test_a_writer_is_told_nothing_behind_a_hole_of_a_final_set() -> None:
    assert closed_with_a_hole().progress(LEDGER) == Progress(LEDGER, 2, 2, is_closed=True)


def test_readers_go_on_behind_a_hole_of_a_final_set() -> None:
    table = closed_with_a_hole()
    assert table.end_on_disk(LEDGER, 1) == 10
    assert table.missing(LEDGER, 1, 10) == []


def test_what_is_outside_a_final_set_is_not_doubted_and_is_refused() -> None:
    table = closed_with_a_hole()
    assert list(table.doubts) == [(LEDGER, 2, 3)]
    assert table.accept(LEDGER, 5, 1, 0.0, is_fetched=True) == []
    assert table.refused[Refusal.CLOSED] == 1


def test_doubts_are_asked_for_in_turns() -> None:
    """Nobody may know of the first ones, and the others could be told."""
    held, store, context = replica()
    ranges = [(each, each + 1) for each in range(1, 6 * FETCH_RANGES_MAX, 2)]
    held.store_counted(LEDGER, 1, 6 * FETCH_RANGES_MAX, 0.0, is_fetched=False)
    held.handle_synced(store.lsn)
    held.ledgers.doubts.add(LEDGER, ranges)
    repairs = Repairs(context, held)
    asked: list[Any] = []
    for step in range(4):
        repairs.settle(step * FETCH_INTERVAL_S)
        message = context.outgoing.popleft()
        assert isinstance(message, SendCommand)
        assert isinstance(message.command, Fetch)
        asked.append(message.command.ranges)
    assert RangeSet((each.first, each.first + 1) for part in asked[:3] for each in part) == RangeSet(ranges)
    assert asked[3] == asked[0]
