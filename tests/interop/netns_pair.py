"""Hosts for the peers of a test: this machine, or network namespaces joined by veth, which lose packets on arrival.

A namespace has no name: it lives as long as a process that holds it, which ends when its stdin is closed. So nothing is
left behind, not even by tests that were killed. All links are made inside the namespaces, none on this machine.
"""

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

INTERFACE = "norm0"
SENDER_ADDRESS = "10.99.0.1"
POLL_INTERVAL_S = 0.01
# Time in which a process must report that it is ready. Python alone takes a second to start on a busy machine.
READY_S = 20.0


def until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Wait until a condition holds. Raise AssertionError after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout_s:g} s")
        time.sleep(POLL_INTERVAL_S)


class Process:
    """A program that reports in lines of JSON on its stdout. Its output is kept in files."""

    def __init__(self, name: str, argv: Sequence[str], directory: Path) -> None:
        self.name = name
        self.argv = argv
        self._stdout = directory / f"{name}.stdout"
        self._stderr = directory / f"{name}.stderr"
        with self._stdout.open("wb") as stdout, self._stderr.open("wb") as stderr:
            self._popen = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)

    def reports(self) -> list[dict[str, Any]]:
        """Return the reports that the program has written so far, in complete lines."""
        found: list[dict[str, Any]] = []
        for line in self._stdout.read_text(errors="replace").splitlines(keepends=True):
            with contextlib.suppress(json.JSONDecodeError):
                if line.endswith("\n") and isinstance(report := json.loads(line), dict):
                    found.append(report)
        return found

    def wait_ready(self) -> None:
        """Wait for the report {"ready": true}. Raise AssertionError if the program ends first, or after `READY_S`."""

        def is_ready() -> bool:
            if any(report.get("ready") is True for report in self.reports()):
                return True
            if self._popen.poll() is not None:
                raise AssertionError(f"ended before it was ready\n{self.describe()}")
            return False

        until(is_ready, READY_S, f"{self.name} ready")

    def wait(self, timeout_s: float) -> int:
        """Wait for the program to end, and return its exit status.

        After `timeout_s`, kill the program and raise AssertionError.
        """
        try:
            return self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running after {timeout_s:g} s\n{self.describe()}") from None

    def report(self) -> dict[str, Any]:
        """Return the last report of the program. Raise AssertionError if there is none."""
        reports = self.reports()
        if not reports:
            raise AssertionError(f"no report\n{self.describe()}")
        return reports[-1]

    def kill(self) -> None:
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.wait()

    def describe(self) -> str:
        """Describe a failed program: its command, exit status and last output."""
        said = self._stdout.read_text(errors="replace") + self._stderr.read_text(errors="replace")
        return f"$ {' '.join(self.argv)}\nexit status {self._popen.poll()}\n{said[-4000:]}"


class Host:
    """A host that programs run on: this machine.

    Programs that are still running when the host is closed are killed, by their process ids.
    """

    interface = "lo"

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: list[Process] = []

    def start(self, name: str, argv: Sequence[str]) -> Process:
        process = Process(name, [*self.prefix(), *argv], self._directory)
        self._processes.append(process)
        return process

    def prefix(self) -> Sequence[str]:
        return ()

    def describe(self) -> str:
        return "\n".join(process.describe() for process in self._processes)

    def close(self) -> None:
        for process in self._processes:
            process.kill()


