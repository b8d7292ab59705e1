"""Tests of frames: their bytes, finding frames in runs, and dropping everything invalid."""

import random
import struct
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from passing import CONNECTION, NOW, TOPIC, encode, opened, read_one, receive

from fjm2.jms import (
    Byte,
    BytesMessage,
    JMSError,
    JMSSecurityError,
    MapMessage,
    Message,
    MessageFormatError,
    ObjectMessage,
    Queue,
    Selector,
    StreamMessage,
    TemporaryTopic,
    TextMessage,
    Topic,
)
from fjm2.messages.frame import (
    FRAME_BYTES_MAX,
    Frame,
    FrameDrop,
    FrameReader,
    FrameWriter,
    is_sent_to,
    is_well_formed,
    look_up,
    seal,
    transaction_of,
)
from fjm2.messages.header import (
    CONNECTION_ID,
    DESTINATION_HASH,
    FLAGS,
    FRAME_BYTES,
    HEADER_BYTES,
    KIND,
    NUMBER,
    PERSISTENT,
    PRIORITY,
    Transaction,
    decode_delay,
)
from fjm2.messages.message import snapshot


def bytes_of(data: bytes) -> BytesMessage:
    message = BytesMessage()
    message.write_bytes(data)
    return message


def full_message(body: bytes = b"body") -> BytesMessage:
    message = bytes_of(body)
    message.correlation_id, message.reply_to, message.type = "c", Queue("r"), "t"
    message.set_int_property("count", 7)
    message.set_string_property("colour", "blue")
    return message


def contents(frames: list[Frame]) -> list[bytes]:
    return [buffer[start:end] for buffer, start, _, end, _ in frames]


def test_a_frame_byte_by_byte() -> None:
    message = full_message()
    message.set_object_property("b", Byte(-1))
    frame = encode(message, Queue("é"), FrameWriter(CONNECTION, 6), priority=9, expiration=NOW + 1, delivery_delay=2)
    properties = b"\0\5count\5\0\0\0\7\0\6colour\x0a\0\0\0\4blue\0\1b\3\xff"
    sections = b"\1\0\0\0\1c\3\0\0\0\2\x20r\4\0\0\0\1t\5\0\0\0\x08" + (2).to_bytes(8, "big")
    length = 56 + 2 + len(properties) + len(sections) + 4
    assert frame == b"".join(
        (
            bytes((1, 2, 1 | 32, 9)),
            struct.pack("!II", length, zlib.crc32(b"\x20" + "é".encode())),
            struct.pack("!HHII", 2, 0, len(properties), len(sections)),
            struct.pack("!QQqq", CONNECTION, 7, NOW, NOW + 1),
            "é".encode(),
            properties,
            sections,
            b"body",
        )
    )


@pytest.mark.parametrize(
    ("message", "kind", "flags", "body"),
    [
        (Message(), 0, 1, b""),
        (TextMessage("é"), 1, 1, b"\xc3\xa9"),
        (TextMessage(), 1, 9, b""),
        (bytes_of(b"x"), 2, 1, b"x"),
        (MapMessage(), 3, 1, b""),
        (StreamMessage(), 4, 1, b""),
        (ObjectMessage([1, None]), 5, 1, b"\0\7\0\0\0\2\3\0\0\0\1\1\0"),
        (ObjectMessage(), 5, 9, b""),
    ],
)
def test_kinds_and_their_bodies(message: Message, kind: int, flags: int, body: bytes) -> None:
    frame = encode(message, Topic("t"))
    assert (frame[1], frame[2], frame[57:]) == (kind, flags, body)


def test_the_body_of_a_map_and_of_a_stream() -> None:
    mapping, stream = MapMessage(), StreamMessage()
    mapping.set_boolean("k", True)
    mapping.set_char("c", "é")
    stream.write_long(-1)
    stream.write_bytes(b"ab")
    assert snapshot(mapping)[3] == b"\x0a\0\0\0\1k\2\x0a\0\0\0\1c\x09\0\xe9"
    assert snapshot(stream)[3] == b"\6" + b"\xff" * 8 + b"\x0b\0\0\0\2ab"


def test_unchanged_parts_are_not_encoded_again() -> None:
    message = full_message(b"x" * 1000)
    writer = FrameWriter(CONNECTION)
    _, first_body = writer.write(message, TOPIC, 0, 4, NOW)
    properties = snapshot(message)[1]
    _, second_body = writer.write(message, TOPIC, 0, 4, NOW)
    assert second_body is first_body
    assert snapshot(message)[1] is properties


