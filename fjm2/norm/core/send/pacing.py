"""The rate at which a sender may send."""

from typing import Final

from fjm2.base.token_bucket import UNLIMITED, TokenBucket

BURST_S: Final = 0.004
"""Time that the sender may sleep through and then catch up on. The timers below it are no finer than a millisecond."""
_TRAIN_S: Final = 0.001
"""Time that a train may take at the sender's rate. Longer trains would be bursts to slow links."""


class Pacer(TokenBucket):
    """Lets a train go whole if the bucket is not overdrawn, and charges for it afterwards."""

    __slots__ = ()

    def __init__(self, rate_bps: float | None) -> None:
        super().__init__(UNLIMITED if rate_bps is None else rate_bps / 8)

    @property
    def bytes_per_s(self) -> float:
        """Rate now; infinite without a limit."""
        return self.per_s

    def set_rate(self, bytes_per_s: float, now: float) -> None:
        """Change the rate from now on."""
        self.refill(now, self.per_s * BURST_S)
        self.per_s = bytes_per_s

    def next_train_at(self, now: float) -> float:
        """Return when the next train may go: `now`, or later."""
        per_s = self.per_s
        if per_s == UNLIMITED:
            return now
        credit = self.refill(now, per_s * BURST_S)
        return now if credit >= 0 else now - credit / per_s

    def train_bytes(self, most: int) -> int:
        """Return the length of a train that takes about a millisecond, `most` at the longest."""
        return most if self.per_s == UNLIMITED else min(most, int(self.per_s * _TRAIN_S))
