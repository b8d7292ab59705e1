"""A leap of a sender needs several datagrams, also if the sender is heard at several places in turn."""

import pytest

from fjm2.norm.core.receive.leap import LeapGuard

NEAR = 16
ROUND_S = 0.04
"""Time between two rounds of flushes."""


def admitted(guard: LeapGuard, count: int, now: float) -> bool:
    return guard.admits(count, count + 1, guard.front, now)


def test_one_datagram_proves_nothing_and_several_do() -> None:
    guard = LeapGuard(NEAR)
    assert [admitted(guard, 1000, now * ROUND_S) for now in range(4)] == [False, False, True, True]
    assert guard.front == 1001
    assert not guard.take_false()


def test_a_sender_that_is_still_where_it_was_contradicts_a_leap() -> None:
    guard = LeapGuard(NEAR)
    assert not admitted(guard, 1000, 0.0)
    assert admitted(guard, 1, 0.01)
    assert guard.take_false()
    assert [admitted(guard, 1000, 1.0 + now * ROUND_S) for now in range(2)] == [False, False]


@pytest.mark.parametrize("places", [2, 5, 8, 16])
def test_a_sender_at_several_places_in_turn_proves_them_all(places: int) -> None:
    """As after an outage in which it sent streams far apart: each round flushes all of them."""
    guard = LeapGuard(NEAR)
    counts = [100 + 50 * number for number in range(places)]
    rounds = ([admitted(guard, count, number * ROUND_S) for count in counts] for number in range(20))
    assert any(all(heard) for heard in rounds)
    assert guard.front == counts[-1] + 1
    assert not guard.take_false()


def test_a_leap_that_is_not_proven_in_time_is_reported_and_may_still_be_true() -> None:
    guard = LeapGuard(NEAR)
    assert not admitted(guard, 1000, 0.0)
    assert not admitted(guard, 1000, 2.0)
    assert guard.take_false()
    assert admitted(guard, 1000, 4.0)
    assert not guard.take_false()


def test_datagrams_long_apart_prove_nothing() -> None:
    guard = LeapGuard(NEAR)
    assert not any(admitted(guard, 1000, 11.0 * now) for now in range(10))
