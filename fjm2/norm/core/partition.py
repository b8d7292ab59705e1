"""Partition of an object into blocks and segments. Every node computes it from the sizes of object, segment and block.

Outside this module a source segment is known by its *index*, counted from the beginning of the object. Blocks and
symbols are terms of the wire format.
"""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

UNBOUNDED = 1 << 62
"""Number of segments and blocks of a stream: more than can ever be sent."""


class Region(NamedTuple):
    """Consecutive blocks of equal length."""

    start: int
    """Index of the first segment."""
    end: int
    """Index after the last segment."""
    first_block: int
    block_segments: int


class Partition(Protocol):
    """Mapping of an object's segment indexes to blocks and symbols, and back."""

    @property
    def segments(self) -> int:
        """Number of source segments of the object."""
        ...

    @property
    def blocks(self) -> int:
        """Number of blocks of the object."""
        ...

    def region(self, index: int) -> Region:
        """Return the region that contains a segment: consecutive blocks that are as long as the segment's own block."""
        ...

    def block_length(self, block: int) -> int:
        """Return the number of source segments of a block."""
        ...

    def first_segment(self, block: int) -> int:
        """Return the index of a block's first segment."""
        ...

    def indexes(self, blocks: NDArray[np.int64], symbols: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the segment indexes of symbols. The index of a symbol that is no source symbol of its block is -1."""
        ...


def locate(partition: Partition, index: int) -> tuple[int, int]:
    """Return the block number and the symbol id of the segment with an index."""
    region = partition.region(index)
    block, symbol = divmod(index - region.start, region.block_segments)
    return region.first_block + block, symbol


class ObjectPartition:
    """Partition of DATA and FILE objects (RFC 5052, 9.1): longer blocks, then blocks that are one segment shorter."""

    __slots__ = ("_large", "_large_end", "_small", "blocks", "object_bytes", "segment_bytes", "segments")

    def __init__(self, object_bytes: int, segment_bytes: int, block_segments: int) -> None:
        if object_bytes < 0 or segment_bytes < 1 or block_segments < 1:
            sizes = (object_bytes, segment_bytes, block_segments)
            raise ValueError(f"{sizes}: expected bytes >= 0, segment bytes >= 1, block segments >= 1")
        self.object_bytes = object_bytes
        self.segment_bytes = segment_bytes
        self.segments = -(-object_bytes // segment_bytes)
        self.blocks = -(-self.segments // block_segments)
        """Number of blocks; 0 for an empty object."""
        self._small, self._large = divmod(self.segments, self.blocks) if self.blocks else (0, 0)
        self._large_end = self._large * (self._small + 1)

    def region(self, index: int) -> Region:
        if index < self._large_end:
            return Region(0, self._large_end, 0, self._small + 1)
        return Region(self._large_end, self.segments, self._large, self._small)

    def block_length(self, block: int) -> int:
        return self._small + (block < self._large)

    def first_segment(self, block: int) -> int:
        return block * self._small + min(block, self._large)

    def indexes(self, blocks: NDArray[np.int64], symbols: NDArray[np.int64]) -> NDArray[np.int64]:
        indexes = blocks * self._small + np.minimum(blocks, self._large) + symbols
        indexes[symbols >= self._small + (blocks < self._large)] = -1
        indexes[blocks >= self.blocks] = -1
        return indexes

    def segment_length(self, index: int) -> int:
        """Return the length of a segment in bytes. Only the last segment can be shorter than `segment_bytes`."""
        return min(self.segment_bytes, self.object_bytes - index * self.segment_bytes)


class StreamPartition:
    """Partition of a STREAM: an endless sequence of blocks of equal length."""

    __slots__ = ("block_segments",)

    segments = UNBOUNDED
    blocks = UNBOUNDED

    def __init__(self, block_segments: int) -> None:
        self.block_segments = block_segments

    def region(self, index: int) -> Region:  # noqa: ARG002 - there is only one region
        return Region(0, UNBOUNDED, 0, self.block_segments)

    def block_length(self, block: int) -> int:  # noqa: ARG002
        return self.block_segments

    def first_segment(self, block: int) -> int:
        return block * self.block_segments

    def indexes(self, blocks: NDArray[np.int64], symbols: NDArray[np.int64]) -> NDArray[np.int64]:
        indexes = blocks * self.block_segments + symbols
        indexes[symbols >= self.block_segments] = -1
        return indexes
