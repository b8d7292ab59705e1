"""Presence: soft state about connections and subscriptions, which each connection announces in NORM_CMD(APPLICATION).

Presence tells a publisher which receivers flow control waits for and which confirm persistent messages. It tells a
newcomer which senders to be in sync with. It is only a hint: an unknown receiver still gets every message.

An announcement, big-endian:

    u8 version, 1 · u8 flags · u16 seconds for which it is valid · u64 connection id · u8 number of lanes
    u8 bytes of the client id · u16 number of topics
    u32 for each lane: the node id that sends it, 0 if it has no stream
    client id, UTF-8 · u32 for each topic: the hash of a destination that is subscribed to
    u64 version of the table of durable subscriptions that the connection knows; left out if it knows none

Flags: 1 goodbye; 2 subscribed to more than is listed; 4 asks others to announce themselves and refresh idle streams;
8 a keeper: flow control waits for it, and it is no subscriber; 16 a keeper that belongs to a cell.
"""

import asyncio
import struct
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from enum import IntFlag
from random import Random
from typing import Final, Protocol

from .losses.names import PeerNames
from .statistics import BusStats

VERSION: Final = 1
_HEAD = struct.Struct("!BBHQBBH")
_TABLE_VERSION = struct.Struct("!Q")
CLIENT_ID_BYTES_MAX: Final = 255
"""Longest client id that is announced: its length has one byte."""
LANES_MAX: Final = 8
"""Greatest number of lanes of one connection that is accepted. FJM2 has three; the rest is room for later versions."""
PEERS_MAX: Final = 4096
"""Greatest number of connections that are remembered, so that forged announcements cannot take all memory."""
TOPICS_MAX: Final = 100_000
"""Greatest number of topics that are remembered of all peers together. Later peers are assumed to want everything."""

INTERVAL_S: Final = 5.0
"""Interval of announcements. With it, an idle bus is nearly silent, and dead connections are forgotten within 15 s."""
_LIFETIME_INTERVALS: Final = 3
"""Intervals for which an announcement is valid, so that two may be lost."""
_PEERS_PER_S: Final = 100
"""Announcements per second of all connections together. With more than 500 peers, each announces less often."""
_COLLECT_S: Final = 0.05
"""Time within which changes are announced together."""
_REPEATS_S: Final = (0.1, 0.3, 1.0)
"""Times after which a change is announced again: announcements may get lost."""
_ANSWER_S: Final = 0.1
"""Time over which answers to a newcomer are spread, so that they do not collide."""
_VALID_MAX_S: Final = 600
"""Longest validity accepted: a forged announcement must not stay for hours."""
_EXPIRE_INTERVAL_S: Final = 1.0
"""Shortest interval at which a full table looks for expired peers, so that a flood of newcomers costs little time."""


_DEPARTED_S: Final = 2.0
"""How long a connection that said goodbye is not believed to be there: earlier announcements may arrive late."""
_DEPARTED_MAX: Final = 1024
"""Maximum number of goodbyes remembered: anyone can invent them."""
_LEFT_MAX: Final = 64
"""Number of the last peers that left that are remembered whole."""


class Flag(IntFlag):
    GOODBYE = 1
    WANTS_ALL = 2
    ASKS = 4
    KEEPER = 8
    CELL = 16


@dataclass(frozen=True, slots=True)
class Announcement:
    """The announcement of one connection."""

    connection_id: int
    lanes: tuple[int, ...] = ()
    """Node ids of the lanes' senders; 0 for a lane without a stream."""
    client_id: str | None = None
    topics: frozenset[int] = frozenset()
    """Hashes of the destinations that the connection subscribes to."""
    flags: int = 0
    valid_s: int = round(INTERVAL_S * _LIFETIME_INTERVALS)
    table_version: int = 0
    """Version of the table of durable subscriptions that the connection knows; 0 if it knows none."""

    def encode(self, bytes_max: int) -> bytes:
        """Return the announcement as it is sent, with as many topics as fit into `bytes_max`."""
        version = _TABLE_VERSION.pack(self.table_version) if self.table_version else b""
        room = bytes_max - _HEAD.size - 4 * len(self.lanes) - len(version)
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
        hashes = struct.pack(f"!{len(topics)}I", *topics)
        return head + struct.pack(f"!{count}I", *self.lanes) + client_id + hashes + version


