from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.base.ranges import RangeSet
from fjm2.norm.core.ranges import OBJECT_ID, SEQUENCE, Serial

SMALL = Serial(4)
"""Serial numbers of 4 bits: so few that tests can try all pairs."""
PAIRS = [(first, second) for first in range(16) for second in range(16)]

LIMIT = 40
bounds = st.tuples(st.integers(0, LIMIT), st.integers(0, LIMIT))
"""Start and end of a range. The range is empty if the start is not before the end."""
range_lists = st.lists(bounds, max_size=12)


def is_before_by_rule(first: int, second: int, bits: int) -> bool:
    """Return True if `first` comes before `second`, by the rule itself.

    With a = `first` and b = `second`, the rule is: (a-b) mod 2^n > 2^(n-1), or both are equal and a > b as numbers.
    """
    gap = (first - second) % 2**bits
    return gap > 2 ** (bits - 1) or (gap == 2 ** (bits - 1) and first > second)


def steps_by_walking(start: int, end: int, bits: int) -> int:
    """Return the number of steps forward from one serial number to another, by counting."""
    steps = 0
    while start != end:
        start = (start + 1) % 2**bits
        steps += 1
    return steps


@pytest.mark.parametrize(("serial", "bits"), [(SEQUENCE, 16), (OBJECT_ID, 16)])
def test_counters_of_the_wire_have_their_width(serial: Serial, bits: int) -> None:
    assert (serial.bits, serial.mask, serial.half) == (bits, 2**bits - 1, 2 ** (bits - 1))


@pytest.mark.parametrize("bits", [16, 24, 32])
@given(data=st.data())
def test_order_is_the_rule_of_the_wire(bits: int, data: st.DataObject) -> None:
    numbers = st.integers(0, 2**bits - 1)
    first = data.draw(numbers)
    half_way = first + 2 ** (bits - 1)
    near_half_way = st.sampled_from([half_way - 1, half_way, half_way + 1]).map(lambda number: number % 2**bits)
    second = data.draw(numbers | near_half_way)
    assert Serial(bits).is_before(first, second) == is_before_by_rule(first, second, bits)


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_order_of_all_pairs_is_the_rule_of_the_wire(first: int, second: int) -> None:
    assert SMALL.is_before(first, second) == is_before_by_rule(first, second, 4)


@pytest.mark.parametrize(("start", "end"), PAIRS)
def test_distance_is_the_shorter_way_round(start: int, end: int) -> None:
    ahead = steps_by_walking(start, end, 4)
    back = steps_by_walking(end, start, 4)
    distance = SMALL.distance(start, end)
    if ahead == back and ahead:  # they are opposite: the smaller number is the later one
        assert distance == (8 if end < start else -8)
    else:
        assert distance == (ahead if ahead < back else -back)


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_of_two_numbers_exactly_one_is_first(first: int, second: int) -> None:
    assert SMALL.is_before(first, second) + SMALL.is_before(second, first) == (first != second)
    assert SMALL.distance(first, second) == -SMALL.distance(second, first)


@given(st.integers(0, 0xFFFF), st.integers(-0x7FFF, 0x7FFF))
def test_adding_is_consistent_with_distance(number: int, step: int) -> None:
    assert 0 <= OBJECT_ID.add(number, step) <= 0xFFFF
    assert OBJECT_ID.distance(number, OBJECT_ID.add(number, step)) == step


@given(st.integers(0, 2**60), st.integers(-0x7FFF, 0x7FFF))
def test_unwrapping_finds_the_nearest_count(near: int, step: int) -> None:
    assert OBJECT_ID.unwrap((near + step) & 0xFFFF, near) == near + step


def test_numbers_wrap_both_ways() -> None:
    assert SEQUENCE.add(0xFFFF, 1) == 0
    assert SEQUENCE.add(0, -1) == 0xFFFF
    assert OBJECT_ID.distance(64521, 5) == 1020
    assert OBJECT_ID.is_before(64521, 5)


def members(ranges: RangeSet) -> set[int]:
    """Return all numbers of a set, after checking that its ranges are in order and do not touch."""
    pairs = list(ranges)
    assert all(start < end for start, end in pairs)
    assert all(before[1] < after[0] for before, after in pairwise(pairs))
    return {number for start, end in pairs for number in range(start, end)}


