"""Parses a selector into its program. Precedence is handled with an explicit stack, so that no nesting is too deep."""

from enum import Enum
from re import Pattern
from typing import NamedTuple

from fjm2.messages.errors import InvalidSelectorError

from .lexer import Token, tokens
from .like import like
from .names import is_usable
from .operations import LONG_MAX, wrap
from .program import Instruction, Op, operand_count


class _Kind(Enum):
    """Static type of an operand. Brackets do not change it."""

    NAME = "a name"
    NUMBER = "a number"
    STRING = "a string"
    BOOLEAN = "a boolean"
    CONDITION = "a condition"


class _Operand(NamedTuple):
    kind: _Kind
    position: int


_NAMES = frozenset({_Kind.NAME})
_NUMBERS = frozenset({_Kind.NAME, _Kind.NUMBER})
_CONDITIONS = frozenset({_Kind.NAME, _Kind.BOOLEAN, _Kind.CONDITION})

_BRACKET, _OR, _AND, _NOT, _COMPARISON, _SUM, _PRODUCT, _SIGN = range(8)
"""Binding strengths of operators. A bracket does not bind operands: it waits to be closed."""


class _Operator(NamedTuple):
    """An operator that waits for its operands. A bracket has no operation."""

    op: Op | None
    level: int
    position: int = 0
    is_open: bool = False
    """True for a BETWEEN whose AND has not been read yet."""


_SIGNS = {"+": _Operator(Op.PLUS, _SIGN), "-": _Operator(Op.NEGATE, _SIGN)}
_INFIX = {
    "OR": _Operator(Op.OR, _OR),
    "AND": _Operator(Op.AND, _AND),
    "=": _Operator(Op.EQUAL, _COMPARISON),
    "<>": _Operator(Op.UNEQUAL, _COMPARISON),
    "<": _Operator(Op.LESS, _COMPARISON),
    "<=": _Operator(Op.AT_MOST, _COMPARISON),
    ">": _Operator(Op.MORE, _COMPARISON),
    ">=": _Operator(Op.AT_LEAST, _COMPARISON),
    "+": _Operator(Op.ADD, _SUM),
    "-": _Operator(Op.SUBTRACT, _SUM),
    "*": _Operator(Op.MULTIPLY, _PRODUCT),
    "/": _Operator(Op.DIVIDE, _PRODUCT),
}


def parse(text: str) -> list[Instruction]:
    """Return the program of a selector, empty if the text is blank. Raise InvalidSelectorError if it is invalid."""
    return _Parser(text).parse()


