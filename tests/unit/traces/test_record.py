"""Traces: whatever happens to program or disk, their lines are whole, and their increments add up to the counters."""

import gzip
import json
import logging
import math
import os
import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.base.logs import Log
from fjm2.base.readings import Reading, register_counted, unregister_counted
from fjm2.errors import ConfigError
from fjm2.record import Labels, TraceRecorder, TraceWriter
from fjm2.traces import environment as of_environment
from fjm2.traces import labels as labels_module
from fjm2.traces.series import IDLE_S, Series

NAMED = Labels(run="r", node="n", system="fjm2", layer="norm", role="pub")
WAIT_S = 10.0
COMMON = {
    *("v", "kind", "t", "run", "node", "system", "layer", "role", "scenario", "size", "fanout", "loss"),
    *("rate_bps", "link", "source"),
}
"""Keys that every line has."""

names = st.text("abc_", min_size=1, max_size=8)
counters = st.dictionaries(names, st.integers(0, 1 << 60) | st.floats(0, 1e12), max_size=6)


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an earlier test was warned of is told again."""
    for module in (labels_module, of_environment):
        monkeypatch.setattr(module, "log", Log("fjm2.record"))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def lines_of(path: Path) -> list[dict[str, Any]]:
    """All lines; each has to be whole."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def sums_of(lines: list[dict[str, Any]], source: str = "session") -> Counter[str]:
    total: Counter[str] = Counter()
    for line in lines:
        if line["source"] == source:
            total.update({name: value for name, value in line["c"].items() if name != "cpu_s"})
    return total


class Counting:
    """Something with counters."""

    system, layer, role = "fjm2", "norm", "node"

    def __init__(self, *sources: str) -> None:
        self.counts = {source: Counter[str]() for source in sources or ("session",)}
        self.drops: Counter[str] = Counter()
        self.gauges: dict[str, float | None] = {}
        self.error: Exception | None = None

    def readings(self) -> list[Reading]:
        if self.error is not None:
            raise self.error
        return [
            Reading(source, dict(counts), dict(self.gauges), dict(self.drops))
            for source, counts in list(self.counts.items())
        ]


