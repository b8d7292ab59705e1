"""Batches: the group commits of a journal, and the heads of the segments that hold them.

A batch counts only if its checksum, its segment's salt, its LSN, and the checksum of the batch before it are right. The
salt is random for each use of a segment and stays on this disk, so nobody can put a batch into a message.
"""

from struct import Struct
from typing import NamedTuple

from ..disk import SECTOR_BYTES, Buffer, byte_count
from .checksums import PREFERRED, Algorithm, algorithm_of, checksum_of

BATCH_HEAD = Struct(">4sIIIQQQII16x")
SEGMENT_HEAD = Struct(">4sIIIQQQ")
SEGMENT_HEAD_BYTES = SECTOR_BYTES
"""A segment's head is one sector, so that it is never torn."""
CHECKED_FROM = 12
"""Offset in a batch from which its checksum counts."""
_BATCH, _SEGMENT = b"FJB", b"FJS"


class BatchHead(NamedTuple):
    """Head of a batch."""

    algorithm: Algorithm
    length: int
    """Length in bytes, head and padding included."""
    checksum: int
    previous: int
    """Checksum of the batch before."""
    lsn: int
    salt: int
    incarnation: int
    runs: int
    """Number of runs."""


class SegmentHead(NamedTuple):
    """Head of a segment, on disk before the first batch of each use."""

    number: int
    salt: int
    first_lsn: int
    size: int
    """Length of the file."""


def padded(size: int) -> int:
    """Return a length rounded up to whole sectors."""
    return -(-size // SECTOR_BYTES) * SECTOR_BYTES


def seal_batch(parts: list[Buffer], head: BatchHead) -> int:
    """Put the head before a batch's parts and the padding behind them, and return its checksum.

    The head's algorithm, length and checksum are filled in.
    """
    size = BATCH_HEAD.size + sum(map(byte_count, parts))
    length = padded(size)
    if length > size:
        parts.append(bytes(length - size))
    fields = (head.previous, head.lsn, head.salt, head.incarnation, head.runs, 0)
    rest = BATCH_HEAD.pack(b"", 0, 0, *fields)[CHECKED_FROM:]
    checksum = checksum_of(PREFERRED, [rest, *parts])
    parts.insert(0, BATCH_HEAD.pack(PREFERRED.magic(_BATCH), length, checksum, *fields))
    return checksum


def parse_batch_head(data: bytes, length_max: int) -> BatchHead | None:
    """Return a batch's head, or None if the bytes are none. Its checksum is not checked: it covers the batch."""
    if len(data) < BATCH_HEAD.size:
        return None
    magic, length, checksum, previous, lsn, salt, incarnation, runs, flags = BATCH_HEAD.unpack_from(data)
    algorithm = algorithm_of(magic, _BATCH)
    if algorithm is None or flags or length % SECTOR_BYTES or not BATCH_HEAD.size <= length <= length_max:
        return None
    return BatchHead(algorithm, length, checksum, previous, lsn, salt, incarnation, runs)


def encode_segment_head(head: SegmentHead) -> bytes:
    """Return the first sector of a segment."""
    content = SEGMENT_HEAD.pack(b"", 0, head.number, 0, head.salt, head.first_lsn, head.size)[8:]
    checksum = checksum_of(PREFERRED, [content])
    return (PREFERRED.magic(_SEGMENT) + checksum.to_bytes(4, "big") + content).ljust(SEGMENT_HEAD_BYTES, b"\0")


def parse_segment_head(data: bytes) -> SegmentHead | None:
    """Return the head of a segment, or None if the bytes are none."""
    if len(data) != SEGMENT_HEAD_BYTES:
        return None
    magic, checksum, number, zero, salt, first_lsn, size = SEGMENT_HEAD.unpack_from(data)
    algorithm = algorithm_of(magic, _SEGMENT)
    if algorithm is None or zero or any(data[SEGMENT_HEAD.size :]):
        return None
    if checksum_of(algorithm, [data[8 : SEGMENT_HEAD.size]]) != checksum:
        return None
    return SegmentHead(number, salt, first_lsn, size)


MAGICS = tuple(algorithm.magic(_BATCH) for algorithm in Algorithm)
"""Magic numbers of batches."""
