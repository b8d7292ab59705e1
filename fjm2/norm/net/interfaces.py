"""Network interfaces of this host: list them, find one, and notice when they change.

On Linux, interfaces are read by netlink (rtnetlink(7)), as the standard library does not know their addresses.
Elsewhere, an interface has a name, an index and the address that the kernel would send multicast from, and no more.
"""

import contextlib
import errno
import ipaddress
import os
import re
import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from fjm2.base.errors import ConfigError

HAS_NETLINK = sys.platform == "linux"

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_LINK = struct.Struct("=BxHiII")  # ifinfomsg: family, type, index, flags, change
_ADDRESS = struct.Struct("=BBBBI")  # ifaddrmsg: family, prefix length, flags, scope, index
_ROUTE = struct.Struct("=BBBBBBBBI")  # rtmsg: family, prefix length, and fields that a request leaves at 0
_ATTRIBUTE = struct.Struct("=HH")
_U32 = struct.Struct("=I")
_IP_MREQN = struct.Struct("=4s4si")
_LOOPBACK_NAME = re.compile("lo[0-9]*")
_ANY_PORT: Final = 9
"""Port to ask the kernel for a route with. Any port will do, as nothing is sent; this one is "discard" (RFC 863)."""
_PROBED_GROUPS = {socket.AF_INET: "239.255.255.255", socket.AF_INET6: "ff15::1"}

_REQUEST, _DUMP, _DUMP_INTERRUPTED = 0x1, 0x300, 0x10
_ERROR, _DONE = 2, 3
_NEW_LINK, _DEL_LINK, _GET_LINK, _NEW_ADDRESS, _GET_ADDRESS, _NEW_ROUTE, _GET_ROUTE = 16, 17, 18, 20, 22, 24, 26
_LINK_NAME, _LINK_MTU = 3, 4
_ADDRESS_PEER, _ADDRESS_LOCAL, _ADDRESS_FLAGS = 1, 2, 8
_ROUTE_DESTINATION, _ROUTE_INTERFACE, _ROUTE_SOURCE = 1, 4, 7
_GROUPS = 0x1 | 0x10 | 0x100  # RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR

_UP, _LOOPBACK, _RUNNING, _MULTICAST = 0x1, 0x8, 0x40, 0x1000
# IFA_F_DADFAILED and IFA_F_TENTATIVE: nothing can be bound to such an address, at least not yet.
_UNUSABLE = 0x8 | 0x40
# IFA_F_TEMPORARY and IFA_F_DEPRECATED: usable, but will go away soon. (IPv4 uses the first for "secondary".)
_SHORT_LIVED = 0x1 | 0x20

_RECEIVE_BYTES: Final = 1 << 16
"""Size of the buffer for one read; netlink's messages are shorter (netlink(7) recommends 8 KiB or more)."""
_ANSWER_TIMEOUT_S: Final = 2.0
"""Seconds to wait for the kernel, which answers at once if it answers at all."""
_DUMP_TRIES_MAX: Final = 5
"""Maximum number of attempts to get a list that does not change while the kernel makes it. If all fail, the last list
is used."""

