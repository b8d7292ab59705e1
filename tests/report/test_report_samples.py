"""Tests of the plots by sample: they follow from the rows, keep their peaks, are bounded, and name their run."""

import csv
import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")
pytest.importorskip("matplotlib", reason="the extra `bench` is not installed")

import made_warehouse
import numpy as np
import pyarrow.dataset as ds
from fjm2bench.report import build, drawing, sample_plots, trace_plots
from fjm2bench.report.plot_data import Plot
from fjm2bench.report.sample_plots import extremes, of_samples
from fjm2bench.report.warehouse import Warehouse
from hypothesis import given
from hypothesis import strategies as st
from made_warehouse import TRIAL, TRIAL_SAMPLES

FIGURES: dict[str, Callable[[dict[str, Any]], float]] = {
    "throughput (Mbit/s)": lambda row: 8e-6 * of(row, "payload_bytes_sent", "payload_bytes_received") / row["dt"],
    "messages lost/s": lambda row: of(row, "messages_lost") / row["dt"],
    "segments sent as repair/s": lambda row: of(row, "repair_segments_sent", "parity_segments_sent") / row["dt"],
    "NACKs sent and received/s": lambda row: of(row, "nacks_sent", "nacks_received") / row["dt"],
    "waits for room/s": lambda row: of(row, "window_waits") / row["dt"],
}


def of(row: dict[str, Any], *names: str) -> float:
    return float(sum(row[name] or 0 for name in names))


def points_of(report: Path, key: str) -> list[dict[str, str]]:
    with (report / f"{key}.csv").open() as file:
        return list(csv.DictReader(file))


def test_every_point_is_a_sample_of_the_run_that_the_plot_names(warehouse: Path, report: Path) -> None:
    rows = ds.dataset(warehouse / "rows", partitioning="hive").to_table().to_pylist()
    by_place = {(f"{row['node']} lane0 ({row['role']})", (row["t"] - TRIAL).total_seconds()): row for row in rows}
    points = points_of(report, "run-trial")
    assert {point["y_label"] for point in points} == FIGURES.keys()
    for point in points:
        row = by_place[point["figure"], float(point["x"])]
        assert float(point["y"]) == pytest.approx(FIGURES[point["y_label"]](row))
        assert point["runs"] == "trial"
    page = (report / "report.html").read_text()
    assert "<h2>Run trial over time</h2>" in page
    assert "The 3,000 samples of the run trial" in page
    assert "There were no lost bytes or queued bytes." in page


def test_peaks_and_dips_survive(warehouse: Path, report: Path) -> None:
    """The run has more samples than are drawn, and half a second of losses in it."""
    rows = ds.dataset(warehouse / "rows", partitioning="hive").to_table().to_pylist()
    points = points_of(report, "run-trial")
    for label, figure in FIGURES.items():
        for node, role in (("desk-1", "sub"), ("desk-2", "sub"), ("feed", "pub")):
            name = f"{node} lane0 ({role})"
            drawn = [float(point["y"]) for point in points if (point["y_label"], point["figure"]) == (label, name)]
            values = [figure(row) for row in rows if row["node"] == node]
            assert len(drawn) < TRIAL_SAMPLES
            assert (max(drawn), min(drawn)) == pytest.approx((max(values), min(values)))
    lost = [float(point["x"]) for point in points if point["y_label"] == "messages lost/s" and float(point["y"])]
    assert lost
    assert all(30 < at <= 30.5 for at in lost)


@given(
    values=st.lists(st.integers(0, 50), min_size=1, max_size=300),
    stretches=st.integers(1, 40),
    span=st.floats(0, 1e6),
)
def test_each_stretch_keeps_its_least_and_greatest_value(values: list[int], stretches: int, span: float) -> None:
    seconds = np.linspace(0, span, len(values))
    found = np.array(values, float)
    kept = extremes(seconds, found, span, stretches)
    assert kept == sorted(set(kept))
    assert len(kept) <= 2 * stretches
    width = -(-len(values) // stretches)
    assert {min(values), max(values)} <= {values[index] for index in kept}
    if span > 1 and len(values) > 2 * stretches:  # no stretch is without a point
        assert max(np.diff([0, *kept, len(values) - 1])) <= 2 * width + 1


def trials(folder: Path, runs: dict[str, int]) -> Warehouse:
    """Write a warehouse of runs with one series and so many samples, one run an hour."""
    rows, by_run = [], []
    first = next(made_warehouse.Samples(1).trial())
    for number, (run, count) in enumerate(runs.items()):
        start = TRIAL.replace(hour=number)
        times = [start + datetime.timedelta(seconds=(seq + 1) / 10) for seq in range(count)]
        rows += [first | {"run": run, "t": t, "seq": seq} for seq, t in enumerate(times)]
        by_run.append({"run": run, "start": start, "end": times[-1], "lines": count})
    columns = made_warehouse.COUNTERS
    labels = dict.fromkeys(("system", "layer", "scenario", "size", "fanout", "loss", "rate_bps"))
    figures = [dict.fromkeys(columns) | labels | row for row in by_run]
    made_warehouse.write(folder, "rows/day=2026-03-02", rows, made_warehouse.schema_of(rows[0]))
    made_warehouse.write(folder, "aggregates/by_run", figures, made_warehouse.schema_of(figures[0]))
    return Warehouse(folder)


def test_the_latest_short_runs_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_plots, "LINES_MAX", 50)
    runs = {"old": 5, "a": 5, "b": 50, "long": 51, "bench": 5, "c": 5, "single": 1, "d": 5}
    plots, drawn = of_samples(trials(tmp_path, runs), {"bench"})
    assert [plot.key for plot in plots] == ["run-d", "run-c", "run-b", "run-a"]
    assert drawn == {"a", "b", "c", "d"}
    assert all("The 4 latest of 5 runs are drawn by sample." in plot.text for plot in plots)


