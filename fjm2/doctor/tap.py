"""Captures packets before the firewall and rp_filter see them. Linux only, as root."""

import contextlib
import ipaddress
import socket
import struct
from array import array
from collections import Counter

# Linux's numbers (asm-generic/socket.h, linux/if_ether.h, linux/if_packet.h).
_SO_ATTACH_FILTER = 26
_ETH_IPV4, _ETH_IPV6 = 0x0800, 0x86DD
_PACKET_OUTGOING, _PACKET_LOOPBACK = 4, 5
_INSTRUCTION = struct.Struct("=HBBI")
_PROGRAM = struct.Struct("@HP")
_HEAD_BYTES = 128  # covers the longest IPv4 header, and the IPv6 header
_PACKETS_PER_POLL = 200  # so that no busy tap starves the sockets

# Instructions of the packet filter: load a byte; load two bytes; load two bytes behind X; load the IPv4 header's length
# into X; compare; return.
_BYTE, _HALF, _HALF_BEHIND, _LENGTH, _EQUAL, _RETURN = 0x30, 0x28, 0x48, 0xB1, 0x15, 0x06
_UDP = 17  # the protocol number of UDP


class Tap:
    """Counts the multicast datagrams to a port that reach the interface, by sender and group. Raises OSError if that is
    not allowed."""

    def __init__(self, interface: str, port: int, is_ipv6: bool) -> None:
        self.seen: Counter[tuple[str, str]] = Counter()
        """Datagrams (or trains of them) from others, by source and group."""
        self._is_ipv6 = is_ipv6
        protocol = _ETH_IPV6 if is_ipv6 else _ETH_IPV4
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
        try:
            self._filter(port)
            self._socket.setblocking(False)
            self._socket.bind((interface, protocol))
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def poll(self) -> None:
        """Read what has arrived, up to a limit."""
        for _ in range(_PACKETS_PER_POLL):
            try:
                head, (_, _, kind, *_) = self._socket.recvfrom(_HEAD_BYTES)
            except OSError:  # nothing more, or the interface is down
                return
            if kind not in (_PACKET_OUTGOING, _PACKET_LOOPBACK):
                self._count(head)

    def _count(self, head: bytes) -> None:
        at, size = (8, 16) if self._is_ipv6 else (12, 4)
        if len(head) >= at + 2 * size and len(self.seen) < 4096:
            source, destination = (ipaddress.ip_address(head[at + n * size : at + (n + 1) * size]) for n in (0, 1))
            if destination.is_multicast:
                self.seen[str(source), str(destination)] += 1

    def close(self) -> None:
        self._socket.close()

    def _filter(self, port: int) -> None:
        if self._is_ipv6:
            steps = [(_BYTE, 0, 0, 6), (_EQUAL, 0, 3, _UDP), (_HALF, 0, 0, 42), (_EQUAL, 0, 1, port)]
        else:
            steps = [(_BYTE, 0, 0, 9), (_EQUAL, 0, 4, _UDP), (_LENGTH, 0, 0, 0), (_HALF_BEHIND, 0, 0, 2)]
            steps.append((_EQUAL, 0, 1, port))
        steps += [(_RETURN, 0, 0, _HEAD_BYTES), (_RETURN, 0, 0, 0)]
        program = array("B", b"".join(_INSTRUCTION.pack(*step) for step in steps))
        place, size = program.buffer_info()
        packed = _PROGRAM.pack(size // _INSTRUCTION.size, place)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, packed)


def open_tap(interface: str, port: int, is_ipv6: bool) -> Tap | None:
    """Return a tap, or None if this system has no packet sockets or does not allow them."""
    if hasattr(socket, "AF_PACKET"):
        with contextlib.suppress(OSError):
            return Tap(interface, port, is_ipv6)
    return None
