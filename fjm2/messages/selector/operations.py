"""Comparison and arithmetic of selectors, with the semantics of Java's long and double.

None stands for NULL, and for an unknown result of a comparison. A bool is not a number here, unlike in Python.
"""

import math
from collections.abc import Callable
from typing import Any

NUMBER = (int, float)
"""Types of numbers, for `isinstance`. It also accepts bool, which callers have to exclude."""
LONG_MAX = (1 << 63) - 1
_LONG_MIN = -LONG_MAX - 1

_NO_NUMBER = object()
"""Result of arithmetic on a string or boolean. It equals nothing, not even itself."""


def wrap(value: int) -> int:
    """Return the low 64 bits of an integer, as a signed long."""
    return value if _LONG_MIN <= value <= LONG_MAX else (value - _LONG_MIN) % (1 << 64) + _LONG_MIN


def order(test: Callable[[Any, Any], bool], left: object, right: object) -> bool | None:
    """Return True if `test` holds for two numbers, False if it does not or one is no number, None if one is NULL."""
    if left is None or right is None:
        return None
    numbers = _promote(left, right)
    return numbers is not None and test(*numbers)


def equality(test: Callable[[Any, Any], bool], left: object, right: object) -> bool | None:
    """Return True if `test` holds for two values, None if one is NULL. Values of unlike types give False: they are
    neither equal nor unequal."""
    if left is None or right is None:
        return None
    numbers = _promote(left, right)
    if numbers is not None:
        return test(*numbers)
    is_like = any(isinstance(left, kind) and isinstance(right, kind) for kind in (str, bool))
    return is_like and test(left, right)


def arithmetic(operation: Callable[[Any, Any], Any], left: object, right: object) -> object:
    """Return a sum, difference, product or quotient; None if an operand is NULL."""
    if left is None or right is None:
        return None
    numbers = _promote(left, right)
    if numbers is None:
        return _NO_NUMBER
    result = operation(*numbers)
    return wrap(result) if isinstance(result, int) else result


def divide(left: Any, right: Any) -> int | float | None:
    """Return a quotient, for `arithmetic`. A quotient of integers is truncated towards zero; None if the divisor is
    zero."""
    if isinstance(left, float):
        if right != 0.0:
            return left / float(right)
        if left == 0.0 or math.isnan(left):
            return math.nan
        return math.inf * math.copysign(1.0, left) * math.copysign(1.0, right)
    if right == 0:
        return None
    quotient = abs(left) // abs(right)
    return int(-quotient if (left < 0) != (right < 0) else quotient)


def plus(value: object) -> object:
    """Return a number unchanged; None for NULL."""
    return value if value is None or _is_number(value) else _NO_NUMBER


def negate(value: Any) -> object:
    """Return a number with the opposite sign."""
    if value is None or not _is_number(value):
        return plus(value)
    return -value if isinstance(value, float) else wrap(-value)


def _is_number(value: object) -> bool:
    return isinstance(value, NUMBER) and not isinstance(value, bool)


def _promote(left: Any, right: Any) -> tuple[Any, Any] | None:
    """Return two numbers converted to one type, or None if one is no number. Python compares an integer with a float
    exactly, Java as doubles."""
    if type(left) is type(right) and type(left) in NUMBER:
        return left, right
    if not (_is_number(left) and _is_number(right)):
        return None
    if isinstance(left, float) or isinstance(right, float):
        return float(left), float(right)
    return left, right
