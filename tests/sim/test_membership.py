"""Tests of nodes that join late, leave, restart or fall silent."""

import pytest
from groups import CODES, NAMES, PAYLOAD, SMALL, Tap, behind_router

from fjm2.norm.core.config import ReceiverConfig, SenderConfig, Sync
from fjm2.norm.core.wire import (
    EndOfTransmission,
)
from fjm2.norm.events import (
    LossReason,
    ObjectLost,
    SenderAppeared,
    SenderVanished,
    StreamEnded,
    StreamLost,
    StreamOpened,
    WatermarkCompleted,
)
from fjm2.norm.sim import Network, Node


def late_joiner(net: Network, sync: Sync, cut_s: float = 0.05) -> tuple[Node, Node, int]:
    """Run a sender of a stream, and a receiver that joins shortly after the stream has begun.

    Return both nodes and the id of the stream.
    """
    pub, sub = net.sender(SMALL), net.receiver(ReceiverConfig(sync=sync))
    link = net.link(pub, sub).cut()
    net.at(cut_s, link.mend)
    stream = pub.write(PAYLOAD[:10_000])
    net.run(until=cut_s * 2)
    pub.write(PAYLOAD[10_000:])
    pub.end_stream()
    net.run(until=10.0)
    return pub, sub, stream


@pytest.mark.parametrize("sync", [Sync.STREAM, Sync.ALL])
def test_late_joiner_gets_a_stream_from_its_beginning(net: Network, sync: Sync) -> None:
    _, sub, _ = late_joiner(net, sync)
    assert sub.received == PAYLOAD
    assert [event.start for event in sub.events(StreamOpened)] == [0]


def test_who_joins_when_nothing_is_sent_begins_when_it_is_asked(net: Network) -> None:
    pub, sub = net.sender(SMALL), net.receiver(ReceiverConfig(sync=Sync.STREAM))
    link = net.link(pub, sub).cut()
    pub.write(PAYLOAD)
    pub.end_stream()
    net.run(until=30.0)  # nothing is sent any more
    link.mend()
    pub.repeat_flush()
    net.run(until=40.0)
    assert sub.received == b""
    pub.repeat_flush([sub])
    net.run(until=41.0)
    assert sub.received == PAYLOAD


def test_late_joiner_begins_where_it_is(net: Network) -> None:
    _, sub, _ = late_joiner(net, Sync.CURRENT)
    (opened,) = sub.events(StreamOpened)
    assert opened.start >= 10_000
    assert sub.received == PAYLOAD[opened.start :]
    assert len(sub.events(StreamEnded)) == 1


@pytest.mark.parametrize(
    ("sync", "expected"), [(Sync.CURRENT, [2, 3]), (Sync.STREAM, [2, 3]), (Sync.ALL, [0, 1, 2, 3])]
)
def test_late_joiner_gets_objects_by_its_policy(net: Network, sync: Sync, expected: list[int]) -> None:
    pub, sub = net.sender(SMALL), net.receiver(ReceiverConfig(sync=sync, objects_max=8))
    link = net.link(pub, sub).cut()
    contents = [bytes([65 + number]) * 3000 for number in range(4)]
    for content in contents[:2]:
        pub.send(content)
    net.run(until=0.5)
    link.mend()
    for content in contents[2:]:
        pub.send(content)
    net.run(until=10.0)
    assert sorted(sub.objects) == [contents[number] for number in expected]


@pytest.mark.parametrize("config", CODES, ids=NAMES)
def test_late_joiner_gets_streams_that_began_before_it_joined(net: Network, config: SenderConfig) -> None:
    pub, sub = net.sender(config), net.receiver()
    link = net.link(pub, sub).cut()
    streams = [pub.write(PAYLOAD[:1000], stream=pub.open_stream()) for _ in range(3)]
    net.run(until=0.1)
    link.mend()
    pub.send(b"first heard")
    net.run(until=0.2)
    for stream in reversed(streams):
        pub.write(PAYLOAD[1000:2000], stream=stream)
        net.run(until=net.now + 0.1)
    net.run(until=5.0)
    assert sub.objects == [b"first heard"]
    assert [sub.log.stream(pub.node_id, stream) for stream in streams] == [PAYLOAD[:2000]] * 3


def test_stream_outlives_many_objects(net: Network) -> None:
    pub, sub = net.sender(SMALL), net.receiver(ReceiverConfig(objects_max=8))
    net.link(pub, sub).lose(0.05)
    stream = pub.write(PAYLOAD[:1000])
    for number in range(50):
        pub.send(b"%d" % number)
        pub.write(PAYLOAD[1000 + number : 1001 + number], stream=stream)
        net.run(until=net.now + 0.2)
    pub.end_stream(stream)
    net.run(until=20.0)
    assert sub.log.stream(pub.node_id, stream) == PAYLOAD[:1050]
    assert len(sub.events(StreamEnded)) == 1
    assert sorted(sub.objects) == sorted(b"%d" % number for number in range(50))
    assert not sub.events(StreamLost)


