"""Trains of DATA: headers are written and read as numpy arrays over the whole train, without a loop over datagrams.

A `DataRun` is a part of a train that is handled in one step: its headers are those of one sender and one object, and
differ only in sequence and position. A run is nearly always a whole train.
"""

import struct
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
"""First byte of every DATA."""
_SEQUENCE = struct.Struct(">H")
_SEQUENCE_AT = 2
"""Offset of the sequence in every NORM message."""
_PAYLOAD_ID_AT = 16
"""Offset of the payload id in DATA (RFC 5740, 4.2.1)."""
STREAM_HEADER = struct_of(STREAM)
"""Format of the stream header, with which each source symbol of a stream begins: length, message start and offset."""


@lru_cache(maxsize=256)
def header_dtype(fec_id: int, header_bytes: int, is_stream: bool) -> np.dtype[np.void]:
    """Return the dtype of a DATA header, with all extensions as one field, and of the stream header if there is one."""
    fixed = dtype_of((*COMMON, *FROM_SENDER, *OBJECT, ("payload_id", PAYLOAD_ID_CODE[fec_id])))
    extensions = ("extensions", f"V{header_bytes - fixed.itemsize}")
    return np.dtype([*fixed.descr, extensions, *(dtype_of(STREAM).descr if is_stream else ())])


_SEQUENCES = (np.arange((1 << 16) + 16 * TRAIN_SEGMENTS_MAX) & 0xFFFF).astype(">u2")
"""All sequence numbers, followed by the first ones again. Copying them to a few trains is faster than counting."""


class HeaderStamp:
    """Writer of DATA headers into a buffer of rows, in which the payloads are already."""

    __slots__ = (
        "_heads",
        "_lengths",
        "_offsets",
        "_payload_ids",
        "_sequences",
        "_starts",
        "_template",
        "_wire",
        "memory",
        "row_bytes",
    )

    def __init__(self, buffer: NDArray[np.uint8], row_bytes: int, header: Data) -> None:
        is_stream = bool(header.flags & ObjectFlag.STREAM)
        wire = header.encode()
        dtype = header_dtype(header.fec_id, len(wire), is_stream)
        if row_bytes < dtype.itemsize:
            raise ValueError(f"row_bytes={row_bytes}: expected {dtype.itemsize} at least")
        self.row_bytes = row_bytes
        self.memory = buffer.data
        """The buffer."""
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
        """Set what the next headers have in common. Raise ValueError if the length of the header changes."""
        wire = header.encode()
        if len(wire) != self._heads.itemsize:
            raise ValueError(f"header of {len(wire)} bytes: expected {self._heads.itemsize}")
        self._template = np.void(wire)
        self._wire = wire

    def stamp(self, sequence: int, payload_ids: NDArray[np.unsignedinteger], row: int = 0) -> None:
        """Write one header for each payload id, from a row on, with consecutive sequence numbers."""
        count = len(payload_ids)
        end = row + count
        self._heads[row:end] = self._template
        self._sequences[row:end] = _SEQUENCES[sequence : sequence + count]
        self._payload_ids[row:end] = payload_ids

    def stamp_one(self, sequence: int, payload_id: bytes, at: int) -> None:
        """Do the same for the row that begins at index `at`, a lone message's. For so little, arrays take longer than
        bytes."""
        memory, wire = self.memory, self._wire
        memory[at : at + len(wire)] = wire
        _SEQUENCE.pack_into(memory, at + _SEQUENCE_AT, sequence)
        at += _PAYLOAD_ID_AT
        memory[at : at + len(payload_id)] = payload_id

    def stamp_stream(
        self,
        lengths: NDArray[np.integer] | int,
        message_starts: NDArray[np.integer] | int,
        offsets: NDArray[np.uint32],
        row: int = 0,
    ) -> None:
        """Write one stream header for each offset, from a row on."""
        end = row + len(offsets)
        self._lengths[row:end] = lengths
        self._starts[row:end] = message_starts
        self._offsets[row:end] = offsets


@dataclass(frozen=True, slots=True, eq=False)
class RunHeader:
    """Common part of the headers of a run."""

    message: Data
    """DATA decoded from one segment, for the common fields. Its sequence, payload id and payload have no meaning."""
    fti: Fti | None
    dtype: np.dtype[np.void]
    """Dtype of everything before the payload, including the stream header in streams."""
    raw: bytes
    """Bytes of the NORM header of the first segment received with this header, with its sequence and payload id."""
    constants: tuple[tuple[np.dtype[np.void], int, bytes], ...]
    """Parts that are equal in all headers: dtype, offset and value of each span of bytes."""

    @property
    def norm_bytes(self) -> int:
        """Length of the NORM header in bytes."""
        return len(self.raw)

    @property
    def is_stream(self) -> bool:
        """True if the object is a STREAM."""
        return bool(self.message.flags & ObjectFlag.STREAM)


@dataclass(slots=True, eq=False)
class DataRun:
    """Consecutive DATA of one sender and one object. The arrays are borrowed views into the train, and big-endian."""

    header: RunHeader
    headers: NDArray[np.void]
    """Header of each segment: `sequence`, `payload_id` and, in streams, `length`, `message_start`, `offset`."""
    payloads: NDArray[np.uint8]
    """Bytes after the NORM header, `[full segments, bytes]`, strided. In streams they begin with the stream header."""
    tail: NDArray[np.uint8]
    """Payload of a last segment that is shorter, and so is not in `payloads`; empty if there is none."""

    @property
    def count(self) -> int:
        """Number of segments."""
        return len(self.headers)


class DataReader:
    """Reader that cuts trains into runs. It remembers decoded headers, which hardly change from train to train."""

    _HEADERS_MAX = 64
    """Maximum number of headers remembered: a few for each sender that is active."""

    __slots__ = ("_headers",)

    def __init__(self) -> None:
        self._headers: dict[bytes, RunHeader] = {}

    def read(self, train: Train) -> Iterator[DataRun | bytes]:
        """Yield the runs of a train in order. A datagram that is not well-formed DATA is yielded as bytes."""
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
        # The key has the length: else a header too short for its payload id would pass for one without extensions.
        key = raw[1:2] + raw[4:16] + raw[_EXTENSIONS_AT.get(raw[13], 16) :]
        header = self._headers.get(key)
        if header is None:
            header = _decode_header(raw)
            if header is None:
                return None
            if len(self._headers) >= self._HEADERS_MAX:
                self._headers.clear()
            self._headers[key] = header
        # A segment of a stream must also hold the stream header. The remembered header may come from a longer segment.
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
    """Return the run of segments from `start` on that have the header `header`."""
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
    """Return the number of segments from `start` on whose headers have the same constant parts as the first."""
    for dtype, at, constant in header.constants:
        column = np.ndarray((count,), dtype, data, start + at, (segment_bytes,)).tobytes()
        if column != constant * count:
            rows = np.frombuffer(column, np.uint8).reshape(count, -1)
            count = int((rows != rows[0]).any(axis=1).argmax())
    return count


_STREAM_DTYPE = dtype_of(STREAM)


def stream_fields(payloads: NDArray[np.uint8]) -> NDArray[np.void]:
    """Return a view of the stream headers (`length`, `message_start`, `offset`) at the beginning of all rows."""
    fields: NDArray[np.void] = payloads[:, : STREAM_HEADER.size].view(_STREAM_DTYPE)[:, 0]
    return fields
