"""Tests of `fjm2 norm send` and `fjm2 norm recv` as processes, over the loopback interface."""

import asyncio
import contextlib
import itertools
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
from click.testing import CliRunner
from representatives import representatives
from trains import receive_train

from fjm2.commands import main
from fjm2.norm import SenderConfig, Session
from fjm2.norm.net.udp import UdpConfig, UdpTransport

GROUP = "239.192.57.96"
DEADLINE_S = 30.0
"""Longest wait for a process to end. On a busy machine processes start slowly."""
PROMPTLY_S = 2.0


class Ended(NamedTuple):
    """Exit code and output of a process that has ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        """The lines that the process printed, decoded from JSON."""
        return [json.loads(line) for line in self.out.splitlines()]


class Process:
    """A running `fjm2` command."""

    def __init__(self, *arguments: object, stderr: int = subprocess.PIPE) -> None:
        argv = [sys.executable, "-W", "error", "-m", "fjm2", *map(str, arguments)]
        self.popen = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=stderr, text=True, stdin=subprocess.DEVNULL)
        self._early = ""

    def wait_until_ready(self) -> None:
        """Wait for the first line of output. A receiver with the option --json listens by then."""
        assert self.popen.stdout is not None
        self._early = self.popen.stdout.readline()

    def end(self) -> Ended:
        """Wait for the process to end. Return its exit code and output."""
        out, err = self.popen.communicate(timeout=DEADLINE_S)
        return Ended(self.popen.returncode, self._early + out, err)

    def stop(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.communicate()


class Runner:
    """A starter of commands that use one session on the loopback. After the test it ends those still running."""

    def __init__(self, port: int, stack: contextlib.ExitStack) -> None:
        self._session = ("--group", GROUP, "--port", port, "--interface", "127.0.0.1", "--ttl", 0)
        self._stack = stack

    def start(self, *arguments: object, **settings: Any) -> Process:
        process = Process(*arguments, **settings)
        self._stack.callback(process.stop)
        return process

    def send(self, *arguments: object, **settings: Any) -> Process:
        return self.start("norm", "send", *self._session, *arguments, **settings)

    def listen(self, *arguments: object, **settings: Any) -> Process:
        return self.start("norm", "recv", *self._session, *arguments, **settings)

    def recv(self, out: Path, *arguments: object) -> Process:
        """Start a receiver, and wait until it listens."""
        process = self.listen("--out", out, "--json", *arguments)
        process.wait_until_ready()
        return process


@pytest.fixture
def runner(port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    monkeypatch.delenv("FJM2_NO_GSO", raising=False)
    with contextlib.ExitStack() as stack:
        yield Runner(port, stack)


@pytest.fixture
def until_sending(port: int) -> Iterator[Callable[[], None]]:
    """Return a function that waits until something is sent to the group."""
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
    """Return the contents of all files in a directory and its subdirectories, by relative path."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def wait_for(is_true: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# Files, data and streams arrive.


SENDING = {
    "as-it-is": (),
    "parity": ("--fec", "rs", "--parity", 4, "--auto-parity", 1, "--block-size", 20, "--segment-size", 500),
    "rs-with-its-default-parity": ("--fec", "rs", "--block-size", 250),
    "nocode": ("--fec", "nocode", "--node-id", 4_294_967_294),
    "no-limit": ("--rate", 0, "--segment-size", 8000),
    "congestion-control": ("--cc", "--rate", 1e9),
    "long-round-trips": ("--grtt", 0.05, "--rate", "80e6"),
}


@pytest.mark.parametrize("kind", representatives(SENDING, "as-it-is", "parity", "congestion-control"))
def test_files_arrive_with_their_names(runner: Runner, tmp_path: Path, kind: str) -> None:
    options = SENDING[kind]
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


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(()),
        pytest.param(("--fec", "rs"), marks=pytest.mark.nightly),
        pytest.param(("--fec", "nocode", "--rate", 0), marks=pytest.mark.nightly),
    ],
)
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


@pytest.mark.calm
@pytest.mark.parametrize("sync", representatives(["current", "stream", "all"], "current"))
def test_a_late_receiver(runner: Runner, tmp_path: Path, until_sending: Callable[[], None], sync: str) -> None:
    sent = {name: make_file(tmp_path / name, 400_000 + ord(name)) for name in "abcd"}
    early = runner.recv(tmp_path / "early", "--count", 4)
    send = runner.send("--rate", "2e6", *[item for name in sent for item in ("--file", tmp_path / name)])
    until_sending()
    wait_for(lambda: contents(tmp_path / "early").get("a") == sent["a"])
    late = runner.recv(tmp_path / "late", "--count", 4 if sync == "all" else 2, "--sync", sync)
    assert (send.end().code, early.end().code, late.end().code) == (0, 0, 0)
    arrived = contents(tmp_path / "late")
    assert arrived.items() <= sent.items()
    assert len(arrived) == (4 if sync == "all" else 2)
    assert contents(tmp_path / "early") == sent


