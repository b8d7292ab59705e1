"""Checks of the host: buffers, offload, clock, event loop, permissions, and datagrams that the kernel dropped."""

import contextlib
import ctypes
import os
import socket
import struct
import sys
import time
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import NamedTuple

from fjm2.base.quantities import counted
from fjm2.norm import UdpTransport
from fjm2.norm.core.train import TRAIN_BYTES_MAX, TRAIN_SEGMENTS_MAX
from fjm2.norm.net.udp_opening import NO_OFFLOAD_VARIABLE, can_offload
from fjm2.norm.net.udp_sender import UDP_SEGMENT

from .firewall import allow_loopback
from .kernel import Counters, UdpSocketLine
from .scene import Scene
from .verdict import Finding, fault, ok, unknown, warning

_TINY_BYTES = 2 * TRAIN_BYTES_MAX
"""Smallest buffer that holds two trains. A smaller buffer loses data whenever a train is being processed."""
_SMALL_BYTES = 1 << 20  # 8 ms of data at 1 Gbit/s
_UDP_GRO = 104  # Linux's number (linux/udp.h)
_TIMEX = struct.Struct("@Illlli")  # the head of struct timex (adjtimex(2)): modes, three numbers, status
_TIMEX_BYTES = 256  # more than the whole struct, on every architecture
_UNSYNCHRONISED = 0x40  # STA_UNSYNC
_CLOCK_LOST = 5  # TIME_ERROR
_LOOPBACK_ADVICE = ("ip link set lo up", "if it is up, a firewall may drop what arrives over it: sudo fjm2 doctor")
_TRIALS = 20  # the best of these is taken, since other programs disturb some
_TRIAL_S = 0.2  # 127.0.0.1 answers within microseconds, unless it is blocked


def check_buffers(scene: Scene, transport: UdpTransport) -> Iterator[Finding]:
    """Yield a finding for each socket buffer: the size requested, and the size granted."""
    for which, option, letter, wanted in (
        ("receive", socket.SO_RCVBUF, "r", scene.udp.receive_buffer_bytes),
        ("send", socket.SO_SNDBUF, "w", scene.udp.send_buffer_bytes),
    ):
        doubled = 2 if sys.platform == "linux" else 1
        got = transport.group.kernel.getsockopt(socket.SOL_SOCKET, option) // doubled
        name = f"net.core.{letter}mem_max"
        limit = scene.kernel.number(f"proc/sys/{name.replace('.', '/')}")
        yield judge_buffer(which, wanted, got, limit, name)


def judge_buffer(which: str, wanted: int, got: int, limit: int | None, sysctl: str) -> Finding:
    """Judge the size of a buffer. `limit` is the kernel's limit for users without privileges."""
    check = f"{which}_buffer"
    advice = (
        f"sysctl -w {sysctl}={wanted}",
        f"to keep it: echo {sysctl}={wanted} >> /etc/sysctl.d/60-fjm2.conf",
    )
    figures = {"wanted_bytes": wanted, "got_bytes": got, "limit_bytes": limit}
    if got < wanted:
        least = min(wanted, _TINY_BYTES)
        text = f"the kernel grants {got:,} of the {wanted:,} bytes that FJM2 requests: "
        if got < least:
            return fault(check, "buffer_tiny", text + "even one train may not fit", *advice, **figures)
        return warning(check, "buffer_small", text + "bursts may be lost", *advice, **figures)
    if limit is not None and limit < min(wanted, _SMALL_BYTES):
        text = f"{got:,} bytes for you, but users without privileges get at most {limit:,}"
        return warning(check, "buffer_small_for_others", text, *advice, **figures)
    told = "" if limit is None or limit >= wanted else f"; users without privileges get {limit:,}"
    return ok(check, f"{got:,} bytes, as FJM2 requests{told}", **figures)


class Offload(NamedTuple):
    """Result of a trial of GSO and GRO on 127.0.0.1."""

    is_sent_whole: bool
    is_received_whole: bool
    train_us: float
    """Microseconds to send a train with one system call."""
    pieces_us: float
    """Microseconds to send the same train datagram by datagram."""


