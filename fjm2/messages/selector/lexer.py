"""Splits the text of a selector into tokens: names, literals and operators, with their positions."""

import re
from collections.abc import Iterator
from typing import NamedTuple
from unicodedata import name as unicode_name

from fjm2.messages.errors import InvalidSelectorError

from .literals import read_approximate, read_exact
from .names import keyword, name_length

# Possessive quantifiers throughout: nothing is tried twice, however long the text. Every character beyond ASCII that
# may occur outside a string belongs to a name.
_TOKEN = re.compile(
    r"""
      (?P<space>  [ \t\f\r\n]++ )
    | (?P<hex>    0[xX][0-9A-Fa-f]++[lL]? )
    | (?P<float>  (?: (?: [0-9]++\.[0-9]*+ | \.[0-9]++ ) (?: [eE][+-]?[0-9]++ )? | [0-9]++[eE][+-]?[0-9]++ ) [fFdD]? )
    | (?P<exact>  [0-9]++[lL]? )
    | (?P<string> '[^']*+(?:''[^']*+)*+' )
    | (?P<word>   [A-Za-z_$\x80-\U0010ffff][A-Za-z0-9_$\x80-\U0010ffff]*+ )
    | (?P<sign>   <> | <= | >= | [=<>()+*/,-] )
    """,
    re.VERBOSE,
)
_TAIL = re.compile(r"[A-Za-z0-9_$\x80-\U0010ffff]++|\.")
_HINTS = {
    "'": "this string is not closed",
    '"': "strings are written in single quotes",
    "`": "names are written without quotes",
    "!": "use <> for unequal, and NOT for negation",
    "&": "use AND",
    "|": "use OR",
    "%": "selectors have no modulo operator",
    ".": "names cannot contain dots",
    ";": "a selector is one condition, without a semicolon",
    "#": "selectors have no comments",
}


class Token(NamedTuple):
    """A token of a selector. For reserved words and operators, the kind is the word itself, in capitals."""

    kind: str
    """Kind of the token: a reserved word, an operator, or one of name, number, string and end."""
    value: str | int | float
    position: int


def tokens(text: str) -> Iterator[Token]:
    """Yield all tokens, then a token of kind "end". Raise InvalidSelectorError at invalid text."""
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _no_word(text, position)
        word = match.group()
        end = match.end()
        match match.lastgroup:
            case "space":
                pass
            case "word":
                yield _word(word, position)
            case "sign":
                yield Token(word, word, position)
            case "string":
                yield Token("string", word[1:-1].replace("''", "'"), position)
            case group:
                yield _number(word, position, group == "float", _TAIL.match(text, end))
        position = end
    yield Token("end", "", position)


def _word(word: str, position: int) -> Token:
    reserved = keyword(word)
    if reserved is not None:
        return Token(reserved, word, position)
    length = name_length(word)
    if length < len(word):
        raise _no_word(word, length, position)
    return Token("name", word, position)


def _number(digits: str, position: int, is_float: bool, tail: re.Match[str] | None) -> Token:
    # A number may be followed by a reserved word without a space, as in 5AND.
    if tail is not None and keyword(tail.group()) is None:
        raise InvalidSelectorError(f"{_shown(digits + tail.group())} is not a number", position)
    value = read_approximate(digits) if is_float else read_exact(digits)
    if value is None:
        if is_float:
            reason = "is out of range for its type"
        else:
            reason = "begins with 0 but is not an octal number" if digits[0] == "0" else "is out of range for a long"
        raise InvalidSelectorError(f"{_shown(digits)} {reason}", position)
    return Token("number", value, position)


def _no_word(text: str, index: int, offset: int = 0) -> InvalidSelectorError:
    character = text[index]
    reason = _HINTS.get(character)
    if reason is None:
        called = unicode_name(character, "unnamed")
        reason = f"character U+{ord(character):04X} ({called}) is not allowed here"
    return InvalidSelectorError(reason, offset + index)


def _shown(word: str) -> str:
    return word if len(word) <= 40 else f"{word[:20]}...{word[-10:]}"
