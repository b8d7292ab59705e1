"""Tests of frames that a follower counted before it heard of the subscription that asks for them."""

from random import Random
from typing import Any

from single_keepers import BUS_KEY, CELL_ID, FOUNDED, LEDGER, ME, MEMBERS, Store, body, cell, events, heartbeat, sent

from fjm2.cell.cell import Cell
from fjm2.cell.configuration import Membership
from fjm2.cell.ledger_table import Span
from fjm2.cell.replica import Remembered, StoredEntry
from fjm2.cell.wire.commands import Counted, CountedFlag, Fetch
from fjm2.cell.wire.ranges import Position, Range
from fjm2.cell.wire.records import ConfigureRecord, OpenRecord, Subscription, TableRecord
from fjm2.cell.wire.requests import Place
from fjm2.cell.wire.stored import Stored

MANAGER, OTHER, WRITER = 2, 3, 7
TABLE = TableRecord(1, True, Subscription(1, Place(0, "topic"), "client", "name", ""), (Position(LEDGER, 3),))
ENTRY = body(0, OpenRecord(), TABLE)


def lagging(through: int = 5) -> tuple[Cell, Store]:
    """Return a follower that counted frames through a sequence before it got the entry about those from 3 on."""
    keeper, store = cell()
    keeper.receive(heartbeat(1), MANAGER, 1.0)
    keeper.receive_counted(LEDGER, 1, through, WRITER, 1.0)
    keeper.handle_synced(store.lsn, 1.0)
    keeper.receive_entry(1, 2, ENTRY, 1.1)
    keeper.receive(heartbeat(1, 2, committed=2, table_version=1, committed_epoch=1), MANAGER, 1.2)
    keeper.handle_table_ready(1)
    keeper.handle_synced(store.lsn, 1.2)
    return keeper, store


def told(keeper: Cell) -> list[Any]:
    """Return the STOREDs about the ledger that a writer gets when it asks."""
    sent(keeper)
    keeper.receive_stored_request(LEDGER.producer_id, WRITER)
    return [message.table_version for message in sent(keeper) if isinstance(message, Stored)]


def word(first: int, count: int, version: int) -> bytes:
    return Counted(cell_id=CELL_ID, table_version=version, ranges=(Range(LEDGER, first, count),)).encode()


def test_a_writer_is_told_nothing_of_frames_that_were_counted_too_early() -> None:
    keeper, _ = lagging()
    assert keeper.replica.ledgers.progress(LEDGER).on_disk == 5
    assert told(keeper) == []


def test_what_was_counted_before_the_start_is_in_no_doubt() -> None:
    keeper, _ = lagging(2)
    assert told(keeper) == [1]


def test_frames_that_were_counted_too_early_are_fetched() -> None:
    keeper, _ = lagging()
    fetches = [message for message in sent(keeper) if isinstance(message, Fetch)]
    assert Range(LEDGER, 3, 3) in [each for fetch in fetches for each in fetch.ranges]


def test_frames_and_the_word_of_a_keeper_with_the_same_table_end_the_doubt() -> None:
    keeper, store = lagging()
    keeper.receive(word(3, 3, 0), MANAGER, 1.3)
    assert told(keeper) == []  # a keeper with an older table may have counted them as early
    keeper.receive_frames(LEDGER, 4, [b"4"], MANAGER, 1.3, is_fetched=True)
    keeper.receive(word(3, 1, 1), OTHER, 1.3)
    keeper.receive(word(5, 1, 1), OTHER, 1.3)
    assert told(keeper) == []  # before the frame is on disk
    sent(keeper)
    keeper.handle_synced(store.lsn, 1.3)
    assert [message.table_version for message in sent(keeper) if isinstance(message, Stored)][-1:] == [1]
    assert (LEDGER, 4, [b"4"]) in store.writes
    assert told(keeper) == [1]


