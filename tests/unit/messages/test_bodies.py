"""Bodies: the rows B1 to B13 of the message model."""

import math
import pickle
import struct
from collections import OrderedDict
from collections.abc import Callable, Mapping
from enum import IntEnum
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from passing import encode, passed, receive

from fjm2.jms import (
    Byte,
    BytesMessage,
    Char,
    Float,
    JMSSecurityError,
    Long,
    MapMessage,
    Message,
    MessageEOFError,
    MessageFormatError,
    MessageNotReadableError,
    MessageNotWriteableError,
    NullValueError,
    NumberFormatError,
    ObjectMessage,
    PickleCodec,
    SafeCodec,
    Short,
    StreamMessage,
    TextMessage,
)
from fjm2.messages.object_codec import DEPTH_MAX
from fjm2.messages.types import type_name

KINDS = (Message, TextMessage, BytesMessage, MapMessage, StreamMessage, ObjectMessage)
TYPES = ("boolean", "byte", "short", "char", "int", "long", "float", "double", "string", "bytes")
VALUES: dict[str, Any] = {
    "boolean": True,
    "byte": 12,
    "short": -300,
    "char": "x",
    "int": 70_000,
    "long": -5_000_000_000,
    "float": 0.5,
    "double": 0.1,
    "string": "17",
    "bytes": b"\0\xff",
}
READABLE = {
    "boolean": {"boolean", "string"},
    "byte": {"byte", "short", "int", "long", "string"},
    "short": {"short", "int", "long", "string"},
    "char": {"char", "string"},
    "int": {"int", "long", "string"},
    "long": {"long", "string"},
    "float": {"float", "double", "string"},
    "double": {"double", "string"},
    "string": {"boolean", "byte", "short", "int", "long", "float", "double", "string"},
    "bytes": {"bytes"},
}
AS_TEXT = {
    "boolean": "true",
    "byte": "12",
    "short": "-300",
    "char": "x",
    "int": "70000",
    "long": "-5000000000",
    "float": "0.5",
    "double": "0.1",
    "string": "17",
}
JAVA_NAMES = {"string": "String", "bytes": "byte[]"}
FROM_TEXT: dict[str, Any] = {"boolean": False, "string": "17"}


def expected(kind: str, read: str) -> Any:
    if read == "string" and kind != "string":
        return AS_TEXT[kind]
    return FROM_TEXT.get(read, 17) if kind == "string" else VALUES[kind]


def stream_of(*values: Any) -> StreamMessage:
    message = StreamMessage()
    for value in values:
        message.write_object(value)
    return message


def bytes_of(data: bytes) -> BytesMessage:
    message = BytesMessage()
    message.write_bytes(data)
    return message


@pytest.mark.parametrize("kind", KINDS)
def test_b1_a_message_arrives_as_the_kind_it_was_sent(kind: type[Message]) -> None:
    assert type(passed(kind())) is kind


def test_b1_subclasses_of_users_arrive_as_what_they_derive_from() -> None:
    class Order(TextMessage):
        __slots__ = ()

    assert type(receive(encode(Order("x")))) is TextMessage


WRITES: list[tuple[Message, Callable[[Any], None]]] = [
    (TextMessage("x"), lambda message: setattr(message, "text", "y")),
    (ObjectMessage(1), lambda message: setattr(message, "object", 2)),
    *(
        (MapMessage(), lambda message, kind=kind: getattr(message, f"set_{kind}")("k", VALUES[kind]))  # type: ignore[misc]
        for kind in TYPES
    ),
    (MapMessage(), lambda message: message.set_object("k", 1)),
    *(
        (StreamMessage(), lambda message, kind=kind: getattr(message, f"write_{kind}")(VALUES[kind]))  # type: ignore[misc]
        for kind in TYPES
    ),
    (StreamMessage(), lambda message: message.write_object(1)),
    *(
        (BytesMessage(), lambda message, kind=kind: getattr(message, f"write_{kind}")(VALUES[kind]))  # type: ignore[misc]
        for kind in TYPES
        if kind != "string"
    ),
    (BytesMessage(), lambda message: message.write_utf("x")),
    (BytesMessage(), lambda message: message.write_object(1)),
]


