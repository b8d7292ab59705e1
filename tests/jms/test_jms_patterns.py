"""Tests of consumers of patterns of topics."""

import asyncio
from typing import Any

import pytest
from adapter import QUIET_S, WAIT_S, Api, eventually, send_texts, texts

from fjm2.jms import InvalidDestinationError, NoReplyError, SessionMode, TextMessage, Topic, TopicPattern

PRICES = TopicPattern("prices.>")
EU, US, ORDERS, NEWS = Topic("prices.eu"), Topic("prices.us.spot"), Topic("orders"), Topic("news")


@pytest.mark.parametrize("is_local", [True, False], ids=["same process", "two nodes"])
async def test_a_pattern_gets_all_topics_that_match(api: Api, is_local: bool) -> None:
    receiving = await api.connect()
    sending = receiving if is_local else await api.connect(dscp=8)
    consumer = await (await receiving.create_session()).create_consumer(PRICES)
    await consumer.ready()
    assert consumer.destination == PRICES
    session = await sending.create_session()
    for topic in (EU, ORDERS, US, Topic("prices")):
        await send_texts(session, topic, topic.name)
    received = [await consumer.receive(WAIT_S) for _ in range(2)]
    assert [message.text for message in received] == ["prices.eu", "prices.us.spot"]
    assert [message.destination for message in received] == [EU, US]
    assert await consumer.receive(QUIET_S) is None


async def test_a_listener_of_a_pattern_sees_each_topic_and_can_answer_there(api: Api) -> None:
    context = await api.context()
    heard: list[Any] = []
    consumer = await context.create_consumer(TopicPattern("rooms/*/ask"))
    consumer.message_listener = lambda message: heard.append(message.destination)
    for room in ("1", "2"):
        await (await context.create_producer()).send(Topic(f"rooms/{room}/ask"), TextMessage(room))
    await eventually(lambda: len(heard) == 2)
    assert heard == [Topic("rooms/1/ask"), Topic("rooms/2/ask")]
    answers = await context.create_context()
    answered = await answers.create_consumer(Topic("rooms/1/ask"))
    await answered.ready()
    await (await answers.create_producer()).send(heard[0], TextMessage("back"))
    assert (await answered.receive(WAIT_S)).text == "back"


async def test_selectors_see_the_destination(api: Api) -> None:
    connection = await api.connect()
    session = await connection.create_session()
    consumer = await session.create_consumer(TopicPattern("*.*"), "JMSDestination LIKE 'prices.%' AND n > 1")
    plain = await (await connection.create_session()).create_consumer(EU, "JMSDestination = 'prices.eu'")
    producer = await session.create_producer()
    for topic, number in ((EU, 1), (EU, 2), (Topic("orders.eu"), 3)):
        message = TextMessage(str(number))
        message.set_int_property("n", number)
        await producer.send(message, topic)
    assert await texts(consumer, 1) == ["2"]
    assert await texts(plain, 2) == ["1", "2"]


async def test_nothing_can_be_sent_to_a_pattern(api: Api) -> None:
    reason = r"TopicPattern\('prices.>'\) is a pattern, to consume from: expected one topic to send to"
    session = await (await api.connect()).create_session()
    with pytest.raises(InvalidDestinationError, match=reason):
        await session.create_producer(PRICES)
    producer = await session.create_producer()
    with pytest.raises(InvalidDestinationError, match=reason):
        await producer.send(TextMessage("a"), PRICES)
    context = await api.context()
    with pytest.raises(InvalidDestinationError, match=reason):
        await (await context.create_producer()).send(PRICES, TextMessage("a"))
    with pytest.raises(InvalidDestinationError, match=reason):
        await context.request(PRICES, TextMessage("a"), 0.1)
    with pytest.raises(InvalidDestinationError, match="durable and shared subscriptions take one topic"):
        await session.create_shared_consumer(PRICES, "name")


async def test_publishers_wait_for_and_confirm_with_consumers_of_patterns(api: Api) -> None:
    receiving, sending = await api.connect(), await api.connect(dscp=8)
    assert await sending.subscribers(EU) == 0
    consumer = await (await receiving.create_session()).create_consumer(PRICES)
    await consumer.ready()
    for _ in range(200):
        if await sending.subscribers(EU):
            break
        await asyncio.sleep(0.01)
    assert await sending.subscribers(EU) == await receiving.subscribers(EU) == 1
    session = await sending.create_session(transacted=True)
    await send_texts(session, EU, "a")
    await session.commit()
    assert await texts(consumer, 1) == ["a"]
    await consumer.close()
    for _ in range(200):
        if not await sending.subscribers(EU):
            break
        await asyncio.sleep(0.01)
    assert await sending.subscribers(EU) == await receiving.subscribers(EU) == 0


async def test_patterns_of_others_may_match_and_own_ones_are_matched(api: Api) -> None:
    receiving, sending = await api.context(client_id="rome"), await api.context(dscp=8)
    await (await receiving.create_consumer(PRICES)).ready()
    async with asyncio.timeout(WAIT_S):
        while not await sending.subscribers(NEWS):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert [await receiving.subscribers(topic) for topic in (EU, NEWS)] == [1, 0]
    assert [await sending.subscribers(topic) for topic in (EU, NEWS)] == [1, 1]
    with pytest.raises(NoReplyError, match=r"running, on .*\? Asked 1 that may get the topic by a pattern: rome$"):
        await sending.request(NEWS, "hello", timeout=0.3)
    other = await api.context(client_id="oslo")
    await (await other.create_consumer(NEWS)).ready()
    async with asyncio.timeout(WAIT_S):
        while await sending.subscribers(NEWS) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    with pytest.raises(
        NoReplyError, match=r"asked 1 subscriber: oslo, and 1 that may get the topic by a pattern: rome$"
    ):
        await sending.request(NEWS, "hello", timeout=0.6)


async def test_recovered_messages_of_a_pattern_keep_their_topics(api: Api) -> None:
    session = await (await api.connect()).create_session(SessionMode.CLIENT_ACKNOWLEDGE)
    consumer = await session.create_consumer(PRICES)
    await send_texts(session, EU, "a")
    await send_texts(session, US, "b")
    first = [(await consumer.receive(WAIT_S)).destination for _ in range(2)]
    await session.recover()
    again = [await consumer.receive(WAIT_S) for _ in range(2)]
    assert [message.destination for message in again] == first == [EU, US]
    assert [message.delivery_count for message in again] == [2, 2]
