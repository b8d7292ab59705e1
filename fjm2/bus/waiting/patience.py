"""Patience with a full consumer: when it is reported, and when it may hold senders up no longer."""

from enum import Enum, auto
from typing import Final, TypeAlias

REPORTED_AFTER_S: Final = 1.0
"""Time for which a consumer is full before it is reported. One that is full for less only makes the senders keep its
own pace, which is no problem."""
EPISODE_ENDS_AFTER_S: Final = 10.0
"""Time for which a consumer must not be full before it is reported again. A slow one is full most of the time."""
_CHECKS: Final = 20
"""Number of checks within `block_s`. A consumer is thus let go at most 5 % late."""
_CHECK_MIN_S: Final = 0.005
"""Shortest interval of checks, so that they cost little."""
_CHECK_MAX_S: Final = 0.25
"""Longest interval of checks. It is long enough to cost nothing, and short compared with the default of `block_s`."""

Progress: TypeAlias = tuple[int, ...]
"""Numbers that change whenever the application takes or acknowledges a message. The first counts messages taken."""


class Verdict(Enum):
    """Outcome of a check."""

    REPORT = auto()
    """Report that the consumer is full."""
    LET_GO = auto()
    """Let senders go on: the consumer took nothing for too long."""


class Patience:
    """Observes one consumer that holds senders up while it is full."""

    __slots__ = ("_block_s", "_full_since", "_is_reported", "_moved_at", "_progress", "_room_at", "_taken_before")

    def __init__(self, block_s: float) -> None:
        """Let the consumer go after `block_s` seconds in which it is full and takes nothing."""
        self._block_s = block_s
        self._full_since: float | None = None
        """Time when the consumer became full; None while it has room."""
        self._moved_at = 0.0
        """Time of the last check that found progress."""
        self._progress: Progress = (0,)
        self._taken_before = 0
        """Number of messages taken before the consumer became full."""
        self._room_at = float("-inf")
        """Time since when the consumer has room."""
        self._is_reported = False

    @property
    def is_full(self) -> bool:
        return self._full_since is not None

    @property
    def taken(self) -> int:
        """Number of messages taken since the consumer became full, as of the last check."""
        return self._progress[0] - self._taken_before

    def note_full(self, progress: Progress, now: float) -> None:
        """Note that the consumer has become full."""
        if self._full_since is None and now - self._room_at >= EPISODE_ENDS_AFTER_S:
            self._is_reported = False
        self._full_since = self._moved_at = now
        self._progress = progress
        self._taken_before = progress[0]

    def note_room(self, now: float) -> None:
        """Note that the consumer holds nobody up any more."""
        if self._full_since is not None:
            self._full_since, self._room_at = None, now

    def check(self, progress: Progress, now: float) -> Verdict | None:
        """Return what to do about the consumer, or None for nothing. After LET_GO, it counts as having room."""
        if self._full_since is None:
            return None
        if progress != self._progress:
            self._progress, self._moved_at = progress, now
        if now - self._moved_at >= self._block_s:
            self.note_room(now)
            return Verdict.LET_GO
        if not self._is_reported and now - self._full_since >= REPORTED_AFTER_S:
            self._is_reported = True
            return Verdict.REPORT
        return None

    def next_check_s(self, now: float) -> float:
        """Return the time until the next check of a consumer that is full, in seconds."""
        assert self._full_since is not None
        interval_s = min(max(self._block_s / _CHECKS, _CHECK_MIN_S), _CHECK_MAX_S)
        left_s = [self._moved_at + self._block_s - now]
        if not self._is_reported:
            left_s.append(self._full_since + REPORTED_AFTER_S - now)
        return max(min(interval_s, *left_s), 0.0)
