"""Rates of counters between two reports."""

from collections import Counter
from typing import Final

_INTERVAL_MIN_S: Final = 1e-6
"""Two reports may carry the same time; this keeps the division defined."""


class Rates:
    """Remembers the counts of the last report, and turns counts into rates since then."""

    def __init__(self, now: float) -> None:
        self.interval_s = _INTERVAL_MIN_S
        """Seconds between the last report and this one."""
        self._reported_at = now
        self._previous: Counter[tuple[str, int]] = Counter()
        self._current: Counter[tuple[str, int]] = Counter()

    def begin(self, now: float) -> None:
        """Begin a report. Counts that the last report did not ask for are forgotten."""
        self.interval_s = max(now - self._reported_at, _INTERVAL_MIN_S)
        self._reported_at = now
        self._previous, self._current = self._current, Counter()

    def per_s(self, name: str, key: int, count: float) -> float:
        """Return how much a counter grew per second since the last report. Counters are told apart by name and key."""
        self._current[name, key] = int(count)
        return max(count - self._previous[name, key], 0) / self.interval_s
