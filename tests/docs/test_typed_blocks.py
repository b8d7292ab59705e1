"""Tests that mypy and pyright, both strict about it, accept all Python code of the documentation and the examples.

Each checker runs once, over all programs. A block that continues the previous block of its section is checked together
with it.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from doc_blocks import BLOCKS, ROOT, Block

TYPED_WRONGLY = """
from fjm2.app import App
from fjm2.jms import ConnectionFactory, JMSConsumer, JMSContext, TextMessage, Topic

app = App("fjm2://")
ConnectionFactory(overflow="blok")
ConnectionFactory(client_di="desk-7")
ConnectionFactory(flow="always", client_id=7)
App(fec="reed")


def consume(context: JMSContext) -> None:
    context.create_consumer(Topic("t"), overflow="drop")


@app.listener("upper")
def upper(text: str) -> str:
    return text.upper()


upper(5)
app.context.send("prices", 1)


async def use(consumer: JMSConsumer) -> None:
    print((await consumer.receive(timeout=1)).text)
    message = await consumer.receive(TextMessage, 5)
    if message is not None:
        message.text.upper()
    consumer.listen(str, wants_bytes)
    await consumer.receive(str)


def wants_bytes(body: bytes) -> None: ...
"""
"""A program with a mistake in each of these lines, which both checkers must find."""
WRONG_LINES = {6, 7, 8, 9, 13, 21, 22, 26, 29, 30, 31}

TYPED_RIGHTLY = """
from typing import Unpack

from fjm2.app import App
from fjm2.jms import ConnectionFactory, ConnectionOptions, JMSConsumer, JMSContext, Message, Overflow, Topic, blocking
from fjm2.norm import Flow

App("fjm2://", keep="store", overflow=Overflow.BLOCK)


def connect(context: JMSContext, **options: Unpack[ConnectionOptions]) -> blocking.ConnectionFactory:
    ConnectionFactory(rate="10Mbit", grtt_s=0.001, flow=Flow.MIN, cc=True, block_s="5s", keep="store")
    context.create_consumer(Topic("t"), overflow="drop_oldest")
    return blocking.ConnectionFactory("fjm2://", **options)


async def use(consumer: JMSConsumer, message: Message) -> None:
    found = await consumer.receive_body(str | bytes, 5)
    if found is not None:
        print(len(found))
    body = message.get_body(str | bytes)
    if body is not None:
        print(len(body))
    print(await consumer.receive_body_no_wait(int | float))


def block(consumer: blocking.JMSConsumer) -> str | None:
    print(consumer.receive_body(str | bytes), consumer.receive_body_no_wait(str | bytes))
    return consumer.receive_body(str)
"""
"""A program in which neither finds one, though no page shows it."""


def programs() -> Iterator[tuple[Block, str]]:
    """Return each Python block with its whole program."""
    before: tuple[str, str] = "", ""
    program = ""
    for block in BLOCKS:
        if block.language == "python":
            is_whole = block.code.startswith(("import ", "from ")) or (block.page, block.section) != before
            program = block.code if is_whole else f"{program}\n{block.code}"
            before = block.page, block.section
            yield block, program


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all programs, the examples, one program that is wrong and one that is right."""
    folder = tmp_path_factory.mktemp("programs")
    for block, program in programs():
        name = re.sub(r"\W", "_", f"{block.page.removesuffix('.md')}_line_{block.line}")
        (folder / f"{name}.py").write_text(program)
    (folder / "wrong.py").write_text(TYPED_WRONGLY)
    (folder / "right.py").write_text(TYPED_RIGHTLY)
    shutil.copytree(ROOT / "examples", folder / "examples")
    return folder


def test_blocks_are_programs_of_their_own() -> None:
    assert len([*programs()]) > 40


def test_mypy_accepts_everything_shown(folder: Path) -> None:
    files = [str(path) for path in sorted([*folder.glob("*.py"), *(ROOT / "examples").rglob("*.py")])]
    words = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", *files]
    said = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False).stdout
    found = [re.match(r"(?:.*/)?(.*?\.py):(\d+): error: .*", line) for line in said.splitlines() if " error: " in line]
    check_found([(match[1], int(match[2])) for match in found if match], said)


@pytest.mark.skipif(find_spec("pyright") is None, reason="the extra `dev` is not installed")
@pytest.mark.nightly
def test_pyright_accepts_everything_shown(folder: Path) -> None:
    settings = {
        "include": ["."],
        # An editable installation is a hook in `sys.path_hooks`, which pyright does not run.
        "extraPaths": [str(ROOT), "examples"],
        "pythonVersion": "3.11",
        "typeCheckingMode": "standard",
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    words = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)]
    environment = os.environ | {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}  # otherwise it asks for newer versions of itself
    said = subprocess.run(words, stdout=subprocess.PIPE, env=environment, text=True, check=False).stdout
    report = json.loads(said)
    assert report["summary"]["filesAnalyzed"] == len([*folder.rglob("*.py")])
    found = [one for one in report["generalDiagnostics"] if one["severity"] == "error"]
    lines = [(Path(one["file"]).name, one["range"]["start"]["line"] + 1) for one in found]
    check_found(lines, "\n".join(f"{Path(one['file']).name}: {one['message']}" for one in found))


def check_found(found: list[tuple[str, int]], said: str) -> None:
    """Check that a checker found the mistakes of the wrong program, and no others."""
    assert [place for place in found if place[0] != "wrong.py"] == [], said
    assert {line for _, line in found} == WRONG_LINES, said
