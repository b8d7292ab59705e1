"""A bus: the part of the network that all connections of a process to the same URI share.

Sending: a `Publication` appends frames to the lane of their priority, and delivers them to subscriptions of this
process. Receiving: the session of our first lane gets the streams of all other nodes, and passes them to the router.
It also receives announcements of connections (presence). They say which receivers to wait for, and which senders to be
in sync with.
"""

import asyncio
import logging
from collections.abc import Collection
from typing import Final
from weakref import WeakKeyDictionary

from fjm2.base.logs import Log
from fjm2.base.readings import Reading, register_counted, unregister_counted
from fjm2.messages.destination import Destination
from fjm2.norm import Address, Flow, ReceiverConfig, SenderConfig, Sync
from fjm2.norm.events import (
    CommandReceived,
    Event,
    InterfaceLost,
    InterfaceRestored,
    NodeIdCollided,
    ObjectLost,
    ObjectsMissed,
    ReceiverEvicted,
    ReceiverFull,
    ReceiverReady,
    SenderAppeared,
    SenderImpersonated,
    SenderVanished,
    SendsRefused,
    StreamEnded,
    StreamGapOpened,
    StreamLost,
)

from .closing import CloseDeadline, LanesProgress, finish_lane
from .config import BusConfig
from .confirmation import LaneConfirmation
from .files.disk import DiskThread
from .files.file_folder import FileFolder
from .files.incoming_files import IncomingFiles
from .lane import Lane, Lanes
from .losses.notices import LossNotices
from .membership import Membership
from .presence import PresenceTable
from .publishing.publisher import Publisher
from .reports import (
    Impersonation,
    InterfaceChanged,
    Listener,
    NodeIdCollision,
    NotConfirmed,
    Reporter,
    SendingRefused,
    SubscriberEvicted,
)
from .router import Intake, Router
from .signals.signals import Signals
from .statistics import BusStatistics, BusStats
from .waiting.outages import Outages

log = Log("fjm2.jms")

BUS_DEFAULTS: Final = BusConfig(
    sender=SenderConfig(flow=Flow.MIN, rate_bps=None), receiver=ReceiverConfig(sync=Sync.CURRENT)
)
"""Settings of a bus that its URI does not name: there is no rate limit, flow control waits for the slowest live
subscriber, and a newcomer begins with current messages."""

_TICK_S: Final = 1.0
"""Interval of checks that are not urgent: time-outs of peers and transactions."""
_GOODBYE_S: Final = 0.03
"""Pause after goodbyes, so that they leave this host before sockets close or the node id changes."""
_STILL_S: Final = 2.0
"""Time without progress after which a close gives up, unless it has a deadline of its own."""
_REDRAWS_MAX: Final = 8
"""Greatest number of node ids drawn after collisions. Two random ids collide once in 4 billion, so many collisions are
an attack, or a network that sends datagrams back to their sender."""

_open_buses: "WeakKeyDictionary[asyncio.AbstractEventLoop, dict[BusConfig, Bus]]" = WeakKeyDictionary()


