"""Numbers of many frames at once: added to the frames of a batch, and read from frames that are alike."""

import struct
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from ..batches.array_writer import HEADERS
from ..batches.frame_array import FrameArray
from ..batches.frame_run import FrameRun
from ..frame import FRAME_BYTES_MAX, body_place, too_large
from ..header import HEADER, HEADER_BYTES, NAME_BYTES, SECTION_BYTES, Header
from .ledger_number import (
    CHECKSUM,
    CHECKSUMS,
    CONTENT_BYTES,
    LEDGER_SECTION_BYTES,
    WRITTEN_CHECKSUM,
    WRITTEN_TAG,
    LedgerNumber,
    with_ledger_number,
)

SECTIONS: Final = np.dtype(
    [
        ("tag", "u1"),
        ("length", ">u4"),
        ("producer_id", ">u8"),
        ("producer_epoch", ">u4"),
        ("sequence", ">u8"),
        ("checksum", ">u4"),
    ]
)
"""Fields of the section, for numpy."""
_SIZES: Final = np.r_[12:14, 16:24]
"""Bytes of a header with the sizes of the name, the properties and the sections."""

_SECTIONS_MAX: Final = 8
"""Greatest number of sections before the number that are walked over for all frames at once. FJM2 writes at most 6."""
_NAMED_BYTES: Final = LEDGER_SECTION_BYTES - CONTENT_BYTES
"""Bytes of tag and length of a section."""
_LENGTH_BYTES: Final = np.arange(1, _NAMED_BYTES)
_LENGTH: Final = struct.Struct("!I")
_TAGS: Final = tuple(CHECKSUMS)
_COPIED_BYTES_MAX: Final = 4096
"""Size of the longest frames that are copied to be checked."""


def with_ledger_numbers(frames: FrameArray, first: LedgerNumber) -> FrameArray:
    """Return the frames of a batch, numbered from `first` on, each with a checksum.

    Raise JMSError if one of them would be too large. No number is used then.
    """
    grown = np.diff(np.array([*frames.starts, frames.size])) + LEDGER_SECTION_BYTES
    longest = int(grown.max())
    if longest > FRAME_BYTES_MAX:
        raise too_large(longest)
    if len(frames.pieces) == 1 and (grown == longest).all():
        return _equal_array(frames, first, longest)
    heads, bodies = _split(frames)
    ends = np.cumsum(grown)
    starts, size = (ends - grown).tolist(), int(ends[-1])
    if len(set(map(len, heads))) != 1:
        return _numbered_one_by_one(heads, bodies, first, starts, size)
    rows = _numbered_heads(np.frombuffer(b"".join(heads), np.uint8).reshape(len(heads), -1), grown, first)
    covered = _pieces(rows[:, : -CHECKSUM.size])
    sums = map(WRITTEN_CHECKSUM, bodies, map(WRITTEN_CHECKSUM, covered, repeat(0)))
    rows[:, -LEDGER_SECTION_BYTES:].view(SECTIONS)[:, 0]["checksum"] = np.fromiter(sums, np.uint32, len(bodies))
    pieces: list[bytes] = [b""] * (2 * len(bodies))
    pieces[::2] = _pieces(rows)
    pieces[1::2] = bodies
    return FrameArray(pieces, starts, size)


def _equal_array(frames: FrameArray, first: LedgerNumber, grown: int) -> FrameArray:
    """Return frames of one size, which are copied rather than joined."""
    count, data = len(frames), frames.data
    header: Header = HEADER.unpack_from(data)
    head_bytes = body_place(header)
    whole = np.frombuffer(data, np.uint8).reshape(count, grown - LEDGER_SECTION_BYTES)
    sizes = whole[:, _SIZES]
    if not (sizes == sizes[0]).all():  # their heads differ in size
        frames = FrameArray([piece for parts in frames.parts() for piece in parts], frames.starts, frames.size)
        return with_ledger_numbers(frames, first)
    rows = _numbered_heads(whole[:, :head_bytes], np.full(count, grown), first)
    width = rows.shape[1]
    covered = np.empty((count, grown - CHECKSUM.size), np.uint8)
    covered[:, : width - CHECKSUM.size] = rows[:, : -CHECKSUM.size]
    covered[:, width - CHECKSUM.size :] = whole[:, head_bytes:]
    sums = map(WRITTEN_CHECKSUM, _pieces(covered), repeat(0))
    rows[:, -LEDGER_SECTION_BYTES:].view(SECTIONS)[:, 0]["checksum"] = np.fromiter(sums, np.uint32, count)
    numbered = np.empty((count, grown), np.uint8)
    numbered[:, :width] = rows
    numbered[:, width:] = whole[:, head_bytes:]
    return FrameArray([numbered.tobytes()], list(range(0, count * grown, grown)), count * grown)


