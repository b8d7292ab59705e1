"""A broker beside a publisher. The publisher starts and ends the broker, whose CPU time counts as the publisher's."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..workload.results import StopWatch
from .base import Deadline, PeerOptions, PeerTimeoutError

_SBIN = ("/usr/sbin", "/usr/local/sbin")
"""Folders of system programs, which are not in the search path of ordinary users."""
_POLL_S = 0.02
"""Time between two checks whether the broker accepts connections. Brokers start in tenths of a second."""
_STOP_S = 3.0
"""Longest time for a broker to end after SIGTERM."""
CONFIGURATION = "/dev/stdin"
"""File from which a broker reads its configuration. Nothing is left on the disk."""


def program(name: str) -> str | None:
    """Return the path of a program, or None if it is not installed.

    Python packages put programs beside the interpreter: those come first, as their versions are the ones asked for.
    """
    folders = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath), *_SBIN]
    return shutil.which(name, path=os.pathsep.join(folders))


def dying_with_us(argv: list[str]) -> list[str]:
    """Return a command whose process the kernel kills when this process ends, even if it is killed."""
    return [program("setpriv") or "setpriv", "--pdeathsig", "KILL", *argv]


def lack_of(name: str) -> str | None:
    """Return a text that tells what is missing to run a program, or None if nothing is."""
    for needed in (name, "setpriv"):
        if program(needed) is None:
            return f"{needed} is not installed"
    return None


@contextmanager
def broker(argv: list[str], configuration: str, options: PeerOptions, deadline: Deadline) -> Iterator[int]:
    """Run a broker until the context is left. Yield its process id as soon as it accepts connections."""
    name, place = argv[0], (options.publisher, options.port)
    if _answers(place):
        raise OSError(f"{place[0]}:{place[1]} is in use")
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(
            dying_with_us([program(name) or name, *argv[1:]]),
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            assert child.stdin is not None
            with child.stdin:
                child.stdin.write(configuration.encode())
            while not _answers(place):
                if child.poll() is not None:
                    said.seek(0)
                    last = said.read().decode(errors="replace").strip().splitlines()[-1:]
                    raise PeerTimeoutError(f"{name} ended with {child.returncode}: {''.join(last)}")
                deadline.check(f"starting {name}")
                time.sleep(_POLL_S)
            yield child.pid
        finally:
            child.terminate()
            try:
                child.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def _answers(place: tuple[str, int]) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(place) == 0


class SharedWatch(StopWatch):
    """Stop watch of elapsed time, and of the CPU time of this process and a broker together."""

    def __init__(self, broker_pid: int) -> None:
        self._broker = Path(f"/proc/{broker_pid}/stat")
        self._broker_cpu_s = self._broker_cpu()
        super().__init__()

    def elapsed(self) -> tuple[float, float]:
        seconds, cpu_s = super().elapsed()
        return seconds, cpu_s + self._broker_cpu() - self._broker_cpu_s

    def _broker_cpu(self) -> float:
        # Fields 14 and 15 of proc(5) are the 12th and 13th after the program's name, which may contain anything.
        fields = self._broker.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
