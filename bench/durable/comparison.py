"""Runs of several systems in turn, their medians and ratios, and the table that shows them."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from statistics import median
from typing import Any

from rich.box import HEAVY_HEAD
from rich.console import Console

from fjm2.base import tables
from fjm2.base.tables import Column, Row

from ..networks.namespaces import NetworkError
from ..peers.base import PeerTimeoutError
from .trial import LostError

Result = Any
"""A dataclass of figures, one of those that the measurements return."""


@dataclass(slots=True)
class Standing:
    """The runs of one system."""

    system: str
    results: list[Result] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def median(self, name: str) -> float | None:
        """Return the median of a figure, or None if no run succeeded."""
        return median(getattr(result, name) for result in self.results) if self.results else None

    def medians(self) -> dict[str, float]:
        names = [each.name for each in fields(self.results[0])] if self.results else []
        return {name: median(getattr(result, name) for result in self.results) for name in names}


def compare(
    systems: Sequence[str], repeat: int, measure: Callable[[str], Result], tell: Callable[[str], None]
) -> list[Standing]:
    """Run every system as often as asked. They take turns, and each repeat begins with another one."""
    standings = {system: Standing(system) for system in systems}
    for turn in range(repeat):
        first = turn % len(systems)
        for system in (*systems[first:], *systems[:first]):
            tell(system)
            try:
                standings[system].results.append(measure(system))
            except (PeerTimeoutError, LostError, NetworkError) as error:
                standings[system].faults.append(str(error))
    return list(standings.values())


def ratios(standings: Sequence[Standing], figure: str) -> dict[str, dict[str, float]]:
    """Return, for each system, its figure as a multiple of each other system's."""
    values = {standing.system: standing.median(figure) for standing in standings}
    return {
        system: {other: value / its for other, its in values.items() if its and other != system}
        for system, value in values.items()
        if value
    }


def as_rows(standings: Sequence[Standing], figure: str) -> list[dict[str, Any]]:
    """Return what `--json` prints of each system."""
    found = ratios(standings, figure)
    return [
        {
            "system": standing.system,
            **standing.medians(),
            "ratios": found.get(standing.system, {}),
            "runs": [asdict(result) for result in standing.results],
            "faults": standing.faults,
        }
        for standing in standings
    ]


def print_table(standings: Sequence[Standing], figure: str, titles: dict[str, tuple[str, str]], title: str) -> None:
    """Print the medians. `titles` gives the column and the format of each figure."""
    found = ratios(standings, figure)
    first = standings[0].system
    columns = (
        Column("system", is_text=True),
        *(Column(text, rank) for rank, (text, _) in enumerate(titles.values())),
        Column(f"{first} to it", 1),
        Column("spread", 5),
        Column("remarks", 3, is_text=True),
    )
    rows = []
    for standing in standings:
        medians = standing.medians()
        figures = [format(medians[name], form) if medians else "" for name, (_, form) in titles.items()]
        ratio = found.get(first, {}).get(standing.system)
        runs = sorted(getattr(result, figure) for result in standing.results)
        spread = f"{runs[0] / median(runs):.2f}-{runs[-1] / median(runs):.2f}" if runs else ""
        cells = [standing.system, *figures, "" if ratio is None else f"{ratio:.2f}", spread, "; ".join(standing.faults)]
        rows.append(Row(tuple(cells)))
    tables.print_table(Console(), columns, rows, title=title, box=HEAVY_HEAD)