def _numbered_heads(heads: NDArray[np.uint8], frame_bytes: NDArray[np.int64], first: LedgerNumber) -> NDArray[np.uint8]:
    """Return a row for each frame: everything up to its body, with the section of its number. The checksum is to be
    set."""
    count, head_bytes = heads.shape
    rows = np.empty((count, head_bytes + LEDGER_SECTION_BYTES), np.uint8)
    rows[:, :head_bytes] = heads
    fields = rows[:, :HEADER_BYTES].view(HEADERS)[:, 0]
    fields["frame_bytes"] = frame_bytes
    fields["section_bytes"] += LEDGER_SECTION_BYTES
    sections = rows[:, head_bytes:].view(SECTIONS)[:, 0]
    sections["tag"] = WRITTEN_TAG
    sections["length"] = CONTENT_BYTES
    sections["producer_id"] = first.producer_id
    sections["producer_epoch"] = first.producer_epoch
    sections["sequence"] = np.arange(first.sequence, first.sequence + count, dtype=np.uint64)
    return rows


def _pieces(rows: NDArray[np.uint8]) -> list[bytes]:
    """Return each row as bytes."""
    rows = np.ascontiguousarray(rows)
    return cast(list[bytes], rows.view(f"V{rows.shape[1]}")[:, 0].tolist())


def _split(frames: FrameArray) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """Return everything up to the body, and the body, of each frame."""
    count, pieces = len(frames), frames.pieces
    kinds = len(pieces) // count
    if kinds == 2:
        return pieces[::2], pieces[1::2]
    if kinds > 2:
        heads = [b"".join(pieces[at : at + kinds - 1]) for at in range(0, count * kinds, kinds)]
        return heads, pieces[kinds - 1 :: kinds]
    parts = list(frames.parts())
    return [head for head, _ in parts], [body for _, body in parts]


def _numbered_one_by_one(
    heads: Sequence[bytes], bodies: Sequence[bytes], first: LedgerNumber, starts: list[int], size: int
) -> FrameArray:
    producer_id, producer_epoch, sequence = first
    pieces: list[bytes] = []
    for parts in zip(heads, bodies, strict=True):
        pieces += with_ledger_number(parts, producer_id, producer_epoch, sequence)
        sequence += 1
    return FrameArray(pieces, starts, size)


def ledger_sections_of(run: FrameRun) -> NDArray[np.void] | None:
    """Return the `SECTIONS` of frames that are alike, which may refer to the buffer of the run. Return None if some
    frame has no number."""
    header, sizes = run.header, run.sizes
    bodies = run.starts + body_place(header) if sizes is None else _body_places(run, sizes)
    section_bytes = np.broadcast_to(header[SECTION_BYTES] if sizes is None else sizes[:, 1], bodies.shape)
    if section_bytes.min() < LEDGER_SECTION_BYTES:
        return None
    sections, has_number = sections_at(run.buffer, bodies, section_bytes)
    return sections if has_number.all() else None