LOST_COUNT: Final = -1
"""Special index in the result of `InterfaceWatch.poll`: some messages of the kernel did not fit into the socket's
buffer, so any interface may have been removed."""


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface as it was at one moment."""

    name: str
    """Name of the interface, as the operating system has it."""
    index: int
    """Number of the interface on this host."""
    ipv4: tuple[str, ...] = ()
    """IPv4 addresses, the best to use first."""
    ipv6: tuple[str, ...] = ()
    """IPv6 addresses, the best to use first. Link-local addresses are last and have a scope, as in "fe80::1%eth0"."""
    is_up: bool = True
    """True if the interface is switched on and has a carrier."""
    has_multicast: bool = True
    """True if the interface can send multicast. Always True for a loopback: lo can, although Linux does not say so."""
    is_loopback: bool = False
    """True if the interface is a loopback: what it sends stays on this host."""
    mtu: int = 0
    """Length of the longest IP packet in bytes; 0 if it is not known."""

    def addresses(self, family: int) -> tuple[str, ...]:
        """Return the addresses of one family, the best to use first."""
        return self.ipv6 if family == socket.AF_INET6 else self.ipv4

    def __str__(self) -> str:
        addresses = ", ".join(self.ipv4 + self.ipv6) or "no address"
        return f"{self.name} ({addresses}{'' if self.is_up else ', down'})"


def list_interfaces() -> tuple[Interface, ...]:
    """Return every interface of this network namespace, ordered by index."""
    if not HAS_NETLINK:
        return tuple(_probed_interface(name, index) for index, name in socket.if_nameindex())
    found = dict(_links())
    addresses = sorted(_addresses(), key=lambda entry: entry[0])  # by preference
    for _, index, address in addresses:
        if index not in found:  # came up between the two requests
            continue
        link = found[index]
        ipv4, ipv6 = link.ipv4, link.ipv6
        if isinstance(address, ipaddress.IPv4Address):
            ipv4 = (*ipv4, str(address))
        else:
            ipv6 = (*ipv6, f"{address}%{link.name}" if address.is_link_local else str(address))
        found[index] = replace(link, ipv4=ipv4, ipv6=ipv6)
    return tuple(found[index] for index in sorted(found))


def find_interface(text: str | None, family: int, towards: str = "") -> Interface:
    """Return the interface with the name or address `text`, or, if that is None, the kernel's interface to `towards`.

    Raises ConfigError, with a list of all interfaces, if no interface matches, if several match, or if the interface
    has no address of the family.
    """
    interfaces = list_interfaces()
    if text is None:
        return _routed(family, towards, interfaces)
    found = [one for one in interfaces if one.name == text] or [one for one in interfaces if _has(one, text, family)]
    if not found:
        raise _unknown(text, f"the name or the {_version(family)} address of an interface", interfaces)
    if len(found) > 1:
        raise _unknown(text, "an address with its scope, as several interfaces have it", interfaces)
    return _with_address(found[0], text, family, interfaces)


def local_address(interface: Interface, text: str | None, family: int, towards: str) -> str:
    """Return the address to send from: `text` if it is an address, else the interface's best address for `towards`."""
    candidates = interface.addresses(family)
    if not candidates:
        return _address_by_kernel(family, towards, interface.index)
    if text is not None and text != interface.name:
        return next(one for one in candidates if _same(one, text))
    if is_link_scoped(towards):
        return candidates[-1]  # link-local ones are last
    if not ipaddress.ip_address(towards).is_multicast:
        with contextlib.suppress(OSError):  # no route yet
            choice = _address_by_kernel(family, towards)
            if choice in candidates:
                return choice
    return candidates[0]


def is_link_scoped(host: str) -> bool:
    """Return True for IPv6 addresses that need an interface: fe80::/10, ffx1::/16 and ffx2::/16."""
    address = ipaddress.ip_address(host)
    if not isinstance(address, ipaddress.IPv6Address):
        return False
    return address.is_link_local or (address.packed[0] == 0xFF and address.packed[1] & 0x0F in (1, 2))


