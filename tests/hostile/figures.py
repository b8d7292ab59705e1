"""Figures of an attack: counters, the slowest shot of each kind, and a summary.

The figures are updated during the attack, so that an interrupted attack has a summary too.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from .limits import Broken

TIMERS = "(timers)"


@dataclass(slots=True)
class Figures:
    """Figures of an attack so far."""

    kinds: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    slowest: dict[str, float] = field(default_factory=dict)
    drops: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    amplification: dict[str, float] = field(default_factory=dict)
    elements_most: int = 0
    used_most: int = 0
    objects: int = 0
    """Number of objects of honest senders that were delivered during attacks."""

    def note_time(self, kind: str, elapsed: float, most: float) -> None:
        self.kinds[kind] += 1
        self.seconds[kind] += elapsed
        self.slowest[kind] = max(self.slowest.get(kind, 0.0), elapsed)
        if elapsed > most:
            raise Broken(f"{kind} took {elapsed * 1e3:.1f} ms")


def print_summary(figures: Figures, elapsed_s: float) -> None:
    for kind, number in sorted(figures.kinds.items(), key=lambda pair: -pair[1]):
        mean_us = figures.seconds[kind] / number * 1e6
        print(f"{number:>10,}  {kind:<18} mean {mean_us:6.0f} us, slowest {figures.slowest[kind] * 1e3:6.1f} ms")
    for title, counts in (("dropped", figures.drops), ("events", figures.events)):
        print(f"{title}: " + ", ".join(f"{name} {number:,}" for name, number in counts.most_common()))
    factors = ", ".join(f"{kind} {factor:.2f}" for kind, factor in sorted(figures.amplification.items()))
    print(f"bytes out for one in: {factors or 'nothing to speak of'}")
    print(f"most elements {figures.elements_most:,}, most memory {figures.used_most:,} bytes")
    print(f"honest objects that arrived: {figures.objects:,}")
    total = figures.kinds.total() - figures.kinds[TIMERS]
    print(f"{total:>10,}  cases in {elapsed_s:.1f} s, {total / elapsed_s:,.0f} cases/s")
