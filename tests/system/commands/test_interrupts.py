"""Programs that Ctrl-C ends, at any moment of their lives."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from fjm2.base.interrupts import end_at_interrupts
from fjm2d.keys import KeyPair

pytestmark = pytest.mark.calm

SEED = int(os.environ.get("FJM2_SEED", "1"))
DEADLINE_S = 40.0
LONGEST_S = 1.5
"""Random moments lie within this time after the start."""
TROUBLE = re.compile(
    r"never retrieved|never awaited|lost sys.stderr|Exception ignored|Fatal Python error|was destroyed"
)
COMMANDS: dict[str, tuple[str, ...]] = {
    "sub": ("fjm2", "sub", "prices"),
    "pub": ("fjm2", "pub", "prices", "--count", "1000000000", "--rate", "2000"),
    "a pub that ends": ("fjm2", "pub", "prices", "17.5"),
    "top": ("fjm2", "top", "--json", "--interval", "0.1"),
    "tail": ("fjm2", "tail", "--all"),
    "keep": ("fjm2", "keep", "store", "--replicas", "1", "--store-bytes", "16MiB"),
    "fjm2d": ("fjm2d", "run", "--config", "fjm2d.toml"),
    "fjm2-bench": ("fjm2-bench", "--help"),
}


def spawn(program: tuple[str, ...], port: int, folder: Path) -> subprocess.Popen[str]:
    name, *arguments = program
    # Python itself prints a traceback if Ctrl-C comes before that.
    code = f"import fjm2.programs; print(flush=True); fjm2.programs.{name.replace('-', '_')}()"
    uri = f"fjm2://239.192.57.95:{port}?interface=127.0.0.1&ttl=0"
    return subprocess.Popen(
        (sys.executable, "-X", "dev", "-W", "ignore::ResourceWarning", "-c", code, *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=os.environ | {"FJM2_URI": uri},
    )


@pytest.mark.parametrize("endings", [2, pytest.param(30, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", COMMANDS)
def test_ctrl_c_at_any_moment_ends_a_program_quietly(name: str, endings: int, port: int, tmp_path: Path) -> None:
    KeyPair(bytes(31) + b"\x07").save(tmp_path / "key")
    (tmp_path / "fjm2d.toml").write_text(
        f'key_file = "key"\n[wan]\nlisten = ["127.0.0.1:{port}"]\n[status]\nlisten = ""\n'
        f'[lan]\ninterface = "127.0.0.1"\nttl = 0\nbeacon = "239.192.57.91:{port + 1}"\n'
        f'[[group]]\naddress = "239.192.57.90:{port + 1}"\n'
    )
    random = Random(SEED)
    for number in range(endings):
        after_s = random.uniform(0.0, LONGEST_S)
        process = spawn(COMMANDS[name], port, tmp_path)
        try:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(after_s)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
            process.communicate()
        told = f"ending {number} of seed {SEED}, Ctrl-C after {after_s:.3f} s: {process.returncode}\n{err}"
        assert not TROUBLE.search(err), told
        assert process.returncode in (0, 1, 130, -signal.SIGINT), told


AT_THE_END = """
import atexit, os, signal, sys
import fjm2.programs

@atexit.register
def late():
    os.kill(os.getpid(), signal.SIGINT)
    sum(range(1000))

sys.argv = ["fjm2", "--version"]
fjm2.programs.fjm2()
"""


def test_ctrl_c_while_the_interpreter_ends_prints_nothing() -> None:
    done = subprocess.run((sys.executable, "-c", AT_THE_END), capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


IN_THE_LOOP = """
import asyncio, os, signal
from fjm2.commands.support.common import run

async def main():
    loop = asyncio.get_running_loop()
    asyncio.ensure_future(late())
    return 0

async def late():
    try:
        await asyncio.sleep(60)
    finally:
        os.kill(os.getpid(), signal.SIGINT)
        sum(range(1000))

run(main())
"""


def test_ctrl_c_while_the_loop_ends_prints_nothing() -> None:
    done = subprocess.run((sys.executable, "-c", IN_THE_LOOP), capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


BEFORE_THE_LOOP = """
import asyncio, os, signal
from fjm2.commands.support import common

async def main():
    return 0

make_loop = common.uvloop_class()

def interrupted():
    os.kill(os.getpid(), signal.SIGINT)
    return make_loop()

common.uvloop_class = lambda: interrupted
common.run(main())
"""


def test_ctrl_c_before_the_loop_begins_prints_nothing() -> None:
    argv = (sys.executable, "-W", "error", "-c", BEFORE_THE_LOOP)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_interrupts_that_are_ignored_stay_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        end_at_interrupts()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        signal.signal(signal.SIGINT, signal.default_int_handler)
        end_at_interrupts()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, before)


BEFORE_RUN = """
import signal, sys
from fjm2.commands import tail
from fjm2.programs import fjm2

sys.modules["fjm2.commands.tail"].run = lambda main: (signal.raise_signal(signal.SIGINT), main.close())
sys.argv = ["fjm2", "tail", "prices", "--uri", "fjm2://?interface=127.0.0.1&ttl=0"]
fjm2()
"""


def test_ctrl_c_between_a_command_and_its_event_loop_ends_it_quietly() -> None:
    program = [sys.executable, "-W", "error", "-c", BEFORE_RUN]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr.strip()) == (130, "")
