"""Tests of errors around the pipeline. They are reported in one line, end it soon, and leave nothing behind."""

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from fjm2bench.traces.cli import traces
from fjm2bench.traces.files import find
from fjm2bench.traces.lines import BLOCK_BYTES, LINE_BYTES_MAX, Split, lines_of
from fjm2bench.traces.session import reason_of
from fjm2bench.traces.warehouse import LAYOUT, Warehouse
from sparks import OPTIONS
from trace_lines import encode, sample, write

START_S = 120.0


def said(*arguments: object, code: int = 1) -> str:
    """Run a command that fails, and return the last line of its output."""
    result = CliRunner().invoke(traces, [str(part) for part in arguments])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result.output.splitlines()[-1]


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_master_that_is_not_there_is_named_at_once(folder: Path, tmp_path: Path) -> None:
    port = closed_port()
    begun = time.monotonic()
    message = said("ingest", folder, tmp_path / "w", "--master", f"spark://127.0.0.1:{port}")
    assert message == f"Error: there is no Spark master at 127.0.0.1:{port}: Connection refused"
    assert time.monotonic() - begun < 10


def test_a_command_that_fails_harms_nothing_else_of_its_process(folder: Path, tmp_path: Path) -> None:
    with subprocess.Popen(("sleep", "60")) as other:
        said("ingest", folder, tmp_path / "w", "--master", f"spark://127.0.0.1:{closed_port()}")
        assert other.poll() is None
        assert logging.root.manager.disable == logging.NOTSET
        other.kill()


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--master", "nonsense", "spark://HOST:PORT"),
        ("--memory", "2x", "512m or more"),
        ("--memory", "10m", "512m or more"),
        ("--conf", "spark.cores.max", "KEY=VALUE"),
    ],
)
def test_impossible_settings_are_reported_before_spark_starts(
    folder: Path, tmp_path: Path, option: str, value: str, expected: str
) -> None:
    assert expected in said("ingest", folder, tmp_path / "w", option, value, code=2)


@pytest.mark.parametrize("command", ["aggregate", "report"])
def test_a_warehouse_of_another_version_is_left_alone(tmp_path: Path, command: str) -> None:
    warehouse = Warehouse(tmp_path / "w")
    with warehouse.opened():
        pass
    (warehouse.path / "_state" / "layout.json").write_text(str(LAYOUT + 1))
    assert f"layout {LAYOUT + 1}" in said(command, warehouse.path)


@pytest.mark.parametrize("name", ["layout.json", "journal.json"])
def test_damaged_state_is_named(tmp_path: Path, name: str) -> None:
    warehouse = Warehouse(tmp_path / "w")
    with warehouse.opened():
        pass
    path = warehouse.path / "_state" / name
    path.write_text('{"moves": [')
    with pytest.raises(Exception, match="damaged") as error, warehouse.opened():
        pass
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("An error occurred while calling o1.parquet.\n: java.io.IOException: no room\n\tat a.b(C.java:1)", "no room"),
        ("[TABLE_MISSING] It is not there.\nat once", "[TABLE_MISSING] It is not there."),
        (
            "An error occurred while calling o1.x.\n: org.apache.SparkException: Job aborted\n\tat a.b(C.java:1)\n"
            'Caused by: java.io.IOException: Cannot run program "/no/python": error=2, No such file\n'
            "Caused by: java.io.IOException: error=2, No such file\n\t... 2 more",
            'Cannot run program "/no/python": error=2, No such file',
        ),
        (
            'Job aborted: Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n'
            "ModuleNotFoundError: No module named 'pyarrow'\n\n\tat a.b(C.java:1)",
            "ModuleNotFoundError: No module named 'pyarrow'. Workers need what the extra spark of FJM2 installs; "
            "PYSPARK_PYTHON says which Python they run",
        ),
    ],
)
def test_the_reason_is_the_line_that_tells_why(text: str, expected: str) -> None:
    assert reason_of(RuntimeError(text)) == expected


def test_a_huge_line_is_read_in_blocks(folder: Path) -> None:
    """The huge line counts as one bad line, in whichever part of the file it is read."""
    path = folder / "x.jsonl"
    size = 100 << 20
    with path.open("wb") as file:
        file.write(b"one\n")
        file.truncate(size)
        file.seek(size)
        file.write(b"\ntwo\n")
    middle, whole = size // 2, path.stat().st_size
    first, second = (
        [lines for split in ((start, end),) for lines in lines_of(Split(str(path), *split, whole, start == 0))]
        for start, end in ((0, middle), (middle, whole))
    )
    assert [lines.fault for lines in first] == [None, "oversize"]
    assert [lines.data for lines in second] == [b"two\n"]
    assert max(len(lines.data) for lines in first) <= BLOCK_BYTES + LINE_BYTES_MAX


def test_a_clock_that_was_put_back_does_not_keep_a_file_waiting(folder: Path) -> None:
    path = write(folder, "x.jsonl", [sample()])
    with path.open("ab") as file:
        file.write(encode([sample()])[:-1])
    ahead = time.time() + 3600
    os.utime(path, (ahead, ahead))
    assert find(folder, {}, 10).pending == [str(path)]
    found = find(folder, {}, 0)
    assert (found.pending, found.bytes) == ([], path.stat().st_size)


def processes_of(session: int) -> list[str]:
    """Return the running processes of a session, whichever parents they have."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append((entry / "cmdline").read_text().replace("\0", " ")[:200])
        except OSError:
            continue
    return found


def until(condition: Callable[[], bool], what: str, seconds: float = START_S) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.05)


def test_ctrl_c_prints_one_line_and_leaves_no_process(folder: Path, tmp_path: Path) -> None:
    write(folder, "run=a/node=a.jsonl", [sample(seq=seq) for seq in range(5)])
    log, warehouse = tmp_path / "log", Warehouse(tmp_path / "w")
    program = [sys.executable, "-m", "fjm2bench", "traces", "stream", str(folder), str(warehouse.path)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*program, "--master", "local[1]", "--memory", "1g", "--every", "1", *OPTIONS],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        until(lambda: (warehouse.path / "_state" / "checkpoint").exists(), "the stream")
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(20) == 130
        lines = [
            line for line in log.read_text().splitlines() if not line.startswith(("WARNING:", "stream-", "  bad:"))
        ]
        assert lines == ["interrupted: what was not finished is done again next time"]
        until(lambda: not processes_of(process.pid), "its processes to end", 10)
    finally:
        process.kill()
