"""Tests of MapMessage and StreamMessage. Names of tests begin with the number of the case: B6 to B8."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from bodies import JAVA_NAMES, READABLE, TYPES, VALUES, expected, stream_of
from hypothesis import given
from hypothesis import strategies as st
from passing import passed

from fjm2.jms import (
    Byte,
    Char,
    Float,
    Long,
    MapMessage,
    MessageEOFError,
    MessageFormatError,
    NullValueError,
    NumberFormatError,
    Short,
    StreamMessage,
)
from fjm2.messages.types import type_name


@pytest.mark.parametrize("read", TYPES)
@pytest.mark.parametrize("kind", TYPES)
def test_b6_matrix_of_maps(kind: str, read: str) -> None:
    sent = MapMessage()
    getattr(sent, f"set_{kind}")("k", VALUES[kind])
    for message in (sent, passed(sent)):
        assert type_name(message["k"]) == JAVA_NAMES.get(kind, kind)
        if read in READABLE[kind]:
            value = getattr(message, f"get_{read}")("k")
            assert value == expected(kind, read)
            assert type(value) in (bool, int, float, str, bytes)
        else:
            with pytest.raises(MessageFormatError):
                getattr(message, f"get_{read}")("k")


@pytest.mark.parametrize("read", TYPES)
@pytest.mark.parametrize("kind", TYPES)
def test_b6_matrix_of_streams(kind: str, read: str) -> None:
    sent = StreamMessage()
    getattr(sent, f"write_{kind}")(VALUES[kind])
    message = passed(sent)
    if read in READABLE[kind]:
        assert getattr(message, f"read_{read}")() == expected(kind, read)
    else:
        with pytest.raises(MessageFormatError):
            getattr(message, f"read_{read}")()
        assert type_name(message.read_object()) == JAVA_NAMES.get(kind, kind)


@pytest.mark.parametrize("is_set", [True, False])
def test_b6_null_in_maps(is_set: bool) -> None:
    message = MapMessage()
    if is_set:
        message.set_object("k", None)
    assert message.item_exists("k") is is_set
    received = passed(message)
    _check_null(lambda read: getattr(message, f"get_{read}")("k"))
    _check_null(lambda read: getattr(received, f"get_{read}")("k"))


def test_b6_null_in_streams() -> None:
    def read_null(read: str) -> Any:
        return getattr(passed(stream_of(None)), f"read_{read}")()

    _check_null(read_null)


def _check_null(read: Callable[[str], Any]) -> None:
    assert [read(kind) for kind in ("string", "bytes", "object")] == [None] * 3
    assert read("boolean") is False
    for kind in ("byte", "short", "int", "long"):
        with pytest.raises(NumberFormatError):
            read(kind)
    for kind in ("float", "double", "char"):
        with pytest.raises(NullValueError):
            read(kind)


def test_b6_nulls_of_the_typed_setters() -> None:
    mapping, stream = MapMessage(), StreamMessage()
    mapping.set_string("s", None)
    mapping.set_bytes("b", None)
    stream.write_string(None)
    stream.write_bytes(None)
    received = passed(mapping)
    assert (received.get_string("s"), received.get_bytes("b")) == (None, None)
    row = passed(stream)
    assert (row.read_string(), row.read_bytes()) == (None, None)


def test_b6_floats_read_as_text_and_double() -> None:
    message = MapMessage()
    message.set_float("f", 0.1)
    assert (message.get_string("f"), message.get_double("f")) == ("0.1", 0.10000000149011612)


@pytest.mark.parametrize("name", ["", None, 5, b"x"])
def test_b7_items_need_a_name(name: Any) -> None:
    message = MapMessage()
    for kind in (*TYPES, "object"):
        with pytest.raises(ValueError, match="name"):
            getattr(message, f"set_{kind}")(name, VALUES.get(kind, 1))
    assert message.map_names() == set()


def test_b7_names_are_any_text_and_writing_twice_replaces() -> None:
    message = MapMessage()
    message.set_int("a b.c-1 NOT", 1)
    message.set_string("a b.c-1 NOT", "two")
    message.set_object("\0é", None)
    for either in (message, passed(message)):
        assert either.map_names() == {"a b.c-1 NOT", "\0é"}
        assert either.item_exists("\0é")
        assert not either.item_exists("a")
        assert either.get_string("a b.c-1 NOT") == "two"
    with pytest.raises(MessageFormatError):
        message.set_int("\ud800", 1)


def test_b7_a_map_message_is_a_mapping_to_be_read() -> None:
    message = MapMessage()
    message.set_int("k", 1)
    message.set_bytes("b", b"abcdef", 1, 3)
    assert isinstance(message, Mapping)
    assert (message["k"], message.get("none"), len(message), "k" in message) == (1, None, 2, True)
    assert dict(message) == {"k": 1, "b": b"bcd"} == {**message}
    with pytest.raises(KeyError):
        message["none"]
    with pytest.raises(TypeError):
        message["k"] = 2  # type: ignore[index]
    assert bool(MapMessage())
    assert MapMessage() != MapMessage()
    assert len({message, MapMessage()}) == 2


def test_b8_items_come_back_in_order_with_their_types() -> None:
    values = [True, Byte(1), Short(2), Char("c"), 3, Long(4), Float(0.5), 0.25, "s", b"b", None, 2**40, "", b""]
    message = passed(stream_of(*values))
    read = [message.read_object() for _ in values]
    assert [(type(value), value) for value in read[:-3]] == [(type(value), value) for value in values[:-3]]
    assert [type_name(value) for value in read[-3:]] == ["long", "String", "byte[]"]


def test_b8_a_byte_array_is_read_in_pieces() -> None:
    message = passed(stream_of(b"abcdef", 1))
    assert message.read_bytes(4) == b"abcd"
    for read in ("int", "string", "object", "boolean"):
        with pytest.raises(MessageFormatError):
            getattr(message, f"read_{read}")()
    assert message.read_bytes(4) == b"ef"
    assert message.read_int() == 1


def test_b8_a_last_piece_exactly_full_is_followed_by_one_end_report() -> None:
    message = passed(stream_of(b"abcdef", b"xy", 1))
    assert (message.read_bytes(3), message.read_bytes(3)) == (b"abc", b"def")
    with pytest.raises(MessageFormatError):
        message.read_object()
    assert message.read_bytes(3) is None
    assert (message.read_bytes(2), message.read_bytes(), message.read_int()) == (b"xy", None, 1)


def test_b8_the_rest_of_an_array_ends_it() -> None:
    message = passed(stream_of(b"abcdef", b"gh", 1))
    assert (message.read_bytes(1), message.read_bytes(), message.read_bytes(), message.read_int()) == (
        b"a",
        b"bcdef",
        b"gh",
        1,
    )


def test_b8_an_empty_array_is_not_null() -> None:
    message = passed(stream_of(b"", None, b"", 1))
    assert (message.read_bytes(), message.read_bytes(), message.read_bytes(5), message.read_int()) == (
        b"",
        None,
        b"",
        1,
    )


def test_b8_pieces_of_no_bytes() -> None:
    message = passed(stream_of(b"ab", b"", 1))
    assert (message.read_bytes(0), message.read_bytes(0), message.read_bytes(5)) == (b"", b"", b"ab")
    assert (message.read_bytes(0), message.read_bytes(0), message.read_int()) == (b"", None, 1)


def test_b8_reset_and_clear_forget_a_half_read_array() -> None:
    message = passed(stream_of(b"abc", 1))
    message.read_bytes(1)
    message.reset()
    assert message.read_object() == b"abc"
    message.reset()
    message.read_bytes(1)
    message.clear_body()
    message.write_int(7)
    message.reset()
    assert message.read_int() == 7


@given(st.binary(max_size=30), st.lists(st.integers(0, 8), max_size=20))
def test_b8_pieces_make_up_the_array(array: bytes, sizes: list[int]) -> None:
    message = stream_of(array, 77)
    message.reset()
    seen = b""
    for size in sizes:
        piece = message.read_bytes(size)
        if piece is None:
            break
        seen += piece
        if len(piece) < size:
            break
    else:
        seen += message.read_bytes() or b""
    assert seen == array
    assert message.read_int() == 77


BODY_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-128, 127).map(Byte),
    st.integers(-32768, 32767).map(Short),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1).map(Long),
    st.floats(width=32, allow_nan=False).map(Float),
    st.floats(allow_nan=False),
    st.characters(max_codepoint=0xFFFF).map(Char),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
    st.binary(max_size=10),
)


@given(st.lists(BODY_VALUES, max_size=8))
def test_streams_survive_encoding(values: list[Any]) -> None:
    message = passed(passed(stream_of(*values)))
    assert [(type(value), value) for value in (message.read_object() for _ in values)] == [
        (type(value), value) for value in values
    ]
    with pytest.raises(MessageEOFError):
        message.read_object()


@given(
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6), BODY_VALUES, max_size=6)
)
def test_maps_survive_encoding(items: dict[str, Any]) -> None:
    message = MapMessage()
    for name, value in items.items():
        message.set_object(name, value)
    received = dict(passed(message))
    assert {name: (type(value), value) for name, value in received.items()} == {
        name: (type(value), value) for name, value in items.items()
    }


def test_errors_of_reading_name_the_item_the_value_and_the_remedy() -> None:
    message = MapMessage({"price": 30, "data": b"x" * 1000, "none": None})
    with pytest.raises(
        MessageFormatError, match=r"^item 'price': 30 is of type int and cannot be read as double: send 30\.0, or read"
    ):
        message.get_double("price")
    with pytest.raises(MessageFormatError, match=r"^item 'data': b'x{60}'\.\.\. is of type byte\[\] and cannot be "):
        message.get_int("data")
    for name, state in (("none", "null"), ("other", "not set")):
        text = f"^item '{name}' is {state}: expected a value, or get_object, which returns None$"
        with pytest.raises(ValueError, match=text):
            message.get_int(name)
        with pytest.raises(TypeError, match=text):
            message.get_char(name)


def test_errors_of_reading_a_stream_show_the_value_and_the_remedy() -> None:
    message = StreamMessage()
    message.write_long(5)
    message.write_object(None)
    message.reset()
    with pytest.raises(MessageFormatError, match=r"^Long\(5\) is of type long and cannot be read as int: send an int"):
        message.read_int()
    assert message.read_long() == 5
    with pytest.raises(ValueError, match=r"^null is not a number: read it with read_object"):
        message.read_int()
