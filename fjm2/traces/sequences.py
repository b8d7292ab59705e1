"""Which of a sender's messages were seen: what is missing, what came late, what was captured twice."""

from typing import Final

_NUMBERS: Final = 1 << 16
_HALF: Final = _NUMBERS // 2
_REMEMBERED: Final = 4096
"""Of what lies further back nothing is known."""
_MASK: Final = (1 << _REMEMBERED) - 1


class Sequences:
    """16-bit numbers that go round."""

    __slots__ = ("_seen", "_top", "late", "missed")

    def __init__(self) -> None:
        self._top: int | None = None
        self._seen = 0
        """A bit for each of the last numbers, the highest number's being the lowest bit."""
        self.missed = 0
        """Numbers that were left out; some of them may have come later."""
        self.late = 0
        """Those that did."""

    def note(self, first: int, count: int) -> list[int]:
        """Consecutive numbers have come. Which of them, counted from the first, had come before."""
        if self._top is None:
            self._begin(first, count)
            return []
        ahead = (first - self._top) % _NUMBERS
        if 0 < ahead < _HALF:
            self.missed += ahead - 1
            self._seen = (self._seen << (ahead - 1 + count) | (1 << count) - 1) & _MASK
            self._top = (first + count - 1) % _NUMBERS
            return []
        if _HALF <= ahead <= _NUMBERS - _REMEMBERED:  # not late, but begun anew
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
