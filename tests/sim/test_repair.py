"""Tests that losses are repaired, by NACKs and by parity, and with few of either."""

from dataclasses import replace
from itertools import pairwise

import pytest
from groups import CODES, HOLD_OFF_S, NAMES, PARITY, PAYLOAD, SLOW, SMALL, WIDE, Chooser, Tap, behind_router

from fjm2.norm.core.config import Fec, Flow, ReceiverConfig, SenderConfig
from fjm2.norm.core.nack import read_requests
from fjm2.norm.core.wire import (
    Info,
    Nack,
    RepairAdv,
    payload_id_format,
)
from fjm2.norm.events import (
    ObjectCompleted,
    StreamEnded,
    TransmissionFlushed,
)
from fjm2.norm.sim import Network, Node


@pytest.mark.parametrize("fec", [Fec.NONE, Fec.NOCODE])
def test_lost_segments_are_repaired_once(net: Network, fec: Fec) -> None:
    pub, sub = net.sender(SenderConfig(fec=fec)), net.receiver()
    net.link(pub, sub).lose(segments=range(3, 7))
    pub.write(PAYLOAD)
    net.run(until=5.0)
    assert sub.received == PAYLOAD
    assert (sub.stats.nacks_sent, pub.stats.repair_segments_sent) == (1, 4)


def asked_at(tap: Tap, config: SenderConfig) -> dict[int, list[float]]:
    """Return the times at which each missing segment was requested, by its index.

    Missing segments must not be adjacent.
    """
    asked: dict[int, list[float]] = {}
    pid = payload_id_format(config.fec.fec_id)
    for now, _, message in tap.messages:
        for ask in read_requests(message.requests) if isinstance(message, Nack) else ():
            assert ask.first == ask.last
            index = pid.block(ask.first.payload_id) * config.block_segments + pid.symbol(ask.first.payload_id)
            asked.setdefault(index, []).append(now)
    return asked


def test_losses_during_the_hold_off_are_requested_at_once(net: Network) -> None:
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


def test_a_lost_repair_is_requested_again_after_the_hold_off(net: Network, is_kind: Chooser) -> None:
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


def test_a_large_group_holds_off_before_it_requests_more(net: Network) -> None:
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


def test_requests_stay_in_proportion_to_received_data(net: Network) -> None:
    """Each segment that arrives reveals two missing segments, and is hardly longer than the request for them."""
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


def test_receivers_with_the_same_loss_send_few_nacks(net: Network) -> None:
    pub, subs = behind_router(net, 100, WIDE)
    pub.links[0].lose(segments=range(20, 24))
    pub.send(PAYLOAD)
    net.run(until=5.0)
    assert all(sub.objects == [PAYLOAD] for sub in subs)
    asked = sum(sub.stats.nacks_sent for sub in subs)
    assert 1 <= asked <= 12  # 5 are expected
    assert sum(sub.stats.nacks_suppressed for sub in subs) == 100 - asked
    assert pub.stats.parity_segments_sent == 4


def test_unicast_nacks_are_advertised_to_the_group(net: Network, is_kind: Chooser) -> None:
    tap = Tap(net)
    pub, router = net.sender(WIDE), net.router()
    net.link(pub, router).lose(segments=range(20, 24))
    subs = [net.receiver(ReceiverConfig(unicast_nack=True)) for _ in range(50)]
    for sub in subs:
        net.link(router, sub)
        # No receiver hears the NACKs of others.
        net.link(router, sub).lose(where=is_kind(Nack))
    pub.send(PAYLOAD)
    net.run(until=5.0)
    assert all(sub.objects == [PAYLOAD] for sub in subs)
    assert 1 <= sum(sub.stats.nacks_sent for sub in subs) <= 20  # others learn of it after a whole round trip
    assert sum(sub.stats.nacks_suppressed for sub in subs) >= 30
    assert tap.all(RepairAdv)
    assert pub.stats.parity_segments_sent == 4


