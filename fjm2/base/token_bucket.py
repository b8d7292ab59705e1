"""The token bucket that limits rates: of trains, of a gateway's links, and of requests to services."""

import math
from typing import Final

UNLIMITED: Final = math.inf
"""The rate of a bucket that limits nothing."""


class TokenBucket:
    """Credit that grows with time at a rate, up to a burst, and that is spent.

    Spending more than there is leaves a debt, which time pays off first. The unit is the caller's: bytes, or requests.
    Times are the caller's, too, in seconds.
    """

    __slots__ = ("credit", "per_s", "updated_at")

    def __init__(self, per_s: float, *, credit: float = 0.0) -> None:
        """Begin with this credit, at the time of the first `refill`."""
        self.per_s = per_s
        """Credit gained in a second; UNLIMITED is no limit."""
        self.credit = credit
        """Credit as of `updated_at`; below zero is a debt."""
        self.updated_at: float | None = None
        """Time of the last `refill`. It stands still while the rate is unlimited."""

    def refill(self, now: float, burst: float) -> float:
        """Add what was gained since the last time, to no more than `burst` in all. Return the credit."""
        if self.per_s == UNLIMITED:
            return UNLIMITED
        elapsed_s = 0.0 if self.updated_at is None else now - self.updated_at
        if elapsed_s > 0:
            self.credit += elapsed_s * self.per_s
        if self.credit > burst:
            self.credit = burst
        self.updated_at = now
        return self.credit

    def spend(self, amount: float) -> None:
        """Take this much from the credit, whether or not it is there."""
        if self.per_s != UNLIMITED:
            self.credit -= amount

    def ready_at(self, amount: float, now: float) -> float:
        """Return when the credit will have reached `amount`: `now`, or later. Call `refill` first."""
        missing = amount - self.credit
        return now if missing <= 0 or self.per_s == UNLIMITED else now + missing / self.per_s
