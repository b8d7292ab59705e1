"""Compiles the program of a selector into a Python function.

Three-valued logic needs no third value here. A message is selected only if the condition is true, so each condition is
compiled to one of two questions: is it true, or is it false? An unknown condition answers no to both. NOT swaps the
question, and an AND is false if one operand or the other is false. This leaves Python's own `and` and `or` over single
comparisons.
"""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

from . import operations
from .names import SET_ON_RECEIPT
from .program import Instruction, Op, operand_count

Lookup = Callable[[str], object]
"""A function that returns the value of a header or property by name, or None if the message does not have it."""

_DEPTH_MAX = 20
"""Greatest depth of expressions. Deeper expressions are assigned to variables, as Python's compiler is recursive and
limits nesting."""
_DOUBLE_EXACT_END = 1 << 53
"""Bound below which integers are exact as doubles. Comparing such integers exactly or as doubles gives the same
result."""

_ARITHMETIC = {Op.ADD: "add", Op.SUBTRACT: "sub", Op.MULTIPLY: "mul", Op.DIVIDE: "divide"}
_SIGNS = {Op.PLUS: "plus", Op.NEGATE: "negate"}
_COMPARISONS = {
    Op.EQUAL: ("==", "equality(eq"),
    Op.UNEQUAL: ("!=", "equality(ne"),
    Op.LESS: ("<", "order(lt"),
    Op.AT_MOST: ("<=", "order(le"),
    Op.MORE: (">", "order(gt"),
    Op.AT_LEAST: (">=", "order(ge"),
}
"""Python's operator for operands known to have like types, and the call for all others."""
_MIRRORED = {Op.LESS: Op.MORE, Op.AT_MOST: Op.AT_LEAST, Op.MORE: Op.LESS, Op.AT_LEAST: Op.AT_MOST}
_GLOBALS: dict[str, Any] = {
    "NUMBER": operations.NUMBER,
    "arithmetic": operations.arithmetic,
    "divide": operations.divide,
    "equality": operations.equality,
    "negate": operations.negate,
    "order": operations.order,
    "plus": operations.plus,
} | {name: getattr(operator, name) for name in ("add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge")}
"""Functions that the compiled selector may call."""


class _Value(NamedTuple):
    """A Python expression for a value."""

    text: str
    depth: int = 0
    literal: object = None
    is_property: bool = False


class _Condition(NamedTuple):
    """Python expressions for yes-or-no questions, joined by `and` or `or`."""

    parts: list[str]
    joint: str = " and "
    depth: int = 0


def compile_program(program: list[Instruction]) -> tuple[frozenset[str], Callable[[Lookup], bool]]:
    """Return the names that a selector uses, and the compiled selector."""
    writer = _Writer()
    text = writer.write(program)
    scope = _GLOBALS | writer.constants
    exec(text, scope)
    return frozenset(writer.variables) - SET_ON_RECEIPT, scope["evaluate"]


def _questions(program: list[Instruction]) -> list[bool | None]:
    """Return the question that each instruction answers: True for "is it true?", False for "is it false?", None for its
    value."""
    questions: list[bool | None] = []
    pending: list[bool | None] = [True]
    for op, _ in reversed(program):
        question = pending.pop()
        questions.append(question)
        match op:
            case Op.NOT:
                pending.append(not question)
            case Op.AND | Op.OR:
                pending += [question, question]
            case _:
                pending += [None] * operand_count(op)
    return questions[::-1]