def test_the_reader_returns_the_fixed_header() -> None:
    frame = encode(full_message(), priority=7, writer=FrameWriter(CONNECTION, 41))
    buffer, start, body, end, header = read_one(frame)
    assert (buffer, start, end) == (frame, 0, len(frame))
    assert buffer[body:end] == full_message()._encode_body()
    assert (header[KIND], header[FLAGS], header[PRIORITY], header[FRAME_BYTES]) == (2, PERSISTENT, 7, len(frame))
    assert (header[CONNECTION_ID], header[NUMBER]) == (CONNECTION, 42)
    assert header[DESTINATION_HASH] == TOPIC.frame_hash


def test_frames_are_matched_by_kind_and_name_of_their_destination() -> None:
    run = encode(Message()) + encode(Message(), Queue("other"))
    frames = FrameReader().feed(run, (0,))
    asked = [TOPIC, Queue("other"), Topic("other"), Queue("othe"), TemporaryTopic(TOPIC.name)]
    matched = [
        [destination for destination in asked if is_sent_to(buffer, start, header, destination)]
        for buffer, start, _, _, header in frames
    ]
    assert matched == [[TOPIC], [Queue("other")]]


def test_an_oversized_message_is_refused_and_not_stamped() -> None:
    writer = FrameWriter(CONNECTION)
    message = bytes_of(bytes(FRAME_BYTES_MAX))
    with pytest.raises(JMSError, match=str(FRAME_BYTES_MAX)):
        writer.write(message, TOPIC, 0, 4, NOW)
    assert (message.message_id, writer.number) == (None, 0)


FRAMES = [encode(full_message(bytes(size)), writer=FrameWriter(CONNECTION, size)) for size in (0, 1, 70, 3, 500)]
STREAM = b"".join(FRAMES)


def test_frames_are_found_wherever_the_stream_is_cut() -> None:
    for cut in range(len(STREAM) + 1):
        reader = FrameReader()
        found = contents(reader.feed(STREAM[:cut], (0,) if cut else ()))
        found += contents(reader.feed(STREAM[cut:], () if cut else (0,)))
        assert found == FRAMES
        assert (reader.held_bytes, reader.drops) == (0, {})


@pytest.mark.parametrize("size", [1, 7, 55, 56, 57, 64])
def test_frames_are_found_in_small_runs(size: int) -> None:
    reader, found = FrameReader(), []
    for at in range(0, len(STREAM), size):
        found += contents(reader.feed(STREAM[at : at + size], (0,) if at == 0 else ()))
    assert found == FRAMES


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_frames_are_found_in_any_runs(cuts: list[int]) -> None:
    reader, found = FrameReader(), []
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(STREAM)], strict=True):
        found += contents(reader.feed(STREAM[start:end], (0,) if start == 0 < end else ()))
    assert found == FRAMES


def test_the_header_of_a_frame_in_pieces_is_that_of_the_frame() -> None:
    reader = FrameReader()
    reader.feed(FRAMES[4][:100], (0,))
    (frame,) = reader.feed(FRAMES[4][100:])
    assert frame[4] == read_one(FRAMES[4])[4]
    assert opened(frame).get_int_property("count") == 7


def test_a_late_joiner_starts_at_the_first_mark() -> None:
    reader = FrameReader()
    assert reader.feed(STREAM[10:40]) == []
    assert reader.feed(STREAM[40 : len(FRAMES[0]) - 5]) == []
    tail = STREAM[len(FRAMES[0]) - 5 :]
    assert contents(reader.feed(tail, (5, 5 + len(FRAMES[1])))) == FRAMES[1:]
    assert reader.drops == {}


def test_after_a_gap_reading_starts_over_at_the_next_mark() -> None:
    reader = FrameReader()
    reader.feed(STREAM[: len(FRAMES[0]) + 70], (0,))
    reader.reset()
    assert reader.held_bytes == 0
    assert reader.feed(FRAMES[2]) == []
    assert contents(reader.feed(b"rest" + FRAMES[3], (4,))) == [FRAMES[3]]
    assert reader.drops == {FrameDrop.CUT: 1}


def with_bytes(frame: bytes, at: int, data: bytes) -> bytes:
    return frame[:at] + data + frame[at + len(data) :]


