"""Tests of a cell of one whose keeper returns in another incarnation."""

from random import Random

from single_keepers import CELL_ID, ME, MEMBERS, Store, body, sent

from fjm2.cell.cell import Cell
from fjm2.cell.outgoing import State
from fjm2.cell.replica import Remembered, StoredEntry
from fjm2.cell.wire.commands import Heartbeat, HeartbeatFlag
from fjm2.cell.wire.fields import Member
from fjm2.cell.wire.records import ConfigureRecord, OpenRecord

ALONE = StoredEntry(0, 1, body(0, ConfigureRecord(1, 1, MEMBERS[:1], True)))
OPENED = StoredEntry(4, 2, body(0, OpenRecord()))
AGAIN = Member(ME.keeper_id, 2)


def started(*entries: StoredEntry, me: Member = AGAIN, promised: int = 4) -> tuple[Cell, Store]:
    store = Store()
    return Cell(me, 1, 7, store, Random(1), 0.0, remembered=Remembered(CELL_ID, promised, entries=entries)), store


def run(cell: Cell, store: Store, seconds: float) -> None:
    now = 0.0
    while now < seconds:
        now = max(now + 0.01, min(cell.poll_timeout(), seconds))
        cell.handle_timeout(now)
        cell.handle_synced(store.lsn, now)


def test_it_names_itself_and_serves_again() -> None:
    cell, store = started(ALONE, OPENED)
    run(cell, store, 3.0)
    assert cell.state is State.SERVING
    newest = cell.replica.log.membership.newest
    assert newest is not None
    assert (newest.number, newest.members) == (2, (AGAIN,))


def test_an_epoch_is_not_used_twice_if_the_promise_is_lost() -> None:
    cell, store = started(ALONE, OPENED, promised=0)
    run(cell, store, 3.0)
    assert cell.epoch > OPENED.epoch


def test_a_member_of_a_larger_cell_waits_for_the_others_to_name_it() -> None:
    cell, store = started(StoredEntry(0, 1, body(0, ConfigureRecord(1, 3, MEMBERS[:3], True))))
    run(cell, store, 3.0)
    assert cell.state is State.AMNESIAC


def test_another_keeper_does_not_take_its_place() -> None:
    cell, store = started(ALONE, OPENED, me=MEMBERS[1])
    run(cell, store, 3.0)
    assert cell.state is not State.SERVING


def test_a_cell_of_one_does_not_wait_for_a_manager() -> None:
    cell, store = started(ALONE, me=ME)
    run(cell, store, 0.05)  # neither the 750 ms of a suspicion, nor the 500 ms for claims
    assert cell.state is State.SERVING


def test_a_manager_tells_at_once_that_it_serves() -> None:
    cell, store = started(ALONE, me=ME)
    run(cell, store, 0.05)
    assert cell.poll_timeout() <= 0.05  # the next heartbeat would be due 150 ms after the first
    cell.handle_timeout(0.06)
    assert [each.flags for each in sent(cell) if isinstance(each, Heartbeat)] == [0, HeartbeatFlag.SERVING]
