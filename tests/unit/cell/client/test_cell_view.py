"""Tests of a publisher's view of its cell: which one it believes, which topics are stored, and what is given up."""

from itertools import pairwise
from typing import Any

import pytest
from talking_cells import (
    CELL,
    KEEPERS,
    LEDGER,
    MANAGER,
    OTHER_CELL,
    PRODUCER,
    TIMEOUT_S,
    Publisher,
    heartbeat,
    part,
    stored,
)

from fjm2.base.ledger import Ledger
from fjm2.cell.client.cell_choice import LEAP_MAX, LOST_S, Drop
from fjm2.cell.client.outgoing import (
    AskStored,
    AskTable,
    CellHeard,
    CellReplaced,
    Confirmed,
    GaveUp,
    KeeperLost,
    LedgerClosed,
    Reason,
    TableLearned,
)
from fjm2.cell.client.stored_table import ASK_S, ASK_S_MAX, PARTS_MAX
from fjm2.cell.configuration import EPOCH_LEAP_MAX
from fjm2.cell.stored_tracker import ASK_AFTER_S
from fjm2.cell.wire.commands import HeartbeatMember, MemberFlag, VoteRequest
from fjm2.cell.wire.stored import Progress, StoredFlag, progress_array

MEMBERS = heartbeat().members


def gave_up(through: int, reason: Reason) -> GaveUp:
    return GaveUp(LEDGER, through, reason, TIMEOUT_S)


# The choice of a cell.


def test_a_serving_cell_is_heard_once() -> None:
    publisher = Publisher()
    assert not publisher.view.is_heard
    assert publisher.beat() == [CellHeard(CELL)]
    assert publisher.view.is_heard
    assert publisher.beat() == []
    assert publisher.view.keepers == (101, 102, 103)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"flags": 0}, Drop.NOT_SERVING),
        ({"epoch": 0, "configuration": 1}, Drop.IMPLAUSIBLE),
        ({"cell_id": 0}, Drop.IMPLAUSIBLE),
        ({"number": 0}, Drop.IMPLAUSIBLE),
        ({"configuration": 0}, Drop.IMPLAUSIBLE),
        ({"configuration": 512}, Drop.IMPLAUSIBLE),
        ({"epoch": EPOCH_LEAP_MAX + 1}, Drop.IMPLAUSIBLE),
        ({"members": ()}, Drop.IMPLAUSIBLE),
        ({"members": MEMBERS[1:]}, Drop.IMPLAUSIBLE),
        ({"members": (*MEMBERS, MEMBERS[1])}, Drop.IMPLAUSIBLE),
        ({"members": (MEMBERS[0]._replace(flags=0), *MEMBERS[1:])}, Drop.IMPLAUSIBLE),
        ({"members": (MEMBERS[0], MEMBERS[1]._replace(node_id=MANAGER))}, Drop.IMPLAUSIBLE),
    ],
    ids=repr,
)
def test_a_heartbeat_that_no_manager_sends_is_not_believed(changes: dict[str, Any], reason: Drop) -> None:
    publisher = Publisher()
    assert publisher.beat(**changes) == []
    assert not publisher.view.is_heard
    assert publisher.view.dropped == {reason: 1}


def test_bytes_that_are_no_message_are_counted() -> None:
    publisher = Publisher()
    for content in (b"", b"\2", b"\x08", heartbeat().encode()[:-1], part(1, 5).encode() + b"x"):
        publisher.view.receive_command(content, MANAGER, 0.0)
    for content in (b"", b"\1", stored(0, 1).encode() + b"x"):
        publisher.view.receive_stored(content, 0.0)
    assert publisher.view.dropped == {Drop.MALFORMED: 8}
    vote = VoteRequest(
        flags=0, epoch=1, cell_id=CELL, candidate=KEEPERS[0], configuration=1, last_epoch=1, last_index=1
    )
    publisher.view.receive_command(vote.encode(), MANAGER, 0.0)
    assert publisher.run(10.0) == ([], [])


