"""Durable subscriptions of real keepers, as a client sees them that speaks the formats of the wire."""

import asyncio

import pytest
from keepers import Keepers
from raw_subscribers import RawSubscriber, subscribing

from fjm2.cell.service.reasons import Reason
from fjm2.messages.destination import Topic

pytestmark = pytest.mark.calm

NEWS = Topic("news")
MESSAGES = 10_000


async def publish(subscriber: RawSubscriber, numbers: range, topic: Topic = NEWS) -> int:
    """Publish numbers, and wait until all are stored. Return the sequence of the last one."""
    writer = subscriber.writer
    for at in range(0, len(numbers), 500):
        futures = [writer.send(b"%d" % number, topic) for number in numbers[at : at + 500]]
        await writer.stored(futures[-1])
    return writer.gate.newest(writer.ledger.lane).sequence


def values(found: dict[int, bytes]) -> list[int]:
    return [int(found[sequence]) for sequence in sorted(found)]


def test_a_durable_subscriber_catches_up_page_by_page(cell_of_one: Keepers) -> None:
    async def serve(port: int) -> None:
        async with subscribing(port) as subscriber:
            consumer = await subscriber.subscribe(NEWS)
            last = await publish(subscriber, range(MESSAGES))
            assert values(await subscriber.catch_up(consumer, last)) == list(range(MESSAGES))
            ledger = subscriber.writer.ledger
            assert await subscriber.acknowledge(consumer, ledger, 1, last) is Reason.GRANTED
            page = await subscriber.page(subscriber.nodes[0], consumer, ledger, 1, is_exact=True)
            assert not page.spans
            assert page.acknowledged == last

    one = cell_of_one.start("one", "--replicas", 1)
    cell_of_one.until(lambda: one.state == "serving")
    asyncio.run(serve(cell_of_one.port))
