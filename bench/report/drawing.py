"""Drawing of plots: a wide SVG, a narrow SVG for telephones, and a wide PNG."""

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator

from .plot_data import Panel, Plot, Point, Series
from .style import FAINT, FONT_PT, GRID, INK, Look, look_of, name_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

PNG_DPI = 150
"""Pixels per inch: a wide picture has 1230 pixels."""
_WIDE_IN, _NARROW_IN = 8.2, 4.0
"""Widths of pictures in inches: two panels beside each other, or one."""
_PANEL_IN = 3.3
"""Height of a panel in inches."""
_ROW_IN = 0.27
"""Height of a system's row in inches."""
_MARKERS_MAX = 40
"""Most markers of a line, nearly: more would hide it."""
_SETTINGS: Any = {
    "font.family": "DejaVu Sans",
    "font.size": FONT_PT,
    "axes.titlesize": FONT_PT,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "text.parse_math": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "fjm2",
    "lines.markersize": 5.0,
}


def svg(plot: Plot, *, is_narrow: bool = False) -> str:
    """Return the plot as SVG. The picture has no size of its own: the page sets its size."""
    with mpl.rc_context(_SETTINGS):
        out = io.StringIO()
        figure_of(plot, is_narrow=is_narrow).savefig(out, format="svg", metadata={"Date": None, "Creator": None})
        return out.getvalue()


def png(plot: Plot) -> bytes:
    """Return the wide picture as PNG."""
    with mpl.rc_context(_SETTINGS):
        out = io.BytesIO()
        figure_of(plot).savefig(out, format="png", dpi=PNG_DPI, metadata={"Software": None})
        return out.getvalue()


def figure_of(plot: Plot, *, is_narrow: bool = False) -> Figure:
    """Return a figure with all panels, and one legend below them."""
    with mpl.rc_context(_SETTINGS):
        columns = 1 if is_narrow else min(len(plot.panels), 2)
        rows = math.ceil(len(plot.panels) / columns)
        handles: dict[str, Line2D] = {}
        names = {label_of(series) for panel in plot.panels for series in panel.series}
        legend_columns = max(1, int((_NARROW_IN if is_narrow else _WIDE_IN) / _legend_in(max(map(len, names)))))
        legend_in = 0.0 if _has_rows(plot) else 0.25 * math.ceil(len(names) / legend_columns) + 0.1
        height = sum(_height(plot.panels[row * columns : (row + 1) * columns]) for row in range(rows))
        width = _NARROW_IN if is_narrow else _WIDE_IN
        layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08)
        figure = Figure(figsize=(width, height + legend_in), layout=layout, facecolor="white")
        ratios = [_height(plot.panels[row * columns : (row + 1) * columns]) for row in range(rows)]
        places = figure.subplots(rows, columns, squeeze=False, height_ratios=ratios)
        for axes in places.flat[len(plot.panels) :]:
            axes.remove()
        for axes, panel in zip(places.flat, plot.panels, strict=False):
            _draw_panel(axes, panel, handles, is_narrow=is_narrow)
        if not _has_rows(plot):
            figure.legend(
                handles.values(), handles.keys(), loc="outside lower center", ncols=legend_columns, frameon=False
            )
        return figure


def _legend_in(letters: int) -> float:
    """Return the width of an entry of the legend in inches, by its number of letters."""
    return 0.55 + 0.073 * letters


def _has_rows(plot: Plot) -> bool:
    return all(panel.x_scale == "rows" for panel in plot.panels)


def _height(panels: Sequence[Panel]) -> float:
    return max(_PANEL_IN if panel.x_scale != "rows" else 0.9 + _ROW_IN * len(_rows(panel)) for panel in panels)


def label_of(series: Series) -> str:
    return series.name or name_of(series.system)


