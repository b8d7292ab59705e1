"""Delivery of a stream to the application: segments in order become events, and gaps become losses."""

from collections.abc import Callable, Sequence
from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray

from fjm2.norm.core.events import (
    Event,
    LossReason,
    Marks,
    StreamEnded,
    StreamGapOpened,
    StreamLost,
    StreamOpened,
    StreamReceived,
)
from fjm2.norm.core.ranges import Serial
from fjm2.norm.core.stats import Stats
from fjm2.norm.core.wire import STREAM_HEADER, stream_fields

_HEADER_BYTES = STREAM_HEADER.size
_OFFSET = Serial(32)


class DeliveryState(Enum):
    """A state in the life of a stream at its receiver."""

    WAITING = auto()
    """No source segment has arrived, so it is not known where reading begins."""
    STARTED = auto()
    """It is known where reading begins, but nothing has been delivered."""
    OPEN = auto()
    """The application has been told of the stream."""
    ENDED = auto()
    """The sender closed the stream, and everything was delivered."""


LEGAL = {
    DeliveryState.WAITING: {DeliveryState.STARTED},
    DeliveryState.STARTED: {DeliveryState.OPEN},
    DeliveryState.OPEN: {DeliveryState.ENDED},
    DeliveryState.ENDED: {DeliveryState.ENDED},  # the last train of a hostile sender may end its stream twice
}
"""States that may follow each state."""


