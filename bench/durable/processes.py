"""Processes of roles, as the parent sees them: their lines, and the words that let them go on."""

import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from ..networks.namespaces import Host
from ..peers.base import Deadline, PeerTimeoutError
from ..peers.broker import dying_with_us
from .roles import Role, RoleOptions

_STOP_S = 15.0
"""Time for a role to end by itself before it is killed. Servers write what they have."""
_LINE_BYTES = 1 << 16


class RoleProcess:
    """A running process with a role."""

    def __init__(self, popen: "subprocess.Popen[bytes]", said: BinaryIO, doing: str) -> None:
        assert popen.stdin is not None
        assert popen.stdout is not None
        self._popen, self._in, self._out = popen, popen.stdin, popen.stdout
        self._said = said
        self._doing = doing
        self._read = b""

    @property
    def pid(self) -> int:
        return self._popen.pid

    def line(self, deadline: Deadline) -> dict[str, Any]:
        """Return the next line. Raise PeerTimeoutError if the process ends instead, or takes too long."""
        while b"\n" not in self._read:
            if not select.select([self._out], [], [], deadline.left_s)[0]:
                raise PeerTimeoutError(f"{self._doing}: not done in time")
            came = os.read(self._out.fileno(), _LINE_BYTES)
            if not came:
                raise PeerTimeoutError(f"{self._doing}: {self._last_words()}")
            self._read += came
        text, _, self._read = self._read.partition(b"\n")
        values: dict[str, Any] = json.loads(text)
        return values

    def tell_to_go_on(self) -> None:
        self._in.write(b"\n")
        self._in.flush()

    def _last_words(self) -> str:
        self._popen.wait()
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"ended with {self._popen.returncode} and said nothing"

    def end(self) -> None:
        """Let the process end by itself, which it does when its standard input ends."""
        self._in.close()
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(_STOP_S)


@contextmanager
def running(host: Host, system: str, role: Role, options: RoleOptions) -> Iterator[RoleProcess]:
    """Run a process with a role in the namespace of a host. It ends by itself unless something fails in the context."""
    argv = [sys.executable, "-m", "fjm2bench", "durable", "role", system, role.value, *_arguments(options)]
    with tempfile.TemporaryFile() as said:
        popen = subprocess.Popen(
            dying_with_us(list(host.inside(*argv))),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            start_new_session=True,  # Ctrl-C reaches only us; we end the processes
        )
        try:
            process = RoleProcess(popen, said, f"{role.value} of {system}")
            yield process
            process.end()
        finally:
            _stop(popen)


def _stop(popen: "subprocess.Popen[bytes]") -> None:
    """Terminate a process if it still runs, kill it if that takes too long, and close its pipes."""
    if popen.poll() is None:
        popen.terminate()
        try:
            popen.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            popen.kill()
            popen.wait()
    for stream in (popen.stdin, popen.stdout):
        if stream is not None:
            stream.close()


def _arguments(options: RoleOptions) -> list[str]:
    values: dict[str, int | float | Path] = {
        "--port": options.port,
        "--folder": options.folder,
        "--size": options.size,
        "--warm-up": options.warm_up,
        "--count": options.count,
        "--number": options.number,
        "--timeout": options.timeout_s,
        "--per-s": options.per_s,
    }
    return [str(part) for pair in values.items() for part in pair]
