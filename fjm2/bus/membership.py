"""One bus's part in presence: it announces its own connections, and learns of others from their announcements."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from random import Random
from typing import Final, NamedTuple

from fjm2.base.quantities import counted, node_text
from fjm2.messages.destination import Destination, Topic, is_pattern_hash
from fjm2.messages.frame import FrameWriter
from fjm2.messages.message import Message
from fjm2.norm import Sync

from .awaited_receivers import AwaitedReceivers
from .config import BusConfig
from .discards.discards import Discards
from .lane import Lanes
from .losses.names import listed
from .presence import Announcement, Announcer, Flag, Peer, PresenceTable, decode
from .reports import BusReport, ClientIdDuplicated
from .router import Router
from .signals.signals import ANNOUNCEMENT, NOTICE
from .transactions import SILENT_S

_LISTEN_S: Final = 0.25
"""Time after the opening of a bus by which nearly all other connections have answered. Answers are spread over 0.1
s."""
_READY_MAX_S: Final = 1.0
"""Longest wait of `ready`. It ends even if an announced lane is never heard, because its sender may have gone
already."""
_POLL_S: Final = 0.01
"""Interval at which `ready` checks for its end. To wake it at every event would slow all buses for the sake of one
start."""
_SETTLED_AFTER_S: Final = 1.0
"""Age at which a bus that is in sync with all announced senders has heard of all streams that began before it."""
_SETTLED_AT_LAST_S: Final = 10.0
"""Age at which a bus counts as settled even if an announced sender has never been heard."""
_REFRESH_INTERVAL_S: Final = 0.05
"""Shortest interval between two refreshes of an idle stream for newcomers."""
_GOODBYES: Final = 2
"""Number of copies sent of each goodbye, because datagrams get lost."""
_DUPLICATES_MAX: Final = 100
"""Greatest number of duplicate client ids that are remembered, so that each is reported once."""

_REFRESH_TOPIC: Final = Topic("FJM2.REFRESH")
"""A topic without subscribers. A frame sent there makes an idle stream known to a new receiver."""


class _Own(NamedTuple):
    """A connection or keeper of this process, as it announces itself."""

    client_id: str | None
    topics: Collection[int]
    """Hashes of the topics that it subscribes to, or that it wants to hear as a keeper."""
    is_keeper: bool
    has_cell: bool
    """True for a keeper that belongs to a cell."""

    def subscribes(self, hashes: Collection[int]) -> bool:
        """Return True if it subscribes to a topic, or to a pattern, with one of these hashes. Keepers do not."""
        return not self.is_keeper and any(one in self.topics for one in hashes)


class Subscriber(NamedTuple):
    """A connection that subscribes to a destination, or may do so."""

    name: str
    is_certain: bool
    """False if it subscribes to more than it announces, as to a pattern, which nobody else knows."""


class Membership:
    """Announces the connections of this bus, and keeps the table of all others."""

    def __init__(
        self,
        config: BusConfig,
        lanes: Lanes,
        router: Router,
        presence: PresenceTable,
        report: Callable[[BusReport], None],
    ) -> None:
        self.presence = presence
        self.receivers = AwaitedReceivers(lanes, presence, config.sender.flow, self.check_client_ids, report)
        self.discards = Discards(lanes, presence, report)
        """Notices of messages that were lost after their confirmation."""
        self._lanes = lanes
        self._router = router
        self._report = report
        self._place = f"fjm2://{config.group}:{config.port}"
        self._loop = asyncio.get_running_loop()
        self._announced: dict[int, _Own] = {}
        """Our connections, by connection id."""
        self._duplicates: set[tuple[str, int]] = set()
        self._opened_at = self._loop.time()
        self._is_settled = config.receiver.sync is not Sync.CURRENT
        """True once all streams that began before this bus are known. The bus then wants each new stream from its
        beginning."""
        self._announcement_bytes_max = config.sender.segment_bytes
        self._refresh = FrameWriter(0).write(Message(), _REFRESH_TOPIC, 0, 0, 0)
        self.announcer = Announcer(self._announce, presence.__len__, Random())
        lanes.signals.hear_commands(ANNOUNCEMENT, self._hear_announcement)
        lanes.signals.hear_commands(NOTICE, self._hear_notice)

    @property
    def connections(self) -> int:
        """Number of connections of this process on the bus."""
        return len(self._announced)

    def announce(
        self,
        connection_id: int,
        client_id: str | None,
        topics: Collection[int],
        *,
        is_keeper: bool = False,
        has_cell: bool = False,
    ) -> None:
        """Announce a connection and the topics that it subscribes to, or a keeper, the topics that it wants to hear,
        and that it has a cell. `topics` is read a little later, when the announcement is sent."""
        before = self._announced.get(connection_id)
        self._announced[connection_id] = _Own(client_id, topics, is_keeper, has_cell)
        self.announcer.change()
        if client_id != (before and before.client_id):
            self.check_client_ids()

    def withdraw(self, connection_id: int) -> None:
        """Say goodbye for a connection that is closed."""
        if self._announced.pop(connection_id, None) is not None:
            self.presence.note_closed(connection_id)
            if self._lanes.is_open:
                self._send_goodbye(connection_id)

    def subscribers(self, destination: Destination) -> int:
        """Return the number of known connections that subscribe to a destination, and those of other processes that may
        do so by a pattern."""
        hashes = self._hashes_of(destination)
        own = sum(one.subscribes(hashes) for one in self._announced.values())
        return own + self.presence.subscribers(destination.frame_hash)

    def uncertain_subscribers(self, destination: Destination) -> int:
        """Return the number of connections of other processes that may subscribe to a destination by a pattern."""
        return sum(not one.is_certain for one in self.known_subscribers(destination).values())

    def known_subscribers(self, destination: Destination) -> dict[int, Subscriber]:
        """Return the known connections that subscribe to a destination, or may do so, by connection id."""
        hashes = self._hashes_of(destination)
        own = {
            connection_id: Subscriber(_printable(one.client_id or "this process"), True)
            for connection_id, one in self._announced.items()
            if one.subscribes(hashes)
        }
        return own | _subscribers_of(self.presence.peers, destination.frame_hash)

    def _hashes_of(self, destination: Destination) -> set[int]:
        """Return the hash of a destination, and those of the patterns of this process that match it."""
        targets = self._router.targets.of_destination(destination) or ()
        return {destination.frame_hash}.union(
            one.destination.frame_hash for each in targets for one in each.subscriptions
        )

    def describe_asked(
        self, destination: Destination, asked_at: float, earlier: Mapping[int, Subscriber] | None = None
    ) -> str:
        """Return how many subscribers of a destination were asked for a reply, and the first few of them, for people.

        `earlier` has the subscribers that were known soon after the request was sent at `asked_at`, or is
        None if they were not looked up. Subscribers that have left since the request was sent, or became known after
        those, are marked.
        """
        here = self.known_subscribers(destination)
        left = _subscribers_of(self.presence.left_since(asked_at), destination.frame_hash)
        known = left | dict(here if earlier is None else earlier)
        names: dict[bool, list[str]] = {True: [], False: []}
        for one, (name, is_certain) in here.items():
            names[is_certain].append(name if one in known else f"{name} (known only since)")
        for one, (name, is_certain) in known.items():
            if one not in here:
                names[is_certain].append(f"{name} (gone since)")
        others = f"{uncertain_text(len(names[False]))}: {listed(names[False])}" if names[False] else ""
        if names[True]:
            asked = f"asked {counted(len(names[True]), 'subscriber')}: {listed(names[True])}"
            return f"{asked}, and {others}" if others else asked
        unknown = f"no subscriber of it is known: is its service running, on {self._place}?"
        return f"{unknown} Asked {others}" if others else unknown

    async def ready(self, timeout_s: float = _READY_MAX_S) -> None:
        """Wait until others know our subscriptions, and something has arrived from every lane that they announced."""
        deadline = self._loop.time() + timeout_s
        self.announcer.now()
        while self._lanes.is_open and self._loop.time() < deadline and not self._is_in_sync(_LISTEN_S):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
        if self._is_in_sync(_LISTEN_S):
            self._settle()

    def _is_in_sync(self, after_s: float) -> bool:
        is_heard = self._loop.time() - self._opened_at >= after_s
        return is_heard and all(map(self._router.table.has_stream, self.presence.senders))

    @property
    def _hears_some_only(self) -> bool:
        """True for a keeper, once it has asked long enough: it does not hear all lanes that are announced."""
        receiver = self._lanes.session.config.receiver
        is_keeper = receiver is not None and receiver.sync is Sync.KEPT
        return is_keeper and self._loop.time() - self._opened_at >= _SETTLED_AT_LAST_S

    def _settle(self) -> None:
        """Receive new streams from their beginning, because all older streams are known."""
        if not self._is_settled and self._lanes.is_open:
            self._is_settled = True
            self._lanes.session.set_sync(Sync.STREAM)

    def tick(self, is_blocked: bool) -> None:
        """Forget peers that have been silent for too long, unless the bus was blocked and could not hear them. Call
        this every second."""
        now = self._loop.time()
        self.discards.tell()
        self.receivers.tick()
        if is_blocked:
            self.presence.renew(now)
        elif self.presence.expire(now):
            self.receivers.update_soon()
        if self._is_in_sync(_SETTLED_AFTER_S) or now - self._opened_at >= _SETTLED_AT_LAST_S:
            self._settle()

    def is_silent(self, sender_id: int) -> bool:
        """Return True if nothing was heard of a sender for `SILENT_S`, nor of other lanes of its process."""
        if sender_id == self._lanes.session.node_id:
            return False
        found = self.presence.lane_of(sender_id)
        nodes = {sender_id} if found is None else {sender_id, found[1].node_id, *found[1].lanes} - {0}
        return all(self._lanes.session.is_silent(node, SILENT_S) for node in nodes)

    def forget_keeper(self, node_id: int) -> None:
        """Wait no longer for a keeper that its cell does not hear any more. If it is there after all, it announces
        itself again."""
        is_known = self.presence.forget_keepers(node_id)
        self._note_left(node_id)
        if is_known:
            self.receivers.update_soon()

    def _note_left(self, node_id: int) -> None:
        """Stop waiting for a node, unless it receives for somebody else."""
        if all(peer.node_id != node_id for peer in self.presence.peers):
            self.receivers.forget(node_id)

    def renew(self) -> None:
        """Begin the lifetime of all peers anew, because they could not be heard for a while."""
        self.presence.renew(self._loop.time())

    def _hear_notice(self, node_id: int, content: bytes) -> None:
        """Handle a notice of losses that a node sent."""
        if not self.discards.hear(node_id, content):
            self.presence.stats.announcements_refused += 1

    def _hear_announcement(self, node_id: int, content: bytes) -> None:
        """Handle the announcement of a connection of a node."""
        announcement = decode(content)
        if announcement is None:
            self.presence.stats.announcements_refused += 1
            return
        if announcement.connection_id in self._announced:
            return
        is_changed = self.presence.update(node_id, announcement, self._loop.time())
        if announcement.flags & Flag.ASKS and self._lanes.is_open:
            self.announcer.answer()
            self._refresh_streams()
        self.receivers.note_announced(node_id)
        if is_changed and announcement.flags & Flag.GOODBYE:
            self._note_left(node_id)
        if is_changed:
            self.receivers.update_soon()

    def _refresh_streams(self) -> None:
        """Send a frame on every idle stream, so that a newcomer knows the stream and misses nothing that follows."""
        now = self._loop.time()
        for lane in self._lanes.with_streams:
            if lane.stream is not None and not lane.pending_bytes and now - lane.refreshed_at >= _REFRESH_INTERVAL_S:
                lane.refreshed_at = now
                lane.refresh(*self._refresh)

    def check_client_ids(self) -> None:
        """Report each of our client ids that another connection also uses. Each is reported once."""
        for client_id in [own.client_id for own in self._announced.values()]:
            node_id = self.presence.has_client(client_id) if client_id else None
            if not client_id or node_id is None or len(self._duplicates) >= _DUPLICATES_MAX:
                continue
            if (client_id, node_id) not in self._duplicates:
                self._duplicates.add((client_id, node_id))
                self._report(ClientIdDuplicated(client_id, node_id, self.presence.names.of(node_id).host))

    def ask(self) -> None:
        """Have all others announce themselves within a tenth of a second."""
        if self._lanes.is_open:
            self._announce(Flag.ASKS)

    def _announce(self, asking: int = 0) -> None:
        lanes = tuple(0 if lane.stream is None else lane.node_id for lane in self._lanes.all)
        flags = asking if self._is_settled and (self._is_in_sync(0.0) or self._hears_some_only) else Flag.ASKS
        for connection_id, own in self._announced.items():
            valid_s = self.announcer.valid_s
            listed = frozenset(topic for topic in own.topics if not is_pattern_hash(topic))
            wish = flags | (Flag.KEEPER if own.is_keeper else 0) | (Flag.CELL if own.has_cell else 0)
            if len(listed) < len(own.topics):
                wish |= Flag.WANTS_ALL
            announcement = Announcement(
                connection_id, lanes, own.client_id, listed, wish, valid_s, table_version=self.announcer.table_version
            )
            self._lanes.session.send_command(announcement.encode(self._announcement_bytes_max))

    def say_goodbye(self) -> None:
        """Say goodbye for all connections. `announcer.change` announces them again."""
        self.announcer.close()
        for connection_id in list(self._announced):
            self._send_goodbye(connection_id)

    def _send_goodbye(self, connection_id: int) -> None:
        content = Announcement(connection_id, flags=Flag.GOODBYE).encode(self._announcement_bytes_max)
        for _ in range(_GOODBYES):
            self._lanes.session.send_command(content)

    def close(self) -> None:
        self.receivers.close()


def uncertain_text(count: int) -> str:
    """Return how many connections may subscribe to a topic by a pattern, for people."""
    return f"{count:,} that may get the topic by a pattern"


def _subscribers_of(peers: Iterable[Peer], topic: int) -> dict[int, Subscriber]:
    """Return those peers that subscribe to a topic, or may do so, by connection id."""
    wanted = frozenset((topic,))
    return {
        peer.connection_id: Subscriber(
            _printable(peer.client_id or f"node {node_text(peer.node_id)}"), topic in peer.topics
        )
        for peer in peers
        if peer.subscribes(wanted)
    }


def _printable(name: str) -> str:
    """Return a name from the network as it may be printed on a terminal."""
    return ascii(name)[1:-1]
