"""Pacing of a sender's trains, so that it keeps its rate."""

from typing import Final

from fjm2.base.token_bucket import UNLIMITED, TokenBucket

BURST_S: Final = 0.004
"""Seconds that the sender may oversleep and then catch up on. Timers that wake it are no finer than a millisecond."""
_TRAIN_S: Final = 0.001
"""Longest time in seconds that a train may take at the sender's rate. Longer trains would be bursts for slow links."""


class Pacer(TokenBucket):
    """Token bucket that lets a whole train pass if it is not overdrawn, and charges for the train afterwards."""

    __slots__ = ()

    def __init__(self, rate_bps: float | None) -> None:
        super().__init__(UNLIMITED if rate_bps is None else rate_bps / 8)

    @property
    def bytes_per_s(self) -> float:
        """Current rate in bytes per second; infinity without a limit."""
        return self.per_s

    def set_rate(self, bytes_per_s: float, now: float) -> None:
        """Change the rate from now on."""
        self.refill(now, self.per_s * BURST_S)
        self.per_s = bytes_per_s

    def next_train_at(self, now: float) -> float:
        """Return the time from which the next train may be sent: `now`, or later."""
        per_s = self.per_s
        if per_s == UNLIMITED:
            return now
        credit = self.refill(now, per_s * BURST_S)
        return now if credit >= 0 else now - credit / per_s

    def train_bytes(self, most: int) -> int:
        """Return the length in bytes of a train that takes about a millisecond at the current rate; at most `most`."""
        return most if self.per_s == UNLIMITED else min(most, int(self.per_s * _TRAIN_S))
