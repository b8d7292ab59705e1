"""Tests of watermarks, by which the sender learns which receivers have everything."""

from dataclasses import replace

import pytest
from groups import PARITY, PAYLOAD, SLOW, SMALL, Chooser, Tap, behind_router

from fjm2.norm.core.config import Flow, SenderConfig
from fjm2.norm.core.train import Train
from fjm2.norm.core.wire import Ack, AckType, Data, Flush, Nack, decode
from fjm2.norm.events import (
    ReceiverEvicted,
    WatermarkCompleted,
)
from fjm2.norm.sim import Network, Node


def test_watermark_names_the_nodes_that_have_everything(net: Network) -> None:
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


def test_watermark_ignores_losses_after_it(net: Network, is_kind: Chooser) -> None:
    """A receiver lacks data after the watermark, but confirms the watermark once it has everything before it."""
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


class Confirmations:
    """Counts of the confirmations that receivers send to the group, and to the sender alone."""

    def __init__(self, net: Network) -> None:
        self.to_group = self.to_sender = 0
        net.on_send = self._note

    def _note(self, _: Node, train: Train) -> None:
        message = decode(bytes(train.data[: train.segment_bytes]))
        if isinstance(message, Ack) and message.ack_type == AckType.FLUSH:
            if train.address[0].startswith("239."):
                self.to_group += 1
            else:
                self.to_sender += 1


def confirm_often(net: Network, pub: Node, subs: list[Node], rounds: int) -> float:
    """Have everything confirmed some times, and return how long that took."""
    net.run(until=net.now + 0.5)
    began, done = net.now, len(pub.events(WatermarkCompleted))
    for number in range(done, done + rounds):
        pub.write(bytes(100), [0])
        net.run(until=net.now + 0.001)
        mark = pub.watermark(subs)
        assert net.run_until(lambda: len(pub.events(WatermarkCompleted)) > number, deadline=net.now + 5.0)  # noqa: B023
        assert pub.events(WatermarkCompleted)[-1] == WatermarkCompleted(
            mark, frozenset(s.node_id for s in subs), frozenset()
        )
    assert not pub.events(ReceiverEvicted)
    return net.now - began


@pytest.mark.parametrize(("count", "is_crowd"), [(8, False), (9, True), (24, True)])
def test_a_crowd_confirms_to_the_sender_alone_but_for_a_few_times(net: Network, count: int, is_crowd: bool) -> None:
    """The cost of confirmations does not grow with the square of the group. Onlookers hear of each receiver."""
    counted = Confirmations(net)
    pub, subs = behind_router(net, count, SenderConfig(flow=Flow.MIN, rate_bps=None))
    confirm_often(net, pub, subs, 40)
    if is_crowd:
        assert counted.to_group >= count
        assert counted.to_sender > 3 * counted.to_group
    else:
        assert not counted.to_sender


