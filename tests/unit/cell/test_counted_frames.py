"""Tests of frames that nobody asked to keep: they have numbers, and those who missed them learn that they need none."""

from single_keepers import CELL_ID, LEDGER, body, cell, events, heartbeat, sent

from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet
from fjm2.cell.cell import Cell, Drop
from fjm2.cell.fetches import COUNTED_RANGES_MAX, REPLAY_RANGES_MAX, SEQUENCES_MAX, answer_fetch
from fjm2.cell.ledger_table import LedgerTable, Span
from fjm2.cell.outgoing import Replay
from fjm2.cell.replica import StoredEntry
from fjm2.cell.wire.commands import Counted, Fetch
from fjm2.cell.wire.ranges import DECISION_LANE, Range
from fjm2.cell.wire.records import EntryBody, OpenRecord, Subscription, TableRecord
from fjm2.cell.wire.requests import Place
from fjm2.cell.wire.stored import Progress

MANAGER = 2
OTHER = 3
TABLE = TableRecord(1, True, Subscription(1, Place(0, "topic"), "client", "name", ""), ())


def follower(*entries: StoredEntry) -> Cell:
    """Return a member that follows a manager of epoch 1."""
    keeper, _ = cell(*entries)
    keeper.receive(heartbeat(1), MANAGER, 1.0)
    sent(keeper)
    events(keeper)
    return keeper


def fetch(*ranges: Range, reply_to: int = MANAGER) -> bytes:
    return Fetch(reply_to=reply_to, cell_id=CELL_ID, ranges=ranges).encode()


def counted(*ranges: Range, table_version: int = 0) -> bytes:
    return Counted(cell_id=CELL_ID, table_version=table_version, ranges=ranges).encode()


def test_a_fetch_is_answered_with_frames_and_with_the_news_of_those_that_need_none() -> None:
    keeper = follower()
    keeper.receive_frames(LEDGER, 1, [b"1", b"2"], 7, 1.0)
    keeper.receive_counted(LEDGER, 3, 2, 7, 1.0)
    keeper.receive_frames(LEDGER, 5, [b"5"], 7, 1.0)
    keeper.handle_synced(9, 1.0)
    sent(keeper)
    keeper.receive(fetch(Range(LEDGER, 2, 9)), MANAGER, 1.0)
    assert events(keeper) == [Replay(MANAGER, (Range(LEDGER, 2, 1), Range(LEDGER, 5, 1)))]
    assert sent(keeper) == [Counted(cell_id=CELL_ID, table_version=0, ranges=(Range(LEDGER, 3, 2),))]


def test_nothing_is_told_of_sequences_before_they_are_on_disk() -> None:
    keeper = follower()
    keeper.receive_counted(LEDGER, 1, 5, 7, 1.0)
    keeper.receive(fetch(Range(LEDGER, 1, 5)), MANAGER, 1.0)
    assert sent(keeper) == []


def test_the_word_of_another_keeper_fills_a_hole() -> None:
    keeper = follower()
    keeper.receive_frames(LEDGER, 4, [b"4"], 7, 1.0)
    keeper.receive(counted(Range(LEDGER, 1, 3)), OTHER, 1.0)
    keeper.handle_synced(9, 1.0)
    assert keeper.replica.ledgers.progress(LEDGER) == Progress(LEDGER, 4, 4)


def test_a_keeper_with_an_older_table_is_not_believed() -> None:
    """It may have counted a frame that a subscription has asked for since."""
    keeper = follower(StoredEntry(1, 2, body(0, OpenRecord(), TABLE)))
    keeper.receive(heartbeat(1, 2, committed=2, table_version=1), MANAGER, 1.0)
    assert keeper.replica.table.version == 1
    keeper.receive(counted(Range(LEDGER, 1, 3)), OTHER, 1.0)
    keeper.handle_synced(9, 1.0)
    assert keeper.replica.ledgers.progress(LEDGER) == Progress(LEDGER, 0, 0)
    keeper.receive(counted(Range(LEDGER, 1, 3), table_version=1), OTHER, 1.0)
    keeper.handle_synced(9, 1.0)
    assert keeper.replica.ledgers.progress(LEDGER) == Progress(LEDGER, 3, 3)


def test_the_news_is_told_by_the_version_whose_frames_are_kept() -> None:
    keeper = follower(StoredEntry(1, 2, body(0, OpenRecord(), TABLE)))
    keeper.receive_counted(LEDGER, 1, 2, 7, 1.0)
    keeper.handle_synced(9, 1.0)
    keeper.receive(heartbeat(1, 2, committed=2, table_version=1), MANAGER, 1.0)
    for version in (0, 1):
        sent(keeper)
        keeper.receive(fetch(Range(LEDGER, 1, 2)), MANAGER, 1.0)
        assert [message.table_version for message in sent(keeper) if isinstance(message, Counted)] == [version]
        keeper.handle_table_ready(1)


