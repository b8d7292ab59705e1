"""Tests of subscriptions, temporary destinations and requests.

Their names begin with the number of the case: S1, S2, U1 to U4, U9, U10, G1 to G3, R1, R2.
"""

import asyncio
import time
from typing import Any

import pytest
from adapter import QUIET_S, WAIT_S, Api, eventually, listener, send_texts, texts

from fjm2.jms import (
    IllegalStateError,
    InvalidDestinationError,
    InvalidSelectorError,
    Message,
    NoReplyError,
    Queue,
    ResourceAllocationError,
    SessionMode,
    TemporaryTopic,
    TextMessage,
    Topic,
    TopicPattern,
)

TOPIC, OTHER = Topic("fjm2.subscriptions"), Topic("fjm2.subscriptions.other")


async def test_s1_a_selector_picks_by_headers_and_properties(api: Api) -> None:
    session = await (await api.connect()).create_session()
    some = await session.create_consumer(TOPIC, "size > 2 AND JMSType = 'kind'")
    every = await session.create_consumer(TOPIC, "")
    assert (some.message_selector, every.message_selector) == ("size > 2 AND JMSType = 'kind'", None)
    producer = await session.create_producer(TOPIC)
    for size, kind in ((1, "kind"), (3, "kind"), (3, "other"), (4, None), (5, "kind")):
        message = TextMessage(f"{size} {kind}")
        message.set_int_property("size", size)
        message.type = kind
        await producer.send(message)
    assert await texts(some, 2) == ["3 kind", "5 kind"]
    assert len(await texts(every, 5)) == 5


async def test_s2_a_bad_selector_raises_when_the_consumer_is_created(api: Api) -> None:
    session = await (await api.connect()).create_session()
    with pytest.raises(InvalidSelectorError):
        await session.create_consumer(TOPIC, "size >")
    with pytest.raises(InvalidSelectorError):
        await session.create_browser(Queue("q"), "size >")


async def test_u1_every_consumer_is_a_subscription_of_its_own(api: Api) -> None:
    connection = await api.connect()
    session = await connection.create_session()
    consumers = [await session.create_consumer(TOPIC) for _ in range(2)]
    consumers.append(await (await connection.create_session()).create_consumer(TOPIC))
    consumers.append(await (await (await api.connect()).create_session()).create_consumer(TOPIC))
    for consumer in consumers:
        await consumer.ready()
    await send_texts(session, TOPIC, "a", "b")
    for consumer in consumers:
        assert await texts(consumer, 2) == ["a", "b"]


async def test_u1_only_messages_of_the_topic_arrive(api: Api) -> None:
    session = await (await api.connect()).create_session()
    consumer = await session.create_consumer(TOPIC)
    temporary = await session.create_temporary_topic()
    for topic in (OTHER, Topic(TOPIC.name + "."), Topic(TOPIC.name.upper()), temporary.inner):
        await send_texts(session, topic, "elsewhere")
    await send_texts(session, TOPIC, "here")
    assert await texts(consumer, 1) == ["here"]


async def test_u2_no_local_leaves_out_what_the_connection_sends(api: Api) -> None:
    connection, other = await api.connect(), await api.connect()
    session = await connection.create_session()
    consumer = await session.create_consumer(TOPIC, "JMSPriority < 9", no_local=True)
    assert consumer.no_local is True
    await send_texts(session, TOPIC, "mine")
    await send_texts(await connection.create_session(), TOPIC, "mine as well")
    others = await other.create_session()
    await send_texts(others, TOPIC, "yours")
    await send_texts(others, TOPIC, "not selected", priority=9)
    assert await texts(consumer, 1) == ["yours"]


async def test_u3_copies_are_independent(api: Api) -> None:
    session = await (await api.connect()).create_session(SessionMode.CLIENT_ACKNOWLEDGE)
    one, two = await session.create_consumer(TOPIC), await session.create_consumer(TOPIC)
    await send_texts(await (await api.connect()).create_session(), TOPIC, "a")
    first = await one.receive(WAIT_S)
    first.clear_body()
    first.text = "spoiled"
    second = await two.receive(WAIT_S)
    assert (second.text, second.redelivered) == ("a", False)


