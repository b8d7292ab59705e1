"""A publisher with an outbox whose keeper is full for a while: everything comes once and in order to all."""

import asyncio
from pathlib import Path

import pytest
from durable_programs import OUTBOX_BYTES
from keepers import Keepers, uri_of

from fjm2.jms import ConnectionFactory, JMSContext, SessionMode, TextMessage, Topic

pytestmark = pytest.mark.calm

TOPIC = Topic("fjm2.full")
MESSAGES = 300
FILLING = "x" * (60 << 10)
WAIT_S = 60.0


async def subscriber(uri: str, client_id: str) -> JMSContext:
    return await ConnectionFactory(uri, client_id=client_id).create_context(SessionMode.CLIENT_ACKNOWLEDGE)


async def read(context: JMSContext, numbers: list[int]) -> None:
    """Take messages until cancelled, and acknowledge them now and then."""
    consumer = await context.create_durable_consumer(TOPIC, "all")
    async for message in consumer:
        numbers.append(int(message.get_body(str).split()[0]))
        if len(numbers) % 20 == 0 or len(numbers) >= MESSAGES:
            await message.acknowledge()


async def fill_and_drain(keepers: Keepers, directory: Path) -> None:
    uri = uri_of(keepers.port)
    async with await subscriber(uri, "slow") as slow:
        await slow.create_durable_consumer(TOPIC, "all")
    prompt_numbers: list[int] = []
    slow_numbers: list[int] = []
    options = {"outbox": directory, "outbox_bytes_max": 2 * OUTBOX_BYTES, "confirm_timeout_s": 1.0}
    async with await subscriber(uri, "prompt") as prompt:
        reading = asyncio.create_task(read(prompt, prompt_numbers))
        await asyncio.sleep(1.0)
        async with ConnectionFactory(uri, **options).create_connection() as connection:
            producer = connection.create_session().create_producer(TOPIC)
            for number in range(MESSAGES):
                await producer.send(TextMessage(f"{number} {FILLING}"))
            # Nobody makes room: the keeper stays full, and what it lacks is on its way again and again.
            await asyncio.sleep(6.0)
            assert connection.statistics().bus.outbox_messages > 10, "the keeper is not full"
            async with await subscriber(uri, "slow") as slow, asyncio.timeout(WAIT_S):
                draining = asyncio.create_task(read(slow, slow_numbers))
                while min(len(prompt_numbers), len(slow_numbers)) < MESSAGES:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
                await asyncio.sleep(2.0)
                for task in (reading, draining):
                    assert not task.done()
                    task.cancel()
    assert prompt_numbers == list(range(MESSAGES))
    assert slow_numbers == list(range(MESSAGES))


@pytest.mark.nightly
def test_full_keepers_get_everything_once_when_they_have_room(cell_of_one: Keepers, tmp_path: Path) -> None:
    one = cell_of_one.start("one")
    cell_of_one.until(lambda: one.state == "serving")
    asyncio.run(fill_and_drain(cell_of_one, tmp_path / "outbox"))
