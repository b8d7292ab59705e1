"""Messages of a lane that are held in memory on their way from the disk's queue to the network."""

from collections import deque
from typing import Final

HELD_BYTES_MAX: Final = 8 << 20
"""Most bytes of a lane that are held. What comes while there are more is read from the disk when its turn comes."""


class HeldMessages:
    """Consecutive messages, from the next one to be sent on."""

    def __init__(self) -> None:
        self._first = 1
        self._frames: deque[bytes] = deque()
        self._bytes = 0

    def add(self, first: int, frames: list[bytes]) -> None:
        """Hold messages, if they follow what is held and there is room."""
        if not self._frames:
            self._first = first
        elif first != self._first + len(self._frames) or self._bytes > HELD_BYTES_MAX:
            return
        self._frames.extend(frames)
        self._bytes += sum(map(len, frames))

    def has(self, number: int) -> bool:
        """Return True if a message is held. Forget those before it."""
        while self._frames and self._first < number:
            self._bytes -= len(self._frames.popleft())
            self._first += 1
        return bool(self._frames) and self._first == number

    @property
    def next(self) -> bytes:
        """The first message that is held."""
        return self._frames[0]
