"""Tests of the messages of a store that may go into another cell, on a simulated disk."""

import pytest
from stores import Store

from fjm2.adoption.survey import Span, Survey, TopicCount, look_at
from fjm2.base.errors import JournalError
from fjm2.base.ledger import DELAYED_LANE, Ledger
from fjm2.jms import Topic
from fjm2.messages.frame import FrameWriter
from fjm2.messages.header import DELAYED, FILE, PERSISTENT, Kind
from fjm2.messages.ledgers.ledger_number import with_ledger_number
from fjm2.store.config import StoreConfig

LEDGER, LATER = Ledger(5, 0, 0), Ledger(5, 0, DELAYED_LANE)
ORDERS = Topic("orders")
NOW_MS = 5000
LARGE = StoreConfig(segment_bytes=1 << 20, store_bytes_max=64 << 20)


def frame(topic: Topic = ORDERS, expiration: int = 0, kind: int = int(Kind.BYTES), flags: int = 0) -> bytes:
    parts = FrameWriter(1).write_body(kind, b"", b"body", topic, PERSISTENT | flags, 4, NOW_MS - 10, expiration)
    return b"".join(with_ledger_number(parts, 5, 0, 1))


def surveyed(ledger: Ledger, *frames: bytes) -> Survey:
    store = Store(config=LARGE)
    assert store.storage.store_frames(ledger, 1, frames) is not None
    store.sync()
    survey = Survey(9, {ORDERS.frame_hash: TopicCount(ORDERS.name, ["desk"])})
    waiting = {ORDERS.frame_hash: store.journal.known(ledger)}
    look_at(survey, [(ledger, waiting)], store.journal, store.disk, NOW_MS)
    return survey


def test_messages_are_found_as_runs_and_expired_ones_are_counted() -> None:
    found = surveyed(LEDGER, frame(), frame(), frame(expiration=NOW_MS), frame(expiration=NOW_MS + 1), frame())
    assert found.spans == [Span(LEDGER, ORDERS.frame_hash, 1, 3), Span(LEDGER, ORDERS.frame_hash, 4, 6)]
    (count,) = found.topics.values()
    assert (count.name, count.subscriptions, count.messages, count.expired, count.later) == (
        "orders",
        ["desk"],
        4,
        1,
        0,
    )


def test_a_frame_to_a_topic_with_the_same_hash_is_none_of_the_topic() -> None:
    """A name that is no text would end the adoption, whenever it is repeated."""
    for name in (b"\xff\xfe\xfd\xfc\xfb\xfa", b"x", b"orders-and-more"):
        other = bytearray(frame(Topic("n" * len(name))))
        other[8:12] = ORDERS.frame_hash.to_bytes(4, "big")
        other[56 : 56 + len(name)] = name
        found = surveyed(LEDGER, frame(), bytes(other), frame())
        assert [(span.first, span.end) for span in found.spans] == [(1, 2), (3, 4)]


def test_files_are_left_out() -> None:
    assert surveyed(LEDGER, frame(kind=FILE)).spans == []


def test_a_delayed_message_without_a_delay_is_due() -> None:
    found = surveyed(LATER, frame(flags=DELAYED))
    assert found.spans == [Span(LATER, ORDERS.frame_hash, 1, 2)]


def test_a_frame_that_is_too_short_to_be_one_is_damage() -> None:
    with pytest.raises(JournalError, match="message 2 of 0000000000000005/0/0 cannot be read"):
        surveyed(LEDGER, frame(), b"short")
