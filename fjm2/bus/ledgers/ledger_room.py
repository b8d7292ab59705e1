"""Bytes that publishers may have on the way to keepers at a time."""

from collections.abc import Callable
from typing import Final

from ..lane import LANE_COUNT

_STREAM_PART: Final = 2
"""Messages that are not stored may take this part (1/2) of a stream's buffer. They must stay in the buffer, because a
keeper may lose what it has received until it is on its disk, and only what is in the buffer can be sent again."""


class LedgerRoom:
    """Counts the bytes of each lane that keepers have not stored yet. All connections of a bus share it, as they share
    the lanes."""

    __slots__ = ("_on_freed", "bytes_max", "used")

    def __init__(self, stream_bytes: int) -> None:
        self.bytes_max: Final = self.bytes_max_of(stream_bytes)
        """Greatest number of bytes of a lane that may be unconfirmed at a time. A message that is longer is sent while
        no other of its lane is unconfirmed."""
        self.used: Final = [0] * LANE_COUNT
        """Bytes of each lane that are unconfirmed."""
        self._on_freed: list[Callable[[], None]] = []

    @staticmethod
    def bytes_max_of(stream_bytes: int) -> int:
        """Return `bytes_max` for streams with buffers of a size."""
        return stream_bytes // _STREAM_PART

    def has(self, lane: int, size: int) -> bool:
        """Return True if `size` more bytes may be unconfirmed in a lane."""
        return self.used[lane] + size <= self.bytes_max or not self.used[lane]

    def add_waiter(self, on_freed: Callable[[], None]) -> None:
        """Call `on_freed` whenever there may be room again."""
        self._on_freed.append(on_freed)

    def remove_waiter(self, on_freed: Callable[[], None]) -> None:
        """Stop calling `on_freed`."""
        self._on_freed.remove(on_freed)

    def note_freed(self) -> None:
        """Tell those who wait. Each takes the first place in turn, so that none starves."""
        waiters = self._on_freed
        if waiters:
            waiters.append(waiters.pop(0))
        for on_freed in list(waiters):
            on_freed()
