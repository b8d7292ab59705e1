"""Tests of receiving by type, of bodies as messages, and of options, replies and requests of a context."""

import asyncio
import re
import sys
import threading
from collections import OrderedDict
from decimal import Decimal
from enum import IntFlag
from typing import Any

import numpy
import pytest
from adapter import WAIT_S, Api, eventually, listener

from fjm2.jms import (
    BytesMessage,
    ConnectionFactory,
    DeliveryMode,
    IllegalStateError,
    InvalidDestinationError,
    JMSError,
    MapMessage,
    Message,
    MessageFormatError,
    NoReplyError,
    ObjectMessage,
    TextMessage,
    Topic,
    TopicPattern,
)

TOPIC, OTHER = Topic("fjm2.typed"), Topic("fjm2.typed.other")


async def test_receive_returns_messages_of_a_class(api: Api) -> None:
    context = await api.context()
    consumer = await context.create_consumer(TOPIC)
    await context.send(TOPIC, "text")
    await context.send(TOPIC, b"bytes")
    text = await consumer.receive(TextMessage, WAIT_S)
    assert type(text) is TextMessage
    assert text.text == "text"
    with pytest.raises(
        MessageFormatError, match=r"<BytesMessage ID:\S+ to topic://fjm2.typed.*>: expected a TextMessage"
    ):
        await consumer.receive(TextMessage, timeout=WAIT_S)
    assert (await consumer.receive(BytesMessage, WAIT_S)).get_body(bytes) == b"bytes"
    assert await consumer.receive(Message, 0) is None
    assert await consumer.receive_no_wait(TextMessage) is None
    assert await consumer.receive(0) is None
    assert await consumer.receive(timeout=0) is None


async def test_bodies_are_received_by_types_with_parameters(api: Api) -> None:
    context = await api.context()
    consumer = await context.create_consumer(TOPIC)
    for body in ({"price": 17.25}, {"legs": [{"price": 1}]}, ["a", 1]):
        await context.send(TOPIC, body)
    assert await consumer.receive_body(dict[str, float], WAIT_S) == {"price": 17.25}
    with pytest.raises(MessageFormatError, match="is a dict: expected a list"):
        await consumer.receive_body(list[int], WAIT_S)
    assert await consumer.receive_body(dict[str, Any], WAIT_S) == {"legs": [{"price": 1}]}
    assert await consumer.receive_body(list[Any], WAIT_S) == ["a", 1]


async def test_listeners_get_what_they_are_typed_for(api: Api) -> None:
    context = await api.context()
    problems: list[Exception] = []
    context.exception_listener = problems.append
    found: dict[str, list[Any]] = {"text": [], "message": [], "dict": [], "any": []}
    (await context.create_consumer(TOPIC)).inner.listen(str, found["text"].append)
    (await context.create_consumer(TOPIC)).inner.listen(TextMessage, found["message"].append)
    (await context.create_consumer(TOPIC)).inner.listen(dict[str, Any], found["dict"].append)
    (await context.create_consumer(TOPIC)).inner.listen(object, found["any"].append)
    for body in ("a", {"b": [1]}, None, "c"):
        await context.send(TOPIC, body)
    await eventually(lambda: len(found["any"]) == 4 and len(found["text"]) == 2 and len(problems) == 7)
    assert found["text"] == ["a", "c"]
    assert [message.text for message in found["message"]] == ["a", "c"]
    assert found["dict"] == [{"b": [1]}]
    assert found["any"] == ["a", {"b": [1]}, None, "c"]
    assert all(isinstance(problem, MessageFormatError) for problem in problems)
    assert sum("has no body: expected a str" in str(problem) for problem in problems) == 1


async def test_a_typed_listener_may_be_a_coroutine_function_and_raise(api: Api) -> None:
    context = await api.context()
    counts: list[str] = []

    async def fail_once(text: str) -> None:
        counts.append(text)
        if len(counts) == 1:
            raise RuntimeError("not yet")

    (await context.create_consumer(TOPIC)).inner.listen(str, listener(api, fail_once))
    await context.send(TOPIC, "a")
    await eventually(lambda: counts == ["a", "a"])


