"""Checks of the values in a plan. Each takes a value and its place in the file, and raises PlanError if it is wrong."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fjm2.errors import ConfigError

from ..rate import rate_bps

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+-]{0,31}")


class PlanError(Exception):
    """The plan has a mistake. The message names the place and the key, and says what is allowed."""


def check_keys(where: str, table: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raise PlanError for a key that is not known."""
    for key in table:
        if key not in known:
            raise PlanError(f"{where}: {key}: is unknown; expected some of {', '.join(known)}")


class Text:
    """Check for a line of text."""

    def __call__(self, value: object, where: str) -> str:
        if not isinstance(value, str) or "\n" in value:
            raise PlanError(f"{where}: {value!r}: expected a line of text in quotes")
        return value


class Name:
    """Check for a word that may be part of the id of a run."""

    def __call__(self, value: object, where: str) -> str:
        if not isinstance(value, str) or not _NAME.fullmatch(value):
            raise PlanError(f"{where}: {value!r}: expected letters, digits, + and -, at most 32")
        return value


class Choice:
    """Check for one of several texts."""

    def __init__(self, *choices: str) -> None:
        self._choices = choices

    def __call__(self, value: object, where: str) -> str:
        if value not in self._choices:
            raise PlanError(f"{where}: {value!r}: expected one of {', '.join(self._choices)}")
        return str(value)


class Integer:
    """Check for a whole number in a range."""

    def __init__(self, least: int, most: int) -> None:
        self._least, self._most = least, most

    def __call__(self, value: object, where: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not self._least <= value <= self._most:
            raise PlanError(f"{where}: {value!r}: expected a whole number from {self._least} to {self._most}")
        return value


class Number:
    """Check for a number in a range."""

    def __init__(self, least: float, most: float) -> None:
        self._least, self._most = least, most

    def __call__(self, value: object, where: str) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not self._least <= float(value) <= self._most:  # type: ignore[arg-type]
            raise PlanError(f"{where}: {value!r}: expected a number from {self._least:g} to {self._most:g}")
        return float(value)  # type: ignore[arg-type]


class Boolean:
    """Check for true or false."""

    def __call__(self, value: object, where: str) -> bool:
        if not isinstance(value, bool):
            raise PlanError(f"{where}: {value!r}: expected true or false")
        return value


class Rate:
    """Check for a rate: "none", a text such as "100mbit", or bits per second."""

    def __call__(self, value: object, where: str) -> float | None:
        try:
            rate = rate_bps(str(value)) if isinstance(value, str | int) and not isinstance(value, bool) else math.nan
        except ConfigError:
            rate = math.nan
        if rate is not None and not 1000 <= rate < math.inf:
            raise PlanError(f'{where}: {value!r}: expected "none", or a rate from 1kbit up, as in "100mbit"')
        return rate


class List:
    """Check for a list of one or more values. Duplicates are dropped."""

    def __init__(self, item: Callable[[object, str], Any]) -> None:
        self._item = item

    def __call__(self, value: object, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list) or not value:
            raise PlanError(f"{where}: {value!r}: expected a list of one or more, in brackets")
        return tuple(dict.fromkeys(self._item(part, where) for part in value))
