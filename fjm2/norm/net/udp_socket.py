"""Sockets that take and give whole trains: UDP_SEGMENT out, UDP_GRO in, one datagram at a time where there is neither.

Nothing here waits or knows of asyncio: a full kernel is a False, an empty one a None, and file numbers are for whoever
waits. Nothing that the network or the interface does is raised either: it is counted.
"""

import contextlib
import errno
import socket
import struct
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fjm2.base.errors import ConfigError
from fjm2.norm.core.train import TRAIN_BYTES_MAX, TRAIN_SEGMENTS_MAX, Address, Train

from .interfaces import is_link_scoped

CAN_OPEN = hasattr(socket.socket, "recvmsg_into")
"""Whether sockets can be opened on this system at all. Python on Windows lacks what they need."""

# Linux's numbers (linux/udp.h, asm-generic/socket.h) that the socket module lacks.
UDP_SEGMENT = 103
_UDP_GRO = 104
_SO_MEMINFO = 55
_MEMINFO = struct.Struct("=9I")  # the last is sk_drops

_RECEIVE_BYTES = 1 << 16
_SEGMENT_BYTES = struct.Struct("=H")
_GRO_BYTES = struct.Struct("=i")
_ANCILLARY_BYTES = socket.CMSG_SPACE(_GRO_BYTES.size) if CAN_OPEN else 0
_TRUNCATED = int(socket.MSG_TRUNC)  # the flag itself is an Enum, and slow
_DISCARDS_PER_RECEIVE = range(16)
_CACHED_ADDRESSES = 1024

# EIO: the way out cannot checksum. EINVAL, EMSGSIZE: segments of this size do not fit into its packets.
_SEGMENTATION_REFUSED = frozenset({errno.EIO, errno.EINVAL, errno.EMSGSIZE})
_OUT_OF_REACH = frozenset({errno.ENETDOWN, errno.ENETUNREACH, errno.ENODEV, errno.EADDRNOTAVAIL, errno.EHOSTUNREACH})
# What befalls one datagram of a train by these will befall the others.
_HOPELESS = _OUT_OF_REACH | {errno.EINVAL, errno.EMSGSIZE}

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_Kernels = tuple[str, int, int, int]
"""An IPv6 address as the kernel has it: host, port, flow and scope."""


def check_platform() -> None:
    """ConfigError, with what to do, on a system that FJM2 cannot run on."""
    if not CAN_OPEN:
        raise ConfigError(
            f"platform={sys.platform}: expected Linux or macOS, as Python's sockets lack recvmsg_into here; "
            "on Windows, run it in WSL 2 or in a Linux container"
        )


@dataclass(slots=True)
class UdpStats:
    """What the sockets of a transport had to cope with."""

    send_errors: Counter[int] = field(default_factory=Counter)
    """Sends that the kernel refused, by errno: what was to be sent is gone."""
    receive_errors: Counter[int] = field(default_factory=Counter)
    """Receives that gave an error, by errno."""
    sends_blocked: int = 0
    """Times that the kernel was full."""
    offload_refused: int = 0
    """Trains that the kernel would not segment; those with such segments go datagram by datagram from then on."""
    truncated_dropped: int = 0
    """Receives longer than the buffer."""
    empty_dropped: int = 0
    """Datagrams without a byte in them."""


class TrainSocket(Protocol):
    """A way out and a way in for trains. Neither ever waits."""

    @property
    def address(self) -> Address:
        """Its own, as peers see it."""

    def fileno(self) -> int:
        """To wait for, readable or writable."""

    def send(self, train: Train) -> bool:
        """True: it is gone. False: the kernel is full; come back with the same train once it is writable."""

    def receive(self) -> Train | None:
        """The next train, borrowed until the next call; None when there is none."""

    def close(self) -> None:
        """No more. Doing it twice does no harm."""


