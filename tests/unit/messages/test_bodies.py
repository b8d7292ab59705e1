"""Tests of bodies of all kinds. Names of tests begin with the number of the case: B1 to B5, B11 and B13."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from bodies import KINDS, TYPES, VALUES, bytes_of, stream_of
from passing import encode, passed, receive

from fjm2.jms import (
    BytesMessage,
    Float,
    MapMessage,
    Message,
    MessageEOFError,
    MessageFormatError,
    MessageNotReadableError,
    MessageNotWriteableError,
    NullValueError,
    NumberFormatError,
    ObjectMessage,
    StreamMessage,
    TextMessage,
)


@pytest.mark.parametrize("kind", KINDS)
def test_b1_a_message_arrives_as_the_kind_it_was_sent(kind: type[Message]) -> None:
    assert type(passed(kind())) is kind


def test_b1_user_subclasses_arrive_as_their_base_class() -> None:
    class Order(TextMessage):
        __slots__ = ()

    assert type(receive(encode(Order("x")))) is TextMessage


def test_b1_constructors_take_bodies() -> None:
    assert passed(BytesMessage(b"abc")).get_body(bytes) == b"abc"
    assert passed(BytesMessage(memoryview(b"abc"))).get_body(bytes) == b"abc"
    assert passed(MapMessage({"n": 5, "s": "x", "none": None})).get_body(dict) == {"n": 5, "s": "x", "none": None}
    stream = passed(StreamMessage([5, "a", None]))
    assert [stream.read_object() for _ in range(3)] == [5, "a", None]
    more = StreamMessage([1])
    more.write_int(2)
    assert [passed(more).read_int()] == [1]
    for kind, wrong in ((MapMessage, {"n": object()}), (StreamMessage, [object()]), (BytesMessage, "text")):
        with pytest.raises(MessageFormatError):
            kind(wrong)


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


def test_b3_reads_of_a_write_only_body_raise() -> None:
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


def test_b4_a_truncated_value_raises_and_keeps_the_position() -> None:
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


@pytest.mark.parametrize("text", [None, "", "plain", "\0\U0001f600é", "x" * 100_000])
def test_b11_any_text_and_none(text: str | None) -> None:
    for message in (TextMessage(text), passed(TextMessage(text))):
        assert message.text == text


def test_b11_other_values_are_refused() -> None:
    message = TextMessage("kept")
    for value in ("\ud800", b"x", 5):
        with pytest.raises(MessageFormatError):
            message.text = value  # type: ignore[assignment]
    assert message.text == "kept"


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


def test_b13_empty_bytes_count_as_no_body_where_they_do_not_fit() -> None:
    message = passed(BytesMessage())
    assert message.get_body(bytes) == b""
    assert message.get_body(str) is None
    assert message.is_body_assignable_to(str)


def test_b13_a_map_without_entries_is_still_a_map() -> None:
    for message in (MapMessage(), passed(MapMessage())):
        assert message.get_body(dict) == message.get_body(object) == {}
        with pytest.raises(MessageFormatError, match="expected a str"):
            message.get_body(str)
        assert message.is_body_assignable_to(dict)
        assert not message.is_body_assignable_to(str)


def test_b13_a_stream_has_no_whole_body() -> None:
    for message in (stream_of(1), passed(stream_of(1)), passed(StreamMessage())):
        with pytest.raises(MessageFormatError):
            message.get_body(object)
        assert not message.is_body_assignable_to(object)


def test_b13_write_only_bytes_have_no_body() -> None:
    message = bytes_of(b"x")
    with pytest.raises(MessageFormatError):
        message.get_body(bytes)
    assert not message.is_body_assignable_to(bytes)
    message.reset()
    message.read_byte()
    assert message.get_body(bytes) == b"x"
    assert message.read_byte() == ord("x")


def test_infinities_and_nan_survive_encoding() -> None:
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