# Labels.


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"run": ""}, "run=''"),
        ({"run": "a/b"}, "letters, digits"),
        ({"node": "x" * 129}, "1 to 128"),
        ({"node": None}, "node=None"),
        ({"role": 7}, "role=7"),
        ({"size": -1}, "size=-1: expected 0 or more"),
        ({"size": True}, "size=True"),
        ({"fanout": 1.5}, "fanout=1.5"),
        ({"loss": 1.01}, "loss=1.01: expected 0 to 1"),
        ({"loss": math.nan}, "loss=nan"),
        ({"rate_bps": 0}, "rate_bps=0"),
    ],
)
def test_labels_say_what_is_wrong(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Labels(**wrong)


def test_labels_that_make_no_sense_are_left_out_of_the_environment(caplog: pytest.LogCaptureFixture) -> None:
    text = '{"run": "r1", "size": 1024, "loss": 7, "colour": "red", "role": "pub"}'
    labels = Labels.from_environment({"FJM2_TRACE_LABELS": text})
    assert (labels.run, labels.size, labels.loss, labels.role) == ("r1", 1024, None, "pub")
    assert "loss=7: expected 0 to 1" in caplog.text
    assert "colour: expected one of run, node" in caplog.text


@pytest.mark.parametrize("text", ["{", "[]", "7", "[" * 100_000, '{"run": NaN}', "\udcff"])
def test_whatever_the_environment_says_there_are_labels(text: str, caplog: pytest.LogCaptureFixture) -> None:
    labels = Labels.from_environment({"FJM2_TRACE_LABELS": text})
    assert labels.run.endswith(labels.node)
    assert labels.node.endswith(f"-{os.getpid()}")
    assert "FJM2_TRACE_LABELS" in caplog.text


# Lines.


@given(counters, counters, st.floats(0, 4e9), st.floats(1e-6, 1e6), st.integers(0, 1 << 40))
def test_what_is_written_parses_back(
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


def test_a_torn_line_is_alone_in_being_bad(tmp_path: Path) -> None:
    with TraceWriter(tmp_path, NAMED) as writer:
        writer.write_sample("session", 0, 0.1, {"a": 1})
        writer.write_sample("session", 1, 0.1, {"a": 1})
    whole = writer.path.read_bytes()
    # The last leaves one byte of the second line. Lines differ in length: a time may end in zeros.
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
    assert "node=n.jsonl" not in files  # the first one is gone
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


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """The kernel writes no file further than this."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("extra", [0, 1, 100, 399, 400, 401, 402, 650])
def test_a_write_that_breaks_off_says_what_is_there(
    tmp_path: Path, extra: int, caplog: pytest.LogCaptureFixture
) -> None:
    """400 bytes a line, newline included: what lacks only the newline is there."""
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


def test_a_disk_that_refuses_is_told_of_seldom(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with TraceWriter(blocked, NAMED) as writer:
        assert not any(writer.write_sample("session", seq, 0.1, {}) for seq in range(50))
    assert writer.lines_refused == 50
    assert caplog.text.count("cannot write traces") == 1
    assert str(blocked) in caplog.text


# Series.

steps = st.lists(
    st.tuples(
        st.floats(0.01, 3.0),
        st.dictionaries(st.sampled_from("abc"), st.integers(1, 1000), max_size=2),
        st.integers(0, 2),
    ),
    max_size=40,
)
"""Seconds that pass, what is counted, and how many lines the disk then takes."""


@given(steps)
def test_increments_add_up_and_cover_all_of_the_time(steps: list[tuple[float, dict[str, int], int]]) -> None:
    series, counts, now = Series("session", None, 100.0), Counter[str](a=5), 100.0
    series.begin_with(Reading("session", dict(counts), {}, {}))
    told: Counter[str] = Counter()
    covered_to = now
    for seconds, more, room in [*steps, (0.1, {"a": 1}, 2)]:
        now += seconds
        counts.update(more)
        reading = Reading("session", dict(counts), {}, {})
        samples = series.due(reading, now)
        assert len(samples) <= 2
        assert samples or not more
        for sample in samples[:room]:
            assert sample.start == covered_to < sample.end
            covered_to = sample.end
            told.update({name: int(value) for name, value in sample.counters.items()})
        series.commit(reading, samples, min(room, len(samples)))
    assert covered_to == now
    assert +told == +(counts - Counter(a=5))


def test_what_is_idle_writes_a_line_a_second_and_wakes_with_a_short_one() -> None:
    series = Series("session", None, 0.0)
    written = []
    for tick in range(1, 36):
        reading = Reading("session", {"a": 7 if tick == 35 else 0, "cpu_s": tick / 1000}, {"rss_bytes": tick}, {})
        samples = series.due(reading, tick / 10)
        series.commit(reading, samples, len(samples))
        written += [(round(one.end - one.start, 3), one.counters.get("a", 0)) for one in samples]
    assert written == [(IDLE_S, 0), (IDLE_S, 0), (IDLE_S, 0), (0.4, 0), (0.1, 7)]


def test_a_gauge_or_a_drop_ends_the_idling() -> None:
    series = Series("session", None, 0.0)
    assert series.due(Reading("session", {}, {}, {}), 0.1) == []
    (_, sample) = series.due(Reading("session", {}, {"queue_bytes": 5}, {}), 0.2)
    assert sample.gauges == {"queue_bytes": 5}
    (_, sample) = series.due(Reading("session", {}, {}, {"own": 2}), 0.2)
    assert (sample.drops, sample.end - sample.start) == ({"own": 2}, 0.1)


def test_a_counter_that_began_again_counts_from_nothing() -> None:
    series = Series("link:1", "1", 0.0)
    series.begin_with(Reading("link:1", {"bytes_sent": 1000}, {}, {}))
    (sample,) = series.due(Reading("link:1", {"bytes_sent": 30}, {}, {}), 0.1)
    assert sample.counters == {"bytes_sent": 30}


# The recorder.


def test_a_recorder_writes_all_that_is_counted_while_others_count(tmp_path: Path) -> None:
    thing = Counting("session", "lane0")
    thing.counts["session"]["a"] = 1_000_000  # before it is looked at
    with TraceRecorder(tmp_path, NAMED, interval_s=0.005) as recorder:
        recorder.attach(thing)
        recorder.attach(thing)
        stop = time.monotonic() + 0.3
        while time.monotonic() < stop:
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
    """As much as a bus says, all of it different each time."""

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


def test_one_series_tells_of_the_process_and_another_takes_over(tmp_path: Path) -> None:
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


def test_whoever_takes_over_tells_no_time_twice(tmp_path: Path) -> None:
    """Though both have a line in the turn in which one ends."""
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
    """Busy, so that there is something to tell."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        sum(range(20_000))


def text_of(recorder: TraceRecorder) -> str:
    return recorder.path.read_text() if recorder.path.exists() else ""


def first_is_over(recorder: TraceRecorder) -> bool:
    """The second series tells of the process, and has told something."""
    last = [line for line in lines_of(recorder.path) if line["source"] == "session-2"]
    return any(line["c"].get("cpu_s", 0) > 0.01 for line in last)


def test_what_closes_is_written_to_the_end_and_its_name_is_free(tmp_path: Path) -> None:
    with TraceRecorder(tmp_path, NAMED, interval_s=0.02) as recorder:
        for round_ in range(3):
            thing = Counting()
            recorder.attach(thing)
            thing.counts["session"]["a"] += 10 + round_
            unregister_counted(thing)
            thing.counts["session"]["a"] += 1000  # none of its business any more
            until(lambda number=round_: text_of(recorder).count('"a":') == number + 1)  # type: ignore[misc]
    lines = lines_of(recorder.path)
    assert [line["c"]["a"] for line in lines if "a" in line["c"]] == [10, 11, 12]
    assert {line["source"] for line in lines} == {"session"}
    assert [line["seq"] for line in lines] == list(range(len(lines)))


def test_what_appears_later_begins_with_nothing_and_what_vanishes_is_forgotten(tmp_path: Path) -> None:
    thing = Counting("lan:1")
    with TraceRecorder(tmp_path, NAMED, interval_s=0.01) as recorder:
        recorder.attach(thing)
        time.sleep(0.1)
        thing.counts["link:2"] = Counter(bytes_sent=77)
        until(lambda: '"bytes_sent":77' in text_of(recorder))
        del thing.counts["link:2"]
        time.sleep(0.05)
        thing.counts["link:2"] = Counter(bytes_sent=5)
        until(lambda: '"bytes_sent":5' in text_of(recorder))
    link = [line for line in lines_of(recorder.path) if line["source"] == "link:2"]
    assert sums_of(link, "link:2") == {"bytes_sent": 82}
    assert link[0]["dt"] < 0.09
    assert [line["seq"] for line in link] == list(range(len(link)))


@pytest.mark.parametrize("error", [RuntimeError("dictionary changed size"), ValueError("a mistake of ours")])
def test_something_that_cannot_be_read_hurts_nobody(
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


def test_while_the_disk_is_full_nothing_is_lost_but_detail(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
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


def test_a_recorder_refuses_what_makes_no_sense(tmp_path: Path) -> None:
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


# The environment.


@pytest.fixture
def fresh() -> Iterator[None]:
    """No recorder of the environment's, before and after."""
    of_environment._forget()
    yield
    if of_environment._recorder is not None:
        of_environment._recorder.close()
    of_environment._forget()


@pytest.mark.usefixtures("fresh")
def test_the_environment_makes_a_recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FJM2_TRACE_DIR", str(tmp_path))
    monkeypatch.setenv("FJM2_TRACE_LABELS", '{"run": "r", "node": "n", "system": "other", "size": 8}')
    monkeypatch.setenv("FJM2_TRACE_INTERVAL", "0.005")
    thing = Counting()
    register_counted(thing)
    thing.counts["session"]["a"] += 4
    path = tmp_path / "run=r" / "node=n.jsonl"
    until(lambda: path.exists() and '"a":4' in path.read_text())
    unregister_counted(thing)
    assert {(line["system"], line["layer"], line["size"]) for line in lines_of(path)} == {("other", "norm", 8)}


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FJM2_TRACE_INTERVAL", "soon"),
        ("FJM2_TRACE_INTERVAL", "nan"),
        ("FJM2_TRACE_INTERVAL", "-1"),
        ("FJM2_TRACE_BYTES_MAX", "1GB"),
        ("FJM2_TRACE_LABELS", "size=8"),
    ],
)
def test_what_the_environment_says_wrongly_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str, value: str
) -> None:
    monkeypatch.setenv("FJM2_TRACE_DIR", str(tmp_path))
    monkeypatch.setenv(name, value)
    register_counted(Counting())
    assert name in caplog.text
    until(lambda: bool(list(tmp_path.rglob("*.jsonl"))))


@pytest.mark.usefixtures("fresh")
def test_a_directory_that_cannot_be_made_is_told_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FJM2_TRACE_DIR", str(tmp_path / "file"))
    register_counted(Counting())
    register_counted(Counting())
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "file" in caplog.text


def test_without_the_variable_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FJM2_TRACE_DIR", raising=False)
    before = threading.active_count()
    register_counted(Counting())
    assert threading.active_count() == before
