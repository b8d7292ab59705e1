"""Tests of the filter that cuts our own looped-back multicast to one byte, and drops what is not to be kept.

All other datagrams arrive whole, and no datagram counts as lost.
"""

import socket
import sys

import pytest

from fjm2.norm.core.wire import Ack, AckType, Data, Extension, Flush, ObjectFlag, Passing, Position
from fjm2.norm.net.udp import UdpConfig, UdpTransport
from fjm2.norm.net.udp_filter import KeptOnly, attach_filter
from fjm2.norm.net.udp_overflows import overflows

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
        attach_filter(receiver, [sender.getsockname()[:2] for sender in (first, second)])
        for sender in (first, second, other):
            sender.sendto(b"0123456789", receiver.getsockname())
        assert [receiver.recv(100) for _ in range(3)] == [b"0", b"0", b"0123456789"]


def test_the_same_port_at_another_address_is_another_sender() -> None:
    with bound((socket.AF_INET, "127.0.0.1")) as receiver, bound((socket.AF_INET, "127.0.0.2")) as sender:
        attach_filter(receiver, [("127.0.0.1", sender.getsockname()[1])])
        sender.sendto(b"whole", receiver.getsockname())
        assert receiver.recv(100) == b"whole"


def test_a_train_is_cut_at_once(place: tuple[socket.AddressFamily, str]) -> None:
    with bound(place) as receiver, bound(place) as sender:
        receiver.setsockopt(socket.IPPROTO_UDP, GRO, 1)
        attach_filter(receiver, [sender.getsockname()[:2]])
        segment = [(socket.IPPROTO_UDP, UDP_SEGMENT, (1000).to_bytes(2, sys.byteorder))]
        sender.sendmsg([bytes(20_000)], segment, 0, receiver.getsockname())
        assert receiver.recv(1 << 16) == b"\0"


def test_the_last_filter_replaces_earlier_ones(place: tuple[socket.AddressFamily, str]) -> None:
    with bound(place) as receiver, bound(place) as sender:
        attach_filter(receiver, [sender.getsockname()[:2]])
        attach_filter(receiver, [])
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


OURS, OTHERS = 7, 8
"""Node ids of a session that takes only what is to be kept, and of another one."""
FIELDS = {"source_id": OTHERS, "instance_id": 1, "grtt_q": 0, "backoff": 0, "gsize_q": 0}
POSITION = Position(5, 1, 0)


def data(flags: int = 0, payload: bytes = b"payload") -> bytes:
    return Data(**FIELDS, flags=flags, fec_id=5, object_id=1, payload_id=0, payload=payload).encode()


def flush(*extensions: Extension, nodes: tuple[int, ...] = ()) -> bytes:
    return Flush(**FIELDS, position=POSITION, acking_nodes=nodes, extensions=extensions).encode()


def ack(sender_id: int) -> bytes:
    return Ack(source_id=9, sender_id=sender_id, instance_id=1, ack_type=AckType.FLUSH, content=POSITION).encode()


DROPPED = {
    "data": data(ObjectFlag.PASSING | ObjectFlag.STREAM),
    "repair": data(ObjectFlag.PASSING | ObjectFlag.REPAIR),
    "flush": flush(Passing()),
    "question": flush(Passing(), nodes=(1, OURS)),
    "answer": ack(OTHERS),
}
PASSED = {
    "data": data(ObjectFlag.STREAM),
    "all other flags": data(0x7F),
    "a payload like EXT_PASSING": data(0, Passing().encode() * 20),
    "flush": flush(),
    "question": flush(nodes=(1, OURS)),
    "node like EXT_PASSING": flush(nodes=(int.from_bytes(Passing().encode()),)),
    "answer to us": ack(OURS),
    "nothing that is known": b"\xff" * 100,
    **{f"{size} bytes of data": DROPPED["data"][:size] for size in range(1, 13)},
    **{f"{size} bytes of an answer": DROPPED["answer"][:size] for size in range(1, 12)},
}


def test_only_what_is_not_kept_is_dropped(place: tuple[socket.AddressFamily, str]) -> None:
    with bound(place) as receiver, bound(place) as sender:
        attach_filter(receiver, [], KeptOnly(OURS))
        for datagram in (*DROPPED.values(), *PASSED.values()):
            sender.sendto(datagram, receiver.getsockname())
        assert [receiver.recv(1000) for _ in PASSED] == list(PASSED.values())
        receiver.setblocking(False)
        with pytest.raises(BlockingIOError):
            receiver.recv(1000)


def test_both_parts_of_a_filter_hold(place: tuple[socket.AddressFamily, str]) -> None:
    with bound(place) as receiver, bound(place) as own, bound(place) as other:
        attach_filter(receiver, [own.getsockname()[:2]], KeptOnly(OURS))
        for sender in (own, other):
            for datagram in (DROPPED["data"], PASSED["data"]):
                sender.sendto(datagram, receiver.getsockname())
        assert [receiver.recv(1000) for _ in range(2)] == [PASSED["data"][:1], PASSED["data"]]


def test_what_a_filter_drops_is_no_overflow(port: int) -> None:
    config = UdpConfig(group="239.192.57.40", port=port, interface="127.0.0.1", ttl=0, kept_only=True)
    before = overflows(config.family)
    with UdpTransport(config) as ours, UdpTransport(config) as others:
        ours.receive_for(OURS)
        for _ in range(100):
            others.transmit.kernel.sendto(DROPPED["data"], ours.destination)
        assert ours.group.receive() is None
        assert ours.group.kernel_drops() == 100
        assert ours.kernel_drops() <= overflows(config.family) - before  # others may overflow meanwhile
        ours.receive_for(OTHERS)
        others.transmit.kernel.sendto(DROPPED["answer"], ours.destination)
        train = ours.group.receive()
        assert train is not None
        assert train.data.tobytes() == DROPPED["answer"]


def test_full_buffers_are_counted() -> None:
    place = socket.AF_INET, "127.0.0.1"
    before = overflows(socket.AF_INET)
    with bound(place) as receiver, bound(place) as sender:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(100):
            sender.sendto(bytes(1000), receiver.getsockname())
    assert overflows(socket.AF_INET) - before >= 50
    assert overflows(socket.AF_INET6) >= 0
