"""A program in a network namespace. Its output is kept, lines of JSON are parsed, and it is stopped at the end."""

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from netns import Namespace
from peers import READY_S, until

_ROOT = Path(__file__).parents[2]
_SHOWN_LINES = 40
STOP_S = 10.0


class Program:
    """A running program. It is a context manager, which stops the program at the end of the block."""

    def __init__(self, namespace: Namespace, *command: object, environment: dict[str, str] | None = None) -> None:
        self._command = [str(word) for word in command]
        self._process = subprocess.Popen(
            ("ip", "netns", "exec", namespace.name, *self._command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
            env=os.environ | (environment or {}),
            start_new_session=True,  # Ctrl-C must reach only the process that started the lab
        )
        self.lines: list[str] = []
        """Lines that the program has written to stdout or stderr."""
        self.reports: list[dict[str, Any]] = []
        """JSON objects among the lines that the program has written to stdout."""
        self._threads = [
            threading.Thread(target=self._read, args=(stream, keep), daemon=True)
            for stream, keep in ((self._process.stdout, self._report), (self._process.stderr, None))
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, stream: Any, keep: Callable[[str], None] | None) -> None:
        for line in stream:
            self.lines.append(line.rstrip())
            if keep is not None:
                keep(line)

    def _report(self, line: str) -> None:
        with contextlib.suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, dict):
                self.reports.append(found)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            error.add_note(str(self))
        self.close()

    def __str__(self) -> str:
        said = "\n".join(line[:500] for line in self.lines[-_SHOWN_LINES:])
        return f"{' '.join(self._command)}\nexit status {self._process.poll()}\n{said}"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait_for(self, name: str, timeout_s: float = READY_S) -> Any:
        """Wait for a report that contains this name, and return the value that the first such report has for it."""
        return self.wait_until(
            lambda: next((report for report in list(self.reports) if name in report), None), name, timeout_s
        )[name]

    def wait_for_line(self, part: str, *, after: int = 0, timeout_s: float = READY_S) -> str:
        """Wait for a line that contains `part`, and return the line. Ignore the first `after` lines."""
        return str(
            self.wait_until(lambda: next((line for line in self.lines[after:] if part in line), None), part, timeout_s)
        )

    def wait_until(self, find: Callable[[], Any], what: str, timeout_s: float) -> Any:
        """Call `find` until it returns a value other than None, and return this value.

        Raise AssertionError if the program ends first, or after `timeout_s`.
        """
        found: list[Any] = []

        def is_there() -> bool:
            has_ended = not self.is_running and not any(thread.is_alive() for thread in self._threads)
            found[:] = [find()]
            if found[0] is None and has_ended:
                raise AssertionError(f"ended without {what}: {self}")
            return found[0] is not None

        until(is_there, timeout_s, lambda: f"{what} of {self}")
        return found[0]

    def tell(self, *words: object) -> None:
        """Write a line to the program's stdin."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def end_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the program with SIGKILL, so that it cannot clean up."""
        self._process.kill()
        self._process.wait()

    def wait(self, timeout_s: float = READY_S) -> int:
        """Wait for the program to end, and return its exit status."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running: {self}") from None

    def close(self) -> None:
        """Send SIGTERM to the program, then SIGKILL if it is still running after `STOP_S`."""
        if self.is_running:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)
        if self.is_running:
            self.kill()
        for thread in self._threads:
            thread.join()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            with contextlib.suppress(OSError):  # some buffered input could not be written
                stream.close()  # type: ignore[union-attr]
