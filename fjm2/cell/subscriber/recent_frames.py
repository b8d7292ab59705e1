"""Frames of one ledger that were heard lately: a consumer of a shared subscription may be handed them."""

from collections import deque
from collections.abc import Sequence
from typing import Final, Generic

from fjm2.base.ranges import RangeSet

from .context import Context
from .outgoing import F

RECENT_MAX: Final = 4096
"""Most frames of a ledger that are kept. Keepers send older ones again."""
HEARD_RANGES_MAX: Final = 1024
"""Most separate ranges of what was heard."""


class RecentFrames(Generic[F]):
    """Frames and the numbers that were heard, the oldest of which are forgotten."""

    __slots__ = ("_context", "_frames", "_heard", "_messages", "_order")

    def __init__(self, context: Context[F]) -> None:
        self._context = context
        self._frames: dict[int, tuple[F, int]] = {}
        self._order: deque[int] = deque()
        """Sequences in the order in which they were heard. Some of them are gone."""
        self._messages = RangeSet()
        """Sequences of the frames that are here."""
        self._heard = RangeSet()
        """Sequences of which it is known whose they are: of frames that are here, and of those to other
        destinations."""

    def __contains__(self, sequence: int) -> bool:
        return sequence in self._frames

    def add(self, first: int, frames: Sequence[F]) -> None:
        """Keep frames, and forget others if there is no room."""
        context = self._context
        for sequence, frame in enumerate(frames, first):
            if sequence in self._frames:
                continue
            copy, size = context.frames.detach(frame)
            while len(self._frames) >= RECENT_MAX or not context.frames.take(size):
                if not self._forget_oldest():
                    return
            self._frames[sequence] = copy, size
            self._order.append(sequence)
            self._note(self._messages, sequence, sequence + 1)
            self._note(self._heard, sequence, sequence + 1)
        if len(self._order) > 2 * RECENT_MAX:
            self._order = deque(sequence for sequence in self._order if sequence in self._frames)

    def pass_over(self, first: int, end: int) -> None:
        """Note that numbers are for other destinations."""
        self._note(self._heard, first, end)

    def _note(self, ranges: RangeSet, first: int, end: int) -> None:
        ranges.add(first, end)
        if ranges.range_count > HEARD_RANGES_MAX:
            low, high = self._heard.first_range
            self._heard.remove(low, high)
            for sequence in [each for each in self._frames if low <= each < high]:
                self._forget(sequence)

    def _forget_oldest(self) -> bool:
        while self._order:
            sequence = self._order.popleft()
            if sequence in self._frames:
                self._heard.remove(sequence, sequence + 1)
                self._forget(sequence)
                return True
        return False

    def _forget(self, sequence: int) -> None:
        self._context.frames.bytes -= self._frames.pop(sequence)[1]
        self._messages.remove(sequence, sequence + 1)

    def heard_end(self, sequence: int) -> int:
        """Return the end of what was heard from a sequence on without a hole."""
        return self._heard.end_of(sequence)

    def messages_within(self, first: int, end: int) -> list[tuple[int, int]]:
        """Return the ranges of frames that are here."""
        return list(self._messages.within(first, end))

    def take(self, first: int, end: int) -> list[F]:
        """Return frames that are here, and forget them."""
        frames = [self._frames[sequence][0] for sequence in range(first, end)]
        for sequence in range(first, end):
            self._forget(sequence)
        self._heard.remove(first, end)
        return frames

    def forget_before(self, sequence: int) -> None:
        """Forget the numbers to other destinations before a sequence that have been used."""
        self._heard.remove(0, sequence)
        for first, end in self.messages_within(0, sequence):
            self._heard.add(first, end)

    def clear(self) -> None:
        """Forget everything."""
        for sequence in list(self._frames):
            self._forget(sequence)
        self._heard.clear()
        self._order.clear()
