"""Tests of last values in both APIs, beside a keeper that is a process."""

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from adapter import WAIT_S, Api, eventually, listener
from keeper_process import keeping

from fjm2.jms import (
    DeliveryMode,
    IllegalStateError,
    InvalidDestinationError,
    JMSError,
    MapMessage,
    MessageFormatError,
    Queue,
    ResourceAllocationError,
    SessionMode,
    TextMessage,
    Topic,
    TopicPattern,
)

FLAG = "JMS_FJM2_LastValue"
QUIET_S = 0.3
_PORT = 31_950
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
    """Return a topic that no other test uses."""
    return Topic(f"fjm2.values.{next(_numbers)}")


class Told:
    """A completion listener."""

    def __init__(self) -> None:
        self.completed: list[str] = []
        self.errors: list[Exception] = []

    def on_completion(self, message: TextMessage) -> None:
        self.completed.append(message.text or "")

    def on_exception(self, _: TextMessage, error: Exception) -> None:
        self.errors.append(error)


async def retain(api: Api, topic: Topic, *bodies: Any, how: Any = True, **options: Any) -> None:
    """Send last values in a connection that is closed then."""
    context = await api.context()
    for body in bodies:
        await context.send(topic, body, retain=how, **options)
    await context.close()


async def got(consumer: Any, count: int) -> list[tuple[Any, bool]]:
    """Receive messages, and return their texts and flags. Fail if there are fewer or more."""
    found = []
    for _ in range(count):
        message = await consumer.receive(TextMessage, WAIT_S)
        assert message is not None, f"only {found}"
        found.append((message.text, message.get_object_property(FLAG) is True))
    assert await consumer.receive(QUIET_S) is None
    return found


async def values_of(api: Api, topic: Topic | TopicPattern, count: int, **how: Any) -> list[Any]:
    """Come as a new consumer. Return the texts of all last values."""
    context = await api.context()
    found = await got(await context.create_consumer(topic, last_values=True, **how), count)
    await context.close()
    assert all(is_value for _, is_value in found)
    return [text for text, _ in found]


# Keeping.


async def test_the_last_message_of_a_topic_is_kept(kept: Api, topic: Topic) -> None:
    await retain(kept, topic, "a", "b")
    assert await values_of(kept, topic, 1) == ["b"]
    await retain(kept, topic, "c")
    assert await values_of(kept, topic, 1) == ["c"]


async def test_the_last_message_of_each_key_is_kept(kept: Api, topic: Topic) -> None:
    for key in ("x", "y", "x"):
        await retain(kept, topic, f"{key}{next(_numbers)}", how="symbol", properties={"symbol": key})
    assert [text[0] for text in await values_of(kept, topic, 2)] == ["y", "x"]
    assert [text[0] for text in await values_of(kept, topic, 1, selector="symbol = 'x'")] == ["x"]


async def test_other_messages_are_not_kept(kept: Api, topic: Topic) -> None:
    await retain(kept, topic, "value")
    context = await kept.context()
    await context.send(topic, "other")
    await context.close()
    assert await values_of(kept, topic, 1) == ["value"]


async def test_every_send_can_retain(kept: Api, topic: Topic) -> None:
    connection = await kept.connect()
    producer = await (await connection.create_session()).create_producer(topic)
    await producer.send(TextMessage("send"), retain=True)
    assert await values_of(kept, topic, 1) == ["send"]
    outcome = await producer.send_async(TextMessage("send_async"), retain=True)
    if kept.is_blocking:
        await kept.call(outcome.result)
    assert await values_of(kept, topic, 1) == ["send_async"]
    await producer.send_many(["many 1", "many 2"], retain=True)
    assert await values_of(kept, topic, 1) == ["many 2"]
    told = Told()
    await producer.send(TextMessage("listener"), on_complete=told, retain=True)
    await eventually(lambda: len(told.completed) == 1)
    assert await values_of(kept, topic, 1) == ["listener"]


