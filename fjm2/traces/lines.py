"""Lines of a trace, version 1: samples, results, and the keys that both have."""

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from .labels import Labels

VERSION: Final = 1
_USUAL: Final = {"system": "fjm2", "layer": "norm", "role": "node"}
"""Values of labels that are used if neither the labels nor the source give one."""


def sample(
    labels: Labels,
    source: str,
    seq: int,
    dt: float,
    counters: Mapping[str, float],
    gauges: Mapping[str, float | None],
    drops: Mapping[str, int],
    t: float,
    **override: Any,
) -> dict[str, Any]:
    """Return the line of a sample, with the counts of the `dt` seconds that end at `t`. Keyword arguments override keys
    of the line."""
    line = _line(labels, "sample", source, t, override)
    line |= {"seq": seq, "dt": round(dt, 6), "c": _finite(counters), "g": _finite(gauges)}
    if drops:
        line["drops"] = dict(drops)
    return line | override


def result(
    labels: Labels, r: Mapping[str, float], texts: Mapping[str, str], t: float, **override: Any
) -> dict[str, Any]:
    """Return the line of the result of a run. Keyword arguments override keys of the line."""
    line = _line(labels, "result", "bench", t, override)
    return line | {"r": _finite(r), "labels": dict(texts)} | override


def encode(line: Mapping[str, Any]) -> bytes:
    """Return a line as the bytes that are written to the file."""
    return json.dumps(line, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _line(labels: Labels, kind: str, source: str, t: float, override: Mapping[str, Any]) -> dict[str, Any]:
    line: dict[str, Any] = {"v": VERSION, "kind": kind, "t": round(t, 6), **labels.as_dict()}
    for name, usual in _USUAL.items():
        if line[name] is None and override.get(name) is None:
            line[name] = usual
    return line | {"link": None, "source": source}


def _finite(numbers: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in numbers.items() if value is not None and math.isfinite(value)}
