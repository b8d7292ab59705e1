"""Receivers that are full say so, and are waited for."""

from dataclasses import replace

import pytest
from groups import Tap

from fjm2.norm.core.config import Flow, SenderConfig
from fjm2.norm.core.wire import Ack, Flush, Status, StatusFlag
from fjm2.norm.events import EvictionReason, ReceiverEvicted, ReceiverFull, ReceiverReady, StreamLost
from fjm2.norm.sim import Network, Node

CONFIG = SenderConfig(
    segment_bytes=1000,
    block_segments=16,
    stream_bytes=256_000,
    repair_bytes=256_000,
    window_bytes=100_000,
    rate_bps=16e6,
    flow=Flow.MIN,
)
PAYLOAD = bytes(range(250)) * 8_000


def group(seed: int, count: int, config: SenderConfig = CONFIG) -> tuple[Network, Node, list[Node]]:
    """Make a sender that has a lot to send, and receivers."""
    net = Network(seed, delay_s=0.002)
    pub, subs = net.sender(config), [net.receiver() for _ in range(count)]
    pub.write(PAYLOAD)
    net.run(until=0.3)
    assert len(pub.engine.receivers) == count
    return net, pub, subs


@pytest.mark.parametrize(("seed", "count"), [(1, 1), (2, 3), pytest.param(3, 12, marks=pytest.mark.nightly)])
def test_a_full_receiver_is_waited_for_as_long_as_it_is_full(seed: int, count: int) -> None:
    net, pub, subs = group(seed, count)
    subs[0].engine.is_paused = True
    net.run(until=1.0)
    sent = pub.stats.segments_sent
    net.run(until=60.0)
    assert pub.stats.segments_sent == sent
    assert pub.events(ReceiverFull) == [ReceiverFull(subs[0].node_id)]
    assert pub.engine.full_receivers == pub.engine.awaited_receivers == {subs[0].node_id}
    assert not pub.engine.silent_receivers
    subs[0].engine.is_paused = False
    assert net.run_until(lambda: all(sub.received == PAYLOAD for sub in subs), deadline=90.0)
    assert pub.events(ReceiverReady) == [ReceiverReady(subs[0].node_id)]
    assert not pub.engine.full_receivers
    assert not pub.events(ReceiverEvicted)
    assert not any(sub.events(StreamLost) for sub in subs)


def test_a_full_receiver_requests_nothing_and_answers_little() -> None:
    """Repairs would be dropped when they arrive."""
    net, _, subs = group(1, 2)
    subs[0].engine.is_paused = True
    net.run(until=2.0)
    sent, nacks = subs[0].stats.datagrams_sent, subs[0].stats.nacks_sent
    net.run(until=12.0)
    assert subs[0].stats.nacks_sent == nacks
    assert 10 * 3 <= subs[0].stats.datagrams_sent - sent <= 10 * 30


def test_one_that_is_full_now_and_then_is_reported_at_a_bounded_rate() -> None:
    net, pub, subs = group(1, 2, replace(CONFIG, rate_bps=4e6))

    def turn() -> None:
        subs[0].engine.is_paused = not subs[0].engine.is_paused
        net.at(net.now + 0.25, turn)

    turn()
    net.run(until=10.0)
    assert 1 <= len(pub.events(ReceiverFull)) <= 11
    assert len(pub.events(ReceiverReady)) <= 11
    assert not pub.events(ReceiverEvicted)


def test_a_full_receiver_that_dies_is_given_up_like_any_other() -> None:
    net, pub, subs = group(1, 2)
    subs[0].engine.is_paused = True
    net.run(until=2.0)
    subs[0].crash()
    net.run(until=2.5)
    assert pub.engine.silent_receivers == {subs[0].node_id}
    assert not pub.engine.full_receivers
    net.run(until=9.0)
    assert pub.events(ReceiverEvicted) == [ReceiverEvicted(subs[0].node_id, EvictionReason.SILENT)]


def test_a_newcomer_that_is_full_from_the_beginning_is_given_up_in_the_end() -> None:
    """Anyone can claim to be full. Who holds a sender up for long must at least have confirmed something."""
    net, pub, _ = group(1, 1)
    late = net.receiver()
    net.link(net.hub, late)
    late.engine.is_paused = True
    net.run(until=1.0)
    assert late.node_id in pub.engine.receivers
    net.run(until=25.0)
    assert pub.events(ReceiverEvicted) == [ReceiverEvicted(late.node_id, EvictionReason.NO_PROGRESS)]


def test_what_a_receiver_says_of_itself(net: Network) -> None:
    tap = Tap(net)
    pub, sub = net.sender(CONFIG), net.receiver()
    net.link(pub, sub).lose(segments=range(3, 6)).duplicate(0.2)
    pub.write(PAYLOAD[:100_000])
    net.run(until=2.0)
    said = [each for ack in tap.all(Ack) for each in ack.extensions if isinstance(each, Status)]
    assert said
    assert all(each.flags == 0 for each in said)
    counts = [each.progress for each in said]
    assert counts == sorted(counts)
    assert counts[-1] == 100 * (1000 + 8)  # what came twice counts once; segments have stream headers
    sub.engine.is_paused = True
    pub.write(PAYLOAD[:50_000])
    net.run(until=4.0)
    last = next(each for each in tap.all(Ack)[-1].extensions if isinstance(each, Status))
    assert last == Status(flags=StatusFlag.FULL, progress=counts[-1])
    assert tap.all(Flush)
