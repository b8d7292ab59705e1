"""Tests of the libnorm peer against itself, on the loopback interface.

The peer works, so a failure of FJM2 against the peer is FJM2's fault.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from netns_pair import Host, Process, this_machine

GROUP = "239.255.41.7"
TIMEOUT_S = 20


@dataclass(frozen=True)
class Pair:
    """A sender (node 1) and a receiver (node 2) that use the same group and port."""

    host: Host
    peer: str
    port: int
    out: Path

    def argv(self, role: str, node: int) -> list[str]:
        where = ["--group", GROUP, "--port", str(self.port), "--interface", "127.0.0.1", "--node-id", str(node)]
        return [self.peer, role, *where, "--timeout", str(TIMEOUT_S)]

    def receive(self, *options: str) -> Process:
        receiver = self.host.start("recv", [*self.argv("recv", 2), "--out", str(self.out), *options])
        receiver.wait_ready()
        return receiver

    def send(self, *options: str) -> Process:
        return self.host.start("send", [*self.argv("send", 1), "--rate", "50000000", "--grtt", "0.01", *options])

    def transfer(self, send: Sequence[str], receive: Sequence[str] = ()) -> Process:
        """Run the sender and the receiver until both end successfully. Return the sender."""
        receiver, sender = self.receive(*receive), self.send(*send)
        assert sender.wait(TIMEOUT_S + 10) == 0, self.host.describe()
        assert receiver.wait(TIMEOUT_S + 10) == 0, self.host.describe()
        assert receiver.report()["ok"]
        return sender


@pytest.fixture
def pair(libnorm_peer: str, tmp_path: Path, port: int) -> Generator[Pair]:
    with this_machine(tmp_path) as host:
        yield Pair(host, libnorm_peer, port, tmp_path / "out")


def test_data_objects_arrive(pair: Pair, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(bytes(range(250)) * 400)
    second.write_bytes(b"a short one")
    pair.transfer(["--data", str(first), str(second)], ["--count", "2"])
    assert sorted(path.read_bytes() for path in pair.out.iterdir()) == [first.read_bytes(), second.read_bytes()]


def test_files_arrive_by_name(pair: Pair, tmp_path: Path) -> None:
    document, empty = tmp_path / "document.txt", tmp_path / "empty"
    document.write_bytes(b"line\n" * 20_000)
    empty.touch()
    pair.transfer(["--parity", "8", "--file", str(document), str(empty)], ["--count", "2", "--unicast-nack"])
    assert {path.name: path.read_bytes() for path in pair.out.iterdir()} == {
        "document.txt": document.read_bytes(),
        "empty": b"",
    }


def test_a_stream_larger_than_its_buffer_arrives_in_order(pair: Pair, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes(b"".join(b"%d\n" % number for number in range(30_000)))
    sender = pair.transfer(["--stream-buffer", "65536", "--stream", str(lines)], ["--sync", "stream"])
    assert [path.read_bytes() for path in pair.out.iterdir()] == [lines.read_bytes()]
    assert sender.report()["messages"] == 30_000


@pytest.mark.parametrize("content", ["--data", "--stream"])
def test_a_receiver_acknowledges(pair: Pair, tmp_path: Path, content: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"line\n" * 10_000)
    sender = pair.transfer(["--ack-from", "2", content, str(file)])
    assert sender.report()["acked"] == {"2": True}


@pytest.mark.calm
def test_a_node_that_is_not_there_does_not_acknowledge(pair: Pair, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"line\n" * 10_000)
    receiver = pair.receive()
    # Five requests in a second, and not in a tenth of it, which a busy machine may not give a receiver.
    sender = pair.send("--ack-from", "2,99", "--robust", "5", "--grtt", "0.1", "--data", str(file))
    assert sender.wait(TIMEOUT_S) == 1
    assert sender.report()["acked"] == {"2": True, "99": False}
    assert receiver.wait(TIMEOUT_S) == 0


def test_a_receiver_gives_up_in_time(pair: Pair) -> None:
    receiver = pair.receive("--timeout", "0.5")
    assert receiver.wait(TIMEOUT_S) == 1
    assert not receiver.report()["ok"]
