"""Tests of the filter that cuts our own looped-back multicast to one byte.

The datagrams of other senders arrive whole, and no datagram counts as lost.
"""

import socket
import sys

import pytest

from fjm2.norm.net.udp import UdpConfig, UdpTransport
from fjm2.norm.net.udp_filter import shorten

GRO, UDP_SEGMENT = 104, 103

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="socket filters are Linux's")


@pytest.fixture(params=[(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")], ids=["ipv4", "ipv6"])
def place(request: pytest.FixtureRequest) -> tuple[socket.AddressFamily, str]:
    return request.param


def bound(place: tuple[socket.AddressFamily, str]) -> socket.socket:
    family, host = place
    made = socket.socket(family, socket.SOCK_DGRAM)
    made.settimeout(5.0)
    made.bind((host, 0))
    return made


def test_only_datagrams_of_the_named_senders_are_cut(place: tuple[socket.AddressFamily, str]) -> None:
    with bound(place) as receiver, bound(place) as first, bound(place) as second, bound(place) as other:
        shorten(receiver, [sender.getsockname()[:2] for sender in (first, second)])
        for sender in (first, second, other):
            sender.sendto(b"0123456789", receiver.getsockname())
        assert [receiver.recv(100) for _ in range(3)] == [b"0", b"0", b"0123456789"]


def test_the_same_port_at_another_address_is_another_sender() -> None:
    with bound((socket.AF_INET, "127.0.0.1")) as receiver, bound((socket.AF_INET, "127.0.0.2")) as sender:
        shorten(receiver, [("127.0.0.1", sender.getsockname()[1])])
        sender.sendto(b"whole", receiver.getsockname())
        assert receiver.recv(100) == b"whole"


def test_a_train_is_cut_at_once(place: tuple[socket.AddressFamily, str]) -> None:
    with bound(place) as receiver, bound(place) as sender:
        receiver.setsockopt(socket.IPPROTO_UDP, GRO, 1)
        shorten(receiver, [sender.getsockname()[:2]])
        segment = [(socket.IPPROTO_UDP, UDP_SEGMENT, (1000).to_bytes(2, sys.byteorder))]
        sender.sendmsg([bytes(20_000)], segment, 0, receiver.getsockname())
        assert receiver.recv(1 << 16) == b"\0"


def test_the_last_filter_replaces_earlier_ones(place: tuple[socket.AddressFamily, str]) -> None:
    with bound(place) as receiver, bound(place) as sender:
        shorten(receiver, [sender.getsockname()[:2]])
        shorten(receiver, [])
        sender.sendto(b"whole again", receiver.getsockname())
        assert receiver.recv(100) == b"whole again"


def test_a_transport_hears_others_and_not_itself(port: int) -> None:
    config = UdpConfig(group="239.192.57.40", port=port, interface="127.0.0.1", ttl=0)
    with UdpTransport(config) as ours, UdpTransport(config) as others:
        for transport in (ours, others, ours):
            transport.transmit.kernel.sendto(b"to the group", ours.destination)
        assert [(train.data.tobytes(), train.address) for train in iter(ours.group.receive, None)] == [
            (b"to the group", others.address)
        ]
        assert ours.kernel_drops() == 0
        ours.ignore([others.address])
        others.transmit.kernel.sendto(b"to the group", ours.destination)
        assert ours.group.receive() is None
