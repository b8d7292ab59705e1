"""A STREAM on its way in: segments are handed up in order, straight from the train where nothing is missing."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fjm2.norm.core.events import Event, LossReason, Marks, StreamEnded, StreamLost, StreamOpened, StreamReceived
from fjm2.norm.core.fec import Code
from fjm2.norm.core.nack import ObjectLayout
from fjm2.norm.core.partition import StreamPartition
from fjm2.norm.core.ranges import Serial
from fjm2.norm.core.stats import Drop, Stats
from fjm2.norm.core.wire import STREAM_HEADER, Fti, stream_fields

from .incoming_object import IncomingObject
from .stores import lazy_memory

_HEADER = STREAM_HEADER.size
_OFFSET = Serial(32)
_PAGE = 4096
_ROWS_MAX = 1 << 17
"""Most segments that are kept, however short they are."""


class IncomingStream(IncomingObject):
    """Reading goes on segment by segment; what comes early waits in a ring."""

    is_stream = True

    def __init__(
        self,
        layout: ObjectLayout,
        fti: Fti,
        code: Code,
        stats: Stats,
        sender_id: int,
        ring_bytes: int,
        emit: Callable[[Event], None],
    ) -> None:
        super().__init__(layout, fti, code, stats, fti.segment_bytes + _HEADER)
        self.partition: StreamPartition = StreamPartition(fti.block_segments)
        self._sender_id = sender_id
        self._emit = emit
        self._row_bytes = fti.segment_bytes + _HEADER
        # One block more than the sender's buffer: with parity the block that is being read has to stay whole.
        segments = min(-(-min(fti.object_bytes, ring_bytes) // fti.segment_bytes), _ROWS_MAX)
        self._spare = fti.block_segments if self.has_parity else min(fti.block_segments, 255)
        self._rows = (max(2, -(-segments // self._spare)) + 1) * self._spare
        self._ring: NDArray[np.uint8] | None = None
        self._touched = 0
        self.next_index = 0
        """Index of the next segment to be handed up."""
        self._whole_from = 0
        """Blocks that begin earlier can't be decoded: parts of them were never received."""
        self._offset = 0
        """Place in the stream of the next byte to be handed up."""
        self._gap_reason: LossReason | None = None
        """Segments were given up, and the next one will tell how much was lost."""
        self.is_started = False
        """Whether it is known where reading begins."""
        self._is_open = False
        self.is_ended = False
        self._look_at(np.empty((0, _HEADER), np.uint8))

    @property
    def _content_bytes(self) -> int:
        return min(self._touched * max(self._row_bytes, _PAGE), self.claimed_bytes)

    @property
    def claimed_bytes(self) -> int:
        return self._rows * self._row_bytes

    @property
    def first_wanted(self) -> int:
        return self.next_index

    @property
    def is_complete(self) -> bool:
        return self.is_ended

    @property
    def is_useful(self) -> bool:
        return self._is_open

    @property
    def reach(self) -> int:
        """Index after the last segment that there is room for."""
        return self.next_index + self._rows - self._spare

    def start_at(self, index: int) -> None:
        """Begin reading at a segment instead of the first one."""
        self.is_started = True
        self.next_index = self._whole_from = index
        self.received.add(0, index)

    def append(self, payloads: NDArray[np.uint8], tail: NDArray[np.uint8]) -> bool:
        if self.has_parity or not self._is_open or self._gap_reason or self.received.last >= self.next_index:
            return False
        self.received.add(self.next_index, self.next_index + len(payloads) + (tail.size > 0))
        if len(payloads):
            self._hand_up(payloads)
        if tail.size:
            self._hand_up_short(tail)
        return True

    def receive(self, first: int, payloads: NDArray[np.uint8], tail: NDArray[np.uint8]) -> None:
        count = len(payloads) + (tail.size > 0)
        end = first + count
        if end <= self.next_index:
            self._stats.duplicate_segments_received += count
            return
        is_next = first == self.next_index and self.received.end_of(first) == first
        if is_next and not self.has_parity and not any(self.received.within(first, end)):
            self.received.add(first, end)
            if len(payloads):
                self._hand_up(payloads)
            if tail.size >= _HEADER:
                self._hand_up(tail.reshape(1, -1))
            self._continue()
            return
        if self._is_scattered(first, end):
            return
        most = self._rows - self._spare
        for start in range(0, count, most):  # what is longer than the ring goes through it in parts
            some = payloads[start : start + most]
            rest = tail if start + most >= count else tail[:0]
            part_end = first + start + len(some) + (rest.size > 0)
            if part_end > self.reach:
                self.give_up(part_end - most, LossReason.OVERRUN)
            self._store(first + start, some, rest)

    def receive_parity(self, block: int, row: int, payload: NDArray[np.uint8]) -> None:
        if self.partition.first_segment(block) < self.reach:
            super().receive_parity(block, row, payload)
        else:
            self._stats.drop(Drop.OUT_OF_WINDOW)

    def _store(self, first: int, payloads: NDArray[np.uint8], tail: NDArray[np.uint8]) -> None:
        end = first + len(payloads)
        self._store_rows(first, end, payloads)
        if tail.size >= _HEADER:
            self._store_rows(end, end + 1, tail.reshape(1, -1))
            end += 1
        self._repair_touched(first, max(end, first + 1))
        self._continue()

    def _store_rows(self, first: int, end: int, rows: NDArray[np.uint8]) -> None:
        """Keep those that are not there yet."""
        fresh = list(self.received.gaps(max(first, self.next_index), end))
        count = sum(stop - start for start, stop in fresh)
        self._stats.duplicate_segments_received += end - first - count
        self._touched = min(self._touched + count, self._rows)
        ring, size = self._rows_of_ring(), rows.shape[1]
        for start, stop in fresh:
            self.received.add(start, stop)
            while start < stop:
                row = start % self._rows
                some = min(stop - start, self._rows - row)
                ring[row : row + some, :size] = rows[start - first : start - first + some]
                ring[row : row + some, size:] = 0
                start += some

    def _rows_of_ring(self) -> NDArray[np.uint8]:
        if self._ring is None:
            self._ring = lazy_memory(self._rows * self._row_bytes).reshape(self._rows, self._row_bytes)
        return self._ring

    def _is_decodable(self, first: int) -> bool:
        return first >= self._whole_from

    def _decode(self, block: int, first: int, end: int) -> None:
        row = first % self._rows
        source = self._rows_of_ring()[row : row + end - first]
        self._parity.repair(block, source, self.received, first)
        self.received.add(first, end)
        self._continue()

    def _continue(self) -> None:
        """Hand up what was waiting for the segments that have come."""
        while self._ring is not None and not self.is_ended:
            end = self.received.end_of(self.next_index)
            if end == self.next_index:
                break
            row = self.next_index % self._rows
            self._hand_up(self._ring[row : min(row + end - self.next_index, self._rows)])
        self._parity.drop_before(self.next_index // self.partition.block_segments)

    def give_up(self, until: int, reason: LossReason) -> None:
        """Read on behind a place before which what is missing will not come."""
        while self.next_index < until and not self.is_ended:
            end = self.received.end_of(self.next_index)
            if end > self.next_index:
                self._continue()
                continue
            gap_end = next((stop for start, stop in self.received.gaps(self.next_index, until)), until)
            self.received.add(self.next_index, gap_end)
            self.next_index = self._whole_from = gap_end
            self._gap_reason = reason
            self._stats.objects_lost += 1
        self._continue()

    # Handing up.

    def _hand_up(self, rows: NDArray[np.uint8]) -> None:
        """Segments in order, stream header first: tell the application what is in them."""
        if rows is not self._seen:
            self._look_at(rows)
        self.next_index += len(rows)
        if not self._is_open or self._gap_reason:
            self._resume(int(self._fields["offset"][0]))
        # Nearly always all segments are full. To compare bytes is three times as fast as to compare arrays.
        room = self._content.shape[1]
        if room and self._lengths.tobytes() == room.to_bytes(2) * len(rows):
            self._emit_data(self._content.tobytes(), Marks(self._starts.tobytes(), room))
        else:
            self._hand_up_odd(rows, self._fields)

    def _look_at(self, rows: NDArray[np.uint8]) -> None:
        """Nearly all trains are read into the same place: views of it are kept."""
        self._seen = rows
        self._fields = stream_fields(rows)
        self._lengths, self._starts = self._fields["length"], self._fields["message_start"]
        self._content = rows[:, _HEADER:]

    def _hand_up_short(self, row: NDArray[np.uint8]) -> None:
        """A lone segment that is not full, as that of a lone message."""
        length, start, _ = STREAM_HEADER.unpack_from(row.data)
        if 0 < length <= row.size - _HEADER:
            self.next_index += 1
            marks = (start - 1,) if 0 < start <= length else ()
            self._emit_data(row[_HEADER : _HEADER + length].tobytes(), marks)
        else:
            self._hand_up(row.reshape(1, -1))

    def _hand_up_odd(self, rows: NDArray[np.uint8], fields: NDArray[np.void]) -> None:
        """Segments some of which are short, or no data at all."""
        lengths, starts, offsets = (fields[name].astype(np.int64) for name in ("length", "message_start", "offset"))
        room = rows.shape[1] - _HEADER
        # Segments of no length at all are codes that mean nothing here, but for the one that ends the stream.
        odd = np.flatnonzero((lengths > room) | ((lengths == 0) & (starts == 0))).tolist()
        start = 0
        for index in [*odd, len(rows)]:
            if index > start:
                if self._gap_reason:
                    self._resume(int(offsets[start]))
                some = slice(start, index)
                if lengths[some].any():
                    is_content = np.arange(room) < lengths[some, np.newaxis]
                    self._emit_run(rows[some, _HEADER:][is_content].tobytes(), lengths[some], starts[some])
            if index < len(rows):
                if lengths[index] == 0:
                    self._end()
                    return
                self._gap_reason = LossReason.FAILED
            start = index + 1

    def _emit_run(self, data: bytes, lengths: NDArray[np.int64], starts: NDArray[np.int64]) -> None:
        marks: tuple[int, ...] = ()
        marked = np.flatnonzero((starts > 0) & (starts <= lengths))
        if marked.size:
            before = np.cumsum(lengths) - lengths
            marks = tuple((before[marked] + starts[marked] - 1).tolist())
        self._emit_data(data, marks)

    def _emit_data(self, data: bytes, marks: Sequence[int]) -> None:
        self._stats.payload_bytes_received += len(data)
        self._emit(StreamReceived(self._sender_id, self.layout.object_id, self._offset, data, marks))
        self._offset += len(data)

    def _resume(self, offset_field: int) -> None:
        """The first segment of all, or the first one after a gap, tells where in the stream it lies."""
        offset = max(_OFFSET.unwrap(offset_field, self._offset), 0)
        if not self._is_open:
            self._is_open = True
            self._emit(StreamOpened(self._sender_id, self.layout.object_id, offset))
        elif self._gap_reason:
            start = self._offset
            self._stats.bytes_lost += max(offset - start, 0)
            self._emit(StreamLost(self._sender_id, self.layout.object_id, start, max(offset, start), self._gap_reason))
        self._gap_reason = None
        self._offset = offset

    def _end(self) -> None:
        self.is_ended = True
        self._stats.objects_received += 1
        self._emit(StreamEnded(self._sender_id, self.layout.object_id, self._offset))

    def abandon(self, reason: LossReason) -> None:
        """Nothing more will come of it."""
        if not self.is_ended:
            start = self._offset
            self._emit(StreamLost(self._sender_id, self.layout.object_id, start, start, self._gap_reason or reason))

    def missing_bytes(self) -> Iterator[tuple[int, int]]:
        yield from ()
