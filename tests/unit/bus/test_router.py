"""Tests of the router: which subscription gets which frame, and how malformed frames are handled."""

import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from routing import CONNECTION, OTHER, OWN, SENDER, STREAM, TOPIC, Bench, Subscriber, message, text_of

from fjm2.bus.router import Router
from fjm2.jms import Queue, TemporaryTopic, Topic
from fjm2.messages.frame import FrameDrop, FrameWriter
from fjm2.messages.header import FRAME_BYTES, HEADER_BYTES

ALIKE = Topic("t29685295"), Topic("t32060020")
"""Two destinations whose hashes are equal."""


def test_a_message_goes_to_all_subscriptions_of_its_destination() -> None:
    first, second, other = Subscriber(), Subscriber(), Subscriber(Topic("prices.us"))
    bench = Bench(first, other, second)
    bench.take([message("a"), message("b", Topic("prices.us")), message("c")])
    assert first.texts == second.texts == ["a", "c"]
    assert other.texts == ["b"]
    assert first.received[0].sender_id == SENDER
    assert bench.router.stats.frames_received == 3
    assert bench.router.stats.deliveries == 5


def test_destinations_with_equal_hashes_are_distinguished_by_name() -> None:
    assert ALIKE[0].frame_hash == ALIKE[1].frame_hash
    subscribers = [Subscriber(topic) for topic in ALIKE]
    bench = Bench(*subscribers)
    bench.take([message("zero", ALIKE[0]), message("one", ALIKE[1])])
    assert [subscriber.texts for subscriber in subscribers] == [["zero"], ["one"]]
    bench.router.remove(subscribers[0])
    bench.take([message("zero again", ALIKE[0]), message("one again", ALIKE[1])])
    assert [subscriber.texts for subscriber in subscribers] == [["zero"], ["one", "one again"]]
    assert bench.router.targets.destinations == {ALIKE[1]}


@pytest.mark.parametrize("kind", [Queue, TemporaryTopic])
def test_kinds_of_destinations_are_distinguished(kind: type[Topic]) -> None:
    topic, other = Subscriber(Topic("x")), Subscriber(kind("x"))
    bench = Bench(topic, other)
    bench.take([message("to the topic", Topic("x")), message("to the other", kind("x"))])
    assert topic.texts == ["to the topic"]
    assert other.texts == ["to the other"]


def test_selectors_and_connections_left_out() -> None:
    dear = Subscriber(selector="price > 10")
    foreign = Subscriber(left_out=CONNECTION)
    bench = Bench(dear, foreign)
    theirs = FrameWriter(CONNECTION + 1)
    bench.take([message("ours", price=11), message("theirs", price=10, writer=theirs), message("unpriced")])
    assert dear.texts == ["ours"]
    assert foreign.texts == ["theirs"]


def test_expired_messages_are_not_delivered() -> None:
    now_ms = int(time.time() * 1000)
    subscriber = Subscriber()
    bench = Bench(subscriber)
    bench.take([message("old", expiration=now_ms - 1), message("young", expiration=now_ms + 60_000), message("ever")])
    assert subscriber.texts == ["young", "ever"]
    assert bench.router.stats.frames_expired == 1


def test_a_removed_subscription_gets_no_more() -> None:
    gone, kept = Subscriber(), Subscriber()
    bench = Bench(gone, kept)
    bench.take([message("a")])
    bench.router.remove(gone)
    bench.router.remove(gone)
    bench.take([message("b")])
    assert (gone.texts, kept.texts) == (["a"], ["a", "b"])


def test_a_kept_message_is_a_copy_of_its_frame_only() -> None:
    subscriber = Subscriber()
    bench = Bench(subscriber)
    bench.take([message("x" * 10), message("y" * 1000, Topic("nobody"))])
    (received,) = subscriber.received
    assert len(received.head) + len(received.body) == received.header[FRAME_BYTES]


# Messages published in this process.


def test_own_messages_go_to_own_subscriptions_at_once() -> None:
    subscriber, local_only = Subscriber(), Subscriber(left_out=CONNECTION)
    bench = Bench(subscriber, local_only)
    assert bench.router.publish(TOPIC, message("a")) is False
    assert bench.router.publish(Topic("nobody"), message("b", Topic("nobody"))) is False
    assert subscriber.texts == ["a"]
    assert subscriber.received[0].sender_id == OWN
    assert local_only.texts == []


