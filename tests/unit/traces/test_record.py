"""Tests of the recorder: it writes all increments, and does not delay the program."""

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from recording import NAMED, WAIT_S, Counting, file_size_limit, lines_of, sums_of, until

from fjm2.base.readings import Reading, unregister_counted
from fjm2.errors import ConfigError
from fjm2.record import TraceRecorder


def test_a_recorder_loses_no_increment_while_threads_count(tmp_path: Path) -> None:
    thing = Counting("session", "lane0")
    thing.counts["session"]["a"] = 1_000_000  # counted before the recording begins
    with TraceRecorder(tmp_path, NAMED, interval_s=0.005) as recorder:
        recorder.attach(thing)
        recorder.attach(thing)
        deadline = time.monotonic() + 30.0
        while thing.times_read < 40 and time.monotonic() < deadline:
            thing.counts["session"]["a"] += 1
            thing.counts["lane0"][f"n{thing.counts['session']['a'] % 50}"] += 1
            thing.drops["own"] += 1
    lines = lines_of(recorder.path)
    assert sums_of(lines)["a"] == thing.counts["session"]["a"] - 1_000_000
    assert sums_of(lines, "lane0") == thing.counts["lane0"]
    assert sum(line.get("drops", {}).get("own", 0) for line in lines) == 2 * thing.drops["own"]
    for source in ("session", "lane0"):
        own = [line for line in lines if line["source"] == source]
        assert [line["seq"] for line in own] == list(range(len(own)))
        assert len(own) > 10
        assert all(abs(b["t"] - a["t"] - b["dt"]) < 1e-5 for a, b in pairwise(own))


class Busy:
    """An object with as many counters as a bus. All of them change before each reading."""

    system, layer, role = "fjm2-jms", "jms", "node"

    def __init__(self, lanes: int) -> None:
        self._lanes, self._told = range(lanes), 0

    def readings(self) -> list[Reading]:
        self._told += 1
        counts = {f"something_counted_{number}": self._told * number for number in range(45)}
        gauges = {"grtt_s": 0.01 * self._told, "queue_bytes": float(self._told)}
        return [Reading(f"lane{lane}", counts, gauges, {"own": self._told}) for lane in self._lanes]


@pytest.mark.calm
def test_recording_takes_less_than_a_hundredth_of_a_core(tmp_path: Path) -> None:
    with TraceRecorder(tmp_path, NAMED) as recorder:
        recorder.attach(Busy(lanes=3))
        (thread,) = (one for one in threading.enumerate() if one.name == "fjm2-record")
        assert thread.ident is not None
        clock = time.pthread_getcpuclockid(thread.ident)
        begun_s, cpu_s = time.monotonic(), time.clock_gettime(clock)
        time.sleep(3)
        cpu_s, lasted_s = time.clock_gettime(clock) - cpu_s, time.monotonic() - begun_s
    assert len(lines_of(recorder.path)) > 3 * 20
    assert cpu_s < 0.01 * lasted_s


def test_one_series_measures_the_process_and_another_takes_over(tmp_path: Path) -> None:
    first, second = Counting(), Counting()
    began = time.process_time()
    with TraceRecorder(tmp_path, NAMED, interval_s=0.005) as recorder:
        recorder.attach(first)
        recorder.attach(second)
        spin_until(lambda: len(text_of(recorder)) > 300)
        recorder.detach(first)
        spin_until(lambda: '"source":"session-2"' in text_of(recorder) and first_is_over(recorder))
        used = time.process_time() - began
    lines = lines_of(recorder.path)
    told = {source: sum(line["c"].get("cpu_s", 0) for line in lines if line["source"] == source) for source in SOURCES}
    assert all(told.values())
    assert used * 0.5 <= sum(told.values()) <= used * 1.5 + 0.05
    assert {line["g"].get("rss_bytes", 1 << 20) > 1 << 16 for line in lines} == {True}


def test_no_processor_time_is_counted_twice_when_another_series_takes_over(tmp_path: Path) -> None:
    """No time is counted twice even if both series write a line in the turn in which one of them ends."""
    spin(0.3)
    first, second = Busy(lanes=1), Busy(lanes=1)
    began = time.process_time()
    with TraceRecorder(tmp_path, NAMED, interval_s=0.01) as recorder:
        recorder.attach(first)
        recorder.attach(second)
        spin(0.05)
        recorder.detach(first)
        spin(0.05)
    used = time.process_time() - began
    told = sum(line["c"].get("cpu_s", 0) for line in lines_of(recorder.path))
    assert told <= used + 0.01


def spin(seconds: float) -> None:
    began = time.process_time()
    while time.process_time() - began < seconds:
        pass


SOURCES = ("session", "session-2")


