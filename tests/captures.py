"""Packet captures as other programs write them: both formats, all byte orders and time units, several link layers."""

import struct
from collections.abc import Callable, Sequence
from ipaddress import ip_address

SOURCE4, GROUP4 = "10.99.0.1", "224.1.2.3"
SOURCE6, GROUP6 = "fe80::1", "ff02::57"
PORT = 6003
ETHERNET, RAW, NULL, LOOP, SLL, SLL2 = 1, 101, 0, 108, 113, 276
IPV4, IPV6 = 0x0800, 0x86DD

Stamped = tuple[float, bytes]
"""Unix time at which a frame was captured, in seconds, and the frame itself."""


def udp(payload: bytes, port: int = PORT, length: int | None = None) -> bytes:
    return struct.pack(">HHHH", port, port, 8 + len(payload) if length is None else length, 0) + payload


def ipv4(
    content: bytes, protocol: int = 17, fragment: int = 0, options: bytes = b"", total: int | None = None
) -> bytes:
    words, size = 5 + len(options) // 4, 20 + len(options) + len(content)
    head = struct.pack(">BBHHHBBH", 0x40 | words, 0, size if total is None else total, 7, fragment, 4, protocol, 0)
    return head + ip_address(SOURCE4).packed + ip_address(GROUP4).packed + options + content


def ipv6(content: bytes, kind: int = 17, extensions: bytes = b"") -> bytes:
    head = struct.pack(">IHBB", 6 << 28, len(extensions) + len(content), kind, 4)
    return head + ip_address(SOURCE6).packed + ip_address(GROUP6).packed + extensions + content


def ethernet(ip: bytes, *tags: int) -> bytes:
    vlans = b"".join(struct.pack(">HH", tag, 57) for tag in tags)
    return bytes(12) + vlans + struct.pack(">H", _ethertype(ip)) + ip


def raw(ip: bytes) -> bytes:
    return ip


def null(ip: bytes) -> bytes:
    """Return a frame as captured from BSD's loopback interface on a little-endian machine."""
    return struct.pack("<I", 2 if _ethertype(ip) == IPV4 else 30) + ip


def loop(ip: bytes) -> bytes:
    return struct.pack(">I", 2 if _ethertype(ip) == IPV4 else 24) + ip


def sll(ip: bytes, *tags: int) -> bytes:
    """Return a frame as captured from Linux's interface "any"."""
    vlans = b"".join(struct.pack(">HH", tag, 57) for tag in tags)
    return struct.pack(">HHH8s", 0, 1, 6, b"") + vlans + struct.pack(">H", _ethertype(ip)) + ip


def sll2(ip: bytes, *tags: int) -> bytes:
    types = [*tags, _ethertype(ip)]
    behind = b"".join(struct.pack(">HH", 57, kind) for kind in types[1:])
    return struct.pack(">HHIHBB8s", types[0], 0, 2, 1, 0, 6, b"") + behind + ip


LINKS: dict[int, Callable[..., bytes]] = {ETHERNET: ethernet, RAW: raw, NULL: null, LOOP: loop, SLL: sll, SLL2: sll2}


def _ethertype(ip: bytes) -> int:
    return IPV4 if ip[0] >> 4 == 4 else IPV6


# Files.


def pcap(
    packets: Sequence[Stamped], link: int = ETHERNET, order: str = "<", is_nano: bool = False, snap: int = 0
) -> bytes:
    unit = 1_000_000_000 if is_nano else 1_000_000
    magic = 0xA1B23C4D if is_nano else 0xA1B2C3D4
    parts = [struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, snap or 1 << 18, link)]
    for time_s, frame in packets:
        ticks = round(time_s * unit)
        kept = frame[: snap or None]
        parts.append(struct.pack(order + "IIII", ticks // unit, ticks % unit, len(kept), len(frame)) + kept)
    return b"".join(parts)


def pcapng(
    packets: Sequence[Stamped], link: int = ETHERNET, order: str = "<", resolution: int | None = None, snap: int = 0
) -> bytes:
    """Return a pcapng file. A block of an unknown type follows each packet."""
    options = b""
    unit = 1_000_000
    if resolution is not None:
        options = struct.pack(order + "HHB3x", 9, 1, resolution) + struct.pack(order + "HH", 0, 0)
        unit = 2 ** (resolution & 127) if resolution & 128 else 10**resolution
    parts = [
        _block(order, 0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1)),
        _block(order, 1, struct.pack(order + "HHI", link, 0, snap) + options),
    ]
    for time_s, frame in packets:
        ticks, kept = round(time_s * unit), frame[: snap or None]
        head = struct.pack(order + "IIIII", 0, ticks >> 32, ticks & 0xFFFFFFFF, len(kept), len(frame))
        parts += [_block(order, 6, head + kept), _block(order, 0x0BAD, b"what is that")]
    return b"".join(parts)


def _block(order: str, kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    length = struct.pack(order + "I", 12 + len(body))
    return struct.pack(order + "I", kind) + length + body + length