@pytest.mark.parametrize(
    "body",
    [
        {"legs": [{"price": 1.5}, {"price": 2}], "names": ("a", "b")},
        {1: "one", 2: "two"},
        {"": 1},
        {"large": 1 << 80},
        OrderedDict(inner={"a": None}),
    ],
)
async def test_mappings_that_no_map_message_can_hold_are_objects(api: Api, body: Any) -> None:
    context = await api.context()
    consumer = await context.create_consumer(TOPIC)
    await context.send(TOPIC, body)
    message = await consumer.receive(WAIT_S)
    assert type(message) is ObjectMessage
    assert message.get_body(dict) == body
    await context.send(TOPIC, {"flat": 1})
    assert type(await consumer.receive(WAIT_S)) is MapMessage


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"symbol": "ABC", "price": Decimal(1)}, r"\['price'\]: Decimal cannot be sent: expected None, bool, int"),
        ({"legs": [{"price": 1}, {"price": {1}}]}, r"\['legs'\]\[1\]\['price'\]: set cannot be sent"),
        ({"deep": {"id": {"when": object()}}}, r"\['deep'\]\['id'\]\['when'\]: object cannot be sent"),
        ({(1, b"x"): Decimal(1)}, r"\[\(1, b'x'\)\]: Decimal cannot be sent"),
        (["a", {"b": "\ud800"}], r"\[1\]\['b'\]: a text contains a lone surrogate"),
        (Decimal(1), "^Decimal cannot be sent: expected"),
    ],
)
async def test_errors_of_bodies_name_the_key(api: Api, body: Any, place: str) -> None:
    context = await api.context()
    with pytest.raises(MessageFormatError, match=place):
        await context.send(TOPIC, body)


async def test_objects_that_contain_themselves_are_refused(api: Api) -> None:
    context = await api.context()
    body: dict[str, Any] = {}
    body["self"] = body
    with pytest.raises(MessageFormatError, match="contains itself"):
        await context.send(TOPIC, body)


def test_errors_of_items_and_properties_name_the_key() -> None:
    message = MapMessage()
    with pytest.raises(MessageFormatError, match="item 'legs': list cannot be sent: expected None, bool"):
        message.set_object("legs", [1])
    with pytest.raises(MessageFormatError, match="property 'price': Decimal cannot be sent: expected None, bool"):
        message.set_object_property("price", Decimal(1))  # type: ignore[arg-type]
    for value, conversion in (
        (numpy.float64(17.25), r"float64 cannot be sent: .*; convert it: float\(\.\.\.\)$"),
        (numpy.int64(17), r"int64 cannot be sent: .*; convert it: \.tolist\(\)$"),
        (IntFlag("Side", "BUY").BUY, r"Side cannot be sent: .*; send its value: \.value$"),
        (Decimal(1), r"convert it, as with str\(\.\.\.\)$"),
    ):
        with pytest.raises(MessageFormatError, match=conversion):
            message.set_object_property("price", value)  # type: ignore[arg-type]
        with pytest.raises(MessageFormatError, match=conversion):
            message.set_object("price", value)
        with pytest.raises(MessageFormatError, match=conversion.replace("$", ", or name its class in a PickleCodec$")):
            ObjectMessage(value)
    with pytest.raises(MessageFormatError, match="property 'number': "):
        message.properties["number"] = 1 << 80


