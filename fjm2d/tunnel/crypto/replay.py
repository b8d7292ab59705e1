"""Replay protection: a window of counters that slides with the newest counter."""

import numpy as np
from numpy.typing import NDArray

WINDOW = 1 << 14
"""Width of the window in counters: as many as in 256 trains of 64 datagrams, because trains may overtake each other."""


class ReplayWindow:
    """Window of the counters received.

    A counter is checked before its datagram is opened, and marked after the datagram has proved authentic. So a forged
    datagram never marks a counter.
    """

    __slots__ = ("_seen", "newest")

    def __init__(self) -> None:
        self._seen = np.zeros(WINDOW, np.bool_)
        """True for counters received. A counter's index is its value modulo the window's width."""
        self.newest = -1

    def are_new(self, counters: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return, for each counter, True if it is neither received nor too old. Of equal ones only the first is new."""
        fresh = counters > self.newest - WINDOW
        fresh &= (counters > self.newest) | ~self._seen[counters % WINDOW]
        if not _is_ascending(counters):
            is_first = np.zeros(counters.size, np.bool_)
            is_first[np.unique(counters, return_index=True)[1]] = True
            fresh &= is_first
        return fresh

    def is_new(self, counter: int) -> bool:
        """Return True if a single counter is new. This is quicker than `are_new`."""
        return counter > self.newest or (counter > self.newest - WINDOW and not self._seen[counter % WINDOW])

    def is_too_old(self, counters: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return, for each counter, True if it is below the window."""
        return counters <= self.newest - WINDOW

    def mark(self, counters: NDArray[np.int64]) -> None:
        """Mark counters as received. They must be new."""
        newest = int(counters.max())
        if newest > self.newest:
            self._advance(newest)
        elif newest <= self.newest - WINDOW:
            return
        # A peer may send a train with gaps that is longer than the window: then its beginning is below it already.
        self._seen[counters[counters > self.newest - WINDOW] % WINDOW] = True

    def mark_one(self, counter: int) -> None:
        """Mark a single counter as received."""
        if counter > self.newest:
            self.mark_row(counter, 1)
        else:
            self._seen[counter % WINDOW] = True

    def mark_row(self, first: int, count: int) -> None:
        """Mark this many counters in a row as received, all newer than any before."""
        if first > self.newest + 1:
            self._advance(first - 1)
        self._fill(first, first + count, True)
        self.newest = first + count - 1

    def _advance(self, newest: int) -> None:
        """Slide the window up to a newer counter. The counters that enter it are not received."""
        self._fill(self.newest + 1, newest + 1, False)
        self.newest = newest

    def _fill(self, first: int, after: int, is_seen: bool) -> None:
        """Set the marks of the counters from `first` up to, but not including, `after`."""
        if after - first >= WINDOW:
            self._seen[:] = is_seen
            return
        start, end = first % WINDOW, after % WINDOW
        if start <= end:
            self._seen[start:end] = is_seen
        else:
            self._seen[start:] = is_seen
            self._seen[:end] = is_seen


def _is_ascending(counters: NDArray[np.int64]) -> bool:
    return counters.size < 2 or bool((counters[1:] > counters[:-1]).all())
