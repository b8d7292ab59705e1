"""Three LANs, each with two hosts and a gateway host, around an Internet with configurable delay, rate and loss.

A gateway host has one link into its LAN (`lan0`) and one into the Internet, where a router forwards between gateways.
LANs have no route to each other: gateways carry all traffic between them. LAN A has a second gateway host, for tests
that need it. The host of the node-list service is on the Internet as well.
"""

import contextlib
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from netns import Namespace, Network
from programs import Program

LAN_DEVICE = "lan0"
_GATEWAYS = {"a": 2, "b": 1, "c": 1}
_HOSTS = 2
_DELAY_DEVICE = "delay0"
_DELAY_TABLE = "57"
_DELAY_PACKETS = 20_000
"""Packets that the kernel queues for the delay line while the delay line's program is not running."""
_DELAY_LINE = Path(__file__).with_name("delayline.py")
_ROUTER_SETTINGS = ("ip_forward=1", "conf.all.rp_filter=0", "conf.default.rp_filter=0", "conf.all.send_redirects=0")
_QUEUE_S = 0.05
"""Length of the queue before a rate limit, as the time in which it drains."""
_BURST_BYTES = 1 << 16
"""Burst that a rate limit lets pass. Longer trains are cut."""
_SEGMENTS_MAX = 65_535
"""Linux's default of `gso_max_segs`. With this value trains pass whole."""


@dataclass(slots=True)
class GatewayHost:
    """A host on which a gateway may run."""

    name: str
    namespace: Namespace
    wan_device: str
    """Name of the link into the Internet, at both of its ends."""
    address: str = ""
    """IP address of the host on the Internet."""


@dataclass(slots=True)
class Site:
    """A LAN with its switch, hosts and gateway hosts."""

    name: str
    switch: Namespace
    hosts: list[Namespace]
    gateways: list[GatewayHost]

    @property
    def gateway(self) -> GatewayHost:
        """The LAN's first gateway host."""
        return self.gateways[0]


@dataclass(slots=True)
class Delay:
    """The report of a delay line. It is empty until the delay line has ended."""

    result: dict[str, float] = field(default_factory=dict)