class InterfaceWatch:
    """Watch that learns from the kernel when interfaces or addresses change, so that nobody has to list them."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        try:
            self._socket.setblocking(False)
            self._socket.bind((0, _GROUPS))
        except OSError:
            self._socket.close()
            raise

    def poll(self) -> set[int] | None:
        """Return None if nothing changed since the last call, else the indexes of the interfaces that were removed."""
        removed: set[int] | None = None
        while True:
            try:
                data = self._socket.recv(_RECEIVE_BYTES)
            except BlockingIOError:
                return removed
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                removed = (removed or set()) | {LOST_COUNT}
                continue
            removed = removed or set()
            for kind, _, body in _messages(data):
                if kind == _DEL_LINK:
                    family, _, index, _, _ = _LINK.unpack_from(body)
                    if family == socket.AF_UNSPEC:  # AF_BRIDGE: the interface only left its bridge
                        removed.add(index)

    def close(self) -> None:
        """Stop watching. Harmless if the watch is closed already."""
        self._socket.close()


def _routed(family: int, towards: str, interfaces: tuple[Interface, ...]) -> Interface:
    host, _, scope = towards.partition("%")
    address = ipaddress.ip_address(host)
    if scope:
        return find_interface(scope, family)
    if not HAS_NETLINK:
        raise _unknown(None, f"the name of an interface, as routes are not known on {sys.platform}", interfaces)
    try:
        index, source = _route(address)
    except OSError as error:
        raise _no_network(f"no network interface leads to {towards} ({error.strerror})", family, interfaces) from error
    # A host's own addresses are all routed to lo. For them, take the interface that has the address instead.
    owners = [one for one in interfaces if _has(one, source, family) and not address.is_multicast]
    found = owners or [one for one in interfaces if one.index == index]
    return _with_address(found[0], None, family, interfaces)


def _with_address(interface: Interface, text: str | None, family: int, interfaces: tuple[Interface, ...]) -> Interface:
    if HAS_NETLINK and not interface.addresses(family):
        if text is None:
            raise _no_network(f"{interface.name} has no {_version(family)} address", family, interfaces)
        raise _unknown(text, f"an interface with an {_version(family)} address", interfaces)
    return interface


def _no_network(problem: str, family: int, interfaces: tuple[Interface, ...]) -> ConfigError:
    """Return the error for a host without a network, with the settings that need none."""
    own = "::1" if family == socket.AF_INET6 else "127.0.0.1"
    return ConfigError(
        f"{problem}: connect this host to a network, or name another interface; programs on this host alone need no "
        f"network with interface={own} and ttl=0, in a URI ?interface={own}&ttl=0; {_listed(interfaces)}"
    )


def _unknown(text: str | None, expected: str, interfaces: tuple[Interface, ...]) -> ConfigError:
    given = "no interface is set" if text is None else f"interface={text!r}"
    return ConfigError(f"{given}: expected {expected}; {_listed(interfaces)}")


def _listed(interfaces: tuple[Interface, ...]) -> str:
    return f"there are {', '.join(map(str, interfaces))}" if interfaces else "there are none"


def _version(family: int) -> str:
    return "IPv6" if family == socket.AF_INET6 else "IPv4"


def _has(interface: Interface, text: str, family: int) -> bool:
    return any(_same(one, text) for one in interface.addresses(family))


def _same(address: str, text: str) -> bool:
    """Return True if both texts are the same address. If `text` has no scope, it matches any scope."""
    try:
        ours, theirs = ipaddress.ip_address(address), ipaddress.ip_address(text)
    except ValueError:
        return False
    if "%" in text:
        return ours == theirs
    return ours.packed == theirs.packed


def _probed_interface(name: str, index: int) -> Interface:
    if _LOOPBACK_NAME.fullmatch(name):
        return Interface(name, index, ("127.0.0.1",), ("::1",), is_loopback=True)
    found: dict[int, tuple[str, ...]] = {socket.AF_INET: (), socket.AF_INET6: ()}
    for family, group in _PROBED_GROUPS.items():
        with contextlib.suppress(OSError):  # it has no address of the family
            found[family] = (_address_by_kernel(family, group, index),)
    return Interface(name, index, found[socket.AF_INET], found[socket.AF_INET6])


def _address_by_kernel(family: int, towards: str, index: int = 0) -> str:
    """Return the address from which the kernel would send to `towards`, by an interface if `index` names one.

    Nothing is sent.
    """
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        if index and family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
        elif index:
            probe.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, _IP_MREQN.pack(bytes(4), bytes(4), index))
        probe.connect((towards, _ANY_PORT))
        address: str = probe.getsockname()[0]
        return address


def _links() -> Iterator[tuple[int, Interface]]:
    for body in _ask(_GET_LINK, bytes(_LINK.size), _DUMP, _NEW_LINK):
        _, _, index, flags, _ = _LINK.unpack_from(body)
        attributes = _attributes(body, _LINK.size)
        name = attributes[_LINK_NAME].rstrip(b"\0").decode()
        mtu = _U32.unpack(attributes[_LINK_MTU])[0]
        is_up = flags & (_UP | _RUNNING) == _UP | _RUNNING
        is_loopback = bool(flags & _LOOPBACK)
        has_multicast = is_loopback or bool(flags & _MULTICAST)
        yield index, Interface(name, index, is_up=is_up, has_multicast=has_multicast, is_loopback=is_loopback, mtu=mtu)


def _addresses() -> Iterator[tuple[int, int, ipaddress.IPv4Address | ipaddress.IPv6Address]]:
    """Yield the preference (lower is better), interface index and address of every address that can be used."""
    for body in _ask(_GET_ADDRESS, bytes(_ADDRESS.size), _DUMP, _NEW_ADDRESS):
        family, _, flags, _, index = _ADDRESS.unpack_from(body)
        attributes = _attributes(body, _ADDRESS.size)
        if _ADDRESS_FLAGS in attributes:  # all of them; the header has eight bits only
            flags = _U32.unpack(attributes[_ADDRESS_FLAGS])[0]
        packed = attributes.get(_ADDRESS_LOCAL) or attributes.get(_ADDRESS_PEER)
        if packed is None or flags & _UNUSABLE or family not in (socket.AF_INET, socket.AF_INET6):
            continue
        address = ipaddress.ip_address(packed)
        is_link_local = isinstance(address, ipaddress.IPv6Address) and address.is_link_local
        yield 2 * is_link_local + bool(flags & _SHORT_LIVED), index, address


def _route(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> tuple[int, str]:
    """Return the interface index and source address by which the kernel would send to an address."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    packed = address.packed
    question = _ROUTE.pack(family, 8 * len(packed), 0, 0, 0, 0, 0, 0, 0)
    question += _ATTRIBUTE.pack(_ATTRIBUTE.size + len(packed), _ROUTE_DESTINATION) + packed
    attributes = _attributes(_ask(_GET_ROUTE, question, 0, _NEW_ROUTE)[0], _ROUTE.size)
    source = attributes.get(_ROUTE_SOURCE, bytes(len(packed)))
    return _U32.unpack(attributes[_ROUTE_INTERFACE])[0], str(ipaddress.ip_address(source))


