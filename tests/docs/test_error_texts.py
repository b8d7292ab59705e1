"""Tests of what users are told.

Messages quoted in docs/troubleshooting.md are those of the code, so that a search finds them. provoked_errors.txt has
the answer to each of the common mistakes.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import provocations
from doc_blocks import ROOT

SOURCES = ("fjm2", "fjm2d", "fjm2admin")
COMMANDS = ("fjm2 ", "fjm2d ", "fjm2admin ", "sysctl ", "ip ", "systemctl ")
OTHERS = {"cannot join ... No such device"}
"""Quoted messages whose text comes mostly from the kernel."""
_WORDS = 3
"""Fewest words of a text in the code that is compared with quotes.

A quote must have more words than that. Shorter texts could match by chance.
"""


def quoted() -> list[str]:
    """Return the messages that the page quotes: inline code of several words that is not a command."""
    page = re.sub(r"```.*?```", "", (ROOT / "docs" / "troubleshooting.md").read_text(), flags=re.DOTALL)
    spans = [double or single for double, single in re.findall(r"``(.+?)``(?!`)|`([^`]+)`", page)]
    return sorted({span.strip() for span in spans if span.count(" ") > _WORDS and not span.startswith(COMMANDS)})


@cache
def texts() -> re.Pattern[str]:
    """Return a pattern that matches every message in the code.

    Wildcards stand for the values that a message includes.
    """
    found = {text for root in SOURCES for path in (ROOT / root).rglob("*.py") for text in texts_of(path.read_text())}
    page = "\n".join(path.read_text() for path in (ROOT / "fjm2admin" / "page").glob("*.js"))
    found |= {re.escape(text) for text in re.findall(r"[\"`]([A-Z][^\"`$]+)", page)}
    return re.compile("|".join(text for text in found if len(re.findall(r"[a-z]+", text)) >= _WORDS))


def texts_of(source: str) -> Iterator[str]:
    nodes = list(ast.walk(ast.parse(source)))
    parts = {part for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        match node:
            case ast.Constant(value=str(text)) if node not in parts:
                yield re.escape(text)
            case ast.JoinedStr(values=values):
                text = "".join(re.escape(str(one.value)) if isinstance(one, ast.Constant) else ".+?" for one in values)
                yield re.sub(r"^(\.\+\?)+(:\\ )?|(\.\+\?)+$", "", text)


def test_quoted_messages_exist_in_the_code() -> None:
    messages = quoted()
    assert len(messages) > 40
    assert {message for message in messages if not texts().search(message)} <= OTHERS


PROVOKED = Path(__file__).with_name("provoked_errors.txt")


def provoked() -> str:
    """Return what users are told of the mistakes in provocations.py."""
    parts = ["# Mistakes, and what users are told of them. Written by `make texts`: read changes as a user.\n"]
    for mistake, text in provocations.told():
        parts.append("\n".join([f"\n{mistake}", *(f"    {line}" for line in text.splitlines()), ""]))
    return "".join(parts)


def test_mistakes_are_told_as_reviewed() -> None:
    found = provoked()
    assert "NO ERROR" not in found
    print(found)
    assert found == PROVOKED.read_text(), "run `make texts`, and read the difference as a user does"


def test_texts_name_nothing_that_users_did_not_write() -> None:
    """Defaults, internal names and None are no help."""
    told = [line for line in PROVOKED.read_text().splitlines() if line.startswith("    ")]
    assert not [
        line
        for line in told
        if re.search(r"rate_bps=none|interface=None|flow=min|sync=current|<object |0x[0-9a-f]{8}", line)
    ]
    assert not [line for line in told if len(line) > 600]


if __name__ == "__main__":
    PROVOKED.write_text(provoked())