def test_proactive_parity_avoids_nacks(net: Network) -> None:
    config = SenderConfig(segment_bytes=100, block_segments=16, fec=Fec.RS, parity_segments=4, auto_parity=2)
    pub, sub = net.sender(config), net.receiver()
    # Two segments of each block of 16 + 2 are lost. The object has 25 blocks, so one begins every 18 DATA.
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
    net.link(pub, sub).lose(segments=range(16, 30))  # 14 segments of a block of 16, which has 8 parity segments
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
def test_unknown_objects_are_requested(net: Network, config: SenderConfig) -> None:
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


# Repairs that are late.

FLOWING = SenderConfig(flow=Flow.MIN, rate_bps=200e6)
STALL_S = 0.4
DELAY_S = 0.001
MUCH = bytes(6_000_000)


def flowing_group(net: Network, count: int = 3, config: SenderConfig = FLOWING) -> tuple[Node, list[Node]]:
    pub, router = net.sender(config), net.router()
    net.link(pub, router, delay_s=DELAY_S)
    subs = [net.receiver() for _ in range(count)]
    for sub in subs:
        net.link(router, sub, delay_s=DELAY_S)
    return pub, subs


def stall(net: Network, pub: Node) -> None:
    """Let everything take long for a moment, as on a busy host, so that the sender's round-trip time becomes long."""
    pub.write(bytes(1000))
    net.run(until=0.5)
    links = [link for node in net.nodes for link in node.links]
    for link in links:
        link.shape(delay_s=STALL_S / 2)
    pub.write(bytes(1000))
    net.run(until=net.now + 2 * STALL_S)
    for link in links:
        link.shape(delay_s=DELAY_S)
    net.run(until=net.now + 3 * DELAY_S)
    assert pub.engine.grtt_s > STALL_S / 4


def transfer_s(net: Network, pub: Node, subs: list[Node]) -> float:
    """Send a lot, and return how long it takes until all have it."""
    began, total = net.now, subs[0].log.stream_bytes + len(MUCH)
    pub.write(MUCH)
    assert net.run_until(lambda: all(sub.log.stream_bytes == total for sub in subs), began + 60.0)
    return net.now - began


def lose(subs: list[Node], fraction: float) -> None:
    for sub in subs:
        link = sub.links[0].back
        link.lose(fraction)
        link.back.lose(fraction)


def test_a_stall_does_not_slow_down_later_repairs() -> None:
    calm_s = stalled_s = 0.0
    for seed in range(1, 4):
        calm, stalled = Network(seed), Network(seed)
        pub, subs = flowing_group(calm)
        pub.write(bytes(2000))
        calm.run(until=0.5)
        lose(subs, 0.02)
        calm_s += transfer_s(calm, pub, subs)
        pub, subs = flowing_group(stalled)
        stall(stalled, pub)
        lose(subs, 0.02)
        stalled_s += transfer_s(stalled, pub, subs)
    # A lost request for confirmation still waits for round trips as advertised.
    assert stalled_s < 2.75 * calm_s


def test_only_lost_repairs_are_repeated(net: Network) -> None:
    pub, subs = flowing_group(net, 1)
    stall(net, pub)
    lose(subs, 0.05)
    transfer_s(net, pub, subs)
    assert pub.stats.repair_segments_sent > 100
    assert subs[0].stats.duplicate_segments_received <= 0.02 * pub.stats.repair_segments_sent


def test_a_lost_repair_is_requested_again_after_the_time_that_repairs_take(net: Network) -> None:
    pub, (sub,) = flowing_group(net, 1, replace(FLOWING, rate_bps=20e6, grtt_min_s=0.5, grtt_s=0.5))
    link = sub.links[0].back
    pub.write(bytes(1000))
    net.run(until=2.0)
    link.lose(segments=[*range(10, 90, 10), 95])  # repairs are numbered, too: some of them get lost as well
    pub.write(bytes(280_000))
    began, total = net.now, 281_000
    assert net.run_until(lambda: sub.log.stream_bytes == total, began + 5.0)
    assert net.now - began < 0.25
    assert sub.stats.duplicate_segments_received == 0