def model_of(ranges: list[tuple[int, int]]) -> set[int]:
    return {number for start, end in ranges for number in range(start, end)}


def as_ranges(numbers: set[int]) -> list[tuple[int, int]]:
    """Return the ranges that a set of numbers consists of."""
    starts = sorted(number for number in numbers if number - 1 not in numbers)
    ends = sorted(number + 1 for number in numbers if number + 1 not in numbers)
    return list(zip(starts, ends, strict=True))


@given(st.lists(st.tuples(st.sampled_from([RangeSet.add, RangeSet.remove]), bounds), max_size=30))
def test_a_range_set_is_a_set(steps: list[tuple[Callable[[RangeSet, int, int], None], tuple[int, int]]]) -> None:
    ranges = RangeSet()
    model: set[int] = set()
    for change, (start, end) in steps:
        change(ranges, start, end)
        if change is RangeSet.add:
            model |= set(range(start, end))
        else:
            model -= set(range(start, end))
        assert members(ranges) == model
        assert list(ranges) == as_ranges(model)
        assert len(ranges) == len(model)
        assert bool(ranges) == bool(model)
        assert ranges.range_count == len(as_ranges(model))


@given(range_lists, range_lists)
def test_sets_unite(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    ranges = RangeSet(first)
    ranges.update(RangeSet(second))
    assert members(ranges) == model_of(first) | model_of(second)


@given(range_lists)
def test_membership_is_that_of_the_set(pairs: list[tuple[int, int]]) -> None:
    ranges, model = RangeSet(pairs), model_of(pairs)
    assert {number for number in range(-1, LIMIT + 2) if number in ranges} == model


@given(range_lists, bounds)
def test_within_and_gaps_part_a_stretch_in_two(pairs: list[tuple[int, int]], bounds: tuple[int, int]) -> None:
    ranges, model, stretch = RangeSet(pairs), model_of(pairs), set(range(*bounds))
    assert list(ranges.within(*bounds)) == as_ranges(model & stretch)
    assert list(ranges.gaps(*bounds)) == as_ranges(stretch - model)


@given(range_lists, bounds)
def test_a_stretch_is_covered_if_none_of_it_is_missing(pairs: list[tuple[int, int]], bounds: tuple[int, int]) -> None:
    assert RangeSet(pairs).covers(*bounds) == (set(range(*bounds)) <= model_of(pairs))


@given(range_lists, st.integers(0, LIMIT))
def test_the_end_before_a_number_has_nothing_of_the_set_behind_it(pairs: list[tuple[int, int]], number: int) -> None:
    ends = [end for _, end in as_ranges(model_of(pairs)) if end <= number]
    assert RangeSet(pairs).end_before(number) == max(ends, default=0)


@given(range_lists, st.integers(0, LIMIT))
def test_the_end_of_a_number_is_the_next_one_that_is_missing(pairs: list[tuple[int, int]], number: int) -> None:
    model = model_of(pairs)
    assert RangeSet(pairs).end_of(number) == next(end for end in range(number, LIMIT + 2) if end not in model)


@given(range_lists.filter(model_of))
def test_first_and_last_are_the_least_and_the_greatest(pairs: list[tuple[int, int]]) -> None:
    ranges, model = RangeSet(pairs), model_of(pairs)
    assert (ranges.first, ranges.last) == (min(model), max(model))
    assert ranges.first_range == as_ranges(model)[0]


@pytest.mark.parametrize("name", ["first", "last", "first_range"])
def test_an_empty_set_has_no_first_and_no_last(name: str) -> None:
    with pytest.raises(IndexError):
        getattr(RangeSet([(3, 3), (5, 4)]), name)


@given(range_lists)
def test_a_copy_is_independent(pairs: list[tuple[int, int]]) -> None:
    ranges, model = RangeSet(pairs), model_of(pairs)
    twin = ranges.copy()
    assert twin == ranges
    twin.add(LIMIT + 5, LIMIT + 6)
    assert twin != ranges
    ranges.clear()
    assert members(twin) == model | {LIMIT + 5}
    assert not ranges


def test_a_set_shows_its_ranges() -> None:
    assert repr(RangeSet([(5, 7), (1, 2), (2, 3)])) == "RangeSet([(1, 3), (5, 7)])"
