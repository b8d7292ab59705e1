"""Settings of a store."""

from dataclasses import dataclass
from enum import IntEnum

from fjm2.base.errors import ConfigError

from .disk import SECTOR_BYTES


class Need(IntEnum):
    """Reasons to write, each with the number of segments that it leaves to those below."""

    MESSAGE = 3
    """A message of a writer, who sends it again until it is stored."""
    FETCHED = 2
    """A frame that another keeper has on disk. Without it a keeper cannot become the manager, and nobody makes room."""
    COPIED = 1
    """A live frame that is copied on, so that its segment can be used anew."""
    URGENT = 0
    """A request or a decision: by these consumers make room."""


RESERVED_SEGMENTS = int(Need.MESSAGE)
"""Segments that messages never fill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Sizes and limits of a store."""

    segment_bytes: int = 64 << 20
    """Length of a segment. It is written with zeros before use, because fdatasync into such a file takes a tenth."""
    store_bytes_max: int = 10 << 30
    """Bytes that all segments may take."""
    checkpoint_bytes: int = 1 << 30
    """Bytes of batches after which a checkpoint is due. More make checkpoints rarer, and opening slower."""
    checkpoint_batches: int = 200_000
    """Batches after which a checkpoint is due: short batches take as long to read again as long ones."""
    batch_bytes: int = 4 << 20
    """Length at which a batch takes no further runs. A single append may be longer."""
    pending_bytes_max: int = 64 << 20
    """Bytes that may wait for the disk in memory. `append` refuses more."""
    compact_segments: int = 10
    """Segments up to which live frames are never copied on. The number is that of Artemis."""
    compact_live: float = 0.3
    """Live share of the segments below which live frames are copied on. The number is that of Artemis."""

    def __post_init__(self) -> None:
        if self.segment_bytes % SECTOR_BYTES or not 8 << 10 <= self.segment_bytes <= 1 << 31:
            raise ConfigError.of("segment_bytes", self.segment_bytes, "a multiple of 512, from 8 KiB to 2 GiB")
        least = (RESERVED_SEGMENTS + 3) * self.segment_bytes
        if self.store_bytes_max < least:
            raise ConfigError.of("store_bytes_max", self.store_bytes_max, f"at least 6 segments ({least})")
        for name in ("checkpoint_bytes", "checkpoint_batches", "batch_bytes", "pending_bytes_max"):
            if getattr(self, name) < 1:
                raise ConfigError.of(name, getattr(self, name), "at least 1")
        if not 0 <= self.compact_live < 1:
            raise ConfigError.of("compact_live", self.compact_live, "at least 0 and less than 1")
