"""Who is on the bus, and for what: soft state that every connection announces in NORM_CMD(APPLICATION).

It names whom flow control waits for, whom persistent messages are confirmed by, and which senders a newcomer should be
in sync with. It is a hint: who is not known, or known wrongly, still gets every message.

An announcement, big-endian:

    u8 version, 1 · u8 flags · u16 seconds for which it is good · u64 connection id · u8 number of lanes
    u8 bytes of the client id · u16 number of topics
    u32 for each lane: the node id that sends it, 0 if it has no stream
    client id, UTF-8 · u32 for each topic: the hash of a destination that is subscribed to

Flags: 1 goodbye; 2 subscribed to more than is listed; 4 please announce yourselves, and let streams be heard of.
"""

import asyncio
import struct
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntFlag
from random import Random
from typing import Final, Protocol

from .statistics import BusStats

VERSION: Final = 1
_HEAD = struct.Struct("!BBHQBBH")
CLIENT_ID_BYTES_MAX: Final = 255
"""A longer client id is not announced."""
LANES_MAX: Final = 8
PEERS_MAX: Final = 4096
TOPICS_MAX: Final = 100_000
"""Of all peers together; who comes later is taken to want everything."""

INTERVAL_S: Final = 5.0
_LIFETIMES: Final = 3
_PEERS_PER_S: Final = 100
"""So many announcements a second are enough, from all together: with more peers each speaks less often."""
_COLLECT_S: Final = 0.05
"""Changes within this time are announced together."""
_REPEATS_S: Final = (0.1, 0.3, 1.0)
"""A change is announced again after these times, as announcements get lost, too."""
_ANSWER_S: Final = 0.1
"""Answers to a newcomer are spread over this time."""
_VALID_MAX_S: Final = 600
_LOOK_S: Final = 1.0


class Flag(IntFlag):
    GOODBYE = 1
    WANTS_ALL = 2
    ASKS = 4


@dataclass(frozen=True, slots=True)
class Announcement:
    """What one connection says of itself."""

    connection_id: int
    lanes: tuple[int, ...] = ()
    """Node ids that send the lanes; 0 where there is no stream."""
    client_id: str | None = None
    topics: frozenset[int] = frozenset()
    """Hashes of the destinations that it subscribes to."""
    flags: int = 0
    valid_s: int = round(INTERVAL_S * _LIFETIMES)

    def encode(self, bytes_max: int) -> bytes:
        """Its form on the wire, with as many topics as fit."""
        room = bytes_max - _HEAD.size - 4 * len(self.lanes)
        client_id = (self.client_id or "").encode(errors="replace")
        if len(client_id) > min(CLIENT_ID_BYTES_MAX, room):
            client_id = b""
        flags, topics = self.flags, sorted(self.topics)
        most = (room - len(client_id)) // 4
        if len(topics) > most:
            flags, topics = flags | Flag.WANTS_ALL, topics[:most]
        head = _HEAD.pack(
            VERSION, flags, self.valid_s, self.connection_id, len(self.lanes), len(client_id), len(topics)
        )
        count = len(self.lanes)
        return head + struct.pack(f"!{count}I", *self.lanes) + client_id + struct.pack(f"!{len(topics)}I", *topics)


def decode(content: bytes) -> Announcement | None:
    """None if it is no announcement, or of another version."""
    if len(content) < _HEAD.size:
        return None
    version, flags, valid_s, connection_id, lanes, client_bytes, topics = _HEAD.unpack_from(content)
    at = _HEAD.size + 4 * lanes
    if version != VERSION or lanes > LANES_MAX or len(content) != at + client_bytes + 4 * topics:
        return None
    try:
        client_id = content[at : at + client_bytes].decode() or None
    except UnicodeDecodeError:
        return None
    return Announcement(
        connection_id,
        struct.unpack_from(f"!{lanes}I", content, _HEAD.size),
        client_id,
        frozenset(struct.unpack_from(f"!{topics}I", content, at + client_bytes)),
        flags,
        min(max(valid_s, 1), _VALID_MAX_S),
    )


class Peer:
    """A connection of another process, as it was announced last."""

    __slots__ = ("client_id", "connection_id", "expires_at", "lanes", "node_id", "topics", "valid_s", "wants_all")

    def __init__(self, node_id: int, announcement: Announcement) -> None:
        self.node_id = node_id
        """Who receives for it."""
        self.connection_id = announcement.connection_id
        self.client_id: str | None = None
        self.lanes: tuple[int, ...] = ()
        self.topics: array[int] = array("L")
        self.wants_all = False
        self.valid_s = 0
        self.expires_at = 0.0

    def wants(self, topics: frozenset[int] | set[int]) -> bool:
        """Whether it subscribes to one of these, as far as is known."""
        return self.wants_all or not topics.isdisjoint(self.topics)


