"""How fast a sender may go."""

from fjm2.norm.core.timers import NEVER

BURST_S = 0.004
"""How long the sender may sleep through and then catch up on: the timers below it are no finer than a millisecond."""


class Pacer:
    """A token bucket: trains go when the account is not overdrawn, whole, and are paid for afterwards."""

    __slots__ = ("_bytes_per_s", "_credit", "_updated_at")

    def __init__(self, rate_bps: float | None) -> None:
        self._bytes_per_s = NEVER if rate_bps is None else rate_bps / 8
        self._credit = 0.0
        self._updated_at: float | None = None

    @property
    def bytes_per_s(self) -> float:
        """Infinite without a limit."""
        return self._bytes_per_s

    def set_rate(self, bytes_per_s: float, now: float) -> None:
        """Go at another rate from now on."""
        self._refill(now)
        self._bytes_per_s = bytes_per_s

    def ready_at(self, now: float) -> float:
        """When the next train may go: now, or later."""
        if self._bytes_per_s == NEVER:
            return now
        self._refill(now)
        return now if self._credit >= 0 else now - self._credit / self._bytes_per_s

    def spend(self, size: int) -> None:
        """Pay for a train."""
        if self._bytes_per_s != NEVER:
            self._credit -= size

    def train_bytes(self, most: int) -> int:
        """The length of a train that takes about a millisecond, so that slow links see no bursts."""
        return most if self._bytes_per_s == NEVER else min(most, int(self._bytes_per_s * 0.001))

    def _refill(self, now: float) -> None:
        if self._bytes_per_s != NEVER:
            elapsed = 0.0 if self._updated_at is None else now - self._updated_at
            self._credit = min(self._credit + elapsed * self._bytes_per_s, self._bytes_per_s * BURST_S)
        self._updated_at = now
