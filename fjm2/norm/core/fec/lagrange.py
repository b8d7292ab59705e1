"""Matrices of the Reed-Solomon code in closed form: values of Lagrange's basis polynomials.

A block is a polynomial of degree < K whose values at x_0 to x_(K-1) are the source symbols. Parity symbol j is the
polynomial's value at x_(K+j). As in libnorm, x_0 = 0 and x_i = a^(i-1), rather than the a^i of RFC 5510. If any K
symbols are known, the value at another point x is

    sum over known i of   symbol_i * W(x) / ((x - x_i) * W'(x_i))   with W(x) = product over known i of (x - x_i)

so that each element of a matrix costs one addition of logarithms, and no elimination is needed.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .field import Field, Words, field_of

Indices = NDArray[np.intp]
Coefficients = Words

_PANEL_LOGS = 1 << 18
"""Number of logarithms looked up at once: 2 MiB of them, which stay in the processor's cache."""


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Points of a code, one for each symbol of a block: the symbol is the value of the block's polynomial there."""

    field: Field
    x: Indices
    """Point of each symbol, source symbols first."""
    log_w: Indices
    """For each symbol, the logarithm of the product of its point's differences to those of all other source symbols."""


@lru_cache(maxsize=16)  # up to 1 MiB each, commonly 2 KiB
def points_of(bits: int, source_count: int, symbol_count: int) -> Points:
    """Return the points of a code with `source_count` source symbols, and `symbol_count` symbols altogether."""
    field = field_of(bits)
    x = np.zeros(symbol_count, np.intp)
    x[1:] = field.exp[: symbol_count - 1]
    log_w = _log_products(field, source_count, symbol_count)
    x.flags.writeable = log_w.flags.writeable = False
    return Points(field, x, log_w)


def _log_products(field: Field, source_count: int, symbol_count: int) -> Indices:
    """Return `Points.log_w` by running sums: the last factor of a^j * (a^(t-j) - 1) depends only on t - j."""
    powers_count = source_count - 1
    apart = np.arange(1 - powers_count, symbol_count - 1)
    of_gap = np.concatenate([[0], np.cumsum(field.log[field.exp[apart % field.order] ^ 1])])
    t = np.arange(symbol_count - 1)
    of_shifts = powers_count * (powers_count - 1) // 2
    log_w = np.full(symbol_count, of_shifts, np.intp)
    # The difference to x_0 adds t. For a source, its own a^j is not a factor, which subtracts t again.
    log_w[1:] += of_gap[t + powers_count] - of_gap[t] + np.where(t < powers_count, 0, t)
    return log_w % field.order


def parity_coefficients(points: Points, parity: Indices, source: Indices) -> Coefficients:
    """Return the factors `[1, parity, source]` by which parity symbols are sums of source symbols.

    `parity` and `source` are symbol numbers.
    """
    log = points.field.log
    exponents = points.log_w[parity, None] - log[points.x[parity, None] ^ points.x[source]] - points.log_w[source]
    return points.field.power(exponents[None])


@dataclass(frozen=True, slots=True, eq=False)
class Recovery:
    """Matrices that restore absent source symbols, for several blocks with the same number of absent symbols."""

    points: Points
    known: Indices
    """Symbol numbers of the known symbols, `[blocks, k]`."""
    absent: Indices
    """Symbol numbers of the source symbols to restore, `[blocks, absent]`."""
    log_known: Indices
    """log W'(x) of each known symbol."""
    log_absent: Indices
    """log W(x) of each absent symbol."""

    @classmethod
    def of(cls, points: Points, known: Indices, absent: Indices, parity: Indices) -> "Recovery":
        """Return the matrices for blocks in which `parity` symbols take the place of `absent` symbols."""

        symbols = np.concatenate([known, absent], axis=1)
        # Known are the parity symbols and all source symbols but the absent. Symbols beyond a short block are zero.
        log_w = _log_differences(points, symbols, parity)
        log_w -= _log_differences(points, symbols, absent)
        log_w += points.log_w[symbols]
        log_w %= points.field.order
        k = known.shape[1]
        return cls(points, known, absent, log_w[:, :k], log_w[:, k:])

    def coefficients(self, absent: slice, known: slice) -> Coefficients:
        """Return a part of the matrix: factors `[blocks, absent, known]` by which absent symbols are sums of known."""
        field, x = self.points.field, self.points.x
        exponents = field.log[x[self.absent[:, absent, None]] ^ x[self.known[:, None, known]]]
        np.subtract(self.log_absent[:, absent, None], exponents, out=exponents)
        exponents -= self.log_known[:, None, known]
        return field.power(exponents)


def _log_differences(points: Points, symbols: Indices, others: Indices) -> Indices:
    """Return, for each of `symbols`, the logarithm of the product of its differences to all `others` of its block."""
    x, log = points.x, points.field.log
    total = np.zeros(symbols.shape, np.intp)
    step = max(1, _PANEL_LOGS // symbols.size)
    for first in range(0, others.shape[1], step):
        differences = x[others[:, first : first + step, None]] ^ x[symbols[:, None, :]]
        total += log[differences].sum(axis=1)
    return total
