"""Tests of cells whose stores are full of messages that nobody acknowledges: a manager is found all the same."""

import os
from dataclasses import replace

import pytest
from cells import Keeper, World
from keeper_disks import CONFIG
from representatives import representatives

from fjm2.cell.outgoing import Replay, State
from fjm2.cell.stored_tracker import Standing
from fjm2.store.config import StoreConfig

SEED = int(os.environ.get("FJM2_SEED", "1"))
TAKEOVER_S = 8.0
"""Longest time in which a manager is found: the first that is elected may have no room, and let another one come."""


class LongFrames(World):
    """A world whose writers fill small stores soon."""

    frame_bytes = 300


def store_of(segments: int) -> StoreConfig:
    return replace(CONFIG, store_bytes_max=segments * CONFIG.segment_bytes)


def full_world(seed: int, *segments: int, loss: float = 0.05) -> World:
    """Return a cell of three stores with so many segments, all of which are full."""
    world = LongFrames(seed, loss=loss, slow_syncs=0.2)
    for keeper, count in zip(world.keepers, segments, strict=True):
        give_room(world, keeper, count)
    world.run_until(lambda: world.manager is not None, 10.0)
    world.run_until(lambda: all(writer.tracker.standing(world.now) is Standing.FULL for writer in world.writers), 60.0)
    return world


def give_room(world: World, keeper: Keeper, segments: int) -> None:
    """Start a keeper again, with a store of another size."""
    world.kill(keeper)
    keeper.disk.config = store_of(segments)
    keeper.start()


def stored(keeper: Keeper) -> int:
    """Return how much a keeper has of what writers sent."""
    assert keeper.cell is not None
    ledgers = keeper.cell.replica.ledgers
    return sum(ledgers.progress(ledger).on_disk for ledger in ledgers.open_ledgers)


def restart(world: World, first: list[Keeper], last: Keeper) -> float:
    """Kill all keepers, and start two of them. Return the time until one serves, and start the third."""
    for keeper in world.keepers:
        world.kill(keeper)
    for keeper in first:
        keeper.start()
    took_s = world.run_until(lambda: world.manager is not None, TAKEOVER_S)
    last.start()
    return took_s


def check_with_more_room(world: World) -> None:
    """Check that nothing is lost, once the operator has given all stores more room."""
    for keeper in world.keepers:
        give_room(world, keeper, 1000)
        world.run(2.0)
    world.check_end()


@pytest.mark.parametrize("seed", representatives(range(SEED, SEED + 10), SEED, SEED + 1, SEED + 2))
def test_the_two_that_are_behind_find_a_manager(seed: int) -> None:
    world = full_world(seed, 24, 24, 24)
    *behind, ahead = sorted(world.keepers, key=stored)
    restart(world, behind, ahead)
    check_with_more_room(world)


@pytest.mark.parametrize("seed", representatives(range(SEED, SEED + 6), SEED, SEED + 1, SEED + 2))
def test_a_store_that_is_too_small_for_what_others_hold_leaves_the_service_to_them(seed: int) -> None:
    """Two of three confirm what the smallest has no room for. It is elected, and lets another one come."""
    small = seed % 3
    world = full_world(seed, *(16 if number == small else 24 for number in range(3)))
    tiny = world.keepers[small]
    assert tiny.cell is not None
    others = [keeper for keeper in world.keepers if keeper is not tiny]
    for other in others:
        assert stored(other) > stored(tiny) + 20
        world.run(3.0)
        restart(world, [tiny, other], next(keeper for keeper in others if keeper is not other))
        assert world.manager is other
        assert tiny.cell.state is State.FOLLOWER
    world.run_until(lambda: tiny.cell is not None and tiny.cell.replica.fetches.lack_room(world.now), 5.0)
    check_with_more_room(world)


def test_members_that_have_no_room_do_not_fetch_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames that are fetched without room are sent for nothing."""
    world = full_world(SEED, 16, 24, 24)
    replays: list[int] = []
    replay = Keeper.replay

    def note(self: Keeper, event: Replay) -> None:
        replays.append(sum(each.count for each in event.ranges))
        replay(self, event)

    monkeypatch.setattr(Keeper, "replay", note)
    world.run(10.0)
    assert 1 <= len(replays) <= 30
    assert max(replays) <= 64
