"""Fragmentation of datagrams that are too long for the path, and their reassembly within bounds.

All parts of a train are equally long: the last part of each datagram is padded. So a train of datagrams becomes a train
of parts.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .wire import Drop

Bytes = NDArray[np.uint8]

PART = np.dtype([("id", ">u4"), ("place", "u1"), ("parts", "u1"), ("length", ">u2")])
"""Header of a part: id of the datagram, place of the part, number of parts, length of the whole datagram."""
PART_HEADER_BYTES = PART.itemsize
PARTS_MAX = 64
"""Maximum number of parts of a datagram: enough for the longest datagram at the least MTU, 1280 bytes."""
WHOLE_BYTES_MAX = 65_535
"""Longest datagram: its length has 16 bits in the header."""
REASSEMBLY_BYTES_MAX = 1 << 20
"""Maximum number of bytes of a peer's parts that wait for missing parts: 16 of the longest datagrams."""
REASSEMBLY_COUNT_MAX = 256
"""Maximum number of datagrams of a peer that wait for missing parts."""
REASSEMBLY_AGE_S = 1.0
"""Longest wait for a missing part: the parts are sent together, so a part that is later is lost."""
_IDS_END = 1 << 32


def part_bytes_of(segment_bytes: int, room_bytes: int) -> int:
    """Return the length of a datagram's parts, without the header with which each takes at most `room_bytes`.

    Return 0 if the datagram is too long, or needs too many parts.
    """
    most = room_bytes - PART_HEADER_BYTES
    if most < 1 or segment_bytes > WHOLE_BYTES_MAX:
        return 0
    parts = -(-segment_bytes // most)
    return -(-segment_bytes // parts) if parts <= PARTS_MAX else 0


class Parts(NamedTuple):
    """A train of parts."""

    data: Bytes
    segment_bytes: int


class Splitter:
    """Division of the datagrams of trains into parts. It numbers the datagrams."""

    __slots__ = ("_next_id",)

    def __init__(self) -> None:
        self._next_id = 0

    def split(self, data: Bytes, segment_bytes: int, room_bytes: int) -> list[Parts]:
        """Return the train as trains of parts of at most `room_bytes` each.

        `part_bytes_of` must not be 0 for `segment_bytes` and `room_bytes`.
        """
        full = data.size // segment_bytes * segment_bytes
        trains = []
        if full:
            trains.append(self._split_equal(data[:full].reshape(-1, segment_bytes), room_bytes))
        if full < data.size:
            trains.append(self._split_equal(data[full:].reshape(1, -1), room_bytes))
        return trains

    def _split_equal(self, datagrams: Bytes, room_bytes: int) -> Parts:
        count, length = datagrams.shape
        content_bytes = part_bytes_of(length, room_bytes)
        parts = -(-length // content_bytes)
        step = PART_HEADER_BYTES + content_bytes
        train = np.empty((count, parts, step), np.uint8)
        headers = np.empty((count, parts), PART)
        headers["id"] = ((np.arange(self._next_id, self._next_id + count)) % _IDS_END)[:, None]
        headers["place"] = np.arange(parts)
        headers["parts"] = parts
        headers["length"] = length
        train[:, :, :PART_HEADER_BYTES] = headers.view(np.uint8).reshape(count, parts, PART_HEADER_BYTES)
        whole = (parts - 1) * content_bytes
        train[:, :-1, PART_HEADER_BYTES:] = datagrams[:, :whole].reshape(count, parts - 1, content_bytes)
        rest = PART_HEADER_BYTES + length - whole
        train[:, -1, PART_HEADER_BYTES:rest] = datagrams[:, whole:]
        train[:, -1, rest:] = 0
        self._next_id = (self._next_id + count) % _IDS_END
        return Parts(train.reshape(-1), step)


@dataclass(slots=True)
class _Partial:
    """A datagram with missing parts."""

    length: int
    parts: int
    began_at: float
    content: dict[int, bytes] = field(default_factory=dict)
    size: int = 0


class Reassembler:
    """Assembly of datagrams from their parts. Parts in order cost one copy; other parts wait for a short time."""

    __slots__ = ("_drops", "_partials", "_size")

    def __init__(self, drops: Counter[Drop]) -> None:
        self._drops = drops
        self._partials: dict[tuple[int, int, int], _Partial] = {}
        """Datagrams by session, kind and id; oldest first."""
        self._size = 0

    @property
    def size(self) -> int:
        """Bytes of the parts that wait for other parts."""
        return self._size

    @property
    def count(self) -> int:
        """Number of datagrams that wait for parts."""
        return len(self._partials)

    def join(self, data: Bytes, segment_bytes: int, session: int, kind: int, now: float) -> list[tuple[Bytes, int]]:
        """Return the datagrams that a train of parts completes, as trains with their segment lengths."""
        if segment_bytes <= PART_HEADER_BYTES or data.size % segment_bytes:
            self._drops[Drop.BAD_CONTENT] += -(-data.size // max(segment_bytes, 1))
            return []
        rows = data.reshape(-1, segment_bytes)
        headers = np.ascontiguousarray(rows[:, :PART_HEADER_BYTES]).view(PART)[:, 0]
        whole = _in_order(rows, headers)
        if whole is not None:
            return [whole]
        return self._join_any(rows, headers, (session, kind), now)

    def expire(self, now: float) -> None:
        """Drop datagrams that have waited for too long."""
        for key, partial in list(self._partials.items()):
            if now - partial.began_at < REASSEMBLY_AGE_S:
                break
            self._give_up(key, Drop.REASSEMBLY_TIMEOUT)

    @property
    def next_at(self) -> float:
        """Time at which to call `expire`; infinite if no datagram waits."""
        for partial in self._partials.values():
            return partial.began_at + REASSEMBLY_AGE_S
        return np.inf

    def _join_any(
        self, rows: Bytes, headers: NDArray[np.void], where: tuple[int, int], now: float
    ) -> list[tuple[Bytes, int]]:
        self.expire(now)
        done: list[tuple[Bytes, int]] = []
        content_bytes = rows.shape[1] - PART_HEADER_BYTES
        for row, (number, place, parts, length) in zip(rows, headers.tolist(), strict=True):
            if not _is_valid(place, parts, length, content_bytes):
                self._drops[Drop.BAD_CONTENT] += 1
                continue
            whole = self._add((*where, number), place, parts, length, row[PART_HEADER_BYTES:].tobytes(), now)
            if whole is not None:
                done.append((np.frombuffer(whole, np.uint8), length))
        return done

    def _add(
        self, key: tuple[int, int, int], place: int, parts: int, length: int, content: bytes, now: float
    ) -> bytes | None:
        partial = self._partials.get(key)
        if partial is None:
            partial = self._partials[key] = _Partial(length, parts, now)
        if partial.length != length or partial.parts != parts or place in partial.content:
            self._drops[Drop.BAD_CONTENT] += 1
            return None
        partial.content[place] = content
        partial.size += len(content)
        self._size += len(content)
        if len(partial.content) == parts:
            del self._partials[key]
            self._size -= partial.size
            return b"".join(partial.content[place] for place in range(parts))[:length]
        while self._size > REASSEMBLY_BYTES_MAX or len(self._partials) > REASSEMBLY_COUNT_MAX:
            self._give_up(next(iter(self._partials)), Drop.REASSEMBLY_FULL)
        return None

    def _give_up(self, key: tuple[int, int, int], reason: Drop) -> None:
        partial = self._partials.pop(key)
        self._size -= partial.size
        self._drops[reason] += len(partial.content)


def _is_valid(place: int, parts: int, length: int, content_bytes: int) -> bool:
    """Return True if a `Splitter` makes such headers: with no more parts of `content_bytes` than the length needs."""
    return place < parts <= PARTS_MAX and (parts - 1) * content_bytes < length <= parts * content_bytes


def _in_order(rows: Bytes, headers: NDArray[np.void]) -> tuple[Bytes, int] | None:
    """Return all datagrams if their parts are complete and in order, as they nearly always are; otherwise None."""
    count, step = rows.shape
    parts, length = int(headers["parts"][0]), int(headers["length"][0])
    content_bytes = step - PART_HEADER_BYTES
    if not parts or count % parts or not _is_valid(0, parts, length, content_bytes):
        return None
    ids = headers["id"].reshape(-1, parts)
    is_whole = (
        bool((headers["place"].reshape(-1, parts) == np.arange(parts)).all())
        and bool((headers["parts"] == parts).all())
        and bool((headers["length"] == length).all())
        and bool((ids == ids[:, :1]).all())
    )
    if not is_whole:
        return None
    contents = rows[:, PART_HEADER_BYTES:].reshape(-1, parts * content_bytes)
    return np.ascontiguousarray(contents[:, :length]).reshape(-1), length
