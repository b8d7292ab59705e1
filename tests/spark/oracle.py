"""An oracle for the pipeline: it computes the same figures in plain Python.

It uses nothing but the definitions in docs/pipeline.md.
"""

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

CELL = ("system", "layer", "scenario", "size", "fanout", "loss", "rate_bps")
RUN = ("run", *CELL)
SERIES = (*RUN, "role", "node", "source", "link")
TWICE_COUNTED = (
    "payload_bytes_sent",
    "payload_bytes_received",
    "messages_sent",
    "messages_received",
    "messages_lost",
    "bytes_lost",
)
COUNTERS = (*TWICE_COUNTED, "bytes_sent", "bytes_received", "nacks_sent", "nacks_suppressed", "segments_sent")
COUNTERS = (*COUNTERS, "repair_segments_sent")

Row = dict[str, Any]


def by_minute(samples: Iterable[Row]) -> list[Row]:
    groups = _grouped(samples, lambda line: (*_key(line, SERIES), int(line["t"] // 60) * 60))
    rows = []
    for key, lines in groups.items():
        seqs = [line["seq"] for line in lines]
        row = _figures(lines, SERIES, key[:-1], max(seqs) - min(seqs) + 1 - len(lines))
        rows.append(row | {"minute": _utc(key[-1])})
    return rows


def by_series(samples: Iterable[Row]) -> list[Row]:
    groups = _grouped(samples, lambda line: _key(line, SERIES))
    return [
        _figures(lines, SERIES, key, max(line["seq"] for line in lines) + 1 - len(lines))
        for key, lines in groups.items()
    ]


def by_run(samples: Iterable[Row]) -> list[Row]:
    samples = list(samples)
    series_of_run = defaultdict(list)
    for series in by_series(samples):
        series_of_run[_key(series, RUN)].append(series)
    lines_of = _grouped(samples, lambda line: _key(line, SERIES))
    rows = []
    for key, all_series in series_of_run.items():
        with_bench = {series["node"] for series in all_series if series["source"] == "bench"}
        counting = [one for one in all_series if one["role"] != "capture"] or all_series
        carriers = [
            one for one in counting if one["bytes"] and (one["node"] not in with_bench or one["source"] == "bench")
        ]
        carriers = [one for one in carriers if one["role"] in ("sub", "echo")] or carriers
        carrying = [line for one in carriers for line in lines_of[_key(one, SERIES)]]
        lines = [line for one in counting for line in lines_of[_key(one, SERIES)]]
        own = [line for line in lines if line["node"] not in with_bench or line["source"] == "bench"]
        row = _figures(lines, RUN, key, sum(one["gaps"] for one in counting))
        row |= _throughput(carrying)
        row |= {name: _sum(own, name) for name in TWICE_COUNTED}
        row |= _ratios(row)
        elapsed = round((max(map(_end, lines)) - min(map(_start, lines))) / 1e6, 6)
        row |= {
            "nodes": len({one["node"] for one in counting}),
            "series": len(counting),
            "carrying": len(carriers),
            "elapsed_s": elapsed,
            "nacks_per_s": row["nacks_sent"] / elapsed,
        }
        rows.append(row)
    return rows


WINDOW_S = 10


def anomalies(samples: Iterable[Row]) -> list[Row]:
    rows = []
    for key, lines in _grouped(samples, lambda line: (*_key(line, SERIES), int(line["t"] // 86_400))).items():
        seconds = {second: _second(own) for second, own in _grouped(lines, lambda line: (int(line["t"]),)).items()}
        found = [
            one for second in sorted(seconds) for one in _flagged(second[0], {at: it for (at,), it in seconds.items()})
        ]
        for kind in ("throughput_collapse", "nack_storm"):
            episode: list[Row] = []
            for one in [*(it for it in found if it["kind"] == kind), None]:
                if episode and (one is None or one["second"] - episode[-1]["second"] > 2):
                    rows.append(dict(zip(SERIES, key, strict=False)) | _episode(kind, episode))
                    episode = []
                episode += [one] if one else []
    return rows


def _second(lines: list[Row]) -> Row:
    nacks = _sum(lines, "nacks_sent") + _sum(lines, "nacks_received")
    signs = nacks + _sum(lines, "window_waits")
    return {
        "bytes": sum(map(_moved, lines)),
        "us": sum(_us(line["dt"]) for line in lines),
        "nacks": nacks,
        "signs": signs,
    }


def _flagged(second: int, seconds: dict[int, Row]) -> Iterable[Row]:
    own = seconds[second]
    before = [seconds[at] for at in range(second - WINDOW_S, second) if at in seconds]
    after = [seconds[at] for at in range(second + 1, second + WINDOW_S + 1) if at in seconds]
    us = sum(one["us"] for one in before)
    bps, usual_bps = own["bytes"] * 8e6 / own["us"], sum(one["bytes"] for one in before) * 8e6 / us if us else None
    nacks, usual_nacks = (
        own["nacks"] * 1e6 / max(own["us"], 10**6),
        sum(one["nacks"] for one in before) * 1e6 / us if us else None,
    )
    goes_on = any(one["bytes"] for one in after) or (own["signs"] > 0 and any(one["signs"] for one in after))
    if usual_bps is not None and usual_bps >= 1e6 and bps < 0.2 * usual_bps and goes_on:
        yield {"kind": "throughput_collapse", "second": second, "value": bps, "usual": usual_bps}
    if nacks >= 50 and nacks >= 5 * (usual_nacks or 0):
        yield {"kind": "nack_storm", "second": second, "value": nacks, "usual": usual_nacks}


def _episode(kind: str, found: list[Row]) -> Row:
    worst = min if kind == "throughput_collapse" else max
    return {
        "kind": kind,
        "start": _utc(found[0]["second"]),
        "end": _utc(found[-1]["second"] + 1),
        "seconds": len(found),
        "value": worst(one["value"] for one in found),
        "usual": found[0]["usual"],
    }


def _utc(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC).replace(tzinfo=None)


def _key(line: Row, names: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(line[name] for name in names)


def _grouped(samples: Iterable[Row], key: Any) -> dict[tuple[Any, ...], list[Row]]:
    groups = defaultdict(list)
    for line in samples:
        groups[key(line)].append(line)
    return groups


def _us(seconds: float) -> int:
    return round(seconds * 1e6)


def _end(line: Row) -> int:
    return _us(line["t"])


def _start(line: Row) -> int:
    return _us(line["t"]) - _us(line["dt"])


def _moved(line: Row) -> int:
    is_datagrams = line["layer"] == "gateway" or line["role"] == "capture"

    def way(name: str) -> int:
        counters = line["c"]
        return counters.get(f"payload_bytes_{name}", counters.get(f"bytes_{name}", 0) if is_datagrams else 0)

    if line["role"] in ("sub", "echo"):
        return way("received")
    return way("sent") if line["role"] in ("pub", "ping") else way("sent") + way("received")


def _bps(line: Row) -> int:
    bps = round(_moved(line) * 8e6 / _us(line["dt"]))
    unit = 10 ** max(0, len(str(bps)) - 4)
    return (bps + unit // 2) // unit * unit


def _sum(lines: list[Row], name: str) -> int:
    return sum(line["c"].get(name, 0) for line in lines)


def _percentile(values: list[int], share: float) -> float | None:
    if not values:
        return None
    values = sorted(values)
    position = (len(values) - 1) * share
    low = int(position)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (position - low)


def _throughput(lines: list[Row]) -> Row:
    us, moved = sum(_us(line["dt"]) for line in lines), sum(map(_moved, lines))
    rates = [_bps(line) for line in lines if _moved(line)]
    return {
        "seconds": us / 1e6,
        "idle_seconds": sum(_us(line["dt"]) for line in lines if not _moved(line)) / 1e6,
        "bytes": moved,
        "throughput_bps": moved * 8e6 / us if us else None,
        "throughput_p5_bps": _percentile(rates, 0.05),
        "throughput_p50_bps": _percentile(rates, 0.5),
        "throughput_p95_bps": _percentile(rates, 0.95),
    }


def _share(part: float, other: float) -> float | None:
    return part / (part + other) if part + other else None


def _ratios(row: Row) -> Row:
    return {
        "message_loss": _share(row["messages_lost"], row["messages_received"]),
        "byte_loss": _share(row["bytes_lost"], row["payload_bytes_received"]),
        "repair_ratio": row["repair_segments_sent"] / row["segments_sent"] if row["segments_sent"] else None,
        "suppression_ratio": _share(row["nacks_suppressed"], row["nacks_sent"]),
        "cpu_s_per_gb": row["cpu_s"] * 1e9 / row["bytes"] if row["bytes"] and row["cpu_s"] else None,
    }


def _figures(lines: list[Row], names: tuple[str, ...], key: tuple[Any, ...], gaps: int) -> Row:
    trips = [line["g"]["grtt_s"] for line in lines if "grtt_s" in line["g"]]
    row = dict(zip(names, key, strict=True)) | _throughput(lines)
    row |= {name: _sum(lines, name) for name in COUNTERS}
    row |= {
        "lines": len(lines),
        "gaps": max(gaps, 0),
        "cpu_s": sum(_us(line["c"].get("cpu_s", 0)) for line in lines) / 1e6,
    }
    row |= _ratios(row)
    row |= {
        "nacks_per_s": row["nacks_sent"] / row["seconds"],
        "grtt_s": sum(map(_us, trips)) / 1e6 / len(trips) if trips else None,
        "grtt_s_max": max(trips, default=None),
    }
    return row
