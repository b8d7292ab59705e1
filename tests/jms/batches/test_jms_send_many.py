"""Tests of `send_many`: the messages of a batch are those of single sends."""

import time
from typing import Any

import numpy as np
import pytest
from adapter import QUIET_S, WAIT_S, Api, eventually

from fjm2.jms import (
    DeliveryMode,
    IllegalStateError,
    InvalidDestinationError,
    Message,
    MessageFormatError,
    ResourceAllocationError,
    SessionMode,
    TextMessage,
    Topic,
)

TOPIC, OTHER = Topic("fjm2.batches"), Topic("fjm2.batches.other")
COUNT = 3_000


async def ends(api: Api, mode: SessionMode = SessionMode.AUTO_ACKNOWLEDGE, **options: Any) -> tuple[Any, Any, Any]:
    """Return a context, and a consumer with its context on another node of the bus."""
    receiving = await api.context(mode, dscp=8)
    consumer = await receiving.create_consumer(TOPIC, **options)
    sending = await api.context()
    await consumer.ready()
    await sending.ready()
    return sending, consumer, receiving


def numbers(messages: list[Message]) -> list[int]:
    return [int((message.message_id or "").split("-")[1]) for message in messages]


async def test_messages_of_a_batch_are_those_of_single_sends(api: Api) -> None:
    sending, consumer, _ = await ends(api)
    producer = await sending.create_producer()
    producer.correlation_id, producer.type, producer.reply_to = "c", "t", OTHER
    properties = {"symbol": "ACME", "price": 1.5, "count": 7, "is_late": True, "nothing": None}
    before = time.time() * 1000
    for bodies in (["a", "ä", ""], [b"a", b"", b"ccc"]):
        await producer.send_many(TOPIC, bodies, properties, time_to_live=60_000, priority=4)
        for body in bodies:
            await producer.send(TOPIC, body, properties=properties, time_to_live=60_000, priority=4)
        found = [await consumer.receive(WAIT_S) for _ in range(6)]
        for many, single in zip(found[:3], found[3:], strict=True):
            assert type(many) is type(single)
            assert many.get_body(object) == single.get_body(object)
            assert dict(many.properties) == dict(single.properties)
            for name in ("correlation_id", "type", "reply_to", "priority", "delivery_mode", "destination"):
                assert getattr(many, name) == getattr(single, name), name
            assert before - 1 <= many.timestamp <= many.expiration - 60_000 <= single.expiration - 60_000
        assert numbers(found) == list(range(numbers(found)[0], numbers(found)[0] + 6))


async def test_a_message_may_be_in_a_batch_twice(api: Api) -> None:
    sending, consumer, _ = await ends(api)
    message = TextMessage("again")
    await (await sending.create_producer()).send_many(TOPIC, [message, message], {"place": [0, 1]})
    assert [(await consumer.receive(WAIT_S)).get_int_property("place") for _ in range(2)] == [0, 1]


async def test_session_producers_send_batches(api: Api) -> None:
    connection = await api.connect()
    session = await connection.create_session()
    consumer = await session.create_consumer(TOPIC)
    producer = await session.create_producer(TOPIC)
    await producer.send_many([b"a", bytearray(b"b"), memoryview(b"c")], properties={"n": [1, 2, 3]}, priority=8)
    await producer.send_many(["d", "e"], delivery_mode=DeliveryMode.NON_PERSISTENT)
    await producer.send_many([TextMessage("f"), "g", b"h"], properties={"n": [4, 5, 6]})
    await producer.send_many([])
    found = [await consumer.receive(WAIT_S) for _ in range(8)]
    assert [one.get_body(object) for one in found] == [b"a", b"b", b"c", "d", "e", "f", "g", b"h"]
    assert [one.get_object_property("n") for one in found] == [1, 2, 3, None, None, 4, 5, 6]
    assert [one.priority for one in found] == [8, 8, 8, 4, 4, 4, 4, 4]
    assert producer.inner.statistics().messages_sent == 8
    with pytest.raises(NotImplementedError):
        await producer.send_many([b"a"], OTHER)
    with pytest.raises(MessageFormatError, match="dict is not a message"):
        await producer.send_many([{"k": 1}])
    anywhere = await session.create_producer()
    await anywhere.send_many(["g"], TOPIC)
    assert (await consumer.receive(WAIT_S)).text == "g"
    await producer.close()
    with pytest.raises(IllegalStateError):
        await producer.send_many([b"a"])