@pytest.mark.parametrize(("sent", "write"), WRITES)
def test_b2_received_bodies_are_read_only_until_cleared(sent: Message, write: Callable[[Any], None]) -> None:
    sent.set_int_property("p", 1)
    message = passed(sent)
    with pytest.raises(MessageNotWriteableError):
        write(message)
    message.clear_body()
    write(message)
    assert message.get_int_property("p") == 1
    with pytest.raises(MessageNotWriteableError):
        message.set_int_property("p", 2)


def test_b2_clear_body_gives_the_body_of_a_new_message() -> None:
    text, mapping, thing = passed(TextMessage("x")), passed(MapMessage()), passed(ObjectMessage(1))
    for message in (text, mapping, thing):
        message.clear_body()
    assert (text.text, dict(mapping), thing.object) == (None, {}, None)
    for sequence in (passed(bytes_of(b"x")), passed(stream_of(1))):
        sequence.clear_body()
        with pytest.raises(MessageNotReadableError):
            sequence.read_int()
        sequence.write_int(5)
        assert passed(sequence).read_int() == 5


def test_b3_new_sequences_are_write_only_until_reset() -> None:
    for message in (bytes_of(b"\0\0\0\5"), stream_of(5)):
        for read in ("boolean", "byte", "short", "char", "int", "long", "float", "double", "bytes"):
            with pytest.raises(MessageNotReadableError):
                getattr(message, f"read_{read}")()
        message.reset()
        assert message.read_int() == 5
        with pytest.raises(MessageNotWriteableError):
            message.write_int(6)
        message.reset()
        assert message.read_int() == 5


def test_b3_unreadable_ways_of_one_kind_only() -> None:
    for call in ("read_unsigned_byte", "read_unsigned_short", "read_utf"):
        with pytest.raises(MessageNotReadableError):
            getattr(BytesMessage(), call)()
    with pytest.raises(MessageNotReadableError):
        BytesMessage().body_length  # noqa: B018
    for call in ("read_string", "read_object"):
        with pytest.raises(MessageNotReadableError):
            getattr(StreamMessage(), call)()


@pytest.mark.parametrize(
    "call",
    ["boolean", "byte", "unsigned_byte", "short", "unsigned_short", "char", "int", "long", "float", "double", "utf"],
)
def test_b4_bytes_past_the_end(call: str) -> None:
    message = passed(bytes_of(b""))
    with pytest.raises(MessageEOFError):
        getattr(message, f"read_{call}")()
    assert isinstance(MessageEOFError(), EOFError)


def test_b4_a_value_cut_short_is_past_the_end_and_moves_nothing() -> None:
    message = passed(bytes_of(b"\0\5abc"))
    for call in ("read_long", "read_double", "read_utf"):
        with pytest.raises(MessageEOFError):
            getattr(message, call)()
    assert message.read_unsigned_short() == 5
    assert message.read_bytes() == b"abc"


@pytest.mark.parametrize("read", [*TYPES, "object"])
def test_b4_streams_past_the_end(read: str) -> None:
    message = passed(stream_of(1))
    message.read_int()
    with pytest.raises(MessageEOFError):
        getattr(message, f"read_{read}")()


def test_b5_the_position_is_unchanged_after_an_error() -> None:
    message = passed(stream_of("no number", b"x", 70_000, None))
    for read in ("int", "byte", "double"):
        with pytest.raises(NumberFormatError):
            getattr(message, f"read_{read}")()
    with pytest.raises(MessageFormatError):
        message.read_bytes()
    assert message.read_string() == "no number"
    with pytest.raises(MessageFormatError):
        message.read_string()
    assert message.read_bytes() == b"x"
    with pytest.raises(MessageFormatError):
        message.read_short()
    assert message.read_int() == 70_000
    with pytest.raises(NumberFormatError):
        message.read_int()
    with pytest.raises(NullValueError):
        message.read_double()
    assert message.read_string() is None


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
def test_b7_items_have_names(name: Any) -> None:
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


