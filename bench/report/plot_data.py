"""The data of plots. Every point knows the runs that it comes from."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from .style import order_of
from .warehouse import Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The median of the measurements at one x."""

    x: float
    y: float
    low: float
    """Lowest measurement."""
    high: float
    """Highest measurement."""
    runs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """A line of a plot."""

    system: str
    points: tuple[Point, ...]
    name: str = ""
    """Name in the legend, if it is not the system's."""
    line: str = ""
    """Line style, if a system has several lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A pair of axes. Labels contain the units."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    x_scale: str = "linear"
    """"linear", "time" (from 0, with round numbers), "log", "bytes" (powers of two), "percent", or "rows": a row for
    each system."""
    y_scale: str = "linear"
    limit: float | None = None
    """Upper bound, such as the link's rate, drawn as a line across."""
    limit_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A picture with its title and text."""

    key: str
    """Base name of the plot's files."""
    title: str
    text: str
    panels: tuple[Panel, ...]
    thesis: str = ""
    """Corresponding figure of the thesis."""
    sources: tuple[str, ...] = field(default=("results/",))
    """Folders of the warehouse that contain the runs."""


Key = Callable[[Result], float | None]


def lines_of(results: Iterable[Result], x: Key, y: str, scale: float = 1.0) -> tuple[Series, ...]:
    """Return a line for each system: medians of a figure at each x. Runs with a fault are left out."""
    found: dict[str, dict[float, list[tuple[float, str]]]] = {}
    for result in results:
        place, value = x(result), result.r.get(y)
        if place is not None and value is not None and not result.fault:
            found.setdefault(result.system, {}).setdefault(place, []).append((value * scale, result.run))
    return tuple(
        Series(system, tuple(point_of(place, values) for place, values in sorted(places.items())))
        for system, places in sorted(found.items(), key=lambda item: order_of(item[0]))
    )


def point_of(x: float, values: Sequence[tuple[float, str]]) -> Point:
    """Return the point of some measurements, each given with its run."""
    numbers = [value for value, _ in values]
    runs = tuple(sorted({run for _, run in values}))
    return Point(x=x, y=median(numbers), low=min(numbers), high=max(numbers), runs=runs)
