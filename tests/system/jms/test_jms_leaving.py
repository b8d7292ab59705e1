"""Connections that come and go: those that leave hold nobody up, and nobody is reported for having left."""

import asyncio
import random

import pytest
from buses import Node, node, run_on

from fjm2.bus.reports import SubscriberEvicted

pytestmark = pytest.mark.calm

VISITS = 40
AT_ONCE = 8
ACK_TIMEOUT_S = 1.0


def test_those_who_leave_are_not_taken_for_dead(port: int) -> None:
    async def main() -> None:
        small = {"window_bytes": "256KiB", "rate": "40mbit", "ack_timeout_s": ACK_TIMEOUT_S}
        async with node(port, **small) as sending, node(port) as stays:
            subscriber = stays.subscribe()
            await asyncio.gather(sending.bus.ready(), stays.bus.ready())
            publishing = asyncio.create_task(publish(sending))
            doors = asyncio.Semaphore(AT_ONCE)
            await asyncio.gather(*(visit(port, doors) for _ in range(VISITS)))
            await asyncio.sleep(2 * ACK_TIMEOUT_S)
            publishing.cancel()
            await asyncio.wait([publishing])
            assert not [report for report in sending.reports if isinstance(report, SubscriberEvicted)]
            assert sending.bus.lanes.session.receivers == {stays.bus.node_id}
            assert len(subscriber.received) > 100
            assert not stays.reports

    run_on("uvloop", main())


async def publish(sending: Node) -> None:
    while True:
        await sending.publish("x" * 1000)
        await asyncio.sleep(0.001)


async def visit(port: int, doors: asyncio.Semaphore) -> None:
    async with doors, node(port) as visitor:
        visitor.subscribe()
        await visitor.bus.ready()
        await asyncio.sleep(random.uniform(0.05, 0.3))
