"""`fjm2 norm send` and `fjm2 norm recv` as processes, over the loopback."""

import asyncio
import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from trains import receive_train

from fjm2.norm import SenderConfig, Session
from fjm2.norm.events import ObjectCompleted
from fjm2.norm.udp import UdpConfig, UdpTransport

GROUP = "239.192.57.96"
DEADLINE_S = 30.0
"""For a process to end; busy machines start them slowly."""
PROMPTLY_S = 2.0


class Ended(NamedTuple):
    """How a process ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        """What it printed, as JSON."""
        return [json.loads(line) for line in self.out.splitlines()]


class Process:
    """A command that runs."""

    def __init__(self, *arguments: object, stderr: int = subprocess.PIPE) -> None:
        argv = [sys.executable, "-W", "error", "-m", "fjm2", *map(str, arguments)]
        self.popen = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=stderr, text=True, stdin=subprocess.DEVNULL)
        self._early = ""

    def wait_until_ready(self) -> None:
        """Until it has printed its first line: a receiver with --json then listens."""
        assert self.popen.stdout is not None
        self._early = self.popen.stdout.readline()

    def end(self) -> Ended:
        """Wait for its end."""
        out, err = self.popen.communicate(timeout=DEADLINE_S)
        return Ended(self.popen.returncode, self._early + out, err)

    def stop(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.communicate()


class Runner:
    """Starts commands in one session on the loopback, and ends those that are left."""

    def __init__(self, port: int, stack: contextlib.ExitStack) -> None:
        self._session = ("--group", GROUP, "--port", port, "--interface", "127.0.0.1", "--ttl", 0)
        self._stack = stack

    def start(self, *arguments: object, **settings: Any) -> Process:
        process = Process(*arguments, **settings)
        self._stack.callback(process.stop)
        return process

    def send(self, *arguments: object, **settings: Any) -> Process:
        return self.start("norm", "send", *self._session, *arguments, **settings)

    def recv(self, out: Path, *arguments: object) -> Process:
        """A receiver, when it listens."""
        process = self.start("norm", "recv", *self._session, "--out", out, "--json", *arguments)
        process.wait_until_ready()
        return process


@pytest.fixture
def runner(port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    monkeypatch.delenv("FJM2_NO_GSO", raising=False)
    with contextlib.ExitStack() as stack:
        yield Runner(port, stack)


@pytest.fixture
def until_sending(port: int) -> Iterator[Callable[[], None]]:
    """Waits until anything goes out to the group."""
    config = UdpConfig(group=GROUP, port=port, interface="127.0.0.1", ttl=0)
    with UdpTransport(config) as spy:

        def wait() -> None:
            assert receive_train(spy.group, DEADLINE_S) is not None

        yield wait


def make_file(path: Path, size: int) -> bytes:
    content = Random(size).randbytes(size)
    path.write_bytes(content)
    return content


def contents(directory: Path) -> dict[str, bytes]:
    """All files, whatever they are called and however deep they are."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def wait_for(is_true: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# What is sent arrives.


SENDING = {
    "as-it-is": (),
    "parity": ("--fec", "rs", "--parity", 4, "--auto-parity", 1, "--block-size", 20, "--segment-size", 500),
    "rs-with-its-default-parity": ("--fec", "rs", "--block-size", 250),
    "nocode": ("--fec", "nocode", "--node-id", 4_294_967_294),
    "no-limit": ("--rate", 0, "--segment-size", 8000),
    "congestion-control": ("--cc", "--rate", 1e9),
    "long-round-trips": ("--grtt", 0.05, "--rate", "80e6"),
}