@pytest.mark.parametrize(
    ("changes", "source", "reason"),
    [
        ({"number": 5}, MANAGER, Drop.STALE),
        ({"number": 4}, MANAGER, Drop.STALE),
        ({"epoch": 4, "number": 99}, MANAGER, Drop.STALE),
        ({"number": 6, "table_version": 2}, MANAGER, Drop.STALE),
        ({"epoch": 6, "table_version": 2}, MANAGER, Drop.STALE),
        ({"number": 6}, MANAGER + 1, Drop.IMPLAUSIBLE),
        ({"number": 6, "table_version": 4 + LEAP_MAX}, MANAGER, Drop.IMPLAUSIBLE),
        ({"epoch": 6 + EPOCH_LEAP_MAX}, MANAGER, Drop.IMPLAUSIBLE),
    ],
    ids=repr,
)
def test_a_heartbeat_that_contradicts_the_newest_is_not_believed(
    changes: dict[str, Any], source: int, reason: Drop
) -> None:
    publisher = Publisher()
    known = {"epoch": 5, "number": 5, "table_version": 3}
    publisher.hear(heartbeat(**known))
    publisher.hear(part(3))
    publisher.hear(heartbeat(**{**known, **changes}), source)
    assert publisher.view.dropped == {reason: 1}
    assert publisher.view.table_version == 3
    assert publisher.view.is_known


def test_a_manager_of_a_newer_epoch_is_believed_whoever_it_is() -> None:
    publisher = Publisher()
    publisher.hear(heartbeat(epoch=5, number=50))
    publisher.hear(heartbeat(epoch=6, number=1), MANAGER + 2)
    assert not publisher.view.dropped
    publisher.hear(heartbeat(epoch=5, number=51))
    assert publisher.view.dropped == {Drop.STALE: 1}


def test_a_manager_with_another_node_id_is_the_same_keeper() -> None:
    publisher = Publisher()
    publisher.beat()
    publisher.hear(heartbeat(number=2, members=(MEMBERS[0]._replace(node_id=900), *MEMBERS[1:])), 900)
    assert not publisher.view.dropped
    assert publisher.view.keepers == (900, 102, 103)


@pytest.mark.parametrize(
    ("size", "cell_id", "is_taken"),
    [(5, OTHER_CELL, True), (3, OTHER_CELL, False), (3, CELL - 1, True), (1, CELL - 1, False)],
)
def test_of_two_cells_the_one_with_more_members_then_the_lower_id_serves(
    size: int, cell_id: int, is_taken: bool
) -> None:
    publisher = Publisher()
    publisher.beat()
    events = publisher.hear(heartbeat(size, cell_id=cell_id))
    assert (CellReplaced(cell_id) in events) is is_taken
    assert publisher.view.cell_id == (cell_id if is_taken else CELL)
    assert publisher.view.dropped == ({} if is_taken else {Drop.FOREIGN: 1})


def test_two_cells_that_both_beat_do_not_take_turns() -> None:
    publisher = Publisher()
    publisher.beat()
    for number in range(2, 200):
        publisher.now += 0.15
        assert publisher.beat() == []
        publisher.hear(heartbeat(1, cell_id=OTHER_CELL, number=number))
        assert publisher.view.cell_id == CELL


def test_a_cell_that_is_gone_gives_way_to_a_smaller_one() -> None:
    publisher = Publisher()
    publisher.learn(4, 17)
    publisher.now += LOST_S - 0.1
    assert publisher.hear(heartbeat(1, cell_id=OTHER_CELL)) == []
    publisher.send(3)
    publisher.now += 0.2
    assert publisher.hear(heartbeat(1, cell_id=OTHER_CELL, number=2)) == [
        gave_up(3, Reason.REPLACED),
        CellReplaced(OTHER_CELL),
        TableLearned(0),
    ]
    assert publisher.view.cell_id == OTHER_CELL
    assert publisher.view.is_heard
    assert not publisher.view.is_stored(17)
    ledger = LEDGER._replace(producer_epoch=1)
    publisher.send(1, ledger)
    assert publisher.take(stored(0, 1, ledger=ledger)) == []
    assert publisher.take(stored(0, 1, ledger=ledger, cell_id=OTHER_CELL)) == [Confirmed(ledger, 1)]


def test_a_forged_heartbeat_is_forgotten_when_nobody_repeats_it() -> None:
    publisher = Publisher()
    publisher.beat()
    publisher.hear(heartbeat(epoch=1000, number=1, table_version=9))
    assert not publisher.view.is_known
    number = 1
    while not publisher.view.is_known:
        publisher.now += 0.15
        number += 1
        assert publisher.now < LOST_S + 1.0
        publisher.hear(heartbeat(number=number))
    publisher.send(1)
    publisher.take(stored(0, 1))
    assert publisher.take(stored(1, 1)) == [Confirmed(LEDGER, 1)]


