"""Tests of order, expiry, priority, delivery modes, and headers set by a send.

Their names begin with the number of the case: O1 to O4, E1, E2, M1 to M4.
"""

import asyncio
import time
from functools import partial
from typing import Any

import pytest
from adapter import QUIET_S, WAIT_S, Api, eventually, send_texts, texts

from fjm2.jms import DeliveryMode, JMSError, SessionMode, TextMessage, Topic

TOPIC, OTHER = Topic("fjm2.order"), Topic("fjm2.order.other")


async def session_and_consumer(api: Api, **options: Any) -> tuple[Any, Any]:
    connection = await api.connect(**options)
    session = await connection.create_session()
    return session, await (await connection.create_session()).create_consumer(TOPIC)


async def test_o1_producers_of_a_session_share_one_order(api: Api) -> None:
    session, consumer = await session_and_consumer(api)
    producers = [await session.create_producer(TOPIC), await session.create_producer()]
    for number in range(100):
        message = TextMessage(str(number))
        await (producers[0].send(message) if number % 3 else producers[1].send(message, TOPIC))
    assert await texts(consumer, 100) == [str(number) for number in range(100)]


async def test_o2_synchronous_and_asynchronous_sends_share_one_order(api: Api) -> None:
    session, consumer = await session_and_consumer(api)
    producer = await session.create_producer(TOPIC)
    inner = producer.inner
    for number in range(30):
        if number % 2:
            inner.send_async(TextMessage(str(number)))
        else:
            await producer.send(TextMessage(str(number)))
    assert await texts(consumer, 30) == [str(number) for number in range(30)]


async def test_o3_higher_priorities_overtake_in_the_consumer(api: Api) -> None:
    session, consumer = await session_and_consumer(api)
    for priority in (4, 5, 0, 9, 4):
        await send_texts(session, TOPIC, f"{priority}", priority=priority)
    await asyncio.sleep(QUIET_S)
    assert await texts(consumer, 5) == ["9", "5", "4", "4", "0"]


def is_longer(found: list[str], count: int) -> bool:
    return len(found) > count


async def test_o4_recovery_is_in_the_session_s_order_over_all_its_consumers(api: Api) -> None:
    connection = await api.connect()
    session = await connection.create_session(SessionMode.CLIENT_ACKNOWLEDGE)
    consumers = [await session.create_consumer(topic) for topic in (TOPIC, OTHER)]
    heard: list[str] = []

    for consumer in consumers:
        consumer.message_listener = lambda message: heard.append(message.text)
    sender = await connection.create_session()
    for number, topic in enumerate([TOPIC, OTHER, OTHER, TOPIC]):
        await send_texts(sender, topic, str(number))
        await eventually(partial(is_longer, heard, number))
    await connection.stop()
    for consumer in consumers:
        consumer.message_listener = None
    await session.recover()
    for consumer in reversed(consumers):
        consumer.message_listener = lambda message: heard.append(message.text)
    await connection.start()
    await eventually(lambda: len(heard) == 8)
    assert heard[4:] == ["0", "1", "2", "3"]


async def test_e1_expired_messages_are_not_delivered(api: Api) -> None:
    session, consumer = await session_and_consumer(api)
    await send_texts(session, TOPIC, "short", time_to_live=30)
    await send_texts(session, TOPIC, "long", time_to_live=60_000)
    await send_texts(session, TOPIC, "for ever", time_to_live=0)
    await asyncio.sleep(0.08)
    assert await texts(consumer, 2) == ["long", "for ever"]


async def test_e1_expired_messages_do_not_reach_listeners(api: Api) -> None:
    connection = await api.connect(is_started=False)
    session = await connection.create_session()
    consumer = await session.create_consumer(TOPIC)
    heard: list[str] = []
    consumer.message_listener = lambda message: heard.append(message.text)
    sender = await connection.create_session()
    await send_texts(sender, TOPIC, "short", time_to_live=30)
    await send_texts(sender, TOPIC, "long", time_to_live=60_000)
    await asyncio.sleep(0.08)
    await connection.start()
    await eventually(lambda: heard)
    assert heard == ["long"]


