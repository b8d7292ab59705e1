"""How the sockets of a session are set, and the opening of them."""

import contextlib
import errno
import ipaddress
import os
import socket
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from fjm2.base.errors import ConfigError

from .interfaces import HAS_NETLINK, Interface, find_interface, local_address
from .udp_sender import UDP_SEGMENT

NO_OFFLOAD_VARIABLE = "FJM2_NO_GSO"
"""Set to 1 in the environment, every socket opened sends and receives datagram by datagram."""

# Linux's numbers (asm-generic/socket.h, linux/in.h) that the socket module lacks.
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_IP_MULTICAST_ALL = 49
_IP_MREQN = struct.Struct("=4s4si")
_IPV6_MREQ = struct.Struct("=16sI")


@dataclass(frozen=True, slots=True, kw_only=True)
class UdpConfig:
    """Where a session is, and how its sockets are set."""

    group: str
    """Multicast group, or the peer of a session between two: an IPv4 or IPv6 address ("ff12::1%eth0" has a scope)."""
    port: int
    """Of the group; between two, that of the peer and our own as well."""
    interface: str | None = None
    """Its name, or one of its addresses. None is the one by which the kernel reaches the group."""
    ttl: int = 1
    """How many hops multicast may take: 0 stays on this host, 1 in this network."""
    loopback: bool = True
    """Whether other sessions of this host hear what this one sends."""
    dscp: int = 0
    """What routers and switches shall take it for (RFC 4594)."""
    receive_buffer_bytes: int = 8 << 20
    """What the kernel may hold of each socket while we are busy. Smaller loses bursts."""
    send_buffer_bytes: int = 256 << 10
    """What the kernel may hold of ours that the network is not ready for. More than the interface's queue has room for
    would be dropped there, and nobody told."""
    offload: bool | None = None
    """Trains by one system call each. None is where the kernel can; FJM2_NO_GSO=1 in the environment is never."""

    def __post_init__(self) -> None:
        try:
            address = ipaddress.ip_address(self.group)
        except ValueError:
            address = None
        if address is None or address.is_unspecified:
            raise ConfigError(f"group={self.group!r}: expected the IPv4 or IPv6 address of a group or a peer")
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(f"{name}={value}: expected {low} to {high}")

    @property
    def family(self) -> socket.AddressFamily:
        """AF_INET or AF_INET6."""
        return socket.AF_INET6 if ":" in self.group else socket.AF_INET

    @property
    def is_multicast(self) -> bool:
        """Whether it is a group, and not a peer."""
        return ipaddress.ip_address(self.group).is_multicast


_RANGES = (
    ("port", 1, 65_535),
    ("ttl", 0, 255),
    ("dscp", 0, 63),
    ("receive_buffer_bytes", 1 << 12, 1 << 30),
    ("send_buffer_bytes", 1 << 12, 1 << 30),
)


class Place(NamedTuple):
    """Where the sockets are, or would be."""

    interface: Interface
    address: str


Sockets = tuple[socket.socket, socket.socket]
_Warn = Callable[[str, str], None]
"""Of an event, and what to do about it."""


def find_place(config: UdpConfig, chosen: str | None) -> Place:
    """Where the interface is now. Raises ConfigError when there is none such."""
    interface = find_interface(chosen, config.family, config.group)
    scope = config.group.partition("%")[2]
    if scope and scope != interface.name:
        raise ConfigError(f"interface={chosen!r}: expected {scope!r}, the scope of the group {config.group}")
    return Place(interface, local_address(interface, chosen, config.family, config.group))


def can_offload(config: UdpConfig) -> bool:
    """Whether trains shall go, and can, by one system call each."""
    if config.offload is False or os.environ.get(NO_OFFLOAD_VARIABLE) == "1":
        return False
    try:
        # Asked beforehand, as a kernel without it would send a train as one datagram, and not object.
        with socket.socket(config.family, socket.SOCK_DGRAM) as probe:
            probe.getsockopt(socket.IPPROTO_UDP, UDP_SEGMENT)
    except OSError:
        if config.offload:
            raise ConfigError("offload=True: expected None or False, as this kernel has no UDP_SEGMENT") from None
        return False
    return True


def open_sockets(config: UdpConfig, place: Place, warn: _Warn, before: Sockets | None = None) -> Sockets:
    """The group socket and the transmit socket, in the place of the ones before."""
    with contextlib.ExitStack() as failed:
        group = failed.enter_context(_new_socket(config, warn))
        transmit = failed.enter_context(_new_socket(config, warn))
        if config.is_multicast:
            group.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _bind(group, config.group if sys.platform != "win32" else "", config.port, place)
            _join(group, config, place)
            _aim(transmit, config, place)
            _warn_of_dead_ends(config, place, warn)
        else:
            _bind(group, place.address, config.port, place, before and before[0])
        _bind_transmit(transmit, place, before and before[1])
        failed.pop_all()
        return group, transmit


def _bind_transmit(kernel: socket.socket, place: Place, before: socket.socket | None) -> None:
    if before is not None:
        with contextlib.suppress(OSError):  # at another address the port may be another's
            _bind(kernel, place.address, before.getsockname()[1], place, before)
            return
    _bind(kernel, place.address, 0, place)


