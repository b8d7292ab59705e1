"""Tests of the progress of `fjm2-bench traces`: lines for a log, one line for a terminal."""

import io
import re
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fjm2bench.traces.progress import Progress, size_text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def spark_with(*stages: tuple[int, int]) -> Any:
    """Return what stands for a session whose stages have so many tasks, done and in all."""
    infos = [SimpleNamespace(numCompletedTasks=done, numTasks=tasks) for done, tasks in stages]
    tracker = SimpleNamespace(getActiveStageIds=lambda: range(len(infos)), getStageInfo=infos.__getitem__)
    return SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))


def test_a_log_has_a_line_a_phase_and_one_now_and_then() -> None:
    out = io.StringIO()
    with Progress(out, every_s=0.01) as progress:
        progress("ingest: read 3 files, 1.2 MB")
        progress.watch(spark_with((2, 8), (1, 2)))
        until(lambda: "tasks" in out.getvalue())
        progress("aggregate: by_minute, 1 day")
    lines = out.getvalue().splitlines()
    assert re.fullmatch(r"ingest: read 3 files, 1\.2 MB \(\d+ s\)", lines[0])
    assert any(re.fullmatch(r"ingest: read 3 files, 1\.2 MB, 3 of 10 tasks \(\d+ s\)", line) for line in lines)
    assert any(line.startswith("aggregate: by_minute, 1 day (") for line in lines)
    assert "\x1b" not in out.getvalue()


def test_a_terminal_has_one_line_which_goes_at_the_end() -> None:
    out = Terminal()
    with Progress(out, every_s=0.01) as progress:
        progress("one")
        until(lambda: out.getvalue().count("one") > 2)
    assert "\n" not in out.getvalue()
    assert out.getvalue().endswith("\r\x1b[K")
    length = len(out.getvalue())
    time.sleep(0.05)
    assert len(out.getvalue()) == length


def test_a_session_that_ends_and_a_closed_stream_stop_nothing() -> None:
    out = io.StringIO()
    with Progress(out, every_s=0.01) as progress:
        progress.watch(SimpleNamespace())  # type: ignore[arg-type]
        progress("one")
        until(lambda: out.getvalue().count("one") > 2)
        out.close()
        progress("two")


@pytest.mark.parametrize(
    ("size", "expected"), [(0, "0 B"), (999, "999 B"), (26_500, "26.5 kB"), (1.2e6, "1.2 MB"), (3.1e12, "3,100.0 GB")]
)
def test_sizes_have_the_unit_that_suits_them(size: float, expected: str) -> None:
    assert size_text(int(size)) == expected
