"""Tests of frames that are written together: they are byte for byte those that are written one by one."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.jms import Byte, BytesMessage, Float, Long, Message, Short, TextMessage, Topic
from fjm2.messages.batches import array_writer
from fjm2.messages.batches.array_writer import HEADERS, join_frames, write_frames
from fjm2.messages.batches.frame_array import FrameArray, FrameSettings
from fjm2.messages.batches.property_columns import PropertyColumns, rows_of
from fjm2.messages.errors import JMSError, MessageFormatError
from fjm2.messages.frame import FrameReader, FrameWriter, Parts
from fjm2.messages.header import HEADER, HEADER_BYTES, NO_TIMESTAMP, PERSISTENT, Kind
from fjm2.messages.message import snapshot
from fjm2.messages.properties import PropertyColumn

TOPIC = Topic("prices.eu")
NOW = 1_700_000_000_123

_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(allow_nan=False),
    st.text("abc", max_size=9),
)
_DTYPES = ["?", "i1", "i2", "i4", "i8", "f4", "f8", ">i4", ">f8", "u1"]


def test_fields_are_those_of_the_header() -> None:
    assert HEADERS.itemsize == HEADER_BYTES
    values = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)
    (found,) = np.frombuffer(HEADER.pack(*values), HEADERS)
    ignored = ("reserved", "marks")
    assert tuple(value for name, value in zip(HEADERS.names or (), found, strict=True) if name not in ignored) == values


def frames_one_by_one(
    bodies: list[Any], rows: list[dict[str, Any]], flags: int, expiration: int, change: Callable[[Message], None]
) -> list[Parts]:
    writer, frames = FrameWriter(77, 5), []
    for body, row in zip(bodies, rows, strict=True):
        message: Message
        if isinstance(body, str):
            message = TextMessage(body)
        else:
            message = BytesMessage()
            message.write_bytes(body)
        for name, value in row.items():
            message.set_object_property(name, value)
        change(message)
        frames.append(writer.write(message, TOPIC, flags, 6, NOW, expiration))
    return frames


def data_of(arrays: list[FrameArray]) -> bytes:
    return b"".join(one.data for one in arrays)


@given(st.data())
def test_frames_are_those_of_single_sends(data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 12))
    is_text, is_equal = data.draw(st.booleans()), data.draw(st.booleans())
    size = data.draw(st.integers(0, 700))
    texts = [f"{place:04}" * (size // 4) for place in range(count)]
    if not is_equal:
        texts = [text[: data.draw(st.integers(0, len(text)))] for text in texts]
    bodies: list[Any] = texts if is_text else [text.encode() for text in texts]
    properties: dict[str, PropertyColumn] = {}
    for place in range(data.draw(st.integers(0, 5))):
        match data.draw(st.sampled_from(["one", "list", "array"])):
            case "one":
                properties[f"p{place}"] = data.draw(_SCALARS)
            case "list":
                properties[f"p{place}"] = data.draw(st.lists(_SCALARS, min_size=count, max_size=count))
            case _:
                kind = data.draw(st.sampled_from(_DTYPES))
                values = data.draw(st.lists(st.integers(0, 100), min_size=count, max_size=count))
                properties[f"p{place}"] = np.array(values, kind)
    flags, expiration = (
        data.draw(st.sampled_from([0, PERSISTENT, NO_TIMESTAMP])),
        data.draw(st.sampled_from([0, 1 << 50])),
    )
    template = Message()
    template.correlation_id = data.draw(st.sampled_from([None, "c"]))
    template.type = data.draw(st.sampled_from([None, "t"]))

    def change(message: Message) -> None:
        message.correlation_id, message.type = template.correlation_id, template.type

    singles = frames_one_by_one(bodies, rows_of(properties, count), flags, expiration, change)
    writer = FrameWriter(77, 5)
    kind = int(Kind.TEXT if is_text else Kind.BYTES)
    settings = FrameSettings(TOPIC, kind, flags, 6, NOW, expiration, snapshot(template)[2])
    encoded = [text.encode() for text in texts]
    messages_max = data.draw(st.integers(1, 15))
    found = write_frames(writer, settings, encoded, PropertyColumns(properties, count), messages_max)
    assert writer.number == 5 + count
    ordered = all(not isinstance(value, list | tuple) for value in properties.values())
    expected = b"".join(head + body for head, body in singles)
    if ordered:  # columns of values of different sizes come last
        assert data_of(found) == expected
    reader = FrameReader()
    frames = reader.feed(data_of(found), (0,))
    assert not reader.drops
    assert [one for array in found for one in array.parts()] == [
        (buffer[start:body], buffer[body:end]) for buffer, start, body, end, _ in frames
    ]
    assert all(0 < len(array) <= messages_max for array in found)
    assert data_of(join_frames(singles, messages_max)) == expected
    assert [len(array) for array in join_frames(singles, messages_max)] == [len(array) for array in found]


def test_arrays_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_writer, "ARRAY_BYTES_MAX", 1000)
    settings = FrameSettings(TOPIC, int(Kind.BYTES), 0, 4, NOW, 0, b"")
    bodies = [bytes(size) for size in (10, 400, 400, 5000, 10, 10)]
    arrays = write_frames(FrameWriter(1), settings, bodies, PropertyColumns({}, 6))
    assert [len(one) for one in arrays] == [2, 1, 1, 2]
    assert all(len(one.data) <= 1000 or len(one) == 1 for one in arrays)


def test_types_of_columns_are_those_of_the_array() -> None:
    kinds = {"?": bool, "i1": Byte, "i2": Short, "i4": int, "i8": Long, "f4": Float, "f8": float, "u1": int}
    for kind, expected in kinds.items():
        (row,) = rows_of({"n": np.array([1], kind)}, 1)
        assert type(row["n"]) is expected


def test_wrong_columns_are_refused() -> None:
    for value, words in (
        ([1], "1 value for 2 messages"),
        (np.zeros((2, 2)), "2 dimensions"),
        (np.array(5), "0 dimensions"),
    ):
        for check in (PropertyColumns, rows_of):
            with pytest.raises(MessageFormatError, match=words):
                check({"n": value}, 2)
    with pytest.raises(JMSError, match="complex cannot be sent"):
        PropertyColumns({"n": np.array([1j, 2j])}, 2)
