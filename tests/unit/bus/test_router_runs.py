"""Tests of runs: frames that are alike reach a consumer of batches together, as the same messages as one by one."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from routing import CONNECTION, NOW, SENDER, TOPIC, Bench, Subscriber, message

from fjm2.bus.inbox import ConsumerSettings, Inbox, Overflow
from fjm2.bus.losses.kinds import Gap, Loss
from fjm2.bus.routing.targets import Received, ReceivedRun
from fjm2.jms import Message, Selector, SessionMode, Topic, TopicPattern
from fjm2.jms.batches.incoming import Batch
from fjm2.jms.deliveries import Deliveries, Opener, RunDelivery, deliveries_of
from fjm2.messages.batches.array_writer import write_frames
from fjm2.messages.batches.frame_array import FrameSettings
from fjm2.messages.batches.frame_run import FRAMES_MIN
from fjm2.messages.batches.property_columns import PropertyColumns
from fjm2.messages.destination import Destination
from fjm2.messages.errors import MessageFormatError
from fjm2.messages.frame import Frame, FrameWriter
from fjm2.messages.header import FLAGS, FRAME_BYTES, HEADER, KIND, PERSISTENT, Kind
from fjm2.messages.object_codec import SafeCodec
from fjm2.messages.properties import PropertyColumn

OTHER = Topic("prices.us")


def frames_of(
    bodies: list[bytes],
    *,
    destination: Destination = TOPIC,
    priority: int = 4,
    expiration: int = 0,
    writer: FrameWriter | None = None,
    properties: dict[str, PropertyColumn] | None = None,
    sections: bytes = b"",
) -> bytes:
    """Return the frames of bytes messages that are sent together."""
    settings = FrameSettings(destination, int(Kind.BYTES), PERSISTENT, priority, NOW, expiration, sections)
    columns = PropertyColumns(properties or {}, len(bodies))
    return b"".join(one.data for one in write_frames(writer or FrameWriter(CONNECTION), settings, bodies, columns))


class Consumer:
    """A consumer of batches."""

    def __init__(
        self, bench: Bench, destination: Destination = TOPIC, *, has_begun: bool = True, **settings: object
    ) -> None:
        """The first messages of a sender are delivered one by one. With `has_begun`, there was one."""
        self.losses: list[Loss | None] = []
        bounds = ConsumerSettings(**settings)  # type: ignore[arg-type]
        self.inbox = Inbox(
            destination, None, None, bounds, bench.router.resume, lambda _, loss: self.losses.append(loss)
        )
        self.inbox.on_runs = bench.router.targets.deliver_in_runs
        self.opener = Opener(SafeCodec(), lambda: None)  # type: ignore[arg-type, return-value]
        bench.router.add(self.inbox)
        self.inbox.begin_runs()
        if has_begun:
            bench.take([message("begin", destination)])
            begun = self.inbox.pop()
            assert begun is not None
            self.inbox.release(begun)

    def take(self, messages_max: int = 1 << 30) -> Batch:
        self.items = self.opener.take_many(self.inbox, messages_max)
        return Batch(self.items, self.opener)

    @property
    def runs(self) -> int:
        return sum(isinstance(item, RunDelivery) for item in self.items)


def parts_of(received: Received) -> tuple[bytes, bytes, tuple[int, ...], int]:
    return received.head, received.body, tuple(received.header), received.sender_id


_BODIES = st.one_of(
    st.integers(0, 40).flatmap(lambda count: st.integers(0, 90).map(lambda size: [bytes(size)] * count)),
    st.lists(st.binary(max_size=90), max_size=40),
)
_COLUMNS: dict[str, Callable[[int], PropertyColumn]] = {
    "long": lambda count: np.arange(count),
    "text": lambda count: ["x" * (place % 5) for place in range(count)],
    "mixed": lambda count: [place if place % 3 else None for place in range(count)],
}
_PARTS = st.lists(
    st.tuples(
        _BODIES,
        st.sampled_from([TOPIC, TOPIC, OTHER]),
        st.sampled_from([1, 2]),
        st.lists(st.sampled_from(list(_COLUMNS)), unique=True),
    ),
    max_size=8,
)


@given(_PARTS, st.lists(st.integers(0, 1 << 16), max_size=8), st.integers(1, 50))
def test_messages_in_runs_are_the_same_as_one_by_one(
    parts: list[tuple[list[bytes], Destination, int, list[str]]], cuts: list[int], messages_max: int
) -> None:
    plain, bench = Bench(single := Subscriber()), Bench()
    consumer = Consumer(bench, has_begun=False)
    writers = {number: FrameWriter(number) for number in (1, 2)}
    data = b"".join(
        frames_of(
            bodies,
            destination=destination,
            writer=writers[number],
            properties={name: _COLUMNS[name](len(bodies)) for name in names},
        )
        for bodies, destination, number, names in parts
    )
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for first, end in pairwise(places):
        for each in (plain, bench):
            each.take_bytes(data[first:end], (0,) if first == 0 else ())
    found: list[Received] = []
    while len(consumer.take(messages_max)):
        assert 0 < sum(len(item) if isinstance(item, RunDelivery) else 1 for item in consumer.items) <= messages_max
        deliveries = deliveries_of(consumer.items)
        batch = Batch(consumer.items, consumer.opener)
        messages = batch.messages()
        assert [bytes(body) for body in batch.bodies()] == [one.received.body for one in deliveries]
        for name in _COLUMNS:
            assert batch.column(name).tolist() == [one.get_object_property(name) for one in messages]
        assert [one.serial for one in deliveries] == [len(found) + place + 1 for place in range(len(deliveries))]
        found += [one.received for one in deliveries]
    assert list(map(parts_of, found)) == list(map(parts_of, single.received))
    assert bench.router.stats.frames_received == plain.router.stats.frames_received
    assert bench.router.stats.deliveries == plain.router.stats.deliveries


@pytest.mark.parametrize("bodies", [[bytes(10)] * 100, [bytes(place % 9) for place in range(100)]])
def test_alike_frames_come_as_runs(bodies: list[bytes]) -> None:
    bench = Bench()
    consumer = Consumer(bench)
    bench.take([frames_of(bodies)])
    assert consumer.inbox.statistics().messages_waiting == consumer.inbox.held == 100
    assert consumer.inbox.progress[0] == 1
    assert [bytes(body) for body in consumer.take(60).bodies()] == bodies[:60]
    assert consumer.runs == 1
    assert consumer.inbox.statistics().messages_waiting == 40
    assert [bytes(body) for body in consumer.take().bodies()] == bodies[60:]
    assert consumer.inbox.held == 100


@pytest.mark.parametrize("count", [FRAMES_MIN - 1, FRAMES_MIN])
@pytest.mark.parametrize("is_equal", [True, False])
def test_the_shortest_run_is_found(count: int, is_equal: bool) -> None:
    bench, destination = Bench(), Topic("a")
    consumer = Consumer(bench, destination)
    bodies = [b""] * count if is_equal else [b"x" * (place % 2) for place in range(count)]
    bench.take([frames_of(bodies, destination=destination)])
    assert [bytes(body) for body in consumer.take().bodies()] == bodies
    assert consumer.runs == (count == FRAMES_MIN)


def test_a_run_ends_where_frames_are_not_alike() -> None:
    bench = Bench()
    consumer = Consumer(bench)
    writer = FrameWriter(CONNECTION)
    bench.take(
        [
            frames_of([b"a"] * 20, writer=writer),
            frames_of([b"a"] * 20, writer=writer, priority=5),
            frames_of([b"a"] * 20, writer=writer, expiration=1 << 60),
            frames_of([b"a"] * 20, writer=writer, destination=OTHER),
            message("text", writer=writer),
        ]
    )
    assert len(consumer.take()) == 61
    assert consumer.runs == 2
    assert [one.received.header[KIND] for one in deliveries_of(consumer.items)].count(Kind.TEXT) == 1


def test_invalid_lengths_end_a_run_and_are_counted() -> None:
    bench = Bench()
    consumer = Consumer(bench)
    data = bytearray(frames_of([bytes(place % 9) for place in range(100)]))
    at = 0
    for _ in range(50):
        at += HEADER.unpack_from(data, at)[FRAME_BYTES]
    data[at + 4 : at + 8] = (60).to_bytes(4)
    plain = Bench(single := Subscriber())
    plain.take([message("begin")])
    for each in (plain, bench):
        each.take([bytes(data)])
    assert len(consumer.take()) == len(single.received) - 1 == 50
    assert consumer.runs == 1
    assert bench.router.table.drops == plain.router.table.drops
    assert bench.router.table.drops


def test_forged_names_with_the_same_hash_are_not_delivered() -> None:
    bench = Bench()
    consumer = Consumer(bench)
    data = frames_of([b"body"] * 20).replace(TOPIC.encoded_name, b"x" * len(TOPIC.encoded_name))
    bench.take([data, frames_of([b"good"] * 20)])
    assert {bytes(body) for body in consumer.take().bodies()} == {b"good"}


def test_other_consumers_selectors_patterns_and_taps_get_every_frame() -> None:
    class Tap:
        frames = 0
        is_full = False

        def take_run(self, sender_id: int, frames: list[Frame]) -> None:  # noqa: ARG002
            self.frames += len(frames)

    for second in (Subscriber(), Subscriber(TopicPattern("prices.*"))):
        bench = Bench()
        consumer = Consumer(bench)
        bench.router.add(second)
        bench.take([frames_of([b"a"] * 20)])
        assert len(consumer.take()) == len(second.received) == 20
        assert consumer.runs == 0
        bench.router.remove(second)
        bench.take([frames_of([b"a"] * 20)])
        assert len(consumer.take()) == 20
        assert consumer.runs == 1
    bench, tap = Bench(), Tap()
    consumer = Consumer(bench)
    bench.router.add_tap(tap)
    bench.take([frames_of([b"a"] * 20)])
    assert len(consumer.take()) == tap.frames == 20
    consumer.inbox.selector = Selector("n > 15")
    bench.router.remove_tap(tap)
    bench.take([frames_of([b"a"] * 20, properties={"n": list(range(20))})])
    assert consumer.take().column("n").tolist() == [16, 17, 18, 19]
    consumer.inbox.selector, consumer.inbox.left_out = None, CONNECTION
    bench.take([frames_of([b"a"] * 20)])
    assert len(consumer.take()) == 0


def test_a_gap_is_shown_before_the_run_behind_it() -> None:
    bench = Bench()
    consumer = Consumer(bench)
    writer = FrameWriter(CONNECTION)
    bench.take([frames_of([b"a"] * 20, writer=writer)])
    bench.router.note_gap(SENDER, 500)
    bench.take([frames_of([b"b"] * 20, writer=writer)])
    assert consumer.take().column("JMS_FJM2_Gap").tolist() == [None] * 20 + [True] + [None] * 19


@pytest.mark.parametrize("overflow", [Overflow.DROP_OLDEST, Overflow.DROP_NEWEST])
def test_what_overflows_is_dropped_one_by_one(overflow: Overflow) -> None:
    bench = Bench()
    consumer = Consumer(bench, messages_max=50, overflow=overflow)
    writer = FrameWriter(CONNECTION)
    for _ in range(4):
        bench.take([frames_of([b"a"] * 20, writer=writer, properties={"n": np.arange(20)})])
    batch = consumer.take()
    expected = [*range(10, 20), *range(20), *range(20)] if overflow is Overflow.DROP_OLDEST else None
    assert len(batch) == 50
    assert expected is None or batch.column("n").tolist() == expected
    assert consumer.inbox.messages_dropped == 30


def test_a_full_consumer_blocks_the_router_until_batches_are_released() -> None:
    bench = Bench()
    consumer = Consumer(bench, messages_max=50)
    deliveries = Deliveries(SessionMode.AUTO_ACKNOWLEDGE, 3, lambda _: None)
    for _ in range(4):
        bench.take([frames_of([b"a"] * 20)])
    assert bench.router.is_blocked
    assert len(consumer.take()) == 80
    deliveries.consume_batch(consumer.inbox, consumer.items)
    assert len(deliveries) == 80
    deliveries.acknowledge_batch(consumer.inbox)
    assert (consumer.inbox.held, consumer.inbox.held_bytes, len(deliveries)) == (0, 0, 0)
    assert not bench.router.is_blocked


def test_a_batch_is_recovered_in_order() -> None:
    bench = Bench()
    consumer = Consumer(bench)
    deliveries = Deliveries(SessionMode.AUTO_ACKNOWLEDGE, 3, lambda _: None)
    bench.take([frames_of([str(place).encode() for place in range(30)])])
    consumer.take(20)
    deliveries.consume_batch(consumer.inbox, consumer.items)
    assert deliveries.recover() == {consumer.inbox}
    batch = consumer.take()
    assert [bytes(body) for body in batch.bodies()] == [str(place).encode() for place in range(30)]
    assert [one.delivery_count for one in batch.messages()] == [2] * 20 + [1] * 10


def test_runs_become_messages_when_batches_end() -> None:
    bench = Bench()
    consumer = Consumer(bench)
    bench.take([frames_of([b"a"] * 20), message("b"), frames_of([b"c"] * 20)])
    consumer.inbox.end_runs()
    bench.take([frames_of([b"d"] * 20)])
    found = [consumer.inbox.pop() for _ in range(61)]
    assert not any(isinstance(one, ReceivedRun) for one in found)
    assert [one.body[:1] for one in found if one is not None] == [b"a"] * 20 + [b"b"] + [b"c"] * 20 + [b"d"] * 20


def test_messages_behind_one_that_expires_are_taken() -> None:
    bench = Bench()
    consumer = Consumer(bench)
    writer = FrameWriter(CONNECTION)
    bench.take([frames_of([b"a"] * 20, writer=writer)])
    consumer.take()
    consumer.inbox.deliver(expired := Received(*_expired(writer), SENDER, None))
    assert expired.header[FLAGS] == 0
    bench.take([frames_of([b"b"] * 20, writer=writer)])
    assert consumer.take().column("JMS_FJM2_Gap").tolist() == [True] + [None] * 19


def _expired(writer: FrameWriter) -> tuple[bytes, bytes, tuple[int, ...]]:
    head, body = message("late", writer=writer, expiration=1)
    return head, body, HEADER.unpack_from(head)


def test_columns_of_runs_are_those_of_the_messages() -> None:
    bench = Bench()
    consumer = Consumer(bench)
    columns: dict[str, PropertyColumn] = {
        "long": np.arange(20),
        "flag": np.arange(20) % 2 == 0,
        "text": "constant",
        "price": np.arange(20) / 3,
        "small": np.arange(20, dtype=np.int8),
        "same": 7,
    }
    bench.take([frames_of([b"a"] * 20, properties=columns)])
    batch = consumer.take()
    assert consumer.runs == 1
    messages: list[Message] = batch.messages()
    kinds = {"long": "int64", "flag": "bool", "price": "float64", "small": "int8", "same": "int32", "text": "object"}
    for name, kind in kinds.items():
        column = batch.column(name)
        assert column.dtype == np.dtype(kind), name
        assert column.tolist() == [one.get_object_property(name) for one in messages]


def test_a_property_that_looks_like_another_is_not_mistaken_for_it() -> None:
    bench = Bench()
    consumer = Consumer(bench)
    writer = FrameWriter(CONNECTION)
    for name in ("ab", "ba"):  # of one length, and so alike but for the properties
        bench.take([frames_of([b"x"] * 20, writer=writer, properties={name: np.arange(20), "n": np.arange(20.0)})])
    bench.take([frames_of([b"x"] * 20, writer=writer, properties={"t": "\0\2ab\6" + "1" * 16}) * 2])
    column = consumer.take().column("ab")
    assert column.tolist() == [*range(20)] + [None] * 60


def test_frames_with_properties_of_different_lengths_come_as_runs() -> None:
    bench = Bench()
    consumer = Consumer(bench)
    texts = [f"{place:b}" for place in range(50)]
    columns: dict[str, PropertyColumn] = {"n": list(range(50)), "text": texts, "late": texts, "last": np.arange(50)}
    bench.take([frames_of([texts[place].encode() for place in range(50)], properties=columns)])
    batch = consumer.take(30)
    assert consumer.runs == 1
    batch = consumer.take()
    assert consumer.runs == 1
    assert [bytes(body).decode() for body in batch.bodies()] == texts[30:]
    assert batch.column("n").tolist() == batch.column("last").tolist() == list(range(30, 50))
    assert batch.column("text").tolist() == batch.column("late").tolist() == texts[30:]


def test_lengths_of_properties_beyond_the_frame_end_a_run() -> None:
    bench, plain = Bench(), Bench(single := Subscriber())
    consumer = Consumer(bench)
    plain.take([message("begin")])
    data = bytearray(frames_of([b"x"] * 30, properties={"t": ["y" * (place % 3) for place in range(30)]}))
    at = 0
    for _ in range(20):
        at += HEADER.unpack_from(data, at)[FRAME_BYTES]
    data[at + 16 : at + 20] = (1 << 31).to_bytes(4)
    for each in (plain, bench):
        each.take([bytes(data)])
    assert len(consumer.take()) == len(single.received) - 1
    assert bench.router.table.drops == plain.router.table.drops


def test_malformed_properties_raise_when_a_column_is_asked_for() -> None:
    bench = Bench()
    consumer = Consumer(bench)
    data = frames_of([b"x"] * 20, properties={"n": np.arange(20)})
    bench.take([data.replace(b"\0\1n\6", b"\0\1n\77")])
    batch = consumer.take()
    assert len(batch.bodies()) == 20
    with pytest.raises(MessageFormatError):
        batch.column("n")


def test_gaps_have_their_reason() -> None:
    bench = Bench()
    consumer = Consumer(bench)
    bench.take([message("a")])
    bench.router.note_gap(SENDER, 500)
    bench.take([message("b")])
    assert consumer.take().column("JMS_FJM2_GapReason").tolist() == [None, Gap.LOST.word]


def test_a_run_keeps_little_more_memory_than_it_counts() -> None:
    bench = Bench()
    consumer = Consumer(bench)
    writer = FrameWriter(CONNECTION)
    few, many = [b"a"] * 20, [bytes(1000)] * 60
    bench.take([frames_of(few, writer=writer) + frames_of(many, writer=writer, destination=OTHER)])
    batch = consumer.take()
    assert consumer.runs == 1
    (item,) = consumer.items
    assert isinstance(item, RunDelivery)
    assert len(item.run.frames.buffer) <= 2 * item.run.frames.frame_bytes
    assert [bytes(body) for body in batch.bodies()] == few
    bench.take([frames_of(many, writer=writer, destination=OTHER) + frames_of(few, writer=writer)])
    assert [bytes(body) for body in consumer.take().bodies()] == few


def test_the_consumer_that_stays_gets_runs_again() -> None:
    bench = Bench()
    first, second = Consumer(bench), Consumer(bench, has_begun=False)
    bench.take([frames_of([b"a"] * 20)])
    assert len(first.take()) == len(second.take()) == 20
    assert (first.runs, second.runs) == (0, 0)
    bench.router.remove(second.inbox)
    bench.take([frames_of([b"a"] * 20)])
    assert len(first.take()) == 20
    assert first.runs == 1


def test_a_gap_that_another_consumer_has_not_seen_stops_no_runs() -> None:
    bench = Bench()
    consumer, other = Consumer(bench), Consumer(bench, OTHER)
    bench.router.note_gap(SENDER, 500)
    bench.take([frames_of([b"a"] * 20)])
    assert consumer.take().column("JMS_FJM2_Gap").tolist() == [True] + [None] * 19
    bench.take([frames_of([b"a"] * 20)])
    assert len(consumer.take()) == 20
    assert consumer.runs == 1
    bench.take([frames_of([b"a"] * 20, destination=OTHER)])
    assert other.take().column("JMS_FJM2_Gap").tolist() == [True] + [None] * 19
