"""Tests of the checker of received messages.

The checker finds exactly what is wrong with the messages, however their stream was cut into pieces.
"""

import itertools
from random import Random

import numpy as np
import pytest
from fjm2bench.workload.checker import Checker, Tally
from fjm2bench.workload.messages import (
    END_NUMBER,
    NUMBER_MAX,
    PATTERNS,
    Expected,
    Maker,
    Series,
    number_of,
    patterns,
    property_values,
    word,
)
from hypothesis import given
from hypothesis import strategies as st

SIZES = [8, 9, 16, 64, 100, 1000, 70_000]


def make(size: int, count: int, first: int = 0) -> list[bytes]:
    return [bytes(message) for batch in Maker(size, first).messages(count) for message in batch]


def check(size: int, messages: list[bytes], total: int | None = None, pieces: int = 0, first: int | None = 0) -> Tally:
    """Check messages that arrive one directly after another, in pieces of `pieces` bytes. Return the result."""
    checker = Checker(size)
    if first is not None:
        checker.begin(first)
    run = b"".join(messages)
    for start in range(0, len(run), pieces or len(run) or 1):
        checker.take(run[start : start + (pieces or len(run))])
    return checker.result(total)


@pytest.mark.parametrize("size", SIZES)
def test_messages_are_all_different_and_of_the_size(size: int) -> None:
    messages = make(size, 50)
    assert len(set(messages)) == 50
    assert {len(message) for message in messages} == {size}
    assert [int.from_bytes(message[:8]) for message in messages] == [word(number) for number in range(50)]


def test_message_is_as_documented() -> None:
    """The C program for libnorm computes the same message."""
    mask = (1 << 64) - 1

    def splitmix(state: int) -> int:
        mixed = state * 0x9E3779B97F4A7C15 & mask
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & mask
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & mask
        return mixed ^ (mixed >> 31)

    (message,) = make(29, 1, first=7)
    check = (7 * 0x9E3779B97F4A7C15 & mask) >> 40
    assert message[:8] == (7 << 24 | check).to_bytes(8)
    rest = b"".join(splitmix((7 % PATTERNS << 32) + place).to_bytes(8, "little") for place in (1, 2, 3))
    assert message[8:] == rest[:21] == patterns(29)[7 % PATTERNS].tobytes()


def test_a_batch_is_its_messages_end_to_end() -> None:
    assert bytes(Maker(64).batch(10_000)) == b"".join(make(64, 10_000))


def test_a_batch_is_not_written_to_again() -> None:
    maker = Maker(2000)
    before = list(itertools.chain.from_iterable(maker.messages(20)))
    maker.batch(500)
    assert [bytes(message) for message in before] == make(2000, 20)


def test_sizes_too_small_are_refused() -> None:
    with pytest.raises(ValueError, match="size=7: expected 8 or more"):
        Expected(7)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("pieces", [0, 1, 7, 1400, 63_000, 1_000_000])
