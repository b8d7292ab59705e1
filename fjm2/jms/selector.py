"""Message selectors."""

from fjm2.messages.selector import (
    Lookup,
    Selector,
    is_identifier,
)

__all__ = [
    "Lookup",
    "Selector",
    "is_identifier",
]
