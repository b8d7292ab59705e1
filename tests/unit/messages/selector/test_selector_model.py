"""Tests of selectors against a slow and obvious evaluator.

That evaluator walks a tree, with three truth values.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from math import copysign, inf, isnan, nan
from typing import Any, TypeAlias

from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from fjm2.jms.selector import Selector
from fjm2.messages.errors import InvalidSelectorError
from fjm2.messages.types import Byte, Float, Long

Values: TypeAlias = dict[str, Any]
WRONG = "wrong type", "of an operand"
"""Result of arithmetic on strings and booleans. It stands for a value whose type equals no other type."""
NAMES = ["a", "b", "c", "JMSPriority", "größe"]
TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass
class Node:
    """A part of a selector: its text, its binding strength, and a function that computes its value."""

    text: str
    level: int
    evaluate: Callable[[Values], Any]

    def within(self, level: int) -> str:
        """Return the text as an operand of an operator with this binding strength, in parentheses if necessary."""
        return self.text if self.level > level else f"({self.text})"


OR, AND, NOT, COMPARISON, SUM, PRODUCT, SIGN, ATOM = range(1, 9)


def type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else "wrong"


def compare(sign: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    if type_of(left) != type_of(right) or type_of(left) == "wrong":
        return False
    if type_of(left) == "number":
        if isinstance(left, float) != isinstance(right, float):
            left, right = float(left), float(right)
    elif sign not in ("=", "<>"):
        return False
    return TESTS[sign](left, right)


def wrapped(value: int) -> int:
    value &= 0xFFFF_FFFF_FFFF_FFFF
    return value - 2**64 if value >= 2**63 else value


def compute(sign: str, left: Any, right: Any) -> Any:
    if left is None or right is None:
        return None
    if type_of(left) != "number" or type_of(right) != "number":
        return WRONG
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
        if sign == "/" and right == 0:
            return nan if left == 0 or isnan(left) else copysign(inf, left) * copysign(1, right)
        return {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}[sign](left, right)
    if sign == "/":
        if right == 0:
            return None
        quotient, rest = divmod(left, right)
        return wrapped(quotient + (1 if rest and quotient < 0 else 0))
    return wrapped({"+": operator.add, "-": operator.sub, "*": operator.mul}[sign](left, right))


def negation(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


def conjunction(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def disjunction(left: bool | None, right: bool | None) -> bool | None:
    return negation(conjunction(negation(left), negation(right)))


def is_like(value: str, pattern: list[str | None], is_exact: list[bool]) -> bool:
    """Return True if a value matches a pattern.

    `lengths` contains the lengths of all prefixes of the value that match the pattern so far.
    """
    lengths = {0}
    for character, exact in zip(pattern, is_exact, strict=True):
        if not exact and character == "%":
            lengths = set(range(min(lengths), len(value) + 1)) if lengths else set()
        else:
            lengths = {
                length + 1
                for length in lengths
                if length < len(value) and ((not exact and character == "_") or value[length] == character)
            }
    return len(value) in lengths


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# The values and texts are few, so that equal ones often meet.
texts = st.text("ab%_!'\n", max_size=4)
longs = st.sampled_from([0, 1, 2, -1, 7, 2**53, 2**53 + 1, 2**63 - 1]) | st.integers(-(2**63), 2**63 - 1)
doubles = st.sampled_from([0.0, -0.0, 1.0, 2.5, 2.0**53, 2.0**63, 1e308]) | st.floats()
messages: SearchStrategy[Values] = st.dictionaries(
    st.sampled_from(NAMES),
    st.none()
    | st.booleans()
    | longs
    | doubles
    | texts
    | st.builds(Byte, st.integers(-128, 127))
    | st.builds(Long, longs)
    | st.builds(Float, st.floats(width=32)),
)


def name(text: str) -> Node:
    return Node(text, ATOM, lambda values: values.get(text))


def exact(value: int, write: Callable[[int], str]) -> Node:
    return Node(f"-{write(-value)}" if value < 0 else write(value), ATOM, lambda _: value)


def approximate(value: float) -> Node:
    return Node(repr(value), ATOM, lambda _: value)


names = st.sampled_from(NAMES).map(name)
numbers = st.builds(exact, longs, st.sampled_from([str, hex, lambda value: f"0{value:o}", lambda value: f"{value}L"]))
numbers |= doubles.filter(lambda value: abs(value) < inf).map(approximate)
strings = texts.map(lambda text: Node(quoted(text), ATOM, lambda _: text))
booleans = st.sampled_from([("TRUE", True), ("false", False)]).map(lambda pair: Node(pair[0], ATOM, lambda _: pair[1]))


def signed(sign: str, operand: Node) -> Node:
    def evaluate(values: Values) -> Any:
        value = operand.evaluate(values)
        if sign == "-" and isinstance(value, float):
            return -value
        return compute(sign, 0, value) if sign == "-" else compute("*", value, 1)

    return Node(sign + operand.within(SIGN - 1), SIGN, evaluate)


def computed(sign: str, left: Node, right: Node) -> Node:
    level = SUM if sign in "+-" else PRODUCT
    text = f"{left.within(level - 1)} {sign} {right.within(level)}"
    return Node(text, level, lambda values: compute(sign, left.evaluate(values), right.evaluate(values)))


sums = st.recursive(
    names | numbers,
    lambda inner: (
        st.builds(computed, st.sampled_from("+-*/"), inner, inner) | st.builds(signed, st.sampled_from("+-"), inner)
    ),
    max_leaves=5,
)


def compared(sign: str, left: Node, right: Node) -> Node:
    text = f"{left.within(COMPARISON)} {sign} {right.within(COMPARISON)}"
    return Node(text, COMPARISON, lambda values: compare(sign, left.evaluate(values), right.evaluate(values)))


def between(is_not: bool, value: Node, low: Node, high: Node) -> Node:
    def evaluate(values: Values) -> bool | None:
        operands = [node.evaluate(values) for node in (value, low, high)]
        if is_not:
            return disjunction(compare("<", *operands[:2]), compare(">", operands[0], operands[2]))
        return conjunction(compare(">=", *operands[:2]), compare("<=", operands[0], operands[2]))

    word = "NOT BETWEEN" if is_not else "BETWEEN"
    parts = [node.within(COMPARISON) for node in (value, low, high)]
    return Node(f"{parts[0]} {word} {parts[1]} AND {parts[2]}", COMPARISON, evaluate)


def string_test(text: str, is_not: bool, operand: Node, test: Callable[[str], bool]) -> Node:
    def evaluate(values: Values) -> bool | None:
        value = operand.evaluate(values)
        return test(value) != is_not if isinstance(value, str) else None

    return Node(f"{operand.text} {'NOT ' if is_not else ''}{text}", COMPARISON, evaluate)


def contained(is_not: bool, operand: Node, members: list[str]) -> Node:
    listed = ", ".join(quoted(member) for member in members)
    return string_test(f"IN ({listed})", is_not, operand, lambda value: value in members)


def like(is_not: bool, operand: Node, pattern: str, escape: str | None) -> Node:
    characters: list[str | None] = []
    is_exact: list[bool] = []
    for index, character in enumerate(pattern):
        if is_exact and characters[-1] is None:
            characters[-1] = character
        elif character == escape:
            characters.append(None if index + 1 < len(pattern) else character)
            is_exact.append(True)
        else:
            characters.append(character)
            is_exact.append(False)
    text = f"LIKE {quoted(pattern)}" + ("" if escape is None else f" ESCAPE {quoted(escape)}")
    return string_test(text, is_not, operand, lambda value: is_like(value, characters, is_exact))


def is_null(is_not: bool, operand: Node) -> Node:
    text = f"{operand.text} IS {'NOT ' if is_not else ''}NULL"
    return Node(text, COMPARISON, lambda values: (operand.evaluate(values) is None) != is_not)


def truth_of(operand: Node) -> Node:
    """Return a condition that consists of a bare name or literal."""

    def evaluate(values: Values) -> bool | None:
        value = operand.evaluate(values)
        return value if isinstance(value, bool) else None

    return Node(operand.text, ATOM, evaluate)


def joined(word: str, left: Node, right: Node) -> Node:
    level, join = (OR, disjunction) if word == "OR" else (AND, conjunction)
    text = f"{left.within(level - 1)} {word} {right.within(level)}"
    return Node(text, level, lambda values: join(left.evaluate(values), right.evaluate(values)))


def negated(operand: Node) -> Node:
    return Node(f"NOT {operand.within(NOT - 1)}", NOT, lambda values: negation(operand.evaluate(values)))


equality, order = st.sampled_from(["=", "<>"]), st.sampled_from(sorted(TESTS))
tests = (
    st.builds(compared, order, sums, sums)
    | st.builds(compared, order, names, numbers)
    | st.builds(compared, equality, names, strings | booleans)
    | st.builds(compared, equality, strings | booleans, names)
    | st.builds(between, st.booleans(), sums, sums, sums)
    | st.builds(contained, st.booleans(), names, st.lists(texts, min_size=1, max_size=4))
    | st.builds(like, st.booleans(), names, texts, st.none() | st.sampled_from("!%_ab'"))
    | st.builds(is_null, st.booleans(), names)
    | (names | booleans).map(truth_of)
)
conditions = st.recursive(
    tests,
    lambda inner: st.builds(joined, st.sampled_from(["AND", "OR"]), inner, inner) | inner.map(negated),
    max_leaves=8,
)


@settings(max_examples=examples(200))
@given(conditions, st.lists(messages, min_size=1, max_size=3))
def test_selectors_say_what_the_tree_says(condition: Node, received: list[Values]) -> None:
    selector = Selector(condition.text)
    negative = Selector(f"NOT ({condition.text})")
    for values in received:
        expected = condition.evaluate(values)
        assert selector.matches(values) is (expected is True)
        assert negative.matches(values) is (expected is False)
        needed = {key: value for key, value in values.items() if key in selector.names}
        assert selector.matches(needed) is (expected is True)


SPELLED = """
    a b1 größe JMSType NOT and Or BETWEEN LIKE IN IS ESCAPE NULL TRUE false ( ) , = <> < <= > >= + - * /
    1 017 0x1F 08 7. .5 1e3f 1.5L 9223372036854775808 'x' '%a_' '!' '' . ! % " ' € \u200b \0
"""
words = st.sampled_from([*SPELLED.split(), "\t", "\n", "\v"])


@settings(max_examples=examples(200))
@given(
    st.lists(words, max_size=20).map(" ".join) | st.lists(words, max_size=20).map("".join) | st.text(max_size=30),
    messages,
)
def test_any_text_is_a_selector_or_refused(text: str, values: Values) -> None:
    try:
        selector = Selector(text)
    except InvalidSelectorError as error:
        position = error.position
    else:
        position = 0
        assert selector.is_empty or not (selector.matches(values) and Selector(f"NOT ({text})").matches(values))
    assert 0 <= position <= len(text)
