"""Tests of the numbers and checksums of frames in ledgers, one by one and by arrays."""

import struct
import subprocess
import sys
import zlib
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from passing import CONNECTION, NOW, TOPIC, encode, opened, read_one, receive

from fjm2.base.checksums import crc32c
from fjm2.jms import BytesMessage, JMSError, Message, Queue, TextMessage
from fjm2.messages.batches.array_writer import join_frames, write_frames
from fjm2.messages.batches.frame_array import FrameArray, FrameSettings
from fjm2.messages.batches.frame_run import FrameRun, find_run
from fjm2.messages.batches.property_columns import PropertyColumns
from fjm2.messages.frame import (
    FRAME_BYTES_MAX,
    FrameReader,
    FrameWriter,
    Parts,
    is_decided,
    is_well_formed,
    seal,
    transaction_of,
)
from fjm2.messages.header import FRAME_BYTES, HEADER, PERSISTENT, SECTION_BYTES, Kind, Transaction
from fjm2.messages.ledgers.ledger_number import (
    LEDGER_SECTION_BYTES,
    WRITTEN_TAG,
    LedgerNumber,
    is_intact,
    ledger_number_of,
    with_ledger_number,
)
from fjm2.messages.ledgers.number_columns import are_intact, ledger_sections_of, with_ledger_numbers
from fjm2.messages.ledgers.run_columns import columns_of, joined_columns
from fjm2.messages.message import snapshot

FIRST = LedgerNumber(0xFEDCBA9876543210, 7, (1 << 40) + 5)
QUEUE = Queue("orders")


def full_message(body: bytes = b"body") -> BytesMessage:
    message = BytesMessage()
    message.write_bytes(body)
    message.correlation_id, message.type, message.reply_to = "c", "t", QUEUE
    message.set_string_property("colour", "blue")
    return message


def parts_of(message: Message) -> Parts:
    return FrameWriter(CONNECTION, 41).write(message, TOPIC, PERSISTENT, 4, NOW)


def numbered(message: Message, number: LedgerNumber = FIRST) -> bytes:
    return b"".join(with_ledger_number(parts_of(message), *number))


def number_in(frame: bytes) -> LedgerNumber | None:
    buffer, start, _, _, header = read_one(frame)
    return ledger_number_of(buffer, header, start)


def intact(frame: bytes) -> bool:
    buffer, start, _, _, header = read_one(frame)
    return is_intact(buffer, header, start)


def with_section(frame: bytes, tag: int, content: bytes) -> bytes:
    """Return a frame with a section added behind the others."""
    fields = list(HEADER.unpack_from(frame))
    section = struct.pack("!BI", tag, len(content)) + content
    end = 56 + sum(fields[6:9])
    fields[FRAME_BYTES] += len(section)
    fields[SECTION_BYTES] += len(section)
    return HEADER.pack(*fields) + frame[56:end] + section + frame[end:]


def test_the_section_stands_as_documented() -> None:
    plain, frame = encode(full_message(), writer=FrameWriter(CONNECTION, 41)), numbered(full_message())
    section = struct.pack("!BIQIQ", WRITTEN_TAG, 24, *FIRST)
    end = len(plain) - len(b"body")
    fields = list(HEADER.unpack_from(plain))
    fields[FRAME_BYTES] += 29
    fields[SECTION_BYTES] += 29
    head = HEADER.pack(*fields) + plain[56:end] + section
    checksum = {7: crc32c, 8: zlib.crc32}[WRITTEN_TAG](head + b"body", 0)
    assert frame == head + struct.pack("!I", checksum) + b"body"
    assert LEDGER_SECTION_BYTES == 29


def test_a_number_is_read_back() -> None:
    frame = numbered(full_message())
    assert number_in(frame) == FIRST
    assert intact(frame)
    behind = b"x" * 3 + frame
    assert ledger_number_of(behind, HEADER.unpack_from(behind, 3), 3) == FIRST
    assert is_intact(behind, HEADER.unpack_from(behind, 3), 3)
    assert number_in(encode(full_message())) is None
    assert not intact(encode(full_message()))
    assert number_in(encode(BytesMessage())) is None


def test_every_changed_byte_is_found() -> None:
    frame = numbered(full_message())
    header = HEADER.unpack_from(frame)
    for place in range(len(frame)):
        for bit in (1, 128):
            changed = bytearray(frame)
            changed[place] ^= bit
            # The lengths are taken from the frame as sent, or the reader of the stream would have refused it already.
            assert not is_intact(bytes(changed), header), place