async def test_a_context_sends_with_options(api: Api) -> None:
    context = await api.context()
    consumer = await context.create_consumer(TOPIC)
    await context.send(
        TOPIC,
        {"price": 1},
        properties={"symbol": "ABC"},
        delivery_mode=DeliveryMode.NON_PERSISTENT,
        priority=7,
        time_to_live=60_000,
        delivery_delay=0,
        correlation_id="order-17",
        reply_to=OTHER,
        type="quote",
    )
    await context.send(TOPIC, "plain")
    message = await consumer.receive(WAIT_S)
    assert message.get_body(dict) == {"price": 1}
    assert message.get_string_property("symbol") == "ABC"
    assert message.delivery_mode is DeliveryMode.NON_PERSISTENT
    assert message.priority == 7
    assert message.expiration - message.timestamp == 60_000
    assert (message.correlation_id, message.reply_to, message.type) == ("order-17", OTHER, "quote")
    plain = await consumer.receive(WAIT_S)
    assert not plain.property_exists("symbol")
    assert plain.delivery_mode is DeliveryMode.PERSISTENT
    assert (plain.priority, plain.expiration, plain.correlation_id, plain.reply_to) == (4, 0, None, None)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"priority": 10}, JMSError),
        ({"time_to_live": -1}, JMSError),
        ({"delivery_mode": 3}, JMSError),
        ({"delivery_delay": -1}, JMSError),
        ({"delivery_delay": 1000, "time_to_live": 1000}, JMSError),
        ({"correlation_id": 17}, MessageFormatError),
        ({"reply_to": "replies"}, InvalidDestinationError),
        ({"properties": {"a b": 1}}, ValueError),
        ({"urgent": True}, TypeError),
    ],
)
async def test_wrong_options_are_refused(api: Api, options: dict[str, Any], error: type[Exception]) -> None:
    context = await api.context()
    with pytest.raises(error):
        await context.send(TOPIC, "a", **options)


async def test_arguments_of_a_send_override_the_producer(api: Api) -> None:
    context = await api.context()
    consumer = await context.create_consumer(TOPIC)
    producer = (await context.create_producer()).inner
    producer.set_priority(1).set_correlation_id("a").set_type("t").set_reply_to(TOPIC)
    await api.invoke(producer.send, TOPIC, "x", priority=8, correlation_id="b", type="u", reply_to=OTHER)
    await api.invoke(producer.send, TOPIC, "y")
    first, second = [await consumer.receive(WAIT_S) for _ in range(2)]
    assert (first.priority, first.correlation_id, first.type, first.reply_to) == (8, "b", "u", OTHER)
    assert (second.priority, second.correlation_id, second.type, second.reply_to) == (1, "a", "t", TOPIC)


async def test_a_service_replies_by_one_call(api: Api) -> None:
    service, client = await api.context(), await api.context()

    async def upper(request: Message) -> None:
        await service.reply(request, (request.get_body(str) or "").upper(), properties={"by": "service"})

    (await service.create_consumer(TOPIC)).message_listener = listener(api, upper)
    await (await service.create_consumer(OTHER)).ready()
    reply = await client.request(TOPIC, "hello", WAIT_S, priority=7, properties={"lang": "en"})
    assert reply.get_body(str) == "HELLO"
    assert reply.get_string_property("by") == "service"
    with pytest.raises(InvalidDestinationError, match=r"TextMessage ID:\S+ .*> has no reply_to"):
        await service.reply(await received(service, client), "nobody expects this")


async def received(context: Any, sender: Any) -> Message:
    """Return a message that has no destination for replies."""
    consumer = await (await context.create_context()).create_consumer(OTHER)
    await consumer.ready()
    await sender.send(OTHER, "no request")
    message: Message = await consumer.receive(WAIT_S)
    return message


async def test_requests_take_the_options_of_a_send(api: Api) -> None:
    context, service = await api.context(), await api.context()
    consumer = await service.create_consumer(TOPIC)
    await consumer.ready()
    asking = asyncio.create_task(
        context.request(TOPIC, {"legs": [1]}, WAIT_S, priority=8, time_to_live=60_000, correlation_id="c", type="ask")
    )
    request = await consumer.receive(WAIT_S)
    assert (request.priority, request.correlation_id, request.type) == (8, "c", "ask")
    assert request.expiration
    assert request.get_body(dict) == {"legs": [1]}
    await service.send(request.reply_to, "by its own correlation id", correlation_id="c")
    assert (await asking).get_body(str) == "by its own correlation id"
    replies = await context.request_many(OTHER, "hello", timeout=0.05, properties={"a": 1})
    assert replies == []


