"""Tests of shared subscriptions that are not durable, in both APIs, beside a keeper that is a process.

Their names begin with the number of the case: A2, C4, U4 and U8.
"""

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from adapter import WAIT_S, Api
from keeper_process import keeping

from fjm2.jms import (
    DeliveryMode,
    IllegalStateError,
    InvalidDestinationError,
    InvalidSelectorError,
    SessionMode,
    TextMessage,
    Topic,
)

_PORT = 31_920
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
    """Return a topic that no other test uses, which names the subscription as well."""
    return Topic(f"fjm2.shared.{next(_numbers)}")


async def shared(context: Any, topic: Topic, selector: str | None = None) -> Any:
    return await context.create_shared_consumer(topic, topic.name, selector)


async def send(api: Api, topic: Topic, *bodies: str, **options: Any) -> None:
    context = await api.context()
    await context.ready()  # otherwise it does not know of the keeper yet
    for body in bodies:
        await context.send(topic, body, **options)
    await context.close()


async def received(count: int, *consumers: Any) -> list[tuple[str, bool]]:
    """Receive messages of several consumers, and return their texts and flags. Fail if there are fewer or more."""
    found: list[tuple[str, bool]] = []
    async with asyncio.timeout(WAIT_S):
        while len(found) < count:
            for consumer in consumers:
                message = await consumer.receive(TextMessage, 0.05)
                found += [] if message is None else [(message.text, message.redelivered)]
    assert [await each.receive(0.3) for each in consumers] == [None] * len(consumers)
    return found


async def test_u4_each_message_goes_to_one_consumer_and_no_client_id_is_needed(kept: Api, topic: Topic) -> None:
    contexts = [await kept.context() for _ in range(2)]
    consumers = [await shared(each, topic) for each in contexts]
    assert (consumers[0].destination, consumers[0].message_selector) == (topic, None)
    await send(kept, topic, *map(str, range(40)))
    found = await received(40, *consumers)
    assert sorted(int(text) for text, _ in found) == list(range(40))
    assert not any(is_again for _, is_again in found)


async def test_u4_sessions_create_shared_consumers_too(kept: Api, topic: Topic) -> None:
    connection = await kept.connect()
    session = await connection.create_session()
    consumer = await session.create_shared_consumer(topic, topic.name, "size > 2")
    await send(kept, topic, "small", properties={"size": 1})
    await send(kept, topic, "large", properties={"size": 3})
    assert await received(1, consumer) == [("large", False)]


async def test_u4_the_subscription_ends_with_its_last_consumer(kept: Api, topic: Topic) -> None:
    one, two = await kept.context(), await kept.context()
    first, second = await shared(one, topic), await shared(two, topic)
    await first.close()
    await send(kept, topic, "a")
    assert await received(1, second) == [("a", False)]
    await second.close()
    await send(kept, topic, "gone")
    third = await shared(one, topic)
    await send(kept, topic, "b")
    assert await received(1, third) == [("b", False)]


async def test_u4_another_topic_or_selector_raises_while_there_are_consumers(kept: Api, topic: Topic) -> None:
    one, two = await kept.context(), await kept.context()
    consumer = await shared(one, topic, "size > 2")
    with pytest.raises(IllegalStateError, match="active consumer"):
        await shared(two, topic)
    with pytest.raises(IllegalStateError, match="active consumer"):
        await two.create_shared_consumer(Topic("fjm2.elsewhere"), topic.name, "size > 2")
    await consumer.close()
    other = await shared(two, topic)
    await send(kept, topic, "all")
    assert await received(1, other) == [("all", False)]


async def test_u4_durable_subscriptions_have_names_of_their_own(kept: Api, topic: Topic) -> None:
    context = await kept.context(client_id=topic.name)
    durable = await context.create_durable_consumer(topic, topic.name)
    consumer = await shared(context, topic)
    await send(kept, topic, "a")
    assert await received(1, durable) == [("a", False)]
    assert await received(1, consumer) == [("a", False)]
    await durable.close()
    await context.unsubscribe(topic.name)
    await send(kept, topic, "b")
    assert await received(1, consumer) == [("b", False)]


async def test_u4_client_ids_share_among_themselves(kept: Api, topic: Topic) -> None:
    one, two = await kept.context(), await kept.context(client_id=topic.name)
    consumers = await shared(one, topic), await shared(two, topic)
    await send(kept, topic, "a")
    for consumer in consumers:
        assert await received(1, consumer) == [("a", False)]


async def test_u4_what_a_consumer_did_not_acknowledge_goes_to_another(kept: Api, topic: Topic) -> None:
    one, two = [await kept.context(SessionMode.CLIENT_ACKNOWLEDGE) for _ in range(2)]
    first = await shared(one, topic)
    await send(kept, topic, "a", "b")
    message = await first.receive(WAIT_S)
    await kept.acknowledge(message)
    assert await received(1, first) == [("b", False)]
    second = await shared(two, topic)
    await one.close()
    assert await received(1, second) == [("b", True)]


async def test_a2_c4_messages_of_a_closed_consumer_can_be_acknowledged(kept: Api, topic: Topic) -> None:
    one, two = [await kept.context(SessionMode.CLIENT_ACKNOWLEDGE) for _ in range(2)]
    first = await shared(one, topic)
    await send(kept, topic, "a")
    message = await first.receive(WAIT_S)
    second = await shared(two, topic)
    await first.close()
    await kept.acknowledge(message)
    await one.close()
    assert await received(0, second) == []


async def test_only_persistent_messages_reach_named_subscriptions(kept: Api, topic: Topic) -> None:
    context = await kept.context(client_id=topic.name)
    consumers = await shared(context, topic), await context.create_durable_consumer(topic, topic.name)
    await send(kept, topic, "express", delivery_mode=DeliveryMode.NON_PERSISTENT)
    await send(kept, topic, "kept")
    for consumer in consumers:
        assert await received(1, consumer) == [("kept", False)]


async def test_u8_there_is_nothing_to_unsubscribe(kept: Api, topic: Topic) -> None:
    context = await kept.context()
    consumer = await shared(context, topic)
    with pytest.raises(InvalidDestinationError, match="no subscription of this name"):
        await context.unsubscribe(topic.name)
    await send(kept, topic, "a")
    assert await received(1, consumer) == [("a", False)]


async def test_u4_names_topics_and_selectors_are_checked_first(kept: Api, topic: Topic) -> None:
    context = await kept.context()
    with pytest.raises(ValueError, match="name="):
        await context.create_shared_consumer(topic, "")
    with pytest.raises(InvalidDestinationError):
        await context.create_shared_consumer(await context.create_temporary_topic(), "name")
    with pytest.raises(InvalidSelectorError):
        await context.create_shared_consumer(topic, "name", "size >")
