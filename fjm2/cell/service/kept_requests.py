"""Requests in a member's store, which are kept as long as its log has the entries that name them."""

from collections import deque
from collections.abc import Iterator, Mapping

from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet
from fjm2.cell.ledger_table import LedgerTable

Through = Mapping[Ledger, int]
"""Last request of each ledger that is decided."""


class SettledRequests:
    """The requests that were decided when each snapshot was made, until the entries before it are gone."""

    def __init__(self) -> None:
        self._snapshots: deque[tuple[int, Through]] = deque()

    def note_snapshot(self, index: int, through: Through) -> None:
        """Note the requests that the entries through an index decide."""
        while self._snapshots and self._snapshots[-1][0] >= index:
            self._snapshots.pop()
        self._snapshots.append((index, dict(through)))

    def before(self, first_index: int) -> Through | None:
        """Return the requests that only entries before an index name, if that is news."""
        found: Through | None = None
        while self._snapshots and self._snapshots[0][0] < first_index:
            found = self._snapshots.popleft()[1]
        return found


class KeptRequests:
    """Sequences of the requests in the store."""

    def __init__(self) -> None:
        self._by_ledger: dict[Ledger, RangeSet] = {}
        self._through: Through = {}
        self._changed: dict[Ledger, None] = {}

    def add(self, ledger: Ledger, first: int, end: int) -> None:
        """Note that the frames first, ..., end - 1 are requests."""
        self._by_ledger.setdefault(ledger, RangeSet()).add(first, end)
        if first <= self._through.get(ledger, 0):
            self._changed[ledger] = None

    def settle(self, through: Through, known: LedgerTable) -> None:
        """Note the requests that no entry of the log names. Ledgers that are not known any more are forgotten."""
        self._through = through
        self._by_ledger = {ledger: held for ledger, held in self._by_ledger.items() if ledger in known}
        self._changed = dict.fromkeys(self._by_ledger)

    def released(self) -> Iterator[tuple[Ledger, list[tuple[int, int]]]]:
        """Yield the requests that are kept no longer, each once."""
        for ledger in self._changed:
            held = self._by_ledger.get(ledger, RangeSet())
            ranges = list(held.within(1, self._through.get(ledger, 0) + 1))
            if ranges:
                held.remove(1, ranges[-1][1])
                yield ledger, ranges
            if not held:
                self._by_ledger.pop(ledger, None)
        self._changed = {}
