"""Tests of a keeper's last values, with a real journal on a simulated disk."""

import asyncio
from collections.abc import Sequence
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from stores import Store

from fjm2.base.ledger import Ledger
from fjm2.bus.ledgers.ledger_tap import NumberedRun
from fjm2.cell.cell import Cell
from fjm2.cell.outgoing import State
from fjm2.cell.service.backlog import Backlog
from fjm2.cell.wire.last_values import Asked, ListedValue, Order, ValuesPage, ValuesQuery
from fjm2.cell.wire.ranges import Range, Spans
from fjm2.jms import Topic
from fjm2.keeper.kept_frames import all_kept
from fjm2.keeper.last_values.last_values import REPLACED_S, LastValues
from fjm2.keeper.last_values.stored_values import stored_values
from fjm2.keeper.last_values.value_table import REMEMBERED_MS, STEP_VALUES, Value
from fjm2.keeper.replay import ReplaySender
from fjm2.keeper.service_driver import ServiceDriver
from fjm2.keeper.storage import member_of
from fjm2.messages.frame import FrameReader, FrameWriter
from fjm2.messages.header import PERSISTENT, Kind
from fjm2.messages.last_values.retained import retained_parts, retained_section
from fjm2.messages.ledgers.ledger_number import with_ledger_number
from fjm2.messages.ledgers.run_columns import columns_of
from fjm2.messages.properties import encode_properties
from fjm2.store.runs import Run

TOPIC = Topic("prices")
LEDGER, OTHER = Ledger(5, 0, 0), Ledger(6, 0, 0)
NODE, CELL = 9, 3


def frame(
    sequence: int, key: int = 0, body: bytes = b"body", stamp: int | None = None, ledger: Ledger = LEDGER
) -> bytes:
    properties = encode_properties({"id": key})
    parts = FrameWriter(1).write_body(int(Kind.BYTES), properties, body, TOPIC, PERSISTENT, 4, 1)
    parts = retained_parts(parts, retained_section("id", stamp or sequence))
    return b"".join(with_ledger_number(parts, ledger.producer_id, ledger.producer_epoch, sequence))


def plain(sequence: int) -> bytes:
    parts = FrameWriter(1).write_body(int(Kind.BYTES), b"", b"plain", TOPIC, PERSISTENT, 4, 1)
    return b"".join(with_ledger_number(parts, LEDGER.producer_id, LEDGER.producer_epoch, sequence))


class Keeper:
    """A keeper's store, and its last values. The cell does not matter, but for what it says of itself."""

    def __init__(self) -> None:
        self.store = Store()
        self.now, self.now_ms = 0.0, 1000
        self.backlog = Backlog()
        self.refused: set[tuple[Ledger, int]] = set()
        self.released: list[tuple[Ledger, Spans]] = []
        self.cell = SimpleNamespace(
            cell_id=CELL,
            state=State.FOLLOWER,
            me=SimpleNamespace(keeper_id=b"k" * 16),
            clients=SimpleNamespace(backlog=self.backlog),
            replica=SimpleNamespace(
                ledgers=SimpleNamespace(is_refused=lambda ledger, sequence: (ledger, sequence) in self.refused)
            ),
        )
        self.values = self._begin()

    def _begin(self) -> LastValues:
        values = LastValues(
            cast(Cell, self.cell), self.store.journal, self._release, lambda: self.now, lambda: self.now_ms
        )
        values.begin(stored_values(all_kept(self.store.journal, self.store.disk), self.store.journal, self.store.disk))
        return values

    def _release(self, ledger: Ledger, ranges: Spans) -> None:
        self.released.append((ledger, ranges))
        self.store.journal.release(ledger, ((first, last + 1) for first, last in ranges))

    def restart(self) -> None:
        self.store.power_cut()
        self.values = self._begin()

    def hear(self, first: int, frames: Sequence[bytes], ledger: Ledger = LEDGER, *, is_stored: bool = True) -> None:
        """Take frames as the intake does."""
        if is_stored:
            assert self.store.journal.append([Run.of(ledger, first, frames)]) is not None
        (columns,) = columns_of(FrameReader().feed(b"".join(frames), (0,)))
        self.values.note(columns, NumberedRun(ledger, first, 1, 0, len(frames)))

    def sync(self) -> None:
        self.store.sync()
        self.values.handle_synced()
        self.values.handle_time()

    def later(self, seconds: float = REPLACED_S) -> None:
        self.now += seconds
        self.values.handle_time()

    def keep(self, *frames: bytes, first: int = 1, ledger: Ledger = LEDGER) -> None:
        self.hear(first, frames, ledger)
        self.sync()

    def page(self, **how: Any) -> ValuesPage:
        query = {
            "asked": Asked.TOPIC,
            "reply_to": 1,
            "keeper_node": NODE,
            "number": 2,
            "cell_id": CELL,
            "name": "prices",
        }
        page, _ = self.values.answer(ValuesQuery(**query | how).encode(), NODE)  # type: ignore[arg-type]
        assert page is not None
        return page

    def listed(self) -> list[int]:
        """Return the sequences of the values that are listed."""
        found: list[ListedValue] = []
        page = self.page()
        found += page.values
        while page.has_more:
            page = self.page(after=page.values[-1].identity)
            found += page.values
        return sorted(each.order.sequence for each in found if not each.is_removal)

    def live(self, ledger: Ledger = LEDGER) -> list[tuple[int, int]]:
        return list(self.store.journal.live(ledger, 1, 1 << 40))


