"""NORM for asyncio applications: a session is one node of a group, to send objects and streams and to take events."""

import asyncio
import os
import random
from collections import deque
from collections.abc import Callable, Iterable
from itertools import pairwise
from types import TracebackType
from typing import Self

from fjm2.base.errors import NormError
from fjm2.base.readings import Reading, register_counted, unregister_counted
from fjm2.norm.core.config import Flow, ReceiverConfig, SenderConfig, SessionConfig, Sync
from fjm2.norm.core.engine import Engine
from fjm2.norm.core.events import (
    Event,
    ObjectCompleted,
    StreamReceived,
    StreamWritable,
    TransmissionFlushed,
    WatermarkCompleted,
)
from fjm2.norm.core.receive.incoming_object import ObjectProgress
from fjm2.norm.core.send.sources import FileSource, MemorySource, Source
from fjm2.norm.core.stats import Stats
from fjm2.norm.core.train import Address
from fjm2.norm.core.wire import NODE_ANY

from .driver import Driver
from .statistics import SessionStatistics, StreamStatistics
from .udp import UdpConfig, UdpTransport

EVENT_BYTES_MAX = 64 << 20
"""More than so much received and not taken, and reception pauses."""
EVENTS_MAX = 65_536
_OWN_EVENTS_MAX = 1_000
_CLOSED = "the session was closed"
_BATCH_BYTES = 1 << 20
"""So much a stream collects before it makes its writer wait for the loop's turn."""
_BATCH_WRITES = 2_000
"""Likewise, in writes: a millisecond or two of them."""


def random_node_id() -> int:
    """A node id that is most likely nobody else's."""
    return random.SystemRandom().randrange(1, NODE_ANY)