async def test_a_request_without_reply_says_who_was_asked(api: Api) -> None:
    context = await api.context(client_id="asker")
    with pytest.raises(NoReplyError, match=r"topic://fjm2.typed within 0\.05 s: no subscriber of it is known: is its"):
        await context.request(TOPIC, "hello", timeout=0.05)
    services = [await api.context(client_id=name) for name in ("paris\x1b", "lyon")]
    for service in services:
        await (await service.create_consumer(TOPIC)).ready()
    with pytest.raises(TimeoutError, match=r"0\.05 s: asked 2 subscribers: (paris\\x1b and lyon|lyon and paris\\x1b)$"):
        await context.request(TOPIC, "hello", timeout=0.05)
    await context.create_consumer(TopicPattern("fjm2.>"))
    with pytest.raises(TimeoutError, match=r"0\.05 s: asked 3 subscribers: asker, (paris|lyon)"):
        await context.request(TOPIC, "hello", timeout=0.05)


async def test_a_request_says_who_was_asked_and_is_gone_since(api: Api) -> None:
    context, staying = await api.context(), await api.context(client_id="paris")
    services = [await api.context(client_id="rome"), staying]
    for service in services:
        await (await service.create_consumer(TOPIC)).ready()
    asking = asyncio.create_task(context.request(TOPIC, "hello", timeout=1.5))
    await asyncio.sleep(0.5)
    await services[0].close()
    with pytest.raises(NoReplyError, match=r"asked 2 subscribers: paris and rome \(gone since\)$"):
        await asking


CRASHING = """
import sys
from fjm2.jms import Topic
from fjm2.jms.blocking import ConnectionFactory

with ConnectionFactory(sys.argv[1], client_id="paris").create_context() as context:
    consumer = context.create_consumer(Topic(sys.argv[2]))
    context.ready()
    int(consumer.receive_body(str, 10))
"""


async def test_a_request_names_the_service_that_crashed_on_it(api: Api) -> None:
    context = await api.context()
    words = [sys.executable, "-c", CRASHING, api.uri, TOPIC.name]
    service = await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.PIPE)
    async with asyncio.timeout(WAIT_S):
        while not await context.subscribers(TOPIC):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    with pytest.raises(NoReplyError, match=r"asked 1 subscriber: paris \(gone since\)$"):
        await context.request(TOPIC, "no number", timeout=2.0)
    _, said = await service.communicate()
    assert b"invalid literal for int()" in said


async def test_a_request_says_who_came_after_it_was_sent(api: Api) -> None:
    context, service = await api.context(), await api.context(client_id="paris")
    asking = asyncio.create_task(context.request(TOPIC, "hello", timeout=1.5))
    await asyncio.sleep(0.5)
    await (await service.create_consumer(TOPIC)).ready()
    with pytest.raises(NoReplyError, match=r"asked 1 subscriber: paris \(known only since\)$"):
        await asking


async def test_a_request_tells_a_restarted_service_from_the_one_that_was_asked(api: Api) -> None:
    context, service = await api.context(), await api.context(client_id="paris")
    await (await service.create_consumer(TOPIC)).ready()
    asking = asyncio.create_task(context.request(TOPIC, "hello", timeout=2.0))
    await asyncio.sleep(0.5)
    await service.close()
    service = await api.context(client_id="paris")
    await (await service.create_consumer(TOPIC)).ready()
    with pytest.raises(
        NoReplyError, match=r"asked 2 subscribers: paris \(known only since\) and paris \(gone since\)$"
    ):
        await asking


async def test_requests_wait_for_half_a_minute_by_default(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float | None] = []
    timeout = asyncio.timeout

    def note(delay: float | None) -> asyncio.Timeout:
        waits.append(delay)
        return timeout(0.01 if delay == 30 else delay)

    context = await api.context()
    monkeypatch.setattr(asyncio, "timeout", note)
    with pytest.raises(NoReplyError, match="within 30 s"):
        await context.request(TOPIC, "hello")
    assert 30.0 in waits


