"""The chat room on two networks that nothing but gateways joins."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="the extra `gateway` is not installed")
sys.path.insert(0, str(Path(__file__).parents[1] / "gateway"))

from gateway_sites import URI, Internet, until
from netns import CommandError, Namespace, Network
from test_examples import EXAMPLES

pytestmark = [pytest.mark.root, pytest.mark.alone]


@pytest.fixture
def internet(tmp_path: Path) -> Iterator[Internet]:
    """Nothing in it yet; gone after the test."""
    missing = [tool for tool in ("ip", "iptables", "sysctl") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")
    if os.geteuid() != 0:
        pytest.skip("needs root, for network namespaces")
    try:
        with Network() as probe:
            probe.namespace()
    except CommandError as error:
        pytest.skip(f"no network namespaces here: {error}")
    with Network() as network:
        made = Internet(network, tmp_path)
        try:
            yield made
        finally:
            made.close()


class Chatter:
    """Somebody at a terminal of a host. What they see is gathered in a thread."""

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
        """By Ctrl-D."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.stdin = None  # what ends the process would flush it
        try:
            assert self._process.wait(30) == 0
        except subprocess.TimeoutExpired:
            pytest.fail(f"it does not end; it saw {self.seen}")
        self._reader.join(30)


def test_two_lans_chat_over_their_gateways(internet: Internet) -> None:
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
