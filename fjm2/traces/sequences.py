"""Sequence numbers of a sender: counts of numbers that are missing or late, and detection of those captured twice."""

from typing import Final

_NUMBERS: Final = 1 << 16
_HALF: Final = _NUMBERS // 2
_REMEMBERED: Final = 4096
"""Number of sequence numbers below the highest that are remembered. A number further below means that the sender
restarted."""
_MASK: Final = (1 << _REMEMBERED) - 1


class Sequences:
    """The sequence numbers of one sender. They have 16 bits, and wrap around."""

    __slots__ = ("_seen", "_top", "late", "missed")

    def __init__(self) -> None:
        self._top: int | None = None
        self._seen = 0
        """A bit for each of the last numbers. The lowest bit stands for the highest number."""
        self.missed = 0
        """Number of sequence numbers that were skipped, including those that came late."""
        self.late = 0
        """Number of skipped sequence numbers that came late."""

    def note(self, first: int, count: int) -> list[int]:
        """Note consecutive numbers. Return the offsets from `first` of those numbers that had come before."""
        if self._top is None:
            self._begin(first, count)
            return []
        ahead = (first - self._top) % _NUMBERS
        if 0 < ahead < _HALF:
            self.missed += ahead - 1
            self._seen = (self._seen << (ahead - 1 + count) | (1 << count) - 1) & _MASK
            self._top = (first + count - 1) % _NUMBERS
            return []
        if _HALF <= ahead <= _NUMBERS - _REMEMBERED:  # too far behind to be late: the sender began anew
            self._begin(first, count)
            return []
        return [offset for offset in range(count) if self._note_one((first + offset) % _NUMBERS)]

    def _begin(self, first: int, count: int) -> None:
        self._top, self._seen = (first + count - 1) % _NUMBERS, ((1 << count) - 1) & _MASK

    def _note_one(self, number: int) -> bool:
        assert self._top is not None
        back = (self._top - number) % _NUMBERS
        if back >= _HALF:
            self.note(number, 1)
            return False
        bit = 1 << back
        if self._seen & bit:
            return True
        self._seen |= bit
        self.late += 1
        return False
