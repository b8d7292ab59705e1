"""The frames of a stream as they pass: nothing is asked for, and what is missing is not waited for."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fjm2.messages.frame import Frame, FrameReader
from fjm2.norm.core.wire import STREAM_HEADER, DataRun, Fti, payload_id_format

_HEADER: Final = STREAM_HEADER.size
_PLACES: Final = 1 << 32
"""So many bytes of a stream the wire can tell apart."""
_FAR_BEHIND: Final = 1 << 28
"""No sender repairs what is so far back: whoever told of a place that far ahead was wrong."""


class PassingStream:
    """What one stream of a sender says to whoever is there, from the first message mark on."""

    def __init__(self) -> None:
        self.bytes_missed = 0
        """That passed by unheard, since the first that was heard."""
        self._reader = FrameReader()
        self._fti: Fti | None = None
        self._next: int | None = None
        """Place of the next byte."""

    @property
    def held_bytes(self) -> int:
        """Of a frame that has begun."""
        return self._reader.held_bytes

    def release(self) -> None:
        """Give up the frame that has begun."""
        self._reader.reset()

    def read(self, run: DataRun) -> list[Frame]:
        """The frames that end in these segments."""
        self._fti = run.header.fti or self._fti
        frames: list[Frame] = []
        for place, data, marks in self._pieces(run):
            frames += self._follow(place, data, marks)
        return frames

    def _pieces(self, run: DataRun) -> Iterator[tuple[int, bytes, list[int]]]:
        """Segments that continue each other, as one: the place in the stream, the bytes, and where messages begin."""
        lengths, starts, places = (run.headers[name].astype(np.int64) for name in ("length", "message_start", "offset"))
        rooms = np.full(run.count, run.tail.size - _HEADER, np.int64)
        rooms[: len(run.payloads)] = run.payloads.shape[1] - _HEADER
        is_good = (lengths > 0) & (lengths <= rooms) & self._is_source(run)
        is_next = is_good[1:] & is_good[:-1] & (places[1:] == (places[:-1] + lengths[:-1]) % _PLACES)
        cuts = (np.flatnonzero(~is_next) + 1).tolist()
        for first, end in zip([0, *cuts], [*cuts, run.count], strict=True):
            if is_good[first]:
                some = slice(first, end)
                data = _content(run, first, end, lengths[some], bool((lengths[some] == rooms[some]).all()))
                yield int(places[first]), data, _marks(lengths[some], starts[some])

    def _is_source(self, run: DataRun) -> NDArray[np.bool_]:
        """Which segments are no parity."""
        fec_id = run.header.message.fec_id
        payload_ids = run.headers["payload_id"].astype(np.int64)
        if not fec_id:  # there is none without a code
            return np.ones(run.count, np.bool_)
        if self._fti is None:
            return np.zeros(run.count, np.bool_)
        form = payload_id_format(fec_id, 16 if self._fti.field_bits == 16 else 8)
        return (payload_ids & ((1 << form.symbol_bits) - 1)) < self._fti.block_segments

    def _follow(self, place: int, data: bytes, marks: list[int]) -> list[Frame]:
        ahead = 0 if self._next is None else (place - self._next + _PLACES // 2) % _PLACES - _PLACES // 2
        if -_FAR_BEHIND < ahead < 0:
            # Repaired for somebody else, or late. What comes behind it may be new all the same.
            if len(data) <= -ahead:
                return []
            data, marks = data[-ahead:], [mark + ahead for mark in marks if mark + ahead >= 0]
            place -= ahead
        elif ahead:
            self.bytes_missed += max(ahead, 0)
            self._reader.reset()
        self._next = (place + len(data)) % _PLACES
        return self._reader.feed(data, marks)


def _content(run: DataRun, first: int, end: int, lengths: NDArray[np.int64], is_full: bool) -> bytes:
    if is_full and end <= len(run.payloads):
        return run.payloads[first:end, _HEADER:].tobytes()
    rows = (run.payloads[row] if row < len(run.payloads) else run.tail for row in range(first, end))
    return b"".join(row[_HEADER : _HEADER + size].tobytes() for row, size in zip(rows, lengths.tolist(), strict=True))


def _marks(lengths: NDArray[np.int64], starts: NDArray[np.int64]) -> list[int]:
    marked = np.flatnonzero((starts > 0) & (starts <= lengths))
    before = np.cumsum(lengths) - lengths
    found: list[int] = (before[marked] + starts[marked] - 1).tolist()
    return found
