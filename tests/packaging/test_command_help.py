"""Tests of every command of all programs.

The help of each command has an example that parses. Errors take one line. Commands with data offer JSON.
"""

import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from click.testing import CliRunner

from fjm2.programs import MODULES

ROOT = Path(__file__).parents[2]
PROGRAMS: dict[str, click.Group] = {name: importlib.import_module(module).main for name, module in MODULES.items()}
SUMMARY_MAX = 130
ENVIRONMENT = {
    "COLUMNS": "200",
    "FJM2_URI": "fjm2://?interface=127.0.0.1&ttl=0",
    "FJM2D_CONFIG": None,
    "FJM2ADMIN_CONFIG": None,
}
BAD = ("\0(", "")
"""Bad values for options. Every type that restricts its values refuses at least one of them."""

NO_DATA = {
    "fjm2 pub": "sends; says on stderr how much",
    "fjm2 reply": "answers; what is asked is for the command that makes the answers",
    "fjm2 completion": "prints a script",
    "fjm2d run": "a service; its log is JSON",
    "fjm2d keygen": "prints the public key alone",
    "fjm2admin run": "a service; its log is JSON",
    "fjm2admin token create": "prints the token alone",
    "fjm2admin token revoke": "says on stderr that it is done",
    "fjm2admin nodes remove": "says on stderr that it is done",
    "fjm2-bench run": "writes traces and results, which are JSON lines",
    "fjm2-bench traces ingest": "fills the warehouse; says how it goes",
    "fjm2-bench traces aggregate": "fills the warehouse; says how it goes",
    "fjm2-bench traces all": "writes a report with CSV files; says how it goes, and where",
    "fjm2-bench traces stream": "fills the warehouse; says how it goes",
    "fjm2-bench traces generate": "writes traces; says how many",
    "fjm2-bench traces report": "writes a report with CSV files; prints where",
}
"""Commands without the option --json, with the reason."""


class Found(NamedTuple):
    """A command, and the words of the command line that lead to it."""

    words: tuple[str, ...]
    command: click.Command

    def __str__(self) -> str:
        return " ".join(self.words)

    def invoke(self, *arguments: str) -> tuple[int, str]:
        program, *path = self.words
        result = CliRunner(env=ENVIRONMENT).invoke(PROGRAMS[program], [*path, *arguments], prog_name=program)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
        return result.exit_code, result.output


def walk(found: Found) -> Iterator[Found]:
    yield found
    if isinstance(found.command, click.Group):
        for name, command in found.command.commands.items():
            yield from walk(Found((*found.words, name), command))


COMMANDS = [one for name, group in PROGRAMS.items() for one in walk(Found((name,), group))]
every_command = pytest.mark.parametrize("found", COMMANDS, ids=str)


@every_command
def test_help_has_a_summary_and_says_which_variables_count(found: Found) -> None:
    code, text = found.invoke("--help")
    assert (code, text) == found.invoke("-h")
    assert code == 0
    summary = re.split(r"(?<=\.)\s", (found.command.help or "").strip())[0]
    assert 10 < len(summary) <= SUMMARY_MAX, summary
    assert summary.endswith("."), summary
    for one in found.command.params:
        if isinstance(one, click.Option) and not one.hidden:
            assert one.help, one.name
            variables = [one.envvar] if isinstance(one.envvar, str) else one.envvar or []
            assert all(variable in text for variable in variables), one.name


@every_command
def test_examples_parse(found: Found) -> None:
    lines = list(example_lines(found.command))
    assert lines, "no example"
    own = [words for line in lines for words in simple_commands(line) if words[0] in PROGRAMS]
    assert any(words[: len(found.words)] == list(found.words) for words in own), lines
    for words in own:
        parse(words)


def example_lines(command: click.Command) -> Iterator[str]:
    """Yield the lines of all paragraphs in a command's help that begin with "Example"."""
    for paragraph in (command.help or "").replace("\b", "").split("\n\n"):
        head, _, rest = paragraph.strip().partition(":")
        if re.fullmatch("Examples?", head):
            yield from (line.strip() for line in rest.splitlines() if line.strip())