def _ask(question: int, body: bytes, flags: int, answer: int) -> list[bytes]:
    """Ask the kernel by netlink. Return the bodies of its answers of type `answer`. Raises OSError if it refuses."""
    request = _HEADER.pack(_HEADER.size + len(body), question, _REQUEST | flags, 1, 0) + body
    for _ in range(_DUMP_TRIES_MAX):
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
            netlink.settimeout(_ANSWER_TIMEOUT_S)
            netlink.send(request)
            bodies, is_whole = _answers(netlink, answer, is_dump=bool(flags & _DUMP))
        if is_whole:
            break  # else something changed while the kernel listed it: ask again
    return bodies


def _answers(netlink: socket.socket, answer: int, is_dump: bool) -> tuple[list[bytes], bool]:
    bodies: list[bytes] = []
    is_whole = True
    while True:
        for kind, flags, body in _messages(netlink.recv(_RECEIVE_BYTES)):
            is_whole = is_whole and not flags & _DUMP_INTERRUPTED
            if kind == _ERROR:
                code = -struct.unpack_from("=i", body)[0]
                raise OSError(code, os.strerror(code))
            if kind == answer:
                bodies.append(body)
            if kind == _DONE or not is_dump:
                return bodies, is_whole


def _messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield the type, flags and body of each netlink message in `data`."""
    offset = 0
    while offset + _HEADER.size <= len(data):
        length, kind, flags, _, _ = _HEADER.unpack_from(data, offset)
        yield kind, flags, data[offset + _HEADER.size : offset + length]
        offset += max(_aligned(length), _HEADER.size)


def _attributes(body: bytes, offset: int) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    while offset + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, offset)
        found[kind & 0x3FFF] = body[offset + _ATTRIBUTE.size : offset + length]  # without the two flags on top
        offset += max(_aligned(length), _ATTRIBUTE.size)
    return found


def _aligned(length: int) -> int:
    return (length + 3) & ~3
