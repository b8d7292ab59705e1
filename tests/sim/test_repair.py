"""A group of engines that repairs losses while members come and go."""

import os
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from fjm2.norm.core.config import Fec, ReceiverConfig, SenderConfig, SessionConfig, Sync
from fjm2.norm.core.engine import sender_of
from fjm2.norm.core.nack import read_requests
from fjm2.norm.core.stats import Drop
from fjm2.norm.core.train import Train
from fjm2.norm.core.wire import (
    Data,
    EndOfTransmission,
    Flush,
    Info,
    Message,
    Nack,
    Position,
    RepairAdv,
    RepairFlag,
    RepairForm,
    RepairRequest,
    Squelch,
    decode,
    payload_id_format,
)
from fjm2.norm.events import (
    CommandReceived,
    CommandSent,
    LossReason,
    NodeIdCollided,
    ObjectCompleted,
    ObjectLost,
    ObjectPurged,
    ObjectsMissed,
    SenderAppeared,
    SenderVanished,
    StreamEnded,
    StreamLost,
    StreamOpened,
    TransmissionFlushed,
    WatermarkCompleted,
)
from fjm2.norm.sim import GROUP, Network, Node

Chooser = Callable[..., Callable[[bytes], bool]]

PAYLOAD = Random(7).randbytes(40_000)
SMALL = SenderConfig(segment_bytes=100, block_segments=16, stream_bytes=1 << 16)
PARITY = SenderConfig(segment_bytes=100, block_segments=16, stream_bytes=1 << 16, fec=Fec.RS, parity_segments=8)
CODES = [
    SMALL,
    SenderConfig(segment_bytes=100, block_segments=16, stream_bytes=1 << 16, fec=Fec.NOCODE),
    PARITY,
    SenderConfig(
        segment_bytes=100, block_segments=16, stream_bytes=1 << 16, fec=Fec.RS, parity_segments=8, auto_parity=2
    ),
    replace(SMALL, backoff_factor=0),
]
WIDE = SenderConfig(segment_bytes=100, block_segments=16, fec=Fec.RS, parity_segments=8, grtt_s=0.02)
"""Knows from the start how long the way is."""
NAMES = ["none", "nocode", "rs", "rs-auto", "prompt"]


class Tap:
    """All messages that were sent, and by whom."""

    def __init__(self, net: Network) -> None:
        self.messages: list[tuple[float, Node, Message]] = []
        self._net = net
        net.on_send = self._note

    def _note(self, node: Node, train: Train) -> None:
        for at in range(0, train.data.size, train.segment_bytes):
            message = decode(bytes(train.data[at : at + train.segment_bytes]))
            self.messages.append((self._net.now, node, message))

    def all(self, kind: type[Message]) -> list[Message]:
        return [message for _, _, message in self.messages if isinstance(message, kind)]


def behind_router(net: Network, count: int, sender: SenderConfig = SMALL) -> tuple[Node, list[Node]]:
    """A sender and its receivers, which share the link from the sender to a router."""
    pub, router = net.sender(sender), net.router()
    net.link(pub, router)
    subs = [net.receiver() for _ in range(count)]
    for sub in subs:
        net.link(router, sub)
    return pub, subs


# Repair.


@pytest.mark.parametrize("fec", [Fec.NONE, Fec.NOCODE])
def test_lost_segments_are_repaired_once(net: Network, fec: Fec) -> None:
    pub, sub = net.sender(SenderConfig(fec=fec)), net.receiver()
    net.link(pub, sub).lose(segments=range(3, 7))
    pub.write(PAYLOAD)
    net.run(until=5.0)
    assert sub.received == PAYLOAD
    assert (sub.stats.nacks_sent, pub.stats.repair_segments_sent) == (1, 4)


SLOW = SenderConfig(segment_bytes=100, block_segments=16, grtt_s=0.1, grtt_min_s=0.1, rate_bps=1e5, backoff_factor=0)
"""A segment every 13 ms or so, many of them within the time that a repair is given to come."""
HOLD_OFF_S = 0.2


