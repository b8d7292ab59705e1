"""Tests of delayed messages in both APIs, beside a keeper that is a process.

Their names begin with the number of the case: D1, E1, H12 and N2.
"""

import asyncio
import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest
from adapter import WAIT_S, Api
from keeper_process import keeping

from fjm2.jms import (
    JMSError,
    SessionMode,
    TextMessage,
    Topic,
)

_PORT = 31_940
"""Port of the keeper. It lies above those of tests."""
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def kept_uri(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[str]:
    """Yield the URI of a bus with a keeper, which the tests of this module share."""
    port = _PORT + 2 * int(worker_id.removeprefix("gw")) if worker_id.startswith("gw") else _PORT
    uri = f"fjm2://239.192.57.40:{port}?interface=127.0.0.1&ttl=0&grtt_s=1ms&robust_factor=5"
    with keeping(tmp_path_factory.mktemp("keeper") / "store", uri):
        yield uri


@pytest.fixture
def kept(api: Api, kept_uri: str) -> Api:
    """Return an API whose bus has a keeper."""
    api.uri = kept_uri
    return api


@pytest.fixture
def topic() -> Topic:
    """Return a topic that no other test uses, which names client id and subscription as well."""
    return Topic(f"fjm2.delayed.{next(_numbers)}")


async def durable(api: Api, topic: Topic, mode: SessionMode = SessionMode.AUTO_ACKNOWLEDGE) -> Any:
    context = await api.context(mode, client_id=topic.name)
    return await context.create_durable_consumer(topic, topic.name)


async def sender(api: Api) -> Any:
    context = await api.context()
    await context.ready()  # otherwise it does not know of the keeper yet
    return context


async def received(consumer: Any, count: int) -> list[str]:
    """Receive messages, none of which comes before its delivery time, and return their texts."""
    found = []
    for _ in range(count):
        message = await consumer.receive(TextMessage, WAIT_S)
        assert message is not None, f"only {found}"
        assert time.time() * 1000 >= message.delivery_time
        found.append(message.text)
    assert await consumer.receive(0.3) is None
    return found


async def test_d1_a_durable_consumer_gets_a_message_when_it_is_due(kept: Api, topic: Topic) -> None:
    consumer, context = await durable(kept, topic), await sender(kept)
    began = time.monotonic()
    await context.send(topic, "late", delivery_delay=1000)
    await context.send(topic, "early")
    assert time.monotonic() - began < 1.0, "neither send waits until the message is due"
    message = await consumer.receive(TextMessage, WAIT_S)
    assert message is not None
    assert message.text == "early", "what is not delayed is not held behind it"
    assert await received(consumer, 1) == ["late"]


async def test_d1_later_messages_that_are_due_before_come_before(kept: Api, topic: Topic) -> None:
    consumer, context = await durable(kept, topic), await sender(kept)
    for delay in (4000, 500):
        await context.send(topic, str(delay), delivery_delay=delay)
    assert await received(consumer, 2) == ["500", "4000"]


async def test_h12_the_delivery_time_is_that_of_the_send_and_the_delay(kept: Api, topic: Topic) -> None:
    consumer, context = await durable(kept, topic), await sender(kept)
    message = TextMessage("a")
    await context.send(topic, message, delivery_delay=700)
    assert message.delivery_time == message.timestamp + 700
    found = await consumer.receive(TextMessage, WAIT_S)
    assert found is not None
    assert (found.delivery_time, found.timestamp) == (message.delivery_time, message.timestamp)
    assert not found.redelivered


async def test_d1_a_consumer_that_was_away_gets_what_came_due(kept: Api, topic: Topic) -> None:
    context = await kept.context(client_id=topic.name)
    await (await context.create_durable_consumer(topic, "name")).close()
    await context.send(topic, "due", delivery_delay=300)
    await context.send(topic, "not due", delivery_delay=2500)
    await asyncio.sleep(0.8)
    consumer = await context.create_durable_consumer(topic, "name")
    message = await consumer.receive(TextMessage, 1.0)
    assert message is not None
    assert (message.text, message.redelivered) == ("due", False)
    assert await received(consumer, 1) == ["not due"]


async def test_d1_only_subscriptions_that_exist_at_the_send_get_it(kept: Api, topic: Topic) -> None:
    consumer, context = await durable(kept, topic), await sender(kept)
    await context.send(topic, "a", delivery_delay=1500)
    late = await context.create_shared_consumer(topic, "late")
    await context.send(topic, "b", delivery_delay=1600)
    assert await received(late, 1) == ["b"]
    assert await received(consumer, 2) == ["a", "b"]


async def test_d1_shared_subscriptions_hand_out_each_message_once(kept: Api, topic: Topic) -> None:
    consumers = [
        await (await kept.context()).create_shared_durable_consumer(topic, topic.name),
        await (await kept.context()).create_shared_durable_consumer(topic, topic.name),
    ]
    context = await sender(kept)
    for number in range(40):
        await context.send(topic, str(number), delivery_delay=500 + 10 * (number % 7))
    found: list[str] = []
    async with asyncio.timeout(WAIT_S):
        while len(found) < 40:
            for consumer in consumers:
                message = await consumer.receive(TextMessage, 0.05)
                if message is not None:
                    assert time.time() * 1000 >= message.delivery_time
                    found.append(message.text)
    assert sorted(found, key=int) == [str(number) for number in range(40)]
    assert [await each.receive(0.3) for each in consumers] == [None, None]


async def test_d1_many_messages_with_many_delays(kept: Api, topic: Topic) -> None:
    """They come due in another order than that in which they were sent, so that acknowledgements are scattered."""
    consumer, context = await durable(kept, topic), await sender(kept)
    count = 1000
    producer = (await context.create_producer()).inner
    for number in range(count):
        producer.delivery_delay = 500 + number * 7919 % count
        await kept.invoke(producer.send, topic, str(number))
    found = await received(consumer, count)
    assert sorted(found, key=int) == [str(number) for number in range(count)]


async def test_d1_what_was_not_acknowledged_comes_again(kept: Api, topic: Topic) -> None:
    for is_again in (False, True):
        context = await kept.context(SessionMode.CLIENT_ACKNOWLEDGE, client_id=topic.name)
        consumer = await context.create_durable_consumer(topic, "name")
        if not is_again:
            await context.send(topic, "a", delivery_delay=200)
        message = await consumer.receive(TextMessage, WAIT_S)
        assert message is not None
        assert (message.text, message.redelivered) == ("a", is_again)
        await context.close()


async def test_d1_a_consumer_without_a_name_gets_it_too(kept: Api, topic: Topic) -> None:
    consumer = await (await kept.context()).create_consumer(topic)
    await consumer.ready()
    named, context = await durable(kept, topic), await sender(kept)
    await context.send(topic, "a", delivery_delay=500)
    assert await received(named, 1) == ["a"]
    assert await received(consumer, 1) == ["a"]


async def test_d1_batches_and_transactions_are_delayed_too(kept: Api, topic: Topic) -> None:
    consumer = await durable(kept, topic)
    session = await (await kept.connect()).create_session()
    await (await kept.context()).ready()
    producer = await session.create_producer(topic)
    producer.inner.delivery_delay = 500
    began = time.time()
    await producer.send_many(["a", "b"])
    assert await received(consumer, 2) == ["a", "b"]
    assert time.time() - began >= 0.5
    transacted = await kept.context(SessionMode.SESSION_TRANSACTED)
    await transacted.send(topic, "c", delivery_delay=500)
    await transacted.send(topic, "d")
    await transacted.commit()
    assert await received(consumer, 2) == ["d", "c"]


async def test_e1_the_life_of_a_message_runs_from_its_send(kept: Api, topic: Topic) -> None:
    consumer, context = await durable(kept, topic), await sender(kept)
    with pytest.raises(JMSError, match="would have expired"):
        await context.send(topic, "never", delivery_delay=500, time_to_live=500)
    await context.send(topic, "a", delivery_delay=500, time_to_live=60_000)
    assert await received(consumer, 1) == ["a"]


async def test_a_last_value_cannot_be_delayed(kept: Api, topic: Topic) -> None:
    context = await sender(kept)
    with pytest.raises(JMSError, match="retain with a delivery_delay"):
        await context.send(topic, "a", retain=True, delivery_delay=1)