def decode(content: bytes) -> Announcement | None:
    """Return the announcement that `content` encodes, or None if it is malformed or of another version.

    Later versions may append to it.
    """
    if len(content) < _HEAD.size:
        return None
    version, flags, valid_s, connection_id, lanes, client_bytes, topics = _HEAD.unpack_from(content)
    at = _HEAD.size + 4 * lanes
    if version != VERSION or lanes > LANES_MAX or len(content) < at + client_bytes + 4 * topics:
        return None
    end = at + client_bytes + 4 * topics
    has_table = len(content) - end >= _TABLE_VERSION.size
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
        _TABLE_VERSION.unpack_from(content, end)[0] if has_table else 0,
    )


class Peer:
    """A connection of another process, as last announced."""

    __slots__ = (
        "client_id",
        "connection_id",
        "expires_at",
        "heard_at",
        "is_keeper",
        "lanes",
        "node_id",
        "table_version",
        "topics",
        "valid_s",
        "wants_all",
    )

    def __init__(self, node_id: int, announcement: Announcement) -> None:
        self.node_id = node_id
        """Id of the node that receives for the connection."""
        self.connection_id = announcement.connection_id
        self.client_id: str | None = None
        self.lanes: tuple[int, ...] = ()
        self.topics: array[int] = array("L")
        self.wants_all = False
        self.is_keeper = False
        """True for a keeper, which hears everything and confirms nothing: it tells what it has stored."""
        self.table_version = 0
        """Version of the table of durable subscriptions that it knows; 0 if it knows none."""
        self.valid_s = 0
        self.heard_at = 0.0
        """Time of its last announcement."""
        self.expires_at = 0.0

    def wants(self, topics: frozenset[int] | set[int]) -> bool:
        """Return True if the peer hears one of `topics`, or may do so, as subscribers and keepers do."""
        return self.wants_all or not topics.isdisjoint(self.topics)

    def subscribes(self, topics: frozenset[int] | set[int]) -> bool:
        """Return True if the peer subscribes to one of `topics`, or may do so. Keepers do not."""
        return not self.is_keeper and self.wants(topics)