async def test_u4_features_that_need_a_store_or_a_coordinator_raise_a_clear_error(api: Api) -> None:
    connection = await api.connect()
    session = await connection.create_session()
    context = await api.context(client_id="u4")
    with pytest.raises(IllegalStateError, match="client id"):
        await session.create_durable_consumer(TOPIC, "name")
    creates = session.create_shared_consumer, context.create_shared_consumer, session.create_shared_durable_consumer
    for call in (context.create_durable_consumer, *creates):
        with pytest.raises(ResourceAllocationError, match=r"no keeper on fjm2://.*; start one: fjm2 keep") as caught:
            await call(TOPIC, "name")
        assert caught.value.error_code == "no_keeper"
    with pytest.raises(ResourceAllocationError, match="coordinator"):
        await session.create_browser(Queue("q"))
    for call in (session.create_consumer, session.create_producer):
        with pytest.raises(ResourceAllocationError, match="coordinator"):
            await call(Queue("q"))
    with pytest.raises(ResourceAllocationError, match="coordinator"):
        await (await session.create_producer()).send(TextMessage("a"), Queue("q"))
    with pytest.raises(NotImplementedError):
        await connection.create_connection_consumer()
    with pytest.raises(ResourceAllocationError):
        await api.make("QueueRequestor", session.inner, Queue("q"))


@pytest.mark.parametrize("name", ["a" * 128, "Aa0_.-" * 22, "fjm2.ü.漢字"])
async def test_u9_names_may_be_long_and_of_all_letters(api: Api, name: str) -> None:
    session = await (await api.connect()).create_session()
    with pytest.raises(ResourceAllocationError):
        await session.create_shared_consumer(TOPIC, name)
    consumer = await session.create_consumer(Topic(name))
    await send_texts(session, Topic(name), "a")
    assert await texts(consumer, 1) == ["a"]


async def test_u10_topics_with_dots(api: Api) -> None:
    session = await (await api.connect()).create_session()
    consumer = await session.create_consumer(await session.create_topic("a.b"))
    await send_texts(session, Topic("a"), "parent")
    await send_texts(session, Topic("a.b.c"), "child")
    await send_texts(session, Topic("a.b"), "it")
    assert await texts(consumer, 1) == ["it"]


async def test_g1_a_temporary_topic_belongs_to_its_connection(api: Api) -> None:
    connection, other = await api.connect(), await api.connect()
    one, two = await connection.create_session(), await connection.create_session()
    topic, second = await one.create_temporary_topic(), await one.create_temporary_topic()
    assert topic.name != second.name
    consumer = await two.create_consumer(topic)
    others = await other.create_session()
    with pytest.raises(InvalidDestinationError, match="another connection"):
        await others.create_consumer(topic)
    await send_texts(others, topic, "a")
    assert await texts(consumer, 1) == ["a"]
    with pytest.raises(InvalidDestinationError, match="temporary"):
        await one.create_durable_consumer(topic, "name")


@pytest.mark.parametrize("kind", ["durable", "shared", "shared_durable"])
async def test_u4_a_subscription_with_a_name_takes_no_pattern(api: Api, kind: str) -> None:
    context = await api.context(client_id="desk")
    with pytest.raises(InvalidDestinationError) as told:
        await getattr(context, f"create_{kind}_consumer")(TopicPattern("a.*"), "name")
    assert str(told.value) == (
        "TopicPattern('a.*') is a pattern: durable and shared subscriptions take one topic; create one for each topic, "
        "or a consumer without a name: create_consumer"
    )


async def test_g2_deleting_a_temporary_topic(api: Api) -> None:
    connection = await api.connect()
    session = await connection.create_session()
    topic = await session.create_temporary_topic()
    consumer, producer = await session.create_consumer(topic), await session.create_producer(topic)
    with pytest.raises(IllegalStateError, match="consumers"):
        await topic.delete()
    await producer.send(TextMessage("a"))
    await consumer.close()
    await topic.delete()
    await topic.delete()
    with pytest.raises(InvalidDestinationError, match="deleted"):
        await producer.send(TextMessage("b"))
    with pytest.raises(InvalidDestinationError, match="deleted"):
        await session.create_consumer(topic)
    async with await session.create_temporary_topic() as short:
        await session.create_producer(short)
    with pytest.raises(InvalidDestinationError, match="deleted"):
        await session.create_producer(short)


