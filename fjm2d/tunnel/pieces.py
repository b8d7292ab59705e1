"""Pieces of a queued train: each fits into one send, and holds parts where the datagrams are too long for the path."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .fragments import PART_HEADER_BYTES, Splitter, part_bytes_of
from .link_queue import Parcel
from .wire import OVERHEAD_BYTES, PART_FLAG

TRAIN_BYTES_MAX = 65_507
"""Longest UDP payload over IPv4, and so the longest train for segmentation offload (UDP_SEGMENT)."""
TRAIN_SEGMENTS_MAX = 64
"""Maximum number of datagrams that every Linux takes in one send (UDP_MAX_SEGMENTS, which newer kernels have raised).
"""


class Piece(NamedTuple):
    """A train that is sealed and sent in one step."""

    data: NDArray[np.uint8]
    segment_bytes: int
    kind: int


def wire_bytes(segment_bytes: int, room: int, ip_bytes: int) -> int:
    """Return the bytes that a datagram takes on the link; 0 if it cannot be carried.

    `room` is the longest datagram that fits into one packet.
    """
    header_bytes = OVERHEAD_BYTES + ip_bytes
    if segment_bytes <= room:
        return segment_bytes + header_bytes
    part = part_bytes_of(segment_bytes, room)
    return part and -(-segment_bytes // part) * (part + PART_HEADER_BYTES + header_bytes)


def is_one_piece(size: int, segment_bytes: int, room: int) -> bool:
    """Return True if a train can be sealed as it is."""
    return segment_bytes <= room and size <= _most_segments(segment_bytes) * segment_bytes


def pieces(parcel: Parcel, room: int, splitter: Splitter) -> Iterator[Piece]:
    """Yield the pieces of a parcel, each a train that fits into one send. Yield none if it cannot be carried."""
    if parcel.segment_bytes <= room:
        yield from _cut(parcel.data, parcel.segment_bytes, parcel.kind)
        return
    part = part_bytes_of(parcel.segment_bytes, room)
    if not part:
        return
    # Keep the parts of a datagram in one train where possible: then joining them costs least.
    parts = -(-parcel.segment_bytes // part)
    step = max(1, _most_segments(part + PART_HEADER_BYTES) // parts) * parcel.segment_bytes
    for start in range(0, parcel.data.size, step):
        for train in splitter.split(parcel.data[start : start + step], parcel.segment_bytes, room):
            yield from _cut(train.data, train.segment_bytes, parcel.kind | PART_FLAG)


def _cut(data: NDArray[np.uint8], segment_bytes: int, kind: int) -> Iterator[Piece]:
    step = _most_segments(segment_bytes) * segment_bytes
    for start in range(0, data.size, step):
        yield Piece(data[start : start + step], segment_bytes, kind)


def _most_segments(segment_bytes: int) -> int:
    """Return the most datagrams of this length, before sealing, that a train may have."""
    return max(1, min(TRAIN_SEGMENTS_MAX, TRAIN_BYTES_MAX // (segment_bytes + OVERHEAD_BYTES)))
