"""The words of a selector: names, literals, operators, and where each begins."""

import re
from collections.abc import Iterator
from typing import NamedTuple
from unicodedata import name as unicode_name

from fjm2.messages.errors import InvalidSelectorError

from .literals import read_approximate, read_exact
from .names import keyword, name_length

# Possessive throughout: nothing is tried twice, however long the text. Every character beyond ASCII that may stand
# outside a string belongs to a name.
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
    "'": "the string that begins here is never closed",
    '"': "strings stand in single quotes",
    "`": "names stand without quotes",
    "!": "unequal is written <>, and not is written NOT",
    "&": "and is written AND",
    "|": "or is written OR",
    "%": "there is no modulo",
    ".": "names have no dots",
    ";": "there is nothing to separate by a semicolon",
    "#": "there are no comments",
}


class Token(NamedTuple):
    """One word. Of reserved words and operators the kind is the word itself, in capitals."""

    kind: str
    """Otherwise it is name, number, string or end."""
    value: str | int | float
    position: int


def tokens(text: str) -> Iterator[Token]:
    """All words, then an end. Raises InvalidSelectorError where there is none."""
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
    # A number may end where a reserved word begins, as in 5AND.
    if tail is not None and keyword(tail.group()) is None:
        raise InvalidSelectorError(f"{_shown(digits + tail.group())} is no number", position)
    value = read_approximate(digits) if is_float else read_exact(digits)
    if value is None:
        if is_float:
            reason = "is out of the range of its type"
        else:
            reason = "is no octal number, as its first 0 says" if digits[0] == "0" else "is out of the range of a long"
        raise InvalidSelectorError(f"{_shown(digits)} {reason}", position)
    return Token("number", value, position)


def _no_word(text: str, index: int, offset: int = 0) -> InvalidSelectorError:
    character = text[index]
    reason = _HINTS.get(character)
    if reason is None:
        called = unicode_name(character, "unnamed")
        reason = f"character U+{ord(character):04X} ({called}) has no meaning here"
    return InvalidSelectorError(reason, offset + index)


def _shown(word: str) -> str:
    return word if len(word) <= 40 else f"{word[:20]}...{word[-10:]}"
