"""Trains of DATA: headers written and read as numpy arrays over the whole train, with no loop over datagrams.

A `DataRun` is the part of a train that can be treated as one: one sender, one object, headers alike but for what counts
up. Nearly always it is the whole train.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fjm2.base.errors import WireError
from fjm2.norm.core.train import TRAIN_SEGMENTS_MAX, Train

from .codes import VERSION, MessageType, ObjectFlag
from .extensions import Fti
from .layout import COMMON, FROM_SENDER, OBJECT, STREAM, dtype_of, struct_of
from .messages import Data, decode
from .positions import PAYLOAD_ID_CODE

DATA_BYTE = VERSION << 4 | MessageType.DATA
"""The first byte of every DATA."""
STREAM_HEADER = struct_of(STREAM)
"""Length, message start and offset: the first bytes of a stream's source symbols."""


@lru_cache(maxsize=256)
def header_dtype(fec_id: int, header_bytes: int, is_stream: bool) -> np.dtype[np.void]:
    """The header of a DATA as the fields of the wire, with `extensions` as one, and the stream's header behind it."""
    fixed = dtype_of((*COMMON, *FROM_SENDER, *OBJECT, ("payload_id", PAYLOAD_ID_CODE[fec_id])))
    extensions = ("extensions", f"V{header_bytes - fixed.itemsize}")
    return np.dtype([*fixed.descr, extensions, *(dtype_of(STREAM).descr if is_stream else ())])


_SEQUENCES = (np.arange((1 << 16) + 16 * TRAIN_SEGMENTS_MAX) & 0xFFFF).astype(">u2")
"""All of them, and on from the first: those of some trains are copied, which is faster than to count."""


class HeaderStamp:
    """Writes the headers of one sender's DATA into a buffer of rows, where the payloads stand already."""

    __slots__ = (
        "_heads",
        "_lengths",
        "_offsets",
        "_payload_ids",
        "_sequences",
        "_starts",
        "_template",
        "row_bytes",
    )

    def __init__(self, buffer: NDArray[np.uint8], row_bytes: int, header: Data) -> None:
        is_stream = bool(header.flags & ObjectFlag.STREAM)
        wire = header.encode()
        dtype = header_dtype(header.fec_id, len(wire), is_stream)
        if row_bytes < dtype.itemsize:
            raise ValueError(f"row_bytes={row_bytes}: expected {dtype.itemsize} at least")
        self.row_bytes = row_bytes
        rows = buffer.size // row_bytes
        headers = np.ndarray((rows,), dtype, buffer, 0, (row_bytes,))
        self._heads = np.ndarray((rows,), f"V{len(wire)}", buffer, 0, (row_bytes,))
        self._sequences = headers["sequence"]
        self._payload_ids = headers["payload_id"]
        if is_stream:
            self._lengths = headers["length"]
            self._starts = headers["message_start"]
            self._offsets = headers["offset"]
        self.preset(header)

    def preset(self, header: Data) -> None:
        """What the coming headers have in common. It has to be as long as before."""
        wire = header.encode()
        if len(wire) != self._heads.itemsize:
            raise ValueError(f"header of {len(wire)} bytes: expected {self._heads.itemsize}")
        self._template = np.void(wire)

    def stamp(self, sequence: int, payload_ids: NDArray[np.unsignedinteger], row: int = 0) -> None:
        """Write as many headers as there are payload ids, from a row on, with sequences from `sequence` on."""
        count = len(payload_ids)
        end = row + count
        self._heads[row:end] = self._template
        self._sequences[row:end] = _SEQUENCES[sequence : sequence + count]
        self._payload_ids[row:end] = payload_ids

    def stamp_stream(
        self,
        lengths: NDArray[np.integer] | int,
        message_starts: NDArray[np.integer] | int,
        offsets: NDArray[np.uint32],
        row: int = 0,
    ) -> None:
        """Write as many stream headers as there are offsets, from a row on."""
        end = row + len(offsets)
        self._lengths[row:end] = lengths
        self._starts[row:end] = message_starts
        self._offsets[row:end] = offsets


@dataclass(frozen=True, slots=True, eq=False)
class RunHeader:
    """What the headers of a run have in common."""

    message: Data
    """Decoded from one segment; its sequence, payload id and payload stand for none."""
    fti: Fti | None
    dtype: np.dtype[np.void]
    """All that stands before the payload, a stream's header included."""
    raw: bytes
    """NORM's own header as it came first, with the sequence and the payload id of then."""
    constants: tuple[tuple[np.dtype[np.void], int, bytes], ...]
    """What does not count up, as spans of bytes: each one's dtype, offset and value."""

    @property
    def norm_bytes(self) -> int:
        """Length of NORM's own header."""
        return len(self.raw)

    @property
    def is_stream(self) -> bool:
        return bool(self.message.flags & ObjectFlag.STREAM)


