"""Tests of producers and asynchronous sends. Their names begin with the number of the case, N1 to N9."""

import asyncio
import threading
from typing import Any

import pytest
from adapter import QUIET_S, WAIT_S, Api, eventually, send_texts, texts

from fjm2.jms import (
    Byte,
    BytesMessage,
    DeliveryMode,
    IllegalStateError,
    InvalidDestinationError,
    JMSError,
    MapMessage,
    Message,
    MessageFormatError,
    ObjectMessage,
    TextMessage,
    Topic,
)

TOPIC, OTHER = Topic("fjm2.producers"), Topic("fjm2.producers.other")
PERSISTENT, NON_PERSISTENT = DeliveryMode.PERSISTENT, DeliveryMode.NON_PERSISTENT


class Outcomes:
    """A completion listener that records the outcomes of sends."""

    def __init__(self) -> None:
        self.completed: list[Any] = []
        self.failed: list[tuple[Any, Exception]] = []
        self.threads: set[int] = set()

    def on_completion(self, message: Any) -> None:
        self.threads.add(threading.get_ident())
        self.completed.append(message)

    def on_exception(self, message: Any, error: Exception) -> None:
        self.failed.append((message, error))


async def finished(api: Api, future: Any) -> None:
    await asyncio.wait_for(asyncio.wrap_future(future) if api.is_blocking else future, WAIT_S)


async def test_n1_a_producer_with_a_destination_sends_nowhere_else(api: Api) -> None:
    session = await (await api.connect()).create_session()
    bound = await session.create_producer(TOPIC)
    assert bound.destination == TOPIC
    with pytest.raises(NotImplementedError):
        await bound.send(TextMessage("a"), OTHER)
    free = await session.create_producer()
    assert free.destination is None
    consumer = await session.create_consumer(OTHER)
    await free.send(TextMessage("a"), OTHER)
    assert await texts(consumer, 1) == ["a"]
    for nowhere in (None, "topic"):
        with pytest.raises(InvalidDestinationError):
            await free.send(TextMessage("a"), nowhere)
    context = await api.context()
    with pytest.raises(InvalidDestinationError, match="MessageProducer takes send"):
        await free.send(OTHER, TextMessage("x"))
    with pytest.raises(InvalidDestinationError):
        await (await context.create_producer()).send(None, "a")


async def test_n2_defaults_and_values_of_one_send(api: Api) -> None:
    session = await (await api.connect()).create_session()
    consumer = await session.create_consumer(TOPIC)
    producer = await session.create_producer(TOPIC)
    defaults = (producer.delivery_mode, producer.priority, producer.time_to_live, producer.delivery_delay)
    assert defaults == (PERSISTENT, 4, 0, 0)
    producer.delivery_mode, producer.priority, producer.time_to_live = NON_PERSISTENT, 7, 60_000
    producer.disable_message_id = producer.disable_message_timestamp = True
    await producer.send(TextMessage("a"))
    found = await consumer.receive(WAIT_S)
    assert (found.delivery_mode, found.priority, found.message_id, found.timestamp) == (NON_PERSISTENT, 7, None, 0)
    assert found.expiration > 0
    await producer.send(TextMessage("b"), delivery_mode=PERSISTENT, priority=1, time_to_live=0)
    found = await consumer.receive(WAIT_S)
    assert (found.delivery_mode, found.priority, found.expiration) == (PERSISTENT, 1, 0)
    assert (producer.delivery_mode, producer.priority, producer.time_to_live) == (NON_PERSISTENT, 7, 60_000)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("delivery_mode", [0, 3, True, "PERSISTENT"]),
        ("priority", [-1, 10, True, 4.5]),
        ("time_to_live", [-1, True, 1.5, 1 << 63]),
        ("delivery_delay", [-1, True, 0.5, 1 << 63]),
    ],
)
async def test_n2_bad_values_are_refused(api: Api, name: str, values: list[Any]) -> None:
    session = await (await api.connect()).create_session()
    producer = await session.create_producer(TOPIC)
    for value in values:
        with pytest.raises(JMSError, match=name):
            setattr(producer, name, value)
        if name != "delivery_delay":
            with pytest.raises(JMSError, match=name):
                await producer.send(TextMessage("a"), **{name: value})


async def test_n3_sending_works_while_the_connection_is_stopped(api: Api) -> None:
    listening = await (await api.connect()).create_session()
    consumer = await listening.create_consumer(TOPIC)
    stopped = await (await api.connect(is_started=False)).create_session()
    await send_texts(stopped, TOPIC, "a")
    assert await texts(consumer, 1) == ["a"]


