"""Tests of writing and reading trains of DATA."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import fuzz
import numpy as np
import pytest
import strategies
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from fjm2.norm.core.train import Train
from fjm2.norm.core.wire import (
    STREAM_HEADER,
    Application,
    Auth,
    Data,
    DataReader,
    DataRun,
    Fti,
    HeaderStamp,
    ObjectFlag,
    Unknown,
    decode,
    stream_fields,
)
from fjm2.norm.core.wire.data import header_dtype
from fjm2.norm.core.wire.layout import COMMON, FROM_RECEIVER, FROM_SENDER, OBJECT, STREAM, Field, dtype_of, struct_of

Draw = Callable[[SearchStrategy[Any]], Any]

HEADER = Data(
    source_id=0x01020304,
    instance_id=4242,
    grtt_q=120,
    backoff=4,
    gsize_q=2,
    flags=0,
    fec_id=5,
    object_id=7,
    payload_id=0,
    payload=b"",
    extensions=(Fti(fec_id=5, object_bytes=1 << 40, segment_bytes=64, block_segments=16, parity_segments=4),),
)
STREAM_OF_HEADER = replace(HEADER, flags=int(ObjectFlag.STREAM))
headers = strategies.fec_ids.flatmap(lambda fec_id: strategies.data_of(fec_id, payload=st.just(b"")))
"""Strategy for DATA without payload. It has the fields that all segments of a train share."""
stream_numbers = st.tuples(strategies.u16, strategies.u16, strategies.u32)
"""Strategy for the fields of a stream header: length, message start and offset."""
LAYOUTS = {
    "common": COMMON,
    "sender": (*COMMON, *FROM_SENDER),
    "object": (*COMMON, *FROM_SENDER, *OBJECT),
    "receiver": (*COMMON, *FROM_RECEIVER),
    "stream": STREAM,
}


@dataclass(frozen=True)
class Sent:
    """A train, and the messages that it contains."""

    messages: list[Data]
    segment_bytes: int

    @property
    def wire(self) -> bytes:
        return b"".join(message.encode() for message in self.messages)


def train_of(wire: bytes, segment_bytes: int) -> Train:
    return Train(np.frombuffer(wire, np.uint8), segment_bytes, fuzz.ADDRESS)


def read(wire: bytes, segment_bytes: int, reader: DataReader | None = None) -> list[Data | bytes]:
    return list(fuzz.unrolled(reader or DataReader(), train_of(wire, segment_bytes)))


def runs_of(wire: bytes, segment_bytes: int) -> list[DataRun | bytes]:
    return list(DataReader().read(train_of(wire, segment_bytes)))


@st.composite
def trains(draw: Draw) -> Sent:
    """Draw a train of DATA of one object. Its segments are equally long, except for an optional shorter last one."""
    first: Data = draw(strategies.fec_ids.flatmap(strategies.data_of))
    least = STREAM_HEADER.size if first.flags & ObjectFlag.STREAM else 0
    size = draw(st.integers(least + 1, 40))
    sizes = [size] * draw(st.integers(1, 12)) + ([draw(st.integers(least, size - 1))] if draw(st.booleans()) else [])
    payload_ids = strategies.payload_ids(first.fec_id)
    messages = [
        replace(
            first,
            sequence=(first.sequence + index) & 0xFFFF,
            payload_id=draw(payload_ids),
            payload=draw(st.binary(min_size=size, max_size=size)),
        )
        for index, size in enumerate(sizes)
    ]
    return Sent(messages, len(messages[0].encode()))


def sample(header: Data = HEADER, count: int = 6, tail_bytes: int = 0) -> Sent:
    """Return a simple train of `count` full segments, and a shorter last one if `tail_bytes` is given."""
    sizes = [64] * count + [tail_bytes] * (tail_bytes > 0)
    messages = [
        replace(header, sequence=(0xFFFD + index) & 0xFFFF, payload_id=index, payload=bytes([index]) * size)
        for index, size in enumerate(sizes)
    ]
    return Sent(messages, len(messages[0].encode()))


# Layouts


@pytest.mark.parametrize("fields", LAYOUTS.values(), ids=LAYOUTS)
@given(data=st.data())
def test_a_table_of_fields_is_the_same_as_struct_and_as_dtype(fields: tuple[Field, ...], data: st.DataObject) -> None:
    struct, dtype = struct_of(fields), dtype_of(fields)
    assert dtype.names == tuple(name for name, _ in fields)
    assert dtype.itemsize == struct.size
    wire = data.draw(st.binary(min_size=struct.size, max_size=struct.size))
    assert np.frombuffer(wire, dtype)[0].item() == struct.unpack(wire)
    assert np.array([struct.unpack(wire)], dtype).tobytes() == wire


@given(headers)
def test_the_header_of_data_is_the_same_as_message_and_as_dtype(message: Data) -> None:
    wire = message.encode()
    row = np.frombuffer(wire, header_dtype(message.fec_id, len(wire), False))[0]
    assert (row["version_type"], row["header_words"]) == (0x12, len(wire) // 4)
    for name in ("sequence", "source_id", "instance_id", "grtt_q", "flags", "fec_id", "object_id", "payload_id"):
        assert row[name] == getattr(message, name), name
    assert row["backoff_gsize"] == message.backoff << 4 | message.gsize_q
    assert row["extensions"].tobytes() == b"".join(extension.encode() for extension in message.extensions)


# Writing


@given(
    header=headers,
    sequence=strategies.u16 | st.integers(0xFFC0, 0xFFFF),
    rows=st.integers(1, 12),
    room=st.integers(0, 40),
    data=st.data(),
)
def test_stamps_write_the_same_bytes_as_messages(
    header: Data, sequence: int, rows: int, room: int, data: st.DataObject
) -> None:
    is_stream = bool(header.flags & ObjectFlag.STREAM)
    header_bytes = len(header.encode()) + STREAM_HEADER.size * is_stream
    row_bytes = header_bytes + room
    first = data.draw(st.integers(0, rows - 1))
    count = data.draw(st.integers(1, rows - first))
    payload_ids = data.draw(st.lists(strategies.payload_ids(header.fec_id), min_size=count, max_size=count))
    numbers = data.draw(st.lists(stream_numbers, min_size=count, max_size=count))
    # Fill the buffer with bytes that must not change outside of the headers: payload, other rows, spare bytes.
    before = bytes(index % 251 for index in range(rows * row_bytes + data.draw(st.integers(0, row_bytes - 1))))
    buffer = np.frombuffer(before, np.uint8).copy()

    stamp = HeaderStamp(buffer, row_bytes, header)
    assert stamp.row_bytes == row_bytes
    stamp.stamp(sequence, np.array(payload_ids, np.uint64), first)
    if is_stream:
        lengths, starts, offsets = np.array(numbers, np.uint32).T
        stamp.stamp_stream(lengths, starts, offsets, first)

    expected = bytearray(before)
    for index in range(count):
        at = (first + index) * row_bytes
        payload = before[at + header_bytes : at + row_bytes]
        message = replace(
            header,
            sequence=(sequence + index) & 0xFFFF,
            payload_id=payload_ids[index],
            payload=STREAM_HEADER.pack(*numbers[index]) + payload if is_stream else payload,
        )
        expected[at : at + row_bytes] = message.encode()
    assert buffer.tobytes() == expected


def test_a_second_train_is_written_over_the_first() -> None:
    buffer = np.zeros(4 * 100, np.uint8)
    stamp = HeaderStamp(buffer, 100, HEADER)
    stamp.stamp(7, np.arange(4, dtype=np.uint32))
    stamp.stamp(0xFFFF, np.arange(10, 12, dtype=np.uint32))
    items = read(buffer.tobytes(), 100)
    assert [(item.sequence, item.payload_id) for item in items if isinstance(item, Data)] == [
        (0xFFFF, 10),
        (0, 11),
        (9, 2),
        (10, 3),
    ]


def test_a_preset_header_stands_in_all_that_follow() -> None:
    buffer = np.zeros(4 * 100, np.uint8)
    stamp = HeaderStamp(buffer, 100, HEADER)
    stamp.stamp(0, np.arange(2, dtype=np.uint32))
    stamp.preset(replace(HEADER, grtt_q=99))
    stamp.stamp(2, np.arange(2, 4, dtype=np.uint32), 2)
    items = read(buffer.tobytes(), 100)
    assert [item.grtt_q for item in items if isinstance(item, Data)] == [120, 120, 99, 99]


def test_a_preset_header_of_another_length_is_refused() -> None:
    stamp = HeaderStamp(np.zeros(100, np.uint8), 100, HEADER)
    with pytest.raises(ValueError, match="header of 20 bytes: expected 32"):
        stamp.preset(replace(HEADER, extensions=()))


def test_one_length_and_one_message_start_serve_a_whole_train() -> None:
    buffer = np.zeros(3 * 100, np.uint8)
    stamp = HeaderStamp(buffer, 100, STREAM_OF_HEADER)
    stamp.stamp(0, np.arange(3, dtype=np.uint32))
    stamp.stamp_stream(60, 0, np.arange(3, dtype=np.uint32) * np.uint32(60))
    (run,) = runs_of(buffer.tobytes(), 100)
    assert isinstance(run, DataRun)
    rows = run.headers[["length", "message_start", "offset"]].tolist()
    assert rows == [(60, 0, 0), (60, 0, 60), (60, 0, 120)]


@pytest.mark.parametrize(("header", "least"), [(HEADER, 32), (STREAM_OF_HEADER, 40)])
def test_rows_that_cannot_hold_the_header_are_refused(header: Data, least: int) -> None:
    HeaderStamp(np.zeros(least, np.uint8), least, header)
    with pytest.raises(ValueError, match=f"row_bytes={least - 1}: expected {least} at least"):
        HeaderStamp(np.zeros(least, np.uint8), least - 1, header)


# Reading


@given(trains())
def test_a_train_of_one_object_is_one_run(sent: Sent) -> None:
    (run,) = runs_of(sent.wire, sent.segment_bytes)
    assert isinstance(run, DataRun)
    assert run.count == len(sent.messages)
    assert run.header.is_stream == bool(sent.messages[0].flags & ObjectFlag.STREAM)
    assert read(sent.wire, sent.segment_bytes) == sent.messages


@given(trains())
def test_a_train_may_be_split_at_any_border(sent: Sent) -> None:
    reader = DataReader()
    for border in range(0, len(sent.wire) + 1, sent.segment_bytes):
        pieces = (sent.wire[:border], sent.wire[border:])
        found = [message for piece in pieces for message in read(piece, sent.segment_bytes, reader)]
        assert found == sent.messages


@given(trains(), st.randoms())
def test_segments_may_come_in_any_order_and_twice(sent: Sent, random: Any) -> None:
    full = [message for message in sent.messages if len(message.encode()) == sent.segment_bytes]
    mixed = full * 2
    random.shuffle(mixed)
    wire = b"".join(message.encode() for message in mixed)
    (run,) = runs_of(wire, sent.segment_bytes)
    assert isinstance(run, DataRun)
    assert read(wire, sent.segment_bytes) == mixed


@given(trains(), st.data())
def test_a_foreign_datagram_parts_a_train_in_two_runs(sent: Sent, data: st.DataObject) -> None:
    foreign = data.draw(
        st.binary(min_size=sent.segment_bytes, max_size=sent.segment_bytes).filter(lambda raw: raw[0] != 0x12)
    )
    at = data.draw(st.integers(0, len(sent.messages) - 1))
    wires = [message.encode() for message in sent.messages]
    wire = b"".join([*wires[:at], foreign, *wires[at:]])
    items = runs_of(wire, sent.segment_bytes)
    counts = [item.count if isinstance(item, DataRun) else 0 for item in items]
    assert counts == [*([at] if at else []), 0, len(wires) - at]
    assert read(wire, sent.segment_bytes) == [*sent.messages[:at], foreign, *sent.messages[at:]]


def test_a_command_inside_a_train_comes_as_its_bytes() -> None:
    sent = sample()
    command = Application(
        source_id=1, instance_id=4242, grtt_q=1, backoff=4, gsize_q=2, content=bytes(sent.segment_bytes - 16)
    )
    wire = sent.wire + command.encode() + sent.wire
    before, foreign, after = runs_of(wire, sent.segment_bytes)
    assert isinstance(before, DataRun)
    assert isinstance(after, DataRun)
    assert foreign == command.encode()


@given(trains(), strategies.fec_ids.flatmap(strategies.data_of), st.booleans())
def test_mixed_trains_read_as_their_datagrams_do(sent: Sent, other: Data, reverse: bool) -> None:
    room = sent.segment_bytes - len(replace(other, payload=b"").encode())
    others = [replace(other, payload=bytes(max(room, 0)))] * 2
    full = [message for message in sent.messages if len(message.encode()) == sent.segment_bytes]
    mixed = [*others, *full, *others] if reverse else [*full, *others, *full]
    fuzz.check_train(b"".join(message.encode() for message in mixed), sent.segment_bytes, DataReader())


@pytest.mark.parametrize(
    "change",
    [
        {"source_id": 9},
        {"instance_id": 9},
        {"grtt_q": 9},
        {"backoff": 9},
        {"gsize_q": 9},
        {"flags": int(ObjectFlag.REPAIR)},
        {"flags": int(ObjectFlag.STREAM)},
        {"object_id": 9},
        {"extensions": (Fti(fec_id=5, object_bytes=1, segment_bytes=64, block_segments=16),)},
        {"extensions": (Unknown(9, bytes(10)),)},
        {"fec_id": 2, "extensions": (Unknown(9, bytes(10)),)},
    ],
    ids=str,
)
def test_another_header_begins_another_run(change: dict[str, Any]) -> None:
    sent = sample(count=3)
    other = sample(replace(HEADER, **change), count=2)
    assert other.segment_bytes == sent.segment_bytes
    items = runs_of(sent.wire + other.wire + sent.wire, sent.segment_bytes)
    assert [item.count for item in items if isinstance(item, DataRun)] == [3, 2, 3]
    assert read(sent.wire + other.wire, sent.segment_bytes) == sent.messages + other.messages


@pytest.mark.parametrize("header", [HEADER, STREAM_OF_HEADER], ids=["object", "stream"])
def test_a_shorter_last_segment_is_the_tail(header: Data) -> None:
    sent = sample(header, count=4, tail_bytes=20)
    (run,) = runs_of(sent.wire, sent.segment_bytes)
    assert isinstance(run, DataRun)
    assert (run.count, len(run.payloads)) == (5, 4)
    assert run.tail.tobytes() == sent.messages[-1].payload


@given(st.lists(stream_numbers, min_size=1, max_size=12), st.integers(0, 30))
def test_stream_fields_are_those_of_every_segment(numbers: list[tuple[int, int, int]], room: int) -> None:
    messages = [replace(STREAM_OF_HEADER, payload=STREAM_HEADER.pack(*row) + bytes(room)) for row in numbers]
    wire = b"".join(message.encode() for message in messages)
    (run,) = runs_of(wire, len(wire) // len(messages))
    assert isinstance(run, DataRun)
    fields = stream_fields(run.payloads)
    lengths, starts, offsets = fields["length"], fields["message_start"], fields["offset"]
    assert list(zip(lengths.tolist(), starts.tolist(), offsets.tolist(), strict=True)) == numbers


def test_a_lone_short_segment_is_all_tail() -> None:
    wire = replace(HEADER, payload=b"end").encode()
    (run,) = runs_of(wire, 1400)
    assert isinstance(run, DataRun)
    assert (run.count, len(run.payloads), run.tail.tobytes()) == (1, 0, b"end")


def test_segments_without_payload_are_read() -> None:
    wire = HEADER.encode()
    assert read(wire * 3, len(wire)) == [HEADER] * 3


@pytest.mark.parametrize("header", [HEADER, STREAM_OF_HEADER], ids=["object", "stream"])
def test_runts_come_as_their_bytes(header: Data) -> None:
    sent = sample(header)
    header_bytes = sent.segment_bytes - 64 + (8 if header is STREAM_OF_HEADER else 0)
    for size in range(1, header_bytes):
        runt = sent.wire[:size]
        assert read(sent.wire + runt, sent.segment_bytes) == [*sent.messages, runt]
        assert read(runt, sent.segment_bytes) == [runt]
    assert isinstance(read(sent.wire[:header_bytes], sent.segment_bytes)[0], Data)


@pytest.mark.parametrize("segment_bytes", [1, 7, 8, 19, 20, 31])
def test_segments_shorter_than_the_header_come_as_their_bytes(segment_bytes: int) -> None:
    wire = sample().wire
    assert read(wire, segment_bytes) == list(fuzz.datagrams(wire, segment_bytes))


def test_an_empty_train_holds_nothing() -> None:
    assert runs_of(b"", 100) == []


@pytest.mark.parametrize(
    ("at", "value"),
    [(0, 0x22), (0, 0x11), (0, 0x17), (1, 0), (1, 4), (1, 255), (13, 3), (21, 0), (21, 4), (21, 1)],
)
def test_broken_headers_come_as_their_bytes(at: int, value: int) -> None:
    sent = sample(count=1)
    broken = bytearray(sent.wire)
    broken[at] = value
    for wire in (bytes(broken), sent.wire + bytes(broken), bytes(broken) + sent.wire):
        assert bytes(broken) in read(wire, sent.segment_bytes)
        fuzz.check_train(wire, sent.segment_bytes, DataReader())


def test_a_header_without_its_payload_id_does_not_pass_for_one_that_is_remembered() -> None:
    message = replace(HEADER, fec_id=129, extensions=(), payload=bytes(40))
    wire = message.encode()
    broken = bytearray(wire)
    broken[1] = 5  # the header ends in the middle of the payload id
    assert read(wire + bytes(broken) * 2 + wire, len(wire)) == [message, bytes(broken), bytes(broken), message]


def test_arrays_are_views_into_the_train() -> None:
    sent = sample(STREAM_OF_HEADER, tail_bytes=20)
    train = train_of(sent.wire, sent.segment_bytes)
    (run,) = DataReader().read(train)
    assert isinstance(run, DataRun)
    for array in (run.headers, run.payloads, run.tail):
        assert np.shares_memory(array, train.data)


def test_a_run_has_its_object_transmission_information() -> None:
    expected = HEADER.extensions[0]
    for extensions in (HEADER.extensions, (Unknown(0, bytes(2)), expected), (expected, Auth(1, b"\x10\x00"))):
        (run,) = runs_of(replace(HEADER, extensions=extensions).encode(), 100)
        assert isinstance(run, DataRun)
        assert run.header.fti == expected
    (run,) = runs_of(replace(HEADER, extensions=()).encode(), 100)
    assert isinstance(run, DataRun)
    assert run.header.fti is None


def test_a_reader_that_has_seen_many_senders_still_reads_each() -> None:
    reader = DataReader()
    senders = [sample(replace(HEADER, source_id=source_id), count=2) for source_id in range(200)]
    for _ in range(2):
        for sent in senders:
            assert read(sent.wire, sent.segment_bytes, reader) == sent.messages


@given(st.binary(max_size=400), st.integers(1, 450))
@example(HEADER.encode() * 3, 1)
@example(HEADER.encode(), 1 << 40)
def test_a_reader_goes_once_over_any_bytes(wire: bytes, segment_bytes: int) -> None:
    fuzz.check_train(wire, segment_bytes, DataReader())


@given(st.lists(trains() | st.binary(max_size=60), min_size=1, max_size=4), st.data())
def test_a_reader_goes_once_over_trains_cut_at_wrong_places(parts: list[Sent | bytes], data: st.DataObject) -> None:
    wire = b"".join(part if isinstance(part, bytes) else part.wire for part in parts)
    sizes = [part.segment_bytes for part in parts if isinstance(part, Sent)]
    segment_bytes = data.draw(st.sampled_from([*sizes, 24, 32]) | st.integers(1, 200))
    fuzz.check_train(wire, segment_bytes, DataReader())


def test_readers_agree_with_decode() -> None:
    sent = sample(STREAM_OF_HEADER, tail_bytes=9)
    datagrams = fuzz.datagrams(sent.wire, sent.segment_bytes)
    assert read(sent.wire, sent.segment_bytes) == [decode(datagram) for datagram in datagrams]
