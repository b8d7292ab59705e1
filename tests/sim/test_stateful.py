"""Test that after any faults of the network, all data arrives once and unaltered, or its loss is reported."""

import os
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from effort import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from fjm2.norm.core.config import Fec, ReceiverConfig, SenderConfig, SessionConfig, Sync
from fjm2.norm.events import (
    ObjectCompleted,
    ObjectLost,
    ObjectsMissed,
    StreamEnded,
    StreamLost,
    StreamOpened,
    StreamReceived,
)
from fjm2.norm.sim import Link, Network, Node

IS_SLOW = os.environ.get("FJM2_SLOW") == "1"
# Settings with room for all that a run can send. A closed stream still counts with its whole buffer.
ROOM = SenderConfig(cache_objects=1024, stream_bytes=1 << 20)
SENDERS = [
    replace(ROOM, segment_bytes=64, block_segments=8, fec=Fec.NONE),
    replace(ROOM, segment_bytes=100, block_segments=5, fec=Fec.NOCODE),
    replace(ROOM, segment_bytes=64, block_segments=8, fec=Fec.RS, parity_segments=4),
    replace(ROOM, segment_bytes=64, block_segments=10, fec=Fec.RS, parity_segments=6, auto_parity=2),
    replace(ROOM, segment_bytes=64, block_segments=8, fec=Fec.RS, parity_segments=4, backoff_factor=0),
]
RECEIVERS = [
    ReceiverConfig(),
    ReceiverConfig(unicast_nack=True),
    ReceiverConfig(sync=Sync.CURRENT),
]
SIZES = st.one_of(st.integers(0, 200), st.integers(0, 6000))
RECEIVER = st.integers(0, len(RECEIVERS) - 1)
FRACTION = st.sampled_from([0.01, 0.1, 0.3])


