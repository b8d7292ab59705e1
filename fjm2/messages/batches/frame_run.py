"""Runs of received frames that are alike: found, read and delivered together, without a step for each frame."""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..frame import Frame, body_place
from ..header import (
    EXPIRATION,
    FLAGS,
    FRAME_BYTES,
    HEADER,
    HEADER_BYTES,
    NAME_BYTES,
    NOT_WHOLE,
    PROPERTY_BYTES,
    Header,
)
from ..properties import place_of
from ..values import CONTENT_BYTES, Tag

FRAMES_MIN: Final = 8
"""Smallest number of frames of a run. Fewer are read faster one by one."""
RUN_BYTES_MIN: Final = FRAMES_MIN * (HEADER_BYTES + 1)
"""Bytes that are less than any run: a frame has a header and a name."""
_EQUAL_MIN: Final = 64
"""Smallest number of frames of one length that make a run if frames of other lengths follow."""
_SHARE_MIN: Final = 2
"""Share (1/2) of a buffer that frames must have to keep it. Otherwise they are copied: a consumer would hold much more
memory than it counts."""
_LENGTH: Final = Struct("!I")
_LENGTH_AT: Final = 4
_ALIKE_BYTES: Final = 32
"""Bytes at the beginning of the headers of a run that are the same: everything up to the number, if frames have one
length."""
_SIZES_AT: Final = 16
_EXPIRATION_AT: Final = 48
_OWN_BYTES: Final = np.r_[4:8, 16:24, 32:48]
"""Bytes of a header in which frames of a run may differ: lengths, number and timestamp."""
_NUMPY_TYPES: Final = {
    Tag.BYTE: ">i1",
    Tag.SHORT: ">i2",
    Tag.INT: ">i4",
    Tag.LONG: ">i8",
    Tag.FLOAT: ">f4",
    Tag.DOUBLE: ">f8",
}