async def test_every_send_of_a_context_can_retain(kept: Api, topic: Topic) -> None:
    context = await kept.context()
    producer = await context.create_producer()
    await producer.send(topic, "send", retain=True)
    assert await values_of(kept, topic, 1) == ["send"]
    await producer.set_property("key", 7)
    await producer.send(topic, "template", retain="key")
    assert await values_of(kept, topic, 2) == ["send", "template"]
    await producer.send_many(topic, ["a", "b", "c", "d"], {"key": [7, 8, 7, 9]}, retain="key")
    assert await values_of(kept, topic, 4) == ["send", "b", "c", "d"]
    told = Told()
    producer.async_listener = told
    await producer.send_many(topic, ["e", "f"], {"key": [7, 8]}, retain="key")
    await eventually(lambda: len(told.completed) == 2)
    assert await values_of(kept, topic, 4) == ["send", "d", "e", "f"]


async def test_an_empty_body_removes_a_value(kept: Api, topic: Topic) -> None:
    for empty in (None, "", b"", {}, TextMessage(), MapMessage()):
        await retain(kept, topic, "value")
        await retain(kept, topic, "other", how="key", properties={"key": 1})
        await retain(kept, topic, empty)
        assert await values_of(kept, topic, 1) == ["other"]
        await retain(kept, topic, empty, how="key", properties={"key": 1})
        assert await values_of(kept, topic, 0) == []


async def test_an_expired_value_does_not_come(kept: Api, topic: Topic) -> None:
    await retain(kept, topic, "long")
    await retain(kept, topic, "short", time_to_live=300)
    await asyncio.sleep(0.4)
    assert await values_of(kept, topic, 0) == []


# Receiving.


async def test_values_come_before_live_messages(kept: Api, topic: Topic) -> None:
    await retain(kept, topic, "value")
    context = await kept.context()
    consumer = await context.create_consumer(topic, last_values=True)
    await context.send(topic, "live")
    await context.send(topic, "newer", retain=True)
    found = [await consumer.receive(TextMessage, WAIT_S) for _ in range(2)]
    if found[0].text == "value":  # it is left out if the newer one was heard before
        assert found[0].get_boolean_property(FLAG)
        found = [found[1], await consumer.receive(TextMessage, WAIT_S)]
    assert [message.text for message in found] == ["live", "newer"]
    assert not any(message.property_exists(FLAG) for message in found)
    assert await consumer.receive(QUIET_S) is None


async def test_nothing_comes_twice_or_out_of_order(kept: Api, topic: Topic) -> None:
    """A consumer comes while its own process sends, which it hears at once."""
    context = await kept.context()
    sent = 0
    for round_ in range(5):
        consumer = await context.create_consumer(topic, last_values=True)
        for _ in range(20):
            sent += 1
            await context.send(topic, str(sent), retain=True)
        found = []
        while not found or found[-1] < sent:
            message = await consumer.receive(TextMessage, WAIT_S)
            assert message is not None
            found.append(int(message.text))
        assert found == list(range(found[0], sent + 1))
        assert found[0] in (20 * round_, 20 * round_ + 1)
        assert await consumer.receive(QUIET_S) is None
        await consumer.close()


async def test_patterns_bring_the_values_of_all_topics(kept: Api, topic: Topic) -> None:
    for level in ("a", "b", "b/c"):
        await retain(kept, Topic(f"{topic.name}/{level}"), level)
    assert await values_of(kept, TopicPattern(f"{topic.name}/*"), 2) == ["a", "b"]
    assert await values_of(kept, TopicPattern(f"{topic.name}/>"), 3) == ["a", "b", "b/c"]


async def test_every_way_to_receive_gets_the_flag(kept: Api, topic: Topic) -> None:
    await retain(kept, topic, "value")
    context = await kept.context()
    consumer = await context.create_consumer(topic, last_values=True)
    message = await consumer.receive_no_wait()
    assert message is not None, "it waits for values that are on their way"
    assert message.get_boolean_property(FLAG)
    assert message.destination == topic
    consumer = await context.create_consumer(topic, last_values=True)
    async for message in consumer:
        assert message.get_boolean_property(FLAG)
        break
    consumer = await context.create_consumer(topic, last_values=True)
    assert await consumer.receive_body(str, WAIT_S) == "value"
    consumer = await context.create_consumer(topic, last_values=True)
    async for batch in await consumer.batches():
        assert [each.get_boolean_property(FLAG) for each in batch.messages()] == [True]
        break


