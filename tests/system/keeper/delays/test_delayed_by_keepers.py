"""Delayed messages over real keepers: keepers and consumers that are killed while messages wait."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator

import pytest
from keepers import Keepers, start_three, uri_of

from fjm2.jms import ConnectionFactory, JMSConsumer, JMSContext, Message, SessionMode, TextMessage, Topic

pytestmark = pytest.mark.calm

TOPIC = Topic("fjm2.later")
WAIT_S = 20.0


@pytest.fixture
def cell(cell_of_three: Keepers) -> Keepers:
    """Three keepers that run."""
    start_three(cell_of_three)
    return cell_of_three


@contextlib.asynccontextmanager
async def consuming(uri: str) -> AsyncIterator[tuple[JMSContext, JMSConsumer]]:
    """Yield the context of the subscription, and its consumer."""
    factory = ConnectionFactory(uri, client_id="desk")
    async with factory.create_context(SessionMode.CLIENT_ACKNOWLEDGE) as context:
        yield context, await context.create_durable_consumer(TOPIC, "later")


async def send(uri: str, count: int, delay_ms: int, step_ms: int = 0) -> None:
    """Send messages that are due one after the other, the last one first."""
    async with ConnectionFactory(uri).create_context() as context:
        await context.ready()
        for number in range(count):
            await context.send(TOPIC, str(number), delivery_delay=delay_ms + (count - number) * step_ms)


async def received(consumer: JMSConsumer, count: int) -> list[Message]:
    """Receive messages, none of which comes before it is due."""
    found: list[Message] = []
    for _ in range(count):
        message = await consumer.receive(TextMessage, WAIT_S)
        assert message is not None, f"{len(found)} of {count}"
        assert time.time() * 1000 >= message.delivery_time
        found.append(message)
    assert await consumer.receive(timeout=0.5) is None
    return found


def numbers(messages: list[Message]) -> list[int]:
    return [int(message.get_body(str)) for message in messages]


@pytest.mark.nightly
def test_another_manager_hands_out_what_waits(cell: Keepers) -> None:
    uri = uri_of(cell.port)

    async def use() -> None:
        async with consuming(uri) as (context, consumer):
            await send(uri, 50, 6000, 20)
            cell.serving[0].end(signal.SIGKILL)
            assert sorted(numbers(await received(consumer, 50))) == list(range(50))
            await context.acknowledge()
        async with consuming(uri) as (_, consumer):
            assert await received(consumer, 0) == []

    asyncio.run(asyncio.wait_for(use(), 4 * WAIT_S))


def test_messages_wait_while_no_keeper_runs(cell_of_one: Keepers) -> None:
    """The delivery times are those of the messages on the disk."""
    uri = uri_of(cell_of_one.port)
    one = cell_of_one.start("one", "--replicas", 1)
    cell_of_one.until(lambda: one.state == "serving")

    async def prepare() -> None:
        async with consuming(uri):
            await send(uri, 20, 1000)
            await send(uri, 20, 9000)

    asyncio.run(prepare())
    one.end(signal.SIGKILL)
    time.sleep(1.0)
    again = cell_of_one.start("one", "--replicas", 1)
    cell_of_one.until(lambda: again.state == "serving")

    async def use() -> None:
        async with consuming(uri) as (context, consumer):
            assert numbers(await received_first(consumer, 20)) == list(range(20))
            assert numbers(await received(consumer, 20)) == list(range(20))
            await context.acknowledge()

    asyncio.run(asyncio.wait_for(use(), 3 * WAIT_S))


async def received_first(consumer: JMSConsumer, count: int) -> list[Message]:
    """Receive messages, of which others follow."""
    found: list[Message] = []
    while len(found) < count:
        message = await consumer.receive(TextMessage, WAIT_S)
        assert message is not None
        assert time.time() * 1000 >= message.delivery_time
        found.append(message)
    return found


def test_a_consumer_that_ends_before_it_acknowledges_gets_them_again(cell: Keepers) -> None:
    uri = uri_of(cell.port)

    async def use() -> None:
        async with consuming(uri) as (context, consumer):
            await send(uri, 100, 1000)
            first = await received_first(consumer, 60)
            await first[39].acknowledge()  # all 60 that the session has got
        async with consuming(uri) as (context, consumer):
            rest = await received(consumer, 40)
            assert numbers(rest) == list(range(60, 100))
            await context.acknowledge()

    asyncio.run(asyncio.wait_for(use(), 4 * WAIT_S))
