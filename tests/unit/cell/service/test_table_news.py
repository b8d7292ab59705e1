"""Tests of how a manager tells publishers which destinations are stored."""

from serving_cells import Alone
from single_keepers import cell as follower
from single_keepers import events, heartbeat, sent

from fjm2.cell.service.table_news import PARTS_AT_ONCE
from fjm2.cell.wire.records import Subscription, TableRecord
from fjm2.cell.wire.requests import Place
from fjm2.cell.wire.table import HASHES_MAX, TableHashes, TableQuery


def record(version: int, topic: str, name: str = "name", *, is_added: bool = True) -> TableRecord:
    return TableRecord(version, is_added, Subscription(1, Place(0, topic), "client", name, ""), ())


def ask(alone: Alone, version: int) -> None:
    query = TableQuery(node_id=7, cell_id=alone.cell.cell_id, version=version)
    alone.cell.receive(query.encode(), 7, alone.now)
    alone.settle()


def test_a_change_of_the_table_is_told_unasked() -> None:
    alone = Alone()
    alone.decide(record(1, "a"), record(2, "b"), record(3, "a", "other"))
    alone.run(0.1)
    (told,) = alone.sent_of(TableHashes)
    assert told.hashes == tuple(sorted((Place(0, "a").frame_hash, Place(0, "b").frame_hash)))
    assert (told.part, told.parts, told.version, told.cell_id) == (0, 1, 3, alone.cell.cell_id)


def test_a_destination_is_told_until_its_last_subscription_is_dropped() -> None:
    alone = Alone()
    alone.decide(record(1, "a"), record(2, "a", "other"), record(3, "a", is_added=False))
    alone.run(0.1)
    alone.decide(record(4, "a", "other", is_added=False))
    alone.run(0.1)
    assert [told.hashes for told in alone.sent_of(TableHashes)] == [(Place(0, "a").frame_hash,), ()]


def test_a_subscription_that_is_added_again_counts_once() -> None:
    alone = Alone()
    alone.decide(record(1, "a"), record(2, "b"), record(3, "b", is_added=False))
    alone.run(0.2)
    assert alone.sent_of(TableHashes)[-1].hashes == ()


def test_questions_are_answered_for_all_at_most_once_in_100_ms() -> None:
    alone = Alone()
    alone.decide(record(1, "a"))
    alone.run(1.0)
    alone.forget()
    for _ in range(50):
        ask(alone, 1)
    assert len(alone.sent_of(TableHashes)) == 1
    alone.run(0.05)
    assert len(alone.sent_of(TableHashes)) == 1
    assert alone.cell.poll_timeout() <= alone.now + 0.05
    alone.run(0.05)
    assert len(alone.sent_of(TableHashes)) == 2
    alone.run(1.0)
    assert len(alone.sent_of(TableHashes)) == 2


def test_a_question_for_a_version_that_is_not_decided_is_not_answered() -> None:
    alone = Alone()
    ask(alone, 1)
    assert not alone.sent_of(TableHashes)


def test_a_follower_does_not_answer() -> None:
    cell, _ = follower()
    cell.receive(heartbeat(1), 2, 0.0)
    sent(cell)
    events(cell)
    cell.receive(TableQuery(node_id=7, cell_id=cell.cell_id, version=0).encode(), 7, 0.1)
    assert not [message for message in sent(cell) if isinstance(message, TableHashes)]


def test_a_long_table_is_told_in_portions() -> None:
    alone = Alone()
    count = HASHES_MAX * PARTS_AT_ONCE + 1
    alone.decide(*(record(1 + at, f"topic{at}", f"name{at}") for at in range(count)))
    alone.run(0.05)
    assert len(alone.sent_of(TableHashes)) == PARTS_AT_ONCE
    alone.run(0.1)
    told = alone.sent_of(TableHashes)
    assert [part.part for part in told] == list(range(PARTS_AT_ONCE + 1))
    assert [each for part in told for each in part.hashes] == sorted(
        {Place(0, f"topic{at}").frame_hash for at in range(count)}
    )
