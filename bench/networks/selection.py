"""The networks of runs: one host's loopback, a LAN, or two LANs with a way between them."""

from ..runs.matrix import Field
from . import namespaces
from .wan import DIRECT_DEVICE, LAN_DEVICE, WAN_DEVICE, WanNetwork

# At most what a line of this rate takes in so long waits before it; then it drops.
_WAN_QUEUE_S = 0.1
_WAN_QUEUE_MIN_BYTES = 64 << 10
_WAN_BURST_BYTES = 64 << 10
"""Hosts hand over whole trains, and one has to fit."""


class Loopback(namespaces.Lab):
    """Everything on one host: a publisher and its subscribers meet at `lo`."""

    device = "lo"

    def __init__(self, subscribers: int) -> None:
        super().__init__(subscribers)
        self.publisher = namespaces.Host(self.publisher.name, "127.0.0.1")
        self.subscribers = [self.publisher] * subscribers

    def _make(self) -> None:
        self._add(self.publisher.name)
        namespaces._ip(self.publisher.name, "link set lo up")


class Sites(WanNetwork):
    """Two LANs. The line between the gateways, and the cable past them, have a rate and lose packets, both ways."""

    device = LAN_DEVICE

    def __init__(self, rate_bps: float | None, loss: float, *, is_offloaded: bool) -> None:
        super().__init__()
        self._line_rate_bps, self._line_loss = rate_bps, loss
        self._is_line_offloaded = is_offloaded and not loss

    def use(self, way: str) -> None:
        """The hosts at the ends go this way from now on."""
        self.device = DIRECT_DEVICE if way == "direct" else LAN_DEVICE

    def _make(self) -> None:
        super()._make()
        lines = (
            (self.left, WAN_DEVICE),
            (self.right, WAN_DEVICE),
            (self.publisher, DIRECT_DEVICE),
            (self.subscriber, DIRECT_DEVICE),
        )
        for host, device in lines:
            self._shape(host, device)

    def _shape(self, host: namespaces.Host, device: str) -> None:
        if not self._is_line_offloaded:
            namespaces._ip(host.name, f"link set {device} gso_max_segs 1")
        if self._line_rate_bps is not None:
            queue_bytes = max(_WAN_QUEUE_MIN_BYTES, int(self._line_rate_bps * _WAN_QUEUE_S / 8))
            shape = f"tbf rate {self._line_rate_bps:.0f}bit burst {_WAN_BURST_BYTES} limit {queue_bytes}"
            namespaces._run("tc", "-n", host.name, *f"qdisc replace dev {device} root {shape}".split())
        if self._line_loss:
            rule = f"-t raw -A PREROUTING -i {device} -m statistic --mode random"
            namespaces._run(
                *host.inside("iptables", *rule.split(), "--probability", f"{self._line_loss:.9f}", "-j", "DROP")
            )


def ground_of(field: Field) -> Loopback | Sites | namespaces.Lab:
    """What a group of cells takes place in; a context manager."""
    if field.network == "loopback":
        return Loopback(field.fanout)
    if field.network == "wan":
        return Sites(field.rate_bps, field.loss, is_offloaded=field.is_offloaded)
    return namespaces.Lab(field.fanout, rate_bps=field.rate_bps, loss=field.loss, is_offloaded=field.is_offloaded)
