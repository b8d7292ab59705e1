"""Columns of frames from runs of a lane: all that a keeper needs to store them, without a step for each frame."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batches.array_writer import HEADERS
from ..frame import Frame
from ..header import DELAYED
from .number_columns import intact_at, rows_at, sections_at


class RunColumns:
    """Frames of one buffer, which may be of different destinations and kinds."""

    __slots__ = ("_bodies", "buffer", "ends", "has_number", "headers", "sections", "starts")

    def __init__(
        self, buffer: bytes, starts: NDArray[np.int64], bodies: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> None:
        """Read the frames of a buffer that start, have their bodies and end there. There must be one at least."""
        self.buffer = buffer
        self.starts = starts
        """Indexes at which the frames begin."""
        self.ends = ends
        """Indexes at which they end."""
        self._bodies = bodies
        self.headers: NDArray[np.void] = rows_at(buffer, starts, HEADERS)
        """Fields of the headers, by the names of `HEADERS`: the hash of the destination, flags, priority."""
        section_bytes = self.headers["section_bytes"].astype(np.int64)
        self.sections: NDArray[np.void]
        """Fields of the numbers, by the names of `SECTIONS`: producer id, producer epoch, sequence, checksum."""
        self.has_number: NDArray[np.bool_]
        """True for each frame that has a number. The fields of others mean nothing."""
        self.sections, self.has_number = sections_at(buffer, bodies, section_bytes)

    def __len__(self) -> int:
        return len(self.starts)

    def are_one_run(self) -> bool:
        """Return True if all frames have consecutive numbers of one ledger, the same destination, flags, marks and
        priority, and lie one behind the other."""
        if len(self.starts) == 1:
            return True
        is_same = (
            self.starts[1:].tobytes() == self.ends[:-1].tobytes()
            and all(_is_constant(self.headers[name]) for name in ("destination_hash", "flags", "marks", "priority"))
            # Delayed messages and parts of files have the same flag, and ledgers of their own.
            and (not int(self.headers["flags"][0]) & DELAYED or _is_constant(self.headers["kind"]))
            and all(_is_constant(self.sections[name]) for name in ("producer_id", "producer_epoch"))
        )
        sequences = self.sections["sequence"]
        return is_same and bool((sequences[1:] == sequences[:-1] + _ONE).all())

    def intact(self) -> NDArray[np.bool_]:
        """Return True for each frame that has a number, and whose checksum is right."""
        intact = self.has_number.copy()
        numbered = np.flatnonzero(intact)
        columns = (self.starts[numbered].tolist(), self._bodies[numbered].tolist(), self.ends[numbered].tolist())
        intact[numbered] = intact_at(self.buffer, list(zip(*columns, strict=True)), self.sections[numbered])
        return intact

    def body(self, index: int) -> bytes:
        """Return a copy of the body of a frame."""
        return bytes(self.buffer[int(self._bodies[index]) : int(self.ends[index])])

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


_ONE = np.uint64(1)


def _is_constant(column: NDArray[Any]) -> bool:
    first: NDArray[Any] = column[:1]
    return column.tobytes() == first.tobytes() * len(column)


def _groups(frames: Sequence[Frame]) -> Iterator[Sequence[Frame]]:
    """Yield the frames of each buffer. A buffer does not come back after another one, and nearly all frames of a run
    have the run itself as theirs."""
    first = 0
    while first < len(frames):
        buffer, end = frames[first][0], first + 1
        if frames[-1][0] is buffer:
            end = len(frames)
        else:
            while frames[end][0] is buffer:
                end += 1
        yield frames[first:end]
        first = end


def columns_of(frames: Sequence[Frame]) -> Iterator[RunColumns]:
    """Yield the columns of frames that a `RunTap` gets, without copying them: one for each buffer."""
    for group in _groups(frames):
        _, starts, bodies, ends, _ = zip(*group, strict=True)
        yield RunColumns(group[0][0], np.array(starts, np.int64), np.array(bodies, np.int64), np.array(ends, np.int64))


def joined_columns(runs: Iterable[Sequence[Frame]]) -> RunColumns:
    """Return the columns of the frames of several runs, which are copied end to end. There must be one frame at least.

    What is done with columns takes much longer for each of them than for each frame: a copy is cheaper.
    """
    pieces: list[memoryview] = []
    places: tuple[list[int], list[int], list[int]] = [], [], []
    shifts: list[int] = []
    counts: list[int] = []
    size = 0
    for run in runs:
        for group in _groups(run):
            _, *found, _ = zip(*group, strict=True)
            for column, part in zip(places, found, strict=True):
                column += part
            start, end = found[0][0], found[2][-1]
            pieces.append(memoryview(group[0][0])[start:end])
            shifts.append(size - start)
            counts.append(len(group))
            size += end - start
    shift = np.repeat(np.array(shifts, np.int64), counts)
    starts, bodies, ends = (np.array(column, np.int64) + shift for column in places)
    return RunColumns(b"".join(pieces), starts, bodies, ends)
