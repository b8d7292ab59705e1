"""Programs of tests that run in network namespaces, obey commands on stdin, and report in lines of JSON."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from netns import Namespace

READY_S = 30.0
"""Longest wait for something quick on a busy machine, where Python alone takes a second to start."""
_POLL_S = 0.01
_FOLDER = Path(__file__).parent


def until(is_true: Callable[[], object], timeout_s: float, what: Callable[[], str]) -> None:
    """Wait until a condition is true.

    After the timeout, raise AssertionError with the text that `what` returns.
    """
    deadline = time.monotonic() + timeout_s
    while not is_true():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what()}")
        time.sleep(_POLL_S)


class Peer:
    """A running Python program of this folder. `peers` closes it."""

    def __init__(self, namespace: Namespace, program: str, *arguments: object) -> None:
        self._argv = [program, *map(str, arguments)]
        self._process: subprocess.Popen[str] = namespace.start(sys.executable, str(_FOLDER / program), *self._argv[1:])
        self.reports: list[dict[str, Any]] = []
        self._said: list[str] = []
        self._threads = [threading.Thread(target=read) for read in (self._read_reports, self._read_errors)]
        for thread in self._threads:
            thread.start()

    def _read_reports(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.reports.append(json.loads(line) | {"_at": time.monotonic()})

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self._said += self._process.stderr

    # Reports.

    def all(self, name: str) -> list[Any]:
        """Return all values that the program has reported under a name."""
        return [report[name] for report in list(self.reports) if name in report]

    def last(self, name: str, default: Any = None) -> Any:
        """Return the newest value that the program has reported under a name, or `default` if there is none."""
        return next(iter(reversed(self.all(name))), default)

    def wait_for(self, name: str, wanted: Callable[[Any], object] = lambda _: True, timeout_s: float = READY_S) -> Any:
        """Wait until the program reports a value under a name that fulfils the condition.

        Return the first such value.
        """
        found: list[Any] = []

        def is_there() -> bool:
            found[:] = [value for value in self.all(name) if wanted(value)]
            if not found and self._process.poll() is not None and not any(each.is_alive() for each in self._threads):
                found[:] = [value for value in self.all(name) if wanted(value)]
                if not found:
                    raise AssertionError(f"ended without {name}: {self}")
            return bool(found)

        until(is_there, timeout_s, lambda: f"{name} of {self}")
        return found[0]

    def __str__(self) -> str:
        reports = "\n".join(f"{report}"[:500] for report in self.reports[-20:])
        return f"{' '.join(self._argv)}\nexit status {self._process.poll()}\n{reports}\n{''.join(self._said)[-3000:]}"

    @property
    def stderr(self) -> str:
        return "".join(self._said)

    # Control.

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, *words: object) -> None:
        """Write a line to the program's stdin."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """Kill the program, and wait until its process is gone."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def wait(self, timeout_s: float = READY_S) -> int:
        """Wait for the program to end, and return its exit status."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running: {self}") from None

    def close(self) -> None:
        """Kill the program if it is still running, and read the rest of its output."""
        if self._process.poll() is None:
            self.kill()
        for thread in self._threads:
            thread.join()


@contextmanager
def peers(*started: Peer) -> Iterator[None]:
    """Close all peers at the end of the block. If the block raises, add the peers' state to the exception."""
    try:
        yield
    except BaseException as error:
        error.add_note("\n".join(map(str, started)))
        raise
    finally:
        for peer in started:
            peer.close()
