"""Identifiers: valid names of properties, in selectors and in messages.

Letters are those of Java, by Unicode category. Python's own rules differ: `str.isidentifier` accepts "·" and "℘" but no
currency signs, and `\\w` of regular expressions accepts "²" but no combining marks.
"""

import re
from functools import lru_cache
from unicodedata import category

RESERVED = frozenset({"NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE", "NULL", "TRUE", "FALSE"})
HEADERS = frozenset(
    {"JMSDeliveryMode", "JMSPriority", "JMSMessageID", "JMSTimestamp", "JMSCorrelationID", "JMSType", "JMSDestination"}
)
"""Headers that a selector may use. JMS does not allow JMSDestination; consumers of a pattern need it."""
SET_ON_RECEIPT = frozenset({"JMSXDeliveryCount", "JMSXConsumerTXID", "JMSXRcvTimestamp"})
"""Properties that have no value yet at the time when messages are selected."""

_KEPT_MAX = 1024
"""Greatest number of names whose check is remembered, since messages repeat the same few names."""
_FIRST = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"})
_LATER = _FIRST | {"Nd", "Mn", "Mc"}
_PLAIN = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*+")


def keyword(word: str) -> str | None:
    """Return the reserved word that `word` is, in capitals; None if it is not reserved. Case does not matter."""
    # ASCII only: the capitals of "ſ" and "ı" are ASCII letters, and so is the small letter of the Kelvin sign.
    upper = word.upper()
    return upper if upper in RESERVED and word.isascii() else None


def name_length(text: str) -> int:
    """Return the number of characters at the start of a text that form a name. Reserved words count as names."""
    plain = _PLAIN.match(text)
    length = plain.end() if plain else 0
    while length < len(text) and category(text[length]) in (_LATER if length else _FIRST):
        length += 1
    return length


@lru_cache(_KEPT_MAX)
def is_identifier(text: str) -> bool:
    """Return True if a property may have this name."""
    return bool(text) and name_length(text) == len(text) and keyword(text) is None


def is_usable(name: str) -> bool:
    """Return True if a selector may use this name. Names that begin with JMS are allowed only for properties and some
    headers."""
    return not name.startswith("JMS") or name.startswith(("JMSX", "JMS_")) or name in HEADERS
