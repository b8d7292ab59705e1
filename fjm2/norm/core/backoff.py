"""Back-off of receivers, which keeps many of them from sending the same NACK at once (RFC 5401; RFC 5740, 5.3)."""

import math
from enum import Enum, auto
from random import Random


def exponential_backoff(random: Random, most_s: float, group_size: int) -> float:
    """Return a time from 0 to `most_s`. Late times are far more likely, so that few of a large group send first."""
    if most_s <= 0:
        return 0.0
    decay = math.log(group_size) + 1.0
    scale = decay / (most_s * math.expm1(decay))
    x = random.uniform(0.0, decay / most_s) + scale
    return min(max(most_s / decay * math.log(x * math.expm1(decay) * (most_s / decay)), 0.0), most_s)


class NackPhase(Enum):
    """A phase of a receiver's NACK cycle towards one sender."""

    IDLE = auto()
    BACKING_OFF = auto()
    HOLDING_OFF = auto()


LEGAL = {
    NackPhase.IDLE: {NackPhase.BACKING_OFF},
    NackPhase.BACKING_OFF: {NackPhase.HOLDING_OFF, NackPhase.IDLE},
    NackPhase.HOLDING_OFF: {NackPhase.IDLE},
}
"""Moves from phase to phase that are allowed."""


class NackCycle:
    """Idle until something is missing; then backs off, to hear if others request it; then waits for the repair."""

    __slots__ = ("phase",)

    def __init__(self) -> None:
        self.phase = NackPhase.IDLE

    def move_to(self, phase: NackPhase) -> None:
        """Change the phase, along a legal move."""
        if phase not in LEGAL[self.phase]:
            raise AssertionError(f"{self.phase} to {phase}")
        self.phase = phase

    @property
    def is_idle(self) -> bool:
        """True if nothing is missing, as far as is known."""
        return self.phase is NackPhase.IDLE

    @property
    def is_listening(self) -> bool:
        """True if requests of others matter, because they may make ours unnecessary."""
        return self.phase is NackPhase.BACKING_OFF