def test_a_plot_is_bounded(tmp_path: Path) -> None:
    made_warehouse.write(tmp_path, "aggregates/by_run", [{"run": "r", "start": TRIAL, "end": TRIAL, "lines": 9}])
    first = next(made_warehouse.Samples(1).trial())
    rows = [
        first | {"run": "r", "node": f"n{node}", "t": TRIAL + datetime.timedelta(seconds=seq / 10), "window_waits": seq}
        for node in range(12)
        for seq in range(1, 1001)
    ]
    made_warehouse.write(tmp_path, "rows/day=2026-03-02", rows, made_warehouse.schema_of(rows[0]))
    end = {"run": "r", "start": TRIAL, "end": TRIAL + datetime.timedelta(seconds=100), "lines": 12_000}
    (tmp_path / "aggregates" / "by_run" / "part-0.parquet").unlink()
    made_warehouse.pq.write_table(
        made_warehouse.pa.Table.from_pylist([end]), tmp_path / "aggregates" / "by_run" / "part-0.parquet"
    )
    ((plot,), _) = of_samples(Warehouse(tmp_path), ())
    for panel in plot.panels:
        assert len(panel.series) == 8
        assert sum(len(series.points) for series in panel.series) <= 1600
    assert "Not drawn: 4 series with less traffic." in plot.text


def minutes_of(run: str, *minutes: int) -> list[dict[str, Any]]:
    (row, *_) = (row for row in made_warehouse.Samples(1).minutes() if row["link"] is None)
    return [row | {"run": run, "minute": TRIAL.replace(hour=0, minute=minute)} for minute in minutes]


@pytest.mark.parametrize(("minutes", "shown"), [((0,), False), ((0, 1), True)])
def test_a_dot_a_process_is_not_drawn_beside_its_samples(tmp_path: Path, minutes: tuple[int, ...], shown: bool) -> None:
    store = trials(tmp_path, {"short": 20})
    rows = minutes_of("short", *minutes)
    made_warehouse.write(tmp_path, "aggregates/by_minute", rows, made_warehouse.schema_of(rows[0]))
    keys = {plot.key for plot in trace_plots.of_traces(store, ())}
    assert keys == {"run-short"} | ({"traffic"} if shown else set())


def test_a_page_of_many_points_stays_small(report: Path) -> None:
    page = (report / "report.html").read_text()
    section = page[page.index('<section id="run-trial">') :]
    section = section[: section.index("</section>")]
    assert section.count("<tr>") == 401
    assert "The first 400 of " in section
    assert len(points_of(report, "run-trial")) > 2000


def test_times_have_round_marks(warehouse: Path) -> None:
    (plot,), _ = of_samples(Warehouse(warehouse), ())
    assert isinstance(plot, Plot)
    for is_narrow in (False, True):
        for axes in drawing.figure_of(plot, is_narrow=is_narrow).axes:
            marks = [float(label.get_text()) for label in axes.get_xticklabels()]
            assert marks[:2] == [0, marks[1]]
            assert marks[1] == 20
            assert len(set(np.diff(marks))) == 1


def test_a_warehouse_of_short_runs_has_a_report(tmp_path: Path) -> None:
    trials(tmp_path / "w", {"a": 5, "b:1+2": 5})
    build(tmp_path / "w", tmp_path / "report")
    assert (tmp_path / "report" / "run-b:1+2.png").exists()
    assert not (tmp_path / "report" / "standing.md").exists()  # nothing was compared
