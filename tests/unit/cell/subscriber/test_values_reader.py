"""Tests of a consumer's questions for last values, against keepers that have different ones."""

import random
from collections.abc import Iterable

import pytest

from fjm2.base.ledger import Ledger
from fjm2.cell.subscriber.last_values import LISTED_MAX, PORTION_VALUES_MAX, ValuesReader
from fjm2.cell.wire.commands import Heartbeat, HeartbeatFlag, HeartbeatMember, MemberFlag
from fjm2.cell.wire.last_values import PAGE_VALUES_MAX, Asked, ListedValue, Order, ValuesPage, ValuesQuery

NODE, CELL = 77, 5
LEDGER = Ledger(1, 0, 0)


def value(name: int, stamp: int, *, is_removal: bool = False, size: int = 100) -> ListedValue:
    return ListedValue(name.to_bytes(16), Order(stamp, LEDGER, stamp), size, is_removal)


class Keeper:
    """A keeper that lists and sends what it is given."""

    def __init__(self, number: int, values: Iterable[ListedValue]) -> None:
        self.keeper_id, self.node = bytes((number,)) * 16, 100 + number
        self.values = {each.identity: each for each in sorted(values, key=lambda each: each.order)}
        self.is_mute = False

    def answer(self, query: ValuesQuery, reader: ValuesReader, got: list[ListedValue], now: float) -> None:
        if self.is_mute or query.keeper_node != self.node:
            return
        if query.asked is not Asked.MESSAGES:
            reader.receive_page(self.page(query), now)
            return
        for each in self.values.values():
            place = each.order.ledger, each.order.sequence
            is_asked = any(asked.ledger == place[0] and asked.first <= place[1] <= asked.last for asked in query.ranges)
            if is_asked and (found := reader.find(place)) is not None:
                reader.take(place, now)
                got.append(found)

    def page(self, query: ValuesQuery) -> ValuesPage:
        behind = sorted(each for each in self.values.values() if each.identity > query.after)
        return ValuesPage(
            reply_to=query.reply_to,
            number=query.number,
            cell_id=query.cell_id,
            keeper_id=self.keeper_id,
            after=query.after,
            has_more=len(behind) > PAGE_VALUES_MAX,
            values_left=1,
            kib_left=1,
            values=tuple(behind[:PAGE_VALUES_MAX]),
        )


def heartbeat(keepers: list[Keeper], silent: Iterable[Keeper] = (), cell_id: int = CELL) -> Heartbeat:
    members = tuple(
        HeartbeatMember(each.keeper_id, each.node, 0 if each in silent else MemberFlag.LIVE, 1, 1) for each in keepers
    )
    return Heartbeat(
        flags=HeartbeatFlag.SERVING, epoch=1, cell_id=cell_id, configuration=1, number=1, committed=1, table_version=0,
        members=members,
    )  # fmt: skip


class World:
    """A consumer and its keepers, in a time of their own."""

    def __init__(self, *keepers: Keeper, seed: int = 1, loss: float = 0.0) -> None:
        self.keepers = list(keepers)
        self.got: list[ListedValue] = []
        self.known: dict[bytes, Order] = {}
        self.random, self.loss, self.now = random.Random(seed), loss, 0.0
        self.asked: list[ValuesQuery] = []
        numbers = iter(range(1, 1000))
        self.reader = ValuesReader(NODE, lambda: next(numbers), "prices", is_pattern=False, is_wanted=self.is_wanted)
        self.reader.room = 1000
        self.reader.note_cell(heartbeat(self.keepers))

    def is_wanted(self, value: ListedValue) -> bool:
        known = self.known.get(value.identity)
        return known is None or known < value.order

    def run(self, until: float = 100.0) -> list[ListedValue]:
        """Ask until all is there. Return what came."""
        while not self.reader.is_done and self.now < until:
            for query in list(self.reader.poll_queries(self.now)):
                self.asked.append(query)
                for keeper in self.keepers:
                    if self.random.random() >= self.loss:
                        keeper.answer(query, self.reader, self.got, self.now)
                for each in self.got:
                    self.known[each.identity] = max(each.order, self.known.get(each.identity, each.order))
            self.now = max(self.now + 0.001, min(self.reader.poll_timeout(), self.now + 0.1))
        return self.got


