"""Deadlines: in a minute's read one has seen every timer of the protocol."""

import math
from enum import IntEnum, auto

NEVER = math.inf


class Timer(IntEnum):
    """What a sender, or a receiver of one remote sender, waits for."""

    PACE = auto()
    """Sender: the rate allows the next train."""
    FLUSH = auto()
    """Sender: the next CMD(FLUSH), with or without a watermark (2 x GRTT)."""
    WINDOW = auto()
    """Sender: ask again for the confirmation that flow control waits for, or ask for one when idle."""
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
    """Receiver: the sender has been silent; ask for what is missing all the same."""
    ACK = auto()
    """Receiver: the delayed answer to a watermark."""
    FEEDBACK = auto()
    """Receiver: the delayed answer to a CMD(CC)."""
    INACTIVE = auto()
    """Receiver: nothing heard of the sender for so long that it is given up."""


class TimerTable:
    """Timer to deadline. Times are the caller's: monotonic seconds."""

    __slots__ = ("_deadlines", "next_at")

    def __init__(self) -> None:
        self._deadlines: dict[Timer, float] = {}
        self.next_at = NEVER
        """The earliest deadline."""

    def set(self, timer: Timer, at: float) -> None:
        self._deadlines[timer] = at
        self.next_at = min(self._deadlines.values())

    def stop(self, timer: Timer) -> None:
        if self._deadlines.pop(timer, None) is not None:
            self.next_at = min(self._deadlines.values(), default=NEVER)

    def is_set(self, timer: Timer) -> bool:
        return timer in self._deadlines

    def deadline(self, timer: Timer) -> float:
        return self._deadlines.get(timer, NEVER)

    def expire(self, timer: Timer, now: float) -> bool:
        """Whether the timer has run out; if so it is stopped."""
        if self._deadlines.get(timer, NEVER) > now:
            return False
        self.stop(timer)
        return True


_WIRE_EPOCH_S = 1.0  # so that no time on the wire is 0/0, which means "none"


def wire_time(now: float) -> tuple[int, int]:
    """Seconds and microseconds as probes carry them."""
    microseconds = int((now + _WIRE_EPOCH_S) * 1e6)
    return microseconds // 1_000_000 & 0xFFFFFFFF, microseconds % 1_000_000


def time_of_wire(seconds: int, microseconds: int) -> float:
    """The time that one of our own probes, or an answer to it, carries."""
    return seconds + microseconds * 1e-6 - _WIRE_EPOCH_S
