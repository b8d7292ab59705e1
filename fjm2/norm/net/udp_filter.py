"""A socket filter (Linux) that cuts our own multicast datagrams to one byte when they loop back.

Other sessions of this host receive our multicast only if it loops back. Then our own group socket receives it as well,
and ignores it. Nothing depends on the filter, but without it a publisher at full speed would copy all its data once
more. The filter does not drop datagrams, because the kernel would count them as datagrams that found the buffer full.
"""

import contextlib
import ipaddress
import socket
import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from typing import Final

from fjm2.norm.core.train import Address

# Linux's numbers (asm-generic/socket.h, linux/bpf_common.h, linux/filter.h).
_SO_ATTACH_FILTER: Final = 26
_LOAD_WORD, _LOAD_HALF, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x28, 0x15, 0x06
_NETWORK_HEADER: Final = 0xFFF00000
_SOURCE_PORT: Final = 0
_SOURCE_ADDRESS: Final = {4: _NETWORK_HEADER + 12, 16: _NETWORK_HEADER + 8}
"""Offset of the source address, by the length of an address in bytes (4 for IPv4, 16 for IPv6)."""
_ONE_BYTE: Final = 8 + 1
"""Length of a datagram that was cut: the UDP header and one byte."""
_WHOLE: Final = 0xFFFFFFFF
_INSTRUCTION = struct.Struct("=HBBI")
_PROGRAM = struct.Struct("@HP")

Instruction = tuple[int, int, int, int]
"""Instruction of the filter: code, number of instructions to skip if true, number to skip if false, and operand."""


def shorten(kernel: socket.socket, senders: Iterable[Address]) -> None:
    """Let the kernel cut the datagrams of `senders` to one byte. Do nothing if it cannot do that."""
    if sys.platform != "linux":
        return
    program = array("B", b"".join(_INSTRUCTION.pack(*step) for step in _program(senders)))
    place, size = program.buffer_info()
    with contextlib.suppress(OSError):
        kernel.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, _PROGRAM.pack(size // _INSTRUCTION.size, place))


def _program(senders: Iterable[Address]) -> Sequence[Instruction]:
    steps: list[Instruction] = []
    for host, port in senders:
        packed = ipaddress.ip_address(host.partition("%")[0]).packed
        at = _SOURCE_ADDRESS[len(packed)]
        compared = [(_LOAD_HALF, _SOURCE_PORT, port)]
        compared += [(_LOAD_WORD, at + i, int.from_bytes(packed[i : i + 4])) for i in range(0, len(packed), 4)]
        for place, (load, offset, value) in enumerate(compared):
            to_next_sender = 2 * (len(compared) - place - 1) + 1
            steps += [(load, 0, 0, offset), (_JUMP_IF_EQUAL, 0, to_next_sender, value)]
        steps.append((_RETURN, 0, 0, _ONE_BYTE))
    return [*steps, (_RETURN, 0, 0, _WHOLE)]
