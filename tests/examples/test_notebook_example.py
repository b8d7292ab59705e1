"""Test of the notebook example. Its cells run one by one in one namespace, while an event loop is running."""

import asyncio
import re
import sys
from collections.abc import Sized
from typing import Any

import pytest
from test_examples import EXAMPLES, port, run
from test_jms_examples import uri_of

__all__ = ["port"]

NOTEBOOK = EXAMPLES / "notebook.py"
CELLS = [cell for cell in re.split(r"^(?=# %%)", NOTEBOOK.read_text(), flags=re.MULTILINE) if cell]
DEADLINE_S = 30.0


def the_cell(words: str) -> str:
    (found,) = [cell for cell in CELLS if words in cell.splitlines()[0]]
    return found


def test_cells_run_one_by_one_in_a_running_loop(
    port: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FJM2_URI", uri_of(port))
    names: dict[str, Any] = {"__name__": "__main__"}

    def run_cell(words: str) -> str:
        assert asyncio.get_running_loop().is_running()
        exec(compile(the_cell(words), NOTEBOOK.name, "exec"), names)
        return capsys.readouterr().out

    async def run_all() -> None:
        run_cell("Subscribe")
        publishing = await publish(port, 40)
        assert re.match(r"the first: \{'price': \d", run_cell("Receive one message"))
        run_cell("In the background")
        async with asyncio.timeout(DEADLINE_S):
            await until_gathered(names["prices"], 1)
            told = re.match(r"(\d+) quotes, [\d.]+ on average", run_cell("again and again"))
            assert told is not None
            before = int(told[1])
            assert await publishing.wait() == 0
            await until_gathered(names["prices"], 19)  # one of the 20 that match the selector was received before
        assert before < 19
        last = re.match(r"(\d+) quotes, ([\d.]+) on average", run_cell("again and again"))
        assert last is not None
        assert int(last[1]) == 19
        assert 90 <= float(last[2]) <= 110
        run_cell("At the end")

    asyncio.run(run_all())


async def until_gathered(prices: Sized, count: int) -> None:
    while len(prices) < count:  # noqa: ASYNC110, a thread gathers
        await asyncio.sleep(0.05)


async def publish(port: str, messages: int) -> asyncio.subprocess.Process:
    words = (str(EXAMPLES / "jms_publish.py"), "--uri", uri_of(port), "--messages", str(messages))
    return await asyncio.create_subprocess_exec(sys.executable, *words, stdout=asyncio.subprocess.DEVNULL)


def test_it_runs_as_a_program_too(port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FJM2_URI", uri_of(port))
    said = run("notebook.py").stdout.splitlines()
    assert said == ["subscribed", "nothing yet: is the publisher running?", "no quotes so far"]
