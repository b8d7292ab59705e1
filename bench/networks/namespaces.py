"""Network namespaces: create, configure, list and remove them.

They need root and the tools `ip`, `tc` and `iptables`. The name of a namespace tells which process made it, so that
the namespaces of processes that were killed can be found and removed.
"""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

COMMAND_TIMEOUT_S = 20.0
"""Longest time for one command. Commands take milliseconds; a busy machine with many namespaces may need seconds."""
_NAME = re.compile(r"fjm2-bench-([0-9]+)-")

EnvironmentOf = Callable[[str, str], Mapping[str, str]]
"""Function that returns additional environment variables of a process, given its role and its name in the run."""


class NetworkError(Exception):
    """The network could not be made. The message says which command failed, and why."""


class Host:
    """A network namespace and its address on the network."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address

    def inside(self, *command: str) -> tuple[str, ...]:
        """Return the command that runs `command` inside the namespace."""
        return ("ip", "netns", "exec", self.name, *command)


def missing() -> str | None:
    """Return the reason why namespaces cannot be made on this machine, or None if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    absent = [tool for tool in ("ip", "tc", "iptables") if shutil.which(tool) is None]
    return f"not installed: {', '.join(absent)}" if absent else None


def prefix_of(pid: int) -> str:
    """Return the prefix of the names of all namespaces that a process makes."""
    return f"fjm2-bench-{pid}-"


def names() -> list[str]:
    """Return the names of all network namespaces of this machine, including those of other programs."""
    return [line.split()[0] for line in run("ip", "netns", "list").splitlines() if line.strip()]


def processes(name: str) -> list[int]:
    """Return the ids of the processes in a namespace."""
    return [int(line) for line in run("ip", "netns", "pids", name).split()]


def add(name: str) -> None:
    """Create a namespace."""
    run("ip", "netns", "add", name)


def remove(name: str) -> None:
    """Remove a namespace."""
    run("ip", "netns", "delete", name)


def remove_leftovers() -> None:
    """Remove the namespaces of benchmarks that were killed, and kill the processes in them."""
    for name in names():
        found = _NAME.match(name)
        if found is None or Path(f"/proc/{found[1]}").exists():
            continue
        with suppress(NetworkError):  # another benchmark may be removing it, too
            for inside in processes(name):
                with suppress(ProcessLookupError):
                    os.kill(inside, signal.SIGKILL)
            remove(name)


def configure(name: str, *lines: str) -> None:
    """Run commands of `ip` in a namespace, such as "link set lo up"."""
    run("ip", "-n", name, "-batch", "-", given="\n".join(lines) + "\n")


def run(*command: str, given: str = "") -> str:
    """Run a command with `given` as its standard input, and return its output. Raise NetworkError if it fails."""
    try:
        # A session of its own keeps Ctrl-C from ending the command half way.
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, start_new_session=True
        )
    except subprocess.TimeoutExpired as error:
        raise NetworkError(f"`{' '.join(command)}` took more than {COMMAND_TIMEOUT_S:g} s") from error
    except OSError as error:
        raise NetworkError(f"`{' '.join(command)}`: {error.strerror}") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip() or "no message"
        raise NetworkError(f"`{' '.join(command)}` ended with {done.returncode}: {said}")
    return done.stdout