def check_offload(scene: Scene) -> Finding:
    """Check segmentation offload, GSO and GRO, by trying it."""
    if os.environ.get(NO_OFFLOAD_VARIABLE) == "1":
        return warning(
            "offload",
            "offload_off",
            f"{NO_OFFLOAD_VARIABLE}=1 is set: each datagram takes a system call, {_cost(scene)}",
            f"unset {NO_OFFLOAD_VARIABLE}",
        )
    try:
        trial = try_offload(scene.datagram_bytes) if can_offload(scene.udp) else None
    except OSError as error:
        return unknown(
            "offload",
            f"cannot be tried: 127.0.0.1 does not reach itself ({error.strerror or error})",
            *(allow_loopback() or _LOOPBACK_ADVICE),
        )
    if trial is None or not trial.is_sent_whole:
        return warning(
            "offload",
            "no_gso",
            "this kernel cannot send a train at once (no UDP_SEGMENT): each datagram takes a system call, at several "
            "times the cost",
            "use Linux 4.18 or later" if sys.platform == "linux" else "not available on this system; Linux has it",
        )
    if not trial.is_received_whole:
        return warning(
            "offload",
            "no_gro",
            "trains are sent at once, but arrive datagram by datagram (no UDP_GRO): receiving costs more",
            "use Linux 5.0 or later",
        )
    return ok(
        "offload",
        f"GSO and GRO work: sending a train takes {trial.train_us:.0f} µs, and would take {trial.pieces_us:.0f} µs "
        "datagram by datagram",
        train_us=round(trial.train_us, 1),
        pieces_us=round(trial.pieces_us, 1),
    )


def _cost(scene: Scene) -> str:
    trial = None
    with contextlib.suppress(OSError):
        trial = try_offload(scene.datagram_bytes)
    if trial is None or not trial.is_sent_whole:
        return "at several times the cost"
    return f"{trial.pieces_us:.0f} µs a train instead of {trial.train_us:.0f}"


