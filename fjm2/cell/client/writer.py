"""One producer's ledgers at its cell: the messages that wait, and for how long."""

import math
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from fjm2.base.ledger import Ledger, carrier_of

from ..stored_tracker import Standing, StoredTracker
from ..wire.commands import Heartbeat
from ..wire.stored import Stored
from .outgoing import Confirmed, GaveUp, Reason

NEVER: Final = math.inf
_REASONS: Final = {Standing.FULL: Reason.FULL, Standing.ABLE: Reason.STUCK}


class _Wait(NamedTuple):
    """Messages that were sent together."""

    through: int
    since: float


class Writer:
    """A producer that waits until its messages are stored."""

    def __init__(self, producer_id: int, confirm_timeout_s: float) -> None:
        self.producer_id: Final = producer_id
        self._timeout_s = confirm_timeout_s
        self._tracker = StoredTracker(producer_id, confirm_timeout_s)
        self._waiting: dict[Ledger, deque[_Wait]] = {}
        """Messages of each ledger that are not confirmed, oldest first."""
        self._open: set[Ledger] = set()
        """Ledgers that had messages that waited, and may have more."""

    def receive_heartbeat(self, heartbeat: Heartbeat, now: float) -> None:
        """Learn the members."""
        self._tracker.receive_heartbeat(heartbeat, now)

    def receive_stored(self, stored: Stored, now: float) -> None:
        """Take a member's answer."""
        self._tracker.receive_stored(stored, now)

    def note_waiting(self, ledger: Ledger, through: int, now: float) -> None:
        """Note that messages wait through a sequence."""
        if not self._waiting:
            self._tracker.poll_request(now)  # a request that came due while nothing waited is not sent
        self._open.add(ledger)
        self._waiting.setdefault(ledger, deque()).append(_Wait(through, now))
        self._tracker.note_sent(ledger, through, now)

    def end(self, ledger: Ledger) -> None:
        """Note that a ledger gets no more messages. Those that wait go on waiting."""
        self._open.discard(ledger)
        if ledger not in self._waiting:
            self._tracker.forget(ledger)

    def is_open(self, ledger: Ledger) -> bool:
        """Return True if a ledger of this producer has waited, and may get more messages."""
        return ledger in self._open

    def confirmed(self) -> Iterator[Confirmed]:
        """Yield the ledgers whose messages no longer wait, as far as they are confirmed."""
        for ledger, waits in list(self._waiting.items()):
            through = self._tracker.confirmed(ledger)
            if through < waits[0].through:
                continue
            while waits and waits[0].through <= through:
                waits.popleft()
            self._forget_if_done(ledger, waits)
            yield Confirmed(ledger, through)

    def given_up(self, now: float) -> Iterator[GaveUp]:
        """Yield the ledgers whose messages have waited for the timeout."""
        for ledger, waits in list(self._waiting.items()):
            through = 0
            while waits and waits[0].since + self._timeout_s <= now:
                through = waits.popleft().through
            if through:
                self._forget_if_done(ledger, waits)
                reason = _REASONS.get(self._tracker.standing(now), Reason.SILENT)
                if self._tracker.is_full(now):
                    reason = Reason.FULL  # perhaps since a moment after the message was sent
                yield GaveUp(ledger, through, reason, self._timeout_s)

    def begin_anew(self) -> Iterator[GaveUp]:
        """Yield all ledgers that wait, and forget what the cell has said: another cell took its place."""
        for ledger, waits in self._waiting.items():
            yield GaveUp(ledger, waits[-1].through, Reason.REPLACED, self._timeout_s)
        self._waiting.clear()
        self._open.clear()
        self._tracker = StoredTracker(self.producer_id, self._timeout_s)

    def lanes_to_ask(self, now: float) -> list[int]:
        """Return the lanes in which to ask for STORED; none if it is not time yet."""
        if not self._waiting or not self._tracker.poll_request(now):
            return []
        return sorted({carrier_of(ledger.lane) for ledger in self._waiting})

    def poll_timeout(self) -> float:
        """Return the time at which something is due, or NEVER."""
        if not self._waiting:
            return NEVER
        expires_at = min(waits[0].since for waits in self._waiting.values()) + self._timeout_s
        return min(expires_at, self._tracker.poll_timeout())

    def _forget_if_done(self, ledger: Ledger, waits: deque[_Wait]) -> None:
        if not waits:
            del self._waiting[ledger]
            if ledger not in self._open:
                self._tracker.forget(ledger)
