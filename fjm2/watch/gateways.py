"""Gateways, found from outside: by their beacons, and as addresses from which several nodes are heard.

Every FJM2 node has a socket of its own. A gateway sends everything that it forwards from one socket, under the node ids
of the original senders. Beacons are sent only in networks with more than one gateway.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from fjm2.norm import Address

BEACONS: Final = ("239.192.57.41", 5742)
"""Multicast group of the gateways of one network: the default of fjm2d's setting `lan.beacon`."""
_MAGIC: Final = b"FJMB\x01"
_FLAGS_AT, _ID_AT, _HEAD_BYTES = 5, 8, 20
_FORWARDS, _LEAVES = 1, 4
_ALIVE_S: Final = 5.0
"""Age of the last beacon at which a gateway counts as gone. It is longer than the lifetime that gateways give a
beacon."""
_GATEWAYS_MAX: Final = 256
"""Greatest number of gateways that are remembered. It bounds the memory that forged beacons can take."""


@dataclass(slots=True)
class Gateway:
    """A gateway of this network."""

    host: str
    gateway_id: int | None = None
    """Id in the gateway's beacon; None if it sends no beacon."""
    is_forwarding: bool | None = None
    """True if the gateway forwards, False if it stands by; None if unknown."""
    nodes: set[int] = field(default_factory=set)
    """Remote nodes that are heard through the gateway."""


class Gateways:
    """The gateways that beacons announce."""

    def __init__(self) -> None:
        self._beacons: dict[int, tuple[str, bool, float]] = {}

    def take(self, beacon: bytes, host: str, now: float) -> None:
        """Handle a datagram sent to the beacon group."""
        if not beacon.startswith(_MAGIC) or len(beacon) < _HEAD_BYTES:
            return
        gateway_id, flags = int.from_bytes(beacon[_ID_AT : _ID_AT + 4]), beacon[_FLAGS_AT]
        if flags & _LEAVES:
            self._beacons.pop(gateway_id, None)
        elif gateway_id in self._beacons or len(self._beacons) < _GATEWAYS_MAX:
            self._beacons[gateway_id] = host, bool(flags & _FORWARDS), now

    def found(self, nodes: Iterable[tuple[int, Address]], now: float) -> list[Gateway]:
        """Return all gateways. `nodes` are the nodes of connections, each with the address that it is heard from."""
        by_address: dict[Address, set[int]] = {}
        for node_id, address in nodes:
            by_address.setdefault(address, set()).add(node_id)
        crowded = {address: nodes for address, nodes in by_address.items() if len(nodes) > 1}
        gateways = [
            Gateway(host, gateway_id, is_forwarding)
            for gateway_id, (host, is_forwarding, at) in sorted(self._beacons.items())
            if now - at < _ALIVE_S
        ]
        for (host, _), behind in sorted(crowded.items()):
            gateway = next((one for one in gateways if one.host == host), None)
            if gateway is None:
                gateway = Gateway(host)
                gateways.append(gateway)
            gateway.nodes |= behind
        return gateways
