"""Settings of a session's sockets, and functions that open them."""

import contextlib
import errno
import ipaddress
import os
import socket
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from fjm2.base.errors import ConfigError
from fjm2.base.quantities import check_fields

from .interfaces import HAS_NETLINK, Interface, find_interface, local_address
from .udp_sender import UDP_SEGMENT

NO_OFFLOAD_VARIABLE = "FJM2_NO_GSO"
"""Name of the environment variable that, if it is 1, makes all sockets send and receive datagram by datagram."""

# Linux's numbers (asm-generic/socket.h, linux/in.h) that the socket module lacks.
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_IP_MULTICAST_ALL = 49
_IP_MREQN = struct.Struct("=4s4si")
_IPV6_MREQ = struct.Struct("=16sI")


@dataclass(frozen=True, slots=True, kw_only=True)
class UdpConfig:
    """Address of a session, and settings of its sockets."""

    group: str
    """IPv4 or IPv6 address of the multicast group, or of the only peer. It can have a scope, as in "ff12::1%eth0"."""
    port: int
    """UDP port of the group. With only one peer, it is the peer's port and our own."""
    interface: str | None = None
    """Name of the interface, or one of its addresses. None lets the kernel choose the interface towards the group."""
    ttl: int = 1
    """Maximum number of hops that multicast may take. With 0 it stays on this host, with 1 in this network."""
    loopback: bool = True
    """True if other sessions of this host receive what this session sends."""
    dscp: int = 0
    """Traffic class (DSCP) by which routers and switches treat the session's datagrams (RFC 4594)."""
    receive_buffer_bytes: int = 8 << 20
    """Size in bytes of each socket's receive buffer in the kernel. If it is too small, bursts are lost."""
    send_buffer_bytes: int = 256 << 10
    """Size in bytes of each socket's send buffer in the kernel. If this is more than the interface's queue holds, the
    interface drops the rest without an error."""
    kept_only: bool = False
    """True to let the kernel drop what passes by those who take only what is to be kept, if it can do that."""
    offload: bool | None = None
    """True to send and receive each train by one system call, False to do so datagram by datagram, None to choose what
    the kernel can do. FJM2_NO_GSO=1 in the environment has the same effect as False."""

    def __post_init__(self) -> None:
        check_fields(self)
        try:
            address = ipaddress.ip_address(self.group)
        except ValueError:
            address = None
        if address is None or address.is_unspecified:
            raise ConfigError.of("group", repr(self.group), "the IPv4 or IPv6 address of a group or peer, not a name")
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError.of(name, value, f"{low} to {high}")

    @property
    def family(self) -> socket.AddressFamily:
        """Address family of the group: AF_INET or AF_INET6."""
        return socket.AF_INET6 if ":" in self.group else socket.AF_INET

    @property
    def is_multicast(self) -> bool:
        """True if `group` is a multicast group, and not a peer."""
        return ipaddress.ip_address(self.group).is_multicast


_RANGES: Final = (
    ("port", 1, 65_535),
    ("ttl", 0, 255),
    ("dscp", 0, 63),
    ("receive_buffer_bytes", 1 << 12, 1 << 30),
    ("send_buffer_bytes", 1 << 12, 1 << 30),
)
"""Settings with their lowest and highest values. A buffer must hold some datagrams and fit into a C int."""


class Place(NamedTuple):
    """An interface, and the address on it that the sockets are bound to."""

    interface: Interface
    address: str


Sockets = tuple[socket.socket, socket.socket]
_Warn = Callable[[str, str], None]
"""Function that warns of a problem. It takes the name of an event, and a text that says what to do."""


def find_place(config: UdpConfig, chosen: str | None) -> Place:
    """Return the interface as it is now, with the address to use. Raises ConfigError if there is no such interface."""
    interface = find_interface(chosen, config.family, config.group)
    scope = config.group.partition("%")[2]
    if scope and scope != interface.name:
        raise ConfigError(f"interface={chosen!r}: expected {scope!r}, the scope of the group {config.group}")
    if chosen is not None:  # the kernel itself may choose the loopback for a peer: then it leads there
        check_is_local(config, interface)
    return Place(interface, local_address(interface, chosen, config.family, config.group))


