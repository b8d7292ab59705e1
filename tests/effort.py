"""Numbers of Hypothesis' examples of tests that need more or fewer of them than others."""

from hypothesis import settings

_USUAL = 100
"""Examples of other tests, in the profile of a developer's machine (conftest.py)."""


def examples(count: int) -> int:
    """Return the number of examples of a test that has `count` of them where others have 100.

    In CI it has half as many, and in `make test-fast` a fifth, as the others.
    """
    return max(count * settings.default.max_examples // _USUAL, 1)
