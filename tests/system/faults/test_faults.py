"""Promises hold while processes, networks and consumers are harmed: a few scenarios, and all in `make nightly`.

`python tests/system/faults SCENARIO --seeds 0-99` runs more.
"""

from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from scenario import Distribution, Scenario, run
from scenarios import SCENARIOS

pytestmark = [pytest.mark.root, pytest.mark.calm, pytest.mark.usefixtures("require_root_and_netns")]

NIGHTLY_SEEDS = 100
REPRESENTATIVES = ("publisher_killed", "cut_off")
"""Scenarios that run with one seed in `make test`: harm to one side, and to the network."""


def cases() -> list[ParameterSet]:
    """Return all scenarios with all seeds. Most are for `make nightly`."""
    return [
        pytest.param(
            scenario,
            seed,
            id=f"{scenario.name}-{seed}",
            marks=() if not seed and scenario.name in REPRESENTATIVES else pytest.mark.nightly,
        )
        for scenario in SCENARIOS
        for seed in range(NIGHTLY_SEEDS)
    ]


@pytest.mark.parametrize(("scenario", "seed"), cases())
def test_promises_hold_while_agents_are_harmed(scenario: Scenario, seed: int, tmp_path: Path) -> None:
    assert run(scenario, seed, tmp_path).broken == []


@pytest.mark.nightly
def test_a_dead_subscriber_holds_others_up_for_300_ms_at_most_in_99_of_100_cases(tmp_path: Path) -> None:
    (scenario,) = (each for each in SCENARIOS if each.name == "many_kills")
    distribution = Distribution(scenario)
    for seed in range(10):
        place = tmp_path / str(seed)
        place.mkdir()
        distribution.add(run(scenario, seed, place).figures)
    print(*distribution.lines(), sep="\n")
    assert distribution.broken() == []
