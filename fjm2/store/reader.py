"""Reading frames: a plan of what lies where, which any thread may carry out."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from .disk import Disk
from .index import LENGTH, OFFSET, SEGMENT, Entries, Places, Sequences
from .segments import Segment

_GAP_BYTES = 4096
"""Bytes between two frames up to which both are read by one call: a call takes as long as copying them."""
_EXTENT_BYTES_MAX = 1 << 20


@dataclass(slots=True, eq=False)
class Read:
    """Frames of one ledger, in the order of their sequences."""

    sequences: Sequences
    """Sequence of each frame."""
    resume_at: int | None
    """Sequence to go on from, or None if there are no more."""
    _places: Places
    _segments: dict[int, tuple[Segment, int]]
    """Segments by number, with the salt of the use that the frames belong to."""

    @classmethod
    def of(cls, parts: list[Entries], resume_at: int | None, used: dict[int, Segment]) -> Self:
        """Return the plan to read frames of used segments."""
        sequences = np.concatenate([part.sequences for part in parts])
        places = np.concatenate([part.places for part in parts])
        segments = {number: (used[number], used[number].salt) for number in np.unique(places[:, SEGMENT]).tolist()}
        return cls(sequences, resume_at, places, segments)

    def fetch(self, disk: Disk) -> list[bytes | None]:
        """Return the frames. A frame that the disk does not give, or that is gone by now, is None."""
        frames: list[bytes | None] = []
        for low, high in _extents(self._places):
            frames += self._fetch(disk, self._places[low:high])
        return frames

    def _fetch(self, disk: Disk, places: Places) -> "list[bytes] | list[None]":
        data = self._extent(disk, places)
        if data is None:
            return [None] * len(places)
        offsets = (places[:, OFFSET] - places[0, OFFSET]).tolist()
        lengths = places[:, LENGTH].tolist()
        return [data[at : at + length] for at, length in zip(offsets, lengths, strict=True)]

    def fetch_heads(self, disk: Disk, size: int) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        """Return the first `size` bytes of each frame as a row, and True for each row that was read.

        A frame that is shorter has no head. What lies between the heads of long frames is not read.
        """
        places = self._places.copy()
        is_read = places[:, LENGTH] >= size
        places[:, LENGTH] = np.minimum(places[:, LENGTH], size)
        heads = np.zeros((len(places), size), np.uint8)
        columns = np.arange(size)
        for low, high in _extents(places):
            data = self._extent(disk, places[low:high])
            if data is None:
                is_read[low:high] = False
                continue
            rows = low + np.flatnonzero(is_read[low:high])
            offsets = (places[rows, OFFSET] - places[low, OFFSET]).astype(np.int64)
            heads[rows] = np.frombuffer(data, np.uint8)[offsets[:, None] + columns]
        return heads, is_read

    def _extent(self, disk: Disk, places: Places) -> bytes | None:
        """Return the bytes from the first place through the last one."""
        segment, salt = self._segments[int(places[0, SEGMENT])]
        start = int(places[0, OFFSET])
        end = int(places[-1, OFFSET]) + int(places[-1, LENGTH])
        try:
            data = disk.pread(segment.file, end - start, start)
        except OSError:
            return None
        # A segment changes its salt before its next use overwrites anything.
        return data if len(data) == end - start and segment.salt == salt else None


def _extents(places: Places) -> list[tuple[int, int]]:
    """Return positions of frames, from and to, that are read by one call each."""
    if not len(places):
        return []
    offsets = places[:, OFFSET].astype(np.int64)
    ends = offsets + places[:, LENGTH]
    gaps = offsets[1:] - ends[:-1]
    is_break = (gaps < 0) | (gaps > _GAP_BYTES) | (np.diff(places[:, SEGMENT].astype(np.int64)) != 0)
    bounds = [0, *(np.flatnonzero(is_break) + 1).tolist(), len(places)]
    found = []
    for low, high in pairwise(bounds):
        # Long stretches are cut, so that what is fetched is not in memory twice as a whole.
        while low < high:
            limit = int(offsets[low]) + _EXTENT_BYTES_MAX
            cut = max(low + 1, low + int(np.searchsorted(ends[low:high], limit)))
            found.append((low, cut))
            low = cut
    return found


def limited(entries: Entries, bytes_max: int) -> Entries:
    """Return the first entries whose frames have `bytes_max` bytes in all, the one that passes the limit included."""
    ends = np.cumsum(entries.places[:, LENGTH], dtype=np.int64)
    count = int(np.searchsorted(ends, bytes_max)) + 1
    return Entries(entries.sequences[:count], entries.places[:count])


def nothing_read() -> Read:
    """Return a plan without frames."""
    return Read(np.empty(0, np.uint64), None, np.empty((0, 3), np.uint32), {})
