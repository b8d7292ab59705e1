"""Tests of the order in which a keeper sends what others lack."""

from stores import Store

from fjm2.base.ledger import Ledger
from fjm2.keeper.replay import Answers
from fjm2.store.config import StoreConfig
from fjm2.store.runs import Run

MUCH, LITTLE = Ledger(1, 0, 0), Ledger(2, 0, 0)
SIZE = 64 << 10
PART = (1 << 20) // SIZE
"""Frames of one message."""


def answers() -> Answers:
    """Return the answers of a keeper that has much of one ledger, and little of another."""
    store = Store(config=StoreConfig(segment_bytes=1 << 20, store_bytes_max=64 << 20))
    for ledger, count in ((MUCH, 3 * PART), (LITTLE, 2)):
        for sequence in range(1, count + 1):
            store.journal.append([Run.of(ledger, sequence, (bytes(SIZE),))])
            store.sync()
    return Answers(store.journal)


def polled(found: Answers) -> list[tuple[Ledger, int, int]]:
    """Return ledger, first and last sequence of all messages, in order."""
    parts = []
    while (part := found.poll()) is not None:
        ledger, read = part
        parts.append((ledger, int(read.sequences[0]), int(read.sequences[-1])))
    return parts


def test_who_lacks_little_does_not_wait_for_who_lacks_much() -> None:
    found = answers()
    found.add(MUCH, 1, 3 * PART + 1)
    found.add(LITTLE, 1, 3)
    assert polled(found) == [
        (MUCH, 1, PART),
        (LITTLE, 1, 2),
        (MUCH, PART + 1, 2 * PART),
        (MUCH, 2 * PART + 1, 3 * PART),
    ]
    assert len(found) == 0


def test_what_waits_is_not_sent_twice_however_often_it_is_asked_for() -> None:
    found = answers()
    found.add(MUCH, 1, 2 * PART + 1)
    assert found.poll() is not None
    found.add(MUCH, PART + 1, 3 * PART + 1)
    found.add(MUCH, PART + 1, 3 * PART + 1)
    assert polled(found) == [(MUCH, PART + 1, 2 * PART), (MUCH, 2 * PART + 1, 3 * PART)]
    found.add(MUCH, 1, PART + 1)
    assert polled(found) == [(MUCH, 1, PART)], "what was sent may be asked for again"


def test_what_is_not_stored_is_passed_over() -> None:
    found = answers()
    found.add(LITTLE, 3, 100)
    found.add(Ledger(3, 0, 0), 1, 2)
    found.add(LITTLE, 2, 3)
    assert polled(found) == [(LITTLE, 2, 2)]