@pytest.mark.parametrize("tag", [7, 8])
def test_both_checksums_are_read(tag: int) -> None:
    frame = bytearray(with_section(encode(full_message()), tag, struct.pack("!QIQI", *FIRST, 0)))
    place = len(frame) - len(b"body") - 4
    checksum = {7: crc32c, 8: zlib.crc32}[tag]
    frame[place : place + 4] = struct.pack("!I", checksum(frame[:place] + b"body", 0))
    assert number_in(bytes(frame)) == FIRST
    assert intact(bytes(frame))
    frame[place] ^= 1
    assert not intact(bytes(frame))


def test_only_the_last_section_counts() -> None:
    content = numbered(full_message())[-len(b"body") - 24 : -len(b"body")]
    assert number_in(with_section(numbered(full_message()), 200, b"")) is None
    assert number_in(with_section(encode(full_message()), WRITTEN_TAG, content + b"x")) is None
    assert number_in(with_section(encode(full_message()), WRITTEN_TAG, content[1:])) is None
    assert number_in(with_section(encode(full_message()), WRITTEN_TAG, content)) == FIRST
    for length in (0, 23, 25, 1 << 31):
        frame = bytearray(numbered(full_message()))
        place = len(frame) - len(b"body") - 29
        frame[place + 1 : place + 5] = struct.pack("!I", length)
        assert number_in(bytes(frame)) is None
        assert ledger_sections_of(run_of(bytes(frame) * 8)) is None


def test_a_text_is_not_taken_for_a_number() -> None:
    message = BytesMessage()
    message.correlation_id_bytes = b"x" + struct.pack("!BIQIQI", WRITTEN_TAG, 24, *FIRST, 0)
    assert number_in(encode(message)) is None
    assert number_in(numbered(message)) == FIRST
    rows = [encode(message)] * 8
    assert ledger_sections_of(run_of(b"".join(rows))) is None


@pytest.mark.parametrize("tag", [7, 8, 9, 10, 255])
def test_receivers_ignore_sections_that_they_do_not_know(tag: int) -> None:
    frame = with_section(encode(full_message()), tag, bytes(24))
    message = receive(frame)
    assert (message.get_body(bytes), message.type, message.correlation_id, message.reply_to) == (
        b"body",
        "t",
        "c",
        QUEUE,
    )
    assert message.get_string_property("colour") == "blue"
    assert is_well_formed(frame, 0, HEADER.unpack_from(frame))


def test_a_message_that_is_sent_on_leaves_its_number_behind() -> None:
    message = opened(read_one(numbered(full_message())))
    assert encode(message, writer=FrameWriter(CONNECTION, 41)) == encode(
        full_message(), writer=FrameWriter(CONNECTION, 41)
    )


def test_a_part_of_a_transaction_may_be_decided_by_a_cell() -> None:
    parts = parts_of(full_message())
    frame = b"".join(with_ledger_number(seal(parts, Transaction(99, 1, 3), is_decided=True), *FIRST))
    buffer, start, _, _, header = read_one(frame)
    assert transaction_of(buffer, header, start) == Transaction(99, 1, 3)
    assert is_decided(buffer, header, start)
    assert number_in(frame) == FIRST
    assert receive(frame).type == "t"
    undecided = b"".join(seal(parts, Transaction(99, 1, 3)))
    assert not is_decided(undecided, HEADER.unpack_from(undecided))
    alone = with_section(encode(full_message()), 9, b"")
    assert not is_decided(alone, HEADER.unpack_from(alone))


def test_a_frame_that_would_be_too_large_is_refused() -> None:
    message = BytesMessage()
    head, _ = parts_of(message)
    room = FRAME_BYTES_MAX - len(head) - LEDGER_SECTION_BYTES
    fits, too_long = (head, bytes(room)), (head, bytes(room + 1))
    assert len(b"".join(with_ledger_number(fits, *FIRST))) == FRAME_BYTES_MAX
    with pytest.raises(JMSError, match="cannot be sent: expected at most 67108864"):
        with_ledger_number(too_long, *FIRST)
    (array,) = join_frames([too_long])
    with pytest.raises(JMSError, match="cannot be sent: expected at most 67108864"):
        with_ledger_numbers(array, FIRST)


