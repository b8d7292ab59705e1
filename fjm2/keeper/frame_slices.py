"""Frames that lie in one buffer, as a sequence that cuts them out only when somebody asks for one."""

from collections.abc import Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from fjm2.messages.ledgers.run_columns import RunColumns


class FrameSlices(Sequence[bytes]):
    """Consecutive frames of a ledger in the buffer of a run."""

    __slots__ = ("_columns", "_first", "_last")

    def __init__(self, columns: RunColumns, first: int, end: int) -> None:
        """Refer to the frames with these indexes in a run."""
        self._columns = columns
        self._first, self._last = first, end

    def __len__(self) -> int:
        return self._last - self._first

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> "FrameSlices": ...
    def __getitem__(self, index: int | slice) -> "bytes | FrameSlices":
        if isinstance(index, slice):
            first, end, step = index.indices(len(self))
            if step != 1:
                raise ValueError(f"step={step}: expected 1")
            return FrameSlices(self._columns, self._first + first, self._first + max(first, end))
        place = self._first + range(len(self))[index]
        return bytes(self._columns.buffer[int(self._columns.starts[place]) : int(self._columns.ends[place])])

    @property
    def lengths(self) -> NDArray[np.uint32]:
        """Length of each frame."""
        here = slice(self._first, self._last)
        return (self._columns.ends[here] - self._columns.starts[here]).astype(np.uint32)

    @property
    def data(self) -> bytes | memoryview:
        """The frames laid end to end: a view of the buffer, unless that would keep much more than the frames."""
        chosen = np.zeros(len(self._columns), bool)
        chosen[self._first : self._last] = True
        pieces = self._columns.pieces(chosen)
        is_most = len(pieces) == 1 and 2 * pieces[0].nbytes >= len(self._columns.buffer)
        return pieces[0] if is_most else b"".join(pieces)
