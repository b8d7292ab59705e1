"""Nodes of the simulated network (`sim`), which each run an `Engine`."""

import math
import os
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, Protocol, TypeVar

import numpy as np

from fjm2.base.errors import NormError
from fjm2.norm.core.config import SessionConfig
from fjm2.norm.core.engine import Engine
from fjm2.norm.core.events import (
    Event,
    ObjectCompleted,
    ObjectLost,
    ObjectsMissed,
    StreamEnded,
    StreamReceived,
    StreamWritable,
)
from fjm2.norm.core.send.sources import FileSource, MemorySource
from fjm2.norm.core.stats import Stats
from fjm2.norm.core.timers import NEVER
from fjm2.norm.core.train import Address, Train

from .link import Place

BACKLOG_BYTES: Final = 4 << 20
"""Bytes that may wait for a paused node, as in its socket's buffer. Trains that do not fit are lost."""
_CLOCK_SPREAD_S: Final = 1e5
"""Maximum number of seconds by which clocks of nodes differ. No run takes that long, so no time of one node suits
another node."""
_ROUNDING_S: Final = 1e-9
"""Seconds before a deadline at which it counts as reached, because adding and subtracting times rounds them."""

_Kind = TypeVar("_Kind", bound=Event)
_Result = TypeVar("_Result")


class World(Protocol):
    """Part of the network that its nodes use."""

    @property
    def now(self) -> float:
        """Virtual seconds since the beginning."""

    def send(self, node: "Node", train: Train) -> None:
        """Carry a train to its address."""

    def wake(self, node: "Node", at: float) -> None:
        """Call the node's `wake` at the virtual time `at`."""

    def notice(self) -> None:
        """Note that a node received an event, so that the condition of `Network.run_until` is checked."""


@dataclass(slots=True)
class Log:
    """Record of everything that a node received since it was made, or since its last `rejoin`."""

    keep: bool = True
    """True to keep content and events, False to count them only."""
    history: list[tuple[float, Event]] = field(default_factory=list)
    """Time and event of everything received, except for `StreamReceived` events."""
    objects: list[ObjectCompleted] = field(default_factory=list)
    """Events of the objects that arrived complete."""
    runs: dict[tuple[int, int], list[StreamReceived]] = field(default_factory=dict)
    """`StreamReceived` events of each stream in order, by sender id and object id."""
    objects_completed: int = 0
    """Number of objects that arrived complete, and of streams that arrived to their end."""
    losses: int = 0
    """Number of events that reported lost objects."""
    stream_bytes: int = 0
    """Number of bytes received of all streams."""
    digest: int = 0
    """CRC-32 of all content, in the order in which it was received."""
    completed_at: float = NEVER
    """Virtual time at which the last object was completed; infinity if none was."""

    def take(self, event: Event, now: float) -> None:
        """Record an event."""
        match event:
            case StreamReceived():
                self.stream_bytes += len(event.data)
                self.digest = zlib.crc32(event.data, self.digest)
                if self.keep:
                    self.runs.setdefault((event.sender_id, event.object_id), []).append(event)
                return
            case ObjectCompleted():
                self.objects_completed += 1
                self.completed_at = now
                self.digest = zlib.crc32(event.data or b"", self.digest)
                if self.keep:
                    self.objects.append(event)
            case StreamEnded():
                self.objects_completed += 1
                self.completed_at = now
            case ObjectLost() | ObjectsMissed():
                self.losses += 1
        if self.keep:
            self.history.append((now, event))

    def stream(self, sender_id: int, object_id: int) -> bytes:
        """Return everything that was received of a stream."""
        return b"".join(run.data for run in self.runs.get((sender_id, object_id), ()))


class _Clock:
    """Clock of one node. The clocks of nodes disagree, so that a node can only echo times that another node sends."""

    __slots__ = ("_latest", "_world", "ahead_s")

    def __init__(self, world: World, ahead_s: float) -> None:
        self._world = world
        self.ahead_s = ahead_s
        """Seconds by which the clock is ahead of the network's virtual time."""
        self._latest = -NEVER

    def now(self) -> float:
        """Return the time on this clock, which never goes backwards."""
        now = self._world.now + self.ahead_s
        if now < self._latest:
            return self._latest
        self._latest = now
        return now

    def advance_to(self, time: float) -> float:
        """Let the clock show at least the time `time`, and return the time that it shows."""
        self._latest = max(self.now(), time)
        return self._latest


@dataclass(slots=True)
class _Stream:
    """An open stream, with parts that were written and wait for room in the engine."""

    parts: deque[tuple[memoryview, tuple[int, ...]]] = field(default_factory=deque)
    is_ending: bool = False


