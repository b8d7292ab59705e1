"""Search for the longest packet that gets through to a peer, by padded probes that are never fragmented.

Lengths are those of whole IP packets. The longest allowed length is tried first, because it usually fits; after that
each probe halves the interval of possible lengths. While data flows, the length found is confirmed from time to time.
If that fails although short probes are answered, the path has begun to drop long packets, and the search starts over
from the minimum. The minimum is probed like any other length: a path that does not even carry that is too narrow, and
all long datagrams vanish there until a length is configured.
"""

import math
from enum import Enum, auto

NEVER = math.inf
MTU_MIN = 1280
"""Bytes that every IPv6 path carries (RFC 8200, section 5), and nearly every IPv4 path."""
MTU_LOWEST, MTU_HIGHEST = 576, 65_535
"""Bounds of a configured length, in bytes: what every IPv4 host accepts (RFC 791), and the longest IP packet."""
_PROBES_MAX = 3
"""Probes of one length before it counts as too long: losing three in a row by chance is rare."""
_LEAST_PROBES_MAX = 8
"""Probes of `MTU_MIN` before the path counts as too narrow, which is a fault for people to mend: losing eight in a row
by chance does not happen where short probes are answered."""
_NARROW_S = 10.0
"""Interval at which `MTU_MIN` is tried again on a path that was too narrow for it."""
_STEP_BYTES = 4
"""Width of the interval of possible lengths at which the search ends: fewer bytes are not worth another probe."""
_CONFIRM_S = 2.0
"""Interval at which the length found is confirmed, so that a path that shrinks is noticed within seconds."""
_SEARCH_AGAIN_S = 600.0
"""Time after which longer packets are tried again, as in RFC 8899 (PMTU_RAISE_TIMER, 600 s)."""
_TIMEOUT_RTTS = 3.0
"""Wait for an answer to a probe, in round-trip times: queues on the path may double or triple a round trip."""
_TIMEOUT_S_MIN = 0.2
"""Least time to wait for an answer, because a busy host answers late however short the path is."""
_TIMEOUT_S_MAX = 2.0
"""Longest time to wait for an answer, so that a search over a slow path still ends within a minute."""


class _Phase(Enum):
    OFF = auto()
    SEARCHING = auto()
    FOUND = auto()


def timeout_s(rtt_s: float) -> float:
    """Return the longest time to wait for an answer to a probe."""
    return min(max(_TIMEOUT_RTTS * rtt_s, _TIMEOUT_S_MIN), _TIMEOUT_S_MAX)


