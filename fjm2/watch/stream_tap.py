"""Reader of the frames of a stream as they pass. It requests no repairs, and does not wait for missing bytes."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fjm2.messages.frame import Frame, FrameReader
from fjm2.norm.core.wire import STREAM_HEADER, DataRun, Fti, payload_id_format

_HEADER_BYTES: Final = STREAM_HEADER.size
_OFFSETS: Final = 1 << 32
"""Number of offsets that the stream header can give. They have 32 bits, and wrap around."""
_FAR_BEHIND_BYTES: Final = 1 << 28
"""Distance that no sender buffers for repairs. If data seems further behind, an earlier offset was bogus."""


class StreamTap:
    """Extracts the frames of one stream, beginning at the first message start heard."""

    def __init__(self) -> None:
        self.bytes_missed = 0
        """Number of bytes that were not heard, since the first byte that was."""
        self._reader = FrameReader()
        self._fti: Fti | None = None
        self._next: int | None = None
        """Offset of the next byte, modulo 2**32."""

    @property
    def held_bytes(self) -> int:
        """Number of bytes held of an incomplete frame."""
        return self._reader.held_bytes

    def release(self) -> None:
        """Drop the incomplete frame."""
        self._reader.reset()

    def read(self, run: DataRun) -> list[Frame]:
        """Return the frames that the segments of a run complete."""
        self._fti = run.header.fti or self._fti
        frames: list[Frame] = []
        for place, data, marks in self._pieces(run):
            frames += self._follow(place, data, marks)
        return frames

    def _pieces(self, run: DataRun) -> Iterator[tuple[int, bytes, list[int]]]:
        """Join consecutive segments. Yield the offset in the stream, the bytes, and the indexes at which messages begin
        in them."""
        lengths, starts, places = (run.headers[name].astype(np.int64) for name in ("length", "message_start", "offset"))
        rooms = np.full(run.count, run.tail.size - _HEADER_BYTES, np.int64)
        rooms[: len(run.payloads)] = run.payloads.shape[1] - _HEADER_BYTES
        is_good = (lengths > 0) & (lengths <= rooms) & self._is_source(run)
        is_next = is_good[1:] & is_good[:-1] & (places[1:] == (places[:-1] + lengths[:-1]) % _OFFSETS)
        cuts = (np.flatnonzero(~is_next) + 1).tolist()
        for first, end in zip([0, *cuts], [*cuts, run.count], strict=True):
            if is_good[first]:
                some = slice(first, end)
                data = _content(run, first, end, lengths[some], bool((lengths[some] == rooms[some]).all()))
                yield int(places[first]), data, _marks(lengths[some], starts[some])

    def _is_source(self, run: DataRun) -> NDArray[np.bool_]:
        """Return True for each segment that carries data, False for parity."""
        fec_id = run.header.message.fec_id
        payload_ids = run.headers["payload_id"].astype(np.int64)
        if not fec_id:  # no-code FEC has no parity
            return np.ones(run.count, np.bool_)
        if self._fti is None:
            return np.zeros(run.count, np.bool_)
        form = payload_id_format(fec_id, 16 if self._fti.field_bits == 16 else 8)
        return (payload_ids & ((1 << form.symbol_bits) - 1)) < self._fti.block_segments

    def _follow(self, place: int, data: bytes, marks: list[int]) -> list[Frame]:
        ahead = 0 if self._next is None else (place - self._next + _OFFSETS // 2) % _OFFSETS - _OFFSETS // 2
        if -_FAR_BEHIND_BYTES < ahead < 0:
            # A repair for another receiver, or a late segment. Its tail may be new all the same.
            if len(data) <= -ahead:
                return []
            data, marks = data[-ahead:], [mark + ahead for mark in marks if mark + ahead >= 0]
            place -= ahead
        elif ahead:
            self.bytes_missed += max(ahead, 0)
            self._reader.reset()
        self._next = (place + len(data)) % _OFFSETS
        return self._reader.feed(data, marks)


def _content(run: DataRun, first: int, end: int, lengths: NDArray[np.int64], is_full: bool) -> bytes:
    if is_full and end <= len(run.payloads):
        return run.payloads[first:end, _HEADER_BYTES:].tobytes()
    rows = (run.payloads[row] if row < len(run.payloads) else run.tail for row in range(first, end))
    return b"".join(
        row[_HEADER_BYTES : _HEADER_BYTES + size].tobytes() for row, size in zip(rows, lengths.tolist(), strict=True)
    )


def _marks(lengths: NDArray[np.int64], starts: NDArray[np.int64]) -> list[int]:
    marked = np.flatnonzero((starts > 0) & (starts <= lengths))
    before = np.cumsum(lengths) - lengths
    found: list[int] = (before[marked] + starts[marked] - 1).tolist()
    return found