class PresenceTable:
    """All peers that are known: bounded, whatever is announced."""

    def __init__(self, peers_max: int = PEERS_MAX, topics_max: int = TOPICS_MAX, stats: BusStats | None = None) -> None:
        self.stats = BusStats() if stats is None else stats
        self._peers: dict[int, Peer] = {}
        self._peers_max = peers_max
        self._topics_max = topics_max
        self._topics = 0
        self._looked_at = -_LOOK_S

    def __len__(self) -> int:
        return len(self._peers)

    @property
    def is_full(self) -> bool:
        """Whether newcomers may have found no room."""
        return len(self._peers) >= self._peers_max

    @property
    def peers(self) -> Iterable[Peer]:
        return self._peers.values()

    def update(self, node_id: int, announcement: Announcement, now: float) -> bool:
        """A node has announced a connection. Whether anything is different by that."""
        connection_id = announcement.connection_id
        peer = self._peers.get(connection_id)
        if peer is not None and peer.node_id != node_id and peer.expires_at > now:
            self.stats.announcements_refused += 1  # nobody speaks for others
            return False
        if announcement.flags & Flag.GOODBYE:
            return self._forget(connection_id)
        if peer is None or peer.node_id != node_id:
            self._forget(connection_id)
            if len(self._peers) >= self._peers_max and not self._make_room(now):
                self.stats.announcements_refused += 1
                return False
            peer = self._peers[connection_id] = Peer(node_id, announcement)
        return self._note(peer, announcement, now)

    def _note(self, peer: Peer, announcement: Announcement, now: float) -> bool:
        topics = array("L", sorted(announcement.topics))
        wants_all = bool(announcement.flags & Flag.WANTS_ALL)
        if self._topics - len(peer.topics) + len(topics) > self._topics_max:
            topics, wants_all = array("L"), True
        before = peer.client_id, peer.lanes, peer.topics, peer.wants_all, peer.valid_s > 0
        self._topics += len(topics) - len(peer.topics)
        peer.client_id, peer.lanes = announcement.client_id, announcement.lanes
        peer.topics, peer.wants_all = topics, wants_all
        peer.valid_s = announcement.valid_s
        peer.expires_at = now + announcement.valid_s
        return before != (peer.client_id, peer.lanes, peer.topics, peer.wants_all, True)

    def _forget(self, connection_id: int) -> bool:
        peer = self._peers.pop(connection_id, None)
        if peer is None:
            return False
        self._topics -= len(peer.topics)
        return True

    def _make_room(self, now: float) -> bool:
        """A flood of newcomers is not to cost more than that."""
        if now < self._looked_at + _LOOK_S:
            return False
        self._looked_at = now
        return self.expire(now)

    def expire(self, now: float) -> bool:
        """Forget who has not been heard of for too long. Whether there were any."""
        gone = [peer.connection_id for peer in self._peers.values() if peer.expires_at <= now]
        for connection_id in gone:
            self._forget(connection_id)
        return bool(gone)

    def renew(self, now: float) -> None:
        """Nobody could be heard for a while: nobody is to be forgotten for that."""
        for peer in self._peers.values():
            peer.expires_at = max(peer.expires_at, now + peer.valid_s)

    def receivers(self, topics: frozenset[int] | set[int]) -> frozenset[int]:
        """The nodes that receive for subscribers of any of these topics."""
        return frozenset(peer.node_id for peer in self._peers.values() if peer.wants(topics))

    def subscribers(self, topic: int) -> int:
        """How many connections subscribe to a topic."""
        return sum(peer.wants(frozenset((topic,))) for peer in self._peers.values())

    def lane_of(self, sender_id: int) -> tuple[int, Peer] | None:
        """Which lane of whose a sender is. Who receives sends the first lane."""
        for peer in self._peers.values():
            if sender_id == peer.node_id:
                return 0, peer
            if sender_id in peer.lanes:
                return peer.lanes.index(sender_id), peer
        return None

    @property
    def senders(self) -> frozenset[int]:
        """All that send lanes of known connections."""
        return frozenset(node for peer in self._peers.values() for node in peer.lanes if node)

    def has_client(self, client_id: str) -> int | None:
        """The node of a peer with this client id."""
        return next((peer.node_id for peer in self._peers.values() if peer.client_id == client_id), None)


class Handle(Protocol):
    """A call that was put off."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """What it takes of an event loop."""

    def time(self) -> float: ...
    def call_later(self, delay: float, callback: Callable[[], None], /) -> Handle: ...


class Announcer:
    """When to announce: soon after a change, some times more, and then regularly, but not all processes at once."""

    def __init__(
        self, announce: Callable[[], None], peers: Callable[[], int], random: Random, clock: Clock | None = None
    ) -> None:
        """`announce` sends what is true at the moment; `peers` tells how many others there are."""
        self._announce = announce
        self._peers = peers
        self._random = random
        self._clock: Clock = clock or asyncio.get_running_loop()
        self._repeats: list[float] = []
        self._handle: Handle | None = None
        self._due_at = 0.0

    @property
    def interval_s(self) -> float:
        return max(INTERVAL_S, (self._peers() + 1) / _PEERS_PER_S)

    @property
    def valid_s(self) -> int:
        """How long announcements are good: some may get lost."""
        return min(_VALID_MAX_S, round(self.interval_s * _LIFETIMES))

    def change(self) -> None:
        """There is something new to announce."""
        self._repeats = list(_REPEATS_S)
        self._within(_COLLECT_S)

    def answer(self) -> None:
        """Somebody wants to know who is there."""
        self._within(self._random.uniform(0.0, _ANSWER_S))

    def now(self) -> None:
        """Announce without delay what has changed."""
        self.change()
        self._fire()

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _within(self, delay: float) -> None:
        due_at = self._clock.time() + delay
        if self._handle is not None:
            if self._due_at <= due_at:
                return
            self._handle.cancel()
        self._due_at = due_at
        self._handle = self._clock.call_later(delay, self._fire)

    def _fire(self) -> None:
        self.close()
        self._announce()
        delay = self._repeats.pop(0) if self._repeats else self.interval_s
        self._within(delay * self._random.uniform(0.8, 1.2))
