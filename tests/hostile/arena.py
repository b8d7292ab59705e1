"""The arena: the target, the honest nodes it works with, and what they send each other, which has to arrive.

Everything happens in virtual time. The honest ones are given something to do now and then, datagrams between them take
a while and some are lost; what is delivered is compared with what was sent.
"""

import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import numpy as np

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
"""In which the honest ones get to know each other: attackers and losses come later."""
RECOVERY_S = 120.0
"""Virtual seconds that the honest transfers may take to end when the attack is over."""

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


@dataclass(slots=True)
class Honest:
    """One honest way: who sends, and what has to come out at the other end."""

    objects: dict[int, bytes] = field(default_factory=dict)
    stream_id: int = -1
    written: bytearray = field(default_factory=bytearray)
    read: bytearray = field(default_factory=bytearray)
    received: set[int] = field(default_factory=set)
    first_waiting_since: float = 0.0


class Arena:
    """The target, its honest partners, and the time that passes for them."""

    def __init__(self, seed: int, *, is_forging: bool = False, figures: Figures | None = None) -> None:
        random = self.random = Random(seed)
        self.figures = figures or Figures()
        self.is_forging = is_forging
        self.is_unicast = random.random() < 0.5
        self.receiver_config = ReceiverConfig(
            sync=random.choice(list(Sync)),
            unicast_nack=self.is_unicast,
            object_bytes_max=1 << 30,
            stream_bytes_max=1 << 19,
            total_bytes_max=32 << 20,
            objects_max=random.choice((16, 256)),
            senders_max=random.choice((16, 128, 1024)),
        )
        self.sender_config = random.choice(SENDERS)
        self.step_s = random.choice((2e-6, 5e-5, 5e-5, 1e-3))
        """Between two hostile datagrams."""
        others = SessionConfig(node_id=HONEST_SENDER, sender=random.choice(SENDERS))
        self.sender = Engine(others, GROUP, random=Random(seed + 1))
        config = SessionConfig(node_id=TARGET, sender=self.sender_config, receiver=self.receiver_config)
        self.target = Engine(config, GROUP, random=Random(seed + 2))
        self.receiver = Engine(SessionConfig(node_id=HONEST_RECEIVER), GROUP, random=Random(seed + 3))
        self.addresses: dict[Engine, Address] = {self.sender: ("h", 1), self.target: ("t", 1), self.receiver: ("r", 1)}
        self.engines = {address: engine for engine, address in self.addresses.items()}
        for engine, address in self.addresses.items():
            engine.own_address = address
        self.now = START
        self.way: deque[tuple[float, Engine, Train, bool]] = deque()
        self.ways = {self.sender: Honest(), self.target: Honest()}
        self.sight = Sight(sender_of(self.target).instance_id, now=self.now)
        self.sight.sender_instance_id = sender_of(self.sender).instance_id
        self.attacker = Attacker(Random(seed + 4), self.sight, is_forging)
        self.bytes_in: Counter[Address] = Counter()
        self.bytes_out: Counter[Address] = Counter()
        self.group_in = 0
        self.resident_at_start = resident_bytes()
        self.next_content_at = self.now
        self.is_over = False
        for engine, way in self.ways.items():
            way.stream_id = engine.open_stream(None, self.now)
        self.sent_by_target_at_start = 0

    # Honest work.

    def work(self) -> None:
        """Give the honest ones something to do now and then, and carry what they say."""
        if self.now >= self.next_content_at and not self.is_over:
            self.next_content_at = self.now + 0.1
            for engine, way in self.ways.items():
                content = self.random.randbytes(self.random.randrange(1, 8000))
                if len(way.objects) - len(way.received) < 20 and engine.has_room(len(content)):
                    info = content[:20] if self.random.random() < 0.3 else None
                    way.objects[engine.enqueue(MemorySource(content), info, False, self.now)] = content
                taken = engine.write(way.stream_id, memoryview(content), [0])
                way.written += content[:taken]
                engine.flush(way.stream_id)
                self.settle(engine)
        while self.way and self.way[0][0] <= self.now:
            _, engine, train, by_unicast = self.way.popleft()
            engine.receive_train(train, self.now, by_unicast)
            self.settle(engine)
        for engine in self.addresses:
            if engine.poll_timeout() <= self.now:
                started = time.thread_time()
                engine.handle_timeout(self.now)
                if engine is self.target:
                    self.figures.note_time(TIMERS, time.thread_time() - started, SLOWEST_S)
                self.settle(engine)

    def settle(self, engine: Engine) -> int:
        """Send what an engine has to send, take what happened. How many events there were."""
        while (train := engine.poll_train(self.now)) is not None:
            self.carry(engine, train)
        number = 0
        while (event := engine.poll_event()) is not None:
            number += 1
            self.take(engine, event)
        return number

    def carry(self, engine: Engine, train: Train) -> None:
        if train.data.size == 0:
            raise Broken("an empty train was sent")
        data = train.data.copy()
        if engine is self.target:
            self.note_out(train)
        elif engine is self.sender:
            self.sight.seen.append(data[: train.segment_bytes].tobytes())
            if data[0] == 0x12:
                self.sight.sender_object_id = int(data[14]) << 8 | int(data[15])
        for other in self.addresses:
            is_meant = train.address in (GROUP, self.addresses[other])
            if other is not engine and is_meant:
                left = self.lose(data, train.segment_bytes)
                if left.size:
                    arriving = Train(left, train.segment_bytes, self.addresses[engine])
                    self.way.append((self.now + DELAY_S, other, arriving, train.address != GROUP))

    def note_out(self, train: Train) -> None:
        """Count what the target says, by whom it goes to."""
        size = train.data.size + HEADERS_BYTES * train.count
        if int(train.data[0]) & 15 in (4, 5):
            self.bytes_out[train.address] += size
        if train.data[0] == 0x12 and train.data[12] & 0x20 == 0:
            self.sight.object_id = int(train.data[14]) << 8 | int(train.data[15])

    def lose(self, data: np.ndarray, segment_bytes: int) -> np.ndarray:
        number = 0 if self.now < START + QUIET_S else -(-data.size // segment_bytes)
        lost = [at for at in range(number) if self.random.random() < HONEST_LOSS]
        if not lost:
            return data
        rows = [data[at * segment_bytes : (at + 1) * segment_bytes] for at in range(number) if at not in lost]
        return np.concatenate(rows) if rows else data[:0]

    def take(self, engine: Engine, event: Event) -> None:
        if engine is self.target:
            self.figures.events[type(event).__name__] += 1
        source = {self.target: HONEST_SENDER, self.receiver: TARGET}.get(engine)
        if source is None or getattr(event, "sender_id", None) != source:
            return
        way = self.ways[self.sender if source == HONEST_SENDER else self.target]
        if self.is_forging and source == HONEST_SENDER:
            return
        match event:
            case ObjectCompleted():
                if bytes(event.data or b"") != way.objects.get(event.object_id):
                    raise Broken(f"object {event.object_id} altered")
                way.received.add(event.object_id)
                self.figures.objects += 1
            case StreamReceived():
                if event.start != len(way.read):
                    raise Broken(f"stream goes on at {event.start}, expected {len(way.read)}")
                way.read += event.data
                if way.read[event.start :] != way.written[event.start : len(way.read)]:
                    raise Broken("stream altered")
            case StreamLost():
                raise Broken(f"honest stream lost {event}")

    def end(self) -> None:
        """The attack is over: what the honest ones have sent must arrive."""
        self.is_over = True
        deadline = self.now + RECOVERY_S
        while self.now < deadline and not self.is_done:
            nearest = min(engine.poll_timeout() for engine in self.addresses)
            nearest = min(nearest, self.way[0][0] if self.way else nearest)
            if nearest > deadline:
                break
            self.now = max(self.now + 1e-6, nearest)
            self.work()
        for reason, number in self.target.stats.drops.items():
            self.figures.drops[reason.name] += number
        if not self.is_done:
            raise Broken("; ".join(self.lacking()))

    @property
    def is_done(self) -> bool:
        return not any(self.lacking())

    def lacking(self) -> Iterator[str]:
        for engine, way in self.ways.items():
            if self.is_forging and engine is self.sender:
                continue
            name = "to" if engine is self.sender else "from"
            if way.received != way.objects.keys():
                yield f"objects {sorted(way.objects.keys() - way.received)[:9]} {name} the target did not arrive"
            if way.read != way.written:
                yield f"{len(way.read):,} of {len(way.written):,} bytes of the stream {name} the target arrived"
