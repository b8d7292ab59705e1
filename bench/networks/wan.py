"""Two LANs of one host each, with gateways between them, and a cable past these for comparison; in namespaces.

publisher -- left gateway -- right gateway -- subscriber
    \\________________ direct _______________/
"""

from . import namespaces

LAN_DEVICE, WAN_DEVICE, DIRECT_DEVICE = "lan0", "wan0", "direct0"
LEFT_LAN, RIGHT_LAN, LEFT_WAN, RIGHT_WAN = "10.57.1.2", "10.57.2.2", "10.57.3.1", "10.57.3.2"
"""The gateways' addresses."""


class WanNetwork(namespaces.Lab):
    """A context manager. The publisher and the subscriber are on `lan0`, and on `direct0`."""

    def __init__(self) -> None:
        super().__init__(1)
        prefix = self.publisher.name.removesuffix("-pub")
        self.left = namespaces.Host(f"{prefix}-left", LEFT_WAN)
        self.right = namespaces.Host(f"{prefix}-right", RIGHT_WAN)

    @property
    def subscriber(self) -> namespaces.Host:
        return self.subscribers[0]

    def _make(self) -> None:
        for host in (self.publisher, self.left, self.right, self.subscriber):
            self._add(host.name)
            namespaces._ip(host.name, "link set lo up")
        _cable(LAN_DEVICE, (self.publisher, "10.57.1.1"), (self.left, LEFT_LAN))
        _cable(WAN_DEVICE, (self.left, LEFT_WAN), (self.right, RIGHT_WAN))
        _cable(LAN_DEVICE, (self.right, RIGHT_LAN), (self.subscriber, "10.57.2.1"))
        _cable(DIRECT_DEVICE, (self.publisher, "10.57.4.1"), (self.subscriber, "10.57.4.2"))


def _cable(device: str, *ends: tuple[namespaces.Host, str]) -> None:
    (left, _), (right, _) = ends
    namespaces._ip(left.name, f"link add {device} type veth peer name {device} netns {right.name}")
    for host, address in ends:
        namespaces._ip(host.name, f"address add {address}/24 dev {device}", f"link set {device} up")
