"""Helpers for tests of traces: labels, an object that counts, and a reader of lines."""

import json
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fjm2.base.readings import Reading
from fjm2.record import Labels

NAMED = Labels(run="r", node="n", system="fjm2", layer="norm", role="pub")
WAIT_S = 10.0
COMMON = {
    *("v", "kind", "t", "run", "node", "system", "layer", "role", "scenario", "size", "fanout", "loss"),
    *("rate_bps", "link", "source"),
}
"""Keys that every line of a trace has."""

names = st.text("abc_", min_size=1, max_size=8)
counters = st.dictionaries(names, st.integers(0, 1 << 60) | st.floats(0, 1e12), max_size=6)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return all lines of a file, decoded from JSON. Fail if one is incomplete."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def sums_of(lines: list[dict[str, Any]], source: str = "session") -> Counter[str]:
    total: Counter[str] = Counter()
    for line in lines:
        if line["source"] == source:
            total.update({name: value for name, value in line["c"].items() if name != "cpu_s"})
    return total


class Counting:
    """An object whose counters a recorder can read."""

    system, layer, role = "fjm2", "norm", "node"

    def __init__(self, *sources: str) -> None:
        self.counts = {source: Counter[str]() for source in sources or ("session",)}
        self.drops: Counter[str] = Counter()
        self.gauges: dict[str, float | None] = {}
        self.error: Exception | None = None
        self.times_read = 0

    def readings(self) -> list[Reading]:
        self.times_read += 1
        if self.error is not None:
            raise self.error
        return [
            Reading(source, dict(counts), dict(self.gauges), dict(self.drops))
            for source, counts in list(self.counts.items())
        ]


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Make the kernel refuse to write files beyond this size."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
