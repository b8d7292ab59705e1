"""Places of the simulated network (`sim`): routers, and nodes that each run an `Engine`."""

import os
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol, TypeVar

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

BACKLOG_BYTES = 4 << 20
"""What waits for a paused node, as in its socket's buffer; more is lost."""
_CLOCK_SPREAD_S = 1e5

_Kind = TypeVar("_Kind", bound=Event)


class World(Protocol):
    """What a node knows of the network that it is part of."""

    @property
    def now(self) -> float:
        """Virtual seconds since the beginning."""

    def send(self, node: "Node", train: Train) -> None:
        """Carry a train to whom it is addressed."""

    def wake(self, node: "Node", at: float) -> None:
        """Call the node's `wake` at that time."""

    def notice(self) -> None:
        """Something happened that somebody may be waiting for."""


@dataclass(slots=True)
class Log:
    """What one life of a node was told."""

    keep: bool = True
    """Whether content and events are kept; else they are only counted."""
    history: list[tuple[float, Event]] = field(default_factory=list)
    """Everything but the runs of streams, and when it was."""
    objects: list[ObjectCompleted] = field(default_factory=list)
    """Objects that arrived complete."""
    runs: dict[tuple[int, int], list[StreamReceived]] = field(default_factory=dict)
    """By sender and object id: the runs of a stream, in order."""
    objects_completed: int = 0
    """Objects, and streams to their end."""
    losses: int = 0
    """Objects that were reported lost."""
    stream_bytes: int = 0
    """Bytes of all streams."""
    digest: int = 0
    """CRC-32 of all content in the order it was handed up."""
    completed_at: float = NEVER
    """When the last object was completed."""

    def take(self, event: Event, now: float) -> None:
        """Note what happened."""
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
        """All that came of a stream."""
        return b"".join(run.data for run in self.runs.get((sender_id, object_id), ()))


@dataclass(slots=True)
class _Writing:
    """A stream of which parts still wait for room."""

    parts: deque[tuple[memoryview, tuple[int, ...]]] = field(default_factory=deque)
    is_ending: bool = False


