"""Patterns of LIKE."""

import re
from collections.abc import Iterator


def _characters(pattern: str, escape: str | None) -> Iterator[tuple[str, bool]]:
    """Each character of a pattern, and whether it stands for itself whatever it is."""
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            # At the end of the pattern there is nothing to escape.
            yield next(characters, character), True
        else:
            yield character, False


def like(pattern: str, escape: str | None = None) -> re.Pattern[str]:
    """A regular expression whose `fullmatch` is the pattern's. Its time is bound by the product of both lengths.

    Behind each `%` the text up to the next one is taken where it comes first, and never looked for again: an atomic
    group. What follows the last `%` has one place only, the end.
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
