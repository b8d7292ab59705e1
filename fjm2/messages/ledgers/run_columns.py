"""Columns of the frames that end in one run of a lane: all that a keeper needs to store them, without a step for each
frame and without a copy."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batches.array_writer import HEADERS
from ..frame import Frame
from ..header import HEADER_BYTES
from .number_columns import intact_at, sections_at


class RunColumns:
    """Frames of one buffer, which may be of different destinations and kinds."""

    __slots__ = ("_bodies", "buffer", "ends", "has_number", "headers", "sections", "starts")

    def __init__(self, frames: Sequence[Frame]) -> None:
        """Read frames that have the same buffer. There must be one at least."""
        self.buffer = frames[0][0]
        _, starts, bodies, ends, _ = zip(*frames, strict=True)
        self.starts: NDArray[np.int64] = np.array(starts, np.int64)
        """Indexes at which the frames begin."""
        self.ends: NDArray[np.int64] = np.array(ends, np.int64)
        """Indexes at which they end."""
        view = np.frombuffer(self.buffer, np.uint8)
        self._bodies = bodies
        rows = view[self.starts[:, None] + _HEADER_PLACES]
        self.headers: NDArray[np.void] = rows.view(HEADERS)[:, 0]
        """Fields of the headers, by the names of `HEADERS`: the hash of the destination, flags, priority."""
        section_bytes = self.headers["section_bytes"].astype(np.int64)
        self.sections: NDArray[np.void]
        """Fields of the numbers, by the names of `SECTIONS`: producer id, producer epoch, sequence, checksum."""
        self.has_number: NDArray[np.bool_]
        """True for each frame that has a number. The fields of others mean nothing."""
        self.sections, self.has_number = sections_at(self.buffer, np.array(bodies, np.int64), section_bytes)

    def __len__(self) -> int:
        return len(self.starts)

    def are_one_run(self) -> bool:
        """Return True if all frames have consecutive numbers of one ledger, the same destination, flags and priority,
        and lie one behind the other."""
        if len(self.starts) == 1:
            return True
        is_same = (
            self.starts[1:].tobytes() == self.ends[:-1].tobytes()
            and all(_is_constant(self.headers[name]) for name in ("destination_hash", "flags", "priority"))
            and all(_is_constant(self.sections[name]) for name in ("producer_id", "producer_epoch"))
        )
        sequences = self.sections["sequence"]
        return is_same and bool((sequences[1:] == sequences[:-1] + _ONE).all())

    def intact(self) -> NDArray[np.bool_]:
        """Return True for each frame that has a number, and whose checksum is right."""
        intact = self.has_number.copy()
        numbered = np.flatnonzero(intact)
        bodies = self._bodies
        places = [
            (start, bodies[index], end)
            for index, start, end in zip(
                numbered.tolist(), self.starts[numbered].tolist(), self.ends[numbered].tolist(), strict=True
            )
        ]
        intact[numbered] = intact_at(self.buffer, places, self.sections[numbered])
        return intact

    def body(self, index: int) -> bytes:
        """Return a copy of the body of a frame."""
        return bytes(self.buffer[self._bodies[index] : int(self.ends[index])])

    def pieces(self, chosen: NDArray[np.bool_]) -> list[memoryview]:
        """Return the chosen frames in order, without copying them. Those that follow each other are one piece."""
        places = np.flatnonzero(chosen)
        if not len(places):
            return []
        starts, ends = self.starts[places], self.ends[places]
        is_new = np.flatnonzero(starts[1:] != ends[:-1]) + 1
        firsts = starts[np.r_[0, is_new]].tolist()
        lasts = ends[np.r_[is_new - 1, len(places) - 1]].tolist()
        view = memoryview(self.buffer)
        return [view[start:end] for start, end in zip(firsts, lasts, strict=True)]


_HEADER_PLACES = np.arange(HEADER_BYTES)
_ONE = np.uint64(1)


def _is_constant(column: NDArray[Any]) -> bool:
    first: NDArray[Any] = column[:1]
    return column.tobytes() == first.tobytes() * len(column)


def columns_of(frames: Sequence[Frame]) -> Iterator[RunColumns]:
    """Yield the columns of frames that a `RunTap` gets: one for each buffer. A buffer does not come back after another
    one, and nearly all frames have the run itself as theirs."""
    first = 0
    while first < len(frames):
        buffer, end = frames[first][0], first + 1
        if frames[-1][0] is buffer:
            end = len(frames)
        else:
            while frames[end][0] is buffer:
                end += 1
        yield RunColumns(frames[first:end])
        first = end
