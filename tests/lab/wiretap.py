"""A tap that records the datagrams on a link, and an injector of forged datagrams."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from netns import Namespace

Address = tuple[str, int]

_ALL_PROTOCOLS, _IPV4 = 0x0003, 0x0800
_UDP, _UDP_BYTES, _IP_BYTES = 17, 8, 20
_ETHERNET_BYTES = 14
_BUFFER_BYTES = 32 << 20
_SO_RCVBUFFORCE = 33
_POLL_S = 0.05
_DATAGRAMS_MAX = 200_000
"""Maximum number of datagrams that a tap records, to bound its memory if it is left open."""


@dataclass(frozen=True, slots=True)
class Datagram:
    """A datagram that passed the tap. A train that crosses the link whole counts as one datagram."""

    at: float
    is_outgoing: bool
    """True if the tapped device sent the datagram, False if the datagram arrived there."""
    source: Address
    destination: Address
    payload: bytes


class Tap:
    """A context manager that records the UDP datagrams passing a device, at most `_DATAGRAMS_MAX`."""

    def __init__(self, namespace: Namespace, device: str) -> None:
        with namespace.entered():
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        self._socket.bind((device, _ALL_PROTOCOLS))
        self._socket.settimeout(_POLL_S)
        self._is_open = True
        self.datagrams: list[Datagram] = []
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_open = False
        self._thread.join()
        self._socket.close()

    def _read(self) -> None:
        while self._is_open and len(self.datagrams) < _DATAGRAMS_MAX:
            with contextlib.suppress(TimeoutError):
                frame, (_, protocol, kind, *_) = self._socket.recvfrom(1 << 17)
                if protocol == _IPV4:
                    self._keep(frame[_ETHERNET_BYTES:], kind == socket.PACKET_OUTGOING)

    def _keep(self, packet: bytes, is_outgoing: bool) -> None:
        header_bytes = 4 * (packet[0] & 0x0F)
        if packet[9] != _UDP:
            return
        source_port, port = struct.unpack_from("!HH", packet, header_bytes)
        self.datagrams.append(
            Datagram(
                time.monotonic(),
                is_outgoing,
                (socket.inet_ntoa(packet[12:16]), source_port),
                (socket.inet_ntoa(packet[16:20]), port),
                packet[header_bytes + _UDP_BYTES :],
            )
        )

    def to(self, address: Address) -> list[Datagram]:
        return [datagram for datagram in list(self.datagrams) if datagram.destination == address]

    def of(self, address: Address) -> list[Datagram]:
        return [datagram for datagram in list(self.datagrams) if datagram.source == address]


class Injector:
    """A sender of datagrams with any source address, in a namespace from which their destination can be reached."""

    def __init__(self, namespace: Namespace) -> None:
        with namespace.entered():
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)

    def send(self, payload: bytes, source: Address, destination: Address) -> None:
        size = _UDP_BYTES + len(payload)
        # Leave out the UDP checksum, as IPv4 allows. The kernel fills in the checksum of the IP header.
        udp = struct.pack("!HHHH", source[1], destination[1], size, 0)
        addresses = socket.inet_aton(source[0]) + socket.inet_aton(destination[0])
        ip = struct.pack("!BBHHHBBH", 0x45, 0, _IP_BYTES + size, 0, 0, 64, _UDP, 0) + addresses
        self._socket.sendto(ip + udp + payload, (destination[0], 0))

    def close(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def injector(namespace: Namespace) -> Iterator[Injector]:
    opened = Injector(namespace)
    try:
        yield opened
    finally:
        opened.close()