@pytest.mark.parametrize(
    ("bodies", "properties", "error"),
    [
        ("text", None, TypeError),
        (b"bytes", None, TypeError),
        (5, None, TypeError),
        (["\ud800", "b"], None, MessageFormatError),
        ([b"a", object()], None, MessageFormatError),
        ([b"a", b"b"], {"n": [1]}, MessageFormatError),
        ([b"a", b"b"], {"n": np.zeros((2, 1))}, MessageFormatError),
        ([b"a", b"b"], {"n": [1, b"x"]}, MessageFormatError),
        ([b"a", b"b"], {"n": np.array([1j, 2j])}, MessageFormatError),
        ([b"a", b"b"], {"n": [1, 1 << 70]}, MessageFormatError),
        ([b"a", b"b"], {"JMSX": [1, 2]}, ValueError),
        ([b"a", b"b"], {"not a name": np.array([1, 2])}, ValueError),
        ([b"a", {"k": 1}], {"not a name": [1, 2]}, ValueError),
        ([b"a"], ["n"], MessageFormatError),
    ],
)
async def test_nothing_of_a_bad_batch_is_sent(api: Api, bodies: Any, properties: Any, error: type[Exception]) -> None:
    context = await api.context()
    consumer = await context.create_consumer(TOPIC)
    producer = await context.create_producer()
    sent = (await context.statistics()).messages_sent
    with pytest.raises(error):
        await producer.send_many(TOPIC, bodies, properties)
    assert (await context.statistics()).messages_sent == sent
    assert producer.inner.statistics().messages_sent == 0
    assert await consumer.receive(QUIET_S) is None


async def test_bad_destinations_and_options_are_told(api: Api) -> None:
    context = await api.context()
    producer = await context.create_producer()
    with pytest.raises(InvalidDestinationError):
        await producer.send_many("prices", [b"a"])
    topic = await context.create_temporary_topic()
    await topic.delete()
    with pytest.raises(InvalidDestinationError):
        await producer.send_many(topic.inner, [b"a"])
    for options in ({"priority": 10}, {"time_to_live": -1}, {"delivery_mode": 3}):
        with pytest.raises(Exception, match=next(iter(options))):
            await producer.send_many(TOPIC, [b"a"], **options)


async def test_a_body_that_is_too_large_is_refused_with_its_batch(api: Api) -> None:
    context = await api.context()
    consumer = await context.create_consumer(TOPIC)
    with pytest.raises(Exception, match="cannot be sent"):
        await (await context.create_producer()).send_many(TOPIC, [b"a", bytes(64 << 20)])
    assert await consumer.receive(QUIET_S) is None


async def test_a_batch_is_part_of_the_transaction(api: Api) -> None:
    connection = await api.connect()
    session = await connection.create_session(SessionMode.SESSION_TRANSACTED)
    consumer = await (await connection.create_session()).create_consumer(TOPIC)
    producer = await session.create_producer(TOPIC)
    await producer.send_many(["a", "b"])
    await session.rollback()
    await producer.send_many(["c", "d"], properties={"n": [1, 2]})
    assert await consumer.receive(QUIET_S) is None
    with pytest.raises(ResourceAllocationError, match="these messages are not part of it"):
        await producer.send_many([bytes(40 << 20), bytes(40 << 20)])
    await producer.send_many(["e"])
    await session.commit()
    assert [(await consumer.receive(WAIT_S)).text for _ in range(3)] == ["c", "d", "e"]
    assert await consumer.receive(0) is None


async def test_outcomes_of_batches_are_told_message_by_message(api: Api) -> None:
    sending, consumer, _ = await ends(api)
    told: list[Any] = []

    class Listener:
        def on_completion(self, message: Any) -> None:
            told.append(message.get_body(object))

        def on_exception(self, _: Any, error: Exception) -> None:
            told.append(error)

    producer = await sending.create_producer()
    producer.async_listener = Listener()
    await producer.send_many(TOPIC, ["a", "b", "c"])
    await eventually(lambda: told == ["a", "b", "c"])
    assert [(await consumer.receive(WAIT_S)).text for _ in range(3)] == ["a", "b", "c"]
