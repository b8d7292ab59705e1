"""Tests that a body framed without a message gives the same bytes, and the same errors, as a message with that body."""

from collections import UserString
from collections.abc import Mapping
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.jms import (
    Byte,
    BytesMessage,
    Char,
    Double,
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
from fjm2.messages.types import to_stored_object, to_stored_property
from fjm2.messages.values import encode_value

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
    assert outcome(lambda: encode_given(properties)) == outcome(as_message, properties)


@given(st.dictionaries(st.text(max_size=80) | st.integers(), VALUES, max_size=5))
def test_items_are_encoded_as_those_of_a_map_message(items: dict[Any, Any]) -> None:
    encoded, wanted = outcome(encode_items, items), outcome(lambda: snapshot(MapMessage(items))[3])
    assert encoded == wanted or encoded[0] is wanted[0]  # errors of a message also name the item


COMMON = [None, True, False, 1, 1 << 31, -(1 << 40), 1 << 63, 0.5, "text", "", "é", b"", b"bytes"]
"""Values of the most frequent types, also at the edges of these types."""
RARE = [Byte(1), Short(2), Int(3), Long(4), Float(0.5), Double(0.5), Char("x"), bytearray(b"a"), [1], "\ud800"]
LONG = ["x" * 127, "x" * 128, "é" * 63, "é" * 64, "x" * 70_000]
_numbers = count()


def before_and_after(encode: Any, name: str, value: Any) -> list[Any]:
    """Return what a value is encoded as before its name is known, and after."""
    before = outcome(encode, {name: value})
    encode({name: 0})
    return [before, outcome(encode, {name: value})]


@pytest.mark.parametrize("value", [*COMMON, *RARE, *LONG])
def test_items_are_encoded_alike_whether_or_not_the_name_is_known(value: Any) -> None:
    name = f"item{next(_numbers)}"
    wanted = outcome(lambda: encode_value(name) + encode_value(to_stored_object(value)))
    assert before_and_after(encode_items, name, value) == [wanted, wanted]


@pytest.mark.parametrize("value", [*COMMON, *RARE, *LONG])
def test_properties_are_encoded_alike_whether_or_not_the_name_is_known(value: Any) -> None:
    name = f"property{next(_numbers)}"
    found = before_and_after(encode_given, name, value)
    wanted = outcome(as_message, {name: value})
    assert found == [wanted, wanted]
    if isinstance(wanted, bytes):
        assert wanted == len(name).to_bytes(2) + name.encode() + encode_value(to_stored_property(value))


def test_a_name_of_an_item_that_equals_a_known_one_is_refused_unless_it_is_a_text() -> None:
    assert encode_items({"known": 1}) == encode_items({"known": 1})
    with pytest.raises(ValueError, match="is not the name of an item"):
        encode_items({UserString("known"): 1})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("kind", "message", "body"),
    [(Kind.BYTES, BytesMessage(b"body"), b"body"), (Kind.TEXT, TextMessage("é"), "é".encode()), (0, Message(), b"")],
)
def test_a_body_is_framed_as_a_message_with_it(kind: int, message: Message, body: bytes) -> None:
    message.set_int_property("count", 7)
    properties, topic = snapshot(message)[1], Topic("prices")
    wanted = FrameWriter(5, 6).write(message, topic, PERSISTENT, 4, 1000, 2000)
    assert FrameWriter(5, 6).write_body(kind, properties, body, topic, PERSISTENT, 4, 1000, 2000) == wanted
