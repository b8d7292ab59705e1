"""Tests of the newest value of each topic and key."""

import random
from collections.abc import Callable, Iterator

import pytest

from fjm2.base.ledger import Ledger
from fjm2.cell.wire.last_values import NO_IDENTITY, ListedValue, Order
from fjm2.keeper.last_values.value_table import (
    OVERSHOOT,
    REMEMBERED_MS,
    STEP_VALUES,
    Room,
    Value,
    ValueList,
    ValueTable,
    page_behind,
)

LEDGERS = [Ledger(producer, epoch, 0) for producer in (1, 2) for epoch in (0, 1)]
NOW_MS = 1_000_000


def value(
    name: int, stamp: int, sequence: int = 1, ledger: Ledger = LEDGERS[0], *, size: int = 10, expires_ms: int = 0,
    is_removal: bool = False, topic: str = "prices",
) -> Value:  # fmt: skip
    listed = ListedValue(name.to_bytes(16), Order(stamp, ledger, sequence), size, is_removal)
    return Value(listed, topic, 7, expires_ms)


def table(bytes_max: int = 1 << 20, values_max: int = 1000) -> ValueTable:
    return ValueTable(bytes_max, values_max)


def all_of(list_of: Callable[[str, int], Iterator[list[ListedValue]]], name: str, now_ms: int) -> list[ListedValue]:
    """Return a list as it is when it is complete."""
    found = ValueList(list_of(name, now_ms))
    while not found.is_complete:
        found.advance()
    return found.values


def listed(of: ValueTable, topic: str = "prices", now_ms: int = NOW_MS) -> list[Order]:
    return [each.order for each in all_of(of.of_topic, topic, now_ms) if not each.is_removal]


@pytest.mark.parametrize("seed", range(50))
def test_the_newest_value_of_each_name_is_left_in_any_order(seed: int) -> None:
    """Two keepers that get the same messages in any order, some twice, have the same values in the end."""
    rng = random.Random(seed)
    values = [
        value(rng.randrange(1, 6), rng.randrange(1, 8), sequence, rng.choice(LEDGERS), is_removal=rng.random() < 0.2)
        for sequence in range(1, 30)
    ]
    expected: dict[bytes, Value] = {}
    for each in values:
        known = expected.get(each.listed.identity)
        if known is None or known.order < each.order:
            expected[each.listed.identity] = each
    for _ in range(2):
        rng.shuffle(values)
        mine = table()
        dropped = [gone for each in [*values, *values[:10]] if (gone := mine.add(each)) is not None]
        assert all_of(mine.of_topic, "prices", 0) == sorted(
            (each.listed for each in expected.values()), key=lambda one: one.identity
        )
        kept = {each.order for each in expected.values()}
        assert {each.order for each in dropped} == {each.order for each in values} - kept
        assert mine.room.bytes == (1 << 20) - 10 * len(kept)


def test_equal_stamps_are_ordered_by_ledger_and_sequence() -> None:
    mine = table()
    for each in (value(1, 5, 3), value(1, 5, 2, LEDGERS[1]), value(1, 5, 9)):
        mine.add(each)
    assert listed(mine) == [Order(5, LEDGERS[1], 2)]


def test_a_removal_keeps_older_values_away_for_a_while() -> None:
    mine = table()
    assert mine.add(value(1, 1000, 1)) is None
    removal = value(1, 2000, 2, is_removal=True)
    assert mine.add(removal) == value(1, 1000, 1)
    assert listed(mine) == []
    assert mine.add(value(1, 1500, 3)) == value(1, 1500, 3)
    assert list(mine.forget_gone(2 + REMEMBERED_MS - 1)) == []
    assert list(mine.forget_gone(2 + REMEMBERED_MS)) == [removal]
    assert (len(mine), all_of(mine.of_topic, "prices", 0)) == (0, [])


def test_what_has_expired_counts_as_removed() -> None:
    mine = table()
    mine.add(value(1, 1000, expires_ms=NOW_MS))
    assert len(listed(mine, now_ms=NOW_MS - 1)) == 1
    assert listed(mine) == []
    assert [each.is_removal for each in all_of(mine.of_topic, "prices", NOW_MS)] == [True]
    assert list(mine.forget_gone(NOW_MS + REMEMBERED_MS)) != []


def test_a_newer_value_is_not_forgotten_with_the_one_that_it_replaced() -> None:
    mine = table()
    mine.add(value(1, 1000, 1, is_removal=True))
    mine.add(value(1, 2000, 2))
    assert list(mine.forget_gone(1 << 60)) == []
    assert len(listed(mine)) == 1


def test_times_do_not_pile_up() -> None:
    mine = table()
    for sequence in range(1, 10_000):
        mine.add(value(1, sequence, sequence, is_removal=True))
    assert len(mine._gone) < 2000


def test_room_is_told_and_overshot_by_a_part() -> None:
    mine = table(bytes_max=100, values_max=3)
    assert mine.room == Room(3, 100)
    for name in range(1, 4):
        assert mine.add(value(name, 1)) is None
    assert mine.room == Room(0, 70)
    for name in range(4, 3 * OVERSHOOT + 1):
        assert mine.add(value(name, 1)) is None
    late = value(99, 1)
    assert mine.add(late) == late
    assert mine.refused == 1
    assert mine.add(value(1, 2)) == value(1, 1), "what is there may be replaced"
    assert mine.add(value(50, 1, size=10_000)) == value(50, 1, size=10_000)


def test_patterns_find_the_values_of_topics() -> None:
    mine = table()
    for name, topic in enumerate(("prices.eur", "prices.usd.spot", "orders"), 1):
        mine.add(value(name, 1, topic=topic))
    assert [each.identity for each in all_of(mine.of_pattern, "prices.>", 0)] == [(1).to_bytes(16), (2).to_bytes(16)]
    assert [each.identity for each in all_of(mine.of_pattern, "prices.*", 0)] == [(1).to_bytes(16)]
    assert all_of(mine.of_pattern, "prices.x>", 0) == [], "no pattern at all"
    assert all_of(mine.of_topic, "prices.>", 0) == []


def test_pages_go_through_a_list() -> None:
    values = [value(name, 1).listed for name in range(1, 48)]
    found: list[ListedValue] = []
    after, has_more = NO_IDENTITY, True
    while has_more:
        page, has_more = page_behind(values, after, 20)
        assert len(page) <= 20
        found += page
        after = page[-1].identity
    assert found == values
    assert page_behind([], NO_IDENTITY, 20) == ((), False)


@pytest.mark.parametrize("is_pattern", [False, True])
def test_a_long_list_is_made_in_steps_while_values_come_and_go(is_pattern: bool) -> None:
    mine = table(1 << 30, 1 << 30)
    count = 3 * STEP_VALUES
    for name in range(1, count + 1):
        topic = f"prices.{name}" if is_pattern else "prices"
        mine.add(value(name, 1000, name, topic=topic, is_removal=name % 2 == 0))
    found = ValueList(mine.of_pattern("prices.*", 0) if is_pattern else mine.of_topic("prices", 0))
    found.advance()
    assert not found.is_complete
    assert len(found.values) <= 2 * STEP_VALUES
    assert len(list(mine.forget_gone(1 << 60))) == count // 2
    mine.add(value(1, 2000, count + 1, topic="prices.1" if is_pattern else "prices"))
    steps = 1
    while not found.is_complete:
        found.advance()
        steps += 1
    assert steps >= 3
    identities = [each.identity for each in found.values]
    assert identities == sorted(set(identities))
    assert {name.to_bytes(16) for name in range(1, count + 1, 2)} <= set(identities)
