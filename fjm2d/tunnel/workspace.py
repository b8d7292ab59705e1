"""Where trains lie when they are sealed and opened, cut into datagrams beforehand.

A slice costs a fifth of what the cipher takes for a datagram, and each datagram has three. Those of the room here are
made once; those of what comes are kept for as long as trains come at the same place, as they do from a socket.
"""

from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from .wire import HEADER_BYTES, OVERHEAD_BYTES, PREFIX_BYTES, TAG_BYTES

Bytes = NDArray[np.uint8]
Row = tuple[memoryview, memoryview, memoryview]
"""What the cipher is given for a datagram: its header, what is to be sealed or opened, and room for what becomes of it.
"""

_LENGTHS_KEPT = 8
_TRAIN_BYTES, _TRAIN_SEGMENTS = 1 << 16, 64
"""There is room for so much at once: most trains are as long as they may be."""
_WORD, _LONG = np.dtype(">u4"), np.dtype(">u8")
_WORD_BYTES = _WORD.itemsize
_TAIL_BITS = 8 * (PREFIX_BYTES - _WORD_BYTES)
_COUNTER_BITS = 8 * _LONG.itemsize - _TAIL_BITS


class _Slots:
    """Room for a train, of up to `count` datagrams of one length."""

    __slots__ = ("_last", "_place", "_rows", "_step", "count", "room")

    def __init__(self, step: int, count: int, room: Bytes) -> None:
        self.count = count
        self.room = room
        self._step = step
        """From datagram to datagram, in what comes."""
        self._rows: list[Row] = []
        self._place = 0
        self._last: Bytes | None = None
        """The train before this one. A socket gives the same array again and again, and that is quickest to see."""

    def rows(self, data: Bytes) -> list[Row]:
        """Those of a train; its last datagram may be shorter."""
        full, rest = divmod(data.size, self._step)
        if data is not self._last:
            self._last = data
            # As long as there are slices of it, a place in memory is nobody else's.
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
    """Room for a sealed train."""

    __slots__ = ("_counters", "_longs", "_sealed", "_words")

    def __init__(self, plain_bytes: int, count: int) -> None:
        step = plain_bytes + OVERHEAD_BYTES
        super().__init__(plain_bytes, count, np.zeros(count * step, np.uint8))
        view = self.room.data
        self._sealed = [view[start : start + step] for start in range(0, count * step, step)]
        # A header is a word and a long: the first four bytes of the prefix, and its others with the counter.
        self._words = np.ndarray((count,), _WORD, view, 0, (step,))
        self._longs = np.ndarray((count,), _LONG, view, _WORD_BYTES, (step,))
        self._counters = np.arange(count, dtype=np.uint64)

    def write_headers(self, prefix: int, first: int, count: int) -> None:
        """The seven bytes that all have in common, and counters from the first one on."""
        self._words[:count] = prefix >> _TAIL_BITS
        tail = prefix & ((1 << _TAIL_BITS) - 1)
        np.add(self._counters[:count], tail << _COUNTER_BITS | first, out=self._longs[:count])

    def _row(self, data: memoryview, number: int) -> Row:
        plain = data[number * self._step : (number + 1) * self._step]
        sealed = self._sealed[number]
        return sealed[:HEADER_BYTES], plain, sealed[HEADER_BYTES : len(plain) + OVERHEAD_BYTES]


class OpenSlots(_Slots):
    """Room for an opened train."""

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
    """The slots of those lengths of datagrams that were used of late."""

    __slots__ = ("_kept", "_kind")

    def __init__(self, kind: type[_Kind]) -> None:
        self._kind: type[_Kind] = kind
        self._kept: dict[int, _Kind] = {}

    def of(self, plain_bytes: int, count: int) -> _Kind:
        """For at least so many datagrams of this length."""
        found = self._kept.get(plain_bytes)
        if found is None or found.count < count:
            if len(self._kept) >= _LENGTHS_KEPT:
                self._kept.clear()
            most = min(_TRAIN_SEGMENTS, _TRAIN_BYTES // (plain_bytes + OVERHEAD_BYTES))
            found = self._kept[plain_bytes] = self._kind(plain_bytes, max(count, most))
        return found


class Workspace:
    """Where sealed and opened trains lie until the next one; shared by all sessions of an endpoint."""

    __slots__ = ("opened", "sealed")

    def __init__(self) -> None:
        self.sealed = Lengths(SealSlots)
        self.opened = Lengths(OpenSlots)
