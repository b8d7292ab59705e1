"""The newest value of each topic and key, as far as one keeper has them on disk."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Final, NamedTuple

from fjm2.base.errors import FJM2Error
from fjm2.base.ledger import Ledger
from fjm2.cell.wire.last_values import ListedValue, Order
from fjm2.messages.destination import PatternTable, TopicPattern
from fjm2.messages.header import DESTINATION_HASH, EXPIRATION, FRAME_BYTES, Header
from fjm2.messages.last_values.retained import read_retained

VALUES_MAX: Final = 100_000
"""Values that a keeper takes. Each costs some 600 bytes of memory."""
OVERSHOOT: Final = 2
"""Part of the limits that senders who did not know of each other may use. Beyond, values are not kept."""
REMEMBERED_MS: Final = 7 * 24 * 3600 * 1000
"""Time for which a keeper knows that a value was removed, or has expired. A keeper that was away for longer may bring
an older value back."""
STEP_VALUES: Final = 4000
"""Values, or topics, that are looked at in one step: some 8 ms."""
_HEAP_SLACK: Final = 1000
"""Entries that the heap may have beyond twice the number of values."""


@dataclass(frozen=True, slots=True)
class Value:
    """A message that is the last value of its topic and key."""

    listed: ListedValue
    topic: str
    frame_hash: int
    expires_ms: int
    """Time since 1970 at which it expires; 0 for never."""

    @property
    def order(self) -> Order:
        return self.listed.order

    @property
    def gone_ms(self) -> int:
        """Time since 1970 at which nothing needs to be known of it any more; 0 for never."""
        if self.listed.is_removal:
            return self.listed.order.stamp // 1000 + REMEMBERED_MS
        return self.expires_ms and self.expires_ms + REMEMBERED_MS

    def listed_at(self, now_ms: int) -> ListedValue:
        """Return the value as it is listed at a time: one that has expired is as one that was removed."""
        if self.expires_ms and self.expires_ms <= now_ms:
            return self.listed._replace(is_removal=True)
        return self.listed


def value_of(buffer: bytes, header: Header, start: int, ledger: Ledger, sequence: int) -> Value | None:
    """Return the value that a frame is; None if it is none, or malformed."""
    found = read_retained(buffer, header, start)
    if found is None:
        return None
    order = Order(found.stamp, ledger, sequence)
    listed = ListedValue(found.identity, order, header[FRAME_BYTES], found.is_removal)
    return Value(listed, found.topic, header[DESTINATION_HASH], header[EXPIRATION])


class Room(NamedTuple):
    """Values, and bytes of them, that a table still takes."""

    values: int
    bytes: int


_IDENTITY = attrgetter("identity")


class ValueTable:
    """Values by identity. The result does not depend on the order in which they are added."""

    def __init__(self, bytes_max: int, values_max: int = VALUES_MAX) -> None:
        self.refused = 0
        """Values that were not taken because there was no room."""
        self._values_max, self._bytes_max = values_max, bytes_max
        self._values: dict[bytes, Value] = {}
        self._by_topic: dict[str, set[bytes]] = {}
        self._bytes = 0
        self._gone: list[tuple[int, bytes]] = []
        """Heap of the times at which values are forgotten. Some are out of date."""

    def __len__(self) -> int:
        return len(self._values)

    @property
    def room(self) -> Room:
        """Values and bytes that the table takes from those who ask before."""
        return Room(max(0, self._values_max - len(self._values)), max(0, self._bytes_max - self._bytes))

    def add(self, value: Value) -> Value | None:
        """Add a value. Return the one that nobody needs any more: the one that it replaced, or itself if it is older
        than what is there or finds no room. Return None if there is none."""
        identity = value.listed.identity
        known = self._values.get(identity)
        if known is None:
            is_too_much = self._bytes + value.listed.size > OVERSHOOT * self._bytes_max
            if is_too_much or len(self._values) >= OVERSHOOT * self._values_max:
                self.refused += 1
                return value
            self._by_topic.setdefault(value.topic, set()).add(identity)
        elif value.order <= known.order:
            return None if value.order == known.order else value
        self._values[identity] = value
        self._bytes += value.listed.size - (known.listed.size if known is not None else 0)
        if value.gone_ms:
            heappush(self._gone, (value.gone_ms, identity))
            if len(self._gone) > 2 * len(self._values) + _HEAP_SLACK:
                self._gone = [(one.gone_ms, identity) for identity, one in self._values.items() if one.gone_ms]
                heapify(self._gone)
        return known

    def forget_gone(self, now_ms: int) -> Iterator[Value]:
        """Forget removals, and values that have expired, after `REMEMBERED_MS`. Yield them."""
        while self._gone and self._gone[0][0] <= now_ms:
            _, identity = heappop(self._gone)
            value = self._values.get(identity)
            if value is None or not value.gone_ms or value.gone_ms > now_ms:
                continue
            del self._values[identity]
            self._bytes -= value.listed.size
            of_topic = self._by_topic[value.topic]
            of_topic.remove(identity)
            if not of_topic:
                del self._by_topic[value.topic]
            yield value

    def of_topic(self, topic: str, now_ms: int) -> Iterator[list[ListedValue]]:
        """Yield the values of a topic, `STEP_VALUES` at a time."""
        identities = list(self._by_topic.get(topic, ()))
        for at in range(0, len(identities), STEP_VALUES):
            yield self._listed(identities[at : at + STEP_VALUES], now_ms)

    def of_pattern(self, name: str, now_ms: int) -> Iterator[list[ListedValue]]:
        """Yield the values of all topics that match a pattern, those of `STEP_VALUES` topics at a time; none if there
        is no such pattern."""
        table: PatternTable[None] = PatternTable()
        try:
            table.add(TopicPattern(name), None)
        except FJM2Error:
            return
        topics = list(self._by_topic)
        for at in range(0, len(topics), STEP_VALUES):
            matching = [topic for topic in topics[at : at + STEP_VALUES] if table.find(topic)]
            yield self._listed((each for topic in matching for each in self._by_topic.get(topic, ())), now_ms)

    def _listed(self, identities: Iterable[bytes], now_ms: int) -> list[ListedValue]:
        return [value.listed_at(now_ms) for each in identities if (value := self._values.get(each)) is not None]


class ValueList:
    """A list of values, by identity. It is made in steps, as a keeper that makes a long one has other things to do."""

    def __init__(self, steps: Iterator[list[ListedValue]]) -> None:
        self.is_complete = False
        self.values: list[ListedValue] = []
        """Values so far, in order when the list is complete."""
        self._steps = steps

    def advance(self) -> None:
        """Do a step, or all if the list is short."""
        done = 0
        while not self.is_complete and done < STEP_VALUES:
            part = next(self._steps, None)
            if part is None:
                self.values.sort(key=_IDENTITY)
                self.is_complete = True
            else:
                self.values += part
                done += max(len(part), STEP_VALUES // 2)


def page_behind(values: list[ListedValue], after: bytes, count_max: int) -> tuple[tuple[ListedValue, ...], bool]:
    """Return the values of a list behind an identity, and True if there are more."""
    first = bisect_right(values, after, key=_IDENTITY)
    return tuple(values[first : first + count_max]), first + count_max < len(values)
