"""Tests of how the programs start."""

import configparser
import subprocess
import sys
from pathlib import Path

import pytest

from fjm2 import programs
from fjm2.base.missing_extras import install_text

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0
INTERRUPTED = """
import os, signal, sys
import fjm2.programs

class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == CtrlC.module:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, CtrlC())
name, CtrlC.module, *sys.argv[1:] = sys.argv[1:]
getattr(fjm2.programs, name.replace("-", "_"))()
"""


@pytest.mark.parametrize("name", programs.MODULES)
def test_ctrl_c_while_a_program_is_imported_is_no_mistake(name: str) -> None:
    argv = (sys.executable, "-W", "error", "-c", INTERRUPTED, name, "click", "--version")
    done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_while_a_command_is_imported_is_no_mistake() -> None:
    argv = (sys.executable, "-W", "error", "-c", INTERRUPTED, "fjm2", "numpy", "topics", "--help")
    done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


LACKS_HTTPX = """
import sys
import fjm2.programs

class Lacks:
    def find_spec(self, name, path=None, target=None):
        if name == "httpx":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Lacks())
fjm2.programs.fjm2d()
"""


def test_a_library_that_only_some_commands_need_is_missed_in_a_line(tmp_path: Path) -> None:
    argv = (sys.executable, "-W", "error", "-c", LACKS_HTTPX, "run", "--config", str(tmp_path / "fjm2d.toml"))
    done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stderr) == (
        1,
        f"Error: fjm2d needs httpx: {install_text('gateway')}\n",
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("name", programs.MODULES)
def test_a_full_disk_is_reported_in_one_line(name: str) -> None:
    code = f"import fjm2.programs; fjm2.programs.{name.replace('-', '_')}()"
    with open("/dev/full", "w") as full:
        argv = (sys.executable, "-W", "error", "-c", code, "--help")
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stderr) == (1, "Error: No space left on device\n")


def test_every_program_begins_there() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    lines = setup["options.entry_points"]["console_scripts"].split("\n")
    entries = dict(line.split(" = ") for line in lines if line)
    assert entries == {name: f"fjm2.programs:{name.replace('-', '_')}" for name in programs.MODULES}
    assert all(hasattr(programs, entry.partition(":")[2]) for entry in entries.values())


AT_THE_COMMAND_LINE = """
import os, signal, sys
import click
import fjm2.programs

class Interrupted(click.Command):
    def parse_args(self, ctx, args):
        os.kill(os.getpid(), signal.SIGINT)
        return super().parse_args(ctx, args)

import fjm2.commands
fjm2.commands.main.add_command(Interrupted("late"))
sys.argv = ["fjm2", "late"]
fjm2.programs.fjm2()
"""


def test_ctrl_c_while_the_command_line_is_read_says_nothing_and_exits_with_130() -> None:
    argv = (sys.executable, "-W", "error", "-c", AT_THE_COMMAND_LINE)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")
