"""Sequences that a member counted, although a subscription may ask for their frames."""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet


class Doubted(NamedTuple):
    """A doubtful range [first, end) of a ledger."""

    first: int
    end: int
    sure: int
    """Version of the table through which nobody asks for the frames."""
    is_hearsay: bool
    """True if the member may have learned of the sequences after it heard of the subscription."""


class Doubts:
    """Doubtful sequences of all ledgers.

    They stay known, as others go by that. But until a frame comes or another member vouches that there is none, the
    member confirms nothing of such a ledger to its writer, and tells consumers nothing of it.
    """

    def __init__(self) -> None:
        self._ledgers: dict[Ledger, RangeSet] = {}
        self._hearsay: dict[Ledger, RangeSet] = {}
        """Those of them that the member may have learned of after the subscription, from a member in doubt."""
        self._sure: dict[Ledger, dict[int, RangeSet]] = {}
        """All of them by the version of the table through which nobody asks for their frames."""
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

    def first(self, ledger: Ledger) -> int:
        """Return the lowest doubtful sequence of a ledger that has some."""
        return self._ledgers[ledger].first

    def add(
        self, ledger: Ledger, ranges: Iterable[tuple[int, int]], sure: int = 0, *, is_hearsay: bool = False
    ) -> None:
        """Doubt ranges [first, end) of counted sequences. Nobody asks for their frames through the version `sure`."""
        doubted = self._ledgers.setdefault(ledger, RangeSet())
        for first, end in ranges:
            for low, high in list(doubted.gaps(first, end)):
                self._sure.setdefault(ledger, {}).setdefault(sure, RangeSet()).add(low, high)
            doubted.add(first, end)
            if is_hearsay:
                self._hearsay.setdefault(ledger, RangeSet()).add(first, end)
        if not doubted:
            del self._ledgers[ledger]

    def within(self, ledger: Ledger, first: int, end: int) -> list[tuple[int, int]]:
        """Return the doubtful ranges between `first` and `end`."""
        doubted = self._ledgers.get(ledger)
        return [] if doubted is None else list(doubted.within(first, end))

    def counted_within(self, ledger: Ledger, first: int, end: int) -> list[tuple[int, int]]:
        """Return those that the member knew before it heard of the subscription: not those that it was told of."""
        hearsay = self._hearsay.get(ledger, RangeSet())
        return [part for low, high in self.within(ledger, first, end) for part in hearsay.gaps(low, high)]

    def told_within(self, ledger: Ledger, first: int, end: int) -> Iterator[Doubted]:
        """Yield the doubtful ranges between `first` and `end`, with what the member may say of them."""
        hearsay = self._hearsay.get(ledger, RangeSet())
        for sure, layer in self._sure.get(ledger, {}).items():
            for low, high in layer.within(first, end):
                yield from (Doubted(*part, sure, is_hearsay=False) for part in hearsay.gaps(low, high))
                yield from (Doubted(*part, sure, is_hearsay=True) for part in hearsay.within(low, high))

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

    def writing_within(self, ledger: Ledger, first: int, end: int) -> list[tuple[int, int]]:
        """Return the doubtful ranges between `first` and `end` whose frames have come and are not on disk yet."""
        writing = self._writing.get(ledger)
        return [] if writing is None else list(writing.within(first, end))

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
            self._drop(ledger)
            self._settled.add(ledger)
            return
        layers = self._sure[ledger]
        for layer in (*layers.values(), self._hearsay.get(ledger, RangeSet())):
            layer.remove(first, end)
        self._sure[ledger] = {sure: layer for sure, layer in layers.items() if layer}

    def forget(self, ledger: Ledger) -> None:
        """Forget a ledger."""
        self._drop(ledger)
        self._writing.pop(ledger, None)

    def _drop(self, ledger: Ledger) -> None:
        for each in (self._ledgers, self._hearsay, self._sure):
            each.pop(ledger, None)

    def poll_settled(self) -> set[Ledger]:
        """Return the ledgers in which nothing is doubtful any more, each of them once."""
        settled, self._settled = self._settled, set()
        return settled
