"""Follow the instructions of a page as its reader would, on a host with nothing but a loopback interface.

Blocks that are files are saved. Exports apply to all later blocks. The other blocks of a section run in terminals side
by side. A terminal starts when the previous one has ended or is ready: it has opened a socket, and has printed
something or had time to do so.
"""

import contextlib
import itertools
import math
import os
import subprocess
import time
from pathlib import Path

from doc_blocks import Block, blocks_of
from netns import Namespace

DEADLINE_S = 60.0
SILENT_S = 1.5
_numbers = itertools.count(1)
_NET = Path("/proc/thread-self/net")
ANY_VERDICT = "fjm2 doctor"
"""A command whose exit code is a verdict on the test's host, not a fault of the page."""


def follow(page: Path, host: Namespace, folder: Path, activation: str) -> list[str]:
    """Run the blocks of a page, and return the output of each terminal.

    Raise AssertionError if a block fails or warns.
    """
    exports = [activation]
    said: list[str] = []
    for _, blocks in itertools.groupby(blocks_of(page), lambda one: one.section):
        with contextlib.ExitStack() as running:
            terminals = []
            for block in blocks:
                if text := text_of(block, folder, exports):
                    terminals.append(Terminal(host, folder, exports, text))
                    running.callback(terminals[-1].end)
                    terminals[-1].wait_until_begun()
            said += [one.finish() for one in terminals]
    return said


def text_of(block: Block, folder: Path, exports: list[str]) -> str:
    """Return the commands of a block for a shell, or "" if it has none.

    Save the block if it is a file, and add its exports to `exports`.
    """
    if block.title:
        (folder / block.title).write_text(block.code)
    elif block.language == "python" and block.code.startswith(("import ", "from ")):
        name = f"program{block.line}.py"
        (folder / name).write_text(block.code)
        return f"python -W error {name}"
    elif block.language == "sh":
        lines = block.code.splitlines()
        if not all(line.startswith("export ") for line in lines):
            return block.code
        exports += lines
    return ""


class Terminal:
    """A shell that runs the commands of a block."""

    def __init__(self, host: Namespace, folder: Path, exports: list[str], text: str) -> None:
        self.text = text
        self._host = host
        self._sockets = sockets_of(host)
        self._file = folder / f".said{next(_numbers)}"
        words = ["ip", "netns", "exec", host.name, "bash", "-ec", "\n".join([*exports, text])]
        names = ("FJM2", "PYTHON")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(names)}
        environment["PYTHONUNBUFFERED"] = "1"
        with self._file.open("w") as out:
            self._process = subprocess.Popen(words, cwd=folder, env=environment, stdout=out, stderr=subprocess.PIPE)

    def wait_until_begun(self) -> None:
        begun_at, bound_at = time.monotonic(), math.inf
        while self._process.poll() is None:
            now = time.monotonic()
            assert now < begun_at + DEADLINE_S, f"{self.text}: does not begin"
            if sockets_of(self._host) > self._sockets:
                bound_at = min(bound_at, now)
            if bound_at <= now and (self._file.stat().st_size or now > bound_at + SILENT_S):
                break
            time.sleep(0.05)

    def finish(self) -> str:
        """Wait for the shell to end, and return its output. Fail if one of its commands failed."""
        _, err = self._process.communicate(timeout=DEADLINE_S)
        said, problems, code = self._file.read_text(), err.decode(), self._process.returncode
        assert code == 0 or (self.text.strip() == ANY_VERDICT and code in (1, 2)), f"{self.text}: {code}: {problems}"
        assert "Traceback" not in said + problems, f"{self.text}: {problems}"
        assert not self.text.startswith("python") or not problems, f"{self.text}: {problems}"
        return said

    def end(self) -> None:
        """Kill the shell if it is still running."""
        self._process.kill()
        self._process.wait()


def sockets_of(host: Namespace) -> int:
    """Return the number of bound UDP sockets on a host."""
    with host.entered():
        return sum(len((_NET / name).read_text().splitlines()) - 1 for name in ("udp", "udp6"))
