"""What the documentation shows works: its programs run, and its commands have the options that it names."""

import ast
import contextlib
import importlib.metadata
import itertools
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click
import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
DEADLINE_S = 30.0
PORT = "5740"
"""The port of every program; the tests give each section another."""
OTHERS = {
    ".",
    "cd",
    "chmod",
    "curl",
    "export",
    "git",
    "install",
    "ip",
    "journalctl",
    "pip",
    "python",
    "python3",
    "sysctl",
    "systemctl",
    "tcpdump",
    "useradd",
}
"""Commands that are not ours."""


class Block(NamedTuple):
    """A block of code, and where it is."""

    page: str
    section: str
    language: str
    code: str

    def __str__(self) -> str:
        return f"{self.page}: {self.section}"


def blocks_of(page: Path) -> Iterator[Block]:
    """The blocks that are fenced, and those that are indented."""
    section, language, fenced = page.stem, "", False
    code: list[str] = []
    for line in page.read_text().splitlines():
        if line.startswith("```"):
            if fenced:
                yield Block(page.name, section, language, "\n".join(code) + "\n")
            fenced, language, code = not fenced, line[3:].strip(), []
        elif fenced:
            code.append(line)
        elif line.startswith("#"):
            section = line.lstrip("# ")
        elif line.startswith("    ") and page.name == "README.md":
            yield Block(page.name, section, "sh", line[4:] + "\n")


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
PROGRAMS = [block for block in PYTHON if block.code.startswith(("import ", "from "))]
SECTIONS = sorted({(block.page, block.section) for block in PROGRAMS})
SHELLS = ("", "bash", "sh", "shell")
LINES = [line for block in BLOCKS if block.language in SHELLS for line in block.code.splitlines()]


def test_there_is_something_to_test() -> None:
    assert len(PROGRAMS) >= 10
    assert len(LINES) >= 8


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_all_python_can_be_compiled(block: Block) -> None:
    compile(block.code, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def bound_sockets(port: int) -> int:
    """How many UDP sockets of this host have a port."""
    return len(re.findall(rf"^ *\d+: [0-9A-F]+:{port:04X} ", Path("/proc/net/udp").read_text(), re.MULTILINE))


@pytest.mark.skipif(not Path("/proc/net/udp").exists(), reason="tells which programs listen, on Linux")
@pytest.mark.parametrize(("page", "section"), SECTIONS)
def test_the_programs_of_a_section_run_together(page: str, section: str, tmp_path: Path, port: int) -> None:
    """In the order in which they are shown: receivers come first."""
    programs = [block.code for block in PROGRAMS if (block.page, block.section) == (page, section)]
    with contextlib.ExitStack() as started:
        running = []
        for number, code in enumerate(programs):
            assert "Session(" not in code or '"127.0.0.1"' in code  # nothing leaves this host
            path = tmp_path / f"program{number}.py"
            path.write_text(re.sub(rf"\b{PORT}\b", str(port), code))
            before = bound_sockets(port)
            process = start(path)
            started.enter_context(process)
            started.callback(process.kill)
            running.append(process)
            wait_until_bound(process, port, before)
        for process in running:
            out, err = process.communicate(timeout=DEADLINE_S)
            assert (process.returncode, err) == (0, ""), out
            assert "Traceback" not in out


def start(path: Path) -> subprocess.Popen[str]:
    argv = [sys.executable, "-W", "error", path.name]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=path.parent)


def wait_until_bound(process: subprocess.Popen[str], port: int, before: int) -> None:
    """Until the program listens, or has come to its end."""
    deadline = time.monotonic() + DEADLINE_S
    while bound_sockets(port) <= before and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@cache
def help_of(*command: str) -> str:
    """What a command says of itself."""
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=DEADLINE_S, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("line", LINES)
def test_commands_and_their_options_exist(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(line.removeprefix("$ ").removesuffix("&"), comments=True)
    monkeypatch.chdir(tmp_path)
    for word in words:
        if re.fullmatch(r"\w+\.\w+", word):  # a file of the reader's
            Path(word).touch()
    for command in split_at(words, "&&"):
        check_command(command)


def split_at(words: list[str], separator: str) -> Iterator[list[str]]:
    part: list[str] = []
    for word in words:
        if word == separator:
            yield part
            part = []
        else:
            part.append(word)
    yield part


def check_command(words: list[str]) -> None:
    while words and re.fullmatch(r"\w+=\S*", words[0]):  # variables of the environment
        words = words[1:]
    if not words:
        return
    if words[0] == "sudo":
        words = words[3:] if words[1] == "-u" else words[1:]
    name, *rest = words
    name = os.path.basename(name)
    if name == "make":
        makefile = (ROOT / "Makefile").read_text()
        assert all(re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE) for target in rest if "=" not in target)
    elif name in ("python", "python3") and rest and rest[0].startswith("examples/"):
        check_options(help_of(sys.executable, rest[0]), rest[1:])
    elif name.startswith("fjm2"):
        command = [str(Path(sys.executable).with_name(name))]
        while rest and f"\n  {rest[0]} " in help_of(*command).partition("Commands:")[2]:
            command.append(rest.pop(0))
        check_options(help_of(*command), rest)
        check_arguments(name, rest_of(words))
    elif name == "install":
        assert rest[-2].endswith((".toml", ".key")) or (ROOT / rest[-2]).exists(), rest[-2]
    else:
        assert name in OTHERS, f"{name} is not known here"


def rest_of(words: list[str]) -> list[str]:
    """What the command itself gets to see."""
    return list(itertools.takewhile(lambda word: word not in ("<", ">", "|", "&"), words[1:]))


def check_arguments(program: str, words: list[str]) -> None:
    """The command takes them, by its own parser."""
    (entry,) = importlib.metadata.entry_points(group="console_scripts", name=program)
    command = entry.load()
    while isinstance(command, click.Group) and words and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    if not {"-h", "--help", "--version"} & set(words):
        command.make_context(program, words).close()


def check_options(text: str, words: list[str]) -> None:
    """All of the options are explained."""
    for word in words:
        if word.startswith("-"):
            assert re.search(rf"(?<![\w-]){re.escape(word.partition('=')[0])}(?![\w-])", text), word


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            assert "://" in target or (page.parent / target).exists(), f"{page.name}: {target}"


def test_files_named_in_the_docs_exist() -> None:
    for page in PAGES:
        for name in re.findall(r"`((?:examples|tests|docs)/[\w/]+\.\w+)`", page.read_text()):
            assert (ROOT / name).exists(), f"{page.name}: {name}"
