"""Back-off of receivers, which keeps many of them from sending the same NACK at once (RFC 5401; RFC 5740, 5.3)."""

import math
from enum import Enum, auto
from random import Random


def exponential_backoff(random: Random, most_s: float, group_size: int) -> float:
    """Return a random back-off from 0 to `most_s` seconds.

    Long times are far more likely than short ones, so that only a few receivers of a large group send first.
    """
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
"""Phases that may follow each phase."""


class NackCycle:
    """State machine of a receiver's NACKs towards one sender.

    It is idle until something is missing. Then it backs off, to hear if other receivers request that first. Then it
    holds off, to wait for the repair.
    """

    __slots__ = ("phase",)

    def __init__(self) -> None:
        self.phase = NackPhase.IDLE

    def move_to(self, phase: NackPhase) -> None:
        """Change the phase. Raise AssertionError if `LEGAL` does not allow that."""
        if phase not in LEGAL[self.phase]:
            raise AssertionError(f"{self.phase} to {phase}")
        self.phase = phase

    @property
    def is_idle(self) -> bool:
        """True while no cycle is in progress: as far as is known, nothing is missing."""
        return self.phase is NackPhase.IDLE

    @property
    def is_listening(self) -> bool:
        """True during the back-off, when requests of other receivers may make ours unnecessary."""
        return self.phase is NackPhase.BACKING_OFF