def test_the_view_stays_when_the_cell_falls_silent() -> None:
    publisher = Publisher()
    publisher.learn(1, 17)
    publisher.run(1000.0)
    assert publisher.view.is_heard
    assert publisher.view.is_stored(17)
    assert not publisher.view.is_stored(18)


def test_keepers_that_the_manager_hears_no_more_are_told_once() -> None:
    publisher = Publisher()
    publisher.beat()
    assert publisher.beat(lost=(2,)) == [KeeperLost(103)]
    assert publisher.beat(lost=(2,)) == []
    assert publisher.view.keepers == (101, 102)
    restarted = (*MEMBERS[:2], HeartbeatMember(KEEPERS[2], 203, MemberFlag.LIVE, 1, 0))
    assert publisher.beat(members=restarted) == []
    assert publisher.beat(members=(MEMBERS[0], MEMBERS[1]._replace(node_id=202), restarted[2])) == [KeeperLost(102)]


# The table.


def test_everything_counts_as_stored_until_the_newest_table_is_known() -> None:
    publisher = Publisher()
    assert not publisher.view.is_stored(17)
    publisher.beat()
    assert publisher.view.is_known, "version 0 is empty"
    assert not publisher.view.is_stored(17)
    publisher.beat(table_version=2)
    assert not publisher.view.is_known
    assert publisher.view.is_stored(17)
    assert publisher.view.is_stored(18)
    assert publisher.hear(part(2, 17)) == [TableLearned(2)]
    assert publisher.view.is_stored(17)
    assert not publisher.view.is_stored(18)
    publisher.beat(table_version=3)
    assert publisher.view.is_stored(18)
    assert publisher.view.table_version == 2, "only what is known is announced"
    assert publisher.hear(part(3)) == [TableLearned(3)]
    assert not publisher.view.is_stored(17)


def test_a_table_of_several_parts_is_known_when_all_have_come() -> None:
    publisher = Publisher()
    publisher.beat(table_version=5)
    assert publisher.hear(part(5, 3, number=2, parts=3)) == []
    assert publisher.hear(part(5, 1, number=0, parts=3)) == []
    assert publisher.hear(part(5, 1, number=0, parts=3)) == []
    assert not publisher.view.is_known
    assert publisher.hear(part(5, 2, number=1, parts=3)) == [TableLearned(5)]
    assert [publisher.view.is_stored(each) for each in (0, 1, 2, 3, 4)] == [False, True, True, True, False]


def test_a_table_that_comes_before_its_heartbeat_is_known_with_it() -> None:
    publisher = Publisher()
    publisher.learn(1)
    assert publisher.hear(part(2, 17)) == []
    assert publisher.view.table_version == 1
    assert not publisher.view.is_stored(17)
    assert publisher.beat(table_version=2) == [TableLearned(2)]
    assert publisher.view.is_stored(17)
    assert publisher.run(10.0) == ([], [])


def test_parts_of_other_tables_and_of_strangers_change_nothing() -> None:
    publisher = Publisher()
    publisher.learn(5, 17)
    publisher.hear(part(4))
    publisher.hear(part(5))
    publisher.hear(part(6), MANAGER + 1)
    publisher.hear(part(6, cell_id=OTHER_CELL))
    publisher.hear(part(7, parts=PARTS_MAX + 1))
    publisher.hear(part(1 << 63, 99))
    assert publisher.view.dropped == {Drop.UNASKED: 3, Drop.FOREIGN: 2}
    assert publisher.view.table_version == 5
    assert publisher.view.is_stored(17)
    publisher.beat(table_version=6)
    assert publisher.hear(part(6, 18)) == [TableLearned(6)]
    assert publisher.view.is_stored(18)


def test_parts_that_contradict_each_other_are_begun_anew() -> None:
    publisher = Publisher()
    publisher.beat(table_version=5)
    publisher.hear(part(5, 1, number=0, parts=3))
    publisher.hear(part(5, 1, number=0, parts=2))
    publisher.hear(part(5, 2, number=1, parts=3))
    publisher.hear(part(5, 3, number=2, parts=3))
    assert not publisher.view.is_known
    assert publisher.hear(part(5, 1, number=0, parts=3)) == [TableLearned(5)]