class OutgoingStream:
    """An endless object: bytes with message marks, read by receivers while it is written."""

    def __init__(self, session: "Session", object_id: int) -> None:
        self.object_id = object_id
        """Transport id."""
        self._session = session
        self._parts: list[bytes | bytearray | memoryview] = []
        self._marks: list[int] = []
        self._size = 0
        self._messages_sent = self._bytes_sent = 0
        self._drained = asyncio.Event()
        self._is_closed = False
        self._is_ended = False
        """Whether the engine knows that no more will be written."""

    async def write(self, data: bytes | bytearray | memoryview, *, is_start: bool = True) -> None:
        """Append bytes; `is_start` marks the first as the beginning of a message. Not copied: leave them alone.

        They go out at the end of the loop's turn, together with what else is written until then. Waits only while the
        stream's buffer is full, or when much has been written in one turn.
        """
        if self._is_closed:
            raise NormError("write to a closed stream")
        self._session._check_open()
        if is_start:
            self._marks.append(self._size)
        self._parts.append(data)
        self._size += len(data)
        self._session._is_flushed = False
        self._session._driver.wake(self._hand_over)
        if self._size >= _BATCH_BYTES or len(self._parts) >= _BATCH_WRITES:
            await self.drain()

    def append(self, head: bytes, body: bytes = b"") -> bool:
        """Write one message, given in two parts, without waiting. True: await `drain()` before more."""
        if self._is_closed:
            raise NormError("write to a closed stream")
        size = self._size
        if not size:
            self._session._is_flushed = False
            self._session._driver.wake(self._hand_over)
        parts = self._parts
        self._marks.append(size)
        parts.append(head)
        parts.append(body)
        self._size = size = size + len(head) + len(body)
        return size >= _BATCH_BYTES or len(parts) >= _BATCH_WRITES

    @property
    def pending_bytes(self) -> int:
        """What was written and has no place in the buffer yet."""
        return self._size

    def statistics(self) -> StreamStatistics:
        """What it has done so far."""
        return StreamStatistics(
            messages_sent=self._messages_sent,
            payload_bytes_sent=self._bytes_sent,
            queue_messages=len(self._marks),
            queue_bytes=self._size,
            is_closed=self._is_closed,
        )

    async def drain(self) -> None:
        """Wait until all that was written has a place in the buffer."""
        while self._size:
            await self._wait_turn()

    async def close(self) -> None:
        """End the stream: receivers are told so behind the last byte. Twice does no harm."""
        if self._session._is_open:
            self._end_soon()
            while not self._is_ended:
                await self._wait_turn()

    def _hand_over(self) -> None:
        """Give the engine as much as it has room for. The driver calls this once a turn."""
        if self._is_ended:
            return
        engine, object_id = self._session._engine, self.object_id
        is_busy = self._size >= _BATCH_BYTES or len(self._parts) >= _BATCH_WRITES
        if self._size:
            parts = self._parts
            data = memoryview(parts[0] if len(parts) == 1 else b"".join(parts))
            taken = engine.write(object_id, data, self._marks)
            self._session._is_flushed = False
            self._parts = [data[taken:]] if taken < len(data) else []
            written = len(self._marks)
            self._marks = [mark - taken for mark in self._marks if mark >= taken]
            engine.stats.messages_sent += written - len(self._marks)
            self._messages_sent += written - len(self._marks)
            self._bytes_sent += taken
            self._size -= taken
        if not self._size:
            self._drained.set()
            if is_busy and not self._is_closed:
                # Who writes a whole batch most likely goes on. What fills no train waits for what follows, or a turn.
                self._session._driver.wake(self._hand_over)
                return
            engine.flush(object_id)
            if self._is_closed:
                engine.end_stream(object_id)
                self._session._is_flushed = False
                self._forget()

    def take_back(self) -> list[bytes]:
        """The whole messages that have not been handed over. They are the caller's from now on."""
        data, marks = b"".join(self._parts), self._marks
        self._parts, self._marks, self._size = [], [], 0
        return [data[start:end] for start, end in pairwise((*marks, len(data)))]

    def _end_soon(self) -> None:
        """Write no more; the end follows what is still to be handed over."""
        self._is_closed = True
        if not self._is_ended:
            self._session._driver.wake(self._hand_over)

    def _drop(self) -> None:
        """The engine has given the stream up, or the session is closed: what is still to be handed over is lost."""
        self._is_closed = True
        self._parts, self._marks, self._size = [], [], 0
        self._forget()
        self._drained.set()

    def _forget(self) -> None:
        self._is_ended = True
        self._session._streams.pop(self.object_id, None)

    async def _wait_turn(self) -> None:
        self._drained.clear()
        self._session._driver.wake(self._hand_over)
        await self._drained.wait()
        self._session._check_open()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the stream; an exception is not held up by a full buffer."""
        if kind is None:
            await self.close()
        elif self._session._is_open:
            self._end_soon()


class Session:
    """One node of a NORM group.

    Use it as `async with Session(...) as session:`. Leaving the block closes it at once; what was queued and should
    arrive takes a `flushed()` or a `watermark()` before. Events are taken by `async for event in session`; while nobody
    takes them, and the queue is full, reception pauses and goes on with repairs later.
    """

    system, layer, role = "fjm2", "norm", "node"
    """What traces call it."""

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
        """Check the settings; ConfigError says what is wrong. Nothing is opened yet.

        `group` is a multicast group, or the address of the one peer. `interface` is a name or a local address. A
        session that is `is_sender_only` ignores what others send, and gets no events of it.
        """
        self.config = SessionConfig(
            node_id=random_node_id() if node_id is None else node_id,
            sender=sender or SenderConfig(),
            receiver=None if is_sender_only else receiver or ReceiverConfig(),
        )
        """Its settings; the node id in them may have been drawn."""
        self.udp_config = UdpConfig(group=group, port=port, interface=interface, ttl=ttl, dscp=dscp, loopback=loopback)
        """What its sockets ask for."""
        self.is_counted_alone = True
        """Whether traces name it as it is; not where it is a part of something that they name."""
        self._random = random.Random(seed)
        self._events: deque[Event] = deque()
        self._event_bytes = 0
        self._arrived = asyncio.Event()
        self.on_events: Callable[[], None] | None = None
        """Called when there is something to `take()`, for those who do not want to wait for a turn of the loop. It
        must not raise."""
        self._changed = asyncio.Event()
        """Set whenever something happened that a sending coroutine may wait for."""
        self._room_queue = asyncio.Lock()
        """Those who wait for room in the cache get it in turn."""
        self._has_room = asyncio.Event()
        self._wanted_bytes: int | None = None
        """Room that is waited for."""
        self._streams: dict[int, OutgoingStream] = {}
        self._watermarks: dict[int, asyncio.Future[WatermarkCompleted]] = {}
        self._is_flushed = True
        self._is_open = False
        self._is_closed = False

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open" if self._is_open else "not open"
        return f"<Session {self.udp_config.group} port {self.udp_config.port}, node {self.node_id:#x}, {state}>"

    # Life.

    def open(self) -> None:
        """What entering `async with` does; then `close()` has to follow. The loop has to be running."""
        if self._is_open or self._is_closed:
            raise NormError("a session opens once")
        self._transport = UdpTransport(self.udp_config)
        group_is_multicast = self.udp_config.is_multicast
        self._engine = Engine(
            self.config, self._transport.destination, random=self._random, group_is_multicast=group_is_multicast
        )
        self._driver = Driver(self._engine, self._transport, self._take, self._after_turn)
        self._is_open = True
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
        """Say goodbye and close the sockets. What should arrive first: await `flushed()` or `watermark()`."""
        if not self._is_open:
            return
        self._is_open, self._is_closed = False, True
        try:
            self._engine.close()
            self._driver.close()
        finally:
            if self.is_counted_alone:
                unregister_counted(self)
            self._transport.close()
            self._arrived.set()
            self._changed.set()
            self._has_room.set()
            for stream in list(self._streams.values()):
                stream._drop()
            for future in self._watermarks.values():
                if not future.done():
                    future.set_exception(NormError(_CLOSED))

    def redraw_node_id(self) -> None:
        """Leave, and go on under another node id as a new sender, as when the id is somebody else's, too.

        What is being sent is given up: open streams are closed, but what a stream `take_back`s can go into a new one.
        """
        self._check_open()
        self._engine.leave()
        self._driver.send_goodbye()
        self._engine.renew(random_node_id(), self._random)
        self.config = self._engine.config
        for stream in list(self._streams.values()):
            stream._drop()
        watermarks, self._watermarks = self._watermarks, {}
        for future in watermarks.values():
            if not future.done():
                future.set_exception(NormError(f"the node id was in use elsewhere, and is {self.node_id:#x} now"))
        self._is_flushed = True
        self._changed.set()
        self._driver.wake()

    # Sending.

    async def send_data(self, data: bytes | bytearray | memoryview, *, info: bytes | None = None) -> int:
        """Send bytes as one object, which is not copied: leave it alone. The transport id.

        Waits while the cache is full of objects that are still to be sent.
        """
        return await self._send(MemorySource(data), info, is_file=False)

    async def send_file(self, path: str | os.PathLike[str], *, info: bytes | None = None) -> int:
        """Send a file as one object, read as it goes. `info` is its base name if none is given. The transport id."""
        name = os.fsencode(os.path.basename(path)) if info is None else info
        return await self._send(FileSource(path), name, is_file=True)

    async def _send(self, source: Source, info: bytes | None, is_file: bool) -> int:
        try:
            async with self._room_queue:
                await self._wait_room(source.memory_bytes)
                object_id = self._engine.enqueue(source, info, is_file, self._driver.now())
        except BaseException:
            source.close()
            raise
        self._is_flushed = False
        self._driver.wake()
        return object_id

    async def open_stream(self, *, info: bytes | None = None) -> OutgoingStream:
        """Begin a stream. Waits like `send_data`."""
        async with self._room_queue:
            await self._wait_room(self.config.sender.stream_bytes)
            return self._add_stream(info)

    def open_stream_now(self) -> OutgoingStream:
        """Begin a stream without waiting. NormError if the cache is full of objects that are still to be sent."""
        self._check_open()
        if not self._engine.has_room(self.config.sender.stream_bytes):
            raise NormError("the cache is full of objects that are still to be sent")
        return self._add_stream(None)

    def _add_stream(self, info: bytes | None) -> OutgoingStream:
        stream = OutgoingStream(self, self._engine.open_stream(info, self._driver.now()))
        self._streams[stream.object_id] = stream
        if info is not None:
            self._is_flushed = False
            self._driver.wake()
        return stream

    async def _wait_room(self, size: int) -> None:
        self._check_open()
        while not self._engine.has_room(size):
            self._wanted_bytes = size
            self._has_room.clear()
            await self._has_room.wait()
            self._check_open()

    def _after_turn(self) -> None:
        """After each of the driver's turns."""
        if self._wanted_bytes is not None and self._engine.has_room(self._wanted_bytes):
            self._wanted_bytes = None
            self._has_room.set()
        if self._events and self.on_events is not None:
            self.on_events()

    async def flushed(self) -> None:
        """Wait until all that was queued has been sent, repaired as far as asked for, and flushed."""
        self._check_open()
        while not self._is_flushed:
            self._changed.clear()
            await self._changed.wait()
            self._check_open()

    async def watermark(self, nodes: Iterable[int] | None = None) -> WatermarkCompleted:
        """Ask nodes to confirm all that was queued and written so far, and wait for the outcome.

        Without nodes, all are asked that flow control has known: those it waits for, and those it gave up meanwhile.
        """
        self._check_open()
        if nodes is None:
            nodes = self._known_receivers()
        for stream in list(self._streams.values()):
            await stream.drain()
        number = self._engine.watermark(tuple(nodes), self._driver.now())
        future: asyncio.Future[WatermarkCompleted] = asyncio.get_running_loop().create_future()
        self._watermarks[number] = future
        self._driver.wake()
        return await future

    def _known_receivers(self) -> frozenset[int]:
        if self.config.sender.flow is Flow.MAX:
            raise NormError("nodes: expected, for with flow=max no receiver is known")
        return self.receivers | self.evicted_receivers

    def set_receivers(self, nodes: Iterable[int], strangers: Iterable[int] = ()) -> None:
        """Let flow control wait for these nodes (and, with `flow=min`, for all others that answer but strangers)."""
        self._engine.set_receivers(frozenset(nodes), self._driver.now(), frozenset(strangers))

    def forget_receiver(self, node: int) -> None:
        """A node has said that it leaves: neither flow control nor watermarks wait for it any more."""
        self._engine.forget_receiver(node, self._driver.now())
        self._driver.wake()

    @property
    def receivers(self) -> frozenset[int]:
        """The nodes that flow control waits for at present."""
        return self._engine.receivers

    @property
    def awaited_receivers(self) -> frozenset[int]:
        """Those of them that have still to confirm what was asked last: where all stands still, it is for them."""
        return self._engine.awaited_receivers

    @property
    def evicted_receivers(self) -> frozenset[int]:
        """Those that it waits for no more, as they were silent for too long, unless they came back or left since."""
        return self._engine.evicted_receivers

    def cancel(self, object_id: int) -> None:
        """Send nothing more of an object; those who miss parts of it are told that it is gone."""
        self._check_open()
        self._engine.cancel(object_id, self._driver.now())
        if object_id in self._streams:
            self._streams[object_id]._drop()
        self._driver.wake()

    def send_command(self, content: bytes, *, is_robust: bool = False) -> None:
        """Send a short message besides all objects; a robust one is repeated, and may arrive as often."""
        self._check_open()
        self._engine.send_command(content, is_robust, self._driver.now())
        self._driver.wake()

    def _check_open(self) -> None:
        if not self._is_open:
            raise NormError(_CLOSED if self._is_closed else "the session is not open: expected `async with` before")

    # Receiving.

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if not self._is_open:
                if self._is_closed:
                    raise StopAsyncIteration
                self._check_open()
            self._arrived.clear()
            await self._arrived.wait()
        return self._next_event()

    def take(self) -> Event | None:
        """The next event, if there is one."""
        return self._next_event() if self._events else None

    def _next_event(self) -> Event:
        event = self._events.popleft()
        self._event_bytes -= _size_of(event)
        if self._engine.is_paused and self._event_bytes * 2 < EVENT_BYTES_MAX and len(self._events) * 2 < EVENTS_MAX:
            self._engine.is_paused = False
        return event

    @property
    def incoming(self) -> tuple[ObjectProgress, ...]:
        """How far the objects are that are on their way in, as it is now; streams are not among them."""
        return self._engine.incoming if self._is_open else ()

    def set_sync(self, sync: Sync) -> None:
        """Where reception of streams begins that are heard of from now on: at present ones or at their beginnings."""
        self._engine.set_sync(sync)

    def ignore(self, addresses: Iterable[Address]) -> None:
        """Take nothing that comes from these: other sessions of the same application."""
        self._transport.ignore(addresses)

    def _take(self, event: Event) -> None:
        """What the driver hands up."""
        match event:
            case StreamWritable(object_id) if object_id in self._streams:
                self._driver.wake(self._streams[object_id]._hand_over)
            case WatermarkCompleted(number):
                future = self._watermarks.pop(number, None)
                if future is not None and not future.done():
                    future.set_result(event)
            case TransmissionFlushed():
                self._is_flushed = not any(stream._size for stream in self._streams.values())
            case _:
                pass
        self._changed.set()
        if self.config.receiver is None and len(self._events) >= _OWN_EVENTS_MAX:
            self._events.popleft()  # those who only send need not listen
        self._events.append(event)
        self._event_bytes += _size_of(event)
        if self._event_bytes >= EVENT_BYTES_MAX or len(self._events) >= EVENTS_MAX:
            self._engine.is_paused = True
        self._arrived.set()

    # Looking.

    @property
    def node_id(self) -> int:
        """Ours in the group; drawn at random unless it was given."""
        return self.config.node_id

    @property
    def address(self) -> Address:
        """Whom others see sending; it can change when the interface does."""
        return self._transport.address

    @property
    def stats(self) -> Stats:
        """Counters since the session was opened."""
        return self._engine.stats

    def statistics(self) -> SessionStatistics:
        """What it has done so far, and how it stands. NormError before it is open."""
        if not self._is_closed:
            self._check_open()
        stats, sockets = self._engine.stats, self._transport.stats
        return SessionStatistics(
            **stats.counters(),
            send_errors=sum(sockets.send_errors.values()),
            sends_blocked=sockets.sends_blocked,
            kernel_drops=self._transport.kernel_drops(),
            drops=stats.drops_by_name(),
            grtt_s=stats.grtt_s,
            queue_bytes=sum(stream.pending_bytes for stream in list(self._streams.values())),
            events_waiting=len(self._events),
            events_waiting_bytes=self._event_bytes,
            receivers=len(self.receivers),
            receivers_evicted=len(self.evicted_receivers),
            is_paused=self._engine.is_paused,
            is_down=self._transport.is_down,
            warnings=len(self.warnings),
        )

    def readings(self) -> list[Reading]:
        """The same for traces, see `fjm2.record`."""
        return [self.reading("session")]

    def reading(self, source: str) -> Reading:
        """Likewise, under another name."""
        if not (self._is_open or self._is_closed):
            return Reading(source, {}, {}, {})
        stats = self._engine.stats
        queued = sum(stream.pending_bytes for stream in list(self._streams.values()))
        gauges = {"grtt_s": stats.grtt_s, "queue_bytes": queued}
        return Reading(source, stats.counters(), gauges, stats.drops_by_name())

    @property
    def grtt_s(self) -> float:
        """The group's round-trip time as this session's sender estimates it."""
        return self._engine.grtt_s

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the operator of this host should know."""
        return self._transport.warnings


def _size_of(event: Event) -> int:
    if isinstance(event, StreamReceived):
        return len(event.data)
    if isinstance(event, ObjectCompleted) and event.data is not None:
        return event.size
    return 0
