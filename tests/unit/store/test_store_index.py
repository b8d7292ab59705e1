"""Tests of the index against a dictionary."""

from random import Random

import numpy as np
import pytest

from fjm2.base.ledger import Ledger
from fjm2.store.contents import Contents
from fjm2.store.index import CHUNK_FRAMES
from fjm2.store.runs import Kind, StoredRun

LEDGER = Ledger(1, 2, 3)


class Pair:
    """The index, and a dictionary that should hold the same."""

    def __init__(self) -> None:
        self.contents = Contents()
        self.live: dict[int, tuple[int, int, int]] = {}
        self.known: set[int] = set()

    def apply(self, first: int, lengths: list[int], segment: int, offset: int) -> None:
        run = StoredRun(LEDGER, Kind.FRAMES, first, len(lengths), np.array(lengths, np.uint32), offset)
        self.contents.apply(run, segment, offset)
        for sequence, length in enumerate(lengths, first):
            if sequence not in self.known or sequence in self.live:
                self.live[sequence] = segment, offset, length
            self.known.add(sequence)
            offset += length

    def release(self, first: int, end: int) -> None:
        self.contents.release(LEDGER, first, end)
        self.live = {sequence: place for sequence, place in self.live.items() if not first <= sequence < end}

    def forget(self, first: int, end: int) -> None:
        self.contents.forget(LEDGER, first, end)
        self.live = {sequence: place for sequence, place in self.live.items() if not first <= sequence < end}
        self.known -= set(range(first, end))

    def check(self, low: int = 1, high: int = 1 << 40) -> None:
        index = self.contents.ledgers.get(LEDGER)
        parts = list(index.entries(low, high)) if index else []
        found = {
            s: tuple(p) for part in parts for s, p in zip(part.sequences.tolist(), part.places.tolist(), strict=True)
        }
        assert found == {sequence: place for sequence, place in self.live.items() if low <= sequence < high}
        assert list(found) == sorted(found)
        assert {n for low, high in (index.known if index else []) for n in range(low, high)} == self.known
        segments = {place[0] for place in self.live.values()}
        assert set(self.contents.live) == segments
        for segment in segments:
            lengths = [place[2] for place in self.live.values() if place[0] == segment]
            live = self.contents.live[segment]
            assert (live.frames, live.bytes) == (len(lengths), sum(lengths))
        assert self.contents.frames == len(self.live)


@pytest.mark.parametrize("seed", range(30))
def test_the_index_holds_what_a_dictionary_holds(seed: int) -> None:
    random = Random(seed)
    pair = Pair()
    top = random.choice((60, 3 * CHUNK_FRAMES))
    for _ in range(60):
        first = random.randint(1, top)
        choice = random.random()
        if choice < 0.6:
            count = random.choice((1, 3, 20, top // 4))
            pair.apply(first, [random.randint(0, 9) for _ in range(count)], random.randrange(4), random.randrange(999))
        elif choice < 0.9:
            pair.release(first, first + random.choice((1, 5, top // 3)))
        else:
            pair.forget(first, first + random.choice((1, 5, top // 3)))
    pair.check()
    for _ in range(10):
        low = random.randint(1, top)
        pair.check(low, low + random.randint(0, top // 2))


def test_a_snapshot_stays_as_it_is() -> None:
    pair = Pair()
    pair.apply(1, [1] * (CHUNK_FRAMES + 100), 0, 512)
    index = pair.contents.ledgers[LEDGER]
    snapshot = index.snapshot()
    before = [(part.sequences.copy(), part.places.copy()) for part in snapshot]
    pair.apply(CHUNK_FRAMES + 101, [2] * 50, 1, 512)
    pair.release(CHUNK_FRAMES + 90, CHUNK_FRAMES + 151)
    pair.apply(CHUNK_FRAMES + 151, [3] * 50, 2, 512)
    pair.release(5, 9)
    pair.apply(1, [4] * 20, 3, 512)
    pair.check()
    for part, (sequences, places) in zip(snapshot, before, strict=True):
        assert (part.sequences == sequences).all()
        assert (part.places == places).all()


def test_a_million_frames_take_20_bytes_each() -> None:
    contents = Contents()
    lengths = np.full(50_000, 1024, np.uint32)
    for n in range(20):
        contents.apply(StoredRun(LEDGER, Kind.FRAMES, 1 + n * 50_000, 50_000, lengths, 512), n, 512)
    arrays = [
        array.base if array.base is not None else array
        for part in contents.ledgers[LEDGER].snapshot()
        for array in (part.sequences, part.places)
    ]
    assert sum(array.nbytes for array in arrays) < 20.5e6


def test_frames_in_reverse_order_make_few_chunks() -> None:
    pair = Pair()
    for sequence in range(2000, 0, -1):
        pair.apply(sequence, [1], 0, 512)
    pair.check()
    assert len(pair.contents.ledgers[LEDGER].snapshot()) == 1
