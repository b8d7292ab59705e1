"""Compiles patterns of LIKE to regular expressions."""

import re
from collections.abc import Iterator


def _characters(pattern: str, escape: str | None) -> Iterator[tuple[str, bool]]:
    """Yield each character of a pattern, and True if it is escaped and so stands for itself."""
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            # At the end of the pattern there is nothing to escape: the character stands for itself.
            yield next(characters, character), True
        else:
            yield character, False


def like(pattern: str, escape: str | None = None) -> re.Pattern[str]:
    """Return a regular expression whose `fullmatch` tells if a text matches a pattern of LIKE.

    Its time is bounded by the product of both lengths. The part of the pattern between two `%` is matched at its first
    occurrence and never tried again, by an atomic group. The part behind the last `%` can only match at the end.
    """
    runs: list[list[str]] = [[]]
    for character, is_literal in _characters(pattern, escape):
        if is_literal or character not in "%_":
            runs[-1].append(re.escape(character))
        elif character == "_":
            runs[-1].append(".")
        elif runs[-1] or len(runs) == 1:
            runs.append([])
    first, *others = ("".join(run) for run in runs)
    if not others:
        return re.compile(first, re.DOTALL)
    *middle, last = others
    return re.compile(first + "".join(f"(?>.*?{run})" for run in middle) + f".*{last}", re.DOTALL)
