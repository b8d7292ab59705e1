"""Private networks for tests: namespaces joined by links or a switch, with configurable loss and rate.

The host's network is not touched: links are made inside the namespaces. Leaving the `Network` removes everything, even
after an error. If a process with a network was killed, the next `Network` removes what is left. Needs root and the `ip`
tool.
"""

import contextlib
import ctypes
import itertools
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

COMMAND_TIMEOUT_S = 20.0
_NETNS_FOLDER = Path("/run/netns")
_OWN_NETNS = Path("/proc/thread-self/ns/net")
_HAS_IPV6 = Path("/proc/sys/net/ipv6").exists()
_NAME = re.compile(r"fjm2-(\d+)-\d+")
"""Names of namespaces that this module makes. They contain the id of the process that made them."""
_CLONE_NEWNET = 0x40000000
_STOP_TIMEOUT_S = 5.0
_POLL_INTERVAL_S = 0.01

_numbers = itertools.count(1)
_libc = ctypes.CDLL(None, use_errno=True)


class CommandError(Exception):
    """Failure of a command. The text includes its output."""


def run(*command: str) -> str:
    """Run a command, and return its output. Raise CommandError if it fails or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"`{' '.join(command)}` took more than {COMMAND_TIMEOUT_S} s") from error
    except FileNotFoundError as error:
        raise CommandError(f"`{' '.join(command)}`: there is no {command[0]}") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip() or "nothing said"
        raise CommandError(f"`{' '.join(command)}` ended with {done.returncode}: {said}")
    return done.stdout


def skip_where_impossible(*tools: str) -> None:
    """Skip the test, with the reason, if network namespaces cannot be made or one of these tools is missing."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")
    if os.geteuid() != 0:
        pytest.skip("needs root, for network namespaces")
    try:
        with Network() as probe:
            probe.namespace()
    except CommandError as error:
        pytest.skip(f"no network namespaces here: {error}")


def remove_leftovers() -> None:
    """Remove namespaces left behind by killed processes, and kill the processes still running in them."""
    names = [path.name for path in _NETNS_FOLDER.glob("*")]
    for found in filter(None, map(_NAME.fullmatch, names)):
        if Path("/proc", found[1]).exists():
            continue
        with contextlib.suppress(CommandError, ProcessLookupError):  # other processes may remove them too
            for inside in run("ip", "netns", "pids", found[0]).split():
                os.kill(int(inside), signal.SIGKILL)
            run("ip", "netns", "delete", found[0])


