"""Plots of single runs by sample: throughput, losses, repairs, NACKs and windows as they were recorded.

The number of points is bounded. Where a run has more samples than a picture has room for, the least and the greatest
value of each stretch of time are kept, so that every peak is drawn at its height.
"""

import datetime
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from fjm2.base.quantities import counted

from ..traces.schema import CAPTURE, RECEIVERS, SENDERS
from .plot_data import Panel, Plot, Point, Series
from .warehouse import Warehouse

RUNS_MAX: Final = 4
"""Most runs with a plot, the latest ones: more would make the page slow."""
LINES_MAX: Final = 200_000
"""Most samples of a run with a plot: two hours of three series. Longer runs have their minutes."""
SERIES_MAX: Final = 8
"""Most series in a plot: as many as there are colours that can be told apart."""
STRETCHES_MAX: Final = 400
"""Most stretches of time into which a run is divided: about the pixels of a panel. Each keeps two points at most."""
_POINTS_MAX: Final = 1600
"""Most points of a panel. With many series, each has fewer stretches."""
_MINUTES_FROM_S: Final = 600.0
"""Length in seconds from which the time is shown in minutes."""
_KEYS: Final = ("node", "source", "link")
_ROLES_UNTOLD: Final = ("node", "gateway", CAPTURE)
"""Roles that a legend does not name: the usual one, and those that the source names already."""

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class _Measure:
    """A panel of the plot: a name for it, its unit, and how it follows from the columns."""

    title: str
    y_label: str
    noun: str
    columns: tuple[str, ...]
    scale: float
    is_rate: bool = True
    """True if it is a sum over the sample, to be divided by its length."""


_THROUGHPUT: Final = _Measure("Throughput", "throughput (Mbit/s)", "traffic", (), 8e-6)
_MEASURES: Final = (
    _THROUGHPUT,
    _Measure("Lost messages", "messages lost/s", "lost messages", ("messages_lost",), 1.0),
    _Measure("Lost bytes", "bytes lost (kB/s)", "lost bytes", ("bytes_lost",), 1e-3),
    _Measure("Repairs", "segments sent as repair/s", "repairs", ("repair_segments_sent", "parity_segments_sent"), 1.0),
    _Measure("NACKs", "NACKs sent and received/s", "NACKs", ("nacks_sent", "nacks_received"), 1.0),
    _Measure("Full windows", "waits for room/s", "full windows", ("window_waits",), 1.0),
    _Measure("Waiting to be sent", "bytes queued (kB)", "queued bytes", ("queue_bytes",), 1e-3, is_rate=False),
)
_MOVED: Final = (
    "layer",
    "role",
    *(f"{kind}_{way}" for kind in ("payload_bytes", "bytes") for way in ("sent", "received")),
)
_COLUMNS: Final = ("t", "dt", *_KEYS, *_MOVED, *(name for measure in _MEASURES for name in measure.columns))


def of_samples(warehouse: Warehouse, left_out: Collection[str]) -> tuple[list[Plot], set[str]]:
    """Return a plot for each of the latest short runs but those in `left_out`, and the names of the runs drawn."""
    runs = _short_runs(warehouse, left_out) if warehouse.has("rows") else []
    plots: dict[str, Plot] = {}
    for run, start, end in runs[:RUNS_MAX]:
        plot = _plot(warehouse, run, start, end, len(runs))
        if plot is not None:
            plots[run] = plot
    return list(plots.values()), set(plots)


def _short_runs(
    warehouse: Warehouse, left_out: Collection[str]
) -> list[tuple[str, datetime.datetime, datetime.datetime]]:
    """Return the runs that are short enough to be drawn by sample, with their times, the latest first."""
    found: dict[str, tuple[datetime.datetime, datetime.datetime, int]] = {}
    for row in warehouse.rows("aggregates/by_run", ("run", "start", "end", "lines")):
        start, end, lines = found.get(row["run"], (row["start"], row["end"], 0))
        found[row["run"]] = min(start, row["start"]), max(end, row["end"]), lines + row["lines"]
    short = [
        (run, start, end)
        for run, (start, end, lines) in found.items()
        if 1 < lines <= LINES_MAX and run not in left_out
    ]
    return sorted(short, key=lambda one: (one[2], one[0]), reverse=True)


