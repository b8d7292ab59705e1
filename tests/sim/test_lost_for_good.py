"""Tests of losses that cannot be repaired. They are reported once to every receiver that lacks the data."""

import pytest
from groups import PAYLOAD, SMALL, Chooser, Tap

from fjm2.norm.core.config import Fec, ReceiverConfig, SenderConfig
from fjm2.norm.core.wire import (
    Data,
    Flush,
    Nack,
    Squelch,
)
from fjm2.norm.events import (
    LossReason,
    ObjectCompleted,
    ObjectLost,
    ObjectPurged,
    ObjectsMissed,
    SenderVanished,
    StreamEnded,
    StreamLost,
    WatermarkCompleted,
)
from fjm2.norm.sim import Network


def test_objects_that_left_the_cache_are_squelched(net: Network, is_kind: Chooser) -> None:
    config = SenderConfig(segment_bytes=100, block_segments=16, cache_objects=2)
    pub, sub = net.sender(config), net.receiver()
    tap = Tap(net)
    link = net.link(pub, sub).lose(segments=[3])  # one of the first object
    link.back.lose(where=is_kind(Nack))
    first = pub.send(b"a" * 1000)
    net.run(until=0.05)
    others = [pub.send(letter * 1000) for letter in (b"b", b"c")]
    net.run(until=0.06)
    assert [event.object_id for event in pub.events(ObjectPurged)] == [first]
    link.back.mend()
    net.run(until=10.0)
    (lost,) = sub.events(ObjectLost)
    assert (lost.object_id, lost.reason, lost.missing) == (first, LossReason.SQUELCHED, ((300, 400),))
    assert [event.object_id for event in sub.events(ObjectCompleted)] == others
    assert tap.all(Squelch)


def test_squelch_reaches_all_that_went_by_while_a_stream_lasted(net: Network) -> None:
    config = SenderConfig(segment_bytes=100, block_segments=16, stream_bytes=1 << 16, cache_objects=4)
    pub, sub = net.sender(config), net.receiver()
    link = net.link(pub, sub)
    pub.write(b"stays open")
    for number in range(70):  # more than one SQUELCH can name
        pub.send(b"%d" % number)
        net.run(until=net.now + 0.02)
    link.lose(segments=[0])
    link.back.cut()
    lost = pub.send(b"lost")
    net.run(until=net.now + 0.02)
    for number in range(10):
        pub.send(b"%d" % number)
        net.run(until=net.now + 0.02)
    link.back.mend()
    net.run(until=net.now + 10.0)
    assert [event.object_id for event in sub.events(ObjectLost)] + [
        event.first_object_id for event in sub.events(ObjectsMissed)
    ] == [lost]
    assert sub.stats.nacks_sent <= 10


def test_overwritten_stream_data_is_reported_lost(net: Network) -> None:
    pub, sub = net.sender(SenderConfig(segment_bytes=100, block_segments=4, stream_bytes=3200)), net.receiver()
    link = net.link(pub, sub)
    stream = pub.write(PAYLOAD[:1000])
    net.run(until=0.5)
    link.cut()
    pub.write(PAYLOAD[1000:20_000])
    net.run(until=1.0)
    link.mend()
    pub.write(PAYLOAD[20_000:])
    pub.end_stream()
    net.run(until=10.0)
    (lost,) = sub.events(StreamLost)
    assert (lost.start, lost.reason) in [(1000, LossReason.SQUELCHED), (1000, LossReason.OVERRUN)]
    assert sub.received == PAYLOAD[: lost.start] + PAYLOAD[lost.end :]
    runs = sub.log.runs[pub.node_id, stream]
    assert all(run.data == PAYLOAD[run.start : run.start + len(run.data)] for run in runs)
    assert [event.size for event in sub.events(StreamEnded)] == [len(PAYLOAD)]


def test_receiver_checks_itself_when_the_flush_is_lost(net: Network, is_kind: Chooser) -> None:
    pub, sub = net.sender(SMALL), net.receiver()
    net.link(pub, sub).lose(where=is_kind(Flush)).lose(segments=[120, 121])  # within the last block
    pub.send(PAYLOAD[:12_500])
    net.run(until=10.0)
    assert sub.objects == [PAYLOAD[:12_500]]


def test_cancelled_object_is_reported_lost(net: Network) -> None:
    pub, sub = net.sender(SenderConfig(segment_bytes=100, rate_bps=1e6)), net.receiver()
    keep, drop = pub.send(PAYLOAD[:1000]), pub.send(PAYLOAD)
    net.at(0.1, lambda: pub.cancel(drop))
    net.run(until=0.2)
    last = pub.send(PAYLOAD[:500])
    net.run(until=10.0)
    assert [event.object_id for event in sub.events(ObjectCompleted)] == [keep, last]
    assert [(event.object_id, event.reason) for event in sub.events(ObjectLost)] == [(drop, LossReason.SQUELCHED)]


def test_silent_receiver_says_nothing(net: Network) -> None:
    tap = Tap(net)
    pub = net.sender(SenderConfig(segment_bytes=100, block_segments=16, fec=Fec.RS, parity_segments=4, auto_parity=2))
    sub = net.receiver(ReceiverConfig(silent=True))
    net.link(pub, sub).lose(segments={18 * block for block in range(25)})
    pub.send(PAYLOAD)
    net.run(until=1.0)
    mark = pub.watermark([sub])
    net.run(until=10.0)
    assert sub.objects == [PAYLOAD]
    assert {node for _, node, _ in tap.messages} == {pub}
    assert (sub.stats.nacks_sent, sub.stats.acks_sent, sub.stats.datagrams_sent) == (0, 0, 0)
    assert pub.events(WatermarkCompleted) == [WatermarkCompleted(mark, frozenset(), frozenset([sub.node_id]))]


@pytest.mark.parametrize("is_missing", [False, True])
def test_a_stream_of_which_nothing_is_missing_is_not_lost_when_the_receiver_closes(
    net: Network, is_missing: bool
) -> None:
    pub, sub = net.sender(SenderConfig(segment_bytes=100, block_segments=16)), net.receiver()
    link = net.link(pub, sub)
    pub.write(b"a" * 1000)
    net.run(until=1.0)
    if is_missing:
        link.lose(segments=[2])  # of those that are sent from now on
        link.back.cut()
        pub.write(b"b" * 1000)
        net.run(until=1.2)
    sub.close()
    assert sub.stats.objects_lost == is_missing
    assert len(sub.events(StreamLost)) == 1, "it did not end"


@pytest.mark.parametrize("is_leaving", [False, True])
def test_the_end_of_a_stream_that_comes_while_the_receiver_leaves_is_no_loss(
    net: Network, is_kind: Chooser, is_leaving: bool
) -> None:
    pub, sub = net.sender(SenderConfig(segment_bytes=100, block_segments=16)), net.receiver()
    link = net.link(pub, sub)
    pub.write(b"a" * 1000)
    net.run(until=1.0)
    if is_leaving:
        assert sub.engine is not None
        sub.engine.stop_answering()
    link.lose(where=is_kind(Data))
    pub.close()
    net.run(until=3.0)
    assert [event.reason for event in sub.events(SenderVanished)] == [LossReason.SENDER_GONE]
    assert sub.stats.objects_lost == (not is_leaving)
