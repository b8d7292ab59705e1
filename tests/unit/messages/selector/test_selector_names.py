"""Tests of valid names of properties: these are the words that selectors accept as names."""

import sys
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.jms.selector import Selector, is_identifier
from fjm2.messages.errors import InvalidSelectorError

KEYWORDS = ["NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE", "NULL", "TRUE", "FALSE"]


@pytest.mark.parametrize("name", ["a", "_", "$", "a1", "$1", "größe", "цена", "価格", "€uro", "a‿b", "e\u0301", "nota"])
def test_names(name: str) -> None:
    assert is_identifier(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "1",
        "1a",
        "a b",
        "a.b",
        "a-b",
        "a'b",
        '"a"',
        " a",
        "a ",
        "a\n",
        "a·",
        "℘",
        "a²",
        "\u0301a",
        "a\u200b",
        "\ud83d",
    ],
)
def test_no_names(name: str) -> None:
    assert not is_identifier(name)


@pytest.mark.parametrize("word", KEYWORDS)
def test_reserved_words_in_any_case(word: str) -> None:
    assert not any(is_identifier(name) for name in (word, word.lower(), word.title(), word.swapcase()))
    assert is_identifier(f"{word}_")


def test_reserved_words_are_ascii() -> None:
    for name in ("\u0131n", "\u0131s", "fal\u017fe", "li\u212ae"):
        assert name.upper() in KEYWORDS or name.lower().upper() in KEYWORDS
        assert is_identifier(name)


@pytest.mark.slow
def test_every_character_has_its_place() -> None:
    first, later = set(), set()
    for character in map(chr, range(sys.maxunicode + 1)):
        kind = category(character)
        if is_identifier.__wrapped__(character):
            first.add(kind)
        if is_identifier.__wrapped__(f"a{character}"):
            later.add(kind)
    assert first == {"Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"}
    assert later == first | {"Nd", "Mn", "Mc"}


texts = st.text(st.characters() | st.sampled_from("aZ09_$.- ٣\u0301€"), min_size=1, max_size=8)


@given(texts.filter(lambda name: not name.startswith("JMS")))
def test_selectors_agree(name: str) -> None:
    # The text is used as an operand, since a text such as "a " or "TRUE" is a selector but not a name.
    try:
        names = Selector(f"{name} IS NULL").names
    except InvalidSelectorError:
        assert not is_identifier(name)
    else:
        assert is_identifier(name) == (names == {name})
