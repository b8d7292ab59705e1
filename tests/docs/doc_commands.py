"""Checks of command lines in the documentation that the tests do not run. They must be valid."""

import contextlib
import importlib
import importlib.metadata
import os
import re
import shlex
from itertools import pairwise

import click
from doc_blocks import ROOT

from fjm2.programs import MODULES

OTHERS = frozenset(
    [
        "apt",
        "apt-get",
        "chown",
        "curl",
        "docker",
        "git",
        "ip",
        "journalctl",
        "mkdocs",
        "nft",
        "pipx",
        "sysctl",
        "systemctl",
        "tcpdump",
        "useradd",
    ]
)
"""Programs other than FJM2's whose arguments are not checked."""
_SEPARATORS = {"&&", "||", "|", ";", "&"}
_THIS_HOST = ("http://127.0.0.1:", "http://localhost:")
_REDIRECTIONS = {"<", ">", ">>", "2>"}


def is_safe(line: str) -> bool:
    """Return True if the tests may run a command line.

    The line must run an FJM2 command, a Python program of the page, or a request to this host. It may name only files
    below the folder where it runs, and must not start another command.
    """
    words = _words(line.removesuffix("&"))
    while words and (re.fullmatch(r"\w+=.*", words[0]) or words[:2] == ["sudo", "fjm2"]):
        words = words[1:]
    if not words or _SEPARATORS & set(words) or re.search(r"\$\(|`|\.\.", line):
        return False
    name, *rest = words
    if any(re.match(r"(--?[\w-]+=|@)?[/~]", word) for word in rest):
        return False
    if any(before.startswith(">") and "/" in after for before, after in pairwise(rest)):
        return False
    if name == "chmod":
        return all(re.fullmatch(r"[\w.]+", word) for word in rest)
    if name in ("fjm2", "fjm2d", "fjm2admin", "fjm2-bench", ".venv/bin/fjm2"):
        return True
    if name == "python":
        return bool(rest) and re.fullmatch(r"(examples/)?\w+\.py", rest[0]) is not None
    addresses = [word for word in rest if "://" in word]
    return name == "curl" and bool(addresses) and all(one.startswith(_THIS_HOST) for one in addresses)


def check_line(line: str) -> None:
    """Check that a command line is valid.

    Its programs must exist, as well as the subcommands and options of FJM2, and files of the repository.
    """
    command: list[str] = []
    for word in [*_words(line), ";"]:
        if word in _SEPARATORS:
            check_command(command)
            command = []
        else:
            command.append(word)


def _words(line: str) -> list[str]:
    reader = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    reader.whitespace_split = True
    return list(reader)


def check_command(words: list[str]) -> None:
    """Check a simple command: a part of a line without pipes or separators."""
    words = _without_redirections(words)
    while words and (re.fullmatch(r"\w+=.*", words[0]) or words[0] in ("sudo", "export")):
        words = words[1:]
        if words[:1] == ["-u"]:
            words = words[2:]
    if not words or words[0] in (".", "source", "cd", "nice"):
        return
    name, *rest = words
    name = os.path.basename(name)
    if name.startswith("fjm2"):
        check_own(name, rest)
    else:
        assert name in OTHERS or name in _CHECKS, f"{name} is not known here"
        if name in _CHECKS:
            _CHECKS[name](rest)


def _without_redirections(words: list[str]) -> list[str]:
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in _REDIRECTIONS:
            skip = True
        else:
            kept.append(word)
    return kept


def check_own(program: str, words: list[str]) -> None:
    """Check the arguments of an FJM2 command with the command's own parser."""
    command = importlib.import_module(MODULES[program]).main
    words = list(words)
    above = None
    while isinstance(command, click.Group) and words and words[0] in command.commands:
        # A command caches its help option, and takes the option -h from the context above it.
        above = click.Context(command, above, **command.context_settings)
        command = command.commands[words.pop(0)]
    takes_words = any(isinstance(one, click.Argument) for one in command.params)
    is_known = not isinstance(command, click.Group) or takes_words or not words or words[0].startswith("-")
    assert is_known, f"{program} {words[0]}"
    if {"-h", "--help", "--version"} & set(words):
        return
    with contextlib.suppress(click.exceptions.NoArgsIsHelpError):
        command.make_context(program, words, above).close()


def _check_targets(words: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for word in words:
        name, is_setting, _ = word.partition("=")
        form = rf"^{re.escape(name)} \??:?=" if is_setting else rf"^{re.escape(name)}:"
        assert re.search(form, makefile, re.MULTILINE), f"make {word}"


def _check_extras(words: list[str]) -> None:
    """Check that the package has all extras that a pip command names."""
    known = set(importlib.metadata.metadata("fjm2").get_all("Provides-Extra") or ())
    for word in words:
        for names in re.findall(r"(?:fjm2|\.)\[([\w,]+)\]", word):
            assert set(names.split(",")) <= known, f"{word}: expected some of {sorted(known)}"


def _check_program(words: list[str]) -> None:
    """Check that the program that `python` is to run exists in the repository."""
    if words and words[0].startswith(("examples/", "tests/", "bench/")):
        assert (ROOT / words[0]).exists(), words[0]
    if words[:2] == ["-m", "pip"]:
        _check_extras(words)


def _check_installed(words: list[str]) -> None:
    """Check the source file of an `install` command: it is in the repository, or the reader has made it."""
    source = words[-2]
    assert source.endswith((".toml", ".key", ".token", ".pem")) or (ROOT / source).exists(), source


_CHECKS = {
    "make": _check_targets,
    "pip": _check_extras,
    "pipx": _check_extras,
    "python": _check_program,
    "python3": _check_program,
    "install": _check_installed,
}
