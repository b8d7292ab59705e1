"""Tests of the report's files: every figure comes from rows of the warehouse, and every picture shows its figures."""

import csv
import itertools
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from representatives import representatives

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")
pytest.importorskip("matplotlib", reason="the extra `bench` is not installed")

import made_warehouse
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from fjm2bench.report import build, drawing, plots, tables, trace_plots
from fjm2bench.report.plot_data import Plot
from fjm2bench.report.style import LOOKS, look_of
from fjm2bench.report.warehouse import Warehouse
from fjm2bench.traces.warehouse import WarehouseError
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

KEYS = {
    "throughput-by-size",
    "throughput-by-fanout",
    "latency",
    "thesis-5-6",
    "thesis-5-8",
    "thesis-5-10",
    "ethernet-by-fanout",
    "throughput-by-loss",
    "cpu-by-size",
    "thesis-5-12",
    "wan-by-loss",
    "thesis-5-1",
    "thesis-5-4",
    "thesis-4-3-1",
    "repair-by-loss",
    "gateways",
    "traffic",
    "run-trial",
}
OF_TRACES = {"repair-by-loss", "gateways", "traffic", "run-trial"}


@pytest.fixture(scope="module")
def drawn(warehouse: Path) -> list[Plot]:
    """Return the data of all plots, which are not drawn yet."""
    store = Warehouse(warehouse)
    results = store.results()
    return [*plots.of_results(results), *trace_plots.of_traces(store, {result.run for result in results})]


def rows_of(report: Path, key: str) -> list[dict[str, str]]:
    with (report / f"{key}.csv").open() as file:
        return list(csv.DictReader(file))


# Every figure can be computed from rows in the Parquet files. The code below does not use that of the report.

UNIT: dict[str, tuple[str, float]] = {
    "messages/s": ("msgs_per_s", 1),
    "messages/s at each": ("msgs_per_s", 1),
    "throughput (Gbit/s)": ("gbit_per_s", 1),
    "throughput (Mbit/s)": ("gbit_per_s", 1000),
    "throughput at each (Mbit/s)": ("gbit_per_s", 1000),
    "CPU time (s/GB)": ("cpu_s_per_gb", 1),
    "time to encode (ms)": ("encode_s", 1000),
}
PLACE: dict[str, Callable[[dict[str, Any]], float]] = {
    "message size (bytes)": lambda row: row["size"],
    "data (bytes)": lambda row: row["size"],
    "subscribers": lambda row: row["fanout"],
    "packets lost at each subscriber (%), log scale": lambda row: 100 * row["loss"],
    "packets lost on the line (%), log scale": lambda row: 100 * row["loss"],
}