def try_offload(segment_bytes: int) -> Offload | None:
    """Send trains to ourselves, at once and datagram by datagram. Return None if the kernel cannot send a train at
    once. Raise OSError if nothing arrives."""
    segment_bytes = max(1, min(segment_bytes, TRAIN_BYTES_MAX))
    count = max(1, min(TRAIN_SEGMENTS_MAX, TRAIN_BYTES_MAX // segment_bytes))
    train = bytes(segment_bytes * count)
    whole = [(socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("=H", segment_bytes))]
    with contextlib.ExitStack() as opened:
        out, into = (opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(2))
        try:
            out.getsockopt(socket.IPPROTO_UDP, UDP_SEGMENT)
        except OSError:
            return None
        into.bind(("127.0.0.1", 0))
        into.settimeout(_TRIAL_S)
        into.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        out.connect(into.getsockname())
        out.send(b"?")
        into.recv(1)
        with contextlib.suppress(OSError):
            into.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
        try:
            out.sendmsg([train], whole)
            received = len(into.recv(1 << 16))
        except OSError:
            return Offload(False, False, 0.0, 0.0)
        return Offload(True, received > segment_bytes or count == 1, *_times(train, segment_bytes, whole))


def _times(train: bytes, segment_bytes: int, whole: list[tuple[int, int, bytes]]) -> tuple[float, float]:
    """Return the microseconds to send a train at once, and datagram by datagram: the best of several trials."""
    pieces = [train[at : at + segment_bytes] for at in range(0, len(train), segment_bytes)]
    at_once, one_by_one = [], []
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink,
    ):
        sink.bind(("127.0.0.1", 0))
        sink.setblocking(False)
        sink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        out.connect(sink.getsockname())
        for _ in range(_TRIALS):
            _empty(sink)
            began = time.perf_counter()
            out.sendmsg([train], whole)
            between = time.perf_counter()
            for piece in pieces:
                out.send(piece)
            at_once.append(between - began)
            one_by_one.append(time.perf_counter() - between)
    return min(at_once) * 1e6, min(one_by_one) * 1e6


def _empty(sink: socket.socket) -> None:
    """Empty a socket, so that no trial datagram is counted as dropped for lack of buffer space."""
    with contextlib.suppress(BlockingIOError):
        while True:
            sink.recv(1)


def check_drops(risen: Counters, before: Counters, sockets: Iterable[UdpSocketLine]) -> Finding:
    """Judge datagrams that the kernel dropped: during the examination, since boot, and at sockets of the bus."""
    names = ("Udp.RcvbufErrors", "Udp6.RcvbufErrors", "Udp.InErrors", "Udp6.InErrors", "Udp.InCsumErrors")
    if not any(name in before for name in names):
        return unknown("drops", "the kernel's counters are not available on this system")
    ever = {name: before[name] for name in names if before.get(name)}
    now = {name: risen[name] for name in names if risen.get(name)}
    if now:
        told = ", ".join(f"{name} +{count}" for name, count in now.items())
        return warning(
            "drops",
            "kernel_drops",
            f"the kernel dropped UDP datagrams during the examination ({told}): some program on this host is too slow, "
            "or its buffer too small",
            "see receive_buffer above; find the socket by its drops: ss -uapm",
            risen=now,
            ever=ever,
        )
    lost = sum(one.drops for one in sockets)
    if lost:
        return warning(
            "drops",
            "socket_drops",
            f"open sockets of this bus on this host have lost {counted(lost, 'datagram')} to full buffers: their "
            "programs were busy for too long, or their buffers are too small",
            "see receive_buffer above; find the programs: ss -uapm",
            dropped=lost,
            ever=ever,
        )
    past = f"; {max(ever.values()):,} since boot" if ever else ""
    return ok("drops", f"no UDP datagram was dropped during the examination{past}", ever=ever)


def check_clock() -> Finding:
    """Check whether the clock is synchronised. Messages expire by this clock."""
    if sys.platform != "linux":
        return unknown("clock", "whether it is synchronised cannot be read on this system")
    memory = ctypes.create_string_buffer(_TIMEX_BYTES)
    try:
        state = ctypes.CDLL(None).adjtimex(memory)
    except (OSError, AttributeError):
        return unknown("clock", "whether it is synchronised cannot be read here")
    status = _TIMEX.unpack_from(memory.raw)[-1]
    return judge_clock(state, status)


def judge_clock(state: int, status: int) -> Finding:
    if state < 0:
        return unknown("clock", "whether it is synchronised cannot be read here")
    if state == _CLOCK_LOST or status & _UNSYNCHRONISED:
        return warning(
            "clock",
            "clock_not_synchronised",
            "the kernel says that the clock is not synchronised: messages may expire too early or too late",
            "timedatectl set-ntp true",
            "compare it with another host: fjm2 doctor --listen there, fjm2 doctor --probe here",
        )
    return ok("clock", "is synchronised")


def check_python() -> Finding:
    """Check whether uvloop is installed, the event loop that commands and fast programs use."""
    if find_spec("uvloop") is not None:
        return ok("event_loop", "uvloop is installed")
    if sys.platform == "win32":
        return ok("event_loop", "asyncio's own: uvloop does not run on this system")
    return warning(
        "event_loop", "no_uvloop", "uvloop is not installed: asyncio's own loop is slower", "pip install uvloop"
    )


def check_permissions() -> Finding:
    """Check whether the doctor itself may see firewall rules and packets."""
    if _sees_packets():
        return ok("permissions", "nothing is hidden from this user")
    return unknown(
        "permissions",
        "firewall rules, and packets before the firewall, are visible to root only",
        "sudo fjm2 doctor",
    )


def _sees_packets() -> bool:
    """Return True for root, and for users with the right to open packet sockets."""
    if not hasattr(socket, "AF_PACKET"):
        return hasattr(os, "geteuid") and os.geteuid() == 0
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0).close()
    except OSError:
        return False
    return True
