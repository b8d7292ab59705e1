"""Which counters have been seen: a window that slides with the newest."""

import numpy as np
from numpy.typing import NDArray

WINDOW = 1 << 14
"""Counters below the newest that may still come. Trains overtake each other, and one has 64."""


class ReplayWindow:
    """Counters are looked at before a datagram is opened, and marked after it has proved authentic.

    Nothing is marked that a stranger can send.
    """

    __slots__ = ("_seen", "newest")

    def __init__(self) -> None:
        self._seen = np.zeros(WINDOW, np.bool_)
        """Of each counter in the window, at its place modulo the window's width."""
        self.newest = -1

    def are_new(self, counters: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of them have not been seen and are not too old. Of equal ones in a train only the first is new."""
        fresh = counters > self.newest - WINDOW
        fresh &= (counters > self.newest) | ~self._seen[counters % WINDOW]
        if not _is_ascending(counters):
            is_first = np.zeros(counters.size, np.bool_)
            is_first[np.unique(counters, return_index=True)[1]] = True
            fresh &= is_first
        return fresh

    def is_new(self, counter: int) -> bool:
        """The same of one, in less time."""
        return counter > self.newest or (counter > self.newest - WINDOW and not self._seen[counter % WINDOW])

    def is_too_old(self, counters: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which are from before the window."""
        return counters <= self.newest - WINDOW

    def mark(self, counters: NDArray[np.int64]) -> None:
        """They are authentic. All must have been new a moment ago."""
        newest = int(counters.max())
        if newest > self.newest:
            self._advance(newest)
        elif newest <= self.newest - WINDOW:
            return
        # A train of forged gaps can be longer than the window, so that its own beginning is out of it already.
        self._seen[counters[counters > self.newest - WINDOW] % WINDOW] = True

    def mark_one(self, counter: int) -> None:
        """The same for one."""
        if counter > self.newest:
            self.mark_row(counter, 1)
        else:
            self._seen[counter % WINDOW] = True

    def mark_row(self, first: int, count: int) -> None:
        """The same for so many in a row, all newer than any before."""
        if first > self.newest + 1:
            self._advance(first - 1)
        self._fill(first, first + count, True)
        self.newest = first + count - 1

    def _advance(self, newest: int) -> None:
        """Slide up to a newer one: places that come into the window are empty."""
        self._fill(self.newest + 1, newest + 1, False)
        self.newest = newest

    def _fill(self, first: int, after: int, is_seen: bool) -> None:
        """From one counter up to before another."""
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