class _Writer:
    """Translates a program in one pass. It keeps the expressions of operands until their operator comes."""

    def __init__(self) -> None:
        self.variables: dict[str, str] = {}
        """Python variables, by the name of the header or property."""
        self.constants: dict[str, object] = {}
        """Lists of IN and patterns of LIKE, by the names that the compiled selector uses."""
        self._lines: list[str] = []
        self._values: list[_Value] = []
        self._conditions: list[_Condition] = []

    def write(self, program: list[Instruction]) -> str:
        for instruction, question in zip(program, _questions(program), strict=True):
            if question is None:
                self._write_value(instruction)
            else:
                self._write_condition(instruction, question)
        fetches = [
            f"{variable} = {None if name in SET_ON_RECEIPT else f'get({name!a})'}"
            for name, variable in self.variables.items()
        ]
        answer = self._conditions.pop()
        lines = [*fetches, *self._lines, f"return {answer.joint.join(answer.parts)}"]
        return "def evaluate(get):\n" + "".join(f" {line}\n" for line in lines)

    def _write_value(self, instruction: Instruction) -> None:
        op, argument = instruction
        match op:
            case Op.NAME:
                self._values.append(_Value(self._variable(str(argument)), is_property=True))
            case Op.LITERAL:
                self._values.append(_Value(ascii(argument), literal=argument))
            case Op.PLUS | Op.NEGATE:
                self._push_call(f"{_SIGNS[op]}(", self._values.pop())
            case _:
                right, left = self._values.pop(), self._values.pop()
                self._push_call(f"arithmetic({_ARITHMETIC[op]}, ", left, right)

    def _push_call(self, start: str, *operands: _Value) -> None:
        text = ", ".join(operand.text for operand in operands)
        self._values.append(self._limit(f"{start}{text})", 1 + max(operand.depth for operand in operands)))

    def _write_condition(self, instruction: Instruction, question: bool) -> None:
        op, argument = instruction
        match op:
            case Op.NOT:
                pass
            case Op.AND | Op.OR:
                self._join(" and " if (op is Op.AND) == question else " or ")
            case Op.NAME:
                self._ask(f"{self._variable(str(argument))} is {question}")
            case Op.LITERAL:
                self._ask(str(argument is question))
            case Op.IS_NULL:
                self._ask(f"{self._values.pop().text} is {'' if question else 'not '}None")
            case Op.IN | Op.LIKE:
                self._ask_string(op, argument, question)
            case Op.BETWEEN | Op.NOT_BETWEEN:
                self._ask_between(op, question)
            case _:
                right, left = self._values.pop(), self._values.pop()
                self._ask(_comparison(op, left, right, question))

    def _ask(self, *questions: str, joint: str = " and ") -> None:
        self._conditions.append(_Condition(list(questions), joint))

    def _ask_string(self, op: Op, argument: object, question: bool) -> None:
        """Compile a condition on a string. For a value of any other type, it is neither true nor false."""
        variable = self._values.pop().text
        if op is Op.IN:
            test = f"{variable} {'in' if question else 'not in'} {self._constant(argument)}"
        else:
            test = f"{self._constant(argument)}.fullmatch({variable}) is {'not ' if question else ''}None"
        self._ask(f"isinstance({variable}, str) and {test}")

    def _ask_between(self, op: Op, question: bool) -> None:
        high, low, value = self._values.pop(), self._values.pop(), self._values.pop()
        if value.depth:
            value = self._bind(value.text)
        is_between = op is Op.BETWEEN
        self._ask(
            _comparison(Op.AT_LEAST if is_between else Op.LESS, value, low, question),
            _comparison(Op.AT_MOST if is_between else Op.MORE, value, high, question),
            joint=" and " if is_between == question else " or ",
        )

    def _join(self, joint: str) -> None:
        right, left = self._as_one(self._conditions.pop()), self._conditions.pop()
        # Chains stay flat, since Python's `and` and `or` take any number of operands.
        if left.joint != joint:
            left = self._as_one(left)
        left.parts.append(right.parts[0])
        self._conditions.append(_Condition(left.parts, joint, max(left.depth, right.depth)))

    def _as_one(self, condition: _Condition) -> _Condition:
        if len(condition.parts) == 1:
            return condition
        value = self._limit(f"({condition.joint.join(condition.parts)})", condition.depth + 1)
        return _Condition([value.text], depth=value.depth)

    def _limit(self, text: str, depth: int) -> _Value:
        return _Value(text, depth) if depth < _DEPTH_MAX else self._bind(text)

    def _bind(self, text: str) -> _Value:
        variable = f"t{len(self._lines)}"
        self._lines.append(f"{variable} = {text}")
        return _Value(variable)

    def _variable(self, name: str) -> str:
        return self.variables.setdefault(name, f"v{len(self.variables)}")

    def _constant(self, value: object) -> str:
        name = f"C{len(self.constants)}"
        self.constants[name] = value
        return name


def _comparison(op: Op, left: _Value, right: _Value, question: bool) -> str:
    if left.literal is not None and right.literal is None:
        op, left, right = _MIRRORED.get(op, op), right, left
    symbol, call = _COMPARISONS[op]
    test = _property_test(op, symbol, left.text, right.literal) if left.is_property else None
    if test is None:
        return f"{call}, {left.text}, {right.text}) is {question}"
    return test if question else f"{left.text} is not None and not ({test})"


def _property_test(op: Op, symbol: str, variable: str, literal: object) -> str | None:
    """Return an expression that compares a property with a literal, or None if the comparison needs a call."""
    match literal:
        case bool():
            return f"{variable} is {literal is (op is Op.EQUAL)}"
        case str():
            like = "" if op is Op.EQUAL else f"isinstance({variable}, str) and "
        case int() | float() if abs(literal) < _DOUBLE_EXACT_END:
            # Only numbers equal a number, except that True == 1 and False == 0.
            is_number = "" if op is Op.EQUAL else f"isinstance({variable}, NUMBER) and "
            is_no_bool = f"type({variable}) is not bool and " if is_number or literal in (0, 1) else ""
            like = is_number + is_no_bool
        case _:
            return None
    return f"{like}{variable} {symbol} {literal!a}"
