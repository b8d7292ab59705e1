"""Tests of outboxes in virtual time: what an outbox accepted is stored once and in order, whatever crashes."""

import os
from functools import cache

import broken_outboxes
import pytest
from cells import BrokenPromiseError, wander
from outbox_worlds import OutboxWorld
from representatives import representatives

SEED = int(os.environ.get("FJM2_SEED", "1"))
"""First of the seeds. A failing test names its own."""
SEEDS_TO_BREAK = 25
"""Number of seeds in which a broken rule has to be found."""


def wandered(seed: int, *, keepers: int = 3, disks_lost: int = 0) -> OutboxWorld:
    """Return a world after a while of faults, healed and checked."""
    print(f"OutboxWorld: {seed=}")
    world = OutboxWorld(seed, keepers, loss=0.1, slow_syncs=0.3)
    world.run(5.0)
    wander(world, 20.0, disks_lost=disks_lost)
    world.check_end()
    return world


@cache
def kept(seed: int) -> OutboxWorld:
    """Return a world that `wandered`, the same one for all tests: no rule is broken in it."""
    return wandered(seed)


@pytest.mark.parametrize("seed", representatives(range(SEED, SEED + 8), *range(SEED, SEED + 4)))
def test_accepted_messages_are_stored_once_and_in_order(seed: int) -> None:
    kept(seed)


@pytest.mark.parametrize("seed", representatives(range(SEED, SEED + 6), *range(SEED, SEED + 3)))
def test_they_are_when_keepers_lose_disks(seed: int) -> None:
    wandered(seed, disks_lost=4)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1000, 1100))
def test_they_are_in_many_seeds(seed: int) -> None:
    wandered(seed)
    wandered(seed, disks_lost=4)


def test_random_faults_reach_what_an_outbox_is_for() -> None:
    """The tests above mean something only if outboxes are restarted, and send again, in them."""
    worlds = [kept(seed) for seed in range(SEED, SEED + 4)]
    assert sum(writer.lives for world in worlds for writer in world.outboxes) >= 20
    assert sum(len(world.closed) for world in worlds) >= 15
    sent = sum(len(writer.frames) - len(writer.requests) for world in worlds for writer in world.outboxes)
    accepted = sum(len(each) for world in worlds for writer in world.outboxes for each in writer.accepted.values())
    assert sent > accepted


@pytest.mark.parametrize(
    "name", representatives(broken_outboxes.BROKEN, "believe one member", "send before the message is on disk")
)
def test_a_broken_rule_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rule is needed, and the simulator sees that: a simulator that never fails proves nothing."""
    broken_outboxes.BROKEN[name](monkeypatch)
    for seed in range(SEEDS_TO_BREAK):
        try:
            wandered(seed)
        except BrokenPromiseError:
            return
    pytest.fail(f"{name}: nothing broke in {SEEDS_TO_BREAK} seeds")