@pytest.mark.parametrize("seed", range(60))
def test_a_value_that_a_quorum_has_comes_whichever_keepers_answer(seed: int) -> None:
    """Each value is on W of K keepers, some of which have an older one, or none."""
    rng = random.Random(seed)
    count = rng.choice((1, 2, 3, 5))
    holders = count // 2 + 1
    kept: list[list[ListedValue]] = [[] for _ in range(count)]
    newest: dict[bytes, ListedValue] = {}
    for stamp in range(1, rng.randrange(2, 120)):
        one = value(rng.randrange(1, 40), stamp, is_removal=rng.random() < 0.1)
        newest[one.identity] = one
        for keeper in rng.sample(range(count), rng.randrange(holders, count + 1)):
            kept[keeper].append(one)
    keepers = [Keeper(number, values) for number, values in enumerate(kept, 1)]
    for mute in rng.sample(keepers, count - holders if count > 2 else 0):
        mute.is_mute = True
    world = World(*keepers, seed=seed, loss=rng.choice((0.0, 0.3)))
    got = world.run()
    assert world.reader.is_done
    assert got == sorted(
        (each for each in newest.values() if not each.is_removal), key=lambda each: each.order
    ) or sorted(got) == sorted(each for each in newest.values() if not each.is_removal)
    assert len(got) == len({each.identity for each in got}), "each once"


def test_one_keeper_of_three_is_not_enough() -> None:
    """It may be the one that has not got the newest value."""
    one, two, three = (Keeper(number, [value(1, number)]) for number in (1, 2, 3))
    two.is_mute = three.is_mute = True
    world = World(one, two, three)
    assert world.run(until=20.0) == []
    assert world.reader.is_listing
    assert world.reader.progressed_at < 1.0
    three.is_mute = False
    assert world.run(until=40.0) == [value(1, 3)]