def asked_at(tap: Tap, config: SenderConfig) -> dict[int, list[float]]:
    """When each segment was asked for, by its index. None is next to another that is missing."""
    asked: dict[int, list[float]] = {}
    pid = payload_id_format(config.fec.fec_id)
    for now, _, message in tap.messages:
        for ask in read_requests(message.requests) if isinstance(message, Nack) else ():
            assert ask.first == ask.last
            index = pid.block(ask.first.payload_id) * config.block_segments + pid.symbol(ask.first.payload_id)
            asked.setdefault(index, []).append(now)
    return asked


def test_what_is_lost_during_the_hold_off_is_asked_for_at_once(net: Network) -> None:
    tap = Tap(net)
    pub, sub = net.sender(SLOW), net.receiver()
    net.link(pub, sub).lose(segments=[5, 8])  # the repair of the first comes between them
    pub.send(PAYLOAD[:3000])
    net.run(until=5.0)
    assert sub.objects == [PAYLOAD[:3000]]
    asked = asked_at(tap, SLOW)
    assert {index: len(times) for index, times in asked.items()} == {5: 1, 7: 1}
    assert 0.0 < asked[7][0] - asked[5][0] < HOLD_OFF_S / 3
    assert pub.stats.repair_segments_sent == 2


def test_a_repair_that_is_lost_is_asked_for_after_the_hold_off(net: Network, is_kind: Chooser) -> None:
    tap = Tap(net)
    pub, sub = net.sender(SLOW), net.receiver()
    link = net.link(pub, sub).lose(segments=[5, 8, 11, 14])
    link.back.lose(where=is_kind(Nack))
    pub.send(PAYLOAD[:9000])
    net.run(until=0.5)
    link.back.mend()
    net.run(until=5.0)
    assert sub.objects == [PAYLOAD[:9000]]
    asked = asked_at(tap, SLOW)
    assert set(asked) == {5, 8, 11, 14}
    for times in asked.values():
        assert len(times) > 1
        assert all(HOLD_OFF_S <= later - before <= 1.25 * HOLD_OFF_S for before, later in pairwise(times))


def test_a_crowd_holds_off_before_it_asks_for_more(net: Network) -> None:
    config = replace(SLOW, backoff_factor=1)
    tap = Tap(net)
    pub, sub = net.sender(config), net.receiver()
    net.link(pub, sub).lose(segments=[5, 8, 28])
    pub.send(PAYLOAD[:6000])
    net.run(until=5.0)
    assert sub.objects == [PAYLOAD[:6000]]
    times = sorted({now for times in asked_at(tap, config).values() for now in times})
    assert len(times) > 1
    assert all(later - before >= HOLD_OFF_S + 0.1 for before, later in pairwise(times))


def test_requests_are_paid_for_by_data_that_came(net: Network) -> None:
    """Every segment that comes tells of two that are missing, and is hardly longer than the request for them."""
    pub, sub = net.sender(replace(SLOW, segment_bytes=64)), net.receiver()
    link = net.link(pub, sub)
    link.lose(segments={number for number in range(3000) if number % 3})
    link.back.lose(1.0)
    pub.send(PAYLOAD)
    net.run(until=3.0)
    received_bytes = sub.stats.datagrams_received * 64
    assert 3.0 / HOLD_OFF_S < sub.stats.nacks_sent <= received_bytes / 128 + 3.0 / HOLD_OFF_S


@pytest.mark.parametrize("config", CODES, ids=NAMES)
def test_nothing_lost_nothing_asked(net: Network, config: SenderConfig) -> None:
    pub, sub = net.sender(config), net.receiver()
    pub.write(PAYLOAD)
    number = pub.send(PAYLOAD)
    net.run(until=5.0)
    assert (sub.received, sub.objects) == (PAYLOAD, [PAYLOAD])
    assert [event.object_id for event in sub.events(ObjectCompleted)] == [number]
    assert (sub.stats.nacks_sent, pub.stats.repair_segments_sent, sub.stats.nacks_suppressed) == (0, 0, 0)
    assert sub.stats.duplicate_segments_received == 0
    assert pub.events(TransmissionFlushed)


