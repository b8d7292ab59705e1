"""What becomes of a train: to which peers it goes, or whether it comes into the LAN.

From the LAN goes on what a node of this LAN has sent, to those peers that want it; from a peer comes into the LAN what
nodes behind that peer have sent. Nothing goes from peer to peer, and only one gateway of a LAN does any of it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fjm2.norm import Address, Train

from ..tunnel import Kind, Peer, Received
from .headers import Head, application_content, head_of, parts_of
from .interest import LanInterest, PeerInterest, Status, is_wish
from .node_table import NodeTable

Bytes = NDArray[np.uint8]
_NOBODY: Final[tuple[Peer, ...]] = ()


class Refusal(Enum):
    """Why a datagram did not go on."""

    NOT_NORM = "no NORM message"
    NOT_FORWARDER = "another gateway forwards for this LAN"
    NOT_WANTED = "no peer wants the group"
    LOOP = "its sender is elsewhere, or this gateway"
    SAME_LAN = "of a peer that is on this LAN"
    GROUP_NOT_ALLOWED = "of a group that is not allowed"
    NO_SENDER = "feedback for a sender that is not known, or not up"
    NOT_FEEDBACK = "to the gateway itself, but neither NACK nor ACK"
    BAD_STATUS = "a peer's status that makes no sense"


class Outward(NamedTuple):
    """What goes to peers."""

    peers: tuple[Peer, ...]
    kind: Kind
    group: int
    data: Bytes
    segment_bytes: int
    source: int
    is_feedback: bool
    """NACK or ACK: it goes first."""


class Inward(NamedTuple):
    """What goes into the LAN."""

    group: int
    data: Bytes
    segment_bytes: int
    address: Address | None
    """To whom; None: to the group."""


class Loop(NamedTuple):
    """Something came from where its sender is not."""

    group: int
    node: int
    place: str
    """Where it came from, for people."""


class Group:
    """What is known of a group."""

    __slots__ = ("all_takers", "hash", "interest", "table", "takers")

    def __init__(self, group_hash: int, is_always: bool) -> None:
        self.hash = group_hash
        self.interest = LanInterest(is_always)
        self.table = NodeTable()
        self.takers: tuple[Peer, ...] | None = None
        """The peers that want it; None: to be looked up."""
        self.all_takers: tuple[Peer, ...] | None = None
        """Those that carry it."""


class Forwarder:
    """The decisions of one gateway."""

    def __init__(
        self, peers: Mapping[int, Peer], is_same_lan: Callable[[int, int], bool], own_node: int | None = None
    ) -> None:
        """`peers`: all there are, by id. `is_same_lan` says of two of them if they are gateways of one LAN.

        `own_node` is what the gateway's own words on the LAN bear as source: they come from nowhere else.
        """
        self.groups: dict[int, Group] = {}
        self.refusals: Counter[Refusal] = Counter()
        self.peer_interest = PeerInterest()
        self.is_status_due = True
        """Whether peers are to be told something new at once."""
        self.is_asking = False
        """Whether the LAN's connections should announce themselves, as a peer has not heard them yet."""
        self._peers = peers
        self._is_same_lan = is_same_lan
        self._own_node = own_node
        self._is_forwarder = False
        self._same_lan: frozenset[int] = frozenset()
        self.loop: Loop | None = None
        """The last one, for the log."""

    # Commands.

    @property
    def is_forwarder(self) -> bool:
        """Whether this gateway forwards for its LAN."""
        return self._is_forwarder

    @is_forwarder.setter
    def is_forwarder(self, value: bool) -> None:
        if value != self._is_forwarder:
            self._is_forwarder = value
            self.is_status_due = True

    def set_groups(self, groups: Mapping[int, bool]) -> None:
        """Carry these, by hash, always or where they are wanted. What is known of those that stay is kept."""
        for group in set(self.groups) - set(groups):
            del self.groups[group]
        for group, is_always in groups.items():
            if group in self.groups:
                self.groups[group].interest.is_always = is_always
            else:
                self.groups[group] = Group(group, is_always)
        self.is_status_due = True
        self._look_up_anew()

    def note_mates(self, group: int, addresses: Iterable[Address]) -> None:
        """From these, other gateways of the LAN send: who seemed to be there is not on the LAN."""
        self.groups[group].table.forget_at(frozenset(addresses))

    def note_same_lan(self, peers: frozenset[int]) -> None:
        """These peers are on this LAN: nothing goes to them, nor comes from them, by the tunnel."""
        if peers == self._same_lan:
            return
        self._same_lan = peers
        for group in self.groups.values():
            group.table.forget_behind(peers)
        self._look_up_anew()

    def note_peers(self) -> None:
        """A peer has come up, or gone."""
        self.is_status_due = True
        self._look_up_anew()

    def forget_peer(self, peer: int) -> None:
        """It is down, and its wishes with it."""
        self.peer_interest.forget(peer)
        self._look_up_anew()

    def status(self) -> Status:
        """What peers are to be told."""
        self.is_status_due = False
        wanted = (group.hash for group in self.groups.values() if group.interest.is_wanted)
        return Status(self._is_forwarder, frozenset(self.groups), frozenset(wanted))

    def expire(self, now: float) -> None:
        """Forget what is old. To be called about every second."""
        for group in self.groups.values():
            group.table.expire(now)
            if group.interest.expire(now):
                self.is_status_due = True
        if self.peer_interest.expire(now):
            self._look_up_anew()

    # From the LAN.

    def from_lan(self, group_hash: int, train: Train, now: float) -> Iterator[Outward]:
        """What was multicast to a group."""
        group = self.groups[group_hash]
        for data in parts_of(train.data, train.segment_bytes):
            outward = self._part_from_lan(group, data, train.segment_bytes, train.address, now)
            if outward is not None:
                yield outward

    def _part_from_lan(
        self, group: Group, data: Bytes, segment_bytes: int, address: Address, now: float
    ) -> Outward | None:
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

    def from_receivers(self, group_hash: int, train: Train, now: float) -> Iterator[Outward]:
        """What was sent to the gateway itself: by receivers, to whom it stands for senders behind peers."""
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

    def _note_presence(self, group: Group, head: Head, data: Bytes, now: float) -> None:
        content = application_content(data)
        if content is not None and group.interest.note(head.source, content, now):
            self.is_status_due = True

    def _peers_for(self, group: Group, head: Head) -> tuple[Peer, ...]:
        """Feedback goes to the sender's LAN, announcements to all that carry the group, all else where it is wanted."""
        if head.sender is not None:
            owner = group.table.peer_of(head.sender)
            peer = None if owner is None else self._peers.get(owner)
            return (peer,) if peer is not None and self._is_beyond(peer) else _NOBODY
        if group.takers is None or group.all_takers is None:
            group.all_takers = tuple(peer for peer in self._peers.values() if self._serves(peer, group.hash))
            wants = self.peer_interest.wants
            is_always = group.interest.is_always
            group.takers = tuple(peer for peer in group.all_takers if is_always or wants(peer.id, group.hash))
        return group.all_takers if head.is_application else group.takers

    def _serves(self, peer: Peer, group_hash: int) -> bool:
        return self._is_beyond(peer) and self.peer_interest.serves(peer.id, group_hash)

    def _is_beyond(self, peer: Peer) -> bool:
        """Whether it is connected, and to another LAN."""
        return peer.is_up and peer.id not in self._same_lan

    def _refuse_loop(self, group: Group, head: Head, place: str, count: int) -> None:
        self.refusals[Refusal.LOOP] += count
        self.loop = Loop(group.hash, head.source, place)

    def _look_up_anew(self) -> None:
        for group in self.groups.values():
            group.takers = group.all_takers = None

    # From a peer.

    def from_wan(self, received: Received, now: float) -> Iterator[Inward]:
        """What a peer has sent."""
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

    def _note_status(self, received: Received, now: float) -> None:
        for start in range(0, received.data.size, received.segment_bytes):
            status = Status.decode(received.data[start : start + received.segment_bytes].tobytes())
            if status is None:
                self.refusals[Refusal.BAD_STATUS] += 1
            elif self.peer_interest.note(received.peer.id, status, now):
                self.is_asking = True
                self._look_up_anew()

    def _norm_from_wan(self, group: Group, received: Received, now: float) -> Iterator[Inward]:
        """Datagrams of several senders may have been joined on the way; where all may pass, they pass together."""
        segment_bytes = received.segment_bytes
        parts = [part for part in parts_of(received.data, segment_bytes) if self._may_enter(group, part, received, now)]
        if sum(part.size for part in parts) == received.data.size:
            yield Inward(group.hash, received.data, segment_bytes, None)
            return
        for part in parts:
            yield Inward(group.hash, part, min(segment_bytes, part.size), None)

    def _may_enter(self, group: Group, data: Bytes, received: Received, now: float) -> bool:
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
                self._look_up_anew()
        return True

    def _feedback_from_wan(self, group: Group, received: Received, now: float) -> Iterator[Inward]:
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
        """Whether a node may be behind another peer all at once: its first one is gone, or has left forwarding to
        another gateway of its LAN."""
        peer = self._peers.get(before)
        return (
            peer is None
            or not peer.is_up
            or not self.peer_interest.forwards(before)
            or self._is_same_lan(before, after)
        )
