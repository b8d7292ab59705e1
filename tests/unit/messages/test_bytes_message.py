"""Tests of BytesMessage, and of the values that all bodies accept.

Names of tests begin with the number of the case: B9 and B10.
"""

import struct
from fractions import Fraction
from typing import Any

import pytest
from bodies import bytes_of
from hypothesis import given
from hypothesis import strategies as st
from passing import passed

from fjm2.jms import (
    Byte,
    BytesMessage,
    Char,
    Float,
    Long,
    MapMessage,
    MessageFormatError,
    NullValueError,
    Short,
    StreamMessage,
)


def test_b9_values_are_laid_out_like_data_output_stream() -> None:
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


def test_b9_strings_have_at_most_65535_bytes() -> None:
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
def test_b9_malformed_strings_are_refused(encoded: bytes) -> None:
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
def test_b10_parts_of_arrays_are_range_checked(offset: int, length: int) -> None:
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