def spin_until(condition: Callable[[], bool]) -> None:
    """Use processor time until a condition holds, so that there is something to measure."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        sum(range(20_000))


def text_of(recorder: TraceRecorder) -> str:
    return recorder.path.read_text() if recorder.path.exists() else ""


def first_is_over(recorder: TraceRecorder) -> bool:
    """Return True once the second series has measured the processor time of the process."""
    last = [line for line in lines_of(recorder.path) if line["source"] == "session-2"]
    return any(line["c"].get("cpu_s", 0) > 0.01 for line in last)


def test_a_closed_thing_is_written_to_the_end_and_frees_its_name(tmp_path: Path) -> None:
    with TraceRecorder(tmp_path, NAMED, interval_s=0.02) as recorder:
        for round_ in range(3):
            thing = Counting()
            recorder.attach(thing)
            thing.counts["session"]["a"] += 10 + round_
            unregister_counted(thing)
            thing.counts["session"]["a"] += 1000  # counted after the close: not recorded
            until(lambda number=round_: text_of(recorder).count('"a":') == number + 1)  # type: ignore[misc]
    lines = lines_of(recorder.path)
    assert [line["c"]["a"] for line in lines if "a" in line["c"]] == [10, 11, 12]
    assert {line["source"] for line in lines} == {"session"}
    assert [line["seq"] for line in lines] == list(range(len(lines)))


def test_new_sources_begin_at_zero_and_vanished_ones_are_forgotten(tmp_path: Path) -> None:
    thing = Counting("lan:1")
    with TraceRecorder(tmp_path, NAMED, interval_s=0.01) as recorder:
        recorder.attach(thing)
        thing.counts["lan:1"]["a"] += 1
        until(lambda: text_of(recorder).count('"a":1') == 1)
        thing.counts["link:2"] = Counter(bytes_sent=77)
        until(lambda: '"bytes_sent":77' in text_of(recorder))
        del thing.counts["link:2"]
        thing.counts["lan:1"]["a"] += 1
        until(lambda: text_of(recorder).count('"a":1') == 2)
        thing.counts["link:2"] = Counter(bytes_sent=5)
        until(lambda: '"bytes_sent":5' in text_of(recorder))
    lan, link = ([line for line in lines_of(recorder.path) if line["source"] == name] for name in ("lan:1", "link:2"))
    assert sums_of(link, "link:2") == {"bytes_sent": 82}
    assert link[0]["t"] - link[0]["dt"] > next(line["t"] for line in lan if "a" in line["c"]) - 1e-5
    assert [line["seq"] for line in link] == list(range(len(link)))


@pytest.mark.parametrize("error", [RuntimeError("dictionary changed size"), ValueError("a mistake of ours")])
def test_a_thing_that_cannot_be_read_disturbs_no_other(
    tmp_path: Path, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    thing = Counting()
    with TraceRecorder(tmp_path, NAMED, interval_s=0.005) as recorder:
        recorder.attach(thing)
        thing.error = error
        time.sleep(0.05)
        thing.error = None
        thing.counts["session"]["a"] += 3
        until(lambda: '"a":3' in text_of(recorder))
    assert caplog.text.count("a sample of a trace failed") == isinstance(error, ValueError)


def test_a_full_disk_loses_no_increments(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    thing = Counting()
    with TraceRecorder(tmp_path, NAMED, interval_s=0.005) as recorder:
        recorder.attach(thing)
        thing.counts["session"]["a"] = 1
        until(lambda: '"a":1' in text_of(recorder))
        with file_size_limit(recorder.path.stat().st_size + 100):
            for _ in range(20):
                thing.counts["session"]["a"] += 1
                time.sleep(0.01)
        until(lambda: recorder.lines_refused > 0)
        thing.counts["session"]["a"] += 1
        until(lambda: '"a":21' in text_of(recorder))
    good = []
    for text in recorder.path.read_text().splitlines():
        try:
            good.append(json.loads(text))
        except ValueError:
            assert len(text) <= 100
    assert sums_of(good) == {"a": 22}
    assert sum(line["dt"] for line in good) == pytest.approx(good[-1]["t"] - good[0]["t"] + good[0]["dt"], abs=1e-4)
    assert caplog.text.count("cannot write traces") == 1


def test_a_recorder_refuses_invalid_settings(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"interval_s=0: expected 0\.001 to 3600"):
        TraceRecorder(tmp_path, interval_s=0)
    with pytest.raises(ConfigError, match="bytes_max=0"):
        TraceRecorder(tmp_path, bytes_max=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file"):
        TraceRecorder(tmp_path / "file")
    recorder = TraceRecorder(tmp_path)
    recorder.close()
    with pytest.raises(ConfigError, match="closed"):
        recorder.attach(Counting())


def test_a_forked_process_writes_nothing_into_its_parents_file(tmp_path: Path) -> None:
    thing = Counting()
    with TraceRecorder(tmp_path, NAMED, interval_s=0.005) as recorder:
        recorder.attach(thing)
        until(recorder.path.exists)
        child = os.fork()
        if child == 0:
            try:
                own = Counting()
                recorder.attach(own)
                own.counts["session"]["child"] = 1
                recorder.close()
            finally:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        thing.counts["session"]["parent"] = 1
    assert sums_of(lines_of(recorder.path)) == {"parent": 1}
    others = [path for path in recorder.path.parent.iterdir() if path != recorder.path]
    assert [path.name for path in others] == [f"node=n-{child}.jsonl"]
    assert sums_of(lines_of(others[0])) == {"child": 1}


@pytest.mark.parametrize("interval", ["0.1s", None, 0, -1, float("nan"), 1e9])
def test_an_interval_is_seconds(tmp_path: Path, interval: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^interval_s={interval!r}: expected "):
        TraceRecorder(tmp_path, NAMED, interval_s=interval)
