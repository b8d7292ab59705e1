"""Commands of the documentation, run as a reader would: each in its own terminal, on an isolated host."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from doc_blocks import ROOT
from netns import Namespace, Network

DEADLINE_S = 60.0
_STARTED_S = 1.5
"""Time from opening a socket until a program counts as started, even if it prints nothing."""
_STOP_S = 20.0
_BEGUN = re.compile(r"listening|running|subscribed|registered|peer_up|is here")
_ENDINGS = {0, 1, 130, -signal.SIGINT}
"""Exit codes of programs ended by Ctrl-C. Click exits with 1."""


class Command(NamedTuple):
    """A command line to run in a terminal, and what the tests expect of it."""

    text: str
    """The command line, which bash runs."""
    name: str
    """Name of the command in error messages."""
    goes_on: bool = False
    """True if the command runs until Ctrl-C. It may also end by itself."""
    codes: frozenset[int] = frozenset({0})
    """Exit codes that count as success if the command ends by itself."""
    is_screen: bool = False
    """True if the command needs a terminal device."""
    says: str = ""
    """Text that the command must print."""


class Terminal:
    """A running command. Its output goes to a file."""

    def __init__(self, command: Command, namespace: Namespace, folder: Path, number: int) -> None:
        self.command = command
        self._file = folder / f".said{number}"
        self._began_at = time.monotonic()
        self._bound_at: float | None = None
        with self._file.open("w") as out, contextlib.ExitStack() as stack:
            stdin, stdout = subprocess.PIPE, out.fileno()
            if command.is_screen:
                master, slave = os.openpty()
                stack.callback(os.close, slave)
                self._master = master
                stdin = stdout = slave
            self.process = subprocess.Popen(
                ("ip", "netns", "exec", namespace.name, "bash", "-c", command.text),
                stdin=stdin,
                stdout=stdout,
                stderr=out,
                cwd=folder,
                env=_environment(folder),
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        """The command's output so far."""
        return self._file.read_text(errors="replace")

    @property
    def has_ended(self) -> bool:
        """True if the command's process has ended, for whatever reason."""
        return self.process.poll() is not None

    def has_begun(self) -> bool:
        """Return True if the next command may start: this one has ended or is ready, as its output or sockets show."""
        if self.has_ended or _BEGUN.search(self.said):
            return True
        now = time.monotonic()
        if self._bound_at is None and _is_bound(self.process.pid):
            self._bound_at = now
        since = self._bound_at
        assert now < self._began_at + DEADLINE_S, f"{self.command.name}: does not begin: {self.said}"
        return since is not None and now > since + _STARTED_S

    def finish(self) -> None:
        """Wait for the expected output and check the exit code.

        Do not wait for commands that run until Ctrl-C to end.
        """
        deadline = time.monotonic() + DEADLINE_S
        while self.command.says not in self.said:
            assert time.monotonic() < deadline, f"{self.command.name}: no {self.command.says!r} in {self.said!r}"
            time.sleep(0.05)
        if self.command.goes_on:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(DEADLINE_S)
        self._check(self.command.codes)

    def interrupt(self) -> None:
        """End the command with Ctrl-C if it is still running, and check that it ends cleanly."""
        if not self.has_ended:
            os.killpg(self.process.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_STOP_S)
            self._check(frozenset(_ENDINGS))
        elif self.command.goes_on:
            self._check(self.command.codes | _ENDINGS)

    def _check(self, codes: frozenset[int]) -> None:
        code = self.process.poll()
        assert code in codes, f"{self.command.name}: exit code {code}, expected {sorted(codes)}: {self.said}"
        assert "Traceback" not in self.said, f"{self.command.name}: {self.said}"

    def end(self) -> None:
        """Kill the command if it is still running, and close its terminal."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()
        if self.command.is_screen:
            os.close(self._master)


def run(commands: list[Command], namespace: Namespace, folder: Path) -> None:
    """Run commands in the given order. A command starts when the previous one is ready or has ended."""
    terminals: list[Terminal] = []
    with contextlib.ExitStack() as started:
        for number, command in enumerate(commands):
            terminal = Terminal(command, namespace, folder, number)
            started.callback(terminal.end)
            terminals.append(terminal)
            while not terminal.has_begun():
                time.sleep(0.05)
        for terminal in terminals:
            terminal.finish()
        for terminal in terminals:
            terminal.interrupt()


@contextlib.contextmanager
def hosts(count: int) -> Iterator[SimpleQueue[Namespace]]:
    """Make isolated hosts. Both ends of the cable at eth0 are on the same host, so that no packet leaves it."""
    made: SimpleQueue[Namespace] = SimpleQueue()
    with Network() as network:
        for _ in range(count):
            made.put(_host(network))
        yield made


def _host(network: Network) -> Namespace:
    namespace = network.namespace()
    namespace.ip("link", "add", "eth0", "type", "veth", "peer", "name", "cable")
    namespace.ip("address", "add", "192.0.2.10/24", "dev", "eth0")
    for device in ("eth0", "cable"):
        namespace.ip("link", "set", device, "up")
    namespace.ip("route", "add", "default", "dev", "eth0")
    return namespace


def clone(folder: Path) -> None:
    """Make a folder look like a clone of the repository in which the reader may write files."""
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, folder)
        elif path.name not in {".git", ".build", ".venv", "build", "dist"}:
            (folder / path.name).symlink_to(path)
    (folder / ".venv").symlink_to(sys.prefix)


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FJM2")}
    return kept | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "TERM": "xterm",
        "PYTHONUNBUFFERED": "1",
        "PYTHONWARNINGS": "error",
        "no_proxy": "*",
    }


def _is_bound(pid: int) -> bool:
    """Return True if a process or one of its descendants has a UDP or TCP socket."""
    with contextlib.suppress(OSError):
        links = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
        inodes = {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}
        if inodes and any(inodes & _inodes(pid, kind) for kind in ("udp", "udp6", "tcp", "tcp6")):
            return True
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return any(_is_bound(int(child)) for child in children)
    return False


def _inodes(pid: int, kind: str) -> set[str]:
    """Return the inodes of all sockets of one kind in the network namespace of a process."""
    path = Path(f"/proc/{pid}/net/{kind}")
    return {line.split()[9] for line in path.read_text().splitlines()[1:]} if path.exists() else set()
