"""Counts, durations and excerpts as people write and read them, for all commands, messages and settings."""

import contextlib
import math
import os
import re
from enum import Enum
from types import NoneType
from typing import Any, Final, get_args, get_type_hints

from .errors import ConfigError

SECONDS_EXPECTED: Final = "seconds, or a number with a unit, as in 500ms, 5s, 2min or 1h"
"""Rule for durations, for error messages and help texts."""

UNIT_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
"""Units of durations, in seconds. A number without a unit is in seconds."""

_KIND_TEXTS: Final[dict[type[Any], str]] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a string",
    NoneType: "None",
}
_SHOWN_CHARACTERS_MAX: Final = 60
"""Length to which an error shows a value of a wrong type."""

_DURATION: Final = re.compile(r"([0-9]+\.?[0-9]*(?:e[+-]?[0-9]+)?|\.[0-9]+)\s*([a-z]*)", re.IGNORECASE)


def seconds_of(text: str) -> float:
    """Return the seconds of a duration, such as `500ms`, `5s`, `2min` or `1h`. A number without a unit is in seconds.

    Raise ValueError, with what was expected, if the text is no duration.
    """
    match = _DURATION.fullmatch(text.strip())
    unit = UNIT_SECONDS.get((match[2] or "s").lower()) if match else None
    if match is None or unit is None:
        raise ValueError(f"expected {SECONDS_EXPECTED}")
    # Dividing by 1000 rounds once, as the literal 0.02 does; multiplying by 1e-3 would round twice.
    seconds = float(match[1]) * unit if unit >= 1 else float(match[1]) / round(1 / unit)
    if not math.isfinite(seconds):
        raise ValueError(f"expected {SECONDS_EXPECTED}")
    return seconds


def seconds_setting(name: str, value: object) -> float:
    """Return the seconds of a setting: a number, or a duration as `seconds_of` reads it. Raise ConfigError with the
    name, the value and what was expected."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return seconds_of(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise ConfigError(f"{name}={value!r}: expected {SECONDS_EXPECTED}")


def check_count(name: str, value: object, least: int) -> None:
    """Raise ConfigError unless a setting is a whole number of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{name}={value!r}: expected a whole number, {least} or more")


def check_setting(name: str, value: object, *kinds: type[Any]) -> None:
    """Raise ConfigError unless a setting is of one of these types. A whole number is a float as well; a bool is neither
    a whole number nor a float."""
    if isinstance(value, bool):
        is_fit = bool in kinds
    else:
        is_fit = isinstance(value, (*kinds, int) if float in kinds else kinds)
    if not is_fit:
        shown = shortened(repr_of(value), _SHOWN_CHARACTERS_MAX)
        raise ConfigError.of(name, shown, ", or ".join(_kind_text(kind) for kind in kinds))


def check_fields(settings: object) -> None:
    """Raise ConfigError unless each field of a dataclass has a value of the type that the class declares. A path in a
    field of text becomes its text."""
    for name, hint in get_type_hints(type(settings)).items():
        kinds, value = get_args(hint) or (hint,), getattr(settings, name)
        if str in kinds and isinstance(value, os.PathLike):
            object.__setattr__(settings, name, os.fspath(value))
        else:
            check_setting(name, value, *kinds)


def _kind_text(kind: type[Any]) -> str:
    if issubclass(kind, Enum):
        *others, last = map(str, kind)
        return f"{', '.join(others)} or {last}"
    article = "an" if kind.__name__[0] in "AEIOU" else "a"
    return _KIND_TEXTS.get(kind, f"{article} {kind.__name__}")


def node_text(node_id: int) -> str:
    """Return a node id as it stands in sentences: `0x0000002a`. Tables have the same eight digits without `0x`."""
    return f"{node_id:#010x}"


def duration_text(seconds: float) -> str:
    """Return a duration as `seconds_of` reads it, in the largest unit in which it is whole: `500ms`, `90s`, `2min`."""
    for unit, size in reversed(UNIT_SECONDS.items()):
        amount = seconds / size
        if amount >= 1 and math.isclose(amount, round(amount), rel_tol=1e-9):
            return f"{round(amount)}{unit}"
    return f"{seconds:g}s"


def one_line(text: str) -> str:
    """Return a text with line breaks and control characters escaped. Strangers may have written parts of it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shortened(text: str, characters_max: int) -> str:
    """Return a text on one line, cut to a length. Strangers may have written it, and it may be long."""
    return one_line(text if len(text) <= characters_max else f"{text[:characters_max]}...")


def repr_of(value: object) -> str:
    """Return the `repr` of an object of the application or, if that raises, the name of its class."""
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__name__}>"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 subscriber`, `2 subscribers`, `3 replies`, `1,234 losses`."""
    return f"{number:,} {noun if number == 1 else _plural(noun)}"


def _plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"
