"""Tests of completion: a real bash shows what the Tab key completes."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from fjm2.commands import main

BIN = Path(sys.executable).parent
DEADLINE_S = 30.0
PRESS_TAB = """
complete -p "$1" >&2
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_${1//-/_}_completion "$1"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def script_of(*arguments: str) -> str:
    printed = CliRunner().invoke(main, ["completion", *arguments])
    assert printed.exit_code == 0
    return printed.stdout


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        (["fjm2", "norm", ""], ["recv", "send"]),
        (["fjm2", "sub", "prices", "--overflow", "drop"], ["drop_oldest", "drop_newest"]),
        (["fjm2d", "status", "--js"], ["--json"]),
        (["fjm2admin", "to"], ["token"]),
        (["fjm2-bench", "compare", "--round"], ["--round-trips"]),
    ],
    ids=" ".join,
)
def test_bash_completes(typed: list[str], completed: list[str], require_tool: Callable[[str], str]) -> None:
    words = [require_tool("bash"), "--norc", "-euc", script_of("bash") + PRESS_TAB, "bash", *typed]
    environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == completed


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_theirs(shell: str) -> None:
    everything, one_program = script_of(shell), script_of(shell, "fjm2d")
    for name in ("FJM2", "FJM2D", "FJM2ADMIN", "FJM2_BENCH"):
        assert f"_{name}_COMPLETE={shell}_complete" in everything
    assert one_program.strip() in everything
    assert "_FJM2_COMPLETE" not in one_program


def test_another_shell_is_refused() -> None:
    refused = CliRunner().invoke(main, ["completion", "tcsh"])
    assert refused.exit_code == 2
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in refused.stderr
