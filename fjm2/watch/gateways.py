"""Gateways, told from other nodes: by their beacons, and as one address from which several nodes are heard.

A node of FJM2 has a socket of its own; a gateway sends what it brings from elsewhere from one socket of its own, under
the ids of those who sent it there. Beacons are sent only where a network has more than one gateway.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from fjm2.norm import Address

BEACONS: Final = ("239.192.57.41", 5742)
"""Where the gateways of one network find each other (fjm2d's lan.beacon, as it is by default)."""
_MAGIC: Final = b"FJMB\x01"
_FLAGS_AT, _ID_AT, _HEAD_BYTES = 5, 8, 20
_FORWARDS, _LEAVES = 1, 4
_ALIVE_S: Final = 5.0
_MANY: Final = 256


@dataclass(slots=True)
class Gateway:
    """One that is there."""

    host: str
    gateway_id: int | None = None
    """As its beacons tell; None for one that sends none."""
    is_forwarding: bool | None = None
    """Whether it is the one that forwards; None if it is not told."""
    nodes: set[int] = field(default_factory=set)
    """Nodes elsewhere that are heard through it."""


class Gateways:
    """What beacons tell."""

    def __init__(self) -> None:
        self._beacons: dict[int, tuple[str, bool, float]] = {}

    def take(self, beacon: bytes, host: str, now: float) -> None:
        """Something came for the group of the beacons."""
        if not beacon.startswith(_MAGIC) or len(beacon) < _HEAD_BYTES:
            return
        gateway_id, flags = int.from_bytes(beacon[_ID_AT : _ID_AT + 4]), beacon[_FLAGS_AT]
        if flags & _LEAVES:
            self._beacons.pop(gateway_id, None)
        elif gateway_id in self._beacons or len(self._beacons) < _MANY:
            self._beacons[gateway_id] = host, bool(flags & _FORWARDS), now

    def found(self, nodes: Iterable[tuple[int, Address]], now: float) -> list[Gateway]:
        """All that are there, given the nodes of connections and from where each is heard."""
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
