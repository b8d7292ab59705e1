"""Values while a selector is evaluated: comparison, and the arithmetic of Java's long and double.

None is NULL, and as the result of a comparison unknown. A bool is no number here, though Python takes it for one.
"""

import math
from collections.abc import Callable
from typing import Any

NUMBER = (int, float)
"""For isinstance, which finds bool as well."""
LONG_MAX = (1 << 63) - 1
_LONG_MIN = -LONG_MAX - 1

_NO_NUMBER = object()
"""What arithmetic makes of a string or a boolean. It is unlike everything, itself included."""


def wrap(value: int) -> int:
    """The low 64 bits of a whole number."""
    return value if _LONG_MIN <= value <= LONG_MAX else (value - _LONG_MIN) % (1 << 64) + _LONG_MIN


def order(test: Callable[[Any, Any], bool], left: object, right: object) -> bool | None:
    """Whether two numbers are so ordered."""
    if left is None or right is None:
        return None
    numbers = _promote(left, right)
    return numbers is not None and test(*numbers)


def equality(test: Callable[[Any, Any], bool], left: object, right: object) -> bool | None:
    """Whether two values of like types are equal, or are not. Unlike ones are neither."""
    if left is None or right is None:
        return None
    numbers = _promote(left, right)
    if numbers is not None:
        return test(*numbers)
    is_like = any(isinstance(left, kind) and isinstance(right, kind) for kind in (str, bool))
    return is_like and test(left, right)


def arithmetic(operation: Callable[[Any, Any], Any], left: object, right: object) -> object:
    """A sum, difference, product or quotient."""
    if left is None or right is None:
        return None
    numbers = _promote(left, right)
    if numbers is None:
        return _NO_NUMBER
    result = operation(*numbers)
    return wrap(result) if isinstance(result, int) else result


def divide(left: Any, right: Any) -> int | float | None:
    """A quotient, for `arithmetic`. An exact one is cut towards zero; by zero there is none."""
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
    """A number as it is."""
    return value if value is None or _is_number(value) else _NO_NUMBER


def negate(value: Any) -> object:
    """A number with the other sign."""
    if value is None or not _is_number(value):
        return plus(value)
    return -value if isinstance(value, float) else wrap(-value)


def _is_number(value: object) -> bool:
    return isinstance(value, NUMBER) and not isinstance(value, bool)


def _promote(left: Any, right: Any) -> tuple[Any, Any] | None:
    """Two numbers as one type: Python would compare a whole number with a float exactly, Java does not."""
    if type(left) is type(right) and type(left) in NUMBER:
        return left, right
    if not (_is_number(left) and _is_number(right)):
        return None
    if isinstance(left, float) or isinstance(right, float):
        return float(left), float(right)
    return left, right