def test_decisions_are_never_counted() -> None:
    keeper = follower()
    decisions = Ledger(CELL_ID, 1, DECISION_LANE)
    keeper.receive_counted(decisions, 1, 1, 7, 1.0)
    keeper.receive_counted(LEDGER, 1, 0, 7, 1.0)
    assert keeper.dropped == {Drop.MALFORMED: 2}
    keeper.receive(counted(Range(decisions, 2, 5)), OTHER, 1.0)
    assert decisions not in keeper.replica.ledgers


def test_an_answer_is_bounded() -> None:
    class Even:
        """A store that keeps the even sequences."""

        def live(self, _ledger: Ledger, first: int, end: int) -> RangeSet:
            return RangeSet((at, at + 1) for at in range(first, end) if not at % 2)

    table = LedgerTable()
    table.restore(Span(LEDGER, 1, 1 << 40), 0.0)
    wanted = [Range(LEDGER, 1, 0xFFFFFFFF)] * 5
    kept, absent, _ = answer_fetch(wanted, table, Even())  # type: ignore[arg-type]
    assert (len(kept), len(absent)) == (REPLAY_RANGES_MAX, COUNTED_RANGES_MAX)
    assert kept[-1].last <= SEQUENCES_MAX
    assert len(Counted(cell_id=1, table_version=1, ranges=absent).encode()) < 1400


def test_a_restarted_member_commits_what_a_recovering_manager_knows_as_committed() -> None:
    """Otherwise it would not know its table, and could not tell the manager which frames nobody asked for."""
    entries = [StoredEntry(1, 2, body(0, OpenRecord(), TABLE)), StoredEntry(1, 3, body(1))]
    keeper, _ = cell(*entries, promised=1)
    keeper.receive(heartbeat(5, committed=2, table_version=1, committed_epoch=2), MANAGER, 1.0)
    assert keeper.replica.log.committed == 0  # the manager has another entry there
    keeper.receive(heartbeat(5, 2, committed=2, table_version=1, committed_epoch=1), MANAGER, 1.0)
    assert (keeper.replica.log.committed, keeper.replica.table.version) == (2, 1)


def test_a_table_is_current_when_it_is_as_new_as_the_newest_one_heard_of() -> None:
    keeper, _ = cell(StoredEntry(1, 2, body(0, OpenRecord(), TABLE)))
    assert not keeper.replica.table.is_current  # nothing was heard since the start
    keeper.receive(heartbeat(1, table_version=1), MANAGER, 1.0)
    assert not keeper.replica.table.is_current
    keeper.receive(heartbeat(1, 2, table_version=1, committed=2), MANAGER, 1.0)
    assert keeper.replica.table.is_current


def test_members_tell_anyone_which_frames_nobody_kept_and_send_frames_to_the_manager_alone() -> None:
    """A manager that has just started may know too old a table to be believed."""
    keeper = follower()
    keeper.receive_frames(LEDGER, 1, [b"1", b"2"], 7, 1.0)
    keeper.receive_counted(LEDGER, 3, 2, 7, 1.0)
    keeper.handle_synced(9, 1.0)
    sent(keeper)
    keeper.receive(fetch(Range(LEDGER, 1, 9), reply_to=OTHER), OTHER, 1.0)
    assert events(keeper) == []
    assert [message.ranges for message in sent(keeper)] == [(Range(LEDGER, 3, 2),)]


def test_a_member_that_starts_knows_what_its_log_says_is_committed() -> None:
    entries = [
        StoredEntry(1, 2, body(0, OpenRecord(), TABLE)),
        StoredEntry(1, 3, EntryBody(1, 2, ()).encode()),
        StoredEntry(1, 4, EntryBody(1, 2, ()).encode()),
    ]
    keeper, _ = cell(*entries)
    assert (keeper.replica.log.committed, keeper.replica.table.version) == (2, 1)


def test_the_topics_of_a_decision_are_kept_before_it_is_committed() -> None:
    keeper, _ = cell()
    keeper.receive(heartbeat(1), MANAGER, 1.0)
    keeper.receive_entry(1, 2, body(0, OpenRecord(), TABLE), 1.0)
    assert not keeper.replica.table.hashes()
    assert keeper.replica.log.hashes_ahead == [TABLE.subscription.destination.frame_hash]
    keeper.handle_synced(9, 1.0)
    keeper.receive(heartbeat(1, 2, committed=2, table_version=1), MANAGER, 1.0)
    assert keeper.replica.table.hashes() == [TABLE.subscription.destination.frame_hash]
    assert not keeper.replica.log.hashes_ahead
