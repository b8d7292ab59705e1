"""Summaries of traces: totals of each series, results, and the number of bad lines."""

import gzip
import json
import math
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from .lines import VERSION

LINE_BYTES_MAX: Final = 1 << 20
"""Bytes of a line that are kept in memory. Lines of traces have a few hundred."""
SERIES_MAX: Final = 100_000
"""Greatest number of series that are added up, which bounds memory. Samples of further series count as bad lines."""
Key = tuple[str, str, str]
"""Key of a series: run, node and source."""


@dataclass(slots=True)
class SeriesSummary:
    """Totals of one series."""

    system: str
    layer: str
    role: str
    samples: int = 0
    seconds: float = 0.0
    """Time that the samples cover."""
    first_at: float = math.inf
    last_at: float = -math.inf
    last_seq: int = -1
    counters: Counter[str] = field(default_factory=Counter)
    gauges: dict[str, float] = field(default_factory=dict)
    """Values of gauges in the last sample."""

    @property
    def samples_missing(self) -> int:
        """Number of samples that are missing, by the numbers of the others."""
        return max(self.last_seq + 1 - self.samples, 0)

    def rate(self, counter: str) -> float:
        """Return a counter's average rate per second."""
        return self.counters[counter] / self.seconds if self.seconds > 0 else 0.0


@dataclass(slots=True)
class TraceSummary:
    """Totals of trace files."""

    files: int = 0
    lines: int = 0
    bad_lines: int = 0
    series: dict[Key, SeriesSummary] = field(default_factory=dict)
    results: list[dict[str, Any]] = field(default_factory=list)
    """Lines of kind `result`."""

    def add(self, path: Path) -> None:
        """Add a file. Raises OSError if it cannot be read."""
        self.files += 1
        with open_trace(path) as file:
            for line in _lines_of(file):
                self.lines += 1
                if not self._add(line):
                    self.bad_lines += 1

    def _add(self, text: bytes) -> bool:
        try:
            line = json.loads(text)
            if not isinstance(line, dict) or line["v"] != VERSION:
                return False
            if line["kind"] == "result":
                self.results.append(line)
                return True
            return line["kind"] == "sample" and self._add_sample(line)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
            return False

    def _add_sample(self, line: dict[str, Any]) -> bool:
        key = str(line["run"]), str(line["node"]), str(line["source"])
        t, dt, seq = float(line["t"]), float(line["dt"]), int(line["seq"])
        counters = {str(name): float(value) for name, value in line["c"].items()}
        gauges = {str(name): float(value) for name, value in line.get("g", {}).items()}
        if not (math.isfinite(t) and 0 < dt < math.inf and all(map(math.isfinite, counters.values()))):
            return False
        series = self.series.get(key)
        if series is None:
            if len(self.series) >= SERIES_MAX:
                return False
            named = str(line["system"]), str(line["layer"]), str(line["role"])
            series = self.series[key] = SeriesSummary(*named)
        series.samples += 1
        series.seconds += dt
        series.first_at, series.last_at = min(series.first_at, t - dt), max(series.last_at, t)
        series.last_seq = max(series.last_seq, seq)
        series.counters.update(counters)
        series.gauges.update(gauges)
        return True


def open_trace(path: Path) -> BinaryIO:
    """Open a file of lines, compressed or not."""
    return gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb")  # type: ignore[return-value]


def trace_files(place: Path) -> list[Path]:
    """Return `place` itself if it is a file, or all traces in a directory and below it."""
    if not place.is_dir():
        return [place]
    return sorted(path for pattern in ("*.jsonl", "*.jsonl.gz") for path in place.rglob(pattern))


def summarize(files: Iterable[Path]) -> TraceSummary:
    """Return the totals of all files. Raises OSError if a file cannot be read."""
    summary = TraceSummary()
    for path in files:
        summary.add(path)
    return summary


def _lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Yield all lines that are not blank. Of a long line, yield the beginning. If a gzip file breaks off, end with a
    bad line."""
    try:
        while line := file.readline(LINE_BYTES_MAX):
            whole = line
            while line and not line.endswith(b"\n"):
                line = file.readline(LINE_BYTES_MAX)
            if whole.strip():
                yield whole
    except (EOFError, zlib.error, gzip.BadGzipFile):
        yield b"what is compressed breaks off"
