"""Receivers that fall silent: others go on soon, and who comes back in time loses nothing."""

from dataclasses import replace
from random import Random

import pytest
from representatives import representatives

from fjm2.norm.core.config import Flow, SenderConfig
from fjm2.norm.events import EvictionReason, ReceiverEvicted, StreamLost
from fjm2.norm.sim import Network, Node

SMALL = SenderConfig(
    segment_bytes=1000,
    block_segments=16,
    stream_bytes=256_000,
    repair_bytes=2_000_000,
    window_bytes=100_000,
    rate_bps=16e6,
    flow=Flow.MIN,
)
"""The defaults in time, but a small window, so that a silent receiver stops the sender soon."""
HOLD_UP_S = 0.3


def busy_group(
    seed: int, config: SenderConfig, count: int, chunk: bytes, every_s: float
) -> tuple[Network, Node, list[Node]]:
    """Make a sender that writes a chunk at regular times, and receivers that have joined it."""
    net = Network(seed, delay_s=0.001)
    pub, subs = net.sender(config), [net.receiver() for _ in range(count)]
    for node in (pub, *subs):
        net.link(node, net.hub)
    for sub in subs:
        sub.keep = sub.log.keep = False

    def write() -> None:
        pub.write(chunk)
        net.at(net.now + every_s, write)

    write()
    assert net.run_until(lambda: len(pub.engine.receivers) == count, deadline=1.0) or len(pub.engine.receivers) == count
    return net, pub, subs


def longest_gap(net: Network, sub: Node, until: float) -> float:
    """Run, and return the longest time in which a receiver got nothing."""
    longest_s, moved_at, before = 0.0, net.now, sub.log.stream_bytes
    while net.now < until:
        net.run(until=net.now + 0.005)
        if sub.log.stream_bytes != before:
            moved_at, before = net.now, sub.log.stream_bytes
        longest_s = max(longest_s, net.now - moved_at)
    return longest_s


def kill_one(seed: int) -> None:
    random = Random(seed)
    net, pub, subs = busy_group(seed, SMALL, random.randint(2, 6), random.randbytes(20_000), 0.01)
    net.run(until=1.0 + random.random())
    victim = subs.pop()
    victim.crash()
    assert longest_gap(net, subs[0], net.now + 4.5) <= HOLD_UP_S
    assert not pub.events(ReceiverEvicted)
    assert pub.engine.silent_receivers == {victim.node_id}
    net.run(until=net.now + 2.0)
    assert pub.events(ReceiverEvicted) == [ReceiverEvicted(victim.node_id, EvictionReason.SILENT)]
    assert not pub.engine.silent_receivers
    assert not any(sub.stats.bytes_lost for sub in subs)


@pytest.mark.parametrize("seed", representatives(range(4), 0))
def test_a_killed_receiver_holds_the_others_up_for_a_moment(seed: int) -> None:
    kill_one(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [*range(4, 8), *range(100, 200)])
def test_a_hundred_killed_receivers_hold_the_others_up_for_a_moment(seed: int) -> None:
    kill_one(seed)


def test_receivers_killed_and_restarted_again_and_again_cost_little() -> None:
    net, _, subs = busy_group(3, SMALL, 2, bytes(20_000), 0.01)
    for number in range(6):
        net.at(2.0 + 4 * number, subs[1].crash)
        net.at(2.6 + 4 * number, lambda number=number: subs[1].rejoin(node_id=100 + number))  # type: ignore[misc]
    assert longest_gap(net, subs[0], 28.0) <= HOLD_UP_S


def pause(
    seed: int, config: SenderConfig, pause_s: float, chunk: bytes, every_s: float, count: int = 2
) -> tuple[Node, Node]:
    net, pub, subs = busy_group(seed, config, count, chunk, every_s)
    net.run(until=1.0)
    subs[0].pause()
    net.at(net.now + pause_s, subs[0].resume)
    if count > 1:
        assert longest_gap(net, subs[1], net.now + pause_s) <= HOLD_UP_S
    net.run(until=net.now + pause_s + 3.0)
    assert not pub.events(ReceiverEvicted)
    assert not pub.engine.silent_receivers
    assert all(sub.stats.bytes_lost == 0 for sub in subs)
    return pub, subs[0]


