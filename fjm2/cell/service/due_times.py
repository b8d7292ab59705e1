"""Delivery times of the delayed messages that a member keeps."""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet

_LEFT_MAX: Final = 1000
"""Most times that stay in memory for messages that are gone, beside as many as there are messages."""


class DueTimes:
    """Messages that wait for their delivery times, and those whose times have come. What is due stays due, however the
    clock is set."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Ledger, int]] = []
        """A heap of delivery times, ledgers and sequences. Some of the messages are gone."""
        self._known: dict[Ledger, RangeSet] = {}
        """Messages that wait."""
        self._count = 0
        """Number of messages that wait."""
        self._due: dict[Ledger, RangeSet] = {}

    @property
    def waiting(self) -> int:
        """Number of messages that wait."""
        return self._count

    @property
    def next_ms(self) -> int | None:
        """Delivery time of the next message, in milliseconds since 1970; None if no message waits."""
        return self._waiting[0][0] if self._waiting else None

    def add(self, ledger: Ledger, first: int, times_ms: Sequence[int]) -> None:
        """Note the delivery times of consecutive messages."""
        known = self._known.setdefault(ledger, RangeSet())
        due = self._due.get(ledger, RangeSet())
        for sequence, time_ms in enumerate(times_ms, first):
            if sequence not in known and sequence not in due:
                known.add(sequence, sequence + 1)
                self._count += 1
                heapq.heappush(self._waiting, (time_ms, ledger, sequence))
        if not known:
            del self._known[ledger]

    def advance(self, time_ms: int) -> None:
        """Note that it is a certain time."""
        while self._waiting and self._waiting[0][0] <= time_ms:
            _, ledger, sequence = heapq.heappop(self._waiting)
            if self._forget(ledger, sequence, sequence + 1):
                self._due.setdefault(ledger, RangeSet()).add(sequence, sequence + 1)

    def due(self, ledger: Ledger) -> Iterator[tuple[int, int]]:
        """Yield the ranges of messages whose time has come."""
        return iter(self._due.get(ledger, ()))

    def remove(self, ledger: Ledger, ranges: Iterable[tuple[int, int]]) -> None:
        """Forget ranges of messages that nobody needs any more."""
        for first, end in ranges:
            self._forget(ledger, first, end)
            due = self._due.get(ledger)
            if due is not None:
                due.remove(first, end)
                if not due:
                    del self._due[ledger]
        if len(self._waiting) > 2 * self._count + _LEFT_MAX:
            self._waiting = [each for each in self._waiting if each[2] in self._known.get(each[1], ())]
            heapq.heapify(self._waiting)

    def _forget(self, ledger: Ledger, first: int, end: int) -> int:
        """Forget messages that wait. Return their number."""
        known = self._known.get(ledger)
        if known is None:
            return 0
        count = sum(high - low for low, high in known.within(first, end))
        known.remove(first, end)
        self._count -= count
        if not known:
            del self._known[ledger]
        return count
