"""Buffers for sealing and opening trains, with their slices made in advance.

A slice costs a fifth of the cipher's time for a datagram, and each datagram needs three. The slices of the buffers here
are made once; those of the input are kept for as long as trains arrive at the same address, as they do from a socket.
"""

from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from .wire import HEADER_BYTES, OVERHEAD_BYTES, PREFIX_BYTES, TAG_BYTES

Bytes = NDArray[np.uint8]
Row = tuple[memoryview, memoryview, memoryview]
"""Arguments of the cipher for a datagram: its header, the input, and the buffer for the output."""

_LENGTHS_KEPT = 8
"""Datagram lengths whose buffers are kept, each of about 64 KiB: a bus uses a few lengths at a time."""
_TRAIN_BYTES, _TRAIN_SEGMENTS = 1 << 16, 64
"""Size of the buffers, which is that of the longest trains: most trains are that long."""
_WORD, _LONG = np.dtype(">u4"), np.dtype(">u8")
_WORD_BYTES = _WORD.itemsize
_TAIL_BITS = 8 * (PREFIX_BYTES - _WORD_BYTES)
_COUNTER_BITS = 8 * _LONG.itemsize - _TAIL_BITS


class _Slots:
    """Buffer for a train of up to `count` datagrams of one length."""

    __slots__ = ("_last", "_place", "_rows", "_step", "count", "room")

    def __init__(self, step: int, count: int, room: Bytes) -> None:
        self.count = count
        self.room = room
        self._step = step
        """Distance from datagram to datagram in the input."""
        self._rows: list[Row] = []
        self._place = 0
        self._last: Bytes | None = None
        """The previous train. A socket returns the same array again and again, and identity is the quickest test."""

    def rows(self, data: Bytes) -> list[Row]:
        """Return the rows of a train, whose last datagram may be shorter."""
        full, rest = divmod(data.size, self._step)
        if data is not self._last:
            self._last = data
            # Our slices keep the memory alive, so an equal address means the same memory.
            place = data.__array_interface__["data"][0]
            if place != self._place or full > len(self._rows):
                self._rows = [self._row(data.data, number) for number in range(full)]
                self._place = place
        rows = self._rows[:full]
        if rest:
            rows.append(self._row(data.data, full))
        return rows

    def _row(self, data: memoryview, number: int) -> Row:
        raise NotImplementedError


class SealSlots(_Slots):
    """Buffer for a sealed train."""

    __slots__ = ("_counters", "_longs", "_sealed", "_words")

    def __init__(self, plain_bytes: int, count: int) -> None:
        step = plain_bytes + OVERHEAD_BYTES
        super().__init__(plain_bytes, count, np.zeros(count * step, np.uint8))
        view = self.room.data
        self._sealed = [view[start : start + step] for start in range(0, count * step, step)]
        # A header is a word and a long: four bytes of the prefix, then its other three with the counter.
        self._words = np.ndarray((count,), _WORD, view, 0, (step,))
        self._longs = np.ndarray((count,), _LONG, view, _WORD_BYTES, (step,))
        self._counters = np.arange(count, dtype=np.uint64)

    def write_headers(self, prefix: int, first: int, count: int) -> None:
        """Write the common prefix of seven bytes, and counters from `first` on."""
        self._words[:count] = prefix >> _TAIL_BITS
        tail = prefix & ((1 << _TAIL_BITS) - 1)
        np.add(self._counters[:count], tail << _COUNTER_BITS | first, out=self._longs[:count])

    def _row(self, data: memoryview, number: int) -> Row:
        plain = data[number * self._step : (number + 1) * self._step]
        sealed = self._sealed[number]
        return sealed[:HEADER_BYTES], plain, sealed[HEADER_BYTES : len(plain) + OVERHEAD_BYTES]


class OpenSlots(_Slots):
    """Buffer for an opened train."""

    __slots__ = ("_plain",)

    def __init__(self, plain_bytes: int, count: int) -> None:
        super().__init__(plain_bytes + OVERHEAD_BYTES, count, np.zeros(count * plain_bytes, np.uint8))
        view = self.room.data
        self._plain = [view[number * plain_bytes : (number + 1) * plain_bytes] for number in range(count)]

    def _row(self, data: memoryview, number: int) -> Row:
        sealed = data[number * self._step : (number + 1) * self._step]
        body = sealed[HEADER_BYTES:]
        return sealed[:HEADER_BYTES], body, self._plain[number][: len(body) - TAG_BYTES]


_Kind = TypeVar("_Kind", SealSlots, OpenSlots)


class Lengths(Generic[_Kind]):
    """The buffers of recently used datagram lengths."""

    __slots__ = ("_kept", "_kind")

    def __init__(self, kind: type[_Kind]) -> None:
        self._kind: type[_Kind] = kind
        self._kept: dict[int, _Kind] = {}

    def of(self, plain_bytes: int, count: int) -> _Kind:
        """Return a buffer for at least `count` datagrams of this length."""
        found = self._kept.get(plain_bytes)
        if found is None or found.count < count:
            if len(self._kept) >= _LENGTHS_KEPT:
                self._kept.clear()
            most = min(_TRAIN_SEGMENTS, _TRAIN_BYTES // (plain_bytes + OVERHEAD_BYTES))
            found = self._kept[plain_bytes] = self._kind(plain_bytes, max(count, most))
        return found


class Workspace:
    """Buffers of sealed and opened trains, shared by all sessions of an endpoint."""

    __slots__ = ("opened", "sealed")

    def __init__(self) -> None:
        self.sealed = Lengths(SealSlots)
        self.opened = Lengths(OpenSlots)
