"""Three LANs, each with two hosts and a gateway host, around an Internet whose links are as bad as they are told to be.

Gateway hosts have a cable into their LAN (`lan0`) and one into the Internet, where a router forwards between them. LANs
have no route to each other: what crosses has been carried by a gateway. LAN A has a second gateway host, for those who
need one. The admin service's host is on the Internet as well.
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
"""Packets that the kernel keeps for the delay line while it does not run."""
_DELAY_LINE = Path(__file__).with_name("delayline.py")
_ROUTER_SETTINGS = ("ip_forward=1", "conf.all.rp_filter=0", "conf.default.rp_filter=0", "conf.all.send_redirects=0")
_QUEUE_S = 0.05
_BURST_BYTES = 1 << 16
"""Burst of a rate limit. Longer trains are cut by it."""
_SEGMENTS_ALL = 65_535


@dataclass(slots=True)
class GatewayHost:
    """A host on which a gateway may run."""

    name: str
    namespace: Namespace
    wan_device: str
    """Name of the cable into the Internet, at both ends."""
    address: str = ""
    """Its address on the Internet."""


@dataclass(slots=True)
class Site:
    """A LAN with its hosts."""

    name: str
    switch: Namespace
    hosts: list[Namespace]
    gateways: list[GatewayHost]

    @property
    def gateway(self) -> GatewayHost:
        """The first host."""
        return self.gateways[0]


@dataclass(slots=True)
class Delay:
    """Counters of a delay line, once it has ended."""

    result: dict[str, float] = field(default_factory=dict)


class Internet:
    """A context manager that makes everything, and removes it at the end. Impairments are context managers too."""

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
        """Connect a host to the router. Return the host's address."""
        self._network.link(host, self.router, device)
        address = address_of(host, device)
        host.ip("route", "add", "default", "via", address_of(self.router, device))
        return address

    @property
    def gateway_hosts(self) -> list[GatewayHost]:
        return [gateway for site in self.sites.values() for gateway in site.gateways]

    @property
    def _ports(self) -> list[str]:
        """Device of the router."""
        return [gateway.wan_device for gateway in self.gateway_hosts] + ["wan-admin"]

    def __getitem__(self, name: str) -> Site:
        return self.sites[name]

    @contextlib.contextmanager
    def rate(self, mbit: float) -> Iterator[None]:
        """Limit the router's rate to each gateway. What would wait for more than 50 ms is lost."""
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
        """Packets dropped by rate limits, by gateway."""
        found = {}
        for gateway in self.gateway_hosts:
            entries = json.loads(self.router.run("tc", "-s", "-j", "qdisc", "show", "dev", gateway.wan_device))
            found[gateway.name] = sum(entry.get("drops", 0) for entry in entries)
        return found

    @contextlib.contextmanager
    def loss(self, probability: float) -> Iterator[None]:
        """Lose this part of the datagrams between gateways, each independently."""
        rule = f"FORWARD -o wan-+ -p udp -m statistic --mode random --probability {probability} -j DROP".split()
        with self.trains_cut():
            self.router.run("iptables", "-A", *rule)
            try:
                yield
            finally:
                self.router.run("iptables", "-D", *rule)

    @contextlib.contextmanager
    def trains_cut(self) -> Iterator[None]:
        """Split trains into single datagrams on every cable, as most network cards do."""
        ends = [(host, LAN_DEVICE) for site in self.sites.values() for host in site.hosts]
        for gateway in self.gateway_hosts:
            ends += [(gateway.namespace, LAN_DEVICE), (gateway.namespace, gateway.wan_device)]
        for namespace, device in ends:
            namespace.cut_trains(device)
        try:
            yield
        finally:
            for namespace, device in ends:
                namespace.ip("link", "set", device, "gso_max_segs", str(_SEGMENTS_ALL))

    @contextlib.contextmanager
    def blackout(self) -> Iterator[None]:
        """Cut all traffic between gateways."""
        self.router.run("iptables", "-I", "FORWARD", "-j", "DROP")
        try:
            yield
        finally:
            self.router.run("iptables", "-D", "FORWARD", "-j", "DROP")

    @contextlib.contextmanager
    def translated(self, gateway: GatewayHost) -> Iterator[str]:
        """Put a gateway behind NAT, and yield its public address. Only answers get in."""
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
        """Delay all traffic, reorder a part of it, and duplicate a part of it."""
        told = Delay()
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
                yield told
            finally:
                for port in self._ports:
                    self.router.ip("rule", "del", "iif", port, "table", _DELAY_TABLE)
                line.end_input()
                told.result.update(line.wait_for("result"))


def address_of(namespace: Namespace, device: str) -> str:
    """Return the IPv4 address of a device."""
    entries: list[dict[str, Any]] = json.loads(namespace.ip("-j", "-4", "address", "show", "dev", device))
    return str(entries[0]["addr_info"][0]["local"])