def test_the_newest_of_each_key_is_kept_and_others_go_after_a_while() -> None:
    one = Keeper()
    one.keep(*(frame(sequence, sequence % 3) for sequence in range(1, 10)))
    assert one.listed() == [7, 8, 9]
    assert one.live() == [(1, 10)], "a consumer may be about to ask for them"
    one.later()
    assert one.live() == [(7, 10)]


def test_a_value_counts_only_when_it_is_on_disk() -> None:
    """A newer one that is never stored must not take the older one away."""
    one = Keeper()
    one.keep(frame(1))
    one.hear(2, [frame(2)])
    assert one.listed() == [1]
    one.sync()
    assert one.listed() == [2]
    one.hear(3, [frame(3)], is_stored=False)  # the store is full
    one.hear(1, [frame(1, 7, ledger=OTHER)], OTHER)
    one.sync()
    one.later()
    assert one.live() == [(2, 3)]
    assert one.listed() == [1, 2]


def test_a_value_that_waits_for_the_disk_is_not_given_up() -> None:
    """An earlier batch is on disk before it."""
    one = Keeper()
    one.hear(1, [frame(1)])
    one.values.handle_synced()
    one.sync()
    assert one.listed() == [1]


def test_what_comes_twice_changes_nothing() -> None:
    one = Keeper()
    one.keep(frame(1), frame(2))
    one.hear(1, [frame(1), frame(2)], is_stored=False)
    one.hear(3, [frame(3, 9)])
    one.sync()
    one.later()
    one.later()
    assert one.listed() == [2, 3]
    assert one.live() == [(2, 4)]
    one.hear(1, [frame(1)], is_stored=False)
    one.keep(frame(4, 9), first=4)
    one.later()
    assert one.live() == [(2, 3), (4, 5)]


def test_what_is_replaced_takes_little_of_the_store() -> None:
    one = Keeper()
    for sequence in range(1, 20):
        one.keep(frame(sequence, body=bytes(1000)), first=sequence)
    ((first, end),) = one.live()
    assert end == 20
    assert 2 <= end - first <= 6, "a sixteenth of 64 KiB, and the value"


def test_a_restart_finds_the_same_values() -> None:
    one = Keeper()
    one.keep(plain(1), *(frame(sequence, sequence % 3) for sequence in range(2, 10)))
    assert one.listed() == [7, 8, 9]
    one.restart()
    assert one.listed() == [7, 8, 9]
    one.later()
    assert one.live() == [(1, 2), (7, 10)], "the keeper does not give up what is no value"
    one.store.checkpoint()
    one.restart()
    assert one.listed() == [7, 8, 9]


def test_a_removal_survives_a_restart_until_it_is_forgotten() -> None:
    one = Keeper()
    one.keep(frame(1), frame(2, body=b""))
    assert one.listed() == []
    one.restart()
    one.later()
    assert (one.listed(), one.live()) == ([], [(2, 3)])
    one.now_ms = REMEMBERED_MS + 1
    one.values.handle_time()
    one.later()
    assert (one.listed(), one.live()) == ([], [])
    assert LEDGER not in one.values


def test_subscriptions_and_values_do_not_take_messages_from_each_other() -> None:
    one = Keeper()
    one.backlog.add(TOPIC.frame_hash, LEDGER, 1, 3)
    one.keep(frame(1), frame(2))
    one.later()
    assert one.live() == [(1, 3)], "a durable subscription needs the older one"
    assert one.values.without_held(LEDGER, ((1, 2),)) == ((1, 1),), "and the newer one stays without it"
    assert one.values.without_held(OTHER, ((1, 2),)) == ((1, 2),)
    one.backlog.remove(TOPIC.frame_hash, LEDGER, [(1, 3)])
    one.keep(frame(3), first=3)
    one.later()
    assert one.live() == [(1, 2), (3, 4)], "what the subscription released is its own matter"


def test_ledgers_with_values_are_pinned() -> None:
    one = Keeper()
    assert LEDGER not in one.values
    one.hear(1, [frame(1)])
    assert LEDGER in one.values
    one.sync()
    one.keep(frame(1, stamp=99, ledger=OTHER), ledger=OTHER)
    assert all(ledger in one.values for ledger in (LEDGER, OTHER))
    one.later()
    assert [ledger in one.values for ledger in (LEDGER, OTHER)] == [False, True]


