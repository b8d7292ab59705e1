"""Reception by a UDP socket: whole trains by UDP_GRO, or one datagram at a time where that does not work."""

import contextlib
import errno
import socket
import struct
from typing import Final

import numpy as np

from fjm2.norm.core.train import TRAIN_SEGMENTS_MAX, Address, Train

from .kernel_addresses import KernelAddresses
from .udp_stats import UdpStats

CAN_OPEN = hasattr(socket.socket, "recvmsg_into")
"""True if sockets can be opened on this system at all. Python on Windows lacks what they need."""
_UDP_GRO: Final = 104
"""Socket option of Linux (linux/udp.h) that the socket module lacks."""
_RECEIVE_BYTES = 1 << 16
"""Bytes of the longest train that is received: the kernel joins no more than a UDP datagram may hold."""
_GRO_SIZE = struct.Struct("=i")
_ANCILLARY_BYTES = socket.CMSG_SPACE(_GRO_SIZE.size) if CAN_OPEN else 0
_TRUNCATED = int(socket.MSG_TRUNC)  # the flag itself is an Enum, which is slow
_DISCARDS_PER_RECEIVE = range(16)
"""Numbers of the datagrams that may be discarded in a row before other tasks of the loop run."""


class TrainReceiver:
    """Receiving half of `UdpSocket`. It reads trains from one kernel socket and never blocks."""

    def __init__(self, stats: UdpStats) -> None:
        self.stats = stats
        """Counters that the sockets of a session share."""
        self.ignored: frozenset[Address] = frozenset()
        """Addresses from which nothing is received."""
        self._buffer = np.empty(2 * _RECEIVE_BYTES, np.uint8)
        self._view = self._buffer.data
        self._front = (self._view[:_RECEIVE_BYTES],)
        """Place of the first train of a turn."""
        self._whole = self._buffer[:0]
        """Latest piece of the buffer that was taken from its beginning. Trains of one length are the same array, so
        that callers can keep views."""

    def _bind_receiver(self, kernel: socket.socket, addresses: KernelAddresses, offload: bool) -> None:
        """Receive by `kernel` from now on, and forget a train that was taken from the previous socket."""
        self._from_kernel = None if addresses.is_ipv4 else addresses.from_kernel
        self._recvmsg_into = kernel.recvmsg_into
        self._next: Train | None = None
        """Train that was received, but could not be joined to the train before it; None if there is none."""
        self.is_busy = False
        """True if several trains waited in this turn or the one before. More are expected to wait then."""
        self._reads = 0
        """Number of trains read since the kernel last said that nothing waits."""
        self._is_empty = False
        """True if the kernel has just said that nothing waits, so that the next `receive` need not ask it."""
        if offload:
            with contextlib.suppress(OSError):  # Linux 4.18 and 4.19 can only send trains
                kernel.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)

    @property
    def has_taken(self) -> bool:
        """True if the next train was taken from the kernel already, so that it does not make the socket readable."""
        return self._next is not None

    def receive(self) -> Train | None:
        """Return the next train, or None if there is none. The train is borrowed until the next call.

        Joins single datagrams of one sender that wait behind each other: a train is handled faster than its parts. The
        first datagram is not kept waiting for that if it probably came alone.
        """
        if self._next is not None:
            train, self._next = self._next, None
            return train
        first = None if self._is_empty else self._receive_at(0)
        if first is None:
            self.is_busy = self._reads > 1
            self._reads = 0
            self._is_empty = False
            return None
        self._reads += 1
        self.is_busy = self.is_busy or self._reads > 1
        if not self.is_busy or first.data.size != first.segment_bytes:
            return first
        segment_bytes = end = first.segment_bytes
        most = min(_RECEIVE_BYTES, TRAIN_SEGMENTS_MAX * segment_bytes)
        while end + segment_bytes <= most:
            behind = self._receive_at(end)
            if behind is None:
                self._is_empty = True
                break
            self._reads += 1
            size = behind.data.size
            if size > segment_bytes or size != behind.segment_bytes or behind.address != first.address:
                self._next = behind
                break
            end += size
            if size < segment_bytes:
                break
        return first if end == segment_bytes else Train(self._buffer[:end], segment_bytes, first.address)

    def _receive_at(self, offset: int) -> Train | None:
        """Receive the next train into the buffer, from an offset on.

        Return None if there is none, and also after discarding many datagrams in a row, or one behind a datagram that
        came alone. In that case more may wait, and the socket is still readable.
        """
        place = (self._view[offset : offset + _RECEIVE_BYTES],) if offset else self._front
        for _ in _DISCARDS_PER_RECEIVE:
            try:
                size, ancillary, flags, sender = self._recvmsg_into(place, _ANCILLARY_BYTES)
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
                address = sender if self._from_kernel is None else self._from_kernel(sender)
                if address in self.ignored:
                    if self._reads and not self.is_busy:
                        return None  # our own answer to a datagram that came alone: most likely nothing follows
                    continue
                # Only UDP_GRO was asked for, so any control message is the length of the segments.
                segment_bytes = _GRO_SIZE.unpack(ancillary[0][2])[0] if ancillary else size
                if offset:
                    return Train(self._buffer[offset : offset + size], segment_bytes, address)
                if size != self._whole.size:
                    self._whole = self._buffer[:size]
                return Train(self._whole, segment_bytes, address)
        return None
