"""Tests of cells whose disks fill up, fail and forget."""

import os

import pytest
from cells import Keeper, World
from representatives import representatives

from fjm2.cell.outgoing import State
from fjm2.cell.stored_tracker import Standing
from fjm2.cell.wire.records import TimeRecord

SEED = int(os.environ.get("FJM2_SEED", "1"))


class LongMemories(World):
    """A world whose keepers keep all decisions: none is released, so that none makes room for others."""

    snapshot_entries = 1_000_000


def serving(seed: int, world_type: type[World] = World) -> World:
    """Return a cell of three that serves."""
    world = world_type(seed, loss=0.02)
    world.run_until(lambda: world.manager is not None, 10.0)
    world.run(2.0)
    return world


def fill(world: World) -> None:
    """Fill all disks, and wait until no writer is taken anything from."""
    for keeper in world.keepers:
        keeper.disk.fill()
    world.run_until(lambda: all(writer.tracker.standing(world.now) is Standing.FULL for writer in world.writers), 40.0)


def is_up(keeper: Keeper) -> bool:
    return keeper.cell is not None


def on_disk(keeper: Keeper) -> int:
    """Return how many decisions the disk of a keeper has."""
    assert keeper.cell is not None
    return keeper.cell.replica.log.on_disk


def decide_time(world: World, times: int = 1) -> None:
    """Let the manager decide something, if there is one."""
    if world.manager is not None:
        world.manager.call(lambda cell: cell.propose((TimeRecord(int(world.now * 1000)),) * times, world.now))


@pytest.mark.parametrize("seed", representatives(range(SEED, SEED + 2), SEED))
def test_full_disks_stop_sends_until_there_is_room(seed: int) -> None:
    world = serving(seed)
    fill(world)
    confirmed = [writer.confirmed for writer in world.writers]
    # Short decisions go on for ever, as snapshots stand for the older ones.
    before = len(world.decided)
    for _ in range(100):
        decide_time(world)
        world.run(0.1)
    assert len(world.decided) > before + 90
    world.check_end()
    assert all(writer.confirmed > before for writer, before in zip(world.writers, confirmed, strict=True))


@pytest.mark.parametrize("seed", representatives(range(SEED, SEED + 4), SEED))
def test_full_disks_have_two_segments_for_decisions(seed: int) -> None:
    """Messages leave three segments of the reserve, and what is fetched two: only decisions and requests fill these.

    A decision of 250 times is a batch of 64 + 32 + 4 + 3,016 bytes, padded to 3,584. A segment has 7,680 bytes behind
    its head, so that two fit. Each of the disks takes four, even if nothing is left of the segment before.
    """
    world = serving(seed, LongMemories)
    fill(world)
    before = [on_disk(keeper) for keeper in world.keepers]
    for _ in range(60):
        decide_time(world, 250)
        world.run(0.05)
    taken = [on_disk(keeper) - held for keeper, held in zip(world.keepers, before, strict=True)]
    assert min(taken) >= 2 * (7_680 // 3_584)
    assert min(taken) < 60, "there is an end to the reserve"
    world.check_end()


@pytest.mark.parametrize("seed", representatives(range(SEED, SEED + 2), SEED + 1))
def test_keepers_with_full_disks_that_are_killed_lose_nothing(seed: int) -> None:
    world = serving(seed)
    for keeper in world.keepers:
        keeper.disk.fill()
    world.run(20.0)
    for _ in range(60):
        decide_time(world)
        world.run(0.1)
    world.cut_power(*world.keepers)
    world.check_end()


@pytest.mark.parametrize("seed", range(SEED, SEED + 2))
def test_a_keeper_whose_sync_failed_returns_as_another_and_is_taken_in(seed: int) -> None:
    world = serving(seed)
    keeper = world.keepers[seed % 3]
    before = keeper.disk.member
    keeper.disk.fail_next_sync()
    world.run_until(lambda: not is_up(keeper), 5.0)
    keeper.start()
    assert keeper.cell is not None
    assert keeper.cell.me.keeper_id == keeper.keeper_id
    assert keeper.cell.me != before
    assert keeper.cell.state is not State.FOLLOWER
    world.run_until(lambda: keeper.cell is not None and keeper.cell.me in keeper.cell.replica.log.membership, 20.0)
    world.check_end()


@pytest.mark.parametrize("seed", range(SEED, SEED + 2))
def test_a_keeper_that_was_away_learns_which_frames_nobody_kept(seed: int) -> None:
    world = serving(seed)
    away = next(keeper for keeper in world.keepers if keeper is not world.manager)
    world.kill(away)
    world.run(5.0)
    world.is_writing = False
    world.run_until(lambda: all(writer.confirmed == writer.sent for writer in world.writers))
    away.start()
    assert away.cell is not None
    ledgers = away.cell.replica.ledgers
    world.run_until(
        lambda: all(ledgers.is_on_disk(writer.ledger, 1, writer.confirmed + 1) for writer in world.writers), 10.0
    )
    assert all(writer.confirmed > 50 for writer in world.writers)
    world.check_end()


@pytest.mark.parametrize("seed", range(SEED, SEED + 2))
def test_a_power_cut_in_the_founding_leaves_a_cell_that_is_founded_in_the_end(seed: int) -> None:
    world = World(seed, loss=0.02)
    world.run_until(lambda: any(is_founded(keeper) for keeper in world.keepers), 10.0)
    for _ in range(seed % 4):
        world.run(world.random.uniform(0.0, 0.01))
    world.cut_power(*world.keepers)
    world.check_end()


def is_founded(keeper: Keeper) -> bool:
    return keeper.cell is not None and keeper.cell.replica.log.last_index > 0
