"""Two LANs of one host each with a gateway in each, and a cable that bypasses the gateways, for comparison.

publisher -- left gateway -- right gateway -- subscriber
    \\________________ direct _______________/
"""

from . import namespaces
from .namespaces import Host
from .network import Network, disable_offload, drop_on_arrival, shape

LAN_DEVICE, WAN_DEVICE, DIRECT_DEVICE = "lan0", "wan0", "direct0"
LEFT_LAN, RIGHT_LAN, LEFT_WAN, RIGHT_WAN = "10.57.1.2", "10.57.2.2", "10.57.3.1", "10.57.3.2"
"""Addresses of the gateways."""
_QUEUE_S = 0.1
"""Longest delay in the queue before the line, as in a common router. A full queue drops packets."""
_QUEUE_MIN_BYTES = 64 << 10
"""Least size of the queue before the line: a whole train has to fit, even if the line is slow."""
_BURST_BYTES = 64 << 10
"""Burst of the token bucket, which drops longer packets: hosts hand over whole trains of up to 64 KiB."""


class Wan(Network):
    """Two LANs, a line between their gateways, and a direct cable. Line and cable have a rate and lose packets."""

    device = LAN_DEVICE

    def __init__(self, rate_bps: float | None, loss: float, *, is_offloaded: bool) -> None:
        super().__init__(1)
        (self.subscriber,) = self.subscribers
        self.left = Host(f"{self.prefix}-left", LEFT_WAN)
        self.right = Host(f"{self.prefix}-right", RIGHT_WAN)
        self._rate_bps, self._loss = rate_bps, loss
        self._is_offloaded = is_offloaded and not loss

    def use(self, way: str) -> None:
        """Have the publisher and the subscriber use the direct cable if `way` is "direct", else their LANs."""
        self.device = DIRECT_DEVICE if way == "direct" else LAN_DEVICE

    def make(self) -> None:
        for host in (self.publisher, self.left, self.right, self.subscriber):
            self.add(host.name)
            namespaces.configure(host.name, "link set lo up")
        _cable(LAN_DEVICE, (self.publisher, "10.57.1.1"), (self.left, LEFT_LAN))
        _cable(WAN_DEVICE, (self.left, LEFT_WAN), (self.right, RIGHT_WAN))
        _cable(LAN_DEVICE, (self.right, RIGHT_LAN), (self.subscriber, "10.57.2.1"))
        _cable(DIRECT_DEVICE, (self.publisher, "10.57.4.1"), (self.subscriber, "10.57.4.2"))
        for host, device in (
            (self.left, WAN_DEVICE),
            (self.right, WAN_DEVICE),
            (self.publisher, DIRECT_DEVICE),
            (self.subscriber, DIRECT_DEVICE),
        ):
            self._limit(host, device)

    def _limit(self, host: Host, device: str) -> None:
        if not self._is_offloaded:
            disable_offload(host, device)
        if self._rate_bps is not None:
            queue_bytes = max(_QUEUE_MIN_BYTES, int(self._rate_bps * _QUEUE_S / 8))
            shape(host, device, self._rate_bps, _BURST_BYTES, queue_bytes)
        if self._loss:
            drop_on_arrival(host, device, self._loss)


def _cable(device: str, *ends: tuple[Host, str]) -> None:
    (left, _), (right, _) = ends
    namespaces.configure(left.name, f"link add {device} type veth peer name {device} netns {right.name}")
    for host, address in ends:
        namespaces.configure(host.name, f"address add {address}/24 dev {device}", f"link set {device} up")