def test_a_crowd_confirms_to_the_group_if_the_sender_cannot_be_reached_alone(
    net: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A firewall lets only datagrams to the group pass to the sender. It costs some time now and then."""
    counted = Confirmations(net)
    pub, subs = behind_router(net, 24, SenderConfig(flow=Flow.MIN, rate_bps=None))
    receive = pub.receive
    monkeypatch.setattr(pub, "receive", lambda train, by_unicast: by_unicast or receive(train, by_unicast))
    confirm_often(net, pub, subs, 20)
    in_vain = counted.to_sender
    assert confirm_often(net, pub, subs, 40) < 40 * 0.1
    assert counted.to_sender == in_vain


def test_a_watermark_that_is_ended_tells_who_has_confirmed(net: Network) -> None:
    pub, subs = behind_router(net, 2, replace(SMALL, grtt_s=1.0, grtt_min_s=1.0))
    gone = net.receiver()
    pub.write(PAYLOAD)
    net.run(until=1.0)
    gone.crash()
    first, second = (pub.watermark([*subs, gone]) for _ in range(2))
    net.run(until=2.0)
    assert not pub.events(WatermarkCompleted)
    for mark in (first, second, first):
        pub.end_watermark(mark)
        net.run(until=net.now + 0.1)
    nodes, failed = frozenset(sub.node_id for sub in subs), frozenset([gone.node_id])
    assert pub.events(WatermarkCompleted) == [
        WatermarkCompleted(first, nodes, failed),
        WatermarkCompleted(second, nodes, failed),
    ]


def test_nodes_are_asked_again_soon_however_long_the_round_trips_seem(net: Network) -> None:
    """Busy hosts make the estimate long. A lost answer must not cost the caller several of those."""
    pub, sub = net.sender(replace(SMALL, grtt_s=5.0, grtt_min_s=5.0)), net.receiver()
    link = net.link(pub, sub)
    pub.write(PAYLOAD)
    net.run(until=1.0)
    link.back.cut()
    pub.watermark([sub])
    net.run(until=1.5)
    link.back.mend()
    assert net.run_until(lambda: bool(pub.events(WatermarkCompleted)), deadline=3.0)


def test_nodes_are_asked_at_once_however_long_the_round_trips_seem(net: Network) -> None:
    pub, sub = net.sender(replace(SMALL, grtt_s=5.0, grtt_min_s=5.0, rate_bps=1e6)), net.receiver()
    net.link(pub, sub)
    pub.write(PAYLOAD)
    net.run(until=0.1)
    pub.watermark([sub])  # not all has been sent
    assert net.run_until(lambda: bool(pub.events(WatermarkCompleted)), deadline=0.6)
    pub.watermark([sub])
    assert net.run_until(lambda: len(pub.events(WatermarkCompleted)) == 2, deadline=0.8)


def test_time_in_which_data_are_still_sent_does_not_count(net: Network) -> None:
    pub, sub, gone = net.sender(replace(SMALL, rate_bps=1e5)), net.receiver(), net.receiver()
    for node in (sub, gone):
        net.link(pub, node)
    pub.write(PAYLOAD)  # takes four seconds
    net.run(until=1.0)
    gone.crash()
    mark = pub.watermark([sub, gone], timeout_s=0.1)
    assert net.run_until(lambda: bool(pub.events(WatermarkCompleted)), deadline=6.0)
    assert sub.received == PAYLOAD
    nodes = frozenset([sub.node_id]), frozenset([gone.node_id])
    assert pub.events(WatermarkCompleted) == [WatermarkCompleted(mark, *nodes)]


@pytest.mark.parametrize("config", [SMALL, PARITY], ids=["none", "rs"])
@pytest.mark.parametrize("timeout_s", [1.0, None])
def test_losses_after_a_watermark_do_not_hold_it_open_for_a_dead_node(
    net: Network, config: SenderConfig, timeout_s: float | None
) -> None:
    pub, lossy, dead = net.sender(config), net.receiver(), net.receiver()
    link = net.link(pub, lossy)
    net.link(pub, dead)
    pub.write(PAYLOAD[:5000])
    net.run(until=0.5)
    dead.crash()
    pub.write(PAYLOAD[:1000])
    net.run(until=0.51)
    mark = pub.watermark([lossy, dead]) if timeout_s is None else pub.watermark([lossy, dead], timeout_s=timeout_s)
    link.lose(0.05)
    began = net.now
    while net.now < began + 5.0 and not pub.events(WatermarkCompleted):
        pub.write(PAYLOAD[:3000])
        net.run(until=net.now + 0.02)
    nodes = frozenset([lossy.node_id]), frozenset([dead.node_id])
    assert pub.events(WatermarkCompleted) == [WatermarkCompleted(mark, *nodes)]


def test_a_node_that_requests_the_same_data_for_ever_does_not_hold_a_watermark_open(
    net: Network, is_kind: Chooser
) -> None:
    """It has four times the time-out: no repair reaches it."""
    pub, sub = net.sender(SMALL), net.receiver()
    link = net.link(pub, sub)
    pub.write(PAYLOAD[:1000])
    net.run(until=0.5)
    link.lose(where=is_kind(Data))
    pub.write(PAYLOAD[1000:3000])
    net.run(until=0.51)
    mark = pub.watermark([sub], timeout_s=1.0)
    began = net.now
    assert net.run_until(lambda: bool(pub.events(WatermarkCompleted)), deadline=began + 10.0)
    assert pub.events(WatermarkCompleted) == [WatermarkCompleted(mark, frozenset(), frozenset([sub.node_id]))]
    assert pub.stats.nacks_received >= 10
    assert 3.5 < net.now - began < 5.0
