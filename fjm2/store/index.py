"""The index: where the live frames of each ledger are on disk.

A frame takes 20 bytes: its sequence, and segment, offset and length. Frames of a ledger are in chunks, in the order of
their sequences. The arrays of a chunk only grow at the end; any other change makes new ones. So a view of a chunk stays
as it is, and a snapshot of the whole index costs no copy.
"""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fjm2.base.ranges import RangeSet

CHUNK_FRAMES = 4096
"""Frames of a chunk at most: a removal in its middle copies up to 80 KiB, which takes some microseconds."""
_CHUNK_FRAMES_MIN = 16
SEGMENT, OFFSET, LENGTH = range(3)
"""Columns of places."""

Sequences = NDArray[np.uint64]
Places = NDArray[np.uint32]


class Entries(NamedTuple):
    """Frames of one ledger, in the order of their sequences."""

    sequences: Sequences
    places: Places
    """Segment, offset and length of each frame."""

    @property
    def size(self) -> int:
        """Bytes of the frames."""
        return int(self.places[:, LENGTH].sum(dtype=np.uint64))


class _Chunk:
    __slots__ = ("begin", "end", "places", "sequences")

    def __init__(self, sequences: Sequences, places: Places) -> None:
        """Make a chunk of copies."""
        count = len(sequences)
        capacity = max(count, _CHUNK_FRAMES_MIN)
        self.sequences, self.places = np.empty(capacity, np.uint64), np.empty((capacity, 3), np.uint32)
        self.sequences[:count], self.places[:count] = sequences, places
        self.begin, self.end = 0, count

    def __len__(self) -> int:
        return self.end - self.begin

    def entries(self, start: int = 0, end: int | None = None) -> Entries:
        """Return a view of the frames from one position to another."""
        low, high = self.begin + start, self.end if end is None else self.begin + end
        return Entries(self.sequences[low:high], self.places[low:high])

    def positions(self, first: int, end: int) -> tuple[int, int]:
        """Return the positions of the frames with sequences first, ..., end - 1."""
        sequences = self.sequences[self.begin : self.end]
        # A comparison with a Python integer beyond 64 bits would make floats of the sequences.
        low = int(sequences.searchsorted(np.uint64(first)))
        return low, low + int(sequences[low:].searchsorted(np.uint64(end - 1), "right"))

    def extend(self, sequences: Sequences, places: Places) -> int:
        """Append frames as far as they fit, and return their number."""
        count = min(len(sequences), CHUNK_FRAMES - self.end)
        end = self.end + count
        if end > len(self.sequences):
            capacity = min(CHUNK_FRAMES, max(end, 2 * len(self.sequences)))
            grown = np.empty(capacity, np.uint64), np.empty((capacity, 3), np.uint32)
            grown[0][: self.end], grown[1][: self.end] = self.sequences[: self.end], self.places[: self.end]
            self.sequences, self.places = grown
        self.sequences[self.end : end], self.places[self.end : end] = sequences[:count], places[:count]
        self.end = end
        return count


class LedgerIndex:
    """Live frames of one ledger, and all sequences that it ever had."""

    __slots__ = ("_chunks", "_starts", "count", "known")

    def __init__(self) -> None:
        self._chunks: list[_Chunk] = []
        self._starts: list[int] = []
        self.known = RangeSet()
        """Sequences that were stored or counted, released ones included."""
        self.count = 0
        """Live frames."""

    def append(self, sequences: Sequences, places: Places) -> None:
        """Add frames whose sequences come after all that are there."""
        self.count += len(sequences)
        if self._chunks:
            done = self._chunks[-1].extend(sequences, places)
            sequences, places = sequences[done:], places[done:]
        while len(sequences):
            self._starts.append(int(sequences[0]))
            self._chunks.append(_Chunk(sequences[:CHUNK_FRAMES], places[:CHUNK_FRAMES]))
            sequences, places = sequences[CHUNK_FRAMES:], places[CHUNK_FRAMES:]

    def insert(self, sequences: Sequences, places: Places) -> None:
        """Add consecutive frames that are not there, anywhere."""
        first = int(sequences[0])
        at = max(0, bisect_right(self._starts, first) - 1)
        if not self._chunks or first > int(self._chunks[-1].entries().sequences[-1]):
            self.append(sequences, places)
            return
        self.count += len(sequences)
        chunk = self._chunks[at]
        middle = chunk.positions(first, first + 1)[0]
        before, after = chunk.entries(0, middle), chunk.entries(middle)
        self._replace(at, [before, Entries(sequences, places), after])

    def remove(self, first: int, end: int) -> list[Places]:
        """Remove the frames with sequences first, ..., end - 1, and return their places."""
        removed: list[Places] = []
        at = max(0, bisect_right(self._starts, first) - 1)
        while at < len(self._chunks) and self._starts[at] < end:
            chunk = self._chunks[at]
            low, high = chunk.positions(first, end)
            if low == high:
                at += 1
                continue
            self.count -= high - low
            removed.append(chunk.entries(low, high).places)
            if low == 0 and high < len(chunk):
                chunk.begin += high
                self._starts[at] = int(chunk.sequences[chunk.begin])
                at += 1
            else:
                at += self._replace(at, [chunk.entries(0, low), chunk.entries(high)])
        return removed

    def _replace(self, at: int, parts: list[Entries]) -> int:
        """Put frames in place of a chunk, and return the number of chunks they make. Small neighbours are joined."""
        joined = Entries(
            np.concatenate([part.sequences for part in parts]), np.concatenate([part.places for part in parts])
        )
        begin = at
        if at and len(self._chunks[at - 1]) + len(joined.sequences) < CHUNK_FRAMES // 2:
            begin = at - 1
            neighbour = self._chunks[begin].entries()
            joined = Entries(
                np.concatenate([neighbour.sequences, joined.sequences]),
                np.concatenate([neighbour.places, joined.places]),
            )
        # A chunk that overflows is halved, so that the next insertion finds room.
        size = CHUNK_FRAMES if len(joined.sequences) <= CHUNK_FRAMES else CHUNK_FRAMES // 2
        chunks = [
            _Chunk(joined.sequences[n : n + size], joined.places[n : n + size])
            for n in range(0, len(joined.sequences), size)
        ]
        self._chunks[begin : at + 1] = chunks
        self._starts[begin : at + 1] = [int(chunk.sequences[0]) for chunk in chunks]
        return len(chunks) - (at - begin)

    def entries(self, first: int, end: int) -> Iterator[Entries]:
        """Yield views of the frames with sequences first, ..., end - 1, chunk by chunk."""
        at = max(0, bisect_right(self._starts, first) - 1)
        while at < len(self._chunks) and self._starts[at] < end:
            low, high = self._chunks[at].positions(first, end)
            if low < high:
                yield self._chunks[at].entries(low, high)
            at += 1

    def snapshot(self) -> list[Entries]:
        """Return views of all frames. They stay as they are."""
        return [chunk.entries() for chunk in self._chunks]

    def live(self, first: int, end: int) -> RangeSet:
        """Return the sequences first, ..., end - 1 that are live."""
        found = RangeSet()
        for entries in self.entries(first, end):
            for low, high in spans(entries.sequences):
                found.add(low, high)
        return found


def spans(sequences: Sequences) -> Iterator[tuple[int, int]]:
    """Yield ascending sequences as ranges [start, end)."""
    if not len(sequences):
        return
    breaks = np.flatnonzero(np.diff(sequences) != 1) + 1
    bounds = [0, *breaks.tolist(), len(sequences)]
    for low, high in pairwise(bounds):
        yield int(sequences[low]), int(sequences[high - 1]) + 1
