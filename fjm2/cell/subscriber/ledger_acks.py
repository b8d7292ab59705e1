"""Acknowledgements of one consumer in one ledger: which messages wait for them, and which ranges name them best."""

from typing import Final

from fjm2.base.ledger import SEQUENCE_MAX
from fjm2.base.ranges import RangeSet

SCATTERED_MAX: Final = 100
"""Most separate ranges that a consumer asks to acknowledge. The cell refuses more than 256 of a subscription, of which
earlier consumers may have left some."""
COUNT_MAX: Final = 0xFFFF_FFFF
"""Largest count of a range."""
RETRY_S: Final = 0.5
"""Time after which an acknowledgement is sent again that came too early for the cell. It doubles."""
RETRY_S_MAX: Final = 8.0


class LedgerAcks:
    """Messages of one ledger that a consumer has got and not acknowledged.

    A range reaches back to the message before it that waits, over all that is for others, so that a consumer that
    acknowledges everything in order has one range.
    """

    __slots__ = ("asked", "failures", "flying", "mine", "outstanding", "retry_at")

    def __init__(self, *, is_shared: bool) -> None:
        self.outstanding = RangeSet()
        """Messages that were delivered, and that nobody has asked to acknowledge."""
        self.asked = RangeSet()
        """Messages that the owner has acknowledged, and that no request names yet."""
        self.flying = RangeSet()
        """Ranges of requests that are not decided."""
        self.mine = RangeSet() if is_shared else RangeSet(((1, SEQUENCE_MAX + 1),))
        """Sequences that the consumer holds, and that no request names. An unshared one holds everything."""
        self.failures = 0
        """Number of times in a row that the cell could not take a range."""
        self.retry_at = 0.0

    def ask(self, first: int, end: int) -> None:
        """Note that messages are acknowledged. Those that do not wait are ignored."""
        for low, high in list(self.outstanding.within(first, end)):
            self.outstanding.remove(low, high)
            self.asked.add(low, high)

    def is_waiting(self, first: int, end: int) -> bool:
        """Return True if the acknowledgement of some of these messages is not decided."""
        return any(self.asked.within(first, end)) or any(self.flying.within(first, end))

    def is_due(self, now: float) -> bool:
        """Return True if there is something to be asked of the cell now."""
        return bool(self.asked) and now >= self.retry_at

    def take(self, most: int, *, is_shared: bool) -> list[tuple[int, int]]:
        """Return ranges [first, end) for a request, and count them as asked of the cell."""
        taken: list[tuple[int, int]] = []
        for low, high in self.asked:
            for first, end in list(self.mine.within(self.outstanding.end_before(low), high)):
                if len(taken) == most:
                    return taken
                first = max(first, end - COUNT_MAX)
                if not is_shared and self._would_scatter(first):
                    continue
                self.fly(first, end)
                self.asked.remove(first, end)
                taken.append((first, end))
        return taken

    def give_back(self, first: int, end: int) -> list[tuple[int, int]]:
        """Return ranges for a request that gives messages back, and count them as asked of the cell."""
        taken: list[tuple[int, int]] = []
        for low, high in list(self.outstanding.within(first, end)):
            self.outstanding.remove(low, high)
            begin = max(self.outstanding.end_before(low), self.asked.end_before(low))
            for start, stop in list(self.mine.within(begin, high)):
                self.fly(start, stop)
                taken.append((start, stop))
        return taken

    def _would_scatter(self, first: int) -> bool:
        """Return True if a range would be one too many. It waits until messages before it are acknowledged."""
        return first - 1 in self.mine and self.mine.range_count >= SCATTERED_MAX

    def fly(self, first: int, end: int) -> None:
        """Note that a request names a range."""
        self.mine.remove(first, end)
        self.flying.add(first, end)

    def land(self, first: int, end: int) -> None:
        """Note that a range was decided for good."""
        self.flying.remove(first, end)
        self.failures, self.retry_at = 0, 0.0

    def fail(self, first: int, end: int) -> None:
        """Note that a range has to be asked for again."""
        self.flying.remove(first, end)
        self.mine.add(first, end)
        self.asked.add(first, end)

    def delay(self, now: float) -> None:
        """Note that the cell could not take a range yet."""
        self.retry_at = now + min(RETRY_S * 2.0**self.failures, RETRY_S_MAX)
        self.failures = min(self.failures + 1, 10)
