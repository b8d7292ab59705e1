"""A bus: what all connections of a process to the same URI share of the network.

Out: `publish` gives a frame to the lane of its priority, and at once to subscriptions of this process. In: runs of all
lanes of all others come up in the first lane's session, and go to the router. Beside them go announcements of who is
there (presence): they tell whom to wait for, and whom to be in sync with.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Collection
from random import Random
from time import perf_counter
from typing import Final, NoReturn
from weakref import WeakKeyDictionary

from fjm2.base.errors import NormError
from fjm2.base.logs import Log
from fjm2.base.readings import Reading, register_counted, unregister_counted
from fjm2.messages.destination import Destination, Topic
from fjm2.messages.errors import IllegalStateError, ResourceAllocationError
from fjm2.messages.frame import FrameWriter, Parts
from fjm2.messages.message import Message
from fjm2.norm import Address, Flow, OutgoingStream, ReceiverConfig, SenderConfig, Sync
from fjm2.norm.events import (
    CommandReceived,
    Event,
    InterfaceLost,
    InterfaceRestored,
    LossReason,
    NodeIdCollided,
    ObjectsMissed,
    ReceiverEvicted,
    SenderVanished,
    StreamEnded,
    StreamLost,
    StreamReceived,
)

from .closing import CloseDeadline
from .config import BusConfig
from .lane import LANE_COUNT, LANE_OF_PRIORITY, Lane
from .presence import Announcement, Announcer, Flag, PresenceTable, decode
from .reports import (
    BusReport,
    BytesLost,
    ClientIdDuplicated,
    InterfaceChanged,
    NodeIdCollision,
    NotConfirmed,
    SenderLost,
    StreamsMissed,
    SubscriberEvicted,
)
from .router import Router
from .statistics import BusStatistics, BusStats

log = Log("fjm2.jms")

BUS_DEFAULTS: Final = BusConfig(
    sender=SenderConfig(flow=Flow.MIN, rate_bps=None), receiver=ReceiverConfig(sync=Sync.CURRENT)
)
"""What a bus is set to where its URI says nothing: no rate, but the slowest live subscriber is waited for; who comes
late begins with what is current."""

_TURN_S: Final = 0.001
"""For so long events are taken up before other tasks of the loop get their turn; listeners get twice as much."""
_TICK_S: Final = 1.0
_LISTEN_S: Final = 0.25
"""So long after the opening, all who are there have most likely said so."""
_READY_MAX_S: Final = 1.0
_POLL_S: Final = 0.01
_SETTLED_AFTER_S: Final = 1.0
_SETTLED_AT_LAST_S: Final = 10.0
_REFRESH_S: Final = 0.05
"""Streams are made heard of for newcomers no more often."""
_RETRY_S: Final = 0.05
_UPDATE_S: Final = 0.02
"""Changes of who is there are acted on together."""
_DISTRUST_S: Final = 60.0
"""After somebody was waited for in vain, newcomers are waited for only when they answer, for so long."""
_GOODBYE_S: Final = 0.03
"""Goodbyes are on their way by then."""
_STILL_S: Final = 2.0
_WRITING, _CONFIRMING = 0.7, 0.9
"""Parts of a close's patience: for those who hold the others up, and for all that was published."""
_FULL_S: Final = 1.0
"""So long a publisher waits for a full subscription of its own process."""
_REDRAWS_MAX: Final = 8
"""Of node ids. More than one is no accident any more, but an attack or a network that sends back what it is sent."""
_REPORTS_PER_S: Final = 100
_DUPLICATES_MAX: Final = 100

_REFRESH_TOPIC: Final = Topic("FJM2.REFRESH")
"""Nobody subscribes to it. A frame sent there lets a receiver hear of a stream that is idle."""

_open_buses: "WeakKeyDictionary[asyncio.AbstractEventLoop, dict[BusConfig, Bus]]" = WeakKeyDictionary()

Listener = Callable[[BusReport], None]


