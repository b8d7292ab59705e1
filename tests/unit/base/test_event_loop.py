"""Tests of `fjm2.run`: the loop that it runs on, results, mistakes, and Ctrl-C."""

import asyncio
import signal
import subprocess
import sys

import pytest

import fjm2
from fjm2.base.event_loop import uvloop_class

DEADLINE_S = 40.0
INTERRUPTED = """
import asyncio, os, signal, {runner}

async def main():
    try:
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGINT)
        await asyncio.sleep(30)
    finally:
        await asyncio.sleep(0)
        print("cleaned up", flush=True)

try:
    {runner}.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""
STUCK = """
import os, signal, {runner}

async def main():
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)
    sum(range(1000))

{runner}.run(main())
"""
WITHOUT_UVLOOP = """
import asyncio, sys
sys.modules["uvloop"] = None
import fjm2

async def main():
    return asyncio.get_running_loop()

assert type(fjm2.run(main())) is type(asyncio.new_event_loop())
"""


def python(program: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, timeout=DEADLINE_S)


def test_a_function_in_place_of_a_coroutine_is_refused_with_the_remedy() -> None:
    async def main() -> None: ...

    with pytest.raises(
        ValueError, match=r"^fjm2\.run\(main\): a coroutine was expected, .*; call it: fjm2\.run\(main\(\)\)$"
    ):
        fjm2.run(main)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^fjm2\.run\(5\): a coroutine was expected, as in fjm2\.run\(main\(\)\)$"):
        fjm2.run(5)  # type: ignore[arg-type]


def test_run_returns_the_result_on_uvloop_where_it_is_installed() -> None:
    async def main() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    wanted = uvloop_class()
    loop = fjm2.run(main())
    assert wanted is None or isinstance(loop, wanted)
    assert loop.is_closed()


def test_run_uses_the_loop_of_asyncio_if_there_is_no_uvloop() -> None:
    assert python(WITHOUT_UVLOOP).returncode == 0


def test_run_passes_on_exceptions_and_debug() -> None:
    async def main() -> None:
        raise LookupError(asyncio.get_running_loop().get_debug())

    with pytest.raises(LookupError, match="True"):
        fjm2.run(main(), debug=True)


def test_run_in_a_running_loop_is_refused() -> None:
    async def inner() -> None: ...

    async def outer() -> None:
        fjm2.run(inner())

    with pytest.raises(RuntimeError, match="await the coroutine instead"):
        asyncio.run(outer())


def test_run_refuses_what_is_no_coroutine() -> None:
    with pytest.raises(ValueError, match="coroutine was expected"):
        fjm2.run(test_run_refuses_what_is_no_coroutine)  # type: ignore[arg-type]


@pytest.mark.parametrize("program", [INTERRUPTED, STUCK])
def test_ctrl_c_ends_a_program_as_with_asyncio(program: str) -> None:
    ours, theirs = (python(program.format(runner=runner)) for runner in ("fjm2", "asyncio"))
    assert (ours.returncode, ours.stdout) == (theirs.returncode, theirs.stdout)
    assert ours.returncode == (0 if program is INTERRUPTED else -signal.SIGINT)
    assert ours.stderr.splitlines()[-1:] == theirs.stderr.splitlines()[-1:]
