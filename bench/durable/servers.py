"""Processes of servers: started, ended by their ids, and looked at."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..peers.base import Deadline, PeerTimeoutError
from ..peers.broker import dying_with_us

_STOP_S = 10.0
"""Longest time for a server to end after SIGTERM. It writes what it has."""
_POLL_S = 0.02
_REST_S = 0.5
_REST_CPU_S = 0.05
"""CPU time of servers in _REST_S that rest."""
_REST_MAX_S = 15.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Server:
    """A running server, which prints to a file."""

    def __init__(self, argv: Sequence[str], log: Path) -> None:
        self.log = log
        with log.open("wb") as said:
            self._popen = subprocess.Popen(
                dying_with_us(list(argv)),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def has_ended(self) -> bool:
        return self._popen.poll() is not None

    def last_words(self) -> str:
        """Return the last line that it printed."""
        return "".join(self.log.read_text(errors="replace").strip().splitlines()[-1:])

    def stop(self) -> None:
        if self._popen.poll() is None:
            self._popen.send_signal(signal.SIGTERM)

    def wait(self) -> None:
        """Wait for the end, and kill the server if it takes too long."""
        try:
            self._popen.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()


@contextmanager
def servers(commands: Sequence[Sequence[str]], folder: Path) -> Iterator[list[Server]]:
    """Run servers until the context is left. Their output goes into files in the folder."""
    started: list[Server] = []
    try:
        for number, argv in enumerate(commands, 1):
            started.append(Server(argv, folder / f"server{number}.log"))
        yield started
    finally:
        for server in started:
            server.stop()
        for server in started:
            server.wait()


def until(is_so: Callable[[], bool], started: Sequence[Server], deadline: Deadline) -> None:
    """Wait until a condition is true. Raise PeerTimeoutError if a server ends, or the time does."""
    while not is_so():
        check_running(started)
        deadline.check("starting servers")
        time.sleep(_POLL_S)


def check_running(started: Sequence[Server]) -> None:
    """Raise PeerTimeoutError if a server has ended."""
    for server in started:
        if server.has_ended:
            raise PeerTimeoutError(f"a server ended: {server.last_words()}")


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process so far."""
    # Fields 14 and 15 of proc(5) are the 12th and 13th after the program's name, which may contain anything.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES


def until_resting(pids: Sequence[int]) -> None:
    """Wait until servers have nothing to do: some write their files beforehand. Give up after some seconds."""
    end = time.monotonic() + _REST_MAX_S
    before = sum(map(cpu_s, pids))
    while time.monotonic() < end:
        time.sleep(_REST_S)
        now = sum(map(cpu_s, pids))
        if now - before < _REST_CPU_S:
            return
        before = now