@pytest.mark.calm
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
"""Pairs of the INFO of a FILE and the name of the received file.

None means that the object's number becomes the name.
"""


def test_names_never_lead_outside(runner: Runner, port: int, tmp_path: Path) -> None:
    out = tmp_path / "one" / "out"
    (out / "taken").mkdir(parents=True)
    recv = runner.recv(out, "--count", len(NAMES), "--node-id", 2)
    source = tmp_path / "source"
    source.write_bytes(b"content")

    async def send() -> list[int]:
        config = SenderConfig(grtt_s=0.002)
        async with Session(GROUP, port, interface="127.0.0.1", ttl=0, is_sender_only=True, sender=config) as session:
            numbers = [await session.send_file(source, info=info) for info, _ in NAMES]
            assert (await session.watermark([2])).acked == {2}
        return numbers

    numbers = asyncio.run(send())
    assert recv.end().code == 0
    expected = {name or str(number) for (_, name), number in zip(NAMES, numbers, strict=True)}
    assert contents(out) == dict.fromkeys(expected, b"content")
    assert set(contents(tmp_path)) == {"source", *(f"one/out/{name}" for name in expected)}


# The ends of commands.


@pytest.mark.parametrize(
    ("kind", "number"),
    representatives(
        itertools.product(["data", "file", "stream"], [signal.SIGINT, signal.SIGTERM]),
        ("data", signal.SIGINT),
        ("file", signal.SIGTERM),
        ("stream", signal.SIGINT),
    ),
)
def test_interrupted_in_the_middle(
    runner: Runner, tmp_path: Path, until_sending: Callable[[], None], number: signal.Signals, kind: str
) -> None:
    (tmp_path / "long").write_bytes(b"0123456789\n" * 500_000)
    recv = runner.recv(tmp_path / "out", "--count", 1)
    send = runner.send(f"--{kind}", tmp_path / "long", "--rate", "10e6")
    until_sending()
    if kind != "data":
        wait_for(lambda: any(contents(tmp_path / "out").values()))
    for process in (recv, send):
        began = time.monotonic()
        process.popen.send_signal(number)
        ended = process.end()
        assert time.monotonic() - began < PROMPTLY_S
        assert ended.code == 130
        assert ended.err == ""
    left = [name for name in os.listdir(tmp_path / "out") if not name.startswith("stream-")]
    assert left == []


def test_send_does_not_wait_for_an_absent_node(runner: Runner, tmp_path: Path) -> None:
    make_file(tmp_path / "file", 1000)
    recv = runner.recv(tmp_path / "out", "--node-id", 2, "--count", 1)
    began = time.monotonic()
    ended = runner.send("--file", tmp_path / "file", "--ack-from", "2,98,99", "--json").end()
    assert time.monotonic() - began < 10
    assert (ended.code, ended.err) == (1, "not confirmed by: 98, 99\n")
    assert (ended.lines[0]["ok"], ended.lines[0]["not_acked"]) == (False, [98, 99])
    assert recv.end().code == 0


def test_a_file_deleted_while_it_is_sent_arrives_whole(
    runner: Runner, tmp_path: Path, until_sending: Callable[[], None]
) -> None:
    content = make_file(tmp_path / "file", 1_000_000)
    recv = runner.recv(tmp_path / "out", "--count", 1)
    send = runner.send("--file", tmp_path / "file", "--rate", "10e6")
    until_sending()
    os.unlink(tmp_path / "file")
    assert (send.end().code, recv.end().code) == (0, 0)
    assert contents(tmp_path / "out") == {"file": content}


def test_a_file_that_shrinks_fails(runner: Runner, tmp_path: Path, until_sending: Callable[[], None]) -> None:
    make_file(tmp_path / "file", 1_000_000)
    other = make_file(tmp_path / "other", 1000)
    recv = runner.recv(tmp_path / "out", "--node-id", 2)
    send = runner.send("--json", "--ack-from", 2, "--rate", "4e6", "--file", tmp_path / "file", tmp_path / "other")
    until_sending()
    os.truncate(tmp_path / "file", 10)
    ended = send.end()
    assert (ended.code, ended.err) == (1, "given up: file shorter than its 1000000 bytes\n")
    assert (ended.lines[0]["ok"], ended.lines[0]["objects"]) == (False, 1)
    recv.popen.send_signal(signal.SIGINT)
    ended = recv.end()
    assert ended.code == 130
    assert ended.err.startswith("lost object ")
    assert contents(tmp_path / "out") == {"other": other}


