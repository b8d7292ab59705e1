"""Credit of one receiver for repairs. It keeps a receiver behind a slow path from taking the rate of all others.

Repairs go to everybody. A path that carries less than is sent loses most repairs as well, and its receiver requests
them again and again. So a receiver gets repairs in proportion to what arrives there.
"""

from fjm2.norm.core.ranges import Serial

_COUNTER = Serial(32)
_CREDIT_BYTES = 8 << 20
"""Repairs for which a receiver need not show progress: what is lost while the buffer of its kernel is full."""
_CREDIT_PER_BYTE = 4.0
"""Bytes of repairs for each byte that arrived. Three of four repairs may thus get lost."""
_LEAST_BYTES_PER_S = 500_000
"""Repairs for which a receiver need not show progress: they find out what its path carries now."""


class RepairCredit:
    """Bytes that may be repaired for one receiver, which tells its progress."""

    __slots__ = ("_bytes", "_counter", "_noted_at")

    def __init__(self) -> None:
        self._bytes: float = _CREDIT_BYTES
        self._counter: int | None = None
        """The receiver's count of new bytes when it was last seen."""
        self._noted_at = 0.0
        """Time at which it was seen."""

    def earn(self, counter: int, now: float) -> int:
        """Return the bytes that may be repaired now. `counter` is the receiver's count of new bytes."""
        gained = 0 if self._counter is None else max(_COUNTER.distance(self._counter, counter), 0)
        earned = _CREDIT_PER_BYTE * gained + _LEAST_BYTES_PER_S * (now - self._noted_at)
        self._counter, self._noted_at = counter, now
        self._bytes = min(self._bytes + earned, _CREDIT_BYTES)
        return int(self._bytes)

    def spend(self, count: int) -> None:
        """Charge bytes that are repaired."""
        self._bytes -= count
