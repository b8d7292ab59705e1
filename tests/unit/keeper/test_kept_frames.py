"""Tests of the destinations of stored frames, which are read in bulk."""

import errno
from random import Random

import pytest
from stores import Store

from fjm2.base.errors import JournalError
from fjm2.base.ledger import Ledger
from fjm2.cell.wire.ranges import DECISION_LANE
from fjm2.keeper.kept_frames import all_kept
from fjm2.messages.destination import Destination, Queue, Topic
from fjm2.messages.frame import FrameWriter
from fjm2.messages.header import PERSISTENT, Kind
from fjm2.messages.ledgers.ledger_number import with_ledger_number
from fjm2.store.config import StoreConfig

LEDGER, OTHER = Ledger(5, 0, 0), Ledger(6, 0, 0)
QUEUE, TOPIC = Queue("orders"), Topic("prices")
LARGE = StoreConfig(segment_bytes=1 << 20, store_bytes_max=64 << 20)


def frame(destination: Destination, sequence: int, size: int) -> bytes:
    parts = FrameWriter(1).write_body(int(Kind.BYTES), b"", bytes(size), destination, PERSISTENT, 4, 1)
    return b"".join(with_ledger_number(parts, LEDGER.producer_id, 0, sequence))


def store_with(*runs: tuple[Ledger, int, list[bytes]]) -> Store:
    store = Store(config=LARGE)
    for ledger, first, frames in runs:
        assert store.storage.store_frames(ledger, first, frames) is not None
        store.sync()
    return store


def ranges_to(store: Store, destination: Destination, ledger: Ledger = LEDGER) -> list[tuple[int, int]]:
    return [
        found
        for kept in all_kept(store.journal, store.disk)
        if kept.ledger == ledger
        for found in kept.ranges_to(destination.frame_hash)
    ]


def test_runs_of_a_destination_end_where_another_one_or_a_gap_begins() -> None:
    frames = [frame(TOPIC if number in (1, 2, 4) else QUEUE, number, number) for number in range(1, 6)]
    store = store_with((LEDGER, 1, frames), (LEDGER, 8, [frame(TOPIC, 8, 1)]), (OTHER, 3, [frame(TOPIC, 3, 1)]))
    assert ranges_to(store, TOPIC) == [(1, 3), (4, 5), (8, 9)]
    assert ranges_to(store, QUEUE) == [(3, 4), (5, 6)]
    assert ranges_to(store, TOPIC, OTHER) == [(3, 4)]


def test_short_and_long_frames_in_all_orders_are_read() -> None:
    random = Random(1)
    kinds = [random.choice((QUEUE, TOPIC)) for _ in range(300)]
    frames = [frame(kind, at, random.choice((0, 1, 900, 5000, 20_000))) for at, kind in enumerate(kinds, 1)]
    store = store_with(*((LEDGER, at + 1, frames[at : at + 60]) for at in range(0, 300, 60)))
    found = [number for first, end in ranges_to(store, TOPIC) for number in range(first, end)]
    assert found == [at for at, kind in enumerate(kinds, 1) if kind is TOPIC]


def test_released_frames_and_decisions_are_left_out() -> None:
    store = store_with((LEDGER, 1, [frame(TOPIC, 1, 9), frame(TOPIC, 2, 9)]), (Ledger(9, 1, DECISION_LANE), 1, [b"d"]))
    store.storage.release(LEDGER, [(1, 2)])
    assert ranges_to(store, TOPIC) == [(2, 3)]
    assert [kept.ledger for kept in all_kept(store.journal, store.disk)] == [LEDGER]


def test_a_frame_that_the_disk_does_not_give_is_an_error() -> None:
    store = store_with((LEDGER, 1, [frame(TOPIC, 1, 9)]))
    store.disk.fail = lambda call, _: errno.EIO if call == "pread" else 0
    with pytest.raises(JournalError, match=r"message 1 of .* cannot be read"):
        all_kept(store.journal, store.disk)
