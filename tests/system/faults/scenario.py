"""A scenario of harm, its bounds, and the verdict on one run of it."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

from history import Life, Loss, check
from netns import Network
from stage import SEQUENCES, Stage

_VALUES_MIN = 100
"""Values that are needed to know what 99 of 100 are."""

Judge = Callable[[list[Life]], Iterable[str]]


class Bound(NamedTuple):
    """A bound on 99 of 100 values of a figure."""

    figure: str
    most: float
    control: str
    """Figure of the same times without harm. If it is beyond the bound, the machine is too busy to tell."""


@dataclass(frozen=True)
class Scenario:
    """A way to harm a bus."""

    harm: Callable[[Stage], list[Life]]
    may_lose: bool
    """False if nobody who lives may lose anything."""
    held_s_max: float | None = None
    """Longest time that a send may be held; None if the harm itself holds senders up. It does not apply to programs
    that were stopped."""
    judge: Judge | None = None
    """Function that yields a text for each broken promise that only this scenario can see."""
    measure: Callable[[list[Life]], dict[str, list[float]]] | None = None
    """Function that returns figures of a run. Figures of many runs make a distribution."""
    bounds: tuple[Bound, ...] = ()
    """Bounds on figures, over all runs."""

    @property
    def name(self) -> str:
        return self.harm.__name__


@dataclass
class Outcome:
    """Results of one run: broken promises, losses, and figures."""

    broken: list[str]
    losses: list[Loss] = field(default_factory=list)
    figures: dict[str, list[float]] = field(default_factory=dict)


def run(scenario: Scenario, seed: int, folder: Path) -> Outcome:
    """Run a scenario once, and judge it."""
    with Network() as network:
        lives = scenario.harm(Stage(network, folder, Random(f"{scenario.name} {seed}")))
    verdict = check(lives, SEQUENCES)
    outcome = Outcome(verdict.broken, verdict.losses, scenario.measure(lives) if scenario.measure else {})
    if verdict.losses and not scenario.may_lose:
        outcome.broken.append(f"{len(verdict.losses)} losses, first {verdict.losses[0]}")
    longest = max((held_s for life in lives if not life.was_stopped for held_s in life.held_s), default=0.0)
    if scenario.held_s_max is not None and longest > scenario.held_s_max:
        outcome.broken.append(f"a send was held for {longest:.2f} s, and may be for {scenario.held_s_max:g} s")
    if scenario.judge is not None:
        outcome.broken += scenario.judge(lives)
    return outcome


class Distribution:
    """Figures of many runs of a scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self._bounds = scenario.bounds
        self._values: dict[str, list[float]] = defaultdict(list)

    def add(self, figures: dict[str, list[float]]) -> None:
        for name, values in figures.items():
            self._values[name] += values

    def lines(self) -> list[str]:
        """Return a line for each figure."""
        return [
            f"{name}: {len(values)} values, median {_at(values, 0.5):.3f}, p90 {_at(values, 0.9):.3f}, "
            f"p99 {_at(values, 0.99):.3f}, max {max(values):.3f}"
            for name, values in self._values.items()
            if values
        ]

    def broken(self) -> list[str]:
        """Return a text for each figure that is beyond its bound, or cannot be judged. A hundred values are needed."""
        texts = []
        for figure, most, control in self._bounds:
            values = self._values[figure]
            if len(values) < _VALUES_MIN or (p99 := _at(values, 0.99)) <= most:
                continue
            without = _at(self._values[control], 0.99)
            reason = "the machine is too busy to tell" if without > most else "it is not the machine"
            texts.append(f"{figure}: p99 is {p99:.3f}, and may be {most:g}; {control}: {without:.3f}, so {reason}")
        return texts


def _at(values: list[float], share: float) -> float:
    """Return the value that is greater than a share of the values."""
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]
