"""Columns of frames from runs of a lane: all that a keeper needs to store them, without a step for each frame."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batches.array_writer import HEADERS
from ..batches.frame_run import FrameRun, Frames, find_run
from ..frame import FRAME_BYTES_MAX, Frame
from ..header import DELAYED, HEADER, SECTION_BYTES
from .ledger_number import LEDGER_SECTION_BYTES
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
        starts, bodies, ends = self.starts, self._bodies, self.ends
        if intact.all():
            return intact_at(self.buffer, starts, bodies, ends, self.sections)
        intact[intact] = intact_at(self.buffer, starts[intact], bodies[intact], ends[intact], self.sections[intact])
        return intact

    def frames(self, place: int, count: int) -> list[Frame]:
        """Return consecutive frames one by one. They are views of the buffer."""
        buffer, unpack, chosen = self.buffer, HEADER.unpack_from, slice(place, place + count)
        places = (column[chosen].tolist() for column in (self.starts, self._bodies, self.ends))
        return [(buffer, start, body, end, unpack(buffer, start)) for start, body, end in zip(*places, strict=True)]

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


def columns_of(frames: Frames) -> Iterator[RunColumns]:
    """Yield the columns of frames that a `RunTap` gets, without copying them: one for each buffer."""
    if isinstance(frames, FrameRun):
        yield RunColumns(frames.buffer, *frames.indexes())
        return
    for group in _groups(frames):
        _, starts, bodies, ends, _ = zip(*group, strict=True)
        yield RunColumns(group[0][0], np.array(starts, np.int64), np.array(bodies, np.int64), np.array(ends, np.int64))


def joined_columns(runs: Sequence[Frames]) -> RunColumns:
    """Return the columns of the frames of several runs, which are copied end to end. There must be one frame at least.

    What is done with columns takes much longer for each of them than for each frame: a copy is cheaper.
    """
    parts = [part for run in runs for part in ((run,) if isinstance(run, FrameRun) else _groups(run))]
    pieces = [_piece(part) for part in parts]
    buffer = b"".join(pieces)
    # Frames that are alike are found faster once more than put together.
    found = find_run(buffer, 0, HEADER.unpack_from(buffer), FRAME_BYTES_MAX)
    if found is not None and found.end == len(buffer):
        return RunColumns(buffer, *found.indexes())
    return RunColumns(buffer, *_joined_indexes(parts, pieces))


def _piece(part: Frames) -> memoryview:
    """Return the bytes from the first frame to the last, which are in one buffer."""
    if isinstance(part, FrameRun):
        return memoryview(part.buffer)[int(part.starts[0]) : part.end]
    return memoryview(part[0][0])[part[0][1] : part[-1][3]]


def _joined_indexes(parts: Sequence[Frames], pieces: Sequence[memoryview]) -> Iterator[NDArray[np.int64]]:
    """Yield the indexes at which frames begin, at which their bodies begin, and at which they end, in the pieces that
    were put end to end."""
    places: tuple[list[int], list[int], list[int]] = [], [], []
    shifts: list[int] = []
    size = 0
    for part, piece in zip(parts, pieces, strict=True):
        found = part.places() if isinstance(part, FrameRun) else ((start, body, end) for _, start, body, end, _ in part)
        columns = list(zip(*found, strict=True))
        for column, more in zip(places, columns, strict=True):
            column += more
        shifts.append(size - columns[0][0])
        size += len(piece)
    shift = np.repeat(np.array(shifts, np.int64), list(map(len, parts)))
    for column in places:
        yield np.array(column, np.int64) + shift


def numbered_frames(frames: Frames) -> list[Frame] | FrameRun:
    """Return the frames that may have a number. It is not looked at, as that takes less time for many runs at once."""
    if not isinstance(frames, FrameRun):
        return [frame for frame in frames if frame[4][SECTION_BYTES] >= LEDGER_SECTION_BYTES]
    sections = frames.header[SECTION_BYTES] if frames.sizes is None else int(frames.sizes[:, 1].max())
    return frames if sections >= LEDGER_SECTION_BYTES else []
