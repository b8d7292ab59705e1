"""Example traces, as recorders write them, of any length, for tests. The same seed gives the same bytes.

Half of all lines belong to one long run, the others to ever shorter ones. Some files are compressed, and a share of the
lines is broken, in all the ways that a line can be.
"""

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

INTERVAL_S: Final = 0.1
BEGIN: Final = 1_788_220_800.0
"""Unix time of 2026-09-01: no trace begins earlier."""
DAYS: Final = 7
ROLES: Final = ("pub", "sub", "sub", "sub")
SYSTEMS: Final = (("fjm2", "norm"), ("fjm2-jms", "jms"), ("libnorm", "norm"), ("pyzmq", "messages"))
SIZES: Final = (64, 1024, 8192, 65_536)
PACKED_SHARE: Final = 0.2
ROWS_OF_A_FILE: Final = 200_000
CHUNK: Final = 20_000
_RUN_SHARE: Final = 0.5
"""Share of all lines that the first run gets."""
_TINY_ROWS: Final = 4 * 250


@dataclass(slots=True)
class Generated:
    """Counts of the files, bytes and lines written."""

    files: int = 0
    bytes: int = 0
    good: int = 0
    results: int = 0
    bad: Counter[str] = field(default_factory=Counter)
    """Broken lines by the reason that `clean` should give."""


def generate(folder: Path, rows: int, broken: float = 0.05, seed: int = 1) -> Generated:
    """Write `rows` lines, including the broken ones, and the results of the runs below a folder."""
    done = Generated()
    some = np.random.default_rng(seed)
    for number, size in enumerate(_run_sizes(rows)):
        _write_run(folder, number, size, broken, some, done)
    return done


def _run_sizes(rows: int) -> Iterator[int]:
    size = int(rows * _RUN_SHARE)
    while rows > 0:
        size = min(rows, max(size, _TINY_ROWS))
        yield size
        rows -= size
        size //= 4


def _write_run(folder: Path, number: int, rows: int, broken: float, some: np.random.Generator, done: Generated) -> None:
    system, layer = SYSTEMS[number % len(SYSTEMS)]
    labels = {
        "run": f"run-{number:05d}",
        "system": system,
        "layer": layer,
        "scenario": ("loopback", "lan", "wan")[number % 3],
        "size": SIZES[number % len(SIZES)],
        "fanout": len(ROLES) - 1,
        "loss": (None, 0.01)[number % 2],
        "rate_bps": None,
        "link": None,
    }
    begin = BEGIN + float(some.uniform(0, DAYS * 86_400 / 2))
    home = folder / f"run={labels['run']}"
    home.mkdir(parents=True, exist_ok=True)
    for index, role in enumerate(ROLES):
        of_node = rows // len(ROLES) + (index < rows % len(ROLES))
        _write_node(
            home,
            labels | {"node": f"{role}{index}", "role": role, "source": "session"},
            of_node,
            begin,
            broken,
            some,
            done,
        )
    with (home / "node=bench.jsonl").open("w") as file:
        file.write(_result(labels, begin + rows / len(ROLES) * INTERVAL_S, some))
    done.results += 1
    done.files += 1
    done.bytes += (home / "node=bench.jsonl").stat().st_size


def _write_node(
    home: Path,
    labels: dict[str, Any],
    rows: int,
    begin: float,
    broken: float,
    some: np.random.Generator,
    done: Generated,
) -> None:
    for part, first in enumerate(range(0, rows, ROWS_OF_A_FILE)):
        count = min(ROWS_OF_A_FILE, rows - first)
        path = home / f"node={labels['node']}{f'.{part}' if part else ''}.jsonl"
        is_packed = first + count < rows and some.random() < PACKED_SHARE
        path = path.with_name(path.name + ".gz") if is_packed else path
        with gzip.GzipFile(path, "wb", compresslevel=1, mtime=0) if is_packed else path.open("wb") as file:
            for start in range(first, first + count, CHUNK):
                size = min(CHUNK, first + count - start)
                file.write(b"".join(_lines(labels, start, size, begin, broken, some, done)))
        done.files += 1
        done.bytes += path.stat().st_size