async def test_listeners_get_the_flag(kept: Api, topic: Topic) -> None:
    await retain(kept, topic, "value")
    context = await kept.context()
    consumer = await context.create_consumer(topic, last_values=True)
    found: list[tuple[str, bool]] = []

    async def note(message: TextMessage) -> None:
        found.append((message.text or "", message.get_object_property(FLAG) is True))

    consumer.message_listener = listener(kept, note)
    await eventually(lambda: found == [("value", True)])
    other = await kept.context()
    await other.send(topic, "live")
    await eventually(lambda: found == [("value", True), ("live", False)])


async def test_the_flag_does_not_travel(kept: Api, topic: Topic) -> None:
    await retain(kept, topic, "value")
    context = await kept.context()
    consumer = await context.create_consumer(topic, last_values=True)
    message = await consumer.receive(timeout=WAIT_S)
    onward = Topic(topic.name + ".onward")
    plain = await context.create_consumer(onward)
    await context.send(onward, message)
    assert await got(plain, 1) == [("value", False)]


async def test_a_consumer_may_leave_out_its_own_values(kept: Api, topic: Topic) -> None:
    context = await kept.context()
    await context.send(topic, "mine", retain=True)
    consumer = await context.create_consumer(topic, no_local=True, last_values=True)
    assert await got(consumer, 0) == []
    assert await values_of(kept, topic, 1, no_local=True) == ["mine"]


async def test_a_consumer_with_little_room_gets_all(kept: Api, topic: Topic) -> None:
    context = await kept.context()
    producer = await context.create_producer()
    await producer.send_many(topic, [str(number) for number in range(100)], {"key": list(range(100))}, retain="key")
    assert await values_of(kept, topic, 100, messages_max=3) == [str(number) for number in range(100)]


async def test_large_values_come_within_the_room(kept: Api, topic: Topic) -> None:
    bodies = [str(number) * 300_000 for number in range(5)]
    for key, body in enumerate(bodies):
        await retain(kept, topic, body, how="key", properties={"key": key})
    assert await values_of(kept, topic, 5, bytes_max=400_000) == bodies
    for key in range(5):
        await retain(kept, topic, None, how="key", properties={"key": key})


async def test_values_are_delivered_again_by_recover(kept: Api, topic: Topic) -> None:
    await retain(kept, topic, "a", how="key", properties={"key": 1})
    await retain(kept, topic, "b", how="key", properties={"key": 2})
    context = await kept.context(SessionMode.CLIENT_ACKNOWLEDGE)
    consumer = await context.create_consumer(topic, last_values=True)
    assert await got(consumer, 2) == [("a", True), ("b", True)]
    await context.recover()
    for text in ("a", "b"):
        message = await consumer.receive(TextMessage, WAIT_S)
        assert (message.text, message.redelivered, message.get_boolean_property(FLAG)) == (text, True, True)
    await context.acknowledge()


async def test_a_consumer_may_be_closed_at_any_time(kept: Api, topic: Topic) -> None:
    await retain(kept, topic, "value")
    context = await kept.context()
    for _ in range(3):
        await (await context.create_consumer(topic, last_values=True)).close()
    await context.create_consumer(topic, last_values=True)
    await context.close()


# Refusals.