def _new_socket(config: UdpConfig, warn: _Warn) -> socket.socket:
    kernel = socket.socket(config.family, socket.SOCK_DGRAM)
    if config.family == socket.AF_INET6:
        kernel.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        kernel.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, config.dscp << 2)
    else:
        kernel.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, config.dscp << 2)
    _set_buffer(kernel, "receive", config.receive_buffer_bytes, warn)
    _set_buffer(kernel, "send", config.send_buffer_bytes, warn)
    return kernel


def _set_buffer(kernel: socket.socket, which: str, wanted: int, warn: _Warn) -> None:
    option, force, sysctl = _BUFFERS[which]
    kernel.setsockopt(socket.SOL_SOCKET, option, wanted)
    doubled = 2 if sys.platform == "linux" else 1  # Linux reckons its own overhead in, at as much again
    if kernel.getsockopt(socket.SOL_SOCKET, option) < wanted * doubled and sys.platform == "linux":
        with contextlib.suppress(OSError):
            kernel.setsockopt(socket.SOL_SOCKET, force, wanted)  # for root the limit is none
    got = kernel.getsockopt(socket.SOL_SOCKET, option) // doubled
    if got < wanted:
        warn(
            "buffer_small",
            f"the kernel gives {got} bytes of {which} buffer and not {wanted}: bursts may be lost; "
            f"to allow it: sysctl -w {sysctl}={wanted}",
        )


_BUFFERS = {
    "receive": (socket.SO_RCVBUF, _SO_RCVBUFFORCE, "net.core.rmem_max"),
    "send": (socket.SO_SNDBUF, _SO_SNDBUFFORCE, "net.core.wmem_max"),
}


def _bind(kernel: socket.socket, host: str, port: int, place: Place, before: socket.socket | None = None) -> None:
    host = host.partition("%")[0]
    is_ipv6 = kernel.family == socket.AF_INET6
    address = (host, port, 0, place.interface.index) if is_ipv6 else (host, port)
    try:
        if before is None:
            kernel.bind(address)
        else:
            _bind_beside(kernel, address, before)
    except OSError as error:
        raise OSError(
            error.errno, f"cannot bind to {host} port {port} on {place.interface}: {error.strerror}"
        ) from error


def _bind_beside(
    kernel: socket.socket, address: tuple[str, int] | tuple[str, int, int, int], old: socket.socket
) -> None:
    """Bind though another of our sockets still has the port, and let nobody else do so."""
    pair = (old, kernel)
    for one in pair:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        kernel.bind(address)
    finally:
        for one in pair:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)


def _join(kernel: socket.socket, config: UdpConfig, place: Place) -> None:
    try:
        if config.family == socket.AF_INET6:
            kernel.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, _membership(config, place))
        else:
            kernel.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, _membership(config, place))
    except OSError as error:
        raise OSError(error.errno, f"cannot join {config.group} on {place.interface}: {error.strerror}") from error
    if sys.platform == "linux":
        _keep_to_interface(kernel, place)


def _keep_to_interface(kernel: socket.socket, place: Place) -> None:
    """Else what other programs join on other interfaces arrives here as well."""
    with contextlib.suppress(OSError):
        if kernel.family == socket.AF_INET:
            kernel.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
        else:
            # IPV6_MULTICAST_ALL is no help: for IPv6 a membership is good for every interface. Before Linux 5.7 this
            # wants privileges; without them, only groups of link-local scope are kept apart.
            kernel.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, place.interface.name.encode())


def leave(kernel: socket.socket, config: UdpConfig, place: Place) -> None:
    """Closing does it as well, but not while a forked process has a copy of the socket."""
    if not config.is_multicast:
        return
    with contextlib.suppress(OSError):  # the interface is gone, and the membership with it
        if config.family == socket.AF_INET6:
            kernel.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_LEAVE_GROUP, _membership(config, place))
        else:
            kernel.setsockopt(socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, _membership(config, place))


def _membership(config: UdpConfig, place: Place) -> bytes:
    packed = ipaddress.ip_address(config.group).packed
    if config.family == socket.AF_INET6:
        return _IPV6_MREQ.pack(packed, place.interface.index)
    return _IP_MREQN.pack(packed, bytes(4), place.interface.index)


def _aim(kernel: socket.socket, config: UdpConfig, place: Place) -> None:
    """Multicast goes out by the interface."""
    index = place.interface.index
    if config.family == socket.AF_INET6:
        kernel.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
        kernel.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, config.ttl)
        kernel.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, config.loopback)
    else:
        way_out = _IP_MREQN.pack(bytes(4), socket.inet_aton(place.address), index)
        kernel.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, way_out)
        kernel.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, config.ttl)
        kernel.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, config.loopback)


def _warn_of_dead_ends(config: UdpConfig, place: Place, warn: _Warn) -> None:
    """What can be joined, but not be sent to."""
    name = place.interface.name
    if not place.interface.has_multicast:
        text = f"{place.interface} is not set to do multicast: ip link set {name} multicast on"
        warn("multicast_off", text)
    if config.family == socket.AF_INET6 and HAS_NETLINK:
        with socket.socket(config.family, socket.SOCK_DGRAM) as probe:
            _aim(probe, config, place)
            result = probe.connect_ex((config.group.partition("%")[0], config.port, 0, place.interface.index))
        if result == errno.ENETUNREACH:  # as it is with lo, where a route of any other kind is taken for a reject
            kind = "local" if place.interface.is_loopback else "multicast"
            command = f"ip -6 route add {kind} ff00::/8 dev {name} table local"
            warn("multicast_route_missing", f"{place.interface} has no route for IPv6 multicast: {command}")