def test_a_frame_that_the_disk_refused_is_still_in_doubt() -> None:
    keeper, store = lagging(3)
    keeper.receive_frames(LEDGER, 3, [b"3"], MANAGER, 1.3, is_fetched=True)
    store.refused = [store.lsn]
    keeper.handle_synced(store.lsn, 1.3)
    assert told(keeper) == []
    keeper.receive_frames(LEDGER, 3, [b"3"], MANAGER, 1.4, is_fetched=True)
    keeper.handle_synced(store.lsn, 1.4)
    assert told(keeper) == [1]


def test_a_keeper_in_doubt_vouches_for_nothing() -> None:
    keeper, _ = lagging()
    sent(keeper)
    keeper.receive(Fetch(reply_to=OTHER, cell_id=CELL_ID, ranges=(Range(LEDGER, 1, 9),)).encode(), OTHER, 1.3)
    answers = [(each.table_version, each.ranges) for each in sent(keeper) if isinstance(each, Counted)]
    assert answers == [(1, (Range(LEDGER, 1, 2),)), (0, (Range(LEDGER, 3, 3),))]


def test_the_word_of_a_keeper_in_doubt_fills_a_hole_that_is_in_doubt_itself() -> None:
    keeper, store = lagging(2)
    keeper.receive(word(3, 1, 0), OTHER, 1.3)
    keeper.handle_synced(store.lsn, 1.3)
    assert keeper.replica.ledgers.progress(LEDGER).on_disk == 2  # its table is older, and this keeper follows another
    keeper.receive(word(3, 1, 0), MANAGER, 1.3)
    keeper.handle_synced(store.lsn, 1.3)
    assert keeper.replica.ledgers.progress(LEDGER).on_disk == 3
    assert told(keeper) == []
    sent(keeper)
    keeper.receive(Fetch(reply_to=OTHER, cell_id=CELL_ID, ranges=(Range(LEDGER, 3, 1),)).encode(), OTHER, 1.3)
    (answer,) = (each for each in sent(keeper) if isinstance(each, Counted))
    assert (answer.flags, answer.table_version) == (CountedFlag.HEARSAY, 0)


def test_doubts_come_back_after_a_restart_until_they_are_settled_on_disk() -> None:
    entries = (FOUNDED, StoredEntry(1, 2, body(0, OpenRecord(), TABLE)), StoredEntry(1, 3, body(1)))
    for settled, doubtful in ((0, True), (1, False)):
        store = Store()
        store.counted[LEDGER] = [(1, 6)]
        remembered = Remembered(CELL_ID, 1, entries=entries, spans=[Span(LEDGER, 1, 6)], settled=settled)
        keeper = Cell(ME, 1, BUS_KEY, store, Random(1), 0.0, remembered=remembered)
        assert (told(keeper) == []) is doubtful
        keeper.receive(heartbeat(1, committed=2, table_version=1, committed_epoch=1), MANAGER, 1.0)
        keeper.handle_table_ready(1)
        keeper.receive(word(3, 3, 1), OTHER, 1.0)
        assert told(keeper) == [1]
        assert ((CELL_ID, 1) in store.writes) is doubtful


def test_a_manager_resolves_what_as_many_members_counted_as_it_reads() -> None:
    keeper, _ = lagging()
    members = Membership((ConfigureRecord(1, 5, (*MEMBERS, MEMBERS[0]._replace(incarnation=9)), True),))
    readiness = keeper.replica.readiness
    answer = Counted(cell_id=CELL_ID, table_version=0, ranges=(Range(LEDGER, 3, 3),))
    readiness.tally(answer, MEMBERS[1], members)
    readiness.tally(answer, MEMBERS[1], members)
    assert told(keeper) == []
    readiness.tally(answer, MEMBERS[2], members)
    assert told(keeper) == [1]
    events(keeper)


