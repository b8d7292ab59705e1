"""Tests that error_texts.txt has the text of every exception, so that a change of a message is seen in review.

`make texts`, or `python tests/unit/test_error_catalog.py`, writes the file. Read what changed in it with a user's eyes:
what happened, what was expected, what to do?
"""

import ast
import difflib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from syntax import nodes_of

pytestmark = pytest.mark.usefixtures("keeping_trees")

ROOT = Path(__file__).parents[2]
CATALOG = Path(__file__).with_name("error_texts.txt")
PACKAGES = ("fjm2", "fjm2d", "fjm2admin", "bench")
KINDS = re.compile(r"(\w+Error|ClickException|UsageError|BadParameter|Refusal|fail|not_a_destination)$")
"""Names of what makes an error: exceptions, and functions that return or raise one."""
NO_TEXT = {"ImportError", "NoiseError", "UnfitError", "StopIteration", "StopAsyncIteration", "AssertionError"}
"""Exceptions whose text nobody reads, or is not ours."""
ADVICE = """
The texts of exceptions are not what tests/unit/error_texts.txt says. Read the difference with a user's eyes:
what happened, what was expected, what to do? If it is as meant: `make texts`, and a file in docs/changes/ if users
notice.
"""
HEAD = "# The texts of all exceptions. Written by `make texts`; {} stands for a value.\n"


def texts_of(path: Path) -> Iterator[str]:
    """Yield each exception that a module makes, with its text."""
    for node in nodes_of(path):
        if not isinstance(node, ast.Call):
            continue
        name = _name_of(node.func)
        if not KINDS.match(name) or name in NO_TEXT:
            continue
        found = [text for text in map(_text, node.args) if text and " " in text]
        if found:
            yield f"{name}: {found[0]}"


def _name_of(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        owner = _name_of(function.value)
        return owner if function.attr == "of" and owner.endswith("Error") else function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _text(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = (str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        return "".join(parts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = _text(node.left), _text(node.right)
        return "".join(side if side is not None else "{}" for side in sides)
    if isinstance(node, ast.IfExp):
        return f"{_text(node.body)} | {_text(node.orelse)}"
    return None


@cache
def catalog() -> str:
    """Return the content of the file: the texts of each module, in alphabetical order."""
    parts = [HEAD]
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            texts = sorted({text.replace("\n", "\\n") for text in texts_of(path)})
            if texts:
                parts.append("\n".join([f"\n{path.relative_to(ROOT)}", *(f"    {text}" for text in texts), ""]))
    return "".join(parts)


def test_the_catalog_has_the_text_of_every_exception() -> None:
    texts = CATALOG.read_text().splitlines(), catalog().splitlines()
    difference = "\n".join(difflib.unified_diff(*texts, "error_texts.txt", "as they are now", lineterm="", n=2))
    if difference:
        pytest.fail(f"{ADVICE}\n{difference}", pytrace=False)


def test_texts_are_fragments_without_a_full_stop() -> None:
    """They stand behind the name of the program or the exception, and may be followed by more."""
    wrong = [line for line in catalog().splitlines() if line.startswith("    ") and re.search(r"[^.]\.$", line)]
    assert [line.strip() for line in wrong if not line.endswith("...")] == []


if __name__ == "__main__":
    CATALOG.write_text(catalog())