@pytest.mark.parametrize("config", CODES, ids=NAMES)
@pytest.mark.parametrize("burst", [1.0, 5.0])
def test_heavy_loss_both_ways_is_repaired(net: Network, config: SenderConfig, burst: float) -> None:
    pub, subs = behind_router(net, 3, config)
    for sub in subs:
        link = net.link(sub.links[0].end, sub)
        link.lose(0.25, burst=burst)
        link.back.lose(0.25)
    first = pub.send(PAYLOAD, info=b"first")
    pub.write(PAYLOAD)
    pub.end_stream()
    pub.send(PAYLOAD[::-1])
    net.run(until=30.0)
    for sub in subs:
        assert sub.received == PAYLOAD
        assert sorted(sub.objects) == sorted([PAYLOAD, PAYLOAD[::-1]])
        assert {event.object_id: event.info for event in sub.events(ObjectCompleted)}[first] == b"first"
        assert len(sub.events(StreamEnded)) == 1


def test_many_that_lose_the_same_ask_but_few_times(net: Network) -> None:
    pub, subs = behind_router(net, 100, WIDE)
    pub.links[0].lose(segments=range(20, 24))
    pub.send(PAYLOAD)
    net.run(until=5.0)
    assert all(sub.objects == [PAYLOAD] for sub in subs)
    asked = sum(sub.stats.nacks_sent for sub in subs)
    assert 1 <= asked <= 12  # 5 are expected
    assert sum(sub.stats.nacks_suppressed for sub in subs) == 100 - asked
    assert pub.stats.parity_segments_sent == 4


def test_unicast_nacks_are_told_to_the_group(net: Network, is_kind: Chooser) -> None:
    tap = Tap(net)
    pub, router = net.sender(WIDE), net.router()
    net.link(pub, router).lose(segments=range(20, 24))
    subs = [net.receiver(ReceiverConfig(unicast_nack=True)) for _ in range(50)]
    for sub in subs:
        net.link(router, sub)
        # Nobody hears another's NACK.
        net.link(router, sub).lose(where=is_kind(Nack))
    pub.send(PAYLOAD)
    net.run(until=5.0)
    assert all(sub.objects == [PAYLOAD] for sub in subs)
    assert 1 <= sum(sub.stats.nacks_sent for sub in subs) <= 20  # the others hear of it after a whole round trip
    assert sum(sub.stats.nacks_suppressed for sub in subs) >= 30
    assert tap.all(RepairAdv)
    assert pub.stats.parity_segments_sent == 4


def test_proactive_parity_avoids_nacks(net: Network) -> None:
    config = SenderConfig(segment_bytes=100, block_segments=16, fec=Fec.RS, parity_segments=4, auto_parity=2)
    pub, sub = net.sender(config), net.receiver()
    # Two of each block of 16 + 2: a block of 400 segments begins every 18 DATA.
    net.link(pub, sub).lose(segments={18 * block + place for block in range(25) for place in (3, 9)})
    pub.send(PAYLOAD)
    net.run(until=5.0)
    assert sub.objects == [PAYLOAD]
    assert (sub.stats.nacks_sent, sub.stats.segments_decoded) == (0, 50)
    assert (pub.stats.repair_segments_sent, pub.stats.parity_segments_sent) == (0, 50)


def test_parity_repairs_different_losses_at_once(net: Network) -> None:
    pub, subs = behind_router(net, 4, PARITY)
    for number, sub in enumerate(subs):
        net.link(sub.links[0].end, sub).lose(segments=[20 + number, 40 + number])
    pub.send(PAYLOAD)
    net.run(until=5.0)
    assert all(sub.objects == [PAYLOAD] for sub in subs)
    assert (pub.stats.repair_segments_sent, pub.stats.parity_segments_sent) == (0, 2)


def test_lost_parity_is_replaced_by_other_parity(net: Network) -> None:
    pub, sub = net.sender(PARITY), net.receiver()
    net.link(pub, sub).lose(segments=[5, 400, 401])  # a source segment, then the first repairs
    pub.send(PAYLOAD)
    net.run(until=5.0)
    assert sub.objects == [PAYLOAD]
    assert (pub.stats.repair_segments_sent, pub.stats.parity_segments_sent) == (0, 3)


def test_more_losses_than_parity_are_repaired(net: Network) -> None:
    pub, sub = net.sender(PARITY), net.receiver()
    net.link(pub, sub).lose(segments=range(16, 30))  # 14 of a block of 16, with 8 parity
    pub.send(PAYLOAD)
    net.run(until=5.0)
    assert sub.objects == [PAYLOAD]
    assert pub.stats.repair_segments_sent + pub.stats.parity_segments_sent == 14


