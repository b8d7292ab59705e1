"""Payload ids of source segments in wire format. They are made in pages, so that for most trains they are ready."""

import numpy as np
from numpy.typing import NDArray

from .nack import ObjectLayout

_PAGE_SEGMENTS = 1024
"""Number of ids in a page: enough for 16 trains, and few enough to stay in the processor's cache."""


class IdPages:
    """Pages of payload ids of one object's source segments. Id formats with a block length are not supported."""

    __slots__ = ("_dtype", "_first", "_ids", "_layout", "_wire")

    def __init__(self, layout: ObjectLayout) -> None:
        self._layout = layout
        self._dtype = np.dtype(f">u{layout.format.size}")
        self._first = 0
        self._ids: NDArray[np.unsignedinteger] = np.empty(0, self._dtype)
        self._wire = b""

    def of(self, first: int, count: int) -> NDArray[np.unsignedinteger]:
        """Return the payload ids of `count` consecutive segments, which must lie in one region."""
        at = first - self._first
        if at < 0 or at + count > len(self._ids):
            left = self._layout.partition.region(first).end - first
            ids = self._layout.payload_ids(first, min(left, max(count, _PAGE_SEGMENTS)))
            self._ids = ids.astype(self._dtype)
            self._wire = self._ids.tobytes()
            self._first, at = first, 0
        return self._ids[at : at + count]

    def wire_of(self, index: int) -> bytes:
        """Return the bytes of the payload id of one segment."""
        at = index - self._first
        if not 0 <= at < len(self._ids):
            self.of(index, 1)
            at = 0
        size = self._ids.itemsize
        return self._wire[at * size : (at + 1) * size]
