"""Evidence that a receiver makes progress: its counter, its confirmations, or the first thing that it misses."""

from fjm2.norm.core.ranges import OBJECT_ID, Serial
from fjm2.norm.core.timers import NEVER
from fjm2.norm.core.wire import Position

from .repair_credit import RepairCredit

_PAYLOAD_ID = Serial(32)
_COUNTER = Serial(32)
_TRIAL_S = 1.0
"""Time over which a receiver that was given up must receive new data again before it is waited for."""
_TRIAL_SHARE = 0.5
"""Share of the new data that it must have received in that time. Where only small datagrams arrive, it is less."""
_BARRED_GROWTH = 2.0
"""Each time that the same receiver stops making progress, it is kept out for this many times longer."""
_BARRED_MAX_S = 300.0
"""Longest time for which such a receiver is kept out."""


class Evidence:
    """The last statements of one receiver about its progress, and the time of the last change.

    A receiver that sends a Status is judged by its counter. Of any other, the first position that its NACKs request
    counts. A single NACK may request only what was lost last, so the lowest positions of two periods are compared.
    """

    __slots__ = (
        "_barred_until",
        "_confirmed",
        "_counter",
        "_low",
        "_low_before",
        "_period_at",
        "_period_s",
        "_stalls",
        "_trial",
        "credit",
        "is_stalled",
        "moved_at",
    )

    def __init__(self, now: float, period_s: float) -> None:
        """`period_s`: how long first missing positions are collected before they are compared."""
        self.moved_at = now
        """Time of the last progress, or of the beginning."""
        self.is_stalled = False
        """True if the receiver was given up because it made no progress, and has shown none since."""
        self.credit = RepairCredit()
        """Its credit for repairs, which depends on its counter."""
        self._stalls = 0
        """Number of times that it was given up for that."""
        self._barred_until = -NEVER
        self._trial: tuple[float, int, int] | None = None
        """Since it was given up: a time, with the receiver's counter and the bytes sent to all at that time."""
        self._period_s = period_s
        self._counter: int | None = None
        self._confirmed: Position | None = None
        self._low: Position | None = None
        self._low_before: Position | None = None
        self._period_at = -NEVER

    def note_counter(self, counter: int, sent_bytes: int, now: float) -> None:
        """Note the counter in a Status. `sent_bytes` have been sent to all receivers for the first time so far."""
        if self.is_stalled:
            self._judge(counter, sent_bytes, now)
        elif self._counter is not None and counter != self._counter:
            self.moved_at = now
        self._counter = counter

    def _judge(self, counter: int, sent_bytes: int, now: float) -> None:
        """End the stall if a good part of what was sent has arrived for a while."""
        if self._trial is not None:
            began, counter_before, sent_before = self._trial
            if now - began < _TRIAL_S:
                return
            gained = _COUNTER.distance(counter_before, counter)
            self.is_stalled = gained <= 0 or gained < _TRIAL_SHARE * (sent_bytes - sent_before)
        self._trial = now, counter, sent_bytes

    def note_confirmed(self, position: Position, now: float) -> None:
        """Note the position of a confirmation."""
        if position != self._confirmed:
            self._confirmed = position
            self.moved_at = now

    def end_stall(self) -> None:
        """Note that the receiver has everything, although it was given up because it made no progress."""
        self.is_stalled = False

    def note_missing(self, first: Position, now: float) -> None:
        """Note the first position that a NACK requests."""
        if self._counter is not None:
            return
        if now - self._period_at < self._period_s:
            if self._low is None or _is_before(first, self._low):
                self._low = first
            return
        if self._low is not None and self._low_before is not None and _is_before(self._low_before, self._low):
            self.moved_at = now
        self._low_before, self._low, self._period_at = self._low, first, now

    def note_stalled(self, barred_s: float, now: float) -> None:
        """Note that the receiver is given up because it makes no progress.

        If that is not the first time, keep it out for a while: for `barred_s` the second time, and then longer.
        """
        self.is_stalled = True
        self._trial = None
        if self._stalls:
            longer = _BARRED_GROWTH ** min(self._stalls - 1, 16)
            self._barred_until = now + min(barred_s * longer, _BARRED_MAX_S)
        self._stalls += 1

    def may_return(self, now: float) -> bool:
        """Return True if the receiver may be waited for again."""
        return not self.is_stalled and now >= self._barred_until


def _is_before(first: Position, second: Position) -> bool:
    """Return True if a position lies before another one of the same sender. Streams wrap, and so do object ids."""
    if first.object_id != second.object_id:
        return OBJECT_ID.is_before(first.object_id, second.object_id)
    return _PAYLOAD_ID.is_before(first.payload_id & _PAYLOAD_ID.mask, second.payload_id & _PAYLOAD_ID.mask)