def test_two_with_the_same_node_id_are_warned(runner: Runner, tmp_path: Path) -> None:
    make_file(tmp_path / "file", 1000)
    recv = runner.recv(tmp_path / "out", "--count", 1, "--timeout", 20, "--node-id", 7)
    assert runner.send("--file", tmp_path / "file", "--node-id", 7).end().code == 0
    assert recv.popen.stderr is not None
    assert recv.popen.stderr.readline() == "warning: 127.0.0.1 uses our node id, too\n"
    recv.popen.send_signal(signal.SIGINT)
    assert recv.end().err == ""


MISTAKES = [
    ("send --data DIR", "Invalid value for '--data': File 'DIR' is a directory."),
    ("send --data FILE --interface eth77", "interface='eth77': expected the name or the IPv4 address of an interface"),
    ("send --file DIR/none", "Invalid value for '--file': File 'DIR/none' does not exist."),
    ("send --file FILE DIR/none", "Invalid value for '[MORE]...': File 'DIR/none' does not exist."),
    ("send", "expected exactly one of --data, --file and --stream"),
    ("send --data FILE --file FILE", "expected exactly one of --data, --file and --stream"),
    ("send --file FILE --stream FILE", "expected exactly one of --data, --file and --stream"),
    ("send --stream FILE FILE", "--stream expects one file, but FILE follows"),
    ("send --data FILE --node-id 0", "Invalid value for '--node-id': 0 is not in the range 1<=x<=4294967294."),
    ("send --data FILE --ack-from 1,,2", "Invalid value for '--ack-from': '1,,2': expected node ids from 1 to"),
    ("send --data FILE --ack-from 4294967295", "Invalid value for '--ack-from': '4294967295': expected node ids from"),
    (
        "send --data FILE --fec rs --parity 192",
        "Invalid value for '--parity': 192: expected 0 to 191 (255 - ",
    ),
    (
        "send --data FILE --fec rs --parity 9 --auto-parity 10",
        "Invalid value for '--auto-parity': 10: expected 0 to --pa",
    ),
    ("send --data FILE --parity 1", "Invalid value for '--parity': 1: expected 0, or --fec rs"),
    ("send --data FILE --block-size 256", "Invalid value for '--block-size': 256: expected 1 to 255"),
    ("send --data FILE --block-size 0", "Invalid value for '--block-size': 0: expected 1 to 255"),
    ("send --data FILE --segment-size 5", "Invalid value for '--segment-size': 5: expected 64 to 65000"),
    ("send --data FILE --rate -1", "Invalid value for '--rate': -1.0: expected 1e3 to 1e12 bits per second, or 0"),
    ("send --data FILE --grtt 0", "Invalid value for '--grtt': 0: expected 1us to 10s"),
    ("send --data FILE --grtt 11s", "Invalid value for '--grtt': 11s: expected 1us to 10s"),
    ("send --data EMPTY", "an empty object: expected content or info"),
    ("send --data FILE --fec xor", "Invalid value for '--fec': 'xor' is not one of 'none', 'rs', 'nocode'."),
    ("send --data FILE --ttl 256", "Invalid value for '--ttl': 256 is not in the range 0<=x<=255."),
    (
        "send --data FILE --group lost",
        "Invalid value for '--group': 'lost': expected the IPv4 or IPv6 address of a group",
    ),
    ("recv --out FILE", "Invalid value for '--out': Directory 'FILE' is a file."),
    ("recv --out FILE/below", "FILE/below: Not a directory"),
    ("recv --out /proc/fjm2", "/proc/fjm2: No such file or directory"),
    ("recv --out DIR/out --interface 192.0.2.77", "interface='192.0.2.77': expected the name or the IPv4 address of"),
    (
        "recv --out DIR/out --group 0.0.0.0",
        "Invalid value for '--group': '0.0.0.0': expected the IPv4 or IPv6 address",
    ),
    ("recv --out DIR/out --count 0", "Invalid value for '--count': 0 is not in the range x>=1."),
    ("recv --out DIR/out --timeout 0", "Invalid value for '--timeout': 0: expected more than 0s"),
    ("recv --out DIR/out --sync none", "Invalid value for '--sync': 'none' is not one of 'current', 'stream', 'all'."),
    ("recv", "Missing option '--out'."),
]


