"""The arena of an attack: the attacked engine (the target) and the honest nodes around it.

Everything happens in virtual time. The honest senders get something to send now and then. Datagrams between the nodes
are delayed, and some are lost. What is delivered during the attack is compared with what was sent.
"""

import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fjm2.norm.core.config import Fec, ReceiverConfig, SenderConfig, SessionConfig, Sync
from fjm2.norm.core.engine import Engine, sender_of
from fjm2.norm.core.send.sources import MemorySource
from fjm2.norm.core.train import Address, Train
from fjm2.norm.events import Event, ObjectCompleted, StreamLost, StreamReceived

from .attacker import Attacker
from .figures import TIMERS, Figures
from .limits import HEADERS_BYTES, SLOWEST_S, Broken, resident_bytes
from .target import GROUP, HONEST_RECEIVER, HONEST_SENDER, TARGET, Sight

DELAY_S = 0.002
HONEST_LOSS = 0.02
START = 100.0
QUIET_S = 0.5
"""Time before attacks and losses begin, in which the honest nodes get to know each other."""
RECOVERY_S = 120.0
"""Longest virtual time after the attack until the honest transfers are complete."""

SENDERS = (
    SenderConfig(segment_bytes=500, rate_bps=4e6, grtt_max_s=0.25, cache_bytes=1 << 20, stream_bytes=1 << 19),
    SenderConfig(
        segment_bytes=500,
        block_segments=20,
        fec=Fec.RS,
        parity_segments=10,
        rate_bps=4e6,
        grtt_max_s=0.25,
        cache_bytes=1 << 20,
        stream_bytes=1 << 19,
        auto_parity=1,
    ),
    SenderConfig(segment_bytes=500, fec=Fec.NOCODE, rate_bps=4e6, grtt_max_s=0.25, stream_bytes=1 << 19),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of an arena's nodes, and the speed of the attack."""

    receiver: ReceiverConfig
    """Settings of the target as a receiver."""
    sender: SenderConfig
    """Settings of the target as a sender."""
    partner: SenderConfig
    """Settings of the honest sender."""
    step_s: float
    """Time between two hostile datagrams."""

    @classmethod
    def draw(cls, random: Random) -> Self:
        is_unicast = random.random() < 0.5
        receiver = ReceiverConfig(
            sync=random.choice(list(Sync)),
            unicast_nack=is_unicast,
            object_bytes_max=1 << 30,
            stream_bytes_max=1 << 19,
            total_bytes_max=32 << 20,
            objects_max=random.choice((16, 256)),
            senders_max=random.choice((16, 128, 1024)),
        )
        sender = random.choice(SENDERS)
        step_s = random.choice((2e-6, 5e-5, 5e-5, 1e-3))
        return cls(receiver, sender, random.choice(SENDERS), step_s)


@dataclass(slots=True)
class Tally:
    """Bytes of an attack, headers included, and the memory in use at its start.

    `bytes_in` are those that attackers sent to the target, by source address.
    """

    bytes_in: Counter[Address] = field(default_factory=Counter)
    bytes_out: Counter[Address] = field(default_factory=Counter)
    """Bytes of the NACKs and ACKs that the target sent, by destination address."""
    resident_at_start: int = field(default_factory=resident_bytes)

    def note_in(self, train: Train) -> None:
        self.bytes_in[train.address] += train.data.size + HEADERS_BYTES * train.count

    def note_out(self, train: Train) -> None:
        if int(train.data[0]) & 15 in (4, 5):
            self.bytes_out[train.address] += train.data.size + HEADERS_BYTES * train.count


class Link:
    """The network between the honest nodes and the target. It delays trains and loses some of their datagrams."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._under_way: deque[tuple[float, Engine, Train, bool]] = deque()

    def carry(self, now: float, to: Engine, train: Train, source: Address) -> None:
        """Deliver a train from `source` to a node after a delay. Some of its datagrams may be lost."""
        data = self._lose(now, train.data, train.segment_bytes)
        if data.size:
            arriving = Train(data, train.segment_bytes, source)
            self._under_way.append((now + DELAY_S, to, arriving, train.address != GROUP))

    def _lose(self, now: float, data: NDArray[np.uint8], segment_bytes: int) -> NDArray[np.uint8]:
        number = 0 if now < START + QUIET_S else -(-data.size // segment_bytes)
        lost = [at for at in range(number) if self._random.random() < HONEST_LOSS]
        if not lost:
            return data
        rows = [data[at * segment_bytes : (at + 1) * segment_bytes] for at in range(number) if at not in lost]
        return np.concatenate(rows) if rows else data[:0]

    @property
    def next_at(self) -> float:
        """Time of the next arrival."""
        return self._under_way[0][0] if self._under_way else inf

    def arrivals(self, now: float) -> Iterator[tuple[Engine, Train, bool]]:
        """Remove and yield the trains that have arrived.

        Each comes with the node that it reached, and True if it was sent by unicast.
        """
        while self.next_at <= now:
            _, engine, train, by_unicast = self._under_way.popleft()
            yield engine, train, by_unicast


@dataclass(slots=True)
class Transfer:
    """Objects and stream that one honest sender has sent, and the part of them that has arrived."""

    stream_id: int
    objects: dict[int, bytes] = field(default_factory=dict)
    written: bytearray = field(default_factory=bytearray)
    read: bytearray = field(default_factory=bytearray)
    received: set[int] = field(default_factory=set)

    def take(self, event: Event) -> int:
        """Compare what arrived with what was sent. Return 1 if the event completes an object, otherwise 0."""
        match event:
            case ObjectCompleted():
                if bytes(event.data or b"") != self.objects.get(event.object_id):
                    raise Broken(f"object {event.object_id} altered")
                self.received.add(event.object_id)
                return 1
            case StreamReceived():
                if event.start != len(self.read):
                    raise Broken(f"stream goes on at {event.start}, expected {len(self.read)}")
                self.read += event.data
                if self.read[event.start :] != self.written[event.start : len(self.read)]:
                    raise Broken("stream altered")
            case StreamLost():
                raise Broken(f"honest stream lost {event}")
        return 0

    def missing(self, direction: str) -> Iterator[str]:
        """Yield descriptions of what has not arrived."""
        if self.received != self.objects.keys():
            numbers = sorted(self.objects.keys() - self.received)[:9]
            yield f"objects {numbers} {direction} the target did not arrive"
        if self.read != self.written:
            yield f"{len(self.read):,} of {len(self.written):,} bytes of the stream {direction} the target arrived"


class Arena:
    """The target and its honest partners, and the virtual time in which they work."""

    def __init__(self, seed: int, *, is_forging: bool = False, figures: Figures | None = None) -> None:
        self.random = Random(seed)
        self.figures = figures or Figures()
        self.is_forging = is_forging
        self.settings = settings = Settings.draw(self.random)
        partner = SessionConfig(node_id=HONEST_SENDER, sender=settings.partner)
        self.sender = Engine(partner, GROUP, random=Random(seed + 1))
        config = SessionConfig(node_id=TARGET, sender=settings.sender, receiver=settings.receiver)
        self.target = Engine(config, GROUP, random=Random(seed + 2))
        self.receiver = Engine(SessionConfig(node_id=HONEST_RECEIVER), GROUP, random=Random(seed + 3))
        self.addresses: dict[Engine, Address] = {self.sender: ("h", 1), self.target: ("t", 1), self.receiver: ("r", 1)}
        for engine, address in self.addresses.items():
            engine.own_address = address
        self.now = START
        self.link = Link(self.random)
        self.sight = Sight(sender_of(self.target).instance_id, now=self.now)
        self.sight.sender_instance_id = sender_of(self.sender).instance_id
        self.attacker = Attacker(Random(seed + 4), self.sight, is_forging)
        self.tally = Tally()
        self.next_content_at = self.now
        """Time at which the honest senders get more to send. Infinite once the attack is over."""
        self.transfers = {engine: Transfer(engine.open_stream(None, self.now)) for engine in (self.sender, self.target)}

    def work(self) -> None:
        """Let all nodes work at the present time. Now and then give the honest senders something to send."""
        if self.now >= self.next_content_at:
            self.next_content_at = self.now + 0.1
            for engine, transfer in self.transfers.items():
                self._send_more(engine, transfer)
        for engine, train, by_unicast in self.link.arrivals(self.now):
            engine.receive_train(train, self.now, by_unicast)
            self.settle(engine)
        for engine in self.addresses:
            if engine.poll_timeout() <= self.now:
                started = time.thread_time()
                engine.handle_timeout(self.now)
                if engine is self.target:
                    self.figures.note_time(TIMERS, time.thread_time() - started, SLOWEST_S)
                self.settle(engine)

    def _send_more(self, engine: Engine, transfer: Transfer) -> None:
        content = self.random.randbytes(self.random.randrange(1, 8000))
        if len(transfer.objects) - len(transfer.received) < 20 and engine.has_room(len(content)):
            info = content[:20] if self.random.random() < 0.3 else None
            transfer.objects[engine.enqueue(MemorySource(content), info, False, self.now)] = content
        taken = engine.write(transfer.stream_id, memoryview(content), [0])
        transfer.written += content[:taken]
        engine.flush(transfer.stream_id)
        self.settle(engine)

    def settle(self, engine: Engine) -> int:
        """Carry the trains that an engine wants to send, and handle its events. Return the number of events."""
        while (train := engine.poll_train(self.now)) is not None:
            self._carry(engine, train)
        number = 0
        while (event := engine.poll_event()) is not None:
            number += 1
            self._take(engine, event)
        return number

    def _carry(self, engine: Engine, train: Train) -> None:
        if train.data.size == 0:
            raise Broken("an empty train was sent")
        train = Train(train.data.copy(), train.segment_bytes, train.address)
        if engine is self.target:
            self.tally.note_out(train)
        self._show(engine, train)
        for other, address in self.addresses.items():
            if other is not engine and train.address in (GROUP, address):
                self.link.carry(self.now, other, train, self.addresses[engine])

    def _show(self, engine: Engine, train: Train) -> None:
        """Let the attacker see the parts of a train that are visible on the network."""
        data = train.data
        object_id = int(data[14]) << 8 | int(data[15]) if data[0] == 0x12 else None
        if engine is self.target and object_id is not None and data[12] & 0x20 == 0:
            self.sight.object_id = object_id
        elif engine is self.sender:
            self.sight.seen.append(data[: train.segment_bytes].tobytes())
            if object_id is not None:
                self.sight.sender_object_id = object_id

    def _take(self, engine: Engine, event: Event) -> None:
        if engine is self.target:
            self.figures.events[type(event).__name__] += 1
        source = {self.target: HONEST_SENDER, self.receiver: TARGET}.get(engine)
        if source is None or getattr(event, "sender_id", None) != source:
            return
        sender = self.sender if source == HONEST_SENDER else self.target
        if sender is self.target or not self.is_forging:
            self.figures.objects += self.transfers[sender].take(event)

    def end(self) -> None:
        """End the attack. Raise Broken if data of the honest nodes does not arrive."""
        self.next_content_at = inf
        deadline = self.now + RECOVERY_S
        while self.now < deadline and any(self._missing()):
            nearest = min(self.link.next_at, *(engine.poll_timeout() for engine in self.addresses))
            if nearest > deadline:
                break
            self.now = max(self.now + 1e-6, nearest)
            self.work()
        for reason, number in self.target.stats.drops.items():
            self.figures.drops[reason.name] += number
        if missing := "; ".join(self._missing()):
            raise Broken(missing)

    def _missing(self) -> Iterator[str]:
        """Yield descriptions of what has not arrived.

        If the attacker forges the honest sender's name, that sender's transfers do not count.
        """
        if not self.is_forging:
            yield from self.transfers[self.sender].missing("to")
        yield from self.transfers[self.target].missing("from")