def test_publishing_to_a_full_subscription_reports_it() -> None:
    subscriber, other = Subscriber(), Subscriber(Topic("other"))
    subscriber.most = 2
    bench = Bench(subscriber, other)
    assert [bench.router.publish(TOPIC, message(str(number))) for number in range(2)] == [False, True]
    assert bench.router.publish(other.destination, message("x", other.destination)) is False


# Full subscriptions.


def test_a_full_subscription_blocks_until_it_has_room() -> None:
    subscriber, other = Subscriber(), Subscriber()
    subscriber.most = other.most = 2
    bench = Bench(subscriber, other)
    bench.take([message("a")])
    assert not bench.router.is_blocked
    bench.take([message("b"), message("c")])
    assert bench.router.is_blocked
    assert subscriber.texts == ["a", "b", "c"]
    subscriber.received.clear()
    bench.router.resume()
    assert bench.router.is_blocked
    assert bench.resumed == 0
    other.received.clear()
    bench.router.resume()
    bench.router.resume()
    assert not bench.router.is_blocked
    assert bench.resumed == 1


def test_a_full_subscription_that_is_removed_blocks_no_more() -> None:
    subscriber = Subscriber()
    subscriber.most = 1
    bench = Bench(subscriber)
    bench.take([message("a")])
    bench.router.remove(subscriber)
    assert not bench.router.is_blocked
    assert bench.resumed == 1


# Gaps.


def test_each_subscription_learns_of_a_gap_with_its_next_message() -> None:
    first, second = Subscriber(), Subscriber(Topic("rare"))
    bench = Bench(first, second)
    bench.take([message("a")])
    bench.take([message("other a")], sender=OTHER)
    bench.router.note_gap(SENDER, STREAM)
    bench.take([message("other b")], sender=OTHER)
    late = Subscriber()
    bench.router.add(late)
    bench.take([message("b"), message("c")])
    bench.take([message("r", second.destination), message("s", second.destination)])
    assert first.texts == ["a", "other a", "other b", "b", "c"]
    assert first.gaps == [False, False, False, True, False]
    assert second.gaps == [True, False]
    assert late.gaps == [False, False]  # data was lost before this subscriber joined


def test_reading_continues_at_a_mark_after_a_gap() -> None:
    subscriber = Subscriber()
    bench = Bench(subscriber)
    whole, cut = (b"".join(message(text)) for text in ("whole", "cut"))
    bench.take_bytes(whole + cut[:40], (0,))
    bench.router.note_gap(SENDER, STREAM)
    rest = b"the rest of a frame that began in the gap"
    bench.take_bytes(rest + whole, (len(rest),), start=100_000)
    assert subscriber.texts == ["whole", "whole"]
    assert subscriber.gaps == [False, True]
    assert bench.router.table.drops == {FrameDrop.CUT: 1}


def test_missed_streams_are_a_gap() -> None:
    subscriber = Subscriber()
    bench = Bench(subscriber)
    bench.router.note_missed(SENDER)
    bench.take([message("a")])
    assert subscriber.gaps == [True]


# Senders that go and come back.


@pytest.mark.parametrize("begin", [0, (1 << 32) - 150, 5 << 30])
def test_data_already_read_from_a_sender_is_not_delivered_again(begin: int) -> None:
    """The receiver has forgotten the sender, which then repeats data. Stream offsets on the wire have 32 bits."""
    subscriber = Subscriber()
    bench = Bench(subscriber)
    frames = [b"".join(message(text)) for text in "abcd"]
    size = len(frames[0])
    bench.take_bytes(b"".join(frames[:2]) + frames[2][:30], (0,), start=begin)
    assert bench.router.forget(SENDER)
    again = (begin + size) & 0xFFFFFFFF
    bench.take_bytes(frames[1][:50], (0,), start=again)
    bench.take_bytes(frames[1][50:] + frames[2] + frames[3], (), start=again + 50)
    assert subscriber.texts == ["a", "b", "c", "d"]
    assert subscriber.gaps == [False, False, True, False]


def test_a_sender_that_returns_later_in_its_stream_continues_there() -> None:
    subscriber = Subscriber()
    bench = Bench(subscriber)
    bench.take([message("a")])
    bench.router.forget(SENDER)
    bench.take_bytes(b"".join(message("z")), (0,), start=1_000_000)
    assert subscriber.texts == ["a", "z"]
    assert subscriber.gaps == [False, True]


