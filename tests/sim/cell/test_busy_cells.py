"""Tests of keepers on busy hosts: their processes are held up, and hear what was sent only after their timers."""

import os
from collections.abc import Callable

import pytest
from cells import Keeper, World
from representatives import representatives

from fjm2.cell.cell import Cell

SEED = int(os.environ.get("FJM2_SEED", "1"))
EPOCHS_MAX = 8
"""Most epochs in a minute. A process that is held up for longer than a lease may cost one."""


class BusyKeeper(Keeper):
    """A keeper whose process is held up."""

    held_until = 0.0

    def call(self, act: Callable[[Cell], object]) -> None:
        if self.world.now < self.held_until:
            self.world.at(self.held_until, lambda: self.call(act), self)
        else:
            super().call(act)


class BusyWorld(World):
    """Keepers that are held up for most of a second, each of them every few seconds."""

    keeper_type = BusyKeeper

    def hold(self) -> None:
        """Hold a keeper up, and the next one soon."""
        keeper = self.random.choice(self.keepers)
        assert isinstance(keeper, BusyKeeper)
        keeper.held_until = max(keeper.held_until, self.now + self.random.uniform(0.1, 0.8))
        self.later(self.random.expovariate(1.5), self.hold)


@pytest.mark.parametrize("seed", representatives(range(SEED, SEED + 4), SEED, SEED + 1))
def test_keepers_that_are_held_up_keep_their_manager(seed: int) -> None:
    world = BusyWorld(seed, loss=0.01, slow_syncs=0.1)
    world.run_until(lambda: world.manager is not None, 10.0)
    before = len(world.managers)
    world.hold()
    served = 0
    for _ in range(600):
        world.run(0.1)
        served += world.manager is not None
    print(f"{seed=}: {len(world.managers) - before} epochs, served {served / 6:.0f} %")
    assert len(world.managers) - before <= EPOCHS_MAX
    assert served >= 480
    world.check_end()
