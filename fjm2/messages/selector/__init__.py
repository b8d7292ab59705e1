"""Message selectors: conditions on headers and properties (Jakarta Messaging 3.1, 3.8)."""

from collections.abc import Callable, Mapping
from functools import lru_cache

from fjm2.messages.errors import InvalidSelectorError

from .compiler import Lookup, compile_program
from .names import is_identifier
from .parser import parse

__all__ = ["Lookup", "Selector", "is_identifier"]

_COMPILED_MAX = 256
"""Greatest number of selectors whose compiled form is kept, so that consumers with the same selector share it."""


class Selector:
    """A condition that selects messages for a consumer. Raises InvalidSelectorError if the text is not a valid
    selector."""

    __slots__ = ("evaluate", "is_empty", "names", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        """Text of the selector."""
        self.evaluate: Callable[[Lookup], bool]
        """Function that returns True if a message is selected. Its argument is a function from names to values. Faster
        than `matches`."""
        self.names: frozenset[str]
        """Names of the headers and properties that the selector uses. Other parts of a message need not be decoded."""
        self.is_empty: bool
        """True if the text is blank, which selects every message."""
        if not isinstance(text, str):
            raise TypeError(f'selector={text!r}: expected a text, such as "price > 10"')
        try:
            self.names, self.evaluate, self.is_empty = _compile(text)
        except InvalidSelectorError as error:
            raise InvalidSelectorError(error.reason, error.position, text) from None

    def matches(self, values: Mapping[str, object]) -> bool:
        """Return True if a message with these headers and properties is selected. Values are bool, int, float, str
        or None."""
        return self.evaluate(values.get)

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, Selector) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"


def _want_all(_: Lookup) -> bool:
    return True


@lru_cache(_COMPILED_MAX)
def _compile(text: str) -> tuple[frozenset[str], Callable[[Lookup], bool], bool]:
    program = parse(text)
    if not program:
        return frozenset(), _want_all, True
    return *compile_program(program), False
