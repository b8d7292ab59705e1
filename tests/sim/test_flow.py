"""Tests of flow control and congestion control.

The sender does not outrun receivers that it waits for, gives up dead ones, and suffers little from false reports.
"""

from random import Random

import numpy as np
import pytest

from fjm2.norm.core.config import Flow, ReceiverConfig, SenderConfig, SessionConfig
from fjm2.norm.core.quantize import quantize_loss, quantize_rate, quantize_rtt
from fjm2.norm.core.timers import time_of_wire, wire_time
from fjm2.norm.core.train import Train
from fjm2.norm.core.wire import Ack, AckType, CcFeedback, CcFlag, CongestionControl, MessageType, decode
from fjm2.norm.events import EvictionReason, ObjectCompleted, ObjectPurged, ReceiverEvicted, StreamLost
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


def test_smallest_window_is_confirmed_once_and_then_left_alone() -> None:
    net, pub, sub = pair(Flow.NAMED, window_bytes=2_000)
    pub.engine.set_receivers(frozenset({sub.node_id}), net.now)
    pub.write(PAYLOAD[:20_000])
    net.run(until=5.0)
    assert sub.received == PAYLOAD[:20_000]
    flushes = pub.stats.flushes_sent
    net.run(until=20.0)
    assert pub.stats.flushes_sent == flushes


def test_a_stream_of_lone_messages_is_confirmed_ten_times_a_second_and_at_its_end() -> None:
    wide = {"stream_bytes": 4_000_000, "window_bytes": 4_000_000}
    net = Network(seed=11, delay_s=0.0001)
    pub, sub = net.sender(config(Flow.NAMED, grtt_s=0.001, **wide)), net.receiver()
    pub.engine.set_receivers(frozenset({sub.node_id}), net.now)
    stream = pub.open_stream()
    for step in range(2000):
        net.run(until=step * 0.001)
        pub.write(b"a", [0], stream=stream)
    assert 15 <= pub.stats.flushes_sent <= 22
    before = pub.stats.acks_received
    net.run(until=2.2)
    assert pub.stats.acks_received == before + 1, "the end is confirmed, and only once"
    assert pub.engine.awaited_receivers == frozenset()
    assert sub.received == b"a" * 2000


@pytest.mark.parametrize("loss", [0.0, 0.01, 0.2])
def test_nothing_is_lost_however_fast_the_sender_is(loss: float) -> None:
    net, pub, sub = pair(Flow.NAMED)
    pub.engine.set_receivers(frozenset({sub.node_id}), net.now)
    net.link(pub, sub).lose(loss)
    pub.write(PAYLOAD)
    assert net.run_until(lambda: sub.received == PAYLOAD, deadline=120.0)
    assert not sub.events(StreamLost)


def test_slow_link_is_not_overrun() -> None:
    """The queue of the link holds a tenth of the window.

    A sender that did not wait for answers would lose nearly all data.
    """
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


def test_a_long_way_is_no_queue() -> None:
    """A confirmation takes 200 ms, although there is no queue.

    If each such confirmation shrank the window, the sender would use only a tenth of this link.
    """
    net, pub, sub = pair(Flow.NAMED, window_bytes=16 << 20, stream_bytes=16 << 20, grtt_s=0.2)
    pub.engine.set_receivers(frozenset({sub.node_id}), net.now)
    net.link(pub, sub, delay_s=0.1, rate_bps=100e6, queue_bytes=8 << 20)
    payload = PAYLOAD * 10
    pub.write(payload)
    assert net.run_until(lambda: sub.received == payload, deadline=5.0)


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
    net.run(until=0.2)
    assert alive.received != PAYLOAD
    assert net.run_until(lambda: alive.received == PAYLOAD, deadline=1.0)
    assert pub.engine.silent_receivers == {dead.node_id}
    assert not pub.events(ReceiverEvicted)
    net.run(until=3.0)
    assert pub.events(ReceiverEvicted) == [ReceiverEvicted(dead.node_id, EvictionReason.SILENT)]
    assert pub.engine.receivers == {alive.node_id}
    assert not alive.events(StreamLost)


