"""How an object is cut into blocks and segments (RFC 5052, 9.1): the same way at every node, from three numbers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Partition:
    """The blocks of a DATA or FILE object: a few that are one segment larger, then the rest."""

    object_bytes: int
    segment_bytes: int
    block_segments: int
    """Most source segments that a block may have."""

    def __post_init__(self) -> None:
        if self.object_bytes < 0 or self.segment_bytes < 1 or self.block_segments < 1:
            raise ValueError(f"{self}: expected 0 or more, 1 or more, 1 or more")

    @property
    def segments(self) -> int:
        """Source segments of the object."""
        return -(-self.object_bytes // self.segment_bytes)

    @property
    def blocks(self) -> int:
        """Blocks of the object; an empty one has none."""
        return -(-self.segments // self.block_segments)

    @property
    def _small(self) -> tuple[int, int]:
        """Segments of a small block, and the number of blocks that have one more."""
        return divmod(self.segments, self.blocks)

    def block_length(self, block: int) -> int:
        """Source segments of a block."""
        small, large_blocks = self._small
        return small + (block < large_blocks)

    def first_segment(self, block: int) -> int:
        """The number, within the object, of a block's first segment."""
        small, large_blocks = self._small
        return block * small + min(block, large_blocks)

    def locate(self, segment: int) -> tuple[int, int]:
        """The block of a segment, and the segment's symbol id there."""
        small, large_blocks = self._small
        in_large = large_blocks * (small + 1)
        if segment < in_large:
            return divmod(segment, small + 1)
        block, symbol = divmod(segment - in_large, small)
        return large_blocks + block, symbol

    def segment_length(self, segment: int) -> int:
        """Bytes of a segment: all are full but for the object's last."""
        if segment == self.segments - 1:
            return self.object_bytes - segment * self.segment_bytes
        return self.segment_bytes