@given(st.binary(max_size=100), st.integers(0, 1 << 32), st.binary(max_size=40))
def test_any_sections_are_read_without_an_error(sections: bytes, length: int, body: bytes) -> None:
    for content in (sections, sections + struct.pack("!BI", 7, length % (1 << 32)) + bytes(24)):
        frame = HEADER.pack(1, 2, 1, 4, 59 + len(content) + len(body), 0, 3, 0, len(content), 1, 1, NOW, 0)
        frame += b"abc" + content + body
        header = HEADER.unpack_from(frame)
        number, found = ledger_number_of(frame, header), is_intact(frame, header)
        assert not found or number is not None
        rows = ledger_sections_of(run_of(frame * 8))
        if rows is not None:
            assert {tuple(row)[2:5] for row in rows.tolist()} == {number}


def run_of(data: bytes) -> FrameRun:
    run = find_run(data, 0, HEADER.unpack_from(data), FRAME_BYTES_MAX)
    assert run is not None
    return run


def one_by_one(arrays: list[FrameArray]) -> list[bytes]:
    frames, sequence = [], FIRST.sequence
    for array in arrays:
        for parts in array.parts():
            frames.append(b"".join(with_ledger_number(parts, *FIRST[:2], sequence)))
            sequence += 1
    return frames


@given(st.data())
def test_frames_of_a_batch_are_those_numbered_one_by_one(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 20))
    size, is_equal = data.draw(st.integers(0, 700)), data.draw(st.booleans())
    bodies = [bytes([place]) * (size if is_equal else data.draw(st.integers(0, size))) for place in range(count)]
    properties: dict[str, Any] = {"n": np.arange(count)} if data.draw(st.booleans()) else {}
    if data.draw(st.booleans()):
        properties["text"] = data.draw(st.lists(st.text("abc", max_size=5), min_size=count, max_size=count))
    sections = snapshot(data.draw(st.sampled_from([BytesMessage(), full_message()])))[2]
    if data.draw(st.booleans()):
        settings = FrameSettings(TOPIC, int(Kind.BYTES), PERSISTENT, 6, NOW, 0, sections)
        arrays = write_frames(FrameWriter(1), settings, bodies, PropertyColumns(properties, count))
    else:
        messages = [TextMessage("x" * len(body)) for body in bodies]
        for message in messages:
            message.type = data.draw(st.sampled_from([None, "t", "tt"]))
        arrays = join_frames([parts_of(message) for message in messages])
    (array,) = arrays
    if data.draw(st.booleans()):
        assert array.data  # joins the pieces
    expected = one_by_one(arrays)
    found = with_ledger_numbers(array, FIRST)
    assert found.data == b"".join(expected)
    assert found.size == len(found.data)
    assert [b"".join(parts) for parts in found.parts()] == expected


def test_frames_of_one_size_may_have_heads_of_others() -> None:
    messages = [TextMessage("x" * (9 - place)) for place in range(9)]
    for place, message in enumerate(messages):
        message.type = "t" * (1 + place)
    arrays = join_frames([parts_of(message) for message in messages])
    (array,) = arrays
    assert array.data
    assert with_ledger_numbers(array, FIRST).data == b"".join(one_by_one(arrays))


@given(st.lists(st.sampled_from([None, "t", "tt" * 20]), min_size=8, max_size=20), st.integers(0, 40), st.booleans())
def test_numbers_of_alike_frames_are_those_read_one_by_one(types: list[str | None], size: int, is_equal: bool) -> None:
    frames = []
    for place, name in enumerate(types):
        message = BytesMessage()
        message.type = name
        message.write_bytes(bytes(size if is_equal else size * place))
        frames.append(numbered(message, LedgerNumber(FIRST.producer_id, FIRST.producer_epoch, 1 + place * place)))
    run = run_of(b"".join(frames))
    sections = ledger_sections_of(run)
    assert sections is not None
    assert len(sections) >= 8  # frames of one size end a run before one of another size
    assert [tuple(row)[2:5] for row in sections.tolist()] == [number_in(frame) for frame in frames[: len(sections)]]
    assert are_intact(run, sections).all()


def test_the_one_broken_frame_of_a_run_is_found() -> None:
    frames = [bytearray(numbered(full_message(bytes([place] * 9)))) for place in range(12)]
    frames[5][-1] ^= 1
    run = run_of(b"".join(frames))
    sections = ledger_sections_of(run)
    assert sections is not None
    assert are_intact(run, sections).tolist() == [place != 5 for place in range(12)]