@pytest.mark.parametrize(
    ("body", "kind", "value"),
    [
        ("text", TextMessage, "text"),
        (b"bytes", BytesMessage, b"bytes"),
        (bytearray(b"bytes"), BytesMessage, b"bytes"),
        ({"a": 1, "b": "two"}, MapMessage, {"a": 1, "b": "two"}),
        ([1, 2.5, None], ObjectMessage, [1, 2.5, None]),
        (TextMessage("given"), TextMessage, "given"),
    ],
)
async def test_n4_bodies_become_messages(api: Api, body: Any, kind: type[Message], value: Any) -> None:
    context = await api.context()
    consumer = await context.create_consumer(TOPIC)
    await (await context.create_producer()).send(TOPIC, body)
    found = await consumer.receive(WAIT_S)
    assert type(found) is kind
    assert found.get_body(type(value)) == value


async def test_n4_setters_chain_and_override_the_message_s_values(api: Api) -> None:
    context = await api.context()
    consumer = await context.create_consumer(TOPIC)
    producer = (await context.create_producer()).inner
    chained = (
        producer.set_property("a", 1)
        .set_property("b", Byte(2))
        .set_time_to_live(5000)
        .set_priority(8)
        .set_delivery_mode(NON_PERSISTENT)
        .set_delivery_delay(0)
        .set_disable_message_id(False)
        .set_disable_message_timestamp(False)
        .set_async(None)
        .set_correlation_id("mine")
        .set_type("kind")
        .set_reply_to(OTHER)
    )
    assert chained is producer
    message = TextMessage("text")
    message.set_string_property("a", "overridden")
    message.set_string_property("c", "kept")
    message.correlation_id = "overridden"
    assert await api.invoke(producer.send, TOPIC, message) is producer
    found = await consumer.receive(WAIT_S)
    assert {name: found.properties[name] for name in "abc"} == {"a": 1, "b": 2, "c": "kept"}
    assert (found.correlation_id, found.type, found.reply_to) == ("mine", "kind", OTHER)
    assert (found.priority, found.delivery_mode) == (8, NON_PERSISTENT)
    assert found.expiration == found.timestamp + 5000


async def test_properties_of_a_send_apply_to_one_message_only(api: Api) -> None:
    context = await api.context()
    consumer = await context.create_consumer(TOPIC)
    producer = (await context.create_producer()).inner.set_property("a", 1)
    await api.invoke(producer.send, TOPIC, "text", properties={"a": Byte(2), "b": "two"})
    await api.invoke(producer.send, TOPIC, "text")
    first, second = [await consumer.receive(WAIT_S) for _ in range(2)]
    assert dict(first.properties) == {"a": 2, "b": "two"} | {"JMSXDeliveryCount": 1}
    assert dict(second.properties) == {"a": 1} | {"JMSXDeliveryCount": 1}
    await api.invoke(producer.send, TOPIC, first, properties={"c": True})  # its properties are read-only
    assert (await consumer.receive(WAIT_S)).properties["c"] is True
    for wrong, kind in (({"no name": 1}, ValueError), ({"JMSX": 1}, ValueError), ({"a": []}, MessageFormatError)):
        with pytest.raises(kind):
            await api.invoke(producer.send, TOPIC, "text", properties=wrong)
    assert await consumer.receive(QUIET_S) is None


async def test_n4_properties_of_a_producer_are_read_like_those_of_a_message(api: Api) -> None:
    producer = (await (await api.context()).create_producer()).inner
    producer.set_property("n", 5).set_property("t", "yes")
    assert producer.property_names() == {"n", "t"}
    assert producer.property_exists("n")
    assert (producer.get_long_property("n"), producer.get_string_property("n")) == (5, "5")
    assert producer.get_boolean_property("t") is False
    with pytest.raises(MessageFormatError):
        producer.get_double_property("n")
    with pytest.raises(ValueError, match="'no name' is not a property name: expected letters"):
        producer.set_property("no name", 1)
    assert producer.clear_properties() is producer
    assert producer.property_names() == set()
    producer.set_correlation_id_bytes(b"\xff")
    assert (producer.correlation_id_bytes, producer.correlation_id) == (b"\xff", None)
    assert not hasattr(producer, "close")


async def test_n5_none_is_a_message_without_body(api: Api) -> None:
    context = await api.context()
    consumer = await context.create_consumer(TOPIC)
    await (await context.create_producer()).send(TOPIC, None)
    assert type(await consumer.receive(WAIT_S)) is Message
    session = await (await api.connect()).create_session()
    with pytest.raises(MessageFormatError):
        await (await session.create_producer(TOPIC)).send(None)


@pytest.mark.parametrize("mode", list(DeliveryMode))
async def test_n6_the_completion_listener_is_called_once(api: Api, mode: DeliveryMode) -> None:
    session = await (await api.connect()).create_session()
    outcomes = Outcomes()
    producer = await session.create_producer(TOPIC)
    message = TextMessage("a")
    await producer.send(message, delivery_mode=mode, on_complete=outcomes)
    await eventually(lambda: outcomes.completed)
    await asyncio.sleep(QUIET_S)
    assert (outcomes.completed, outcomes.failed) == ([message], [])
    await finished(api, producer.inner.send_async(message, delivery_mode=mode))


