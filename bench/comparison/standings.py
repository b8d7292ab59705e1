"""Medians of a comparison, ratios between the systems, and the table that shows them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from rich.box import HEAVY_HEAD
from rich.console import Console

from fjm2.base import tables
from fjm2.base.quantities import counted
from fjm2.base.tables import Column
from fjm2.base.tables import Row as TableRow

from ..peers import RAW
from .plan import ComparisonPlan
from .trial import OURS, Trial

_PAGE_COLUMNS = 120
_RATIO_COLUMNS = 5

Trials = Mapping[tuple[str, int, int], Sequence[Trial]]
"""Results by system, size and fan-out."""


@dataclass(frozen=True, slots=True)
class Row:
    """A system at one size and fan-out: the medians of its runs."""

    system: str
    size: int
    fanout: int
    msgs_per_s: float | None
    gbit_per_s: float | None
    cpu_s_per_gb: float | None
    p50_us: float | None
    p99_us: float | None
    p999_us: float | None
    ratio: float | None
    """Ratio to the best other system, in messages per second or p50. Bare UDP and FJM2's other API do not count."""
    ratios: dict[str, float]
    """Ratios to each of the other systems."""
    samples: tuple[float, ...]
    """Messages per second, or p50, of each run."""
    faults: tuple[str, ...]
    lost: float | None
    """Share of messages that did not arrive: the worst of all runs and subscribers. None for systems that lose nothing.
    """


def rows_of(plan: ComparisonPlan, samples: Trials) -> Iterator[Row]:
    is_throughput = plan.round_trips is None
    values = {key: _median(taken, "msgs_per_s" if is_throughput else "p50_us") for key, taken in samples.items()}
    for (system, size, fanout), runs in samples.items():
        value = values[system, size, fanout]
        others = {
            key[0]: other for key, other in values.items() if other and key[1:] == (size, fanout) and key[0] != system
        }
        rivals = [
            other for name, other in others.items() if name not in RAW and (system not in OURS or name not in OURS)
        ]
        best = (max(rivals) if is_throughput else min(rivals)) if rivals else None
        yield Row(
            system=system,
            size=size,
            fanout=fanout,
            msgs_per_s=value if is_throughput else None,
            gbit_per_s=value * size * 8e-9 if value and is_throughput else None,
            cpu_s_per_gb=_median(runs, "cpu_s_per_gb") if is_throughput else None,
            p50_us=None if is_throughput else value,
            p99_us=None if is_throughput else _median(runs, "p99_us"),
            p999_us=None if is_throughput else _median(runs, "p999_us"),
            ratio=value / best if value and best else None,
            ratios={name: value / other for name, other in others.items()} if value else {},
            samples=tuple(trial.msgs_per_s if is_throughput else trial.p50_us for trial in runs),
            faults=tuple(trial.fault for trial in runs if trial.fault),
            lost=max(map(_lost, runs)) if system in RAW and is_throughput else None,
        )


def _median(samples: Sequence[Trial], name: str) -> float | None:
    """Return the median of the runs without a fault."""
    good: list[float] = [getattr(trial, name) for trial in samples if not trial.fault]
    return median(good) if good else None


def _lost(trial: Trial) -> float:
    """Return the share of messages missed by the subscriber that missed most."""
    if not trial.processes:
        return 0.0
    published, *received = [result.values["messages"] for result in trial.processes]
    return 1 - min(received, default=0) / published if published else 0.0


def print_table(plan: ComparisonPlan, rows: Sequence[Row], missing: Mapping[str, str]) -> None:
    console = Console()
    figures = ("messages/s", "Gbit/s", "CPU s/GB") if plan.round_trips is None else ("p50 us", "p99 us", "p99.9 us")
    systems = [system for system in plan.systems if system not in missing]
    # Compare with each of the others as long as there is room, or else with the system named first.
    compared = systems if 1 < len(systems) <= _RATIO_COLUMNS else systems[: len(systems) - 1][:1]
    versus = [f"/{system}" for system in compared]
    columns = (
        Column("bytes"),
        Column("to"),
        Column("system", is_text=True),
        *(Column(figure, rank) for rank, figure in enumerate(figures)),
        *(Column(system, 4) for system in versus),
        Column("spread", 5),
        Column("remarks", 3, is_text=True),
    )
    lines: list[TableRow] = []
    before: tuple[int, int] | None = None
    for row in sorted(rows, key=lambda row: (row.fanout, row.size, plan.systems.index(row.system))):
        is_next = before not in (None, (row.size, row.fanout))
        before = (row.size, row.fanout)
        ratios = [f"{row.ratios[name]:.2f}" if name in row.ratios else "" for name in compared]
        cells = (str(row.size), str(row.fanout), row.system, *_figures(row), *ratios, _spread(row), _remarks(row))
        lines.append(TableRow(cells, begins_section=is_next))
    caption = f"median of {plan.repeat}; /system: as many times as much as there"
    tables.print_table(console, columns, lines, title=_title(plan), caption=caption, box=HEAVY_HEAD)
    for system, lack in missing.items():
        console.print(f"{system}: {lack}", highlight=False)


def print_settings(settings: Mapping[str, str]) -> None:
    """Print the settings of the other systems."""
    console = Console()
    if not console.is_terminal:
        console.width = _PAGE_COLUMNS
    for system, text in settings.items():
        console.print(f"{system}: {text}", highlight=False)


def _figures(row: Row) -> list[str]:
    if row.p50_us is not None:
        return [f"{figure:,.1f}" for figure in (row.p50_us, row.p99_us, row.p999_us) if figure is not None]
    if row.msgs_per_s is None or row.gbit_per_s is None or row.cpu_s_per_gb is None:
        return ["", "", ""]
    return [f"{row.msgs_per_s:,.0f}", f"{row.gbit_per_s:.3f}", f"{row.cpu_s_per_gb:.2f}"]


def _spread(row: Row) -> str:
    """Return the lowest and the highest run as multiples of the median."""
    good = sorted(value for value in row.samples if value)
    return f"{good[0] / median(good):.2f}-{good[-1] / median(good):.2f}" if good else ""


def _remarks(row: Row) -> str:
    lost = [f"{row.lost:.0%} lost"] if row.lost else []
    return "; ".join([*lost, *dict.fromkeys(row.faults)]) + (f" ({len(row.faults)} x)" if row.faults else "")


def _title(plan: ComparisonPlan) -> str:
    link = "an unlimited link" if plan.rate_bps is None else f"a link of {plan.rate_bps / 1e6:g} Mbit/s"
    offload = "" if plan.is_offloaded else ", without offload"
    loss = f", {plan.loss:.2%} lost" if plan.loss else ""
    properties = f" with {counted(plan.properties, 'property')}" if plan.properties else ""
    if plan.round_trips is not None:
        return f"{counted(plan.round_trips, 'round trip')} over {link}{offload}{loss}"
    checked = "every message checked" if plan.is_verified else "content not checked"
    return f"{plan.form}{properties}, {plan.seconds:g} s over {link}{offload}{loss}; {checked}"
