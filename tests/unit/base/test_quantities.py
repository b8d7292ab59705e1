"""Tests of counts and durations in texts: nothing prints "1 subscribers", and every duration reads `5s` and `500ms`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.base.quantities import counted, duration_text, seconds_of

ROOT = Path(__file__).parents[3]
SOURCES = ("fjm2", "fjm2d", "fjm2admin", "bench")
VERBS = """
announces answers arrives as begins belongs blocks breaks conflicts contains does drops ends exceeds exists
expects filters follows has hears holds is lacks leads lets looks memberships names needs netns queries
refuses reports runs says sends takes this towards uses was
"""
"""Words in s behind a value that is no count, but a name."""
UNITS = {"series", "bytes", "seconds", "bits", "words", "us", "ms", "s", "times"}
"""Units of a measure. One of them alone is rare, and a limit of many is never one."""


def counts(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each f-string in which a plural follows a value directly."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, text in zip(node.values, node.values[1:], strict=False):
            if not isinstance(value, ast.FormattedValue) or not isinstance(text, ast.Constant):
                continue
            found = re.match(r" (?:[A-Z]+ |round |window |open )?([a-z]+s|[A-Z]+s)\b(?!=|/s)", str(text.value))
            word = found[1] if found else ""
            is_measure = word in {*VERBS.split(), *UNITS} or word.endswith("ss")
            name = getattr(value.value, "attr", getattr(value.value, "id", ""))
            is_column = value.format_spec is not None and ">" in ast.unparse(value.format_spec)
            if word and not is_measure and not name.isupper() and not is_column:  # a constant is never one
                yield node.lineno, ast.unparse(node)


def test_no_text_writes_a_plural_behind_a_number() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for root in SOURCES
        for path in sorted((ROOT / root).rglob("*.py"))
        for line, text in counts(path.read_text())
    ]
    assert not found, "use fjm2.base.quantities.counted: " + "\n".join(found)


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "subscriber", "0 subscribers"),
        (1, "subscriber", "1 subscriber"),
        (2, "loss", "2 losses"),
        (1, "loss", "1 loss"),
        (1234, "day", "1,234 days"),
        (3, "reply", "3 replies"),
        (2, "batch", "2 batches"),
    ],
)
def test_a_count_has_its_noun(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5", 5.0),
        ("0.25", 0.25),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("5s", 5.0),
        ("500ms", 0.5),
        ("20 ms", 0.02),
        ("500us", 0.0005),
        ("2min", 120.0),
        ("1.5h", 5400.0),
        (" 5S ", 5.0),
        ("0", 0.0),
    ],
)
def test_a_duration_has_a_unit_or_is_in_seconds(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "5 parsecs", "5m", "-1", "1e999", "nan", "inf", "1,5s", "5s5s"])
def test_other_durations_are_refused_with_the_rule(text: str) -> None:
    with pytest.raises(ValueError, match=r"^expected seconds, or a number with a unit, as in 500ms, 5s, 2min or 1h$"):
        seconds_of(text)


@given(st.floats(1e-6, 1e7))
def test_a_duration_is_read_as_it_is_written(seconds: float) -> None:
    assert seconds_of(duration_text(seconds)) == pytest.approx(seconds, rel=1e-5)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.1, "100ms"), (5, "5s"), (90, "90s"), (120, "2min"), (3600, "1h"), (0, "0s"), (1.5, "1500ms")],
)
def test_a_duration_is_written_in_its_largest_whole_unit(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
