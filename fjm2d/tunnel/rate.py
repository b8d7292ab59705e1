"""How fast a link may be used where nobody has said it: found out from what the probes report.

Delay that grows means that a queue fills somewhere on the path, loss that a queue is full. Until either happens the
rate grows, by half at first and by little later; then it falls to somewhat less than what was delivered. A little
loss without delay is taken for the link's own.
"""

import math
from collections import deque
from typing import NamedTuple

START_BPS = 1e6
FLOOR_BPS = 100e3
_START_GROWTH = 1.5
_GROWTH = 60.0
"""Times the root of the rate, a report: those who share a link come to have alike, since all fall by a fraction."""
_BACKOFF = 0.85
_LOSS_TOLERATED = 0.02
_DEVIATIONS = 2.5
"""So far above what is tolerated the number of those lost may lie by chance."""
_QUEUE_S_MIN = 0.008
_QUEUE_OF_BASE = 0.2
"""Of the shortest round trip; so much longer than it a round trip may be, or so many seconds."""
_BASE_AGE_S = 30.0
"""How long the shortest round trip is believed: paths change."""
_DEAF_TRIPS = 2.0
"""After falling, so many round trips (and a report) pass before what is reported is the effect of it."""


class Report(NamedTuple):
    """What a probe and its answer have shown of the time since those before."""

    rtt_s: float
    sent: int
    """Datagrams."""
    lost: int
    delivered_bps: float
    was_limited: bool
    """Whether the rate was what limited the sender."""


class RateEstimate:
    """The rate of one link."""

    __slots__ = ("_deaf_until", "_is_starting", "_most_bps", "_trips", "bps")

    def __init__(self, most_bps: float | None) -> None:
        self._most_bps = most_bps or float("inf")
        self.bps = min(START_BPS, self._most_bps)
        self._is_starting = True
        self._deaf_until = float("-inf")
        self._trips: deque[tuple[float, float]] = deque()
        """When, and how long: ever longer ones, the first of which is the shortest."""

    def take(self, report: Report, now: float) -> float:
        """The rate from now on."""
        base_s = self._base(report.rtt_s, now)
        queue_s = report.rtt_s - base_s
        tolerated = _LOSS_TOLERATED * report.sent
        is_lossy = report.lost > tolerated + _DEVIATIONS * math.sqrt(tolerated)
        is_full = is_lossy or queue_s > max(_QUEUE_S_MIN, _QUEUE_OF_BASE * base_s)
        if is_full:
            if now >= self._deaf_until:
                self._is_starting = False
                used_bps = min(self.bps, report.delivered_bps) if report.was_limited else self.bps
                self._set(used_bps * _BACKOFF)
                self._deaf_until = now + _DEAF_TRIPS * report.rtt_s
        elif report.was_limited and now >= self._deaf_until:
            grown = self.bps + _GROWTH * math.sqrt(self.bps)
            self._set(self.bps * _START_GROWTH if self._is_starting else grown)
        return self.bps

    def _set(self, bps: float) -> None:
        self.bps = min(max(bps, FLOOR_BPS), self._most_bps)

    def _base(self, rtt_s: float, now: float) -> float:
        """The shortest round trip of late."""
        trips = self._trips
        while trips and trips[-1][1] >= rtt_s:
            trips.pop()
        trips.append((now, rtt_s))
        while now - trips[0][0] > _BASE_AGE_S:
            trips.popleft()
        return trips[0][1]
