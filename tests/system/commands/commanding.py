"""`fjm2` commands as processes, with their input, output and exit status."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from netns import Namespace

FJM2 = (sys.executable, "-W", "error", "-m", "fjm2")
DEADLINE_S = 40.0
PROMPTLY_S = 4.0


class Command:
    """A running `fjm2` command."""

    def __init__(
        self, *arguments: object, uri: str, within: Namespace | None = None, stdin: int = subprocess.PIPE
    ) -> None:
        prefix = () if within is None else ("ip", "netns", "exec", within.name)
        environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
        self.popen = subprocess.Popen(
            [*prefix, *FJM2, *map(str, arguments)],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,  # a buffer could hold back output from `communicate`
            env=environment | {"FJM2_URI": uri},
        )

    def wait_for(self, beginning: bytes) -> None:
        """Read the next line of standard error. Fail unless it starts with `beginning`."""
        assert self.popen.stderr is not None
        line = self.popen.stderr.readline()
        assert line.startswith(beginning), line

    def read_line(self) -> bytes:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline()

    def end(self, stdin: bytes | None = None) -> tuple[int, bytes, str]:
        """Wait for the command to end. Return its exit status, standard output and standard error."""
        out, err = self.popen.communicate(stdin, timeout=DEADLINE_S)
        assert b"Traceback" not in err, err.decode()
        return self.popen.returncode, out, err.decode()

    def interrupt(self) -> tuple[int, bytes, str]:
        self.popen.send_signal(signal.SIGINT)
        began_at = time.monotonic()
        ended = self.end()
        assert time.monotonic() - began_at < PROMPTLY_S
        return ended

    def stop(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.communicate()


Start = Callable[..., Command]
_SAYS_FIRST = {"sub": b"listening on topic://", "reply": b"listening on topic://", "tail": b"watching "}


@contextlib.contextmanager
def starting(uri: str) -> Iterator[Start]:
    """Yield a function that starts commands, by default on this bus.

    The function waits until a listening command listens. Commands are killed at the end.
    """
    with contextlib.ExitStack() as stack:

        def start(*arguments: object, **settings: Any) -> Command:
            command = Command(*arguments, **{"uri": uri} | settings)
            stack.callback(command.stop)
            first = _SAYS_FIRST.get(str(arguments[0]))
            if first is not None and "--quiet" not in arguments:
                command.wait_for(first)
            return command

        yield start
