"""One session between two gateways: two keys, two sequences of counters, and trains sealed and opened as a whole.

A datagram costs one call of the cipher. Everything else is done once a train, or in advance: headers are written and
compared as arrays, and the slices of the buffers are kept.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from .crypto.replay import ReplayWindow
from .wire import COUNTER_END, HEADER_BYTES, OVERHEAD_BYTES, PREFIX_BYTES, Drop, Prefix
from .workspace import Workspace

Bytes = NDArray[np.uint8]

_COUNTER_AT = HEADER_BYTES - 8
_COUNTER_MASK = COUNTER_END - 1
_COUNTER_BYTES = HEADER_BYTES - PREFIX_BYTES
_LONG = np.dtype(">u8")
_LONG_BYTES = _LONG.itemsize
_PREFIX = np.dtype(f"V{PREFIX_BYTES}")
_STEPS = np.arange(256, dtype=np.uint64)


class CounterExhausted(Exception):  # noqa: N818
    """Raised when a session has no counters left. Its keys should have been renewed long before."""


@dataclass(slots=True)
class OpenedTrain:
    """The authentic datagrams of a train, opened."""

    data: Bytes
    """Borrowed until the next train is opened."""
    segment_bytes: int
    count: int
    is_newest: bool
    """True if the train has the newest counter of the session: only such a train proves where the peer is now."""


class Session:
    """One session between two gateways. It knows no time: its owner decides when it ends."""

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
        """Index in the headers of the peer's datagrams."""
        self._remote_index = remote_index
        self._counter = 0
        self._window = ReplayWindow()
        self._workspace = workspace or Workspace()
        self._prefixes: dict[tuple[int, int, int], bytes] = {}
        self.received = 0
        """Number of authentic datagrams received."""

    def __repr__(self) -> str:
        return f"<Session {self.index:08x} sent={self._counter} received={self.received}>"

    @property
    def sent(self) -> int:
        """Number of datagrams sealed, which is also the next counter."""
        return self._counter

    @property
    def newest(self) -> int:
        """Newest counter received; -1 before the first."""
        return self._window.newest

    def seal_train(self, data: Bytes, segment_bytes: int, kind: int, group: int, hop_limit: int = 1) -> Bytes:
        """Seal datagrams of equal length, except that the last may be shorter. Each becomes OVERHEAD_BYTES longer.

        The result is borrowed until the next train is sealed. Raise CounterExhausted if there are no counters left.
        """
        size = data.size
        if size <= segment_bytes:
            return np.frombuffer(self.seal_one(data, kind, group, hop_limit), np.uint8)
        count = -(-size // segment_bytes)
        first = self._take_counters(count)
        slots = self._workspace.sealed.of(segment_bytes, count)
        slots.write_headers(int.from_bytes(self._prefix(kind, group, hop_limit)), first, count)
        seal = self._seal
        for header, plain, sealed in slots.rows(data):
            seal(header, plain, None, sealed)
        return slots.room[: size + count * OVERHEAD_BYTES]

    def seal_one(self, data: Bytes | bytes, kind: int, group: int, hop_limit: int = 1) -> bytearray:
        """Return a single datagram, sealed. The result is not borrowed."""
        header = self._prefix(kind, group, hop_limit) + self._take_counters(1).to_bytes(_COUNTER_BYTES)
        sealed = bytearray(len(data) + OVERHEAD_BYTES)
        sealed[:HEADER_BYTES] = header
        self._seal(header, data.data if isinstance(data, np.ndarray) else data, None, memoryview(sealed)[HEADER_BYTES:])
        return sealed

    def _take_counters(self, count: int) -> int:
        """Reserve this many counters. Return the first."""
        first = self._counter
        if first + count > COUNTER_END:
            raise CounterExhausted
        self._counter = first + count
        return first

    def _prefix(self, kind: int, group: int, hop_limit: int) -> bytes:
        key = (kind, group, hop_limit)
        prefix = self._prefixes.get(key)
        if prefix is None:
            prefix = self._prefixes[key] = Prefix(kind, hop_limit, group, self._remote_index).encode()
        return prefix

    def open_train(self, data: Bytes, segment_bytes: int, drops: Counter[Drop]) -> OpenedTrain | None:
        """Open datagrams of equal length, except that the last may be shorter. All bear this session's index.

        Forged and repeated datagrams are counted and left out; return None if nothing remains. Only authentic
        datagrams change the state of the session.
        """
        if data.size <= segment_bytes:
            return self._open_one(data, drops)
        first = first_in_row(data, segment_bytes)
        if first is not None and first > self._window.newest:
            opened = self._open_row(data, segment_bytes, first)
            if opened is not None:
                return opened
        return self._open_any(data, segment_bytes, drops)

    def _open_row(self, data: Bytes, segment_bytes: int, first: int) -> OpenedTrain | None:
        """Open a train in the usual case: all datagrams new and in a row. Return None if any is forged."""
        size, plain_bytes = data.size, segment_bytes - OVERHEAD_BYTES
        count = -(-size // segment_bytes)
        slots = self._workspace.opened.of(plain_bytes, count)
        decrypt = self._open
        try:
            for header, sealed, plain in slots.rows(data):
                decrypt(header, sealed, None, plain)
        except InvalidTag:
            return None
        self._window.mark_row(first, count)
        self.received += count
        return OpenedTrain(slots.room[: size - count * OVERHEAD_BYTES], plain_bytes, count, True)

    def _open_one(self, data: Bytes, drops: Counter[Drop]) -> OpenedTrain | None:
        """Open a single datagram, for which arrays would gain nothing."""
        source, window = data.data, self._window
        counter = int.from_bytes(source[PREFIX_BYTES:HEADER_BYTES])
        if not window.is_new(counter):
            is_old = bool(window.is_too_old(np.array([counter]))[0])
            drops[Drop.TOO_OLD if is_old else Drop.REPLAYED] += 1
            return None
        room = np.empty(data.size - OVERHEAD_BYTES, np.uint8)
        try:
            self._open(source[:HEADER_BYTES], source[HEADER_BYTES:], None, room.data)
        except InvalidTag:
            drops[Drop.FORGED] += 1
            return None
        is_newest = counter > window.newest
        window.mark_one(counter)
        self.received += 1
        return OpenedTrain(room, room.size, 1, is_newest)

    def _open_any(self, data: Bytes, segment_bytes: int, drops: Counter[Drop]) -> OpenedTrain | None:
        """Open a train that may be late, repeated, incomplete or forged."""
        counters = counters_of(data, segment_bytes)
        fresh = self._window.are_new(counters)
        places = np.flatnonzero(fresh).tolist()
        if len(places) < counters.size:
            old = int(self._window.is_too_old(counters).sum())
            drops[Drop.TOO_OLD] += old
            drops[Drop.REPLAYED] += counters.size - len(places) - old
        content, good = self._open_places(data, segment_bytes, places)
        if len(good) < len(places):
            drops[Drop.FORGED] += len(places) - len(good)
        if not good:
            return None
        before = self._window.newest
        self._window.mark(counters[good])
        self.received += len(good)
        plain_bytes = min(segment_bytes - OVERHEAD_BYTES, len(content))
        return OpenedTrain(np.frombuffer(content, np.uint8), plain_bytes, len(good), self._window.newest > before)

    def _open_places(self, data: Bytes, segment_bytes: int, places: list[int]) -> tuple[bytes, list[int]]:
        """Open the segments at these places. Return the authentic contents end to end, and their places."""
        contents: list[bytes] = []
        good: list[int] = []
        for place in places:
            segment = data[place * segment_bytes : (place + 1) * segment_bytes]
            plain = bytearray(segment.size - OVERHEAD_BYTES)
            try:
                self._open(segment[:HEADER_BYTES].data, segment[HEADER_BYTES:].data, None, plain)
            except InvalidTag:
                continue
            contents.append(bytes(plain))
            good.append(place)
        return b"".join(contents), good


def count_of(size: int, segment_bytes: int) -> int:
    """Return the number of datagrams in a received train that are long enough. Only the last one may be too short."""
    full, rest = divmod(size, segment_bytes)
    return full + (rest >= OVERHEAD_BYTES)


def counters_of(data: Bytes, segment_bytes: int) -> NDArray[np.int64]:
    """Return the counters of all segments. The last one must have a whole header."""
    return (_longs(data, segment_bytes, _COUNTER_AT) & np.uint64(_COUNTER_MASK)).astype(np.int64)


def first_in_row(data: Bytes, segment_bytes: int) -> int | None:
    """Return the counter of the first segment if those of the others follow it without a gap; otherwise None."""
    longs = _longs(data, segment_bytes, _COUNTER_AT)
    if longs.size > _STEPS.size:
        return None
    # All are equal if each counter is one more than the one before.
    bases = (longs - _STEPS[: longs.size]).tobytes()
    is_row = bases == bases[:_LONG_BYTES] * longs.size
    return int(longs[0]) & _COUNTER_MASK if is_row else None


def common_prefix(data: Bytes, segment_bytes: int) -> int | None:
    """Return the first seven bytes of all segments as a number if they are equal; otherwise None."""
    count = -(-data.size // segment_bytes)
    prefixes = np.ndarray((count,), _PREFIX, data.data, 0, (segment_bytes,)).tobytes()
    first = prefixes[:PREFIX_BYTES]
    return int.from_bytes(first) if prefixes == first * count else None


def prefixes_of(data: Bytes, segment_bytes: int) -> NDArray[np.uint64]:
    """Return the first seven bytes of each segment as numbers."""
    prefixes: NDArray[np.uint64] = _longs(data, segment_bytes, 0) >> np.uint64(8 * (_LONG_BYTES - PREFIX_BYTES))
    return prefixes


def _longs(data: Bytes, segment_bytes: int, offset: int) -> NDArray[np.uint64]:
    """Return eight bytes of each segment as numbers: those from `offset` on."""
    count = -(-data.size // segment_bytes)
    return np.ndarray((count,), _LONG, data.data, offset, (segment_bytes,))