class Namespace:
    """A network namespace, which acts as a separate host on the network."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._started: list[subprocess.Popen[str]] = []

    def run(self, *command: str) -> str:
        """Run a command inside the namespace, and return its output."""
        return run("ip", "netns", "exec", self.name, *command)

    def ip(self, *arguments: str) -> str:
        """Run the `ip` tool on the namespace, and return its output."""
        return run("ip", "-n", self.name, *arguments)

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a process inside the namespace, with pipes.

        If the process is still running when the network is removed, it is ended then.
        """
        process = subprocess.Popen(
            ("ip", "netns", "exec", self.name, *command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Make this thread open sockets in the namespace while the `with` block runs.

        These sockets stay in the namespace afterwards.
        """
        with _OWN_NETNS.open() as outside, (_NETNS_FOLDER / self.name).open() as inside:
            _set_namespace(inside.fileno())
            try:
                yield
            finally:
                _set_namespace(outside.fileno())

    def lose(self, probability: float) -> None:
        """Drop UDP on arrival with this probability.

        This drops single datagrams if their senders called `cut_trains`, otherwise whole trains.
        """
        rule = f"INPUT -p udp -m statistic --mode random --probability {probability} -j DROP"
        self.run("iptables", "-A", *rule.split())
        self.run("ip6tables", "-A", *rule.split())

    def cut_trains(self, device: str) -> None:
        """Make the namespace send each datagram by itself, as network cards do.

        Otherwise, a train of UDP_SEGMENT crosses a cable whole.
        """
        self.ip("link", "set", device, "gso_max_segs", "1")

    def limit(self, device: str, rate_mbit: float, *, queue_bytes: int = 1 << 20, burst_bytes: int = 1 << 17) -> None:
        """Limit a device's rate. Packets that the queue has no room for are lost.

        A burst must have room for a whole train.
        """
        shape = f"tbf rate {rate_mbit}mbit burst {burst_bytes} limit {queue_bytes}"
        run("tc", "-n", self.name, "qdisc", "replace", "dev", device, "root", *shape.split())

    def stop(self) -> None:
        """End all processes started inside the namespace."""
        for process in self._started:
            _end(process)
        self._started.clear()


class Network:
    """A context manager that makes namespaces, and removes everything at the end."""

    def __init__(self) -> None:
        self._namespaces: list[Namespace] = []
        self._subnets = itertools.count(1)

    def __enter__(self) -> Self:
        remove_leftovers()
        return self

    def __exit__(self, *_: object) -> None:
        failures: list[str] = []
        for namespace in reversed(self._namespaces):
            try:
                namespace.stop()
                run("ip", "netns", "delete", namespace.name)
            except CommandError as error:
                failures.append(str(error))
        self._namespaces.clear()
        if failures:
            raise CommandError("; ".join(failures))

    def namespace(self) -> Namespace:
        """Make a namespace whose only interface is lo, which is up."""
        namespace = Namespace(f"fjm2-{os.getpid()}-{next(_numbers)}")
        run("ip", "netns", "add", namespace.name)
        self._namespaces.append(namespace)
        # Skip duplicate address detection, during which an IPv6 address cannot be used for a second or two.
        for which in ("all", "default") if _HAS_IPV6 else ():
            namespace.run("sysctl", "-qw", f"net.ipv6.conf.{which}.accept_dad=0")
        namespace.ip("link", "set", "lo", "up")
        return namespace

    def link(self, left: Namespace, right: Namespace, device: str = "veth0", *, mtu: int = 1500) -> None:
        """Connect two namespaces by a cable between two interfaces called `device`.

        Their addresses are 10.57.N.1 and 10.57.N.2, where N counts the cables and switches from 1.
        """
        left.ip(*f"link add {device} type veth peer name {device} netns {right.name}".split())
        subnet = next(self._subnets)
        for host, namespace in enumerate((left, right), start=1):
            set_up(namespace, device, f"10.57.{subnet}.{host}/24", mtu=mtu)
        for namespace in (left, right):
            wait_until_up(namespace, device)

    def switch(self, *hosts: Namespace, device: str = "veth0", mtu: int = 1500) -> Namespace:
        """Make a switch with a cable to each host, and return it. The switch floods multicast.

        The hosts have addresses 10.57.N.1, 10.57.N.2 and so on, where N counts the cables and switches from 1.
        """
        switch = self.namespace()
        switch.ip("link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
        switch.ip(*f"link set br0 mtu {mtu} up".split())
        subnet = next(self._subnets)
        for number, host in enumerate(hosts, start=1):
            port = f"port{number}"
            host.ip(*f"link add {device} type veth peer name {port} netns {switch.name}".split())
            switch.ip(*f"link set {port} mtu {mtu} master br0 up".split())
            set_up(host, device, f"10.57.{subnet}.{number}/24", mtu=mtu)
        for host in hosts:
            wait_until_up(host, device)
        return switch


def set_up(namespace: Namespace, device: str, address: str, *, mtu: int = 1500) -> None:
    """Give a device its address, and switch the device on."""
    namespace.ip("address", "add", address, "dev", device)
    namespace.ip(*f"link set {device} mtu {mtu} up".split())


def wait_until_up(namespace: Namespace, device: str) -> None:
    """Wait until a device has a carrier and a link-local IPv6 address. It gets both shortly after it is switched on.

    The address is tentative at first, also without duplicate address detection: nothing can be bound to it yet.
    """
    deadline = time.monotonic() + COMMAND_TIMEOUT_S
    while True:
        state = namespace.ip("-br", "address", "show", device)
        usable = namespace.ip("-6", "address", "show", "dev", device, "-tentative") if _HAS_IPV6 else "fe80::"
        if " UP " in state and "fe80::" in usable:
            return
        if time.monotonic() > deadline:
            raise CommandError(f"{device} does not come up: {state}")
        time.sleep(_POLL_INTERVAL_S)


def _set_namespace(fileno: int) -> None:
    if _libc.setns(fileno, _CLONE_NEWNET) != 0:  # os.setns comes with Python 3.12
        code = ctypes.get_errno()
        raise OSError(code, f"setns: {os.strerror(code)}")


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()
        process.send_signal(signal.SIGCONT)  # a stopped process would not end
    try:
        process.communicate(timeout=_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
