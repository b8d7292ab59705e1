"""Parses numeric literals of selectors: Java's literals, read without loss (Jakarta Messaging 3.1, 3.8.1.1)."""

import math
from ctypes import c_float
from decimal import Decimal

_LONG_DIGITS_MAX = 19  # digits of 2**63
_FLOAT_END = 2.0**128
"""Smallest magnitude beyond the floats of 32 bits. It would be the next float if the exponent had one more value."""


def read_exact(text: str) -> int | None:
    """Return the value of a decimal, hexadecimal or octal literal. Return None if it is malformed, or has more digits
    than a long."""
    digits = text.rstrip("lL")
    if digits[:2] in ("0x", "0X"):
        return int(digits, 16)
    if digits[0] == "0":
        return int(digits, 8) if digits.strip("01234567") == "" else None
    # Python refuses to read thousands of decimal digits. No long has that many.
    return int(digits) if len(digits) <= _LONG_DIGITS_MAX else None


def read_approximate(text: str) -> float | None:
    """Return the value of a floating literal. Return None if it is too large, or is rounded to zero without being
    zero."""
    digits = text.rstrip("fFdD")
    value = _read_float(digits) if text[-1] in "fF" else float(digits)
    mantissa = digits.lower().partition("e")[0]
    if math.isinf(value) or (value == 0.0 and mantissa.strip("0.") != ""):
        return None
    return value


def _read_float(digits: str) -> float:
    """Return the float of 32 bits nearest to a literal.

    Rounding to a double first could move the value across the middle of two floats.
    """
    value = float(digits)
    if math.isinf(value):
        return value
    below = c_float(math.nextafter(value, -math.inf)).value
    above = c_float(math.nextafter(value, math.inf)).value
    if below == above:
        return above
    middle, exact = Decimal((below + min(above, _FLOAT_END)) / 2), Decimal(digits)
    if exact == middle:
        return c_float(value).value
    return above if exact > middle else below
