"""One series of samples: what its counters have gained since the last line, and when a line is due."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fjm2.base.readings import Reading

from .process import CPU, RSS

IDLE_S: Final = 1.0
"""While nothing happens, one line covers so much."""
RESTLESS: Final = frozenset({CPU, RSS})
"""These change though nothing happens."""
_NOTHING: Final[Mapping[str, float]] = {}


@dataclass(frozen=True, slots=True)
class Sample:
    """What a line is to say."""

    start: float
    """Of the time that it covers, in the clock of the readings; likewise the end."""
    end: float
    counters: Mapping[str, float]
    """What they have gained."""
    gauges: Mapping[str, float | None]
    drops: Mapping[str, int]


class Series:
    """Whatever is not written stays due, so that no increment is lost while the disk is full."""

    def __init__(self, name: str, link: str | None, now: float) -> None:
        self.name = name
        self.link = link
        self._counters: dict[str, float] = {}
        """As told in the last line."""
        self._drops: dict[str, int] = {}
        self._gauges: Mapping[str, float | None] = {}
        self._told_at = now
        self._idle_until: float | None = None

    def begin_with(self, reading: Reading) -> None:
        """What was counted before the recording is none of it."""
        self._counters.update(reading.counters)
        self._drops.update(reading.drops)

    def begin_counter(self, name: str, value: float) -> None:
        """Likewise for one counter."""
        self._counters[name] = value

    def told(self, name: str) -> float:
        """A counter as the last line left it."""
        return self._counters.get(name, 0.0)

    def due(self, reading: Reading, now: float, is_last: bool = False) -> list[Sample]:
        """What is to be written: nothing, a sample, or one of the time when nothing happened and one of the rest."""
        if now <= self._told_at:
            return []
        gains = _gains(self._counters, reading.counters)
        drops = {reason: int(count) for reason, count in _gains(self._drops, reading.drops).items()}
        is_idle = not drops and gains.keys() <= RESTLESS and _quiet(reading.gauges) == _quiet(self._gauges)
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
        """So many of the samples that were due are written."""
        if not written:
            return
        self._told_at = samples[written - 1].end
        self._idle_until = None
        if written == len(samples):
            self._counters.update(reading.counters)  # what was begun since the reading stays as it was begun
            self._drops = dict(reading.drops)
            self._gauges = reading.gauges


def _gains(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """What counters have gained. One that has become less has begun again."""
    gains = {}
    for name, value in after.items():
        was = before.get(name, 0)
        if value != was and math.isfinite(value):
            gain = value - was if value > was else value
            if gain:
                gains[name] = gain
    return gains


def _quiet(gauges: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: value for name, value in gauges.items() if name not in RESTLESS}