def test_b9_values_lie_as_data_output_stream_writes_them() -> None:
    message = BytesMessage()
    message.write_boolean(True)
    message.write_byte(-2)
    message.write_short(-2)
    message.write_char("é")
    message.write_int(-2)
    message.write_long(-2)
    message.write_float(0.1)
    message.write_double(0.1)
    message.write_utf("é\0")
    message.write_bytes(b"abcdef", 2, 3)
    laid = struct.pack("!?bhHiqfd", True, -2, -2, 0xE9, -2, -2, 0.1, 0.1) + b"\0\4\xc3\xa9\xc0\x80cde"
    received = passed(message)
    assert received.body_length == len(laid)
    assert received.read_boolean() is True
    assert [received.read_byte(), received.read_short(), received.read_char()] == [-2, -2, "é"]
    assert [received.read_int(), received.read_long()] == [-2, -2]
    assert [received.read_float(), received.read_double()] == [0.10000000149011612, 0.1]
    assert (received.read_utf(), received.read_bytes(10)) == ("é\0", b"cde")
    assert received.body_length == len(laid)
    received.reset()
    assert received.read_bytes() == laid


def test_b9_unsigned_reads_and_pieces() -> None:
    message = passed(bytes_of(b"\xff\xff\xfe\x02abcd"))
    assert (message.read_unsigned_byte(), message.read_unsigned_short()) == (255, 0xFFFE)
    assert message.read_boolean() is True
    assert (message.read_bytes(3), message.read_bytes(0), message.read_bytes(3)) == (b"abc", b"", b"d")
    assert (message.read_bytes(3), message.read_bytes()) == (None, None)


@pytest.mark.parametrize(
    ("text", "encoded"),
    [
        ("", b""),
        ("abc", b"abc"),
        ("\0", b"\xc0\x80"),
        ("é€", b"\xc3\xa9\xe2\x82\xac"),
        ("\U0001f600", b"\xed\xa0\xbd\xed\xb8\x80"),
        ("\ud83d", b"\xed\xa0\xbd"),
    ],
)
def test_b9_strings_are_modified_utf8(text: str, encoded: bytes) -> None:
    message = BytesMessage()
    message.write_utf(text)
    received = passed(message)
    assert received.get_body(bytes) == struct.pack("!H", len(encoded)) + encoded
    assert received.read_utf() == text


@given(st.text())
def test_b9_strings_survive(text: str) -> None:
    message = BytesMessage()
    message.write_utf(text)
    message.reset()
    assert message.read_utf() == text
    assert message.body_length == 2 + sum(
        (1 if 0 < ord(unit) < 0x80 else 2 if ord(unit) < 0x800 else 3 if ord(unit) < 0x10000 else 6) for unit in text
    )


def test_b9_strings_take_65535_bytes_at_most() -> None:
    message = BytesMessage()
    message.write_utf("\0" * 0x7FFF + "x")
    with pytest.raises(MessageFormatError):
        message.write_utf("\0" * 0x8000)
    with pytest.raises(MessageFormatError):
        message.write_utf(None)  # type: ignore[arg-type]
    received = passed(message)
    assert received.read_utf() == "\0" * 0x7FFF + "x"
    assert received.read_bytes() is None


@pytest.mark.parametrize("encoded", [b"\xff", b"\xc3", b"\xf0\x9f\x98\x80", b"\xe2\x82", b"\xc1\x81"])
def test_b9_strings_that_are_none(encoded: bytes) -> None:
    message = passed(bytes_of(struct.pack("!H", len(encoded)) + encoded))
    with pytest.raises(MessageFormatError):
        message.read_utf()
    assert message.read_unsigned_short() == len(encoded)


def test_b9_null_is_not_allowed() -> None:
    with pytest.raises(NullValueError):
        BytesMessage().write_object(None)