def test_lost_info_is_repaired(net: Network, is_kind: Chooser) -> None:
    pub, sub = net.sender(SMALL), net.receiver()
    link = net.link(pub, sub).lose(where=is_kind(Info))
    net.at(0.05, link.mend)
    pub.send(b"content", info=b"info")
    pub.send(b"", info=b"nothing but info")
    net.run(until=5.0)
    infos = sorted((event.info, bytes(event.data or b"")) for event in sub.events(ObjectCompleted))
    assert infos == [(b"info", b"content"), (b"nothing but info", b"")]


@pytest.mark.parametrize("config", [SMALL, replace(SMALL, backoff_factor=0)], ids=["crowd", "prompt"])
def test_objects_never_heard_of_are_asked_for(net: Network, config: SenderConfig) -> None:
    pub, sub = net.sender(config), net.receiver()
    link = net.link(pub, sub)
    pub.send(b"first" * 100)
    net.run(until=0.1)
    link.cut()
    pub.send(b"second" * 100)
    net.run(until=0.12)
    link.mend()
    pub.send(b"third" * 100)
    net.run(until=5.0)
    assert sorted(sub.objects) == sorted([b"first" * 100, b"second" * 100, b"third" * 100])


def test_reordered_and_doubled_segments_arrive_once(net: Network) -> None:
    pub, sub = net.sender(SMALL), net.receiver()
    net.link(pub, sub, jitter_s=0.01).reorder(0.2, by_s=0.02).duplicate(0.2)
    pub.write(PAYLOAD)
    pub.send(PAYLOAD)
    net.run(until=10.0)
    assert (sub.received, sub.objects) == (PAYLOAD, [PAYLOAD])


def test_slow_link_with_a_short_queue_is_repaired(net: Network) -> None:
    pub, sub = net.sender(SMALL), net.receiver()
    link = net.link(pub, sub, rate_bps=20e6, queue_bytes=20_000)
    pub.send(PAYLOAD * 3)
    net.run(until=20.0)
    assert link.segments_dropped
    assert sub.objects == [PAYLOAD * 3]


# Losses that cannot be repaired.


def test_what_left_the_cache_is_squelched(net: Network, is_kind: Chooser) -> None:
    config = SenderConfig(segment_bytes=100, block_segments=16, cache_objects=2)
    pub, sub = net.sender(config), net.receiver()
    tap = Tap(net)
    link = net.link(pub, sub).lose(segments=[3])  # of the first object
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


def test_what_a_stream_left_behind_is_reported_lost(net: Network) -> None:
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


# Confirmation.


def test_watermark_tells_who_has_all(net: Network) -> None:
    pub, subs = behind_router(net, 3)
    gone = net.receiver()
    pub.send(PAYLOAD)
    net.run(until=1.0)
    net.link(subs[0].links[0].end, subs[0]).lose(0.3)
    gone.crash()
    pub.write(PAYLOAD)
    net.run(until=1.1)
    mark = pub.watermark([*subs, gone])
    net.run(until=10.0)
    nodes = frozenset(sub.node_id for sub in subs)
    assert pub.events(WatermarkCompleted) == [WatermarkCompleted(mark, nodes, frozenset([gone.node_id]))]


def test_watermark_waits_for_repairs(net: Network, is_kind: Chooser) -> None:
    pub, sub = net.sender(SMALL), net.receiver()
    link = net.link(pub, sub).lose(segments=[5])
    link.back.lose(where=is_kind(Nack))
    pub.send(PAYLOAD)
    mark = pub.watermark([sub])
    net.run(until=0.3)
    assert not pub.events(WatermarkCompleted)
    link.back.mend()
    assert net.run_until(lambda: bool(pub.events(WatermarkCompleted)), deadline=10.0)
    assert pub.events(WatermarkCompleted) == [WatermarkCompleted(mark, frozenset([sub.node_id]), frozenset())]
    assert sub.objects == [PAYLOAD]