class Bus:
    """One node of a NORM session, with a lane or more, shared by all connections to the same URI in one event loop."""

    system, layer, role = "fjm2-jms", "jms", "node"
    """What traces call it."""

    def __init__(self, config: BusConfig) -> None:
        """For `open`."""
        self.config = config
        self._loop = asyncio.get_running_loop()
        self._users = 0
        self._is_closed = False
        self._confirmed = 0
        """Nodes that confirmed what they were asked for."""
        self._lanes = [Lane(number, config, self._handle) for number in range(LANE_COUNT)]
        self._main = self._lanes[0].session
        self._main.on_events = self._take_now
        self.stats = BusStats()
        self.router = Router(self._main.node_id, self._report, on_resume=self._resume, stats=self.stats)
        self.presence = PresenceTable(stats=self.stats)
        self._listeners: list[Listener] = []
        self._announced: dict[int, tuple[str | None, Collection[int]]] = {}
        """Of our connections: client id and hashes of the topics."""
        self._duplicates: set[tuple[str, int]] = set()
        self._is_taking = False
        """Whether more events are to be taken in the loop's next turn."""
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._opened_at = self._loop.time()
        self._is_settled = config.receiver.sync is not Sync.CURRENT
        """Whether streams that are new now began after us, so that they are wanted from their beginning."""
        self._naming_from = 0.0
        self._update_handle: asyncio.TimerHandle | None = None
        self._refresh = FrameWriter(0).write(Message(), _REFRESH_TOPIC, 0, 0, 0)
        self._redraws = 0
        self._reported_at, self._reported = 0.0, 0

    # Life.

    @classmethod
    async def open(cls, config: BusConfig) -> "Bus":
        """The bus of this configuration, opened if need be. Each `open` wants a `close`."""
        for loop in [loop for loop in _open_buses if loop.is_closed()]:
            del _open_buses[loop]  # whoever ended it has given up his connections, be they closed or not
        buses = _open_buses.setdefault(asyncio.get_running_loop(), {})
        bus = buses.get(config)
        if bus is None:
            bus = cls(config)
            bus._start()
            buses[config] = bus
        bus._users += 1
        return bus

    def _start(self) -> None:
        self._main.open()
        register_counted(self)
        self._announcer = Announcer(self._announce, self.presence.__len__, Random())
        self._tick_handle = self._loop.call_later(_TICK_S, self._tick)

    async def close(self, patience: CloseDeadline | None = None) -> NotConfirmed | None:
        """Give up one use of it. The last one sees that what was published arrives, as long as there is patience.

        What did not is reported, and returned. Who says nothing waits while anything goes on, and 2 s longer.
        """
        self._users -= 1
        if self._users > 0 or self._is_closed:
            return None
        _open_buses[self._loop].pop(self.config, None)
        self._is_closed = True
        self._say_goodbye()
        patience = patience or CloseDeadline(self, _STILL_S)
        try:
            outcomes = await asyncio.gather(*(self._finish(lane, patience) for lane in self._open_lanes()))
            await asyncio.sleep(_GOODBYE_S)
        except asyncio.CancelledError:
            self._report_owed([(self._subscribers_of(lane), lane.pending_bytes) for lane in self._open_lanes()])
            raise
        finally:
            await self._shut()
        return self._report_owed(outcomes)

    def _report_owed(self, outcomes: list[tuple[frozenset[int], int]]) -> NotConfirmed | None:
        """Who did not confirm, and what was not sent, a lane each."""
        nodes = frozenset[int]().union(*(nodes for nodes, _ in outcomes))
        unsent = sum(size for _, size in outcomes)
        if not nodes and not unsent:
            return None
        report = NotConfirmed(nodes, unsent)
        if not self._listeners:
            text = f"{report}; close later, or give close_timeout_s more time"
            log.tell(logging.WARNING, "not_confirmed", text)
        self._report(report)
        return report

    @property
    def is_shared(self) -> bool:
        """Whether one more `close` leaves it open."""
        return self._users > 1

    def _say_goodbye(self) -> None:
        self._announcer.close()
        for connection_id in list(self._announced):
            self._send_goodbye(connection_id)

    async def _finish(self, lane: Lane, patience: CloseDeadline) -> tuple[frozenset[int], int]:
        """End a lane's stream, and have it confirmed. Who did not confirm it, and what could not even be sent."""
        stream, session = lane.stream, lane.session
        assert stream is not None
        suspects: frozenset[int] = frozenset()
        suspects_until = 0.0
        try:
            with contextlib.suppress(TimeoutError):
                async with patience.wait(_WRITING):
                    await stream.close()
            if stream.pending_bytes:
                # Who holds us back is perhaps dead: the others shall have the rest.
                suspects, suspects_until = session.awaited_receivers, patience.until(_CONFIRMING)
                session.set_receivers(session.receivers - suspects, suspects)
            async with patience.wait(_CONFIRMING):
                await stream.close()
        except TimeoutError:
            return self._subscribers_of(lane), stream.pending_bytes
        nodes = self._subscribers_of(lane) - lane.evicted
        missing, suspected = set(nodes - suspects), set(nodes & suspects)
        with contextlib.suppress(TimeoutError):
            async with patience.wait(_CONFIRMING):
                if not nodes:
                    await session.flushed()
                await self._confirm(lane, missing)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(suspects_until):
                await self._confirm(lane, suspected)
        return self._subscribers_of(lane) & (missing | suspected), 0

    async def _shut(self) -> None:
        for handle in (self._tick_handle, self._update_handle):
            if handle is not None:
                handle.cancel()
        self._has_room.set()
        for lane in reversed(self._lanes):
            await lane.session.close()
        unregister_counted(self)

    @property
    def progress(self) -> tuple[int, int]:
        """See `Progress`, likewise the next."""
        stats = [lane.session.stats for lane in self._open_lanes()]
        repairs = sum(each.repair_segments_sent + each.parity_segments_sent for each in stats)
        return sum(each.segments_sent for each in stats) + self._confirmed, repairs

    @property
    def repairs_max(self) -> int:
        sender = self.config.sender
        return len(self._open_lanes()) * (sender.stream_bytes // sender.segment_bytes + 1)

    def _open_lanes(self) -> list[Lane]:
        return [lane for lane in self._lanes if lane.stream is not None]

    # Publishing.

    def publish(self, destination: Destination, priority: int, parts: Parts) -> Awaitable[None] | None:
        """Send a frame to all subscribers, those of this process at once. An awaitable is to be awaited: there is no
        room for more.
        """
        lane = self._lanes[LANE_OF_PRIORITY[priority]]
        try:
            is_filled = (lane.stream or self._open_lane(lane, destination)).append(*parts)
        except NormError as error:
            self._refuse(error)
        if destination.frame_hash not in lane.topics:
            self._note_topic(lane, destination)
        if self.router.publish(destination, parts):
            self._has_room.clear()
            return self._wait_for_subscription(lane)
        return self._wait_room(lane) if is_filled else None

    def _refuse(self, error: NormError) -> NoReturn:
        if self._is_closed:
            raise IllegalStateError("the bus is closed") from error
        raise ResourceAllocationError(f"cannot send: {error}", linked_exception=error)

    def _open_lane(self, lane: Lane, destination: Destination) -> OutgoingStream:
        if self._is_closed:
            raise NormError("the bus is closed")
        try:
            stream = lane.open_stream()
        except OSError as error:
            raise NormError(str(error)) from error
        lane.topics.add(destination.frame_hash)
        self._ignore_own()
        self._update_receivers()
        self._announcer.change()
        return stream

    def _ignore_own(self) -> None:
        """What our lanes send was delivered here already."""
        addresses = {lane.session.address for lane in self._open_lanes()} | {self._main.address}
        for lane in {self._lanes[0], *self._open_lanes()}:
            lane.session.ignore(addresses)

    def _note_topic(self, lane: Lane, destination: Destination) -> None:
        if not lane.wants_all:
            lane.topics.add(destination.frame_hash)
            self._update_soon()

    async def _wait_for_subscription(self, lane: Lane) -> None:
        """One of this process is full. It may be for the caller to empty it, so he is only slowed down."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FULL_S):
                await self._has_room.wait()
        await self._wait_room(lane)

    async def _wait_room(self, lane: Lane) -> None:
        if lane.stream is not None:
            try:
                await lane.stream.drain()
            except NormError as error:
                self._refuse(error)

    async def flushed(self) -> None:
        """Wait until all that was published so far has a place in the buffers that the network is fed from."""
        for lane in self._open_lanes():
            await self._wait_room(lane)

    async def confirmed(self) -> frozenset[int]:
        """Ask the known subscribers to confirm what was published so far. The node ids of those that did not.

        Who is silent for longer than `ack_timeout_s` is waited for no more.
        """
        deadline = self._loop.time() + self.config.sender.ack_timeout_s
        asked = [(lane, set(self._subscribers_of(lane))) for lane in self._open_lanes()]
        await asyncio.gather(*(self._confirm(lane, nodes, deadline) for lane, nodes in asked))
        return frozenset[int]().union(*(nodes for _, nodes in asked))

    async def _confirm(self, lane: Lane, nodes: set[int], deadline: float = math.inf) -> None:
        """Until it is confirmed by all. Those that do not stay in the set."""
        while nodes:
            before = len(nodes)
            nodes &= (await lane.session.watermark(nodes)).failed
            # Who is busy, or lacks much, is asked again; who has said goodbye owes nothing.
            nodes &= self._subscribers_of(lane)
            self._confirmed += before - len(nodes)
            if self._loop.time() >= deadline or nodes <= lane.evicted:
                break
            await asyncio.sleep(_RETRY_S)

    # Presence.

    def announce(self, connection_id: int, client_id: str | None, topics: Collection[int]) -> None:
        """Let others know that there is something new in what a connection subscribes to: hashes of destinations, as
        they are when it is told, which is a little later.
        """
        self._announced[connection_id] = client_id, topics
        self._announcer.change()
        self._check_client_ids()

    def withdraw(self, connection_id: int) -> None:
        """A connection is closed."""
        if self._announced.pop(connection_id, None) is not None and not self._is_closed:
            self._send_goodbye(connection_id)

    def subscribers(self, destination: Destination) -> int:
        """How many connections are known that subscribe to it."""
        ours = sum(destination.frame_hash in topics for _, topics in self._announced.values())
        return ours + self.presence.subscribers(destination.frame_hash)

    async def ready(self, timeout_s: float = _READY_MAX_S) -> None:
        """Wait until those who are there know of our subscriptions, and we are in sync with what they send."""
        deadline = self._loop.time() + timeout_s
        self._announcer.now()
        while not self._is_closed and self._loop.time() < deadline and not self._is_in_sync(_LISTEN_S):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
        if self._is_in_sync(_LISTEN_S):
            self._settle()

    def _is_in_sync(self, after_s: float) -> bool:
        is_heard = self._loop.time() - self._opened_at >= after_s
        return is_heard and all(map(self.router.has_stream, self.presence.senders))

    def _announce(self) -> None:
        lanes = tuple(0 if lane.stream is None else lane.node_id for lane in self._lanes)
        flags = 0 if self._is_settled and self._is_in_sync(0.0) else Flag.ASKS
        for connection_id, (client_id, topics) in self._announced.items():
            valid_s = self._announcer.valid_s
            announcement = Announcement(connection_id, lanes, client_id, frozenset(topics), flags, valid_s)
            self._main.send_command(announcement.encode(self.config.sender.segment_bytes))

    def _send_goodbye(self, connection_id: int) -> None:
        content = Announcement(connection_id, flags=Flag.GOODBYE).encode(self.config.sender.segment_bytes)
        for _ in range(2):
            self._main.send_command(content)

    def _note_announcement(self, node_id: int, content: bytes) -> None:
        announcement = decode(content)
        if announcement is None:
            self.stats.announcements_refused += 1
            return
        if announcement.connection_id in self._announced:
            return
        is_changed = self.presence.update(node_id, announcement, self._loop.time())
        if announcement.flags & Flag.ASKS and not self._is_closed:
            self._announcer.answer()
            self._refresh_streams()
        if self.config.sender.flow is Flow.NAMED:
            for lane in self._lanes:
                lane.evicted.discard(node_id)
        if is_changed and announcement.flags & Flag.GOODBYE and all(p.node_id != node_id for p in self.presence.peers):
            for lane in self._open_lanes():
                lane.session.forget_receiver(node_id)
        if is_changed:
            self._update_soon()

    def _refresh_streams(self) -> None:
        """Let a newcomer hear of streams that are idle, so that it will miss nothing that comes."""
        now = self._loop.time()
        for lane in self._open_lanes():
            if lane.stream is not None and not lane.pending_bytes and now - lane.refreshed_at >= _REFRESH_S:
                lane.refreshed_at = now
                lane.stream.append(*self._refresh)
                lane.refreshes += 1

    def _check_client_ids(self) -> None:
        for client_id, _ in self._announced.values():
            node_id = self.presence.has_client(client_id) if client_id else None
            if not client_id or node_id is None or len(self._duplicates) >= _DUPLICATES_MAX:
                continue
            if (client_id, node_id) not in self._duplicates:
                self._duplicates.add((client_id, node_id))
                self._report(ClientIdDuplicated(client_id, node_id))

    # Flow control.

    def _subscribers_of(self, lane: Lane) -> frozenset[int]:
        """The nodes known to want what a lane sends."""
        if lane.wants_all:
            return frozenset(peer.node_id for peer in self.presence.peers)
        return self.presence.receivers(lane.topics)

    def _update_soon(self) -> None:
        if self._update_handle is None and not self._is_closed:
            self._update_handle = self._loop.call_later(_UPDATE_S, self._update)

    def _update(self) -> None:
        self._update_handle = None
        self._update_receivers()
        self._check_client_ids()

    def _update_receivers(self) -> None:
        """Tell flow control whom to wait for: known subscribers, and others that answer and are not known better."""
        known = frozenset(peer.node_id for peer in self.presence.peers)
        for lane in self._open_lanes():
            subscribers = self._subscribers_of(lane)
            lane.evicted &= known
            named = subscribers - lane.evicted
            if self._loop.time() < self._naming_from:
                named &= lane.named | lane.session.receivers
            joined = lane.session.receivers - lane.named - (known - subscribers)
            lane.named = named
            lane.session.set_receivers(named | joined, known - subscribers)

    # Receiving.

    def _take_now(self) -> None:
        """Unless there is so much that the next turn is for what is left: listeners shall keep step."""
        if not self._is_taking:
            self._take_events()

    def _take_soon(self) -> None:
        if not self._is_taking:
            self._is_taking = True
            self._loop.call_soon(self._take_events)

    def _take_events(self) -> None:
        """Whatever has come, unless a subscription is full."""
        self._is_taking = False
        take, receive = self._main.take, self.router.receive
        end = perf_counter() + _TURN_S
        try:
            while perf_counter() < end:
                if self.router.is_blocked:
                    return
                event = take()
                if event is None:
                    return
                if type(event) is StreamReceived:
                    receive(event)
                else:
                    self._handle(self._lanes[0], event)
        except Exception as error:
            self._loop.call_exception_handler({"message": "an event of a bus was not handled", "exception": error})
        self._take_soon()

    def _resume(self) -> None:
        self._has_room.set()
        self.presence.renew(self._loop.time())
        self._take_soon()

    def _handle(self, lane: Lane, event: Event) -> None:
        match event:
            case CommandReceived(sender, content):
                self._note_announcement(sender, content)
            case StreamLost() | ObjectsMissed() | SenderVanished():
                self._note_loss(event)
            case StreamEnded(sender, stream):
                self.router.end(sender, stream)
            case ReceiverEvicted(node):
                self._note_evicted(lane, node)
            case NodeIdCollided(address):
                self._note_collision(lane, address)
            case InterfaceLost(name) | InterfaceRestored(name):
                self._ignore_own()
                if not lane.number:
                    self._report(InterfaceChanged(name, isinstance(event, InterfaceRestored)))
            case _:
                pass

    def _note_loss(self, event: StreamLost | ObjectsMissed | SenderVanished) -> None:
        if self._is_closed:
            return
        found = self.presence.lane_of(event.sender_id)
        number, peer = found if found is not None else (None, None)
        match event:
            case StreamLost(sender, stream, start, end, reason):
                if reason in (LossReason.SENDER_GONE, LossReason.SENDER_RESTARTED):
                    return  # which is about to be told
                self.router.note_gap(sender, stream)
                self._report(BytesLost(sender, number, start, end if end > start else None, reason))
            case ObjectsMissed(sender, _, count):
                self.router.note_missed(sender)
                self._report(StreamsMissed(sender, number, count))
            case SenderVanished(sender, reason):
                if self.router.forget(sender):
                    self._report(SenderLost(sender, number, peer.client_id if peer else None, reason))

    def _note_evicted(self, lane: Lane, node: int) -> None:
        lane.evicted.add(node)
        if self.config.sender.flow is Flow.MIN:
            self._naming_from = self._loop.time() + _DISTRUST_S
        self._update_soon()
        found = self.presence.lane_of(node)
        self._report(SubscriberEvicted(node, lane.number, found[1].client_id if found is not None else None))

    def _note_collision(self, lane: Lane, address: Address) -> None:
        """Somebody else has our node id. Both draw another: to receivers, neither can be told from the other."""
        has_another = not self._is_closed and self._redraws < _REDRAWS_MAX
        self._report(NodeIdCollision(lane.node_id, address, has_another))
        if has_another:
            self._redraws += 1
            if lane.session is self._main:
                self._say_goodbye()  # else nobody would believe another node that it speaks for the same connections
            self._loop.call_later(_GOODBYE_S, self._redraw_node_id, lane)

    def _redraw_node_id(self, lane: Lane) -> None:
        if self._is_closed:
            return
        lane.redraw_node_id()
        self.router.set_node_id(self._main.node_id)
        self._update_receivers()
        self._announcer.change()

    # Time.

    def _tick(self) -> None:
        self._tick_handle = self._loop.call_later(_TICK_S, self._tick)
        now = self._loop.time()
        self.router.check()
        if self.router.is_blocked:
            self.presence.renew(now)
        elif self.presence.expire(now):
            self._update_soon()
        age_s = now - self._opened_at
        if self._is_in_sync(_SETTLED_AFTER_S) or age_s >= _SETTLED_AT_LAST_S:
            self._settle()

    def _settle(self) -> None:
        """All streams that were there before us have been heard of: of new ones we want everything."""
        if not self._is_settled and not self._is_closed:
            self._is_settled = True
            self._main.set_sync(Sync.STREAM)

    # Telling.

    def add_listener(self, listener: Listener) -> None:
        """Tell it what no call can report. It must not raise, nor wait."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    def _report(self, report: BusReport) -> None:
        """A flood of hostile packets is to be no flood of reports."""
        now = self._loop.time()
        if now - self._reported_at >= 1.0:
            self._reported_at, self._reported = now, 0
        self._reported += 1
        if self._reported > _REPORTS_PER_S:
            self.stats.reports_suppressed += 1
            return
        for listener in list(self._listeners):
            listener(report)

    @property
    def node_id(self) -> int:
        """Of the node that receives, and sends the first lane."""
        return self._main.node_id

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the operator of this host should know."""
        return self._main.warnings

    def readings(self) -> list[Reading]:
        """What traces record: a lane each, and with the first one what the router counts of all that comes."""
        readings = [self._reading(lane) for lane in {self._lanes[0], *self._open_lanes()}]
        first = next(index for index, reading in enumerate(readings) if reading.source == "lane0")
        drops = self.router.drops
        lost = self.stats.messages_dropped + self.stats.frames_malformed + sum(drops.values())
        received = {**self.stats.traced(), "messages_lost": lost}
        reading = readings[first]
        frame_drops = {f"frame_{reason.name.lower()}": count for reason, count in drops.items()}
        readings[first] = reading._replace(
            counters={**reading.counters, **received}, drops={**reading.drops, **frame_drops}
        )
        return readings

    @staticmethod
    def _reading(lane: Lane) -> Reading:
        """Without the frames that are no messages of the application's."""
        reading = lane.session.reading(f"lane{lane.number}")
        sent = max(reading.counters.get("messages_sent", 0) - lane.refreshes, 0)
        return reading._replace(counters={**reading.counters, "messages_sent": sent})

    def statistics(self) -> BusStatistics:
        """What it has done so far, and how it stands."""
        subscriptions = self.router.subscriptions
        lanes = {lane.number: lane.statistics() for lane in self._lanes if lane.stream is not None or not lane.number}
        return BusStatistics(
            **self.stats.counters(),
            connections=len(self._announced),
            peers=len(self.presence),
            messages_sent=sum(lane.messages_sent for lane in lanes.values()),
            frame_drops={reason.name.lower(): count for reason, count in self.router.drops.items()},
            transactions_held=len(self.router.transactions),
            consumers=len(subscriptions),
            consumers_full=sum(one.is_full for one in subscriptions),
            messages_held=sum(one.held for one in subscriptions),
            held_bytes=sum(one.held_bytes for one in subscriptions),
            lanes=lanes,
        )
