"""Destinations of the frames in a store, read in bulk from the heads of the frames."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fjm2.base.errors import JournalError
from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet
from fjm2.cell.wire.ranges import DECISION_LANE
from fjm2.messages.batches.array_writer import HEADERS
from fjm2.messages.header import HEADER, HEADER_BYTES, RETAINED, delivery_time_of
from fjm2.store.disk import Disk
from fjm2.store.journal import Journal
from fjm2.store.reader import Read

_PORTION_BYTES: Final = 16 << 20
"""Bytes of frames whose heads are read at a time. The heads of the shortest frames take half of that."""


@dataclass(frozen=True, slots=True, eq=False)
class KeptFrames:
    """Frames of one ledger as runs: those of a run have consecutive sequences and the same destination."""

    ledger: Ledger
    hashes: NDArray[np.uint32]
    """Destination of each run."""
    firsts: NDArray[np.uint64]
    """First sequence of each run."""
    counts: NDArray[np.int64]
    retained: NDArray[np.uint64]
    """Sequences of the messages that say that they are last values."""
    times_ms: "tuple[int, ...]" = ()
    """Delivery time of each message of a ledger of delayed ones, in milliseconds since 1970."""

    def ranges_to(self, frame_hash: int) -> list[tuple[int, int]]:
        """Return the frames to a destination as ranges [first, end)."""
        chosen = self.hashes == frame_hash
        firsts = self.firsts[chosen]
        return list(zip(firsts.tolist(), (firsts + self.counts[chosen].astype(np.uint64)).tolist(), strict=True))

    def times_to(self, frame_hash: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield the first sequence and the delivery times of each run of delayed messages to a destination."""
        if self.times_ms:
            ends = np.cumsum(self.counts)
            runs = zip(self.hashes.tolist(), self.firsts.tolist(), ends.tolist(), self.counts.tolist(), strict=True)
            for each, first, end, count in runs:
                if each == frame_hash:
                    yield first, self.times_ms[end - count : end]


def read_kept(read: Read, disk: Disk, ledger: Ledger) -> KeptFrames:
    """Read the destinations of some frames. Raise JournalError if the disk does not give one of them."""
    heads, is_read = read.fetch_heads(disk, HEADER_BYTES)
    if not is_read.all():
        sequence = int(read.sequences[np.flatnonzero(~is_read)[0]])
        raise JournalError(
            f"message {sequence} of {ledger} cannot be read: expected what was stored; open the store with renew"
        )
    headers = heads.view(HEADERS)[:, 0]
    hashes = headers["destination_hash"].astype(np.uint32)
    sequences = read.sequences
    is_first = np.r_[True, (hashes[1:] != hashes[:-1]) | (sequences[1:] != sequences[:-1] + np.uint64(1))]
    starts = np.flatnonzero(is_first) if len(sequences) else np.empty(0, np.int64)
    counts = np.diff(starts, append=len(sequences))
    retained = sequences[(headers["marks"] & RETAINED).astype(bool)]
    times = tuple(map(delivery_time, read.fetch(disk))) if ledger.is_delayed else ()
    return KeptFrames(ledger, hashes[starts], sequences[starts], counts, retained, times)


def delivery_time(frame: bytes | None) -> int:
    """Return the delivery time of a delayed message. One that the disk does not give is due."""
    return 0 if frame is None else delivery_time_of(frame, HEADER.unpack_from(frame))


def all_kept(journal: Journal, disk: Disk) -> list[KeptFrames]:
    """Return the destinations of all frames of a store, but for decisions. A million of them take a second."""
    return [
        read_kept(read, disk, ledger)
        for ledger in journal.ledgers()
        if ledger.lane != DECISION_LANE
        for read in portions(journal, ledger, 1)
    ]


def portions(journal: Journal, ledger: Ledger, first: int) -> Iterator[Read]:
    """Yield plans to read the frames of a ledger from a sequence on, portion by portion."""
    at: int | None = first
    while at is not None:
        read = journal.read(ledger, RangeSet([(first, 1 << 64)]), _PORTION_BYTES, at)
        if len(read.sequences):
            yield read
        at = read.resume_at