class Weather(RuleBasedStateMachine):
    """A stateful test of one sender and three receivers behind a router, with random faults of links and nodes.

    The sender's cache holds all that is ever sent.
    """

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[int, bytes] = {}
        """Objects sent since the sender last started, by id and in order."""
        self.infos: dict[int, bytes | None] = {}
        self.streams: dict[int, bytearray] = {}
        self.open: int | None = None
        self.clashing: set[int] = set()
        """Ids that the sender used before and after a restart. The test makes no claim about their contents."""
        self.earlier: dict[int, bytes] = {}
        self.earlier_streams: dict[int, bytes] = {}
        self.count = 0

    @initialize(
        seed=st.integers(0, 1 << 32), sender=st.integers(0, len(SENDERS) - 1), fraction=st.sampled_from([0.0, 0.1, 0.3])
    )
    def build(self, seed: int, sender: int, fraction: float) -> None:
        self.random = Random(seed)
        self.net = Network(seed)
        self.pub = self.net.node(SessionConfig(node_id=1, sender=SENDERS[sender]))
        router = self.net.router()
        self.subs = [self.net.receiver(config) for config in RECEIVERS]
        self.links = [self.net.link(self.pub, router), *(self.net.link(router, sub) for sub in self.subs)]
        for link in self.links:
            link.lose(fraction)
            link.back.lose(fraction)

    def link(self, number: int, is_back: bool) -> Link:
        return self.links[number].back if is_back else self.links[number]

    # Commands of the application.

    @rule(size=SIZES, has_info=st.booleans())
    def send(self, size: int, has_info: bool) -> None:
        self.count += 1
        content = self.count.to_bytes(4, "big") + self.random.randbytes(size)
        info = b"info %d" % self.count if has_info else None
        number = self.pub.send(content, info)
        self.objects[number] = content
        self.infos[number] = info

    @rule(count=st.integers(2, 8), seconds=st.sampled_from([0.0, 0.002, 0.05]))
    def send_many(self, count: int, seconds: float) -> None:
        for number in range(count):
            self.send(self.random.randrange(3000), number % 3 == 0)
            self.write(self.random.randrange(3000))
            self.net.run(until=self.net.now + seconds)

    @rule(size=SIZES)
    def write(self, size: int) -> None:
        content = self.random.randbytes(size + 1)
        self.open = self.pub.write(content)
        self.streams.setdefault(self.open, bytearray()).extend(content)

    @precondition(lambda self: self.open is not None)
    @rule()
    def end_stream(self) -> None:
        self.pub.end_stream()
        self.open = None
        self.net.run(until=self.net.now)

    @rule(seconds=st.sampled_from([0.001, 0.01, 0.03, 0.1, 0.5, 2.0]))
    def wait(self, seconds: float) -> None:
        self.net.run(until=self.net.now + seconds)

    # Changes of the network.

    @rule(number=st.integers(0, 3), is_back=st.booleans(), fraction=FRACTION, burst=st.sampled_from([1.0, 4.0]))
    def lose(self, number: int, is_back: bool, fraction: float, burst: float) -> None:
        self.link(number, is_back).mend().lose(fraction, burst=burst)

    @rule(number=st.integers(0, 3), is_back=st.booleans(), fraction=FRACTION)
    def disturb(self, number: int, is_back: bool, fraction: float) -> None:
        self.link(number, is_back).reorder(fraction, by_s=0.03).duplicate(fraction).shape(jitter_s=0.005)

    @rule(number=st.integers(0, 3), is_back=st.booleans())
    def cut(self, number: int, is_back: bool) -> None:
        self.link(number, is_back).cut()

    @rule(number=st.integers(0, 3))
    def mend(self, number: int) -> None:
        self.links[number].mend()
        self.links[number].back.mend()

    # Faults of nodes.

    @rule(number=RECEIVER, is_other=st.booleans())
    def restart_receiver(self, number: int, is_other: bool) -> None:
        sub = self.subs[number]
        sub.crash()
        self.check(sub)
        self.count += 1
        sub.rejoin(node_id=1000 + self.count if is_other else None)

    @rule(number=RECEIVER)
    def pause_receiver(self, number: int) -> None:
        self.subs[number].pause()

    @rule(number=RECEIVER)
    def resume_receiver(self, number: int) -> None:
        self.subs[number].resume()

    @rule()
    def restart_sender(self) -> None:
        self.pub.crash()
        self.clashing |= (self.earlier.keys() | self.earlier_streams.keys()) & (
            self.objects.keys() | self.streams.keys()
        )
        self.earlier |= self.objects
        self.earlier_streams |= {number: bytes(content) for number, content in self.streams.items()}
        self.objects, self.infos, self.streams, self.open = {}, {}, {}, None
        # A real program takes longer to start than datagrams take to arrive. If the datagrams of two instances arrived
        # mixed, nobody could tell which instance is the later one.
        self.net.run(until=self.net.now + 0.1)
        self.pub.rejoin()

    # The end.

    def teardown(self) -> None:
        if not hasattr(self, "net"):
            return
        for number, link in enumerate(self.links):
            self.mend(number)
            link.shape(jitter_s=0.0)
            link.back.shape(jitter_s=0.0)
        for sub in self.subs:
            sub.resume()
        self.send(1000, True)
        last = next(reversed(self.objects))
        self.write(1000)
        end = self.open
        self.end_stream()
        self.net.run_until(lambda: all(self.is_done(sub, last, end) for sub in self.subs), self.net.now + 60.0)
        # Pauses have made round trips look long. So other repairs may take many seconds more.
        deadline = self.net.now + 200.0
        while any(sub.engine.memory_bytes for sub in self.subs) and self.net.now < deadline:
            self.net.run(until=self.net.now + 1.0)
        self.net.run(until=self.net.now + 5.0)  # anything that arrives now is too much
        self.clashing |= (self.earlier.keys() | self.earlier_streams.keys()) & (
            self.objects.keys() | self.streams.keys()
        )
        for sub in self.subs:
            assert self.clashing or self.is_done(sub, last, end), f"{sub} lacks the last object or stream"
            self.check(sub)
            self.check_nothing_lacks(sub)

    def is_done(self, sub: Node, last: int, end: int | None) -> bool:
        completed = any(event.object_id == last for event in sub.log.objects)
        return completed and any(event.object_id == end for event in sub.events(StreamEnded))

    def check(self, sub: Node) -> None:
        """Check that everything a receiver delivered is what was sent, and that nothing was delivered twice."""
        contents = self.earlier | self.objects
        streams = self.earlier_streams | {number: bytes(content) for number, content in self.streams.items()}
        clashing = self.clashing | (self.earlier.keys() & self.objects.keys())
        clashing |= self.earlier_streams.keys() & self.streams.keys()
        fates = Counter(event.object_id for event in sub.log.objects)
        fates += Counter(event.object_id for event in sub.events(ObjectLost))
        assert [number for number, times in fates.items() if times > 1 and number not in clashing] == []
        for event in sub.log.objects:
            if event.object_id not in clashing:
                assert bytes(event.data or b"") == contents[event.object_id], f"object {event.object_id} altered"
                if event.object_id in self.infos:
                    assert event.info == self.infos[event.object_id]
        for (_, number), runs in sub.log.runs.items():
            if number not in clashing:
                self.check_runs(runs, streams[number], sub)

    @staticmethod
    def check_runs(runs: list[StreamReceived], content: bytes, sub: Node) -> None:
        """Check that the runs of a stream follow each other, except for gaps that were reported."""
        skipped = {(event.start, event.end) for event in sub.events(StreamLost)}
        end = runs[0].start
        for run in runs:
            assert run.start == end or (end, run.start) in skipped
            end = run.start + len(run.data)
            assert run.data == content[run.start : end], "stream altered"

    def check_nothing_lacks(self, sub: Node) -> None:
        """Check that a receiver has everything that was sent after the last start of the sender.

        Data before the first object that the receiver completed does not count.
        """
        if self.clashing:
            return
        assert not [event for event in sub.events(ObjectsMissed) if event.first_object_id in self.objects]
        assert not [event for event in sub.events(ObjectLost) if event.object_id in self.objects]
        assert not [event for event in sub.events(StreamLost) if event.object_id in self.streams]
        known = {event.object_id for event in sub.events(ObjectCompleted)}
        known |= {event.object_id for event in sub.events(StreamOpened)}
        order = sorted({*self.objects, *self.streams}, key=self.place_of)
        # Streams that began earlier arrive too, if the sender still writes to them.
        completed = {event.object_id for event in sub.events(ObjectCompleted)}
        first = next(place for place, number in enumerate(order) if number in completed)
        assert [number for number in order[first:] if number not in known] == []
        for number, content in self.streams.items():
            if number in known and sub.config.receiver.sync is not Sync.CURRENT:
                assert sub.log.stream(self.pub.node_id, number) == content

    def place_of(self, number: int) -> int:
        """Return the place of an object id in the order of sending.

        Ids wrap around, but those in use since the sender last started lie close together.
        """
        some = next(iter(self.objects))
        return (number - some + 0x8000) & 0xFFFF


