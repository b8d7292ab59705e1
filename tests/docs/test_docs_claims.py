"""Tests that lists in the docs are complete: options, settings, reports, and the exceptions that listeners get."""

import re
from dataclasses import fields
from pathlib import Path

import click
import pytest
from fjm2bench.runs.matrix import cells_of
from fjm2bench.runs.plan import load

from fjm2.bus import reports
from fjm2.bus.inbox import ConsumerSettings
from fjm2.commands import main
from fjm2.jms.settings import ClientSettings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = "\n".join(path.read_text() for path in sorted(DOCS.glob("*.md")))


def options_of(command: click.Command, name: str) -> dict[str, list[str]]:
    """Return the spellings of each option of a command and of those below it, by the command and the option."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        below = [(one, command.get_command(context, one)) for one in command.list_commands(context)]
        return {key: value for one, each in below if each for key, value in options_of(each, f"{name} {one}").items()}
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    return {f"{name} {one.opts[-1]}": one.opts for one in options}


OPTIONS = options_of(main, "fjm2")


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_is_documented(option: str) -> None:
    spellings = OPTIONS[option]
    assert any(re.search(rf"(?<![\w-]){one}(?![\w-])", PAGES) for one in spellings), f"no page of docs/ names {option}"


def sentence(page: str, begin: str) -> set[str]:
    """Return the inline code of a sentence that begins so."""
    text = (DOCS / page).read_text()
    found = re.search(re.escape(begin) + r"(.*?)\.\s", text, re.DOTALL)
    assert found, f"{page}: {begin!r}"
    return set(re.findall(r"`(\w+)`", found[1]))


def test_the_settings_of_clients_are_listed() -> None:
    settings = {one.name for kind in (ClientSettings, ConsumerSettings) for one in fields(kind)} - {"consumer"}
    assert sentence("jms.md", "Client-side settings can only be keyword arguments:") == settings


def test_both_pages_list_the_exceptions_that_listeners_get() -> None:
    there = sentence("jms.md", "receives problems that no call can report:")
    assert sentence("porting.md", "New exceptions, passed to the exception listener:") == there


def test_every_report_of_a_bus_is_in_the_table() -> None:
    page = (DOCS / "bus.md").read_text()
    table = page[page.index("## Reports") : page.index("## Transactions")]
    rows = {name for row in re.findall(r"^\| ([A-Z][\w, ]+) \|", table, re.MULTILINE) for name in row.split(", ")}
    kinds = reports.BusReport.__subclasses__()
    leaves = {kind.__name__ for kind in kinds for kind in (kind.__subclasses__() or [kind])}
    assert rows == leaves


@pytest.mark.parametrize(("plan", "said"), [("quick", r"the quick plan \((\d+) runs"), ("full", r"Its (\d+) runs")])
def test_the_numbers_of_runs_are_those_of_the_plans(plan: str, said: str) -> None:
    page = (DOCS / "benchmarks.md").read_text()
    cells = cells_of(load(ROOT / "bench" / "plans" / f"{plan}.toml"))
    assert re.findall(said, page) == [f"{len(cells)}"]
