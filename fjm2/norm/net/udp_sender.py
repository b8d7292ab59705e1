"""Sending by a UDP socket: whole trains by UDP_SEGMENT, or one datagram at a time where that does not work."""

import errno
import os
import socket
import struct
from collections.abc import Callable
from typing import Final

from fjm2.norm.core.train import TRAIN_BYTES_MAX, TRAIN_SEGMENTS_MAX, Address, Train

from .kernel_addresses import KernelAddresses
from .udp_stats import UdpStats

UDP_SEGMENT: Final = 103
"""Socket option and control message of Linux (linux/udp.h) that the socket module lacks."""
_SEGMENT_SIZE = struct.Struct("=H")
_SEGMENT_BYTES_LIMIT: Final = 1 << 16
"""Number of bytes that is more than the length of any UDP datagram."""

_SEGMENTATION_REFUSED: Final = frozenset({errno.EIO, errno.EINVAL, errno.EMSGSIZE})
"""Errors of sending a train by UDP_SEGMENT. EIO: the interface cannot compute checksums. EINVAL and EMSGSIZE: its
packets are too small."""
_UNREACHABLE: Final = frozenset(
    {errno.ENETDOWN, errno.ENETUNREACH, errno.ENODEV, errno.EADDRNOTAVAIL, errno.EHOSTUNREACH}
)
"""Errors of a send for which there is no route or no interface at present."""
_REFUSED: Final = frozenset({errno.EPERM, errno.EACCES})
"""Errors of a send that a firewall or a prohibiting route of this host refuses."""
_NO_WAY_OUT: Final = _UNREACHABLE | _REFUSED
_HOPELESS: Final = _UNREACHABLE | {errno.EINVAL, errno.EMSGSIZE}
"""Errors that, if they hit one datagram of a train, will hit the others as well."""


class TrainSender:
    """Sending half of `UdpSocket`. It sends trains by one socket of the kernel, without waiting."""

    def __init__(self, stats: UdpStats) -> None:
        self.stats = stats
        """Counters that the sockets of a session share."""
        self._failure = 0
        """Error number of the last send if there was no way out for it; 0 otherwise."""

    @property
    def is_failing(self) -> bool:
        """True if the last send found no route or no interface, as when the interface is down, or was refused."""
        return self._failure != 0

    @property
    def refusal(self) -> str | None:
        """The kernel's reason if it refused the last send, as a firewall makes it do; None otherwise."""
        return os.strerror(self._failure) if self._failure in _REFUSED else None

    def _bind_sender(self, kernel: socket.socket, addresses: KernelAddresses, offload: bool) -> None:
        """Send by `kernel` from now on, and forget a train that was half sent."""
        self._to_kernel = None if addresses.is_ipv4 else addresses.to_kernel
        # Looked up once. Arrays are buffers, though their types do not say so before Python 3.12.
        self._sendto: Callable[..., int] = kernel.sendto
        self._sendmsg: Callable[..., int] = kernel.sendmsg
        self._segments_below = _SEGMENT_BYTES_LIMIT if offload else 0
        """Length in bytes. Trains whose segments are shorter than this are sent by one system call."""
        self._ancillary_bytes, self._ancillary = 0, [(socket.IPPROTO_UDP, UDP_SEGMENT, b"")]
        """The latest segment length, and the control message that tells it to the kernel."""
        self._held: Train | None = None
        self._held_from = 0
        """Offset from which the held train is still to be sent."""

    def send(self, train: Train) -> bool:
        """Send a train. Return True if the train was sent, or lost by an error, which is counted.

        Return False if the kernel's buffer is full. Then call again with the same train: sending goes on where it
        stopped.
        """
        size, segment_bytes = train.data.size, train.segment_bytes
        if size > segment_bytes and (
            segment_bytes >= self._segments_below
            or size > TRAIN_BYTES_MAX
            or size > TRAIN_SEGMENTS_MAX * segment_bytes
            or self._held is not None
        ):
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
        self._failure = 0
        return True

    def send_alone(self, datagram: memoryview, address: Address) -> bool:
        """Do the same for a single datagram."""
        try:
            self._sendto(datagram, address if self._to_kernel is None else self._to_kernel(address))
        except BlockingIOError:
            self.stats.sends_blocked += 1
            return False
        except OSError as error:
            self._count_failure(error)
            return True
        self._failure = 0
        return True

    def _send_at_once(self, data: memoryview, segment_bytes: int, address: Address) -> None:
        destination = address if self._to_kernel is None else self._to_kernel(address)
        if len(data) <= segment_bytes:
            self._sendto(data, destination)
            return
        if segment_bytes != self._ancillary_bytes:
            packed = _SEGMENT_SIZE.pack(segment_bytes)
            self._ancillary_bytes, self._ancillary = segment_bytes, [(socket.IPPROTO_UDP, UDP_SEGMENT, packed)]
        self._sendmsg((data,), self._ancillary, 0, destination)

    def _send_in_pieces(self, train: Train) -> bool:
        """Send a train in pieces, each as long as the kernel accepts, beginning where sending stopped the last time."""
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
                    self._segments_below = before  # a single datagram fails as well: segmentation is not to blame
                    return True
            else:
                self._failure = 0
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
        self._failure = error.errno if error.errno in _NO_WAY_OUT else 0