def test_b10_write_object_takes_the_primitive_types() -> None:
    message = BytesMessage()
    values = [True, Byte(1), Short(2), Char("c"), 3, Long(4), 2**40, Float(0.5), 0.25, "s", b"b", bytearray(b"c")]
    for value in values:
        message.write_object(value)
    message.reset()
    assert message.read_bytes() == struct.pack("!?bhHiqqfd", True, 1, 2, 99, 3, 4, 2**40, 0.5, 0.25) + b"\0\1sbc"


@pytest.mark.parametrize("value", [[], {}, object(), 1j, 2**63, {1}, Fraction(1, 2)])
def test_b10_other_objects_are_refused(value: Any) -> None:
    for message in (BytesMessage(), StreamMessage()):
        with pytest.raises(MessageFormatError):
            message.write_object(value)
    with pytest.raises(MessageFormatError):
        MapMessage().set_object("k", value)


def test_b10_values_are_copied_in() -> None:
    data = bytearray(b"abc")
    row, raw, mapping = StreamMessage(), BytesMessage(), MapMessage()
    for view in (data, memoryview(data)):
        row.write_bytes(view)
        raw.write_bytes(view)
        mapping.set_bytes("k", view)
        mapping.set_object("o", view)
    data[:] = b"xyz"
    assert passed(row).read_bytes() == b"abc"
    assert passed(raw).read_bytes() == b"abcabc"
    assert dict(passed(mapping)) == {"k": b"abc", "o": b"abc"}


@pytest.mark.parametrize(("offset", "length"), [(-1, 1), (0, 4), (4, 0), (1, -1), (2, 2)])
def test_b10_parts_of_arrays_lie_within_them(offset: int, length: int) -> None:
    for write in (BytesMessage().write_bytes, StreamMessage().write_bytes):
        with pytest.raises(ValueError, match="not within 3 bytes"):
            write(b"abc", offset, length)
    for value in ("text", 5, [1]):
        with pytest.raises(MessageFormatError):
            BytesMessage().write_bytes(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("boolean", 1),
        ("byte", 128),
        ("byte", True),
        ("short", 2**15),
        ("char", "ab"),
        ("int", 2**31),
        ("int", 1.0),
        ("long", 2**63),
        ("float", "1"),
        ("double", None),
    ],
)
def test_b10_typed_writes_take_their_type_only(kind: str, value: Any) -> None:
    for message in (BytesMessage(), StreamMessage()):
        with pytest.raises(MessageFormatError):
            getattr(message, f"write_{kind}")(value)
    with pytest.raises(MessageFormatError):
        getattr(MapMessage(), f"set_{kind}")("k", value)


@pytest.mark.parametrize("text", [None, "", "plain", "\0\U0001f600é", "x" * 100_000])
def test_b11_any_text_and_none(text: str | None) -> None:
    for message in (TextMessage(text), passed(TextMessage(text))):
        assert message.text == text


def test_b11_what_is_no_text() -> None:
    message = TextMessage("kept")
    for value in ("\ud800", b"x", 5):
        with pytest.raises(MessageFormatError):
            message.text = value  # type: ignore[assignment]
    assert message.text == "kept"


class Colour(IntEnum):
    RED = 1


