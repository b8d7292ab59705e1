"""Frames of one ledger that wait for those before them."""

from collections.abc import Sequence
from typing import Final, Generic

from fjm2.base.ranges import RangeSet

from .context import Context
from .outgoing import F

AHEAD_MAX: Final = 4096
"""Furthest that a frame is ahead of the next one to be delivered, to be kept. A consumer further behind has other
frames to get first."""
PASSED_MAX: Final = 1024
"""Most separate ranges of frames to other destinations that are remembered."""


class HeldFrames(Generic[F]):
    """Frames, and numbers of frames to other destinations, that came before their turn."""

    __slots__ = ("_context", "_frames", "passed")

    def __init__(self, context: Context[F]) -> None:
        self._context = context
        self._frames: dict[int, tuple[F, int]] = {}
        self.passed = RangeSet()
        """Sequences of frames to other destinations."""

    def __bool__(self) -> bool:
        return bool(self._frames) or bool(self.passed)

    def add(self, first: int, frames: Sequence[F]) -> None:
        """Keep frames, as far as there is room."""
        context, held = self._context, self._frames
        for sequence, frame in enumerate(frames, first):
            if sequence in held:
                continue
            copy, size = context.frames.detach(frame)
            if not context.frames.take(size):
                return
            held[sequence] = copy, size

    def pass_over(self, first: int, end: int) -> None:
        """Note that numbers are for other destinations."""
        if self.passed.range_count < PASSED_MAX:
            self.passed.add(first, end)

    def take(self, first: int, most: int) -> list[F]:
        """Return the frames from a sequence on that follow each other, and forget them."""
        frames: list[F] = []
        while len(frames) < most:
            found = self._frames.pop(first + len(frames), None)
            if found is None:
                break
            frames.append(found[0])
            self._context.frames.bytes -= found[1]
        return frames

    def forget_before(self, sequence: int) -> None:
        """Forget what lies before a sequence."""
        self.passed.remove(0, sequence)
        for each in [each for each in self._frames if each < sequence]:
            self._context.frames.bytes -= self._frames.pop(each)[1]

    def clear(self) -> None:
        """Forget everything."""
        self.passed.clear()
        self._context.frames.bytes -= sum(size for _, size in self._frames.values())
        self._frames.clear()