@dataclass(slots=True, eq=False)
class DataRun:
    """Consecutive DATA of one sender and one object. The arrays are views into the train: borrowed, big-endian."""

    header: RunHeader
    headers: NDArray[np.void]
    """Each segment's header: `sequence`, `payload_id` and, in streams, `length`, `message_start`, `offset`."""
    payloads: NDArray[np.uint8]
    """What follows NORM's header, [full segments, bytes], strided; in streams the stream's header is part of it."""
    tail: NDArray[np.uint8]
    """The payload of the last segment, where it is shorter than the others and so none of `payloads`."""

    @property
    def count(self) -> int:
        """Segments."""
        return len(self.headers)


class DataReader:
    """Cuts trains into runs. It remembers the headers it has decoded, as trains of a sender hardly ever change them."""

    _REMEMBERED = 64

    __slots__ = ("_headers",)

    def __init__(self) -> None:
        self._headers: dict[bytes, RunHeader] = {}

    def read(self, train: Train) -> Iterator[DataRun | bytes]:
        """The runs of a train in order; what is no well-formed DATA comes as the bytes of its one datagram."""
        data, segment_bytes = train.data.data, train.segment_bytes
        start, end = 0, len(data)
        while start < end:
            header = self._header_at(data, start, min(segment_bytes, end - start))
            if header is None:
                yield bytes(data[start : start + segment_bytes])
                start += segment_bytes
                continue
            run = _run_at(train.data, start, segment_bytes, header)
            yield run
            start += run.count * segment_bytes

    def _header_at(self, data: memoryview, start: int, size: int) -> RunHeader | None:
        if size < _SHORTEST or data[start] != DATA_BYTE:
            return None
        end = 4 * data[start + 1]
        if not _SHORTEST <= end <= size:
            return None
        raw = bytes(data[start : start + end])
        # With the length, or else a header too short for its payload id would pass for one without extensions.
        key = raw[1:2] + raw[4:16] + raw[_EXTENSIONS_AT.get(raw[13], 16) :]
        header = self._headers.get(key)
        if header is None:
            header = _decode_header(raw)
            if header is None:
                return None
            if len(self._headers) >= self._REMEMBERED:
                self._headers.clear()
            self._headers[key] = header
        # A stream's segment has to hold the stream's header, too, and what is remembered may be of a longer one.
        return header if header.dtype.itemsize <= size else None


_EXTENSIONS_AT = {fec_id: 16 + (8 if code == "Q" else 4) for fec_id, code in PAYLOAD_ID_CODE.items()}
_SHORTEST = min(_EXTENSIONS_AT.values())


def _decode_header(raw: bytes) -> RunHeader | None:
    try:
        message = decode(raw)
    except WireError:
        return None
    if not isinstance(message, Data):
        return None
    fti = next((extension for extension in message.extensions if isinstance(extension, Fti)), None)
    extensions_at = _EXTENSIONS_AT[message.fec_id]
    spans = ((0, 2), (4, 16), (extensions_at, len(raw)))
    return RunHeader(
        message,
        fti,
        header_dtype(message.fec_id, len(raw), bool(message.flags & ObjectFlag.STREAM)),
        raw,
        tuple((np.dtype(f"V{end - at}"), at, raw[at:end]) for at, end in spans if end > at),
    )


def _run_at(data: NDArray[np.uint8], start: int, segment_bytes: int, header: RunHeader) -> DataRun:
    """As many segments from `start` on as have this header."""
    size, left = header.dtype.itemsize, data.size - start
    count = 1 + (left - size) // segment_bytes
    if count > 1:
        count = _count_alike(data, start, segment_bytes, count, header)
    headers = np.ndarray((count,), header.dtype, data, start, (segment_bytes,))
    size = header.norm_bytes
    full = min(count, left // segment_bytes)
    payloads = np.ndarray((full, segment_bytes - size), np.uint8, data, start + size, (segment_bytes, 1))
    tail = data[start + full * segment_bytes + size : start + count * segment_bytes]
    return DataRun(header, headers, payloads, tail)


def _count_alike(data: NDArray[np.uint8], start: int, segment_bytes: int, count: int, header: RunHeader) -> int:
    """How many segments, the first included, have the run's header, but for what counts up."""
    for dtype, at, constant in header.constants:
        column = np.ndarray((count,), dtype, data, start + at, (segment_bytes,)).tobytes()
        if column != constant * count:
            rows = np.frombuffer(column, np.uint8).reshape(count, -1)
            count = int((rows != rows[0]).any(axis=1).argmax())
    return count


_STREAM_DTYPE = dtype_of(STREAM)


def stream_fields(payloads: NDArray[np.uint8]) -> NDArray[np.void]:
    """`length`, `message_start` and `offset` of a stream's segments, each of which is a row that begins with them."""
    fields: NDArray[np.void] = payloads[:, : STREAM_HEADER.size].view(_STREAM_DTYPE)[:, 0]
    return fields