class _Streams:
    """Open streams of a node, with the data written to them that the engine has no room for yet."""

    __slots__ = ("_by_id", "default")

    def __init__(self) -> None:
        self._by_id: dict[int, _Stream] = {}
        self.default: int | None = None
        """Id of the stream that `Node.write` writes to if none is named."""

    def __bool__(self) -> bool:
        return bool(self._by_id)

    def add(self, stream: int) -> None:
        """Begin a stream."""
        self._by_id[stream] = _Stream()

    def write(self, stream: int, data: bytes, marks: Sequence[int]) -> None:
        """Append to a stream."""
        self._by_id[stream].parts.append((memoryview(data), tuple(marks)))

    def end(self, stream: int) -> None:
        """End a stream after everything that was written."""
        self._by_id[stream].is_ending = True

    def clear(self) -> None:
        """Forget all streams."""
        self._by_id.clear()

    def hand_over(self, engine: Engine) -> None:
        """Hand over to the engine as much of what was written as it has room for."""
        for number, stream in list(self._by_id.items()):
            while stream.parts:
                data, marks = stream.parts.popleft()
                taken = engine.write(number, data, marks)
                if taken < len(data):
                    stream.parts.appendleft((data[taken:], tuple(mark - taken for mark in marks if mark >= taken)))
                    break
                if not stream.parts:
                    engine.flush(number)
            if stream.is_ending and not stream.parts:
                engine.end_stream(number)
                del self._by_id[number]
                self.default = None if number == self.default else self.default


