"""Finding a link's rate, over simulated links with a queue."""

import pytest
from tunnel_sim import Net, Node, connected

from fjm2d.tunnel.rate import FLOOR_BPS, START_BPS, RateEstimate, Report


class Flood:
    """A gateway that always has something to send; what it got across, and how long it waited on the way."""

    def __init__(self, a: Node, b: Node, size: int = 1400) -> None:
        self.a, self.b, self.size = a, b, size
        self.is_on = True
        b.keeps = False
        self._speak()

    def _speak(self) -> None:
        net = self.a.net
        if self.is_on:
            if self.a.peer(self.b).queued_bytes < 100_000:
                self.a.send(self.b, *[bytes(self.size)] * 40)
            net.at(net.now + 0.005, self._speak)

    def goodput_bps(self, seconds: float) -> float:
        before = self.b.received_bytes
        self.a.net.run(seconds)
        return 8 * (self.b.received_bytes - before) / seconds


def measured(
    rate_bps: float, delay_s: float = 0.02, most_bps: float | None = None, loss: float = 0.0
) -> tuple[Net, Flood]:
    net, a, b = connected(is_measured=True, rate_bps=most_bps)
    for path in net.both(a, b):
        path.delay_s = delay_s
    path = net.path(a, b)
    path.rate_bps, path.loss = rate_bps, loss
    return net, Flood(a, b)


@pytest.mark.parametrize(("rate_bps", "delay_s"), [(2e6, 0.02), (8e6, 0.005), (8e6, 0.15), (20e6, 0.02)])
def test_a_links_rate_is_found_and_kept(rate_bps: float, delay_s: float) -> None:
    net, flood = measured(rate_bps, delay_s)
    net.run(12)
    path = net.path(flood.a, flood.b)
    dropped = path.dropped["queue"]
    goodput = flood.goodput_bps(8)
    assert goodput > 0.75 * rate_bps
    sent = flood.a.peer(flood.b).stats.datagrams_sent
    assert path.dropped["queue"] - dropped < 0.01 * sent
    assert flood.a.peer(flood.b).rtt_s < 2 * delay_s + 0.08, "and the queue stays short"


def test_a_link_that_gets_slower_and_faster_is_followed() -> None:
    net, flood = measured(10e6)
    net.run(10)
    path = net.path(flood.a, flood.b)
    path.rate_bps = 2e6
    net.run(5)
    assert 0.6 * 2e6 < flood.goodput_bps(5) <= 2e6
    assert flood.a.peer(flood.b).rate_bps < 3e6
    path.rate_bps = 10e6
    net.run(15)
    assert flood.goodput_bps(3) > 0.6 * 10e6


def test_one_datagram_in_a_hundred_lost_is_the_links_own_matter() -> None:
    net, flood = measured(5e6, loss=0.01)
    net.run(15)
    assert flood.goodput_bps(5) > 0.6 * 5e6


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


def test_no_more_than_the_rate_that_is_allowed() -> None:
    net, flood = measured(50e6, most_bps=5e6)
    net.run(15)
    assert flood.a.peer(flood.b).rate_bps == 5e6
    assert flood.goodput_bps(5) < 5e6


def test_who_does_not_use_the_rate_does_not_raise_it() -> None:
    estimate = RateEstimate(None)
    for number in range(100):
        estimate.take(Report(0.04, 100, 0, 1e5, False), number * 0.2)
    assert estimate.bps == START_BPS


def test_there_is_a_floor() -> None:
    estimate = RateEstimate(None)
    for number in range(100):
        estimate.take(Report(0.04, 100, 50, 1e4, True), float(number))
    assert estimate.bps == FLOOR_BPS


def test_one_bad_report_is_answered_once() -> None:
    """What is reported within a round trip of falling is of the time before."""
    estimate = RateEstimate(None)
    for number in range(20):
        estimate.take(Report(0.1, 100, 0, estimate.bps, True), number * 0.2)
    before = estimate.bps
    for number in range(4):
        estimate.take(Report(0.1, 100, 30, before, True), 10 + number * 0.04)
    assert estimate.bps == pytest.approx(0.85 * before)
