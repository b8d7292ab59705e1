"""What a gateway counts, as traces record it: a source for each link, each group of the LAN, and what went nowhere."""

from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from typing import TypeVar

from fjm2.base.readings import Reading

from .gateway import Gateway
from .lan import LanGroup
from .tunnel import Peer
from .tunnel.peer_stats import PeerStats
from .values import show

_LINKS_MAX = 1024
_PEER_COUNTERS = tuple(item.name for item in fields(PeerStats) if item.name != "drops")

_Reason = TypeVar("_Reason", bound=Enum)


class GatewayCounters:
    """A gateway, to be attached to a TraceRecorder."""

    system, layer, role = "fjm2d", "gateway", "gateway"

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def readings(self) -> list[Reading]:
        """Of all that is there at the moment; peers and groups come and go."""
        gateway = self._gateway
        peers = list(gateway.endpoint.peers.values())[:_LINKS_MAX]
        drops = _named("wan", gateway.endpoint.drops) | _named("lan", gateway.forwarder.refusals)
        own = Reading("gateway", {"kernel_sends_blocked": gateway.kernel_sends_blocked}, {}, drops)
        return [own, *map(_link, peers), *map(_lan, list(gateway.groups.values()))]


def _link(peer: Peer) -> Reading:
    peer_id = f"{peer.id:08x}"
    counters = {name: getattr(peer.stats, name) for name in _PEER_COUNTERS}
    gauges = {
        "rtt_s": peer.rtt_s,
        "loss_sent": peer.loss_sent,
        "queue_bytes": peer.queued_bytes,
        "paced_bps": peer.rate_bps,
    }
    return Reading(f"link:{peer_id}", counters, gauges, _named("", peer.stats.drops), peer_id)


def _lan(group: LanGroup) -> Reading:
    counters = {
        "datagrams_received": group.datagrams_received,
        "bytes_received": group.bytes_received,
        "datagrams_sent": group.datagrams_sent,
        "bytes_sent": group.bytes_sent,
    }
    return Reading(f"lan:{show(group.address)}", counters, {}, {"lan_full": group.dropped})


def _named(side: str, drops: Mapping[_Reason, int]) -> dict[str, int]:
    """By name. A copy first: the gateway's own thread goes on counting."""
    prefix = f"{side}_" if side else ""
    return {f"{prefix}{reason.name.lower()}": count for reason, count in dict(drops).items() if count}
