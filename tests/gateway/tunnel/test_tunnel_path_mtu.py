"""Tests of packet lengths between two tunnels, in virtual time.

The tunnels search for the path MTU, and split datagrams into parts.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tunnel_sim import Net, Node, chatter, connected, datagrams

from fjm2d.tunnel import EndpointConfig
from fjm2d.tunnel.events import PathMtuChanged, PathTooNarrow


@pytest.mark.parametrize("mtu", [1280, 1281, 1300, 1400, 1472, 1492, 1499, 1500])
def test_the_path_mtu_is_found(mtu: int) -> None:
    net = Net()
    a, b = net.node("a"), net.node("b")
    net.path(a, b).mtu = mtu
    a.add(b)
    b.add(a)
    net.run(15)
    assert mtu - 4 <= a.peer(b).path.mtu_bytes <= mtu
    assert b.peer(a).path.mtu_bytes == 1500, "the reverse path has its own MTU"
    before = net.path(a, b).dropped["too long"]
    a.send(b, *datagrams(10, 1444))
    net.run(0.5)
    assert b.contents == list(datagrams(10, 1444))
    assert net.path(a, b).dropped["too long"] == before


@pytest.mark.parametrize("mtu_max", [1280, 1500, 9000])
@pytest.mark.parametrize("delay_s", [0.01, 0.2])
def test_a_path_that_does_not_carry_the_least_length_is_reported_until_it_does(delay_s: float, mtu_max: int) -> None:
    """Handshakes and short probes pass, and everything that is longer vanishes."""
    config = EndpointConfig(mtu_max_bytes=mtu_max)
    net = Net()
    a, b = net.node("a", config), net.node("b", config)
    for path in net.both(a, b):
        path.delay_s = delay_s
    net.path(a, b).mtu = 1200
    a.add(b)
    b.add(a)
    net.run(50)
    assert a.peer(b).is_up
    assert a.peer(b).path.is_too_narrow
    assert not b.peer(a).path.is_too_narrow, "the reverse path is wide enough"
    (told,) = a.events_of(PathTooNarrow)
    assert told[1] == PathTooNarrow(a.peer(b), is_over=False)
    probes = net.path(a, b).dropped["too long"]
    net.run(60)
    assert net.path(a, b).dropped["too long"] - probes < 8 * 7, "it is tried again at intervals"
    net.path(a, b).mtu = 1500
    net.run(15)
    assert not a.peer(b).path.is_too_narrow
    assert [event.is_over for _, event in a.events_of(PathTooNarrow)] == [False, True]


@pytest.mark.parametrize("seed", range(5))
def test_a_path_that_loses_much_is_not_taken_for_a_narrow_one(seed: int) -> None:
    net, a, b = connected(seed)
    for path in net.both(a, b):
        path.loss = 0.2
    for _ in range(1200):
        a.send(b, bytes(1000))
        net.run(0.1)
    assert not a.events_of(PathTooNarrow)


def test_a_path_that_becomes_narrow_is_reported_while_data_flows() -> None:
    net, a, b = connected()
    net.path(a, b).mtu = 1000
    for _ in range(300):
        a.send(b, bytes(800))
        net.run(0.1)
    assert a.peer(b).path.is_too_narrow
    assert not b.peer(a).path.is_too_narrow


def test_a_narrow_path_with_a_fixed_mtu_that_fits_is_no_fault() -> None:
    net, a, b = connected(config=EndpointConfig(mtu_bytes=1000))
    for path in net.both(a, b):
        path.mtu = 1000
    contents = list(datagrams(10, 1444))
    a.send(b, *contents)
    net.run(30)
    assert b.contents == contents
    assert not a.peer(b).path.is_too_narrow


def test_a_jumbo_path_is_found_where_it_is_allowed() -> None:
    config = EndpointConfig(mtu_max_bytes=9000)
    net = Net()
    a, b = net.node("a", config), net.node("b", config)
    for path in net.both(a, b):
        path.mtu = 8000
    a.add(b)
    b.add(a)
    net.run(20)
    assert 7996 <= a.peer(b).path.mtu_bytes <= 8000


def test_a_fixed_mtu_is_not_probed() -> None:
    net, a, b = connected(config=EndpointConfig(mtu_bytes=1400))
    a.send(b, bytes(1400))
    net.run(30)
    assert a.peer(b).path.mtu_bytes == 1400
    assert b.contents == [bytes(1400)]
    assert a.peer(b).stats.split == 1


def test_a_path_that_silently_drops_long_packets_is_noticed() -> None:
    net, a, b = connected()
    assert a.peer(b).path.mtu_bytes == 1500
    net.path(a, b).mtu = 1420
    b.keeps = True
    for _ in range(100):
        a.send(b, bytes(1444))
        net.run(0.1)
    assert [event.mtu_bytes for _, event in a.events_of(PathMtuChanged)][1] == 1280
    assert 1416 <= a.peer(b).path.mtu_bytes <= 1420
    assert net.path(a, b).dropped["too long"] < 60
    b.received.clear()
    a.send(b, bytes(1444))
    net.run(0.1)
    assert b.contents == [bytes(1444)]


def test_a_length_error_from_the_kernel_applies_at_once() -> None:
    net, a, b = connected()
    net.path(a, b).mtu = 1300
    a.endpoint.note_too_long(b.address, 1500 - 28, net.now)
    assert a.peer(b).path.mtu_bytes == 1280
    net.run(10)
    assert 1296 <= a.peer(b).path.mtu_bytes <= 1300


def over_ipv6() -> tuple[Net, Node, Node]:
    net = Net()
    a, b = net.node("a"), net.node("b")
    a.address, b.address = ("2001:db8::1", 5741), ("2001:db8::2", 5741)
    a.add(b)
    b.add(a)
    net.run(3)
    return net, a, b


@pytest.mark.parametrize(("size", "parts"), [(1444, 2), (1424, 1), (1344, 1)])
def test_over_ipv6_there_is_less_room(size: int, parts: int) -> None:
    """The longest datagrams that JMS sends by default need two parts. With `segment_bytes=1300` they fit into one."""
    net, a, b = over_ipv6()
    peer = a.peer(b)
    assert (peer.path.mtu_bytes, peer.path.datagram_bytes) == (1500, 1424)
    contents = list(datagrams(44, size))
    sent = peer.stats.datagrams_sent
    a.send(b, *contents)
    net.run(0.05)
    assert b.contents == contents
    assert peer.stats.datagrams_sent - sent <= parts * 44 + 2, "and a probe"
    assert peer.stats.split == (44 if parts == 2 else 0)
    assert not net.path(a, b).dropped["too long"]


def test_the_length_that_the_kernel_refuses_excludes_ip_and_udp_headers() -> None:
    for net, a, b, ip_bytes in ((*connected(), 28), (*over_ipv6(), 48)):
        peer = a.peer(b)
        for path in net.both(a, b):
            path.mtu = 1400
        a.endpoint.note_too_long(b.address, peer.path.datagram_bytes + 28, net.now)
        a.settle()
        assert peer.path.mtu_bytes < 1500
        net.run(10)
        assert 1396 <= peer.path.mtu_bytes <= 1400
        assert peer.path.datagram_bytes == peer.path.mtu_bytes - ip_bytes - 28


def test_a_dead_path_does_not_lower_the_mtu() -> None:
    net, a, b = connected()
    chatter(a, b, 60)
    net.run(5)
    for path in net.both(a, b):
        path.is_cut = True
    net.run(2.9)
    assert a.peer(b).path.mtu_bytes == 1500


@settings(max_examples=20)
@given(
    size=st.integers(1, 20_000), number=st.integers(1, 40), mtu=st.sampled_from([576, 1280, 1500]), tail=st.booleans()
)
def test_datagrams_of_any_length_arrive(size: int, number: int, mtu: int, tail: bool) -> None:
    net, a, b = connected(config=EndpointConfig(mtu_bytes=mtu))
    for path in net.both(a, b):
        path.mtu = mtu
    sent = list(datagrams(number, size))
    if tail:
        sent[-1] = sent[-1][: max(1, size // 3)]
    a.send(b, *sent)
    net.run(1)
    assert b.contents == sent
    assert not net.path(a, b).dropped


def test_parts_that_arrive_out_of_order_are_joined() -> None:
    net, a, b = connected(config=EndpointConfig(mtu_bytes=1280))
    net.path(a, b).jitter_s = 0.01
    sent = list(datagrams(100, 3000))
    a.send(b, *sent)
    net.run(1)
    assert sorted(b.contents) == sorted(sent)
