"""Durable subscriptions of programs that keep by themselves."""

import asyncio
import signal
from pathlib import Path

import pytest
from embedded_programs import ASYNCIO, Programs
from keepers import DEADLINE_S, uri_of

from fjm2.jms import ConnectionFactory, Topic

pytestmark = pytest.mark.calm

ORDERS = Topic("orders")
MESSAGES = 100


def factory(directory: Path, port: int) -> ConnectionFactory:
    return ConnectionFactory(uri_of(port), keep=directory, client_id="shop")


async def subscribe(directory: Path, port: int) -> None:
    """Create a durable subscription, and leave."""
    async with factory(directory, port).create_context() as context:
        await context.create_durable_consumer(ORDERS, "all")


async def received(directory: Path, port: int, count: int) -> list[str | None]:
    """Return what a durable subscriber gets that was away."""
    async with factory(directory, port).create_context() as context:
        consumer = await context.create_durable_consumer(ORDERS, "all")
        return [await consumer.receive_body(str, DEADLINE_S) for _ in range(count)]


@pytest.mark.nightly
def test_a_durable_subscriber_that_was_away_gets_everything(tmp_path: Path, port: int) -> None:
    async def use() -> None:
        await subscribe(tmp_path / "store", port)
        async with ConnectionFactory(uri_of(port), keep=tmp_path / "store").create_context() as context:
            for number in range(MESSAGES):
                await context.send(ORDERS, str(number))
        assert await received(tmp_path / "store", port, MESSAGES) == [str(number) for number in range(MESSAGES)]

    asyncio.run(use())


SEND = """
from fjm2.jms import Topic
        session = connection.create_session()
        producer = session.create_producer(Topic("orders"))
        for number in range(100_000):
            await producer.send(session.create_text_message(str(number)))
            print(number, flush=True)
"""


def test_nothing_sent_is_lost_when_the_program_is_killed(programs: Programs, tmp_path: Path, port: int) -> None:
    directory = tmp_path / "store"
    asyncio.run(subscribe(directory, port))
    program = programs.start(directory, port, ASYNCIO, SEND.strip())
    program.until(lambda: len(program.said) > MESSAGES)
    program.end(signal.SIGKILL)
    sent = [line for line in program.said if line.isdigit()]
    # The last one may have been stored without the program being told.
    assert asyncio.run(received(directory, port, len(sent))) == sent
