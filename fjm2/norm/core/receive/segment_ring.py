"""Memory for the segments of a stream that arrive before earlier ones."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from .stores import lazy_memory

_PAGE_BYTES = 4096
"""Least memory in bytes that one stored segment takes: the kernel allocates whole pages."""


class SegmentRing:
    """Ring of rows that hold segments by index. A row is reused `rows` segments later. Memory is taken when needed."""

    __slots__ = ("_memory", "_row_bytes", "_touched", "rows")

    def __init__(self, rows: int, row_bytes: int) -> None:
        self.rows = rows
        self._row_bytes = row_bytes
        self._memory: NDArray[np.uint8] | None = None
        self._touched = 0
        """Upper bound of the number of rows that were ever written."""

    @property
    def is_allocated(self) -> bool:
        """True if a segment was ever stored."""
        return self._memory is not None

    @property
    def claimed_bytes(self) -> int:
        """Memory of the whole ring, in bytes."""
        return self.rows * self._row_bytes

    @property
    def memory_bytes(self) -> int:
        """Memory of the rows that were written, in bytes."""
        return min(self._touched * max(self._row_bytes, _PAGE_BYTES), self.claimed_bytes)

    def store(self, ranges: Iterable[tuple[int, int]], first: int, segments: NDArray[np.uint8]) -> None:
        """Store the segments whose indexes are in `ranges`. Row 0 of `segments` has the index `first`."""
        memory, size = self._allocated(), segments.shape[1]
        for start, stop in ranges:
            self._touched = min(self._touched + stop - start, self.rows)
            while start < stop:
                row = start % self.rows
                count = min(stop - start, self.rows - row)
                memory[row : row + count, :size] = segments[start - first : start - first + count]
                memory[row : row + count, size:] = 0
                start += count

    def run(self, first: int, end: int) -> NDArray[np.uint8]:
        """Return the segments from `first` to before `end`, but none beyond the end of the ring's memory."""
        row = first % self.rows
        return self._allocated()[row : min(row + end - first, self.rows)]

    def _allocated(self) -> NDArray[np.uint8]:
        if self._memory is None:
            self._memory = lazy_memory(self.rows * self._row_bytes).reshape(self.rows, self._row_bytes)
        return self._memory