async def test_g2_a_temporary_topic_from_a_message_belongs_to_another_connection(api: Api) -> None:
    connection, other = await api.connect(), await api.connect()
    session, others = await connection.create_session(), await other.create_session()
    consumer = await others.create_consumer(TOPIC)
    topic = await session.create_temporary_topic()
    message = TextMessage("a")
    message.reply_to = topic.inner
    await (await session.create_producer(TOPIC)).send(message)
    reply_to = (await consumer.receive(WAIT_S)).reply_to
    assert isinstance(reply_to, TemporaryTopic)
    assert reply_to == topic.inner
    with pytest.raises(InvalidDestinationError, match="another connection"):
        await TemporaryTopic(reply_to.name).delete()


@pytest.mark.parametrize("options", [{}, {"inactivity_s": 50}], ids=["of the same bus", "of another node"])
@pytest.mark.parametrize("kind", ["topic", "queue"])
async def test_g2_a_closed_connection_takes_its_temporary_destinations_along(
    api: Api, kind: str, options: dict[str, Any]
) -> None:
    owner, sender = await api.connect(), await api.connect(**options)
    destination = await api.invoke(getattr((await owner.create_session()).inner, f"create_temporary_{kind}"))
    producer = await (await sender.create_session()).create_producer()
    await sender.ready()
    await producer.send(TextMessage("a"), destination)
    await owner.close()
    with pytest.raises(InvalidDestinationError, match="was deleted: the connection that created it is closed"):
        await send_on(producer, destination)


async def send_on(producer: Any, destination: Any) -> None:
    """Send until that raises, or for two seconds."""
    for _ in range(200):
        await producer.send(TextMessage("a"), destination)
        await asyncio.sleep(0.01)


async def test_g2_a_name_of_another_making_is_sent_to(api: Api) -> None:
    producer = await (await (await api.connect()).create_session()).create_producer()
    for name in ("0123456789abcdef-1", "0123456789abcdef", "of-my-own"):
        await producer.send(TextMessage("a"), TemporaryTopic(name))


async def test_g3_a_temporary_queue_keeps_messages_for_one_consumer_each(api: Api) -> None:
    connection = await api.connect()
    session = await connection.create_session()
    queue = await session.create_temporary_queue()
    others = await (await api.connect()).create_session()
    await send_texts(others, queue, *map(str, range(10)))
    consumers = [await (await connection.create_session()).create_consumer(queue) for _ in range(2)]
    found = [(await consumers[number % 2].receive(WAIT_S)).text for number in range(10)]
    assert found == [str(number) for number in range(10)]
    assert [await consumer.receive(QUIET_S) for consumer in consumers] == [None, None]
    with pytest.raises(InvalidDestinationError, match="another connection"):
        await others.create_consumer(queue)
    with pytest.raises(IllegalStateError, match="consumers"):
        await queue.delete()
    for consumer in consumers:
        await consumer.close()
    await queue.delete()


async def test_g3_messages_that_do_not_match_a_selector_stay_in_the_queue(api: Api) -> None:
    session = await (await api.connect()).create_session()
    queue = await session.create_temporary_queue()
    high = await session.create_consumer(queue, "JMSPriority > 5")
    await send_texts(session, queue, "low", priority=1)
    await send_texts(session, queue, "high", priority=9)
    assert await texts(high, 1) == ["high"]
    assert await texts(await session.create_consumer(queue), 1) == ["low"]


async def test_g3_unacknowledged_messages_return_to_the_front(api: Api) -> None:
    connection = await api.connect()
    session = await connection.create_session(SessionMode.CLIENT_ACKNOWLEDGE)
    queue = await session.create_temporary_queue()
    await send_texts(await connection.create_session(), queue, "a", "b", "c")
    consumer = await session.create_consumer(queue)
    for _ in range(2):
        await consumer.receive(WAIT_S)
    await session.close()
    next_one = await (await connection.create_session()).create_consumer(queue)
    found = [await next_one.receive(WAIT_S) for _ in range(3)]
    assert [(message.text, message.redelivered) for message in found] == [("a", True), ("b", True), ("c", False)]


async def test_g3_a_listener_gets_what_another_consumer_did_not_acknowledge(api: Api) -> None:
    connection = await api.connect()
    session = await connection.create_session(SessionMode.CLIENT_ACKNOWLEDGE)
    queue = await session.create_temporary_queue()
    first = await session.create_consumer(queue)
    await send_texts(await connection.create_session(), queue, "a", "b", "c")
    for _ in range(2):
        await first.receive(WAIT_S)
    heard: list[tuple[str, int]] = []
    second = await (await connection.create_session()).create_consumer(queue)
    second.message_listener = lambda message: heard.append((message.text, message.delivery_count))
    await eventually(lambda: heard == [("c", 1)])
    await session.close()
    await eventually(lambda: heard == [("c", 1), ("a", 2), ("b", 2)])


