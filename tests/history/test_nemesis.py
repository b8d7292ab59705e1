"""A cell keeps its promises while everything around it fails: one harm, and all in `make nightly`.

`python tests/history SCENARIO --seeds 0-99` runs more.
"""

from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from nemesis import SCENARIOS, Scenario, run
from representatives import representatives

pytestmark = [pytest.mark.root, pytest.mark.calm, pytest.mark.usefixtures("require_namespaces", "require_fuse")]

HARMS = 10
"""Harms in a run of `make nightly`."""
FEW_HARMS = 2
REPRESENTATIVES = [scenario for scenario in SCENARIOS if scenario.name in ("store_power_cuts", "full_disks")]
"""Scenarios of `make test`."""
FORGETFUL_SEED = 3
"""Seed of a run whose first power cut ends the publisher, too, and forgets everything that no keeper has synced."""


def cases() -> list[ParameterSet]:
    """Return all scenarios with as many seeds as their harms need."""
    return [
        pytest.param(scenario, seed, id=f"{scenario.name}-{seed}")
        for scenario in SCENARIOS
        for seed in range(scenario.harms // HARMS)
    ]


@pytest.mark.parametrize("scenario", representatives(SCENARIOS, *REPRESENTATIVES), ids=lambda scenario: scenario.name)
def test_a_cell_keeps_its_promises_through_some_harm(scenario: Scenario, tmp_path: Path) -> None:
    assert run(scenario, 0, tmp_path, FEW_HARMS).broken == []


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("scenario", "seed"), cases())
def test_a_cell_keeps_its_promises_through_much_harm(scenario: Scenario, seed: int, tmp_path: Path) -> None:
    assert run(scenario, seed, tmp_path, HARMS).broken == []


@pytest.mark.nightly
@pytest.mark.usefixtures("eatmydata")
def test_power_cuts_find_keepers_out_that_do_not_sync(tmp_path: Path) -> None:
    (scenario,) = (each for each in SCENARIOS if each.name == "store_power_cuts")
    broken = run(scenario, FORGETFUL_SEED, tmp_path, FEW_HARMS, eats_data=True).broken
    assert any("later ones were confirmed" in text or text.startswith("lost") for text in broken), broken
