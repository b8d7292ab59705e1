"""Programs that send at once, and end: what they sent to a durable subscription is kept, or they are told."""

import asyncio
import signal

import pytest
from durable_programs import NAME, TOPIC
from keepers import Keepers, start_three, uri_of

from fjm2.jms import ConnectionFactory, ResourceAllocationError, TextMessage, blocking

pytestmark = pytest.mark.calm

WAIT_S = 20.0


async def subscribe(uri: str) -> None:
    async with ConnectionFactory(uri, client_id="desk").create_context() as context:
        await context.create_durable_consumer(TOPIC, NAME)


async def send(uri: str, *texts: str, confirm_timeout_s: float = 10.0) -> None:
    """Open a connection, send, and close it."""
    async with ConnectionFactory(uri, confirm_timeout_s=confirm_timeout_s).create_context() as context:
        for text in texts:
            await context.send(TOPIC, text)


async def kept(uri: str) -> list[str]:
    """Return what the subscription has."""
    found: list[str] = []
    async with ConnectionFactory(uri, client_id="desk").create_context() as context:
        consumer = await context.create_durable_consumer(TOPIC, NAME)
        while (message := await consumer.receive(TextMessage, timeout=3)) is not None:
            found.append(message.text or "")
    return found


def test_what_a_program_sends_at_once_is_kept(cell_of_three: Keepers) -> None:
    uri = uri_of(cell_of_three.port)
    start_three(cell_of_three)
    asyncio.run(subscribe(uri))
    for number in range(10):
        asyncio.run(send(uri, f"{number} first", f"{number} second"))
    with blocking.ConnectionFactory(uri).create_context() as context:
        context.send(TOPIC, "of a thread")
    found = asyncio.run(kept(uri))
    expected = [f"{number} {which}" for number in range(10) for which in ("first", "second")]
    assert sorted(found) == [*expected, "of a thread"]
    assert all(found.index(f"{number} first") < found.index(f"{number} second") for number in range(10))


def test_what_a_program_sends_during_a_takeover_is_kept(cell_of_three: Keepers) -> None:
    uri = uri_of(cell_of_three.port)
    start_three(cell_of_three)
    asyncio.run(subscribe(uri))
    (manager,) = cell_of_three.serving
    manager.end(signal.SIGKILL)
    sent = 0
    while not cell_of_three.serving:
        asyncio.run(send(uri, f"{sent}"))
        sent += 1
    asyncio.run(send(uri, "after"))
    assert sent >= 1
    assert sorted(asyncio.run(kept(uri))) == sorted([*map(str, range(sent)), "after"])


@pytest.mark.nightly
def test_what_a_program_sends_while_all_keepers_start_again_is_kept(cell_of_three: Keepers) -> None:
    uri = uri_of(cell_of_three.port)
    for keeper in start_three(cell_of_three):
        cell_of_three.until(lambda keeper=keeper: keeper.state in ("serving", "follower"))
    asyncio.run(subscribe(uri))
    for keeper in cell_of_three.running:
        keeper.end(signal.SIGKILL)
    three = [cell_of_three.start(name) for name in "abc"]
    cell_of_three.until(lambda: any(each.state for each in three))  # one is on the bus, and cannot serve alone
    assert not cell_of_three.serving
    asyncio.run(send(uri, "first", "second"))
    assert cell_of_three.serving
    assert asyncio.run(kept(uri)) == ["first", "second"]


def test_a_program_is_told_that_too_few_keepers_are_there(cell_of_three: Keepers) -> None:
    uri = uri_of(cell_of_three.port)
    one = cell_of_three.start("a")
    cell_of_three.until(lambda: one.state)

    async def fail() -> None:
        text = r"no keeper on \S+ has served for 1 s .*; 1 keeper is there \(keeper-[0-9a-f]{8}\): the message was not"
        with pytest.raises(ResourceAllocationError, match=text):
            await send(uri, "a", confirm_timeout_s=1.0)
        factory = ConnectionFactory(uri, client_id="desk", confirm_timeout_s=1.0)
        async with factory.create_context() as context:
            with pytest.raises(
                ResourceAllocationError, match=r"no keeper serves on \S+ yet; 1 keeper is there \(keeper-[0-9a-f]{8}\)"
            ):
                await context.create_durable_consumer(TOPIC, NAME)

    asyncio.run(asyncio.wait_for(fail(), WAIT_S))
