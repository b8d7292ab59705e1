"""NORM for asyncio applications. A session is one node of a group: it sends objects and streams, and reports events."""

import os
import random
from collections.abc import Callable, Iterable
from enum import Enum, auto
from types import TracebackType
from typing import Self

from fjm2.base.errors import NormError
from fjm2.base.functions import check_bytes
from fjm2.base.quantities import check_setting, node_text
from fjm2.base.readings import Reading, register_counted, unregister_counted
from fjm2.norm.core.config import Flow, ReceiverConfig, SenderConfig, SessionConfig, Sync
from fjm2.norm.core.engine import Engine
from fjm2.norm.core.events import AckReceived, AckRequested, Event, SenderEvent, StreamReceived, WatermarkCompleted
from fjm2.norm.core.receive.incoming_object import ObjectProgress
from fjm2.norm.core.send.sources import FileSource, MemorySource
from fjm2.norm.core.stats import Drop, Stats
from fjm2.norm.core.train import Address
from fjm2.norm.core.wire import NODE_ANY

from .driver import Driver
from .event_queue import EventQueue
from .messages import IncomingMessages, OutgoingMessages
from .outgoing_stream import OutgoingStream
from .statistics import SessionStatistics
from .transmission import CLOSED_TEXT, Transmission
from .udp import UdpConfig, UdpTransport

__all__ = ["IncomingMessages", "OutgoingMessages", "OutgoingStream", "Session", "random_node_id"]


def random_node_id() -> int:
    """Draw a node id at random. Two nodes of a group are unlikely to draw the same id."""
    return random.SystemRandom().randrange(1, NODE_ANY)


def _checked_info(info: bytes | None) -> bytes | None:
    if info is None:
        return None
    check_bytes("info", info)
    return bytes(info)  # the same object, unless it is a bytearray or memoryview


class _State(Enum):
    """State of a session."""

    NEW = auto()
    OPEN = auto()
    CLOSED = auto()


_LEGAL = {_State.NEW: {_State.OPEN}, _State.OPEN: {_State.CLOSED}, _State.CLOSED: set[_State]()}
"""States that may follow each state."""


