"""Tests that a body framed without a message gives the same bytes, and the same errors, as a message with that body."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.jms import (
    Byte,
    BytesMessage,
    Char,
    Float,
    Int,
    Long,
    MapMessage,
    Message,
    MessageFormatError,
    Short,
    TextMessage,
    Topic,
)
from fjm2.messages.frame import FrameWriter
from fjm2.messages.header import PERSISTENT, Kind
from fjm2.messages.map_message import encode_items
from fjm2.messages.message import snapshot
from fjm2.messages.properties import encode_given

NAMES = st.sampled_from(["price", "symbol", "_x", "$9", "JMSXGroupID", "JMSXGroupSeq", "JMSFoo", "and", "1a", "", "é"])
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(1 << 64), max_value=1 << 64),
    st.floats(allow_nan=False),
    st.text(alphabet=st.characters(), max_size=80),
    st.sampled_from([Byte(1), Short(2), Int(3), Long(4), Float(0.5), Char("x"), b"\0", bytearray(b"a"), [1], "\ud800"]),
)


def outcome(function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except (ValueError, MessageFormatError) as error:
        return type(error), str(error)


def as_message(properties: Mapping[str, Any]) -> bytes:
    message = Message()
    for name, value in properties.items():
        message.set_object_property(name, value)
    return snapshot(message)[1]


@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_given_properties_are_encoded_as_those_of_a_message(properties: dict[str, Any]) -> None:
    assert outcome(lambda: encode_given(properties.items())) == outcome(as_message, properties)


@given(st.dictionaries(st.text(max_size=80) | st.integers(), VALUES, max_size=5))
def test_items_are_encoded_as_those_of_a_map_message(items: dict[Any, Any]) -> None:
    encoded = encode_items(items)
    if encoded is not None:
        assert encoded == snapshot(MapMessage(items))[3]


@pytest.mark.parametrize("value", [None, True, 1, -(1 << 40), 0.5, "text", b"bytes", ""])
def test_common_items_need_no_message(value: object) -> None:
    assert encode_items({"item": value}) == snapshot(MapMessage({"item": value}))[3]


@pytest.mark.parametrize(
    ("kind", "message", "body"),
    [(Kind.BYTES, BytesMessage(b"body"), b"body"), (Kind.TEXT, TextMessage("é"), "é".encode()), (0, Message(), b"")],
)
def test_a_body_is_framed_as_a_message_with_it(kind: int, message: Message, body: bytes) -> None:
    message.set_int_property("count", 7)
    properties, topic = snapshot(message)[1], Topic("prices")
    wanted = FrameWriter(5, 6).write(message, topic, PERSISTENT, 4, 1000, 2000)
    assert FrameWriter(5, 6).write_body(kind, properties, body, topic, PERSISTENT, 4, 1000, 2000) == wanted
