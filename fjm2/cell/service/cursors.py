"""Cursors: what a subscription has acknowledged of each ledger."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet
from fjm2.cell.wire.ranges import Position
from fjm2.cell.wire.records import Subscription

CURSOR_RANGES_MAX: Final = 256
"""Most separate ranges that a subscription may have acknowledged of one ledger."""
_FIRST: Final = 1
"""The first sequence of every ledger."""


class ConsumerKey(NamedTuple):
    """Identity of a consumer."""

    session: int
    number: int
    """The low 32 bits of the sequence of the request that made it."""


class Cursor:
    """A subscription, its consumers, and what it has acknowledged.

    Acknowledged sequences may include those of frames to other destinations: a consumer that hears a ledger in order
    acknowledges all through its last message, so that its cursor is one range.
    """

    __slots__ = ("_acked", "consumers", "frame_hash", "subscription")

    def __init__(self, subscription: Subscription, starts: Iterable[Position]) -> None:
        self.subscription = subscription
        self.frame_hash = subscription.destination.frame_hash
        self.consumers: dict[ConsumerKey, int] = {}
        """Credit of each consumer."""
        self._acked: dict[Ledger, RangeSet] = {}
        for ledger, sequence in starts:
            self.acknowledge(ledger, _FIRST, sequence)

    def acknowledge(self, ledger: Ledger, first: int, end: int) -> None:
        """Note that the sequences first, ..., end - 1 are acknowledged, or lie before the start."""
        if first < end:
            self._acked.setdefault(ledger, RangeSet()).add(first, end)

    def is_too_scattered(self, ledger: Ledger, first: int, end: int) -> bool:
        """Return True if the sequences first, ..., end - 1 would be one range too many."""
        acked = self._acked.get(ledger)
        if acked is None or acked.range_count < CURSOR_RANGES_MAX:
            return False
        return first - 1 not in acked and end not in acked and not any(acked.within(first, end))

    def acked_within(self, ledger: Ledger, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges between first and end that are acknowledged."""
        acked = self._acked.get(ledger)
        return iter(()) if acked is None else acked.within(first, end)

    def gaps(self, ledger: Ledger, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges between first and end that are not acknowledged."""
        acked = self._acked.get(ledger)
        return iter(((first, end),)) if acked is None else acked.gaps(first, end)

    def end_of(self, ledger: Ledger, sequence: int) -> int:
        """Return the first sequence from one on that is not acknowledged."""
        acked = self._acked.get(ledger)
        return sequence if acked is None else acked.end_of(sequence)

    def last(self, ledger: Ledger) -> int:
        """Return the last sequence that is acknowledged; 0 if there is none."""
        acked = self._acked.get(ledger)
        return acked.last if acked else 0

    def covers(self, ledger: Ledger, final: Iterable[tuple[int, int]]) -> bool:
        """Return True if all sequences of the ranges [first, last] are acknowledged."""
        acked = self._acked.get(ledger, RangeSet())
        return all(acked.covers(first, last + 1) for first, last in final)

    def forget(self, ledger: Ledger) -> None:
        """Forget a ledger of which nothing comes any more."""
        self._acked.pop(ledger, None)

    def __contains__(self, ledger: Ledger) -> bool:
        return ledger in self._acked

    def acknowledged(self) -> Iterator[tuple[Ledger, RangeSet]]:
        """Yield what is acknowledged of each ledger, in the order in which that was first decided."""
        return iter(self._acked.items())
