"""A network for a comparison: a publisher and subscribers, each in a network namespace, around a switch in another.

Nothing of the host's is touched: cables are made inside the namespaces, and everything is gone when the `Lab` is left,
whatever happened in it; or, if its process was killed, when the next one is made. Needs root, and the `ip`, `tc` and
`iptables` tools for what they are asked to do.
"""

import itertools
import os
import re
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

COMMAND_TIMEOUT_S = 20.0
DEVICE = "veth0"
_POLL_INTERVAL_S = 0.01
_TBF_BURST_BYTES = 128 << 10
"""A whole train has to fit."""
_TBF_QUEUE_BYTES = 1 << 20

_numbers = itertools.count(1)
_NAME = re.compile(r"fjm2-bench-([0-9]+)-")


class NetworkError(Exception):
    """The network could not be made; says what failed."""


def missing() -> str | None:
    """Why no network can be made here, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    absent = [tool for tool in ("ip", "tc", "iptables") if shutil.which(tool) is None]
    return f"not installed: {', '.join(absent)}" if absent else None


def prefix_of(pid: int) -> str:
    """What the names of all namespaces begin with that a process makes."""
    return f"fjm2-bench-{pid}-"


def names() -> list[str]:
    """Of all network namespaces that have one."""
    return [line.split()[0] for line in _run("ip", "netns", "list").splitlines() if line.strip()]


def processes(name: str) -> list[int]:
    """Ids of those that run in a namespace."""
    return [int(line) for line in _run("ip", "netns", "pids", name).split()]


def remove(name: str) -> None:
    """Take a namespace away."""
    _run("ip", "netns", "delete", name)


def remove_leftovers() -> None:
    """Namespaces of processes that were killed before they could, and what still runs in them."""
    for name in names():
        found = _NAME.match(name)
        if found is None or Path(f"/proc/{found[1]}").exists():
            continue
        with suppress(NetworkError):  # another one is at it
            for inside in processes(name):
                with suppress(ProcessLookupError):
                    os.kill(inside, signal.SIGKILL)
            remove(name)


class Host:
    """One namespace: its name, and its address on the network."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address

    def inside(self, *command: str) -> tuple[str, ...]:
        """A command that runs another one inside."""
        return ("ip", "netns", "exec", self.name, *command)


class Lab:
    """A context manager: a publisher and so many subscribers on one switch that floods multicast."""

    device = DEVICE
    """Of each of them."""

    def __init__(
        self, subscribers: int, *, rate_bps: float | None = None, loss: float = 0.0, is_offloaded: bool = True
    ) -> None:
        """`rate_bps` shapes the publisher's link; `loss` is the probability that a packet does not reach a subscriber.

        Without offload each packet crosses a cable alone, as it does with any loss: otherwise whole trains were lost.
        """
        self._rate_bps = rate_bps
        self._loss = loss
        self._is_offloaded = is_offloaded and not loss
        self._made: list[str] = []
        prefix = f"{prefix_of(os.getpid())}{next(_numbers)}"
        self._switch = f"{prefix}-switch"
        self.publisher = Host(f"{prefix}-pub", "10.57.0.1")
        self.subscribers = [Host(f"{prefix}-sub{n}", f"10.57.0.{n + 1}") for n in range(1, subscribers + 1)]

    def __enter__(self) -> Self:
        remove_leftovers()
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def _make(self) -> None:
        self._add(self._switch)
        _ip(self._switch, "link add br0 type bridge mcast_snooping 0", "link set br0 up")
        hosts = [self.publisher, *self.subscribers]
        for number, host in enumerate(hosts):
            self._add(host.name)
            port = f"port{number}"
            _ip(
                host.name,
                "link set lo up",
                f"link add {DEVICE} type veth peer name {port} netns {self._switch}",
                f"address add {host.address}/24 dev {DEVICE}",
                *([] if self._is_offloaded else [f"link set {DEVICE} gso_max_segs 1"]),
                f"link set {DEVICE} up",
            )
            _ip(self._switch, f"link set {port} master br0 up")
        if self._rate_bps is not None:
            shape = f"tbf rate {self._rate_bps:.0f}bit burst {_TBF_BURST_BYTES} limit {_TBF_QUEUE_BYTES}"
            _run("tc", "-n", self.publisher.name, *f"qdisc replace dev {DEVICE} root {shape}".split())
        for host in self.subscribers if self._loss else ():
            # Before fragments are put together: each is a packet.
            rule = f"-t raw -A PREROUTING -i {DEVICE} -m statistic --mode random --probability {self._loss:.9f} -j DROP"
            _run(*host.inside("iptables", *rule.split()))
        for host in hosts:
            _wait_until_up(host)

    def _add(self, name: str) -> None:
        _run("ip", "netns", "add", name)
        self._made.append(name)

    def _remove(self) -> None:
        failures = []
        while self._made:
            try:
                remove(self._made.pop())
            except NetworkError as error:
                failures.append(str(error))
        if failures:
            raise NetworkError("; ".join(failures))


def _ip(namespace: str, *lines: str) -> None:
    _run("ip", "-n", namespace, "-batch", "-", given="\n".join(lines) + "\n")


def _run(*command: str, given: str = "") -> str:
    try:
        # In a session of its own, so that Ctrl-C does not end it half way.
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, start_new_session=True
        )
    except subprocess.TimeoutExpired as error:
        raise NetworkError(f"`{' '.join(command)}` took more than {COMMAND_TIMEOUT_S:g} s") from error
    except OSError as error:
        raise NetworkError(f"`{' '.join(command)}`: {error.strerror}") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip() or "nothing said"
        raise NetworkError(f"`{' '.join(command)}` ended with {done.returncode}: {said}")
    return done.stdout


def _wait_until_up(host: Host) -> None:
    deadline = time.monotonic() + COMMAND_TIMEOUT_S
    while " UP " not in (state := _run("ip", "-n", host.name, "-br", "link", "show", DEVICE)):
        if time.monotonic() > deadline:
            raise NetworkError(f"{DEVICE} of {host.name} does not come up: {state}")
        time.sleep(_POLL_INTERVAL_S)
