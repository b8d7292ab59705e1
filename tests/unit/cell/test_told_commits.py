"""Tests of heartbeats that tell clients what was just committed."""

import pytest
from single_keepers import ME, Store, sent
from test_return_alone import ALONE, run, started

from fjm2.cell.cell import Cell
from fjm2.cell.service.table_news import TELL_INTERVAL_S
from fjm2.cell.times import HEARTBEAT_S, TELL_S
from fjm2.cell.wire.commands import Heartbeat
from fjm2.cell.wire.records import TimeRecord
from fjm2.cell.wire.table import CellQuestion, TableHashes


def serving() -> tuple[Cell, Store, float]:
    """Return a cell of one that has just sent a regular heartbeat, its store, and the time."""
    cell, store = started(ALONE, me=ME)
    run(cell, store, 3.0)
    now = 3.0
    is_told = False
    while not is_told or cell.poll_timeout() < now + HEARTBEAT_S / 2:
        now = max(now, cell.poll_timeout())
        cell.handle_timeout(now)
        is_told = bool(heartbeats(cell))
    return cell, store, now


def heartbeats(cell: Cell) -> list[Heartbeat]:
    return [each for each in sent(cell) if isinstance(each, Heartbeat)]


def test_a_commit_is_told_before_the_next_heartbeat_is_due() -> None:
    cell, store, now = serving()
    index = cell.propose((TimeRecord(5),), now)
    cell.handle_synced(store.lsn, now)
    assert cell.replica.log.committed == index
    assert cell.poll_timeout() == pytest.approx(now + TELL_S)
    assert heartbeats(cell) == []
    cell.handle_timeout(now + TELL_S)
    (told,) = heartbeats(cell)
    assert told.committed == index
    assert cell.poll_timeout() == pytest.approx(now + HEARTBEAT_S), "the regular ones go on"


def test_a_question_is_answered_before_the_next_heartbeat_is_due() -> None:
    cell, _, now = serving()
    for _ in range(50):
        cell.receive(CellQuestion().encode(), 7, now)
    assert cell.poll_timeout() == pytest.approx(now + TELL_S)
    cell.handle_timeout(now + TELL_S)
    told = list(sent(cell))
    assert [type(each) for each in told] == [Heartbeat, TableHashes]
    assert cell.poll_timeout() == pytest.approx(now + HEARTBEAT_S), "the regular ones go on"


def test_questions_make_no_flood() -> None:
    cell, _, began = serving()
    heard = []
    for step in range(1000):
        now = began + step / 1000
        cell.receive(CellQuestion().encode(), 7, now)
        if cell.poll_timeout() <= now:
            cell.handle_timeout(now)
        heard += sent(cell)
    kinds = [type(each) for each in heard]
    assert kinds.count(Heartbeat) <= 1 / TELL_S + 1 / HEARTBEAT_S + 2
    assert kinds.count(TableHashes) <= 1 / TELL_INTERVAL_S + 1


def test_a_keeper_that_does_not_serve_answers_no_question() -> None:
    cell, _ = started(ALONE, me=ME)
    cell.receive(CellQuestion().encode(), 7, 0.0)
    assert list(sent(cell)) == []


def test_many_commits_are_told_together() -> None:
    cell, store, now = serving()
    for number in range(1, 50):
        cell.propose((TimeRecord(number),), now)
        cell.handle_synced(store.lsn, now)
        now += TELL_S / 10
        cell.handle_timeout(now)
    assert len(heartbeats(cell)) <= 5