async def test_a_send_is_as_the_producer_was_at_the_call(port: int) -> None:
    uri = f"fjm2://239.192.57.40:{port}?interface=127.0.0.1&ttl=0"
    async with ConnectionFactory(uri).create_context() as context:
        consumer = context.create_consumer(TOPIC)
        producer = context.create_producer()
        message = TextMessage("first")
        sends = [producer.set_property("n", 1).set_priority(1).send(TOPIC, message)]
        message.text = "second"
        sends.append(producer.set_property("n", 2).set_priority(2).send(TOPIC, message))
        await asyncio.gather(*sends)
        found = [await consumer.receive(WAIT_S) for _ in range(2)]
        assert sorted((one.get_int_property("n"), one.priority, one.get_body(str)) for one in found if one) == [
            (1, 1, "first"),
            (2, 2, "second"),
        ]


async def test_what_is_to_be_awaited_has_the_name_of_the_method(port: int) -> None:
    uri = f"fjm2://239.192.57.40:{port}?interface=127.0.0.1&ttl=0"
    async with ConnectionFactory(uri).create_context() as context:
        for method in (context.create_producer().send, context.send):
            sending = method(TOPIC, "sent")
            assert sending.__qualname__ == method.__qualname__  # Python shows it if nobody awaits the coroutine
            await sending


async def test_a_send_that_is_awaited_after_the_close_is_refused(port: int) -> None:
    uri = f"fjm2://239.192.57.40:{port}?interface=127.0.0.1&ttl=0"
    async with ConnectionFactory(uri).create_context() as context:
        other = context.create_context()
        sending = other.send(TOPIC, "late")
        await other.close()
        with pytest.raises(IllegalStateError, match="the session, or its context, is closed"):
            await sending


def shared(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings about shared producers."""
    return [record.getMessage() for record in caplog.records if getattr(record, "event", "") == "producer_shared"]


async def test_tasks_that_share_a_producer_by_mistake_are_warned(port: int, caplog: pytest.LogCaptureFixture) -> None:
    uri = f"fjm2://239.192.57.40:{port}?interface=127.0.0.1&ttl=0"
    async with ConnectionFactory(uri).create_context() as context:

        async def publish(producer: Any, symbol: str) -> None:
            producer.set_property("symbol", symbol)
            await asyncio.sleep(0)
            await producer.send(TOPIC, symbol)

        for_two = context.create_producer().set_priority(5)  # set up by its creator, before others use it
        await asyncio.gather(publish(for_two, "ABC"), publish(for_two, "XYZ"))
        (warning,) = shared(caplog)
        assert re.match(rf"producer_shared: at {__file__}:\d+, a second task or thread sets options of one", warning)
        caplog.clear()
        alone = context.create_producer().set_priority(5)
        for symbol in ("ABC", "XYZ"):  # one after the other is no mistake
            await asyncio.create_task(publish(alone, symbol))
        assert shared(caplog) == []


def test_threads_that_share_a_producer_by_mistake_are_warned(port: int, caplog: pytest.LogCaptureFixture) -> None:
    from fjm2.jms import blocking

    uri = f"fjm2://239.192.57.40:{port}?interface=127.0.0.1&ttl=0"
    with blocking.ConnectionFactory(uri).create_context() as context:
        producer = context.create_producer()
        is_set, may_end = threading.Event(), threading.Event()

        def publish() -> None:
            producer.priority = 9
            is_set.set()
            may_end.wait(WAIT_S)

        thread = threading.Thread(target=publish)
        thread.start()
        assert is_set.wait(WAIT_S)
        producer.set_time_to_live(5)
        assert len(shared(caplog)) == 1
        may_end.set()
        thread.join()
        caplog.clear()
        producer.set_time_to_live(6)
        assert shared(caplog) == []
