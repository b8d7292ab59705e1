"""What docs/selectors.md shows is so."""

import re
from pathlib import Path

import pytest

from fjm2.jms.errors import InvalidSelectorError
from fjm2.jms.selector import Selector

PAGE = (Path(__file__).parents[3] / "docs" / "selectors.md").read_text()


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert found
    return found


@pytest.mark.parametrize("text", [line for block in blocks("sql") for line in block.splitlines()])
def test_selectors_that_are_shown_are_selectors(text: str) -> None:
    assert Selector(text).names


@pytest.mark.parametrize("text", [line for block in blocks("text") for line in block.splitlines()])
def test_what_is_refused_is_refused(text: str) -> None:
    with pytest.raises(InvalidSelectorError):
        Selector(text)
