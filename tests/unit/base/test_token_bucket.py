"""Tests of token buckets, in virtual time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.base.token_bucket import UNLIMITED, TokenBucket

steps = st.lists(st.tuples(st.floats(0, 10), st.floats(0, 500)), max_size=40)
"""Lists of steps. Each step is a number of seconds to wait, and the amount to spend afterwards."""


def test_credit_grows_with_time_up_to_the_burst() -> None:
    bucket = TokenBucket(100.0)
    assert bucket.refill(5.0, 30.0) == 0, "time counts from the first refill"
    assert bucket.refill(5.1, 30.0) == pytest.approx(10)
    assert bucket.refill(9.0, 30.0) == 30


def test_a_bucket_may_begin_full() -> None:
    bucket = TokenBucket(1.0, credit=4.0)
    assert bucket.refill(1.0, 4.0) == 4


def test_a_smaller_burst_reduces_the_credit() -> None:
    bucket = TokenBucket(100.0, credit=30.0)
    assert bucket.refill(0.0, 20.0) == 20


def test_a_debt_is_paid_off_by_waiting() -> None:
    bucket = TokenBucket(100.0)
    bucket.refill(0.0, 30.0)
    bucket.spend(50)
    assert bucket.credit == -50
    assert bucket.ready_at(0, 0.0) == pytest.approx(0.5)
    assert bucket.ready_at(10, 0.0) == pytest.approx(0.6)
    assert bucket.refill(0.5, 30.0) == pytest.approx(0)


def test_available_credit_is_ready_now() -> None:
    bucket = TokenBucket(100.0, credit=30.0)
    bucket.refill(7.0, 30.0)
    assert bucket.ready_at(30, 7.0) == 7.0


def test_time_that_goes_backwards_adds_nothing() -> None:
    bucket = TokenBucket(100.0, credit=10.0)
    bucket.refill(5.0, 30.0)
    assert bucket.refill(4.0, 30.0) == 10


def test_an_unlimited_bucket_never_runs_out() -> None:
    bucket = TokenBucket(UNLIMITED)
    bucket.spend(1e12)
    assert bucket.refill(0.0, 1.0) == UNLIMITED
    assert bucket.ready_at(1e12, 3.0) == 3.0


def test_a_bucket_that_was_unlimited_keeps_its_credit() -> None:
    bucket = TokenBucket(UNLIMITED)
    bucket.spend(1e12)
    bucket.per_s = 10.0
    assert bucket.refill(100.0, 5.0) == 0
    assert bucket.refill(100.1, 5.0) == pytest.approx(1)


@given(steps=steps, per_s=st.floats(1, 1000), burst=st.floats(1, 1000))
def test_no_more_is_spent_than_the_rate_and_one_burst_allow(
    steps: list[tuple[float, float]], per_s: float, burst: float
) -> None:
    bucket, now, spent = TokenBucket(per_s, credit=burst), 0.0, 0.0
    for wait_s, amount in steps:
        now += wait_s
        if bucket.refill(now, burst) >= amount:
            bucket.spend(amount)
            spent += amount
        assert bucket.credit <= burst
    assert spent <= burst + now * per_s + 1e-3


@given(per_s=st.floats(1, 1e6), debt=st.floats(0, 1e6), amount=st.floats(0, 100))
def test_ready_at_is_when_a_refill_gives_the_amount(per_s: float, debt: float, amount: float) -> None:
    bucket = TokenBucket(per_s)
    bucket.refill(0.0, 100.0)
    bucket.spend(debt)
    at = bucket.ready_at(amount, 0.0)
    assert bucket.refill(at, 100.0) == pytest.approx(amount, abs=1e-3)
