"""Measurements of the lab's links by plain UDP, without any part of FJM2: capacity and delay.

A socket stays in the namespace where it was opened, so one process can measure both ends with one clock.
"""

import contextlib
import socket
import statistics
import threading
import time
from collections.abc import Iterator

from internet import GatewayHost
from netns import Namespace

PORT = 5799
_PAYLOAD_BYTES = 1472
"""UDP payload of a full packet with an MTU of 1,500 bytes."""
_LINK_BYTES = 1514
"""Length of a full packet with its UDP, IPv4 and Ethernet headers, as a rate limit counts it."""
_TRAIN_DATAGRAMS = 8
_UDP_SEGMENT, _SO_RCVBUFFORCE = 103, 33
_STAMP_BYTES = 8
_QUIET_S = 0.3
"""Silence after which no more datagrams are expected."""
_TRIES, _TRY_S = 3, 0.6
_EXCESS_FACTOR = 1.25
"""Rate of the measurement as a multiple of the expected rate. It is enough to keep the queue full."""
_TICK_S = 0.002


@contextlib.contextmanager
def udp(namespace: Namespace, address: str = "", port: int = 0) -> Iterator[socket.socket]:
    """Open a UDP socket in a namespace, and yield it."""
    with namespace.entered():
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with opened:
        opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 8 << 20)
        opened.bind((address, port))
        opened.settimeout(_QUIET_S)
        yield opened


def capacity_bps(left: GatewayHost, right: GatewayHost, at_most_mbit: float) -> float:
    """Measure how many bits of UDP payload a link carries per second, by sending more than it can carry.

    The result is the best of a few tries: a busy machine makes a link look slower, never faster.
    """
    return max(_measure(left, right, at_most_mbit) for _ in range(_TRIES))


def _measure(left: GatewayHost, right: GatewayHost, at_most_mbit: float) -> float:
    arrivals: list[tuple[float, int]] = []
    with udp(right.namespace, right.address, PORT) as inlet, udp(left.namespace) as outlet:
        reader = threading.Thread(target=_read_all, args=(inlet, arrivals))
        reader.start()
        _send_at(outlet, (right.address, PORT), at_most_mbit * _EXCESS_FACTOR, _TRY_S)
        reader.join()
    # Leave out the start, at which a rate limit lets a burst pass.
    begin, end = arrivals[0][0] + 0.2 * _TRY_S, arrivals[0][0] + 0.95 * _TRY_S
    return 8 * sum(size for at, size in arrivals if begin <= at < end) / (end - begin)


def _read_all(inlet: socket.socket, arrivals: list[tuple[float, int]]) -> None:
    with contextlib.suppress(TimeoutError):
        while True:
            size = len(inlet.recv(1 << 16))
            arrivals.append((time.monotonic(), size))


def _send_at(outlet: socket.socket, address: tuple[str, int], mbit: float, seconds: float) -> None:
    outlet.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, _PAYLOAD_BYTES)
    payload = bytes(_TRAIN_DATAGRAMS * _PAYLOAD_BYTES)
    begin = time.monotonic()
    sent = 0
    while (elapsed := time.monotonic() - begin) < seconds:
        for _ in range(int(elapsed * mbit * 1e6 / 8 / (_TRAIN_DATAGRAMS * _LINK_BYTES)) - sent):
            outlet.sendto(payload, address)
            sent += 1
        time.sleep(_TICK_S)


def one_way_s(left: GatewayHost, right: GatewayHost, count: int, every_s: float = 0.002) -> list[float]:
    """Send `count` datagrams, and return the one-way delays of those that arrived, in seconds."""
    times: list[float] = []

    def read() -> None:
        with contextlib.suppress(TimeoutError):
            while True:
                sent_at = int.from_bytes(inlet.recv(100)[:_STAMP_BYTES])
                times.append((time.monotonic_ns() - sent_at) * 1e-9)

    with udp(right.namespace, right.address, PORT) as inlet, udp(left.namespace) as outlet:
        reader = threading.Thread(target=read)
        reader.start()
        for _ in range(count):
            outlet.sendto(time.monotonic_ns().to_bytes(_STAMP_BYTES), (right.address, PORT))
            time.sleep(every_s)
        reader.join()
    return times


def reaches(left: Namespace, right: Namespace, address: str) -> bool:
    """Return True if a datagram sent to this address reaches the host `right`."""
    with udp(right, address, PORT) as inlet, udp(left) as outlet:
        with contextlib.suppress(OSError):  # raised if there is no route
            outlet.sendto(b"there", (address, PORT))
        with contextlib.suppress(TimeoutError):
            return inlet.recv(100) == b"there"
    return False


def arrivals_of_train(left: GatewayHost, right: GatewayHost, segments: int, size: int) -> int:
    """Send a train, and return how many of its datagrams arrive."""
    with udp(right.namespace, right.address, PORT) as inlet, udp(left.namespace) as outlet:
        outlet.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, size)
        outlet.sendto(bytes(segments * size), (right.address, PORT))
        count = 0
        with contextlib.suppress(TimeoutError):
            while len(inlet.recv(1 << 16)) == size:
                count += 1
    return count


def median(times: list[float]) -> float:
    return statistics.median(times)