async def test_without_a_keeper_sends_and_consumers_fail(api: Api, topic: Topic) -> None:
    context = await api.context()
    producer = await (await (await api.connect()).create_session()).create_producer(topic)
    for send in (
        lambda: context.send(topic, "value", retain=True),
        lambda: context.send(topic, None, retain=True),
        lambda: producer.send(TextMessage("value"), retain=True),
        lambda: producer.send_many(["value"], retain=True),
    ):
        with pytest.raises(ResourceAllocationError, match=r"no keeper on .*; start one: fjm2 keep DIRECTORY") as caught:
            await send()
        assert caught.value.error_code == "no_keeper"
    consumer = await context.create_consumer(topic, last_values=True)
    for receive in (consumer.receive, consumer.receive_no_wait, consumer.ready):
        with pytest.raises(ResourceAllocationError, match=r"last values of .*: no keeper on") as caught:
            await receive()
        assert caught.value.error_code == "no_keeper"
    with pytest.raises(ResourceAllocationError, match="no keeper on"):
        async for _ in consumer:
            pass
    await consumer.close()


async def test_without_a_keeper_the_exception_listener_is_told(api: Api, topic: Topic) -> None:
    context = await api.context()
    problems: list[JMSError] = []
    context.exception_listener = problems.append
    consumer = await context.create_consumer(topic, last_values=True)

    async def ignore(_: object) -> None:
        pass

    consumer.message_listener = listener(api, ignore)
    await eventually(lambda: [type(problem) for problem in problems] == [ResourceAllocationError])


async def test_mistakes_raise_at_the_call(kept: Api, topic: Topic, tmp_path: Path) -> None:
    context = await kept.context()
    file = tmp_path / "file"
    file.write_bytes(b"content")
    for how, error, text in (
        ({"retain": 1.5}, TypeError, "retain=1.5: expected True, False, or the name of a property"),
        ({"retain": ""}, ValueError, "expected the name of a property"),
        ({"retain": "k" * 2000}, ValueError, "expected the name of a property, 1 to 1024 bytes"),
        ({"retain": "key"}, MessageFormatError, "the message has no such property"),
        ({"retain": True, "delivery_mode": DeliveryMode.NON_PERSISTENT}, JMSError, "expected PERSISTENT"),
        ({"retain": True, "body": file}, MessageFormatError, "retain with a file"),
    ):
        options: dict[str, Any] = {"body": "value", **how}
        with pytest.raises(error, match=text):
            await context.send(topic, options.pop("body"), **options)
    mine = await context.create_temporary_topic()
    with pytest.raises(InvalidDestinationError, match="expected a Topic, which has last values"):
        await context.send(mine, "value", retain=True)
    transacted = await kept.context(SessionMode.SESSION_TRANSACTED)
    with pytest.raises(IllegalStateError, match="retain in a transacted session"):
        await transacted.send(topic, "value", retain=True)
    await transacted.commit()
    assert await values_of(kept, topic, 0) == []


async def test_only_topics_and_patterns_have_last_values(kept: Api) -> None:
    context = await kept.context()
    mine = await context.create_temporary_topic()
    with pytest.raises(InvalidDestinationError, match="expected a Topic or a TopicPattern"):
        await context.create_consumer(mine, last_values=True)
    with pytest.raises(InvalidDestinationError, match="expected a name of at most 1024 bytes"):
        await context.create_consumer(Topic("x" * 1025), last_values=True)
    with pytest.raises(ResourceAllocationError):
        await context.create_consumer(Queue("orders"), last_values=True)


async def test_a_keeper_without_room_refuses_values_until_some_are_removed(kept: Api, topic: Topic) -> None:
    """The keeper of these tests takes 4 MiB of values, a quarter of its store."""
    context = await kept.context()
    body = "x" * 100_000
    kept_keys: list[int] = []

    async def fill() -> None:
        for key in range(2000):
            await context.send(topic, body, retain="key", properties={"key": key})
            kept_keys.append(key)

    with pytest.raises(ResourceAllocationError, match=r"keepers have room for .* would be sent; remove some") as caught:
        await fill()
    assert caught.value.error_code == "last_values_full"
    assert 30 <= len(kept_keys) <= 42
    await context.send(topic, "not retained")
    for key in kept_keys:
        await context.send(topic, None, retain="key", properties={"key": key})
    await asyncio.sleep(0.5)
    await context.send(topic, "fits again", retain=True)
    assert await values_of(kept, topic, 1) == ["fits again"]
