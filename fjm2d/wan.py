"""UDP sockets towards the Internet: one for each address family. They never fragment, and send a train in one call."""

import asyncio
import errno
import ipaddress
import socket
import sys
from collections.abc import Sequence
from typing import Final

from fjm2.norm import Address, Train, UdpConfig, UdpSocket, UdpStats
from fjm2.norm.net.udp_opening import can_offload

from .errors import GatewayError
from .values import Endpoint, show

# Linux's option numbers (linux/in.h, linux/in6.h, asm-generic/socket.h) that the socket module lacks.
_IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER = 10, 23
_PMTUDISC_PROBE: Final = 3
"""Set DF and ignore ICMP: the tunnel searches for the path MTU itself, and ICMP can be forged."""
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_RECEIVE_BUFFER_BYTES: Final = 8 << 20
"""Size of the kernel's receive buffer: 67 ms at 1 Gbit/s, for times when the process does not run."""
_SEND_BUFFER_BYTES: Final = 1 << 20
"""Size of the kernel's send buffer: a few trains. Further trains wait in the tunnel's own queues, which are fair."""


class WanSockets:
    """The sockets towards the Internet, and the choice of the socket that reaches an address."""

    def __init__(self, places: Sequence[Address]) -> None:
        """Open a socket for each address. Raise GatewayError if that fails."""
        self.stats = UdpStats()
        self.sockets: tuple[UdpSocket, ...] = ()
        self.offload = can_offload(UdpConfig(group="127.0.0.1", port=1))
        """True if the kernel takes a whole train in one system call."""
        try:
            for place in places:
                self.sockets += (UdpSocket(_open(place), self.stats, offload=self.offload),)
        except BaseException:
            self.close()
            raise
        self._by_family = {":" in one.address[0]: one for one in self.sockets}
        self._too_long = 0

    @property
    def families(self) -> frozenset[int]:
        """Address families of the sockets: AF_INET, AF_INET6 or both."""
        return frozenset(one.kernel.family for one in self.sockets)

    def send(self, train: Train) -> UdpSocket | None:
        """Send a train. If the kernel's buffer is full, return the socket to wait for before sending it again."""
        through = self._by_family.get(":" in train.address[0])
        if through is None or through.send(train):
            return None
        return through

    def take_too_long(self) -> bool:
        """Return True if the kernel refused a datagram as too long since the last call."""
        count = self.stats.send_errors.get(errno.EMSGSIZE, 0)
        before, self._too_long = self._too_long, count
        return count > before

    def failures(self) -> dict[str, int]:
        """Return the counts of datagrams that the kernel lost in full buffers, or refused to send, by reason."""
        full = sum(one.kernel_drops() for one in self.sockets)
        refused = {f"send_{errno.errorcode.get(code, code)}".lower(): n for code, n in self.stats.send_errors.items()}
        return ({"kernel_full": full} if full else {}) | refused

    def close(self) -> None:
        for one in self.sockets:
            one.close()


def _open(place: Address) -> socket.socket:
    host, port = place
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    kernel = socket.socket(family, socket.SOCK_DGRAM)
    try:
        if family == socket.AF_INET6:
            kernel.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if sys.platform == "linux":
            _set_linux(kernel)
        kernel.bind(socket.getaddrinfo(host, port, family, socket.SOCK_DGRAM, 0, socket.AI_NUMERICHOST)[0][4])
    except OSError as error:
        kernel.close()
        raise GatewayError(f"wan.listen: cannot listen at UDP {show(place)}: {error.strerror}") from error
    return kernel


def _set_linux(kernel: socket.socket) -> None:
    if kernel.family == socket.AF_INET6:
        kernel.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PMTUDISC_PROBE)
    else:
        kernel.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PMTUDISC_PROBE)
    for plain, force, size in (
        (socket.SO_RCVBUF, _SO_RCVBUFFORCE, _RECEIVE_BUFFER_BYTES),
        (socket.SO_SNDBUF, _SO_SNDBUFFORCE, _SEND_BUFFER_BYTES),
    ):
        try:
            kernel.setsockopt(socket.SOL_SOCKET, force, size)
        except OSError:
            kernel.setsockopt(socket.SOL_SOCKET, plain, size)


async def addresses_of(endpoint: Endpoint, families: frozenset[int]) -> tuple[Address, ...]:
    """Return the addresses of an endpoint that we have a socket for; none if the name is unknown."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return ()
    places = ((str(place[4][0]), int(place[4][1])) for place in found if place[0] in families)
    return tuple(dict.fromkeys((_plain(host), port) for host, port in places))


def _plain(host: str) -> str:
    address, percent, scope = host.partition("%")
    return f"{ipaddress.ip_address(address)}{percent}{scope}"
