"""The terminals of docs/examples.md, section by section: each block runs, in the order in which they are shown."""

import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_docs import BLOCKS, ROOT
from test_jms_examples import uri_of

DEADLINE_S = 30.0
TERMINALS = [block for block in BLOCKS if block.page == "examples.md" and block.language == "sh"]
SECTIONS = {
    section: [block.code.strip() for block in TERMINALS if block.section == section]
    for section in dict.fromkeys(block.section for block in TERMINALS)
    if section != "Examples"
}
GOES_ON = {"Workers": 1, "A web application": 2, "Chat": 2}
"""So many terminals of a section go on until Ctrl-C; of the chat, until Ctrl-D."""
SAID = {
    "Quotes": ["10 messages", "7 messages", "20 messages sent"],
    "Requests and replies": ["", "", "you asked: how are you?"],
    "Chat": ["* Bob is here", "listening"],
    "Workers": ["", "job 7: done by thread"],
    "Priorities": ["alarm 4 overtook", "4000 messages handed over"],
    "Transactions": ["rolled back: bad coffee"],
    "A web application": ["", '"price": 12.5', ""],
    "A notebook": ["the first: ", "20 messages sent"],
    "Files": ["README.md: ", "LICENSE: ", "2 hosts have it all"],
    "NORM objects": ["b'text/plain': b'two'", "sent; nobody asks for more"],
    "NORM streams": ["1000 messages, the last is number 999", "1000 messages in"],
    "The bare engine": ["ObjectCompleted", "TransmissionFlushed"],
}
"""Something of what each terminal says."""
BEGINNINGS = {"web_app": "running on", "bare_engine": "running", "notebook": "subscribed"}
"""What a program says when others may start, where it is not that it listens."""


class Terminal:
    """A line of the page, run with a bus and ports of the test's own. What it says goes to a file."""

    def __init__(self, line: str, folder: Path, ports: tuple[int, int]) -> None:
        bus_port, tcp_port = ports
        words = shlex.split(line.replace(":8000", f":{tcp_port}").replace("--port 8000", f"--port {tcp_port}"))
        if words[0] == "python":
            words[:2] = [sys.executable, "-W", "error", str(ROOT / words[1])]
            if re.match(r"python examples/(norm|file|bare)_", line):
                words += ["--port", str(bus_port)]
        elif shutil.which(words[0]) is None:
            pytest.skip(f"{words[0]} is not installed")
        self.line = line
        self._file = folder / "said"
        environment = os.environ | {"FJM2_URI": uri_of(str(bus_port)), "PYTHONUNBUFFERED": "1", "no_proxy": "*"}
        with self._file.open("w") as out:
            self.process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT, cwd=folder.parent, env=environment
            )

    @property
    def said(self) -> str:
        return self._file.read_text()

    def says(self, word: str) -> None:
        """Wait for it."""
        deadline = time.monotonic() + DEADLINE_S
        while word not in self.said:
            assert time.monotonic() < deadline, f"{self.line}: no {word!r} in {self.said!r}"
            time.sleep(0.02)

    def begins(self) -> None:
        """Wait until it listens, as it says."""
        self.says(next((word for name, word in BEGINNINGS.items() if name in self.line), "listening"))

    def ends(self) -> None:
        """By itself, and well."""
        assert self.process.wait(DEADLINE_S) == 0, f"{self.line}: {self.said}"

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def test_every_section_is_known() -> None:
    assert SECTIONS.keys() == SAID.keys()
    assert all(len(lines) == len(SAID[section]) for section, lines in SECTIONS.items())


def test_every_example_is_in_the_table() -> None:
    page = (ROOT / "docs" / "examples.md").read_text()
    table = {name for line in page.splitlines() if line.startswith("| `") for name in re.findall(r"`(.*?)`", line)}
    assert {f"examples/{path.name}" for path in (ROOT / "examples").glob("*.py")} == {
        name for name in table if name.startswith("examples/")
    }


@pytest.mark.parametrize("section", SECTIONS)
def test_the_terminals_of_a_section_work_together(section: str, tmp_path: Path, port: int) -> None:
    if section == "A web application":
        pytest.importorskip("fastapi", reason="the extra `admin` is not installed")
    for name in ("README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        tcp_port = probe.getsockname()[1]
    with contextlib.ExitStack() as started:
        terminals = []
        for number, line in enumerate(SECTIONS[section]):
            folder = tmp_path / f"terminal{number}"
            folder.mkdir()
            terminal = Terminal(line, folder, (port, tcp_port))
            started.callback(terminal.stop)
            terminals.append(terminal)
            if number < len(SECTIONS[section]) - 1:
                terminal.begins()
        for terminal, words in zip(terminals, SAID[section], strict=True):
            terminal.says(words)
        going_on = terminals[: GOES_ON.get(section, 0)]
        for terminal in terminals[len(going_on) :]:
            terminal.ends()
        assert all(terminal.process.poll() is None for terminal in going_on)
        for terminal in going_on:
            terminal.process.send_signal(signal.SIGINT)
            terminal.process.wait(DEADLINE_S)
            assert "Traceback" not in terminal.said
