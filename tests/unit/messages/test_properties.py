"""Tests of properties and their encoding. Names of tests begin with the number of the case: P1 to P11."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from passing import encode, passed, read_one, receive

from fjm2.jms import (
    Byte,
    Char,
    Double,
    Float,
    Int,
    Long,
    Message,
    MessageFormatError,
    MessageNotWriteableError,
    NullValueError,
    NumberFormatError,
    Short,
    TextMessage,
)
from fjm2.messages.frame import look_up
from fjm2.messages.message import put_property
from fjm2.messages.properties import find_property, known_names
from fjm2.messages.types import type_name

TYPES = ("boolean", "byte", "short", "int", "long", "float", "double", "string")
VALUES: dict[str, Any] = {
    "boolean": True,
    "byte": 12,
    "short": -300,
    "int": 70_000,
    "long": -5_000_000_000,
    "float": 0.5,
    "double": 0.1,
    "string": "17",
}
READABLE = {
    "boolean": {"boolean", "string"},
    "byte": {"byte", "short", "int", "long", "string"},
    "short": {"short", "int", "long", "string"},
    "int": {"int", "long", "string"},
    "long": {"long", "string"},
    "float": {"float", "double", "string"},
    "double": {"double", "string"},
    "string": set(TYPES),
}
AS_TEXT = {
    "boolean": "true",
    "byte": "12",
    "short": "-300",
    "int": "70000",
    "long": "-5000000000",
    "float": "0.5",
    "double": "0.1",
    "string": "17",
}
FROM_TEXT: dict[str, Any] = {"boolean": False, "float": 17.0, "double": 17.0}


def put(message: Message, kind: str, value: Any, name: str = "p") -> None:
    getattr(message, f"set_{kind}_property")(name, value)


def take(message: Message, kind: str, name: str = "p") -> Any:
    return getattr(message, f"get_{kind}_property")(name)


def with_property(kind: str, value: Any) -> Message:
    message = Message()
    put(message, kind, value)
    return message


@pytest.mark.parametrize("kind", TYPES)
def test_p1_values_keep_their_type(kind: str) -> None:
    sent = with_property(kind, VALUES[kind])
    expected = {"string": "String"}.get(kind, kind)
    for message in (sent, passed(sent)):
        value = message.get_object_property("p")
        assert value == VALUES[kind]
        assert type_name(value) == expected


def test_p1_float_is_32_bits() -> None:
    message = passed(with_property("float", 0.1))
    assert message.get_double_property("p") == 0.10000000149011612
    assert message.get_float_property("p") == 0.10000000149011612
    assert message.get_string_property("p") == "0.1"
    assert passed(with_property("double", 1e10)).get_string_property("p") == "1.0E10"


@pytest.mark.parametrize("read", TYPES)
@pytest.mark.parametrize("kind", TYPES)
def test_p2_matrix(kind: str, read: str) -> None:
    message = with_property(kind, VALUES[kind])
    for either in (message, passed(message)):
        if read not in READABLE[kind]:
            with pytest.raises(MessageFormatError):
                take(either, read)
            continue
        value = take(either, read)
        if read == "string":
            assert value == AS_TEXT[kind]
        elif kind == "string":
            assert value == FROM_TEXT.get(read, 17)
        else:
            assert value == VALUES[kind]
        assert type(value) in (bool, int, float, str)


def test_p3_text_that_is_not_a_number_is_refused() -> None:
    message = with_property("string", " 5")
    for kind in ("byte", "short", "int", "long"):
        with pytest.raises(NumberFormatError):
            take(message, kind)
    assert message.get_double_property("p") == 5.0
    assert not issubclass(NumberFormatError, MessageFormatError)


def test_p4_any_text_is_a_boolean() -> None:
    assert with_property("string", "TRUE").get_boolean_property("p") is True
    assert with_property("string", "1").get_boolean_property("p") is False


@pytest.mark.parametrize("is_set", [True, False])
def test_p5_null_and_unset(is_set: bool) -> None:
    message = with_property("string", None) if is_set else Message()
    for either in (message, passed(message)):
        assert either.get_string_property("p") is None
        assert either.get_object_property("p") is None
        assert either.get_boolean_property("p") is False
        for kind in ("byte", "short", "int", "long"):
            with pytest.raises(NumberFormatError):
                take(either, kind)
        for kind in ("float", "double"):
            with pytest.raises(NullValueError):
                take(either, kind)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        Byte(1),
        Short(2),
        3,
        Int(3),
        2**40,
        Long(4),
        Float(0.1),
        0.1,
        Double(1),
        "text",
        "\U0001f600",
        math.inf,
    ],
)
def test_p6_objects_of_the_eight_types(value: Any) -> None:
    message = Message()
    message.set_object_property("p", value)
    assert passed(message).get_object_property("p") == message.get_object_property("p") == value


@pytest.mark.parametrize("value", [b"x", bytearray(1), [], {}, 1j, Char("c"), object(), 2**63, -(2**63) - 1, "\ud800"])
def test_p6_other_objects_are_refused(value: Any) -> None:
    message = Message()
    with pytest.raises(MessageFormatError):
        message.set_object_property("p", value)
    with pytest.raises(MessageFormatError):
        message.properties["p"] = value
    assert not message.property_exists("p")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("boolean", 1),
        ("boolean", None),
        ("byte", 128),
        ("byte", True),
        ("short", -32769),
        ("int", 2**31),
        ("int", False),
        ("int", 1.0),
        ("int", "1"),
        ("long", 2**63),
        ("float", "1"),
        ("float", True),
        ("double", None),
        ("double", 10**400),
        ("string", 5),
        ("string", b"x"),
        ("string", "\ud800"),
    ],
)
def test_p6_typed_setters_take_their_type_only(kind: str, value: Any) -> None:
    with pytest.raises(MessageFormatError):
        put(Message(), kind, value)


@pytest.mark.parametrize("name", ["", None, "a b", "a.b", "a-b", "1a", "not", "BETWEEN", "True", "a'b", "\ud800", 5])
def test_p7_names_are_identifiers(name: Any) -> None:
    message = Message()
    for kind in TYPES:
        with pytest.raises(ValueError, match="name"):
            put(message, kind, VALUES[kind], name)
    with pytest.raises(ValueError, match="name"):
        message.set_object_property(name, 1)
    assert message.property_names() == set()


@pytest.mark.parametrize("name", ["a", "_", "$x", "Größe", "名前", "€", "a1", "Jms", "x" * 0xFFFF])
def test_p7_identifiers_are_accepted(name: str) -> None:
    message = Message()
    message.set_int_property(name, 1)
    assert passed(message).get_int_property(name) == 1


def test_p7_too_long_names_are_refused() -> None:
    with pytest.raises(ValueError, match="65536"):
        Message().set_int_property("x" * 0x10000, 1)


def test_p7_checked_names_are_cached_within_bounds() -> None:
    message = Message()
    for number in range(5000):
        message.set_int_property(f"n{number}", number)
    assert len(known_names) <= 4096
    received = passed(message)
    assert all(received.get_int_property(f"n{number}") == number for number in range(5000))


def test_p8_received_properties_are_read_only_until_cleared() -> None:
    sent = TextMessage("body")
    sent.set_int_property("p", 1)
    message = passed(sent)
    for kind in TYPES:
        with pytest.raises(MessageNotWriteableError):
            put(message, kind, VALUES[kind])
    with pytest.raises(MessageNotWriteableError):
        message.properties["p"] = 2
    message.priority = 9
    message.clear_properties()
    assert message.property_names() == set()
    message.set_int_property("q", 2)
    assert message.text == "body"
    with pytest.raises(MessageNotWriteableError):
        message.text = "other"


def test_p9_names_and_existence() -> None:
    message = Message()
    message.correlation_id = "x"
    message.set_string_property("nothing", None)
    message.properties["n"] = 1
    assert message.property_names() == {"nothing", "n"}
    assert message.property_exists("nothing")
    assert not message.property_exists("correlation_id")
    assert not message.property_exists("N")
    with pytest.raises((TypeError, AttributeError)):
        del message.properties["n"]  # type: ignore[attr-defined]
    assert not {"pop", "popitem", "clear", "__delitem__"} & set(dir(message.properties))


def test_p9_the_view_is_a_mapping() -> None:
    message = Message()
    view = message.properties
    view["a"], view["b"] = 1, None
    assert dict(view) == {"a": 1, "b": None}
    assert (len(view), "b" in view, view.get("c", 5)) == (2, True, 5)
    assert repr(view).startswith("Properties({")
    with pytest.raises(KeyError):
        view["c"]


def test_p10_group_properties_are_sent() -> None:
    message = Message()
    message.set_string_property("JMSXGroupID", "g")
    message.set_int_property("JMSXGroupSeq", 3)
    received = passed(message)
    assert (received.get_string_property("JMSXGroupID"), received.get_int_property("JMSXGroupSeq")) == ("g", 3)
    for name, value in (("JMSXGroupID", 1), ("JMSXGroupSeq", "1"), ("JMSXGroupSeq", Long(1))):
        with pytest.raises(MessageFormatError):
            message.set_object_property(name, value)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_p10_the_delivery_count_is_on_every_received_message(count: int) -> None:
    sent = with_property("int", 1)
    assert sent.delivery_count == 0
    assert not sent.property_exists("JMSXDeliveryCount")
    message = receive(encode(sent), count)
    assert message.property_names() == {"p", "JMSXDeliveryCount"}
    assert message.get_int_property("JMSXDeliveryCount") == message.delivery_count == count
    assert message.redelivered is (count >= 2)


def test_p10_the_delivery_count_is_not_forwarded() -> None:
    message = receive(encode(with_property("int", 5)), 3)
    again = passed(message)
    assert (again.get_int_property("p"), again.delivery_count) == (5, 1)
    assert again.get_int_property("JMSXDeliveryCount") == 1


@pytest.mark.parametrize(
    "name", ["JMS_FJM2_Gap", "JMSXDeliveryCount", "JMSXUserID", "JMSPriority", "JMS_IBM_Format", "JMSfoo"]
)
def test_p11_other_jms_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Message().set_int_property(name, 1)


def test_p11_the_receiver_adds_its_own_properties() -> None:
    message = passed(with_property("int", 1))
    put_property(message, "JMS_FJM2_Gap", True)
    assert message.get_boolean_property("JMS_FJM2_Gap") is True
    with pytest.raises(MessageNotWriteableError):
        message.set_int_property("p", 2)
    assert not passed(message).property_exists("JMS_FJM2_Gap")


def test_properties_put_after_a_send_are_sent_next() -> None:
    message = with_property("int", 1)
    encode(message)
    put_property(message, "q", 2)
    assert passed(message).get_int_property("q") == 2


def test_properties_set_after_a_send_are_sent_next() -> None:
    message = with_property("int", 1)
    first = passed(message)
    message.set_int_property("p", 2)
    assert (first.get_int_property("p"), passed(message).get_int_property("p")) == (1, 2)


NAMES = st.from_regex(r"[A-IK-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: (
        name.upper() not in {"NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE", "NULL", "TRUE", "FALSE"}
    )
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
PROPERTY_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-128, 127).map(Byte),
    st.integers(-32768, 32767).map(Short),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1).map(Long),
    st.floats(width=32, allow_nan=False).map(Float),
    st.floats(allow_nan=False),
    TEXTS,
)


@given(st.dictionaries(NAMES, PROPERTY_VALUES, max_size=8))
def test_properties_survive_encoding(properties: dict[str, Any]) -> None:
    message = Message()
    for name, value in properties.items():
        message.set_object_property(name, value)
    received = dict(passed(message).properties)
    assert received.pop("JMSXDeliveryCount") == 1
    assert {name: (type(value), value) for name, value in received.items()} == {
        name: (type(value), value) for name, value in properties.items()
    }


@given(st.dictionaries(NAMES, PROPERTY_VALUES, max_size=6), NAMES)
def test_one_property_is_found_without_the_others(properties: dict[str, Any], other: str) -> None:
    message = Message()
    for name, value in properties.items():
        message.set_object_property(name, value)
    buffer, start, _, _, header = read_one(encode(message))
    for name in (*properties, other):
        assert look_up(buffer, start, header, name) == properties.get(name)


def test_a_property_is_not_found_inside_another_value() -> None:
    message = Message()
    message.set_string_property("decoy", "\0\1p\x05\0\0\0\7")
    message.set_int_property("p", 9)
    buffer, start, _, _, header = read_one(encode(message))
    assert look_up(buffer, start, header, "p") == 9
    assert look_up(buffer, start, header, "\0") is None
    assert look_up(buffer, start, header, "x" * 70_000) is None


@pytest.mark.parametrize(
    "section",
    [
        b"\0",
        b"\0\1",
        b"\0\1p",
        b"\0\6p\5\0\0\0\1",
        b"\0\1p\5\0\0\0",
        b"\0\1p\x0a\0\0\0\xff",
        b"\0\1p\x0a\0\0",
        b"\0\1p\x0a\0\0\0\1\xff",
        b"\0\1p\x0b\0\0\0\0",
        b"\0\1p\x09\0a",
        b"\0\1p\x63",
    ],
)
def test_malformed_properties_raise_format_errors(section: bytes) -> None:
    message = receive(_with_section(section))
    with pytest.raises(MessageFormatError):
        message.get_int_property("p")
    if b"\0\1p" in section:
        with pytest.raises(MessageFormatError):
            find_property(section + b"behind", 0, len(section), "p")


def _with_section(section: bytes) -> bytes:
    """Return a frame with these bytes as its section of properties."""
    frame = bytearray(encode(Message()))
    frame[4:8] = (len(frame) + len(section)).to_bytes(4, "big")
    frame[16:20] = len(section).to_bytes(4, "big")
    return bytes(frame + section)


def test_the_first_of_two_properties_with_one_name_counts() -> None:
    frame = _with_section(b"\0\1p\5\0\0\0\1\0\1p\5\0\0\0\2")
    assert receive(frame).get_int_property("p") == 1
    buffer, start, _, _, header = read_one(frame)
    assert look_up(buffer, start, header, "p") == 1


def test_p8_cleared_properties_are_not_sent_again() -> None:
    message = with_property("int", 1)
    encode(message)
    message.clear_properties()
    assert passed(message).property_names() == {"JMSXDeliveryCount"}


@pytest.mark.parametrize("name", ["not", "Like", "NULL"])
def test_p1_words_of_selectors_are_no_names(name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}' is not a property name: {name.upper()} is a word of selectors"):
        Message().set_int_property(name, 1)


def test_errors_of_reading_name_the_property_the_value_and_the_remedy() -> None:
    message = Message()
    message.set_int_property("price", 30)
    message.set_string_property("name", "abc")
    message.set_object_property("none", None)
    with pytest.raises(
        MessageFormatError,
        match=r"^property 'price': 30 is of type int and cannot be read as double: "
        r"send 30\.0, or read it as int or long or String$",
    ):
        message.get_double_property("price")
    with pytest.raises(MessageFormatError, match="cannot be read as byte: send a byte, or read it as int or long"):
        message.get_byte_property("price")
    with pytest.raises(ValueError, match=r"^property 'name': 'abc' is not an integer of 32 bits$"):
        message.get_int_property("name")
    for name, state in (("none", "null"), ("other", "not set")):
        text = f"^property '{name}' is {state}: expected a value, or get_object_property, which returns None$"
        with pytest.raises(ValueError, match=text):
            message.get_long_property(name)
        with pytest.raises(TypeError, match=text):
            message.get_double_property(name)


@pytest.mark.parametrize("value", [b"x", bytearray(b"x"), memoryview(b"x")])
def test_bytes_are_refused_with_a_remedy_that_helps(value: Any) -> None:
    with pytest.raises(MessageFormatError, match=r"^property 'a': \w+ cannot be sent: .*; send bytes as the body, or "):
        Message().set_object_property("a", value)
    Message().set_object_property("a", value.hex())
