"""A test of this host by datagrams to the group that come back. They use the real interface, but ttl 0, so that none
leaves the host."""

import errno
import os
import secrets
import select
import struct
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from fjm2.base.quantities import counted
from fjm2.norm import Train, UdpSocket, UdpTransport

from .observations import PROBE_MAGIC
from .scene import Scene
from .verdict import Finding, fault, ok, unknown, warning

_PROBES = 50  # shows losses of some percent within a fraction of a second
_SEGMENTS = 8  # one train
_GAP_S = 0.002  # no burst, which a small buffer would lose
_WAIT_S = 0.3  # the host answers itself within microseconds, unless it is overloaded
_HEAD = struct.Struct("!10sx8sI")  # the kind of probe is 0, which no listener answers


@dataclass(slots=True)
class Echo:
    """Datagrams sent, and those that came back."""

    sent: int = 0
    times_us: list[float] = field(default_factory=list)
    """Time until each datagram came back, in microseconds."""
    train_sent: int = 0
    train_received: int = 0
    refused: int = 0
    """Trains that the interface refused to segment."""
    errors: Counter[int] = field(default_factory=Counter)

    @property
    def received(self) -> int:
        return len(self.times_us)


def probe_self(scene: Scene, receiver: UdpTransport) -> Echo:
    """Send to the group from a socket other than the receiver's. Takes at most half a second."""
    token, echo, sent_at = secrets.token_bytes(8), Echo(), dict[int, float]()
    with UdpTransport(scene.on(scene.interface.name, ttl=0, loopback=True)) as sender:
        for number in range(_PROBES):
            sent_at[number] = time.perf_counter()
            _send(sender, _HEAD.pack(PROBE_MAGIC, token, number))
            echo.sent += 1
            _collect(receiver.group, token, sent_at, echo, _GAP_S)
        if not echo.errors and scene.datagram_bytes + scene.ip_bytes <= (scene.interface.mtu or 1 << 16):
            one = _HEAD.pack(PROBE_MAGIC, token, _PROBES).ljust(scene.datagram_bytes, b"\0")
            _send(sender, one * _SEGMENTS, len(one))
            echo.train_sent = _SEGMENTS
        deadline = time.perf_counter() + _WAIT_S
        while (left := deadline - time.perf_counter()) > 0 and not _is_whole(echo):
            _collect(receiver.group, token, sent_at, echo, left)
        echo.errors += sender.stats.send_errors
        echo.refused = sender.stats.offload_refused
    return echo


def _is_whole(echo: Echo) -> bool:
    return echo.received >= echo.sent and echo.train_received >= echo.train_sent


def _send(sender: UdpTransport, data: bytes, segment_bytes: int = 0) -> None:
    sender.send(Train(np.frombuffer(data, np.uint8), segment_bytes or len(data), sender.destination))


def _collect(source: UdpSocket, token: bytes, sent_at: dict[int, float], echo: Echo, seconds: float) -> None:
    select.select([source.fileno()], [], [], seconds)
    now = time.perf_counter()
    while (train := source.receive()) is not None:
        for start in range(0, train.data.size, train.segment_bytes):
            head = train.data[start : start + _HEAD.size].tobytes()
            if len(head) < _HEAD.size:
                continue
            magic, whose, number = _HEAD.unpack(head)
            if magic == PROBE_MAGIC and whose == token:
                if number in sent_at:
                    echo.times_us.append((now - sent_at.pop(number)) * 1e6)
                elif number == _PROBES:
                    echo.train_received += 1


def judge_echo(scene: Scene, echo: Echo) -> Iterator[Finding]:
    """Yield findings about the datagrams that came back, and those that did not."""
    name, lot = scene.interface.name, f"{counted(echo.sent, 'datagram')} to {scene.group}"
    if echo.errors:
        code, count = echo.errors.most_common(1)[0]
        yield _refused(name, scene.group, code, count)
        return
    if not echo.received:
        yield fault(
            "self_probe",
            "nothing_comes_back",
            f"none of {lot} came back over {name}: this host drops them",
            "look at this host's firewall rules: the check firewall names them, for root",
        )
        return
    median = sorted(echo.times_us)[echo.received // 2]
    figures = {"sent": echo.sent, "received": echo.received, "median_us": round(median, 1)}
    if echo.received < echo.sent:
        yield warning(
            "self_probe",
            "loss_within_host",
            f"{echo.sent - echo.received} of {lot} did not come back over {name}",
            "look at the firewall and at drops; an overloaded host loses them, too",
            **figures,
        )
    else:
        text = f"{echo.received} of {lot} came back over {name}, in {median:.0f} µs"
        yield ok("self_probe", text, **figures)
    if echo.train_sent and echo.train_received < echo.train_sent:
        yield fault(
            "segments",
            "segments_lost",
            f"{echo.train_received} of {counted(echo.train_sent, 'segment')} of full size came back over {name}",
            f"FJM2_NO_GSO=1, or look at: ethtool -k {name}",
        )
    elif echo.refused:
        yield warning(
            "segments",
            "offload_refused",
            f"{name} refuses trains: they are sent datagram by datagram, at several times the cost",
            f"ethtool -K {name} tx on",
        )


def _refused(name: str, group: str, code: int, count: int) -> Finding:
    told = f"{count} sends to {group} over {name} were refused: {os.strerror(code)}"
    match code:
        case errno.EPERM | errno.EACCES:
            return fault(
                "self_probe",
                "firewall_refuses",
                f"{told}: a firewall does that",
                "look at what the check firewall says of packets to the group: it names the rule, for root",
            )
        case errno.ENETUNREACH | errno.EHOSTUNREACH:
            return fault("self_probe", "no_multicast_route", told, f"ip route add 224.0.0.0/4 dev {name}")
        case errno.ENETDOWN | errno.ENODEV:
            return fault("self_probe", "interface_down", told, f"ip link set {name} up")
        case errno.EMSGSIZE:
            return fault("self_probe", "segments_exceed_mtu", told, "make segment_bytes in the URI smaller")
        case _:
            return unknown("self_probe", told)


def check_membership(scene: Scene) -> Finding:
    """Check whether the kernel lists this host in the group, after a socket has joined it."""
    name = scene.interface.name
    groups = scene.kernel.groups(name, scene.is_ipv6)
    if groups is None:
        return unknown("membership", "joined groups cannot be read on this system")
    if scene.group not in groups:
        return fault(
            "membership",
            "not_a_member",
            f"{name} is not in {scene.group}, though a socket has joined it",
            f"ip link set {name} multicast on",
        )
    if scene.is_ipv6:
        return ok("membership", f"{name} is in {scene.group}")
    version = scene.kernel.igmp_version(name)
    forced = [
        number
        for one in ("all", name)
        if (number := scene.kernel.number(f"proc/sys/net/ipv4/conf/{one}/force_igmp_version"))
    ]
    if forced:
        return warning(
            "membership",
            "igmp_version_forced",
            f"{name} is in {scene.group}, but IGMP version {forced[0]} is forced: a querier with another version "
            "may not understand it",
            f"sysctl -w net.ipv4.conf.{name}.force_igmp_version=0",
        )
    return ok("membership", f"{name} is in {scene.group}; IGMP version: {version or 'unknown'}")