class UdpSocket:
    """A TrainSocket over one UDP socket of the kernel's, which may be replaced by another."""

    def __init__(self, kernel: socket.socket, stats: UdpStats, *, offload: bool) -> None:
        self.stats = stats
        """What it has done; the sockets of a session share it."""
        self.is_failing = False
        """Whether the last send found no way out, as when the interface is down."""
        self._offload = offload
        self._buffer = np.empty(2 * _RECEIVE_BYTES, np.uint8)
        self._view = self._buffer.data
        self._whole = self._buffer[:0]
        self._next: Train | None = None
        """Received, but not to be joined to what was before it."""
        self._is_empty = False
        """The kernel has just been seen to be: it need not be asked again at once."""
        self.ignored: frozenset[Address] = frozenset()
        """What these send is not received."""
        self.replace(kernel)

    def replace(self, kernel: socket.socket) -> None:
        """Go on with another socket. The one before is not closed."""
        kernel.setblocking(False)
        self.kernel = kernel
        self._is_ipv4 = kernel.family == socket.AF_INET
        # Looked up once. Arrays are buffers, though their types do not say so before Python 3.12.
        self._sendto: Callable[..., int] = kernel.sendto
        self._sendmsg: Callable[..., int] = kernel.sendmsg
        self._recvmsg_into = kernel.recvmsg_into
        self._segments_below = _RECEIVE_BYTES if self._offload else 0
        """Trains are sent at once when their segments are smaller than this."""
        self._ancillary_bytes, self._ancillary = 0, [(socket.IPPROTO_UDP, UDP_SEGMENT, b"")]
        self._held: Train | None = None
        self._held_from = 0
        self._next = None
        self._is_empty = False
        self._to_kernel: dict[Address, _Kernels] = {}
        self._from_kernel: dict[_Kernels, Address] = {}
        if self._offload:
            with contextlib.suppress(OSError):  # Linux 4.18 and 4.19 have the way out only
                kernel.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
        self.address = self._normal(kernel.getsockname())

    def fileno(self) -> int:
        """To wait for, readable or writable. Another one after `replace`, -1 after `close`."""
        return self.kernel.fileno()

    def close(self) -> None:
        """No more. Doing it twice does no harm."""
        self.kernel.close()

    def kernel_drops(self) -> int:
        """Datagrams that came and found the receive buffer full. 0 where the kernel does not tell."""
        try:
            memory = self.kernel.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
        except OSError:
            return 0
        drops: int = _MEMINFO.unpack(memory)[-1]
        return drops

    def send(self, train: Train) -> bool:
        """True: it is gone, or dropped by an error that is counted. False: the kernel is full.

        After False come back with the same train: it goes on where it stopped.
        """
        size, segment_bytes = train.data.size, train.segment_bytes
        if (
            segment_bytes >= self._segments_below
            or size > TRAIN_BYTES_MAX
            or size > TRAIN_SEGMENTS_MAX * segment_bytes
            or self._held is not None
        ) and size > segment_bytes:
            return self._send_in_pieces(train)
        try:
            self._send_at_once(train.data.data, segment_bytes, train.address)
        except BlockingIOError:
            self.stats.sends_blocked += 1
            return False
        except OSError as error:
            if size > segment_bytes and error.errno in _SEGMENTATION_REFUSED:
                return self._send_in_pieces(train)
            self._count_failure(error)
            return True
        self.is_failing = False
        return True

    @property
    def has_taken(self) -> bool:
        """Whether the next train is here already, and no longer the kernel's."""
        return self._next is not None

    def receive(self) -> Train | None:
        """The next train, borrowed until the next call; None when nothing is there.

        Lone datagrams of one sender that wait behind each other are joined: a train is handled faster than its parts.
        """
        if self._next is not None:
            train, self._next = self._next, None
            return train
        if self._is_empty:
            self._is_empty = False
            return None
        first = self._receive_at(0)
        if first is None or first.data.size != first.segment_bytes:
            return first
        segment_bytes = end = first.segment_bytes
        most = min(_RECEIVE_BYTES, TRAIN_SEGMENTS_MAX * segment_bytes)
        while end + segment_bytes <= most:
            behind = self._receive_at(end)
            if behind is None:
                self._is_empty = True
                break
            size = behind.data.size
            if size > segment_bytes or size != behind.segment_bytes or behind.address != first.address:
                self._next = behind
                break
            end += size
            if size < segment_bytes:
                break
        return first if end == segment_bytes else Train(self._buffer[:end], segment_bytes, first.address)

    def _receive_at(self, offset: int) -> Train | None:
        """What is next, put into the buffer from an offset on.

        None as well after a good deal of rubbish in a row: there may be more, and the file is still readable.
        """
        for _ in _DISCARDS_PER_RECEIVE:
            try:
                size, ancillary, flags, sender = self._recvmsg_into(
                    (self._view[offset : offset + _RECEIVE_BYTES],), _ANCILLARY_BYTES
                )
            except BlockingIOError:
                return None
            except OSError as error:
                if error.errno == errno.EBADF:
                    raise
                self.stats.receive_errors[error.errno or 0] += 1
                return None
            if flags & _TRUNCATED:
                self.stats.truncated_dropped += 1
            elif size == 0:
                self.stats.empty_dropped += 1
            else:
                address = sender if self._is_ipv4 else self._normal(sender)
                if address in self.ignored:
                    continue
                # UDP_GRO is all that was asked for: what is there is the size of its segments.
                segment_bytes = _GRO_BYTES.unpack(ancillary[0][2])[0] if ancillary else size
                return Train(self._piece(offset, size), segment_bytes, address)
        return None

    def _piece(self, offset: int, size: int) -> NDArray[np.uint8]:
        """A piece of the buffer; the same array for trains of one length, so that views of it can be kept."""
        if offset or size != self._whole.size:
            piece = self._buffer[offset : offset + size]
            if offset:
                return piece
            self._whole = piece
        return self._whole

    def _send_at_once(self, data: memoryview, segment_bytes: int, address: Address) -> None:
        destination = address if self._is_ipv4 else self._scoped(address)
        if len(data) <= segment_bytes:
            self._sendto(data, destination)
            return
        if segment_bytes != self._ancillary_bytes:
            packed = _SEGMENT_BYTES.pack(segment_bytes)
            self._ancillary_bytes, self._ancillary = segment_bytes, [(socket.IPPROTO_UDP, UDP_SEGMENT, packed)]
        self._sendmsg((data,), self._ancillary, 0, destination)

    def _send_in_pieces(self, train: Train) -> bool:
        """As many datagrams at once as the kernel takes, be it one, and on from where it was full the last time."""
        data, segment_bytes = train.data.data, train.segment_bytes
        start = self._held_from if train is self._held else 0
        self._held = None
        before = self._segments_below
        piece_bytes = self._piece_bytes(segment_bytes)
        while start < len(data):
            piece = data[start : start + piece_bytes]
            try:
                self._send_at_once(piece, segment_bytes, train.address)
            except BlockingIOError:
                self.stats.sends_blocked += 1
                self._held, self._held_from = train, start
                return False
            except OSError as error:
                if len(piece) > segment_bytes and error.errno in _SEGMENTATION_REFUSED:
                    self.stats.offload_refused += 1
                    self._segments_below = 0 if error.errno == errno.EIO else segment_bytes
                    piece_bytes = segment_bytes
                    continue  # with the same bytes, one by one
                self._count_failure(error)
                if error.errno in _HOPELESS:
                    self._segments_below = before  # a lone one fails as well: segmenting is not to blame
                    return True
            else:
                self.is_failing = False
            start += len(piece)
        return True

    def _piece_bytes(self, segment_bytes: int) -> int:
        if segment_bytes >= self._segments_below:
            return segment_bytes
        return max(1, min(TRAIN_SEGMENTS_MAX, TRAIN_BYTES_MAX // segment_bytes)) * segment_bytes

    def _count_failure(self, error: OSError) -> None:
        if error.errno == errno.EBADF:
            raise error
        self.stats.send_errors[error.errno or 0] += 1
        self.is_failing = error.errno in _OUT_OF_REACH

    def _scoped(self, address: Address) -> _Kernels:
        """An IPv6 address as the kernel takes it. Raises OSError when there is no interface of that name."""
        found = self._to_kernel.get(address)
        if found is None:
            host, _, scope = address[0].partition("%")
            found = (host, address[1], 0, socket.if_nametoindex(scope) if scope else 0)
            _remember(self._to_kernel, address, found)
        return found

    def _normal(self, sender: _Kernels) -> Address:
        """An address from the kernel as host and port, with its scope in the host."""
        if self._is_ipv4:
            return sender[:2]
        found = self._from_kernel.get(sender)
        if found is None:
            host, port, _, index = sender
            found = (f"{host}%{_interface_name(index)}" if index and is_link_scoped(host) else host, port)
            _remember(self._from_kernel, sender, found)
        return found


def _remember(cache: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    """Bounded, as anyone may send from any address."""
    if len(cache) >= _CACHED_ADDRESSES:
        cache.clear()
    cache[key] = value


def _interface_name(index: int) -> str:
    try:
        return socket.if_indextoname(index)
    except OSError:  # it is gone already
        return str(index)
