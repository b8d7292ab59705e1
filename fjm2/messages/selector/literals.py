"""Numbers as selectors write them: Java's literals, read without loss (Jakarta Messaging 3.1, 3.8.1.1)."""

import math
from ctypes import c_float
from decimal import Decimal

_LONG_DIGITS = 19
_FLOAT_END = 2.0**128
"""The least magnitude that 32 bits no longer hold, were there one more exponent."""


def read_exact(text: str) -> int | None:
    """The magnitude of a decimal, hexadecimal or octal literal. None if it is none, or longer than a long's can be."""
    digits = text.rstrip("lL")
    if digits[:2] in ("0x", "0X"):
        return int(digits, 16)
    if digits[0] == "0":
        return int(digits, 8) if digits.strip("01234567") == "" else None
    # Python refuses to read thousands of decimal digits, and none of that many is a long.
    return int(digits) if len(digits) <= _LONG_DIGITS else None


def read_approximate(text: str) -> float | None:
    """The value of a floating literal. None if it is too large, or is not zero and yet too small to be told from it."""
    digits = text.rstrip("fFdD")
    value = _read_float(digits) if text[-1] in "fF" else float(digits)
    mantissa = digits.lower().partition("e")[0]
    if math.isinf(value) or (value == 0.0 and mantissa.strip("0.") != ""):
        return None
    return value


def _read_float(digits: str) -> float:
    """Round to 32 bits, once. To round to a double before would move what lies next to the middle of two floats."""
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
