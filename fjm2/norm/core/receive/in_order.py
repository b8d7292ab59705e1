"""Recognition of trains that continue an object where the last train ended: the fast path, which nearly all data take.

All headers of a train are compared at once with the expected headers. A train that differs in anything takes the
general path, `Receiver.receive_run`, which may be slower and does not depend on the fast path.
"""

import struct

import numpy as np
from numpy.typing import NDArray

from fjm2.norm.core.id_pages import IdPages
from fjm2.norm.core.train import TRAIN_SEGMENTS_MAX, Train
from fjm2.norm.core.wire import STREAM_HEADER, RunHeader

from .incoming_object import IncomingObject

_PAGE_SEGMENTS = 1024
"""Number of headers in a page: enough for 16 trains, and few enough to stay in the processor's cache."""
_PAYLOAD_ID_AT = 16
"""Offset of the payload id in the header of DATA (RFC 5740, 4.2.1)."""
_SEQUENCE = struct.Struct(">H")
_SEQUENCE_AT = 2
"""Offset of the sequence in every NORM message."""
_REST_AT = 4
"""Offset after the sequence. From here on, the headers of an object differ only in their payload ids. The two bytes
before the sequence are the same in all headers."""
_NO_ROWS = np.empty((0, 0), np.uint8)
_NO_TAIL = np.empty(0, np.uint8)


class HeaderPages:
    """The expected headers of an object's segments, from `_REST_AT` on, made a page at a time."""

    __slots__ = ("_ids", "_item", "_page", "dtype", "end", "first", "headers", "rest_bytes")

    def __init__(self, header: RunHeader, item: IncomingObject) -> None:
        self._item = item
        self._ids = IdPages(item.layout)
        self.rest_bytes = header.norm_bytes - _REST_AT
        """Length in bytes of one header from `_REST_AT` on."""
        self.dtype = np.dtype(f"V{self.rest_bytes}")
        self._page = np.empty(_PAGE_SEGMENTS, self.dtype)
        self._page[:] = np.void(header.raw[_REST_AT:])
        self.headers = b""
        """Headers of the current page, end to end."""
        self.first = self.end = 0
        """Range of segment indexes that the current page covers."""

    def turn_to(self, first: int, segments: int) -> bool:
        """Make the page that begins with segment `first`, for a train of `segments` segments.

        Return False if the train would exceed the object, or extend beyond a region.
        """
        left = self._item.layout.partition.region(first).end - first
        if segments > left:
            return False
        count = min(left, _PAGE_SEGMENTS)
        ids = self._ids.of(first, count)
        at = _PAYLOAD_ID_AT - _REST_AT
        np.ndarray((count,), ids.dtype, self._page, at, (self.rest_bytes,))[:] = ids
        self.headers = self._page.tobytes()
        self.first, self.end = first, first + count
        return True


class MatchedTrain:
    """Parts of a train that matched the expected headers. The arrays are views into the train."""

    __slots__ = ("first_sequence", "last_sequence", "payloads", "segments", "size", "tail")

    def __init__(self) -> None:
        self.segments = 0
        """Number of segments."""
        self.payloads: NDArray[np.uint8] = _NO_ROWS
        """Payloads of the full segments, one in each row."""
        self.tail: NDArray[np.uint8] = _NO_TAIL
        """Payload of a last segment that is shorter; empty if there is none."""
        self.size = 0
        """Number of bytes of all payloads."""
        self.first_sequence = self.last_sequence = 0


class InOrderMatcher:
    """Comparison of trains with the headers that an object's next segments must have."""

    __slots__ = (
        "_data",
        "_kind",
        "_kinds",
        "_pages",
        "_rests",
        "_row_bytes",
        "_shortest_bytes",
        "count",
        "header",
        "header_bytes",
        "item",
        "train",
    )

    def __init__(self, header: RunHeader, item: IncomingObject, count: int) -> None:
        self.header = header
        self.item = item
        self.count = count
        """Count of the object in its sender's `ObjectWindow`."""
        self.train = MatchedTrain()
        """The last train that matched."""
        self.header_bytes = header.norm_bytes
        """Length of a NORM header of the object in bytes."""
        self._row_bytes = header.norm_bytes + item.symbol_bytes
        self._shortest_bytes = header.norm_bytes + (STREAM_HEADER.size if header.is_stream else 1)
        self._kind = header.raw[:_SEQUENCE_AT]
        self._pages = HeaderPages(header, item)
        # Views of the last train that was compared: a socket reads nearly all trains into the same memory.
        self._data: NDArray[np.uint8] | None = None
        self._kinds = self._rests = np.empty(0, "V1")

    def matches(self, train: Train, first: int) -> bool:
        """Return True if a train holds the object's segments from `first` on, in order. If so, set `self.train`."""
        data, row_bytes, header_bytes = train.data, self._row_bytes, self.header_bytes
        rows, rest = divmod(data.size, row_bytes)
        segments = rows + (rest > 0)
        is_cut_so = train.segment_bytes == row_bytes or (rows == 0 and train.segment_bytes == rest)
        if not is_cut_so or segments > TRAIN_SEGMENTS_MAX or 0 < rest < self._shortest_bytes:
            return False
        pages = self._pages
        if not (pages.first <= first and first + segments <= pages.end) and not pages.turn_to(first, segments):
            return False
        rest_bytes, expected, kind, matched = pages.rest_bytes, pages.headers, self._kind, self.train
        at = (first - pages.first) * rest_bytes
        middle = at + rows * rest_bytes
        if rows:
            if data is not self._data:
                self._view(data, rows)
            if self._kinds.tobytes() != kind * rows or self._rests.tobytes() != expected[at:middle]:
                return False
        elif self._data is not None:
            self._forget_view()
        memory = data.data
        if rest:
            start = rows * row_bytes
            head = bytes(memory[start : start + header_bytes])
            if head[:_SEQUENCE_AT] != kind or head[_REST_AT:] != expected[middle : middle + rest_bytes]:
                return False
            matched.tail = data[start + header_bytes :]
        else:
            matched.tail = _NO_TAIL
        matched.segments = segments
        matched.size = data.size - segments * header_bytes
        matched.first_sequence = _SEQUENCE.unpack_from(memory, _SEQUENCE_AT)[0]
        matched.last_sequence = _SEQUENCE.unpack_from(memory, (segments - 1) * row_bytes + _SEQUENCE_AT)[0]
        return True

    def matches_alone(self, data: memoryview, first: int) -> int | None:
        """Return the sequence number of a single datagram that holds the object's segment `first`; None if it is
        another one."""
        pages = self._pages
        if not self._shortest_bytes <= len(data) <= self._row_bytes:
            return None
        if not pages.first <= first < pages.end and not pages.turn_to(first, 1):
            return None
        at = (first - pages.first) * pages.rest_bytes
        expected = pages.headers[at : at + pages.rest_bytes]
        if data[_REST_AT : self.header_bytes] != expected or data[:_SEQUENCE_AT] != self._kind:
            return None
        return data[_SEQUENCE_AT] << 8 | data[_SEQUENCE_AT + 1]

    def _view(self, data: NDArray[np.uint8], rows: int) -> None:
        step = (self._row_bytes,)
        self._data = data
        self._kinds = np.ndarray((rows,), f"V{_SEQUENCE_AT}", data, 0, step)
        self._rests = np.ndarray((rows,), self._pages.dtype, data, _REST_AT, step)
        self.train.payloads = data[: rows * self._row_bytes].reshape(rows, self._row_bytes)[:, self.header_bytes :]

    def _forget_view(self) -> None:
        self._data, self.train.payloads = None, _NO_ROWS
