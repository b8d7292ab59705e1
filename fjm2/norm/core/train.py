"""The train: datagrams laid end to end in one buffer, as the engine receives and sends them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

TRAIN_SEGMENTS_MAX = 64
"""Maximum number of datagrams in a train: the kernel's limit for one send with UDP_SEGMENT (UDP_MAX_SEGMENTS of older
kernels)."""
TRAIN_BYTES_MAX = 65_507
"""Maximum number of bytes in a train: the payload of the longest IPv4 datagram, and also the most that UDP_SEGMENT
accepts."""
_SEAL_BYTES = 28
"""Bytes that a gateway adds to each segment of a train that it seals."""
MADE_TRAIN_BYTES_MAX = TRAIN_BYTES_MAX - _SEAL_BYTES * TRAIN_SEGMENTS_MAX
"""Maximum number of bytes in a train that a NORM sender makes. A gateway can seal its segments and still send it as one
train."""

Address = tuple[str, int]
"""Host and port. An IPv6 scope is part of the host, as in "fe80::1%eth0"."""


@dataclass(slots=True, eq=False)
class Train:
    """Datagrams laid end to end: all `segment_bytes` long, except that the last may be shorter."""

    data: NDArray[np.uint8]
    """Bytes of all datagrams, contiguous. A received train is borrowed: copy what you keep before you return."""
    segment_bytes: int
    address: Address
    """Destination of a train to send, or source of a received train."""

    @property
    def count(self) -> int:
        """Number of datagrams."""
        return -(-self.data.size // self.segment_bytes)
