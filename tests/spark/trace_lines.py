"""Functions that make lines of traces, as recorders write them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

T = 1_790_000_000.0
"""Time of the first sample, in Unix time: 2026-09-21 13:33:20 UTC."""


def sample(**keys: Any) -> dict[str, Any]:
    """Return a good sample with some keys changed.

    A value of None stands for null, a value of ... leaves the key out.
    """
    line = {
        "v": 1,
        "kind": "sample",
        "t": T,
        "run": "r1",
        "node": "n1",
        "system": "fjm2",
        "layer": "norm",
        "role": "sub",
        "scenario": "lan",
        "size": 1024,
        "fanout": 1,
        "loss": None,
        "rate_bps": None,
        "link": None,
        "source": "session",
        "seq": 0,
        "dt": 0.1,
        "c": {"payload_bytes_received": 1000, "cpu_s": 0.01},
        "g": {"grtt_s": 0.01},
    }
    return {name: value for name, value in (line | keys).items() if value is not ...}


def result(**keys: Any) -> dict[str, Any]:
    """Return a good result of a run with some keys changed."""
    base = {
        "kind": "result",
        "role": "run",
        "node": "bench",
        "source": "bench",
        "seq": ...,
        "dt": ...,
        "c": ...,
        "g": ...,
    }
    return sample(**(base | {"r": {"msgs_per_s": 1000.0, "lost": 0}, "labels": {}} | keys))


def encode(lines: Iterable[dict[str, Any] | str | bytes]) -> bytes:
    """Return the content of a file with these lines. A newline ends each line."""
    return b"".join(_bytes_of(line) + b"\n" for line in lines)


def _bytes_of(line: dict[str, Any] | str | bytes) -> bytes:
    if isinstance(line, bytes):
        return line
    return (line if isinstance(line, str) else json.dumps(line, separators=(",", ":"))).encode()


def write(folder: Path, name: str, lines: Iterable[dict[str, Any] | str | bytes]) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode(lines))
    return path
