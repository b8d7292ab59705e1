"""Frames that lie end to end in a buffer, as a sequence that cuts a frame out only when somebody asks for it."""

from collections.abc import Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from .disk import Buffer, byte_count


class LaidFrames(Sequence[bytes]):
    """Frames in a buffer that nobody changes."""

    __slots__ = ("_buffer", "_ends")

    def __init__(self, buffer: Buffer, ends: NDArray[np.int64]) -> None:
        """The first frame begins at index 0 of the buffer, and each at the end of the one before."""
        if len(ends) and int(ends[-1]) != byte_count(buffer):
            raise ValueError(f"frames of {ends[-1]} bytes: expected {byte_count(buffer)}, as the buffer has")
        self._buffer, self._ends = buffer, ends

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> "LaidFrames": ...
    def __getitem__(self, index: int | slice) -> "bytes | LaidFrames":
        if isinstance(index, slice):
            first, end, step = index.indices(len(self))
            if step != 1:
                raise ValueError(f"step={step}: expected 1")
            start, ends = self._start(first), self._ends[first : max(first, end)]
            last = int(ends[-1]) if len(ends) else start
            return LaidFrames(memoryview(self._buffer)[start:last], ends - start)
        place = range(len(self))[index]
        return bytes(self._buffer[self._start(place) : int(self._ends[place])])

    def _start(self, place: int) -> int:
        return int(self._ends[place - 1]) if place else 0

    @property
    def lengths(self) -> NDArray[np.uint32]:
        """Length of each frame."""
        ends = self._ends
        return (ends if len(ends) == 1 else np.diff(ends, prepend=0)).astype(np.uint32)

    @property
    def data(self) -> Buffer:
        """All frames."""
        return self._buffer