class PathMtu:
    """Search for the longest packet that gets through to one peer. Probes lost by chance are repeated."""

    __slots__ = (
        "_fixed",
        "_high",
        "_is_least_proved",
        "_most",
        "_next_at",
        "_phase",
        "_probes",
        "_searched_at",
        "_size",
        "is_too_narrow",
        "mtu",
    )

    def __init__(self, fixed: int | None, most: int) -> None:
        """Use `fixed` bytes without a search, or search up to `most` bytes."""
        self._fixed = fixed is not None
        self._most = max(most, MTU_MIN)
        self.mtu = fixed if fixed is not None else MTU_MIN
        """Longest packet known to arrive, in bytes."""
        self._high = self._most
        """Longest packet that may still arrive, in bytes."""
        self.is_too_narrow = False
        """True if not even `MTU_MIN` bytes arrive."""
        self._is_least_proved = False
        """True once a probe of `MTU_MIN` bytes or more has arrived."""
        self._phase = _Phase.OFF
        self._size = 0
        """Length of the probe under way; 0 if there is none."""
        self._probes = 0
        """Number of probes sent of the length `_size`."""
        self._next_at = NEVER
        self._searched_at = -NEVER

    @property
    def next_at(self) -> float:
        """Time at which to call `poll`: a search is due, or a probe was not answered."""
        return self._next_at

    def begin(self) -> None:
        """Forget the length found: there is a new session, or the peer has another address.

        No long packets are sent before a short probe is answered from the peer's address: nobody may use a forged
        source address to direct long packets to a third party.
        """
        self.stop()
        self._is_least_proved = False
        if not self._fixed:
            self.mtu = MTU_MIN

    def confirm(self, now: float) -> None:
        """Begin the search, unless it has begun: a probe was answered from the peer's address."""
        if self._phase is _Phase.OFF and not self._fixed:
            self._search(now, self._most)

    def stop(self) -> None:
        """Send no more probes. What is known of lengths counts no longer."""
        self._phase = _Phase.OFF
        self.is_too_narrow = False
        self._size, self._probes = 0, 0
        self._next_at = NEVER

    def poll(self, now: float, rtt_s: float, is_flowing: bool, is_answering: bool) -> int | None:
        """Return the length of the probe to send now, or None.

        `is_flowing` is True while data is sent or received, `is_answering` while short probes are answered.
        """
        if now < self._next_at:
            return None
        if self._size and self._probes >= (_LEAST_PROBES_MAX if self._size == MTU_MIN else _PROBES_MAX):
            self._give_up(now, is_answering)
            if now < self._next_at:
                return None
        if self._phase is _Phase.FOUND:
            self._plan_confirmation(now, is_flowing)
        elif not self._size:
            self._plan_search(now)
        if not self._size:
            return None
        self._probes += 1
        self._next_at = now + timeout_s(rtt_s)
        return self._size

    def note_arrived(self, size: int, now: float) -> bool:
        """Record that a probe of this length arrived. Return True if longer packets than before may be sent."""
        if self._phase is _Phase.OFF or size > self._most:
            return False
        if size >= MTU_MIN:
            self._is_least_proved = True
        if self.is_too_narrow and self._is_least_proved:
            self.is_too_narrow = False
            self._search(now, self._most)
        elif size >= self._size:
            self._size, self._probes = 0, 0
            self._next_at = now if self._phase is _Phase.SEARCHING else now + _CONFIRM_S
        if size <= self.mtu:
            return False
        self.mtu = size
        self._high = max(self._high, size)
        return True

    def note_too_long(self, size: int, now: float) -> bool:
        """Record that the kernel refused packets of this length. Return True if packets must be shorter than before."""
        if self._phase is _Phase.OFF or size <= MTU_MIN or size > self._high:
            return False
        is_shorter = self.mtu >= size
        self.mtu = MTU_MIN if is_shorter else self.mtu
        self._search(now, size - 1)
        return is_shorter

    def _search(self, now: float, high: int) -> None:
        self._phase = _Phase.SEARCHING
        self._high = high
        self._size, self._probes = 0, 0
        self._next_at = now
        self._searched_at = now

    def _plan_search(self, now: float) -> None:
        """Choose the next length to try. If none is left, the search is over."""
        if self._is_least_proved and self._high - self.mtu < _STEP_BYTES and self._high != self._most:
            self._phase = _Phase.FOUND
            self._next_at = now + _CONFIRM_S
        elif self._high == self._most and self.mtu < self._most:
            self._size = self._most
        elif not self._is_least_proved:
            self._size = MTU_MIN
        elif self.mtu >= self._high:
            self._phase = _Phase.FOUND
            self._next_at = now + _CONFIRM_S
        else:
            self._size = (self.mtu + self._high + 1) // 2
        self._probes = 0

    def _plan_confirmation(self, now: float, is_flowing: bool) -> None:
        if self.mtu < self._most and now - self._searched_at >= _SEARCH_AGAIN_S:
            self._search(now, self._most)
            self._plan_search(now)
        elif not self._size and (is_flowing or not self._is_least_proved):
            self._size, self._probes = self.mtu, 0
        elif not self._size:
            self._next_at = now + _CONFIRM_S

    def _give_up(self, now: float, is_answering: bool) -> None:
        """Stop probing this length. Count it as too long if short probes are answered."""
        size = self._size
        self._size, self._probes = 0, 0
        if not is_answering:
            self._next_at = now + _CONFIRM_S  # nothing arrives, so nothing is known about lengths
        elif size == MTU_MIN:
            self._phase, self._is_least_proved, self.is_too_narrow = _Phase.FOUND, False, True
            self._next_at = now + _NARROW_S
        elif self._phase is _Phase.FOUND:
            self.mtu, self._is_least_proved = MTU_MIN, False
            self._search(now, size - 1)
        else:
            self._high = size - 1
