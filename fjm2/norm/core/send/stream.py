"""A STREAM at its sender: bytes and message marks become segments in a ring of ready-made datagrams.

A row of the ring is a whole datagram, beginning with the NORM header. The payload is written once, the header is
stamped when the segment is sent, and the kernel reads both from the ring. A train is a slice of the ring.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fjm2.base.ranges import RangeSet
from fjm2.norm.core.wire import STREAM_HEADER, Data, HeaderStamp

STREAM_END_CODE = 0
"""Message-start field of the segment without data that ends a stream."""


_STREAM_HEADER_BYTES = STREAM_HEADER.size
_pack_stream_header = STREAM_HEADER.pack_into
_TRIM_SEGMENTS = 1024
"""Short segments that may be remembered after they were overwritten: each removal moves the rest of the list."""


class StreamRing:
    """Segments of a stream, from the oldest that can be repaired to the one being filled.

    A segment's index counts from the beginning of the stream. Its row is reused `rows` segments later.
    """

    def __init__(self, segment_bytes: int, rows: int, header: Data) -> None:
        self.segment_bytes = segment_bytes
        self.rows = rows
        self.norm_header_bytes = len(header.encode())
        self.row_bytes = self.norm_header_bytes + STREAM_HEADER.size + segment_bytes
        self.buffer = np.zeros(rows * self.row_bytes, np.uint8)
        self.stamp = HeaderStamp(self.buffer, self.row_bytes, header)
        self._payload = self._datagrams[:, self.norm_header_bytes + STREAM_HEADER.size :]
        self._lengths = np.zeros(rows, np.uint16)
        """Length of each row's segment in bytes."""
        self._short = RangeSet()
        """Indexes of the segments that are not full. Under load there are none."""
        self.first = 0
        """Index of the oldest segment held."""
        self.closed = 0
        """Index of the segment being filled, which follows the last complete segment."""
        self.offset = 0
        """Number of bytes written so far."""
        self.is_ended = False
        self.fill = 0
        """Number of bytes in the segment being filled."""
        self._marks = np.zeros(rows, np.uint16)
        """Message-start field of each row, including that of the segment being filled."""

    @property
    def _datagrams(self) -> NDArray[np.uint8]:
        return self.buffer.reshape(self.rows, self.row_bytes)

    def resize(self, rows: int, header: Data) -> None:
        """Continue in a buffer of another length, with as many of the latest segments as it holds.

        Trains that were cut out of the old buffer stay valid.
        """
        old, old_lengths, old_marks, old_rows = self._datagrams, self._lengths, self._marks, self.rows
        self.rows = rows
        self.buffer = np.zeros(rows * self.row_bytes, np.uint8)
        self.stamp = HeaderStamp(self.buffer, self.row_bytes, header)
        new = self._datagrams
        self._payload = new[:, self.norm_header_bytes + STREAM_HEADER.size :]
        self._lengths, self._marks = np.zeros(rows, np.uint16), np.zeros(rows, np.uint16)
        self.first = index = max(self.first, self.closed - rows + 1)
        while index <= self.closed:  # the segment being filled, too
            start, row = index % old_rows, index % rows
            count = min(self.closed + 1 - index, old_rows - start, rows - row)
            new[row : row + count] = old[start : start + count]
            self._lengths[row : row + count] = old_lengths[start : start + count]
            self._marks[row : row + count] = old_marks[start : start + count]
            index += count

    def symbols(self, first: int, count: int) -> NDArray[np.uint8]:
        """Return source symbols for FEC, each a stream header and data. The range must not wrap around the ring."""
        row = first % self.rows
        for start, end in self._short.within(first, first + count):
            for index in range(start, end):
                short = index % self.rows
                self._payload[short, int(self._lengths[short]) :] = 0  # parity covers the whole row
        return self._datagrams[row : row + count, self.norm_header_bytes :]

    def copy(self, indexes: Sequence[int], out: NDArray[np.uint8]) -> None:
        """Copy whole datagrams, in any order, to `out`."""
        np.take(self._datagrams, np.asarray(indexes) % self.rows, axis=0, out=out, mode="clip")

    def length(self, index: int) -> int:
        """Return the length of a segment in bytes."""
        return int(self._lengths[index % self.rows])

    def train(self, first: int, count: int) -> tuple[int, int, NDArray[np.uint8]]:
        """Return the first row, the number and the bytes of segments that lie together: up to `count`, from `first` on.

        Their headers must still be stamped.
        """
        row = first % self.rows
        count = min(count, self.rows - row)
        missing_bytes = 0
        for short, _ in self._short.within(first, first + count):
            count = short - first + 1
            missing_bytes = self.segment_bytes - int(self._lengths[row + count - 1])
            break
        return row, count, self.buffer[row * self.row_bytes : (row + count) * self.row_bytes - missing_bytes]

    def room(self, limit: int) -> int:
        """Return the number of bytes that can be written before segment `limit` is begun."""
        return max(0, (limit - self.closed) * self.segment_bytes - self.fill)

    def write(self, data: memoryview, marks: Sequence[int]) -> None:
        """Append bytes. Messages begin at the offsets in `marks`. The caller has checked that there is room."""
        if self.fill + len(data) <= self.segment_bytes:
            self._write_within(data, marks)
            return
        self._mark(marks, len(data))
        array = np.frombuffer(data, np.uint8)
        taken = min(len(array), self.segment_bytes - self.fill) if self.fill else 0
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
        """Append bytes that fit into the segment being filled. A single short message takes this path."""
        row = self.closed % self.rows
        if not self.fill:
            self._marks[row] = 0
        if marks and not self._marks[row]:
            self._marks[row] = self.fill + marks[0] + 1
        self._append(np.frombuffer(data, np.uint8))

    def write_alone(self, head: bytes, body: bytes, sequence: int, payload_id: bytes) -> memoryview:
        """Write one message, in two parts, as a segment of its own, and return its datagram.

        It must fit, and no segment may be begun. Call `close_alone` before anything else is written.
        """
        start = self.closed % self.rows * self.row_bytes
        at = start + self.norm_header_bytes
        memory, middle = self.stamp.memory, at + _STREAM_HEADER_BYTES
        body_at = middle + len(head)
        end = body_at + len(body)
        self.stamp.stamp_one(sequence, payload_id, start)
        _pack_stream_header(memory, at, end - middle, 1, self.offset & 0xFFFFFFFF)
        memory[middle:body_at] = head
        memory[body_at:end] = body
        return memory[start:end]

    def close_alone(self, size: int) -> None:
        """Complete the segment of `size` bytes that `write_alone` wrote."""
        row = self.closed % self.rows
        self._lengths[row] = size
        self._marks[row] = 1
        if size < self.segment_bytes:
            self._short.add(self.closed, self.closed + 1)
        self.offset += size
        self._advance(1)

    def _mark(self, marks: Sequence[int], length: int) -> None:
        """Set the message-start fields of the segments that the next `length` bytes touch: the first mark in each."""
        fresh = (self.closed + (self.fill > 0)) % self.rows
        end = fresh + -(-(self.fill + length) // self.segment_bytes) - (self.fill > 0)
        self._marks[fresh:end] = 0
        if end > self.rows:
            self._marks[: end - self.rows] = 0
        if marks:
            row = self.closed % self.rows
            earlier = self._marks[row] if self.fill else 0
            places = np.asarray(marks, np.int64)[::-1] + self.fill
            self._marks[(self.closed + places // self.segment_bytes) % self.rows] = places % self.segment_bytes + 1
            if earlier:
                self._marks[row] = earlier

    def _append(self, piece: NDArray[np.uint8]) -> None:
        """Append bytes that fit into the segment being filled, and close the segment if it is full."""
        self._payload[self.closed % self.rows, self.fill : self.fill + len(piece)] = piece
        self.fill += len(piece)
        self.offset += len(piece)
        if self.fill == self.segment_bytes:
            self.close_segment()

    def _append_segments(self, segments: NDArray[np.uint8]) -> None:
        """Append whole segments to consecutive rows."""
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
        """Complete the segment being filled as it is. The next byte begins another segment."""
        row = self.closed % self.rows
        self._lengths[row] = self.fill
        if self.fill < self.segment_bytes:
            self._short.add(self.closed, self.closed + 1)
        at = row * self.row_bytes + self.norm_header_bytes
        offset = (self.offset - self.fill) & 0xFFFFFFFF
        STREAM_HEADER.pack_into(self.buffer.data, at, self.fill, int(self._marks[row]), offset)
        self.fill = 0
        self._advance(1)

    def end(self) -> None:
        """Append the segment that ends the stream."""
        if self.fill:
            self.close_segment()
        self._marks[self.closed % self.rows] = STREAM_END_CODE
        self.close_segment()
        self.is_ended = True

    def _advance(self, count: int) -> None:
        self.closed += count
        self.first = max(self.first, self.closed - self.rows + 1)
        if self._short and self._short.first < self.first - _TRIM_SEGMENTS:
            self._short.remove(self._short.first, self.first)
