"""What a gateway says of itself: for people and programs (/status), for Prometheus (/metrics), for the node list."""

import heapq
from collections.abc import Iterable, Iterator
from typing import Any

from fjm2 import __version__
from fjm2.base.exposition import Family, Kind, text

from .directory import Directory
from .gateway import Gateway
from .tunnel import Peer
from .values import show

Labels = dict[str, str]
_LINKS_MAX = 64
"""The node list shows so many of a gateway's links, the busiest."""


def status_of(gateway: Gateway, directory: Directory | None) -> dict[str, Any]:
    """Everything, ready for JSON."""
    now = gateway.now()
    return {
        "name": gateway.config.shown_name,
        "id": gateway.keys.public.id_text,
        "public_key": gateway.keys.public.text,
        "version": __version__,
        "uptime_s": round(now - gateway.started_at, 1),
        "is_forwarder": gateway.forwarder.is_forwarder,
        "lan": gateway.config.lan.label or None,
        "mates": [f"{mate:08x}" for mate in gateway.election.live_mates(now)],
        "other_gateways": [{"id": f"{other.id:08x}", "address": other.host} for other in gateway.others()],
        "faults": list(gateway.faults()),
        "admin": _admin(directory),
        "peers": [_peer(gateway, peer, now) for peer in gateway.endpoint.peers.values()],
        "groups": [_group(gateway, group) for group in gateway.groups],
        "kernel_sends_blocked": gateway.kernel_sends_blocked,
        "drops": {
            "wan": _named(gateway.endpoint.drops) | gateway.wan_failures(),
            "lan": _named(gateway.forwarder.refusals),
            "beacons": _named(gateway.election.drops),
        },
    }


def _admin(directory: Directory | None) -> dict[str, Any] | None:
    if directory is None:
        return None
    return {
        "is_reached": directory.is_reached,
        "problem": directory.problem or None,
        "list_version": directory.version,
        "is_from_file": directory.is_from_file,
    }


def _peer(gateway: Gateway, peer: Peer, now: float) -> dict[str, Any]:
    status = gateway.forwarder.peer_interest.status_of(peer.id)
    return {
        "name": peer.name,
        "id": f"{peer.id:08x}",
        "state": peer.state.value,
        "address": None if peer.address is None else show(peer.address),
        "up_s": None if peer.up_since is None else round(now - peer.up_since, 1),
        "is_forwarder": status is not None and status.is_forwarder,
        "rtt_ms": _rtt_ms(peer),
        "loss_sent": round(peer.loss_sent, 5),
        "loss_received": round(peer.loss_received, 5),
        "rate_bps": peer.rate_bps,
        "is_rate_measured": peer.config.is_measured,
        "sent_bps": round(peer.flow.sent_bps),
        "received_bps": round(peer.flow.received_bps),
        "queue_bytes": peer.queued_bytes,
        "mtu_bytes": peer.mtu_bytes,
        **peer.stats.as_dict(),
    }


def _rtt_ms(peer: Peer) -> float | None:
    """As long as it is connected."""
    return round(1000 * peer.rtt_s, 3) if peer.is_up and peer.rtt_s is not None else None


def _group(gateway: Gateway, group_hash: int) -> dict[str, Any]:
    lan, known = gateway.groups[group_hash], gateway.forwarder.groups[group_hash]
    on_lan, behind_peers = known.table.counts()
    return {
        "group": show(lan.address),
        "is_wanted_here": known.interest.is_wanted,
        "wanted_by": [
            peer.name
            for peer in gateway.endpoint.peers.values()
            if gateway.forwarder.peer_interest.wants(peer.id, group_hash)
        ],
        "connections": known.interest.connections,
        "nodes_on_lan": on_lan,
        "nodes_behind_peers": behind_peers,
        "nodes_refused": known.table.refused,
        "is_down": lan.is_down,
        "datagrams_received": lan.datagrams_received,
        "bytes_received": lan.bytes_received,
        "datagrams_sent": lan.datagrams_sent,
        "bytes_sent": lan.bytes_sent,
        "drops": {"lan_full": lan.dropped, "kernel_full": lan.transport.kernel_drops()},
    }


def _named(counter: dict[Any, int]) -> dict[str, int]:
    return {reason.name.lower(): count for reason, count in sorted(counter.items(), key=_name) if count}


def _name(item: tuple[Any, int]) -> str:
    return str(item[0].name)


def sample_of(gateway: Gateway) -> dict[str, Any]:
    """What the node list is told with each heartbeat."""
    peers = heapq.nlargest(_LINKS_MAX, gateway.endpoint.peers.values(), _traffic)
    return {
        "uptime_s": gateway.now() - gateway.started_at,
        "links": [_link(peer) for peer in peers],
        "is_forwarder": gateway.forwarder.is_forwarder,
    }


def _traffic(peer: Peer) -> tuple[int, bool]:
    """What a link has carried, and whether it could."""
    return peer.stats.bytes_received + peer.stats.bytes_sent, peer.is_up


