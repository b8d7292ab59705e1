"""Messages of a sender that rests now and then, and goes on in another ledger each time."""

import asyncio

import pytest
from durable_programs import NAME, TOPIC
from keepers import Keepers, start_three, uri_of
from representatives import representatives

from fjm2.base.ledger import Ledger
from fjm2.bus.ledgers.ledger_gate import LedgerGate
from fjm2.jms import ConnectionFactory, JMSContext, MessageConsumer
from fjm2.jms.sends import cell_driver

pytestmark = pytest.mark.calm

RESTS = 4
REST_S = 0.25
"""Interval at which ledgers without messages end here. Programs take 25 s."""
WAIT_S = 20.0


async def send(context: JMSContext, messages: int) -> None:
    """Send numbers, with rests after so many of them."""
    for first in range(0, RESTS * messages, messages):
        await asyncio.gather(*(context.send(TOPIC, str(number)) for number in range(first, first + messages)))
        await asyncio.sleep(2.5 * REST_S)


async def got(consumer: MessageConsumer, count: int) -> list[int]:
    """Return so many numbers in the order in which they come."""
    numbers: list[int] = []
    while len(numbers) < count:
        body = await consumer.receive_body(str, timeout=WAIT_S)
        assert body is not None, f"nothing came for {WAIT_S} s after {numbers[-3:]}"
        numbers.append(int(body))
    return numbers


@pytest.fixture
def cell(cell_of_three: Keepers) -> Keepers:
    """Three keepers that run."""
    start_three(cell_of_three)
    return cell_of_three


@pytest.mark.parametrize("messages", representatives([50, 500], 50))
def test_messages_come_in_order_across_the_rests_of_their_sender(
    cell: Keepers, monkeypatch: pytest.MonkeyPatch, messages: int
) -> None:
    """To a consumer that is there, to one that was away, and to the only one of a shared subscription."""
    monkeypatch.setattr(cell_driver, "_REST_S", REST_S)
    rests = 0
    end_resting = LedgerGate.end_resting

    def end_counted(gate: LedgerGate) -> list[Ledger]:
        nonlocal rests
        ended = end_resting(gate)
        rests += len(ended)
        return ended

    monkeypatch.setattr(LedgerGate, "end_resting", end_counted)
    uri = uri_of(cell.port)

    async def run() -> None:
        async with (
            ConnectionFactory(uri).create_context() as sender,
            ConnectionFactory(uri, client_id="there").create_context() as there,
            ConnectionFactory(uri, client_id="away").create_context() as away,
        ):
            present = await there.create_durable_consumer(TOPIC, NAME)
            shared = await there.create_shared_durable_consumer(TOPIC, "shared")
            await (await away.create_durable_consumer(TOPIC, NAME)).close()
            await sender.ready()
            count = RESTS * messages
            receiving = asyncio.gather(got(present, count), got(shared, count))
            await send(sender, messages)
            returned = await away.create_durable_consumer(TOPIC, NAME)
            for numbers in (*await receiving, await got(returned, count)):
                assert numbers == list(range(count))

    asyncio.run(run())
    assert rests >= RESTS - 1