def test_checksums_of_both_kinds_may_be_mixed_in_a_run() -> None:
    other = 15 - WRITTEN_TAG
    frames = []
    for place in range(10):
        frame = bytearray(numbered(full_message(), LedgerNumber(1, 0, place)))
        if place % 2:
            end = len(frame) - len(b"body") - 4
            frame[end - 25] = other
            checksum = {7: crc32c, 8: zlib.crc32}[other](frame[:end] + b"body", 0)
            frame[end : end + 4] = struct.pack("!I", checksum)
        frames.append(frame)
    run = run_of(b"".join(frames))
    sections = ledger_sections_of(run)
    assert sections is not None
    assert sections["tag"].tolist() == [WRITTEN_TAG, other] * 5
    assert are_intact(run, sections).all()


def test_frames_without_numbers_have_no_columns() -> None:
    frames = [numbered(full_message()) for _ in range(9)]
    mixed = run_of(b"".join([frames[0], encode(full_message()), *frames]))
    assert len(mixed) == 11
    assert ledger_sections_of(mixed) is None
    assert ledger_sections_of(run_of(encode(BytesMessage()) * 9)) is None


def test_frames_with_many_sections_are_read_all_the_same() -> None:
    frame = encode(BytesMessage())
    for _ in range(20):
        frame = with_section(frame, 99, b"")
    frame = with_section(frame, WRITTEN_TAG, struct.pack("!QIQI", *FIRST, 0))
    assert number_in(frame) == FIRST
    sections = ledger_sections_of(run_of(frame * 8))
    assert sections is not None
    assert {tuple(row)[2:5] for row in sections.tolist()} == {FIRST}


PROGRAM = """
import sys
sys.modules["crc32c"] = None  # as if it were not installed
from fjm2.messages.ledgers.ledger_number import is_intact, with_ledger_number
from fjm2.messages.header import HEADER
frame = bytes.fromhex(sys.argv[1])
print(is_intact(frame, HEADER.unpack_from(frame)))
head, body = with_ledger_number((frame[:-7], frame[-7:]), 1, 2, 3)
print(head[-29], is_intact(head + body, HEADER.unpack_from(head)))
"""


def test_without_the_package_numbers_are_read_and_written() -> None:
    """Frames that another program numbered with CRC-32C can be checked, and ours get zlib's CRC-32."""
    if WRITTEN_TAG != 7:
        pytest.skip("the package crc32c is not installed")
    message = BytesMessage()
    message.write_bytes(b"seven b")
    frame = b"".join(with_ledger_number(parts_of(message), *FIRST))
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, frame.hex()],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (run.stdout.split(), run.returncode) == (["True", "8", "True"], 0), run.stderr


def test_columns_of_a_run_are_those_of_its_frames() -> None:
    """Frames of queues, topics, transactions and all lengths, with and without numbers."""
    frames = []
    for place in range(40):
        parts = FrameWriter(CONNECTION).write(
            full_message(bytes(place * 7)) if place % 3 else BytesMessage(),
            QUEUE if place % 4 == 0 else TOPIC,
            PERSISTENT if place % 5 else 0,
            place % 10,
            NOW,
        )
        if place % 7 == 0:
            parts = seal(parts, Transaction(5, place, 99), is_decided=True)
        frames.append(b"".join(with_ledger_number(parts, 7, 1, place) if place % 2 else parts))
    data, reader = b"".join(frames), FrameReader()
    cut = len(frames[0]) + len(frames[1]) + 20
    found = [*reader.feed(data[:cut], (0,)), *reader.feed(data[cut:-1]), *reader.feed(data[-1:])]
    assert len(found) == 40
    groups = list(columns_of(found))
    assert sum(map(len, groups)) == 40
    assert len(groups) > 1
    assert all((group.intact() == group.has_number).all() for group in groups)
    rows = iter(found)
    for group in groups:
        for index in range(len(group)):
            buffer, start, _, end, header = next(rows)
            assert (group.buffer is buffer, group.starts[index], group.ends[index]) == (True, start, end)
            row = group.headers[index]
            assert (row["destination_hash"], row["flags"], row["priority"]) == (header[5], header[2], header[3])
            number = ledger_number_of(buffer, header, start)
            assert group.has_number[index] == (number is not None)
            if number is not None:
                assert tuple(group.sections[index])[2:5] == number
    assert b"".join(bytes(one) for group in groups for one in group.pieces(group.has_number)) == b"".join(frames[1::2])
    whole = [one for group in groups for one in group.pieces(np.ones(len(group), bool))]
    assert len(whole) == len(groups), "frames that follow each other are one piece"
    assert b"".join(whole) == data
    assert not [one for group in groups for one in group.pieces(np.zeros(len(group), bool))]
    assert list(columns_of([])) == []