def _link(peer: Peer) -> dict[str, Any]:
    stats = peer.stats
    return {
        "peer": f"{peer.id:08x}",
        "bytes_in": stats.bytes_received,
        "bytes_out": stats.bytes_sent,
        "datagrams_in": stats.datagrams_received,
        "datagrams_out": stats.datagrams_sent,
        "drops": _named(stats.drops),
        "rtt_ms": _rtt_ms(peer),
        "loss": peer.loss_sent if peer.is_up else None,
        "queue_bytes": peer.queued_bytes,
        "is_up": peer.is_up,
        "rate_bps": peer.rate_bps,
    }


# Prometheus.


def metrics_of(gateway: Gateway, directory: Directory | None) -> str:
    """The text form that Prometheus reads."""
    families = _families(status_of(gateway, directory))
    return text(Family(f"fjm2d_{name}", kind, told, samples) for name, kind, told, samples in families)


_Family = tuple[str, Kind, str, Iterable[tuple[Labels, float]]]

_PEER_GAUGES = (
    ("peer_queue_bytes", "queue_bytes", 1.0, "What waits for the link."),
    ("peer_rtt_seconds", "rtt_ms", 0.001, "Round trip, smoothed."),
    ("peer_loss_sent_ratio", "loss_sent", 1.0, "Part of what is sent that does not arrive."),
    ("peer_loss_received_ratio", "loss_received", 1.0, "Part of what the peer sends that does not arrive."),
    ("peer_rate_bits_per_second", "rate_bps", 1.0, "What the link is paced to; none without a limit."),
    ("peer_mtu_bytes", "mtu_bytes", 1.0, "Longest IP packet that is sent."),
)
_PEER_COUNTERS = (
    ("peer_sent_bytes_total", "bytes_sent", "Bytes of tunnel datagrams sent."),
    ("peer_sent_datagrams_total", "datagrams_sent", "Tunnel datagrams sent."),
    ("peer_received_bytes_total", "bytes_received", "Bytes of authentic tunnel datagrams received."),
    ("peer_received_datagrams_total", "datagrams_received", "Authentic tunnel datagrams received."),
    ("peer_handshakes_total", "handshakes_completed", "Handshakes completed."),
)
_GROUP_COUNTERS = (
    ("lan_received_bytes_total", "bytes_received", "Bytes received from the LAN."),
    ("lan_received_datagrams_total", "datagrams_received", "Datagrams received from the LAN."),
    ("lan_sent_bytes_total", "bytes_sent", "Bytes sent into the LAN."),
    ("lan_sent_datagrams_total", "datagrams_sent", "Datagrams sent into the LAN."),
    ("nodes_refused_total", "nodes_refused", "Times that there was no room for a node."),
)


def _families(status: dict[str, Any]) -> Iterator[_Family]:
    peers = [({"peer": peer["name"], "id": peer["id"]}, peer) for peer in status["peers"]]
    groups = [({"group": group["group"]}, group) for group in status["groups"]]
    yield (
        "info",
        "gauge",
        "Always 1.",
        [({"name": status["name"], "id": status["id"], "version": status["version"]}, 1)],
    )
    yield "uptime_seconds", "gauge", "Since the start.", [({}, status["uptime_s"])]
    yield "forwarder", "gauge", "Whether it forwards for its LAN.", [({}, status["is_forwarder"])]
    yield "mates", "gauge", "Other gateways of this LAN that live.", [({}, len(status["mates"]))]
    others = len(status["other_gateways"])
    yield "other_gateways", "gauge", "Gateways heard on this LAN that are no mates: a fault.", [({}, others)]
    if status["admin"] is not None:
        yield "admin_reached", "gauge", "Whether the node-list service answers.", [({}, status["admin"]["is_reached"])]
    yield (
        "peer_up",
        "gauge",
        "Whether a peer is connected.",
        [(labels, peer["state"] == "up") for labels, peer in peers],
    )
    for name, key, factor, told in _PEER_GAUGES:
        yield name, "gauge", told, [(labels, peer[key] * factor) for labels, peer in peers if peer[key] is not None]
    for name, key, told in _PEER_COUNTERS:
        yield name, "counter", told, [(labels, peer[key]) for labels, peer in peers]
    told = "Times that the kernel had no room for what was sent to peers."
    yield "kernel_sends_blocked_total", "counter", told, [({}, status["kernel_sends_blocked"])]
    told = "Datagrams not sent to a peer, or of its that were not acted on, by reason."
    yield "peer_drops_total", "counter", told, list(_drops(peers))
    for name, key, told in _GROUP_COUNTERS:
        yield name, "counter", told, [(labels, group[key]) for labels, group in groups]
    yield "lan_drops_total", "counter", "Datagrams that found no room on the LAN's side.", list(_drops(groups))
    told = "Nodes that are known, by side."
    nodes = [({**labels, "side": "lan"}, group["nodes_on_lan"]) for labels, group in groups]
    nodes += [({**labels, "side": "wan"}, group["nodes_behind_peers"]) for labels, group in groups]
    yield "nodes", "gauge", told, nodes
    told = "Datagrams that did not go on, by side and reason."
    sides = [({"side": side}, {"drops": drops}) for side, drops in status["drops"].items()]
    yield "drops_total", "counter", told, list(_drops(sides))


def _drops(of: Iterable[tuple[Labels, dict[str, Any]]]) -> Iterator[tuple[Labels, float]]:
    for labels, entry in of:
        for reason, count in entry["drops"].items():
            yield {**labels, "reason": reason}, count
