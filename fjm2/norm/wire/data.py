"""Trains of DATA: headers written and read as numpy arrays over the whole train, with no loop over datagrams.

A `DataRun` is the part of a train that can be treated as one: one sender, one object, headers alike but for what counts
up. Nearly always it is the whole train.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fjm2.errors import WireError

from ..train import TRAIN_SEGMENTS_MAX, Train
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


class HeaderStamp:
    """Writes the headers of one object's trains into a buffer of its caller's, over and over.

    What never changes is written once, at construction; `stamp` writes what counts up.
    """

    __slots__ = ("_lengths", "_offsets", "_payload_ids", "_ramp", "_sequences", "_starts", "header_bytes")

    def __init__(self, buffer: NDArray[np.uint8], segment_bytes: int, header: Data) -> None:
        is_stream = bool(header.flags & ObjectFlag.STREAM)
        wire = header.encode()
        dtype = header_dtype(header.fec_id, len(wire), is_stream)
        self.header_bytes = dtype.itemsize
        """What each segment begins with, the stream's header included."""
        if segment_bytes < dtype.itemsize:
            raise ValueError(f"segment_bytes={segment_bytes}: expected {dtype.itemsize} at least")
        count = min(buffer.size // segment_bytes, TRAIN_SEGMENTS_MAX)
        headers = np.ndarray((count,), dtype, buffer.data, strides=(segment_bytes,))
        headers[:] = np.frombuffer(wire + bytes(dtype.itemsize - len(wire)), dtype)
        self._sequences = headers["sequence"]
        self._payload_ids = headers["payload_id"]
        self._ramp = np.arange(count, dtype=np.uint16)
        if is_stream:
            self._lengths = headers["length"]
            self._starts = headers["message_start"]
            self._offsets = headers["offset"]

    def stamp(self, sequence: int, payload_ids: NDArray[np.unsignedinteger]) -> None:
        """Number as many segments as there are payload ids, with sequences from `sequence` on."""
        count = len(payload_ids)
        np.add(self._ramp[:count], np.uint16(sequence), out=self._sequences[:count])
        self._payload_ids[:count] = payload_ids

    def stamp_stream(
        self,
        lengths: NDArray[np.integer] | int,
        message_starts: NDArray[np.integer] | int,
        offsets: NDArray[np.uint32],
    ) -> None:
        """Write the stream headers of as many segments as there are offsets."""
        count = len(offsets)
        self._lengths[:count] = lengths
        self._starts[:count] = message_starts
        self._offsets[:count] = offsets


@dataclass(frozen=True, slots=True, eq=False)
class RunHeader:
    """What the headers of a run have in common."""

    message: Data
    """Decoded from one segment; its sequence, payload id and payload stand for none."""
    fti: Fti | None
    dtype: np.dtype[np.void]
    """All that stands before the payload, a stream's header included."""

    @property
    def is_stream(self) -> bool:
        return bool(self.message.flags & ObjectFlag.STREAM)


@dataclass(slots=True, eq=False)
class DataRun:
    """Consecutive DATA of one sender and one object. The arrays are views into the train: borrowed, big-endian."""

    header: RunHeader
    headers: NDArray[np.void]
    """Every segment's header by field: `sequence`, `payload_id` and, in streams, `length`, `message_start`, `offset`."""
    payloads: NDArray[np.uint8]
    """[full segments, bytes], strided."""
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
        data, segment_bytes = train.data, train.segment_bytes
        start = 0
        while start < data.size:
            header = self._header_at(data, start, min(segment_bytes, data.size - start))
            if header is None:
                yield data[start : start + segment_bytes].tobytes()
                start += segment_bytes
                continue
            run = _run_at(data, start, segment_bytes, header)
            yield run
            start += run.count * segment_bytes

    def _header_at(self, data: NDArray[np.uint8], start: int, size: int) -> RunHeader | None:
        if size < _SHORTEST or data[start] != DATA_BYTE:
            return None
        words = int(data[start + 1])
        if 4 * words > size:
            return None
        raw = data[start : start + 4 * words].tobytes()
        key = raw[:2] + raw[4:16] + raw[_EXTENSIONS_AT.get(raw[13], 16) :] if len(raw) >= _SHORTEST else raw
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
    dtype = header_dtype(message.fec_id, len(raw), bool(message.flags & ObjectFlag.STREAM))
    return RunHeader(message, fti, dtype)


def _run_at(data: NDArray[np.uint8], start: int, segment_bytes: int, header: RunHeader) -> DataRun:
    """As many segments from `start` on as have this header."""
    size = header.dtype.itemsize
    count = 1 + (data.size - start - size) // segment_bytes
    if count > 1:
        count = _count_alike(data, start, segment_bytes, count, header)
    headers = np.ndarray((count,), header.dtype, data.data, start, (segment_bytes,))
    full = min(count, (data.size - start) // segment_bytes)
    payloads = np.ndarray((full, segment_bytes - size), np.uint8, data.data, start + size, (segment_bytes, 1))
    tail = data[start + full * segment_bytes + size : start + count * segment_bytes]
    return DataRun(header, headers, payloads, tail)


def _count_alike(data: NDArray[np.uint8], start: int, segment_bytes: int, count: int, header: RunHeader) -> int:
    """How many segments, the first included, have the first one's header, but for sequence and payload id."""
    fields = header.dtype.fields
    assert fields is not None
    extensions, at = fields["extensions"][:2]
    for size, offset in ((2, 0), (12, 4), (extensions.itemsize, at)):
        if not size:
            continue
        column = np.ndarray((count,), f"V{size}", data.data, start + offset, (segment_bytes,)).tobytes()
        if column != column[:size] * count:
            rows = np.frombuffer(column, np.uint8).reshape(count, size)
            count = int((rows != rows[0]).any(axis=1).argmax())
    return count
