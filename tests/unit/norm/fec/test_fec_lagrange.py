"""Tests of the closed formulas for the code's matrices, against the products that the formulas replace."""

import numpy as np
import pytest

from fjm2.norm.core.fec.lagrange import Points, Recovery, parity_coefficients, points_of


def log_of_differences(points: Points, symbol: int, others: list[int]) -> int:
    """Return the logarithm of the product of a symbol's differences from others, computed factor by factor."""
    differences = [int(points.x[symbol]) ^ int(points.x[other]) for other in others if other != symbol]
    return int(points.field.log[differences].sum()) % points.field.order if differences else 0


@pytest.mark.parametrize(
    ("bits", "k", "symbols"),
    [
        (8, 1, 1),
        (8, 1, 9),
        (8, 2, 2),
        (8, 3, 12),
        (8, 64, 96),
        (8, 200, 255),
        (8, 255, 255),
        (16, 1, 4),
        (16, 300, 420),
    ],
)
def test_running_sums_give_the_product_of_all_differences(bits: int, k: int, symbols: int) -> None:
    points = points_of(bits, k, symbols)
    expected = [log_of_differences(points, symbol, list(range(k))) for symbol in range(symbols)]
    assert points.log_w.tolist() == expected


def test_points_are_zero_and_the_powers_from_the_zeroth_on() -> None:
    assert points_of(8, 6, 10).x.tolist() == [0, 1, 2, 4, 8, 16, 32, 64, 128, 29]
    assert points_of(16, 2, 19).x.tolist() == [0, *(1 << i for i in range(16)), 0x100B, 0x2016]


def test_parity_rows_are_libnorms() -> None:
    rows = parity_coefficients(points_of(8, 6, 10), np.arange(6, 10), np.arange(6))[0]
    assert [row.tobytes().hex() for row in rows] == ["0626c5e53f3e", "8217addde602", "8e4c807aa39a", "f5d15f39c083"]


def test_recovery_of_a_symbol_by_itself_is_that_symbol() -> None:
    # One of three source symbols is lost, and the first parity symbol is known. Both matrices must agree on it.
    points = points_of(8, 3, 5)
    recovery = Recovery.of(points, np.array([[0, 3, 2]]), np.array([[1]]), np.array([[3]]))
    forward = parity_coefficients(points, np.array([3]), np.arange(3))[0, 0]
    back = recovery.coefficients(slice(0, 1), slice(0, 3))[0, 0]
    log, order = points.field.log, points.field.order
    # p = a s0 + b s1 + c s2, so s1 = (a/b) s0 + (1/b) p + (c/b) s2
    expected = (log[[forward[0], 1, forward[2]]] - log[forward[1]]) % order
    assert (log[back] % order).tolist() == expected.tolist()
