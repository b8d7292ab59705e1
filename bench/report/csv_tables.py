"""Plots as CSV: a row for each point that is drawn, with the runs that it comes from."""

import csv
import io
from collections.abc import Iterator, Sequence

from .plot_data import Panel, Plot, Series

COLUMNS = ("plot", "panel", "system", "figure", "x", "y", "low", "high", "measurements", "x_label", "y_label", "runs")


def csv_of(plot: Plot) -> str:
    """Return a plot as CSV with a line of headings. Numbers keep their full precision."""
    return csv_text(COLUMNS, rows_of(plot))


def rows_of(plot: Plot) -> Iterator[tuple[str, ...]]:
    for panel in plot.panels:
        for series in panel.series:
            yield from _rows(plot, panel, series)


def _rows(plot: Plot, panel: Panel, series: Series) -> Iterator[tuple[str, ...]]:
    is_rows = panel.x_scale == "rows"
    x_label, y_label = ("", panel.x_label) if is_rows else (panel.x_label, panel.y_label)
    for point in series.points:
        x = "" if is_rows else repr(point.x)
        numbers = (x, repr(point.y), repr(point.low), repr(point.high), str(len(point.runs)))
        runs = " ".join(point.runs)
        yield (plot.key, panel.title, series.system, series.name, *numbers, x_label, y_label, runs)


def csv_text(columns: Sequence[str], rows: Iterator[tuple[str, ...]] | Sequence[tuple[str, ...]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return out.getvalue()