class Node(Place):
    """A host with an engine. Commands take effect when the network runs."""

    def __init__(self, world: World, address: Address, config: SessionConfig, group: Address, random: Random) -> None:
        super().__init__(address[0])
        self.address = address
        """Address that the node sends from."""
        self.config = config
        """Settings of the node's engine."""
        self.is_paused = False
        """True while the node does nothing, like a process that is stopped."""
        self.keep = True
        """True if the logs of the node keep content and events; see `Log.keep`."""
        self._world = world
        self._group_address = group
        self._random = random
        self._clock = _Clock(world, random.random() * _CLOCK_SPREAD_S)
        self._wake_at = NEVER
        self._backlog: list[tuple[Train, bool]] = []
        self._begin()

    def _begin(self) -> None:
        self._engine: Engine | None = Engine(self.config, self._group_address, random=self._random)
        self._engine.own_address = self.address
        self.stats: Stats = self._engine.stats
        """Counters since the node was made, or since its last `rejoin`. A crash does not change them."""
        self.log = Log(self.keep)
        self._streams = _Streams()

    # Observing.

    @property
    def engine(self) -> Engine:
        """Engine of the node. Raises NormError while the node is down."""
        if self._engine is None:
            raise NormError(f"{self} is down")
        return self._engine

    @property
    def node_id(self) -> int:
        """Id of this node in the group."""
        return self.config.node_id

    @property
    def received(self) -> bytes:
        """Content received of all streams, one after the other."""
        return b"".join(run.data for runs in self.log.runs.values() for run in runs)

    @property
    def objects(self) -> list[bytes]:
        """Content of all objects in memory, in the order in which they were completed."""
        return [bytes(event.data) for event in self.log.objects if event.data is not None]

    def events(self, kind: type[_Kind]) -> list[_Kind]:
        """Return all events of a class that the node has received so far."""
        return [event for _, event in self.log.history if isinstance(event, kind)]

    # Commands of the application.

    def write(self, data: bytes, marks: Sequence[int] = (), *, stream: int | None = None) -> int:
        """Append to a stream, flush it, and return its id. Bytes that find no room wait.

        Without `stream`, append to the node's default stream, which is opened if it is not open.
        """
        if stream is None:
            default = self._streams.default
            stream = self._streams.default = self.open_stream() if default is None else default
        self._streams.write(stream, data, marks)
        self._wake_now()
        return stream

    def open_stream(self, info: bytes | None = None, *, is_passing: bool = False) -> int:
        """Open a stream and return its id."""
        stream = self.engine.open_stream(info, self._clock.now(), is_passing=is_passing)
        self._streams.add(stream)
        self._wake_now()
        return stream

    def keep_stream(self, stream: int) -> None:
        """Have everything kept that is written to a passing stream from now on."""
        self._streams.hand_over(self.engine)
        self.engine.keep_stream(stream)
        self._wake_now()

    def end_stream(self, stream: int | None = None) -> None:
        """End a stream after everything that was written."""
        stream = self._streams.default if stream is None else stream
        if stream is None:
            raise NormError("no stream is open")
        self._streams.end(stream)
        self._wake_now()

    def send(self, data: bytes, info: bytes | None = None) -> int:
        """Send an object and return its id."""
        return self._command(lambda engine, now: engine.enqueue(MemorySource(data), info, False, now))

    def send_file(self, path: str | os.PathLike[str], info: bytes | None = None) -> int:
        """Send a file and return its id."""
        return self._command(lambda engine, now: engine.enqueue(FileSource(path), info, True, now))

    def watermark(self, nodes: Sequence["Node | int"], *, timeout_s: float = math.inf) -> int:
        """Ask nodes to confirm everything that was sent, and return the watermark's number."""
        return self._command(lambda engine, now: engine.watermark(sorted(_ids(nodes)), now, timeout_s))

    def end_watermark(self, number: int) -> None:
        """Complete a watermark now: nodes that have not confirmed it have failed."""
        self._command(lambda engine, now: engine.end_watermark(number, now))

    def set_receivers(self, nodes: Sequence["Node | int"], strangers: Sequence["Node | int"] = ()) -> None:
        """Let flow control wait for these nodes, and never for strangers."""
        self._command(lambda engine, now: engine.set_receivers(_ids(nodes), now, _ids(strangers)))

    def forget_receiver(self, node: "Node | int") -> None:
        """Stop waiting for a node that has said goodbye."""
        self._command(lambda engine, now: engine.forget_receiver(min(_ids([node])), now))

    def command(self, content: bytes, is_robust: bool = False) -> None:
        """Send a CMD(APPLICATION)."""
        self._command(lambda engine, now: engine.send_command(content, is_robust, now))

    def request_acks(self, ack_type: int, nodes: Sequence["Node | int"] = (), ack_id: int = 0) -> None:
        """Ask nodes for an acknowledgement of the application."""
        self._command(lambda engine, _: engine.request_acks(ack_type, sorted(_ids(nodes)), ack_id))

    def repeat_flush(self, nodes: Sequence["Node | int"] = ()) -> None:
        """Tell receivers once more how far the data go, and ask nodes to confirm it."""
        self._command(lambda engine, now: engine.repeat_flush(tuple(sorted(_ids(nodes))), now))

    def send_ack(self, sender: "Node | int", ack_type: int, content: bytes = b"", ack_id: int = 0) -> bool:
        """Send an acknowledgement of the application to a sender."""
        return self._command(lambda engine, now: engine.send_ack(min(_ids([sender])), ack_type, content, now, ack_id))

    def cancel(self, object_id: int) -> None:
        """Stop sending an object."""
        self._command(lambda engine, now: engine.cancel(object_id, now))

    def close(self) -> None:
        """Leave with a goodbye. The node is down from then on."""
        engine = self.engine
        engine.close()
        self._streams.clear()
        self._settle(engine, self._clock.now())
        self._engine = None

    def transmit(self, data: bytes, to: Address | None = None) -> None:
        """Put a datagram on the wire as it is, past the engine, as strangers and attackers do."""
        array = np.frombuffer(data, np.uint8)
        self._world.send(self, Train(array, array.size, to or self._group_address))

    # Faults.

    def crash(self) -> None:
        """Stop at once and lose everything but the log."""
        engine, self._engine = self.engine, None
        engine.close()  # closes its files; what it would send is never polled
        self._backlog.clear()
        self.is_paused = False

    def rejoin(self, node_id: int | None = None) -> None:
        """Start again after a crash, with a new log, and as another node if an id is given."""
        if node_id is not None:
            self.config = SessionConfig(node_id=node_id, sender=self.config.sender, receiver=self.config.receiver)
        self._begin()

    def pause(self) -> None:
        """Do nothing until `resume`. Trains that arrive wait, as far as there is room."""
        self.is_paused = True

    def resume(self) -> None:
        """Continue with everything that has arrived."""
        self.is_paused = False
        backlog, self._backlog = self._backlog, []
        for train, by_unicast in backlog:
            self.receive(train, by_unicast)
        self._wake_now()

    # Calls of the network.

    def receive(self, train: Train, by_unicast: bool) -> None:
        """Handle a train that arrives."""
        if self._engine is None:
            return
        if self.is_paused:
            if sum(waiting.data.size for waiting, _ in self._backlog) + train.data.size <= BACKLOG_BYTES:
                self._backlog.append((train, by_unicast))
            return
        now = self._clock.now()
        self._engine.receive_train(train, now, by_unicast)
        self._settle(self._engine, now)

    def wake(self, at: float) -> None:
        """Act on the deadline `at`, unless an earlier deadline has replaced it meanwhile."""
        if at != self._wake_at:
            return
        self._wake_at = NEVER
        engine = self._engine
        if engine is None or self.is_paused:
            return
        deadline = engine.poll_timeout()
        now = self._clock.now()
        if deadline - now < _ROUNDING_S:
            now = self._clock.advance_to(deadline)
            engine.handle_timeout(now)
        self._settle(engine, now)

    def _settle(self, engine: Engine, now: float) -> None:
        """Send what is due, record what happened, and arm the timer."""
        while True:
            if self._streams:
                self._streams.hand_over(engine)
            train = engine.poll_train(now)
            if train is None:
                break
            self._world.send(self, train)
        while (event := engine.poll_event()) is not None:
            self.log.take(event, self._world.now)
            self._world.notice()
            if isinstance(event, StreamWritable):
                self._wake_now()
        deadline = engine.poll_timeout() - self._clock.ahead_s
        if deadline < self._wake_at:
            self._wake_at = max(deadline, self._world.now)
            self._world.wake(self, self._wake_at)

    def _command(self, command: Callable[[Engine, float], _Result]) -> _Result:
        result = command(self.engine, self._clock.now())
        self._wake_now()
        return result

    def _wake_now(self) -> None:
        if self._world.now < self._wake_at:
            self._wake_at = self._world.now
            self._world.wake(self, self._wake_at)


def _ids(nodes: Sequence[Node | int]) -> frozenset[int]:
    return frozenset(node if isinstance(node, int) else node.node_id for node in nodes)
