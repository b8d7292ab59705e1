"""Tests of messages between connections on two nodes of a bus."""

import asyncio
import sys
from typing import Any

import pytest
from adapter import QUIET_S, WAIT_S, Api, eventually, send_texts, texts

from fjm2.jms import (
    BytesMessage,
    DeliveryMode,
    MapMessage,
    Message,
    ObjectMessage,
    SessionMode,
    StreamMessage,
    TextMessage,
    Topic,
    UnconfirmedError,
)

AUTO, TRANSACTED = SessionMode.AUTO_ACKNOWLEDGE, SessionMode.SESSION_TRANSACTED

TOPIC, OTHER = Topic("fjm2.network"), Topic("fjm2.network.other")


async def two_nodes(api: Api) -> tuple[Any, Any]:
    """Return two connections to the same group and port. Their settings differ, so each has its own node."""
    return await api.connect(), await api.connect(dscp=8)


def one_of_each() -> list[Message]:
    text, data, items = TextMessage("text"), BytesMessage(), MapMessage()
    stream, thing, nothing = StreamMessage(), ObjectMessage([1, "two"]), Message()
    data.write_bytes(b"bytes" * 20_000)
    items.set_int("one", 1)
    stream.write_string("first")
    for number, message in enumerate((text, data, items, stream, thing, nothing)):
        message.set_int_property("number", number)
        message.correlation_id = f"c{number}"
    return [text, data, items, stream, thing, nothing]


async def test_u1_every_kind_of_message_passes_between_nodes(api: Api) -> None:
    sending, receiving = await two_nodes(api)
    consumer = await (await receiving.create_session()).create_consumer(TOPIC, "number >= 0")
    await consumer.ready()
    producer = await (await sending.create_session()).create_producer(TOPIC)
    sent = one_of_each()
    for message in sent:
        await producer.send(message)
    found = [await consumer.receive(WAIT_S) for _ in sent]
    for message, arrived in zip(sent, found, strict=True):
        assert type(arrived) is type(message)
        assert (arrived.message_id, arrived.correlation_id) == (message.message_id, message.correlation_id)
        assert (arrived.destination, arrived.timestamp) == (TOPIC, message.timestamp)
    assert found[1].read_bytes() == b"bytes" * 20_000
    assert (found[2]["one"], found[3].read_string(), found[4].object) == (1, "first", [1, "two"])


async def test_o1_order_is_kept_between_nodes(api: Api) -> None:
    sending, receiving = await two_nodes(api)
    session = await receiving.create_session()
    consumer = await session.create_consumer(TOPIC)
    await consumer.ready()
    heard: list[int] = []
    consumer.message_listener = lambda message: heard.append(message.get_int_property("number"))
    producer = (await (await sending.create_session()).create_producer(TOPIC)).inner
    count = 3000

    async def send_all() -> None:
        for number in range(count):
            message = BytesMessage()
            message.write_bytes(bytes(1000))
            message.set_int_property("number", number)
            await producer.send(message)

    def send_all_blocking() -> None:
        for number in range(count):
            message = BytesMessage()
            message.write_bytes(bytes(1000))
            message.set_int_property("number", number)
            producer.send(message)

    await (asyncio.to_thread(send_all_blocking) if api.is_blocking else send_all())
    await eventually(lambda: len(heard) >= count)
    assert heard == list(range(count))


async def test_m2_persistent_messages_are_confirmed_by_the_other_node(api: Api) -> None:
    sending, receiving = await two_nodes(api)
    consumer = await (await receiving.create_session()).create_consumer(TOPIC)
    await consumer.ready()
    producer = await (await sending.create_session()).create_producer(TOPIC)
    future = producer.inner.send_async(TextMessage("a"), delivery_mode=DeliveryMode.PERSISTENT)
    await asyncio.wait_for(asyncio.wrap_future(future) if api.is_blocking else future, WAIT_S)
    assert (await consumer.receive(0)).text == "a"


SUBSCRIBER = """
import sys, time
from fjm2.jms import Topic
from fjm2.jms.blocking import ConnectionFactory

context = ConnectionFactory(sys.argv[1]).create_context()
consumer = context.create_consumer(Topic("fjm2.network"))
consumer.ready()
print("ready", consumer.receive(20) is not None, flush=True)
time.sleep(60)
"""


async def test_m2_a_dead_subscriber_does_not_confirm_and_the_sender_is_informed(api: Api) -> None:
    connection = await api.connect(ack_timeout_s=0.3)
    errors: list[Exception] = []
    connection.exception_listener = errors.append
    session, transacted = [await connection.create_session(mode) for mode in (AUTO, TRANSACTED)]
    producer = await session.create_producer(TOPIC)
    command = [sys.executable, "-c", SUBSCRIBER, api.uri]
    subscriber = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert subscriber.stdout is not None
    line = asyncio.create_task(subscriber.stdout.readline())
    while not line.done():
        await producer.send(TextMessage("are you there?"))
        await asyncio.sleep(0.05)
    assert await line == b"ready True\n"
    assert errors == []
    subscriber.kill()
    await subscriber.wait()
    await producer.send(TextMessage("nobody asks"))
    await eventually(lambda: any(isinstance(error, UnconfirmedError) for error in errors))
    future = producer.inner.send_async(TextMessage("somebody asks"))
    with pytest.raises(UnconfirmedError) as raised:
        await (asyncio.wrap_future(future) if api.is_blocking else future)
    assert len(raised.value.unacknowledged_nodes) == 1
    await send_texts(transacted, TOPIC, "in a transaction")
    with pytest.raises(UnconfirmedError) as raised:
        await transacted.commit()
    assert raised.value.in_doubt


async def test_u2_no_local_applies_to_connections_not_to_nodes(api: Api) -> None:
    sending, receiving = await two_nodes(api)
    session = await receiving.create_session()
    consumer = await session.create_consumer(TOPIC, no_local=True)
    await consumer.ready()
    await send_texts(session, TOPIC, "mine")
    await send_texts(await sending.create_session(), TOPIC, "yours")
    assert await texts(consumer, 1) == ["yours"]


@pytest.mark.parametrize("topic", [TOPIC, OTHER], ids=["one-topic", "two-topics"])
async def test_x2_a_transaction_arrives_whole(api: Api, topic: Topic) -> None:
    sending, receiving = await two_nodes(api)
    listening = await receiving.create_session()
    consumers = [await listening.create_consumer(TOPIC)]
    if topic != TOPIC:
        consumers.append(await listening.create_consumer(topic))
    for consumer in consumers:
        await consumer.ready()
    session = await sending.create_session(SessionMode.SESSION_TRANSACTED)
    await send_texts(session, TOPIC, "1", priority=0)
    await send_texts(session, topic, "2", priority=9)
    await asyncio.sleep(QUIET_S)
    assert await consumers[0].receive(0) is None
    await session.commit()
    found = [(await consumers[place].receive(WAIT_S)).text for place in (0, -1)]
    assert sorted(found) == ["1", "2"]


async def test_g1_replies_reach_a_temporary_topic(api: Api) -> None:
    asking, answering = await two_nodes(api)
    session = await answering.create_session()
    consumer = await session.create_consumer(TOPIC)
    await consumer.ready()
    requestor = await api.make("TopicRequestor", await asking.create_session(), TOPIC)
    waiting = asyncio.create_task(requestor.request(TextMessage("question"), WAIT_S))
    request = await consumer.receive(WAIT_S)
    reply = TextMessage("answer")
    reply.correlation_id = request.message_id
    await (await session.create_producer()).send(reply, request.reply_to)
    assert (await waiting).text == "answer"
    await requestor.close()
