"""Tests of ObjectMessage and its codecs. Names of tests begin with the number of the case: B12."""

import pickle
from collections import OrderedDict
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from passing import passed

from fjm2.jms import (
    Byte,
    JMSSecurityError,
    MessageFormatError,
    ObjectMessage,
    PickleCodec,
    SafeCodec,
)
from fjm2.messages.object_codec import DEPTH_MAX


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
def test_b12_objects_survive_encoding(value: object) -> None:
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
def test_b12_unsupported_objects_are_refused(value: object) -> None:
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
    family: dict[str, Any] = {}
    family |= {"parent": family, "child": family}  # there are 2**100 ways down
    with pytest.raises(MessageFormatError, match=f"^an object is nested more than {DEPTH_MAX} levels deep"):
        ObjectMessage(family)
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
def test_b12_malformed_objects_are_refused(data: bytes) -> None:
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


def test_b12_objects_are_decoded_on_access() -> None:
    message = ObjectMessage(Point(1), PickleCodec([Point]))
    forwarded = passed(passed(message))
    forwarded.codec = PickleCodec([Point])
    restored = forwarded.object
    assert isinstance(restored, Point)