def test_values_come_oldest_first_and_in_portions() -> None:
    keeper = Keeper(1, [value(name, 2000 - name) for name in range(1, 1000)])
    world = World(keeper)
    got = world.run()
    assert [each.order.stamp for each in got] == sorted(each.order.stamp for each in keeper.values.values())
    asked = [query for query in world.asked if query.asked is Asked.MESSAGES]
    assert len(asked) == -(-999 // PORTION_VALUES_MAX), "consecutive messages are one range"


def test_no_more_is_asked_for_than_there_is_room() -> None:
    world = World(Keeper(1, [value(name, name) for name in range(1, 50)]))
    world.reader.room = 7
    list(world.reader.poll_queries(0.0))
    world.reader.receive_page(world.keepers[0].page(next(_list_query(world))), 0.0)
    for query in list(_list_query(world)):
        world.reader.receive_page(world.keepers[0].page(query), 0.0)
    for query in list(_list_query(world)):
        world.reader.receive_page(world.keepers[0].page(query), 0.0)
    (query,) = list(world.reader.poll_queries(0.0))
    assert [(each.first, each.last) for each in query.ranges] == [(1, 7)]


def _list_query(world: World) -> Iterable[ValuesQuery]:
    reader = world.reader
    return iter([query for query in reader.poll_queries(world.now) if query.asked is Asked.TOPIC] or [_first_query()])


def _first_query() -> ValuesQuery:
    return ValuesQuery(asked=Asked.TOPIC, reply_to=NODE, keeper_node=101, number=1, cell_id=CELL)


def test_without_room_nothing_is_asked_for() -> None:
    world = World(Keeper(1, [value(1, 1)]))
    world.reader.room = 0
    assert world.run(until=2.0) == []
    assert world.reader.poll_timeout() == float("inf")
    world.reader.room = 1
    assert world.run() == [value(1, 1)]


def test_a_large_value_is_taken_though_there_is_little_room() -> None:
    world = World(Keeper(1, [value(1, 1, size=1 << 30), value(2, 2)]))
    world.reader.room_bytes = 10
    assert len(world.run()) == 2


def test_a_value_that_is_replaced_meanwhile_is_looked_for_again() -> None:
    keeper = Keeper(1, [value(1, 1), value(2, 2)])
    world = World(keeper)
    for query in list(world.reader.poll_queries(0.0)):
        keeper.answer(query, world.reader, world.got, 0.0)
    keeper.values = {each.identity: each for each in (value(1, 9), value(2, 2))}
    assert sorted(each.order.stamp for each in world.run()) == [2, 9]


def test_a_value_whose_newer_one_was_heard_is_not_waited_for() -> None:
    keeper = Keeper(1, [value(1, 1)])
    world = World(keeper)
    for query in list(world.reader.poll_queries(0.0)):
        keeper.answer(query, world.reader, world.got, 0.0)
    keeper.values.clear()
    world.known[value(1, 1).identity] = value(1, 2).order
    assert world.run() == []
    assert world.reader.is_done


def test_a_keeper_that_was_started_again_is_asked_anew() -> None:
    one = Keeper(1, [value(name, name) for name in range(1, 50)])
    world = World(one)
    for query in list(world.reader.poll_queries(0.0)):
        one.answer(query, world.reader, world.got, 0.0)
    one.node += 50
    world.reader.note_cell(heartbeat(world.keepers))
    assert len(world.run()) == 49


def test_lists_of_another_cell_do_not_count() -> None:
    one = Keeper(1, [value(1, 1)])
    world = World(one)
    (query,) = list(world.reader.poll_queries(0.0))
    world.reader.note_cell(heartbeat([one], cell_id=6))
    one.answer(query, world.reader, world.got, 0.0)
    assert world.reader.is_listing
    assert world.run() == [value(1, 1)]


def test_silent_and_unknown_keepers_are_not_asked() -> None:
    keepers = [Keeper(number, []) for number in (1, 2, 3)]
    world = World(*keepers)
    world.reader.note_cell(heartbeat(keepers, silent=keepers[:1]))
    assert [query.keeper_node for query in world.reader.poll_queries(0.0)] == [102, 103]


def test_stale_and_forged_pages_are_ignored() -> None:
    one = Keeper(1, [value(1, 1)])
    world = World(one)
    (query,) = list(world.reader.poll_queries(0.0))
    page = one.page(query)
    for other in (
        {"number": 9},
        {"reply_to": 9},
        {"cell_id": 9},
        {"keeper_id": b"9" * 16},
        {"after": b"9" * 16},
    ):
        forged = ValuesPage(
            **{name: getattr(page, name) for name in ValuesPage.__dataclass_fields__ if name != "kind"} | other  # type: ignore[arg-type]
        )
        world.reader.receive_page(forged, 0.0)
        assert world.reader.is_listing
    world.reader.receive_page(page, 0.0)
    assert not world.reader.is_listing


@pytest.mark.slow
def test_a_list_without_end_is_cut() -> None:
    one = Keeper(1, [])
    world = World(one)
    reader, number = world.reader, 0
    while reader.is_listing and number < 2 * LISTED_MAX:
        query = next(iter(reader.poll_queries(0.0)))
        listed = tuple(value(number + at, number + at) for at in range(1, PAGE_VALUES_MAX + 1))
        number += PAGE_VALUES_MAX
        reader.receive_page(
            ValuesPage(
                reply_to=NODE,
                number=query.number,
                cell_id=CELL,
                keeper_id=one.keeper_id,
                after=query.after,
                has_more=True,
                values_left=0,
                kib_left=0,
                values=listed,
            ),
            0.0,
        )
    assert number == LISTED_MAX


def test_a_second_look_brings_only_what_is_new() -> None:
    one = Keeper(1, [value(1, 1), value(2, 2)])
    world = World(one)
    world.run()
    one.values[value(1, 5).identity] = value(1, 5)
    world.got.clear()
    world.reader.look_again(world.now)
    assert world.run() == [value(1, 5)]