async def test_n6_the_completion_listener_is_not_called_if_the_send_raises(api: Api) -> None:
    session = await (await api.connect()).create_session()
    outcomes = Outcomes()
    producer = await session.create_producer(TOPIC)
    with pytest.raises(JMSError):
        await producer.send(TextMessage("a"), priority=10, on_complete=outcomes)
    await session.close()
    assert (outcomes.completed, outcomes.failed) == ([], [])


async def test_n6_a_context_sends_asynchronously(api: Api) -> None:
    context = await api.context()
    outcomes = Outcomes()
    producer = await context.create_producer()
    producer.async_listener = outcomes
    assert producer.async_listener is outcomes
    for body in ("a", "b"):
        await producer.send(TOPIC, body)
    await eventually(lambda: len(outcomes.completed) == 2)
    assert [message.text for message in outcomes.completed] == ["a", "b"]


async def test_n7_callbacks_come_in_the_order_of_the_sends(api: Api) -> None:
    session = await (await api.connect()).create_session()
    outcomes = Outcomes()
    producer = await session.create_producer(TOPIC)
    for number in range(30):
        await producer.send(TextMessage(str(number)), delivery_mode=1 + number % 2, on_complete=outcomes)
    await eventually(lambda: len(outcomes.completed) == 30)
    assert [message.text for message in outcomes.completed] == [str(number) for number in range(30)]
    assert len(outcomes.threads) == 1


@pytest.mark.parametrize("what", ["producer", "session", "connection"])
async def test_n8_closing_waits_for_asynchronous_sends(api: Api, what: str) -> None:
    connection = await api.connect()
    session = await connection.create_session()
    producer = await session.create_producer(TOPIC)
    outcomes = Outcomes()
    for number in range(5):
        await producer.send(TextMessage(str(number)), on_complete=outcomes)
    await {"producer": producer, "session": session, "connection": connection}[what].close()
    assert len(outcomes.completed) == 5


@pytest.mark.parametrize("what", ["producer", "session", "connection"])
async def test_n8_a_callback_cannot_close_what_it_belongs_to(api: Api, what: str) -> None:
    connection = await api.connect()
    session = await connection.create_session()
    producer = await session.create_producer(TOPIC)
    raised: list[Exception] = []
    target = {"producer": producer, "session": session, "connection": connection}[what]

    class Closing(Outcomes):
        def on_completion(self, message: Any) -> Any:
            super().on_completion(message)
            return close_here() if api.is_blocking else close_awaited()

    def close_here() -> None:
        try:
            target.inner.close()
        except IllegalStateError as error:
            raised.append(error)

    async def close_awaited() -> None:
        try:
            await target.inner.close()
        except IllegalStateError as error:
            raised.append(error)

    await producer.send(TextMessage("a"), on_complete=Closing())
    await eventually(lambda: raised)
    await producer.send(TextMessage("b"))


async def test_n9_the_send_works_on_a_copy(api: Api) -> None:
    session = await (await api.connect()).create_session()
    consumer = await session.create_consumer(TOPIC)
    producer = await session.create_producer(TOPIC)
    message = TextMessage("a")
    future = producer.inner.send_async(message)
    message.text = "changed"
    await finished(api, future)
    assert message.message_id is not None
    found = await consumer.receive(WAIT_S)
    assert (found.text, found.message_id) == ("a", message.message_id)


async def test_sends_after_the_close_are_refused(api: Api) -> None:
    connection = await api.connect()
    session = await connection.create_session()
    closed, other = await session.create_producer(TOPIC), await session.create_producer(TOPIC)
    await closed.close()
    await closed.close()
    with pytest.raises(IllegalStateError, match="producer"):
        await closed.send(TextMessage("a"))
    await connection.close()
    with pytest.raises(IllegalStateError, match="closed"):
        await other.send(TextMessage("a"))


async def test_asynchronous_sends_of_more_than_a_turn_takes_all_succeed(api: Api) -> None:
    session = await (await api.connect()).create_session()
    consumer = await session.create_consumer(TOPIC)
    producer = await session.create_producer(TOPIC)
    modes = (DeliveryMode.NON_PERSISTENT, DeliveryMode.PERSISTENT)
    outcomes = [
        producer.inner.send_async(TextMessage(f"{number} {'x' * 1000}"), delivery_mode=modes[number % 2])
        for number in range(4000)
    ]
    outcomes[1000].cancel()  # which changes nothing about the message, or about others
    for number, outcome in enumerate(outcomes):
        if number != 1000:
            await finished(api, outcome)
    received = [int((await consumer.receive(WAIT_S)).text.split()[0]) for _ in range(4000)]
    assert received == list(range(4000))
