"""Time that answers take, as measured. It tells when an answer is late, and most likely lost.

The estimate is computed as for TCP's retransmission timer (RFC 6298): from a mean and a mean deviation. The round-trip
time that a sender advertises is no substitute. It is the longest of the whole group, and stays long after a host was
busy for a moment: if each receiver waited for that time after a loss, all would be held up.
"""

_MEAN_WEIGHT = 0.25
"""Weight of the latest sample in the mean. RFC 6298 has half of it. A larger weight forgets a stall sooner, and a
request that comes too early does no harm."""
_DEVIATION_WEIGHT = 0.25
"""Weight of the latest sample in the deviation (RFC 6298, 2.3)."""
_DEVIATIONS = 4.0
"""Number of deviations beyond the mean after which an answer is late (RFC 6298, 2.3)."""
_SPREAD_MIN = 0.5
"""Smallest distance from the mean after which an answer is late, in multiples of the mean. Even if all answers took
equally long so far, the next may take a little longer."""
_LATE_MIN_S = 0.004
"""Shortest time in seconds after which an answer is late: hosts and their timers are no more exact than that."""
_GROWTH_MAX = 64.0
"""Largest factor by which late answers make the time longer."""


class ResponseTime:
    """Estimate of the time that answers take."""

    __slots__ = ("_deviation_s", "_growth", "_mean_s")

    def __init__(self) -> None:
        self._mean_s: float | None = None
        self._deviation_s = 0.0
        self._growth = 1.0

    def late_s(self, most_s: float) -> float:
        """Return the time in seconds after which an answer is late: at most `most_s`, and that if nothing is known."""
        if self._mean_s is None:
            return most_s
        spread_s = max(_DEVIATIONS * self._deviation_s, _SPREAD_MIN * self._mean_s)
        return min(max(self._mean_s + spread_s, _LATE_MIN_S) * self._growth, most_s)

    def sample(self, took_s: float) -> None:
        """Note how long an answer took. What was asked twice tells nothing, as it is not known what is answered."""
        self._growth = 1.0
        if self._mean_s is None:
            self._mean_s, self._deviation_s = took_s, took_s / 2
            return
        self._deviation_s += _DEVIATION_WEIGHT * (abs(took_s - self._mean_s) - self._deviation_s)
        self._mean_s += _MEAN_WEIGHT * (took_s - self._mean_s)

    def note_late(self) -> None:
        """Note that an answer is late: wait for twice as long from now on, until an answer has come (RFC 6298, 5.5)."""
        self._growth = min(2.0 * self._growth, _GROWTH_MAX)