def test_evicted_receivers_are_remembered_until_they_return_or_leave() -> None:
    net, pub, sub = pair(Flow.MIN)
    pub.engine.set_receivers(frozenset({sub.node_id, 98, 99}), net.now)
    pub.write(PAYLOAD)
    assert net.run_until(lambda: sub.received == PAYLOAD, deadline=60.0)
    net.run(until=net.now + 3.0)
    assert pub.engine.evicted_receivers == {98, 99}
    pub.forget_receiver(98)
    assert pub.engine.evicted_receivers == {99}
    pub.set_receivers([99])
    assert pub.engine.evicted_receivers == set()


def test_receivers_that_left_are_not_waited_for() -> None:
    net, pub, sub = pair(Flow.NAMED, ack_timeout_s=1000.0, patience_s=1000.0)
    pub.engine.set_receivers(frozenset({sub.node_id, 99}), net.now)
    pub.write(PAYLOAD)
    assert not net.run_until(lambda: sub.received == PAYLOAD, deadline=5.0)
    pub.forget_receiver(99)
    assert net.run_until(lambda: sub.received == PAYLOAD, deadline=10.0)
    assert not pub.events(ReceiverEvicted)
    assert pub.engine.receivers == {sub.node_id}


def test_flow_max_waits_for_no_receiver() -> None:
    net, pub, sub = pair(Flow.MAX)
    pub.engine.set_receivers(frozenset({sub.node_id, 4711}), net.now)
    pub.write(PAYLOAD)
    assert net.run_until(lambda: pub.stats.bytes_sent >= len(PAYLOAD), deadline=1.0)
    assert not pub.events(ReceiverEvicted)


def test_the_sender_continues_when_all_receivers_are_dead() -> None:
    net, pub, sub = pair(Flow.NAMED)
    pub.engine.set_receivers(frozenset({sub.node_id}), net.now)
    net.at(0.02, sub.crash)
    pub.write(PAYLOAD)
    assert net.run_until(lambda: pub.stats.bytes_sent >= len(PAYLOAD), deadline=10.0)
    assert pub.events(ReceiverEvicted) == [ReceiverEvicted(sub.node_id)]


@pytest.mark.parametrize("flow", [Flow.NAMED, Flow.MIN])
@pytest.mark.parametrize("window_bytes", [WINDOW_BYTES, 1_000_000])
@pytest.mark.parametrize("end", ["evicted", "left", "not named"])
def test_a_full_stream_goes_on_without_its_only_receiver(flow: Flow, window_bytes: int, end: str) -> None:
    """With a window larger than the stream's buffer, that is full before the window is."""
    net, pub, sub = pair(flow, window_bytes=window_bytes)
    pub.engine.set_receivers(frozenset({sub.node_id}), net.now)
    net.at(0.02, sub.crash)
    pub.write(PAYLOAD)
    net.run(until=0.5)
    assert pub.stats.bytes_sent < len(PAYLOAD)
    if end == "left":
        pub.forget_receiver(sub.node_id)
    elif end == "not named":
        pub.set_receivers([])
    assert net.run_until(lambda: pub.stats.bytes_sent >= len(PAYLOAD), deadline=5.0)
    assert bool(pub.events(ReceiverEvicted)) == (end == "evicted")


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
    assert pub.stats.bytes_sent - sent < WINDOW_BYTES  # at most the commands that ask for answers
    sub.engine.is_paused = False
    assert net.run_until(lambda: sub.received == PAYLOAD, deadline=60.0)
    assert not sub.events(StreamLost)
    assert not pub.events(ReceiverEvicted)


# Strangers, who may send anything.