SAFE_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
    | st.binary(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text("ab", max_size=3) | st.integers() | st.tuples(st.booleans()), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(SAFE_VALUES)
def test_b12_objects_survive_the_way(value: object) -> None:
    received = passed(ObjectMessage(value)).object
    assert received == value
    assert repr(received) == repr(value)


def test_b12_objects_are_serialised_when_they_are_set() -> None:
    value = {"a": [1]}
    message = ObjectMessage(value)
    value["a"].append(2)
    assert message.object == {"a": [1]}
    restored = message.object
    assert isinstance(restored, dict)
    restored["b"] = 1
    assert message.object == {"a": [1]}


@pytest.mark.parametrize(
    "value", [object(), {1}, Colour.RED, Byte(1), OrderedDict(a=1), [1j], {"k": open}, "\ud800", ["\udfff"]]
)
def test_b12_what_cannot_be_serialised(value: object) -> None:
    message = ObjectMessage("kept")
    with pytest.raises(MessageFormatError):
        message.object = value
    assert message.object == "kept"


def test_b12_depth_is_limited_on_both_sides() -> None:
    nested: list[Any] = []
    for _ in range(DEPTH_MAX):
        nested = [nested]
    assert passed(ObjectMessage(nested)).object == nested
    with pytest.raises(MessageFormatError):
        ObjectMessage([nested])
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(MessageFormatError):
        ObjectMessage(endless)
    with pytest.raises(MessageFormatError):
        SafeCodec().decode(b"\0" + b"\7\0\0\0\1" * 100_000)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        b"\0\x63",
        b"\0\x0a\0\0\0\0",
        b"\0\3\0\0",
        b"\0\3\0\0\0\5ab",
        b"\0\4\0",
        b"\0\5\0\0\0\1\xff",
        b"\0\7\xff\xff\xff\xff",
        b"\0\x09\0\0\0\1\7\0\0\0\0\0",
        b"\0\0\0",
        b"\2abc",
    ],
)
def test_b12_what_cannot_be_restored(data: bytes) -> None:
    with pytest.raises(MessageFormatError):
        SafeCodec().decode(data)


class Point:
    def __init__(self, x: int) -> None:
        self.x = x


class Explosive:
    def __reduce__(self) -> tuple[Any, ...]:
        return eval, ("exploded.append(1)",)


exploded: list[int] = []


def test_b12_pickles_are_refused_unless_asked_for() -> None:
    sent = ObjectMessage(Point(3), PickleCodec([Point]))
    received = passed(sent)
    with pytest.raises(JMSSecurityError):
        received.object  # noqa: B018
    with pytest.raises(JMSSecurityError):
        received.get_body(Point)
    received.codec = PickleCodec([Point])
    assert received.get_body(Point).x == 3  # type: ignore[union-attr]


def test_b12_pickles_are_made_of_named_classes_only() -> None:
    for value, codec in ((Point(3), PickleCodec([])), (Explosive(), PickleCodec([Point]))):
        received = passed(ObjectMessage(value, PickleCodec([])))
        received.codec = codec
        with pytest.raises(JMSSecurityError):
            received.object  # noqa: B018
    assert exploded == []


def test_b12_pickles_that_fail() -> None:
    codec = PickleCodec([Point])
    for value in (lambda: None, (number for number in ())):
        with pytest.raises(MessageFormatError):
            ObjectMessage(value, codec)
    for data in (b"\1", b"\1garbage", b"\1" + pickle.dumps([1])[:-1], b"\1\x80\x04\x8a\xff."):
        with pytest.raises(MessageFormatError):
            codec.decode(data)
    received = passed(ObjectMessage([1]))
    received.codec = codec
    assert received.object == [1]


def test_b12_nothing_is_restored_before_it_is_asked_for() -> None:
    message = ObjectMessage(Point(1), PickleCodec([Point]))
    forwarded = passed(passed(message))
    forwarded.codec = PickleCodec([Point])
    restored = forwarded.object
    assert isinstance(restored, Point)


@pytest.mark.parametrize(
    ("message", "kind", "body"),
    [
        (TextMessage("x"), str, "x"),
        (TextMessage(""), str, ""),
        (bytes_of(b"x"), bytes, b"x"),
        (ObjectMessage([1]), list, [1]),
    ],
)
def test_b13_get_body(message: Message, kind: type, body: object) -> None:
    received = passed(message)
    assert received.get_body(kind) == received.get_body(object) == body
    assert received.is_body_assignable_to(kind)
    assert received.is_body_assignable_to(object)
    assert not received.is_body_assignable_to(set)
    with pytest.raises(MessageFormatError):
        received.get_body(set)