def _lines(
    labels: dict[str, Any],
    first: int,
    count: int,
    begin: float,
    broken: float,
    some: np.random.Generator,
    done: Generated,
) -> list[bytes]:
    head = json.dumps({"v": 1, "kind": "sample"} | labels, separators=(",", ":"))[:-1]
    is_sub = labels["role"] == "sub"
    dt = np.round(some.normal(INTERVAL_S, 0.001, count).clip(0.05, 0.2), 6)
    t = np.round(begin + (first + 1 + np.arange(count)) * INTERVAL_S, 6)
    segments = some.lognormal(8, 0.5, count).astype(int)
    segments[(t % 97) < 2] //= 50  # now and then throughput collapses, with many NACKs
    nacks = np.where((t % 97) < 2, some.integers(0, 30, count), some.integers(0, 2, count))
    suppressed = some.integers(0, 3, count)
    repairs = nacks * some.integers(1, 5, count)
    cpu = np.round(some.uniform(0.01, 0.09, count), 4)
    grtt = np.round(some.uniform(0.0005, 0.02, count), 6)
    names = (
        ("payload_bytes_received", "datagrams_received", "bytes_received", "messages_received", "nacks_sent")
        if is_sub
        else ("payload_bytes_sent", "datagrams_sent", "bytes_sent", "messages_sent", "nacks_received")
    )
    payload, datagrams, size, messages, nack = names
    repair = "segments_decoded" if is_sub else "repair_segments_sent"
    more = "nacks_suppressed" if is_sub else "segments_sent"
    last = suppressed if is_sub else segments
    columns = (t, dt, segments, nacks, repairs, last, cpu, grtt)
    lines = [
        f'{head},"t":{at!r},"seq":{first + index},"dt":{lasted!r},"c":{{"{payload}":{number * 1400},'
        f'"{datagrams}":{number},"{size}":{number * 1432},"{messages}":{number},"{nack}":{asked},'
        f'"{repair}":{repaired},"{more}":{other},'
        f'"cpu_s":{used!r}}},"g":{{"grtt_s":{trip!r},"rss_bytes":50000000,"queue_bytes":{number}}}}}\n'.encode()
        for index, (at, lasted, number, asked, repaired, other, used, trip) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        )
    ]
    chosen = np.flatnonzero(some.random(count) < broken)
    for index, way in zip(chosen.tolist(), some.integers(0, len(WAYS), len(chosen)).tolist(), strict=True):
        reason, breaking = WAYS[way]
        lines[index] = breaking(lines[index][:-1]) + b"\n"
        done.bad[reason] += 1
    done.good += count - len(chosen)
    return lines


def _result(labels: dict[str, Any], t: float, some: np.random.Generator) -> str:
    rate = float(some.uniform(1e4, 1e6))
    r = {"messages": 1000, "msgs_per_s": rate, "gbit_per_s": rate * labels["size"] * 8e-9, "p50_us": 100.0, "lost": 0}
    line = {"v": 1, "kind": "result", "t": round(t, 6)} | labels | {"node": "bench", "role": "run", "source": "bench"}
    return json.dumps(line | {"r": r, "labels": {"plan": "generated"}}) + "\n"


def _replaced(old: bytes, new: bytes) -> Any:
    return lambda line: line.replace(old, new, 1)


WAYS: Final[tuple[tuple[str, Any], ...]] = (
    ("json", lambda line: line[: len(line) // 2]),
    ("json", lambda line: line + line),
    ("json", lambda line: b"\0" * len(line)),
    ("json", _replaced(b'"dt":', b'"dt":NaN,"dt":')),
    ("utf8", _replaced(b"session", b"sess\xff\xfe")),
    ("empty", lambda _: b""),
    ("object", lambda line: b"[" + line + b"]"),
    ("version", _replaced(b'"v":1', b'"v":2')),
    ("kind", _replaced(b'"sample"', b'"simple"')),
    ("missing", _replaced(b'"seq":', b'"sequence":')),
    ("missing", _replaced(b'"run":', b'"walk":')),
    ("type", _replaced(b'"seq":', b'"seq":"7","other":')),
    ("type", _replaced(b'"fanout":3', b'"fanout":"3"')),
    ("type", _replaced(b'"session"', b"17")),
    ("label", _replaced(b'"run":"', b'"run":"no name ')),
    ("time", _replaced(b'"t":', b'"t":1')),
    ("dt", _replaced(b'"dt":', b'"dt":-')),
    ("number", _replaced(b'"cpu_s":', b'"cpu_s":-')),
    ("number", _replaced(b'"grtt_s":', b'"grtt_s":9e999,"grtt":')),
    ("duplicate", _replaced(b'"cpu_s":', b'"cpu_s":1,"cpu_s":')),
)
"""Ways to break a line, each with the reason that `clean` should give."""