def parquet(warehouse: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ds.dataset(warehouse / name, partitioning="hive").to_table().to_pylist()
    return rows


def test_every_point_of_the_bench_is_the_median_of_the_rows_it_names(warehouse: Path, report: Path) -> None:
    by_run = {row["run"]: row for row in parquet(warehouse, "results") if row["role"] == "run"}
    checked = 0
    for key in KEYS - OF_TRACES:
        for point in rows_of(report, key):
            sources = [by_run[run] for run in point["runs"].split()]
            name, scale = (f"{point['figure']}_us", 1) if key == "latency" else UNIT[point["y_label"]]
            values = [dict(row["r"])[name] * scale for row in sources]
            assert float(point["y"]) == pytest.approx(median(values))
            assert (float(point["low"]), float(point["high"])) == pytest.approx((min(values), max(values)))
            assert int(point["measurements"]) == len(sources) > 0
            for row in sources:
                assert row["system"] == point["system"]
                assert "fault" not in dict(row["labels"])
                if point["x"]:
                    assert PLACE[point["x_label"]](row) == float(point["x"])
            checked += 1
    assert checked > 300


def test_every_row_of_the_bench_that_has_no_fault_is_in_some_point(warehouse: Path, report: Path) -> None:
    good = {
        row["run"]
        for row in parquet(warehouse, "results")
        if row["role"] == "run" and "fault" not in dict(row["labels"])
    }
    shown = {run for key in KEYS for point in rows_of(report, key) for run in point["runs"].split()}
    assert good <= shown


def test_runs_of_a_point_are_alike_and_all_that_are(warehouse: Path, report: Path) -> None:
    """Results of other networks, rates, fan-outs or losses are not part of the point."""
    by_run = {row["run"]: row for row in parquet(warehouse, "results") if row["role"] == "run"}
    for key in KEYS - OF_TRACES:
        for point in rows_of(report, key):
            rows = [by_run[run] for run in point["runs"].split()]
            kinds = {(row["scenario"], row["size"], row["fanout"], row["loss"], row["rate_bps"]) for row in rows}
            assert len(kinds) == 1
            expected = 1 if key in ("latency", "thesis-4-3-1") else 3
            assert len(rows) == expected, (key, point)


def test_repair_follows_from_the_counters_of_the_runs(warehouse: Path, report: Path) -> None:
    by_run = {row["run"]: row for row in parquet(warehouse, "aggregates/by_run")}
    figures: dict[str, Callable[[dict[str, Any]], float]] = {
        "NACKs per 1000 segments": lambda row: row["nacks_sent"] / row["segments_sent"] * 1000,
        "repair and parity segments (%)": lambda row: (
            (row["repair_segments_sent"] + row["parity_segments_sent"]) / row["segments_sent"] * 100
        ),
        "NACKs suppressed (%)": lambda row: (
            row["nacks_suppressed"] / max(1, row["nacks_suppressed"] + row["nacks_sent"]) * 100
        ),
    }
    points = rows_of(report, "repair-by-loss")
    assert {point["y_label"] for point in points} == set(figures)
    for point in points:
        sources = [by_run[run] for run in point["runs"].split()]
        assert float(point["y"]) == pytest.approx(median(figures[point["y_label"]](row) for row in sources))
        assert {100 * row["loss"] for row in sources} == {float(point["x"])}
        assert len(sources) == 2
    assert "alone" not in {run for point in points for run in point["runs"].split()}


@pytest.mark.parametrize(("key", "counter"), [("gateways", "bytes_sent"), ("traffic", "bytes")])
def test_traffic_over_time_follows_from_the_minutes(warehouse: Path, report: Path, key: str, counter: str) -> None:
    minutes = parquet(warehouse, "aggregates/by_minute")
    points = rows_of(report, key)
    assert len(points) == 30 * (3 if key == "gateways" else 1)
    for point in points:
        node, name = point["figure"].split(", ")
        found = [
            row
            for row in minutes
            if (row["node"], row["link"] or row["source"]) == (node, name)
            and row["minute"].minute == float(point["x"])
            and row["run"] in point["runs"].split()
        ]
        assert len(found) == 1
        assert float(point["y"]) == pytest.approx(found[0][counter] * 8e-6 / 59.5)


def test_a_long_time_is_shown_in_wider_steps(tmp_path: Path) -> None:
    samples = list(made_warehouse.Samples(3).minutes())
    more = [row | {"minute": row["minute"].replace(hour=9 + hour)} for row in samples for hour in range(14)]
    columns = {name: made_warehouse.TYPES.get(name) or "string" for name in more[0]}
    import pyarrow as pa

    made_warehouse.write(tmp_path, "aggregates/by_minute", more, pa.schema(list(columns.items())))
    build(tmp_path, tmp_path / "report")
    points = [point for point in rows_of(tmp_path / "report", "gateways") if point["figure"] == "paris, oslo"]
    assert {float(point["x"]) % 4 for point in points} == {0.0}
    moved = sum(float(point["y"]) for point in points if point["x"] == "0.0")
    first = [row for row in more if (row["node"], row["link"]) == ("paris", "oslo") and row["minute"].hour == 9]
    expected = sum(row["bytes_sent"] for row in first if row["minute"].minute < 4) * 8e-6 / (4 * 59.5)
    assert moved == pytest.approx(expected)


# Pictures.


def test_there_is_a_picture_and_a_table_of_everything(report: Path, drawn: list[Plot]) -> None:
    assert {plot.key for plot in drawn} == KEYS
    for key in KEYS:
        assert (report / f"{key}.png").read_bytes().startswith(b"\x89PNG")
    assert {path.stem for path in report.glob("*.png")} == {path.stem for path in report.glob("*.csv")} == KEYS


def test_lines_are_drawn_where_the_figures_are(drawn: list[Plot]) -> None:
    for plot in drawn:
        for axes, panel in zip(drawing.figure_of(plot).axes, plot.panels, strict=True):
            if panel.x_scale == "rows":
                marks = [line.get_xdata() for line in axes.lines]
                wanted = [point.y for series in panel.series for point in series.points]
                assert sorted(float(x) for mark in marks for x in mark) == pytest.approx(sorted(wanted))
                continue
            for series, line in zip(panel.series, axes.lines, strict=False):
                assert list(line.get_xdata()) == [point.x for point in series.points]
                assert list(line.get_ydata()) == [point.y for point in series.points]
            (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
            for point in itertools.chain.from_iterable(series.points for series in panel.series):
                assert left <= point.x <= right
                assert low <= point.low <= point.y <= point.high <= high


UNITS = (
    "(bytes)",
    "/s",
    "bit/s",
    "(%)",
    "(µs)",
    "(ms)",
    "(s/GB)",
    "(minutes)",
    "(s)",
    "(kB)",
    "per 1000 segments",
    "subscribers",
)


def test_axes_are_labelled_with_units(drawn: list[Plot]) -> None:
    for plot in drawn:
        for panel in plot.panels:
            labels = [panel.x_label] if panel.x_scale == "rows" else [panel.x_label, panel.y_label]
            for label in labels:
                assert any(unit in label for unit in UNITS), (plot.key, label)
        for axes, panel in zip(drawing.figure_of(plot).axes, plot.panels, strict=True):
            assert axes.get_xlabel() == panel.x_label
            assert axes.get_ylabel() == panel.y_label


@pytest.mark.parametrize("is_narrow", representatives([False, True], True))
def test_no_text_lies_on_another(drawn: list[Plot], is_narrow: bool) -> None:
    for plot in drawn:
        figure = drawing.figure_of(plot, is_narrow=is_narrow)
        boxes = dict(texts_of(figure))
        assert len(boxes) > 3
        for (one, a), (other, b) in itertools.combinations(boxes.items(), 2):
            is_apart = a.x1 <= b.x0 or b.x1 <= a.x0 or a.y1 <= b.y0 or b.y1 <= a.y0
            assert is_apart, f"{plot.key}: {one} and {other}"
        width, height = figure.bbox.size
        for name, box in boxes.items():
            assert box.x0 >= 0, name
            assert box.y0 >= 0, name
            assert box.x1 <= width, f"{plot.key}: {name}"
            assert box.y1 <= height, f"{plot.key}: {name}"


def texts_of(figure: Figure) -> Iterator[tuple[str, Any]]:
    """Yield every visible text of a figure, with its place in the figure."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    texts = [text for legend in figure.legends for text in legend.get_texts()]
    for axes in figure.axes:
        texts += [axes.xaxis.label, axes.yaxis.label, *axes.findobj(is_title)]
        for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            ticks = [tick for tick in axis.get_major_ticks() if min(low, high) <= tick.get_loc() <= max(low, high)]
            texts += [tick.label1 for tick in ticks]
    for number, text in enumerate(texts):
        if text.get_text():
            yield f"{number}: {text.get_text()}", text.get_window_extent(canvas.get_renderer())


def is_title(artist: Any) -> bool:
    return isinstance(artist, Text) and artist.get_text() != "" and artist.axes is not None and artist in titles(artist)


def titles(text: Text) -> list[Any]:
    axes: Any = text.axes
    return [axes.title, axes._left_title, axes._right_title]


def test_legends_name_all_lines(drawn: list[Plot]) -> None:
    for plot in drawn:
        figure = drawing.figure_of(plot)
        names = {text.get_text() for legend in figure.legends for text in legend.get_texts()}
        for panel in plot.panels:
            if panel.x_scale != "rows":
                assert {drawing.label_of(series) for series in panel.series} <= names


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour, as WCAG defines it."""
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])


