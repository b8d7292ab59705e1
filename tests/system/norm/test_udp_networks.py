"""Tests of transports on interfaces that appear, disappear and return, in private networks."""

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from netns import Namespace, Network, set_up
from trains import SILENCE_S, datagrams_of, hears_nothing, make_train, receive_datagrams, receive_train

from fjm2.norm.net.udp import LinkState, UdpConfig, UdpTransport

pytestmark = pytest.mark.root

GROUP = "239.192.57.93"
SETTLING_TIMEOUT_S = 10.0
"""Longest wait for a state of the interface. Linux takes up to a second to report a carrier."""
Open = Callable[..., UdpTransport]


@pytest.fixture
def open_in(network: Network, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Return a function that opens transports in namespaces, on veth0 and with the same group."""
    assert network is not None  # removed after the transports are closed
    monkeypatch.delenv("FJM2_NO_GSO", raising=False)
    with ExitStack() as opened:

        def make(namespace: Namespace, **settings: Any) -> UdpTransport:
            config = {"group": GROUP, "port": 5740, "interface": "veth0", **settings}
            with namespace.entered():
                return opened.enter_context(UdpTransport(UdpConfig(**config)))

        yield make


def settle(namespace: Namespace, transport: UdpTransport, *expected: LinkState) -> None:
    """Check the transport's interface, as a driver does, until its state is one of the expected ones."""
    deadline = time.monotonic() + SETTLING_TIMEOUT_S
    with namespace.entered():
        while transport.check() not in expected:
            assert time.monotonic() < deadline, f"still {transport.state}, expected {expected}"
            time.sleep(0.02)


def hears(receiver: UdpTransport, sender: UdpTransport, *, size: int = 20_000) -> bool:
    """Send a train. Return True if the receiver gets all of it."""
    train = make_train(size, size, 1400, sender.destination)
    assert sender.transmit.send(train)
    return receive_datagrams(receiver.group, train.count) == datagrams_of(train)


@pytest.mark.parametrize("offload", [None, False])
def test_trains_cross_a_switch(network: Network, open_in: Open, offload: bool | None) -> None:
    hosts = [network.namespace() for _ in range(3)]
    network.switch(*hosts)
    sender, *receivers = [open_in(host, offload=offload) for host in hosts]
    beside = open_in(hosts[0], offload=offload)
    assert all(hears(receiver, sender) for receiver in (beside, *receivers))
    assert hears_nothing(sender.group)
    assert receivers[0].send(make_train(1, 50, 50, sender.address))
    answer = receive_train(sender.transmit)
    assert answer is not None
    assert answer.address == receivers[0].address


def test_without_loopback_other_hosts_hear_and_this_one_does_not(network: Network, open_in: Open) -> None:
    left, right = network.namespace(), network.namespace()
    network.link(left, right)
    sender, beside, beyond = open_in(left, loopback=False), open_in(left), open_in(right)
    assert hears(beyond, sender)
    assert hears_nothing(beside.group)


@pytest.mark.parametrize(("group", "prefix"), [(GROUP, "10.57.2."), ("ff15::57:93", "fe80::")])
def test_each_session_hears_its_own_interface(network: Network, open_in: Open, group: str, prefix: str) -> None:
    host, first, second = (network.namespace() for _ in range(3))
    network.link(host, first, "veth1")
    network.link(host, second, "veth2")
    settings = {"group": group, "loopback": False}
    senders = open_in(first, interface="veth1", **settings), open_in(second, interface="veth2", **settings)
    on_first, on_second = (open_in(host, interface=name, **settings) for name in ("veth1", "veth2"))
    assert on_second.address[0].startswith(prefix)
    assert hears(on_first, senders[0])
    assert hears_nothing(on_second.group)
    assert hears(on_second, senders[1])
    assert hears_nothing(on_first.group)
    assert hears(senders[1], on_second)
    assert hears_nothing(senders[0].group)


def test_without_an_interface_the_route_decides(network: Network, open_in: Open) -> None:
    host, first, second = (network.namespace() for _ in range(3))
    network.link(host, first, "veth1")
    network.link(host, second, "veth2")
    host.ip("route", "add", "239.0.0.0/8", "dev", "veth2")
    chosen = open_in(host, interface=None)
    assert (chosen.interface.name, chosen.address[0]) == ("veth2", "10.57.2.1")
    host.ip("route", "replace", "239.0.0.0/8", "dev", "veth1")
    settle(host, chosen, LinkState.UP)
    assert chosen.interface.name == "veth2"


def test_two_hosts_by_unicast(network: Network, open_in: Open) -> None:
    left, right = network.namespace(), network.namespace()
    network.link(left, right)
    one, other = open_in(left, group="10.57.1.2", interface=None), open_in(right, group="10.57.1.1")
    assert hears(other, one)
    assert hears(one, other)


def test_an_interface_that_goes_down_comes_back_by_itself(network: Network, open_in: Open) -> None:
    left, right = network.namespace(), network.namespace()
    network.link(left, right)
    sender, receiver = open_in(left), open_in(right)
    settle(left, sender, LinkState.UP)
    left.ip("link", "set", "veth0", "down")
    settle(left, sender, LinkState.DOWN)
    assert sender.is_down
    assert sender.transmit.send(make_train(1, 3000, 1000, sender.destination))
    assert sender.stats.send_errors.total() >= 1
    left.ip("link", "set", "veth0", "up")
    settle(left, sender, LinkState.UP)
    assert hears(receiver, sender)
    assert not sender.is_down


@pytest.mark.parametrize("group", [GROUP, "ff12::57:93"])
@pytest.mark.parametrize("index", ["same", "other"])
def test_an_interface_made_again_is_joined_again(network: Network, open_in: Open, group: str, index: str) -> None:
    left, right = network.namespace(), network.namespace()
    network.link(left, right)
    sender, receiver = open_in(left, group=group), open_in(right, group=group)
    settle(right, receiver, LinkState.UP)
    assert hears(receiver, sender)
    number = receiver.interface.index + (0 if index == "same" else 7)
    right.ip("link", "delete", "veth0")
    right.ip(*f"link add veth0 index {number} type veth peer name veth0 netns {left.name}".split())
    for host, namespace in enumerate((left, right), start=1):
        set_up(namespace, "veth0", f"10.57.1.{host}/24")
    for namespace, transport in ((right, receiver), (left, sender)):
        settle(namespace, transport, LinkState.CHANGED)  # even the receiver, which got no error
        with namespace.entered():
            assert transport.reopen() is LinkState.UP
    assert receiver.interface.index == number
    assert hears(receiver, sender)
    with left.entered():  # in which its own address has a scope name, by which it recognises what loops back
        assert hears(sender, receiver)


def test_a_new_address_needs_the_socket_reopened(network: Network, open_in: Open) -> None:
    left, right = network.namespace(), network.namespace()
    network.link(left, right)
    sender, receiver = open_in(left), open_in(right)
    left.ip("address", "replace", "10.57.1.1/24", "dev", "veth0")  # the same address again is no change
    settle(left, sender, LinkState.UP)
    left.ip("address", "delete", "10.57.1.1/24", "dev", "veth0")
    settle(left, sender, LinkState.DOWN)
    with left.entered():
        assert sender.reopen() is LinkState.DOWN
    left.ip("address", "add", "10.57.1.7/24", "dev", "veth0")
    settle(left, sender, LinkState.CHANGED)
    with left.entered():
        assert sender.reopen() is LinkState.UP
    assert sender.address[0] == "10.57.1.7"
    assert hears(receiver, sender)


def test_ipv6_link_local(network: Network, open_in: Open) -> None:
    left, right = network.namespace(), network.namespace()
    network.link(left, right)
    sender, receiver = open_in(left, group="ff12::57:93"), open_in(right, group="ff12::57:93%veth0", interface=None)
    assert sender.address[0].startswith("fe80::")
    assert sender.address[0].endswith("%veth0")
    train = make_train(1, 10_000, 1000, sender.destination)
    assert sender.send(train)
    with right.entered():  # scope ids have names there
        received = receive_train(receiver.group)
        assert received is not None
        assert received.address == sender.address  # because the interfaces at both ends are called veth0
        assert receiver.send(make_train(2, 30, 30, received.address))
    with left.entered():
        answer = receive_train(sender.transmit)
        assert answer is not None
        assert answer.address == receiver.address


@pytest.mark.parametrize("group", ["ff12::57:93%lo", "ff11::57:93%lo", "ff15::57:93"])
def test_ipv6_multicast_by_lo_wants_a_route(network: Network, open_in: Open, group: str) -> None:
    host = network.namespace()
    unheard = open_in(host, group=group, interface="lo", ttl=0)
    (warning,) = unheard.warnings
    assert warning.startswith("lo (127.0.0.1, ::1) has no route for IPv6 multicast: ip -6 route add ")
    assert unheard.send(make_train(1, 30, 30, unheard.destination))
    assert unheard.stats.send_errors == {errno.ENETUNREACH: 1}
    assert unheard.is_down
    host.run(*warning.partition(": ")[2].split())
    heard, hearing = (open_in(host, group=group, interface="lo", ttl=0) for _ in range(2))
    assert heard.warnings == ()
    assert hears(hearing, heard, size=60_000)


@pytest.mark.parametrize("offload", [None, False])
def test_a_full_kernel_loses_nothing(network: Network, open_in: Open, offload: bool | None) -> None:
    left, right = network.namespace(), network.namespace()
    network.link(left, right)
    left.limit("veth0", 100, queue_bytes=8 << 20)
    sender = open_in(left, offload=offload, send_buffer_bytes=1 << 17, loopback=False)
    receiver = open_in(right)
    trains = [make_train(seed, 45 * 1440, 1440, sender.destination) for seed in range(12)]
    received: list[bytes] = []
    for train in trains:
        while not sender.send(train):
            received += receive_datagrams(receiver.group, 1)
    expected = [datagram for train in trains for datagram in datagrams_of(train)]
    received += receive_datagrams(receiver.group, len(expected) - len(received))
    assert received == expected
    assert sender.stats.sends_blocked > 0


def test_loss_has_the_configured_probability(network: Network, open_in: Open) -> None:
    left, right = network.namespace(), network.namespace()
    network.link(left, right)
    left.cut_trains("veth0")
    right.lose(0.3)
    sender, receiver = open_in(left), open_in(right)
    for seed in range(10):
        assert sender.send(make_train(seed, 50 * 100, 100, sender.destination))
    assert 250 < len(receive_datagrams(receiver.group, 500, SILENCE_S)) < 450


def test_segments_beyond_the_mtu_go_in_fragments(network: Network, open_in: Open) -> None:
    left, right = network.namespace(), network.namespace()
    network.link(left, right)
    sender, receiver = open_in(left), open_in(right)
    train = make_train(1, 20_000, 4000, sender.destination)
    for _ in range(2):
        assert sender.send(train)
        assert receive_datagrams(receiver.group, 5) == datagrams_of(train)
    assert sender.stats.offload_refused == sender.offload
    assert hears(receiver, sender)


def test_a_firewall_is_an_error_that_is_counted(network: Network, open_in: Open) -> None:
    left, right = network.namespace(), network.namespace()
    network.link(left, right)
    sender = open_in(left)
    left.run("iptables", "-A", "OUTPUT", "-p", "udp", "-j", "DROP")
    assert sender.send(make_train(1, 3000, 1000, sender.destination))
    assert sender.stats.send_errors == {errno.EPERM: 1}
    assert sender.is_down
    assert sender.refusal == "Operation not permitted"
    left.run("iptables", "-F", "OUTPUT")
    assert sender.send(make_train(1, 3000, 1000, sender.destination))
    assert (sender.is_down, sender.refusal) == (False, None)
