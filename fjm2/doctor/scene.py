"""The input of all checks: settings of the bus, the place of its sockets, and the kernel's files."""

import array
import contextlib
import ipaddress
import socket
import struct
import sys
from dataclasses import dataclass, field, replace

from fjm2.base.errors import ConfigError
from fjm2.bus.config import BusConfig
from fjm2.norm import UdpConfig
from fjm2.norm.net.interfaces import Interface, list_interfaces
from fjm2.norm.net.udp_opening import Place, find_place

from .kernel import Kernel

HEADERS_BYTES = 48
"""Size of the largest NORM header in front of a segment's payload on a bus."""

# Linux's numbers (linux/sockios.h, linux/if.h).
_SIOCGIFFLAGS = 0x8913
_IFREQ = struct.Struct("16sh22x")
_UP = 0x1


@dataclass(frozen=True, slots=True)
class Scene:
    """One bus, seen from one host."""

    bus: BusConfig
    """Settings of the bus."""
    udp: UdpConfig
    """Settings of the bus's sockets."""
    interfaces: tuple[Interface, ...] = ()
    """All interfaces of the host."""
    place: Place | None = None
    """Interface and address of the sockets; None if the bus has no interface."""
    problem: str = ""
    """Reason why `place` is None."""
    kernel: Kernel = field(default_factory=Kernel)
    """The kernel's files."""

    @property
    def is_ipv6(self) -> bool:
        """True if the group is an IPv6 address."""
        return self.udp.family == socket.AF_INET6

    @property
    def group(self) -> str:
        """The group without a scope."""
        return self.udp.group.partition("%")[0]

    @property
    def interface(self) -> Interface:
        """Interface of the bus. Read it only if `place` is not None."""
        assert self.place is not None
        return self.place.interface

    @property
    def datagram_bytes(self) -> int:
        """Size of the largest datagram of the bus, without IP and UDP headers."""
        return self.bus.sender.segment_bytes + HEADERS_BYTES

    @property
    def ip_bytes(self) -> int:
        """Size of the IP and UDP headers of a datagram."""
        return 48 if self.is_ipv6 else 28

    @property
    def door_port(self) -> int:
        """Port on which a listener receives unicast probes."""
        return self.udp.port + 1 if self.udp.port < 65_535 else self.udp.port - 1

    def uri_on(self, interface: str) -> str:
        """Return the URI of the bus, with another interface."""
        return replace(self.bus, interface=interface).to_uri()

    def candidates(self) -> tuple[Interface, ...]:
        """Return interfaces that a bus could use, without the loopback."""
        return tuple(
            one
            for one in self.interfaces
            if not one.is_loopback and one.has_multicast and one.addresses(self.udp.family)
        )

    def on(self, interface: str, **changes: object) -> UdpConfig:
        """Return the settings for the same group on another interface."""
        settings: dict[str, object] = {"interface": interface, **changes}
        return replace(self.udp, **settings)  # type: ignore[arg-type]


def look(bus: BusConfig, kernel: Kernel | None = None) -> Scene:
    """Return the scene of a bus on this host, as it is now."""
    udp = UdpConfig(group=bus.group, port=bus.port, interface=bus.interface, ttl=bus.ttl, dscp=bus.dscp)
    kernel = kernel or Kernel()
    try:
        interfaces = list_interfaces()
        return Scene(bus, udp, interfaces, find_place(udp, udp.interface), kernel=kernel)
    except ConfigError as error:
        return Scene(bus, udp, interfaces, problem=str(error), kernel=kernel)
    except OSError as error:
        return Scene(bus, udp, problem=f"cannot find the interface: {error.strerror}", kernel=kernel)


def is_switched_on(interface: Interface) -> bool:
    """Return True if an interface is switched on, with or without a carrier. If that cannot be read, return True if it
    is up."""
    if sys.platform != "linux":
        return interface.is_up
    import fcntl

    request = array.array("B", _IFREQ.pack(interface.name.encode(), 0))
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        fcntl.ioctl(probe.fileno(), _SIOCGIFFLAGS, request, True)
        flags: int = _IFREQ.unpack(request.tobytes())[1]
        return bool(flags & _UP)
    return interface.is_up


def same_network(one: str, other: str) -> bool:
    """Return True if two addresses seem to be in one LAN."""
    first, second = (ipaddress.ip_address(text.partition("%")[0]) for text in (one, other))
    bits = 24 if first.version == 4 else 64
    return first.version == second.version and second in ipaddress.ip_network(f"{first}/{bits}", strict=False)
