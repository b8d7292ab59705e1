"""Tests of the section and the mark of messages that stay at keepers as last values."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.jms import Byte, Long, Queue, Short, TemporaryTopic, TextMessage, Topic
from fjm2.messages.destination import Destination
from fjm2.messages.errors import JMSError
from fjm2.messages.frame import FRAME_BYTES_MAX, Frame, FrameReader, FrameWriter, Parts, seal
from fjm2.messages.header import HEADER, MARKS_AT, PERSISTENT, RETAINED, Section, Transaction, sections_of
from fjm2.messages.last_values.retained import (
    AHEAD_MAX_US,
    KEY_BYTES_MAX,
    Retained,
    Stamps,
    is_retained,
    read_retained,
    retained_parts,
    retained_section,
)
from fjm2.messages.ledgers.ledger_number import is_intact, ledger_number_of, with_ledger_number
from fjm2.messages.types import PropertyValue

TOPIC = Topic("prices")


def parts(
    body: str = "body",
    key: str = "",
    stamp: int = 5,
    destination: Destination = TOPIC,
    flags: int = PERSISTENT,
    **properties: PropertyValue,
) -> Parts:
    message = TextMessage(body)
    message.correlation_id = "other section"
    for name, value in properties.items():
        message.set_object_property(name, value)
    framed = FrameWriter(1).write(message, destination, flags, 4, 1000)
    return retained_parts(framed, retained_section(key, stamp))


def received(sent: Parts) -> Frame:
    (frame,) = FrameReader().feed(b"".join(sent), (0,))
    return frame


def found(sent: Parts) -> Retained | None:
    buffer, start, _, _, header = received(sent)
    return read_retained(buffer, header, start)


def identity(key: str = "", **options: object) -> bytes:
    value = found(parts(key=key, **options))  # type: ignore[arg-type]
    assert value is not None
    return value.identity


def test_a_frame_tells_its_topic_stamp_and_key() -> None:
    value = found(parts(key="symbol", stamp=77, symbol="ABC"))
    assert value is not None
    assert (value.topic, value.stamp, value.is_removal, len(value.identity)) == ("prices", 77, False, 16)


def test_an_empty_body_removes_the_value() -> None:
    kept, removal = found(parts("x")), found(parts(""))
    assert kept is not None
    assert removal is not None
    assert (kept.is_removal, removal.is_removal) == (False, True)
    assert kept.identity == removal.identity


def test_topics_and_values_of_the_key_are_different_values() -> None:
    names = [
        identity(),
        identity(destination=Topic("other")),
        identity("symbol", symbol="ABC"),
        identity("symbol", symbol="XYZ"),
        identity("other", other="ABC"),
        identity("symbol", symbol=1),
        identity("symbol", symbol=True),
        identity("symbol", symbol=1.0),
        identity("symbol"),
    ]
    assert len(set(names)) == len(names)


def test_numbers_that_are_equal_are_one_key() -> None:
    """A batch has the numbers of an array, which may have another size."""
    assert len({identity("id", id=value) for value in (3, Long(3), Short(3), Byte(3))}) == 1


def test_the_frame_stays_well_formed() -> None:
    """Also with a number in a ledger behind the section."""
    numbered = with_ledger_number(parts(key="symbol", symbol="ABC"), 9, 1, 42)
    buffer, start, body, end, header = received(numbered)
    assert is_retained(buffer, header, start)
    assert buffer[body:end] == b"body"
    assert set(sections_of(buffer, header, start)) == {Section.CORRELATION_ID, Section.RETAINED, Section.LEDGER}
    assert ledger_number_of(buffer, header, start) == (9, 1, 42)
    assert is_intact(buffer, header, start)
    assert read_retained(buffer, header, start) == found(parts(key="symbol", symbol="ABC"))


@pytest.mark.parametrize(
    "sent",
    [
        parts(destination=Queue("orders")),
        parts(destination=TemporaryTopic("mine")),
        parts(flags=0),
        seal(parts(), Transaction(1, 0, 2)),
    ],
)
def test_only_whole_persistent_messages_to_topics_are_values(sent: Parts) -> None:
    head = bytearray(sent[0])
    head[MARKS_AT] |= RETAINED
    assert found((bytes(head), sent[1])) is None


def test_a_frame_that_becomes_too_large_is_refused() -> None:
    head, _ = FrameWriter(1).write(TextMessage("x"), TOPIC, PERSISTENT, 4, 1000)
    with pytest.raises(JMSError, match="cannot be sent: expected at most"):
        retained_parts((head, bytes(FRAME_BYTES_MAX - len(head))), retained_section("", 1))


@given(st.binary(max_size=60), st.booleans())
def test_any_section_is_read_or_refused(content: bytes, has_property: bool) -> None:
    message = TextMessage("body")
    if has_property:
        message.set_object_property("symbol", "ABC")
    section = bytes((Section.RETAINED,)) + len(content).to_bytes(4) + content
    sent = retained_parts(FrameWriter(1).write(message, TOPIC, PERSISTENT, 4, 1000), section)
    value = found(sent)
    assert value is None or (len(content) >= 8 and value.stamp == int.from_bytes(content[:8]))


@pytest.mark.parametrize("seed", range(20))
def test_broken_frames_are_read_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    sent = b"".join(parts(key="symbol", symbol="ABC"))
    for _ in range(200):
        broken = bytearray(sent)
        for _ in range(rng.randrange(1, 5)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        for buffer, start, _, _, header in FrameReader().feed(bytes(broken), (0,)):
            read_retained(buffer, header, start)


def test_a_key_is_bounded() -> None:
    assert found(parts(key="k" * KEY_BYTES_MAX)) is not None
    assert found(parts(key="k" * (KEY_BYTES_MAX + 1))) is None


def test_the_mark_is_ignored_by_readers_that_do_not_know_it() -> None:
    """They unpack the header without it."""
    head, _ = parts()
    plain = bytearray(head)
    plain[MARKS_AT] = 0
    assert HEADER.unpack_from(head) == HEADER.unpack_from(plain)


def test_stamps_grow_though_the_clock_stands_or_goes_back() -> None:
    stamps = Stamps()
    assert [stamps.next(now) for now in (100, 100, 50, 200)] == [100, 101, 102, 200]


def test_a_stamp_follows_those_that_were_heard() -> None:
    """A program that reads a value and replaces it must succeed, though its clock is behind."""
    stamps = Stamps()
    stamps.note(5000, 100)
    assert stamps.next(100) == 5001
    stamps.note(100 + AHEAD_MAX_US + 1, 100)
    assert stamps.next(100) == 5002
