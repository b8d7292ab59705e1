"""Tests of large objects that commands send between two hosts.

The network loses datagrams, or an interface is removed and returns.
"""

import filecmp
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from netns import Namespace, Network, set_up, wait_until_up
from representatives import representatives

pytestmark = pytest.mark.root

SESSION = ("--group", "239.192.57.97", "--port", "5740", "--interface", "veth0")
DEADLINE_S = 60.0
NODE = 2


class Pair:
    """A sending and a receiving host, and the cable between them."""

    def __init__(self, network: Network, inbox: Path) -> None:
        self.sender, self.receiver = network.namespace(), network.namespace()
        network.link(self.sender, self.receiver)
        self.sender.cut_trains("veth0")
        self._inbox = inbox

    def recv(self, *options: object) -> subprocess.Popen[str]:
        """Start a receiver, and wait until it listens."""
        process = command(self.receiver, "recv", "--out", self._inbox, "--node-id", NODE, "--count", 1, *options)
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["ready"]
        return process

    def send(self, file: Path, rate: float, *options: object) -> subprocess.Popen[str]:
        return command(self.sender, "send", "--file", file, "--ack-from", NODE, "--rate", rate, *options)

    def transfer(self, file: Path, rate: float) -> dict[str, Any]:
        """Send a file, check that it arrives, and delete the received file. Return the sender's final report."""
        recv, send = self.recv(), self.send(file, rate)
        told = result(send)
        assert result(recv)["ok"]
        self.check(file)
        return told

    def check(self, file: Path) -> None:
        """Check that the file, and nothing else, has arrived. Delete the received file."""
        arrived = self._inbox / file.name
        assert filecmp.cmp(file, arrived, shallow=False)
        arrived.unlink()
        assert os.listdir(self._inbox) == []

    def set_loss(self, probability: float) -> None:
        for tables in ("iptables", "ip6tables"):
            self.receiver.run(tables, "-F", "INPUT")
        if probability:
            self.receiver.lose(probability)

    def lay_cable(self) -> None:
        """Connect the two hosts by a new cable, with the same addresses as before."""
        self.receiver.ip(*f"link add veth0 type veth peer name veth0 netns {self.sender.name}".split())
        for host, namespace in enumerate((self.sender, self.receiver), start=1):
            set_up(namespace, "veth0", f"10.57.1.{host}/24")
        for namespace in (self.sender, self.receiver):
            wait_until_up(namespace, "veth0")


def command(host: Namespace, verb: str, *arguments: object) -> subprocess.Popen[str]:
    argv = [sys.executable, "-W", "error", "-m", "fjm2", "norm", verb, "--json", *SESSION, *map(str, arguments)]
    return host.start(*argv)


def result(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for a command to end, and return its last report. Fail if the command failed."""
    out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, err) == (0, "")
    told: dict[str, Any] = json.loads(out)
    return told


@pytest.fixture
def pair(network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pair:
    monkeypatch.delenv("FJM2_NO_GSO", raising=False)
    return Pair(network, tmp_path / "inbox")


@pytest.fixture(scope="module")
def large_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("sent") / "large"
    path.write_bytes(os.urandom(100_000_000))
    yield path
    path.unlink()


@pytest.mark.parametrize(("loss", "rate"), representatives([(0.01, 200e6), (0.2, 150e6)], (0.2, 150e6)))
def test_a_large_object_gets_through_loss(pair: Pair, large_file: Path, loss: float, rate: float) -> None:
    pair.set_loss(loss)
    told = pair.transfer(large_file, rate)
    print(f"{loss:.0%} loss, {rate / 1e6:.0f} Mbit/s: {told['seconds']} s")
    assert told["repair_segments_sent"] > 0.8 * loss * large_file.stat().st_size / 1400


@pytest.mark.alone
@pytest.mark.nightly
def test_at_a_fixed_rate_loss_costs_little_more_than_the_repairs(pair: Pair, large_file: Path) -> None:
    """The fastest of a few transfers counts: other load on the machine can only slow a transfer down."""
    seconds: dict[float, list[float]] = {0.0: [], 0.05: []}
    ratio = 2.0
    while ratio >= 1.15 and len(seconds[0.0]) < 4:
        for loss, times in seconds.items():
            pair.set_loss(loss)
            times.append(pair.transfer(large_file, 200e6)["seconds"])
        ratio = min(seconds[0.05]) / min(seconds[0.0])
    print(f"100 MB at 200 Mbit/s until all is acknowledged, in seconds by loss: {seconds}; {ratio:.3f}")
    assert ratio < 1.15


@pytest.fixture
def small_file(tmp_path: Path) -> Path:
    path = tmp_path / "small"
    path.write_bytes(os.urandom(9_000_000))
    return path


def next_line(process: subprocess.Popen[str]) -> str:
    """Return the next line that the command prints on stderr for its user."""
    assert process.stderr is not None
    return process.stderr.readline().strip()


def wait_until_arriving(process: subprocess.Popen[str], inbox: Path) -> None:
    """Wait until a part of a file has arrived."""
    while not any(path.stat().st_blocks for path in inbox.rglob("*.part")):
        assert process.poll() is None
        time.sleep(0.01)


@pytest.mark.parametrize("what", representatives(["down", "deleted"], "deleted"))
def test_an_interface_returns_during_a_transfer(pair: Pair, tmp_path: Path, small_file: Path, what: str) -> None:
    recv, send = pair.recv(), pair.send(small_file, 12e6)
    wait_until_arriving(recv, tmp_path / "inbox")
    if what == "down":
        pair.receiver.ip("link", "set", "veth0", "down")
    else:
        pair.receiver.ip("link", "delete", "veth0")
    for process in (recv, send):
        assert next_line(process) == "warning: interface veth0 is down; waiting for it"
    if what == "down":
        pair.receiver.ip("link", "set", "veth0", "up")
    else:
        pair.lay_cable()
    for process in (recv, send):
        assert next_line(process) == "interface veth0 is back"
    assert result(send)["not_acked"] == []
    assert result(recv)["objects"] == 1
    pair.check(small_file)


def test_a_receiver_notices_that_its_interface_was_replaced(pair: Pair, small_file: Path) -> None:
    recv = pair.recv()
    pair.receiver.ip("link", "delete", "veth0")
    assert next_line(recv) == "warning: interface veth0 is down; waiting for it"
    pair.lay_cable()
    assert next_line(recv) == "interface veth0 is back"
    assert result(pair.send(small_file, 200e6))["not_acked"] == []
    assert result(recv)["objects"] == 1
    pair.check(small_file)
