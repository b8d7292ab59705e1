"""The matrices of the code in closed form: values of Lagrange's basis polynomials.

A block is a polynomial of degree < K with the source symbols as its values at x_0 to x_(K-1); parity symbol j is
its value at x_(K+j). As libnorm has it, x_0 = 0 and x_i = a^(i-1), not the a^i of RFC 5510. Any K symbols known,
a further one at x is

    sum over known i of   symbol_i * W(x) / ((x - x_i) * W'(x_i))   with W(x) = product over known i of (x - x_i)

so a matrix costs one addition of logarithms an element and no elimination.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .field import Field, Words, field_of

Indices = NDArray[np.intp]
Coefficients = Words

# Logarithms looked up at once: 2 MiB of them.
_PANEL = 1 << 18


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Where the symbols of one code lie on its polynomial."""

    field: Field
    x: Indices
    """The point of every symbol, sources first."""
    log_w: Indices
    """For every symbol, the logarithm of the product of its differences to all sources but itself."""


@lru_cache(maxsize=16)  # up to 1 MiB each, commonly 2 KiB
def points_of(bits: int, source_count: int, symbol_count: int) -> Points:
    """The points of a code of so many source symbols, and symbols of both kinds."""
    field = field_of(bits)
    x = np.zeros(symbol_count, np.intp)
    x[1:] = field.exp[: symbol_count - 1]
    log_w = _log_products(field, source_count, symbol_count)
    x.flags.writeable = log_w.flags.writeable = False
    return Points(field, x, log_w)


def _log_products(field: Field, source_count: int, symbol_count: int) -> Indices:
    """`Points.log_w`, by running sums: a^t - a^j is a^j times (a^(t-j) - 1), and the latter depends on t - j alone."""
    powers_count = source_count - 1
    apart = np.arange(1 - powers_count, symbol_count - 1)
    of_gap = np.concatenate([[0], np.cumsum(field.log[field.exp[apart % field.order] ^ 1])])
    t = np.arange(symbol_count - 1)
    of_shifts = powers_count * (powers_count - 1) // 2
    log_w = np.full(symbol_count, of_shifts, np.intp)
    # The difference to x_0 adds t; a source's own a^j was never a factor, which takes it away again.
    log_w[1:] += of_gap[t + powers_count] - of_gap[t] + np.where(t < powers_count, 0, t)
    return log_w % field.order


def parity_coefficients(points: Points, parity: Indices, source: Indices) -> Coefficients:
    """`[1, parity, source]`: what each source symbol adds to each parity symbol, both given as symbol numbers."""
    log = points.field.log
    exponents = points.log_w[parity, None] - log[points.x[parity, None] ^ points.x[source]] - points.log_w[source]
    return points.field.power(exponents[None])


@dataclass(frozen=True, slots=True, eq=False)
class Recovery:
    """How absent source symbols follow from what is known, for blocks that miss equally many."""

    points: Points
    known: Indices
    """`[blocks, k]`: the known symbols, as symbol numbers."""
    absent: Indices
    """`[blocks, absent]`: the source symbols to find."""
    log_known: Indices
    """log W'(x) of every known symbol, over all that is known."""
    log_absent: Indices
    """log W(x) of every absent symbol."""

    @classmethod
    def of(cls, points: Points, known: Indices, absent: Indices, parity: Indices) -> "Recovery":
        """Of blocks where the `parity` symbols stand in for the `absent` ones."""

        symbols = np.concatenate([known, absent], axis=1)
        # Known are all sources of the code (those a short block lacks are zero), less absent, and parity.
        log_w = _log_differences(points, symbols, parity)
        log_w -= _log_differences(points, symbols, absent)
        log_w += points.log_w[symbols]
        log_w %= points.field.order
        k = known.shape[1]
        return cls(points, known, absent, log_w[:, :k], log_w[:, k:])

    def coefficients(self, absent: slice, known: slice) -> Coefficients:
        """`[blocks, absent, known]`: what each known symbol adds to each absent one, in this part of the matrix."""
        field, x = self.points.field, self.points.x
        exponents = field.log[x[self.absent[:, absent, None]] ^ x[self.known[:, None, known]]]
        np.subtract(self.log_absent[:, absent, None], exponents, out=exponents)
        exponents -= self.log_known[:, None, known]
        return field.power(exponents)


def _log_differences(points: Points, symbols: Indices, others: Indices) -> Indices:
    """For each of `symbols`, the logarithm of the product of its differences to all `others` of its block."""
    x, log = points.x, points.field.log
    total = np.zeros(symbols.shape, np.intp)
    step = max(1, _PANEL // symbols.size)
    for first in range(0, others.shape[1], step):
        differences = x[others[:, first : first + step, None]] ^ x[symbols[:, None, :]]
        total += log[differences].sum(axis=1)
    return total
