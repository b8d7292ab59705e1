"""Tests of destinations: equality by kind and name, immutability, and encoding."""

import asyncio
import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.jms import Destination, InvalidDestinationError, Queue, TemporaryQueue, TemporaryTopic, Topic
from fjm2.messages.destination import destination_from

KINDS = [Topic, Queue, TemporaryTopic, TemporaryQueue]


def test_h1_destinations_are_equal_by_kind_and_name() -> None:
    made = [kind(name) for kind in KINDS for name in ("a", "b")]
    assert len(set(made)) == len(made)
    assert Topic("a") == Topic("a")
    assert hash(Topic("a")) == hash(Topic("a"))
    assert Topic("a") != "topic://a"


def test_hashes_differ_by_kind() -> None:
    assert len({kind("prices").frame_hash for kind in KINDS}) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_invalid_names_are_refused(kind: type[Destination]) -> None:
    assert kind("é" * 0x7FFF).name == "é" * 0x7FFF
    for name in ("", None, 5, "\ud800", "é" * 0x8000):
        with pytest.raises(InvalidDestinationError):
            kind(name)  # type: ignore[arg-type]


def test_string_forms_of_destinations() -> None:
    assert (Topic("t").topic_name, str(Topic("t")), repr(Topic("t"))) == ("t", "topic://t", "Topic('t')")
    assert (Queue("q").queue_name, str(Queue("q"))) == ("q", "queue://q")
    assert TemporaryTopic("t").topic_name == "t"
    assert TemporaryQueue("q").queue_name == "q"


def test_destinations_are_frozen() -> None:
    topic = Topic("t")
    with pytest.raises(AttributeError):
        topic.name = "u"
    with pytest.raises(AttributeError):
        del topic.name
    with pytest.raises(TypeError):
        Destination("t")


@pytest.mark.parametrize("kind", KINDS)
def test_copies_are_equal(kind: type[Destination]) -> None:
    made = kind("t")
    assert copy.deepcopy(made) == pickle.loads(pickle.dumps(made)) == made
    assert type(copy.copy(made)) is kind


@given(st.sampled_from(KINDS), st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40))
def test_h7_destinations_arrive_as_the_same_kind(kind: type[Destination], name: str) -> None:
    sent = kind(name)
    arrived = destination_from(sent.kind_flags | 0b11111, sent.encoded_name)
    assert arrived == sent
    assert type(arrived) is kind


@pytest.mark.parametrize("name", [b"", b"\xff", b"\xed\xa0\x80"])
def test_invalid_encoded_names_are_refused(name: bytes) -> None:
    with pytest.raises(InvalidDestinationError):
        destination_from(0, name)


def test_the_cache_of_names_is_bounded() -> None:
    first = destination_from(0, b"kept")
    assert destination_from(0, b"kept") is first
    for number in range(3000):
        destination_from(0, b"%d" % number)
    assert destination_from(0, b"kept") is not first


def test_g2_only_the_owner_deletes_a_temporary_destination() -> None:
    deleted = []

    async def note(destination: Destination) -> None:
        deleted.append(destination)

    async def use() -> None:
        async with TemporaryTopic("t", note):
            assert not deleted
        await TemporaryQueue("q", note).delete()
        with pytest.raises(InvalidDestinationError):
            await TemporaryTopic("t").delete()

    asyncio.run(use())
    assert deleted == [TemporaryTopic("t"), TemporaryQueue("q")]


def test_a_topic_named_again_is_the_same_topic() -> None:
    first = Topic("named again")
    assert Topic("named again") is first
    assert TemporaryTopic("named again") is not TemporaryTopic("named again")


class Own(Topic):
    """A topic of a program's own class."""


def test_a_topic_of_an_own_class_keeps_its_class() -> None:
    assert type(Topic("of both classes")) is Topic
    assert type(Own("of both classes")) is Own
    assert type(Topic("of both classes")) is Topic


def test_topics_of_many_names_keep_their_names() -> None:
    for number in range(3000):
        assert Topic(f"one of many {number}").name == f"one of many {number}"