@pytest.fixture
def filled(tmp_path: Path) -> Callable[[str], str]:
    """Return a function that replaces the placeholders in an entry of MISTAKES by paths of real files."""
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "empty").touch()
    names = {"DIR": tmp_path, "FILE": tmp_path / "file", "EMPTY": tmp_path / "empty"}

    def fill(text: str) -> str:
        for name, path in names.items():
            text = text.replace(name, str(path))
        return text

    return fill


@pytest.mark.parametrize("verb", ["send --data FILE", "recv --out DIR"])
def test_a_peer_that_the_loopback_does_not_lead_to_is_a_mistake_in_the_command_line(
    filled: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    opened: list[Session] = []
    monkeypatch.setattr(Session, "open", opened.append)  # nothing may leave for another host, even if the check fails
    line = filled(f"{verb} --group 10.0.0.1 --port 5740 --interface 127.0.0.1")
    result = CliRunner().invoke(main, ["norm", *line.split()])
    assert (result.exit_code, opened) == (2, [])
    assert "Error: group='10.0.0.1': expected a multicast group, or an address of lo" in result.stderr


@pytest.mark.parametrize(("line", "answer"), MISTAKES)
def test_mistakes_are_reported_in_one_line(
    filled: Callable[[str], str], tmp_path: Path, line: str, answer: str
) -> None:
    verb, *options = filled(line).split()
    result = CliRunner().invoke(main, ["norm", verb, "--group", GROUP, "--port", "5740", *options])
    assert isinstance(result.exception, SystemExit)
    *usage, told = result.stderr.splitlines()
    is_of_host = not told.startswith(("Error: Invalid value", "Error: Missing option", "Error: expected", "Error: --"))
    assert result.exit_code == (1 if is_of_host else 2)
    assert told.startswith(f"Error: {filled(answer)}")
    assert all(part.startswith(("Usage:", "Try ")) or not part for part in usage)
    assert contents(tmp_path) == {"file": b"content", "empty": b""}


@pytest.mark.parametrize("line", ["send --data FILE --interface eth77", "send --data EMPTY", "recv --out FILE/below"])
def test_a_mistake_ends_the_process(runner: Runner, filled: Callable[[str], str], line: str) -> None:
    answer = dict(MISTAKES)[line]
    verb, *options = filled(line).split()
    ended = runner.start("norm", verb, "--group", GROUP, "--port", 5740, *options).end()
    assert ended.code == 1
    assert ended.out == ""
    assert ended.err.startswith(f"Error: {filled(answer)}")
    assert len(ended.err.splitlines()) == 1


# Output for people.


def test_progress_is_shown_on_a_terminal(runner: Runner, tmp_path: Path) -> None:
    make_file(tmp_path / "file", 400_000)
    with terminal() as (own_end, others_end):
        recv = runner.listen("--out", tmp_path / "out", "--count", 1, stderr=others_end)
        screen = read_until(own_end, "waiting")
        send = runner.send("--file", tmp_path / "file", "--rate", "4e6", stderr=others_end)
        assert send.popen.wait(DEADLINE_S) == 0
        assert recv.popen.wait(DEADLINE_S) == 0
        screen += read_until(own_end, "1 object")
    assert "sending" in screen
    assert "400.0/400.0 kB" in screen
    assert "0 repairs" in screen
    assert "listening as node " in screen


def test_without_a_terminal_there_is_little_to_read(runner: Runner, tmp_path: Path) -> None:
    make_file(tmp_path / "file", 1000)
    recv = runner.listen("--out", tmp_path / "out", "--count", 1)
    assert recv.popen.stderr is not None
    assert recv.popen.stderr.readline().startswith("listening as node ")
    assert runner.send("--file", tmp_path / "file").end() == (0, "", "")
    assert recv.end() == (0, "", "")


@contextlib.contextmanager
def terminal() -> Iterator[tuple[int, int]]:
    """Yield both ends of a terminal."""
    ends = pty.openpty()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


def read_until(terminal: int, words: str) -> str:
    """Read the output of a terminal until the expected words appear, and return it."""
    shown = ""
    deadline = time.monotonic() + DEADLINE_S
    while words not in shown:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, shown
        shown += os.read(terminal, 65_536).decode()
    return shown


@pytest.mark.parametrize("command", [("norm", "send"), ("norm", "recv")])
def test_help_has_an_example(runner: Runner, command: tuple[str, ...]) -> None:
    ended = runner.start(*command, "--help").end()
    assert ended.code == 0
    assert f"Example: fjm2 {' '.join(command)} --group " in ended.out


@pytest.mark.parametrize("command", [(), ("norm",)])
def test_the_groups_list_their_commands(runner: Runner, command: tuple[str, ...]) -> None:
    assert "Commands:" in runner.start(*command, "--help").end().out
