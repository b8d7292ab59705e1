"""Checkpoints: the contents of a store and a state of the caller in one file, so that older batches need no reading."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from struct import Struct

import numpy as np

from fjm2.base.ledger import Ledger

from ..contents import Contents
from ..disk import Buffer, Disk
from ..errors import NewerFormatError
from ..index import LENGTH, OFFSET, SEGMENT, Entries, LedgerIndex
from ..segments import Segment
from .checksums import PREFERRED, Algorithm, algorithm_of, checksum_of

PREFIX = "checkpoint-"
VERSION = 1
NO_SEGMENT = 0xFFFFFFFF
PIECE_BYTES = 1 << 20
"""Bytes read or written at a time. A commit waits for one piece at most."""
_HEAD = Struct(">4sIQQQIIIIIIQQQ")
_SEGMENT = Struct(">IIQQQQQ")
_NAME = Struct(">QIB")
"""Producer id, producer epoch and lane of a ledger."""
_LEDGER = Struct(">13s3xIQ")
_PROMISE = Struct(">13s3xQ16s")
_RANGE = np.dtype(">u8")
_ENTRY = np.dtype([("ledger", ">u4"), ("sequence", ">u8"), ("segment", ">u4"), ("offset", ">u4"), ("length", ">u4")])
_DEAD = 1
_TRAILER_BYTES = 4


@dataclass(slots=True)
class Position:
    """Place in the journal behind a batch."""

    lsn: int = 0
    checksum: int = 0
    """Checksum of that batch, which the next one repeats."""
    segment: int | None = None
    """Number of the active segment."""
    end: int = 0
    """Offset in the active segment."""


@dataclass(slots=True)
class Snapshot:
    """Content of a checkpoint, before it is written or after it was read."""

    incarnation: int
    position: Position
    contents: Contents
    segments: list[Segment]
    dead: set[int]
    """Numbers of segments without live frames."""
    state: Buffer = b""
    """The caller's own state."""
    entries: list[tuple[int, Ledger, list[Entries]]] = field(default_factory=list)
    """Views of the index, by ledger. They stay as they are while the index goes on."""
    ranges: list[tuple[Ledger, list[int]]] = field(default_factory=list)
    """Known sequences of each ledger: first and last of each range."""
    promises: dict[Ledger, tuple[int, bytes]] = field(default_factory=dict)

    def freeze(self) -> None:
        """Take views of the contents, which may change from then on."""
        self.promises = dict(self.contents.promises)
        for number, (ledger, index) in enumerate(self.contents.ledgers.items()):
            self.entries.append((number, ledger, index.snapshot()))
            self.ranges.append((ledger, [bound for low, high in index.known for bound in (low, high - 1)]))


def checkpoint_number(name: str) -> int | None:
    """Return the number of a checkpoint's file, or None if the name is no checkpoint's."""
    digits = name.removeprefix(PREFIX)
    return int(digits) if name.startswith(PREFIX) and digits.isdecimal() and digits.isascii() else None


def encode(snapshot: Snapshot) -> Iterator[bytes]:
    """Yield a frozen snapshot in pieces of about a mebibyte."""
    checksum, waiting, size = 0, [], 0
    for part in _parts(snapshot):
        waiting.append(part)
        size += len(part)
        if size >= PIECE_BYTES:
            checksum = checksum_of(PREFERRED, waiting, checksum)
            yield b"".join(waiting)
            waiting, size = [], 0
    checksum = checksum_of(PREFERRED, waiting, checksum)
    yield b"".join([*waiting, checksum.to_bytes(_TRAILER_BYTES, "big")])


