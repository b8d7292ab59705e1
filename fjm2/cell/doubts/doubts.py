"""Sequences that a member counted, although a subscription may ask for their frames."""

from collections.abc import Collection, Iterable, Iterator

from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet


class Doubts:
    """Doubtful sequences of all ledgers.

    They stay known, as others go by that. But until a frame comes or another member vouches that there is none, the
    member confirms nothing of such a ledger to its writer, and tells consumers nothing of it.
    """

    def __init__(self) -> None:
        self._ledgers: dict[Ledger, RangeSet] = {}
        self._hearsay: dict[Ledger, RangeSet] = {}
        """Those of them that were never heard: a member in doubt said that it had counted them."""
        self._writing: dict[Ledger, RangeSet] = {}
        """Those of them whose frames have come and are not on disk yet."""
        self._settled: set[Ledger] = set()

    def __bool__(self) -> bool:
        return bool(self._ledgers)

    def __contains__(self, ledger: Ledger) -> bool:
        return ledger in self._ledgers

    def __iter__(self) -> Iterator[tuple[Ledger, int, int]]:
        """Yield all ranges [first, end) whose frames have not come."""
        for ledger, doubted in self._ledgers.items():
            writing = self._writing.get(ledger, RangeSet())
            for first, end in doubted:
                for low, high in writing.gaps(first, end):
                    yield ledger, low, high

    @property
    def ledgers(self) -> Collection[Ledger]:
        """Ledgers with doubtful sequences."""
        return self._ledgers.keys()

    def add(self, ledger: Ledger, ranges: Iterable[tuple[int, int]], *, is_hearsay: bool = False) -> None:
        """Doubt ranges [first, end) of counted sequences."""
        for first, end in ranges:
            self._ledgers.setdefault(ledger, RangeSet()).add(first, end)
            if is_hearsay:
                self._hearsay.setdefault(ledger, RangeSet()).add(first, end)

    def within(self, ledger: Ledger, first: int, end: int) -> list[tuple[int, int]]:
        """Return the doubtful ranges between `first` and `end`."""
        doubted = self._ledgers.get(ledger)
        return [] if doubted is None else list(doubted.within(first, end))

    def counted_within(self, ledger: Ledger, first: int, end: int) -> list[tuple[int, int]]:
        """Return those that the member counted before it heard of the subscription: not those that it was told of."""
        hearsay = self._hearsay.get(ledger, RangeSet())
        return [part for low, high in self.within(ledger, first, end) for part in hearsay.gaps(low, high)]

    def begin_writing(self, ledger: Ledger, first: int, end: int) -> list[tuple[int, int]]:
        """Return the doubtful ranges between `first` and `end` whose frames have to be written now."""
        doubted = self.within(ledger, first, end)
        if not doubted:
            return []
        writing = self._writing.setdefault(ledger, RangeSet())
        parts = [part for low, high in doubted for part in writing.gaps(low, high)]
        for low, high in parts:
            writing.add(low, high)
        return parts

    def end_writing(self, ledger: Ledger, first: int, end: int) -> None:
        """Note that frames are on disk, or that the disk refused them."""
        writing = self._writing.get(ledger)
        if writing is not None:
            writing.remove(first, end)
            if not writing:
                del self._writing[ledger]

    def resolve(self, ledger: Ledger, first: int, end: int) -> None:
        """Note that sequences are as they should be: their frames are on disk, or nobody asked for them."""
        doubted = self._ledgers.get(ledger)
        if doubted is None:
            return
        doubted.remove(first, end)
        if not doubted:
            del self._ledgers[ledger]
            self._hearsay.pop(ledger, None)
            self._settled.add(ledger)
        elif ledger in self._hearsay:
            self._hearsay[ledger].remove(first, end)

    def fence(self, ledger: Ledger) -> None:
        """Note that nothing more of a ledger will be confirmed to its writer.

        A frame that was confirmed has a member that has it or vouches for it. So it does not matter any more whether
        this one counted it in time.
        """
        self._hearsay.pop(ledger, None)

    def forget(self, ledger: Ledger) -> None:
        """Forget a ledger."""
        self._ledgers.pop(ledger, None)
        self._hearsay.pop(ledger, None)
        self._writing.pop(ledger, None)

    def poll_settled(self) -> set[Ledger]:
        """Return the ledgers in which nothing is doubtful any more, each of them once."""
        settled, self._settled = self._settled, set()
        return settled
