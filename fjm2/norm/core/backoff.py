"""When a receiver speaks: the waits that keep many from saying the same at once (RFC 5401, RFC 5740, 5.3)."""

import math
from enum import Enum, auto
from random import Random


def exponential_backoff(random: Random, most_s: float, group_size: int) -> float:
    """A time from 0 to `most_s`, late ones far more likely, so that few of a large group speak first."""
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
"""From phase to phase; nothing else happens."""


class NackCycle:
    """Idle until something is missing, then backing off to hear others ask for it, then waiting for the repair."""

    __slots__ = ("phase",)

    def __init__(self) -> None:
        self.phase = NackPhase.IDLE

    def move_to(self, phase: NackPhase) -> None:
        if phase not in LEGAL[self.phase]:
            raise AssertionError(f"{self.phase} to {phase}")
        self.phase = phase

    @property
    def is_idle(self) -> bool:
        return self.phase is NackPhase.IDLE

    @property
    def is_listening(self) -> bool:
        """Whether requests of others matter: they may make one's own superfluous."""
        return self.phase is NackPhase.BACKING_OFF
