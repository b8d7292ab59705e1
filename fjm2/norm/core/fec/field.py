"""The fields GF(2^8) and GF(2^16) of NORM's Reed-Solomon codes, as tables of logarithms.

Products are computed by adding logarithms. The logarithm of 0 is defined as 0, so that a factor of 0, the difference
of a point to itself, drops out of a product, as the Lagrange formula requires.
"""

from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
import reedsolo
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.uint8] | NDArray[np.uint16]

# x^8+x^4+x^3+x^2+1 and x^16+x^12+x^3+x+1 (RFC 5510, Finite Field Construction)
POLYNOMIALS = {8: 0x11D, 16: 0x1100B}
GENERATOR = 2
"""Generator of both fields: each element but 0 is a power of it."""


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """Finite field. `field_of` makes one object for each size, which all users share."""

    bits: int
    exp: Words
    """Three periods of powers of the generator: exponents from -2 * order to order - 1 can be used as indexes."""
    log: NDArray[np.intp]
    """Logarithm of each element; 0 for the element 0."""

    def power(self, exponents: NDArray[np.intp]) -> Words:
        """Return the powers of the generator with given exponents, each from -2 * order to order - 1."""
        words: Words = self.exp[exponents]
        return words

    @property
    def order(self) -> int:
        """Number of elements that are powers of the generator: all but 0."""
        return (1 << self.bits) - 1

    @property
    def reduction(self) -> int:
        """Value that a carry out of the highest bit adds to a word."""
        return POLYNOMIALS[self.bits] & self.order

    @property
    def octets(self) -> int:
        """Length of a word in bytes."""
        return self.bits // 8

    @property
    def signed(self) -> np.dtype[np.signedinteger]:
        """Dtype of words as signed numbers, of which a right shift by `bits - 1` copies the highest bit to all bits."""
        return np.dtype(f"<i{self.octets}")


@cache
def field_of(bits: int) -> Field:
    """Return the field with 2^bits elements; bits is 8 or 16."""
    powers = _reedsolo_powers() if bits == 8 else _powers(bits)
    log = np.zeros(len(powers) + 1, np.intp)
    log[powers] = np.arange(len(powers))
    exp = np.tile(powers, 3).astype(f"<u{bits // 8}")
    log.flags.writeable = exp.flags.writeable = False
    return Field(bits, exp, log)


def _reedsolo_powers() -> NDArray[np.int64]:
    # reedsolo keeps its tables in globals. Only its defaults are set here, so other users are not disturbed.
    _, exp, order = reedsolo.init_tables(POLYNOMIALS[8], GENERATOR, 8)
    return np.array(exp[:order], np.int64)


def _powers(bits: int) -> NDArray[np.int64]:
    """Return all powers of the generator. Each step doubles the number of known powers: a^(n+i) = a^n * a^i."""
    powers = np.ones(1, np.int64)
    order = (1 << bits) - 1
    while len(powers) < order:
        step = _times(int(powers[-1]), GENERATOR, bits)
        powers = np.concatenate([powers, _times_all(powers, step, bits)])
    return powers[:order]


def _times(left: int, right: int, bits: int) -> int:
    return int(_times_all(np.array([left], np.int64), right, bits)[0])


def _times_all(words: NDArray[np.int64], factor: int, bits: int) -> NDArray[np.int64]:
    """Multiply words by a factor, with shifts and reductions, as on paper."""
    product = np.zeros_like(words)
    while factor:
        if factor & 1:
            product ^= words
        words = words << 1
        words ^= (words >> bits) * POLYNOMIALS[bits]
        factor >>= 1
    return product