def sections_at(
    data: bytes, bodies: NDArray[np.int64], section_bytes: NDArray[np.int64]
) -> tuple[NDArray[np.void], NDArray[np.bool_]]:
    """Return the last `SECTIONS` of frames, whose bodies begin at some indexes, and True for each that is a number.

    The sections before it are walked over for all frames at once, as `ledger_number_of` does for one.
    """
    places = bodies - LEDGER_SECTION_BYTES
    sections = rows_at(data, places, SECTIONS)
    tags = sections["tag"]
    has_number = (sections["length"] == CONTENT_BYTES) & ((tags == _TAGS[0]) | (tags == _TAGS[1]))
    at = bodies - section_bytes
    view = np.frombuffer(data, np.uint8)
    for _ in range(_SECTIONS_MAX):
        before = np.flatnonzero(has_number & (at < places))
        if not len(before):
            break
        lengths = view[at[before, None] + _LENGTH_BYTES].view(">u4")[:, 0]
        at[before] += lengths.astype(np.int64) + _NAMED_BYTES
    for index in np.flatnonzero(has_number & (at < places)).tolist():  # more sections than FJM2 writes
        place, last = int(at[index]), int(places[index])
        while place < last:
            place += _NAMED_BYTES + _LENGTH.unpack_from(data, place + 1)[0]
        at[index] = place
    has_number &= at == places
    return sections, has_number


def are_intact(run: FrameRun, sections: NDArray[np.void]) -> NDArray[np.bool_]:
    """Return True for each frame whose checksum is right."""
    return intact_at(run.buffer, *run.indexes(), sections)


def intact_at(
    data: bytes,
    starts: NDArray[np.int64],
    bodies: NDArray[np.int64],
    ends: NDArray[np.int64],
    sections: NDArray[np.void],
) -> NDArray[np.bool_]:
    """Return True for each frame whose checksum is right. The arrays have the indexes at which each begins, its body
    begins, and it ends. All must have a number."""
    if not len(starts):
        return np.empty(0, np.bool_)
    tags = sections["tag"].tolist()
    are_of_one_tag = tags.count(tags[0]) == len(tags)
    covered = _covered_rows(data, starts, bodies, ends) if are_of_one_tag else None
    sums: Iterable[int]
    if covered is not None:
        sums = map(CHECKSUMS[tags[0]], covered, repeat(0))
    else:
        view = memoryview(data)
        heads = [view[start:end] for start, end in zip(starts.tolist(), (bodies - CHECKSUM.size).tolist(), strict=True)]
        rest = [view[body:end] for body, end in zip(bodies.tolist(), ends.tolist(), strict=True)]
        checksums = [CHECKSUMS[tag] for tag in tags]
        sums = (one(body, one(head, 0)) for one, head, body in zip(checksums, heads, rest, strict=True))
    intact: NDArray[np.bool_] = np.fromiter(sums, np.uint32, len(starts)) == sections["checksum"]
    return intact


def _covered_rows(
    data: bytes, starts: NDArray[np.int64], bodies: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.uint8] | None:
    """Return what the checksums of frames cover, a row for each. Return None unless the frames are alike in size, lie
    at equal distances, and are short: to copy them takes less time than to call the checksum twice for each."""
    start, head_bytes, size = int(starts[0]), int(bodies[0] - starts[0]) - CHECKSUM.size, int(ends[0] - starts[0])
    step = int(starts[1] - starts[0]) if len(starts) > 1 else size
    if (
        size > _COPIED_BYTES_MAX
        or not (starts == np.arange(start, start + step * len(starts), step)).all()
        or not (bodies - starts == bodies[0] - start).all()
        or not (ends - starts == size).all()
    ):
        return None
    whole = np.ndarray((len(starts), size), np.uint8, data, start, (step, 1))
    rows = np.empty((len(starts), size - CHECKSUM.size), np.uint8)
    rows[:, :head_bytes] = whole[:, :head_bytes]
    rows[:, head_bytes:] = whole[:, head_bytes + CHECKSUM.size :]
    return rows


def _body_places(run: FrameRun, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    places: NDArray[np.int64] = run.starts + sizes.sum(axis=1) + (HEADER_BYTES + run.header[NAME_BYTES])
    return places


def rows_at(data: bytes, places: NDArray[np.int64], fields: np.dtype[np.void]) -> NDArray[np.void]:
    """Return the fields at some places: without a copy if these are at equal distances."""
    steps = places[1:] - places[:-1]
    if len(steps) and (steps == steps[0]).all():
        return np.ndarray((len(places),), fields, data, int(places[0]), (int(steps[0]),))
    rows = np.frombuffer(data, np.uint8)[places[:, None] + np.arange(fields.itemsize)]
    found: NDArray[np.void] = rows.view(fields)[:, 0]
    return found
