"""Reports of a gateway: its status for people and programs, metrics for Prometheus, samples for the node list."""

import heapq
from collections.abc import Iterable, Iterator
from typing import Any

from fjm2 import __version__
from fjm2.base.exposition import Family, text
from fjm2.base.instruments import Instrument

from .admin.directory import Directory
from .gateway import Gateway
from .instruments import GATEWAY_INSTRUMENTS, LAN_INSTRUMENTS, LINK_INSTRUMENTS
from .tunnel import Peer
from .values import show

Labels = dict[str, str]
_LINKS_MAX = 64
"""Maximum number of links in a sample, which holds the busiest. The node list shows no more."""


def status_of(gateway: Gateway, directory: Directory | None) -> dict[str, Any]:
    """Return the whole status, ready for JSON."""
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
        "address": None if peer.path.address is None else show(peer.path.address),
        "up_s": None if peer.up_since is None else round(now - peer.up_since, 1),
        "is_forwarder": status is not None and status.is_forwarder,
        "rtt_ms": _rtt_ms(peer),
        "loss_sent": round(peer.loss_sent, 5),
        "loss_received": round(peer.loss_received, 5),
        "rate_bps": peer.outbound.queue.rate_bps,
        "is_rate_measured": peer.config.is_measured,
        "sent_bps": round(peer.flow.sent_bps),
        "received_bps": round(peer.flow.received_bps),
        "queue_bytes": peer.outbound.queue.queued_bytes,
        "mtu_bytes": peer.path.mtu_bytes,
        **peer.stats.as_dict(),
    }


def _rtt_ms(peer: Peer) -> float | None:
    """Return the round-trip time in milliseconds; None unless the peer is connected."""
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
        "datagrams_received": lan.stats.datagrams_received,
        "bytes_received": lan.stats.bytes_received,
        "datagrams_sent": lan.stats.datagrams_sent,
        "bytes_sent": lan.stats.bytes_sent,
        "drops": {"lan_full": lan.stats.dropped, "kernel_full": lan.transport.kernel_drops()},
    }


def _named(counter: dict[Any, int]) -> dict[str, int]:
    return {reason.name.lower(): count for reason, count in sorted(counter.items(), key=_name) if count}


def _name(item: tuple[Any, int]) -> str:
    return str(item[0].name)


def sample_of(gateway: Gateway) -> dict[str, Any]:
    """Return the measurements that a heartbeat reports to the node-list service."""
    peers = heapq.nlargest(_LINKS_MAX, gateway.endpoint.peers.values(), _traffic)
    return {
        "uptime_s": gateway.now() - gateway.started_at,
        "links": [_link(peer) for peer in peers],
        "is_forwarder": gateway.forwarder.is_forwarder,
    }


def _traffic(peer: Peer) -> tuple[int, bool]:
    """Return the sort key of the busiest links: bytes carried, connected peers first among equals."""
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
        "queue_bytes": peer.outbound.queue.queued_bytes,
        "is_up": peer.is_up,
        "rate_bps": peer.outbound.queue.rate_bps,
    }


def metrics_of(gateway: Gateway, directory: Directory | None) -> str:
    """Return the metrics of a gateway as text for Prometheus."""
    return text(_families(status_of(gateway, directory)))


_Entries = list[tuple[Labels, dict[str, Any]]]
"""Parts of the status, each with the labels of its metrics."""


def _families(status: dict[str, Any]) -> Iterator[Family]:
    peers: _Entries = [({"peer": peer["name"], "id": peer["id"]}, peer) for peer in status["peers"]]
    groups: _Entries = [({"group": group["group"]}, group) for group in status["groups"]]
    sides: _Entries = [({"side": side}, {"drops": drops}) for side, drops in status["drops"].items()]
    names: Labels = {name: status[name] for name in ("name", "id", "version")}
    yield Family("fjm2d_info", "gauge", "Always 1.", [(names, 1)])
    yield _gauge("fjm2d_uptime_seconds", "Seconds since the start.", status["uptime_s"])
    yield _gauge("fjm2d_forwarder", "1 if this gateway forwards for its LAN.", status["is_forwarder"])
    yield _gauge("fjm2d_mates", "Other gateways of this LAN that are alive.", len(status["mates"]))
    others = len(status["other_gateways"])
    yield _gauge("fjm2d_other_gateways", "Gateways heard on this LAN that are not its mates: a fault.", others)
    if status["admin"] is not None:
        is_reached = status["admin"]["is_reached"]
        yield _gauge("fjm2d_admin_reached", "1 if the node-list service answers.", is_reached)
    up = [(labels, peer["state"] == "up") for labels, peer in peers]
    yield Family("fjm2d_peer_up", "gauge", "1 if the peer is connected.", up)
    yield from _listed(LINK_INSTRUMENTS, peers)
    yield from _listed(LAN_INSTRUMENTS, groups)
    nodes = [({**labels, "side": "lan"}, group["nodes_on_lan"]) for labels, group in groups]
    nodes += [({**labels, "side": "wan"}, group["nodes_behind_peers"]) for labels, group in groups]
    yield Family("fjm2d_nodes", "gauge", "Known nodes, by side.", nodes)
    yield from _listed(GATEWAY_INSTRUMENTS, [({}, {"kernel_sends_blocked": status["kernel_sends_blocked"]}), *sides])


def _gauge(name: str, sentence: str, value: float) -> Family:
    return Family(name, "gauge", sentence, [({}, value)])


def _listed(instruments: Iterable[Instrument], entries: _Entries) -> Iterator[Family]:
    """Yield the families of a list of counters, with samples of the entries that have a value."""
    for one in instruments:
        if one.metric and one.field:
            yield Family(one.metric, one.kind, one.sentence, list(_samples(one, one.field, entries)))


def _samples(one: Instrument, key: str, entries: _Entries) -> Iterator[tuple[Labels, float]]:
    for labels, entry in entries:
        value = entry.get(key)
        if value is not None and one.label is not None:
            for reason, count in value.items():
                yield {**labels, one.label: reason}, count
        elif value is not None:
            yield labels, value * 0.001 if one.unit == "ms" else value  # Prometheus has seconds
