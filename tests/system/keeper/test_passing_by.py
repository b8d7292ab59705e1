"""Traffic that keepers do not keep passes by them, until a publisher sends something that they may have to keep."""

import asyncio
import json
import signal
from collections import Counter
from pathlib import Path

import pytest
from keepers import Keepers, start_three, uri_of
from representatives import representatives

from fjm2.jms import ConnectionFactory, DeliveryMode, JMSContext, Message, SessionMode, Topic

pytestmark = pytest.mark.calm

COUNT, SIZE = 3_000, 1_000
STORED, PASSING = Topic("prices"), Topic("ticks")
WAIT_S = 20.0


def counted(folder: Path, name: str) -> dict[str, int]:
    """Return a counter of each process that has written traces, by its node."""
    found: Counter[str] = Counter()
    for path in folder.rglob("*.jsonl"):
        for line in path.read_text().splitlines():
            found[path.stem] += json.loads(line).get("c", {}).get(name, 0)
    return dict(found)


async def send(context: JMSContext, topic: Topic, numbers: range, mode: DeliveryMode) -> None:
    """Send messages, each of which begins with its number, and await each send."""
    producer = context.create_producer().set_delivery_mode(mode)
    for number in numbers:
        await producer.send(topic, f"{number} ".encode().ljust(SIZE))


def number_of(message: Message) -> int:
    return int(message.get_body(bytes).split()[0])


async def heard(found: list[int], count: int) -> None:
    """Wait until so many messages are there."""
    async with asyncio.timeout(WAIT_S):
        while len(found) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def test_keepers_receive_nothing_of_traffic_that_they_do_not_keep(
    cell_of_three: Keepers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FJM2_TRACE_DIR", str(tmp_path / "traces"))
    three = start_three(cell_of_three)
    monkeypatch.delenv("FJM2_TRACE_DIR")  # this process writes none

    async def publish() -> int:
        found: list[int] = []
        factory = ConnectionFactory(uri_of(cell_of_three.port))
        async with factory.create_context() as context, factory.create_context() as listener:
            consumer = listener.create_consumer(PASSING)
            consumer.message_listener = lambda message: found.append(number_of(message))
            await consumer.ready()
            await send(context, PASSING, range(COUNT), DeliveryMode.NON_PERSISTENT)
            await heard(found, COUNT)
            return context.statistics().bus.lanes[0].bytes_sent

    assert asyncio.run(publish()) > COUNT * SIZE / 4  # a first window; the rest follows when nobody answers
    for keeper in three:
        keeper.end(signal.SIGTERM)
    received = counted(tmp_path / "traces", "bytes_received")
    content = counted(tmp_path / "traces", "payload_bytes_received")
    assert len(received) == len(three)
    assert max(content.values()) < COUNT * SIZE / 100
    assert max(received.values()) < COUNT * SIZE / 10  # heartbeats and announcements


async def publish_both(cell: Keepers, between: "asyncio.Future[None] | None", every: int) -> tuple[list[int], int]:
    """Publish messages of both kinds. Return what an ordinary consumer got, and how many were stored."""
    found: list[int] = []
    factory = ConnectionFactory(uri_of(cell.port))
    async with factory.create_context() as context, factory.create_context() as listener:
        consumer = listener.create_consumer(PASSING)
        consumer.message_listener = lambda message: found.append(number_of(message))
        await consumer.ready()
        await send(context, PASSING, range(COUNT), DeliveryMode.NON_PERSISTENT)
        sending = asyncio.create_task(send(context, PASSING, range(COUNT, 2 * COUNT), DeliveryMode.NON_PERSISTENT))
        stored = 0
        while not sending.done() or stored < 2 * every:
            if between is not None and stored == every:
                between.set_result(None)
            await send(context, STORED, range(stored, stored + 1), DeliveryMode.PERSISTENT)
            stored += 1
        await sending
        await heard(found, 2 * COUNT)
    return found, stored


async def drained(cell: Keepers) -> list[int]:
    """Return the numbers of what waits for the durable consumer."""
    factory = ConnectionFactory(uri_of(cell.port), client_id="desk")
    async with factory.create_context(SessionMode.CLIENT_ACKNOWLEDGE) as context:
        consumer = await context.create_durable_consumer(STORED, "name")
        numbers: list[int] = []
        while (message := await consumer.receive(timeout=2)) is not None:
            numbers.append(number_of(message))
        await context.acknowledge()
        return numbers


@pytest.mark.parametrize("victim", representatives([None, "follower", "serving"], "follower"))
def test_what_is_to_be_kept_in_the_middle_of_other_traffic_is_kept(cell_of_three: Keepers, victim: str | None) -> None:
    """Every send has its answer. While one keeper is killed and comes back, the two others do."""
    three = start_three(cell_of_three)

    async def run() -> tuple[list[int], int, list[int]]:
        await drained(cell_of_three)
        between: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def replace() -> None:
            await between
            keeper = next(each for each in three if each.state == victim)
            keeper.end(signal.SIGKILL)
            cell_of_three.start(keeper.directory.name)

        replacing = asyncio.create_task(replace()) if victim else None
        found, stored = await publish_both(cell_of_three, between if victim else None, 20)
        if replacing is not None:
            await replacing
        return found, stored, await drained(cell_of_three)

    found, stored, kept = asyncio.run(run())
    assert found == list(range(2 * COUNT))
    assert kept == list(range(stored))
