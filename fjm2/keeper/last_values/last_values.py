"""A keeper's part in last values: it keeps the newest ones, gives up those that were replaced, and answers consumers.

What is known here follows from the frames on disk, so that it needs no place in the decisions of the cell.
"""

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from fjm2.base.ledger import Ledger
from fjm2.base.logs import Log
from fjm2.base.ranges import RangeSet
from fjm2.bus.ledgers.ledger_tap import NumberedRun
from fjm2.cell.cell import Cell
from fjm2.cell.outgoing import State
from fjm2.cell.wire.last_values import PAGE_VALUES_MAX, Asked, ListedValue, ValuesPage, ValuesQuery, decode_query
from fjm2.cell.wire.ranges import Range, Spans
from fjm2.messages.header import HEADER
from fjm2.messages.ledgers.run_columns import RunColumns
from fjm2.store.journal import Journal

from .value_table import Value, ValueList, ValueTable, page_behind, value_of

log = Log("fjm2.keeper")

REPLACED_S: Final = 90.0
"""Time for which a replaced message stays. Consumers that were told of it may still ask for it. And the message that
took its place may be on no other disk: when its sender is silent, the others fetch it, or the cell closes its ledger
without it after 60 s."""
REPLACED_MAX: Final = 20_000
"""Most messages that stay so."""
_REPLACED_PART: Final = 16
"""They may take this part (1/16) of a store."""
_BYTES_PART: Final = 4
"""Values may take this part (1/4) of a store."""
_LISTS_MAX: Final = 16
"""Most lists that are remembered from one page to the next. Others are made anew."""
_NUMBER_MAX: Final = 0xFFFF_FFFF
_MEMBERS: Final = (State.FOLLOWER, State.CANDIDATE, State.RECOVERING, State.CLAIMING, State.SERVING)


class _Replaced(NamedTuple):
    """A message that nobody needs any more."""

    until: float
    value: Value