class PresenceTable:
    """Table of all known peers. Its size is bounded, whatever is announced."""

    def __init__(self, peers_max: int = PEERS_MAX, topics_max: int = TOPICS_MAX, stats: BusStats | None = None) -> None:
        self.stats = BusStats() if stats is None else stats
        self.names: Final = PeerNames()
        """Names of all nodes heard of, for people."""
        self._peers: dict[int, Peer] = {}
        self._peers_max = peers_max
        self._topics_max = topics_max
        self._departed: dict[tuple[int, int], float] = {}
        """Connection and node of the last goodbyes, and until when each is remembered, oldest first."""
        self._closed: dict[int, None] = {}
        """Ids of the last connections that were known and said goodbye, oldest first."""
        self._left: deque[tuple[float, Peer]] = deque(maxlen=_LEFT_MAX)
        """The last peers that were forgotten, and when."""
        self._expired: dict[int, None] = {}
        """Nodes of the last peers that expired, without a goodbye, and were not heard of since, oldest first."""
        self._topics = 0
        self._expired_at = -_EXPIRE_INTERVAL_S
        self._cell_keepers: set[int] = set()
        """Connection ids of the keepers that belong to a cell."""
        self.on_cell: Callable[[], None] | None = None
        """Called when the first of these has come, or the last one has left."""

    def __len__(self) -> int:
        return len(self._peers)

    @property
    def is_full(self) -> bool:
        """True if the table is full, so that some peers may be missing in it."""
        return len(self._peers) >= self._peers_max

    @property
    def peers(self) -> Iterable[Peer]:
        return self._peers.values()

    @property
    def has_cell(self) -> bool:
        """True if a keeper is known that belongs to a cell, whether or not one of its cell serves."""
        return bool(self._cell_keepers)

    @property
    def keepers(self) -> list[Peer]:
        """Keepers that are known, of a cell or not."""
        return [peer for peer in self._peers.values() if peer.is_keeper]

    def update(self, node_id: int, announcement: Announcement, now: float) -> bool:
        """Update the table with the announcement of a node. Return True if that changed anything."""
        connection_id = announcement.connection_id
        peer = self._peers.get(connection_id)
        if peer is not None and peer.node_id != node_id and peer.expires_at > now:
            self.stats.announcements_refused += 1  # another node speaks for this connection
            return False
        if announcement.flags & Flag.GOODBYE:
            self._remember_departed((connection_id, node_id), now)
            if peer is not None:
                self.note_closed(connection_id)
            return self._leave(connection_id, now)
        if self._departed.get((connection_id, node_id), now) > now:
            return False
        if peer is None or peer.node_id != node_id:
            self._forget(connection_id)
            if len(self._peers) >= self._peers_max and not self._make_room(now):
                self.stats.announcements_refused += 1
                return False
            peer = self._peers[connection_id] = Peer(node_id, announcement)
            self._closed.pop(connection_id, None)  # it said goodbye because its node id changed
        return self._note(peer, announcement, now)

    def note_closed(self, connection_id: int) -> None:
        """Note that a connection was closed."""
        self._closed[connection_id] = None
        if len(self._closed) > _DEPARTED_MAX:
            del self._closed[next(iter(self._closed))]

    def has_closed(self, connection_id: int) -> bool:
        """Return True if a connection is known to be closed. Nobody knows that of one that was killed."""
        return connection_id in self._closed

    def _remember_departed(self, key: tuple[int, int], now: float) -> None:
        departed = self._departed
        departed.pop(key, None)
        departed[key] = now + _DEPARTED_S
        while len(departed) > _DEPARTED_MAX or next(iter(departed.values())) <= now:
            del departed[next(iter(departed))]

    def _note(self, peer: Peer, announcement: Announcement, now: float) -> bool:
        topics = array("L", sorted(announcement.topics))
        wants_all = bool(announcement.flags & Flag.WANTS_ALL)
        if self._topics - len(peer.topics) + len(topics) > self._topics_max:
            topics, wants_all = array("L"), True
        is_keeper = bool(announcement.flags & Flag.KEEPER)
        before = peer.client_id, peer.lanes, peer.topics, peer.wants_all, peer.is_keeper, peer.valid_s > 0
        self._topics += len(topics) - len(peer.topics)
        peer.client_id, peer.lanes = announcement.client_id, announcement.lanes
        peer.topics, peer.wants_all, peer.is_keeper = topics, wants_all, is_keeper
        peer.valid_s = announcement.valid_s
        peer.table_version = announcement.table_version
        peer.heard_at, peer.expires_at = now, now + announcement.valid_s
        self._note_cell(peer.connection_id, is_keeper and bool(announcement.flags & Flag.CELL))
        self._expired.pop(peer.node_id, None)
        self.names.note_client(peer.node_id, peer.connection_id, peer.client_id, peer.lanes, is_keeper=peer.is_keeper)
        return before != (peer.client_id, peer.lanes, peer.topics, peer.wants_all, peer.is_keeper, True)

    def _note_cell(self, connection_id: int, has_cell: bool) -> None:
        """Note whether a connection is a keeper of a cell."""
        had_cell, keepers = self.has_cell, self._cell_keepers
        (keepers.add if has_cell else keepers.discard)(connection_id)
        if self.on_cell is not None and self.has_cell != had_cell:
            self.on_cell()

    def _leave(self, connection_id: int, now: float) -> bool:
        """Forget a peer that is gone."""
        peer = self._peers.get(connection_id)
        if peer is not None:
            self._left.append((now, peer))
        return self._forget(connection_id)

    def _forget(self, connection_id: int) -> bool:
        peer = self._peers.pop(connection_id, None)
        if peer is None:
            return False
        self._topics -= len(peer.topics)
        self._note_cell(connection_id, False)
        self.names.note_left({peer.node_id, *peer.lanes}, connection_id)
        return True

    def forget_keepers(self, node_id: int) -> bool:
        """Forget the keepers of a node, until it announces them again. Return True if there were any."""
        gone = [peer for peer in self._peers.values() if peer.is_keeper and peer.node_id == node_id]
        for peer in gone:
            self._forget(peer.connection_id)
        return bool(gone)

    def _make_room(self, now: float) -> bool:
        """Remove expired peers, and return True if there were any."""
        if now < self._expired_at + _EXPIRE_INTERVAL_S:
            return False
        self._expired_at = now
        return self.expire(now)

    def expire(self, now: float) -> bool:
        """Forget peers whose announcements have expired. Return True if there were any."""
        gone = [peer for peer in self._peers.values() if peer.expires_at <= now]
        for peer in gone:
            self._leave(peer.connection_id, now)
            self._expired[peer.node_id] = None
        while len(self._expired) > _DEPARTED_MAX:
            del self._expired[next(iter(self._expired))]
        return bool(gone)

    @property
    def expired(self) -> Set[int]:
        """Nodes whose announcements expired, without a goodbye, and that were not heard of since."""
        return self._expired.keys()

    def left_since(self, at: float) -> list[Peer]:
        """Return the last peers that left, or expired, at this time or later."""
        return [peer for left_at, peer in self._left if left_at >= at]

    def renew(self, now: float) -> None:
        """Begin the lifetime of all peers anew, because they could not be heard for a while."""
        for peer in self._peers.values():
            peer.expires_at = max(peer.expires_at, now + peer.valid_s)

    def receivers(self, topics: frozenset[int] | set[int]) -> frozenset[int]:
        """Return the ids of the nodes that receive for subscribers to any of `topics`, and those of keepers."""
        return frozenset(peer.node_id for peer in self._peers.values() if peer.wants(topics))

    def subscriber_nodes(self, topics: frozenset[int] | set[int]) -> frozenset[int]:
        """Return the ids of the nodes that receive for subscribers to any of `topics`."""
        return frozenset(peer.node_id for peer in self._peers.values() if peer.subscribes(topics))

    def subscribers(self, topic: int) -> int:
        """Return the number of peers that subscribe to a topic."""
        return sum(peer.subscribes(frozenset((topic,))) for peer in self._peers.values())

    def lane_of(self, sender_id: int) -> tuple[int, Peer] | None:
        """Return the number of the lane that a node sends, and the peer that it belongs to. Return None if they are
        unknown.

        The node that receives for a connection also sends its lane 0.
        """
        for peer in self._peers.values():
            if sender_id == peer.node_id:
                return 0, peer
            if sender_id in peer.lanes:
                return peer.lanes.index(sender_id), peer
        return None

    @property
    def senders(self) -> frozenset[int]:
        """Ids of the nodes that send lanes of known connections."""
        return frozenset(node for peer in self._peers.values() for node in peer.lanes if node)

    def publishers_before(self, table_version: int) -> list[Peer]:
        """Return the peers that send something, and do not know this version of the table of durable subscriptions."""
        return [peer for peer in self._peers.values() if peer.table_version < table_version and any(peer.lanes)]

    def has_heard(self, client_id: str, since: float) -> bool:
        """Return True if a peer with this client id has announced itself at this time or later."""
        return any(peer.client_id == client_id and peer.heard_at >= since for peer in self._peers.values())

    def has_client(self, client_id: str) -> int | None:
        """Return the node id of a peer with this client id, or None if there is no such peer."""
        return next((peer.node_id for peer in self._peers.values() if peer.client_id == client_id), None)


