"""FJM2's ratios to each of the other systems, as Markdown tables for documentation."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median

from .style import name_of, order_of
from .warehouse import Result

_LAYERS = {"fjm2-jms": "JMS", "fjm2": "NORM"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A table: the figure that is compared, and the results that belong to it."""

    title: str
    figure: str
    is_more_better: bool
    ours: tuple[str, ...]
    has: Callable[[Result], bool]


_PARTS = (
    _Part(
        title="throughput",
        figure="msgs_per_s",
        is_more_better=True,
        ours=tuple(_LAYERS),
        has=lambda it: it.scenario != "wan" and it.layer not in ("udp", "fec"),
    ),
    _Part(
        title="speed of a round trip, p50",
        figure="p50_us",
        is_more_better=False,
        ours=tuple(_LAYERS),
        has=lambda it: it.scenario != "wan" and it.layer != "udp",
    ),
    _Part(
        title="throughput from LAN to LAN",
        figure="msgs_per_s",
        is_more_better=True,
        ours=("fjm2d",),
        has=lambda it: it.scenario == "wan",
    ),
    _Part(
        title="speed of FEC, encoding",
        figure="encode_s",
        is_more_better=False,
        ours=("fjm2",),
        has=lambda it: it.layer == "fec",
    ),
)


def markdown_of(results: Sequence[Result], machine: Iterable[Sequence[str]]) -> str:
    """Return all tables and a description of the machine. Above 1, FJM2 is better; below 1, in bold, it is worse."""
    found = [table for part in _PARTS if (table := _table(part, results))]
    if losses := _losses(results):
        found.append(losses)
    described = "; ".join(f"{name}: {value}" for name, value in machine)
    lead = "How many times as good FJM2 is as each of the others, medians; below 1, in bold, it is behind."
    return "\n\n".join([lead, *found, described]) + "\n"


def _table(part: _Part, results: Sequence[Result]) -> str:
    """Return a table with a row for each setting and FJM2 system. It is empty if no other system was measured."""
    places = _medians([result for result in results if part.has(result)], part.figure)
    rows: list[tuple[str, dict[str, float]]] = []
    for where, values in places:
        for ours in part.ours:
            others = {name: value for name, value in values.items() if name not in part.ours}
            if ours in values and others:
                own = values[ours]
                ratios = {name: own / it if part.is_more_better else it / own for name, it in others.items()}
                rows.append((f"{where}, {_LAYERS[ours]}" if len(part.ours) > 1 else where, ratios))
    return _markdown(part.title, rows)


def _losses(results: Sequence[Result]) -> str:
    """Return a table of each system's throughput with loss, as a share of its own throughput without loss."""
    chosen = [result for result in results if result.layer != "udp" and result.scenario is not None]
    groups: dict[tuple[object, ...], list[Result]] = {}
    for result in chosen:
        groups.setdefault((result.scenario, result.rate_bps, result.fanout, result.size), []).append(result)
    rows = []
    for same in groups.values():
        (_, whole), *lossy = _medians(same, "msgs_per_s") or [("", {})]
        if not any(result.loss == 0 for result in same):
            continue
        for where, values in lossy:
            rows.append((where, {name: value / whole[name] for name, value in values.items() if name in whole}))
    return _markdown("throughput with loss, of the same without", [row for row in rows if row[1]], "{:.0%}".format)


def _medians(results: Sequence[Result], figure: str) -> list[tuple[str, dict[str, float]]]:
    """Return medians by setting, described in words, and by system."""
    good = sorted((result for result in results if figure in result.r and not result.fault), key=_place)
    found = []
    for _, same in groupby(good, key=_place):
        values: dict[str, list[float]] = {}
        for result in same:
            values.setdefault(result.system, []).append(result.r[figure])
            where = _words(result)
        found.append((where, {name: median(values[name]) for name in sorted(values, key=order_of)}))
    return found


def _place(result: Result) -> tuple[str, float, float, int, int, str]:
    layer = result.layer if result.scenario == "wan" else ""
    return result.scenario or "", result.rate_bps or 0, result.loss, result.fanout or 0, result.size or 0, layer


def _words(result: Result) -> str:
    size = result.size or 0
    parts = [f"{size >> 10} KiB" if size >= 1024 and size % 1024 == 0 else f"{size} B"]
    if result.scenario == "wan":
        parts.append(_LAYERS.get({"jms": "fjm2-jms", "norm": "fjm2"}.get(result.layer, ""), result.layer))
    elif result.fanout is not None and "p50_us" not in result.r:
        parts[0] += f" to {result.fanout}"
    if result.scenario not in ("lan", "wan", None):
        parts.append(str(result.scenario))
    if result.rate_bps is not None:
        parts.append(f"{result.rate_bps / 1e6:g} Mbit/s")
    if result.loss:
        parts.append(f"{100 * result.loss:g} % lost")
    return ", ".join(parts)


def _ratio(value: float) -> str:
    text = f"{value:.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 0.995 else f"{value:.2f}"
    return text if value >= 0.995 else f"**{text}**"


def _markdown(title: str, rows: Sequence[tuple[str, dict[str, float]]], text: Callable[[float], str] = _ratio) -> str:
    if not rows:
        return ""
    systems = sorted({name for _, ratios in rows for name in ratios}, key=order_of)
    lines = [[title, *map(name_of, systems)], ["---"] * (len(systems) + 1)]
    lines += [[where, *(text(ratios[name]) if name in ratios else "" for name in systems)] for where, ratios in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
