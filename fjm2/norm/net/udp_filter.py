"""A socket filter (Linux) that keeps from a session what it ignores anyhow. Nothing depends on it.

Other sessions of this host receive our multicast only if it loops back. Then our own group socket receives it as well,
and ignores it: without a filter, a publisher at full speed would copy all its data once more. The filter cuts these
datagrams to one byte. It does not drop them, because the kernel would count them as datagrams that found the buffer
full.

A session that takes only what is to be kept is not even woken by the rest: the filter drops what passes by, and the
answers of others to each other. The length of the program depends on our own addresses only, and it passes all that it
does not know.
"""

import contextlib
import ipaddress
import socket
import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from fjm2.norm.core.train import Address
from fjm2.norm.core.wire import PASSES_BY, VERSION, MessageType

from .udp_overflows import overflows

# Linux's numbers (asm-generic/socket.h, linux/bpf_common.h, linux/filter.h).
_SO_ATTACH_FILTER: Final = 26
_LOAD_WORD, _LOAD_HALF, _LOAD_BYTE, _LOAD_LENGTH, _RETURN = 0x20, 0x28, 0x30, 0x80, 0x06
_IF_EQUAL, _IF_GREATER, _IF_ANY_BIT = 0x15, 0x25, 0x45
_NETWORK_HEADER: Final = 0xFFF00000
_SOURCE_PORT: Final = 0
_SOURCE_ADDRESS: Final = {4: _NETWORK_HEADER + 12, 16: _NETWORK_HEADER + 8}
"""Offset of the source address, by the length of an address in bytes (4 for IPv4, 16 for IPv6)."""
_PAYLOAD: Final = 8
"""Length of the UDP header, which a filter sees as well."""
_ACK: Final = VERSION << 4 | MessageType.ACK
_ANSWERED_AT: Final = 8
"""Offset of the id of the sender that an ACK answers (RFC 5740, 4.3.2)."""
_WORD_BYTES: Final = 4
_ONE_BYTE: Final = _PAYLOAD + 1
"""Length of a datagram that was cut: the UDP header and one byte."""
_WHOLE: Final = 0xFFFFFFFF
_NOTHING: Final = 0
_INSTRUCTION = struct.Struct("=HBBI")
_PROGRAM = struct.Struct("@HP")

Instruction = tuple[int, int, int, int]
"""Instruction of the filter: code, number of instructions to skip if true, number to skip if false, and operand."""


class _Condition(NamedTuple):
    """A comparison of a part of a datagram, or of its length."""

    load: int
    offset: int
    compare: int
    value: int
    is_so: bool = True
    """False if the comparison has to fail."""


class KeptOnly(NamedTuple):
    """Settings of a filter for a session that takes only what is to be kept."""

    node_id: int
    """Id of the sender whose answers it gets."""


class GroupFilter:
    """The filter of the socket by which a session receives what is sent to the group."""

    def __init__(self, family: socket.AddressFamily, *, cuts_own: bool, is_kept_only: bool) -> None:
        self.ignored: frozenset[Address] = frozenset()
        """Addresses that are ignored, besides that of the session itself."""
        self.node_id = 0
        """Id of the session's sender; 0 while it is not known."""
        self._family = family
        self._cuts_own, self._is_kept_only = cuts_own, is_kept_only
        self.begin()

    def begin(self) -> None:
        """Begin to count for a new socket."""
        self._overflows = overflows(self._family)

    def attach(self, kernel: socket.socket, own: Iterable[Address]) -> None:
        """Let the kernel keep from the socket what the session ignores, as far as it can."""
        kept_only = KeptOnly(self.node_id) if self._is_kept_only and self.node_id else None
        if self._cuts_own or kept_only is not None:
            attach_filter(kernel, own if self._cuts_own else (), kept_only)

    def without_dropped(self, drops: int) -> int:
        """Return how many of the datagrams that the kernel dropped found the buffer full.

        The kernel adds up what a filter drops and what finds the buffer full. The latter it counts for all sockets of
        the host as well.
        """
        return min(drops, overflows(self._family) - self._overflows) if self._is_kept_only else drops


def attach_filter(kernel: socket.socket, own: Iterable[Address], kept_only: KeptOnly | None = None) -> None:
    """Let the kernel cut datagrams of our `own` addresses to one byte, and drop what is not to be kept, if that is
    asked for. This replaces an earlier filter at once. Do nothing if the kernel cannot do it."""
    if sys.platform != "linux":
        return
    steps = [*(() if kept_only is None else _dropping(kept_only)), *_cutting(own), (_RETURN, 0, 0, _WHOLE)]
    program = array("B", b"".join(_INSTRUCTION.pack(*step) for step in steps))
    place, size = program.buffer_info()
    with contextlib.suppress(OSError):
        kernel.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, _PROGRAM.pack(size // _INSTRUCTION.size, place))


def _dropping(kept_only: KeptOnly) -> Sequence[Instruction]:
    steps: list[Instruction] = []
    for tests in PASSES_BY:
        conditions = [_longer_than(max(test.at for test in tests))]
        for at, value, is_mask in tests:
            compare = _IF_ANY_BIT if is_mask else _IF_EQUAL
            conditions.append(_Condition(_LOAD_BYTE, _PAYLOAD + at, compare, value))
        steps += _rule(conditions, _NOTHING)
    foreign_answer = [
        _longer_than(_ANSWERED_AT + _WORD_BYTES - 1),
        _Condition(_LOAD_BYTE, _PAYLOAD, _IF_EQUAL, _ACK),
        _Condition(_LOAD_WORD, _PAYLOAD + _ANSWERED_AT, _IF_EQUAL, kept_only.node_id, is_so=False),
    ]
    return [*steps, *_rule(foreign_answer, _NOTHING)]


def _longer_than(at: int) -> _Condition:
    """Return the condition that a datagram reaches behind an offset. A program that reads there otherwise drops it."""
    return _Condition(_LOAD_LENGTH, 0, _IF_GREATER, _PAYLOAD + at)


def _cutting(own: Iterable[Address]) -> Sequence[Instruction]:
    steps: list[Instruction] = []
    for host, port in own:
        packed = ipaddress.ip_address(host.partition("%")[0]).packed
        at = _SOURCE_ADDRESS[len(packed)]
        conditions = [_Condition(_LOAD_HALF, _SOURCE_PORT, _IF_EQUAL, port)]
        for i in range(0, len(packed), _WORD_BYTES):
            word = int.from_bytes(packed[i : i + _WORD_BYTES])
            conditions.append(_Condition(_LOAD_WORD, at + i, _IF_EQUAL, word))
        steps += _rule(conditions, _ONE_BYTE)
    return steps


def _rule(conditions: Sequence[_Condition], result: int) -> Sequence[Instruction]:
    """Return steps that end with a result if all conditions hold, and go on behind themselves otherwise."""
    steps: list[Instruction] = []
    for place, (load, offset, compare, value, is_so) in enumerate(conditions):
        to_end = 2 * (len(conditions) - place - 1) + 1
        jumps = (0, to_end) if is_so else (to_end, 0)
        steps += [(load, 0, 0, offset), (compare, *jumps, value)]
    return [*steps, (_RETURN, 0, 0, result)]
