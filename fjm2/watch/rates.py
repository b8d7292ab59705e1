"""Rates of counters between two reports."""

from collections import Counter
from typing import Final

_INTERVAL_MIN_S: Final = 1e-6
"""Interval that is assumed if two reports have the same time, because rates divide by the interval."""


class Rates:
    """Remembers the counts of the last report, and turns counts into rates since that report."""

    def __init__(self, now: float) -> None:
        self.interval_s = _INTERVAL_MIN_S
        """Seconds between the last report and the present one."""
        self._reported_at = now
        self._previous: Counter[tuple[str, int]] = Counter()
        self._current: Counter[tuple[str, int]] = Counter()

    def begin(self, now: float) -> None:
        """Begin a report. Forget counts that the last report did not use."""
        self.interval_s = max(now - self._reported_at, _INTERVAL_MIN_S)
        self._reported_at = now
        self._previous, self._current = self._current, Counter()

    def per_s(self, name: str, key: int, count: float) -> float:
        """Return the growth of a counter per second since the last report. `name` and `key` together identify the
        counter."""
        self._current[name, key] = int(count)
        return max(count - self._previous[name, key], 0) / self.interval_s