@pytest.mark.parametrize(
    ("at", "data", "reason"),
    [
        (0, b"\2", FrameDrop.UNKNOWN),
        (1, b"\6", FrameDrop.UNKNOWN),
        (3, b"\x0a", FrameDrop.MALFORMED),
        (12, b"\0\0", FrameDrop.MALFORMED),
        (12, b"\xff\xff", FrameDrop.MALFORMED),
        (16, b"\x7f\xff\xff\xff", FrameDrop.MALFORMED),
        (20, b"\0\1\0\0", FrameDrop.MALFORMED),
    ],
)
def test_a_bad_frame_is_dropped_and_the_next_one_found(at: int, data: bytes, reason: FrameDrop) -> None:
    reader = FrameReader()
    run = FRAMES[0] + with_bytes(FRAMES[2], at, data) + FRAMES[3]
    assert contents(reader.feed(run, (0,))) == [FRAMES[0], FRAMES[3]]
    assert reader.drops == {reason: 1}


@pytest.mark.parametrize("length", [0, 55, 1 << 20, 0xFFFFFFFF])
def test_an_implausible_length_skips_to_the_next_mark(length: int) -> None:
    reader = FrameReader(frame_bytes_max=(1 << 20) - 1)
    bad = with_bytes(FRAMES[2], 4, struct.pack("!I", length))
    run = FRAMES[0] + bad + FRAMES[1] + FRAMES[3]
    mark = len(run) - len(FRAMES[3])
    assert contents(reader.feed(run, (0, len(FRAMES[0]), mark))) == [FRAMES[0], FRAMES[3]]
    assert reader.drops == {FrameDrop.MALFORMED if length < 56 else FrameDrop.TOO_LARGE: 1}
    assert contents(reader.feed(FRAMES[4])) == [FRAMES[4]]


def test_without_a_mark_reading_waits_for_the_next_one() -> None:
    reader = FrameReader()
    bad = with_bytes(FRAMES[2], 4, b"\xff\xff\xff\xff")
    assert contents(reader.feed(FRAMES[0] + bad + FRAMES[1], (0,))) == [FRAMES[0]]
    assert reader.feed(FRAMES[1]) == []
    assert contents(reader.feed(b"x" + FRAMES[3], (1,))) == [FRAMES[3]]
    assert reader.held_bytes == 0


def test_a_bad_header_that_came_in_two_runs() -> None:
    for cut in range(1, HEADER_BYTES):
        reader = FrameReader()
        bad = with_bytes(FRAMES[2], 4, b"\xff\xff\xff\xff")
        assert reader.feed(bad[:cut], (0,)) == []
        rest = bad[cut:]
        assert contents(reader.feed(rest + FRAMES[3], (len(rest),))) == [FRAMES[3]]
        assert reader.drops == {FrameDrop.TOO_LARGE: 1}


def test_frames_up_to_the_limit_are_accepted() -> None:
    reader = FrameReader(frame_bytes_max=len(FRAMES[4]))
    assert contents(reader.feed(FRAMES[4] + encode(full_message(bytes(501))) + FRAMES[0], (0,))) == [FRAMES[4]]
    assert contents(reader.feed(FRAMES[0], (0,))) == [FRAMES[0]]


def test_a_mark_inside_a_claimed_frame_ends_it() -> None:
    reader = FrameReader()
    claim = with_bytes(FRAMES[2], 4, struct.pack("!I", 1 << 25))
    reader.feed(claim, (0,))
    reader.feed(bytes(1000))
    assert reader.held_bytes == len(claim) + 1000
    assert contents(reader.feed(bytes(10) + FRAMES[3], (10,))) == [FRAMES[3]]
    assert reader.drops == {FrameDrop.MALFORMED: 1}
    assert reader.held_bytes == 0


def test_a_large_frame_in_many_small_pieces_takes_little_more_than_its_bytes() -> None:
    frame = encode(bytes_of(random.Random(5).randbytes(300_000)))
    reader = FrameReader()
    found = reader.feed(frame[:60], (0,))
    for at in range(60, len(frame), 3):
        found += reader.feed(frame[at : at + 3])
        assert len(reader._pieces) < 1200
    assert contents(found) == [frame]


def test_a_frame_names_its_transaction_and_its_place() -> None:
    writer = FrameWriter(CONNECTION)
    parts = [writer.write(full_message(bytes((index,))), TOPIC, PERSISTENT, 4, NOW) for index in range(3)]
    sealed = [b"".join(seal(part, Transaction(99, index, 3))) for index, part in enumerate(parts)]
    frames = FrameReader().feed(b"".join(sealed), (0,))
    assert [transaction_of(buffer, header, start) for buffer, start, _, _, header in frames] == [
        Transaction(99, 0, 3),
        Transaction(99, 1, 3),
        Transaction(99, 2, 3),
    ]
    message = receive(sealed[1])
    assert (message.get_body(bytes), message.type, message.get_string_property("colour")) == (b"\1", "t", "blue")
    buffer, start, _, _, header = read_one(b"".join(parts[0]))
    assert transaction_of(buffer, header, start) is None


