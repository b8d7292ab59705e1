"""What the next trains of an object look like while nothing is lost: the way that nearly all data go.

All headers of a train are compared with what they should be at once. What is not just as expected is left to the
general way, which may be slow and has to be right on its own.
"""

import struct

import numpy as np
from numpy.typing import NDArray

from fjm2.norm.core.id_pages import IdPages
from fjm2.norm.core.train import TRAIN_SEGMENTS_MAX, Train
from fjm2.norm.core.wire import STREAM_HEADER, RunHeader

from .incoming_object import IncomingObject

_PAGE_SEGMENTS = 1024
_PAYLOAD_ID_AT = 16
_SEQUENCE = struct.Struct(">H")
_SEQUENCE_AT = 2
_REST_AT = 4
"""From here on headers are alike but for their payload ids; before come two bytes that are alike, and the sequence."""
_NO_ROWS = np.empty((0, 0), np.uint8)
_NO_TAIL = np.empty(0, np.uint8)


class InOrderMatcher:
    """The headers of an object's next segments, made by the page, and where in a train they lie."""

    __slots__ = (
        "_data",
        "_end",
        "_first",
        "_header_bytes",
        "_ids",
        "_kind",
        "_kinds",
        "_page",
        "_page_bytes",
        "_rest_bytes",
        "_rests",
        "_row_bytes",
        "_rows",
        "_shortest",
        "count",
        "first_sequence",
        "header",
        "item",
        "last_sequence",
        "payloads",
        "segments",
        "size",
        "tail",
    )

    def __init__(self, header: RunHeader, item: IncomingObject, count: int) -> None:
        self.header = header
        self.item = item
        self.count = count
        """The object's, in the window of its sender."""
        self._header_bytes = header.norm_bytes
        self._row_bytes = header.norm_bytes + item.symbol_bytes
        self._shortest = header.norm_bytes + (STREAM_HEADER.size if header.is_stream else 1)
        self._rest_bytes = header.norm_bytes - _REST_AT
        self._kind = header.raw[:_SEQUENCE_AT]
        self._ids = IdPages(item.layout)
        page = np.empty(_PAGE_SEGMENTS, f"V{self._rest_bytes}")
        page[:] = np.void(header.raw[_REST_AT:])
        self._page = page
        self._page_bytes = b""
        self._first = self._end = 0
        """Of the page."""
        # Views of the last train that was matched: a socket reads nearly all trains into the same place.
        self._data: NDArray[np.uint8] | None = None
        self._kinds = self._rests = np.empty(0, "V1")
        self._rows = 0
        # What the last match found.
        self.segments = 0
        self.payloads: NDArray[np.uint8] = _NO_ROWS
        """What follows NORM's header, of full segments."""
        self.tail: NDArray[np.uint8] = _NO_TAIL
        """Of a last one that is shorter."""
        self.size = 0
        """Bytes of both."""
        self.first_sequence = self.last_sequence = 0

    def matches(self, train: Train, first: int) -> bool:
        """Whether a train is just the segments from `first` on."""
        data, row_bytes = train.data, self._row_bytes
        rows, rest = divmod(data.size, row_bytes)
        segments = rows + (rest > 0)
        is_cut_so = train.segment_bytes == row_bytes or (rows == 0 and train.segment_bytes == rest)
        if not is_cut_so or segments > TRAIN_SEGMENTS_MAX or 0 < rest < self._shortest:
            return False
        if not (self._first <= first and first + segments <= self._end) and not self._turn_page(first, segments):
            return False
        at = (first - self._first) * self._rest_bytes
        middle = at + rows * self._rest_bytes
        if rows:
            if data is not self._data:
                self._look_at(data, rows)
            if self._kinds.tobytes() != self._kind * rows or self._rests.tobytes() != self._page_bytes[at:middle]:
                return False
        elif self._data is not None:
            self._forget()
        memory = data.data
        if rest:
            start = rows * row_bytes
            head = bytes(memory[start : start + self._header_bytes])
            is_alike = head[:_SEQUENCE_AT] == self._kind
            if not is_alike or head[_REST_AT:] != self._page_bytes[middle : middle + self._rest_bytes]:
                return False
            self.tail = data[start + self._header_bytes :]
        else:
            self.tail = _NO_TAIL
        self.segments = segments
        self.size = data.size - segments * self._header_bytes
        self.first_sequence = _SEQUENCE.unpack_from(memory, _SEQUENCE_AT)[0]
        self.last_sequence = _SEQUENCE.unpack_from(memory, (segments - 1) * row_bytes + _SEQUENCE_AT)[0]
        return True

    def _turn_page(self, first: int, segments: int) -> bool:
        """Make the headers from a segment on. False where they are not all of one region, or of the object."""
        left = self.item.layout.partition.region(first).end - first
        if segments > left:
            return False
        count = min(left, _PAGE_SEGMENTS)
        ids = self._ids.of(first, count)
        at = _PAYLOAD_ID_AT - _REST_AT
        np.ndarray((count,), ids.dtype, self._page, at, (self._rest_bytes,))[:] = ids
        self._page_bytes = self._page.tobytes()
        self._first, self._end = first, first + count
        return True

    def _look_at(self, data: NDArray[np.uint8], rows: int) -> None:
        step = (self._row_bytes,)
        self._data = data
        self._kinds = np.ndarray((rows,), f"V{_SEQUENCE_AT}", data, 0, step)
        self._rests = np.ndarray((rows,), self._page.dtype, data, _REST_AT, step)
        self.payloads = data[: rows * self._row_bytes].reshape(rows, self._row_bytes)[:, self._header_bytes :]

    def _forget(self) -> None:
        self._data, self.payloads = None, _NO_ROWS
