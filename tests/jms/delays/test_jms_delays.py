"""Delayed messages in both APIs, without keepers: the process of a consumer holds them until they are due.

Names begin with the number of the case: D1, E1, H12 and N4.
"""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from adapter import WAIT_S, Api, eventually

from fjm2.jms import ConnectionFactory, JMSError, MessagesDroppedError, SessionMode, TextMessage, Topic, TopicPattern

TOPIC = Topic("fjm2.delays")


async def consuming(api: Api, topic: Any = TOPIC, **options: Any) -> Any:
    """Return a consumer that gets what is sent from now on."""
    consumer = await (await api.context(**options)).create_consumer(topic)
    await consumer.ready()
    return consumer


async def received(consumer: Any, count: int) -> list[str]:
    """Receive messages, none of which comes before its delivery time, and return their texts."""
    found = []
    for _ in range(count):
        message = await consumer.receive(TextMessage, WAIT_S)
        assert message is not None, f"only {found}"
        assert time.time() * 1000 >= message.delivery_time
        found.append(message.text)
    assert await consumer.receive(0.1) is None
    return found


@pytest.mark.parametrize("options", [{}, {"dscp": 8}])
async def test_d1_a_message_comes_when_it_is_due(api: Api, options: dict[str, Any]) -> None:
    """It comes from the same process, and from another one."""
    consumer = await consuming(api)
    context = await api.context(**options)
    await context.ready()
    await context.send(TOPIC, "late", delivery_delay=600)
    await context.send(TOPIC, "later", delivery_delay=900)
    await context.send(TOPIC, "early")
    assert await received(consumer, 3) == ["early", "late", "later"]


async def test_d1_messages_with_one_delivery_time_come_in_order(api: Api) -> None:
    consumer = await consuming(api)
    context = await api.context(dscp=8)
    await context.ready()
    producer = (await context.create_producer()).inner
    producer.delivery_delay = 500
    for number in range(100):
        await api.invoke(producer.send, TOPIC, str(number))
    assert await received(consumer, 100) == [str(number) for number in range(100)]


async def test_d1_only_subscriptions_that_exist_at_the_send_get_it(api: Api) -> None:
    consumer = await consuming(api)
    gone = await consuming(api)
    context = await api.context(dscp=8)
    await context.ready()
    await context.send(TOPIC, "a", delivery_delay=700)
    await asyncio.sleep(0.2)
    await gone.close()
    late = await consuming(api)
    assert await received(consumer, 1) == ["a"]
    assert await received(late, 0) == []


async def test_d1_selectors_patterns_and_no_local_hold(api: Api) -> None:
    context = await api.context()
    everything = await consuming(api, TopicPattern("fjm2.>"))
    selected = await context.create_consumer(TOPIC, "size > 2")
    others = await context.create_consumer(TOPIC, None, True)
    for number in range(1, 4):
        await context.send(TOPIC, str(number), delivery_delay=300, properties={"size": number})
    assert await received(everything, 3) == ["1", "2", "3"]
    assert await received(selected, 1) == ["3"]
    assert await received(others, 0) == []


async def test_d1_transactions_and_batches_are_delayed_too(api: Api) -> None:
    consumer = await consuming(api)
    context = await api.context(SessionMode.SESSION_TRANSACTED, dscp=8)
    await context.ready()
    await context.send(TOPIC, "c", delivery_delay=800)
    await context.send(TOPIC, "d")
    await context.commit()
    assert await received(consumer, 2) == ["d", "c"]
    for options in ({}, {"dscp": 8}):
        session = await (await api.connect(**options)).create_session()
        producer = await session.create_producer(TOPIC)
        producer.inner.delivery_delay = 500
        for bodies in (["a", "b"], [TextMessage("a"), TextMessage("b")]):
            await producer.send_many(bodies)
            assert await received(consumer, 2) == ["a", "b"]


async def test_d1_sends_of_all_kinds_are_delayed(api: Api) -> None:
    consumer = await consuming(api)
    session = await (await api.connect(dscp=8)).create_session()
    producer = await session.create_producer(TOPIC)
    producer.inner.delivery_delay = 300
    await producer.send(TextMessage("a"))
    await producer.send_async(TextMessage("b"))
    await producer.send(TextMessage("c"), on_complete=_Listener())
    assert await received(consumer, 3) == ["a", "b", "c"]


async def test_d1_a_temporary_queue_hands_out_what_is_due(api: Api) -> None:
    context = await api.context()
    queue = await context.create_temporary_queue()
    consumer = await context.create_consumer(queue.inner)
    await context.send(queue.inner, "a", delivery_delay=300)
    await context.send(queue.inner, "b")
    assert await received(consumer, 2) == ["b", "a"]


async def test_h12_the_delivery_time_is_that_of_the_send_and_the_delay(api: Api) -> None:
    consumer = await consuming(api)
    context = await api.context(dscp=8)
    await context.ready()
    message = TextMessage("a")
    await context.send(TOPIC, message, delivery_delay=300)
    assert message.delivery_time == message.timestamp + 300
    found = await consumer.receive(TextMessage, WAIT_S)
    assert found is not None
    assert (found.delivery_time, found.timestamp) == (message.delivery_time, message.timestamp)


async def test_what_does_not_fit_is_told(port: int) -> None:
    factory = ConnectionFactory(f"fjm2://239.192.57.40:{port}?interface=127.0.0.1&ttl=0")
    async with factory.create_context() as context:
        told: list[JMSError] = []
        context.exception_listener = told.append
        consumer = context.create_consumer(TOPIC)
        context.counted.router.targets.delayed._bytes_max = 1000  # type: ignore[attr-defined]
        for text in ("held", "dropped", "dropped, too"):
            await context.send(TOPIC, text, delivery_delay=300)
        message = await consumer.receive(TextMessage, WAIT_S)
        assert message is not None
        assert message.text == "held"
        assert await consumer.receive(timeout=0.3) is None
        await eventually(lambda: told)
        assert isinstance(told[0], MessagesDroppedError)
        assert "2 messages" in str(told[0])


async def test_n4_a_delay_of_the_producer_holds_until_a_send_has_its_own(api: Api) -> None:
    consumer = await consuming(api)
    context = await api.context()
    producer = (await context.create_producer()).inner.set_delivery_delay(600)
    assert producer.delivery_delay == 600
    assert "delivery delay 600ms" in repr(producer)
    await api.invoke(producer.send, TOPIC, "late")
    await api.invoke(producer.send, TOPIC, "early", delivery_delay=0)
    assert await received(consumer, 2) == ["early", "late"]


async def test_e1_the_life_of_a_message_runs_from_its_send(api: Api) -> None:
    consumer = await consuming(api)
    context = await api.context()
    for time_to_live in (1, 500):
        with pytest.raises(JMSError, match="would have expired at its delivery"):
            await context.send(TOPIC, "never", delivery_delay=500, time_to_live=time_to_live)
    await context.send(TOPIC, "a", delivery_delay=300, time_to_live=60_000)
    assert await received(consumer, 1) == ["a"]


async def test_a_file_cannot_be_delayed(api: Api, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    context = await api.context()
    with pytest.raises(JMSError, match="a file cannot be delayed"):
        await context.send(TOPIC, tmp_path / "file", delivery_delay=1)


class _Listener:
    def on_completion(self, message: object) -> None:
        """Take note of nothing."""

    def on_exception(self, message: object, error: Exception) -> None:
        raise AssertionError(message) from error