class Handle(Protocol):
    """A scheduled call."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """The part of an event loop that `Announcer` uses."""

    def time(self) -> float: ...
    def call_later(self, delay: float, callback: Callable[[], None], /) -> Handle: ...


class Announcer:
    """Schedules announcements: soon after a change, a few more times, then regularly, at random offsets."""

    def __init__(
        self, announce: Callable[[], None], peers: Callable[[], int], random: Random, clock: Clock | None = None
    ) -> None:
        """Call `announce` whenever an announcement is due. `peers` returns the number of other connections."""
        self._announce = announce
        self._peers = peers
        self._random = random
        self._clock: Clock = clock or asyncio.get_running_loop()
        self._repeats: list[float] = []
        self._handle: Handle | None = None
        self._due_at = 0.0
        self._table_version = 0

    @property
    def table_version(self) -> int:
        """Newest version of the table of durable subscriptions that this process knows; 0 if it knows none. A change is
        announced soon."""
        return self._table_version

    @table_version.setter
    def table_version(self, version: int) -> None:
        if version != self._table_version:
            self._table_version = version
            self.change()

    @property
    def interval_s(self) -> float:
        return max(INTERVAL_S, (self._peers() + 1) / _PEERS_PER_S)

    @property
    def valid_s(self) -> int:
        """Seconds for which announcements are valid."""
        return min(_VALID_MAX_S, round(self.interval_s * _LIFETIME_INTERVALS))

    def change(self) -> None:
        """Announce a change soon, and again later."""
        self._repeats = list(_REPEATS_S)
        self._within(_COLLECT_S)

    def answer(self) -> None:
        """Announce soon, for a newcomer that asks."""
        self._within(self._random.uniform(0.0, _ANSWER_S))

    def now(self) -> None:
        """Announce a change at once."""
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
