"""A line of a trace, version 1: what all have, samples, results."""

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from .labels import Labels

VERSION: Final = 1
_USUAL: Final = {"system": "fjm2", "layer": "norm", "role": "node"}
"""What is said where neither labels nor source say anything."""


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
    """What was counted in `dt` seconds up to `t`. Any key may be given to say something else than the labels."""
    line = _line(labels, "sample", source, t, override)
    line |= {"seq": seq, "dt": round(dt, 6), "c": _finite(counters), "g": _finite(gauges)}
    if drops:
        line["drops"] = dict(drops)
    return line | override


def result(
    labels: Labels, r: Mapping[str, float], texts: Mapping[str, str], t: float, **override: Any
) -> dict[str, Any]:
    """What a run came to."""
    line = _line(labels, "result", "bench", t, override)
    return line | {"r": _finite(r), "labels": dict(texts)} | override


def encode(line: Mapping[str, Any]) -> bytes:
    """A line as it is in the file."""
    return json.dumps(line, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _line(labels: Labels, kind: str, source: str, t: float, override: Mapping[str, Any]) -> dict[str, Any]:
    line: dict[str, Any] = {"v": VERSION, "kind": kind, "t": round(t, 6), **labels.as_dict()}
    for name, usual in _USUAL.items():
        if line[name] is None and override.get(name) is None:
            line[name] = usual
    return line | {"link": None, "source": source}


def _finite(numbers: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in numbers.items() if value is not None and math.isfinite(value)}