def simple_commands(line: str) -> Iterator[list[str]]:
    """Yield the simple commands of a line, each as its words, without assignments and redirections."""
    plain = re.sub(r'"?\$\((.*?)\)"?', r"; \1 ;", line)
    lexer = shlex.shlex(plain, posix=True, punctuation_chars=";&|<>")
    lexer.whitespace_split = True
    words: list[str] = []
    is_file = False
    for word in [*lexer, ";"]:
        if set(word) <= set(";&|"):
            while words and re.fullmatch(r"\w+=.*", words[0]):
                del words[0]
            if words:
                yield words
            words = []
        elif set(word) <= set("<>"):
            is_file = True
        elif is_file:
            is_file = False
        else:
            words.append(word)


def parse(words: list[str]) -> None:
    """Parse the words of a command with click's own parser, and each value with its type.

    Files that the words name need not exist.
    """
    command: click.Command = PROGRAMS[words[0]]
    rest = words[1:]
    context = click.Context(command, info_name=words[0], **command.context_settings)
    while isinstance(command, click.Group) and rest and rest[0] in command.commands:
        command = command.commands[rest.pop(0)]
        context = click.Context(command, context, **command.context_settings)
    values, left, _ = command.make_parser(context).parse_args(rest)
    assert not left, f"{words}: {left} is too much"
    for one in command.params:
        value = values.get(one.name or "")
        assert not one.required or value, f"{words}: {one.name} is missing"
        if isinstance(value, (str, list, tuple)) and not isinstance(one.type, click.Path):
            one.type_cast_value(context, value)


@every_command
def test_errors_are_a_line(found: Found) -> None:
    assert_is_one_error(found, "--no-such-option")
    takes_words = any(isinstance(one, click.Argument) for one in found.command.params)
    if isinstance(found.command, click.Group) and not takes_words:
        assert_is_one_error(found, "no-such-command")
    for one in found.command.params:
        if isinstance(one, click.Option) and is_restricted(one):
            told = assert_is_one_error(found, one.opts[0], refused_by(one.type))
            assert any(f"'{name}'" in told for name in one.opts), told


def is_restricted(option: click.Option) -> bool:
    return not option.is_flag and not isinstance(option.type, (click.types.StringParamType, click.Path))


def refused_by(kind: click.ParamType[object]) -> str:
    for text in BAD:
        try:
            kind.convert(text, None, None)
        except click.BadParameter:
            return text
    raise AssertionError(f"{kind} takes everything")


def assert_is_one_error(found: Found, *arguments: str) -> str:
    code, text = found.invoke(*arguments)
    assert code == 2, text
    usage, _, error = text.partition("\n\nError: ")
    assert usage.startswith("Usage: "), text
    told, *marked = error.splitlines()
    assert not marked or (marked[-1].strip() == "^" and len(marked) == 2), text
    return told


@every_command
def test_every_command_with_data_offers_json(found: Found) -> None:
    is_mere_group = isinstance(found.command, click.Group) and not found.command.invoke_without_command
    has_json = any("--json" in one.opts for one in found.command.params)
    assert has_json + (str(found) in NO_DATA) + is_mere_group == 1


def test_nothing_is_excused_that_is_not_there() -> None:
    assert set(NO_DATA) <= set(map(str, COMMANDS))


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_tell_their_version(program: str) -> None:
    from fjm2 import __version__

    assert Found((program,), PROGRAMS[program]).invoke("--version") == (0, f"{program}, version {__version__}\n")


def test_every_environment_variable_is_documented() -> None:
    told = "\n".join(found.invoke("--help")[1] for found in COMMANDS)
    sources = [path.read_text() for folder in ("fjm2", "fjm2d", "fjm2admin") for path in (ROOT / folder).rglob("*.py")]
    variables = {name for source in sources for name in re.findall(r'"(FJM2[A-Z]*_[A-Z_]*[A-Z])"', source)}
    assert len(variables) > 5
    assert not {name for name in variables if name not in told}
