"""Receivers that say goodbye: their last answers do not bring them back."""

from random import Random

import pytest

from fjm2.norm.core.config import Flow, ReceiverConfig, SenderConfig
from fjm2.norm.events import ReceiverEvicted
from fjm2.norm.sim import Network, Node

CONFIG = SenderConfig(
    segment_bytes=1000,
    block_segments=16,
    stream_bytes=128_000,
    repair_bytes=256_000,
    window_bytes=64_000,
    rate_bps=4e6,
    flow=Flow.MIN,
)
CHUNK = Random(5).randbytes(25_000)
CHUNK_S = 0.05
"""As much as the rate carries: a sender that is held up for twice this long falls behind for all to see."""
LATE_FROM_S = 0.05
"""Time before a goodbye from which on answers may be late. Earlier, a late answer would be that of a slow receiver,
which may hold the sender up."""


class Traffic:
    """A sender that is never idle, and the longest time in which it sent nothing."""

    def __init__(self, net: Network, pub: Node) -> None:
        self.net, self.pub = net, pub
        self.longest_s = 0.0
        self._sent = 0
        self._moved_at = net.now
        self._next_at = net.now
        self._step()

    def _step(self) -> None:
        net, stats = self.net, self.pub.stats
        if stats.segments_sent != self._sent:
            self._sent, self._moved_at = stats.segments_sent, net.now
        self.longest_s = max(self.longest_s, net.now - self._moved_at)
        if net.now >= self._next_at:
            self.pub.write(CHUNK)
            self._next_at += CHUNK_S
        net.at(net.now + 0.005, self._step)


def come_and_go(seed: int, visits: int) -> tuple[Traffic, Node]:
    """Let receivers join and leave while one stays. The last answers of each may be late by up to 0.4 s."""
    net, random = Network(seed, delay_s=0.001), Random(seed)
    pub, stays = net.sender(CONFIG), net.receiver(ReceiverConfig(stream_bytes_max=1 << 18))
    for node in (pub, stays):
        net.link(node, net.hub)
    stays.keep = stays.log.keep = False
    traffic = Traffic(net, pub)
    left = 0

    def join() -> None:
        node = net.receiver(ReceiverConfig(stream_bytes_max=1 << 18))
        node.keep = node.log.keep = False
        way = net.link(node, net.hub)
        leaves_at = net.now + random.uniform(0.05, 0.5)
        net.at(leaves_at - LATE_FROM_S, lambda: way.reorder(0.5, by_s=0.4))
        net.at(leaves_at, lambda: leave(node))

    def leave(node: Node) -> None:
        nonlocal left
        left += 1
        net.at(net.now + 2 * net.delay_s, lambda: pub.forget_receiver(node))
        net.at(net.now + random.uniform(0.003, 0.4), lambda: vanish(node))

    def vanish(node: Node) -> None:
        node.crash()
        net.hub.links[:] = [link for link in net.hub.links if link.end is not node]

    for number in range(visits):
        net.at(0.5 + 0.05 * number, join)
    net.run(until=0.05 * visits + 3.0)
    assert left == visits
    return traffic, pub


def check(seed: int, visits: int) -> None:
    traffic, pub = come_and_go(seed, visits)
    assert not pub.events(ReceiverEvicted)
    assert traffic.longest_s <= 0.1
    assert len(pub.engine.receivers) == 1


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (1, 2))])
def test_those_who_leave_hold_nobody_up(seed: int) -> None:
    check(seed, 200)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 120))
def test_ten_thousand_leave_and_hold_nobody_up(seed: int) -> None:
    check(seed, 500)


def test_a_node_that_left_is_waited_for_again_when_it_is_named() -> None:
    net = Network(seed=4)
    pub, sub, other = net.sender(CONFIG), net.receiver(), net.receiver()
    Traffic(net, pub)
    net.run(until=1.0)
    assert pub.engine.receivers == {sub.node_id, other.node_id}
    for node in (sub, other):
        pub.forget_receiver(node)
    net.run(until=3.0)
    assert not pub.engine.receivers
    pub.set_receivers([sub])
    net.run(until=4.0)
    assert pub.engine.receivers == {sub.node_id}


def test_goodbyes_that_anybody_can_invent_take_bounded_memory() -> None:
    net = Network(seed=4)
    pub = net.sender(CONFIG)
    for node in range(1, 10_000):
        pub.engine.forget_receiver(node, 0.001 * node)
    assert len(pub.engine._sender.window.acking_set._departed) <= 4096


def test_a_node_that_has_said_goodbye_answers_nothing() -> None:
    net = Network(seed=4)
    pub, sub = net.sender(CONFIG), net.receiver()
    Traffic(net, pub)
    net.run(until=1.0)
    sub.engine.stop_answering()
    sent = sub.stats.datagrams_sent
    net.run(until=3.0)
    assert sub.stats.datagrams_sent == sent
