"""Forwarding of trains: the choice of the peers for a train of the LAN, and of the trains of peers that may enter it.

A train of the LAN is forwarded if its sender is on this LAN, to those peers that want it. A train of a peer is
forwarded if its sender is behind that peer. Nothing goes from peer to peer, and only one gateway of a LAN forwards.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fjm2.norm import Address, Train

from ..kinds import Kind
from .headers import Head, application_content, head_of, parts_of
from .interest import LanInterest, PeerInterest, Status, is_wish
from .node_table import NodeTable
from .peers import ForwardingPeer, ReceivedTrain

Bytes = NDArray[np.uint8]
PeerT = TypeVar("PeerT", bound=ForwardingPeer)


class Refusal(Enum):
    """Reasons not to forward a datagram."""

    NOT_NORM = "no NORM message"
    NOT_FORWARDER = "another gateway forwards for this LAN"
    NOT_WANTED = "no peer wants the group"
    LOOP = "its sender is elsewhere, or is this gateway"
    SAME_LAN = "of a peer that is on this LAN"
    GROUP_NOT_ALLOWED = "of a group that is not carried"
    NO_SENDER = "feedback for a sender that is unknown, or not connected"
    NOT_FEEDBACK = "sent to the gateway itself, but neither NACK nor ACK"
    BAD_STATUS = "a peer's status that cannot be decoded"


class Outward(NamedTuple, Generic[PeerT]):
    """A train to send to peers."""

    peers: tuple[PeerT, ...]
    kind: Kind
    group: int
    data: Bytes
    segment_bytes: int
    source: int
    """Node id of the sender."""
    is_feedback: bool
    """True for NACKs and ACKs, which are sent before other trains."""


class Inward(NamedTuple):
    """A train to send into the LAN."""

    group: int
    data: Bytes
    segment_bytes: int
    address: Address | None
    """Destination; None: multicast it to the group."""


class Loop(NamedTuple):
    """Sign of a loop: a datagram that arrived from another place than that of its sender."""

    group: int
    node: int
    place: str
    """Place that the datagram came from, for logs: an address of the LAN, or the name of a peer."""


class Group(Generic[PeerT]):
    """The forwarder's knowledge about one multicast group."""

    __slots__ = ("carriers", "hash", "interest", "table", "takers")

    def __init__(self, group_hash: int, is_always: bool) -> None:
        self.hash = group_hash
        self.interest = LanInterest(is_always)
        self.table = NodeTable()
        self.takers: tuple[PeerT, ...] | None = None
        """Peers that want the group; None if they have to be looked up again."""
        self.carriers: tuple[PeerT, ...] | None = None
        """Peers that carry the group, wanted or not; None if they have to be looked up again."""