class _Parser:
    """Shunting-yard parser: moves operators after their operands, and checks the static types of the operands."""

    def __init__(self, text: str) -> None:
        self._tokens = tokens(text)
        self._ahead: Token | None = None
        self._program: list[Instruction] = []
        self._operands: list[_Operand] = []
        self._operators: list[_Operator] = []

    def parse(self) -> list[Instruction]:
        if self._peek().kind == "end":
            return []
        self._read_operand()
        while self._peek().kind != "end":
            self._read_operator()
        self._reduce(_OR)
        if self._operators:
            raise InvalidSelectorError("this bracket is not closed", self._operators[-1].position)
        self._expect_kinds(_CONDITIONS, 1, "a condition")
        return self._program

    def _peek(self) -> Token:
        if self._ahead is None:
            self._ahead = next(self._tokens)
        return self._ahead

    def _advance(self) -> Token:
        token = self._peek()
        if token.kind != "end":
            self._ahead = None
        return token

    def _expect_string(self, what: str) -> Token:
        token = self._advance()
        if token.kind != "string":
            raise _unexpected(token, what)
        return token

    def _read_operand(self) -> None:
        """Read brackets, signs and NOTs up to the next name or literal, and that as well."""
        while not self._read_literal(token := self._advance()):
            match token.kind:
                case "(":
                    self._operators.append(_Operator(None, _BRACKET, token.position))
                case "+" | "-" as sign:
                    self._operators.append(_SIGNS[sign]._replace(position=token.position))
                case "NOT":
                    self._push_not(token)
                case "NULL":
                    raise InvalidSelectorError("NULL is not a value: use IS NULL", token.position)
                case "=" if self._operators and self._operators[-1].op is Op.EQUAL:
                    raise InvalidSelectorError("equality is written =, not ==", token.position)
                case _:
                    raise _unexpected(token, "a name, a literal or an opening bracket")

    def _read_literal(self, token: Token) -> bool:
        match token.kind:
            case "name":
                self._push(_Kind.NAME, token.position, Instruction(Op.NAME, self._usable_name(token)))
            case "number":
                self._push(_Kind.NUMBER, token.position, Instruction(Op.LITERAL, self._number_in_range(token)))
            case "string":
                self._push(_Kind.STRING, token.position, Instruction(Op.LITERAL, token.value))
            case "TRUE" | "FALSE":
                self._push(_Kind.BOOLEAN, token.position, Instruction(Op.LITERAL, token.kind == "TRUE"))
            case _:
                return False
        self._reduce(_SIGN)
        return True

    def _usable_name(self, token: Token) -> str:
        name = str(token.value)
        if not is_usable(name):
            raise InvalidSelectorError("selectors cannot use this header", token.position)
        return name

    def _number_in_range(self, token: Token) -> str | int | float:
        # The smallest long is written as a negated number that is itself out of range.
        is_negative = bool(self._operators) and self._operators[-1].op is Op.NEGATE
        if isinstance(token.value, int) and token.value > LONG_MAX + is_negative:
            raise InvalidSelectorError("this number is out of range for a long", token.position)
        return token.value

    def _push_not(self, token: Token) -> None:
        if self._operators and self._operators[-1].level > _NOT:
            raise InvalidSelectorError("NOT applies to conditions, not to values", token.position)
        self._operators.append(_Operator(Op.NOT, _NOT, token.position))

    def _read_operator(self) -> None:
        """Read an operator, and the operand that follows it."""
        token = self._advance()
        match token.kind:
            case ")":
                self._close_bracket(token)
            case "AND":
                self._read_and(token)
            case "NOT" | "BETWEEN" | "IN" | "LIKE":
                is_not = token.kind == "NOT"
                self._read_predicate(self._advance() if is_not else token, is_not)
            case "IS":
                self._read_is_null(token)
            case symbol if symbol in _INFIX:
                self._read_infix(token)
            case _:
                raise _unexpected(token, "an operator")

    def _close_bracket(self, token: Token) -> None:
        self._reduce(_OR)
        if not self._operators:
            raise InvalidSelectorError("this bracket was not opened", token.position)
        self._operators.pop()
        self._reduce(_SIGN)

    def _read_infix(self, token: Token) -> None:
        operator = _INFIX[token.kind]
        self._reduce(operator.level)
        self._operators.append(operator._replace(position=token.position))
        self._read_operand()

    def _read_and(self, token: Token) -> None:
        self._reduce(_SUM)
        if self._operators and self._operators[-1].is_open:
            self._operators.append(self._operators.pop()._replace(is_open=False))
            self._read_operand()
        else:
            self._read_infix(token)

    def _read_predicate(self, token: Token, is_not: bool) -> None:
        self._reduce(_COMPARISON)
        match token.kind:
            case "BETWEEN":
                op = Op.NOT_BETWEEN if is_not else Op.BETWEEN
                self._operators.append(_Operator(op, _COMPARISON, token.position, is_open=True))
                self._read_operand()
            case "IN":
                self._ask_property(Instruction(Op.IN, self._read_list()), is_not)
            case "LIKE":
                self._ask_property(Instruction(Op.LIKE, self._read_pattern()), is_not)
            case _:
                raise _unexpected(token, "BETWEEN, IN or LIKE")

    def _read_is_null(self, token: Token) -> None:
        self._reduce(_COMPARISON)
        token = self._advance()
        is_not = token.kind == "NOT"
        if is_not:
            token = self._advance()
        if token.kind != "NULL":
            raise _unexpected(token, "NULL")
        self._ask_property(Instruction(Op.IS_NULL), is_not)

    def _ask_property(self, instruction: Instruction, is_not: bool) -> None:
        position = self._expect_kinds(_NAMES, 1, "the name of a property")
        self._operands.pop()
        self._push(_Kind.CONDITION, position, instruction)
        if is_not:
            self._program.append(Instruction(Op.NOT))

    def _read_list(self) -> frozenset[str]:
        token = self._advance()
        if token.kind != "(":
            raise _unexpected(token, "a list of strings in brackets")
        strings = set()
        while token.kind != ")":
            strings.add(str(self._expect_string("a string").value))
            token = self._advance()
            if token.kind not in (",", ")"):
                raise _unexpected(token, "a comma or a closing bracket")
        return frozenset(strings)

    def _read_pattern(self) -> Pattern[str]:
        pattern = str(self._expect_string("a pattern in quotes").value)
        if self._peek().kind != "ESCAPE":
            return like(pattern)
        self._advance()
        token = self._expect_string("a character in quotes")
        escape = str(token.value)
        if len(escape) != 1:
            raise InvalidSelectorError("ESCAPE expects one character", token.position)
        return like(pattern, escape)

    def _reduce(self, level: int) -> None:
        """Apply all operators that bind at least as tightly as `level`, since their operands are complete."""
        while self._operators and self._operators[-1].level >= level:
            operator = self._operators.pop()
            if operator.is_open:
                raise InvalidSelectorError("this BETWEEN has no AND", operator.position)
            if operator.op is not None:
                self._apply(operator.op, operator)

    def _apply(self, op: Op, operator: _Operator) -> None:
        count = operand_count(op)
        if operator.level < _COMPARISON:
            position = self._expect_kinds(_CONDITIONS, count, "a condition")
        elif op in (Op.EQUAL, Op.UNEQUAL):
            position = self._expect_like_kinds(operator.position)
        else:
            position = self._expect_kinds(_NUMBERS, count, "a number")
        del self._operands[-count:]
        kind = _Kind.NUMBER if operator.level > _COMPARISON else _Kind.CONDITION
        if operator.level == _SIGN and self._program[-1].op is Op.LITERAL:
            self._push(kind, position, _signed(op, self._program.pop()))
        else:
            self._push(kind, position, Instruction(op))

    def _push(self, kind: _Kind, position: int, instruction: Instruction) -> None:
        self._operands.append(_Operand(kind, position))
        self._program.append(instruction)

    def _expect_kinds(self, kinds: frozenset[_Kind], count: int, needed: str) -> int:
        """Check the kinds of the last operands. Return the position at which they begin."""
        operands = self._operands[-count:]
        for kind, position in operands:
            if kind not in kinds:
                raise InvalidSelectorError(f"expected {needed}, found {kind.value}", position)
        return operands[0].position

    def _expect_like_kinds(self, position: int) -> int:
        left, right = self._operands[-2:]
        if _Kind.CONDITION in (left.kind, right.kind):
            raise InvalidSelectorError("conditions cannot be compared", position)
        if left.kind is not right.kind and _Kind.NAME not in (left.kind, right.kind):
            raise InvalidSelectorError(f"cannot compare {left.kind.value} with {right.kind.value}", position)
        return left.position


def _signed(op: Op, literal: Instruction) -> Instruction:
    """Return a literal with its sign applied."""
    value = literal.argument
    if op is Op.NEGATE and isinstance(value, int | float):
        value = wrap(-value) if isinstance(value, int) else -value
    return Instruction(Op.LITERAL, value)


def _unexpected(token: Token, expected: str) -> InvalidSelectorError:
    if token.kind == "end":
        return InvalidSelectorError(f"the selector ends where {expected} is expected", token.position)
    found = f"a {token.kind}" if token.kind.islower() else token.kind
    return InvalidSelectorError(f"expected {expected}, found {found}", token.position)