def test_joined_columns_are_those_of_all_runs() -> None:
    """The frames are of several lengths and buffers. The last run is taken without its first frame."""
    frames = [numbered(full_message(bytes(place % 4 * 100)), LedgerNumber(7, 1, place)) for place in range(60)]
    data, reader = b"".join(frames), FrameReader()
    runs = [run for cut in range(0, len(data), 2999) if (run := reader.feed(data[cut : cut + 2999], (0,)))]
    left_out = 60 - len(runs[-1])
    del runs[-1][0], frames[left_out]
    columns = joined_columns(runs)
    places = zip(columns.starts.tolist(), columns.ends.tolist(), strict=True)
    assert [columns.buffer[start:end] for start, end in places] == frames
    assert columns.buffer == b"".join(frames)
    bodies = [buffer[body:end] for run in runs for buffer, _, body, end, _ in run]
    assert [columns.body(place) for place in range(59)] == bodies
    assert columns.intact().all()
    assert columns.sections["sequence"].tolist() == [place for place in range(60) if place != left_out]
    assert columns.headers["priority"].tolist() == [run[4][3] for one in runs for run in one]
    assert not columns.are_one_run()
    assert joined_columns(runs[:-1]).are_one_run()


@pytest.mark.parametrize("seed", range(20))
def test_broken_frames_are_found_among_those_of_one_size(seed: int) -> None:
    """Their heads may differ in size, and the last frame may be of another size than all others."""
    random = Random(seed)
    frames = []
    for place in range(random.randrange(1, 30)):
        message, name = BytesMessage(), "t" * random.choice([1, 1, 1, 1, 5] if seed % 2 else [1])
        message.type = name
        message.write_bytes(bytes(20 - len(name)))
        frames.append(bytearray(numbered(message, LedgerNumber(7, 1, 1 + place))))
    if random.random() < 0.5:
        frames.append(bytearray(numbered(full_message(bytes(random.randrange(60))), LedgerNumber(7, 1, 99))))
    broken = set(random.sample(range(len(frames)), random.randrange(min(3, len(frames)))))
    for place in broken:
        frames[place][-1 - random.randrange(10)] ^= 1 << random.randrange(8)
    (columns,) = columns_of(FrameReader().feed(b"".join(frames), (0,)))
    assert set(np.flatnonzero(~columns.intact()).tolist()) == broken
    checked = random.sample(range(len(frames)), random.randrange(len(frames)))
    for place in sorted(checked):
        (one,) = columns_of(FrameReader().feed(bytes(frames[place]), (0,)))
        assert one.intact().all() == (place not in broken)


def test_broken_frames_of_a_run_are_found() -> None:
    frames = [bytearray(numbered(full_message(bytes(place)))) for place in range(1, 20)]
    frames[3][-1] ^= 1
    frames[7] = bytearray(encode(full_message()))
    (columns,) = columns_of(FrameReader().feed(b"".join(frames), (0,)))
    assert np.flatnonzero(~columns.intact()).tolist() == [3, 7]
    (none,) = columns_of([read_one(encode(full_message()))])
    assert none.intact().tolist() == [False]


@given(
    st.lists(st.tuples(st.binary(max_size=60), st.sampled_from([7, 8, 9]), st.integers(0, 40)), min_size=1, max_size=9)
)
def test_columns_of_hostile_frames_are_those_of_single_ones(made: list[tuple[bytes, int, int]]) -> None:
    data = b""
    for sections, tag, length in made:
        content = sections + struct.pack("!BI", tag, length) + bytes(24)
        frame = HEADER.pack(1, 2, 1, 4, 59 + len(content), 0, 3, 0, len(content), 1, 1, NOW, 0) + b"abc" + content
        data += frame
    found = FrameReader().feed(data, (0,))
    (columns,) = columns_of(found)
    assert columns.has_number.tolist() == [
        ledger_number_of(buffer, header, start) is not None for buffer, start, _, _, header in found
    ]


def test_a_reader_finds_numbered_frames_in_a_stream() -> None:
    frames = [numbered(full_message(bytes([place])), LedgerNumber(5, 1, place)) for place in range(6)]
    data, reader, found = b"".join(frames), FrameReader(), []
    for at in range(0, len(data), 50):
        found += reader.feed(data[at : at + 50], (0,) if at == 0 else ())
    assert not reader.drops
    assert [ledger_number_of(buffer, header, start) for buffer, start, _, _, header in found] == [
        LedgerNumber(5, 1, place) for place in range(6)
    ]
