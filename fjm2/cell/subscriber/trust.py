"""The time for which a connection may take it that the cell still keeps its sessions."""

import math
from typing import Final

from ..times import SESSION_LEASE_S

RENEW_S: Final = 1.0
"""Interval at which leases are renewed: a third of their length."""
TRUST_S: Final = SESSION_LEASE_S - RENEW_S - 0.2
"""Time after a renewal for which sessions hold, even if that renewal was lost and the one before came late."""
NEVER: Final = -math.inf


class Trust:
    """Knows until when the sessions of a connection hold.

    Nobody answers renewals. But as long as they go out on time, and the manager is heard, the sessions hold. Once
    either has failed for too long, the cell may have given to others what the consumers of these sessions got, and
    only its decision on a later request of each session tells.
    """

    def __init__(self) -> None:
        self.until = NEVER
        """Time until which the sessions hold; NEVER while nobody knows."""
        self.round = 0
        """Number of times that the sessions had to be asked about."""
        self._renewed_at = NEVER
        self._heard_at = NEVER
        self._waiting: set[int] = set()
        """Sessions of which the cell has not said yet that it keeps them."""

    @property
    def is_broken(self) -> bool:
        """True while the cell has to say whether it keeps the sessions."""
        return bool(self._waiting)

    def is_renewed_late(self, now: float) -> bool:
        """Note a renewal. Return True if it comes too late."""
        is_late = now > self._renewed_at + TRUST_S
        self._renewed_at = now
        self._extend()
        return is_late

    def is_heard_late(self, now: float) -> bool:
        """Note that the manager was heard. Return True if that was too long ago."""
        is_late = now > self._heard_at + TRUST_S
        self._heard_at = now
        self._extend()
        return is_late

    def begin_round(self, sessions: set[int], now: float) -> None:
        """Note that some sessions are asked about, in a new round, and that all others hold."""
        self.round += 1
        self._waiting = sessions
        self._renewed_at = self._heard_at = now
        self._extend()

    def settle(self, session: int, round_: int) -> bool:
        """Note that a session holds or has ended, by an answer of a round. Return True if it was the last one."""
        if round_ != self.round or session not in self._waiting:
            return False
        self._waiting.discard(session)
        self._extend()
        return not self._waiting

    def _extend(self) -> None:
        self.until = NEVER if self._waiting else min(self._renewed_at, self._heard_at) + TRUST_S
