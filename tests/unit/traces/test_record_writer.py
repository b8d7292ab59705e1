"""Tests of files of traces: whatever happens to the program or the disk, a broken line spoils no other line."""

import gzip
import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recording import COMMON, NAMED, counters, file_size_limit, lines_of

from fjm2.record import TraceWriter


@given(counters, counters, st.floats(0, 4e9), st.floats(1e-6, 1e6), st.integers(0, 1 << 40))
def test_written_lines_parse_back(
    tmp_path_factory: pytest.TempPathFactory,
    counts: dict[str, float],
    gauges: dict[str, float],
    t: float,
    dt: float,
    seq: int,
) -> None:
    with TraceWriter(tmp_path_factory.mktemp("trace"), NAMED) as writer:
        assert writer.write_sample("lane0", seq, dt, counts, {**gauges, "inf": math.inf, "none": None}, {"own": 3}, t)
        assert writer.write_result({"messages": 3.0}, {"fault": "none"}, role="run", node="bench")
    sample, result = lines_of(writer.path)
    assert sample.keys() == COMMON | {"seq", "dt", "c", "g", "drops"}
    assert (sample["v"], sample["kind"], sample["source"], sample["seq"]) == (1, "sample", "lane0", seq)
    assert (sample["c"], sample["g"], sample["drops"]) == (counts, gauges, {"own": 3})
    assert (sample["t"], sample["dt"]) == (round(t, 6), round(dt, 6))
    assert result.keys() == COMMON | {"r", "labels"}
    assert (result["role"], result["node"], result["r"], result["system"]) == (
        "run",
        "bench",
        {"messages": 3.0},
        "fjm2",
    )


def test_a_torn_line_spoils_no_other(tmp_path: Path) -> None:
    with TraceWriter(tmp_path, NAMED) as writer:
        writer.write_sample("session", 0, 0.1, {"a": 1})
        writer.write_sample("session", 1, 0.1, {"a": 1})
    whole = writer.path.read_bytes()
    # The last cut leaves one byte of the second line. The length of a line varies, as a time may end in zeros.
    for cut in (1, 2, 40, len(whole.splitlines()[1])):
        writer.path.write_bytes(whole[:-cut])
        with TraceWriter(tmp_path, NAMED) as after:
            after.write_sample("session", 2, 0.1, {"a": 5})
        texts = after.path.read_bytes().splitlines()
        assert len(texts) == 3
        assert json.loads(texts[-1])["c"] == {"a": 5}
        assert texts[0] == whole.splitlines()[0]


def test_a_series_goes_on_counting_where_an_earlier_process_ended(tmp_path: Path) -> None:
    with TraceWriter(tmp_path, NAMED) as writer:
        for seq in range(3):
            writer.write_sample("session", seq, 0.1, {})
        writer.write_sample("lane1", 7, 0.1, {})
    with TraceWriter(tmp_path, NAMED) as after:
        assert after.open()
        assert [after.next_seq(source) for source in ("session", "lane1", "lane2")] == [3, 8, 0]


def test_files_rotate_without_being_renamed_and_the_oldest_go(tmp_path: Path) -> None:
    bytes_max = 16_000
    seen: dict[str, int] = {}
    with TraceWriter(tmp_path, NAMED, bytes_max=bytes_max) as writer:
        for seq in range(300):
            assert writer.write_sample("session", seq, 0.1, {"a": seq})
            seen[writer.path.name] = writer.path.stat().st_ino
    files = {path.name: path for path in writer.path.parent.iterdir()}
    assert "node=n.jsonl" not in files  # the first file is gone
    assert sum(path.stat().st_size for path in files.values()) <= bytes_max + 1000
    assert all(seen[name] == path.stat().st_ino for name, path in files.items())
    numbers = sorted(line["seq"] for path in files.values() for line in lines_of(path))
    assert numbers == list(range(numbers[0], 300))
    with TraceWriter(tmp_path, NAMED, bytes_max=bytes_max) as after:
        after.write_sample("session", after.next_seq("session"), 0.1, {})
    assert after.path == writer.path


def test_a_file_that_was_compressed_is_left_alone(tmp_path: Path) -> None:
    with TraceWriter(tmp_path, NAMED) as writer:
        writer.write_sample("session", 0, 0.1, {})
        packed = Path(f"{writer.path}.gz")
        packed.write_bytes(gzip.compress(writer.path.read_bytes()))
        writer.path.unlink()
        writer.write_sample("session", 1, 0.1, {})
        assert writer.path.name == "node=n.1.jsonl"
        assert [line["seq"] for line in lines_of(writer.path)] == [1]


def test_a_directory_that_is_removed_is_made_again(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "deep" / "er", NAMED) as writer:
        writer.write_sample("session", 0, 0.1, {})
        os.remove(writer.path)
        os.rmdir(writer.path.parent)
        assert writer.write_sample("session", 1, 0.1, {})
        assert [line["seq"] for line in lines_of(writer.path)] == [1]


def test_two_writers_of_one_name_write_two_files(tmp_path: Path) -> None:
    with (
        TraceWriter(tmp_path, NAMED) as one,
        TraceWriter(tmp_path, NAMED) as two,
        TraceWriter(tmp_path, NAMED) as three,
    ):
        for writer in (one, two, three):
            writer.write_sample("session", 0, 0.1, {})
        assert one.path.name == "node=n.jsonl"
        assert len({one.path, two.path, three.path}) == 3
        assert lines_of(two.path)[0]["node"] == two.labels.node == f"n-{os.getpid()}"


@pytest.mark.parametrize("extra", [0, 1, 100, 399, 400, 401, 402, 650])
def test_a_partial_write_reports_the_complete_lines(
    tmp_path: Path, extra: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A line has 400 bytes including its newline. A line that lacks only its newline counts as written."""
    batch = [json.dumps({"n": n, "x": ""}).encode() for n in range(3)]
    batch = [line[:-2] + b"x" * (399 - len(line)) + b'"}\n' for line in batch]
    assert {len(line) for line in batch} == {400}
    with TraceWriter(tmp_path, NAMED) as writer:
        assert writer.append(batch[:1]) == 1
        with file_size_limit(400 + extra):
            done = writer.append(batch)
        assert done == (extra + 1) // 400
        assert writer.lines_refused == 3 - done
        assert writer.append(batch[done:]) == 3 - done
    whole = []
    for text in writer.path.read_bytes().splitlines():
        try:
            whole.append(json.loads(text)["n"])
        except ValueError:
            assert text in (batch[done][:-1][: len(text)], b"")
    assert whole == [0, 0, 1, 2]
    assert caplog.text.count("cannot write traces") == 1
    assert caplog.text.count("are written again") == 1


def test_a_refusing_disk_is_logged_rarely(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with TraceWriter(blocked, NAMED) as writer:
        assert not any(writer.write_sample("session", seq, 0.1, {}) for seq in range(50))
    assert writer.lines_refused == 50
    assert caplog.text.count("cannot write traces") == 1
    assert str(blocked) in caplog.text