class LastValues:
    """The last values that a keeper has. A `Container` of the ledgers that they are in."""

    def __init__(
        self,
        cell: Cell,
        journal: Journal,
        release: Callable[[Ledger, Spans], None],
        clock: Callable[[], float],
        wall_ms: Callable[[], int],
    ) -> None:
        """`release` gives up frames, on disk or not."""
        self.table: Final = ValueTable(journal.use.allowed // _BYTES_PART)
        self._cell, self._journal, self._release = cell, journal, release
        self._clock, self._wall_ms = clock, wall_ms
        self._held: dict[Ledger, RangeSet] = {}
        """Sequences of the messages that must stay, by ledger."""
        self._coming: deque[tuple[int, list[Value]]] = deque()
        """Values that are not on disk yet, and the batch that has them."""
        self._replaced: deque[_Replaced] = deque()
        self._replaced_bytes = 0
        self._lists: OrderedDict[tuple[int, int], ValueList] = OrderedDict()
        """Lists that consumers have got a part of, by node and number."""

    def __contains__(self, ledger: object) -> bool:
        return ledger in self._held

    # Messages

    def begin(self, values: Iterable[Value]) -> None:
        """Note the values that the store has at the start."""
        for value in values:
            self._hold(value)
            self._add(value)

    def note(self, columns: RunColumns, run: NumberedRun) -> None:
        """Note frames that the cell has just got, of which all or some are values."""
        values: list[Value] = []
        for place in range(run.place, run.place + run.size):
            start = int(columns.starts[place])
            header = HEADER.unpack_from(columns.buffer, start)
            value = value_of(columns.buffer, header, start, run.ledger, run.first + place - run.place)
            if value is not None:
                self._hold(value)
                values.append(value)
        if values:
            self._coming.append((self._journal.queue.newest_lsn, values))

    def handle_synced(self) -> None:
        """Take the values that are on disk now. Only those replace others: what is not stored may never be."""
        while self._coming and self._coming[0][0] <= self._journal.lsn:
            _, values = self._coming.popleft()
            for value in values:
                order = value.order
                if self._journal.live(order.ledger, order.sequence, order.sequence + 1):
                    self._add(value)
                else:  # refused, or given up before
                    self._let_go(value)

    def handle_time(self) -> None:
        """Give up what has been replaced for a while."""
        for value in self.table.forget_gone(self._wall_ms()):
            self._replace(value)
        if not self._replaced:
            return
        now, bytes_max = self._clock(), self._journal.use.allowed // _REPLACED_PART
        while self._replaced and (
            self._replaced[0].until <= now or len(self._replaced) > REPLACED_MAX or self._replaced_bytes > bytes_max
        ):
            value = self._replaced.popleft().value
            order = value.order
            self._replaced_bytes -= value.listed.size
            self._let_go(value)
            backlog = self._cell.clients.backlog
            if not any(backlog.within(value.frame_hash, order.ledger, order.sequence, order.sequence + 1)):
                self._release(order.ledger, ((order.sequence, order.sequence),))

    def without_held(self, ledger: Ledger, ranges: Spans) -> Spans:
        """Return ranges that subscriptions need no more, without the messages that are last values."""
        held = self._held.get(ledger)
        if held is None:
            return ranges
        return tuple((low, high - 1) for first, last in ranges for low, high in held.gaps(first, last + 1))

    def _add(self, value: Value) -> None:
        refused = self.table.refused
        replaced = self.table.add(value)
        if self.table.refused > refused:
            text = f"the last value of {value.topic} is not kept: there are {len(self.table)}; remove some"
            log.seldom(logging.WARNING, "values_full", text, topic=value.topic)
        if replaced is not None:
            self._replace(replaced)

    def _replace(self, value: Value) -> None:
        self._replaced.append(_Replaced(self._clock() + REPLACED_S, value))
        self._replaced_bytes += value.listed.size

    def _hold(self, value: Value) -> None:
        ledger, sequence = value.order.ledger, value.order.sequence
        held = self._held.get(ledger)
        if held is None:
            held = self._held[ledger] = RangeSet()
        held.add(sequence, sequence + 1)

    def _let_go(self, value: Value) -> None:
        ledger, sequence = value.order.ledger, value.order.sequence
        held = self._held.get(ledger)
        if held is not None:
            held.remove(sequence, sequence + 1)
            if not held:
                del self._held[ledger]

    # Consumers

    def answer(self, content: bytes, node_id: int) -> tuple[ValuesPage | None, tuple[Range, ...]]:
        """Return the answer to a query: a page of a list, or the places of messages that are to be sent.

        Only members answer: what a quorum of them says counts.
        """
        query = decode_query(content)
        cell = self._cell
        is_mine = query is not None and query.cell_id == cell.cell_id and query.keeper_node in (0, node_id)
        if query is None or not is_mine or cell.state not in _MEMBERS:
            return None, ()
        if query.asked is Asked.MESSAGES:
            return None, tuple(self._held_of(query.ranges))
        if query.asked is Asked.ROOM:
            return self._page(query, (), has_more=False), ()
        listed = self._list_of(query)
        listed.advance()
        if not listed.is_complete:
            return None, ()  # whoever asks does so again
        values, has_more = page_behind(listed.values, query.after, PAGE_VALUES_MAX)
        if not has_more:
            self._lists.pop((query.reply_to, query.number), None)
        return self._page(query, values, has_more=has_more), ()

    def advance_lists(self) -> bool:
        """Do a step of the lists that are not complete. Return False if there is none."""
        pending = [each for each in self._lists.values() if not each.is_complete]
        for each in pending[:1]:
            each.advance()
        return bool(pending)

    def _list_of(self, query: ValuesQuery) -> ValueList:
        name = query.reply_to, query.number
        found = self._lists.get(name)
        if found is None:
            list_of = self.table.of_pattern if query.asked is Asked.PATTERN else self.table.of_topic
            is_refused = self._cell.replica.ledgers.is_refused
            found = self._lists[name] = ValueList(
                [value for value in part if not is_refused(value.order.ledger, value.order.sequence)]
                for part in list_of(query.name, self._wall_ms())
            )
            if len(self._lists) > _LISTS_MAX:
                self._lists.popitem(last=False)
        return found

    def _page(self, query: ValuesQuery, values: Sequence[ListedValue], *, has_more: bool) -> ValuesPage:
        room = self.table.room
        return ValuesPage(
            reply_to=query.reply_to,
            number=query.number,
            cell_id=query.cell_id,
            keeper_id=self._cell.me.keeper_id,
            after=query.after,
            has_more=has_more,
            values_left=min(room.values, _NUMBER_MAX),
            kib_left=min(room.bytes >> 10, _NUMBER_MAX),
            values=tuple(values),
        )

    def _held_of(self, ranges: tuple[Range, ...]) -> Iterator[Range]:
        for each in ranges:
            held = self._held.get(each.ledger)
            if held is not None:
                for first, end in held.within(each.first, each.last + 1):
                    yield Range(each.ledger, first, end - first)
