"""Tests of measuring a link's rate, over simulated links with a queue."""

from itertools import product
from random import Random

import pytest
from representatives import representatives
from tunnel_sim import IP_BYTES, Net, Node, Path

from fjm2d.tunnel import OVERHEAD_BYTES, EndpointConfig
from fjm2d.tunnel.link.rate import FLOOR_BPS, RateEstimate, Report

TRAIN_BYTES = 64_000


class Flood:
    """A gateway that always has data to send. It measures the throughput and the queue of the path."""

    def __init__(self, a: Node, b: Node, size: int = 1400) -> None:
        self.a, self.b, self.size = a, b, size
        self.path = a.net.path(a, b)
        self.is_on = True
        self.queues_s: list[float] = []
        b.keeps = False
        self._speak()
        self._look()

    def _speak(self) -> None:
        net, peer = self.a.net, self.a.peer(self.b)
        if self.is_on:
            while peer.outbound.queue.queued_bytes < max(1.5 * TRAIN_BYTES, peer.outbound.queue.rate_bps / 8 * 0.02):
                self.a.send(self.b, *[bytes(self.size)] * (TRAIN_BYTES // self.size))
            net.at(net.now + 0.005, self._speak)

    def _look(self) -> None:
        net = self.a.net
        self.queues_s.append(max(0.0, self.path.free_at - net.now))
        net.at(net.now + 0.005, self._look)

    @property
    def rate_bps(self) -> float:
        return self.a.peer(self.b).outbound.queue.rate_bps

    def goodput_bps(self, seconds: float) -> float:
        before = self.b.received_bytes
        self.a.net.run(seconds)
        return 8 * (self.b.received_bytes - before) / seconds

    def use(self, seconds: float) -> tuple[float, float, float]:
        """Measure how the link is used for some seconds.

        Return the share of its rate in use, its mean queue in seconds, and the share of datagrams that it dropped.
        """
        net, stats = self.a.net, self.a.peer(self.b).stats
        sent, dropped, began = stats.datagrams_sent, self.path.dropped["queue"], len(self.queues_s)
        whole = (self.size + OVERHEAD_BYTES + IP_BYTES) / self.size
        used = self.goodput_bps(seconds) * whole / self.path.rate_bps
        queues_s = self.queues_s[began:]
        assert len(queues_s) > 0.9 * seconds / 0.005, f"{net.now}: looked at throughout"
        drops = (self.path.dropped["queue"] - dropped) / (stats.datagrams_sent - sent)
        return used, sum(queues_s) / len(queues_s), drops


def measured(
    rate_bps: float, delay_s: float = 0.02, most_bps: float | None = None, loss: float = 0.0, size: int = 1400
) -> tuple[Net, Flood]:
    config = EndpointConfig(mtu_max_bytes=9000 if size > 1400 else 1500)
    net = Net()
    a, b = net.node("a", config), net.node("b", config)
    for path in net.both(a, b):
        path.delay_s, path.mtu = delay_s, config.mtu_max_bytes
    a.add(b, is_measured=True, rate_bps=most_bps)
    b.add(a, is_measured=True, rate_bps=most_bps)
    net.run(4)
    assert a.peer(b).path.mtu_bytes == config.mtu_max_bytes
    path = net.path(a, b)
    path.rate_bps, path.loss = rate_bps, loss
    path.queue_s = max(0.1, 24_000 * 8 / rate_bps)
    return net, Flood(a, b, size)


RATES_BPS, TRIPS_S, LOSSES = (1e6, 10e6, 100e6, 1e9), (0.001, 0.04, 0.2), (0.0, 0.01)
FEW = (1e6, 0.2, 0.01), (10e6, 0.001, 0.01), (100e6, 0.04, 0.01), (1e9, 0.001, 0.0)
"""Combinations of `make test`. They cover each value."""


@pytest.mark.parametrize(("rate_bps", "trip_s", "loss"), representatives(product(RATES_BPS, TRIPS_S, LOSSES), *FEW))
def test_a_links_rate_is_found_within_seconds_and_kept(rate_bps: float, trip_s: float, loss: float) -> None:
    """After 2 s and 15 round trips, most of the link's rate is used, its queue is short, and it drops little."""
    net, flood = measured(rate_bps, trip_s / 2, loss=loss, size=8800 if rate_bps > 50e6 else 1400)
    net.run(2 + 15 * trip_s)
    used, queue_s, drops = flood.use(5)
    assert used >= 0.85
    assert queue_s < 0.06
    assert drops < 0.01


@pytest.mark.parametrize(
    ("trip_s", "rate_bps"), representatives(product([0.001, 0.04], [10e6, 100e6]), (0.001, 10e6), (0.04, 100e6))
)
def test_stalls_of_hosts_are_not_taken_for_a_queue(rate_bps: float, trip_s: float) -> None:
    """From the start, both hosts stall for 10 to 30 ms about three times a second."""
    net, flood = measured(rate_bps, trip_s / 2, size=8800 if rate_bps > 50e6 else 1400)
    random = Random(5)

    def hiccup(node: Node) -> None:
        node.busy_until = net.now + random.uniform(0.01, 0.03)
        net.at(net.now + random.expovariate(3), lambda: hiccup(node))

    for node in (flood.a, flood.b):
        hiccup(node)
    net.run(2.5)
    used, queue_s, drops = flood.use(5)
    assert used >= 0.75, "one of the hosts stalls for a tenth of the time"
    assert queue_s < 0.06
    assert drops < 0.01


@pytest.mark.parametrize("seed", representatives([5, 9, 11], 11))
def test_intermittent_senders_on_busy_hosts_keep_the_rate(seed: int) -> None:
    """Senders alternate between about 0.12 s of data and 0.18 s of silence, while both hosts stall now and then."""
    net, flood = measured(100e6, size=8800)
    random = Random(seed)

    def hiccup(node: Node) -> None:
        node.busy_until = net.now + random.uniform(0.01, 0.03)
        net.at(node.busy_until + random.expovariate(3), lambda: hiccup(node))

    def speak() -> None:
        flood.is_on = not flood.is_on
        if flood.is_on:
            flood._speak()
        net.at(net.now + (0.12 if flood.is_on else 0.18) * random.uniform(0.5, 1.5), speak)

    speak()
    for node in (flood.a, flood.b):
        hiccup(node)
    net.run(3)
    rates = []
    for _ in range(100):
        net.run(0.1)
        rates.append(flood.rate_bps)
    assert sum(rate >= 60e6 for rate in rates) >= 90
    assert min(rates) >= 25e6


@pytest.mark.parametrize(
    ("rate_bps", "delay_s"),
    representatives([(2e6, 0.02), (8e6, 0.005), (8e6, 0.15), (20e6, 0.02)], (2e6, 0.02), (8e6, 0.15)),
)
def test_a_links_rate_is_found_and_kept(rate_bps: float, delay_s: float) -> None:
    net, flood = measured(rate_bps, delay_s)
    net.run(12)
    dropped = flood.path.dropped["queue"]
    goodput = flood.goodput_bps(8)
    assert goodput > 0.75 * rate_bps
    sent = flood.a.peer(flood.b).stats.datagrams_sent
    assert flood.path.dropped["queue"] - dropped < 0.01 * sent
    assert flood.a.peer(flood.b).rtt_s < 2 * delay_s + 0.08


def test_a_link_that_gets_slower_and_faster_is_followed() -> None:
    net, flood = measured(10e6)
    net.run(10)
    path = net.path(flood.a, flood.b)
    path.rate_bps = 2e6
    net.run(5)
    assert 0.6 * 2e6 < flood.goodput_bps(5) <= 2e6
    assert flood.rate_bps < 3e6
    path.rate_bps = 10e6
    net.run(15)
    assert flood.goodput_bps(3) > 0.6 * 10e6


@pytest.mark.parametrize("trip_s", representatives([0.001, 0.04, 0.2], 0.04))
def test_halved_and_doubled_capacity_are_found_within_seconds(trip_s: float) -> None:
    net, flood = measured(20e6, trip_s / 2)
    net.run(5)
    flood.path.rate_bps = 10e6
    net.run(2)
    used, queue_s, drops = flood.use(3)
    assert used >= 0.85
    assert queue_s < 0.06
    assert drops < 0.01
    flood.path.rate_bps = 20e6
    net.run(7)
    used, queue_s, drops = flood.use(3)
    assert used >= 0.85
    assert queue_s < 0.06
    assert drops < 0.01


def test_the_rate_recovers_soon_after_a_second_of_low_capacity() -> None:
    net, flood = measured(50e6)
    net.run(5)
    flood.path.rate_bps = 5e6
    net.run(1)
    flood.path.rate_bps = 50e6
    net.run(4)
    used, queue_s, drops = flood.use(4)
    assert used >= 0.85
    assert queue_s < 0.06
    assert drops < 0.01


def test_a_tenth_of_the_capacity_is_found_within_three_seconds() -> None:
    net, flood = measured(50e6)
    net.run(4)
    flood.path.rate_bps = 5e6
    net.run(3)
    used, queue_s, drops = flood.use(3)
    assert used >= 0.85
    assert queue_s < 0.06
    assert drops < 0.01


def test_loss_without_congestion_does_not_lower_the_rate() -> None:
    net, flood = measured(20e6, loss=0.04)
    net.run(8)
    assert flood.use(5)[0] >= 0.75


def test_one_percent_of_loss_does_not_lower_the_rate() -> None:
    net, flood = measured(5e6, loss=0.01)
    net.run(15)
    assert flood.goodput_bps(5) > 0.6 * 5e6


@pytest.mark.parametrize("delay_s", representatives([0.002, 0.02], 0.02))
def test_a_link_that_drops_the_excess_at_once_is_filled(delay_s: float) -> None:
    """The link is a policer: it drops the excess at once, so the round trip never grows."""
    net, flood = measured(20e6, delay_s)
    flood.path.queue_s = 0.004
    net.run(6)
    used, _, drops = flood.use(10)
    assert used >= 0.8
    assert drops < 0.03


def test_a_longer_path_is_not_taken_for_a_queue() -> None:
    net, flood = measured(20e6, 0.01)
    net.run(4)
    for path in net.both(flood.a, flood.b):
        path.delay_s = 0.04
    net.run(4)
    used, queue_s, drops = flood.use(5)
    assert used >= 0.85
    assert queue_s < 0.06
    assert drops < 0.01


@pytest.mark.parametrize(
    ("wave_s", "every_s"), representatives([(0.01, 0.01), (0.02, 0.01), (0.02, 0.05)], (0.02, 0.05))
)
def test_a_path_with_varying_delay_is_filled(wave_s: float, every_s: float) -> None:
    """The delay varies as on radio or cable links, without reordering."""
    net, flood = measured(20e6)
    random = Random(3)

    def change() -> None:
        for path in net.both(flood.a, flood.b):
            path.delay_s = 0.02 + random.uniform(0, wave_s)
        net.at(net.now + every_s, change)

    net.run(3)
    change()
    net.run(4)
    used, queue_s, drops = flood.use(8)
    assert used >= 0.8
    assert queue_s < 0.06
    assert drops < 0.01


class CrossTraffic:
    """Traffic of others over the same link, which does not react to congestion."""

    def __init__(self, net: Net, path: Path) -> None:
        self.net, self.path = net, path
        self.bps = 0.0
        self._speak()

    def _speak(self) -> None:
        path, now = self.path, self.net.now
        leaves = max(now, path.free_at)
        if leaves - now <= path.queue_s:
            path.free_at = leaves + 0.002 * self.bps / path.rate_bps
        self.net.at(now + 0.002, self._speak)


def test_the_rate_adapts_to_traffic_of_others() -> None:
    net, flood = measured(50e6)
    cross = CrossTraffic(net, flood.path)
    net.run(4)
    cross.bps = 25e6
    net.run(2)
    used, queue_s, drops = flood.use(4)
    assert 0.4 <= used <= 0.51, "of the half that is left"
    assert queue_s < 0.06
    assert drops < 0.01
    cross.bps = 0
    net.run(7)
    assert flood.use(4)[0] >= 0.85


def test_two_gateways_share_a_link() -> None:
    net, one = measured(5e6)
    c, d = net.node("c"), net.node("d")
    net.paths["c", "d"] = net.paths["a", "b"]
    c.add(d, is_measured=True)
    d.add(c)
    net.run(10)
    two = Flood(c, d)
    net.run(30)
    before = (one.b.received_bytes, two.b.received_bytes)
    net.run(15)
    first, second = one.b.received_bytes - before[0], two.b.received_bytes - before[1]
    assert first + second > 0.7 * 5e6 / 8 * 15
    assert 0.2 < first / (first + second) < 0.8


def test_the_rate_never_exceeds_the_configured_limit() -> None:
    net, flood = measured(50e6, most_bps=5e6)
    net.run(15)
    assert flood.rate_bps == 5e6
    assert flood.goodput_bps(5) < 5e6


class ReportFeed:
    """A source of reports for a rate estimate, as a sender of datagrams of 1,000 bytes would cause them."""

    def __init__(self, sends_bps: float, trip_s: float = 0.04) -> None:
        self.estimate = RateEstimate(None)
        self.sends_bps, self.trip_s = sends_bps, trip_s
        self.now = 10.0
        self.sent = self.received = 0

    def cruise(self) -> float:
        """End the start phase of the estimate by reporting a short queue, and return the estimated rate."""
        self.report(40)
        self.report(8, queue_s=0.03)
        return self.report(10)

    def report(self, reports: int, queue_s: float = 0.0, loss: float = 0.0, is_limited: bool = True) -> float:
        for _ in range(reports):
            self.now += 0.025
            sent = round(self.sends_bps * 0.025 / 8000)
            self.sent += sent
            self.received += round(sent * (1 - loss))
            asked = self.now, self.now + self.trip_s + queue_s
            self.estimate.receive_report(Report(*asked, self.sent, 1000 * self.sent, self.received, is_limited))
        return self.estimate.bps


def test_a_sender_that_does_not_use_the_rate_does_not_raise_it() -> None:
    feed = ReportFeed(3e6)
    before = feed.estimate.bps
    assert feed.report(200, is_limited=False) == before


def test_the_rate_grows_to_at_most_twice_the_throughput() -> None:
    feed = ReportFeed(20e6)
    assert feed.report(200) == pytest.approx(40e6, rel=0.01)


def test_the_rate_never_falls_below_the_floor() -> None:
    feed = ReportFeed(20e6)
    feed.report(100)
    for _ in range(200):
        feed.report(20, queue_s=0.05, loss=0.5)
        feed.report(2)
        feed.report(20, loss=0.5)
        feed.report(2)
    assert feed.estimate.bps >= FLOOR_BPS
    feed.sends_bps = 0.05e6
    for _ in range(2000):
        feed.report(100, queue_s=0.5, loss=0.8)
        feed.report(2)
    assert feed.estimate.bps == FLOOR_BPS


def test_two_late_answers_in_a_row_do_not_lower_the_rate_for_long() -> None:
    feed = ReportFeed(20e6)
    before = feed.report(40)
    feed.report(2, queue_s=0.03)
    assert feed.report(1) == pytest.approx(before, rel=0.01)


def test_one_queue_lowers_the_rate_once() -> None:
    feed = ReportFeed(20e6)
    before = feed.cruise()
    for queue_s in (0.012, 0.014, 0.016, 0.018, 0.02, 0.022):
        feed.report(1, queue_s=queue_s)
    fallen = feed.estimate.bps
    assert fallen == pytest.approx(0.7 * before, rel=0.1)
    assert feed.report(12, queue_s=0.02) == fallen, "the queue shrinks only slowly"
    assert feed.report(1) == pytest.approx(0.92 * before, rel=0.1)
    assert feed.report(8) >= 0.92 * before, "and that was all"


def test_one_late_answer_does_not_lower_a_rate_that_is_hardly_used() -> None:
    feed = ReportFeed(20e6)
    before = feed.report(40)
    feed.sends_bps = 2e6
    feed.report(20, is_limited=False)
    assert feed.report(1, queue_s=0.03) > 0.7 * before


def test_growth_is_slow_after_a_fall_and_speeds_up_later() -> None:
    feed = ReportFeed(20e6)
    start = feed.cruise()
    second = feed.report(40) / start
    feed.report(120)
    before = feed.estimate.bps
    fifth = feed.report(40) / before
    assert 1 < second < 1.15
    assert fifth > 1.3


def test_a_queue_that_does_not_react_to_our_rate_is_not_ours() -> None:
    feed = ReportFeed(20e6)
    feed.cruise()
    before = feed.report(120, queue_s=0.04)
    assert before > 0.7 * 20e6
    assert feed.report(20, queue_s=0.04) >= before, "the longer trip is now that of the path"


def test_a_busy_host_is_not_taken_for_a_slow_path() -> None:
    """The path carries 20 Mbit/s. The busy host sends only 2 Mbit/s, and late. No datagram is lost."""
    feed = ReportFeed(20e6)
    before = feed.cruise()
    feed.sends_bps = 2e6
    feed.report(20)
    feed.report(10, queue_s=0.06)
    assert feed.report(10) > 0.6 * before
