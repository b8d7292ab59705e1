"""The messages of stored destinations that a member keeps: their sequences, by destination and ledger."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet

from .due_times import DueTimes


class Backlog:
    """Sequences of messages to each destination. A member's own, not replicated: it follows from the frames."""

    def __init__(self) -> None:
        self._by_hash: dict[int, dict[Ledger, RangeSet]] = {}
        self._ledgers: Counter[Ledger] = Counter()
        """Number of destinations that a ledger has messages to."""
        self._delayed: Counter[int] = Counter()
        """Number of ledgers of delayed messages that a destination has."""
        self.due_times: Final = DueTimes()
        """Delivery times of the delayed messages."""

    @property
    def ledgers(self) -> Iterable[Ledger]:
        """Ledgers that have messages."""
        return self._ledgers.keys()

    def __contains__(self, ledger: object) -> bool:
        return ledger in self._ledgers

    def add(self, frame_hash: int, ledger: Ledger, first: int, end: int) -> None:
        """Note that the frames first, ..., end - 1 are messages to a destination."""
        self.add_all(frame_hash, ledger, ((first, end),))

    def add_all(self, frame_hash: int, ledger: Ledger, ranges: Iterable[tuple[int, int]]) -> None:
        """Note that ranges of frames are messages to a destination. There must be one at least."""
        ledgers = self._by_hash.setdefault(frame_hash, {})
        if ledger not in ledgers:
            ledgers[ledger] = RangeSet()
            self._ledgers[ledger] += 1
            self._delayed[frame_hash] += ledger.is_delayed
        messages = ledgers[ledger]
        for first, end in ranges:
            messages.add(first, end)

    def remove(self, frame_hash: int, ledger: Ledger, ranges: Iterable[tuple[int, int]]) -> None:
        """Note that nobody needs ranges of a destination any more."""
        messages = self._by_hash.get(frame_hash, {}).get(ledger)
        if messages is None:
            return
        ranges = list(ranges)
        if ledger.is_delayed:
            self.due_times.remove(ledger, [part for each in ranges for part in messages.within(*each)])
        for first, end in ranges:
            messages.remove(first, end)
        if not messages:
            del self._by_hash[frame_hash][ledger]
            self._delayed[frame_hash] -= ledger.is_delayed
            if not self._delayed[frame_hash]:
                del self._delayed[frame_hash]
            self._ledgers[ledger] -= 1
            if not self._ledgers[ledger]:
                del self._ledgers[ledger]
            if not self._by_hash[frame_hash]:
                del self._by_hash[frame_hash]

    def within(self, frame_hash: int, ledger: Ledger, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges between first and end that are messages to a destination."""
        messages = self._by_hash.get(frame_hash, {}).get(ledger)
        return iter(()) if messages is None else messages.within(first, end)

    def last_within(self, frame_hash: int, ledger: Ledger, first: int, end: int) -> int:
        """Return the last message to a destination between first and end; 0 if there is none."""
        messages = self._by_hash.get(frame_hash, {}).get(ledger)
        if messages is None or first >= end:
            return 0
        last = end - 1 if end - 1 in messages else messages.end_before(end) - 1
        return last if last >= first else 0

    def ranges(self, frame_hash: int, ledger: Ledger) -> list[tuple[int, int]]:
        """Return all ranges of a ledger that are messages to a destination."""
        return list(self._by_hash.get(frame_hash, {}).get(ledger, ()))

    def ledgers_of(self, frame_hash: int) -> list[Ledger]:
        """Return the ledgers that have messages to a destination."""
        return list(self._by_hash.get(frame_hash, ()))

    def others_before(self, frame_hash: int, ledger: Ledger, sequence: int) -> int:
        """Return the first of the sequences just before a message that are for other destinations; the sequence itself
        if there are none."""
        messages = self._by_hash.get(frame_hash, {}).get(ledger)
        return sequence if messages is None or sequence - 1 in messages else messages.end_before(sequence)

    def delayed_hashes(self) -> list[int]:
        """Return the destinations that have delayed messages."""
        return [frame_hash for frame_hash, count in self._delayed.items() if count]

    def hashes_of(self, ledger: Ledger) -> list[int]:
        """Return the destinations that a ledger has messages to."""
        return [frame_hash for frame_hash, ledgers in self._by_hash.items() if ledger in ledgers]

    def ledger_from(self, frame_hash: int, ledger: Ledger, *, is_next: bool) -> Ledger | None:
        """Return the first ledger with messages to a destination: this one or a later one, or the next one."""
        return min(
            (each for each in self._by_hash.get(frame_hash, ()) if each > ledger or (each == ledger and not is_next)),
            default=None,
        )
