"""Runs: consecutive frames of one ledger, as they are appended and as they are on disk."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from struct import Struct
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fjm2.base.ledger import SEQUENCE_MAX, Ledger

from .disk import Buffer, byte_count
from .laid_frames import LaidFrames

RUN_HEAD = Struct(">QIBBHQII")
"""Ledger, kind, 0, first sequence, count, and bytes behind the lengths."""
KEEPER_ID_BYTES = 16

Lengths = NDArray[np.uint32]
_NO_LENGTHS = np.empty(0, np.uint32)
_EMPTY = b""


class Kind(IntEnum):
    """Kind of a run."""

    FRAMES = 0
    COUNTED = 1
    """Sequences that were seen and need no storing."""
    PROMISE = 2
    """A vote: the sequence is the epoch, and the data are the id of the keeper voted for."""
    LATE = 3
    """Frames of sequences that were counted before. Unlike those of `FRAMES` they are taken up although known."""


_WITH_FRAMES = (Kind.FRAMES, Kind.LATE)


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Consecutive sequences of a ledger. `of`, `counted` and `promise` make runs of each kind."""

    ledger: Ledger
    kind: Kind
    first: int
    """First sequence; the epoch of a promise."""
    count: int
    lengths: Lengths
    """Length of each frame, in bytes."""
    data: Buffer
    """The frames, laid end to end."""

    def __post_init__(self) -> None:
        if not (0 < self.first <= SEQUENCE_MAX and self.first + self.count - 1 <= SEQUENCE_MAX):
            raise ValueError(f"sequences {self.first} + {self.count}: expected 1 to 2**64 - 1")

    @classmethod
    def of(cls, ledger: Ledger, first: int, frames: Sequence[bytes]) -> Self:
        """Return a run of frames. Those that lie end to end are not copied: see `cut`."""
        if isinstance(frames, LaidFrames):
            return cls.cut(ledger, first, frames.data, frames.lengths)
        lengths = np.fromiter(map(len, frames), np.uint32, len(frames))
        return cls(ledger, Kind.FRAMES, first, len(frames), lengths, b"".join(frames))

    @classmethod
    def cut(cls, ledger: Ledger, first: int, data: Buffer, lengths: Lengths) -> Self:
        """Return a run of frames that lie end to end. The data are not copied, and may not change until synced."""
        if int(lengths.sum(dtype=np.uint64)) != byte_count(data):
            raise ValueError(f"lengths of {lengths.sum()} bytes: expected {byte_count(data)}, as the data have")
        return cls(ledger, Kind.FRAMES, first, len(lengths), lengths, data)

    def as_late(self) -> Self:
        """Return the same frames for sequences that were counted before."""
        return replace(self, kind=Kind.LATE)

    @classmethod
    def counted(cls, ledger: Ledger, first: int, count: int) -> Self:
        """Return a run that records sequences without frames."""
        return cls(ledger, Kind.COUNTED, first, count, _NO_LENGTHS, _EMPTY)

    @classmethod
    def promise(cls, ledger: Ledger, epoch: int, keeper_id: bytes) -> Self:
        """Return a run that records a vote."""
        if len(keeper_id) != KEEPER_ID_BYTES:
            raise ValueError(f"keeper_id of {len(keeper_id)} bytes: expected 16")
        return cls(ledger, Kind.PROMISE, epoch, 0, _NO_LENGTHS, keeper_id)

    @property
    def size(self) -> int:
        """Length on disk, in bytes."""
        return RUN_HEAD.size + 4 * len(self.lengths) + byte_count(self.data)

    def encode(self) -> tuple[Buffer, Buffer]:
        """Return head and lengths, and the frames."""
        data_bytes = byte_count(self.data)
        head = RUN_HEAD.pack(*self.ledger, self.kind, 0, self.first, self.count, data_bytes)
        return head + self.lengths.astype(">u4").tobytes(), self.data


@dataclass(frozen=True, slots=True, eq=False)
class StoredRun:
    """A run on disk: everything but the frames themselves."""

    ledger: Ledger
    kind: Kind
    first: int
    count: int
    lengths: Lengths
    data_offset: int
    """Offset of the first frame, or of a promise's keeper id."""

    @property
    def end(self) -> int:
        """Sequence after the last one."""
        return self.first + self.count


def parse_runs(fetch: Callable[[int, int], bytes], start: int, end: int, count: int) -> Iterator[StoredRun]:
    """Yield the runs between two offsets, which `fetch` (offset, size) reads. Raise ValueError if they are none.

    Frames are not read, so that a batch of any length takes little memory.
    """
    at = start
    for _ in range(count):
        if end - at < RUN_HEAD.size:
            raise ValueError(f"no room for the head of a run at offset {at}")
        *name, kind, zero, first, many, data_bytes = RUN_HEAD.unpack(fetch(at, RUN_HEAD.size))
        offset = at + RUN_HEAD.size + (4 * many if kind in _WITH_FRAMES else 0)
        at_next = offset + data_bytes
        if zero or kind > Kind.LATE or not first or first + many - 1 > SEQUENCE_MAX or at_next > end:
            raise ValueError(f"no run at offset {at}")
        lengths = _NO_LENGTHS
        if kind in _WITH_FRAMES:
            encoded = fetch(at + RUN_HEAD.size, 4 * many)
            lengths = np.frombuffer(encoded, ">u4").astype(np.uint32)
            expected = int(lengths.sum(dtype=np.uint64))
        else:
            expected = KEEPER_ID_BYTES if kind == Kind.PROMISE else 0
        if data_bytes != expected:
            raise ValueError(f"lengths of a run at offset {at} do not add up")
        yield StoredRun(Ledger(*name), Kind(kind), first, many, lengths, offset)
        at = at_next
