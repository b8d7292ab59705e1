"""Processes of `fjm2-bench` for tests: they are started, and their results are read and checked."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from fjm2bench.networks.namespaces import Host

DEADLINE_S = 40.0
CLEAN = ("lost", "duplicated", "out_of_order", "corrupt")
SIZES = pytest.mark.parametrize(
    ("size", "count"),
    [(1024, 2000), *(pytest.param(*each, marks=pytest.mark.nightly) for each in ((8, 500), (64, 2000), (100_000, 50)))],
)
"""Sizes of messages in bytes, with the number of messages that are sent.

Each case starts three processes, which for some systems are Java virtual machines.
"""


class Ended(NamedTuple):
    """Exit code and output of a process that has ended."""

    code: int
    lines: list[Any]
    err: str


class Process:
    """A running `fjm2-bench`."""

    def __init__(self, *arguments: object, host: Host | None = None) -> None:
        argv = [sys.executable, "-W", "error", "-m", "fjm2bench", *map(str, arguments), "--json"]
        if host is not None:
            argv = list(host.inside(*argv))
        self.popen = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def wait_until_ready(self) -> None:
        """Wait until the process has printed its first line, which says that it is ready."""
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        assert line, self.end()
        assert json.loads(line) == {"ready": True}

    def end(self, timeout_s: float = DEADLINE_S) -> Ended:
        """Wait for the process to end. Return its exit code and output."""
        out, err = self.popen.communicate(timeout=timeout_s)
        return Ended(self.popen.returncode, [json.loads(line) for line in out.splitlines()], err)

    def stop(self) -> None:
        """Kill the process if it is still running."""
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.communicate()


Start = Callable[..., Process]


def the_only_line(ended: Ended) -> dict[str, Any]:
    assert ended.code == 0, ended
    assert ended.err == ""
    (line,) = ended.lines
    assert isinstance(line, dict)
    return line


def check_received(line: dict[str, Any], messages: int, size: int) -> None:
    assert line["ended"]
    assert (line["messages"], line["bytes"]) == (messages, messages * size)
    assert [line[name] for name in CLEAN] == [0, 0, 0, 0], line
