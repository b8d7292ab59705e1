"""Tests of cells whose members all doubt the same sequences of a ledger, so that none can tell the others."""

import os

import pytest
from cell_writers import frame_of
from cells import BrokenPromiseError, World

from fjm2.base.ledger import Ledger
from fjm2.cell.doubts.lacks import Lacks
from fjm2.cell.doubts.stuck_ledgers import StuckLedgers
from fjm2.cell.times import DOUBT_S
from fjm2.cell.wire.records import Subscription, TableRecord
from fjm2.cell.wire.requests import Place

SEED = int(os.environ.get("FJM2_SEED", "1"))


def in_doubt(seed: int) -> tuple[World, Ledger, int]:
    """Return a cell whose members only heard, of one that has lost its disk, that a sequence of a ledger is counted."""
    print(f"World: {seed=}")
    world = World(seed, loss=0.02)
    world.run_until(lambda: world.manager is not None, 8.0)
    assert world.manager is not None
    subscription = Subscription(1, Place(0, "topic"), "client", "name", "")
    world.manager.call(lambda cell: cell.propose((TableRecord(1, True, subscription, ()),), world.now))
    writer = world.writers[0]
    world.run_until(lambda: writer.tracker.table_version == 1)
    world.run_until(lambda: writer.confirmed > 20)
    sequence = next(each for each in range(10, 20) if frame_of(each) is None)
    world.run_until(lambda: not any(keeper.cell and keeper.cell.replica.ledgers.doubts for keeper in world.keepers))
    world.run(1.0)  # answers that are under way would end the doubt
    for keeper in world.keepers:
        assert keeper.cell is not None
        keeper.cell.replica.ledgers.doubts.add(writer.ledger, [(sequence, sequence + 1)], is_hearsay=True)
    return world, writer.ledger, sequence


def closed(world: World, ledger: Ledger) -> float:
    """Run until a ledger is closed and its writer goes on in the next one. Return the time that it took."""
    writer = world.writers[0]
    return world.run_until(lambda: writer.ledger != ledger and writer.confirmed > 0, DOUBT_S + 5.0)


@pytest.mark.parametrize("seed", range(SEED, SEED + 3))
def test_a_ledger_in_which_nobody_can_tell_is_closed_and_its_writer_goes_on(seed: int) -> None:
    world, ledger, sequence = in_doubt(seed)
    assert closed(world, ledger) >= DOUBT_S
    (first, last), (after, _) = world.closed[ledger]
    assert (first, last, after) == (1, sequence - 1, sequence + 1)
    world.check_end()


def test_two_of_three_are_enough_if_no_member_was_replaced_and_the_next_manager_waits_anew() -> None:
    world, ledger, _ = in_doubt(SEED)
    world.run(DOUBT_S / 2)
    assert world.manager is not None
    world.kill(world.manager)
    world.run_until(lambda: world.manager is not None, 5.0)
    assert closed(world, ledger) >= DOUBT_S - 1.0  # it counts from CLAIMING on
    world.check_end()


def test_a_writer_hears_nothing_confirmed_that_is_in_doubt() -> None:
    """It is told no more than before."""
    world, ledger, _ = in_doubt(SEED)
    world.run(1.0)
    before = world.writers[0].tracker.confirmed(ledger)
    closed(world, ledger)
    world.run(1.0)
    assert world.writers[0].tracker.confirmed(ledger) == before


@pytest.mark.parametrize("rule", ["stuck ledgers", "lacks"])
def test_without_the_rules_nothing_goes_on(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if rule == "stuck ledgers":
        monkeypatch.setattr(StuckLedgers, "find", lambda *_, **__: [])
    else:
        monkeypatch.setattr(Lacks, "note", lambda *_: None)
    world, ledger, _ = in_doubt(SEED)
    with pytest.raises(BrokenPromiseError, match="no progress"):
        closed(world, ledger)
