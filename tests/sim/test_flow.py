"""Flow control: nobody who is waited for is outrun, and nobody dead is waited for for ever."""

from random import Random

import pytest

from fjm2.norm.config import Flow, ReceiverConfig, SenderConfig, SessionConfig
from fjm2.norm.events import ObjectCompleted, ObjectPurged, ReceiverEvicted, StreamLost
from fjm2.norm.sim import Network, Node

PAYLOAD = Random(3).randbytes(2_000_000)
WINDOW_BYTES = 100_000


def config(flow: Flow, **more: object) -> SenderConfig:
    settings = {
        "segment_bytes": 1000,
        "block_segments": 16,
        "stream_bytes": 128_000,
        "window_bytes": WINDOW_BYTES,
        "rate_bps": None,
        "flow": flow,
        "ack_timeout_s": 1.0,
        "grtt_s": 0.01,
    }
    return SenderConfig(**(settings | more))  # type: ignore[arg-type]


def pair(flow: Flow, **more: object) -> tuple[Network, Node, Node]:
    net = Network(seed=11)
    pub, sub = net.sender(config(flow, **more)), net.receiver()
    return net, pub, sub


def test_window_bounds_what_is_under_way() -> None:
    net, pub, sub = pair(Flow.NAMED)
    pub.engine.set_receivers(frozenset({sub.node_id}), net.now)
    net.link(pub, sub, delay_s=0.02)
    pub.write(PAYLOAD)
    ahead = []
    for step in range(200):
        net.run(until=0.01 * step)
        ahead.append(pub.stats.bytes_sent - sub.stats.bytes_received)
    assert net.run_until(lambda: sub.received == PAYLOAD, deadline=60.0)
    assert max(ahead) <= WINDOW_BYTES * 1.1
    assert max(ahead) > WINDOW_BYTES / 2
    assert pub.stats.window_waits > 0


@pytest.mark.parametrize("loss", [0.0, 0.01, 0.2])
def test_nothing_is_lost_however_fast_the_sender_is(loss: float) -> None:
    net, pub, sub = pair(Flow.NAMED)
    pub.engine.set_receivers(frozenset({sub.node_id}), net.now)
    net.link(pub, sub).lose(loss)
    pub.write(PAYLOAD)
    assert net.run_until(lambda: sub.received == PAYLOAD, deadline=120.0)
    assert not sub.events(StreamLost)


def test_slow_link_is_not_overrun() -> None:
    """Its queue holds a tenth of the window: without waiting for answers nearly all would be dropped there."""
    net, pub, sub = pair(Flow.NAMED)
    pub.engine.set_receivers(frozenset({sub.node_id}), net.now)
    net.link(pub, sub).shape(rate_bps=20e6, queue_bytes=10_000)
    pub.write(PAYLOAD)
    assert net.run_until(lambda: sub.received == PAYLOAD, deadline=120.0)
    assert not sub.events(StreamLost)


def test_slowest_of_many_sets_the_pace() -> None:
    net = Network(seed=5)
    pub = net.sender(config(Flow.NAMED))
    subs = [net.receiver() for _ in range(4)]
    pub.engine.set_receivers(frozenset(sub.node_id for sub in subs), net.now)
    for number, sub in enumerate(subs):
        net.link(net.hub, sub).lose(0.05 * number)
    net.link(pub, net.hub)
    pub.write(PAYLOAD)
    assert net.run_until(lambda: all(sub.received == PAYLOAD for sub in subs), deadline=120.0)
    assert not any(sub.events(StreamLost) for sub in subs)


def test_whoever_answers_is_waited_for_with_min() -> None:
    net, pub, sub = pair(Flow.MIN)
    net.link(pub, sub).lose(0.05)
    pub.write(PAYLOAD)
    assert net.run_until(lambda: sub.received == PAYLOAD, deadline=60.0)
    assert pub.engine.receivers == {sub.node_id}
    assert not sub.events(StreamLost)


def test_dead_receiver_is_evicted_and_the_rest_go_on() -> None:
    net = Network(seed=6)
    pub = net.sender(config(Flow.NAMED))
    alive, dead = net.receiver(), net.receiver()
    pub.engine.set_receivers(frozenset({alive.node_id, dead.node_id}), net.now)
    net.at(0.05, dead.crash)
    pub.write(PAYLOAD)
    net.run(until=0.9)
    assert alive.received != PAYLOAD
    assert net.run_until(lambda: alive.received == PAYLOAD, deadline=30.0)
    assert pub.events(ReceiverEvicted) == [ReceiverEvicted(dead.node_id)]
    assert pub.engine.receivers == {alive.node_id}
    assert not alive.events(StreamLost)


def test_nobody_is_waited_for_with_max() -> None:
    net, pub, sub = pair(Flow.MAX)
    pub.engine.set_receivers(frozenset({sub.node_id, 4711}), net.now)
    pub.write(PAYLOAD)
    assert net.run_until(lambda: pub.stats.bytes_sent >= len(PAYLOAD), deadline=1.0)
    assert not pub.events(ReceiverEvicted)


def test_all_dead_is_nobody() -> None:
    net, pub, sub = pair(Flow.NAMED)
    pub.engine.set_receivers(frozenset({sub.node_id}), net.now)
    net.at(0.02, sub.crash)
    pub.write(PAYLOAD)
    assert net.run_until(lambda: pub.stats.bytes_sent >= len(PAYLOAD), deadline=10.0)
    assert pub.events(ReceiverEvicted) == [ReceiverEvicted(sub.node_id)]


def test_objects_stay_until_they_are_confirmed() -> None:
    net, pub, sub = pair(Flow.NAMED, cache_objects=4)
    pub.engine.set_receivers(frozenset({sub.node_id}), net.now)
    link = net.link(pub, sub)
    pub.send(b"first")
    assert net.run_until(lambda: bool(sub.events(ObjectCompleted)), deadline=1.0)
    net.run(until=1.0)
    link.cut()
    for number in range(4):
        pub.send(bytes([number]) * 5000)
    net.run(until=1.5)
    assert not pub.engine.has_room(5000)
    assert len(pub.events(ObjectPurged)) == 1  # the first, which was confirmed
    link.mend()
    assert net.run_until(lambda: pub.engine.has_room(5000), deadline=10.0)
    assert net.run_until(lambda: len(sub.events(ObjectCompleted)) == 5, deadline=10.0)


def test_paused_receiver_holds_the_sender_and_loses_nothing() -> None:
    net = Network(seed=8)
    pub = net.sender(config(Flow.NAMED, ack_timeout_s=20.0))
    sub = net.node(SessionConfig(node_id=2, receiver=ReceiverConfig()))
    pub.engine.set_receivers(frozenset({2}), net.now)
    pub.write(PAYLOAD)
    net.run(until=0.1)
    sub.engine.is_paused = True
    net.run(until=0.3)
    sent = pub.stats.bytes_sent
    net.run(until=1.5)
    assert pub.stats.bytes_sent - sent < WINDOW_BYTES  # at most what asks for answers
    sub.engine.is_paused = False
    assert net.run_until(lambda: sub.received == PAYLOAD, deadline=60.0)
    assert not sub.events(StreamLost)
    assert not pub.events(ReceiverEvicted)
