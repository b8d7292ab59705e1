"""How long a packet may be on its way to a peer: found by padded probes, none of which is ever fragmented.

Lengths are of whole IP packets. The longest is tried first, since it nearly always fits; then the interval is halved.
What was found is confirmed while data flows, and when that fails where short probes are answered, the path swallows
long packets: the search begins again from what every path takes.
"""

import math
from enum import Enum, auto

NEVER = math.inf
MTU_MIN = 1280
"""What every path of IPv6 takes, and nearly every other."""
MTU_LOWEST, MTU_HIGHEST = 576, 65_535
_TRIES = 3
_STEP_BYTES = 4
"""Nearer than this nothing is looked for."""
_CONFIRM_S = 2.0
_AGAIN_S = 600.0
_TIMEOUT_TRIPS = 3.0
_TIMEOUT_S_MIN = 0.2
_TIMEOUT_S_MAX = 2.0


class _Phase(Enum):
    OFF = auto()
    SEARCHING = auto()
    FOUND = auto()


def timeout_s(rtt_s: float) -> float:
    """After so long a probe is not answered any more."""
    return min(max(_TIMEOUT_TRIPS * rtt_s, _TIMEOUT_S_MIN), _TIMEOUT_S_MAX)


class PathMtu:
    """The search for one peer. Probes that get lost by chance are repeated."""

    __slots__ = ("_fixed", "_high", "_most", "_next_at", "_phase", "_searched_at", "_size", "_tries", "mtu")

    def __init__(self, fixed: int | None, most: int) -> None:
        self._fixed = fixed is not None
        self._most = max(most, MTU_MIN)
        self.mtu = fixed if fixed is not None else MTU_MIN
        """The longest packet known to arrive."""
        self._high = self._most
        """The longest that may."""
        self._phase = _Phase.OFF
        self._size = 0
        """Of the probe under way; 0: none."""
        self._tries = 0
        self._next_at = NEVER
        self._searched_at = -NEVER

    @property
    def next_at(self) -> float:
        """When to come back: the search is due, or a probe has not been answered."""
        return self._next_at

    def begin(self) -> None:
        """There is a session, or it goes over another path: what was found before need not hold.

        Nothing long is sent before a short probe is answered from there: whoever names an address need not have it.
        """
        self.stop()
        if not self._fixed:
            self.mtu = MTU_MIN

    def proven(self, now: float) -> None:
        """A probe has been answered from where they go."""
        if self._phase is _Phase.OFF and not self._fixed:
            self._search(now, self._most)

    def stop(self) -> None:
        """There is no session."""
        self._phase = _Phase.OFF
        self._size, self._tries = 0, 0
        self._next_at = NEVER

    def poll(self, now: float, rtt_s: float, is_flowing: bool, is_answering: bool) -> int | None:
        """The length of a probe to be sent now; None if none is due.

        `is_flowing`: data is being sent, `is_answering`: short probes are answered.
        """
        if now < self._next_at:
            return None
        if self._size and self._tries >= _TRIES:
            self._give_up(now, is_answering)
        if self._phase is _Phase.FOUND:
            self._plan_confirmation(now, is_flowing)
        elif not self._size:
            self._plan_search(now)
        if not self._size:
            return None
        self._tries += 1
        self._next_at = now + timeout_s(rtt_s)
        return self._size

    def answered(self, size: int, now: float) -> bool:
        """A probe of this length has arrived. Whether longer datagrams than before may be sent."""
        if self._phase is _Phase.OFF or size > self._most:
            return False
        if size >= self._size:
            self._size, self._tries = 0, 0
            self._next_at = now if self._phase is _Phase.SEARCHING else now + _CONFIRM_S
        if size <= self.mtu:
            return False
        self.mtu = size
        self._high = max(self._high, size)
        return True

    def too_long(self, size: int, now: float) -> bool:
        """The kernel does not send packets of this length. Whether shorter ones than before must be sent."""
        if self._phase is _Phase.OFF or size <= MTU_MIN or size > self._high:
            return False
        is_shorter = self.mtu >= size
        self.mtu = MTU_MIN if is_shorter else self.mtu
        self._search(now, size - 1)
        return is_shorter

    def _search(self, now: float, high: int) -> None:
        self._phase = _Phase.SEARCHING
        self._high = high
        self._size, self._tries = 0, 0
        self._next_at = now
        self._searched_at = now

    def _plan_search(self, now: float) -> None:
        """The next length to try; none is left: it has been found."""
        if self._high - self.mtu < _STEP_BYTES and self._high != self._most:
            self._phase = _Phase.FOUND
            self._next_at = now + _CONFIRM_S
        elif self._high == self._most and self.mtu < self._most:
            self._size = self._most
        elif self.mtu >= self._high:
            self._phase = _Phase.FOUND
            self._next_at = now + _CONFIRM_S
        else:
            self._size = (self.mtu + self._high + 1) // 2
        self._tries = 0

    def _plan_confirmation(self, now: float, is_flowing: bool) -> None:
        if self.mtu < self._most and now - self._searched_at >= _AGAIN_S:
            self._search(now, self._most)
            self._plan_search(now)
        elif not self._size and is_flowing and self.mtu > MTU_MIN:
            self._size, self._tries = self.mtu, 0
        elif not self._size:
            self._next_at = now + _CONFIRM_S

    def _give_up(self, now: float, is_answering: bool) -> None:
        """The probe has been sent often enough."""
        size = self._size
        self._size, self._tries = 0, 0
        if not is_answering:
            self._next_at = now + _CONFIRM_S  # nothing arrives: that says nothing about lengths
        elif self._phase is _Phase.FOUND:
            self.mtu = MTU_MIN
            self._search(now, size - 1)
        else:
            self._high = size - 1