def test_all_is_well(size: int, pieces: int) -> None:
    count = 12 if size > 1000 else 1500
    if pieces and size * count / pieces > 5000:
        count = max(2, 5000 * pieces // size)
    assert check(size, make(size, count), count, pieces) == Tally(messages=count)


def test_all_is_well_over_many_numbers() -> None:
    first = (1 << 32) - 100_000
    checker = Checker(16)
    checker.begin(first)
    maker = Maker(16, first)
    for _ in range(300):
        checker.take(maker.batch(1000))
    assert checker.result(first + 300_000) == Tally(messages=300_000)
    assert checker.is_complete(first + 300_000)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("pieces", [0, 1400])
def test_each_fault_is_counted_as_what_it_is(size: int, pieces: int) -> None:
    good = make(size, 40)
    lost = good[:10] + good[13:]
    assert check(size, lost, 40, pieces) == Tally(37, lost=3)
    assert check(size, good[2:], 40, pieces) == Tally(38, lost=2)
    assert check(size, good[:-4], 40, pieces) == Tally(36, lost=4)
    assert check(size, good[:-4], None, pieces) == Tally(36)
    twice = good[:10] + good[5:]
    assert check(size, twice, 40, pieces) == Tally(40, duplicated=5)
    swapped = [*good[:10], good[11], good[10], *good[12:]]
    assert check(size, swapped, 40, pieces) == Tally(40, out_of_order=1)
    late = good[:10] + good[20:30] + good[10:20] + good[30:]
    assert check(size, late, 40, pieces) == Tally(40, out_of_order=10)
    for place in (0, 7, size - 1):
        bad = bytearray(good[15])
        bad[place] ^= 1
        damaged = [*good[:15], bytes(bad), *good[16:]]
        assert check(size, damaged, 40, pieces) == Tally(39, lost=1, corrupt=1)
    everything = [*good[:5], *good[6:20], b"\xff" * size, good[19], good[5], *good[20:]]
    assert check(size, everything, 40, pieces) == Tally(40, duplicated=1, out_of_order=1, corrupt=1)


def test_content_of_another_message_is_corrupt() -> None:
    good = make(64, 10)
    mixed = good[3][:32] + good[4][32:]
    assert check(64, [*good[:3], mixed, *good[4:]], 10) == Tally(9, lost=1, corrupt=1)


def test_after_a_fault_it_goes_on_as_before() -> None:
    good = make(1000, 300)
    assert check(1000, good[:5] + good[6:], 300, 1300) == Tally(299, lost=1)


def test_bytes_that_slip_make_all_that_follows_corrupt() -> None:
    good = make(100, 10)
    run = [*good[:5], good[5][:-1], *good[6:]]
    assert check(100, run, 10) == Tally(5, lost=5, corrupt=4)


def test_skipping_finds_the_next_message() -> None:
    run = b"".join(make(100, 20))
    checker = Checker(100)
    checker.begin(0)
    checker.take(run[:250])
    checker.skip_to(777)
    checker.take(run[777:780])
    checker.take(run[780:])
    assert checker.result(20) == Tally(14, lost=6)
    assert not checker.is_complete(20)


def test_a_late_joiner_begins_with_what_comes_first() -> None:
    run = b"".join(make(100, 20))
    checker = Checker(100)
    checker.skip_to(470)
    for start in range(470, len(run), 33):
        checker.take(run[start : start + 33])
    assert checker.result(20) == Tally(15)
    assert checker.is_complete(20)


def test_without_a_first_one_what_comes_earlier_is_late_but_not_lost() -> None:
    good = make(100, 20)
    run = [good[7], good[8], good[3], good[3], good[4], good[8], *good[9:]]
    assert check(100, run, 20, first=None) == Tally(15, out_of_order=2, duplicated=2)


def test_it_may_be_learned_late_what_should_have_come_first() -> None:
    good = make(100, 20)
    checker = Checker(100)
    checker.take(b"".join([*good[7:10], good[3]]))
    checker.begin(2)
    assert checker.result(10) == Tally(4, lost=4, out_of_order=1)
    checker.begin(8)
    checker.take(b"".join([good[4], good[3], good[5]]))
    assert checker.result(10) == Tally(6, lost=2, out_of_order=3, duplicated=1)


def test_rubbish_at_first_does_not_tell_where_it_begins() -> None:
    good = make(100, 20)
    assert check(100, [bytes(100), *good[7:]], 20, first=None) == Tally(13, corrupt=1)


def test_nothing_came() -> None:
    assert check(100, [], 5) == Tally(lost=5)
    assert check(100, [], None) == Tally()


def test_whole_messages_of_a_wrong_size_are_corrupt() -> None:
    checker = Checker(64)
    checker.begin(0)
    good = make(64, 6)
    checker.take_many(good[:2])
    checker.take_many([good[2], good[3][:-1], good[4], b""])
    checker.take_many(good[5:])
    assert checker.result(6) == Tally(5, lost=1, corrupt=2)


def test_the_end_is_no_message() -> None:
    assert END_NUMBER == NUMBER_MAX
    end = word(END_NUMBER).to_bytes(8) + bytes(56)
    assert check(64, [*make(64, 3), end], 3) == Tally(3, corrupt=1)


@given(st.sampled_from([8, 16, 50]), st.integers(0, 1 << 30), st.data())
def test_any_order_in_any_pieces_against_a_model(size: int, seed: int, data: st.DataObject) -> None:
    total = data.draw(st.integers(1, 60))
    numbers = data.draw(st.lists(st.integers(0, total - 1), max_size=100))
    content = make(size, total)
    random = Random(seed)
    run = b"".join(content[number] for number in numbers)
    checker = Checker(size)
    checker.begin(0)
    while run:
        length = random.randrange(1, 400)
        checker.take(run[:length])
        run = run[length:]
    seen: set[int] = set()
    expected = Tally(lost=total - len(set(numbers)), messages=len(set(numbers)))
    for number in numbers:
        if number in seen:
            expected.duplicated += 1
        elif number < max(seen, default=0):
            expected.out_of_order += 1
        seen.add(number)
    assert checker.result(total) == expected


# Series: the messages that a selector lets pass.


@pytest.mark.parametrize("digits", [(3,), (0, 9), (1, 2, 5), tuple(range(10))])
@pytest.mark.parametrize("size", [8, 64, 70_000])
def test_a_part_of_the_messages_is_checked_like_all_of_them(digits: tuple[int, ...], size: int) -> None:
    all_of_them = make(size, 60)
    wanted = [message for message in all_of_them if number_of(message) % 10 in digits]
    series = Series(digits)
    assert series.count(60) == len(wanted) == 6 * len(digits)

    def found(messages: list[bytes]) -> Tally:
        checker = Checker(size, series)
        checker.begin(0)
        for message in messages:
            checker.take(message)
        return checker.result(series.count(60))

    assert found(wanted) == Tally(len(wanted))
    assert found(wanted[:2] + wanted[3:]) == Tally(len(wanted) - 1, lost=1)
    assert found([*wanted[:3], *wanted[2:]]) == Tally(len(wanted), duplicated=1)
    assert found([wanted[1], wanted[0], *wanted[2:]]) == Tally(len(wanted), out_of_order=1)


def test_what_a_selector_should_have_kept_back_is_corrupt() -> None:
    checker = Checker(64, Series([3]))
    checker.begin(0)
    good = make(64, 14)
    for number in (3, 4, 13):
        checker.take(good[number])
    assert checker.result(2) == Tally(2, corrupt=1)


@given(st.sets(st.integers(0, 9), min_size=1), st.integers(0, 1000))
def test_places_in_a_series_against_counting(digits: set[int], total: int) -> None:
    series = Series(sorted(digits))
    numbers = [number for number in range(total) if number % 10 in digits]
    assert series.count(total) == len(numbers)
    assert series.places(np.array(numbers, np.int64)).tolist() == list(range(len(numbers)))
    words = [int(value) >> 24 for value in series.words(0, len(numbers))]
    assert words == numbers


def test_a_series_has_messages() -> None:
    with pytest.raises(ValueError, match="at least one digit"):
        Series([])


def test_properties_tell_the_last_digit_of_the_number() -> None:
    assert property_values(0) == {}
    values = property_values(3)
    assert list(values) == ["p0", "p1", "p2"]
    assert [(values["p0"][digit], values["p1"][digit]) for digit in (0, 7)] == [(0, "zero"), (7, "seven")]
    assert values["p2"] == tuple(range(10))