@pytest.mark.parametrize("options", SENDING.values(), ids=SENDING.keys())
def test_files_arrive_with_their_names(runner: Runner, tmp_path: Path, options: tuple[object, ...]) -> None:
    sent = {name: make_file(tmp_path / name, size) for name, size in (("a.bin", 1), ("b c.txt", 700_000), ("empty", 0))}
    out = tmp_path / "deep" / "inbox"
    recv = runner.recv(out, "--count", 3, "--node-id", 2)
    first, *more = [tmp_path / name for name in sent]
    send = runner.send("--json", "--ack-from", 2, *options, "--file", first, *more).end()
    assert (send.code, send.err) == (0, "")
    (told,) = send.lines
    assert {key: told[key] for key in ("role", "ok", "objects", "bytes", "not_acked", "objects_sent")} == {
        "role": "send",
        "ok": True,
        "objects": 3,
        "bytes": 700_001,
        "not_acked": [],
        "objects_sent": 3,
    }
    ended = recv.end()
    assert (ended.code, ended.err) == (0, "")
    ready, told = ended.lines
    assert ready == {"role": "recv", "ready": True, "node_id": 2}
    assert {key: told[key] for key in ("role", "ok", "objects", "bytes", "objects_received")} == {
        "role": "recv",
        "ok": True,
        "objects": 3,
        "bytes": 700_001,
        "objects_received": 3,
    }
    assert contents(out) == sent


def test_data_arrive_under_their_numbers(runner: Runner, tmp_path: Path) -> None:
    sent = [make_file(tmp_path / str(size), size) for size in (300_000, 10, 1400)]
    recv = runner.recv(tmp_path / "out", "--count", 3, "--sync", "current")
    paths = [tmp_path / str(len(content)) for content in sent]
    assert runner.send("--data", paths[0], "--data", paths[1], paths[2]).end().code == 0
    assert recv.end().code == 0
    arrived = contents(tmp_path / "out")
    assert sorted(arrived.values()) == sorted(sent)
    assert all(name.isdigit() for name in arrived)


@pytest.mark.parametrize("options", [(), ("--fec", "rs"), ("--fec", "nocode", "--rate", 0)])
def test_a_stream_arrives(runner: Runner, tmp_path: Path, options: tuple[object, ...]) -> None:
    lines = [f"line {number} {'.' * (number % 90)}\n".encode() for number in range(20_000)]
    (tmp_path / "lines").write_bytes(b"".join(lines) + b"and no end of line")
    recv = runner.recv(tmp_path / "out", "--count", 1)
    assert runner.send("--stream", tmp_path / "lines", *options).end().code == 0
    told = recv.end().lines[-1]
    assert told["messages"] == len(lines)
    ((name, content),) = contents(tmp_path / "out").items()
    assert name.startswith("stream-")
    assert content == (tmp_path / "lines").read_bytes()


def test_many_receivers_on_one_host(runner: Runner, tmp_path: Path) -> None:
    content = make_file(tmp_path / "file", 2_000_000)
    recvs = [runner.recv(tmp_path / str(node), "--count", 1, "--node-id", node) for node in range(2, 6)]
    with_unicast = runner.recv(tmp_path / "unicast", "--count", 1, "--node-id", 6, "--unicast-nack")
    send = runner.send("--file", tmp_path / "file", "--ack-from", "2,3,4,5,6", "--rate", "400e6").end()
    assert (send.code, send.err) == (0, "")
    assert [recv.end().code for recv in (*recvs, with_unicast)] == [0] * 5
    for name in ("2", "3", "4", "5", "unicast"):
        assert contents(tmp_path / name) == {"file": content}


@pytest.mark.parametrize("sync", ["current", "stream", "all"])
def test_who_comes_late(
    runner: Runner, tmp_path: Path, until_sending: Callable[[], None], sync: str
) -> None:
    sent = {name: make_file(tmp_path / name, 400_000 + ord(name)) for name in "abcd"}
    early = runner.recv(tmp_path / "early", "--count", 4)
    send = runner.send("--rate", "4e6", *[item for name in sent for item in ("--file", tmp_path / name)])
    until_sending()
    wait_for(lambda: contents(tmp_path / "early").get("a") == sent["a"])
    late = runner.recv(tmp_path / "late", "--count", 4 if sync == "all" else 2, "--sync", sync)
    assert (send.end().code, early.end().code, late.end().code) == (0, 0, 0)
    arrived = contents(tmp_path / "late")
    assert arrived.items() <= sent.items()
    assert len(arrived) == (4 if sync == "all" else 2)
    assert contents(tmp_path / "early") == sent