class Bus:
    """One node of a NORM session, shared by all connections to the same URI in one event loop."""

    system, layer, role = "fjm2-jms", "jms", "node"
    """Names under which traces record the bus."""

    def __init__(self, config: BusConfig) -> None:
        """Use `open` instead."""
        self.config = config
        self._loop = asyncio.get_running_loop()
        self._users = 0
        self._redraws = 0
        self.stats = BusStats()
        self.reporter = Reporter(self.stats)
        """Reporter of losses and of other events that no call can return."""
        self.lanes = Lanes(config, self._handle, Signals(self.stats))
        self.presence = PresenceTable(stats=self.stats)
        self.losses = LossNotices(self.presence, self.reporter.report)
        told = self.losses.note_dropped
        folder = FileFolder(config.files_directory, config.files_bytes_max, DiskThread(self._loop))
        files = IncomingFiles(folder, told)
        self.router = Router(self.lanes.session.node_id, told, on_resume=self._resume, files=files, stats=self.stats)
        self.router.table.on_skip = self.losses.note_skip
        self.losses.router = self.router
        report = self.reporter.report
        self.membership = Membership(config, self.lanes, self.router, self.presence, report)
        self.losses.on_lost = self.membership.discards.note_undelivered
        receivers = self.membership.receivers
        self._confirmation = LaneConfirmation(
            self.lanes, receivers.subscribers_of, config.sender.ack_timeout_s, Outages(self.stats, self.presence.names)
        )
        self._confirmation.expired = self.presence.expired
        self._confirmation.on_confirmed = self.membership.discards.note_confirmed
        self.publisher = Publisher(self.lanes, self.router, self.presence, self._announce_lanes, receivers.update_soon)
        """Part of publishing that all connections share. Each connection also has a `Publication` of its own."""
        self.membership.discards.on_heard = self.publisher.note_discarded
        self._intake = Intake(self._loop, self.lanes.session.take, self.router, self._handle_first)
        self.lanes.session.on_events = self._intake.take_now
        self.lanes.session.take_run = self._intake.take_run
        self._tick_handle: asyncio.TimerHandle | None = None

    @classmethod
    async def open(cls, config: BusConfig) -> "Bus":
        """Return the bus of this configuration. Open it unless it is open already. Call `close` once for each call of
        `open`."""
        for loop in [loop for loop in _open_buses if loop.is_closed()]:
            del _open_buses[loop]  # its connections, closed or not, ended with it
        buses = _open_buses.setdefault(asyncio.get_running_loop(), {})
        bus = buses.get(config)
        if bus is None:
            bus = cls(config)
            bus._start()
            buses[config] = bus
        bus._users += 1
        return bus

    def _start(self) -> None:
        self.lanes.session.open()
        register_counted(self)
        self._tick_handle = self._loop.call_later(_TICK_S, self._tick)

    async def close(self, deadline: CloseDeadline | None = None) -> NotConfirmed | None:
        """Give up one use of the bus. The last `close` waits until everything published has arrived, or the deadline
        expires.

        Report, and return, what was not confirmed. The default deadline is 2 s without progress.
        """
        self._users -= 1
        if self._users > 0 or not self.lanes.is_open:
            return None
        _open_buses[self._loop].pop(self.config, None)
        self.membership.discards.tell()
        self.lanes.begin_closing()
        self.membership.say_goodbye()
        self.lanes.session.stop_answering()
        deadline = deadline or self.close_deadline(_STILL_S)
        subscribers_of = self.membership.receivers.subscribers_of
        try:
            outcomes = await asyncio.gather(
                *(finish_lane(lane, self._confirmation, subscribers_of, deadline) for lane in self.lanes.with_streams)
            )
            await asyncio.sleep(_GOODBYE_S)
        except asyncio.CancelledError:
            unfinished = [(lane.owing(subscribers_of(lane)), lane.unsent_bytes) for lane in self.lanes.with_streams]
            self._report_unconfirmed(unfinished)
            raise
        finally:
            await self._shut()
        return self._report_unconfirmed(outcomes)

    def _report_unconfirmed(self, outcomes: list[tuple[frozenset[int], int]]) -> NotConfirmed | None:
        """Report, and return, the nodes that did not confirm and the bytes that were not sent. `outcomes` has both for
        each lane."""
        nodes = frozenset[int]().union(*(nodes for nodes, _ in outcomes))
        unsent = sum(size for _, size in outcomes)
        if not nodes and not unsent:
            return None
        report = NotConfirmed(nodes, unsent, self.presence.names.all_of(nodes))
        if not self.reporter.has_listeners:
            text = f"{report}; close later, or give close_timeout_s more time"
            log.tell(logging.WARNING, "not_confirmed", text)
        self.reporter.report(report)
        return report

    async def _shut(self) -> None:
        if self._tick_handle is not None:
            self._tick_handle.cancel()
        self.membership.close()
        self._confirmation.close()
        self.publisher.resume()
        if self.router.files is not None:
            self.router.files.close()
        await self.lanes.close()
        unregister_counted(self)
        if self.router.files is not None:
            await self.router.files.closed()

    @property
    def is_shared(self) -> bool:
        """True if the bus has several users, so that the next `close` leaves it open."""
        return self._users > 1

    def close_deadline(self, still_s: float, timeout_s: float | None = None) -> CloseDeadline:
        """Return a deadline that begins now: `still_s` without progress, or `timeout_s` in all."""
        progress = LanesProgress(self.lanes, self._confirmation, self.config.sender)
        return CloseDeadline(progress, still_s, timeout_s)

    async def flushed(self) -> None:
        """Wait until everything published so far is in the send buffers of the lanes."""
        await self.publisher.flushed()

    async def confirmed(self) -> frozenset[int]:
        """Ask the known subscribers to confirm everything published so far. Return the node ids of those that did not
        confirm.

        A subscriber has `ack_timeout_s` to answer.
        """
        return await self._confirmation.confirmed()

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
        self.membership.announce(connection_id, client_id, topics, is_keeper=is_keeper, has_cell=has_cell)

    def withdraw(self, connection_id: int) -> None:
        """Say goodbye for a connection that is closed."""
        self.membership.withdraw(connection_id)

    def subscribers(self, destination: Destination) -> int:
        """Return the number of known connections that subscribe to a destination."""
        return self.membership.subscribers(destination)

    async def ready(self) -> None:
        """Wait until others know our subscriptions, and something has arrived from every lane that they announced."""
        await self.membership.ready()

    def add_listener(self, listener: Listener) -> None:
        """Call `listener` with each report. The listener must not raise or wait."""
        self.reporter.add_listener(listener)

    def remove_listener(self, listener: Listener) -> None:
        """Stop calling `listener`."""
        self.reporter.remove_listener(listener)

    def _announce_lanes(self) -> None:
        """Announce all lanes again, because one was opened or has another node id."""
        self.membership.receivers.update()
        self.membership.announcer.change()

    def _resume(self) -> None:
        """Continue to publish and to receive, because no subscription is full any more."""
        self.publisher.resume()
        self.membership.renew()
        self._intake.take_soon()

    def _handle_first(self, event: Event) -> None:
        self._handle(self.lanes.first, event)

    def _handle(self, lane: Lane, event: Event) -> None:
        match event:
            case CommandReceived(sender, content):
                self.lanes.signals.handle_command(sender, content)
                self.outages.note_heard(sender)
            case SenderAppeared(sender, _, address):
                self.presence.names.note_host(sender, address[0])
            case StreamLost() | StreamGapOpened() | ObjectLost() | ObjectsMissed() | SenderVanished():
                if self.lanes.is_open:
                    self.losses.note(event)
            case StreamEnded(sender, stream):
                self.router.end(sender, stream)
            case ReceiverEvicted(node, reason):
                self.membership.receivers.note_evicted(lane, node)
                self.reporter.report(SubscriberEvicted(node, lane.number, self.presence.names.of(node), reason))
            case ReceiverFull() | ReceiverReady():
                self.membership.receivers.note_full(lane, event)
            case SenderImpersonated(sender, address, doubt):
                found = self.presence.lane_of(sender)
                number = None if found is None else found[0]
                name = self.presence.names.of(sender)
                self.reporter.report(Impersonation(sender, number, name, address, doubt))
            case NodeIdCollided(address):
                self.note_collision(lane, address)
            case InterfaceLost(name) | InterfaceRestored(name):
                self.lanes.ignore_own()
                if not lane.number:
                    self.reporter.report(InterfaceChanged(name, isinstance(event, InterfaceRestored)))
            case SendsRefused(name, reason):
                self.reporter.report(SendingRefused(name, reason))
            case _:
                pass

    def note_collision(self, lane: Lane, address: Address) -> None:
        """Draw another node id, because another node uses ours and receivers cannot tell the two apart."""
        has_another = self.lanes.is_open and self._redraws < _REDRAWS_MAX
        self.reporter.report(NodeIdCollision(lane.node_id, address, has_another))
        if has_another:
            self._redraws += 1
            if lane is self.lanes.first:
                # Without a goodbye, others would refuse announcements of the same connections from a new node id.
                self.membership.say_goodbye()
            self._loop.call_later(_GOODBYE_S, self._redraw_node_id, lane)

    def _redraw_node_id(self, lane: Lane) -> None:
        if self.lanes.is_open:
            lane.redraw_node_id()
            self.router.set_node_id(self.node_id)
            self._announce_lanes()

    def _tick(self) -> None:
        late_s = 0.0 if self._tick_handle is None else max(self._loop.time() - self._tick_handle.when(), 0.0)
        self._tick_handle = self._loop.call_later(_TICK_S, self._tick)
        # A busy machine is often a little late. Only a pause tells that nothing was heard.
        unheard_s = late_s * (late_s > _TICK_S) + _TICK_S * self.router.is_blocked
        self.router.check(self.membership.is_silent, unheard_s)
        self.losses.tick()
        self._confirmation.tick()
        self.membership.tick(self.router.is_blocked)

    @property
    def node_id(self) -> int:
        """Id of the node that receives, and that sends the first lane."""
        return self.lanes.session.node_id

    @property
    def outages(self) -> Outages:
        """Subscribers that did not confirm in time, and that nobody waits for."""
        return self._confirmation.outages

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the operator of this host."""
        return self.lanes.session.warnings

    def readings(self) -> list[Reading]:
        """Return the counters of every lane for traces. The counters of the router are added to those of the first
        lane."""
        readings = [self._reading(lane) for lane in {self.lanes.first, *self.lanes.with_streams}]
        first = next(index for index, reading in enumerate(readings) if reading.source == "lane0")
        drops = self.router.table.drops
        lost = self.stats.messages_dropped + self.stats.frames_malformed + sum(drops.values())
        received = {**self.router.stats.traced(), "messages_lost": lost}
        reading = readings[first]
        frame_drops = {f"frame_{reason.name.lower()}": count for reason, count in drops.items()}
        readings[first] = reading._replace(
            counters={**reading.counters, **received}, drops={**reading.drops, **frame_drops}
        )
        return readings

    @staticmethod
    def _reading(lane: Lane) -> Reading:
        """Return the counters of a lane. Refresh frames do not count as messages."""
        reading = lane.session.reading(f"lane{lane.number}")
        sent = max(reading.counters.get("messages_sent", 0) - lane.refreshes, 0)
        return reading._replace(counters={**reading.counters, "messages_sent": sent})

    def statistics(self) -> BusStatistics:
        """Return the counters of the bus since it opened, and its present state."""
        subscriptions = self.router.targets.subscriptions
        counted = [lane for lane in self.lanes.all if lane.stream is not None or not lane.number]
        lanes = {lane.number: lane.statistics() for lane in counted}
        return BusStatistics(
            **self.router.stats.counters(),
            connections=self.membership.connections,
            peers=len(self.presence),
            messages_sent=sum(lane.messages_sent for lane in lanes.values()),
            frame_drops={reason.name.lower(): count for reason, count in self.router.table.drops.items()},
            subscribers_down=len(self.outages.nodes),
            subscribers_full=self.membership.receivers.full.count,
            transactions_held=len(self.router.transactions),
            outbox_messages=sum(waiting() for waiting in self.lanes.outboxes),
            consumers=len(subscriptions),
            consumers_full=sum(one.is_full for one in subscriptions),
            messages_held=sum(one.held for one in subscriptions),
            held_bytes=sum(one.held_bytes for one in subscriptions),
            lanes=lanes,
        )