def test_watermark_draws_in_a_late_joiner(net: Network) -> None:
    pub, sub = net.sender(SMALL), net.receiver()
    link = net.link(pub, sub).cut()
    pub.send(PAYLOAD)
    net.run(until=3.0)
    link.mend()
    pub.watermark([sub])
    net.run(until=6.0)
    assert sub.objects == [PAYLOAD]
    assert [event.acked for event in pub.events(WatermarkCompleted)] == [{sub.node_id}]


def test_sender_starts_again(net: Network) -> None:
    pub, sub = net.sender(SenderConfig(segment_bytes=100, rate_bps=1e6)), net.receiver()
    pub.send(PAYLOAD)
    net.run(until=0.1)
    pub.crash()
    net.run(until=0.2)
    pub.rejoin()
    pub.send(b"after" * 100)
    net.run(until=10.0)
    assert sub.objects == [b"after" * 100]
    assert [event.reason for event in sub.events(ObjectLost)] == [LossReason.SENDER_RESTARTED]
    assert [event.reason for event in sub.events(SenderVanished)] == [LossReason.SENDER_RESTARTED]
    instances = [event.instance_id for event in sub.events(SenderAppeared)]
    assert len(set(instances)) == len(instances) == 2


def test_sender_says_goodbye(net: Network) -> None:
    tap = Tap(net)
    pub, sub = net.sender(SMALL), net.receiver()
    net.link(pub, sub).lose(segments=[3])
    pub.send(PAYLOAD)
    net.run(until=0.03)
    pub.close()
    net.run(until=1.0)
    assert tap.messages[-1][1:] == (pub, tap.all(EndOfTransmission)[0])
    assert [event.reason for event in sub.events(ObjectLost)] == [LossReason.SENDER_GONE]
    assert [event.reason for event in sub.events(SenderVanished)] == [LossReason.SENDER_GONE]
    assert sub.engine.remote_senders == ()


def test_idle_sender_is_not_given_up(net: Network) -> None:
    pub, sub = net.sender(SMALL), net.receiver()
    net.link(pub, sub).lose(0.05)
    pub.write(PAYLOAD[:1000])
    net.run(until=600.0)
    pub.write(PAYLOAD[1000:])
    net.run(until=610.0)
    assert sub.received == PAYLOAD
    assert not sub.events(SenderVanished)


def test_a_missed_end_of_a_stream_is_learned_later(net: Network) -> None:
    pub, sub = net.sender(SMALL), net.receiver()
    link = net.link(pub, sub)
    pub.write(PAYLOAD)
    net.run(until=0.1)
    link.cut()
    pub.end_stream()
    net.run(until=3.0)  # all its FLUSHes are lost
    link.mend()
    pub.send(b"later")
    net.run(until=10.0)
    assert (sub.received, sub.objects) == (PAYLOAD, [b"later"])
    assert sub.events(StreamEnded)


def test_sender_that_falls_silent_is_given_up(net: Network) -> None:
    pub, sub = net.sender(SMALL), net.receiver(ReceiverConfig(inactivity_s=3.0))
    net.link(pub, sub).lose(segments=[3])
    pub.send(PAYLOAD)
    net.run(until=0.03)
    pub.crash()
    net.run(until=2.9)
    assert not sub.events(SenderVanished)
    net.run(until=10.0)
    assert [event.reason for event in sub.events(ObjectLost)] == [LossReason.SENDER_GONE]
    assert len(sub.events(SenderVanished)) == 1


def test_receiver_returns_with_another_node_id(net: Network) -> None:
    pub, sub = net.sender(SMALL), net.receiver()
    pub.write(PAYLOAD[:5000])
    net.run(until=0.1)
    sub.crash()
    pub.write(PAYLOAD[5000:10_000])
    net.run(until=0.2)
    sub.rejoin(node_id=77)
    pub.write(PAYLOAD[10_000:])
    net.run(until=5.0)
    assert sub.node_id == 77
    assert sub.received == PAYLOAD


def test_paused_receiver_catches_up(net: Network) -> None:
    pub, subs = behind_router(net, 2)
    pub.write(PAYLOAD[:5000])
    net.run(until=0.1)
    subs[0].pause()
    pub.write(PAYLOAD[5000:])
    net.run(until=2.0)
    assert (len(subs[0].received), len(subs[1].received)) == (5000, len(PAYLOAD))
    subs[0].resume()
    net.run(until=3.0)
    assert subs[0].received == PAYLOAD
