"""Plots of traces: repair by loss, runs by sample, links of gateways, and traffic outside of benchmarks."""

import datetime
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fjm2.base.quantities import counted

from .plot_data import Panel, Plot, Point, Series, point_of
from .sample_plots import of_samples
from .style import name_of, order_of
from .warehouse import Warehouse

_LINES = ("-", "--", ":", "-.")
_SERIES_MAX = 8
"""Maximum number of series in a plot: as many as there are colours that can be told apart."""
_POINTS_MAX = 240
"""Maximum number of points in a series, which is about one per millimetre on paper."""
_MINUTE_S = 60
_RUN_COLUMNS = ("run", "system", "layer", "scenario", "size", "fanout", "loss", "rate_bps")
_REPAIR_COUNTERS = (
    "segments_sent",
    "nacks_sent",
    "nacks_suppressed",
    "repair_segments_sent",
    "parity_segments_sent",
)
_MINUTE_COLUMNS = ("run", "node", "source", "link", "layer", "role", "minute", "seconds", "bytes", "bytes_sent")


def of_traces(warehouse: Warehouse, bench_runs: Iterable[str]) -> list[Plot]:
    """Return all plots that have data. Traffic of `bench_runs` is shown elsewhere, except for their gateways' links."""
    bench_runs = set(bench_runs)
    sampled, drawn = of_samples(warehouse, bench_runs)
    runs = warehouse.rows("aggregates/by_run", (*_RUN_COLUMNS, *_REPAIR_COUNTERS))
    minutes = warehouse.table("aggregates/by_minute", _MINUTE_COLUMNS)
    plots = [_repair(runs), *sampled]
    if minutes is not None:
        is_link = pc.is_valid(minutes["link"])
        links = minutes.filter(is_link)
        alone = pc.is_in(minutes["run"], value_set=pa.array(list(bench_runs), pa.string()))
        others = minutes.filter(pc.and_not(pc.invert(alone), is_link))
        if drawn.issuperset(pc.unique(others["run"]).to_pylist()) and len(pc.unique(others["minute"])) == 1:
            others = others.slice(0, 0)  # a dot for each process, and their samples are drawn
        plots += [
            _over_time(
                links,
                "link",
                "bytes_sent",
                "gateways",
                "Gateways' links over time",
                "What each gateway sent to each of its peers, headers included. Times without samples are left out.",
            ),
            _over_time(
                others,
                "source",
                "bytes",
                "traffic",
                "Traffic over time",
                "Traffic of programs outside of benchmarks: the payload that subscribers received and publishers "
                "sent, or whole datagrams where only these are known.",
            ),
        ]
    return [plot for plot in plots if plot is not None]


def _repair(runs: Sequence[dict[str, Any]]) -> Plot | None:
    """Plot NACKs and repairs by the loss of the link."""
    usable = [run for run in runs if run["loss"] is not None and run["segments_sent"] and run["scenario"] == "lan"]
    places = {_place(run) for run in usable if run["loss"]}
    lossy = [run for run in usable if _place(run) in places]
    panels = [
        Panel(
            title=title,
            x_label="packets lost at each subscriber (%), log scale",
            y_label=label,
            series=tuple(_by_loss(lossy, measure)),
            x_scale="percent",
        )
        for title, label, measure in _MEASURES
    ]
    if not lossy:
        return None
    text = (
        "Counters of FJM2's publishers and subscribers. A receiver that hears another's NACK for what it misses sends "
        "none: that is suppression. With more subscribers, more of them share each repair."
    )
    return Plot(
        key="repair-by-loss",
        title="Repair by loss",
        text=text,
        panels=tuple(panels),
        sources=("aggregates/by_run", "rows/"),
    )


def _place(run: dict[str, Any]) -> tuple[Any, ...]:
    return run["system"], run["size"], run["fanout"], run["rate_bps"]