def check_is_local(config: UdpConfig, interface: Interface) -> None:
    """Raise ConfigError if a peer cannot be on this host, although the interface is its loopback.

    The kernel sends to a peer by its routes, whatever interface the sockets are bound to.
    """
    if not interface.is_loopback or config.is_multicast:
        return
    if ipaddress.ip_address(config.group).is_loopback or config.group in interface.addresses(config.family):
        return
    raise ConfigError(
        f"group={config.group!r}: expected a multicast group, or an address of {interface}, which leads to no other "
        "host; to reach a peer, name the interface of its network, or none"
    )


def can_offload(config: UdpConfig) -> bool:
    """Return True if each train takes one system call. Raises ConfigError if that is demanded, but not possible."""
    if config.offload is False or os.environ.get(NO_OFFLOAD_VARIABLE) == "1":
        return False
    try:
        # Ask first: a kernel without UDP_SEGMENT would send a train as one datagram, without an error.
        with socket.socket(config.family, socket.SOCK_DGRAM) as probe:
            probe.getsockopt(socket.IPPROTO_UDP, UDP_SEGMENT)
    except OSError:
        if config.offload:
            raise ConfigError("offload=True: expected None or False, as this kernel has no UDP_SEGMENT") from None
        return False
    return True


def open_sockets(config: UdpConfig, place: Place, warn: _Warn, before: Sockets | None = None) -> Sockets:
    """Open and return the group socket and the transmit socket. `before` are the sockets that these replace."""
    with contextlib.ExitStack() as failed:
        group = failed.enter_context(_new_socket(config, warn))
        transmit = failed.enter_context(_new_socket(config, warn))
        if config.is_multicast:
            group.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _bind(group, config.group if sys.platform != "win32" else "", config.port, place)
            _join(group, config, place)
            _aim(transmit, config, place)
            _warn_if_unroutable(config, place, warn)
        else:
            _bind(group, place.address, config.port, place, before and before[0])
        _bind_transmit(transmit, place, before and before[1])
        failed.pop_all()
        return group, transmit


def _bind_transmit(kernel: socket.socket, place: Place, before: socket.socket | None) -> None:
    if before is not None:
        with contextlib.suppress(OSError):  # at another address the port may be in use
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
    doubled = 2 if sys.platform == "linux" else 1  # Linux doubles the value to make room for its own overhead
    if kernel.getsockopt(socket.SOL_SOCKET, option) < wanted * doubled and sys.platform == "linux":
        with contextlib.suppress(OSError):
            kernel.setsockopt(socket.SOL_SOCKET, force, wanted)  # root may exceed the limit
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
    """Bind to a port that another of our sockets still has, without letting other programs do so."""
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
    """Let a socket receive only what arrives on its interface, and not from groups joined on other interfaces."""
    with contextlib.suppress(OSError):
        if kernel.family == socket.AF_INET:
            kernel.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
        else:
            # IPV6_MULTICAST_ALL does not help: an IPv6 membership holds for every interface. Before Linux 5.7 this
            # needs privileges; without them, only groups of link-local scope are kept apart.
            kernel.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, place.interface.name.encode())


def leave(kernel: socket.socket, config: UdpConfig, place: Place) -> None:
    """Leave the group. Closing the socket would do so, too, unless a forked process has a copy of the socket."""
    if not config.is_multicast:
        return
    with contextlib.suppress(OSError):  # the interface is gone, and so is the membership
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
    """Let a socket send multicast by the interface, with the configured hops and loopback."""
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


def _warn_if_unroutable(config: UdpConfig, place: Place, warn: _Warn) -> None:
    """Warn if the group can be joined but nothing can be sent to it."""
    name = place.interface.name
    if not place.interface.has_multicast:
        text = f"{place.interface} is not set to do multicast: ip link set {name} multicast on"
        warn("multicast_off", text)
    if config.family == socket.AF_INET6 and HAS_NETLINK:
        with socket.socket(config.family, socket.SOCK_DGRAM) as probe:
            _aim(probe, config, place)
            result = probe.connect_ex((config.group.partition("%")[0], config.port, 0, place.interface.index))
        if result == errno.ENETUNREACH:  # as with lo, where a route of any other kind rejects
            kind = "local" if place.interface.is_loopback else "multicast"
            command = f"ip -6 route add {kind} ff00::/8 dev {name} table local"
            warn("multicast_route_missing", f"{place.interface} has no route for IPv6 multicast: {command}")
