"""One epoch between two gateways: two keys, two rows of counters, and trains that are sealed and opened whole.

A datagram costs one call of the cipher and the slices for it; headers, counters and the replay window are handled a
train at a time.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from .replay import ReplayWindow
from .wire import COUNTER_END, HEADER_BYTES, OVERHEAD_BYTES, PREFIX_BYTES, Drop, Prefix

Bytes = NDArray[np.uint8]

_COUNTER_AT = HEADER_BYTES - 8
_COUNTER_MASK = COUNTER_END - 1
_COUNTER_BYTES = HEADER_BYTES - PREFIX_BYTES


class CounterExhausted(Exception):  # noqa: N818
    """The epoch has no counters left. It should have ended long ago."""


class Workspace:
    """Where sealed and opened trains lie until the next one; shared by all sessions of an endpoint."""

    __slots__ = ("_opened", "_sealed")

    def __init__(self) -> None:
        self._sealed = np.empty(1 << 16, np.uint8)
        self._opened = np.empty(1 << 16, np.uint8)

    def sealed(self, size: int) -> Bytes:
        """Room for a sealed train."""
        if size > self._sealed.size:
            self._sealed = np.empty(size, np.uint8)
        return self._sealed[:size]

    def opened(self, size: int) -> Bytes:
        """Room for an opened train."""
        if size > self._opened.size:
            self._opened = np.empty(size, np.uint8)
        return self._opened[:size]


@dataclass(frozen=True, slots=True)
class OpenedTrain:
    """What was authentic in a train."""

    data: Bytes
    """Borrowed until the next train is opened."""
    segment_bytes: int
    count: int
    is_newest: bool
    """Whether it brought the newest counter of the session: only that tells where a peer is now."""


class Session:
    """An epoch. It knows nothing of time: when it ends is for its owner to say."""

    __slots__ = (
        "_counter",
        "_open",
        "_prefixes",
        "_remote_index",
        "_seal",
        "_window",
        "_workspace",
        "index",
        "received",
    )

    def __init__(
        self, send_key: bytes, receive_key: bytes, index: int, remote_index: int, workspace: Workspace | None = None
    ) -> None:
        self._seal = AESGCM(send_key).encrypt_into
        self._open = AESGCM(receive_key).decrypt_into
        self.index = index
        """What the other side's datagrams have in their headers."""
        self._remote_index = remote_index
        self._counter = 0
        self._window = ReplayWindow()
        self._workspace = workspace or Workspace()
        self._prefixes: dict[tuple[int, int, int], Bytes] = {}
        self.received = 0
        """Authentic datagrams."""

    def __repr__(self) -> str:
        return f"<Session {self.index:08x} sent={self._counter} received={self.received}>"

    @property
    def sent(self) -> int:
        """Datagrams sealed, which is the next counter."""
        return self._counter

    @property
    def newest(self) -> int:
        """The newest counter received; -1 before the first."""
        return self._window.newest

    def seal_train(self, data: Bytes, segment_bytes: int, kind: int, group: int, hop_limit: int = 1) -> Bytes:
        """Seal equal datagrams (the last may be shorter). The result's are OVERHEAD_BYTES longer each.

        Borrowed until the next train is sealed. Raises CounterExhausted at the end of all counters.
        """
        view, size = data.data, data.size
        count = -(-size // segment_bytes) or 1
        first = self._counter
        if first + count > COUNTER_END:
            raise CounterExhausted
        self._counter = first + count
        step = segment_bytes + OVERHEAD_BYTES
        sealed = self._workspace.sealed(size + count * OVERHEAD_BYTES)
        self._write_headers(sealed, step, count, first, self._prefix(kind, group, hop_limit))
        out = sealed.data
        seal = self._seal
        at = 0
        for start in range(0, size or 1, segment_bytes):
            body = at + HEADER_BYTES
            seal(out[at:body], view[start : start + segment_bytes], None, out[body : at + step])
            at += step
        return sealed

    def open_train(self, data: Bytes, segment_bytes: int, drops: Counter[Drop]) -> OpenedTrain | None:
        """Open equal datagrams (the last may be shorter) that all are meant for this session.

        What is not authentic, or came before, is counted and left out; None when nothing is left. Only what is
        authentic changes anything.
        """
        if data.size <= segment_bytes:
            return self._open_one(data, drops)
        counters = counters_of(data, segment_bytes)
        fresh = self._window.are_new(counters)
        places: list[int] | range = range(counters.size)
        if not fresh.all():
            old = int(self._window.is_too_old(counters).sum())
            drops[Drop.TOO_OLD] += old
            drops[Drop.REPLAYED] += int(counters.size - fresh.sum()) - old
            places = np.flatnonzero(fresh).tolist()
        opened, good = self._open_segments(data, segment_bytes, places)
        if len(good) < len(places):
            drops[Drop.FORGED] += len(places) - len(good)
        if not good:
            return None
        if len(good) < counters.size:
            counters = counters[good]
        before = self._window.newest
        self._window.mark(counters)
        self.received += len(good)
        plain_bytes = min(segment_bytes - OVERHEAD_BYTES, opened.size)
        return OpenedTrain(opened, plain_bytes, len(good), self._window.newest > before)

    def _open_one(self, data: Bytes, drops: Counter[Drop]) -> OpenedTrain | None:
        """The same for a datagram that came alone, as small ones do: there is nothing to be gained by arrays."""
        source, window = data.data, self._window
        counter = int.from_bytes(source[PREFIX_BYTES:HEADER_BYTES])
        if not window.is_new(counter):
            is_old = bool(window.is_too_old(np.array([counter]))[0])
            drops[Drop.TOO_OLD if is_old else Drop.REPLAYED] += 1
            return None
        room = self._workspace.opened(data.size - OVERHEAD_BYTES)
        try:
            self._open(source[:HEADER_BYTES], source[HEADER_BYTES:], None, room.data)
        except InvalidTag:
            drops[Drop.FORGED] += 1
            return None
        is_newest = counter > window.newest
        window.mark_one(counter)
        self.received += 1
        return OpenedTrain(room, room.size, 1, is_newest)

    def _open_segments(
        self, data: Bytes, segment_bytes: int, places: list[int] | range
    ) -> tuple[Bytes, list[int] | range]:
        """The content of segments end to end, and which of them are authentic."""
        plain_bytes = segment_bytes - OVERHEAD_BYTES
        room = self._workspace.opened(len(places) * plain_bytes)
        source, out, size = data.data, room.data, data.size
        decrypt = self._open
        bad: list[int] = []
        at = 0
        for place in places:
            start = place * segment_bytes
            end = start + segment_bytes
            left = plain_bytes if end <= size else size - start - OVERHEAD_BYTES
            body = start + HEADER_BYTES
            try:
                decrypt(source[start:body], source[body:end], None, out[at : at + left])
            except InvalidTag:
                bad.append(place)
            else:
                at += left
        if bad:
            gone = frozenset(bad)
            places = [place for place in places if place not in gone]
        return room[:at], places

    def _write_headers(self, sealed: Bytes, step: int, count: int, first: int, prefix: Bytes) -> None:
        if count == 1:
            sealed[:PREFIX_BYTES] = prefix
            sealed[PREFIX_BYTES:HEADER_BYTES] = np.frombuffer(first.to_bytes(_COUNTER_BYTES), np.uint8)
            return
        counters = np.arange(first, first + count).astype(">u8").view(np.uint8).reshape(count, 8)
        headers = np.ndarray((count, HEADER_BYTES), np.uint8, sealed.data, strides=(step, 1))
        headers[:, :PREFIX_BYTES] = prefix
        headers[:, PREFIX_BYTES:] = counters[:, 8 - _COUNTER_BYTES :]

    def _prefix(self, kind: int, group: int, hop_limit: int) -> Bytes:
        key = (kind, group, hop_limit)
        prefix = self._prefixes.get(key)
        if prefix is None:
            prefix = np.frombuffer(Prefix(kind, hop_limit, group, self._remote_index).encode(), np.uint8)
            self._prefixes[key] = prefix
        return prefix


def count_of(size: int, segment_bytes: int) -> int:
    """Datagrams in a train that are long enough to be sealed ones; only the last can be too short."""
    full, rest = divmod(size, segment_bytes)
    return full + (rest >= OVERHEAD_BYTES)


def counters_of(data: Bytes, segment_bytes: int) -> NDArray[np.int64]:
    """The counters of all segments. The last one must have a header."""
    count = -(-data.size // segment_bytes)
    raw = np.ndarray((count,), ">u8", data.data, offset=_COUNTER_AT, strides=(segment_bytes,))
    return (raw.astype(np.uint64) & np.uint64(_COUNTER_MASK)).astype(np.int64)


def prefixes_of(data: Bytes, segment_bytes: int) -> NDArray[np.uint64]:
    """The first seven bytes of all segments, as numbers. The last one must have a header."""
    count = -(-data.size // segment_bytes)
    raw = np.ndarray((count,), ">u8", data.data, strides=(segment_bytes,))
    prefixes: NDArray[np.uint64] = raw.astype(np.uint64) >> np.uint64(8 * (8 - PREFIX_BYTES))
    return prefixes
