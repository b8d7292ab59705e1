"""Tests of stored frames that are made ready to be sent again."""

from fjm2.adoption.frames import adopted_frame
from fjm2.jms import Topic
from fjm2.messages.frame import FrameReader, FrameWriter, body_place
from fjm2.messages.header import (
    DELAYED,
    EXPIRATION,
    FLAGS,
    IN_TRANSACTION,
    MARKS_AT,
    NULL_BODY,
    PERSISTENT,
    REDELIVERED,
    RETAINED,
    Kind,
)
from fjm2.messages.ledgers.ledger_number import ledger_number_of, with_ledger_number
from fjm2.messages.message import open_message

TOPIC = Topic("orders")


def stored(flags: int = 0, marks: int = 0) -> bytes:
    """Return a frame as a keeper has it."""
    head, body = FrameWriter(7).write_body(int(Kind.BYTES), b"", b"content", TOPIC, PERSISTENT | flags, 9, 1000, 5000)
    head = head[:MARKS_AT] + bytes((marks,)) + head[MARKS_AT + 1 :]
    return b"".join(with_ledger_number((head, body), 3, 1, 12))


def test_an_adopted_frame_has_no_number_and_is_flagged() -> None:
    before, after = stored(), adopted_frame(stored())
    (frame,) = FrameReader().feed(after, (0,))
    _, start, body, end, header = frame
    assert (start, end) == (0, len(after))
    assert ledger_number_of(after, header) is None
    assert after[MARKS_AT] == REDELIVERED
    assert after[body:end] == b"content"
    first, again = (open_message(each[:place], each[place:], header) for each, place in _opened(before, after))
    for name in ("message_id", "timestamp", "expiration", "priority", "delivery_mode", "destination"):
        assert getattr(first, name) == getattr(again, name)
    assert header[EXPIRATION] == 5000


def _opened(*frames: bytes) -> list[tuple[bytes, int]]:
    return [(each, body_place(FrameReader().feed(each, (0,))[0][4])) for each in frames]


def test_what_is_over_is_cleared_and_all_else_stays() -> None:
    after = adopted_frame(stored(flags=DELAYED | IN_TRANSACTION | NULL_BODY, marks=RETAINED))
    assert after[FLAGS] == PERSISTENT | NULL_BODY
    assert after[MARKS_AT] == RETAINED | REDELIVERED


def test_a_frame_that_was_adopted_before_can_be_adopted_again() -> None:
    once = adopted_frame(stored())
    (_, _, body, _, _) = FrameReader().feed(once, (0,))[0]
    again = b"".join(with_ledger_number((once[:body], once[body:]), 5, 1, 1))
    assert adopted_frame(again) == once


def test_a_frame_without_a_number_stays_as_long_as_it_is() -> None:
    head, body = FrameWriter(7).write_body(int(Kind.BYTES), b"", b"content", TOPIC, PERSISTENT, 4, 1000)
    assert len(adopted_frame(head + body)) == len(head + body)
