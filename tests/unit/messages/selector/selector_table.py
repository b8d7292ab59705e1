"""Tables of cases for tests of selectors: a selector, a message, and the expected truth of the selector."""

from typing import TypeAlias

import pytest

from fjm2.jms.selector import Selector

LONG_MAX, LONG_MIN = 2**63 - 1, -(2**63)
Values: TypeAlias = dict[str, object]
Case: TypeAlias = tuple[str, Values, bool | None]
"""A selector, the values of a message, and the truth of the selector for this message. None means unknown."""


def table(*cases: Case) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("text", "values", "expected"), cases, ids=[_shown(text) for text, _, _ in cases])


def _shown(text: str) -> str:
    return ascii(text if len(text) < 60 else f"{text[:40]}...")


def truth(text: str, values: Values) -> bool | None:
    is_true = Selector(text).matches(values)
    is_false = Selector(f"NOT ({text})").matches(values)
    assert isinstance(is_true, bool)
    assert isinstance(is_false, bool)
    assert not (is_true and is_false)
    return True if is_true else False if is_false else None