@pytest.mark.parametrize("section", [b"", b"\6\0\0\0\0", b"\6\0\0\0\x10" + struct.pack("!QII", 1, 3, 3)])
def test_malformed_transactions_are_refused(section: bytes) -> None:
    frame = bytearray(encode(Message()) + section)
    frame[2] |= 16
    frame[4:8] = len(frame).to_bytes(4, "big")
    frame[20:24] = len(section).to_bytes(4, "big")
    buffer, start, _, _, header = read_one(bytes(frame))
    with pytest.raises(MessageFormatError):
        transaction_of(buffer, header, start)
    assert not is_well_formed(buffer, start, header)


def test_s9_selectors_see_headers_and_properties_of_a_frame() -> None:
    message = full_message()
    run = b"before" + encode(message, priority=8) + b"behind"
    ((buffer, start, _, _, header),) = FrameReader().feed(run, (6,))
    names = ("JMSPriority", "JMSDeliveryMode", "JMSMessageID", "JMSTimestamp", "JMSCorrelationID", "JMSType")
    assert [look_up(buffer, start, header, name) for name in (*names, "count", "colour", "absent")] == [
        8,
        "PERSISTENT",
        message.message_id,
        NOW,
        "c",
        "t",
        7,
        "blue",
        None,
    ]
    seen = partial(look_up, buffer, start, header)
    assert Selector("colour = 'blue' AND JMSPriority > 7 AND JMSType = 't'").evaluate(seen)
    assert not Selector("count <> 7 OR absent IS NOT NULL").evaluate(seen)


def test_s9_missing_headers_are_null() -> None:
    buffer, start, _, _, header = read_one(encode(Message(), flags=2 | 4))
    names = ("JMSDeliveryMode", "JMSMessageID", "JMSTimestamp", "JMSCorrelationID", "JMSType", "JMSXDeliveryCount")
    assert [look_up(buffer, start, header, name) for name in names] == ["NON_PERSISTENT", None, 0, None, None, None]


def test_unknown_sections_are_skipped_and_the_first_of_two_counts() -> None:
    section = b"\xc8\0\0\0\3abc\4\0\0\0\1a\4\0\0\0\1b"
    frame = bytearray(encode(Message()) + section)
    frame[4:8] = len(frame).to_bytes(4, "big")
    frame[20:24] = len(section).to_bytes(4, "big")
    assert receive(bytes(frame)).type == "a"


@pytest.mark.parametrize(
    "section",
    [
        b"\4",
        b"\4\0\0\0",
        b"\4\0\0\0\1",
        b"\4\xff\xff\xff\xffa",
        b"\4\0\0\0\1\xff",
        b"\1\0\0\0\1\xff",
        b"\3\0\0\0\0",
        b"\3\0\0\0\1\0",
        b"\3\0\0\0\2\1a",
        b"\3\0\0\0\2\0\xff",
    ],
)
def test_malformed_sections_raise_format_errors(section: bytes) -> None:
    frame = bytearray(encode(Message()) + section)
    frame[4:8] = len(frame).to_bytes(4, "big")
    frame[20:24] = len(section).to_bytes(4, "big")
    buffer, start, _, _, header = read_one(bytes(frame))
    assert not is_well_formed(buffer, start, header)
    message = receive(bytes(frame))
    for name in ("correlation_id", "type", "reply_to"):
        with pytest.raises(MessageFormatError):
            getattr(message, name)
    with pytest.raises(MessageFormatError):
        look_up(buffer, start, header, "JMSType")


def test_a_section_of_another_length_is_named_in_the_error() -> None:
    with pytest.raises(MessageFormatError, match=r"^a section of 3 bytes: expected 8$"):
        decode_delay(b"abc")


@pytest.mark.parametrize("body", [b"\xff", b"\x0a\0\0\0\1\xff", b"\x0a\0\0\0\2a", b"\x0a\0\0\0", b"\5\0\0\0", b"\x63"])
@pytest.mark.parametrize("kind", [3, 4, 5])
def test_malformed_bodies_raise_format_errors(kind: int, body: bytes) -> None:
    message = receive(with_bytes(encode(bytes_of(body)), 1, bytes((kind,))))
    for _ in range(2):
        with pytest.raises(MessageFormatError):
            _read_all(message) if isinstance(message, StreamMessage) else message.get_body(object)


