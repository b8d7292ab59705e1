"""Timers of the protocol, and the table that holds their deadlines."""

import math
from enum import IntEnum, auto
from typing import Final

NEVER = math.inf


class Timer(IntEnum):
    """A timer of a sender, or of the receiver of one remote sender."""

    PACE = auto()
    """Sender: the time from which the rate allows the next train."""
    FLUSH = auto()
    """Sender: the time of the next CMD(FLUSH), with or without a watermark (every 2 x GRTT)."""
    WINDOW = auto()
    """Sender: the time to repeat flow control's request for confirmation, or, when idle, to make a request."""
    PROBE = auto()
    """Sender: the time of the next CMD(CC), the round-trip probe."""
    REPAIR = auto()
    """Sender: end of NACK aggregation, then of the hold-off that follows it."""
    ADVERTISE = auto()
    """Sender: the time from which the next REPAIR_ADV may be sent (GRTT / 4 after the last one)."""
    COMMAND = auto()
    """Sender: the time of the next repetition of an application command (every 2 x GRTT)."""
    BACKOFF = auto()
    """Receiver: end of the NACK back-off, then of the hold-off that follows it."""
    SELF_CHECK = auto()
    """Receiver: the time at which to request missing data of a silent sender, although no FLUSH has arrived."""
    ACK = auto()
    """Receiver: the time of the delayed answer to a watermark."""
    ALIVE = auto()
    """Receiver: the time to show that it lives although it cannot confirm a watermark yet."""
    FEEDBACK = auto()
    """Receiver: the time of the delayed answer to a CMD(CC)."""
    INACTIVE = auto()
    """Receiver: the time at which a sender is given up if it is still silent."""
    LEAVE = auto()
    """Receiver: the sender said goodbye, and is given up unless it is heard again."""


# For code that runs once for each lone message: a member of an Enum takes three times as long to read.
FLUSH: Final = Timer.FLUSH
WINDOW: Final = Timer.WINDOW
SELF_CHECK: Final = Timer.SELF_CHECK


class TimerTable:
    """Deadlines of the timers that are set. All times come from the caller, as monotonic seconds."""

    __slots__ = ("_deadlines", "next_at")

    def __init__(self) -> None:
        self._deadlines: dict[Timer, float] = {}
        self.next_at = NEVER
        """The earliest deadline."""

    def set(self, timer: Timer, at: float) -> None:
        """Set a timer to a deadline. If the timer is set already, change its deadline."""
        deadlines = self._deadlines
        was_next = deadlines.get(timer) == self.next_at
        deadlines[timer] = at
        if at <= self.next_at:
            self.next_at = at
        elif was_next:
            self.next_at = min(deadlines.values())

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
"""Offset added to times on the wire. Without it, a time could be 0 s and 0 us, which means "no time"."""


def wire_time(now: float) -> tuple[int, int]:
    """Return a time as probes carry it: seconds and microseconds."""
    microseconds = int((now + _WIRE_EPOCH_S) * 1e6)
    return microseconds // 1_000_000 & 0xFFFFFFFF, microseconds % 1_000_000


def time_of_wire(seconds: int, microseconds: int) -> float:
    """Return the time that a probe or an answer carries as seconds and microseconds: the inverse of `wire_time`."""
    return seconds + microseconds * 1e-6 - _WIRE_EPOCH_S