class FrameRun:
    """Frames that follow each other in one buffer, and differ only in length, number, timestamp, properties, sections
    and body."""

    __slots__ = ("buffer", "end", "header", "sizes", "starts")

    def __init__(
        self, buffer: bytes, starts: NDArray[np.int64], end: int, header: Header, sizes: NDArray[np.int64] | None = None
    ) -> None:
        self.buffer = buffer
        self.starts = starts
        """Indexes at which the frames begin."""
        self.end = end
        """Index at which the last frame ends."""
        self.header = header
        """Header of the first frame."""
        self.sizes = sizes
        """Lengths of the properties and of the sections of each frame; None if those of the first are those of all."""

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def frame_bytes(self) -> int:
        """Size of all frames together."""
        return self.end - int(self.starts[0])

    def to_be_kept(self) -> "FrameRun":
        """Return the frames in a buffer of their own if they are a small part of this one."""
        first = int(self.starts[0])
        if (self.end - first) * _SHARE_MIN >= len(self.buffer):
            return self
        return FrameRun(self.buffer[first : self.end], self.starts - first, self.end - first, self.header, self.sizes)

    def split(self, count: int) -> tuple["FrameRun", "FrameRun"]:
        """Return the first `count` frames, and the others. There must be others."""
        middle = int(self.starts[count])
        header: Header = HEADER.unpack_from(self.buffer, middle)
        sizes = (None, None) if self.sizes is None else (self.sizes[:count], self.sizes[count:])
        return (
            FrameRun(self.buffer, self.starts[:count], middle, self.header, sizes[0]),
            FrameRun(self.buffer, self.starts[count:], self.end, header, sizes[1]),
        )

    def indexes(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the indexes at which the frames begin, at which their bodies begin, and at which the frames end."""
        if self.sizes is None:
            bodies = self.starts + body_place(self.header)
        else:
            bodies = self.starts + self.sizes.sum(axis=1) + (HEADER_BYTES + self.header[NAME_BYTES])
        return self.starts, bodies, np.append(self.starts[1:], self.end)

    def places(self) -> Iterator[tuple[int, int, int]]:
        """Return the indexes at which each frame begins, its body begins, and the frame ends."""
        return zip(*(column.tolist() for column in self.indexes()), strict=True)

    def __iter__(self) -> Iterator[Frame]:
        for start, body, end in self.places():
            yield self.buffer, start, body, end, HEADER.unpack_from(self.buffer, start)

    def bodies(self) -> list[memoryview]:
        """Return the bodies, without copying them."""
        view = memoryview(self.buffer)
        return [view[body:end] for _, body, end in self.places()]

    def column(self, name: str) -> NDArray[np.generic] | None:
        """Return the values of a property as an array, if it has the same place in all frames, and values of one type
        with a fixed size. Otherwise return None. Raise MessageFormatError if the properties are malformed."""
        first, at = int(self.starts[0]), HEADER_BYTES + self.header[NAME_BYTES]
        size = self.header[PROPERTY_BYTES]
        places: list[int] = []
        found = place_of(self.buffer, first + at, first + at + size, name, places)
        if found is None:
            return None
        tag, value_at = Tag(self.buffer[found]), found - first - at
        size = value_at + 1 + (CONTENT_BYTES[tag] if tag in _NUMPY_TYPES else 0)
        if self.sizes is not None and self.sizes[:, 0].min() < size:
            return None
        cells = _cells(self.buffer, self.starts, at, size)
        same = np.array(places) - first - at
        if not (cells[:, same] == cells[0, same]).all():
            return None
        tags = cells[:, value_at]
        if tag in (Tag.FALSE, Tag.TRUE):
            values = tags == Tag.TRUE
            return values if (values | (tags == Tag.FALSE)).all() else None
        kind = _NUMPY_TYPES.get(tag)
        if kind is None or not (tags == tag).all():
            return None
        content = np.ascontiguousarray(cells[:, value_at + 1 : value_at + 1 + CONTENT_BYTES[tag]])
        column = content.view(kind)[:, 0]
        return column.astype(column.dtype.newbyteorder("="))


Frames: TypeAlias = Sequence[Frame] | FrameRun
"""Frames of one run, one by one or alike. Either gives them one by one to a loop."""


def find_run(data: bytes, at: int, header: Header, frame_bytes_max: int) -> FrameRun | None:
    """Return the run of frames that begins with the one at index `at`, or None if there are too few.

    The header of the first frame must be valid. Frames of files and transactions, and those that expire, are in no run.
    """
    length, size = header[FRAME_BYTES], len(data)
    if at + length > size or length > frame_bytes_max or header[FLAGS] & NOT_WHOLE or header[EXPIRATION]:
        return None
    if at + length + (FRAMES_MIN - 1) * (HEADER_BYTES + 1) > size:
        return None  # as behind a message that came alone
    starts = np.arange(at, size - length + 1, length)
    if len(starts) >= FRAMES_MIN:
        alike = _equal_frames(data, starts, length, header)
        if alike == len(starts) or alike >= _EQUAL_MIN:
            return FrameRun(data, starts[:alike], at + alike * length, header)
    name_end = HEADER_BYTES + header[NAME_BYTES]
    places = _chain(data, at, name_end)
    starts, lengths = places[:-1], np.diff(places)
    if len(starts) < FRAMES_MIN:
        return None
    heads = _cells(data, starts, 0, name_end)
    sizes = np.ascontiguousarray(heads[:, _SIZES_AT : _SIZES_AT + 8]).view(">u4").astype(np.int64)
    differs = heads != heads[0]
    differs[:, _OWN_BYTES] = False
    bad = differs.any(axis=1) | (lengths > frame_bytes_max) | (sizes.sum(axis=1) + name_end > lengths)
    alike = int(bad.argmax()) if bad.any() else len(bad)
    if alike < FRAMES_MIN:
        return None
    own = None if (sizes[:alike] == sizes[0]).all() else sizes[:alike]
    return FrameRun(data, starts[:alike], int(places[alike]), header, own)


def _chain(data: bytes, at: int, bytes_min: int) -> NDArray[np.int64]:
    """Return the indexes at which frames begin if all lengths are right, and the end of the last. A frame that is
    shorter than `bytes_min` ends the chain."""
    starts, size, length_of = [at], len(data), _LENGTH.unpack_from
    while at + HEADER_BYTES <= size:
        (length,) = length_of(data, at + _LENGTH_AT)
        at += length
        if at > size or length < bytes_min:
            break
        starts.append(at)
    return np.array(starts, np.int64)


def _equal_frames(data: bytes, starts: NDArray[np.int64], length: int, header: Header) -> int:
    """Return the number of frames of the same length, from the first, whose headers and names are like that of the
    first."""
    first, count = int(starts[0]), len(starts)
    words = np.ndarray((count, _ALIKE_BYTES // 8), np.uint64, data, first, (length, 8))
    names = np.ndarray((count, header[NAME_BYTES]), np.uint8, data, first + HEADER_BYTES, (length, 1))
    expirations = np.ndarray((count,), np.uint64, data, first + _EXPIRATION_AT, (length,))
    # To compare bytes takes a third of the time of comparing arrays.
    if (
        words.tobytes() == data[first : first + _ALIKE_BYTES] * count
        and names.tobytes() == data[first + HEADER_BYTES : first + HEADER_BYTES + header[NAME_BYTES]] * count
        and expirations.tobytes() == bytes(expirations.nbytes)
    ):
        return count
    same = (words == words[0]).all(axis=1) & (names == names[0]).all(axis=1) & (expirations == 0)
    return int(same.argmin())


def _cells(data: bytes, starts: NDArray[np.int64], at: int, size: int) -> NDArray[np.uint8]:
    """Return the bytes at an offset of each frame, a row for each frame."""
    steps = np.diff(starts)
    if len(steps) and (steps == steps[0]).all():
        return np.ndarray((len(starts), size), np.uint8, data, int(starts[0]) + at, (int(steps[0]), 1))
    joined = b"".join([data[start + at : start + at + size] for start in starts.tolist()])
    return np.frombuffer(joined, np.uint8).reshape(len(starts), size)
