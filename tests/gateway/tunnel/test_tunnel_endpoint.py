"""Tests of a tunnel with several peers: how they share its uplink, and which gateways may be peers."""

import pytest
from tunnel_sim import GROUP, WALL_NS, Net, connected

from fjm2.errors import ConfigError
from fjm2d.tunnel import Drop, EndpointConfig, Kind
from fjm2d.tunnel.events import ClockBehind, PeerDown, PeerUp


def test_peers_share_the_uplink() -> None:
    config = EndpointConfig(uplink_bps=8e6)
    net = Net()
    a, others = net.node("a", config), [net.node(name) for name in "bcd"]
    for other in others:
        other.add(a, knows=False)
        a.add(other)
        other.keeps = False
    net.run(3)
    start = net.now
    while net.now < start + 5:
        for other in others:
            a.send(other, *[bytes(1000)] * 10)
        net.run(0.01)
    got = [other.received_bytes for other in others]
    assert sum(got) * 8 * 1056 / 1000 / 5 == pytest.approx(8e6, rel=0.05)
    assert max(got) < 1.05 * min(got)


def test_short_datagrams_for_one_peer_do_not_starve_long_ones_for_another() -> None:
    net = Net()
    a, others = net.node("a", EndpointConfig(uplink_bps=1e6)), [net.node(name) for name in "bc"]
    for other in others:
        other.add(a, knows=False)
        a.add(other)
        other.keeps = False
    net.run(3)
    start = net.now
    while net.now < start + 5:
        for other, size in zip(others, (1400, 60), strict=True):
            while a.peer(other).outbound.queue.queued_bytes < 50_000:
                a.send(other, *[bytes(size)] * 20)
        net.run(0.01)
    trains = [other.peer(a).stats.datagrams_received for other in others]
    assert min(trains) > 0.8 * max(trains), "they take turns"


def test_one_copy_is_sent_to_all_peers() -> None:
    net = Net()
    a, b, c = (net.node(name) for name in "abc")
    for other in (b, c):
        other.add(a, knows=False)
        a.add(other)
    net.run(1)
    lent = bytearray(b"x" * 100)
    a.endpoint.send(a.endpoint.peers.values(), Kind.NORM, GROUP, lent, 100, net.now)
    lent[:] = b"y" * 100
    a.settle()
    net.run(0.1)
    assert b.contents == c.contents == [b"x" * 100]


def test_a_removed_peer_is_notified_and_cannot_return() -> None:
    net, a, b = connected()
    peer = a.peer(b)
    a.endpoint.remove_peer(peer, net.now)
    a.settle()
    net.run(20)
    assert [event.reason for _, event in b.events_of(PeerDown)] == ["goodbye"]
    assert not b.peer(a).is_up
    assert a.endpoint.drops[Drop.UNKNOWN_PEER] > 3
    assert not a.endpoint.indexes


def test_peers_must_differ() -> None:
    net, a, b = connected()
    with pytest.raises(ConfigError, match="already"):
        a.add(b)
    with pytest.raises(ConfigError, match="own"):
        a.add(a)
    assert net


def test_a_clock_that_is_behind_is_reported_once_and_the_peer_can_still_be_called() -> None:
    net = Net()
    a, b = net.node("a"), net.node("b")
    b.wall_ns = lambda: 1_600_000_000_000_000_000 + int(net.now * 1e9)  # type: ignore[method-assign]
    b.restart()
    a.add(b, knows=False)
    b.add(a)
    net.run(20)
    assert not a.peer(b).is_up, "a cannot tell this from a replay"
    ((_, event),) = a.events_of(ClockBehind)
    assert event.behind_s == pytest.approx(1e8, rel=0.01)
    a.peer(b).set_addresses((b.address,), net.now)
    a.settle()
    assert net.until(lambda: b.peer(a).is_up, 5) < 1, "but it can call"


def test_a_clock_that_was_ahead_before_a_restart_is_reported_too() -> None:
    net = Net()
    a, b = net.node("a"), net.node("b")
    ahead_s = 86_400.0
    b.wall_ns = lambda: WALL_NS + int((net.now + ahead_s) * 1e9)  # type: ignore[method-assign]
    b.restart()
    a.add(b, knows=False)
    b.add(a)
    net.run(3)
    assert a.peer(b).is_up
    ahead_s = 0.0
    b.is_running = False
    net.run(5)
    b.address = ("192.0.2.99", 5)
    b.restart()
    b.add(a)
    net.run(5)
    assert not a.peer(b).is_up, "a cannot tell this from a replay"
    ((_, event),) = a.events_of(ClockBehind)
    assert event.behind_s == pytest.approx(86_400, rel=0.01)
    a.restart()
    a.add(b, knows=False)
    net.run(6)
    assert a.peer(b).is_up


def test_up_and_down_events_alternate() -> None:
    net, a, b = connected()
    for is_cut in (True, False) * 3:
        for path in net.both(a, b):
            path.is_cut = is_cut
        net.run(25)
    kinds = [type(event) for _, event in a.events if isinstance(event, PeerUp | PeerDown)]
    assert kinds == [PeerUp, PeerDown] * 3 + [PeerUp]
