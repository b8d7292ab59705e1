"""A STREAM at its sender: bytes and message marks become segments in a ring of ready-made datagrams.

A row of the ring is a whole datagram, NORM header first: it is written when its bytes are, stamped when it is sent, and
sent from where it lies. A train is a slice of the ring.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fjm2.norm.core.ranges import RangeSet
from fjm2.norm.core.wire import STREAM_HEADER, Data, HeaderStamp

STREAM_END_CODE = 0
"""In the message-start field of a segment without data."""


class StreamRing:
    """The segments of a stream from the oldest that can be repaired to the one being filled.

    Segments have an index, counted from the stream's beginning; rows are reused, `rows` segments later.
    """

    def __init__(self, segment_bytes: int, rows: int, header: Data) -> None:
        self.segment_bytes = segment_bytes
        self.rows = rows
        self.norm_header_bytes = len(header.encode())
        self.row_bytes = self.norm_header_bytes + STREAM_HEADER.size + segment_bytes
        self.buffer = np.zeros(rows * self.row_bytes, np.uint8)
        self.stamp = HeaderStamp(self.buffer, self.row_bytes, header)
        self._grid = self.buffer.reshape(rows, self.row_bytes)
        self._payload = self._grid[:, self.norm_header_bytes + STREAM_HEADER.size :]
        self._lengths = np.zeros(rows, np.uint16)
        """Bytes of each row's segment."""
        self._short = RangeSet()
        """Indexes of the segments that are not full: under load there are none."""
        self.first = 0
        """Index of the oldest segment still held."""
        self.closed = 0
        """Index after the last segment that can be sent: the next one is being filled."""
        self.offset = 0
        """Bytes written so far."""
        self.is_ended = False
        self._fill = 0
        """Bytes in the segment being filled."""
        self._marks = np.zeros(rows, np.uint16)
        """Message-start field of each row, the segment being filled included."""

    @property
    def has_partial(self) -> bool:
        """Whether a segment is begun and not yet full."""
        return self._fill > 0

    def symbols(self, first: int, count: int) -> NDArray[np.uint8]:
        """Source symbols as FEC sees them: stream header and data. They must not wrap around the ring."""
        row = first % self.rows
        return self._grid[row : row + count, self.norm_header_bytes :]

    def copy(self, indexes: Sequence[int], out: NDArray[np.uint8]) -> None:
        """Copy segments, with all their headers, that need not be neighbours."""
        np.take(self._grid, np.asarray(indexes) % self.rows, axis=0, out=out, mode="clip")

    def length(self, index: int) -> int:
        """Bytes of a segment."""
        return int(self._lengths[index % self.rows])

    def train(self, first: int, count: int) -> tuple[int, int, NDArray[np.uint8]]:
        """As many of the segments as lie together: their first row, number and bytes, yet to be stamped."""
        row = first % self.rows
        count = min(count, self.rows - row)
        lacking = 0
        for short, _ in self._short.within(first, first + count):
            count = short - first + 1
            lacking = self.segment_bytes - int(self._lengths[row + count - 1])
            break
        return row, count, self.buffer[row * self.row_bytes : (row + count) * self.row_bytes - lacking]

    def room(self, limit: int) -> int:
        """Bytes that can be written before the segment with index `limit` would be begun."""
        return max(0, (limit - self.closed) * self.segment_bytes - self._fill)

    def write(self, data: memoryview, marks: Sequence[int]) -> None:
        """Append bytes, for which there must be room, and in which messages begin at the places marked."""
        if self._fill + len(data) <= self.segment_bytes:
            self._write_within(data, marks)
            return
        self._mark(marks, len(data))
        array = np.frombuffer(data, np.uint8)
        taken = min(len(array), self.segment_bytes - self._fill) if self._fill else 0
        if taken:
            self._append(array[:taken])
        whole = (len(array) - taken) // self.segment_bytes
        while whole:
            count = min(whole, self.rows - self.closed % self.rows)
            end = taken + count * self.segment_bytes
            self._append_segments(array[taken:end].reshape(count, self.segment_bytes))
            taken, whole = end, whole - count
        if taken < len(array):
            self._append(array[taken:])

    def _write_within(self, data: memoryview, marks: Sequence[int]) -> None:
        """Bytes that the segment being filled has room for: the way of a lone message."""
        row = self.closed % self.rows
        if not self._fill:
            self._marks[row] = 0
        if marks and not self._marks[row]:
            self._marks[row] = self._fill + marks[0] + 1
        self._append(np.frombuffer(data, np.uint8))

    def _mark(self, marks: Sequence[int], length: int) -> None:
        """Note where messages begin in the segments that `length` bytes more will touch: the first of each counts."""
        fresh = (self.closed + (self._fill > 0)) % self.rows
        end = fresh + -(-(self._fill + length) // self.segment_bytes) - (self._fill > 0)
        self._marks[fresh:end] = 0
        if end > self.rows:
            self._marks[: end - self.rows] = 0
        if marks:
            row = self.closed % self.rows
            earlier = self._marks[row] if self._fill else 0
            places = np.asarray(marks, np.int64)[::-1] + self._fill
            self._marks[(self.closed + places // self.segment_bytes) % self.rows] = places % self.segment_bytes + 1
            if earlier:
                self._marks[row] = earlier

    def _append(self, piece: NDArray[np.uint8]) -> None:
        """Bytes that end in the segment being filled."""
        self._payload[self.closed % self.rows, self._fill : self._fill + len(piece)] = piece
        self._fill += len(piece)
        self.offset += len(piece)
        if self._fill == self.segment_bytes:
            self.close_segment()

    def _append_segments(self, segments: NDArray[np.uint8]) -> None:
        """Whole segments, to rows that follow each other."""
        count = len(segments)
        row = self.closed % self.rows
        rows = slice(row, row + count)
        self._payload[rows] = segments
        self._lengths[rows] = self.segment_bytes
        offsets = np.arange(self.offset, self.offset + segments.size, self.segment_bytes) & 0xFFFFFFFF
        self.stamp.stamp_stream(self.segment_bytes, self._marks[rows], offsets.astype(np.uint32), row)
        self.offset += segments.size
        self._advance(count)

    def close_segment(self) -> None:
        """Let the segment being filled go as it is; the next byte begins another."""
        row = self.closed % self.rows
        self._lengths[row] = self._fill
        if self._fill < self.segment_bytes:
            self._short.add(self.closed, self.closed + 1)
        self._payload[row, self._fill :] = 0  # parity covers the whole row
        at = row * self.row_bytes + self.norm_header_bytes
        offset = (self.offset - self._fill) & 0xFFFFFFFF
        STREAM_HEADER.pack_into(self.buffer.data, at, self._fill, int(self._marks[row]), offset)
        self._fill = 0
        self._advance(1)

    def end(self) -> None:
        """Append the segment that says that no more will come."""
        if self._fill:
            self.close_segment()
        self._marks[self.closed % self.rows] = STREAM_END_CODE
        self.close_segment()
        self.is_ended = True

    def _advance(self, count: int) -> None:
        self.closed += count
        self.first = max(self.first, self.closed - self.rows + 1)
        if self._short and self._short.first < self.first:
            self._short.remove(self._short.first, self.first)