def test_names_may_hold_whatever_labels_may(tmp_path: Path) -> None:
    """The names contain text that matplotlib would take for formulas, or would not show."""
    names = {"zenoh": r"$\frac{$ <b>&", "nats": "_hidden $_$"}
    made_warehouse.make(tmp_path / "warehouse")
    shutil.rmtree(tmp_path / "warehouse" / "aggregates")
    for path in (tmp_path / "warehouse" / "results").rglob("*.parquet"):
        table = pq.read_table(path)
        few = (pc.field("scenario") == "lan") & (pc.field("fanout") == 1) & (pc.field("loss") == 0)
        table = table.filter(few & pc.field("system").isin(["fjm2-jms", *names]))  # drawing takes the most time
        systems = [names.get(system, system) for system in table["system"].to_pylist()]
        pq.write_table(table.set_column(table.column_names.index("system"), "system", pa.array(systems)), path)
    page = build(tmp_path / "warehouse", tmp_path / "report").read_text()
    check_alike(build(tmp_path / "warehouse", tmp_path / "again").parent, tmp_path / "report")
    assert r"$\frac{$ &lt;b&gt;&amp;" in page
    found = {plot.key: plot for plot in plots.of_results(Warehouse(tmp_path / "warehouse").results())}
    (legend,) = drawing.figure_of(found["throughput-by-size"]).legends
    assert set(names.values()) <= {text.get_text() for text in legend.get_texts()}


