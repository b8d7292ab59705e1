"""A check by ARP whether another host has our IPv4 address (RFC 5227). Linux only, as root."""

import contextlib
import select
import socket
import struct
import time
from collections.abc import Container, Iterator
from typing import Final

_ETH_ARP: Final = 0x0806  # EtherType of ARP (RFC 826)
_BROADCAST: Final = b"\xff" * 6
_ARP = struct.Struct("!HHBBH6s4s6s4s")
_ETHERNET, _IPV4, _REQUEST, _REPLY = 1, 0x0800, 1, 2
_WAIT_S: Final = 0.3  # hosts of a LAN answer ARP within milliseconds
_FRAME_BYTES: Final = 128  # more than an ARP packet with its padding


def other_owner(address: str, interface: str) -> str | None:
    """Return the hardware address of another host that claims `address`. Return None if there is none, or if ARP
    fails.

    If this host has several interfaces in one LAN, each answers for the addresses of all, unless `arp_ignore` is set.
    """
    if not hasattr(socket, "AF_PACKET") or ":" in address:
        return None
    with contextlib.suppress(OSError), socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0) as kernel:
        kernel.bind((interface, _ETH_ARP))
        hardware = kernel.getsockname()[4]
        if len(hardware) == len(_BROADCAST) and any(hardware):
            packed = socket.inet_aton(address)
            # Leave out the sender's address, so that no host updates its ARP table from this question.
            question = _ARP.pack(_ETHERNET, _IPV4, 6, 4, _REQUEST, hardware, bytes(4), bytes(6), packed)
            kernel.sendto(question, (interface, _ETH_ARP, 0, 0, _BROADCAST))
            return _answer(kernel, packed, {hardware, *_own_hardware()})
    return None


def _own_hardware() -> Iterator[bytes]:
    """Yield the hardware address of each interface of this host."""
    for _, name in socket.if_nameindex():
        with contextlib.suppress(OSError), socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0) as kernel:
            kernel.bind((name, 0))  # protocol 0: nothing is received
            yield kernel.getsockname()[4]


def _answer(kernel: socket.socket, address: bytes, ours: Container[bytes]) -> str | None:
    deadline = time.monotonic() + _WAIT_S
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([kernel], [], [], left)[0]:
            return None
        frame = kernel.recv(_FRAME_BYTES)
        if len(frame) < _ARP.size:
            continue
        *_, kind, owner, owned, _, _ = _ARP.unpack_from(frame)
        if kind == _REPLY and owned == address and owner not in ours:
            return ":".join(f"{byte:02x}" for byte in owner)
    return None
