"""Tests of rates that follow from samples of a count."""

import pytest
from fjm2bench.durable.steady import rate_of, worst_second

S = 10**9


def test_a_rate_is_the_growth_between_two_times() -> None:
    samples = [(0, 0), (2 * S, 200), (4 * S, 200), (6 * S, 1200)]
    assert rate_of(samples, 0, 2 * S) == 100
    assert rate_of(samples, 1 * S, 3 * S) == 50
    assert rate_of(samples, 4 * S, 6 * S) == 500
    assert rate_of(samples, 5 * S, 9 * S) == 125  # nothing is known to have come later


def test_the_worst_second_is_found_wherever_it_begins() -> None:
    samples = [(number * S // 10, 10 * min(number, 33) + 10 * max(number - 48, 0)) for number in range(100)]
    assert worst_second(samples, 0, 9 * S) == 0
    assert worst_second(samples, 5 * S, 9 * S) == pytest.approx(100)


def test_less_than_a_second_counts_as_one() -> None:
    assert worst_second([(0, 0), (S, 40)], 0, S // 2) == 40
