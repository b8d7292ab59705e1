"""Test of the chat example on two networks that only gateways connect."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="the extra `gateway` is not installed")
sys.path.insert(0, str(Path(__file__).parents[1] / "gateway"))

from gateway_sites import URI, internet_here, until
from netns import Namespace
from test_examples import EXAMPLES

pytestmark = [pytest.mark.root, pytest.mark.calm]


class Chatter:
    """A user of the chat on a host. A thread collects the output of the user's program."""

    def __init__(self, host: Namespace, name: str) -> None:
        self.seen: list[str] = []
        self._process = host.start(sys.executable, "-W", "error", str(EXAMPLES / "jms_chat.py"), "--uri", URI, name)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.sees("listening; type a line to send it")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.seen.append(line.rstrip("\n"))

    def sees(self, line: str) -> None:
        until(lambda: line in self.seen, lambda: f"no {line!r} in {self.seen}")

    def says(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def leaves(self) -> None:
        """End the program with Ctrl-D."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.stdin = None  # closed already; `communicate` would flush it
        try:
            assert self._process.wait(30) == 0
        except subprocess.TimeoutExpired:
            pytest.fail(f"it does not end; it saw {self.seen}")
        self._reader.join(30)


def test_two_lans_chat_over_their_gateways(tmp_path: Path) -> None:
    with internet_here(tmp_path) as internet:
        (here,), (left,) = internet.lan("left", 1)
        (there,), (right,) = internet.lan("right", 1)
        internet.introduce_all()
        internet.start_all()
        until(lambda: left.is_up() and right.is_up(), internet.logs)
        ann = Chatter(here, "Ann")
        bob = Chatter(there, "Bob")
        until(lambda: left.wanted_by() and right.wanted_by(), internet.logs)
        for number in range(20):
            bob.says(f"line {number}")
        ann.sees("Bob: line 19")
        ann.says("got them")
        bob.sees("Ann: got them")
        ann.leaves()
        bob.sees("* Ann has left")
        bob.leaves()
        lines = [line for line in ann.seen if line.startswith("Bob: ")]
        assert lines == [f"Bob: line {number}" for number in range(20)]
        assert [line for line in bob.seen if "Bob" in line] == []
