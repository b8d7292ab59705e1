"""The fields GF(2^8) and GF(2^16) of NORM's Reed-Solomon codes, as tables of logarithms.

Wherever factors are multiplied here, their logarithms are added. The logarithm of 0 is set to 0, which makes a
factor of a point with itself drop out of a product: just what the Lagrange formula wants.
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


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """One field: made by `field_of`, shared by all that use it."""

    bits: int
    exp: Words
    """Powers of the generator, three periods long: exponents from -2 * order to order - 1 index it as they are."""
    log: NDArray[np.intp]
    """Logarithms of all elements; 0 for the element 0."""

    def power(self, exponents: NDArray[np.intp]) -> Words:
        """The generator to these powers, from -2 * order to order - 1."""
        words: Words = self.exp[exponents]
        return words

    @property
    def order(self) -> int:
        """How many elements are powers of the generator: all but 0."""
        return (1 << self.bits) - 1

    @property
    def reduction(self) -> int:
        """What a carry out of the highest bit adds to the word."""
        return POLYNOMIALS[self.bits] & self.order

    @property
    def octets(self) -> int:
        """Bytes of a word."""
        return self.bits // 8

    @property
    def signed(self) -> np.dtype[np.signedinteger]:
        """The words of a symbol as signed numbers: shifting one right by `bits - 1` spreads its highest bit."""
        return np.dtype(f"<i{self.octets}")


@cache
def field_of(bits: int) -> Field:
    """The field of 2^bits elements, bits being 8 or 16."""
    powers = _reedsolo_powers() if bits == 8 else _powers(bits)
    log = np.zeros(len(powers) + 1, np.intp)
    log[powers] = np.arange(len(powers))
    exp = np.tile(powers, 3).astype(f"<u{bits // 8}")
    log.flags.writeable = exp.flags.writeable = False
    return Field(bits, exp, log)


def _reedsolo_powers() -> NDArray[np.int64]:
    # The tables of reedsolo are globals of its module: only ever its defaults are set here, so nobody is disturbed.
    _, exp, order = reedsolo.init_tables(POLYNOMIALS[8], GENERATOR, 8)
    return np.array(exp[:order], np.int64)


def _powers(bits: int) -> NDArray[np.int64]:
    """All powers of the generator, by doubling the stretch that is known: a^(n+i) = a^n * a^i."""
    powers = np.ones(1, np.int64)
    order = (1 << bits) - 1
    while len(powers) < order:
        step = _times(int(powers[-1]), GENERATOR, bits)
        powers = np.concatenate([powers, _times_all(powers, step, bits)])
    return powers[:order]


def _times(left: int, right: int, bits: int) -> int:
    return int(_times_all(np.array([left], np.int64), right, bits)[0])


def _times_all(words: NDArray[np.int64], factor: int, bits: int) -> NDArray[np.int64]:
    """Multiply by shifts and reductions, as on paper."""
    product = np.zeros_like(words)
    while factor:
        if factor & 1:
            product ^= words
        words = words << 1
        words ^= (words >> bits) * POLYNOMIALS[bits]
        factor >>= 1
    return product