TestWeather = Weather.TestCase
TestWeather.settings = settings(settings.default, max_examples=examples(50), stateful_step_count=25)


@pytest.mark.nightly
@pytest.mark.timeout(3000 if IS_SLOW else 300)
class TestWeatherForLong(TestWeather):
    """The same with more examples."""


TestWeatherForLong.settings = settings(
    settings.default,
    max_examples=5000 if IS_SLOW else examples(150),
    stateful_step_count=40 if IS_SLOW else 25,
)


def test_streams_that_ended_far_apart_during_an_outage_arrive_after_it() -> None:
    """Receivers hear of them by flushes only, at several places in turn. None of these may hide the others."""
    weather = Weather()
    weather.build(seed=0, sender=0, fraction=0.0)
    weather.write(0)
    for _ in range(2):
        weather.send_many(2, 0.0)
        weather.end_stream()
    weather.cut(0, False)
    weather.write(7)
    weather.end_stream()
    weather.send_many(10, 0.0)
    weather.write(0)
    weather.send_many(8, 0.0)
    for _ in range(3):
        weather.end_stream()
        weather.write(0)
    weather.send_many(5, 0.002)
    weather.send_many(7, 0.0)
    weather.send_many(5, 0.0)
    weather.end_stream()
    weather.write(0)
    weather.teardown()