def test_watermark_does_not_wait_for_what_is_lost_behind_it(net: Network, is_kind: Chooser) -> None:
    """Something is always missing, but what was before the watermark is confirmed when it comes."""
    tap = Tap(net)
    pub, sub = net.sender(SLOW), net.receiver()
    link = net.link(pub, sub).lose(segments=[3, *range(11, 400, 3)])
    link.back.lose(where=is_kind(Nack))
    pub.write(PAYLOAD[:1000])
    net.run(until=0.1)
    mark = pub.watermark([sub])
    pub.write(PAYLOAD[1000:20000])
    net.run(until=0.2)
    link.back.mend()
    assert net.run_until(lambda: sub.received >= PAYLOAD[:1000], deadline=2.0)
    asked = len(tap.all(Flush))
    assert net.run_until(lambda: bool(pub.events(WatermarkCompleted)), deadline=2.0)
    assert pub.events(WatermarkCompleted) == [WatermarkCompleted(mark, frozenset([sub.node_id]), frozenset())]
    assert len(tap.all(Flush)) == asked
    assert len(sub.received) < 1200
    assert net.run_until(lambda: sub.received == PAYLOAD[:20000], deadline=10.0)


def test_watermarks_one_after_the_other_on_a_stream(net: Network) -> None:
    pub, sub = net.sender(SMALL), net.receiver()
    net.link(pub, sub).lose(0.05)
    marks = []
    for part in range(5):
        pub.write(PAYLOAD[part * 1000 : part * 1000 + 1000])
        net.run(until=net.now + 0.02)
        marks.append(pub.watermark([sub]))
    net.run(until=10.0)
    assert [event.watermark for event in pub.events(WatermarkCompleted)] == marks
    assert all(event.acked == {sub.node_id} for event in pub.events(WatermarkCompleted))
    assert sub.received == PAYLOAD[:5000]


# Coming and going.


def late_joiner(net: Network, sync: Sync, cut_s: float = 0.05) -> tuple[Node, Node, int]:
    """A sender of a stream, and a receiver that is there a little too late for its beginning."""
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
def test_late_joiner_gets_streams_that_began_before_what_it_heard_first(net: Network, config: SenderConfig) -> None:
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


def test_end_of_a_stream_is_learned_of_later(net: Network) -> None:
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


def test_receiver_comes_back_as_another(net: Network) -> None:
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


# Numbers that wrap around.


class Counting(Random):
    """Begins all counters of an engine with one number."""

    def __init__(self, first: int) -> None:
        super().__init__(first)
        self._first = first

    def getrandbits(self, k: int, /) -> int:
        return self._first & ((1 << k) - 1)


@pytest.mark.parametrize("config", CODES, ids=NAMES)
def test_object_ids_and_sequences_wrap(net: Network, config: SenderConfig) -> None:
    pub = net.node(SessionConfig(node_id=1, sender=config), random=Counting(65_533))
    sub = net.receiver()
    net.link(pub, sub).lose(0.1)
    contents = [bytes([number]) * 2000 for number in range(8)]
    numbers = [pub.send(content) for content in contents]
    assert numbers == [65_533, 65_534, 65_535, 0, 1, 2, 3, 4]
    net.run(until=10.0)
    assert sorted(sub.objects) == contents
    assert sorted(event.object_id for event in sub.events(ObjectCompleted)) == sorted(numbers)


def test_block_numbers_of_a_stream_wrap_at_16_bits(net: Network) -> None:
    config = SenderConfig(segment_bytes=64, block_segments=1, fec=Fec.NOCODE, stream_bytes=1 << 20, rate_bps=2e7)
    pub, sub = net.sender(config), net.receiver()
    net.link(pub, sub).lose(0.001)
    content = Random(3).randbytes(64 * 70_000)
    pub.write(content)
    pub.end_stream()
    assert net.run_until(lambda: bool(sub.events(StreamEnded)), deadline=60.0)
    assert sub.received == content
    assert sub.stats.nacks_sent


