"""Tests of `repr` and `print` of messages: type, id, destination and the beginning of the body, never a long text."""

import pickle
from pathlib import Path

import pytest
from passing import TOPIC, encode, passed, receive

from fjm2.jms import (
    Byte,
    BytesMessage,
    Char,
    FileMessage,
    Long,
    MapMessage,
    Message,
    MessageFormatError,
    ObjectMessage,
    PickleCodec,
    StreamMessage,
    TextMessage,
    Topic,
)
from fjm2.messages.message import UNREAD
from fjm2.messages.types import to_stored_boolean, to_stored_double

LENGTH_MAX = 450
"""Characters of the longest representation: a few lines of a log."""


def text(length: int) -> TextMessage:
    return TextMessage("pässword" * (length // 8))


def bytes_message(data: bytes) -> BytesMessage:
    message = BytesMessage()
    message.write_bytes(data)
    return message


def map_message(**items: object) -> MapMessage:
    message = MapMessage()
    for name, value in items.items():
        message.set_object(name, value)
    return message


@pytest.mark.parametrize(
    ("message", "body"),
    [
        (Message(), ""),
        (TextMessage("ABC"), ": 'ABC'"),
        (TextMessage(), ": no text"),
        (TextMessage("a\nb\x1b[2J"), r": 'a\nb\x1b[2J'"),
        (bytes_message(b"hello"), ": b'hello'"),
        (bytes_message(b"x" * 1000), ": b'xxxxxxxxxxxxxxxxxxxx'... of 1,000 bytes"),
        (map_message(price=17.25, symbol="ABC"), ": price=17.25, symbol='ABC'"),
        (map_message(**{f"i{n}": n for n in range(9)}), ": i0=0, i1=1, i2=2, i3=3, i4=4, ... of 9 items"),
        (ObjectMessage([1, 2]), ": [1, 2]"),
        (ObjectMessage({"legs": [{"price": 1.5}]}), ": {'legs': [{'price': 1.5}]}"),
        (ObjectMessage("a\nb" * 1000), ": 'a\\nba\\nb"),
        (ObjectMessage("x" * 5000), ": an object of 5,006 bytes"),
        (ObjectMessage(), ": no object"),
        (StreamMessage(), ": values of 0 bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_message_tells_what_it_is(message: Message, body: str) -> None:
    kind = type(message).__name__
    assert repr(message).startswith(f"<{kind} without id{body}")
    message.set_int_property("size", 3)
    got = passed(message)
    told = f"<{kind} {got.message_id} to {TOPIC} with size=3{body}"
    assert repr(got).startswith(told)
    assert str(got) == repr(got)
    assert "\n" not in repr(got)


def test_a_file_is_told_by_name_and_size(tmp_path: Path) -> None:
    path = tmp_path / "disk\n.img"
    message = FileMessage(path)
    assert repr(message) == r"<FileMessage without id: 'disk\n.img'>"
    path.write_bytes(bytes(2000))
    assert repr(message) == r"<FileMessage without id: 'disk\n.img' of 2,000 bytes>"
    assert repr(FileMessage("nul\0")).endswith(": 'nul_'>")
    assert repr(FileMessage(tmp_path)).startswith("<FileMessage without id: unreadable: path=")
    assert repr(FileMessage()).endswith(": no file>")
    assert len(repr(FileMessage("x" * 10_000))) < LENGTH_MAX


def test_a_redelivery_says_so() -> None:
    assert " delivery 3: 'x'>" in repr(receive(encode(TextMessage("x")), 3))


def test_a_large_body_is_neither_shown_nor_decoded() -> None:
    got = passed(text(8_000_000))
    assert "'... of 9,000,000 bytes>" in repr(got)
    assert len(repr(got)) < LENGTH_MAX
    assert got._body is UNREAD
    assert "'... of 8,000,000 characters>" in repr(text(8_000_000))
    large = passed(map_message(data=b"x" * 100_000))
    assert repr(large).endswith(": a map of 100,014 bytes>")
    assert large._body is UNREAD


def test_nothing_in_a_representation_is_long_or_breaks_the_line() -> None:
    message = map_message(**{f"{n}" * 50: "v\n" * 5000 for n in range(20)})
    for n in range(20):
        message.set_string_property(f"p{n}" + "x" * 200, "v" * 5000)
    told = repr(receive(encode(message, Topic("t\n" * 5000))))
    assert len(told) < LENGTH_MAX
    assert "\n" not in told


def test_properties_are_shown_with_the_beginnings_of_their_values() -> None:
    message = TextMessage("ABC")
    for name, value in {"price": 17.25, "market": "x" * 50, "halted": False, "n": 1, "z": 2}.items():
        message.set_object_property(name, value)
    shown = f"halted=False, market='{'x' * 20}'..., n=1, price=17.25, ...: 'ABC'>"
    assert repr(message) == f"<TextMessage without id with {shown}"


def test_an_object_is_not_decoded_by_a_codec_that_may_run_code() -> None:
    class Codec:
        def encode(self, value: object) -> bytes:
            return pickle.dumps(value)

        def decode(self, data: bytes) -> object:
            raise AssertionError(data)

    assert "an object of" in repr(ObjectMessage({"a": 1}, Codec()))
    assert "an object of" in repr(ObjectMessage({"a": 1}, PickleCodec([])))
    received = receive(encode(ObjectMessage({"a": 1}, PickleCodec([]))))
    assert "an object of" in repr(received)


def test_a_malformed_message_is_no_error() -> None:
    frame = bytearray(encode(TextMessage("abc")))
    frame[-1] = 0xFF
    assert repr(receive(bytes(frame))).endswith(": unreadable: a text is not UTF-8>")


@pytest.mark.parametrize(
    "value", [10**5000, -(10**5000), "x" * 10**7, b"x" * 10**7, [1] * 10**6], ids=lambda value: type(value).__name__
)
def test_an_error_shows_only_the_beginning_of_a_value(value: object) -> None:
    for convert in (Byte, Long, Char, to_stored_double, to_stored_boolean):
        with pytest.raises(MessageFormatError) as error:
            convert(value)  # type: ignore[arg-type]
        assert len(str(error.value)) < 200
