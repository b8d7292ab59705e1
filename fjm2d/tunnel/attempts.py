"""Timing of handshakes with one peer: when to begin one, how long to wait, and which ones of the peer to answer."""

import math
from collections.abc import Callable
from random import Random

from .wire import Drop

NEVER = math.inf
_RETRY_S = 0.5
"""First wait for a response: longer than nearly every round trip."""
_RETRY_S_MAX = 5.0
"""Longest wait for a response. A peer that comes back is connected within seconds, and an attempt is a small packet."""
_DOUBLINGS_MAX = 4
"""Exponent at which the wait exceeds `_RETRY_S_MAX` in any case."""
_JITTER_PART = 0.2
"""Random part of each wait, so that both sides do not keep calling at the same moment."""
_YIELD_S = 1.0
"""Time that the side which withdraws its handshake leaves to the handshake of the other side."""
_ANSWER_S_MIN = 0.05
"""Least time between two answers to a peer: an answer costs several key exchanges."""


class Attempts:
    """Schedule of our own handshakes with a peer. They are repeated until `stop`."""

    __slots__ = ("_random", "_stamped_ns", "_wall_ns", "count", "next_at")

    def __init__(self, wall_ns: Callable[[], int], random: Random) -> None:
        self._wall_ns = wall_ns
        self._random = random
        self._stamped_ns = 0
        self.count = 0
        """Attempts in a row without success. It also selects one of several addresses, so it is never capped."""
        self.next_at = NEVER
        """Time of the next attempt; infinite if no handshake is needed."""

    @property
    def is_needed(self) -> bool:
        """True if a handshake is wanted."""
        return self.next_at < NEVER

    def timestamp_ns(self) -> int:
        """Return the wall time for a message, always greater than the one before, even if the clock was set back."""
        self._stamped_ns = max(self._wall_ns(), self._stamped_ns + 1)
        return self._stamped_ns

    def wait(self, now: float) -> None:
        """Plan the next attempt. The wait grows with each attempt that fails."""
        wait_s = min(_RETRY_S * 2 ** min(self.count, _DOUBLINGS_MAX), _RETRY_S_MAX)
        self.next_at = now + wait_s * self._jitter()
        self.count += 1

    def give_way(self, now: float) -> None:
        """Leave the peer's own handshake time to succeed before the next attempt."""
        self.next_at = now + _YIELD_S * self._jitter()

    def stop(self) -> None:
        """Plan no further attempt."""
        self.next_at = NEVER

    def _jitter(self) -> float:
        return self._random.uniform(1 - _JITTER_PART, 1 + _JITTER_PART)


class InitiationFilter:
    """Filter of the peer's initiations: each is answered once, none from before our start, and not too many."""

    __slots__ = ("_answered_at", "_newest_ns", "_oldest_ns")

    def __init__(self, oldest_ns: int) -> None:
        self._oldest_ns = oldest_ns
        self._newest_ns = oldest_ns
        """Newest timestamp of the peer, of an initiation that was answered or of a response."""
        self._answered_at = -NEVER

    def refusal(self, timestamp_ns: int, now: float) -> Drop | None:
        """Return the reason not to answer an initiation; None if it is to be answered."""
        if timestamp_ns <= self._oldest_ns:
            return Drop.HANDSHAKE_STALE
        if timestamp_ns <= self._newest_ns:
            return Drop.HANDSHAKE_REPLAYED
        if now - self._answered_at < _ANSWER_S_MIN:
            return Drop.HANDSHAKE_TOO_SOON
        return None

    def behind_s(self, timestamp_ns: int) -> float:
        """Return the seconds by which a timestamp is older than the newest accepted one."""
        return (self._newest_ns - timestamp_ns) / 1e9

    def note_answered(self, timestamp_ns: int, now: float) -> None:
        """Record an authentic initiation that was answered."""
        self.note_timestamp(timestamp_ns)
        self._answered_at = now

    def note_timestamp(self, timestamp_ns: int) -> None:
        """Record the timestamp of a response: handshakes that the peer began earlier are over."""
        self._newest_ns = max(self._newest_ns, timestamp_ns)
