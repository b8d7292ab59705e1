"""What a sender sends: DATA and FILE objects and STREAMs, cut into trains, with their parity and their repairs."""

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fjm2.norm.core.config import SenderConfig
from fjm2.norm.core.fec import Code, NoCode, ReedSolomon
from fjm2.norm.core.id_pages import IdPages
from fjm2.norm.core.partition import ObjectPartition, Partition, StreamPartition
from fjm2.norm.core.repair_set import RecentRepairs, RepairSet
from fjm2.norm.core.train import MADE_TRAIN_BYTES_MAX, TRAIN_SEGMENTS_MAX
from fjm2.norm.core.wire import Data, Fti, HeaderStamp, ObjectFlag

from .sources import Source
from .stream import StreamRing

_PARITY_BLOCKS_KEPT = 16
_TRAINS_LAID_OUT = 4


@dataclass(slots=True)
class Rows:
    """A train's datagrams, laid out and stamped but for what the sender counts."""

    data: NDArray[np.uint8]
    row_bytes: int
    count: int


class RowBuffer:
    """Room for some trains of DATA, which all objects at rest of a sender lay theirs out in, one after the other."""

    def __init__(self, segment_bytes: int, header: Data) -> None:
        self.header_bytes = len(header.encode())
        self.row_bytes = self.header_bytes + segment_bytes
        rows = max(1, min(TRAIN_SEGMENTS_MAX, MADE_TRAIN_BYTES_MAX // self.row_bytes)) * _TRAINS_LAID_OUT
        self.data = np.zeros(rows * self.row_bytes, np.uint8)
        self.payload = self.data.reshape(rows, self.row_bytes)[:, self.header_bytes :]
        self._stamp = HeaderStamp(self.data, self.row_bytes, header)
        self._header = header

    def stamp(self, header: Data, sequence: int, payload_ids: NDArray[np.unsignedinteger]) -> None:
        """Write the headers of as many rows as there are payload ids."""
        if header is not self._header:
            self._header = header
            self._stamp.preset(header)
        self._stamp.stamp(sequence, payload_ids)


class SendObject(ABC):
    """What DATA, FILE and STREAM have in common: identity, INFO, progress and repairs."""

    flags: int = 0
    partition: Partition

    def __init__(self, object_id: int, info: bytes | None, config: SenderConfig) -> None:
        self.id = object_id
        self.order = 0
        """Grows from object to object, where ids wrap."""
        self.id_pages: IdPages | None = None
        self.preset_said: tuple[int, int] | None = None
        """The GRTT code and the back-off factor that its headers were last preset with."""
        self.info = info
        self.config = config
        self.next_index = 0
        """The first source segment that has not been sent yet."""
        self.sent_mark = 0
        """Segments of all objects that had been sent when this one had been."""
        self.parity_due: tuple[int, range] | None = None
        """Proactive parity that the last train's block still needs: block and rows."""
        self.info_due = info is not None
        self.asked = RepairSet()
        """What has been asked for since the last repair began."""
        self.repairs = RepairSet()
        """What is being repaired."""
        self.recent = RecentRepairs()
        self.fresh_parity: dict[int, int] = {}
        """Block to the first parity row never sent, where some have been."""
        self._parity: OrderedDict[int, NDArray[np.uint8]] = OrderedDict()
        blocks, parity = config.block_segments, config.parity_segments
        self._code: Code = ReedSolomon(blocks, parity) if parity else NoCode(blocks)
        if info is not None:
            self.flags |= ObjectFlag.INFO

    @property
    @abstractmethod
    def sendable(self) -> int:
        """Index after the last source segment that can be sent now."""

    @property
    def first_held(self) -> int:
        """Index of the first source segment that can be repaired."""
        return 0

    @property
    def has_data(self) -> bool:
        """Whether there is anything of it to be sent, or was."""
        return self.sendable > 0 or self.info is not None

    @property
    def is_sent(self) -> bool:
        """Whether nothing of it will be sent but on request."""
        return self.next_index >= self.sendable and not self.info_due and self.parity_due is None

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """What it takes of the cache."""

    @property
    @abstractmethod
    def fti(self) -> Fti:
        """What receivers have to know of it."""

    @abstractmethod
    def preset(self, header: Data, buffer: RowBuffer) -> None:
        """Take the header that all coming trains begin with, and room for them."""

    @abstractmethod
    def source_rows(self, first: int, count: int, sequence: int, payload_ids: NDArray[np.unsignedinteger]) -> Rows:
        """Source segments from `first` on, of one region: as many of `count` as lie together, a train's at least."""

    @abstractmethod
    def gathered_rows(self, indexes: Sequence[int], sequence: int, payload_ids: NDArray[np.unsignedinteger]) -> Rows:
        """A train of full source segments that need not be neighbours, of one region; no more than a train holds."""

    @abstractmethod
    def segment_length(self, index: int) -> int:
        """Bytes of a source segment."""

    def parity_rows(self, block: int, rows: range) -> NDArray[np.uint8]:
        """Parity symbols of a block that is still held as a whole, [rows, bytes]."""
        parity = self._parity.get(block)
        if parity is None:
            parity = self._code.encode(self._block_symbols(block)[np.newaxis])[0]
            self._parity[block] = parity
            if len(self._parity) > _PARITY_BLOCKS_KEPT:
                self._parity.popitem(last=False)
        return parity[rows.start : rows.stop]

    @abstractmethod
    def _block_symbols(self, block: int) -> NDArray[np.uint8]:
        """A block's source symbols, padded to the length of its longest."""

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Give up what it holds."""


class SendData(SendObject):
    """A DATA or FILE object: bytes at rest, laid into trains when they are sent."""

    def __init__(
        self, object_id: int, source: Source, info: bytes | None, config: SenderConfig, is_file: bool = False
    ) -> None:
        super().__init__(object_id, info, config)
        self.source = source
        self.partition: ObjectPartition = ObjectPartition(source.size, config.segment_bytes, config.block_segments)
        if is_file:
            self.flags |= ObjectFlag.FILE

    @property
    def sendable(self) -> int:
        return self.partition.segments

    @property
    def memory_bytes(self) -> int:
        return self.source.memory_bytes

    @property
    def fti(self) -> Fti:
        return _fti(self.source.size, self.config)

    def preset(self, header: Data, buffer: RowBuffer) -> None:
        self._header, self._buffer = header, buffer

    def source_rows(self, first: int, count: int, sequence: int, payload_ids: NDArray[np.unsignedinteger]) -> Rows:
        payload = self._buffer.payload
        count = min(count, len(payload))
        segment_bytes = self.config.segment_bytes
        last_bytes = self.partition.segment_length(first + count - 1)
        full = count if last_bytes == segment_bytes else count - 1
        if full:
            self.source.read(first * segment_bytes, payload[:full])
        if full < count:
            self.source.read((first + full) * segment_bytes, payload[full : full + 1, :last_bytes])
        return self._stamped(count, sequence, payload_ids, segment_bytes - last_bytes)

    def gathered_rows(self, indexes: Sequence[int], sequence: int, payload_ids: NDArray[np.unsignedinteger]) -> Rows:
        payload = self._buffer.payload
        for row, index in enumerate(indexes):
            self.source.read(index * self.config.segment_bytes, payload[row : row + 1])
        return self._stamped(len(indexes), sequence, payload_ids, 0)

    def _stamped(self, count: int, sequence: int, payload_ids: NDArray[np.unsignedinteger], lacking: int) -> Rows:
        buffer = self._buffer
        buffer.stamp(self._header, sequence, payload_ids[:count])
        return Rows(buffer.data[: count * buffer.row_bytes - lacking], buffer.row_bytes, count)

    def segment_length(self, index: int) -> int:
        return self.partition.segment_length(index)

    def _block_symbols(self, block: int) -> NDArray[np.uint8]:
        first, count = self.partition.first_segment(block), self.partition.block_length(block)
        segment_bytes = self.config.segment_bytes
        symbols = np.zeros((count, segment_bytes), np.uint8)
        last_bytes = self.partition.segment_length(first + count - 1)
        full = count if last_bytes == segment_bytes else count - 1
        if full:
            self.source.read(first * segment_bytes, symbols[:full])
        if full < count:
            self.source.read((first + full) * segment_bytes, symbols[full : full + 1, :last_bytes])
            # Parity is as long as the block's longest symbol (RFC 5740 leaves it open; so does libnorm).
            symbols = symbols if full else symbols[:, :last_bytes]
        return symbols

    def close(self) -> None:
        self.source.close()


class SendStream(SendObject):
    """A STREAM: bytes are written while others are sent."""

    flags = ObjectFlag.STREAM

    def __init__(self, object_id: int, info: bytes | None, config: SenderConfig, header: Data) -> None:
        super().__init__(object_id, info, config)
        self.partition: StreamPartition = StreamPartition(config.block_segments)
        self.ring = StreamRing(config.segment_bytes, config.stream_blocks * config.block_segments, header)
        self.is_flushed = False
        """Whether what has been written goes out though it fills no train."""
        self._train_segments = max(1, min(TRAIN_SEGMENTS_MAX, MADE_TRAIN_BYTES_MAX // self.ring.row_bytes))
        self.is_room_wanted = False
        """Whether the writer found no room and is to be told when there is some."""
        self.confirmed_index: int | None = None
        """The first segment that those who are waited for may still need; None if nobody is."""

    @property
    def sendable(self) -> int:
        if self.is_flushed:
            return self.ring.closed
        return self.ring.closed - (self.ring.closed - self.next_index) % self._train_segments

    @property
    def first_held(self) -> int:
        return self.ring.first

    @property
    def memory_bytes(self) -> int:
        return self.ring.buffer.size

    @property
    def fti(self) -> Fti:
        return stream_fti(self.config)

    @property
    def room(self) -> int:
        """Bytes that can be written now.

        What is not confirmed stays. Where nobody confirms, half of the ring waits to be sent, half can be repaired.
        """
        if self.ring.is_ended:
            return 0
        if self.confirmed_index is None:
            return self.ring.room(self.next_index + self.ring.rows // 2)
        return self.ring.room(self.confirmed_index + self.ring.rows - 1)

    def preset(self, header: Data, buffer: RowBuffer) -> None:  # noqa: ARG002 - its ring is its room
        self.ring.stamp.preset(header)
        row_bytes = self.ring.row_bytes
        self._repairs = np.zeros(self._train_segments * row_bytes, np.uint8)
        self._repair_stamp = HeaderStamp(self._repairs, row_bytes, header)

    def source_rows(self, first: int, count: int, sequence: int, payload_ids: NDArray[np.unsignedinteger]) -> Rows:
        # What is on its way out must not be overwritten before it has gone: of several trains no more than a part.
        row, count, data = self.ring.train(first, min(count, max(self._train_segments, self.ring.rows // 4)))
        self.ring.stamp.stamp(sequence, payload_ids[:count], row)
        return Rows(data, self.ring.row_bytes, count)

    def gathered_rows(self, indexes: Sequence[int], sequence: int, payload_ids: NDArray[np.unsignedinteger]) -> Rows:
        row_bytes = self.ring.row_bytes
        indexes = indexes[: self._repairs.size // row_bytes]
        rows = self._repairs[: len(indexes) * row_bytes]
        self.ring.copy(indexes, rows.reshape(-1, row_bytes))
        self._repair_stamp.stamp(sequence, payload_ids[: len(indexes)])
        return Rows(rows, row_bytes, len(indexes))

    def segment_length(self, index: int) -> int:
        return self.ring.length(index)

    def _block_symbols(self, block: int) -> NDArray[np.uint8]:
        return self.ring.symbols(self.partition.first_segment(block), self.config.block_segments)


def stream_fti(config: SenderConfig) -> Fti:
    """What receivers have to know of any stream: its size stands for its buffer."""
    return _fti(config.stream_blocks * config.block_segments * config.segment_bytes, config)


def _fti(object_bytes: int, config: SenderConfig) -> Fti:
    return Fti(
        fec_id=config.fec.fec_id,
        object_bytes=object_bytes,
        segment_bytes=config.segment_bytes,
        block_segments=config.block_segments,
        parity_segments=config.parity_segments,
    )