class Namespace(Host):
    """A network namespace that acts as a host of its own. At first it has only a loopback interface."""

    interface = INTERFACE

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        holding = "ip link set lo up && echo up && exec cat"
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", holding], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"up\n":
            self.close()
            raise AssertionError("no network namespace")

    @property
    def pid(self) -> int:
        """Id of a process in the namespace, by which `ip` and `nsenter` find the namespace."""
        return self._holder.pid

    def prefix(self) -> Sequence[str]:
        # `nsenter` is replaced by the program, so the process id is the program's.
        return ("nsenter", f"--net=/proc/{self.pid}/ns/net")

    def run(self, *argv: str, text: str = "") -> str:
        """Run a command to its end, and return its stdout."""
        done = subprocess.run([*self.prefix(), *argv], input=text, text=True, capture_output=True, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{' '.join(argv)}: {done.stderr}{text}")
        return done.stdout

    def packets_received(self) -> int:
        """Return the number of packets that arrived at the interface, those dropped afterwards included."""
        for line in Path(f"/proc/{self.pid}/net/dev").read_text().splitlines():
            name, _, counters = line.partition(":")
            if name.strip() == self.interface:
                return int(counters.split()[1])
        raise AssertionError(f"no interface {self.interface}")

    def lose(self, probability: float, after_bytes: int) -> None:
        """From now on, drop UDP packets on arrival at random, but none of the first `after_bytes`.

        One in a hundred is dropped in any case: at a low probability, none of a few hundred might be.
        """
        self.run("iptables", "-F", "INPUT")
        rule = ["iptables", "-A", "INPUT", "-i", self.interface, "-p", "udp"]
        self.run(*rule, "-m", "quota", "--quota", str(after_bytes), "-j", "ACCEPT")
        self.run(*rule, "-m", "statistic", "--mode", "random", "--probability", str(probability), "-j", "DROP")
        self.run(*rule, "-m", "statistic", "--mode", "nth", "--every", "100", "--packet", "50", "-j", "DROP")

    def packets_dropped(self) -> int:
        """Return the number of packets dropped since `lose` was called."""
        table = self.run("iptables", "-nvxL", "INPUT").splitlines()
        return sum(int(line.split()[0]) for line in table if "DROP" in line.split()[2:3])

    def close(self) -> None:
        super().close()
        assert self._holder.stdin is not None
        assert self._holder.stdout is not None
        self._holder.stdin.close()
        try:
            self._holder.wait(5.0)
        except subprocess.TimeoutExpired:
            self._holder.kill()
            self._holder.wait()
        self._holder.stdout.close()


class Network:
    """One namespace for the sender and one for each receiver, in one subnet.

    A single receiver is joined to the sender by veth, several by a bridge.
    """

    def __init__(self, directory: Path, receivers: int = 1) -> None:
        self._hosts: list[Namespace] = []
        try:
            for _ in range(receivers + 1):
                self._hosts.append(Namespace(directory))
            self.sender, *self.receivers = self._hosts
            if receivers == 1:
                self._join(INTERFACE, self.receivers[0])
            else:
                self._bridge()
            for number, host in enumerate(self._hosts, start=1):
                address = f"address add 10.99.0.{number}/24 dev {INTERFACE}\nlink set {INTERFACE} up\n"
                host.run("ip", "-batch", "-", text=address)
        except BaseException:
            self.close()
            raise

    def cut_trains(self) -> None:
        """Make the sender's host send each datagram by itself, as network cards do.

        Otherwise a train of UDP_SEGMENT crosses the link as one packet, and few packets may have the luck to arrive.
        """
        self.sender.run("ip", "link", "set", INTERFACE, "gso_max_segs", "1")

    def _join(self, port: str, receiver: Namespace, more: str = "") -> None:
        link = f"link add {port} type veth peer name {INTERFACE} netns {receiver.pid}\n"
        self.sender.run("ip", "-batch", "-", text=link + more)

    def _bridge(self) -> None:
        # Without a querier on the link, IGMP snooping would after a while keep multicast from the members of the group.
        self.sender.run("ip", "link", "add", INTERFACE, "type", "bridge", "mcast_snooping", "0")
        for number, receiver in enumerate(self.receivers):
            port = f"port{number}"
            self._join(port, receiver, f"link set {port} master {INTERFACE}\nlink set {port} up\n")

    def __enter__(self) -> "Network":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if value is not None:
            value.add_note("\n".join(host.describe() for host in self._hosts))
        self.close()

    def close(self) -> None:
        for host in self._hosts:
            host.close()


@contextlib.contextmanager
def this_machine(directory: Path) -> Generator[Host]:
    """Yield this machine as a host, for tests that need only its loopback interface."""
    host = Host(directory)
    try:
        yield host
    finally:
        host.close()
