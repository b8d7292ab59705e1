"""The unit at the engine's edges: a train of datagrams in one buffer."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

TRAIN_SEGMENTS_MAX = 64
"""The kernel's limit for one UDP_SEGMENT send (UDP_MAX_SEGMENTS of older kernels)."""
TRAIN_BYTES_MAX = 65_507
"""What one IPv4 datagram can carry, which is also the most that UDP_SEGMENT takes."""
MADE_TRAIN_BYTES_MAX = TRAIN_BYTES_MAX - 28 * TRAIN_SEGMENTS_MAX
"""Of the trains that are made here: a gateway can seal each segment, and it is still one train."""

Address = tuple[str, int]
"""Host and port. IPv6 scopes are part of the host, as in "fe80::1%eth0"."""


@dataclass(slots=True, eq=False)
class Train:
    """Datagrams laid end to end: all `segment_bytes` long, except that the last may be shorter."""

    data: NDArray[np.uint8]
    """Contiguous. On receipt it is borrowed: copy what you keep before you return."""
    segment_bytes: int
    address: Address
    """To whom it goes, or from whom it came."""

    @property
    def count(self) -> int:
        """Datagrams."""
        return -(-self.data.size // self.segment_bytes)
