"""The networks of one site: a LAN around a switch, or the loopback of a single host."""

import time

from . import namespaces
from .namespaces import COMMAND_TIMEOUT_S, Host, NetworkError
from .network import DEVICE, Network, disable_offload, drop_on_arrival, shape

_POLL_INTERVAL_S = 0.01
"""Time between two checks whether an interface has come up, which takes some tens of milliseconds."""
_TBF_BURST_BYTES = 128 << 10
"""Burst of the token bucket, which drops longer packets: a whole train of 64 KiB has to fit."""
_TBF_QUEUE_BYTES = 1 << 20
"""Queue of the publisher's link: 84 ms at 100 Mbit/s."""


class Lan(Network):
    """A publisher and subscribers on one switch that floods multicast. The switch is in a namespace of its own."""

    def __init__(
        self, subscribers: int, *, rate_bps: float | None = None, loss: float = 0.0, is_offloaded: bool = True
    ) -> None:
        """`rate_bps` limits the publisher's link. `loss` is the probability that a packet misses a subscriber.

        Loss disables offload: otherwise whole trains would be lost.
        """
        super().__init__(subscribers)
        self._switch = f"{self.prefix}-switch"
        self._rate_bps = rate_bps
        self._loss = loss
        self._is_offloaded = is_offloaded and not loss

    def make(self) -> None:
        self.add(self._switch)
        namespaces.configure(self._switch, "link add br0 type bridge mcast_snooping 0", "link set br0 up")
        hosts = [self.publisher, *self.subscribers]
        for number, host in enumerate(hosts):
            self.add(host.name)
            self._connect(host, f"port{number}")
        if self._rate_bps is not None:
            shape(self.publisher, DEVICE, self._rate_bps, _TBF_BURST_BYTES, _TBF_QUEUE_BYTES)
        for host in self.subscribers if self._loss else ():
            drop_on_arrival(host, DEVICE, self._loss)
        for host in hosts:
            _wait_until_up(host)

    def _connect(self, host: Host, port: str) -> None:
        namespaces.configure(
            host.name,
            "link set lo up",
            f"link add {DEVICE} type veth peer name {port} netns {self._switch}",
            f"address add {host.address}/24 dev {DEVICE}",
        )
        if not self._is_offloaded:
            disable_offload(host, DEVICE)
        namespaces.configure(host.name, f"link set {DEVICE} up")
        namespaces.configure(self._switch, f"link set {port} master br0 up")


class Loopback(Network):
    """One host: the publisher and its subscribers meet at `lo`."""

    device = "lo"

    def __init__(self, subscribers: int) -> None:
        super().__init__(subscribers)
        self.publisher = Host(self.publisher.name, "127.0.0.1")
        self.subscribers = [self.publisher] * subscribers

    def make(self) -> None:
        self.add(self.publisher.name)
        namespaces.configure(self.publisher.name, "link set lo up")


def _wait_until_up(host: Host) -> None:
    deadline = time.monotonic() + COMMAND_TIMEOUT_S
    while " UP " not in (state := namespaces.run("ip", "-n", host.name, "-br", "link", "show", DEVICE)):
        if time.monotonic() > deadline:
            raise NetworkError(f"{DEVICE} of {host.name} does not come up: {state}")
        time.sleep(_POLL_INTERVAL_S)
