import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fjm2.norm.core.quantize import (
    RATE_TINY_Q,
    RTT_MAX_S,
    RTT_MIN_S,
    group_size_of,
    loss_of,
    quantize_group_size,
    quantize_loss,
    quantize_rate,
    quantize_rtt,
    rate_of,
    rtt_of,
)

LINEAR_BELOW_S = 33e-6
rtts = st.floats(RTT_MIN_S, RTT_MAX_S) | st.floats(RTT_MIN_S, 100e-6)
rates = st.floats(1.0, 9.99e15) | st.floats(0.0, 15.99).map(lambda exponent: 10.0**exponent)


@pytest.mark.parametrize(
    ("rtt_s", "code", "back_s"),
    [
        (1e-6, 0, 1e-6),
        (5e-6, 4, 5e-6),
        (3.3e-5, 32, 3.5496e-5),
        (1e-3, 76, 1.04737e-3),
        (0.01, 106, 0.0105273),
        (0.03, 120, 0.0309043),
        (0.1, 136, 0.105812),
        (0.25, 148, 0.266331),
        (0.5, 157, 0.532216),
        (1, 166, 1.06354),
        (10, 196, 10.6898),
        (1000, 255, 1000),
    ],
)
def test_rtts_of_the_reference(rtt_s: float, code: int, back_s: float) -> None:
    assert quantize_rtt(rtt_s) == code
    assert rtt_of(code) == pytest.approx(back_s, rel=1e-5)


@pytest.mark.parametrize(("rtt_s", "code"), [(-1.0, 0), (0.0, 0), (1e-9, 0), (1000.1, 255), (math.inf, 255)])
def test_rtts_out_of_range_are_clamped(rtt_s: float, code: int) -> None:
    assert quantize_rtt(rtt_s) == code


def test_rtt_codes_survive_a_round_trip() -> None:
    assert [quantize_rtt(rtt_of(code)) for code in range(256)] == list(range(256))


def test_rtts_grow_with_their_code() -> None:
    values = [rtt_of(code) for code in range(256)]
    assert values == sorted(set(values))
    assert (values[0], values[-1]) == (RTT_MIN_S, RTT_MAX_S)


@given(st.lists(rtts, min_size=2, max_size=2).map(sorted))
def test_rtt_codes_grow_with_the_rtt(pair: list[float]) -> None:
    assert quantize_rtt(pair[0]) <= quantize_rtt(pair[1])


@given(rtts)
@example(LINEAR_BELOW_S)
def test_rtts_are_rounded_up_by_less_than_a_code(rtt_s: float) -> None:
    code = quantize_rtt(rtt_s)
    if rtt_s >= LINEAR_BELOW_S:
        assert rtt_of(code - 1) < rtt_s <= rtt_of(code) * (1 + 1e-9)
    else:  # small values are rounded down to whole microseconds
        assert (code + 1) * 1e-6 * (1 - 1e-9) <= rtt_s < (code + 2) * 1e-6 * (1 + 1e-9)


@pytest.mark.parametrize(
    ("size", "code", "back"),
    [
        (1, 0, 10),
        (9, 0, 10),
        (10, 0, 10),
        (11, 8, 50),
        (50, 8, 50),
        (51, 1, 100),
        (500, 9, 500),
        (501, 2, 1000),
        (1000, 2, 1000),
        (1001, 10, 5000),
        (10**6, 5, 10**6),
        (5 * 10**8, 15, 5 * 10**8),
        (5 * 10**8 + 1, 15, 5 * 10**8),
        (10**12, 15, 5 * 10**8),
    ],
)
def test_group_sizes_of_the_reference(size: int, code: int, back: int) -> None:
    assert quantize_group_size(size) == code
    assert group_size_of(code) == back


def test_group_size_codes_survive_a_round_trip() -> None:
    assert [quantize_group_size(group_size_of(code)) for code in range(16)] == list(range(16))


@given(st.integers(0, 5 * 10**8) | st.integers(0, 2000))
def test_group_sizes_are_rounded_up_to_the_next_one(size: int) -> None:
    assert group_size_of(quantize_group_size(size)) == min(
        representable for representable in map(group_size_of, range(16)) if representable >= size
    )


@pytest.mark.parametrize(
    ("rate", "code", "back"),
    [
        (0, 0x0001, 0),
        (1, 0x19A0, 1.00098),
        (8000, 0xCCD3, 8000.49),
        (125000, 0x2005, 125000),
        (250000, 0x4005, 250000),
        (1e6, 0x19A6, 1000976.6),
        (12.5e6, 0x2007, 12.5e6),
    ],
)
def test_rates_of_the_reference(rate: float, code: int, back: float) -> None:
    assert quantize_rate(rate) == code
    assert rate_of(code) == pytest.approx(back, rel=1e-5)


@pytest.mark.parametrize("exponent", range(1, 16))
def test_just_below_a_power_of_ten_the_next_exponent_is_taken(exponent: int) -> None:
    assert quantize_rate(0.9999 * 10.0**exponent) == 410 << 4 | exponent
    assert quantize_rate(math.nextafter(10.0**exponent, 0)) == 410 << 4 | exponent
    assert quantize_rate(0.9998 * 10.0**exponent) == 4095 << 4 | exponent - 1


@pytest.mark.parametrize("rate", [-1.0, 0.0, 0.5, 0.999])
def test_rates_below_a_byte_a_second_are_tiny(rate: float) -> None:
    assert quantize_rate(rate) == RATE_TINY_Q
    assert rate_of(RATE_TINY_Q) == 0


@pytest.mark.parametrize("rate", [1e16, 9.9999e15, 1e20])
def test_rates_beyond_the_last_exponent_are_the_largest(rate: float) -> None:
    assert quantize_rate(rate) == 0xFFFF


def test_rate_codes_survive_a_round_trip() -> None:
    codes = [mantissa << 4 | exponent for mantissa in range(410, 4096) for exponent in range(16)]
    assert [quantize_rate(rate_of(code)) for code in codes] == codes


@given(rates)
@example(999_900.0)
def test_rates_are_rounded_by_less_than_a_part_in_eight_hundred(rate: float) -> None:
    assert rate_of(quantize_rate(rate)) == pytest.approx(rate, rel=1 / 800)


@given(st.lists(rates, min_size=2, max_size=2).map(sorted))
def test_rounded_rates_grow_with_the_rate(pair: list[float]) -> None:
    assert rate_of(quantize_rate(pair[0])) <= rate_of(quantize_rate(pair[1]))


@pytest.mark.parametrize(
    ("fraction", "code"),
    [(0.0, 0), (1.0, 0xFFFFFFFF), (0.5, 0x80000000), (-0.1, 0), (1.1, 0xFFFFFFFF), (0.05, 0x0CCCCCCD)],
)
def test_losses_are_fractions_of_32_bits(fraction: float, code: int) -> None:
    assert quantize_loss(fraction) == code


@given(st.integers(0, 0xFFFFFFFF))
def test_loss_codes_survive_a_round_trip(code: int) -> None:
    assert quantize_loss(loss_of(code)) == code


@given(st.floats(0, 1))
def test_losses_are_kept_to_32_bits(fraction: float) -> None:
    assert loss_of(quantize_loss(fraction)) == pytest.approx(fraction, abs=2**-32)