async def test_g3_listeners_share_a_queue(api: Api) -> None:
    connection = await api.connect()
    queue = await (await connection.create_session()).create_temporary_queue()
    heard: list[str] = []
    for _ in range(2):
        session = await connection.create_session()
        (await session.create_consumer(queue)).message_listener = lambda message: heard.append(message.text)
    await send_texts(await connection.create_session(), queue, *map(str, range(50)))
    await eventually(lambda: len(heard) >= 50)
    await asyncio.sleep(QUIET_S)
    assert sorted(map(int, heard)) == list(range(50))


async def test_g3_messages_are_looked_at_in_a_transaction_that_is_rolled_back(api: Api) -> None:
    connection = await api.connect()
    session = await connection.create_session(transacted=True)
    queue = await session.create_temporary_queue()
    with pytest.raises(ResourceAllocationError, match="receive from it in a transacted session, and roll back") as told:
        await session.create_browser(queue)
    assert "Topic(" not in str(told.value)
    await send_texts(await connection.create_session(), queue, "a", "b")
    consumer = await session.create_consumer(queue)
    assert await texts(consumer, 2) == ["a", "b"]
    await session.rollback()
    await session.close()
    assert await texts(await (await connection.create_session()).create_consumer(queue), 2) == ["a", "b"]


async def test_g3_another_connection_does_not_browse_a_temporary_queue(api: Api) -> None:
    queue = await (await (await api.connect()).create_session()).create_temporary_queue()
    with pytest.raises(InvalidDestinationError, match="belongs to another connection"):
        await (await (await api.connect()).create_session()).create_browser(queue)


async def answer(api: Api, session: Any, count: int = 1) -> None:
    """Reply to each request on the topic `count` times, from now on."""
    producer = await session.create_producer()

    async def reply(request: TextMessage) -> None:
        for number in range(count):
            made = TextMessage(f"{request.text} {number}")
            made.correlation_id = request.message_id
            await producer.send(made, request.reply_to)

    (await session.create_consumer(TOPIC)).message_listener = listener(api, reply)


async def test_r1_the_requestor_takes_the_first_reply(api: Api) -> None:
    connection = await api.connect()
    await answer(api, await (await api.connect()).create_session(), count=3)
    session = await connection.create_session()
    requestor = await api.make("TopicRequestor", session, TOPIC)
    for text in ("a", "b"):
        assert (await requestor.request(TextMessage(text), WAIT_S)).text == f"{text} 0"
    await requestor.close()
    with pytest.raises(IllegalStateError, match="closed"):
        await session.create_producer(TOPIC)


async def test_r1_a_requestor_waits_no_longer_than_its_timeout(api: Api) -> None:
    session = await (await api.connect()).create_session()
    async with await api.make("TopicRequestor", session, TOPIC) as requestor:
        begin = time.monotonic()
        assert await requestor.request(TextMessage("a"), 0.1) is None
        assert 0.09 <= time.monotonic() - begin < 2


async def test_r2_requests_of_a_context_get_their_own_replies(api: Api) -> None:
    await answer(api, await (await api.connect()).create_session())
    context = await api.context()

    async def ask(text: str) -> Message | None:
        reply: Message | None = await context.request(TOPIC, TextMessage(text), WAIT_S)
        return reply

    replies = await asyncio.gather(*(ask(str(number)) for number in range(5)))
    assert [reply.get_body(str) for reply in replies if reply] == [f"{number} 0" for number in range(5)]
    with pytest.raises(NoReplyError, match=r"no reply from topic://fjm2.subscriptions.other within 0\.05 s"):
        await context.request(OTHER, TextMessage("nobody"), 0.05)


async def test_r2_many_reply(api: Api) -> None:
    for _ in range(3):
        await answer(api, await (await api.connect()).create_session())
    context = await api.context()
    replies = await context.request_many(TOPIC, TextMessage("a"), timeout=WAIT_S, count=3)
    assert [reply.text for reply in replies] == ["a 0"] * 3
    replies = await context.request_many(TOPIC, TextMessage("a"), timeout=0.3)
    assert len(replies) == 3
    with pytest.raises(ValueError, match="timeout or count"):
        await context.request_many(TOPIC, TextMessage("a"))