class StreamDelivery:
    """Delivery of one stream: it turns rows, in order, into events. Each row is a stream header and a segment."""

    __slots__ = (
        "_content",
        "_emit",
        "_fields",
        "_gap_reason",
        "_gap_segments",
        "_is_gap_announced",
        "_lengths",
        "_object_id",
        "_seen",
        "_sender_id",
        "_starts",
        "_stats",
        "is_contiguous",
        "offset",
        "state",
    )

    def __init__(self, sender_id: int, object_id: int, stats: Stats, emit: Callable[[Event], None]) -> None:
        self._sender_id = sender_id
        self._object_id = object_id
        self._stats = stats
        self._emit = emit
        self.state = DeliveryState.WAITING
        self.is_contiguous = False
        """True if the next segment continues what was delivered: the stream is open, and no gap lies between."""
        self.offset = 0
        """Offset in the stream of the next byte to deliver."""
        self._gap_reason: LossReason | None = None
        """Reason of the gap before the next segment, whose offset will tell how much was lost."""
        self._gap_segments = 0
        """Number of segments in this gap."""
        self._is_gap_announced = False
        self._view(np.empty((0, _HEADER_BYTES), np.uint8))

    def move_to(self, state: DeliveryState) -> None:
        """Change the state. Raise AssertionError if `LEGAL` does not allow that."""
        if state not in LEGAL[self.state]:
            raise AssertionError(f"{self.state} to {state}")
        self.state = state

    @property
    def is_started(self) -> bool:
        """True if it is known where reading begins."""
        return self.state is not DeliveryState.WAITING

    @property
    def is_open(self) -> bool:
        """True if the application knows of the stream, even if it has ended since."""
        return self.state in (DeliveryState.OPEN, DeliveryState.ENDED)

    @property
    def is_ended(self) -> bool:
        """True if the stream has been delivered to its end."""
        return self.state is DeliveryState.ENDED

    def note_gap(self, reason: LossReason, segments: int = 1) -> None:
        """Note that segments before the next one will not come."""
        self._gap_reason = reason
        self._gap_segments += segments
        self.is_contiguous = False

    def announce_gap(self, segment_bytes: int) -> None:
        """Report that a gap has opened, unless it was reported, or nothing of the stream has been delivered."""
        if self._gap_reason is not None and self.is_open and not self._is_gap_announced:
            self._is_gap_announced = True
            size = self._gap_segments * segment_bytes
            self._emit(StreamGapOpened(self._sender_id, self._object_id, self.offset, size, self._gap_reason))

    def go_back(self, offset: int) -> None:
        """Deliver again from an offset on: what was delivered after it was forged."""
        self.offset = offset
        self._gap_segments = 0
        self.note_gap(LossReason.FORGED, 0)

    def deliver(self, rows: NDArray[np.uint8]) -> None:
        """Deliver the segments in `rows`, one in each row."""
        if rows is not self._seen:
            self._view(rows)
        if not self.is_contiguous:
            self._resume(int(self._fields["offset"][0]))
        # Nearly always all segments are full. Comparing bytes is three times as fast as comparing arrays.
        room = self._content.shape[1]
        if room and self._lengths.tobytes() == room.to_bytes(2) * len(rows):
            self._deliver_bytes(self._content.tobytes(), Marks(self._starts.tobytes(), room))
        else:
            self._deliver_mixed(rows, self._fields)

    def deliver_short(self, row: NDArray[np.uint8]) -> None:
        """Deliver a single segment that is not full, such as that of one short message."""
        length, start, _ = STREAM_HEADER.unpack_from(row.data)
        if 0 < length <= row.size - _HEADER_BYTES:
            marks = (start - 1,) if 0 < start <= length else ()
            self._deliver_bytes(row[_HEADER_BYTES : _HEADER_BYTES + length].tobytes(), marks)
        else:
            self.deliver(row.reshape(1, -1))

    def deliver_alone(self, datagram: memoryview, at: int) -> bool:
        """Deliver a segment that came alone, and whose stream header is at index `at`. Return False, and do nothing, if
        anything is unusual."""
        length, start, _ = STREAM_HEADER.unpack_from(datagram, at)
        at += _HEADER_BYTES
        if not self.is_contiguous or not 0 < length <= len(datagram) - at:
            return False
        marks = (start - 1,) if 0 < start <= length else ()
        offset = self.offset
        self.offset = offset + length
        self._stats.payload_bytes_received += length
        self._emit(StreamReceived(self._sender_id, self._object_id, offset, bytes(datagram[at : at + length]), marks))
        return True

    def abandon(self, reason: LossReason) -> None:
        """Report that the rest of the stream is lost, unless the stream was delivered to its end."""
        if not self.is_ended:
            start = self.offset
            self._emit(StreamLost(self._sender_id, self._object_id, start, start, self._gap_reason or reason))

    def _view(self, rows: NDArray[np.uint8]) -> None:
        """Make views of `rows`, and keep them for the next train: nearly all trains are read into the same memory."""
        self._seen = rows
        self._fields = stream_fields(rows)
        self._lengths, self._starts = self._fields["length"], self._fields["message_start"]
        self._content = rows[:, _HEADER_BYTES:]

    def _deliver_mixed(self, rows: NDArray[np.uint8], fields: NDArray[np.void]) -> None:
        """Deliver segments of which some are short, end the stream, or make no sense."""
        lengths, starts, offsets = (fields[name].astype(np.int64) for name in ("length", "message_start", "offset"))
        room = rows.shape[1] - _HEADER_BYTES
        # The message start of an empty segment is a code. Only the code that ends the stream has a meaning here.
        odd = np.flatnonzero((lengths > room) | ((lengths == 0) & (starts == 0))).tolist()
        start = 0
        for index in [*odd, len(rows)]:
            if index > start:
                if self._gap_reason:
                    self._resume(int(offsets[start]))
                some = slice(start, index)
                if lengths[some].any():
                    is_content = np.arange(room) < lengths[some, np.newaxis]
                    self._deliver_run(rows[some, _HEADER_BYTES:][is_content].tobytes(), lengths[some], starts[some])
            if index < len(rows):
                if lengths[index] == 0:
                    self._end()
                    return
                self.note_gap(LossReason.FAILED)
            start = index + 1

    def _deliver_run(self, data: bytes, lengths: NDArray[np.int64], starts: NDArray[np.int64]) -> None:
        marks: tuple[int, ...] = ()
        marked = np.flatnonzero((starts > 0) & (starts <= lengths))
        if marked.size:
            before = np.cumsum(lengths) - lengths
            marks = tuple((before[marked] + starts[marked] - 1).tolist())
        self._deliver_bytes(data, marks)

    def _deliver_bytes(self, data: bytes, marks: Sequence[int]) -> None:
        self._stats.payload_bytes_received += len(data)
        self._emit(StreamReceived(self._sender_id, self._object_id, self.offset, data, marks))
        self.offset += len(data)

    def _resume(self, offset_field: int) -> None:
        """Open the stream, or report the gap before the next segment, whose offset field tells where it belongs."""
        offset = max(_OFFSET.unwrap(offset_field, self.offset), 0)
        if not self.is_open:
            self.move_to(DeliveryState.OPEN)
            self._emit(StreamOpened(self._sender_id, self._object_id, offset))
        elif self._gap_reason:
            start = self.offset
            self._stats.bytes_lost += max(offset - start, 0)
            self._emit(StreamLost(self._sender_id, self._object_id, start, max(offset, start), self._gap_reason))
        self._gap_reason, self._gap_segments = None, 0
        self._is_gap_announced = False
        self.is_contiguous = True
        self.offset = offset

    def _end(self) -> None:
        self.move_to(DeliveryState.ENDED)
        self._stats.objects_received += 1
        self._emit(StreamEnded(self._sender_id, self._object_id, self.offset))