def _draw_panel(axes: "Axes", panel: Panel, handles: "dict[str, Line2D]", *, is_narrow: bool) -> None:
    axes.set_title(panel.title)
    axes.grid(visible=True, color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    if panel.x_scale == "rows":
        _draw_rows(axes, panel)
        return
    for number, series in enumerate(panel.series):
        # FJM2 comes first in the legend and is drawn above the others.
        line = _draw_line(axes, series, look_of(series.system, number), len(panel.series) - number)
        handles.setdefault(label_of(series), line)
    if panel.limit is not None:
        handles.setdefault(
            panel.limit_name, axes.axhline(panel.limit, color=FAINT, linewidth=1.0, linestyle=(0, (1, 2)))
        )
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    _scale_x(axes, panel, is_narrow=is_narrow)
    _scale_y(axes, panel)


def _draw_line(axes: "Axes", series: Series, look: Look, height: int) -> "Line2D":
    xs, ys = [point.x for point in series.points], [point.y for point in series.points]
    (line,) = axes.plot(
        xs,
        ys,
        color=look.colour,
        marker=look.marker,
        markevery=max(1, len(xs) // _MARKERS_MAX),
        linestyle=series.line or look.line,
        linewidth=look.width,
        zorder=10 + height,
        gid=f"{series.system}",
    )
    for point in series.points:
        if point.low < point.high:
            axes.vlines(point.x, point.low, point.high, color=look.colour, linewidth=0.8, zorder=5)
    return line


def _rows(panel: Panel) -> list[str]:
    """Return the systems of a panel of rows, from the top."""
    return list(dict.fromkeys(series.system for series in panel.series))


def _draw_rows(axes: "Axes", panel: Panel) -> None:
    """Draw a row for each system, from its first figure to its last."""
    systems = _rows(panel)
    for place, system in enumerate(systems):
        points = [point for series in panel.series if series.system == system for point in series.points]
        _draw_row(axes, place, points, look_of(system))
    axes.set_yticks(range(len(systems)), [name_of(system) for system in systems])
    axes.set_ylim(len(systems) - 0.5, -0.5)
    for label, system in zip(axes.get_yticklabels(), systems, strict=True):
        label.set_fontweight("bold" if look_of(system).is_ours else "normal")
    values = [point.y for series in panel.series for point in series.points]
    axes.set_xscale("log")
    axes.set_xlim(min(values) / 1.4, max(values) * 1.4)
    _mark_decades(axes.xaxis, min(values) / 1.4, max(values) * 1.4)
    axes.set_xlabel(panel.x_label)


def _draw_row(axes: "Axes", place: int, points: Sequence[Point], look: Look) -> None:
    values = [point.y for point in points]
    axes.hlines(place, min(values), max(values), color=look.colour, linewidth=look.width, zorder=5)
    for number, value in enumerate(values):
        face = look.colour if number == 0 else "white"
        axes.plot(value, place, color=look.colour, marker="o", markerfacecolor=face, zorder=10, linestyle="none")


def _scale_x(axes: "Axes", panel: Panel, *, is_narrow: bool) -> None:
    places = sorted({point.x for series in panel.series for point in series.points})
    if panel.x_scale == "bytes":
        axes.set_xscale("log", base=2)
        low, high = min(places), max(places)
        axes.set_xlim(low / 1.3, high * 1.3)
        _mark(axes.xaxis, _thinned(places, 5 if is_narrow else 7, is_log=True), _bytes)
    elif panel.x_scale == "percent":
        axes.set_xscale("symlog", linthresh=0.1)
        axes.set_xlim(-0.02, max(places) * 1.4)
        _mark(axes.xaxis, _thinned(places, 6, is_log=False), lambda value: f"{value:g}")
    elif panel.x_scale == "time":
        low, high = min(0.0, *places), max(places)
        span = high - low or 1.0
        axes.set_xlim(low - 0.02 * span, high + 0.02 * span)
        ticks = MaxNLocator(5 if is_narrow else 7, steps=[1, 2, 5, 10]).tick_values(low, high)
        _mark(axes.xaxis, [tick for tick in ticks if low <= tick <= high], lambda value: f"{value:g}")
    else:
        span = max(places) - min(places) or 1.0
        axes.set_xlim(min(places) - 0.06 * span, max(places) + 0.06 * span)
        _mark(axes.xaxis, _thinned(places, 8, is_log=False), lambda value: f"{value:g}")


def _scale_y(axes: "Axes", panel: Panel) -> None:
    values = [value for series in panel.series for point in series.points for value in (point.low, point.high)]
    if panel.y_scale == "log":
        good = [value for value in values if value > 0] or [1.0]
        low, high = min(good) / 1.4, max(good) * 1.4
        axes.set_yscale("log")
        axes.set_ylim(low, high)
        _mark_decades(axes.yaxis, low, high)
    else:
        axes.set_ylim(0, max(*values, panel.limit or 0.0) * 1.06 or 1.0)


def _thinned(places: list[float], most: int, *, is_log: bool) -> list[float]:
    """Return at most `most` of the positions, none too near another."""
    if len(places) <= 1:
        return places
    at = [math.log2(place) if is_log else math.asinh(place * 20) for place in places]
    least = (at[-1] - at[0]) / (most + 0.5)
    kept = [len(places) - 1]
    for index in range(len(places) - 2, -1, -1):
        if at[kept[-1]] - at[index] >= least:
            kept.append(index)
    return [places[index] for index in reversed(kept)]


def _mark_decades(axis: Any, low: float, high: float) -> None:
    """Mark powers of ten. If there are few of them, mark 2 and 5 as well."""
    decades = math.log10(high / low)
    steps = (1, 2, 5) if decades < 2.2 else (1, 3) if decades < 3.5 else (1,)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    places = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    _mark(axis, [place for place in places if low <= place <= high], _short)


def _mark(axis: Any, places: Sequence[float], text: Any) -> None:
    axis.set_major_locator(FixedLocator(list(places)))
    axis.set_major_formatter(FuncFormatter(lambda value, _position: text(value)))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def _bytes(value: float) -> str:
    """Format a size in bytes with a binary prefix where it fits."""
    for unit, size in (("Mi", 1 << 20), ("Ki", 1 << 10)):
        if value >= size and value % size == 0:
            return f"{value / size:g} {unit}"
    return f"{value:g}"


def _short(value: float) -> str:
    for unit, size in ((" M", 1e6), (" k", 1e3)):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"
