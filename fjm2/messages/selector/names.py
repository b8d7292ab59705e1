"""Identifiers: what names properties may have, in selectors and in messages.

The letters are those of Java, told by Unicode category. Python's own rules differ: `str.isidentifier` takes "·" and "℘"
and no currency signs, and a regular expression's `\\w` takes "²" and no combining marks.
"""

import re
from functools import lru_cache
from unicodedata import category

RESERVED = frozenset({"NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE", "NULL", "TRUE", "FALSE"})
HEADERS = frozenset({"JMSDeliveryMode", "JMSPriority", "JMSMessageID", "JMSTimestamp", "JMSCorrelationID", "JMSType"})
"""The headers that a selector may ask for."""
SET_ON_RECEIPT = frozenset({"JMSXDeliveryCount", "JMSXConsumerTXID", "JMSXRcvTimestamp"})
"""Properties that have no value yet when messages are selected."""

_KEPT = 1024
"""Messages have the same few names again and again."""
_FIRST = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"})
_LATER = _FIRST | {"Nd", "Mn", "Mc"}
_PLAIN = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*+")


def keyword(word: str) -> str | None:
    """The reserved word that this one is, in capitals, whatever its case."""
    # Only ASCII: "ſ" and "ı" have capitals that are, the Kelvin sign has a small letter that is.
    upper = word.upper()
    return upper if upper in RESERVED and word.isascii() else None


def name_length(text: str) -> int:
    """So many characters at the start of a text can be a name, reserved words included."""
    plain = _PLAIN.match(text)
    length = plain.end() if plain else 0
    while length < len(text) and category(text[length]) in (_LATER if length else _FIRST):
        length += 1
    return length


@lru_cache(_KEPT)
def is_identifier(text: str) -> bool:
    """Whether a property may have this name."""
    return bool(text) and name_length(text) == len(text) and keyword(text) is None


def is_usable(name: str) -> bool:
    """Whether a selector may ask for it: of the names of JMS, some headers and the properties only."""
    return not name.startswith("JMS") or name.startswith(("JMSX", "JMS_")) or name in HEADERS