class Session:
    """One node of a NORM group.

    Use it as `async with Session(...) as session:`. Leaving the block closes the session at once; to let queued data
    arrive, await `flushed()` or `watermark()` before. Take events by `async for event in session`. If nobody takes
    events, reception pauses when their queue is full. It resumes when there is room, and repairs what was missed.
    """

    system, layer, role = "fjm2", "norm", "node"
    """Names under which traces store the counters of a session."""

    def __init__(
        self,
        group: str,
        port: int,
        *,
        interface: str | None = None,
        node_id: int | None = None,
        sender: SenderConfig | None = None,
        receiver: ReceiverConfig | None = None,
        is_sender_only: bool = False,
        ttl: int = 1,
        dscp: int = 0,
        loopback: bool = True,
        seed: int | None = None,
    ) -> None:
        """Check the settings and raise ConfigError if one is wrong. Open nothing yet.

        `group` is a multicast group, or the address of the one peer. `interface` is a name or a local address. If
        `is_sender_only`, ignore what other nodes send, and report no events about it.
        """
        check_setting("is_sender_only", is_sender_only, bool)
        own_receiver = ReceiverConfig() if receiver is None else receiver
        self.config = SessionConfig(
            node_id=random_node_id() if node_id is None else node_id,
            sender=SenderConfig() if sender is None else sender,
            receiver=None if is_sender_only else own_receiver,
        )
        """Settings of the node. The node id is drawn at random unless it was given."""
        self.udp_config = UdpConfig(
            group=group,
            port=port,
            interface=interface,
            ttl=ttl,
            dscp=dscp,
            loopback=loopback,
            kept_only=own_receiver.sync is Sync.KEPT,
        )
        """Settings of the sockets."""
        self.is_counted_alone = True
        """True if traces and metrics list this session by itself. Set it to False if they list its owner instead."""
        self.on_events: Callable[[], None] | None = None
        """Function called at the end of each turn in which there are events to `take()`, for an application that does
        not want to wait for another turn of the loop; None for no call. The function must not raise."""
        self.take_run: Callable[[StreamReceived], bool] | None = None
        """Function that is offered the bytes of a stream if they are the only event of a turn, and none waits. It
        returns False if they have to wait like other events. The function must not raise."""
        self.take_ack: Callable[[AckReceived | AckRequested], bool] | None = None
        """Function that is offered acknowledgements, and requests for them, at once, even while other events wait or
        reception pauses. It returns False if they have to wait like other events: they are dropped in a pause then. The
        function must not raise."""
        self._random = random.Random(seed)
        self._events = EventQueue(is_sender_only)
        self._state = _State.NEW

    def __repr__(self) -> str:
        state = {_State.NEW: "not open", _State.OPEN: "open", _State.CLOSED: "closed"}[self._state]
        return f"<Session {self.udp_config.group} port {self.udp_config.port}, node {node_text(self.node_id)}, {state}>"

    # Opening and closing.

    def open(self) -> None:
        """Open the session, as entering `async with` does. The loop must be running. Await `close()` afterwards."""
        if self._state is not _State.NEW:
            raise NormError("a session opens once: make another one")
        self._transport = UdpTransport(self.udp_config)
        self._transport.receive_for(self.node_id)
        group_is_multicast = self.udp_config.is_multicast
        self._engine = Engine(
            self.config, self._transport.destination, random=self._random, group_is_multicast=group_is_multicast
        )
        self._events.attach(self._engine)
        self._driver = Driver(self._engine, self._transport, self._handle_event, self._handle_turn_end)
        self._transmission = Transmission(self._engine, self._driver)
        self._move_to(_State.OPEN)
        if self.is_counted_alone:
            register_counted(self)

    async def __aenter__(self) -> Self:
        self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Send a goodbye and close the sockets. Await `flushed()` or `watermark()` first to let queued data arrive."""
        if self._state is not _State.OPEN:
            return
        self._move_to(_State.CLOSED)
        try:
            self._engine.close()
            self._driver.close()
        finally:
            if self.is_counted_alone:
                unregister_counted(self)
            self._transport.close()
            self._events.wake()
            self._transmission.close()

    def redraw_node_id(self) -> None:
        """Leave the group and rejoin it as a new sender with another node id, because another node has this id, too.

        Everything that is being sent is given up, and open streams are closed. Messages that their `take_back` returns
        can be written to a new stream.
        """
        self._check_open()
        self._engine.leave()
        self._driver.send_goodbye()
        self._engine.renew(random_node_id(), self._random)
        self.config = self._engine.config
        self._transport.receive_for(self.node_id)
        self._transmission.give_up(f"the node id was in use elsewhere, and is {node_text(self.node_id)} now")
        self._driver.wake()

    def _move_to(self, state: _State) -> None:
        if state not in _LEGAL[self._state]:
            raise AssertionError(f"{self._state} to {state}")
        self._state = state

    def _check_open(self) -> None:
        if self._state is not _State.OPEN:
            is_closed = self._state is _State.CLOSED
            raise NormError(CLOSED_TEXT if is_closed else "the session is not open: expected `async with` before")

    # Sending.

    async def send_data(self, data: bytes | bytearray | memoryview, *, info: bytes | None = None) -> int:
        """Send bytes as one object, and return its transport id. The bytes are not copied: leave them unchanged.

        Waits while the cache is full of objects that are still to be sent.
        """
        info = _checked_info(info)
        try:
            source = MemorySource(data)
        except TypeError:
            check_bytes("data", data)
            raise
        self._check_open()
        return await self._transmission.send(source, info, is_file=False)

    async def send_file(self, path: str | os.PathLike[str], *, info: bytes | None = None) -> int:
        """Send a file as one object, reading it as it goes, and return its transport id.

        `info` is the file's base name if it is not given.
        """
        info = _checked_info(info)
        name = os.fsencode(os.path.basename(path)) if info is None else info
        source = FileSource(path)
        try:
            self._check_open()
        except NormError:
            source.close()
            raise
        return await self._transmission.send(source, name, is_file=True)

    async def open_stream(self, *, info: bytes | None = None) -> OutgoingStream:
        """Open a stream. Waits, as `send_data` does, while the cache is full of objects that are still to be sent."""
        info = _checked_info(info)
        self._check_open()
        object_id = await self._transmission.open_stream(self.config.sender.stream_bytes, info)
        return OutgoingStream(self._transmission, object_id)

    async def open_messages(self, *, info: bytes | None = None) -> OutgoingMessages:
        """Open a stream of messages. Waits, as `open_stream` does."""
        info = _checked_info(info)
        self._check_open()
        object_id = await self._transmission.open_stream(self.config.sender.stream_bytes, info)
        return OutgoingMessages(self._transmission, object_id)

    def open_stream_now(self, *, is_passing: bool = False) -> OutgoingStream:
        """Open a stream without waiting. Raises NormError if the cache is full of objects that are still to be sent.

        If `is_passing`, receivers with `Sync.KEPT` do not receive it until `keep` is called.
        """
        self._check_open()
        object_id = self._transmission.open_stream_now(self.config.sender.stream_bytes, is_passing)
        return OutgoingStream(self._transmission, object_id)

    async def flushed(self) -> None:
        """Wait until everything that was queued has been sent, repaired as requested, and flushed."""
        self._check_open()
        await self._transmission.flushed()

    async def watermark(
        self, nodes: Iterable[int] | None = None, *, timeout_s: float | None = None
    ) -> WatermarkCompleted:
        """Ask nodes to confirm everything that was queued and written so far, and wait for the outcome.

        Without `nodes`, ask all nodes that flow control has known: those it waits for, and those it gave up meanwhile.
        Nodes that have not confirmed `timeout_s` seconds after everything was sent, repairs included, and they were
        asked, have failed, and in any case those that have not four times as long after they were first asked. Without
        a time-out, those fail that have not answered `robust_factor` times.
        """
        self._check_open()
        asked = self._known_receivers() if nodes is None else nodes
        return await self._transmission.watermark(tuple(asked), timeout_s)

    def _known_receivers(self) -> frozenset[int]:
        if self.config.sender.flow is Flow.MAX:
            raise NormError("nodes: expected the node ids that have to confirm, as with flow=max no receiver is known")
        return self.receivers | self.evicted_receivers

    def set_receivers(self, nodes: Iterable[int], strangers: Iterable[int] = ()) -> None:
        """Let flow control wait for `nodes`.

        With `flow=min`, it also waits for other nodes that answer, except for `strangers`.
        """
        self._engine.set_receivers(frozenset(nodes), self._driver.now(), frozenset(strangers))
        self._driver.wake()

    def forget_receiver(self, node: int) -> None:
        """Stop waiting for a node that has said goodbye, in flow control and in watermarks.

        Its last answers do not bring it back. Name it with `set_receivers` to wait for it again.
        """
        self._engine.forget_receiver(node, self._driver.now())
        self._driver.wake()

    @property
    def receivers(self) -> frozenset[int]:
        """Nodes that flow control waits for now."""
        return self._engine.receivers

    @property
    def awaited_receivers(self) -> frozenset[int]:
        """Receivers that have not confirmed the last position asked for. A sender that stands still waits for them."""
        return self._engine.awaited_receivers

    @property
    def evicted_receivers(self) -> frozenset[int]:
        """Receivers that flow control gave up because they held the sender up in vain, and that did not come back."""
        return self._engine.evicted_receivers

    @property
    def stalled_receivers(self) -> frozenset[int]:
        """Those of `evicted_receivers` that answered but made no progress, and have shown none since."""
        return self._engine.stalled_receivers

    @property
    def full_receivers(self) -> frozenset[int]:
        """Receivers that flow control waits for, and that say that their application takes nothing."""
        return self._engine.full_receivers

    @property
    def silent_receivers(self) -> frozenset[int]:
        """Receivers that have fallen silent, so that others go on without them. What they lack is kept for a while."""
        return self._engine.silent_receivers

    def stop_answering(self) -> None:
        """Request and confirm nothing any more: this node has told others that it leaves."""
        self._engine.stop_answering()

    def cancel(self, object_id: int) -> None:
        """Stop sending an object. Receivers that miss parts of it are told that it is gone."""
        self._check_open()
        self._transmission.cancel(object_id)

    def send_command(self, content: bytes, *, is_robust: bool = False) -> None:
        """Send a short message that belongs to no object. If `is_robust`, it is repeated, and can arrive repeatedly."""
        check_bytes("content", content)
        self._check_open()
        self._engine.send_command(bytes(content), is_robust, self._driver.now())
        self._driver.wake()

    def repeat_flush(self, nodes: Iterable[int]) -> None:
        """Tell receivers once more how far the data go.

        Of `nodes`, those that have come since receivers were told request what they want of the data. Others that come
        when nothing is sent wait for the next data.
        """
        self._check_open()
        self._engine.repeat_flush(tuple(nodes), self._driver.now())
        self._driver.wake()

    def request_acks(self, ack_type: int, nodes: Iterable[int] = (), *, ack_id: int = 0) -> None:
        """Ask nodes, or all if none is named, for an acknowledgement of a type from 16 to 255.

        The application defines these types, and `ack_id` from 0 to 255, which tells requests apart. The request is sent
        once, and arrives as `AckRequested`. Answers come as `AckReceived`.
        """
        self._check_open()
        self._engine.request_acks(ack_type, tuple(nodes), ack_id)
        self._driver.wake()

    def send_ack(self, sender_id: int, ack_type: int, content: bytes = b"", *, ack_id: int = 0) -> bool:
        """Send an acknowledgement of a type from 16 to 255 to the sender with that node id, by unicast and once.

        It arrives there as `AckReceived`. `content` has at most a segment. Return False if nothing was heard of that
        sender, this node does not answer, or it would send too much: 1 MiB in a second, or, as long as no data of that
        sender proved useful, three times as much as came from it.
        """
        self._check_open()
        check_bytes("content", content)
        is_sent = self._engine.send_ack(sender_id, ack_type, bytes(content), self._driver.now(), ack_id)
        self._driver.wake()
        return is_sent

    # Receiving.

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while (event := self._events.take()) is None:
            if self._state is _State.CLOSED:
                raise StopAsyncIteration
            self._check_open()
            await self._events.wait()
        return event

    def messages(self, on_event: Callable[[Event], None] | None = None) -> IncomingMessages:
        """Return the messages of all senders, for `async for message in session.messages()`.

        Senders send them by `open_messages`. The messages of each sender arrive in order, and whole. Reading begins at
        the first message that is marked, and goes on after a gap in the same way. `on_event` is called with each event
        that is no message, in its place between the messages: `StreamLost` tells of a gap. It must not raise.
        """
        return IncomingMessages(self, on_event)

    def take(self) -> Event | None:
        """Return the next event, or None if there is none."""
        return self._events.take()

    @property
    def incoming(self) -> tuple[ObjectProgress, ...]:
        """Progress of the objects that are being received now, streams excluded."""
        return self._engine.incoming if self._state is _State.OPEN else ()

    def is_silent(self, sender_id: int, for_s: float) -> bool:
        """Return True if nothing was heard of a remote sender for `for_s` seconds, and no event of it waits."""
        if self._state is not _State.OPEN or self._engine.silence_s(sender_id, self._driver.now()) < for_s:
            return False
        return not any(isinstance(one, SenderEvent) and one.sender_id == sender_id for one in self._events.waiting)

    def set_sync(self, sync: Sync) -> None:
        """Choose where reception of streams not known yet begins: at the current data, or at the stream's beginning."""
        self._engine.set_sync(sync)

    def ignore(self, addresses: Iterable[Address]) -> None:
        """Receive nothing from the given addresses, such as those of other sessions of the same application."""
        self._transport.ignore(addresses)

    def _handle_event(self, event: Event) -> None:
        if type(event) is not StreamReceived:  # the most frequent one by far
            if isinstance(event, AckReceived | AckRequested):
                self._handle_ack(event)
                return
            self._transmission.handle_event(event)
        elif (
            self.take_run is not None
            and not self._events.waiting
            and not self._engine.events  # no other event comes before or after this one
            and self.take_run(event)
        ):
            return
        self._events.put(event)

    def _handle_ack(self, event: AckReceived | AckRequested) -> None:
        if self.take_ack is not None and self.take_ack(event):
            return
        if self._engine.is_paused:
            self._engine.stats.drop(Drop.PAUSED)
        else:
            self._events.put(event)

    def _handle_turn_end(self) -> None:
        if self._transmission.wanted_bytes is not None:
            self._transmission.offer_room()
        if self._events.waiting and self.on_events is not None:
            self.on_events()

    # Observing.

    @property
    def node_id(self) -> int:
        """Id of this node in the group; drawn at random unless it was given."""
        return self.config.node_id

    @property
    def address(self) -> Address:
        """Address that this session sends from, as other nodes see it. It can change when the interface changes."""
        return self._transport.address

    @property
    def stats(self) -> Stats:
        """Counters since the session was opened."""
        return self._engine.stats

    def statistics(self) -> SessionStatistics:
        """Return the counters so far and the current state. Raises NormError if the session was never open."""
        if self._state is not _State.CLOSED:
            self._check_open()
        stats, sockets = self._engine.stats, self._transport.stats
        return SessionStatistics(
            **stats.counters(),
            send_errors=sum(sockets.send_errors.values()),
            sends_blocked=sockets.sends_blocked,
            kernel_drops=self._transport.kernel_drops(),
            drops=stats.drops_by_name(),
            grtt_s=stats.grtt_s,
            queue_bytes=self._transmission.pending_bytes,
            events_waiting=len(self._events.waiting),
            events_waiting_bytes=self._events.waiting_bytes,
            receivers=len(self.receivers),
            receivers_evicted=len(self.evicted_receivers),
            is_paused=self._engine.is_paused,
            is_down=self._transport.is_down,
            warnings=len(self.warnings),
        )

    def readings(self) -> list[Reading]:
        """Return the counters for traces; see `fjm2.record`."""
        return [self.reading("session")]

    def reading(self, source: str) -> Reading:
        """Return the counters for traces, under the name `source`."""
        if self._state is _State.NEW:
            return Reading(source, {}, {}, {})
        stats = self._engine.stats
        gauges = {"grtt_s": stats.grtt_s, "queue_bytes": self._transmission.pending_bytes}
        return Reading(source, stats.counters(), gauges, stats.drops_by_name())

    @property
    def grtt_s(self) -> float:
        """Group round-trip time in seconds, as this session's sender estimates it."""
        return self._engine.grtt_s

    @property
    def refusal(self) -> str | None:
        """Reason of the kernel, such as "Operation not permitted", if it refused what was sent last although the
        interface is up. None if it did not."""
        return self._transport.refusal

    @property
    def warnings(self) -> tuple[str, ...]:
        """Problems of this host, each with advice for its operator."""
        return self._transport.warnings
