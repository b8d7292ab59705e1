"""The last values of a topic, as a new consumer gets them from a cell.

A message counts as sent when W members have it on disk. So lists of K - W + 1 members name it, one of them at least,
whichever they are: the newest of what they name is the last value.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Final

from fjm2.base.ledger import Ledger

from ..wire.commands import Heartbeat, MemberFlag
from ..wire.last_values import NO_IDENTITY, QUERY_RANGES_MAX, Asked, ListedValue, ValuesPage, ValuesQuery
from ..wire.ranges import Range

PORTION_VALUES_MAX: Final = 256
"""Most values that are asked for at a time."""
PORTION_BYTES_MAX: Final = 4 << 20
"""Bytes at which a portion takes no further values."""
LISTED_MAX: Final = 400_000
"""Most values of one keeper's list: more than a keeper keeps."""
_ASK_S: Final = 0.1
"""Time after which a question is repeated. It doubles up to `_ASK_S_MAX`."""
_ASK_S_MAX: Final = 1.0
_TRIES_MAX: Final = 4
"""Number of questions for a portion without an answer, after which the lists are asked for again: the messages may have
been replaced meanwhile."""
NEVER: Final = float("inf")

Place = tuple[Ledger, int]
"""Ledger and sequence of a message."""


class _Question:
    """A question that is repeated until it is answered."""

    __slots__ = ("at", "tries")

    def __init__(self) -> None:
        self.at = 0.0
        self.tries = 0

    def is_due(self, now: float) -> bool:
        """Return True if it is time to ask. The next time is later."""
        if now < self.at:
            return False
        self.at = now + min(_ASK_S * (1 << min(self.tries, 8)), _ASK_S_MAX)
        self.tries += 1
        return True

    def begin_anew(self) -> None:
        """Ask at once: there was an answer, and there is more to ask."""
        self.at, self.tries = 0.0, 0


class _List:
    """The list of one keeper, as far as it has come."""

    __slots__ = ("after", "is_complete", "node", "question", "values")

    def __init__(self, node: int) -> None:
        self.node = node
        self.question = _Question()
        self.values: list[ListedValue] = []
        self.after = NO_IDENTITY
        self.is_complete = False

    def add(self, page: ValuesPage) -> bool:
        """Add the next page. Return False if it is another one."""
        if self.is_complete or page.after != self.after:
            return False
        self.values += page.values
        if page.has_more and len(self.values) < LISTED_MAX:
            self.after = page.values[-1].identity
            self.question.begin_anew()
        else:
            self.is_complete = True
            self.question.at = NEVER
        return True


class _Lists:
    """The lists of a quorum of keepers."""

    def __init__(self, subject: Asked, name: str) -> None:
        self.subject, self.name = subject, name
        self.cell_id = 0
        self._nodes: dict[bytes, int] = {}
        """Nodes of the members that lists may come from."""
        self._quorum = 0
        """Number of lists that are needed; 0 before a cell is known."""
        self._lists: dict[bytes, _List] = {}

    def note_cell(self, heartbeat: Heartbeat) -> None:
        """Note the members of the cell."""
        if heartbeat.cell_id != self.cell_id:
            self.cell_id = heartbeat.cell_id
            self._lists.clear()
        members = heartbeat.members
        self._nodes = {
            member.keeper_id: member.node_id
            for member in members
            if member.node_id and member.flags & MemberFlag.LIVE and not member.flags & MemberFlag.AMNESIAC
        }
        self._quorum = len(members) - len(members) // 2

    def add(self, page: ValuesPage) -> bool:
        """Add a page. Return False if it is not the next one of a list."""
        listed = self._lists.get(page.keeper_id)
        return listed is not None and page.cell_id == self.cell_id and listed.add(page)

    def take_complete(self) -> list[_List]:
        """Return the complete lists, and begin anew. Return none if there are too few."""
        complete = [each for each in self._lists.values() if each.is_complete]
        if not self._quorum or len(complete) < self._quorum:
            return []
        self._lists.clear()
        return complete

    def begin_anew(self) -> None:
        """Ask for all lists again."""
        self._lists.clear()

    def poll(self, now: float) -> Iterator[_List]:
        """Yield the lists whose next page has to be asked for."""
        for keeper_id, node in self._nodes.items():
            listed = self._lists.setdefault(keeper_id, _List(node))
            if listed.node != node:  # the keeper was started again
                listed = self._lists[keeper_id] = _List(node)
            if listed.question.is_due(now):
                yield listed

    def poll_timeout(self) -> float:
        """Return the time at which a page is to be asked for again."""
        return min((each.question.at for each in self._lists.values()), default=NEVER)