def _by_loss(runs: Sequence[dict[str, Any]], measure: Any) -> Iterator[Series]:
    places = sorted({_place(run) for run in runs}, key=lambda place: (order_of(place[0]), place[2] or 0, place[1] or 0))
    for number, place in enumerate(places):
        system, size, fanout, _ = place
        same = [run for run in runs if _place(run) == place]
        points = tuple(
            point_of(100 * loss, [(measure(run), run["run"]) for run in same if run["loss"] == loss])
            for loss in sorted({run["loss"] for run in same})
        )
        yield Series(system, points, f"{name_of(system)}, {size} B to {fanout}", _LINES[number % len(_LINES)])


def _nacks(run: dict[str, Any]) -> float:
    return 1000.0 * float(run["nacks_sent"]) / float(run["segments_sent"])


def _repairs(run: dict[str, Any]) -> float:
    return 100.0 * float(run["repair_segments_sent"] + run["parity_segments_sent"]) / float(run["segments_sent"])


def _suppressed(run: dict[str, Any]) -> float:
    due = run["nacks_sent"] + run["nacks_suppressed"]
    return 100.0 * float(run["nacks_suppressed"]) / float(due) if due else 0.0


_MEASURES = (
    ("NACKs", "NACKs per 1000 segments", _nacks),
    ("Repairs", "repair and parity segments (%)", _repairs),
    ("Suppression", "NACKs suppressed (%)", _suppressed),
)


def _over_time(minutes: pa.Table, what: str, counter: str, key: str, title: str, text: str) -> Plot | None:
    """Plot the throughput of the busiest series, in steps that are wide enough for print."""
    if not minutes.num_rows:
        return None
    first = pc.min(minutes["minute"]).as_py()
    span = (pc.max(minutes["minute"]).as_py() - first).total_seconds() / _MINUTE_S + 1
    width = max(1, -(-int(span) // _POINTS_MAX))
    steps = _stepped(minutes.select(("node", what, "run", "minute", "seconds", counter)), first, width, counter, what)
    busiest = sorted(steps.items(), key=lambda item: -sum(moved for moved, _, _ in item[1].values()))[:_SERIES_MAX]
    series = tuple(
        Series(f"{node} → {name}" if what == "link" else f"{node} {name}", _points(found, width), f"{node}, {name}")
        for (node, name), found in sorted(busiest)
    )
    unit = "minute" if width == 1 else counted(width, "minute")
    more = f" The {_SERIES_MAX} busiest of {len(steps)}." if len(steps) > _SERIES_MAX else ""
    panel = Panel(
        title=f"By {unit}",
        x_label=f"time since {first:%Y-%m-%d %H:%M} UTC (minutes)",
        y_label="throughput (Mbit/s)",
        series=series,
    )
    return Plot(key=key, title=title, text=text + more, panels=(panel,), sources=("aggregates/by_minute", "rows/"))


_Steps = dict[tuple[str, str], dict[int, tuple[int, float, set[str]]]]


def _stepped(minutes: pa.Table, first: datetime.datetime, width: int, counter: str, what: str) -> _Steps:
    """Return bytes, seconds and runs by series and step."""
    found: _Steps = {}
    for batch in minutes.to_batches():
        for row in batch.to_pylist():
            step = int((row["minute"] - first).total_seconds()) // (_MINUTE_S * width)
            place = found.setdefault((row["node"], row[what]), {})
            moved, seconds, runs = place.get(step, (0, 0.0, set()))
            place[step] = moved + (row[counter] or 0), seconds + row["seconds"], runs | {row["run"]}
    return found


def _points(steps: dict[int, tuple[int, float, set[str]]], width: int) -> tuple[Point, ...]:
    return tuple(
        Point(x=float(step * width), y=(rate := 8e-6 * moved / seconds), low=rate, high=rate, runs=tuple(sorted(runs)))
        for step, (moved, seconds, runs) in sorted(steps.items())
        if seconds
    )
