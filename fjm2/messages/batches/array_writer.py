"""Frames of many messages at once: headers written as one array, and joined with the bodies once."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..frame import FRAME_BYTES_MAX, FrameWriter, Parts, too_large
from ..header import HEADER, HEADER_BYTES, VERSION
from .frame_array import ARRAY_MESSAGES_MAX, FrameArray, FrameSettings
from .property_columns import PropertyColumns

HEADERS: Final = np.dtype(
    [
        ("version", "u1"),
        ("kind", "u1"),
        ("flags", "u1"),
        ("priority", "u1"),
        ("frame_bytes", ">u4"),
        ("destination_hash", ">u4"),
        ("name_bytes", ">u2"),
        ("reserved", "u1"),
        ("marks", "u1"),
        ("property_bytes", ">u4"),
        ("section_bytes", ">u4"),
        ("connection_id", ">u8"),
        ("number", ">u8"),
        ("timestamp", ">i8"),
        ("expiration", ">i8"),
    ]
)
"""Fields of `header.HEADER`, for numpy."""
ARRAY_BYTES_MAX: Final = 1 << 20
"""Size at which a new array begins: as much as a stream collects before its writer has to wait."""
_COPIED_BYTES_MAX: Final = 512
"""Size of the largest frames that are copied into an array, rather than joined: larger ones cost more to copy."""


def write_frames(
    writer: FrameWriter,
    settings: FrameSettings,
    bodies: Sequence[bytes],
    properties: PropertyColumns,
    messages_max: int = ARRAY_MESSAGES_MAX,
) -> list[FrameArray]:
    """Return the frames of messages with these encoded bodies, in arrays of at most `messages_max` frames. Raise
    JMSError if one is too large."""
    count, rows = len(bodies), properties.rows
    if not count:
        return []
    name = settings.destination.encoded_name
    common = HEADER_BYTES + len(name) + len(properties.shared) + len(settings.sections)
    sizes = np.fromiter(map(len, bodies), np.int64, count) + common
    row_sizes = None if rows is None else np.fromiter(map(len, rows), np.int64, count)
    if row_sizes is not None:
        sizes += row_sizes
    longest = int(sizes.max())
    if longest > FRAME_BYTES_MAX:
        raise too_large(longest)
    header = HEADER.pack(
        VERSION,
        settings.kind,
        settings.flags | settings.destination.kind_flags,
        settings.priority,
        0,
        settings.destination.frame_hash,
        len(name),
        len(properties.shared),
        len(settings.sections),
        writer.connection_id,
        0,
        settings.timestamp,
        settings.expiration,
    )
    head = header + name + properties.shared + (settings.sections if rows is None else b"")
    heads = np.frombuffer(bytearray(head * count), np.uint8).reshape(count, len(head))
    fields = heads[:, :HEADER_BYTES].view(HEADERS)[:, 0]
    fields["frame_bytes"] = sizes
    fields["number"] = np.arange(writer.number + 1, writer.number + 1 + count, dtype=np.uint64)
    if row_sizes is not None:
        fields["property_bytes"] += row_sizes.astype(np.uint32)
    first = HEADER_BYTES + len(name)
    for place, cells in properties.cells:
        at = first + place
        heads[:, at : at + cells.itemsize] = cells.view(np.uint8).reshape(count, cells.itemsize)
    writer.number += count
    if rows is None and sizes[0] <= _COPIED_BYTES_MAX and (sizes == sizes[0]).all():
        return [_equal_array(heads[start:end], bodies[start:end]) for start, end in _cuts(sizes, messages_max)]
    pieces = [heads.view(f"V{len(head)}")[:, 0].tolist(), bodies]
    if rows is not None:
        pieces.insert(1, [row + settings.sections for row in rows] if settings.sections else rows)
    return [
        _array_of([one[start:end] for one in pieces], sizes[start:end]) for start, end in _cuts(sizes, messages_max)
    ]


def join_frames(frames: Sequence[Parts], messages_max: int = ARRAY_MESSAGES_MAX) -> list[FrameArray]:
    """Return frames that were written one by one as arrays."""
    sizes = np.fromiter((len(head) + len(body) for head, body in frames), np.int64, len(frames))
    pieces = [[head for head, _ in frames], [body for _, body in frames]]
    return [
        _array_of([one[start:end] for one in pieces], sizes[start:end]) for start, end in _cuts(sizes, messages_max)
    ]


def _equal_array(heads: NDArray[np.uint8], bodies: Sequence[bytes]) -> FrameArray:
    """Return frames whose bodies have one size. To copy these costs less than to join each with its head."""
    count, head_bytes = heads.shape
    size = head_bytes + len(bodies[0])
    frames = np.empty((count, size), np.uint8)
    frames[:, :head_bytes] = heads
    frames[:, head_bytes:] = np.frombuffer(b"".join(bodies), np.uint8).reshape(count, size - head_bytes)
    return FrameArray([frames.tobytes()], list(range(0, count * size, size)), count * size)


def _array_of(pieces: list[Sequence[bytes]], sizes: NDArray[np.int64]) -> FrameArray:
    kinds, count = len(pieces), len(sizes)
    laid: list[bytes] = [b""] * (kinds * count)
    for place, piece in enumerate(pieces):
        laid[place::kinds] = piece
    ends = np.cumsum(sizes)
    return FrameArray(laid, (ends - sizes).tolist(), int(ends[-1]))


def _cuts(sizes: NDArray[np.int64], messages_max: int) -> Iterator[tuple[int, int]]:
    """Return the first index and the end of each array."""
    ends = np.cumsum(sizes).tolist()
    start = 0
    while start < len(ends):
        before = ends[start - 1] if start else 0
        end = max(start + 1, min(start + messages_max, bisect_right(ends, before + ARRAY_BYTES_MAX)))
        yield start, end
        start = end
