"""Payload ids of source segments in wire format, made a page at a time, so that most trains find theirs ready."""

import numpy as np
from numpy.typing import NDArray

from .nack import ObjectLayout

_PAGE_SEGMENTS = 1024
"""Ids made at once: enough for 16 trains, and few enough to stay in a cache."""


class IdPages:
    """Payload ids of one object, in formats without a block length."""

    __slots__ = ("_dtype", "_first", "_ids", "_layout")

    def __init__(self, layout: ObjectLayout) -> None:
        self._layout = layout
        self._dtype = np.dtype(f">u{layout.format.size}")
        self._first = 0
        self._ids: NDArray[np.unsignedinteger] = np.empty(0, self._dtype)

    def of(self, first: int, count: int) -> NDArray[np.unsignedinteger]:
        """Return the ids of consecutive segments of one region."""
        at = first - self._first
        if at < 0 or at + count > len(self._ids):
            left = self._layout.partition.region(first).end - first
            ids = self._layout.payload_ids(first, min(left, max(count, _PAGE_SEGMENTS)))
            self._ids = ids.astype(self._dtype)
            self._first, at = first, 0
        return self._ids[at : at + count]