@pytest.mark.parametrize(
    ("kind", "body"), [(1, b"\xff"), (3, b"\x0a\0\0\0\1k"), (3, b"\x0a\0\0\0\0\1"), (3, b"\5\0\0\0\1\1")]
)
def test_malformed_texts_and_maps(kind: int, body: bytes) -> None:
    message = receive(with_bytes(encode(bytes_of(body)), 1, bytes((kind,))))
    with pytest.raises(MessageFormatError):
        message.get_body(object)


def _read_all(message: StreamMessage) -> None:
    message.reset()
    while message.read_object() != b"never":
        pass


def samples() -> list[Message]:
    mapping, stream = MapMessage(), StreamMessage()
    for index, value in enumerate([True, Byte(1), 2, 2**40, 0.5, "text", b"bytes", None]):
        mapping.set_object(f"k{index}", value)
        stream.write_object(value)
    plain = [Message(), TextMessage("some é text"), mapping, stream, ObjectMessage({"a": [1, (2.0, None)], b"b": "c"})]
    for message in plain:
        message.correlation_id, message.reply_to, message.type = "correlation", TemporaryTopic("reply"), "type"
        message.set_int_property("count", 7)
        message.set_string_property("colour", "blue")
    return [*plain, full_message(b"0123456789")]


SAMPLES = [encode(message, delivery_delay=5) for message in samples()]

ACCESSES: list[Callable[[Any], object]] = [
    lambda message: message.destination,
    lambda message: (message.delivery_time, message.message_id, message.timestamp, message.expiration),
    lambda message: (message.correlation_id, message.correlation_id_bytes, message.reply_to, message.type),
    lambda message: dict(message.properties),
    lambda message: message.get_body(object),
    lambda message: _read_all(message) if isinstance(message, StreamMessage) else repr(message),
    lambda message: encode(message),
]


def exercise(frames: list[Frame]) -> None:
    """Access everything in each frame. Only errors about the format may be raised."""
    for frame in frames:
        buffer, start, _, _, header = frame
        is_good = is_well_formed(buffer, start, header)
        for name in ("count", "colour", "JMSType", "JMSCorrelationID", "JMSMessageID"):
            try:
                look_up(buffer, start, header, name)
            except MessageFormatError:
                assert not is_good
        message = opened(frame)
        for access in ACCESSES:
            try:
                access(message)
            except (MessageFormatError, JMSSecurityError):
                pass
            except EOFError:
                assert isinstance(message, StreamMessage)
        if is_good:
            for access in ACCESSES[:4]:
                access(message)


MUTATIONS = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=4)


@settings(max_examples=examples(400))
@given(st.sampled_from(SAMPLES), MUTATIONS, st.integers(1, 300))
def test_mutated_frames_are_dropped_or_read_but_never_raise(
    sample: bytes, mutations: list[tuple[int, int]], size: int
) -> None:
    frame = bytearray(sample)
    for place, value in mutations:
        frame[place % len(frame)] = value
    run = bytes(frame) + FRAMES[1]
    reader = FrameReader(frame_bytes_max=1 << 16)
    for at in range(0, len(run), size):
        marks = [mark - at for mark in (0, len(frame)) if at <= mark < at + size]
        exercise(reader.feed(run[at : at + size], marks))
        assert reader.held_bytes <= 1 << 16
    reader.reset()
    assert contents(reader.feed(FRAMES[2], (0,))) == [FRAMES[2]]


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.binary(max_size=200), st.lists(st.integers(-5, 250), max_size=4)), max_size=6))
def test_any_bytes_and_marks_are_handled(runs: list[tuple[bytes, list[int]]]) -> None:
    reader = FrameReader(frame_bytes_max=1 << 16)
    for run, marks in runs:
        exercise(reader.feed(run, marks))
        assert reader.held_bytes <= 1 << 16
    reader.reset()
    assert contents(reader.feed(FRAMES[2], (0,))) == [FRAMES[2]]


@settings(max_examples=examples(200))
@given(st.sampled_from(SAMPLES), st.integers(HEADER_BYTES, 400), st.binary(min_size=1, max_size=8))
def test_valid_headers_before_malformed_contents(sample: bytes, at: int, data: bytes) -> None:
    at = min(at, len(sample) - len(data))
    exercise(FrameReader().feed(with_bytes(sample, at, data), (0,)))


@given(st.binary(max_size=300), st.integers(0, 5))
def test_any_body_of_any_kind(body: bytes, kind: int) -> None:
    exercise([read_one(with_bytes(encode(bytes_of(body)), 1, bytes((kind,))))])