def test_a_pattern_in_the_table_stores_all_topics() -> None:
    publisher = Publisher()
    publisher.learn(1, 17, 17 | 1 << 32)
    assert publisher.view.is_stored(18)


def test_a_missing_table_is_asked_for_with_growing_pauses() -> None:
    publisher = Publisher()
    publisher.beat(table_version=3)
    times = []
    for _ in range(3000):
        _, sent = publisher.run(0.01)
        assert all(message == AskTable(CELL, 3) for message in sent)
        times += [publisher.now] * len(sent)
    assert times[0] <= ASK_S + 0.01
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert max(pauses[:3]) < 0.5
    assert all(ASK_S_MAX / 2 - 0.02 <= pause <= ASK_S_MAX + 0.02 for pause in pauses[10:])
    publisher.hear(part(3))
    assert publisher.run(10.0) == ([], [])


def test_publishers_do_not_ask_at_the_same_time() -> None:
    times = set()
    for seed in range(20):
        publisher = Publisher(seed)
        publisher.beat(table_version=3)
        times.add(publisher.view.poll_timeout())
    assert len(times) == 20


# Confirmation.


def test_w_members_confirm() -> None:
    publisher = Publisher()
    publisher.beat()
    publisher.send(3)
    publisher.send(5)
    assert publisher.take(stored(0, 5)) == []
    assert publisher.take(stored(1, 4)) == [Confirmed(LEDGER, 4)]
    assert publisher.take(stored(1, 4)) == []
    assert publisher.take(stored(2, 5)) == [Confirmed(LEDGER, 5)]
    assert publisher.run(100.0) == ([], [])


@pytest.mark.parametrize(
    "changes",
    [
        {"cell_id": OTHER_CELL},
        {"keeper_id": b"stranger".ljust(16)},
        {"incarnation": 2},
        {"configuration": 258},
        {"flags": StoredFlag.DOES_NOT_COUNT},
        {"ledger": LEDGER._replace(producer_id=PRODUCER + 1)},
        {"ledger": LEDGER._replace(producer_epoch=1)},
    ],
    ids=repr,
)
def test_answers_of_strangers_and_of_other_lives_do_not_count(changes: dict[str, Any]) -> None:
    publisher = Publisher()
    publisher.beat()
    publisher.send(5)
    publisher.take(stored(0, 5))
    assert publisher.take(stored(1, 5, **changes)) == []
    assert publisher.take(stored(2, 5)) == [Confirmed(LEDGER, 5)]


def test_an_answer_with_an_older_table_does_not_count() -> None:
    publisher = Publisher()
    publisher.learn(2)
    publisher.send(5)
    publisher.take(stored(0, 5, table_version=2))
    assert publisher.take(stored(1, 5, table_version=1)) == []
    assert publisher.take(stored(1, 5, table_version=2)) == [Confirmed(LEDGER, 5)]


def test_nothing_is_confirmed_before_a_cell_is_heard() -> None:
    publisher = Publisher()
    publisher.send(1)
    assert publisher.take(stored(0, 1)) == []
    assert publisher.take(stored(0, 1, cell_id=0)) == []
    assert publisher.view.dropped == {Drop.FOREIGN: 2}


def test_producers_of_a_bus_are_told_apart() -> None:
    publisher = Publisher()
    publisher.beat()
    other = Ledger(PRODUCER + 1, 0, 2)
    publisher.view.add_writer(other.producer_id, 1.0, publisher.now)
    publisher.send(1)
    publisher.send(2, other)
    both = progress_array([Progress(LEDGER, 1, 1), Progress(other, 2, 2)])
    assert publisher.take(stored(0, 0, ledgers=both)) == []
    assert publisher.take(stored(1, 2, ledger=other)) == [Confirmed(other, 2)]
    assert publisher.take(stored(1, 1)) == [Confirmed(LEDGER, 1)]
    publisher.send(3, other)
    publisher.view.remove_writer(other.producer_id)
    publisher.view.remove_writer(other.producer_id)
    assert publisher.take(stored(1, 3, ledger=other)) == []
    publisher.send(4, other)
    publisher.view.end_ledger(other)
    assert publisher.run(100.0) == ([], [])