class ValuesReader:
    """Asks a cell for the last values of a topic, or of the topics that match a pattern."""

    def __init__(
        self,
        node_id: int,
        next_number: Callable[[], int],
        name: str,
        *,
        is_pattern: bool,
        is_wanted: Callable[[ListedValue], bool],
    ) -> None:
        """`is_wanted` returns False for values of which the consumer has got as new a one, or does not want any."""
        self.progressed_at = 0.0
        """Time of the last answer."""
        self.room = 1
        """Number of values that the consumer takes now."""
        self.room_bytes = PORTION_BYTES_MAX
        """Bytes of values that it takes now. One value is taken though it is larger."""
        self.is_listing = True
        """True while it is not known which values there are."""
        self._node_id = node_id
        self._next_number = next_number
        self._number = next_number()
        self._is_wanted = is_wanted
        self._lists = _Lists(Asked.PATTERN if is_pattern else Asked.TOPIC, name)
        self._values: list[ListedValue] = []
        """Values that are not asked for yet, the newest first."""
        self._sources: dict[Place, list[int]] = {}
        """Keepers that have each of them."""
        self._waiting: dict[Place, ListedValue] = {}
        """Values that are asked for."""
        self._question = _Question()

    @property
    def is_done(self) -> bool:
        """True if all values have come, or were not wanted any more."""
        return not (self.is_listing or self._values or self._waiting)

    @property
    def is_waiting(self) -> bool:
        """True while values that were asked for have not come."""
        return bool(self._waiting)

    # Input

    def note_cell(self, heartbeat: Heartbeat) -> None:
        """Note the members of the cell."""
        self._lists.note_cell(heartbeat)

    def receive_page(self, page: ValuesPage, now: float) -> None:
        """Take a page of a list."""
        is_mine = page.number == self._number and page.reply_to == self._node_id
        if self.is_listing and is_mine and self._lists.add(page):
            self.progressed_at = now
            complete = self._lists.take_complete()
            if complete:
                self._merge(complete)

    def find(self, place: Place) -> ListedValue | None:
        """Return the value that a message is. Return None if it is not waited for."""
        return self._waiting.get(place)

    def take(self, place: Place, now: float) -> None:
        """Note that a message that was waited for has come."""
        del self._waiting[place]
        self.progressed_at = now
        self._question.tries = min(self._question.tries, 1)
        if not self._waiting:
            self._question.begin_anew()

    def look_again(self, now: float) -> None:
        """Ask for the lists again, for values that were not on disk yet, or that were replaced."""
        self._number = self._next_number()
        self._lists.begin_anew()
        self._values.clear()
        self._waiting.clear()
        self._sources.clear()
        self.is_listing = True
        self.progressed_at = now

    def _merge(self, lists: list[_List]) -> None:
        """Find the newest value of each identity."""
        newest: dict[bytes, ListedValue] = {}
        sources: defaultdict[Place, list[int]] = defaultdict(list)
        for each in lists:
            for value in each.values:
                sources[value.order.ledger, value.order.sequence].append(each.node)
                known = newest.get(value.identity)
                if known is None or known.order < value.order:
                    newest[value.identity] = value
        wanted = [value for value in newest.values() if not value.is_removal and self._is_wanted(value)]
        self._values = sorted(wanted, key=lambda value: value.order, reverse=True)
        self._sources = dict(sources)
        self.is_listing = False
        self._question.begin_anew()

    # Output

    def poll_queries(self, now: float) -> Iterator[ValuesQuery]:
        """Yield the questions that are due."""
        if self.is_listing:
            yield from self._list_queries(now)
            return
        self._waiting = {place: value for place, value in self._waiting.items() if self._is_wanted(value)}
        if not self._waiting:
            self._begin_portion()
        if not self._waiting or not self._question.is_due(now):
            return
        if self._question.tries > _TRIES_MAX:
            progressed_at = self.progressed_at
            self.look_again(now)
            self.progressed_at = progressed_at
            yield from self._list_queries(now)
            return
        by_node: defaultdict[int, list[Place]] = defaultdict(list)
        for place in sorted(self._waiting):
            nodes = self._sources[place]
            by_node[nodes[(self._question.tries - 1) % len(nodes)]].append(place)
        for node, places in by_node.items():
            ranges = _ranges_of(places)
            for at in range(0, len(ranges), QUERY_RANGES_MAX):
                yield self._query(Asked.MESSAGES, node, ranges=tuple(ranges[at : at + QUERY_RANGES_MAX]))

    def _list_queries(self, now: float) -> Iterator[ValuesQuery]:
        lists = self._lists
        for each in lists.poll(now):
            yield self._query(lists.subject, each.node, after=each.after, name=lists.name)

    def _begin_portion(self) -> None:
        """Ask for the oldest values that there is room for."""
        self._question.begin_anew()
        size = 0
        while self._values and len(self._waiting) < min(self.room, PORTION_VALUES_MAX):
            value = self._values[-1]
            if self._is_wanted(value):
                size += value.size
                if self._waiting and size > min(self.room_bytes, PORTION_BYTES_MAX):
                    return
                self._waiting[value.order.ledger, value.order.sequence] = value
            self._values.pop()

    def _query(
        self,
        asked: Asked,
        node: int,
        *,
        after: bytes = NO_IDENTITY,
        name: str = "",
        ranges: tuple[Range, ...] = (),
    ) -> ValuesQuery:
        return ValuesQuery(
            asked=asked,
            reply_to=self._node_id,
            keeper_node=node,
            number=self._number,
            cell_id=self._lists.cell_id,
            after=after,
            name=name,
            ranges=ranges,
        )

    def poll_timeout(self) -> float:
        """Return the time at which a question is due; NEVER if there is none."""
        if self.is_listing:
            return self._lists.poll_timeout()
        return self._question.at if self._waiting or (self._values and self.room) else NEVER


def _ranges_of(places: list[Place]) -> list[Range]:
    """Return sorted places as ranges."""
    ranges: list[Range] = []
    for ledger, sequence in places:
        if ranges and ranges[-1].ledger == ledger and ranges[-1].last + 1 == sequence:
            ranges[-1] = Range(ledger, ranges[-1].first, ranges[-1].count + 1)
        else:
            ranges.append(Range(ledger, sequence, 1))
    return ranges
