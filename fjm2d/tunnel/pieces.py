"""Trains of the LAN's on their way out: cut to what one send can take, and into parts where the path is too narrow."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .fragments import PART_HEADER_BYTES, Splitter, part_bytes_of
from .link_queue import Parcel
from .wire import OVERHEAD_BYTES, PART_FLAG

TRAIN_BYTES_MAX = 65_507
TRAIN_SEGMENTS_MAX = 64


class Piece(NamedTuple):
    """What is sealed at once."""

    data: NDArray[np.uint8]
    segment_bytes: int
    kind: int


def wire_bytes(segment_bytes: int, room: int, ip_bytes: int) -> int:
    """What a datagram takes of a link that carries `room` bytes in one piece; 0: it cannot be carried."""
    around = OVERHEAD_BYTES + ip_bytes
    if segment_bytes <= room:
        return segment_bytes + around
    part = part_bytes_of(segment_bytes, room)
    return part and -(-segment_bytes // part) * (part + PART_HEADER_BYTES + around)


def is_one_piece(size: int, segment_bytes: int, room: int) -> bool:
    """Whether a train can be sealed as it is."""
    return segment_bytes <= room and size <= _most_segments(segment_bytes) * segment_bytes


def pieces(parcel: Parcel, room: int, splitter: Splitter) -> Iterator[Piece]:
    """A parcel as trains that one send can take; nothing, if it can't be carried."""
    if parcel.segment_bytes <= room:
        yield from _cut(parcel.data, parcel.segment_bytes, parcel.kind)
        return
    part = part_bytes_of(parcel.segment_bytes, room)
    if not part:
        return
    # Parts of one datagram leave in one train where they can: joining them costs least that way.
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
    """How many datagrams a train may have, before they are sealed."""
    return max(1, min(TRAIN_SEGMENTS_MAX, TRAIN_BYTES_MAX // (segment_bytes + OVERHEAD_BYTES)))