@pytest.mark.parametrize("config", CODES, ids=NAMES)
def test_block_numbers_of_a_stream_wrap(net: Network, config: SenderConfig) -> None:
    """The stream's first 2^24 - 20 blocks, or 2^16 - 20, are taken as sent: nobody was there."""
    pub, sub = net.sender(replace(config, stream_bytes=1 << 18)), net.receiver()
    net.link(pub, sub).lose(0.1)
    stream = pub.open_stream()
    bits = 16 if config.fec is Fec.NOCODE else 24
    skipped = ((1 << bits) - 20) * config.block_segments
    item = sender_of(pub.engine).cache.get(stream)
    ring = item.ring
    skipped -= skipped % ring.rows  # so that rows stay where their index says
    ring.closed = ring.first = item.next_index = skipped
    pub.write(PAYLOAD * 2)
    pub.end_stream()
    net.run(until=10.0)
    (opened,) = sub.events(StreamOpened)
    assert sub.received == (PAYLOAD * 2)[opened.start :]
    assert opened.start <= 2000
    assert sub.events(StreamEnded)


# All at once, and one beside the other.


def test_two_streams_at_once(net: Network) -> None:
    pub, sub = net.sender(SMALL), net.receiver()
    net.link(pub, sub).lose(0.1)
    first, second = pub.open_stream(b"first"), pub.open_stream(b"second")
    for part in range(0, len(PAYLOAD), 1000):
        pub.write(PAYLOAD[part : part + 1000], stream=first)
        pub.write(PAYLOAD[::-1][part : part + 1000], stream=second)
        net.run(until=net.now + 0.005)
    pub.end_stream(first)
    pub.end_stream(second)
    net.run(until=10.0)
    assert sub.log.stream(pub.node_id, first) == PAYLOAD
    assert sub.log.stream(pub.node_id, second) == PAYLOAD[::-1]
    assert sorted(event.object_id for event in sub.events(StreamEnded)) == sorted([first, second])


def test_every_node_sends_to_all(net: Network) -> None:
    nodes = [net.sender(SMALL) for _ in range(5)]
    for node in nodes:
        net.link(node, net.hub).lose(0.05)
    for number, node in enumerate(nodes):
        node.send(bytes([number]) * 5000)
        node.write(bytes([number + 100]) * 5000)
    net.run(until=10.0)
    for number, node in enumerate(nodes):
        others = [other for other in range(5) if other != number]
        assert sorted(node.objects) == [bytes([other]) * 5000 for other in others]
        assert sorted(b"".join(run.data for run in runs) for runs in node.log.runs.values()) == [
            bytes([other + 100]) * 5000 for other in others
        ]


def test_files_arrive_as_files(net: Network, tmp_path: Path) -> None:
    outbox, inbox = tmp_path / "out", tmp_path / "in"
    outbox.mkdir()
    inbox.mkdir()
    (outbox / "file").write_bytes(PAYLOAD)
    pub, sub = net.sender(PARITY), net.receiver(ReceiverConfig(file_directory=str(inbox)))
    other = net.receiver()
    net.link(pub, net.hub).lose(0.1)
    pub.send_file(outbox / "file", info=b"file")
    net.run(until=10.0)
    (event,) = sub.events(ObjectCompleted)
    assert (event.is_file, event.info, event.data, event.size) == (True, b"file", None, len(PAYLOAD))
    assert event.path is not None
    assert Path(event.path).read_bytes() == PAYLOAD
    assert os.listdir(inbox) == [os.path.basename(event.path)]
    assert other.objects == [PAYLOAD]


def test_crashed_receiver_leaves_no_file(net: Network, tmp_path: Path) -> None:
    pub = net.sender(SenderConfig(segment_bytes=100, rate_bps=1e6))
    sub = net.receiver(ReceiverConfig(file_directory=str(tmp_path)))
    (tmp_path / "file").write_bytes(PAYLOAD)
    pub.send_file(tmp_path / "file")
    net.run(until=0.1)
    assert len(os.listdir(tmp_path)) == 2
    sub.crash()
    assert os.listdir(tmp_path) == ["file"]


def test_robust_command_survives_loss(net: Network) -> None:
    pub, sub = net.sender(SenderConfig(robust_factor=20)), net.receiver()
    net.link(pub, sub).lose(0.5)
    pub.command(b"robust", is_robust=True)
    net.run(until=5.0)
    assert {event.content for event in sub.events(CommandReceived)} == {b"robust"}
    assert pub.events(CommandSent) == [CommandSent()]