def test_a_writer_that_waits_asks_the_live_keepers_in_its_lanes() -> None:
    publisher = Publisher()
    publisher.beat(lost=(1,))
    publisher.send(1)
    publisher.send(1, LEDGER._replace(lane=2))
    assert publisher.run(ASK_AFTER_S - 0.01) == ([], [])
    _, sent = publisher.run(0.02)
    assert sent == [AskStored(0, (101, 103)), AskStored(2, (101, 103))]
    for keeper in (0, 2):
        publisher.take(stored(keeper, 1, ledger=LEDGER._replace(lane=2)))
    _, sent = publisher.run(ASK_AFTER_S)
    assert sent == [AskStored(0, (101, 103))]
    for keeper in (0, 2):
        publisher.take(stored(keeper, 1))
    assert publisher.run(10.0) == ([], [])


def test_a_writer_that_waits_again_does_not_ask_at_once() -> None:
    publisher = Publisher()
    publisher.beat()
    publisher.send(1)
    publisher.run(TIMEOUT_S + 1.0)
    publisher.send(2)
    assert publisher.run(ASK_AFTER_S - 0.01) == ([], [])
    assert publisher.run(0.02)[1] == [AskStored(0, (101, 102, 103))]


# Giving up.


def test_messages_that_nobody_confirms_are_given_up_after_the_time_limit() -> None:
    publisher = Publisher()
    publisher.beat()
    publisher.send(1)
    publisher.run(4.0)
    publisher.send(2)
    assert publisher.run(TIMEOUT_S - 4.0 - 0.01)[0] == []
    assert publisher.run(0.02)[0] == [gave_up(1, Reason.SILENT)]
    assert publisher.run(4.0)[0] == [gave_up(2, Reason.SILENT)]
    publisher.view.end_ledger(LEDGER)
    assert publisher.run(100.0) == ([], [])


def answer_for(publisher: Publisher, seconds: float, *answers: Any) -> list[Any]:
    """Let keepers answer every 100 ms, and return the events."""
    events: list[Any] = []
    for _ in range(round(seconds / 0.1)):
        for answer in answers:
            events += publisher.take(answer)
        events += publisher.run(0.1)[0]
    return events


def test_full_keepers_are_the_reason_if_w_members_answer() -> None:
    publisher = Publisher()
    publisher.beat()
    publisher.send(1)
    full = [stored(at, 0, flags=StoredFlag.FULL) for at in range(2)]
    assert answer_for(publisher, TIMEOUT_S + 0.2, *full, stored(2, 0)) == [gave_up(1, Reason.FULL)]


def test_keepers_that_were_full_when_a_message_came_are_the_reason() -> None:
    """Their last answers before it come after it was sent."""
    publisher = Publisher()
    publisher.beat()
    publisher.send(1)
    publisher.run(0.1)
    for at in range(3):
        publisher.take(stored(at, 0))
    full = [stored(at, 0, flags=StoredFlag.FULL) for at in range(3)]
    assert answer_for(publisher, TIMEOUT_S, *full) == [gave_up(1, Reason.FULL)]


def test_keepers_that_answer_and_lack_a_message_are_the_reason() -> None:
    publisher = Publisher()
    publisher.beat()
    publisher.send(2)
    assert answer_for(publisher, TIMEOUT_S + 0.2, stored(0, 1), stored(1, 1)) == [gave_up(2, Reason.STUCK)]


def test_one_keeper_of_three_that_answers_is_silence() -> None:
    publisher = Publisher()
    publisher.beat()
    publisher.send(2)
    assert answer_for(publisher, TIMEOUT_S + 0.2, stored(0, 2)) == [gave_up(2, Reason.SILENT)]


def test_messages_of_an_ended_ledger_are_still_confirmed() -> None:
    publisher = Publisher()
    publisher.beat()
    publisher.send(2)
    publisher.view.end_ledger(LEDGER)
    publisher.take(stored(0, 2))
    assert publisher.take(stored(1, 2)) == [Confirmed(LEDGER, 2)]


def test_a_closed_ledger_is_told_once_and_only_of_members() -> None:
    publisher = Publisher()
    publisher.beat()
    closed = stored(0, 1, is_closed=True)
    assert publisher.take(closed) == [], "nothing was sent in it"
    publisher.send(2)
    assert publisher.take(stored(0, 1, is_closed=True, keeper_id=b"stranger".ljust(16))) == []
    assert publisher.take(closed) == [LedgerClosed(LEDGER)]
    assert publisher.take(closed) == []
    assert publisher.run(TIMEOUT_S)[0] == [gave_up(2, Reason.SILENT)]