class Forger:
    """A stranger that hears a sender's messages, and answers under any node id."""

    def __init__(self, net: Network, victim: Node) -> None:
        self.net = net
        self.victim = victim
        self.node = net.receiver(ReceiverConfig(silent=True))
        self.probe: CongestionControl | None = None
        self.probe_at = 0.0
        self.probes = 0
        net.on_send = self._hear

    def _hear(self, node: Node, train: Train) -> None:
        if node is self.victim and train.count == 1 and train.data[0] & 0x0F == MessageType.CMD:
            message = decode(np.array(train.data))
            if isinstance(message, CongestionControl):
                self.probe = message
                self.probe_at = self.net.now
                self.probes += 1

    def answer(
        self, name: int, *, rtt_s: float | None = 0.01, feedback: CcFeedback | None = None, content: bytes = b""
    ) -> None:
        """Send an ACK(CC) under the node id `name`.

        It claims the round-trip time `rtt_s`. If this is None, the ACK echoes no probe.
        """
        assert self.probe is not None
        sent_at = time_of_wire(self.probe.send_time_s, self.probe.send_time_us)
        echo = (0, 0) if rtt_s is None else wire_time(sent_at + self._since_probe - rtt_s)
        ack = Ack(
            source_id=name,
            sender_id=self.victim.node_id,
            instance_id=self.probe.instance_id,
            grtt_response_s=echo[0],
            grtt_response_us=echo[1],
            ack_type=AckType.CC,
            extensions=() if feedback is None else (feedback,),
            content=content,
        )
        self.node.transmit(ack.encode())

    @property
    def _since_probe(self) -> float:
        """Time from the last probe until the answer arrives."""
        return self.net.now - self.probe_at + 2 * self.net.delay_s

    def report(self, bytes_per_s: float, ahead: int = 0, loss: float = 0.5) -> CcFeedback:
        """Return the feedback of a receiver that claims to receive no faster than this."""
        assert self.probe is not None
        return CcFeedback(
            cc_sequence=self.probe.cc_sequence + ahead & 0xFFFF,
            flags=CcFlag.RTT,
            rtt_q=quantize_rtt(1.0),
            loss_q=quantize_loss(loss),
            rate_q=quantize_rate(bytes_per_s),
        )


def besieged(flow: Flow, **more: object) -> tuple[Network, Node, Node, Forger]:
    net = Network(seed=21)
    pub, sub = net.sender(config(flow, **more)), net.receiver()
    return net, pub, sub, Forger(net, pub)


def test_receivers_that_echo_no_probe_are_not_waited_for() -> None:
    net, pub, sub, forger = besieged(Flow.MIN)
    pub.write(PAYLOAD[:1000])
    net.run(until=0.2)
    assert forger.probe is not None
    for name in range(100, 120):
        forger.answer(name, rtt_s=None)
        forger.answer(name, rtt_s=5.0)  # claims a time before the first probe
    net.run(until=0.3)
    assert pub.engine.receivers == {sub.node_id}


def test_names_made_up_hold_the_sender_up_less_and_less() -> None:
    net, pub, sub, forger = besieged(Flow.MIN)
    link = net.link(pub, net.hub)
    link.shape(rate_bps=10e6)
    names = iter(range(100, 100_000))
    moving = []

    def lie() -> None:
        if forger.probe is not None:
            forger.answer(next(names))
        net.at(net.now + 0.05, lie)

    net.at(0.2, lie)
    pub.write(PAYLOAD * 20)
    for step in range(290):
        before = sub.stats.bytes_received
        net.run(until=0.1 * step)
        moving.append(sub.stats.bytes_received - before > 50_000)
    assert not sub.events(StreamLost)
    assert moving[:30].count(False) > 10  # the first ones are believed
    assert moving.count(False) < 40
    assert all(moving[180:])
    assert sub.node_id in pub.engine.receivers


def test_a_newcomer_has_to_confirm_something_in_the_end() -> None:
    """A newcomer must confirm data after some time, even if it keeps answering probes.

    Otherwise one forged node id could stop a sender for ever.
    """
    net, pub, sub, forger = besieged(Flow.MIN)
    pub.write(PAYLOAD)

    def lie() -> None:
        if forger.probe is not None:
            forger.answer(4711)
        net.at(net.now + 0.2, lie)

    net.at(0.1, lie)
    assert net.run_until(lambda: sub.received == PAYLOAD, deadline=8.0)
    assert pub.events(ReceiverEvicted) == [ReceiverEvicted(4711, EvictionReason.NO_PROGRESS)]


def test_true_receivers_that_come_later_join() -> None:
    net, pub, sub = pair(Flow.MIN, rate_bps=4e6)
    pub.write(PAYLOAD)
    net.run(until=1.0)
    late = net.receiver()
    net.run(until=3.0)
    assert pub.engine.receivers == {sub.node_id, late.node_id}
    assert net.run_until(lambda: sub.received == PAYLOAD, deadline=30.0)
    assert not pub.events(ReceiverEvicted)


def test_a_lone_false_echo_does_not_stretch_the_round_trip_time_much() -> None:
    net, pub, _, forger = besieged(Flow.MAX, rate_bps=1e6)
    net.node(SessionConfig(node_id=99))
    pub.write(PAYLOAD)
    net.run(until=3.0)
    before = pub.engine.grtt_s
    assert before < 0.05
    forger.answer(4711, rtt_s=2.5)
    net.run(until=3.05)
    assert before < pub.engine.grtt_s <= 4.4 * before  # what is advertised is rounded up
    net.run(until=12.0)
    assert pub.engine.grtt_s < 1.2 * before


