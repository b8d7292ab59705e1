"""Receivers that answer and make no progress are given up, and named as such. Slow ones are waited for."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from representatives import representatives
from test_flow import Forger

from fjm2.norm.core.config import Flow, SenderConfig
from fjm2.norm.core.receive.feedback import FeedbackFields, FeedbackSender
from fjm2.norm.core.wire import Status
from fjm2.norm.events import EvictionReason, ReceiverEvicted, StreamLost
from fjm2.norm.sim import Network, Node

CONFIG = SenderConfig(
    segment_bytes=1400,
    block_segments=16,
    stream_bytes=256_000,
    repair_bytes=256_000,
    window_bytes=100_000,
    rate_bps=16e6,
    flow=Flow.MIN,
)
GIVEN_UP_S = 10.0


@pytest.fixture(params=representatives(["with a status", "without"], "with a status"))
def is_telling(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """True if receivers send a Status. Those of other programs do not."""
    if request.param == "without":
        fields: Callable[[FeedbackSender, float], FeedbackFields] = FeedbackSender._fields

        def without(self: FeedbackSender, now: float) -> FeedbackFields:
            made = fields(self, now)
            made["extensions"] = tuple(each for each in made["extensions"] if not isinstance(each, Status))
            return made

        monkeypatch.setattr(FeedbackSender, "_fields", without)
        return False
    return True


def is_long(datagram: bytes) -> bool:
    return len(datagram) > 1300


def group(seed: int) -> tuple[Network, Node, Node, Node]:
    """Make a sender that always has something to send, and two receivers."""
    net = Network(seed, delay_s=0.002)
    pub, sub, victim = net.sender(CONFIG), net.receiver(), net.receiver()
    for node in (sub, victim):
        node.keep = node.log.keep = False

    def write() -> None:
        pub.write(bytes(15_000))
        net.at(net.now + 0.01, write)

    write()
    net.run(until=1.0)
    assert len(pub.engine.receivers) == 2
    return net, pub, sub, victim


@pytest.mark.parametrize("seed", representatives([0, 1], 0))
def test_a_path_that_has_become_too_narrow_holds_the_others_up_for_ten_seconds_at_most(
    seed: int, is_telling: bool
) -> None:
    net, pub, sub, victim = group(seed)
    link = net.link(net.hub, victim).lose(where=is_long)
    net.run(until=1.0 + GIVEN_UP_S + 0.7)
    expected = ReceiverEvicted(victim.node_id, EvictionReason.NO_PROGRESS)
    assert pub.events(ReceiverEvicted) == [expected]
    before = sub.log.stream_bytes
    net.run(until=26.0)
    assert sub.log.stream_bytes - before > 14 * 1_500_000
    assert pub.events(ReceiverEvicted) == [expected]  # answering probes does not bring it back
    assert victim.node_id not in pub.engine.receivers
    link.mend()
    net.run(until=50.0)
    assert victim.node_id in pub.engine.receivers or not is_telling
    assert pub.events(ReceiverEvicted) == [expected]


@pytest.mark.usefixtures("is_telling")
@pytest.mark.parametrize("rate_bps", representatives([1e6, 3e5], 3e5))
def test_a_slow_path_is_waited_for(rate_bps: float) -> None:
    config = SenderConfig(flow=Flow.MIN, rate_bps=None)
    net = Network(1)
    pub, sub, slow = net.sender(config), net.receiver(), net.receiver()
    net.link(net.hub, slow, rate_bps=rate_bps, queue_bytes=100_000)
    for node in (sub, slow):
        node.keep = node.log.keep = False
    pub.write(bytes(10_000))
    net.run(until=5.0)
    assert slow.node_id in pub.engine.receivers  # who is not known yet is not waited for
    pub.write(bytes(20_000_000))
    net.run(until=65.0)
    assert not pub.events(ReceiverEvicted)
    assert slow.log.stream_bytes > 0.3 * rate_bps / 8 * 60
    assert not slow.stats.bytes_lost


@pytest.mark.parametrize("rtt_s", representatives([0.01, 0.4, 8.0], 8.0), ids=lambda rtt_s: f"{rtt_s:g} s away")
def test_who_confirms_a_little_and_then_only_says_that_it_lives_is_given_up(rtt_s: float) -> None:
    """One that pretends to be far away makes requests for confirmation rare, and is given up as soon."""
    net = Network(1, delay_s=0.002)
    pub, sub = net.sender(CONFIG), net.receiver()
    sub.keep = sub.log.keep = False
    liar = net.receiver(node_id=4711)
    liar.keep = liar.log.keep = False
    net.link(net.hub, liar)
    forger = Forger(net, pub)

    def write() -> None:
        pub.write(bytes(15_000))
        net.at(net.now + 0.01, write)

    def lie() -> None:
        if forger.probe is not None:
            forger.answer(4711, rtt_s=rtt_s)
        net.at(net.now + 0.05, lie)

    write()
    net.run(until=1.0)
    assert 4711 in pub.engine.receivers
    liar.crash()  # it has confirmed a lot
    lie()
    held_s, sent = 0.0, pub.stats.segments_sent
    for name in range(5000, 5300):
        net.run(until=net.now + 0.1)
        held_s += 0.1 if pub.stats.segments_sent == sent else 0.0
        sent = pub.stats.segments_sent
        if pub.events(ReceiverEvicted):  # others of its kind find the door shut
            forger.answer(name)
            assert pub.engine.receivers <= {sub.node_id}
    assert pub.events(ReceiverEvicted) == [ReceiverEvicted(4711, EvictionReason.NO_PROGRESS)]
    assert held_s <= GIVEN_UP_S + 1.0


# Slow paths: repairs follow what arrives.

WIDE_CONFIG = SenderConfig(flow=Flow.MIN, rate_bps=400e6, stream_bytes=4 << 20, repair_bytes=8 << 20)
SLOW_BPS = 1e6
ONCE_BYTES = 9 << 20
"""Repairs until the path is known to be slow, beyond those in proportion."""
ALWAYS_BYTES_PER_S = 500_000
"""Repairs that find out if the path is still slow."""


def group_with_a_slow_path(
    seed: int, fast: int, config: SenderConfig = WIDE_CONFIG
) -> tuple[Network, Node, list[Node], Node]:
    """Make a sender of 5 MB/s, and receivers of which one can be slowed down."""
    net = Network(seed, delay_s=0.001)
    pub, slow = net.sender(config), net.receiver()
    subs = [net.receiver() for _ in range(fast)]
    for node in (pub, *subs, slow):
        net.link(node, net.hub)
        node.keep = node.log.keep = node is pub

    def write() -> None:
        pub.write(bytes(100_000))
        net.at(net.now + 0.02, write)

    write()
    net.run(until=1.0)
    assert len(pub.engine.receivers) == fast + 1
    return net, pub, subs, slow


def slow_down_one(seed: int, fast: int) -> None:
    net, pub, subs, slow = group_with_a_slow_path(seed, fast)
    path = slow.links[0].back.shape(rate_bps=SLOW_BPS, queue_bytes=128 << 10)
    repaired, arrived = pub.stats.repair_segments_sent, slow.log.stream_bytes
    net.run(until=11.0)
    repaired_bytes = (pub.stats.repair_segments_sent - repaired) * WIDE_CONFIG.segment_bytes
    arrived_bytes = slow.log.stream_bytes - arrived
    assert arrived_bytes > 0.25 * SLOW_BPS / 8 * 10
    assert repaired_bytes < ONCE_BYTES + 10 * ALWAYS_BYTES_PER_S + 5 * arrived_bytes
    path.shape(rate_bps=1e9, queue_bytes=8 << 20)
    end = max(sub.log.stream_bytes for sub in subs)
    assert net.run_until(lambda: slow.log.stream_bytes >= end, deadline=26.0)
    for node in (*subs, slow):
        assert not node.stats.bytes_lost
        assert not node.events(StreamLost)
    assert not pub.events(ReceiverEvicted)


@pytest.mark.parametrize(("seed", "fast"), representatives([(0, 1), (1, 3), (2, 12)], (1, 3)))
def test_a_slow_path_draws_few_repairs_and_loses_nothing(seed: int, fast: int) -> None:
    slow_down_one(seed, fast)


@pytest.mark.nightly
@pytest.mark.parametrize("fast", [1, 3, 12])
@pytest.mark.parametrize("seed", range(10, 20))
def test_a_slow_path_draws_few_repairs_whatever_the_seed(seed: int, fast: int) -> None:
    slow_down_one(seed, fast)


@pytest.mark.parametrize("loss", [0.05, 0.3])
def test_a_lossy_path_gets_all_repairs_that_it_needs(loss: float) -> None:
    net, _, subs, lossy = group_with_a_slow_path(3, 2, replace(WIDE_CONFIG, window_bytes=1 << 20))
    lossy.links[0].back.lose(loss)
    before = subs[0].log.stream_bytes
    net.run(until=5.0)
    assert subs[0].log.stream_bytes - before > 0.8 * 4 * 5e6
    assert subs[0].log.stream_bytes - lossy.log.stream_bytes < 2 << 20
