"""Tests that every example runs and does what its docstring says."""

import contextlib
import os
import pty
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
VECTORS = ROOT / "tests" / "vectors"


@pytest.fixture
def port(port: int) -> str:
    """A free UDP port as a command-line argument."""
    return str(port)


Listen = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def listen() -> Iterator[Listen]:
    """Return a function that starts a receiving example, and waits until it listens."""
    with contextlib.ExitStack() as started:

        def start(example: str, *arguments: str | Path) -> subprocess.Popen[str]:
            argv = [sys.executable, "-W", "error", str(EXAMPLES / example), *map(str, arguments)]
            process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
            started.enter_context(process)
            started.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline().startswith(("listening", "running"))
            return process

        yield start


def lines_of(process: subprocess.Popen[str]) -> list[str]:
    """Return the remaining output of a process, in lines. Fail if its exit status is not 0."""
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    return out.splitlines()


def run(example: str, *arguments: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run an example to its end as a user would, and check its exit status."""
    argv = [sys.executable, "-W", "error", str(EXAMPLES / example), *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status, done.stderr
    return done


@pytest.mark.parametrize(
    "words",
    [
        ["jms_subscribe.py", "--uri", "URI"],
        ["jms_patterns.py", "--uri", "URI"],
        ["jms_request.py", "--uri", "URI", "--serve", "1"],
        ["jms_lanes.py", "--uri", "URI", "--listen"],
        ["jms_chat.py", "--uri", "URI", "Ann"],
        ["norm_receive.py", "--port", "PORT"],
        ["norm_stream_sub.py", "--port", "PORT"],
        ["file_recv.py", "INBOX", "--port", "PORT"],
    ],
    ids=lambda words: str(words[0]),
)
def test_ctrl_c_ends_an_example_as_it_ends_a_command(words: list[str], port: str, tmp_path: Path) -> None:
    uri = f"fjm2://239.192.57.40:{port}?interface=127.0.0.1&ttl=0"
    example, *arguments = [{"URI": uri, "PORT": port, "INBOX": str(tmp_path)}.get(word, word) for word in words]
    argv = [sys.executable, "-W", "error", str(EXAMPLES / example), *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith("listening")
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, said) == (130, "")


def test_ctrl_c_ends_a_sender_of_files(port: str, tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(bytes(2_000_000))
    shown, terminal = pty.openpty()
    argv = [sys.executable, "-W", "error", EXAMPLES / "file_send.py", big, "--port", port, "--rate", "1e6"]
    with subprocess.Popen(argv, stdout=terminal, stderr=subprocess.PIPE, env=os.environ | {"TERM": "xterm"}) as process:
        os.close(terminal)
        text = ""
        while "to 0 hosts" not in text:
            text += read_some(shown)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
        os.close(shown)
    assert (process.returncode, said) == (130, b"")


# The notebook is not a command. Another test runs its cells one by one.
COMMANDS = [path.name for path in EXAMPLES.glob("*.py") if path.name != "notebook.py"]


@pytest.mark.parametrize("example", sorted(COMMANDS))
def test_every_example_shows_its_usage(example: str) -> None:
    if example == "web_app.py":
        pytest.importorskip("fastapi", reason="the extra `admin` is not installed")
    assert "usage:" in run(example, "--help").stdout.lower()


def peeked(capture: str, *arguments: str) -> str:
    """Run `peek_capture.py` on a capture, in this process, and return the printed lines."""
    main = runpy.run_path(str(EXAMPLES / "peek_capture.py"))["main"]
    result = CliRunner().invoke(main, [str(VECTORS / f"{capture}.pcap"), *arguments])
    assert result.exception is None, result.output
    return result.output


def test_peeking_shows_one_line_for_each_packet() -> None:
    lines = run("peek_capture.py", VECTORS / "loss-multicast-nack.pcap").stdout.splitlines()
    assert len(lines) == 1 + 157
    assert lines[0].split() == ["seconds", "from", "node", "message", "object", "block", "symbol"]
    at = lines[0].index("message")
    assert {line[at:].split()[0] for line in lines[1:]} == {"DATA", "NACK", "ACK(CC)", "CMD(CC)", "CMD(FLUSH)"}
    (first, *_) = [line for line in lines if "NACK" in line]
    assert "asks node 1 for object 1 block 1 symbols 16, 17; object 2 block 0 symbol 16;" in first


def test_peeking_stops_at_the_limit() -> None:
    assert len(peeked("cc-on", "--limit", "20").splitlines()) == 21


@pytest.mark.parametrize("capture", sorted(path.stem for path in VECTORS.glob("*.pcap")))
def test_peeking_knows_every_capture(capture: str) -> None:
    lines = peeked(capture).splitlines()
    assert len(lines) > 5
    assert not lines[-1].startswith("NORM packets")  # the captures hold nothing else


@pytest.mark.parametrize(
    ("capture", "words"),
    [
        ("crafted", "asks node 1 for any 2 symbols of object 0 block 1"),
        ("crafted", "asks node 1 for objects 65534 to 1"),
        ("crafted", "nodes 2, 3 to acknowledge type 1"),
        ("loss-burst", "object 1 blocks 4 to 7"),
        ("loss-heavy-all-nack-levels", "info of object 9"),
        ("loss-heavy-all-nack-levels", "object 6 block 1 symbol 1 and its info"),
        ("loss-stream", "end of stream at byte 12330"),
        ("ack-watermark-missing-node", "all sent up to here; nodes 2, 99 to acknowledge"),
        ("rs5-short-blocks", "parity 2"),
        ("fec2-m16", "parity 1"),
        ("fec129", "parity 1"),
    ],
)
def test_peeking_describes_requests_and_data(capture: str, words: str) -> None:
    assert words in peeked(capture)


def test_peeking_at_another_file_fails_with_one_line(tmp_path: Path) -> None:
    whole = (VECTORS / "crafted.pcap").read_bytes()
    files = {
        "text": (b"no capture at all, but long enough", "is not a pcap file"),
        "empty": (b"", "is not a pcap file"),
        "pcapng": (bytes.fromhex("0a0d0d0a") + bytes(40), "is a pcapng file; `tshark -F pcap -r"),
        "other-link": (whole[:20] + bytes((99, 0, 0, 0)) + whole[24:], "has link type 99, expected one of"),
        "cut": (whole[:400], "ends within packet 5"),
        "cut-in-record": (whole[:30], "ends within packet 1"),
    }
    for name, (content, words) in files.items():
        path = tmp_path / name
        path.write_bytes(content)
        error = run("peek_capture.py", path, status=1).stderr
        assert error.startswith(f"Error: {path} {words}")
        assert len(error.splitlines()) == 1


def test_peeking_counts_packets_that_are_not_norm(tmp_path: Path) -> None:
    content = bytearray((VECTORS / "cmd-application.pcap").read_bytes())
    content[24 + 16 + 14 + 20 + 8] = 0x47  # the first packet's version and type
    path = tmp_path / "mixed.pcap"
    path.write_bytes(content)
    done = run("peek_capture.py", path)
    assert done.stderr == "NORM packets: 15, other UDP datagrams: 1\n"


def test_objects_from_one_to_two(listen: Listen, port: str) -> None:
    receivers = [listen("norm_receive.py", "--port", port, "--count", "2", "--node-id", node) for node in ("2", "3")]
    texts = ("one", "two words")
    arguments = ("--port", port, "--ack-from", "2", "--ack-from", "3", "--ack-from", "4")
    sent = run("norm_send_objects.py", *texts, *arguments).stdout.splitlines()
    assert [line.partition(": ")[2] for line in sent[:2]] == list(texts)
    assert sent[2] == "confirmed by [2, 3], not by [4]"
    for receiver in receivers:
        told = [line for line in lines_of(receiver) if not line.startswith("(")]
        assert [line.partition(", ")[2] for line in told] == [f"info b'text/plain': {text.encode()}" for text in texts]
    sent = run("norm_send_objects.py", "alone", "--port", port).stdout.splitlines()
    assert sent[-1] == "sent; no receiver asks for more"


def test_a_stream_of_messages(listen: Listen, port: str) -> None:
    subscribers = [listen("norm_stream_sub.py", "--port", port, "--size", "70") for _ in range(2)]
    sent = run("norm_stream_pub.py", "--port", port, "--size", "70", "--messages", "5000", "--rate", "50e6").stdout
    assert sent.startswith("5000 messages in ")
    for subscriber in subscribers:
        assert lines_of(subscriber) == ["5000 messages, the last is number 4999"]


def test_files_under_their_names(listen: Listen, port: str, tmp_path: Path) -> None:
    sent = {"README.md": os.urandom(5000), "picture": os.urandom(500_000)}
    for name, content in sent.items():
        (tmp_path / name).write_bytes(content)
    inboxes = [tmp_path / f"inbox{number}" for number in range(3)]
    receivers = [listen("file_recv.py", inbox, "--port", port, "--count", "2") for inbox in inboxes]
    said = run("file_send.py", *(tmp_path / name for name in sent), "--port", port).stdout
    assert "bytes sent" in said
    assert "3 hosts got it all: " in said
    for receiver, inbox in zip(receivers, inboxes, strict=True):
        assert lines_of(receiver) == [f"{name}: {len(content)} bytes" for name, content in sent.items()]
        assert {path.name: path.read_bytes() for path in inbox.iterdir()} == sent


def test_progress_of_files_shows_on_a_terminal(listen: Listen, port: str, tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(os.urandom(2_000_000))
    for number in range(2):
        listen("file_recv.py", tmp_path / f"inbox{number}", "--port", port)
    shown, terminal = pty.openpty()
    argv = [sys.executable, "-W", "error", EXAMPLES / "file_send.py", big, "--port", port, "--rate", "10e6"]
    with subprocess.Popen(argv, stdout=terminal, stderr=terminal, env=os.environ | {"TERM": "xterm"}) as sender:
        os.close(terminal)
        text = "".join(iter(lambda: read_some(shown), ""))
        os.close(shown)
    assert sender.returncode == 0
    percents = [int(number) for number in re.findall(r"to 2 hosts.*?(\d+)%", text)]
    assert percents == sorted(percents)
    assert len({percent for percent in percents if 0 < percent < 100}) >= 3
    assert percents[-1] == 100
    assert "2 hosts got it all: " in text


def test_progress_of_received_files_shows_on_a_terminal(port: str, tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(os.urandom(1_500_000))
    shown, terminal = pty.openpty()
    argv = [
        sys.executable,
        "-W",
        "error",
        EXAMPLES / "file_recv.py",
        tmp_path / "inbox",
        "--port",
        port,
        "--count",
        "1",
    ]
    with subprocess.Popen(argv, stdout=terminal, stderr=terminal, env=os.environ | {"TERM": "xterm"}) as receiver:
        os.close(terminal)
        text = read_some(shown)
        while "listening" not in text:
            text += read_some(shown)
        run("file_send.py", big, "--port", port, "--rate", "10e6")
        text += "".join(iter(lambda: read_some(shown), ""))
        os.close(shown)
    assert receiver.returncode == 0
    percents = [int(number) for number in re.findall(r"receiving.*?(\d+)%", text)]
    assert percents == sorted(percents)
    assert len({percent for percent in percents if 0 < percent < 100}) >= 3
    assert "big: 1500000 bytes" in text


def read_some(terminal: int) -> str:
    """Return the next output of a terminal, or "" once no process writes to it."""
    try:
        return os.read(terminal, 4096).decode(errors="replace")
    except OSError:
        return ""


def test_the_bare_engine_sends_to_itself(listen: Listen, port: str) -> None:
    receiver = listen("bare_engine.py", "--port", port)
    sent = run("bare_engine.py", "--port", port, "--text", "hello, all of you").stdout
    assert "TransmissionFlushed" in sent
    assert [line.partition("(")[0] for line in lines_of(receiver)] == [
        "SenderAppeared",
        "InfoReceived",
        "ObjectCompleted",
    ]


SHORT = [path.name for path in EXAMPLES.glob("*.py") if path.name not in ("demo.py", "peek_capture.py")]


@pytest.mark.parametrize("example", sorted(SHORT))
def test_examples_fit_on_a_screen(example: str) -> None:
    bound = 70 if example == "web_app.py" else 60  # each is both a publisher and a subscriber, or a server
    assert len((EXAMPLES / example).read_text().splitlines()) < bound