def test_only_unfinished_streams_are_missed_when_a_sender_goes() -> None:
    bench = Bench(Subscriber())
    bench.take([message("a")])
    assert bench.router.table.has_stream(SENDER)
    bench.router.end(SENDER, STREAM)
    assert not bench.router.table.has_stream(SENDER)
    assert bench.router.forget(SENDER) is False
    assert bench.router.forget(OTHER) is False


# Malformed frames.


def test_malformed_properties_are_counted_where_a_selector_reads_them() -> None:
    head, body = message("a", price=1)
    tag = HEADER_BYTES + len(TOPIC.encoded_name) + len(struct.pack("!H", 5) + b"price")
    broken = head[:tag] + b"\x63" + head[tag + 1 :]
    subscriber = Subscriber(selector="price = 1")
    bench = Bench(subscriber)
    bench.take([broken + body, message("b", price=1)])
    assert subscriber.texts == ["b"]
    assert bench.router.stats.frames_malformed == 1


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.binary(max_size=300)), max_size=30))
def test_no_received_bytes_raise(runs: list[tuple[int, int, bytes]]) -> None:
    subscriber = Subscriber(selector="price > 0")
    bench = Bench(subscriber)
    for sender, stream, data in runs:
        bench.take_bytes(data, (0,) if data else (), sender, stream)
        bench.router.check()
    assert not subscriber.received


@given(st.data())
def test_frames_with_any_byte_changed_do_not_raise(data: st.DataObject) -> None:
    frames = b"".join(b"".join(message(f"{number}", price=number)) for number in range(3))
    place = data.draw(st.integers(0, len(frames) - 1))
    changed = frames[:place] + bytes([data.draw(st.integers(0, 255))]) + frames[place + 1 :]
    plain, choosy = Subscriber(), Subscriber(selector="price >= 0")
    Bench(plain, choosy).take_bytes(changed, (0,))
    assert len(plain.received) <= 3
    assert len(choosy.received) <= len(plain.received)


@given(
    texts=st.lists(st.text(max_size=200), min_size=1, max_size=30),
    sizes=st.lists(st.integers(1, 400), min_size=1, max_size=40),
    senders=st.lists(st.sampled_from([SENDER, OTHER]), min_size=1, max_size=40),
)
def test_runs_may_be_cut_anywhere_and_mixed(texts: list[str], sizes: list[int], senders: list[int]) -> None:
    """Two senders each send all the texts. The texts of each sender arrive completely and in order."""
    subscriber = Subscriber()
    bench = Bench(subscriber)
    stream = b"".join(b"".join(message(text)) for text in texts)
    left = {SENDER: stream, OTHER: stream}
    step = 0
    while any(left.values()):
        sender = senders[step % len(senders)]
        sender = sender if left[sender] else next(node for node in left if left[node])
        size = sizes[step % len(sizes)]
        is_first = len(left[sender]) == len(stream)
        bench.take_bytes(left[sender][:size], (0,) if is_first else (), sender)
        left[sender] = left[sender][size:]
        step += 1
    for sender in (SENDER, OTHER):
        assert [text_of(one) for one in subscriber.received if one.sender_id == sender] == texts


def test_frames_that_have_begun_take_no_more_than_allowed() -> None:
    subscriber = Subscriber()
    bench = Bench(subscriber, held_bytes_max=10_000)
    begun = b"".join(message("x" * 4000))[:-1]
    for sender in range(10, 30):
        bench.take_bytes(begun, (0,), sender)
    assert bench.router.stats.streams_cut == 18
    bench.take_bytes(b"x" + b"".join(message("next")), (1,), 29)
    assert subscriber.texts in (["x" * 4000, "next"], ["next"])


def test_a_sender_has_few_streams_at_a_time() -> None:
    bench = Bench(Subscriber(), held_bytes_max=1 << 40)
    for stream in range(1000):
        bench.take_bytes(b"".join(message("x" * 1000))[:-1], (0,), SENDER, stream)
    assert bench.router.table.drops[FrameDrop.CUT] == 996


def test_a_router_without_subscriptions_does_nothing_for_own_messages() -> None:
    router = Router(OWN, lambda _: None)
    assert router.publish(TOPIC, message("a")) is False
    assert router.stats.deliveries == 0
