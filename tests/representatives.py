"""Choice of the cases of a test that `make test` runs: `make nightly` runs all of them."""

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def representatives(cases: Iterable[Any], *chosen: Any) -> list[ParameterSet]:
    """Return all cases for `parametrize`, or for `params` of a fixture. Those that are not chosen are nightly.

    A case of several arguments is a tuple. At least one case has to be chosen, so that no promise is without a test in
    `make test`, and a chosen one has to exist.
    """
    every = list(cases)
    if not chosen:
        raise ValueError(f"no case is chosen: expected one of {every!r}, or more, for `make test`")
    if unknown := [case for case in chosen if case not in every]:
        raise ValueError(f"{unknown!r}: expected some of {every!r}")
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)), marks=() if case in chosen else pytest.mark.nightly
        )
        for case in every
    ]