def _parts(snapshot: Snapshot) -> Iterator[bytes]:
    position, promises = snapshot.position, snapshot.promises
    counts = [sum(len(part.sequences) for part in parts) for _, _, parts in snapshot.entries]
    ranges = sum(len(bounds) // 2 for _, bounds in snapshot.ranges)
    sizes = (len(snapshot.segments), len(snapshot.ranges), len(promises))
    active = NO_SEGMENT if position.segment is None else position.segment
    state = bytes(snapshot.state)
    yield _HEAD.pack(
        PREFERRED.magic(b"FJC"), VERSION, position.lsn, snapshot.incarnation, position.end, position.checksum, active,
        *sizes, 0, ranges, sum(counts), len(state),
    )  # fmt: skip
    for segment in snapshot.segments:
        flags = _DEAD if segment.number in snapshot.dead else 0
        lsns = segment.first_lsn, segment.last_lsn
        yield _SEGMENT.pack(segment.number, flags, segment.size, segment.salt, *lsns, segment.end)
    for (ledger, bounds), count in zip(snapshot.ranges, counts, strict=True):
        yield _LEDGER.pack(_NAME.pack(*ledger), len(bounds) // 2, count)
    for _, bounds in snapshot.ranges:
        yield np.array(bounds, np.uint64).astype(_RANGE).tobytes()
    for ledger, (epoch, keeper_id) in promises.items():
        yield _PROMISE.pack(_NAME.pack(*ledger), epoch, keeper_id)
    for number, _, parts in snapshot.entries:
        for part in parts:
            entries = np.empty(len(part.sequences), _ENTRY)
            entries["ledger"], entries["sequence"] = number, part.sequences
            entries["segment"], entries["offset"] = part.places[:, SEGMENT], part.places[:, OFFSET]
            entries["length"] = part.places[:, LENGTH]
            yield entries.tobytes()
    yield state


class _Reader:
    """Reads a file from the front."""

    def __init__(self, disk: Disk, file: int, end: int) -> None:
        self._disk, self._file, self._end = disk, file, end
        self._at = 0

    def take(self, size: int) -> bytes:
        data = self._disk.pread(self._file, size, self._at) if self._at + size <= self._end else b""
        if len(data) != size:
            raise ValueError(f"{size} bytes at offset {self._at}: the file ends")
        self._at += size
        return data

    def pieces(self, count: int, each: int) -> Iterator[bytes]:
        """Yield `count` structures of `each` bytes, in pieces of whole structures."""
        many = max(1, PIECE_BYTES // each)
        while count:
            taken = min(count, many)
            yield self.take(taken * each)
            count -= taken


def decode(disk: Disk, name: str) -> Snapshot | None:
    """Return the content of a checkpoint, or None if it is damaged. Raise NewerFormatError if a newer FJM2 wrote it."""
    file = disk.open(name)
    try:
        size = disk.size(file)
        head = disk.pread(file, _HEAD.size, 0)
        algorithm = algorithm_of(head[:4], b"FJC")
        if len(head) < _HEAD.size or algorithm is None or not _has_checksum(disk, file, size, algorithm):
            return None
        version = int.from_bytes(head[4:8], "big")
        if version > VERSION:
            raise NewerFormatError(
                f"{name}: format {version} at offset 4: expected {VERSION} at most; use a newer FJM2"
            )
        return _decode(_Reader(disk, file, size - _TRAILER_BYTES), size)
    except (ValueError, OSError) as error:
        if isinstance(error, NewerFormatError):
            raise
        return None
    finally:
        disk.close(file)


def _has_checksum(disk: Disk, file: int, size: int, algorithm: Algorithm) -> bool:
    checksum, at, end = 0, 0, size - _TRAILER_BYTES
    while at < end:
        piece = disk.pread(file, min(PIECE_BYTES, end - at), at)
        if not piece:
            return False
        checksum = checksum_of(algorithm, [piece], checksum)
        at += len(piece)
    return disk.pread(file, _TRAILER_BYTES, end) == checksum.to_bytes(_TRAILER_BYTES, "big")


def _decode(reader: _Reader, size: int) -> Snapshot:
    _, _, lsn, incarnation, end, checksum, active, segments, ledgers, promises, _, ranges, entries, state = (
        _HEAD.unpack(reader.take(_HEAD.size))
    )
    expected = _HEAD.size + segments * _SEGMENT.size + ledgers * _LEDGER.size + ranges * 16 + promises * _PROMISE.size
    if expected + entries * _ENTRY.itemsize + state + _TRAILER_BYTES != size:
        raise ValueError(f"{size} bytes: the counts in the head do not add up")
    position = Position(lsn, checksum, None if active == NO_SEGMENT else active, end)
    snapshot = Snapshot(incarnation, position, Contents(), [], set())
    for piece in reader.pieces(segments, _SEGMENT.size):
        for number, flags, length, salt, first_lsn, last_lsn, used in _SEGMENT.iter_unpack(piece):
            snapshot.segments.append(Segment(number, -1, length, salt, first_lsn, last_lsn, used))
            if flags & _DEAD:
                snapshot.dead.add(number)
    names: list[tuple[Ledger, int, int]] = []
    for piece in reader.pieces(ledgers, _LEDGER.size):
        names += [(Ledger(*_NAME.unpack(name)), r, e) for name, r, e in _LEDGER.iter_unpack(piece)]
    if sum(name[1] for name in names) != ranges or sum(name[2] for name in names) != entries:
        raise ValueError("the counts of ledgers do not add up")
    contents = snapshot.contents
    for ledger, count, _ in names:
        index = contents.ledgers[ledger] = LedgerIndex()
        for piece in reader.pieces(count, 16):
            bounds = np.frombuffer(piece, _RANGE).tolist()
            for low, last in zip(bounds[::2], bounds[1::2], strict=True):
                index.known.add(low, last + 1)
    for piece in reader.pieces(promises, _PROMISE.size):
        for name, epoch, keeper_id in _PROMISE.iter_unpack(piece):
            contents.promise(Ledger(*_NAME.unpack(name)), epoch, keeper_id)
    for number, (ledger, _, count) in enumerate(names):
        for found in _entries(reader.pieces(count, _ENTRY.itemsize), number, snapshot.segments):
            contents.ledgers[ledger].append(*found)
            contents.restore(found.places)
    # Pieces bound memory only for what is made of them. The state is the caller's, as large as the caller made it.
    snapshot.state = reader.take(state)
    return snapshot


def _entries(pieces: Iterable[bytes], ledger: int, segments: list[Segment]) -> Iterator[Entries]:
    """Yield the frames of one ledger. Raise ValueError if they are out of order, or not in a segment."""
    ends = {segment.number: segment.size for segment in segments}
    last = 0
    for piece in pieces:
        entries = np.frombuffer(piece, _ENTRY)
        sequences = entries["sequence"].astype(np.uint64)
        places = np.empty((len(entries), 3), np.uint32)
        for column, name in ((SEGMENT, "segment"), (OFFSET, "offset"), (LENGTH, "length")):
            places[:, column] = entries[name]
        in_order = int(sequences[0]) > last and (sequences[1:] > sequences[:-1]).all()
        if not in_order or (entries["ledger"] != ledger).any():
            raise ValueError("frames out of order")
        numbers, where = np.unique(places[:, SEGMENT], return_inverse=True)
        limits = np.array([ends.get(number, 0) for number in numbers.tolist()], np.uint64)
        if (places[:, OFFSET].astype(np.uint64) + places[:, LENGTH] > limits[where]).any():
            raise ValueError("frames outside of segments")
        last = int(sequences[-1])
        yield Entries(sequences, places)
