"""The tables and texts of a report: how FJM2 compares, the systems and the machine, and what went wrong."""

import time
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from fjm2.base.quantities import counted

from .page import Table
from .style import name_of, order_of
from .warehouse import Result

OURS = ("fjm2-jms", "fjm2")
_MACHINE = {
    "cpu": "Processor",
    "cores": "Cores",
    "memory_gb": "Memory (GB)",
    "kernel": "Kernel",
    "python": "Python",
    "numpy": "numpy",
    "udp_offload": "UDP offload of the kernel",
    "nice": "Niceness of the runs",
}
# Longer tables would make the page slow. The warehouse has all rows.
_FAULTS_MAX = 200
_ANOMALIES_MAX = 100


def tables_of(results: Sequence[Result], anomalies: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Return the tables that have rows."""
    made = (
        _standings(results),
        _systems(results),
        _machine(results),
        _missing(results),
        _faults(results),
        _anomalies(anomalies),
    )
    return [table for table in made if table is not None]


def standings(results: Iterable[Result]) -> list[tuple[str, str, float, str]]:
    """Return tuples: setting, FJM2's system, ratio to the best other system, that system. Above 1, FJM2 is better."""
    found: dict[tuple[str, ...], dict[str, float]] = {}
    for name, is_better_high in (("msgs_per_s", True), ("p50_us", False)):
        for what, values in _values(results, name).items():
            found[(*what, "1" if is_better_high else "")] = values
    return [
        (what, ours, values[ours] / values[best] if is_high else values[best] / values[ours], best)
        for (what, is_high), values in found.items()
        if (others := [system for system in values if system not in OURS])
        and (best := (max if is_high else min)(others, key=lambda system: values[system]))
        for ours in OURS
        if ours in values
    ]


def _values(results: Iterable[Result], name: str) -> dict[tuple[str], dict[str, float]]:
    """Return medians by setting, then by system."""
    found: dict[tuple[str], dict[str, list[float]]] = {}
    for result in sorted(results, key=_place):
        is_other = result.layer in ("udp", "fec") or result.scenario == "wan" or result.fault
        if not is_other and name in result.r:
            found.setdefault((_what(result),), {}).setdefault(result.system, []).append(result.r[name])
    return {what: {system: median(values) for system, values in by.items()} for what, by in found.items()}


def _place(result: Result) -> tuple[Any, ...]:
    return result.scenario or "", result.rate_bps or 0, result.loss, result.fanout or 0, result.size or 0


def _what(result: Result) -> str:
    """Return a description of a result's setting."""
    link = "" if result.rate_bps is None else f" at {result.rate_bps / 1e6:g} Mbit/s"
    lost = f", {result.loss:.1%} lost" if result.loss else ""
    if "p50_us" in result.r:
        return f"round trip, {result.scenario}{link}{lost}, {result.size} B"
    return f"throughput, {result.scenario}{link}{lost}, {result.size} B to {result.fanout}"


def _standings(results: Sequence[Result]) -> Table | None:
    by_what: dict[str, dict[str, str]] = {}
    for what, ours, ratio, best in standings(results):
        by_what.setdefault(what, {})[ours] = f"{ratio:.2f} × {name_of(best)}"
    rows = [(what, *(ratios.get(system, "") for system in OURS)) for what, ratios in by_what.items()]
    if not rows:
        return None
    return Table(
        "top-standings",
        "FJM2 beside the best of the others",
        "Medians. Above 1, FJM2 is better: more messages per second, or a shorter round trip. Below 1, it is worse. "
        "The other systems carry bare bytes; FJM2 (JMS) carries JMS messages, FJM2 (NORM) a stream of bytes.",
        ("what", *map(name_of, OURS)),
        rows,
    )


def _systems(results: Sequence[Result]) -> Table | None:
    last = {(result.system, result.labels.get("settings", "")): result for result in results if "cell" in result.labels}
    rows = [
        (name_of(system), result.labels.get("version", ""), settings)
        for (system, settings), result in sorted(last.items(), key=lambda item: (order_of(item[0][0]), item[0][1]))
    ]
    text = "Each system in the fastest form we know that loses nothing. Bare UDP guarantees nothing."
    return (
        Table("systems", "Systems and their settings", text, ("system", "version", "settings"), rows) if rows else None
    )


def _machine(results: Sequence[Result]) -> Table | None:
    rows = []
    for label, name in _MACHINE.items():
        values = sorted({result.labels[label] for result in results if label in result.labels})
        if values:
            rows.append((name, "; ".join(values)))
    loads = [float(result.labels["load"]) for result in results if "load" in result.labels]
    if loads:
        rows.append(
            ("Load when runs ended (processes)", f"{min(loads):.1f} to {max(loads):.1f}, median {median(loads):.1f}")
        )
    text = (
        "The figures depend on the machine; only their ratios carry over to others. A load above the number of cores "
    )
    text += "means that processes were waiting for a core: those of the run itself, or other work."
    return Table("machine", "The machine", text, ("", ""), rows) if rows else None


def _missing(results: Sequence[Result]) -> Table | None:
    found = {result.system: result for result in results if "missing" in result.labels}
    measured = {(result.system, name) for result in results if "cell" in result.labels for name in _names(result)}
    rows = []
    for system, result in sorted(found.items(), key=lambda item: order_of(item[0])):
        names = [name for name in _names(result) if (system, name) not in measured]
        if names:
            rows.append((name_of(system), result.labels["missing"], ", ".join(names)))
    text = "Systems of the plan that are not installed."
    return Table("missing", "Missing systems", text, ("system", "why", "experiments"), rows) if rows else None


def _names(result: Result) -> list[str]:
    return result.labels.get("experiment", "").split(", ")


def _faults(results: Sequence[Result]) -> Table | None:
    bad = [result for result in results if result.fault and "missing" not in result.labels]
    rows = [(name_of(result.system), _what(result), result.fault, result.run) for result in bad[:_FAULTS_MAX]]
    more = f" The first {_FAULTS_MAX} of {len(bad)}." if len(bad) > _FAULTS_MAX else ""
    text = f"These runs are not part of any figure.{more}"
    return Table("faults", "Runs that failed", text, ("system", "what", "fault", "run"), rows) if rows else None


def _anomalies(anomalies: Sequence[Mapping[str, Any]]) -> Table | None:
    """Return a table of the anomalies, the oldest first. Further labels of their series are in the warehouse."""
    if not anomalies:
        return None
    by_time = sorted(anomalies, key=lambda row: (row["start"], row["run"], row["node"], row["source"]))
    rows = [_anomaly(row) for row in by_time[:_ANOMALIES_MAX]]
    more = f" The first {_ANOMALIES_MAX} of {len(anomalies)}." if len(anomalies) > _ANOMALIES_MAX else ""
    text = f"Anomalies that the pipeline found in the traces, with the mean of the ten seconds before each.{more}"
    headings = ("from (UTC)", "lasted", "what", "worst second", "before", "run, node and source")
    return Table("anomalies", "Anomalies", text, headings, rows, frozenset({0, 1, 3, 4}))


def _anomaly(row: Mapping[str, Any]) -> tuple[str, ...]:
    kind = row["kind"]
    worst, usual = (_amount(kind, row[name]) for name in ("value", "usual"))
    lasted, where = f"{row['seconds']} s", f"{row['run']} {row['node']} {row['source']}"
    return f"{row['start']:%Y-%m-%d %H:%M:%S}", lasted, kind, worst, usual, where


def _amount(kind: str, value: float | None) -> str:
    if value is None:
        return ""
    if kind == "nack_storm":
        return f"{value:,.0f} NACKs/s"
    return f"{value / 1e6:,.0f} Mbit/s" if value >= 1e8 else f"{value / 1e6:.3g} Mbit/s"


def lead_of(results: Sequence[Result]) -> list[str]:
    """Return the introduction of the page."""
    if not results:
        return ["There are no results of benchmarks in this warehouse."]
    plans = sorted({result.labels["plan"] for result in results if "plan" in result.labels})
    first, last = (time.strftime("%Y-%m-%d %H:%M", time.gmtime(at)) for at in (results[0].t, results[-1].t))
    good = [result for result in results if not result.fault]
    systems = counted(len({result.system for result in good}), "system")
    return [
        f"{counted(len(good), 'run')} of {systems}, {first} to {last} UTC"
        + (f"; plan: {', '.join(plans)}." if plans else "."),
        "Every point is the median of runs. Its row in the CSV file lists their ids, and each run is a row in the "
        "warehouse's results/.",
    ]
