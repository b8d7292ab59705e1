"""Message selectors: conditions on headers and properties (Jakarta Messaging 3.1, 3.8)."""

from collections.abc import Callable, Mapping
from functools import lru_cache

from fjm2.messages.errors import InvalidSelectorError

from .compiler import Lookup, compile_program
from .names import is_identifier
from .parser import parse

__all__ = ["Lookup", "Selector", "is_identifier"]

_KEPT = 256
"""So many texts are compiled once, however many consumers use them."""


class Selector:
    """Says which messages a consumer wants. Raises InvalidSelectorError if the text is no selector."""

    __slots__ = ("evaluate", "is_empty", "names", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        """As it was given."""
        self.evaluate: Callable[[Lookup], bool]
        """Whether a message is wanted, told by a function from names to values: `matches` on the hot path."""
        self.names: frozenset[str]
        """The headers and properties it asks for; nothing else of a message need be known."""
        self.is_empty: bool
        """Whether it wants every message, as it says nothing."""
        try:
            self.names, self.evaluate, self.is_empty = _compile(text)
        except InvalidSelectorError as error:
            raise InvalidSelectorError(error.reason, error.position, text) from None

    def matches(self, values: Mapping[str, object]) -> bool:
        """Whether a message with these headers and properties is wanted: bool, int, float or str, or None for none."""
        return self.evaluate(values.get)

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, Selector) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"


def _want_all(_: Lookup) -> bool:
    return True


@lru_cache(_KEPT)
def _compile(text: str) -> tuple[frozenset[str], Callable[[Lookup], bool], bool]:
    program = parse(text)
    if not program:
        return frozenset(), _want_all, True
    return *compile_program(program), False
