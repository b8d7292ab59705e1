"""Parsing of captured frames, down to the UDP datagram: link layers, VLANs, IPv4 and IPv6."""

import struct
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

_ETHERTYPE_IPV4, _ETHERTYPE_IPV6 = 0x0800, 0x86DD
_VLANS: Final = frozenset({0x8100, 0x88A8, 0x9100})
_UDP = 17
_FRAGMENT = 44
_EXTENSIONS: Final = frozenset({0, 43, 60})
"""Numbers of the IPv6 extension headers that are skipped: hop-by-hop options, routing, destination options."""
_NESTED_MAX: Final = 8
"""Greatest number of nested VLAN tags, or of extension headers, that is followed. Real traffic has two or three at
most."""
_UDP_HEADER = struct.Struct(">HHH")


class NoDatagram(Enum):
    """Reason why a frame holds no readable UDP datagram."""

    LINK_TYPE = "an unknown link layer"
    NOT_UDP = "a protocol other than UDP"
    FRAGMENT = "a fragment of a datagram"
    CUT_SHORT = "headers that were not captured completely"


class Datagram(NamedTuple):
    """One UDP datagram."""

    source: bytes
    source_port: int
    destination: bytes
    destination_port: int
    payload: bytes
    """The part of the payload that was captured."""
    length: int
    """Length of the whole payload in bytes."""


def datagram_of(link_type: int, frame: bytes, length: int) -> Datagram | NoDatagram:
    """Return the datagram in a frame of the given length. The frame may not have been captured completely."""
    find = _LINKS.get(link_type)
    if find is None:
        return NoDatagram.LINK_TYPE
    found = find(frame)
    if found is None:
        return NoDatagram.CUT_SHORT
    ethertype, at = found
    if ethertype == _ETHERTYPE_IPV4:
        return _ipv4(frame, at, length)
    if ethertype == _ETHERTYPE_IPV6:
        return _ipv6(frame, at, length)
    return NoDatagram.NOT_UDP


# Link layers. Each function returns the Ethernet type and the offset of the content; None if too little was captured.

_Found = tuple[int, int] | None


def _behind_vlans(frame: bytes, at: int) -> _Found:
    """Skip VLAN tags, beginning at `at`, the offset of an Ethernet type."""
    for _ in range(_NESTED_MAX):
        if at + 2 > len(frame):
            return None
        ethertype = int.from_bytes(frame[at : at + 2])
        if ethertype not in _VLANS:
            return ethertype, at + 2
        at += 4
    return 0, at


def _ethernet(frame: bytes) -> _Found:
    return _behind_vlans(frame, 12)


def _cooked(frame: bytes) -> _Found:
    return _behind_vlans(frame, 14)


def _cooked_2(frame: bytes) -> _Found:
    """Parse Linux cooked capture version 2: the Ethernet type comes first, and a VLAN tag follows the header."""
    if len(frame) < 20:
        return None
    ethertype = int.from_bytes(frame[:2])
    return _behind_vlans(frame, 22) if ethertype in _VLANS else (ethertype, 20)


def _raw(frame: bytes, at: int = 0) -> _Found:
    if len(frame) <= at:
        return None
    return {4: _ETHERTYPE_IPV4, 6: _ETHERTYPE_IPV6}.get(frame[at] >> 4, 0), at


def _loopback(frame: bytes) -> _Found:
    """Skip the four bytes of the address family. Its numbers differ by system, and the IP header tells the version
    anyway."""
    return _raw(frame, 4)


_LINKS: Final[dict[int, Callable[[bytes], _Found]]] = {
    0: _loopback,
    1: _ethernet,
    12: _raw,
    14: _raw,
    101: _raw,
    108: _loopback,
    113: _cooked,
    228: _raw,
    229: _raw,
    276: _cooked_2,
}
"""Parsers by link type, in the numbering of tcpdump.org."""


# IP and UDP.


def _ipv4(frame: bytes, at: int, length: int) -> Datagram | NoDatagram:
    if at + 20 > len(frame):
        return NoDatagram.CUT_SHORT
    words, total = frame[at] & 15, int.from_bytes(frame[at + 2 : at + 4])
    if frame[at] >> 4 != 4 or words < 5:
        return NoDatagram.NOT_UDP
    if frame[at + 9] != _UDP:
        return NoDatagram.NOT_UDP
    if int.from_bytes(frame[at + 6 : at + 8]) & 0x3FFF:
        return NoDatagram.FRAGMENT
    end = at + total if total else length  # 0 with segmentation offload: the hardware fills it in
    return _udp(frame, at + 4 * words, min(end, length), frame[at + 12 : at + 16], frame[at + 16 : at + 20])


def _ipv6(frame: bytes, at: int, length: int) -> Datagram | NoDatagram:
    if at + 40 > len(frame):
        return NoDatagram.CUT_SHORT
    if frame[at] >> 4 != 6:
        return NoDatagram.NOT_UDP
    total, kind = int.from_bytes(frame[at + 4 : at + 6]), frame[at + 6]
    source, destination = frame[at + 8 : at + 24], frame[at + 24 : at + 40]
    end = at + 40 + total if total else length
    at += 40
    for _ in range(_NESTED_MAX):
        if kind not in _EXTENSIONS:
            break
        if at + 8 > len(frame):
            return NoDatagram.CUT_SHORT
        kind, at = frame[at], at + 8 * (frame[at + 1] + 1)
    if kind == _FRAGMENT:
        return NoDatagram.FRAGMENT
    if kind != _UDP:
        return NoDatagram.NOT_UDP
    return _udp(frame, at, min(end, length), source, destination)


def _udp(frame: bytes, at: int, end: int, source: bytes, destination: bytes) -> Datagram | NoDatagram:
    if at + 8 > len(frame):
        return NoDatagram.CUT_SHORT
    source_port, destination_port, size = _UDP_HEADER.unpack_from(frame, at)
    if size:  # 0 with segmentation offload: then the IP header tells the length
        end = min(at + size, end)
    length = max(end - at - 8, 0)
    return Datagram(source, source_port, destination, destination_port, frame[at + 8 : at + 8 + length], length)
