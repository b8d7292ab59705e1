"""Tests of selectors of any size.

Thousands of operands are evaluated in little time, and Python's stack does not limit their number.
"""

import sys
import time
from collections.abc import Iterator
from types import FrameType

import pytest

from fjm2.jms.selector import Selector
from fjm2.messages.errors import InvalidSelectorError

MANY = 2_500
BUDGET_S = 5.0
"""Processor time allowed for a test.

It is far more than any of these selectors takes, and far less than an evaluation in quadratic time would take.
"""


@pytest.fixture(autouse=True)
def _quick() -> Iterator[None]:
    started = time.thread_time()
    yield
    assert time.thread_time() - started < BUDGET_S


@pytest.mark.parametrize(
    "text",
    [
        "(" * MANY + "a" + ")" * MANY,
        "NOT " * MANY + "a",
        "NOT (" * MANY + "a" + ")" * MANY,
        "(" * MANY + "a" + ")" * MANY + " = TRUE",
        "(" * MANY + "a" + " OR b)" * MANY,
        "b OR (" * MANY + "a" + ")" * MANY,
        "(" * MANY + "a" + " OR b) AND (b OR a)" * MANY,
        "b OR (a AND (" * MANY + "a" + "))" * MANY,
        "NOT (b OR NOT (a AND " * MANY + "a" + "))" * MANY,
        " OR ".join(["a"] * MANY),
        " AND ".join(["a"] * MANY),
        " OR ".join([f"b{index}" for index in range(MANY)] + ["a"]),
        "a OR " + " OR ".join(f"b = {index}" for index in range(MANY)),
        "a AND NOT (" + " OR ".join(f"s = 'x{index}'" for index in range(MANY)) + ")",
        "a AND s NOT IN (" + ", ".join(f"'x{index}'" for index in range(MANY)) + ")",
        "a AND " + " AND ".join(["n BETWEEN 1 AND 3"] * MANY),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else None,
)
def test_s21_deep_and_long_conditions(text: str) -> None:
    assert Selector(text).matches({"a": True, "b": False, "s": "x", "n": 2})
    assert not Selector(text).matches({"a": False, "b": False, "s": "x", "n": 2})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("- " * MANY + "n", 1),
        ("-" * (MANY + 1) + "n", -1),
        ("+" * MANY + "n", 1),
        ("-(" * MANY + "n" + ")" * MANY, 1),
        ("n" + " + n" * (MANY - 1), MANY),
        ("n + (" * (MANY - 1) + "n" + ")" * (MANY - 1), MANY),
        ("(" * MANY + "n" + " - 1)" * MANY, 1 - MANY),
        ("2 * " * 63 + "n", -(2**63)),
        ("-" * MANY + "5", 5),
        ("1" + " + 1" * (MANY - 1), MANY),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else None,
)
def test_s21_deep_and_long_sums(text: str, value: int) -> None:
    assert Selector(f"{text} = {value}").matches({"n": 1})
    assert Selector(f"{text} BETWEEN {value} AND {value}").matches({"n": 1})
    assert not Selector(f"{text} <> {value}").matches({"n": 1})


@pytest.mark.parametrize(
    "text",
    [
        "(" * MANY,
        ")" * MANY,
        "(" * MANY + "a",
        "a" + ")" * MANY,
        "NOT " * MANY,
        "-" * MANY,
        "a " * MANY,
        "'" * (2 * MANY + 1),
        "a = '" + "''" * MANY,
        "a BETWEEN " * MANY,
        "a BETWEEN 1 AND " * MANY + "2",
        "a = " * MANY + "a",
        "a IN (" * MANY,
        "a IN (" + "'x'," * MANY,
        "1" * MANY + " = a",
        "a = 0x" + "f" * MANY,
        "a = 1e" + "9" * MANY,
        "a = 0." + "0" * MANY + "1",
        "-(" * MANY + "9223372036854775808" + ")" * MANY + " = a",
    ],
    ids=lambda text: text[:24],
)
def test_s21_refused_in_time(text: str) -> None:
    with pytest.raises(InvalidSelectorError) as caught:
        Selector(text)
    assert 0 <= caught.value.position <= len(text)


def test_s21_very_long_chains() -> None:
    strings = ", ".join(f"'x{index}'" for index in range(30_000))
    chain = " OR ".join(f"n = {index}" for index in range(15_000))
    selector = Selector(f"({chain}) AND s IN ({strings})")
    assert selector.matches({"n": 14_999, "s": "x29999"})
    assert not selector.matches({"n": 15_000, "s": "x29999"})
    assert not selector.matches({"n": 14_999, "s": "x30000"})


def test_s21_little_of_the_stack_is_needed() -> None:
    def descend(levels: int) -> bool:
        if levels:
            return descend(levels - 1)
        return Selector("NOT (b OR NOT (a AND " * 500 + "a" + "))" * 500).matches({"a": True, "b": False})

    frame: FrameType | None = sys._getframe()
    used = 0
    while frame is not None:
        frame, used = frame.f_back, used + 1
    assert descend(sys.getrecursionlimit() - used - 300)


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        ("%a" * 30 + "%b", "a" * 5000),
        ("%_a" * 30 + "%b", "a" * 5000),
        ("%" * MANY + "b", "a" * 5000),
        ("%a%" * 2000 + "b", "a" * 5000),
        ("%" + "_" * 2000 + "b", "a" * 5000),
        ("%" + "a" * 1000 + "b%", "a" * 5000),
    ],
    ids=lambda text: text[:12],
)
def test_s18_like_takes_polynomial_time(pattern: str, value: str) -> None:
    selector = Selector(f"a LIKE '{pattern}'")
    assert not selector.matches({"a": value})
    assert selector.matches({"a": f"{value}b"})