def test_a_stream_joined_late_begins_with_a_whole_line(
    runner: Runner, tmp_path: Path, until_sending: Callable[[], None]
) -> None:
    lines = "".join(f"line {number} {'.' * (number % 90)}\n" for number in range(20_000))
    (tmp_path / "lines").write_text(lines)
    send = runner.send("--stream", tmp_path / "lines", "--rate", "5e6")
    until_sending()
    recv = runner.recv(tmp_path / "out", "--count", 1, "--sync", "current")
    assert (send.end().code, recv.end().code) == (0, 0)
    (content,) = contents(tmp_path / "out").values()
    assert 1000 < len(content) < len(lines)
    assert lines.endswith("\n" + content.decode())


def test_without_an_end_or_with_a_long_wait(runner: Runner, tmp_path: Path) -> None:
    began = time.monotonic()
    nothing_wanted = runner.recv(tmp_path / "a", "--timeout", 0.5)
    too_little = runner.recv(tmp_path / "b", "--timeout", 0.5, "--count", 1)
    ended = nothing_wanted.end(), too_little.end()
    assert [one.code for one in ended] == [0, 1]
    assert [one.lines[-1]["ok"] for one in ended] == [True, False]
    assert time.monotonic() - began < DEADLINE_S / 2
    assert contents(tmp_path) == {}
    assert os.listdir(tmp_path / "a") == []


# Names.


NAMES = [
    (b"../../x", "x"),
    (b"/etc/passwd", "passwd"),
    (b"a/b", "b"),
    (b"a\\..\\c", "c"),
    (b"ended by NUL\0", "ended by NUL"),
    (b"255" * 85, "255" * 85),
    (b"..", None),
    (b".", None),
    (b"", None),
    (b"dir/", None),
    (b"\0", None),
    (b"with\0NUL", None),
    (b"300" * 100, None),
    (b"taken", None),
    (b"\xff\xfe", "\udcff\udcfe"),
]
"""INFO of a FILE, and what its file is called; None is the object's number."""


def test_names_never_lead_outside(runner: Runner, port: int, tmp_path: Path) -> None:
    out = tmp_path / "one" / "out"
    (out / "taken").mkdir(parents=True)
    recv = runner.recv(out, "--count", len(NAMES), "--node-id", 2)
    source = tmp_path / "source"
    numbers: list[int] = []

    async def send() -> None:
        config = SenderConfig(grtt_s=0.002)
        where = {"group": GROUP, "interface": "127.0.0.1", "ttl": 0}
        async with Session(port=port, is_sender_only=True, sender=config, **where) as session:
            for info, _ in NAMES:
                source.write_bytes(info)
                with contextlib.suppress(ValueError):
                    numbers.append(await session.send_file(source, info=info))
                    await session.watermark([2])

    # An empty file without a name would be nothing at all, so all have at least a byte.
    NAMES_CONTENT = b"content"
    source.write_bytes(NAMES_CONTENT)

    async def send_all() -> None:
        config = SenderConfig(grtt_s=0.002)
        async with Session(
            GROUP, port, interface="127.0.0.1", ttl=0, is_sender_only=True, sender=config
        ) as session:
            for info, _ in NAMES:
                numbers.append(await session.send_file(source, info=info))
            assert (await session.watermark([2])).acked == {2}

    asyncio.run(send_all())
    assert recv.end().code == 0
    expected = {name or str(number) for (_, name), number in zip(NAMES, numbers, strict=True)}
    assert contents(out) == dict.fromkeys(expected, NAMES_CONTENT)
    assert set(contents(tmp_path)) == {"source", *(f"one/out/{name}" for name in expected)}
