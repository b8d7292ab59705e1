"""Cursors: what a subscription has acknowledged of each ledger."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet
from fjm2.cell.wire.ranges import Position, Spans
from fjm2.cell.wire.records import Subscription
from fjm2.cell.wire.requests import SubscriptionFlag

CURSOR_RANGES_MAX: Final = 256
"""Most separate ranges that a subscription may have acknowledged of one ledger."""
HANDED_RANGES_MAX: Final = 16_384
"""The same for a ledger whose messages are handed out: to consumers of which some are slow, or when they are due."""
_FIRST: Final = 1
"""The first sequence of every ledger."""


class ClosedLedger(NamedTuple):
    """The final set of a ledger, for as long as a subscription may need it."""

    since_ms: int
    final: Spans
    number: int
    """Number of ledgers that were closed before."""


class ConsumerKey(NamedTuple):
    """Identity of a consumer."""

    session: int
    number: int
    """The low 32 bits of the sequence of the request that made it."""


class Cursor:
    """A subscription, its consumers, and what it has acknowledged.

    Acknowledged sequences may include those of frames to other destinations: a consumer that hears a ledger in order
    acknowledges all through its last message, so that its cursor is one range.

    The messages of a shared subscription are handed to one consumer each. What is handed includes the sequences before
    a message that are for nobody, so that all that is acknowledged makes few ranges here, too.

    Ledgers that were closed before the subscription was added count as acknowledged. They need no place here: there may
    be very many, and a keeper that lags may hold messages of them.
    """

    __slots__ = ("_acked", "_again", "_closed", "_handed", "closed_before", "consumers", "frame_hash", "subscription")

    def __init__(
        self,
        subscription: Subscription,
        starts: Iterable[Position],
        closed: Mapping[Ledger, ClosedLedger],
        closed_before: int,
    ) -> None:
        """`closed_before` is the number of ledgers that were closed before. `closed` tells of those that are
        remembered, and later ones."""
        self.closed_before = closed_before
        self._closed = closed
        self.subscription = subscription
        self.frame_hash = subscription.destination.frame_hash
        self.consumers: dict[ConsumerKey, int] = {}
        """Credit of each consumer."""
        self._acked: dict[Ledger, RangeSet] = {}
        self._handed: dict[ConsumerKey, dict[Ledger, RangeSet]] = {}
        """Sequences that each consumer of a shared subscription holds."""
        self._again: dict[Ledger, RangeSet] = {}
        """Sequences that were handed out and came back."""
        for ledger, sequence in starts:
            self.acknowledge(ledger, _FIRST, sequence)

    @property
    def is_shared(self) -> bool:
        """True if each message goes to one of several consumers."""
        return bool(self.subscription.flags & SubscriptionFlag.SHARED)

    def hands_out(self, ledger: Ledger) -> bool:
        """Return True if the messages of a ledger are handed to consumers: to one of several, or when they are due."""
        return self.is_shared or ledger.is_delayed

    @property
    def is_durable(self) -> bool:
        """True if the subscription stays without consumers."""
        return bool(self.subscription.flags & SubscriptionFlag.DURABLE)

    # Handing out

    def hand(self, consumer: ConsumerKey, ledger: Ledger, first: int, end: int) -> None:
        """Note that a consumer holds the sequences first, ..., end - 1."""
        self._handed.setdefault(consumer, {}).setdefault(ledger, RangeSet()).add(first, end)

    def note_again(self, ledger: Ledger, first: int, end: int) -> None:
        """Note that sequences were handed out before."""
        self._again.setdefault(ledger, RangeSet()).add(first, end)

    def holds(self, consumer: ConsumerKey, ledger: Ledger, first: int, end: int) -> bool:
        """Return True if a consumer holds the sequences first, ..., end - 1."""
        held = self._handed.get(consumer, {}).get(ledger)
        return held is not None and held.covers(first, end)

    def held_within(self, consumer: ConsumerKey, ledger: Ledger, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges between first and end that a consumer holds."""
        held = self._handed.get(consumer, {}).get(ledger)
        return iter(()) if held is None else held.within(first, end)

    def end_held(self, consumer: ConsumerKey, ledger: Ledger, sequence: int) -> int:
        """Return the first sequence from one on that a consumer does not hold."""
        held = self._handed.get(consumer, {}).get(ledger)
        return sequence if held is None else held.end_of(sequence)

    def take(self, consumer: ConsumerKey, ledger: Ledger, first: int, end: int) -> None:
        """Note that a consumer does not hold sequences any more: it acknowledged them, or gave them back."""
        ledgers = self._handed.get(consumer, {})
        held = ledgers.get(ledger)
        if held is not None:
            held.remove(first, end)
            if not held:
                del ledgers[ledger]
            if not ledgers:
                del self._handed[consumer]

    def give_back(self, consumer: ConsumerKey) -> None:
        """Take back all that a consumer holds."""
        for ledger, held in self._handed.pop(consumer, {}).items():
            for first, end in held:
                self.note_again(ledger, first, end)

    def free(self, ledger: Ledger, end: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges below `end` that are neither acknowledged nor held."""
        return self.taken(ledger).gaps(_FIRST, end)

    def taken(self, ledger: Ledger) -> RangeSet:
        """Return the sequences that are acknowledged or held."""
        taken = (self._acked_of(ledger) or RangeSet()).copy()
        for ledgers in self._handed.values():
            if ledger in ledgers:
                taken.update(ledgers[ledger])
        return taken

    def again_within(self, ledger: Ledger, first: int, end: int) -> list[tuple[int, int]]:
        """Return the ranges between first and end that were handed out before."""
        again = self._again.get(ledger)
        return [] if again is None else list(again.within(first, end))

    def handed(self) -> Iterator[tuple[ConsumerKey, Ledger, RangeSet]]:
        """Yield what consumers hold of each ledger, in the order in which that was decided."""
        for consumer, ledgers in self._handed.items():
            for ledger, held in ledgers.items():
                yield consumer, ledger, held

    def returned(self) -> Iterator[tuple[Ledger, RangeSet]]:
        """Yield what was handed out before of each ledger, in the order in which that was first decided."""
        return iter(self._again.items())

    # Acknowledging

    def acknowledge(self, ledger: Ledger, first: int, end: int) -> None:
        """Note that the sequences first, ..., end - 1 are acknowledged, or lie before the start."""
        if first < end:
            self._acked.setdefault(ledger, RangeSet()).add(first, end)
            again = self._again.get(ledger)
            if again is not None:
                again.remove(first, end)
                if not again:
                    del self._again[ledger]

    def _acked_of(self, ledger: Ledger) -> RangeSet | None:
        """Return what is acknowledged of a ledger, not to be changed."""
        acked = self._acked.get(ledger)
        if acked is None:
            closed = self._closed.get(ledger)
            if closed is not None and closed.number < self.closed_before:
                return RangeSet((first, last + 1) for first, last in closed.final)
        return acked

    def is_too_scattered(self, ledger: Ledger, first: int, end: int) -> bool:
        """Return True if the sequences first, ..., end - 1 would be one range too many."""
        acked = self._acked_of(ledger)
        most = HANDED_RANGES_MAX if self.hands_out(ledger) else CURSOR_RANGES_MAX
        if acked is None or acked.range_count < most:
            return False
        return first - 1 not in acked and end not in acked and not any(acked.within(first, end))

    def acked_within(self, ledger: Ledger, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges between first and end that are acknowledged."""
        acked = self._acked_of(ledger)
        return iter(()) if acked is None else acked.within(first, end)

    def gaps(self, ledger: Ledger, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges between first and end that are not acknowledged."""
        acked = self._acked_of(ledger)
        return iter(((first, end),)) if acked is None else acked.gaps(first, end)

    def end_of(self, ledger: Ledger, sequence: int) -> int:
        """Return the first sequence from one on that is not acknowledged."""
        acked = self._acked_of(ledger)
        return sequence if acked is None else acked.end_of(sequence)

    def last(self, ledger: Ledger) -> int:
        """Return the last sequence that is acknowledged; 0 if there is none."""
        acked = self._acked_of(ledger)
        return acked.last if acked else 0

    def covers(self, ledger: Ledger, final: Iterable[tuple[int, int]]) -> bool:
        """Return True if all sequences of the ranges [first, last] are acknowledged."""
        acked = self._acked_of(ledger) or RangeSet()
        return all(acked.covers(first, last + 1) for first, last in final)

    def forget(self, ledger: Ledger) -> None:
        """Forget a ledger of which nothing comes any more."""
        self._acked.pop(ledger, None)

    def __contains__(self, ledger: Ledger) -> bool:
        return ledger in self._acked

    def acknowledged(self) -> Iterator[tuple[Ledger, RangeSet]]:
        """Yield what is acknowledged of each ledger, in the order in which that was first decided."""
        return iter(self._acked.items())
