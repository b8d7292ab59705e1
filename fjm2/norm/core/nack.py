"""Repair requests of NACKs: how they are built from what is missing, and read as ranges (RFC 5740, 4.3.1)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .partition import UNBOUNDED, Partition, locate
from .ranges import Serial
from .wire import REQUEST_HEADER_BYTES, PayloadIdFormat, Position, RepairFlag, RepairForm, RepairRequest

LEVELS = RepairFlag.SEGMENT | RepairFlag.BLOCK | RepairFlag.OBJECT


class RequestedRange(NamedTuple):
    """One item or range of a request. Both ends are included."""

    flags: int
    first: Position
    last: Position
    is_erasures: bool
    """True if the symbol field of the position holds a number of erasures instead of a symbol id."""


def read_requests(requests: tuple[RepairRequest, ...]) -> Iterator[RequestedRange]:
    """Yield every item and range of all requests."""
    for request in requests:
        if request.form == RepairForm.RANGES:
            for first, last in zip(request.items[::2], request.items[1::2], strict=True):
                yield RequestedRange(request.flags, first, last, False)
        else:
            is_erasures = request.form == RepairForm.ERASURES
            for item in request.items:
                yield RequestedRange(request.flags, item, item, is_erasures)


@dataclass(frozen=True, slots=True)
class ObjectLayout:
    """Layout of one object: its partition, and the format of positions in it."""

    fec_id: int
    format: PayloadIdFormat
    object_id: int
    partition: Partition

    @property
    def item_bytes(self) -> int:
        """Length of one item of a request in bytes."""
        return 4 + self.format.size

    def position(self, block: int, symbol: int) -> Position:
        """Return the position of a symbol of a block."""
        length = self.partition.block_length(block) if self.format.length_bits else 0
        return Position(self.fec_id, self.object_id, self.format.pack(block, symbol, length))

    @property
    def whole(self) -> Position:
        """Position that stands for the whole object."""
        return Position(self.fec_id, self.object_id, 0)

    def payload_ids(self, first: int, count: int) -> NDArray[np.int64]:
        """Return the payload ids of consecutive source segments of one region. The format must have no block length.

        The block numbers of a stream wrap when the ids are cast to the 32 bits of the format.
        """
        region = self.partition.region(first)
        block, symbol = divmod(first - region.start, region.block_segments)
        blocks, symbols = np.divmod(np.arange(symbol, symbol + count), region.block_segments)
        ids: NDArray[np.int64] = (blocks + (region.first_block + block)) << self.format.symbol_bits | symbols
        return ids

    def of(self, index: int) -> Position:
        """Return the position of a source segment."""
        return self.position(*locate(self.partition, index))


class ResolvedRange(NamedTuple):
    """Segments and parity rows of an object that one item or range of a request names."""

    start: int
    """Index of the first source segment. The range ends before `end`, and may be empty."""
    end: int
    block: int
    """Number of the block. If the request names several blocks, number of the last one."""
    rows: range
    """Parity rows of the block; may be empty. Only their number counts."""


def resolve(request: RequestedRange, layout: ObjectLayout, near_block: int) -> ResolvedRange | None:
    """Return the segments and parity rows that a request names, or None if the object cannot have them.

    Block numbers of a stream wrap around. They are taken as the numbers that are nearest to `near_block`.
    """
    pid, partition = layout.format, layout.partition
    first_block, last_block = pid.block(request.first.payload_id), pid.block(request.last.payload_id)
    if partition.blocks == UNBOUNDED:
        serial = Serial(pid.block_bits)
        first_block, last_block = serial.unwrap(first_block, near_block), serial.unwrap(last_block, near_block)
    if not 0 <= first_block <= last_block < partition.blocks:
        return None
    start, length = partition.first_segment(first_block), partition.block_length(first_block)
    if request.flags & RepairFlag.BLOCK:
        end = partition.first_segment(last_block) + partition.block_length(last_block)
        return ResolvedRange(start, end, last_block, range(0))
    first, last = pid.symbol(request.first.payload_id), pid.symbol(request.last.payload_id)
    if request.is_erasures:
        return ResolvedRange(start, start, first_block, range(first)) if first <= length else None
    if first_block != last_block or first > last:
        return None
    rows = range(max(0, first - length), max(0, last + 1 - length))
    return ResolvedRange(start + min(first, length), start + min(last + 1, length), first_block, rows)


@dataclass(slots=True)
class _OpenRequest:
    """A repair request to which items can still be added."""

    form: int
    flags: int
    items: list[Position]


class RequestBuilder:
    """Builder of NACKs, which packs ranges into as few requests and messages as their order allows."""

    _RANGE_ITEMS_MIN = 3
    """Fewest consecutive items that take less space as a range than one by one. libnorm has the same limit."""

    def __init__(self, item_bytes: int, message_bytes: int) -> None:
        self._item_bytes = item_bytes
        self._most_bytes = max(message_bytes, REQUEST_HEADER_BYTES + 2 * item_bytes)
        self._messages: list[tuple[RepairRequest, ...]] = []
        self._requests: list[RepairRequest] = []
        self._open: _OpenRequest | None = None
        self._size = 0

    def add(self, flags: int, first: Position, last: Position, count: int) -> None:
        """Request `count` consecutive objects, blocks or symbols. `first` and `last` may differ in one part only."""
        if count >= self._RANGE_ITEMS_MIN:
            self._append(RepairForm.RANGES, flags, (first, last))
        else:
            self._append(RepairForm.ITEMS, flags, (first,))
            if count == 2:
                self._append(RepairForm.ITEMS, flags, (last,))

    def add_object(self, flags: int, layout: ObjectLayout) -> None:
        """Request a whole object, or only its INFO."""
        self.add(flags, layout.whole, layout.whole, 1)

    def add_segments(self, flags: int, layout: ObjectLayout, ranges: Iterable[tuple[int, int]]) -> None:
        """Request ranges of source segments: whole blocks as blocks, and the other segments as symbols."""
        for start, end in ranges:
            while start < end:
                region = layout.partition.region(start)
                block, symbol = locate(layout.partition, start)
                length = region.block_segments
                if symbol == 0 and end - start >= length:
                    blocks = (min(end, region.end) - start) // length
                    first, last = layout.position(block, 0), layout.position(block + blocks - 1, 0)
                    self.add(flags | RepairFlag.BLOCK, first, last, blocks)
                    start += blocks * length
                else:
                    count = min(end - start, length - symbol)
                    self.add_symbols(flags, layout, block, range(symbol, symbol + count))
                    start += count

    def add_symbols(self, flags: int, layout: ObjectLayout, block: int, symbols: range) -> None:
        """Request consecutive symbols, source or parity, of one block."""
        first, last = layout.position(block, symbols[0]), layout.position(block, symbols[-1])
        self.add(flags | RepairFlag.SEGMENT, first, last, len(symbols))

    def _append(self, form: int, flags: int, items: tuple[Position, ...]) -> None:
        size = self._item_bytes * len(items)
        fits_open = self._open is not None and (self._open.form, self._open.flags) == (form, flags)
        needed = size if fits_open else size + REQUEST_HEADER_BYTES
        if self._size + needed > self._most_bytes and self._size:
            self._close_message()
            fits_open = False
            needed = size + REQUEST_HEADER_BYTES
        if not fits_open:
            self._close_request()
            self._open = _OpenRequest(form, flags, [])
        assert self._open is not None
        self._open.items.extend(items)
        self._size += needed

    def _close_request(self) -> None:
        if self._open is not None:
            self._requests.append(RepairRequest(self._open.form, self._open.flags, tuple(self._open.items)))
            self._open = None

    def _close_message(self) -> None:
        self._close_request()
        if self._requests:
            self._messages.append(tuple(self._requests))
        self._requests = []
        self._size = 0

    @property
    def message_count(self) -> int:
        """Number of messages that are full."""
        return len(self._messages)

    def messages(self) -> list[tuple[RepairRequest, ...]]:
        """Finish the last message, and return the requests of every message."""
        self._close_message()
        return self._messages
