"""Trains of a sender: its messages and segments, with headers that carry their sequence numbers."""

from collections.abc import Iterable
from typing import TypedDict

import numpy as np

from fjm2.norm.core.config import SenderConfig
from fjm2.norm.core.id_pages import IdPages
from fjm2.norm.core.nack import ObjectLayout
from fjm2.norm.core.quantize import quantize_group_size
from fjm2.norm.core.stats import Stats
from fjm2.norm.core.train import MADE_TRAIN_BYTES_MAX, TRAIN_SEGMENTS_MAX, Address, Train
from fjm2.norm.core.wire import Data, Fti, HeaderStamp, Info, Message, Position, payload_id_format

from .objects import RowBuffer, Rows, SendObject, SendStream
from .timing import Timing

_HEADER_BYTES_MAX = 44
"""Bytes of the longest DATA header that this sender uses: that with the EXT_FTI of FEC id 0, and a stream header."""
_TRAINS_IN_ROW_MAX = 8
"""Maximum number of trains stamped together. More would delay repairs and commands."""


class SenderFields(TypedDict):
    """Fields that all messages of a sender have in common."""

    sequence: int
    source_id: int
    instance_id: int
    grtt_q: int
    backoff: int
    gsize_q: int


class TrainMaker:
    """Maker of a sender's trains, which numbers their datagrams."""

    def __init__(
        self,
        node_id: int,
        instance_id: int,
        first_sequence: int,
        config: SenderConfig,
        timing: Timing,
        group: Address,
        stats: Stats,
    ) -> None:
        self._node_id = node_id
        self._instance_id = instance_id
        self._sequence = first_sequence
        self._config = config
        self._timing = timing
        self._group = group
        self._stats = stats
        self.backoff_factor = config.backoff_factor
        """Back-off factor that receivers are told. It may be lower than the configured one."""
        self._gsize_q = quantize_group_size(config.group_size)
        self._format = payload_id_format(config.fec.fec_id)
        self._buffer: RowBuffer | None = None
        self._ramp = np.arange(TRAIN_SEGMENTS_MAX, dtype=np.int64)

    # Positions.

    def layout(self, item: SendObject) -> ObjectLayout:
        """Return the layout of an object, by which positions in it are written."""
        return ObjectLayout(self._config.fec.fec_id, self._format, item.id, item.partition)

    def position(self, item: SendObject, index: int) -> Position:
        """Return the position of a segment. For an object that has only an INFO, return the position of the INFO."""
        if item.sendable == 0:
            return Position(self._config.fec.fec_id, item.id, self._format.pack(-1, -1))
        return self.layout(item).of(index)

    # Trains.

    def common(self) -> SenderFields:
        """Return the common fields of the next message."""
        return {
            "sequence": self._sequence,
            "source_id": self._node_id,
            "instance_id": self._instance_id,
            "grtt_q": self._timing.grtt_q,
            "backoff": self.backoff_factor,
            "gsize_q": self._gsize_q,
        }

    def data_header(self, object_id: int, flags: int, fti: Fti) -> Data:
        """Return the header of all DATA of an object."""
        return Data(
            **self.common(),
            flags=flags,
            fec_id=fti.fec_id,
            object_id=object_id,
            payload_id=0,
            payload=b"",
            extensions=(fti,),
        )

    def message(self, message: Message) -> Train:
        """Make a train of one message, which was built with the fields of `common`."""
        self._sequence = (self._sequence + 1) & 0xFFFF
        data = np.frombuffer(message.encode(), np.uint8)
        self._stats.datagrams_sent += 1
        self._stats.bytes_sent += data.size
        return Train(data, data.size, self._group)

    def info(self, item: SendObject) -> Train:
        """Make a train of an object's INFO."""
        assert item.info is not None
        header = self.data_header(item.id, item.flags, item.fti)
        info = Info(
            **self.common(),
            flags=item.flags,
            fec_id=header.fec_id,
            object_id=item.id,
            extensions=header.extensions,
            content=item.info,
        )
        return self.message(info)

    def segments(self, item: SendObject, first: int, count: int) -> Train:
        """Make a train of source segments from `first` on: up to `count`, as far as the rate and the region allow."""
        return self._stamped(self._rows(item, first, min(count, self._most)))

    def in_row(self, item: SendObject, first: int, count: int) -> list[Train]:
        """Make several consecutive trains if the rate is not limited, else one. Stamping them together saves time."""
        most = self._most
        rows = self._rows(item, first, min(count, most if self._timing.is_paced else most * _TRAINS_IN_ROW_MAX))
        if rows.count <= most:
            return [self._stamped(rows)]
        step, group = most * rows.row_bytes, self._group
        self._note(rows)
        return [Train(rows.data[at : at + step], rows.row_bytes, group) for at in range(0, rows.data.size, step)]

    def alone(self, stream: SendStream, head: bytes, body: bytes) -> memoryview:
        """Write a lone message, in two parts, to the ring of a stream, and return its datagram."""
        self._preset(stream)
        pages, ring = stream.id_pages, stream.ring
        if pages is None:
            pages = stream.id_pages = IdPages(self.layout(stream))
        datagram = ring.write_alone(head, body, self._sequence, pages.wire_of(ring.closed))
        self._sequence = (self._sequence + 1) & 0xFFFF
        self._stats.datagrams_sent += 1
        self._stats.bytes_sent += len(datagram)
        return datagram

    def _rows(self, item: SendObject, first: int, count: int) -> Rows:
        self._preset(item)
        count = min(count, item.partition.region(first).end - first)
        if item.id_pages is None:
            item.id_pages = IdPages(self.layout(item))
        return item.source_rows(first, count, self._sequence, item.id_pages.of(first, count))

    def gathered(self, item: SendObject, ranges: Iterable[tuple[int, int]]) -> tuple[Train, list[int]]:
        """Make a train of the first source segments in `ranges`. Return the train, and the indexes of its segments."""
        self._preset(item)
        most = self._most
        indexes: list[int] = []
        region = None
        for start, end in ranges:
            region = region or item.partition.region(start)
            indexes.extend(range(start, min(end, start + most - len(indexes), region.end)))
            if len(indexes) >= most or end > region.end:
                break
        assert region is not None
        short = next((at for at, index in enumerate(indexes) if not self._is_full(item, index)), len(indexes))
        if short == 0:
            return self.segments(item, indexes[0], 1), indexes[:1]
        indexes = indexes[:short]
        blocks, symbols = np.divmod(np.asarray(indexes, np.int64) - region.start, region.block_segments)
        payload_ids = (blocks + region.first_block) << self._format.symbol_bits | symbols
        rows = item.gathered_rows(indexes, self._sequence, payload_ids.astype(np.uint32))
        return self._stamped(rows), indexes[: rows.count]

    def _is_full(self, item: SendObject, index: int) -> bool:
        return item.segment_length(index) == self._config.segment_bytes

    @property
    def _most(self) -> int:
        """Number of segments in the longest train that the rate allows."""
        row_bytes = self._config.segment_bytes + _HEADER_BYTES_MAX
        return max(1, min(TRAIN_SEGMENTS_MAX, self._timing.pacer.train_bytes(MADE_TRAIN_BYTES_MAX) // row_bytes))

    def parity(self, item: SendObject, block: int, rows: range) -> Train:
        """Make a train of parity symbols of a block."""
        symbols = item.parity_rows(block, rows)
        header = self.data_header(item.id, item.flags, item.fti)
        header_bytes = len(header.encode())
        row_bytes = header_bytes + symbols.shape[1]
        buffer = np.zeros(len(symbols) * row_bytes, np.uint8)
        buffer.reshape(-1, row_bytes)[:, header_bytes:] = symbols
        first = item.partition.block_length(block) + rows.start
        payload_ids = self._ramp[: len(symbols)] + self._format.pack(block, first)
        HeaderStamp(buffer, row_bytes, header).stamp(self._sequence, payload_ids.astype(np.uint32))
        self._stats.parity_segments_sent += len(symbols)
        return self._stamped(Rows(buffer, row_bytes, len(symbols)))

    def _stamped(self, rows: Rows) -> Train:
        self._note(rows)
        return Train(rows.data, rows.row_bytes, self._group)

    def _note(self, rows: Rows) -> None:
        self._sequence = (self._sequence + rows.count) & 0xFFFF
        self._stats.datagrams_sent += rows.count
        self._stats.bytes_sent += rows.data.size

    def _preset(self, item: SendObject) -> None:
        """Update an object's header if the common fields in it have changed."""
        values = self._timing.grtt_q, self.backoff_factor
        if item.preset_values != values:
            item.preset_values = values
            header = self.data_header(item.id, item.flags, item.fti)
            if self._buffer is None:
                self._buffer = RowBuffer(self._config.segment_bytes, header)
            item.preset(header, self._buffer)