class Forwarder(Generic[PeerT]):
    """The forwarding decisions of one gateway."""

    def __init__(
        self, peers: Mapping[int, PeerT], is_same_lan: Callable[[int, int], bool], own_node: int | None = None
    ) -> None:
        """`peers` holds all peers by id. `is_same_lan` returns True for the ids of two peers that share a LAN.

        `own_node` is the node id in the gateway's own messages on the LAN: a datagram received with this id has looped.
        """
        self.groups: dict[int, Group[PeerT]] = {}
        self.refusals: Counter[Refusal] = Counter()
        self.peer_interest = PeerInterest()
        self.is_status_due = True
        """True if the peers must be sent a new status at once."""
        self.is_presence_wanted = False
        """True if the LAN's connections should announce themselves, because a peer has not heard them yet."""
        self._peers = peers
        self._is_same_lan = is_same_lan
        self._own_node = own_node
        self._is_forwarder = False
        self._same_lan: frozenset[int] = frozenset()
        self.loop: Loop | None = None
        """The last loop found, for the log."""

    @property
    def is_forwarder(self) -> bool:
        """True if this gateway forwards for its LAN."""
        return self._is_forwarder

    @is_forwarder.setter
    def is_forwarder(self, value: bool) -> None:
        if value != self._is_forwarder:
            self._is_forwarder = value
            self.is_status_due = True

    def set_groups(self, groups: Mapping[int, bool]) -> None:
        """Set the groups to carry. Knowledge about groups that were carried before is kept.

        `groups` holds, by the group's hash, True to carry a group always, and False to carry it where it is wanted.
        """
        for group in set(self.groups) - set(groups):
            del self.groups[group]
        for group, is_always in groups.items():
            if group in self.groups:
                self.groups[group].interest.is_always = is_always
            else:
                self.groups[group] = Group(group, is_always)
        self.is_status_due = True
        self._forget_takers()

    def note_mates(self, group: int, addresses: Iterable[Address]) -> None:
        """Forget nodes at these addresses of the LAN: other gateways multicast from there, not the nodes themselves."""
        self.groups[group].table.forget_at(frozenset(addresses))

    def note_same_lan(self, peers: frozenset[int]) -> None:
        """Set the peers that are on this LAN. Nothing is exchanged with them through the tunnel."""
        if peers == self._same_lan:
            return
        self._same_lan = peers
        for group in self.groups.values():
            group.table.forget_behind(peers)
        self._forget_takers()

    def note_peers(self) -> None:
        """Look up again which peers are up, and make a new status due."""
        self.is_status_due = True
        self._forget_takers()

    def forget_peer(self, peer: int) -> None:
        """Forget the interest of a peer that went down."""
        self.peer_interest.forget(peer)
        self._forget_takers()

    def status(self) -> Status:
        """Return the status to send to peers."""
        self.is_status_due = False
        wanted = (group.hash for group in self.groups.values() if group.interest.is_wanted)
        return Status(self._is_forwarder, frozenset(self.groups), frozenset(wanted))

    def expire(self, now: float) -> None:
        """Forget nodes, connections and statuses that are out of date. Call it about once a second."""
        for group in self.groups.values():
            group.table.expire(now)
            if group.interest.expire(now):
                self.is_status_due = True
        if self.peer_interest.expire(now):
            self._forget_takers()

    def from_lan(self, group_hash: int, train: Train, now: float) -> Iterator[Outward[PeerT]]:
        """Yield the trains to send to peers for a train that was multicast to a group on the LAN."""
        group = self.groups[group_hash]
        for data in parts_of(train.data, train.segment_bytes):
            outward = self._part_from_lan(group, data, train.segment_bytes, train.address, now)
            if outward is not None:
                yield outward

    def _part_from_lan(
        self, group: Group[PeerT], data: Bytes, segment_bytes: int, address: Address, now: float
    ) -> Outward[PeerT] | None:
        count = -(-data.size // segment_bytes)
        head = head_of(data)
        if head is None:
            self.refusals[Refusal.NOT_NORM] += count
            return None
        if head.source == self._own_node or not group.table.note_lan(head.source, address, now):
            self._refuse_loop(group, head, address[0], count)
            return None
        if head.is_application:
            self._note_presence(group, head, data, now)
        if not self._is_forwarder:
            self.refusals[Refusal.NOT_FORWARDER] += count
            return None
        peers = self._peers_for(group, head)
        if not peers:
            self.refusals[Refusal.NOT_WANTED] += count
            return None
        return Outward(peers, Kind.NORM, group.hash, data, segment_bytes, head.source, head.is_feedback)

    def from_receivers(self, group_hash: int, train: Train, now: float) -> Iterator[Outward[PeerT]]:
        """Yield the trains to send to peers for feedback that receivers of the LAN sent to the gateway.

        For these receivers, the gateway represents the senders behind peers.
        """
        group = self.groups[group_hash]
        for start in range(0, train.data.size, train.segment_bytes):
            data = train.data[start : start + train.segment_bytes]
            head = head_of(data)
            if head is None or not head.is_feedback:
                self.refusals[Refusal.NOT_FEEDBACK] += 1
            elif not group.table.note_receiver(head.source, train.address, now):
                self._refuse_loop(group, head, train.address[0], 1)
            elif not self._is_forwarder:
                self.refusals[Refusal.NOT_FORWARDER] += 1
            elif not (peers := self._peers_for(group, head)):
                self.refusals[Refusal.NO_SENDER] += 1
            else:
                yield Outward(peers, Kind.FEEDBACK, group.hash, data, data.size, head.source, True)

    def _note_presence(self, group: Group[PeerT], head: Head, data: Bytes, now: float) -> None:
        content = application_content(data)
        if content is not None and group.interest.note(head.source, content, now):
            self.is_status_due = True

    def _peers_for(self, group: Group[PeerT], head: Head) -> tuple[PeerT, ...]:
        """Return the peers to send to: the sender's peer for feedback, carriers for announcements, else the takers."""
        if head.sender is not None:
            owner = group.table.peer_of(head.sender)
            peer = None if owner is None else self._peers.get(owner)
            return (peer,) if peer is not None and self._is_beyond(peer) else ()
        if group.takers is None or group.carriers is None:
            group.carriers = tuple(peer for peer in self._peers.values() if self._serves(peer, group.hash))
            wants = self.peer_interest.wants
            is_always = group.interest.is_always
            group.takers = tuple(peer for peer in group.carriers if is_always or wants(peer.id, group.hash))
        return group.carriers if head.is_application else group.takers

    def _serves(self, peer: PeerT, group_hash: int) -> bool:
        return self._is_beyond(peer) and self.peer_interest.serves(peer.id, group_hash)

    def _is_beyond(self, peer: PeerT) -> bool:
        """Return True if a peer is connected, and on another LAN."""
        return peer.is_up and peer.id not in self._same_lan

    def _refuse_loop(self, group: Group[PeerT], head: Head, place: str, count: int) -> None:
        self.refusals[Refusal.LOOP] += count
        self.loop = Loop(group.hash, head.source, place)

    def _forget_takers(self) -> None:
        for group in self.groups.values():
            group.takers = group.carriers = None

    def from_wan(self, received: ReceivedTrain, now: float) -> Iterator[Inward]:
        """Yield the trains to send into the LAN for a train of a peer."""
        count = -(-received.data.size // received.segment_bytes)
        if received.kind is Kind.CONTROL:
            self._note_status(received, now)
            return
        group = self.groups.get(received.group)
        if received.peer.id in self._same_lan:
            self.refusals[Refusal.SAME_LAN] += count
        elif group is None:
            self.refusals[Refusal.GROUP_NOT_ALLOWED] += count
        elif not self._is_forwarder:
            self.refusals[Refusal.NOT_FORWARDER] += count
        elif received.kind is Kind.FEEDBACK:
            yield from self._feedback_from_wan(group, received, now)
        else:
            yield from self._norm_from_wan(group, received, now)

    def _note_status(self, received: ReceivedTrain, now: float) -> None:
        for start in range(0, received.data.size, received.segment_bytes):
            status = Status.decode(received.data[start : start + received.segment_bytes].tobytes())
            if status is None:
                self.refusals[Refusal.BAD_STATUS] += 1
            elif self.peer_interest.note(received.peer.id, status, now):
                self.is_presence_wanted = True
                self._forget_takers()

    def _norm_from_wan(self, group: Group[PeerT], received: ReceivedTrain, now: float) -> Iterator[Inward]:
        """Yield the parts of a train that may enter the LAN: the whole train if all its datagrams may.

        A train may join datagrams of several senders.
        """
        segment_bytes = received.segment_bytes
        parts = [part for part in parts_of(received.data, segment_bytes) if self._may_enter(group, part, received, now)]
        if sum(part.size for part in parts) == received.data.size:
            yield Inward(group.hash, received.data, segment_bytes, None)
            return
        for part in parts:
            yield Inward(group.hash, part, min(segment_bytes, part.size), None)

    def _may_enter(self, group: Group[PeerT], data: Bytes, received: ReceivedTrain, now: float) -> bool:
        count = -(-data.size // received.segment_bytes)
        head = head_of(data)
        if head is None:
            self.refusals[Refusal.NOT_NORM] += count
            return False
        is_own = head.source == self._own_node
        if is_own or not group.table.note_wan(head.source, received.peer.id, now, self._may_move):
            self._refuse_loop(group, head, received.peer.name, count)
            return False
        if head.is_application:
            content = application_content(data)
            if content is not None and is_wish(content) and self.peer_interest.hint(received.peer.id, group.hash, now):
                self._forget_takers()
        return True

    def _feedback_from_wan(self, group: Group[PeerT], received: ReceivedTrain, now: float) -> Iterator[Inward]:
        for start in range(0, received.data.size, received.segment_bytes):
            data = received.data[start : start + received.segment_bytes]
            head = head_of(data)
            if head is None or head.sender is None:
                self.refusals[Refusal.NOT_FEEDBACK] += 1
                continue
            if not group.table.note_wan(head.source, received.peer.id, now, self._may_move):
                self._refuse_loop(group, head, received.peer.name, 1)
                continue
            address = group.table.address_of(head.sender)
            if address is None:
                self.refusals[Refusal.NO_SENDER] += 1
            else:
                yield Inward(group.hash, data, data.size, address)

    def _may_move(self, before: int, after: int) -> bool:
        """Return True if a node may change its peer at once.

        It may if the peer `before` is gone, or leaves forwarding to another gateway of the same LAN.
        """
        peer = self._peers.get(before)
        return (
            peer is None
            or not peer.is_up
            or not self.peer_interest.forwards(before)
            or self._is_same_lan(before, after)
        )