async def test_e2_in_a_transaction_time_to_live_counts_from_the_send(api: Api) -> None:
    _, consumer = await session_and_consumer(api)
    session = await (await api.connect()).create_session(SessionMode.SESSION_TRANSACTED)
    await send_texts(session, TOPIC, "short", time_to_live=30)
    await send_texts(session, TOPIC, "long")
    await asyncio.sleep(0.08)
    await session.commit()
    assert await texts(consumer, 1) == ["long"]


async def test_m1_non_persistent_messages_never_come_twice(api: Api) -> None:
    session, consumer = await session_and_consumer(api)
    await send_texts(session, TOPIC, *map(str, range(200)), delivery_mode=DeliveryMode.NON_PERSISTENT)
    assert await texts(consumer, 200) == [str(number) for number in range(200)]
    assert await consumer.receive(QUIET_S) is None


async def test_m2_persistent_messages_are_confirmed(api: Api) -> None:
    session, consumer = await session_and_consumer(api)
    producer = await session.create_producer(TOPIC)
    message = TextMessage("a")
    future = producer.inner.send_async(message, delivery_mode=DeliveryMode.PERSISTENT)
    await asyncio.wait_for(asyncio.wrap_future(future) if api.is_blocking else future, WAIT_S)
    found = await consumer.receive(WAIT_S)
    assert (found.text, found.delivery_mode) == ("a", DeliveryMode.PERSISTENT)
    assert await consumer.receive(QUIET_S) is None


async def test_m2_an_absent_subscriber_misses_the_message(api: Api) -> None:
    session, consumer = await session_and_consumer(api)
    await consumer.close()
    await send_texts(session, TOPIC, "missed")
    later = await session.create_consumer(TOPIC)
    await send_texts(session, TOPIC, "heard")
    assert await texts(later, 1) == ["heard"]


async def test_m3_both_modes_on_one_topic(api: Api) -> None:
    session, consumer = await session_and_consumer(api)
    producer = await session.create_producer(TOPIC)
    for number in range(20):
        await producer.send(TextMessage(str(number)), delivery_mode=1 + number % 2)
    found = [await consumer.receive(WAIT_S) for _ in range(20)]
    for mode in DeliveryMode:
        numbers = [int(message.text) for message in found if message.delivery_mode == mode]
        assert len(numbers) == 10
        assert numbers == sorted(numbers)


async def test_m4_a_message_that_is_sent_twice_arrives_twice_and_no_more(api: Api) -> None:
    session, consumer = await session_and_consumer(api)
    producer = await session.create_producer(TOPIC)
    message = TextMessage("a")
    ids = []
    for _ in range(2):
        await producer.send(message)
        ids.append(message.message_id)
    assert [(await consumer.receive(WAIT_S)).message_id for _ in range(2)] == ids
    assert await consumer.receive(QUIET_S) is None
    assert len(set(ids)) == 2


async def test_h5_timestamps_lie_between_call_and_return(api: Api) -> None:
    session, consumer = await session_and_consumer(api)
    message = TextMessage("a")
    before = int(time.time() * 1000)
    await (await session.create_producer(TOPIC)).send(message)
    after = int(time.time() * 1000)
    assert before <= message.timestamp <= after
    assert (await consumer.receive(WAIT_S)).timestamp == message.timestamp


async def test_h11_priorities_out_of_range_are_refused(api: Api) -> None:
    session, _ = await session_and_consumer(api)
    producer = await session.create_producer(TOPIC)
    for value in (-1, 10, 4.0, True, "4"):
        with pytest.raises(JMSError, match="priority"):
            await producer.send(TextMessage("a"), priority=value)


async def test_h16_a_send_takes_a_snapshot_of_the_message(api: Api) -> None:
    session, consumer = await session_and_consumer(api)
    producer = await session.create_producer(TOPIC)
    message = TextMessage("first")
    await producer.send(message)
    message.text = "second"
    await producer.send(message)
    assert await texts(consumer, 2) == ["first", "second"]
