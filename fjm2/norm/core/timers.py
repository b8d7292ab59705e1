"""Timers of the protocol, all in one table."""

import math
from enum import IntEnum, auto

NEVER = math.inf


class Timer(IntEnum):
    """A timer of a sender, or of the receiver of one remote sender."""

    PACE = auto()
    """Sender: the rate allows the next train."""
    FLUSH = auto()
    """Sender: the next CMD(FLUSH), with or without a watermark (2 x GRTT)."""
    WINDOW = auto()
    """Sender: request again the confirmation that flow control waits for, or request one when idle."""
    PROBE = auto()
    """Sender: the next CMD(CC) (grtt_probe interval)."""
    REPAIR = auto()
    """Sender: end of NACK aggregation, then of the hold-off that follows it."""
    ADVERTISE = auto()
    """Sender: the next REPAIR_ADV may go (GRTT / 4 after the last)."""
    COMMAND = auto()
    """Sender: the next repetition of an application command (2 x GRTT)."""
    BACKOFF = auto()
    """Receiver: end of the NACK back-off, then of the hold-off that follows it."""
    SELF_CHECK = auto()
    """Receiver: the sender has been silent; request what is missing unasked."""
    ACK = auto()
    """Receiver: the delayed answer to a watermark."""
    FEEDBACK = auto()
    """Receiver: the delayed answer to a CMD(CC)."""
    INACTIVE = auto()
    """Receiver: the sender has been silent for so long that it is given up."""


class TimerTable:
    """Deadlines of timers that are set. Times are those of the caller: monotonic seconds."""

    __slots__ = ("_deadlines", "next_at")

    def __init__(self) -> None:
        self._deadlines: dict[Timer, float] = {}
        self.next_at = NEVER
        """The earliest deadline."""

    def set(self, timer: Timer, at: float) -> None:
        """Set a timer, or set it anew."""
        self._deadlines[timer] = at
        self.next_at = min(self._deadlines.values())

    def stop(self, timer: Timer) -> None:
        """Stop a timer, if it is set."""
        if self._deadlines.pop(timer, None) is not None:
            self.next_at = min(self._deadlines.values(), default=NEVER)

    def is_set(self, timer: Timer) -> bool:
        """Return True if a timer is set."""
        return timer in self._deadlines

    def deadline(self, timer: Timer) -> float:
        """Return the deadline of a timer; NEVER if it is not set."""
        return self._deadlines.get(timer, NEVER)

    def expire(self, timer: Timer, now: float) -> bool:
        """Return True, and stop the timer, if it has expired."""
        if self._deadlines.get(timer, NEVER) > now:
            return False
        self.stop(timer)
        return True


_WIRE_EPOCH_S = 1.0
"""Offset of times on the wire, so that none is 0/0, which means "none"."""


def wire_time(now: float) -> tuple[int, int]:
    """Return a time as probes carry it: seconds and microseconds."""
    microseconds = int((now + _WIRE_EPOCH_S) * 1e6)
    return microseconds // 1_000_000 & 0xFFFFFFFF, microseconds % 1_000_000


def time_of_wire(seconds: int, microseconds: int) -> float:
    """Return the time that a probe of ours, or the answer to it, carries."""
    return seconds + microseconds * 1e-6 - _WIRE_EPOCH_S