class Internet:
    """The lab. This context manager makes it, and removes it at the end.

    Its methods that cause faults are context managers too.
    """

    def __init__(self) -> None:
        self._network = Network()
        self.sites: dict[str, Site] = {}
        self.router: Namespace
        self.admin: Namespace
        self.admin_address = ""

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._network)
            self._make()
            self._leave = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._leave.close()

    def _make(self) -> None:
        network = self._network
        self.router, self.admin = network.namespace(), network.namespace()
        self.router.run("sysctl", "-qw", *(f"net.ipv4.{setting}" for setting in _ROUTER_SETTINGS))
        for name, count in _GATEWAYS.items():
            hosts = [network.namespace() for _ in range(_HOSTS)]
            gateways = [
                GatewayHost(f"{name}{number}", network.namespace(), f"wan-{name}{number}")
                for number in range(1, count + 1)
            ]
            switch = network.switch(*hosts, *(gateway.namespace for gateway in gateways), device=LAN_DEVICE)
            self.sites[name] = Site(name, switch, hosts, gateways)
        for gateway in self.gateway_hosts:
            gateway.address = self._connect(gateway.namespace, gateway.wan_device)
        self.admin_address = self._connect(self.admin, "wan-admin")

    def _connect(self, host: Namespace, device: str) -> str:
        """Link a host to the router, and return the host's address on that link."""
        self._network.link(host, self.router, device)
        address = address_of(host, device)
        host.ip("route", "add", "default", "via", address_of(self.router, device))
        return address

    @property
    def gateway_hosts(self) -> list[GatewayHost]:
        return [gateway for site in self.sites.values() for gateway in site.gateways]

    @property
    def _ports(self) -> list[str]:
        """Names of the router's devices."""
        return [gateway.wan_device for gateway in self.gateway_hosts] + ["wan-admin"]

    def __getitem__(self, name: str) -> Site:
        return self.sites[name]

    @contextlib.contextmanager
    def rate(self, mbit: float) -> Iterator[None]:
        """Limit the rate from the router to each gateway, with a queue of 50 ms."""
        queue_bytes = _BURST_BYTES + math.ceil(mbit * 1e6 / 8 * _QUEUE_S)
        devices = [gateway.wan_device for gateway in self.gateway_hosts]
        for device in devices:
            self.router.limit(device, mbit, queue_bytes=queue_bytes, burst_bytes=_BURST_BYTES)
        try:
            yield
        finally:
            for device in devices:
                self.router.run("tc", "qdisc", "del", "dev", device, "root")

    def queue_drops(self) -> dict[str, int]:
        """Return the number of packets dropped by rate limits, by gateway."""
        found = {}
        for gateway in self.gateway_hosts:
            entries = json.loads(self.router.run("tc", "-s", "-j", "qdisc", "show", "dev", gateway.wan_device))
            found[gateway.name] = sum(entry.get("drops", 0) for entry in entries)
        return found

    @contextlib.contextmanager
    def loss(self, probability: float) -> Iterator[None]:
        """Drop each datagram between gateways with this probability, independently of others."""
        rule = f"FORWARD -o wan-+ -p udp -m statistic --mode random --probability {probability} -j DROP".split()
        with self.trains_cut():
            self.router.run("iptables", "-A", *rule)
            try:
                yield
            finally:
                self.router.run("iptables", "-D", *rule)

    @contextlib.contextmanager
    def trains_cut(self) -> Iterator[None]:
        """Cut trains, so that every datagram crosses every link by itself, as with most network cards."""
        ends = [(host, LAN_DEVICE) for site in self.sites.values() for host in site.hosts]
        for gateway in self.gateway_hosts:
            ends += [(gateway.namespace, LAN_DEVICE), (gateway.namespace, gateway.wan_device)]
        for namespace, device in ends:
            namespace.cut_trains(device)
        try:
            yield
        finally:
            for namespace, device in ends:
                namespace.ip("link", "set", device, "gso_max_segs", str(_SEGMENTS_MAX))

    @contextlib.contextmanager
    def blackout(self) -> Iterator[None]:
        """Drop everything that is sent between gateways."""
        self.router.run("iptables", "-I", "FORWARD", "-j", "DROP")
        try:
            yield
        finally:
            self.router.run("iptables", "-D", "FORWARD", "-j", "DROP")

    @contextlib.contextmanager
    def translated(self, gateway: GatewayHost) -> Iterator[str]:
        """Put a gateway behind a NAT of the router. Yield the address that others see.

        Only answers to the gateway's own packets get in.
        """
        shown = address_of(self.router, gateway.wan_device)
        port = gateway.wan_device
        rules = (
            ("nat", f"POSTROUTING -p udp -s {gateway.address} -j SNAT --to-source {shown} --random"),
            ("filter", f"FORWARD -p udp -o {port} -m conntrack --ctstate NEW -j DROP"),
        )
        for table, rule in rules:
            self.router.run("iptables", "-t", table, "-A", *rule.split())
        try:
            yield shown
        finally:
            for table, rule in rules:
                self.router.run("iptables", "-t", table, "-D", *rule.split())

    @contextlib.contextmanager
    def delay(self, one_way_s: float, *, reorder: float = 0.0, duplicate: float = 0.0) -> Iterator[Delay]:
        """Delay all traffic, and let a share of the packets be overtaken or duplicated. Yield the report."""
        report = Delay()
        line = Program(
            self.router,
            sys.executable,
            _DELAY_LINE,
            _DELAY_DEVICE,
            one_way_s,
            "--reorder",
            reorder,
            "--duplicate",
            duplicate,
        )
        with line:
            line.wait_for("ready")
            self.router.ip(*f"link set {_DELAY_DEVICE} txqueuelen {_DELAY_PACKETS} up".split())
            self.router.ip("route", "add", "default", "dev", _DELAY_DEVICE, "table", _DELAY_TABLE)
            for port in self._ports:
                self.router.ip("rule", "add", "iif", port, "table", _DELAY_TABLE)
            try:
                yield report
            finally:
                for port in self._ports:
                    self.router.ip("rule", "del", "iif", port, "table", _DELAY_TABLE)
                line.end_input()
                report.result.update(line.wait_for("result"))


def address_of(namespace: Namespace, device: str) -> str:
    """Return the IPv4 address of a device."""
    entries: list[dict[str, Any]] = json.loads(namespace.ip("-j", "-4", "address", "show", "dev", device))
    return str(entries[0]["addr_info"][0]["local"])