def test_command_is_sent_once(net: Network) -> None:
    pub, sub = net.sender(), net.receiver()
    pub.command(b"once")
    net.run(until=5.0)
    assert [event.content for event in sub.events(CommandReceived)] == [b"once"]


def test_grtt_comes_down_to_the_longest_round_trip(net: Network) -> None:
    pub, router = net.sender(SenderConfig(grtt_s=0.5)), net.router()
    net.link(pub, router, delay_s=0.005)
    for delay_s in (0.005, 0.01, 0.02):
        net.link(router, net.receiver(), delay_s=delay_s)
    pub.write(PAYLOAD)
    net.run(until=60.0)
    assert 0.045 <= pub.engine.grtt_s <= 0.07


def test_grtt_grows_to_the_longest_round_trip(net: Network) -> None:
    pub, near, far = net.sender(SenderConfig(grtt_s=0.01)), net.receiver(), net.receiver()
    net.link(pub, near, delay_s=0.001)
    net.link(pub, far, delay_s=0.2)
    pub.write(PAYLOAD)
    net.run(until=300.0)
    assert 0.3 <= pub.engine.grtt_s <= 0.55  # it shrinks by a tenth whenever the near one answers alone


# Hostile, or out of order.


def test_node_id_in_use_twice_is_reported(net: Network) -> None:
    pub, twin = net.sender(node_id=5), net.sender(node_id=5)
    third = net.receiver()
    pub.send(b"content")
    net.run(until=1.0)
    assert [event.address for event in twin.events(NodeIdCollided)] == [pub.address]
    assert third.objects == [b"content"]


def flood(net: Network, attacker: Node, pub: Node, position: Position, last: Position, flags: int) -> None:
    """A thousand NACKs for the same, a millisecond apart."""
    nack = Nack(
        source_id=attacker.node_id,
        sender_id=pub.node_id,
        instance_id=sender_of(pub.engine).instance_id,
        grtt_response_s=0,
        grtt_response_us=0,
        extensions=(),
        requests=(RepairRequest(RepairForm.RANGES, flags, (position, last)),),
    )
    for number in range(1000):
        net.at(net.now + 0.001 * number, lambda: attacker.transmit(nack.encode()))


@pytest.mark.parametrize("config", CODES, ids=NAMES)
def test_flood_of_nacks_makes_few_repairs(net: Network, config: SenderConfig) -> None:
    pub, sub, attacker = net.sender(config), net.receiver(), net.receiver()
    net.link(pub, net.hub, delay_s=0.01)
    number = pub.send(PAYLOAD)  # 400 segments, of which the first ten blocks are asked for
    net.run(until=1.0)
    first, last = _block_range(config, number)
    flood(net, attacker, pub, first, last, RepairFlag.BLOCK)
    net.run(until=3.0)
    # No more than once a round trip, which is 30 ms here: in a second, some forty times 160.
    assert pub.stats.repair_segments_sent <= 40 * 160
    pub.send(b"still alive")
    net.run(until=10.0)
    assert sub.objects == [PAYLOAD, b"still alive"]


def _block_range(config: SenderConfig, number: int) -> tuple[Position, Position]:
    shift = 16 if config.fec is Fec.NOCODE else 8
    fec_id = config.fec.fec_id
    return Position(fec_id, number, 0), Position(fec_id, number, 9 << shift)


def test_requests_for_nonsense_are_dropped(net: Network) -> None:
    pub, sub, attacker = net.sender(SMALL), net.receiver(), net.receiver()
    number = pub.send(PAYLOAD)
    net.run(until=1.0)
    fec_id = SMALL.fec.fec_id
    flood(net, attacker, pub, Position(fec_id, number, 900 << 8), Position(fec_id, number, 901 << 8), RepairFlag.BLOCK)
    net.run(until=3.0)
    assert pub.stats.repair_segments_sent == 0
    assert pub.stats.drops[Drop.BAD_POSITION] == 1000
    flood(
        net,
        attacker,
        pub,
        Position(fec_id, number + 9 & 0xFFFF, 0),
        Position(fec_id, number + 9 & 0xFFFF, 0),
        RepairFlag.OBJECT,
    )
    net.run(until=5.0)
    assert (pub.stats.repair_segments_sent, pub.stats.squelches_sent <= 40) == (0, True)
    pub.send(b"still alive")
    net.run(until=10.0)
    assert sub.objects == [PAYLOAD, b"still alive"]


