"""Tests of trains over real sockets on the loopback interface."""

import errno
import os
import random
import re
import select
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lossy import LossySocket
from trains import SILENCE_S, datagrams_of, hears_nothing, make_train, receive_datagrams, receive_train

from fjm2.errors import ConfigError
from fjm2.norm.core.train import TRAIN_BYTES_MAX
from fjm2.norm.net import udp_receiver
from fjm2.norm.net.udp import LinkState, UdpConfig, UdpSocket, UdpStats, UdpTransport
from fjm2.norm.net.udp_opening import find_place

GROUP = "239.192.57.91"
Open = Callable[..., UdpTransport]


@pytest.fixture
def open_one(port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Return a function that opens transports on the loopback interface. They all share one port."""
    monkeypatch.delenv("FJM2_NO_GSO", raising=False)
    opened: list[UdpTransport] = []

    def make(**settings: Any) -> UdpTransport:
        config = {"group": GROUP, "port": port, "interface": "127.0.0.1", "ttl": 0, **settings}
        opened.append(UdpTransport(UdpConfig(**config)))
        return opened[-1]

    yield make
    for transport in opened:
        transport.close()


class FaultySocket(socket.socket):
    """A real socket whose sends fail as configured."""

    def __init__(self) -> None:
        super().__init__(socket.AF_INET, socket.SOCK_DGRAM)
        self.bind(("127.0.0.1", 0))
        self.fault: Callable[[int], int | None] = lambda _: None
        """Function called with the number of bytes to send. It returns an errno to fail with, or None to send them."""

    def sendto(self, data: Any, address: Any) -> int:  # type: ignore[override]
        self._fail(len(data))
        return super().sendto(data, address)

    def sendmsg(self, buffers: Any, ancillary: Any, flags: int, address: Any) -> int:  # type: ignore[override]
        self._fail(sum(map(len, buffers)))
        return super().sendmsg(buffers, ancillary, flags, address)

    def _fail(self, size: int) -> None:
        code = self.fault(size)
        if code is not None:
            raise OSError(code, os.strerror(code))


@pytest.fixture
def faulty() -> Iterator[tuple[UdpSocket, FaultySocket]]:
    kernel = FaultySocket()
    yield UdpSocket(kernel, UdpStats(), offload=True), kernel
    kernel.close()


@pytest.mark.parametrize("sender_offload", [None, False])
@pytest.mark.parametrize("receiver_offload", [None, False])
def test_trains_arrive_intact(open_one: Open, sender_offload: bool | None, receiver_offload: bool | None) -> None:
    sender, receiver = open_one(offload=sender_offload), open_one(offload=receiver_offload)
    choose = random.Random(57)
    for count in range(1, 65):
        segment_bytes = choose.randint(20, 1000)
        size = (count - 1) * segment_bytes + choose.randint(1, segment_bytes)
        train = make_train(count, size, segment_bytes, sender.destination)
        assert sender.send(train)
        assert receive_datagrams(receiver.group, count) == datagrams_of(train), f"{count} of {segment_bytes} bytes"
    assert receiver.group.receive() is None


def test_our_own_answer_to_a_lone_datagram_ends_the_reading_and_hides_nothing(open_one: Open) -> None:
    """The receiver does not ask for more behind it, but what is behind it still makes the socket readable."""
    other, ours = open_one(), open_one()
    for number in range(3):
        question = make_train(2 * number, 100, 100, other.destination)
        assert other.send(question)
        assert receive_datagrams(ours.group, 1) == datagrams_of(question)
        assert ours.send(make_train(2 * number, 100, 100, ours.destination))
        behind = make_train(2 * number + 1, 100, 100, other.destination)
        assert other.send(behind)
        readable, _, _ = select.select([ours.group], [], [], SILENCE_S)
        assert readable
        assert ours.group.receive() is None
        assert receive_datagrams(ours.group, 1) == datagrams_of(behind)
        assert ours.group.receive() is None


def test_a_train_arrives_as_a_train(open_one: Open) -> None:
    sender, receiver = open_one(), open_one()
    if not sender.offload:
        pytest.skip("this kernel has no UDP_SEGMENT")
    assert sender.send(make_train(1, 44 * 1440 + 7, 1440, sender.destination))
    train = receive_train(receiver.group)
    assert train is not None
    assert (train.count, train.segment_bytes, train.address) == (45, 1440, sender.address)


def test_environment_forces_datagrams(open_one: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = open_one()
    monkeypatch.setenv("FJM2_NO_GSO", "1")
    sender = open_one(offload=True)
    assert not sender.offload
    train = make_train(1, 3000, 1000, sender.destination)
    assert sender.send(train)
    # Read from the kernel directly, since UdpSocket joins single datagrams. With offload, the kernel would return all
    # at once.
    assert [receiver.group.kernel.recv(1 << 16) for _ in range(3)] == datagrams_of(train)


def test_datagrams_that_wait_are_joined_to_trains(open_one: Open) -> None:
    sender, receiver = open_one(offload=False), open_one(offload=False)
    sizes = [1000] * 5 + [300] + [1000] * 2 + [1200] + [80] * 3
    for number, size in enumerate(sizes):
        sender.transmit.kernel.sendto(bytes([number]) * size, sender.destination)
    trains = []
    while (train := receiver.group.receive()) is not None:
        trains.append((train.segment_bytes, train.data.tobytes()))
    assert [(size, len(data)) for size, data in trains] == [
        (1000, 1000),  # the first one does not wait for others: it may have come alone
        (1000, 4300),
        (1000, 2000),
        (1200, 1200),
        (80, 240),
    ]
    assert b"".join(data for _, data in trains) == b"".join(bytes([n]) * size for n, size in enumerate(sizes))


def test_sessions_of_a_host_share_the_group(open_one: Open) -> None:
    sender, other, third = open_one(), open_one(), open_one()
    train = make_train(1, 10_000, 1400, sender.destination)
    assert sender.send(train)
    for session in (other, third):
        assert receive_datagrams(session.group, 8) == datagrams_of(train)
    assert sender.group.receive() is None  # it drops its own datagrams


def test_unicast_answers_reach_their_session(open_one: Open) -> None:
    sender, receiver = open_one(), open_one()
    assert receiver.send(make_train(1, 40, 40, sender.address))
    train = receive_train(sender.transmit)
    assert train is not None
    assert train.address == receiver.address
    assert all(map(hears_nothing, (sender.group, receiver.group, receiver.transmit)))


def test_other_traffic_on_the_port_does_not_arrive(open_one: Open, port: int) -> None:
    session = open_one()
    with open_one(group="239.192.57.92") as other, open_one(group="239.192.57.92") as sender:
        assert sender.send(make_train(1, 100, 100, other.destination))
        assert sender.send(make_train(2, 100, 100, ("127.0.0.1", port)))
        assert receive_train(other.group) is not None
    assert hears_nothing(session.group)


def test_a_session_between_two(open_one: Open, port: int) -> None:
    session = open_one(group="127.0.0.1", interface=None)
    assert session.interface.name == "lo"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.sendto(b"request", ("127.0.0.1", port))
        train = receive_train(session.group)
    assert train is not None
    assert train.data.tobytes() == b"request"
    with pytest.raises(OSError, match=f"cannot bind to 127.0.0.1 port {port} on lo") as failure:
        open_one(group="127.0.0.1")
    assert failure.value.errno == errno.EADDRINUSE


@pytest.mark.parametrize("offload", [None, False])
def test_trains_beyond_the_kernels_limits_are_split(open_one: Open, offload: bool | None) -> None:
    sender, receiver = open_one(offload=offload), open_one()
    for size, segment_bytes in ((86_399, 1440), (20_000, 100), (TRAIN_BYTES_MAX + 5, 30_000)):
        train = make_train(size, size, segment_bytes, sender.destination)
        assert sender.send(train)
        assert receive_datagrams(receiver.group, train.count) == datagrams_of(train)


def test_a_datagram_that_is_too_long_is_counted(open_one: Open) -> None:
    sender = open_one()
    assert sender.send(make_train(1, TRAIN_BYTES_MAX + 1, TRAIN_BYTES_MAX + 1, sender.destination))
    assert sender.send(make_train(1, 2 * TRAIN_BYTES_MAX + 2, TRAIN_BYTES_MAX + 1, sender.destination))
    assert sender.stats.send_errors == {errno.EMSGSIZE: 2}
    assert not sender.is_down


def test_empty_and_truncated_datagrams_are_dropped(open_one: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    sender = open_one()
    monkeypatch.setattr(udp_receiver, "_RECEIVE_BYTES", 1000)
    receiver = open_one()
    for size in (0, 0, 1001, 0, 1000):
        sender.transmit.kernel.sendto(bytes(size), sender.destination)
    train = receive_train(receiver.group)
    assert train is not None
    assert train.data.size == 1000
    assert (receiver.stats.empty_dropped, receiver.stats.truncated_dropped) == (3, 1)


@pytest.mark.parametrize("offload", [True, False])
def test_sending_resumes_where_the_full_kernel_stopped(open_one: Open, offload: bool) -> None:
    receiver = open_one()
    choose = random.Random(5)
    with FaultySocket() as kernel:
        sender = UdpSocket(kernel, UdpStats(), offload=offload)
        kernel.fault = lambda _: errno.EAGAIN if choose.random() < 0.4 else None
        for seed in range(20):
            train = make_train(seed, 150_000, 1440, receiver.address)
            while not sender.send(train):
                pass
            assert receive_datagrams(receiver.transmit, train.count) == datagrams_of(train)
        assert sender.stats.sends_blocked > 0


def test_a_single_datagram_may_overtake_a_held_train(open_one: Open, faulty: tuple[UdpSocket, FaultySocket]) -> None:
    receiver, (sender, kernel) = open_one(offload=False), faulty
    answers = iter([None, errno.EAGAIN])
    kernel.fault = lambda _: next(answers, None)
    train = make_train(1, 80_000, 1000, receiver.address)
    lone = make_train(2, 30, 30, receiver.address)
    assert not sender.send(train)
    assert sender.send(lone)
    assert sender.send(train)
    expected = datagrams_of(train)
    assert receive_datagrams(receiver.transmit, 81) == expected[:64] + datagrams_of(lone) + expected[64:]


@pytest.mark.parametrize("code", [errno.EIO, errno.EINVAL, errno.EMSGSIZE])
def test_refused_segmentation_is_not_tried_again(
    open_one: Open, faulty: tuple[UdpSocket, FaultySocket], code: int
) -> None:
    receiver, (sender, kernel) = open_one(), faulty
    asked: list[int] = []

    def refuse(size: int) -> int | None:
        asked.append(size)
        return code if size == 10_000 else None

    kernel.fault = refuse
    for seed, segment_bytes in enumerate((1000, 1000, 500)):
        train = make_train(seed, 10 * segment_bytes, segment_bytes, receiver.address)
        assert sender.send(train)
        assert receive_datagrams(receiver.transmit, 10) == datagrams_of(train)
    tries = asked.count(10_000)
    assert asked[:tries] == tries * [10_000]  # nothing was sent until the last try failed
    # EIO comes from the outgoing path. The other errors may come from the size, so smaller segments still use offload.
    assert asked[tries:] == 20 * [1000] + (10 * [500] if code == errno.EIO else [5000])
    assert sender.stats.offload_refused == 1


def test_segmentation_stays_on_when_single_datagrams_fail_too(
    open_one: Open, faulty: tuple[UdpSocket, FaultySocket]
) -> None:
    receiver, (sender, kernel) = open_one(), faulty
    train = make_train(1, 10_000, 1000, receiver.address)
    kernel.fault = lambda _: errno.EINVAL
    assert sender.send(train)
    assert sender.stats.send_errors == {errno.EINVAL: 1}
    kernel.fault = lambda size: None if size == 10_000 else errno.EIO
    assert sender.send(train)
    assert sender.stats.send_errors == {errno.EINVAL: 1}
    assert receive_datagrams(receiver.transmit, 10) == datagrams_of(train)


@pytest.mark.parametrize("code", [errno.ENOBUFS, errno.EPERM, errno.ECONNREFUSED, errno.ENETDOWN, errno.ENODEV])
@pytest.mark.parametrize("count", [1, 10])
def test_send_errors_are_counted(open_one: Open, faulty: tuple[UdpSocket, FaultySocket], code: int, count: int) -> None:
    receiver, (sender, kernel) = open_one(), faulty
    train = make_train(1, count * 1000, 1000, receiver.address)
    kernel.fault = lambda _: code
    assert sender.send(train)
    assert sender.stats.send_errors == {code: 1}
    assert sender.is_failing == (code in (errno.ENETDOWN, errno.ENODEV, errno.EPERM, errno.EACCES))
    kernel.fault = lambda _: None
    assert sender.send(train)
    assert not sender.is_failing


@pytest.mark.skipif(not Path("/proc/sys/net/core/rmem_max").exists(), reason="limits are in Linux's /proc")
def test_a_warning_about_capped_buffers_says_what_to_do(open_one: Open, caplog: pytest.LogCaptureFixture) -> None:
    wanted = 1 << 30
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65_534)  # the user `nobody`, who must not exceed the limits
    try:
        transport = open_one(receive_buffer_bytes=wanted, send_buffer_bytes=wanted)
    finally:
        if is_root:
            os.seteuid(0)
    cap = int(Path("/proc/sys/net/core/rmem_max").read_text())
    receive, send = transport.warnings
    assert receive.startswith(f"the kernel gives {cap} bytes of receive buffer and not {wanted}: ")
    assert re.search(rf"sysctl -w net\.core\.rmem_max={wanted}$", receive)
    assert re.search(rf"sysctl -w net\.core\.wmem_max={wanted}$", send)
    told = [f"buffer_small: {receive}", f"buffer_small: {send}"]
    assert [record.getMessage() for record in caplog.records if record.name == "fjm2.norm"] == told


def test_full_receive_buffers_are_counted(open_one: Open) -> None:
    sender, receiver = open_one(), open_one(receive_buffer_bytes=1 << 14, offload=False)
    for seed in range(64):
        assert sender.send(make_train(seed, 1400, 1400, sender.destination))
    received = 0
    while (train := receiver.group.receive()) is not None:
        received += train.count
    assert 0 < received < 64
    assert receiver.kernel_drops() == 64 - received


def test_closing_twice_does_no_harm(open_one: Open) -> None:
    with open_one() as transport:
        train = make_train(1, 10, 10, transport.destination)
        assert transport.check() is LinkState.UP
        transport.close()
    transport.close()
    assert (transport.group.fileno(), transport.transmit.fileno()) == (-1, -1)
    assert transport.check() is transport.reopen() is LinkState.DOWN
    with pytest.raises(OSError, match="Bad file descriptor"):
        transport.send(train)
    with pytest.raises(OSError, match="Bad file descriptor"):
        transport.group.receive()


@pytest.mark.parametrize("group", [GROUP, "127.0.0.1"])
def test_reopening_keeps_the_address(open_one: Open, group: str) -> None:
    transport = open_one(group=group)
    before = transport.address
    assert transport.reopen() is LinkState.UP
    assert transport.address == before
    train = make_train(1, 5000, 1400, transport.destination)
    sender = open_one(group=group) if transport.config.is_multicast else transport
    assert sender.send(train)
    assert receive_datagrams(transport.group, 4) == datagrams_of(train)
    if transport.config.is_multicast:
        assert transport.send(train)  # and again drops its own datagrams
    assert transport.group.receive() is None


def test_ipv6_between_two(open_one: Open) -> None:
    addresses = Path("/proc/net/if_inet6")  # multicast over lo needs a route that hosts do not have
    if not addresses.exists() or " lo\n" not in addresses.read_text():
        pytest.skip("lo has no IPv6 address")
    session = open_one(group="::1", interface=None)
    train = make_train(1, 60_001, 1440, session.destination)
    assert session.send(train)
    assert receive_datagrams(session.group, 42) == datagrams_of(train)
    assert session.send(make_train(2, 30, 30, session.address))
    answer = receive_train(session.transmit)
    assert answer is not None
    assert answer.address == session.address == ("::1", session.address[1])
    assert session.send(make_train(3, 30, 30, ("fe80::1%nowhere9", 9)))
    assert session.stats.send_errors.total() == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"group": "everyone"}, "group='everyone': expected the IPv4 or IPv6 address of a group or peer"),
        ({"group": "0.0.0.0"}, "group='0.0.0.0': expected the IPv4 or IPv6"),
        ({"port": 0}, "port=0: expected 1 to 65535"),
        ({"ttl": 256}, "ttl=256: expected 0 to 255"),
        ({"dscp": 64}, "dscp=64: expected 0 to 63"),
        ({"receive_buffer_bytes": 0}, "receive_buffer_bytes=0: expected 4096 to 1073741824"),
        ({"group": "ff12::1%lo", "interface": "eth77"}, "interface='eth77': expected the name or the IPv6 address"),
    ],
)
def test_bad_settings_are_refused(open_one: Open, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        open_one(**settings)


def test_lossy_socket_loses_the_same_for_the_same_seed(open_one: Open) -> None:
    sender = open_one()
    receivers = [LossySocket(open_one().group, seed=57, lose=0.2, duplicate=0.1, delay=0.2) for _ in range(2)]
    trains = [make_train(seed, 40_001, 1000, sender.destination) for seed in range(5)]
    for train in trains:
        assert sender.send(train)
    first, second = (receive_datagrams(one, 1000, SILENCE_S) for one in receivers)
    sent = [datagram for train in trains for datagram in datagrams_of(train)]
    assert first == second != sent
    one = receivers[0]
    assert (len(first), set(first) <= set(sent)) == (len(sent) - one.lost + one.duplicated, True)
    assert min(one.lost, one.duplicated, one.delayed) > 0


@pytest.mark.parametrize(
    ("group", "interface"), [("10.0.0.1", "127.0.0.1"), ("10.0.0.1", "lo"), ("fd57::1", "::1"), ("fd57::1", "lo")]
)
def test_a_peer_on_another_host_is_refused_on_the_loopback(group: str, interface: str) -> None:
    with pytest.raises(ConfigError, match=rf"^group='{group}': expected a multicast group, or an address of lo "):
        find_place(UdpConfig(group=group, port=5740), interface)


def test_peers_and_groups_of_this_host_are_taken_on_the_loopback() -> None:
    for group in ("127.0.0.1", "127.9.9.9", "239.192.57.95"):
        assert find_place(UdpConfig(group=group, port=5740), "127.0.0.1").interface.is_loopback
