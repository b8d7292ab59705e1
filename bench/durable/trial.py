"""Single runs: throughput to durable subscribers, and awaited sends."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from fjm2.base.quantities import counted

from ..networks import namespaces
from ..networks.lan import Loopback
from ..networks.namespaces import Host
from ..peers.base import Deadline
from .processes import running
from .roles import Role, RoleOptions
from .servers import cpu_s, until_resting
from .systems import load

PORT = 5740


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Result of one publisher and durable subscribers."""

    msgs_per_s: float
    """Messages divided by the time from the first send to the last acknowledged delivery."""
    confirmed_per_s: float
    """Messages divided by the time from the first send to the last confirmation."""
    publisher_us: float
    """CPU time for each message: of the publisher, of all servers, and of all subscribers."""
    servers_us: float
    subscribers_us: float
    copies: float
    """Bytes that went over the interface, as a multiple of the messages sent once. For FJM2 that is measured on a bus
    with nobody else; for brokers it is the bodies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """Result of awaited sends, one after another."""

    count: int
    p50_us: float
    p99_us: float
    max_us: float


class LostError(Exception):
    """A subscriber did not get every message once and unaltered."""


@contextmanager
def one_host() -> Iterator[Host]:
    """Make a host of its own, whose interface `lo` nobody else uses."""
    with Loopback(0) as network:
        yield network.publisher


@contextmanager
def served(host: Host, system: str, options: RoleOptions, deadline: Deadline) -> Iterator[list[int]]:
    """Run the servers of a system. Yield their process ids."""
    with running(host, system, Role.SERVE, options) as servers:
        pids: list[int] = servers.line(deadline)["pids"]
        yield pids


@contextmanager
def data_folder(parent: Path) -> Iterator[Path]:
    """Make a folder for the data of servers, and remove it in the end."""
    with tempfile.TemporaryDirectory(prefix="fjm2-bench-", dir=parent) as folder:
        yield Path(folder)


def measure_throughput(system: str, options: RoleOptions, subscribers: int) -> Throughput:
    """Publish to durable subscribers that are there."""
    copy_bytes = _measure_copy(system, options) if load(system).is_brokerless else options.count * options.size
    deadline = Deadline(options.timeout_s)
    with data_folder(options.folder) as folder, one_host() as host, ExitStack() as stack:
        options = replace(options, folder=folder)
        pids = stack.enter_context(served(host, system, options, deadline))
        tasks = [replace(options, number=number) for number in range(subscribers)]
        subs = [stack.enter_context(running(host, system, Role.SUB, task)) for task in tasks]
        for sub in subs:
            sub.line(deadline)  # ready
        pub = stack.enter_context(running(host, system, Role.PUB, options))
        for process in (pub, *subs):
            process.line(deadline)  # warm
        until_resting(pids)
        groups = ([pub.pid], pids, [sub.pid for sub in subs])
        before, bytes_before = [_cpu_of(group) for group in groups], _bytes_sent(host)
        pub.tell_to_go_on()
        sent = pub.line(deadline)
        received = [sub.line(deadline) for sub in subs]
        cpu_us = [(_cpu_of(group) - cpu) * 1e6 / options.count for group, cpu in zip(groups, before, strict=True)]
        bytes_sent = _bytes_sent(host) - bytes_before
    check(received, options.total)
    last_ns = max(line["ended_ns"] for line in received)
    return Throughput(
        msgs_per_s=options.count * 1e9 / (last_ns - sent["began_ns"]),
        confirmed_per_s=options.count * 1e9 / (sent["ended_ns"] - sent["began_ns"]),
        publisher_us=cpu_us[0],
        servers_us=cpu_us[1],
        subscribers_us=cpu_us[2],
        copies=bytes_sent / copy_bytes,
    )


def _measure_copy(system: str, options: RoleOptions) -> int:
    """Return the bytes of the messages on the wire, and of what a publisher sends with them, if nobody hears it."""
    deadline = Deadline(options.timeout_s)
    with one_host() as host, running(host, system, Role.PUB, options) as pub:
        pub.line(deadline)  # warm
        before = _bytes_sent(host)
        pub.tell_to_go_on()
        pub.line(deadline)
        return _bytes_sent(host) - before


def measure_awaited(system: str, options: RoleOptions) -> Awaited:
    """Send messages to a durable subscription, each after the one before is confirmed. Its subscriber is away."""
    deadline = Deadline(options.timeout_s)
    with data_folder(options.folder) as folder, one_host() as host:
        options = replace(options, folder=folder)
        with served(host, system, options, deadline) as pids:
            subscribe(host, system, options, deadline)
            until_resting(pids)
            with running(host, system, Role.AWAITED, options) as sender:
                return Awaited(**sender.line(deadline))


def subscribe(host: Host, system: str, options: RoleOptions, deadline: Deadline) -> None:
    """Make a durable subscription, whose subscriber then leaves."""
    with running(host, system, Role.SUB, replace(options, warm_up=0, count=0)) as sub:
        sub.line(deadline)


def check(received: Sequence[dict[str, int]], total: int) -> None:
    """Raise LostError unless every subscriber got all messages, once, in order and unaltered."""
    for line in received:
        wrong = [f"{line[name]} {name}" for name in ("lost", "duplicated", "out_of_order", "corrupt") if line[name]]
        if wrong or line["messages"] != total:
            raise LostError(", ".join(wrong) or f"{line['messages']} of {counted(total, 'message')}")


def _cpu_of(pids: Sequence[int]) -> float:
    return sum(map(cpu_s, pids))


def _bytes_sent(host: Host) -> int:
    told = json.loads(namespaces.run("ip", "-n", host.name, "-s", "-j", "link", "show", "lo"))
    sent: int = told[0]["stats64"]["tx"]["bytes"]
    return sent
