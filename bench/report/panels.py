"""Panels that several plots use: a figure by size, loss or fan-out; and the grouping of results."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from .plot_data import Panel, lines_of
from .warehouse import Result

SIZE_LABEL = "message size (bytes)"
_Place = TypeVar("_Place", int, str, tuple[int, int], tuple[str, int])


def by_size(results: Sequence[Result], title: str, limit_bps: float | None = None) -> Panel:
    """Return a panel of throughput by message size, in Mbit/s if the link is slow, else in Gbit/s."""
    is_slow = limit_bps is not None and limit_bps < 1e9
    scale, unit = (1e3, "Mbit/s") if is_slow else (1.0, "Gbit/s")
    return Panel(
        title=title,
        x_label=SIZE_LABEL,
        y_label=f"throughput ({unit})",
        series=lines_of(results, lambda result: result.size, "gbit_per_s", scale),
        x_scale="bytes",
        y_scale="log" if limit_bps is None else "linear",
        limit=None if limit_bps is None else limit_bps / (1e6 if is_slow else 1e9),
        limit_name="the link",
    )


def by_fanout(results: Sequence[Result], size: int, y: str, y_label: str, limit_bps: float | None = None) -> Panel:
    """Return a panel of a figure by number of subscribers, for systems that were measured with several."""
    wide = {result.system for result in results if result.fanout != 1}
    return Panel(
        title=f"Messages of {size} B",
        x_label="subscribers",
        y_label=y_label,
        series=lines_of(
            [result for result in results if result.system in wide],
            lambda result: result.fanout,
            y,
            1.0 if limit_bps is None else 1e3,
        ),
        y_scale="log" if limit_bps is None else "linear",
        limit=None if limit_bps is None else limit_bps / 1e6,
        limit_name="the link",
    )


def by_loss(results: Sequence[Result], title: str, x_label: str, rate_bps: float | None) -> Panel:
    """Return a panel of throughput by loss. It is empty, and so left out, if no result has loss."""
    return Panel(
        title=title,
        x_label=x_label,
        y_label="throughput (Mbit/s)",
        series=lines_of(results if any(result.loss for result in results) else (), _percent_lost, "gbit_per_s", 1e3),
        x_scale="percent",
        limit=None if rate_bps is None else rate_bps / 1e6,
        limit_name="the link",
    )


def _percent_lost(result: Result) -> float:
    return 100 * result.loss


def grouped(
    results: Sequence[Result], place: Callable[[Result], _Place]
) -> Iterator[tuple[float | None, _Place, list[Result]]]:
    """Group results by the link's rate (the slowest first, no limit last) and by a key."""

    def order(result: Result) -> tuple[float, _Place]:
        return result.rate_bps or math.inf, place(result)

    for (rate_bps, where), same in groupby(sorted(results, key=order), key=order):
        yield None if rate_bps == math.inf else rate_bps, where, list(same)


def link_of(rate_bps: float | None) -> str:
    return "no limit" if rate_bps is None else f"{rate_bps / 1e6:g} Mbit/s"
