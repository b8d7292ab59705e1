"""What plots are made of: points, each of which knows the runs that it comes from."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from .style import order_of
from .warehouse import Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The median of what was measured at one place."""

    x: float
    y: float
    low: float
    high: float
    """Of all measurements there."""
    runs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """A line of a plot."""

    system: str
    points: tuple[Point, ...]
    name: str = ""
    """Where it is more than the system's."""
    line: str = ""
    """Where one system has several lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A pair of axes. The labels name the units."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    x_scale: str = "linear"
    """"linear", "log", "bytes" (powers of two), "percent", or "rows": a row for each system."""
    y_scale: str = "linear"
    limit: float | None = None
    """What cannot be exceeded: a line across."""
    limit_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A picture with a title, and what is to be said of it."""

    key: str
    """Name of its files."""
    title: str
    text: str
    panels: tuple[Panel, ...]
    thesis: str = ""
    """Which of its figures this is."""
    sources: tuple[str, ...] = field(default=("results/",))
    """Where in the warehouse the runs are to be looked up."""


Key = Callable[[Result], float | None]


def lines_of(results: Iterable[Result], x: Key, y: str, scale: float = 1.0) -> tuple[Series, ...]:
    """One line a system: the medians of a figure at each place. Runs with a fault have none."""
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
    """Of measurements and the runs that they come from."""
    numbers = [value for value, _ in values]
    runs = tuple(sorted({run for _, run in values}))
    return Point(x=x, y=median(numbers), low=min(numbers), high=max(numbers), runs=runs)
