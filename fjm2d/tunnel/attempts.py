"""Handshakes with one peer: when to begin one and how long to wait, and which of the other side's to answer."""

import math
from collections.abc import Callable
from random import Random

from .crypto.handshake import Opening
from .wire import Drop

NEVER = math.inf
_RETRY_S = 0.5
_RETRY_S_MAX = 5.0
_DOUBLINGS = 4
_JITTER = 0.2
_YIELD_S = 1.0
"""Whoever withdraws its own handshake leaves the other's so much time."""
_ANSWER_S_MIN = 0.05
"""Handshakes of a peer are answered no more often than this."""


class Calls:
    """Our own. They are repeated until somebody says stop."""

    __slots__ = ("_forget", "_random", "_stamped_ns", "_wall_ns", "attempts", "next_at", "opening")

    def __init__(self, wall_ns: Callable[[], int], random: Random, forget: Callable[[int], object]) -> None:
        """`forget` is told the index of a handshake that is given up."""
        self._wall_ns = wall_ns
        self._random = random
        self._forget = forget
        self._stamped_ns = 0
        self.opening: Opening | None = None
        """The one under way."""
        self.attempts = 0
        """So many have been in vain. It says whose turn it is of several addresses, so it is never cut off."""
        self.next_at = NEVER
        """When to try again; never: there is no need."""

    @property
    def is_calling(self) -> bool:
        """Whether there is a need."""
        return self.next_at < NEVER

    def timestamp_ns(self) -> int:
        """For the next one, or for an answer: the time, and greater than the one before whatever the clock does."""
        self._stamped_ns = max(self._wall_ns(), self._stamped_ns + 1)
        return self._stamped_ns

    def wait(self, now: float) -> None:
        """One has been begun, or could not be: try again later, and ever later."""
        wait_s = min(_RETRY_S * 2 ** min(self.attempts, _DOUBLINGS), _RETRY_S_MAX)
        self.next_at = now + wait_s * self._jitter()
        self.attempts += 1

    def give_way(self, now: float) -> None:
        """The other side's handshake counts. Ours comes after it, if it leads to nothing."""
        self.stop()
        self.next_at = now + _YIELD_S * self._jitter()

    def stop(self) -> None:
        """There is no need for one."""
        if self.opening is not None:
            self._forget(self.opening.index)
            self.opening = None
        self.next_at = NEVER

    def _jitter(self) -> float:
        return self._random.uniform(1 - _JITTER, 1 + _JITTER)


class Doorkeeper:
    """The other side's: each is answered once, none from before our time or the present session's, and not too many."""

    __slots__ = ("_answered_at", "_newest_ns", "_oldest_ns")

    def __init__(self, oldest_ns: int) -> None:
        self._oldest_ns = oldest_ns
        self._newest_ns = oldest_ns
        """Timestamp of the newest that was answered, or of the newest answer to one of ours."""
        self._answered_at = -NEVER

    def refusal(self, timestamp_ns: int, now: float) -> Drop | None:
        """Why one is not answered."""
        if timestamp_ns <= self._oldest_ns:
            return Drop.HANDSHAKE_STALE
        if timestamp_ns <= self._newest_ns:
            return Drop.HANDSHAKE_REPLAYED
        if now - self._answered_at < _ANSWER_S_MIN:
            return Drop.HANDSHAKE_TOO_SOON
        return None

    def behind_s(self, timestamp_ns: int) -> float:
        """How far one is from being new enough."""
        return (self._newest_ns - timestamp_ns) / 1e9

    def answered(self, timestamp_ns: int, now: float) -> None:
        """One has proved authentic, and been answered."""
        self.has_seen(timestamp_ns)
        self._answered_at = now

    def has_seen(self, timestamp_ns: int) -> None:
        """The other side has answered one of ours by this time of its: what it began before is over."""
        self._newest_ns = max(self._newest_ns, timestamp_ns)
