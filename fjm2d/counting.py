"""Counters of a gateway for traces: sources for each link, for each group on the LAN, and for the gateway itself."""

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from fjm2.base.readings import Reading

from .gateway import Gateway
from .instruments import LAN_INSTRUMENTS, LINK_COUNTERS
from .lan.groups import LanGroup
from .tunnel import Peer
from .values import show

_LINKS_MAX = 1024
"""Maximum number of links that traces record. The limit bounds the lines of a gateway with very many peers."""

_Reason = TypeVar("_Reason", bound=Enum)


class GatewayCounters:
    """Counters of a gateway, in the form in which a `TraceRecorder` reads them."""

    system, layer, role = "fjm2d", "gateway", "gateway"

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def readings(self) -> list[Reading]:
        """Return a reading of the gateway, one of each link and one of each group. Links and groups come and go."""
        gateway = self._gateway
        peers = list(gateway.endpoint.peers.values())[:_LINKS_MAX]
        drops = _named("wan", gateway.endpoint.drops) | _named("lan", gateway.forwarder.refusals)
        own = Reading("gateway", {"kernel_sends_blocked": gateway.kernel_sends_blocked}, {}, drops)
        return [own, *map(_link, peers), *map(_lan, list(gateway.groups.values()))]


def _link(peer: Peer) -> Reading:
    peer_id = f"{peer.id:08x}"
    counters = {one.trace: getattr(peer.stats, one.name) for one in LINK_COUNTERS if one.trace}
    gauges = {
        "rtt_s": peer.rtt_s,
        "loss_sent": peer.loss_sent,
        "queue_bytes": peer.outbound.queue.queued_bytes,
        "paced_bps": peer.outbound.queue.rate_bps,
    }
    return Reading(f"link:{peer_id}", counters, gauges, _named("", peer.stats.drops), peer_id)


def _lan(group: LanGroup) -> Reading:
    counters = {one.trace: getattr(group.stats, one.name) for one in LAN_INSTRUMENTS if one.trace}
    return Reading(f"lan:{show(group.address)}", counters, {}, {"lan_full": group.stats.dropped})


def _named(side: str, drops: Mapping[_Reason, int]) -> dict[str, int]:
    """Return the drops by the names of their reasons. Read a copy: the gateway's own thread goes on counting."""
    prefix = f"{side}_" if side else ""
    return {f"{prefix}{reason.name.lower()}": count for reason, count in dict(drops).items() if count}