def _plot(warehouse: Warehouse, run: str, start: datetime.datetime, end: datetime.datetime, runs: int) -> Plot | None:
    # A sample that began before midnight is in the folder of the day in which it ended.
    is_near = (ds.field("day") >= f"{start:%Y-%m-%d}") & (ds.field("day") <= f"{end:%Y-%m-%d}")
    table = warehouse.table("rows", _COLUMNS, (ds.field("run") == run) & is_near)
    if table is None or table.num_rows < 2:
        return None
    series, left = _busiest(table)
    span_s = (end - start).total_seconds()
    unit, unit_s = ("minutes", 60.0) if span_s >= _MINUTES_FROM_S else ("s", 1.0)
    stretches = max(1, min(STRETCHES_MAX, _POINTS_MAX // 2 // len(series)))
    panels, nothing = [], []
    for measure in _MEASURES:
        drawn = tuple(
            Series(name, _points(one, measure, start, span_s, unit_s, stretches, run), name)
            for name, one in series.items()
        )
        if measure is not _THROUGHPUT and not any(point.y for one in drawn for point in one.points):
            nothing.append(measure.noun)
            continue
        panels.append(
            Panel(
                title=measure.title,
                x_label=f"time since {start:%Y-%m-%d %H:%M:%S} UTC ({unit})",
                y_label=measure.y_label,
                series=drawn,
                x_scale="time",
            )
        )
    text = f"The {counted(table.num_rows, 'sample')} of the run {run}, as they were recorded."
    if any(len(one["t"]) > 2 * stretches for one in series.values()):
        text += f" Of each {span_s / stretches:.3g} s, the least and the greatest value are drawn."
    if nothing:
        text += f" There were no {_listed(nothing)}."
    if left:
        text += f" Not drawn: {left} series with less traffic."
    if runs > RUNS_MAX:
        text += f" The {RUNS_MAX} latest of {counted(runs, 'run')} are drawn by sample."
    sources = ("rows/", "aggregates/by_run")
    return Plot(key=f"run-{run}", title=f"Run {run} over time", text=text, panels=tuple(panels), sources=sources)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _busiest(table: pa.Table) -> tuple[dict[str, dict[str, Floats]], int]:
    """Return the columns of the series that moved most, by name and in order of time, and the number of the others."""
    columns = {name: _numbers(table, name) for name in _COLUMNS if name not in ("t", *_KEYS, "layer", "role")}
    columns["t"] = table["t"].cast(pa.int64()).to_numpy() / 1e6
    texts = {name: table[name].to_pylist() for name in (*_KEYS, "layer", "role")}
    columns["moved"] = _moved(texts["layer"], texts["role"], columns)
    places: dict[tuple[str, ...], list[int]] = {}
    for index, key in enumerate(zip(*(texts[name] for name in _KEYS), strict=True)):
        places.setdefault(tuple(part or "" for part in key), []).append(index)
    order = sorted(places, key=lambda key: (-np.nansum(columns["moved"][places[key]]), key))
    found = {}
    for node, source, link in sorted(order[:SERIES_MAX]):
        indexes = np.array(places[node, source, link])
        indexes = indexes[np.argsort(columns["t"][indexes], kind="stable")]
        name = f"{node} {source}" if not link or source.endswith(link) else f"{node} {source} {link}"
        role = texts["role"][indexes[0]]
        name += f" ({role})" if role not in _ROLES_UNTOLD else ""
        found[name] = {column: values[indexes] for column, values in columns.items()}
    return found, max(0, len(order) - SERIES_MAX)


def _moved(layers: Sequence[str], roles: Sequence[str], columns: dict[str, Floats]) -> Floats:
    """Return the bytes of each sample that count as throughput, as `bytes` of the figures does."""
    has_payload = np.array([layer != "gateway" and role != CAPTURE for layer, role in zip(layers, roles, strict=True)])
    sent, received = (
        np.nan_to_num(
            np.where(
                np.isnan(columns[f"payload_bytes_{way}"]) & ~has_payload,
                columns[f"bytes_{way}"],
                columns[f"payload_bytes_{way}"],
            )
        )
        for way in ("sent", "received")
    )
    is_receiver, is_sender = (np.isin(np.array(roles), some) for some in (RECEIVERS, SENDERS))
    return np.where(is_receiver, received, np.where(is_sender, sent, sent + received))


def _numbers(table: pa.Table, name: str) -> Floats:
    """Return a column of numbers, in which missing ones are NaN."""
    values: Floats = table[name].cast(pa.float64(), safe=False).to_numpy()
    return values


def _points(
    one: dict[str, Floats],
    measure: _Measure,
    start: datetime.datetime,
    span_s: float,
    unit_s: float,
    stretches: int,
    run: str,
) -> tuple[Point, ...]:
    parts = [one[name] for name in measure.columns] or [one["moved"]]
    values = np.nansum(parts, axis=0) * measure.scale
    if measure.is_rate:
        values /= one["dt"]
    begun = start.replace(tzinfo=datetime.UTC).timestamp() if start.tzinfo is None else start.timestamp()
    seconds = one["t"] - begun
    kept = extremes(seconds, values, span_s, stretches)
    return tuple(
        Point(x=float(x), y=float(y), low=float(y), high=float(y), runs=(run,))
        for x, y in zip(np.round(seconds[kept] / unit_s, 6), values[kept], strict=True)
    )


def extremes(seconds: Floats, values: Floats, span_s: float, stretches: int) -> list[int]:
    """Return the indexes of the points to draw: all if they are few, else each stretch's least and greatest value."""
    if len(values) <= 2 * stretches:
        return list(range(len(values)))
    kept: set[int] = set()
    where = np.minimum(seconds / (span_s or 1.0) * stretches, stretches - 1).astype(int)
    borders = [0, *(np.flatnonzero(np.diff(where)) + 1).tolist(), len(values)]
    for begin, end in pairwise(borders):
        part = values[begin:end]
        kept |= {begin + int(part.argmin()), begin + int(part.argmax())}
    return sorted(kept)
