"""Contents of a store in memory: the index of every ledger, promises, and what is live in each segment."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fjm2.base.ledger import Ledger

from .index import LENGTH, OFFSET, SEGMENT, Entries, LedgerIndex, Places
from .runs import Kind, Run, StoredRun


@dataclass(slots=True)
class Live:
    """Live frames of a segment."""

    frames: int = 0
    bytes: int = 0


class Contents:
    """Everything that batches and releases leave behind."""

    def __init__(self) -> None:
        self.ledgers: dict[Ledger, LedgerIndex] = {}
        self.promises: dict[Ledger, tuple[int, bytes]] = {}
        """Highest epoch promised in each ledger, and the keeper voted for."""
        self.live: dict[int, Live] = {}
        """Live frames by number of the segment. Segments without any are missing."""
        self.released_bytes = 0
        """Bytes of frames that were live and are so no more where they were."""

    @property
    def frames(self) -> int:
        """Number of live frames."""
        return sum(index.count for index in self.ledgers.values())

    @property
    def live_bytes(self) -> int:
        """Bytes of live frames."""
        return sum(live.bytes for live in self.live.values())

    def apply(self, run: Run | StoredRun, segment: int, data_offset: int) -> None:
        """Take up a run of frames or counted sequences that is on disk at this place.

        Sequences that are known are never taken up as new: a live frame moves to the new place, and a released one
        stays released. That is why compaction may copy frames that are released meanwhile. Late frames are taken up all
        the same, for sequences that were counted.
        """
        index = self.ledgers.get(run.ledger)
        if index is None:
            index = self.ledgers[run.ledger] = LedgerIndex()
        first, end = run.first, run.first + run.count
        if run.kind in (Kind.FRAMES, Kind.LATE) and run.count:
            places = np.empty((run.count, 3), np.uint32)
            places[:, SEGMENT] = segment
            places[:, LENGTH] = run.lengths
            places[0, OFFSET] = data_offset
            if run.count > 1:
                # Sums may not wrap: a batch is shorter than 4 GiB.
                np.cumsum(run.lengths[:-1], out=places[1:, OFFSET])
                places[1:, OFFSET] += np.uint32(data_offset)
            if run.kind is Kind.LATE:
                self._discount(index.remove(first, end))
                index.known.remove(first, end)
            if index.known and first <= index.known.last:
                self._apply_known(index, first, end, places)
            else:
                index.append(np.arange(first, end, dtype=np.uint64), places)
                self._count(places)
        index.known.add(first, end)

    def _apply_known(self, index: LedgerIndex, first: int, end: int, places: Places) -> None:
        fresh = list(index.known.gaps(first, end))
        for low, high in index.live(first, end):
            self._discount(index.remove(low, high))
            fresh.append((low, high))
        for low, high in fresh:
            part = places[low - first : high - first]
            index.insert(np.arange(low, high, dtype=np.uint64), part)
            self._count(part)

    def promise(self, ledger: Ledger, epoch: int, keeper_id: bytes) -> None:
        """Take up a promise, unless a higher one is known."""
        if epoch >= self.promises.get(ledger, (0, b""))[0]:
            self.promises[ledger] = epoch, keeper_id

    def restore(self, places: Places) -> None:
        """Count frames that a checkpoint put into an index."""
        for segment, part in _by_segment(places):
            live = self.live.setdefault(segment, Live())
            live.frames += len(part)
            live.bytes += int(part[:, LENGTH].sum(dtype=np.uint64))

    def release(self, ledger: Ledger, first: int, end: int) -> None:
        """Forget where frames are. Their sequences stay known."""
        index = self.ledgers.get(ledger)
        if index is not None:
            self._discount(index.remove(first, end))

    def forget(self, ledger: Ledger, first: int, end: int) -> None:
        """Forget frames and sequences, as if they had never been there."""
        index = self.ledgers.get(ledger)
        if index is None:
            return
        self._discount(index.remove(first, end))
        index.known.remove(first, end)
        if not index.known:
            del self.ledgers[ledger]

    def _count(self, places: Places) -> None:
        """Count frames that are all in one segment."""
        live = self.live.get(int(places[0, SEGMENT]))
        if live is None:
            live = self.live[int(places[0, SEGMENT])] = Live()
        live.frames += len(places)
        live.bytes += int(places[:, LENGTH].sum(dtype=np.uint64)) if len(places) > 1 else int(places[0, LENGTH])

    def _discount(self, removed: list[Places]) -> None:
        for places in removed:
            for segment, part in _by_segment(places):
                live = self.live[segment]
                size = int(part[:, LENGTH].sum(dtype=np.uint64))
                live.frames -= len(part)
                live.bytes -= size
                self.released_bytes += size
                if not live.frames:
                    del self.live[segment]


def entries_of(contents: Contents, segment: int) -> list[tuple[Ledger, Entries]]:
    """Return copies of the entries of all live frames in a segment."""
    found = []
    for ledger, index in contents.ledgers.items():
        parts = []
        for sequences, places in index.snapshot():
            here = places[:, SEGMENT] == segment
            if here.any():
                parts.append((sequences[here], places[here]))
        if parts:
            sequences = np.concatenate([part[0] for part in parts])
            found.append((ledger, Entries(sequences, np.concatenate([part[1] for part in parts]))))
    return found


def _by_segment(places: Places) -> Iterator[tuple[int, Places]]:
    """Yield places by their segments."""
    segments = places[:, SEGMENT]
    first = segments[0]
    if first == segments[-1] and (segments == first).all():
        yield int(first), places
        return
    for segment in np.unique(segments):
        yield int(segment), places[segments == segment]
