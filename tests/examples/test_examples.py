"""Every example runs, and does what it says."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
VECTORS = ROOT / "tests" / "vectors"


def run(example: str, *arguments: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs an example as a user would, and looks at its exit status."""
    argv = [sys.executable, "-W", "error", str(EXAMPLES / example), *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status, done.stderr
    return done


@pytest.mark.parametrize("example", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_every_example_tells_how_it_is_used(example: str) -> None:
    assert "Usage:" in run(example, "--help").stdout


def peeked(capture: str, *arguments: str) -> str:
    """What `peek_capture.py` prints of a capture, without a process of its own."""
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
    assert not lines[-1].startswith("NORM packets")  # there is nothing else in them


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
def test_peeking_puts_into_words_what_is_asked_and_sent(capture: str, words: str) -> None:
    assert words in peeked(capture)


def test_peeking_at_something_else_ends_with_one_line(tmp_path: Path) -> None:
    whole = (VECTORS / "crafted.pcap").read_bytes()
    files = {
        "text": (b"no capture at all, but long enough", "is no pcap file"),
        "empty": (b"", "is no pcap file"),
        "pcapng": (bytes.fromhex("0a0d0d0a") + bytes(40), "is a pcapng file; `tshark -F pcap -r"),
        "other-link": (whole[:20] + bytes((99, 0, 0, 0)) + whole[24:], "has link type 99, expected one of"),
        "cut": (whole[:400], "breaks off in packet 5"),
        "cut-in-record": (whole[:30], "breaks off in packet 1"),
    }
    for name, (content, words) in files.items():
        path = tmp_path / name
        path.write_bytes(content)
        error = run("peek_capture.py", path, status=1).stderr
        assert error.startswith(f"Error: {path} {words}")
        assert len(error.splitlines()) == 1


def test_peeking_counts_what_is_no_norm(tmp_path: Path) -> None:
    content = bytearray((VECTORS / "cmd-application.pcap").read_bytes())
    content[24 + 16 + 14 + 20 + 8] = 0x47  # the first packet's version and type
    path = tmp_path / "mixed.pcap"
    path.write_bytes(content)
    done = run("peek_capture.py", path)
    assert done.stderr == "NORM packets: 15, other UDP datagrams: 1\n"