def test_many_fake_senders_take_bounded_memory(net: Network) -> None:
    pub = net.sender(SenderConfig(segment_bytes=100, rate_bps=1e6))
    sub = net.receiver(ReceiverConfig(senders_max=16, total_bytes_max=1 << 20, object_bytes_max=1 << 19))
    attacker = net.receiver()
    pub.send(b"proven")
    net.run(until=0.5)
    pub.send(PAYLOAD)
    rng = Random(5)
    template = _template(net, pub)
    for number in range(3000):
        forged = bytearray(template)
        forged[4:8] = (1000 + number).to_bytes(4, "big")
        forged[14:16] = rng.randbytes(2)
        net.at(0.5 + number * 1e-3, lambda forged=bytes(forged): attacker.transmit(forged))
    worst = 0
    while net.now < 4.0:
        net.run(until=net.now + 0.05)
        assert len(sub.engine.remote_senders) <= 16
        worst = max(worst, sub.engine.memory_bytes)
    assert worst <= 1 << 20
    assert pub.node_id in sub.engine.remote_senders
    assert sub.objects == [b"proven", PAYLOAD]


def _template(net: Network, pub: Node) -> bytes:
    """A DATA of a large object of which no more will come."""
    data: list[bytes] = []
    other = Network(net.seed)
    other.on_send = lambda _, train: data.append(bytes(train.data[: train.segment_bytes]))
    twin = other.sender(pub.config.sender)
    twin.send(bytes(400_000))
    other.run(until=0.1)
    return next(item for item in data if isinstance(decode(item), Data))


def test_too_large_objects_are_refused(net: Network) -> None:
    pub, sub = net.sender(SMALL), net.receiver(ReceiverConfig(object_bytes_max=1000))
    large, small = pub.send(PAYLOAD), pub.send(b"small")
    net.run(until=5.0)
    assert [(event.object_id, event.reason) for event in sub.events(ObjectLost)] == [(large, LossReason.TOO_LARGE)]
    assert [event.object_id for event in sub.events(ObjectCompleted)] == [small]
    assert sub.stats.nacks_sent == 0


def test_sender_too_far_ahead_is_an_event(net: Network) -> None:
    pub, sub = net.sender(SMALL), net.receiver(ReceiverConfig(objects_max=4))
    link = net.link(pub, sub)
    pub.send(b"first")
    net.run(until=0.5)
    link.cut()
    for _ in range(10):
        pub.send(b"unheard")
    net.run(until=0.6)
    link.mend()
    pub.send(b"last")
    net.run(until=10.0)
    assert [event.count for event in sub.events(ObjectsMissed)] == [7]
    assert sub.objects.count(b"unheard") == 3
    assert sorted(set(sub.objects)) == [b"first", b"last", b"unheard"]


def test_same_seed_same_history() -> None:
    def history(seed: int) -> list[tuple[float, bytes]]:
        net = Network(seed)
        sent: list[tuple[float, bytes]] = []
        net.on_send = lambda _, train: sent.append((net.now, train.data.tobytes()))
        pub, sub = net.sender(PARITY), net.receiver()
        net.link(pub, sub, jitter_s=0.01).lose(0.2, burst=3).reorder(0.1, by_s=0.01).duplicate(0.1)
        pub.write(PAYLOAD)
        net.run(until=5.0)
        assert sub.received == PAYLOAD
        return sent

    assert history(3) == history(3) != history(4)


def test_unicast_goes_to_one(net: Network) -> None:
    pub, sub, other = net.sender(), net.receiver(), net.receiver()
    pub.transmit(b"nonsense", to=sub.address)
    pub.transmit(b"nonsense", to=("nowhere", 1))
    net.run(until=1.0)
    assert (sub.stats.drops[Drop.MALFORMED], other.stats.drops[Drop.MALFORMED]) == (1, 0)
    pub.transmit(b"nonsense", to=GROUP)
    net.run(until=2.0)
    assert (sub.stats.drops[Drop.MALFORMED], other.stats.drops[Drop.MALFORMED]) == (2, 1)