def test_b13_get_body_of_a_map() -> None:
    message = MapMessage()
    message.set_int("k", 1)
    received = passed(message)
    assert received.get_body(dict) == received.get_body(Mapping) == {"k": 1}  # type: ignore[type-abstract]
    body = received.get_body(dict)
    assert body is not None
    body["k"] = 2
    assert received["k"] == 1
    with pytest.raises(MessageFormatError):
        received.get_body(str)


@pytest.mark.parametrize("message", [Message(), TextMessage(), ObjectMessage()])
def test_b13_without_body_every_type_gives_none(message: Message) -> None:
    for either in (message, passed(message)):
        for kind in (str, bytes, dict, int):
            assert either.get_body(kind) is None
            assert either.is_body_assignable_to(kind)


def test_b13_empty_bytes_and_maps_count_as_no_body_where_they_do_not_fit() -> None:
    for message, kind, body in ((passed(BytesMessage()), bytes, b""), (passed(MapMessage()), dict, {})):
        assert message.get_body(kind) == body
        assert message.get_body(str) is None
        assert message.is_body_assignable_to(str)


def test_b13_a_stream_has_no_body_to_give() -> None:
    for message in (stream_of(1), passed(stream_of(1)), passed(StreamMessage())):
        with pytest.raises(MessageFormatError):
            message.get_body(object)
        assert not message.is_body_assignable_to(object)


def test_b13_bytes_that_are_being_written_are_not_given() -> None:
    message = bytes_of(b"x")
    with pytest.raises(MessageFormatError):
        message.get_body(bytes)
    assert not message.is_body_assignable_to(bytes)
    message.reset()
    message.read_byte()
    assert message.get_body(bytes) == b"x"
    assert message.read_byte() == ord("x")


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
def test_streams_survive_the_way(values: list[Any]) -> None:
    message = passed(passed(stream_of(*values)))
    assert [(type(value), value) for value in (message.read_object() for _ in values)] == [
        (type(value), value) for value in values
    ]
    with pytest.raises(MessageEOFError):
        message.read_object()


@given(
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6), BODY_VALUES, max_size=6)
)
def test_maps_survive_the_way(items: dict[str, Any]) -> None:
    message = MapMessage()
    for name, value in items.items():
        message.set_object(name, value)
    received = dict(passed(message))
    assert {name: (type(value), value) for name, value in received.items()} == {
        name: (type(value), value) for name, value in items.items()
    }


@given(st.lists(st.tuples(st.sampled_from(["write", "reset", "clear", "send"]), st.binary(max_size=5)), max_size=12))
def test_a_bytes_message_is_what_was_written_since_it_was_cleared(steps: list[tuple[str, bytes]]) -> None:
    message, written, is_readable = BytesMessage(), b"", False
    for step, data in steps:
        if step == "write" and not is_readable:
            message.write_bytes(data)
            written += data
        elif step == "reset":
            message.reset()
            is_readable = True
        elif step == "clear":
            message.clear_body()
            written, is_readable = b"", False
        assert passed(message).get_body(bytes) == written
        if is_readable:
            assert message.body_length == len(written)


def test_infinite_and_undefined_numbers_travel() -> None:
    message = passed(stream_of(math.inf, -math.inf, math.nan, Float(math.nan)))
    assert (message.read_double(), message.read_double()) == (math.inf, -math.inf)
    assert math.isnan(message.read_double())
    assert message.read_string() == "NaN"


@pytest.mark.parametrize("message", [TextMessage("x"), ObjectMessage([1]), bytes_of(b"x"), stream_of(1)])
def test_b2_cleared_bodies_are_not_sent_again(message: Message) -> None:
    encode(message)
    message.clear_body()
    received = passed(message)
    if isinstance(received, StreamMessage):
        with pytest.raises(MessageEOFError):
            received.read_object()
    else:
        assert not received.get_body(object)


def test_b2_a_cleared_map_is_empty_in_the_next_send() -> None:
    message = MapMessage()
    message.set_int("k", 1)
    encode(message)
    message.clear_body()
    assert dict(passed(message)) == {}