def test_messages_outside_a_final_set_are_not_listed() -> None:
    one = Keeper()
    one.keep(frame(1))
    one.refused.add((LEDGER, 1))
    assert one.listed() == []


@pytest.mark.parametrize(
    "state", [State.EMPTY, State.SPARE, State.LEARNER, State.AMNESIAC, State.STRANDED], ids=lambda state: state.name
)
def test_only_members_answer(state: State) -> None:
    one = Keeper()
    one.keep(frame(1))
    one.cell.state = state
    query = ValuesQuery(asked=Asked.TOPIC, reply_to=1, keeper_node=NODE, number=2, cell_id=CELL, name="prices")
    assert one.values.answer(query.encode(), NODE) == (None, ())


def test_queries_for_others_and_broken_ones_have_no_answer() -> None:
    one = Keeper()
    for how in ({"keeper_node": NODE + 1}, {"cell_id": CELL + 1}):
        query = {"asked": Asked.TOPIC, "reply_to": 1, "keeper_node": NODE, "number": 2, "cell_id": CELL} | how
        assert one.values.answer(ValuesQuery(**query).encode(), NODE) == (None, ())  # type: ignore[arg-type]
    assert one.values.answer(b"\x0f broken", NODE) == (None, ())


def test_only_values_are_sent() -> None:
    """Other messages are for subscriptions."""
    one = Keeper()
    one.keep(plain(1), frame(2), plain(3), frame(4, 7))
    query = ValuesQuery(
        asked=Asked.MESSAGES, reply_to=1, keeper_node=NODE, number=2, cell_id=CELL,
        ranges=(Range(LEDGER, 1, 1 << 31), Range(OTHER, 1, 5)),
    )  # fmt: skip
    page, ranges = one.values.answer(query.encode(), NODE)
    assert page is None
    assert ranges == (Range(LEDGER, 2, 1), Range(LEDGER, 4, 1))


def test_a_list_of_many_pages_is_whole_though_values_change() -> None:
    one = Keeper()
    one.keep(*(frame(sequence, sequence) for sequence in range(1, 51)))
    page = one.page()
    one.keep(frame(51, 3), first=51)
    rest = [*page.values]
    while page.has_more:
        page = one.page(after=page.values[-1].identity)
        rest += page.values
    assert sorted(each.order.sequence for each in rest) == list(range(1, 51))
    assert one.page(number=3).values != ()


def test_lists_of_many_who_ask_are_bounded() -> None:
    one = Keeper()
    one.keep(*(frame(sequence, sequence) for sequence in range(1, 51)))
    for number in range(1000):
        assert len(one.page(number=number).values) == 20
    assert len(one.values._lists) <= 16


def test_room_is_told() -> None:
    one = Keeper()
    page = one.page(asked=Asked.ROOM, keeper_node=0, number=0)
    assert (page.values_left, page.kib_left, page.values) == (100_000, 16, ())
    one.keep(frame(1))
    assert one.page(asked=Asked.ROOM).values_left == 99_999


def test_the_cell_does_not_forget_ledgers_with_values() -> None:
    async def look() -> None:
        store = Store()
        cell = Cell(member_of(store.journal), NODE, 1, store.storage, Random(1), 0.0, members_wanted=1)
        replays = cast(ReplaySender, None)  # nothing is asked for
        service = ServiceDriver(cell, store.journal, store.disk, replays, lambda: None, lambda _: None)
        (columns,) = columns_of(FrameReader().feed(frame(1), (0,)))
        service.values.note(columns, NumberedRun(LEDGER, 1, 1, 0, 1))
        cell.clients.backlog.add(TOPIC.frame_hash, OTHER, 1, 2)
        pinned = cell.replica.ledgers.pinned
        assert [ledger in pinned for ledger in (LEDGER, OTHER, Ledger(7, 0, 0))] == [True, True, False]

    asyncio.run(look())


def test_a_long_list_is_told_when_it_is_complete() -> None:
    one = Keeper()
    for name in range(1, 2 * STEP_VALUES):
        listed = ListedValue(name.to_bytes(16), Order(1, LEDGER, name), 1)
        one.values.table.add(Value(listed, "prices", TOPIC.frame_hash, 0))
    query = ValuesQuery(asked=Asked.TOPIC, reply_to=1, keeper_node=NODE, number=2, cell_id=CELL, name="prices")
    assert one.values.answer(query.encode(), NODE) == (None, ())
    steps = 0
    while one.values.advance_lists():
        steps += 1
        assert steps < 10
    assert one.page().values[0].order.sequence == 1
    assert not one.values.advance_lists()
