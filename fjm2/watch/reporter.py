"""Turns observations of a bus into the entries of a report."""

from typing import Final

from fjm2.bus.presence import Peer
from fjm2.keeper.status import StatusFlag
from fjm2.keeper.survey import is_manager, lag_of

from .answers import Receiver
from .gateways import Gateway
from .observations import Observations
from .rates import Rates
from .report import (
    ConnectionReport,
    GatewayReport,
    KeeperReport,
    ReceiverReport,
    SenderReport,
    TopicReport,
    hash_label,
)
from .senders import Sender
from .topics import TopicActivity

_OWNERS_SHOWN_MAX: Final = 3
"""Greatest number of connections of one process that are named. More would push the other columns off a screen."""


class Reporter:
    """Makes the entries of one report."""

    def __init__(self, observations: Observations, rates: Rates, now: float) -> None:
        self._heard = observations
        self._rates = rates
        self._now = now
        self._owners: dict[int, list[str]] = {}
        """Labels of the connections that each node belongs to, by node id."""
        self._lanes: dict[int, int] = {}
        """Lane number of each node that sends a member's lane, by node id."""
        peers, addresses = observations.connections.presence.peers, observations.addresses
        for peer in peers:
            lanes = {node_id: number for number, node_id in enumerate(peer.lanes) if node_id}
            self._lanes |= {peer.node_id: 0} | lanes  # the receiving node sends the first lane
            for node_id in {peer.node_id, *lanes}:
                self._owners.setdefault(node_id, []).append(observations.connections.label_of(peer.connection_id))
        nodes = {peer.node_id for peer in peers}
        placed = ((node, addresses[node]) for node in nodes if node in addresses)
        self._gateways = observations.gateways.found(placed, now)

    def keepers(self) -> tuple[KeeperReport, ...]:
        """Return the keepers, the manager first."""
        found = self._heard.keepers.alive(self._now)
        ordered = sorted(found, key=lambda each: (not is_manager(each), each.keeper_id))
        return tuple(
            KeeperReport(
                keeper_id=each.keeper_id.hex(),
                host=each.host,
                cell_id=f"{each.cell_id:016x}",
                state=each.state.name.lower(),
                epoch=each.epoch,
                lag=lag_of(each, found),
                store_bytes=each.store_bytes,
                allowed_bytes=each.allowed_bytes,
                free_bytes=each.free_bytes,
                sync_s=each.sync_us / 1e6,
                is_full=bool(each.flags & StatusFlag.FULL),
            )
            for each in ordered
        )

    def connections(self) -> tuple[ConnectionReport, ...]:
        """Return all connections, ordered by label."""
        return tuple(sorted(map(self._connection, self._heard.connections), key=lambda one: one.label))

    def topics(self) -> tuple[TopicReport, ...]:
        """Return all destinations with messages or subscribers, the busiest first."""
        subscribers: dict[int, list[str]] = {}
        subscribers_to_more: list[str] = []
        topics, connections = self._heard.topics, self._heard.connections
        for peer in connections:
            if peer.is_keeper:
                continue
            label = connections.label_of(peer.connection_id)
            for number in peer.topics:
                subscribers.setdefault(number, []).append(label)
            if peer.wants_all:
                subscribers_to_more.append(label)
        for number in subscribers:
            topics.topic(number)
        entries = [
            self._topic(one, subscribers.get(one.hash, []), subscribers_to_more)
            for one in topics
            if one.messages or one.hash in subscribers
        ]
        return tuple(sorted(entries, key=lambda one: (-one.messages_per_s, -one.messages, one.label)))

    def senders(self) -> tuple[SenderReport, ...]:
        """Return all senders that have sent data, the busiest first."""
        senders = [self._sender(node_id, one) for node_id, one in self._heard.senders.items() if one.is_publishing]
        return tuple(sorted(senders, key=lambda one: (-one.bytes_per_s, -one.bytes, one.label)))

    def receivers(self) -> tuple[ReceiverReport, ...]:
        """Return all receivers that answered or were asked to confirm, the slowest first."""
        return tuple(sorted(map(self._receiver, self._heard.answers.receivers), key=slowness, reverse=True))

    def gateways(self) -> tuple[GatewayReport, ...]:
        """Return the gateways of this network."""
        return tuple(
            GatewayReport(
                host=one.host, gateway_id=one.gateway_id, is_forwarding=one.is_forwarding, nodes=len(one.nodes)
            )
            for one in self._gateways
        )

    def _address(self, node_id: int) -> str | None:
        address = self._heard.addresses.get(node_id)
        if address is None:
            return None
        host, port = address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def _owner(self, node_id: int) -> str | None:
        owners = self._owners.get(node_id)
        if owners is None:
            return self._heard.connections.former_label(node_id)
        more = len(owners) - _OWNERS_SHOWN_MAX
        return ", ".join(sorted(owners)[:_OWNERS_SHOWN_MAX]) + (f" +{more}" if more > 0 else "")

    def _gateway_of(self, node_id: int) -> Gateway | None:
        return next((one for one in self._gateways if node_id in one.nodes), None)

    def _connection(self, peer: Peer) -> ConnectionReport:
        gateway = self._gateway_of(peer.node_id)
        since = self._heard.connections.since(peer.connection_id)
        published = [one for one in self._heard.topics if peer.connection_id in one.publishers]
        return ConnectionReport(
            connection_id=f"{peer.connection_id:016x}",
            client_id=peer.client_id,
            node_id=peer.node_id,
            address=self._address(peer.node_id),
            seen_s=0.0 if since is None else self._now - since,
            subscriptions=tuple(sorted(self._topic_name(number) for number in peer.topics)),
            subscribes_to_more=peer.wants_all and not peer.is_keeper,
            is_keeper=peer.is_keeper,
            publishes=tuple(sorted(one.name or hash_label(one.hash) for one in published)),
            gateway=None if gateway is None else gateway.host,
        )

    def _topic_name(self, number: int) -> str:
        topic = self._heard.topics.topic(number)
        return hash_label(number) if topic is None or topic.name is None else topic.name

    def _topic(self, topic: TopicActivity, subscribers: list[str], subscribers_to_more: list[str]) -> TopicReport:
        possible = () if topic.is_private else set(subscribers_to_more).difference(subscribers)
        return TopicReport(
            name=topic.name,
            hash=topic.hash,
            messages=topic.messages,
            messages_per_s=self._rates.per_s("topic_messages", topic.hash, topic.messages),
            bytes_per_s=self._rates.per_s("topic_bytes", topic.hash, topic.bytes),
            publishers=tuple(sorted(map(self._heard.connections.label_of, topic.publishers))),
            subscribers=tuple(sorted(subscribers)),
            possible_subscribers=tuple(sorted(possible)),
        )

    def _sender(self, node_id: int, sender: Sender) -> SenderReport:
        sender.counts.update(sender.observed.take_counts())
        counts, per_s = sender.counts, self._rates.per_s
        return SenderReport(
            node_id=node_id,
            owner=self._owner(node_id),
            lane=self._lanes.get(node_id),
            address=self._address(node_id),
            messages=sender.messages,
            messages_per_s=per_s("sender_messages", node_id, sender.messages),
            bytes=counts["bytes_sent"],
            bytes_per_s=per_s("sender_bytes", node_id, counts["bytes_sent"]),
            datagrams=counts["datagrams_sent"],
            repairs=counts["repair_segments_sent"],
            repairs_per_s=per_s("repairs", node_id, counts["repair_segments_sent"]),
            parity=counts["parity_segments_sent"],
            nacks=counts["nacks_received"],
            nacks_per_s=per_s("nacks_of", node_id, counts["nacks_received"]),
            datagrams_missed=max(counts["sequence_missed"] - counts["sequence_late"], 0),
            grtt_s=sender.observed.grtt_s,
        )

    def _receiver(self, receiver: Receiver) -> ReceiverReport:
        node_id = receiver.node_id
        given_up_by = {self._label(one) for one, at in receiver.given_up_at.items() if self._was_heard_since(one, at)}
        return ReceiverReport(
            node_id=node_id,
            owner=self._owner(node_id),
            address=self._address(node_id),
            nacks=receiver.nacks,
            nacks_per_s=self._rates.per_s("nacks_by", node_id, receiver.nacks),
            requests=receiver.requests,
            acks=receiver.acks,
            confirm_s=receiver.confirm_s,
            awaited_s=receiver.awaited_s(self._now),
            given_up_by=tuple(sorted(given_up_by)),
            is_full=receiver.is_full,
        )

    def _was_heard_since(self, node_id: int, at: float) -> bool:
        sender = self._heard.senders.get(node_id)
        return sender is not None and sender.heard_at > at

    def _label(self, node_id: int) -> str:
        return self._owner(node_id) or f"{node_id:08x}"


def slowness(receiver: ReceiverReport) -> tuple[bool, float, int]:
    """Return the key by which receivers are sorted: given up on by senders or not, then the delay, then the NACKs
    sent."""
    return bool(receiver.given_up_by), receiver.delay_s, receiver.nacks
