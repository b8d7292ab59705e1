"""Programs with a keeper inside, as processes, by either API."""

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from keepers import DEADLINE_S, uri_of

ASYNCIO = """
import asyncio, sys
from fjm2.jms import ConnectionFactory

async def main():
    async with ConnectionFactory(sys.argv[1], keep=sys.argv[2]).create_connection() as connection:
        connection.exception_listener = lambda error: print("PROBLEM", error, flush=True)
        print("open", flush=True)
        BODY
    print("closed", flush=True)

asyncio.run(main())
"""
BLOCKING = """
import sys
from fjm2.jms.blocking import ConnectionFactory

with ConnectionFactory(sys.argv[1], keep=sys.argv[2]).create_connection() as connection:
    connection.exception_listener = lambda error: print("PROBLEM", error, flush=True)
    print("open", flush=True)
    BODY
print("closed", flush=True)
"""
WAIT = {ASYNCIO: "await asyncio.to_thread(sys.stdin.readline)", BLOCKING: "sys.stdin.readline()"}
"""Statements of each program that wait for a line."""


class Program:
    """A running program. It keeps in a directory until it reads a line, or runs a statement instead."""

    def __init__(self, directory: Path, port: int, text: str = ASYNCIO, body: str = "") -> None:
        self.said: list[str] = []
        """Lines that it has printed so far."""
        self.popen = subprocess.Popen(
            (sys.executable, "-W", "error", "-c", text.replace("BODY", body or WAIT[text]), uri_of(port), directory),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self.said.append(line.strip())

    def until(self, is_true: Callable[[], object]) -> None:
        """Wait until a condition is true."""
        ends_at = time.monotonic() + DEADLINE_S
        while not is_true():
            assert time.monotonic() < ends_at, self.said
            assert self.popen.poll() is None, self.said
            time.sleep(0.01)

    def opened(self) -> "Program":
        """Wait until its connection is open."""
        self.until(lambda: "open" in self.said)
        return self

    def go_on(self) -> None:
        """Let it read its line."""
        assert self.popen.stdin is not None
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()

    def end(self, number: int = signal.SIGKILL) -> int:
        """Send a signal, and return the exit status."""
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        return self.wait()

    def close(self) -> None:
        """Let it close its connection, and check that it did."""
        self.go_on()
        assert self.wait() == 0, self.said
        assert self.said == ["open", "closed"]

    def wait(self) -> int:
        code = self.popen.wait(DEADLINE_S)
        self._thread.join(DEADLINE_S)
        for stream in (self.popen.stdin, self.popen.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        return code


class Programs:
    """Programs of one test."""

    def __init__(self) -> None:
        self.running: list[Program] = []

    def start(self, directory: Path, port: int, text: str = ASYNCIO, body: str = "") -> Program:
        self.running.append(Program(directory, port, text, body))
        return self.running[-1]

    def keeper(self, directory: Path) -> Program:
        """Return the program that has a directory open."""
        pid = int((directory / "lock").read_text().split()[1])
        return next(each for each in self.running if each.popen.pid == pid)

    def kill(self) -> None:
        """Kill all of them."""
        for program in self.running:
            program.end()
