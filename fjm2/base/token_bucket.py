"""The token bucket that limits rates: of trains, of a gateway's links, and of requests to services."""

import math
from typing import Final

UNLIMITED: Final = math.inf
"""The rate of a bucket that limits nothing."""


class TokenBucket:
    """Credit that grows with time at a fixed rate, up to a limit called the burst, and that callers spend.

    A caller may spend more than there is. That leaves a debt, which is paid off before the credit grows again. The
    caller chooses the unit of the credit, such as bytes or requests, and the clock, in seconds.
    """

    __slots__ = ("credit", "per_s", "updated_at")

    def __init__(self, per_s: float, *, credit: float = 0.0) -> None:
        """Begin with `credit`. It grows from the first call of `refill` on."""
        self.per_s = per_s
        """Credit gained in a second, or UNLIMITED."""
        self.credit = credit
        """Credit at the time `updated_at`. Below zero it is a debt."""
        self.updated_at: float | None = None
        """Time of the last `refill`; None before the first. It does not change while the rate is unlimited."""

    def refill(self, now: float, burst: float) -> float:
        """Add the credit gained since the last call, up to `burst` in all. Return the credit."""
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
        """Subtract `amount` from the credit, even if that leaves a debt."""
        if self.per_s != UNLIMITED:
            self.credit -= amount

    def ready_at(self, amount: float, now: float) -> float:
        """Return the time at which the credit reaches `amount`: `now` if it already does. Call `refill` first."""
        missing = amount - self.credit
        return now if missing <= 0 or self.per_s == UNLIMITED else now + missing / self.per_s
