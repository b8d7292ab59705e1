"""One series of samples: the increments of its counters since the last line, and the time at which a line is due."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fjm2.base.readings import Reading

from .process import CPU, RSS

IDLE_S: Final = 1.0
"""Seconds that one line covers while nothing happens."""
ALWAYS_CHANGING: Final = frozenset({CPU, RSS})
"""Counters and gauges that change although nothing happens."""
_NOTHING: Final[Mapping[str, float]] = {}


@dataclass(frozen=True, slots=True)
class Sample:
    """Content of a line that is due."""

    start: float
    """Time at which the sample begins, in the clock of the readings."""
    end: float
    """Time at which the sample ends, in the same clock."""
    counters: Mapping[str, float]
    """Increments of counters between `start` and `end`."""
    gauges: Mapping[str, float | None]
    drops: Mapping[str, int]


class Series:
    """A series of samples. Increments that are not written stay due, so that none is lost while the disk is full."""

    def __init__(self, name: str, link: str | None, now: float) -> None:
        self.name = name
        self.link = link
        self._counters: dict[str, float] = {}
        """Values of the counters at the last line."""
        self._drops: dict[str, int] = {}
        self._gauges: Mapping[str, float | None] = {}
        self._told_at = now
        self._idle_until: float | None = None

    def begin_with(self, reading: Reading) -> None:
        """Begin with these values of counters, so that counts from before the recording are left out."""
        self._counters.update(reading.counters)
        self._drops.update(reading.drops)

    def begin_counter(self, name: str, value: float) -> None:
        """Begin with this value of one counter, so that its earlier count is left out."""
        self._counters[name] = value

    def told(self, name: str) -> float:
        """Return the value of a counter at the last line."""
        return self._counters.get(name, 0.0)

    def due(self, reading: Reading, now: float, is_last: bool = False) -> list[Sample]:
        """Return the samples that are due: none, one, or one for an idle time and one for the busy time after it."""
        if now <= self._told_at:
            return []
        gains = _gains(self._counters, reading.counters)
        drops = {reason: int(count) for reason, count in _gains(self._drops, reading.drops).items()}
        is_idle = not drops and gains.keys() <= ALWAYS_CHANGING and _quiet(reading.gauges) == _quiet(self._gauges)
        if is_idle and not is_last and now - self._told_at < IDLE_S:
            self._idle_until = now
            return []
        start, samples = self._told_at, []
        if not is_idle and self._idle_until is not None and self._idle_until > start:
            samples.append(Sample(start, self._idle_until, _NOTHING, self._gauges, {}))
            start = self._idle_until
        samples.append(Sample(start, now, gains, reading.gauges, drops))
        return samples

    def commit(self, reading: Reading, samples: Sequence[Sample], written: int) -> None:
        """Note that the first `written` of the samples that were due have been written."""
        if not written:
            return
        self._told_at = samples[written - 1].end
        self._idle_until = None
        if written == len(samples):
            self._counters.update(reading.counters)  # a counter begun since the reading keeps its beginning
            self._drops = dict(reading.drops)
            self._gauges = reading.gauges


def _gains(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return the increments of counters. A counter that has fallen began again at 0."""
    gains = {}
    for name, value in after.items():
        was = before.get(name, 0)
        if value != was and math.isfinite(value):
            gain = value - was if value > was else value
            if gain:
                gains[name] = gain
    return gains


def _quiet(gauges: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: value for name, value in gauges.items() if name not in ALWAYS_CHANGING}