def test_systems_can_be_distinguished_without_colours() -> None:
    """Systems in one plot differ in marker or line, and all colours are visible on white."""
    groups = (made_warehouse.MESSAGES, made_warehouse.BROKERS, made_warehouse.RAW, made_warehouse.WAYS)
    for group in groups:
        looks = [(look_of(system).marker, look_of(system).line) for system in group]
        assert len(set(looks)) == len(looks)
    for look in LOOKS.values():
        assert 1.05 / (luminance(look.colour) + 0.05) > 2
    assert look_of("fjm2-jms").width > 1.5 * max(look.width for look in LOOKS.values() if not look.is_ours)


# Texts and tables.


def test_standings_are_ratios_to_the_best_other(warehouse: Path) -> None:
    results = [result for result in Warehouse(warehouse).results() if not result.fault]
    found = {(what, ours): (ratio, best) for what, ours, ratio, best in tables.standings(results)}

    def of(system: str, name: str, size: int) -> float:
        return median(
            result.r[name]
            for result in results
            if (result.system, result.scenario, result.size, result.fanout) == (system, "lan", size, 1)
            and result.rate_bps is None
            and name in result.r
        )

    others = [system for system in made_warehouse.MESSAGES if not system.startswith("fjm2")]
    fastest = max(others, key=lambda system: of(system, "msgs_per_s", 8192))
    ratio, best = found["throughput, lan, 8192 B to 1", "fjm2"]
    assert best == fastest
    assert ratio == pytest.approx(of("fjm2", "msgs_per_s", 8192) / of(fastest, "msgs_per_s", 8192))
    quickest = min(others, key=lambda system: of(system, "p50_us", 64))
    ratio, best = found["round trip, lan, 64 B", "fjm2-jms"]
    assert best == quickest
    assert ratio == pytest.approx(of(quickest, "p50_us", 64) / of("fjm2-jms", "p50_us", 64))
    assert not any(math.isnan(value) for value, _ in found.values())


def test_a_cell_measured_after_all_is_not_missing(warehouse: Path) -> None:
    results = Warehouse(warehouse).results()
    by_key = {table.key: table for table in tables.tables_of(results, [])}
    assert "missing" not in by_key
    alone = [result for result in results if result.system != "activemq-stomp" or "missing" in result.labels]
    (row,) = {table.key: table for table in tables.tables_of(alone, [])}["missing"].rows
    assert tuple(row) == ("ActiveMQ (STOMP)", "java is not installed", "made")


def test_the_page_needs_nothing_else_and_names_everything(report: Path) -> None:
    page = (report / "report.html").read_text()
    for outside in ("http://", "https://", "//cdn", "<script", '<link rel="stylesheet"', "@import"):
        assert outside not in page.replace("http://www.w3.org", "").replace("https://www.w3.org", "")
    assert "Made-Up 3000" in page
    assert "12 lost &lt;b&gt;&amp;" in page
    assert "<b>&" not in page
    for system in made_warehouse.MESSAGES:
        assert f"{system} as fast as it goes" in page
    assert page.count("<img ") == len(KEYS)
    assert page.count('alt="') == len(KEYS)


def test_anomalies_have_units_and_come_oldest_first() -> None:
    (table,) = tables.tables_of([], [made_warehouse.ANOMALY, made_warehouse.COLLAPSE])
    where = f"{made_warehouse.ANOMALY['run']} feed session"
    assert table.rows == [
        ("2026-03-02 09:10:05", "4 s", "throughput_collapse", "1.2 Mbit/s", "4,260 Mbit/s", where),
        ("2026-03-02 09:11:00", "4 s", "nack_storm", "123 NACKs/s", "0 NACKs/s", where),
    ]


@pytest.mark.nightly
def test_the_same_warehouse_gives_the_same_report(warehouse: Path, report: Path, tmp_path: Path) -> None:
    check_alike(build(warehouse, tmp_path).parent, report)


def check_alike(one: Path, other: Path) -> None:
    for path in other.iterdir():
        assert path.read_bytes() == (one / path.name).read_bytes(), path.name


def test_an_empty_warehouse_is_reported(tmp_path: Path) -> None:
    with pytest.raises(WarehouseError, match="expected rows/, results/ and aggregates/"):
        build(tmp_path, tmp_path / "report")
    (tmp_path / "results").mkdir()
    assert "There are no results of benchmarks" in build(tmp_path, tmp_path / "report").read_text()
    (tmp_path / "results" / "part.parquet").write_bytes(b"rubbish")
    with pytest.raises(WarehouseError, match="cannot be read"):
        build(tmp_path, tmp_path / "report")
