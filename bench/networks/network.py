"""A network of namespaces that exists for as long as its context."""

import itertools
import os
from abc import ABC, abstractmethod
from typing import Self

from . import namespaces
from .namespaces import Host, NetworkError

DEVICE = "veth0"
"""The interface of every host on a LAN."""
_numbers = itertools.count(1)


class Network(ABC):
    """A context manager for a publisher and its subscribers, each a host of its own.

    Nothing outside the namespaces is touched: virtual cables are made inside them. The namespaces are removed when the
    context is left. If the process is killed first, the next benchmark removes them.
    """

    device = DEVICE
    """The interface that the hosts use."""

    def __init__(self, subscribers: int) -> None:
        self.prefix = f"{namespaces.prefix_of(os.getpid())}{next(_numbers)}"
        self.publisher = Host(f"{self.prefix}-pub", "10.57.0.1")
        self.subscribers = [Host(f"{self.prefix}-sub{n}", f"10.57.0.{n + 1}") for n in range(1, subscribers + 1)]
        self._made: list[str] = []

    def __enter__(self) -> Self:
        namespaces.remove_leftovers()
        try:
            self.make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    @abstractmethod
    def make(self) -> None:
        """Create the namespaces, with `add`, and connect them."""

    def add(self, name: str) -> None:
        """Create a namespace that is removed with the network."""
        namespaces.add(name)
        self._made.append(name)

    def _remove(self) -> None:
        failures = []
        while self._made:
            try:
                namespaces.remove(self._made.pop())
            except NetworkError as error:
                failures.append(str(error))
        if failures:
            raise NetworkError("; ".join(failures))


def shape(host: Host, device: str, rate_bps: float, burst_bytes: int, queue_bytes: int) -> None:
    """Limit the rate at which a host sends through an interface. Packets wait in a queue, which drops if it is full."""
    bucket = f"tbf rate {rate_bps:.0f}bit burst {burst_bytes} limit {queue_bytes}"
    namespaces.run("tc", "-n", host.name, *f"qdisc replace dev {device} root {bucket}".split())


def drop_on_arrival(host: Host, device: str, loss: float) -> None:
    """Drop packets at random as they arrive, with probability `loss`."""
    # The table `raw` comes before reassembly, so that every fragment is dropped or kept by itself.
    rule = f"-t raw -A PREROUTING -i {device} -m statistic --mode random --probability {loss:.9f} -j DROP"
    namespaces.run(*host.inside("iptables", *rule.split()))


def disable_offload(host: Host, device: str) -> None:
    """Send every datagram as a packet of its own. With offload, a whole train of datagrams crosses, or is lost."""
    namespaces.configure(host.name, f"link set {device} gso_max_segs 1")