class Node(Place):
    """A host with an engine. Commands take effect once the network runs."""

    def __init__(self, world: World, address: Address, config: SessionConfig, group: Address, random: Random) -> None:
        super().__init__(address[0])
        self.address = address
        """From where others hear it."""
        self.config = config
        """The settings of its engine."""
        self.is_paused = False
        """Whether it takes nothing, as a process that is stopped."""
        self.keep = True
        """Whether logs keep content; see `Log`."""
        self._world = world
        self._group_address = group
        self._random = random
        self._clock_s = random.random() * _CLOCK_SPREAD_S
        """Clocks disagree: what one node says of time, others can only send back."""
        self._clock_at = -NEVER
        self._wake_at = NEVER
        self._backlog: list[tuple[Train, bool]] = []
        self._begin()

    def _begin(self) -> None:
        self._engine: Engine | None = Engine(self.config, self._group_address, random=self._random)
        self._engine.own_address = self.address
        self.stats: Stats = self._engine.stats
        """Of this life, or of the last one."""
        self.log = Log(self.keep)
        self._writing: dict[int, _Writing] = {}
        self._stream: int | None = None

    # What the test asks.

    @property
    def engine(self) -> Engine:
        """The engine itself; a NormError while the node is down."""
        if self._engine is None:
            raise NormError(f"{self} is down")
        return self._engine

    @property
    def node_id(self) -> int:
        """In the group."""
        return self.config.node_id

    @property
    def received(self) -> bytes:
        """The content of all streams, one after the other."""
        return b"".join(run.data for runs in self.log.runs.values() for run in runs)

    @property
    def objects(self) -> list[bytes]:
        """The content of all objects in memory, in the order they were completed."""
        return [bytes(event.data) for event in self.log.objects if event.data is not None]

    def events(self, kind: type[_Kind]) -> list[_Kind]:
        """All events of a kind so far."""
        return [event for _, event in self.log.history if isinstance(event, kind)]

    # What the application does.

    def write(self, data: bytes, marks: Sequence[int] = (), *, stream: int | None = None) -> int:
        """Append to a stream, by default to this node's one, and flush; what finds no room waits. The stream's id."""
        if stream is None:
            stream = self._stream = self.open_stream() if self._stream is None else self._stream
        self._writing[stream].parts.append((memoryview(data), tuple(marks)))
        self._wake_now()
        return stream

    def open_stream(self, info: bytes | None = None) -> int:
        """Begin a stream. Its id."""
        stream = self.engine.open_stream(info, self._now())
        self._writing[stream] = _Writing()
        self._wake_now()
        return stream

    def end_stream(self, stream: int | None = None) -> None:
        """Close a stream behind all that has been written."""
        stream = self._stream if stream is None else stream
        if stream is None:
            raise NormError("no stream is open")
        self._writing[stream].is_ending = True
        self._wake_now()

    def send(self, data: bytes, info: bytes | None = None) -> int:
        """Send an object. Its id."""
        return self._command(lambda engine, now: engine.enqueue(MemorySource(data), info, False, now))

    def send_file(self, path: str | os.PathLike[str], info: bytes | None = None) -> int:
        """Send a file. Its id."""
        return self._command(lambda engine, now: engine.enqueue(FileSource(path), info, True, now))

    def watermark(self, nodes: Sequence["Node | int"]) -> int:
        """Ask nodes to confirm all that was sent. The watermark's number."""
        ids = [node if isinstance(node, int) else node.node_id for node in nodes]
        return self._command(lambda engine, now: engine.watermark(ids, now))

    def command(self, content: bytes, is_robust: bool = False) -> None:
        """Send a CMD(APPLICATION)."""
        self._command(lambda engine, now: engine.send_command(content, is_robust, now))

    def cancel(self, object_id: int) -> None:
        """Send nothing more of an object."""
        self._command(lambda engine, now: engine.cancel(object_id, now))

    def close(self) -> None:
        """Leave with a goodbye, and be down from then on."""
        engine = self.engine
        engine.close()
        self._writing.clear()
        self._settle(engine, self._now())
        self._engine = None

    def transmit(self, data: bytes, to: Address | None = None) -> None:
        """Put a datagram on the wire as it is, past the engine: what strangers and attackers do."""
        array = np.frombuffer(data, np.uint8)
        self._world.send(self, Train(array, array.size, to or self._group_address))

    # What befalls it.

    def crash(self) -> None:
        """Stop at once and forget everything but the log."""
        engine, self._engine = self.engine, None
        engine.close()  # for its files; nobody polls what it would say
        self._backlog.clear()
        self.is_paused = False

    def rejoin(self, node_id: int | None = None) -> None:
        """Begin a new life with a new log, after a crash, as another node if an id is given."""
        if node_id is not None:
            self.config = SessionConfig(node_id=node_id, sender=self.config.sender, receiver=self.config.receiver)
        self._begin()

    def pause(self) -> None:
        """Do nothing until it is resumed; what comes meanwhile waits, as far as there is room."""
        self.is_paused = True

    def resume(self) -> None:
        """Go on with all that has come."""
        self.is_paused = False
        backlog, self._backlog = self._backlog, []
        for train, by_unicast in backlog:
            self.receive(train, by_unicast)
        self._wake_now()

    # What the network does.

    def receive(self, train: Train, by_unicast: bool) -> None:
        """A train has come."""
        if self._engine is None:
            return
        if self.is_paused:
            if sum(waiting.data.size for waiting, _ in self._backlog) + train.data.size <= BACKLOG_BYTES:
                self._backlog.append((train, by_unicast))
            return
        now = self._now()
        self._engine.receive_train(train, now, by_unicast)
        self._settle(self._engine, now)

    def wake(self, at: float) -> None:
        """It is time, if nothing has come between."""
        if at != self._wake_at:
            return
        self._wake_at = NEVER
        engine = self._engine
        if engine is None or self.is_paused:
            return
        deadline = engine.poll_timeout()
        now = self._now()
        if deadline - now < 1e-9:  # clocks are added and subtracted: that rounds
            now = self._clock_at = max(now, deadline)
            engine.handle_timeout(now)
        self._settle(engine, now)

    def _settle(self, engine: Engine, now: float) -> None:
        """Send what is due, take what happened, arm the timer."""
        while True:
            if self._writing:
                self._pump(engine)
            train = engine.poll_train(now)
            if train is None:
                break
            self._world.send(self, train)
        while (event := engine.poll_event()) is not None:
            self.log.take(event, self._world.now)
            self._world.notice()
            if isinstance(event, StreamWritable):
                self._wake_now()
        deadline = engine.poll_timeout() - self._clock_s
        if deadline < self._wake_at:
            self._wake_at = max(deadline, self._world.now)
            self._world.wake(self, self._wake_at)

    def _pump(self, engine: Engine) -> None:
        """Write what there is room for."""
        for stream, writing in list(self._writing.items()):
            while writing.parts:
                data, marks = writing.parts.popleft()
                taken = engine.write(stream, data, marks)
                if taken < len(data):
                    writing.parts.appendleft((data[taken:], tuple(mark - taken for mark in marks if mark >= taken)))
                    break
                if not writing.parts:
                    engine.flush(stream)
            if writing.is_ending and not writing.parts:
                engine.end_stream(stream)
                del self._writing[stream]
                self._stream = None if stream == self._stream else self._stream

    def _command(self, command: Callable[[Engine, float], "_Result"]) -> "_Result":
        result = command(self.engine, self._now())
        self._wake_now()
        return result

    def _wake_now(self) -> None:
        if self._world.now < self._wake_at:
            self._wake_at = self._world.now
            self._world.wake(self, self._wake_at)

    def _now(self) -> float:
        """By this node's own clock."""
        now = self._world.now + self._clock_s
        if now < self._clock_at:
            return self._clock_at
        self._clock_at = now
        return now


_Result = TypeVar("_Result")
