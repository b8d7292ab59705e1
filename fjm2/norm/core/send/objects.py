"""Objects of a sender: DATA, FILE and STREAM, which are cut into trains, with their parity and their repairs."""

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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

_PARITY_BLOCKS_MAX = 16
"""Maximum number of blocks whose parity is kept: requests for a block's parity come in waves, and encoding again is
expensive."""
_BUFFERED_TRAINS = 4
"""Number of trains that fit into the shared row buffer. Several are stamped together, and must stay until all are
sent."""


@dataclass(slots=True)
class Rows:
    """The datagrams of one train, or of several in a row, with complete headers."""

    data: NDArray[np.uint8]
    row_bytes: int
    count: int


class RowBuffer:
    """Memory for a few trains of DATA. All DATA and FILE objects of a sender lay out their trains in it, one by one."""

    def __init__(self, segment_bytes: int, header: Data) -> None:
        self.header_bytes = len(header.encode())
        self.row_bytes = self.header_bytes + segment_bytes
        rows = max(1, min(TRAIN_SEGMENTS_MAX, MADE_TRAIN_BYTES_MAX // self.row_bytes)) * _BUFFERED_TRAINS
        self.data = np.zeros(rows * self.row_bytes, np.uint8)
        self.payload = self.data.reshape(rows, self.row_bytes)[:, self.header_bytes :]
        self._stamp = HeaderStamp(self.data, self.row_bytes, header)
        self._header = header

    def stamp(self, header: Data, sequence: int, payload_ids: NDArray[np.unsignedinteger]) -> None:
        """Write a header to each of the first rows, one for each payload id."""
        if header is not self._header:
            self._header = header
            self._stamp.preset(header)
        self._stamp.stamp(sequence, payload_ids)


@dataclass(slots=True)
class ObjectRepairs:
    """Parts of one object that receivers requested, and what became of them."""

    due: RepairSet = field(default_factory=RepairSet)
    """Parts to be repaired now."""
    requested: RepairSet = field(default_factory=RepairSet)
    """Parts requested since the last repair began. Only used with parity, because requests are gathered first then."""
    recent: RecentRepairs = field(default_factory=RecentRepairs)
    """Parts repaired a moment ago. Requests for them are ignored: they were sent before the repair arrived."""
    fresh_parity: dict[int, int] = field(default_factory=dict)
    """First parity row that was never sent, by block, for the blocks of which some rows were sent as repair."""


class SendObject(ABC):
    """Base of DATA, FILE and STREAM: identity, INFO, progress and repairs."""

    flags: int = 0
    partition: Partition

    def __init__(self, object_id: int, info: bytes | None, config: SenderConfig) -> None:
        self.id = object_id
        self.order = 0
        """Position in the order of sending. Unlike transport ids, it does not wrap."""
        self.id_pages: IdPages | None = None
        self.preset_values: tuple[int, int] | None = None
        """GRTT code and back-off factor of the last header that was preset; None before the first."""
        self.info = info
        self.config = config
        self.next_index = 0
        """Index of the first source segment that was never sent."""
        self.sent_mark = 0
        """Number of segments, of all objects, that had been sent when all of this object had been sent."""
        self.parity_due: tuple[int, range] | None = None
        """Block and rows of proactive parity that follow the block that was sent last; None if nothing is due."""
        self.info_due = info is not None
        self.repairs = ObjectRepairs()
        """Parts that receivers requested."""
        self._parity: OrderedDict[int, NDArray[np.uint8]] = OrderedDict()
        blocks, parity = config.block_segments, config.parity_segments
        self._code: Code = ReedSolomon(blocks, parity) if parity else NoCode(blocks)
        if info is not None:
            self.flags |= ObjectFlag.INFO

    def change_flags(self, passing: int, info: bytes | None) -> None:
        """Set the flag PASSING, or none, in what is sent from now on. With an INFO, send that first."""
        self.flags = self.flags & ~ObjectFlag.PASSING | passing
        self.preset_values = None
        if info is not None:
            self.flags |= ObjectFlag.INFO
            self.info, self.info_due = info, True

    @property
    @abstractmethod
    def sendable(self) -> int:
        """Index after the last source segment that can be sent now."""

    @property
    def first_held(self) -> int:
        """Index of the first source segment that can be repaired."""
        return 0

    @property
    def first_recent(self) -> int:
        """Index of the first source segment that is sent to a receiver that has heard nothing of the object."""
        return self.first_held

    @property
    def has_data(self) -> bool:
        """True if there is, or was, anything to send."""
        return self.sendable > 0 or self.info is not None

    @property
    def is_sent(self) -> bool:
        """True if everything was sent once, so that nothing more is sent until it is requested."""
        return self.next_index >= self.sendable and not self.info_due and self.parity_due is None

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """Share of the cache that the object uses, in bytes."""

    @property
    @abstractmethod
    def fti(self) -> Fti:
        """FEC object transmission information: size and coding of the object, which receivers need to reassemble it."""

    @abstractmethod
    def preset(self, header: Data, buffer: RowBuffer) -> None:
        """Set the header of all coming trains, and the memory to lay them out in."""

    @abstractmethod
    def source_rows(self, first: int, count: int, sequence: int, payload_ids: NDArray[np.unsignedinteger]) -> Rows:
        """Lay out up to `count` consecutive source segments of one region: as many as lie together in memory."""

    @abstractmethod
    def gathered_rows(self, indexes: Sequence[int], sequence: int, payload_ids: NDArray[np.unsignedinteger]) -> Rows:
        """Lay out a train of full source segments of one region, in any order. Segments beyond a train are left out."""

    @abstractmethod
    def segment_length(self, index: int) -> int:
        """Return the length of a source segment in bytes."""

    def parity_rows(self, block: int, rows: range) -> NDArray[np.uint8]:
        """Return parity symbols of a block as `[rows, bytes]`. The whole block must still be held."""
        parity = self._parity.get(block)
        if parity is None:
            parity = self._code.encode(self._block_symbols(block)[np.newaxis])[0]
            self._parity[block] = parity
            if len(self._parity) > _PARITY_BLOCKS_MAX:
                self._parity.popitem(last=False)
        return parity[rows.start : rows.stop]

    @abstractmethod
    def _block_symbols(self, block: int) -> NDArray[np.uint8]:
        """Return a block's source symbols, padded to the length of the longest."""

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Release files and memory."""


class SendData(SendObject):
    """A DATA or FILE object: complete from the start, laid out in trains when sent."""

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

    def _stamped(self, count: int, sequence: int, payload_ids: NDArray[np.unsignedinteger], missing_bytes: int) -> Rows:
        buffer = self._buffer
        buffer.stamp(self._header, sequence, payload_ids[:count])
        return Rows(buffer.data[: count * buffer.row_bytes - missing_bytes], buffer.row_bytes, count)

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
            # Parity is as long as the block's longest symbol. RFC 5740 leaves this open; libnorm does the same.
            symbols = symbols if full else symbols[:, :last_bytes]
        return symbols

    def close(self) -> None:
        self.source.close()


class SendStream(SendObject):
    """A STREAM: the application writes while earlier bytes are sent."""

    flags = ObjectFlag.STREAM

    def __init__(
        self, object_id: int, info: bytes | None, config: SenderConfig, header: Data, ring_blocks: int
    ) -> None:
        super().__init__(object_id, info, config)
        self.partition: StreamPartition = StreamPartition(config.block_segments)
        self._ahead_segments = min(config.stream_blocks, ring_blocks) * config.block_segments
        """Segments that may be unconfirmed or unsent."""
        self._most_segments = ring_blocks * config.block_segments
        """Segments that are kept while a receiver is away. At other times, the buffer is shorter: a long one is written
        to memory that is in no cache of the processor."""
        self.ring = StreamRing(config.segment_bytes, self._ahead_segments, header)
        self._header = header
        self.is_flushed = False
        """True if everything written is to be sent, even if it fills no train."""
        self._train_segments = max(1, min(TRAIN_SEGMENTS_MAX, MADE_TRAIN_BYTES_MAX // self.ring.row_bytes))
        self.is_room_wanted = False
        """True if a writer found no room, and must be told when there is some."""
        self.confirmed_index: int | None = None
        """First segment that a receiver in the acking set may still need; None if the set is empty."""
        self._kept_index = 0
        """First segment that is to be kept, if not all are: those who have heard nothing need nothing before it."""
        self._held_index: int | None = None
        """First segment that a receiver may lack that was away and has come back; None if there is none."""

    @property
    def sendable(self) -> int:
        if self.is_flushed:
            return self.ring.closed
        return self.ring.closed - (self.ring.closed - self.next_index) % self._train_segments

    @property
    def first_held(self) -> int:
        return self.ring.first

    @property
    def first_recent(self) -> int:
        return min(max(self.ring.first, self.next_index - self._ahead_segments, self._kept_index), self.next_index)

    def pass_by(self) -> None:
        """Let what is written pass by those who receive only what is to be kept, until `keep`."""
        self.change_flags(ObjectFlag.PASSING, None)

    def keep(self, info_at: Callable[[int], bytes]) -> None:
        """Have everything kept that is written from now on. `info_at` returns the INFO that tells of a segment."""
        if self.ring.offset:
            self._kept_index = self.ring.closed
            self.change_flags(0, info_at(self._kept_index))
        else:
            self.change_flags(0, None)

    @property
    def is_passing(self) -> bool:
        """True while nothing of the stream is to be kept."""
        return bool(self.flags & ObjectFlag.PASSING)

    @property
    def capacity_bytes(self) -> int:
        """Maximum number of bytes that can be unconfirmed or wait to be sent."""
        return self._ahead_segments * self.ring.segment_bytes

    @property
    def memory_bytes(self) -> int:
        return self._most_segments * self.ring.row_bytes

    @property
    def fti(self) -> Fti:
        return stream_fti(self.config, self._most_segments // self.config.block_segments)

    @property
    def room(self) -> int:
        """Number of bytes that can be written now.

        Unconfirmed segments are kept. If nobody confirms, half of what may be unconfirmed is for segments that wait to
        be sent.
        """
        return self.ring.room(self.limit)

    @property
    def limit(self) -> int:
        """Index of the first segment that cannot be written now."""
        if self.ring.is_ended:
            return 0
        if self.confirmed_index is None:
            return self.next_index + self._ahead_segments // 2
        limit = self.confirmed_index + self._ahead_segments - 1
        if self._held_index is not None:
            limit = min(limit, self._held_index + self.ring.rows - 1)
        return limit

    def extend(self) -> None:
        """Keep more of what is confirmed from now on: a receiver is away that may need it."""
        if self.ring.rows < self._most_segments:
            self.ring.resize(self._most_segments, self._header)

    def contract(self) -> None:
        """Keep no more than what may be unconfirmed: no receiver is away."""
        if self.ring.rows > self._ahead_segments:
            self.ring.resize(self._ahead_segments, self._header)

    def hold(self, index: int | None) -> None:
        """Keep all segments from an index on, as far as they are still there; None ends that."""
        self._held_index = None if index is None else max(index, self.ring.first)

    def flush(self) -> None:
        """Let everything written so far be sent, even if it does not fill a segment or a train."""
        self.is_flushed = True
        if self.ring.fill and not self.ring.is_ended:
            self.ring.close_segment()

    def preset(self, header: Data, buffer: RowBuffer) -> None:  # noqa: ARG002 - trains lie in the ring
        self._header = header
        self.ring.stamp.preset(header)
        row_bytes = self.ring.row_bytes
        self._repairs = np.zeros(self._train_segments * row_bytes, np.uint8)
        self._repair_stamp = HeaderStamp(self._repairs, row_bytes, header)

    def source_rows(self, first: int, count: int, sequence: int, payload_ids: NDArray[np.unsignedinteger]) -> Rows:
        # Segments must not be overwritten before they have gone out, so several trains at once may cover only a part.
        row, count, data = self.ring.train(first, min(count, max(self._train_segments, self._ahead_segments // 4)))
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


def stream_fti(config: SenderConfig, ring_blocks: int) -> Fti:
    """Return the FTI of a stream. The object size in it is that of the stream's buffer."""
    return _fti(ring_blocks * config.block_segments * config.segment_bytes, config)


def _fti(object_bytes: int, config: SenderConfig) -> Fti:
    return Fti(
        fec_id=config.fec.fec_id,
        object_bytes=object_bytes,
        segment_bytes=config.segment_bytes,
        block_segments=config.block_segments,
        parity_segments=config.parity_segments,
    )