def test_who_has_confirmed_nothing_does_not_stretch_the_round_trip_time() -> None:
    net, pub, sub, forger = besieged(Flow.MIN, rate_bps=1e6)
    pub.write(PAYLOAD * 5)
    net.run(until=2.0)
    longest = 0.0

    def claim() -> None:
        forger.answer(4711, rtt_s=9.0)
        net.at(net.now + 0.05, claim)

    claim()
    for _ in range(300):
        net.run(until=net.now + 0.1)
        longest = max(longest, pub.engine.grtt_s)
    assert longest < 0.1
    assert pub.engine.receivers == {sub.node_id}


def test_a_long_way_is_believed_when_more_than_one_answer_says_so() -> None:
    net, pub, sub = pair(Flow.MAX, rate_bps=1e6)
    net.link(pub, sub, delay_s=0.4)
    pub.write(PAYLOAD)
    net.run(until=8.0)
    assert 0.75 <= pub.engine.grtt_s < 1.2


def flowing(**more: object) -> tuple[Network, Node, Node, Forger]:
    """Return a flow under congestion control that fills a link of 10 Mbit/s."""
    net, pub, sub, forger = besieged(Flow.MIN, cc=True, window_bytes=1_000_000, **more)
    net.link(pub, net.hub, delay_s=0.005, rate_bps=10e6, queue_bytes=50_000)
    pub.write(PAYLOAD * 20)
    net.run(until=5.0)
    return net, pub, sub, forger


def mbit(net: Network, sub: Node, seconds: float) -> float:
    before = sub.stats.bytes_received
    net.run(until=net.now + seconds)
    return (sub.stats.bytes_received - before) * 8e-6 / seconds


def test_congestion_control_fills_a_link() -> None:
    net, _, sub, _ = flowing()
    assert mbit(net, sub, 5.0) > 8.0
    assert not sub.events(StreamLost)


def test_confirmations_are_not_taken_for_losses() -> None:
    """Commands that ask for confirmation have sequence numbers too. Without losses nothing slows the sender down."""
    net, pub, sub = pair(Flow.MIN, cc=True, rate_bps=20e6)
    pub.write(PAYLOAD * 5)
    net.run(until=1.0)
    assert mbit(net, sub, 2.0) > 19.0
    assert pub.stats.repair_segments_sent == 0


def test_one_false_report_of_a_stranger_changes_nothing() -> None:
    net, _, sub, forger = flowing()
    before = mbit(net, sub, 2.0)
    forger.answer(4711, rtt_s=None, feedback=forger.report(100.0))
    assert mbit(net, sub, 1.0) > 0.8 * before


def test_one_false_report_in_the_limiting_receivers_name_is_made_good_soon() -> None:
    net, _, sub, forger = flowing()
    before = mbit(net, sub, 2.0)
    forger.answer(sub.node_id, feedback=forger.report(100.0))
    assert mbit(net, sub, 1.0) > 0.7 * before


def test_reports_on_probes_that_were_never_sent_are_ignored() -> None:
    """If forged reports counted, the true receiver's reports would seem older than they are."""
    net, _, sub, forger = flowing()
    before = mbit(net, sub, 2.0)
    for _ in range(20):
        forger.answer(sub.node_id, feedback=forger.report(100.0, ahead=2000))
        net.run(until=net.now + 0.05)
    assert mbit(net, sub, 2.0) > 0.8 * before


def test_a_slower_receiver_is_followed() -> None:
    """The sender slows down for a receiver that reports twice, as real receivers do."""
    net, pub, sub, _ = flowing()
    assert mbit(net, sub, 2.0) > 8.0
    slow = net.receiver()
    net.link(net.hub, slow, rate_bps=2e6, queue_bytes=20_000)
    net.run(until=net.now + 5.0)
    assert mbit(net, sub, 3.0) < 4.0
    assert slow.stats.bytes_received > 0
    assert pub.stats.nacks_received > 0


def test_a_buffer_that_is_shorter_than_a_window_waits_for_nobody() -> None:
    net = Network(seed=11)
    pub = net.sender(config(Flow.MIN, stream_bytes=16_000, window_bytes=1 << 20))
    pub.write(PAYLOAD)
    net.run(until=5.0)
    assert pub.stats.segments_sent == len(PAYLOAD) // 1000