def test_a_manager_that_counted_nothing_itself_takes_the_word_of_as_many_others() -> None:
    """It was only told of the sequences, by members in doubt: nobody else will ever know more of them."""
    keeper, _ = lagging()
    doubts, members = keeper.replica.ledgers.doubts, Membership((ConfigureRecord(1, 3, MEMBERS, True),))
    doubts.add(LEDGER, [(3, 6)], is_hearsay=True)
    readiness = keeper.replica.readiness
    answer = Counted(cell_id=CELL_ID, table_version=0, ranges=(Range(LEDGER, 3, 3),))
    readiness.tally(answer, MEMBERS[1], members)
    assert told(keeper) == []
    readiness.tally(answer, MEMBERS[2], members)
    assert told(keeper) == [1]


def test_a_manager_counts_no_hearsay() -> None:
    """A member that repeats the word of another one may have heard of the subscription before; so may the writer."""
    keeper, _ = lagging()
    members = Membership((ConfigureRecord(1, 3, MEMBERS[:3], True),))
    told_of = Counted(flags=CountedFlag.HEARSAY, cell_id=CELL_ID, table_version=0, ranges=(Range(LEDGER, 3, 3),))
    for member in MEMBERS[1:3]:
        keeper.replica.readiness.tally(told_of, member, members)
    assert told(keeper) == []


def test_a_keeper_in_doubt_tells_through_which_table_it_is_sure() -> None:
    """So others learn of the sequences before they hear of the newest subscription, as this keeper did."""
    keeper, store = lagging(2)
    keeper.receive_counted(LEDGER, 3, 3, WRITER, 1.3)
    keeper.handle_synced(store.lsn, 1.3)
    second = TableRecord(2, True, Subscription(1, Place(0, "other"), "client", "second", ""), (Position(LEDGER, 3),))
    keeper.receive_entry(1, 3, body(1, second), 1.4)
    sent(keeper)
    keeper.receive(Fetch(reply_to=OTHER, cell_id=CELL_ID, ranges=(Range(LEDGER, 3, 3),)).encode(), OTHER, 1.4)
    (answer,) = (each for each in sent(keeper) if isinstance(each, Counted))
    assert (answer.flags, answer.table_version, answer.ranges) == (0, 1, (Range(LEDGER, 3, 3),))


def test_what_is_known_before_a_subscription_is_no_hearsay_however_it_was_learned() -> None:
    keeper, store = lagging(2)
    keeper.receive(word(3, 3, 1), OTHER, 1.3)
    keeper.handle_synced(store.lsn, 1.3)
    second = TableRecord(2, True, Subscription(1, Place(0, "other"), "client", "second", ""), (Position(LEDGER, 3),))
    keeper.receive_entry(1, 3, body(1, second), 1.4)
    assert keeper.replica.ledgers.doubts.counted_within(LEDGER, 1, 9) == [(3, 6)]


def test_a_keeper_that_is_no_member_yet_has_only_hearsay() -> None:
    """It may take the place of a member that knew of the subscription, and kept the frames."""
    keeper, store = cell(me=MEMBERS[0]._replace(incarnation=9))
    keeper.receive(heartbeat(1), MANAGER, 1.0)
    keeper.receive_counted(LEDGER, 1, 5, WRITER, 1.0)
    keeper.handle_synced(store.lsn, 1.0)
    keeper.receive_entry(1, 2, ENTRY, 1.1)
    doubts = keeper.replica.ledgers.doubts
    assert doubts.within(LEDGER, 1, 9) == [(3, 6)]
    assert doubts.counted_within(LEDGER, 1, 9) == []


def test_a_keeper_that_knows_that_a_newer_table_is_decided_believes_no_older_word() -> None:
    keeper, _ = lagging()
    keeper.receive(heartbeat(1, 3, committed=3, table_version=2, committed_epoch=1), MANAGER, 1.3)
    keeper.receive(word(3, 3, 1), OTHER, 1.3)
    assert told(keeper) == []
    keeper.receive(word(3, 3, 2), OTHER, 1.3)
    assert told(keeper) == [1]
