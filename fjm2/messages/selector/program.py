"""A parsed selector: a list of operations, each after its operands. It is flat, so that no nesting is too deep."""

from enum import Enum, auto
from re import Pattern
from typing import NamedTuple


class Op(Enum):
    """Operation of an instruction on the operands before it."""

    NAME = auto()
    """Value of a header or property. As a condition, the name is true if its value is true."""
    LITERAL = auto()
    PLUS = auto()
    NEGATE = auto()
    ADD = auto()
    SUBTRACT = auto()
    MULTIPLY = auto()
    DIVIDE = auto()
    EQUAL = auto()
    UNEQUAL = auto()
    LESS = auto()
    AT_MOST = auto()
    MORE = auto()
    AT_LEAST = auto()
    BETWEEN = auto()
    NOT_BETWEEN = auto()
    """A test that is not the negation of BETWEEN: values of unlike types are neither between nor not between."""
    IN = auto()
    LIKE = auto()
    IS_NULL = auto()
    NOT = auto()
    AND = auto()
    OR = auto()


UNARY_OPS = frozenset({Op.PLUS, Op.NEGATE, Op.IN, Op.LIKE, Op.IS_NULL, Op.NOT})
TERNARY_OPS = frozenset({Op.BETWEEN, Op.NOT_BETWEEN})
LOGIC_OPS = frozenset({Op.NOT, Op.AND, Op.OR})


def operand_count(op: Op) -> int:
    """Return the number of operands that an operation takes."""
    if op in (Op.NAME, Op.LITERAL):
        return 0
    if op in UNARY_OPS:
        return 1
    return 3 if op in TERNARY_OPS else 2


class Instruction(NamedTuple):
    """One operation. Its argument is a name, a literal, the list of an IN or the pattern of a LIKE."""

    op: Op
    argument: str | int | float | frozenset[str] | Pattern[str] | None = None