@pytest.mark.parametrize("seed", representatives(range(5), 0))
def test_who_pauses_within_the_reach_of_the_buffers_loses_nothing(seed: int) -> None:
    config = replace(SMALL, repair_bytes=4_000_000)
    pub, sub = pause(seed, config, Random(seed).uniform(0.3, 1.4), bytes(20_000), 0.01)
    assert pub.stats.segments_sent * 1000 - sub.log.stream_bytes < 400_000


@pytest.mark.alone
def test_a_pause_of_a_second_at_50_megabytes_a_second_loses_nothing() -> None:
    pause(1, SenderConfig(flow=Flow.MIN, rate_bps=None), 1.0, bytes(500_000), 0.01)


def test_a_lone_receiver_that_pauses_holds_the_sender_and_loses_nothing_at_any_rate() -> None:
    """Nobody would gain if the sender went on."""
    net, pub, (sub,) = busy_group(1, replace(SMALL, rate_bps=None, repair_bytes=100_000), 1, bytes(200_000), 0.01)
    net.run(until=1.0)
    sub.pause()
    net.run(until=1.2)
    sent = pub.stats.segments_sent
    net.run(until=4.0)
    assert pub.stats.segments_sent == sent
    sub.resume()
    net.run(until=6.0)
    assert pub.stats.segments_sent > sent
    assert sub.stats.bytes_lost == 0
    assert not pub.events(ReceiverEvicted)


def test_who_comes_back_too_late_loses_what_is_gone_and_is_told_so() -> None:
    net, pub, subs = busy_group(1, replace(SMALL, repair_bytes=500_000), 2, bytes(20_000), 0.01)
    subs[0].keep = subs[0].log.keep = True
    net.run(until=1.0)
    subs[0].pause()
    net.run(until=4.5)
    subs[0].resume()
    net.run(until=7.0)
    assert not pub.events(ReceiverEvicted)
    assert pub.engine.receivers == {sub.node_id for sub in subs}
    assert subs[0].events(StreamLost)
    assert subs[0].stats.bytes_lost > 0
    assert subs[1].stats.bytes_lost == 0


def test_who_pauses_again_and_again_is_given_more_time() -> None:
    """Else a receiver that works in bursts would fall further behind with each, and lose data in the end."""
    net, pub, subs = busy_group(1, replace(SMALL, repair_bytes=1_500_000), 2, bytes(20_000), 0.01)
    for number in range(10):
        net.at(1.0 + 0.9 * number, subs[0].pause)
        net.at(1.6 + 0.9 * number, subs[0].resume)
    net.run(until=13.0)
    assert not pub.events(ReceiverEvicted)
    assert subs[0].stats.bytes_lost == 0


def test_a_sender_that_did_not_run_blames_nobody() -> None:
    """The answers of receivers wait in its socket while it is stopped."""
    net, pub, subs = busy_group(1, SMALL, 3, bytes(20_000), 0.01)
    net.run(until=1.0)
    for _ in range(5):
        pub.pause()
        net.run(until=net.now + 6.0)
        pub.resume()
        net.run(until=net.now + 1.0)
    assert not pub.events(ReceiverEvicted)
    assert not pub.engine.silent_receivers
    assert all(sub.stats.bytes_lost == 0 for sub in subs)


def test_objects_stay_for_those_who_are_away() -> None:
    config = replace(SMALL, cache_objects=200, cache_bytes=4_000_000)
    net = Network(2, delay_s=0.001)
    pub, subs = net.sender(config), [net.receiver(), net.receiver()]
    for node in (pub, *subs):
        net.link(node, net.hub)

    def send() -> None:
        if pub.engine.has_room(20_000):
            pub.send(bytes(20_000))
        net.at(net.now + 0.02, send)

    send()
    net.run(until=1.0)
    subs[0].pause()
    net.run(until=2.0)
    subs[0].resume()
    net.run(until=4.0)
    assert subs[0].log.losses == 0
    assert abs(len(subs[0].objects) - len(subs[1].objects)) <= 5


def test_the_death_of_the_only_receiver_does_not_hold_up_a_writer_of_two_megabytes_a_second() -> None:
    """The sender waits for it, but at the defaults its buffer takes what is written until it is given up."""
    net, pub, (sub,) = busy_group(5, SenderConfig(flow=Flow.MIN, rate_bps=None), 1, bytes(40_000), 0.02)
    net.run(until=2.0)
    sub.crash()
    net.run(until=5.0)
    assert pub.engine.awaited_receivers
    assert not pub.engine.silent_receivers
    assert net.run_until(lambda: bool(pub.events(ReceiverEvicted)), deadline=8.0)
    assert not pub.stats.window_waits
