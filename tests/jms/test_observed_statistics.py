"""Tests of `statistics()` of connections, sessions, producers and consumers, in both APIs."""

import asyncio
import dataclasses
import json
from typing import Any

import pytest
from adapter import WAIT_S, Api

from fjm2.jms import (
    ConnectionStatistics,
    ConsumerStatistics,
    IllegalStateError,
    ProducerStatistics,
    SessionMode,
    SessionStatistics,
    Topic,
)

TOPIC = Topic("fjm2.statistics")
CLIENT, TRANSACTED = SessionMode.CLIENT_ACKNOWLEDGE, SessionMode.SESSION_TRANSACTED


async def until(thing: Any, field: str, value: int) -> None:
    """Wait until a field of an object's statistics has a given value."""
    async with asyncio.timeout(WAIT_S):
        while getattr(await thing.statistics(), field) != value:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.002)


async def test_messages_are_counted_on_both_sides(api: Api) -> None:
    sending, receiving = await api.connect(), await api.connect(dscp=8)
    listening = await receiving.create_session(CLIENT)
    consumer = await listening.create_consumer(TOPIC)
    await consumer.ready()
    producer = await (await sending.create_session()).create_producer(TOPIC)
    for number in range(5):
        await producer.send(await listening.create_text_message(f"{number}"))
    assert await producer.statistics() == ProducerStatistics(messages_sent=5, sends_waited=0, waited_s=0.0)
    message = await consumer.receive(WAIT_S)
    await until(consumer, "messages_received", 5)
    held: ConsumerStatistics = await consumer.statistics()
    assert (held.messages_waiting, held.messages_held, held.messages_dropped) == (4, 5, 0)
    assert held.held_bytes > 5 * 40
    assert await listening.statistics() == SessionStatistics(
        consumers=1, messages_unacknowledged=1, messages_uncommitted=0, outcomes_awaited=0
    )
    await api.acknowledge(message)
    assert (await consumer.statistics()).messages_held == 4
    there: ConnectionStatistics = await receiving.statistics()
    assert (there.sessions, there.consumers, there.messages_held, there.messages_sent) == (1, 1, 4, 0)
    assert (there.bus.deliveries, there.bus.frames_received, there.bus.peers) == (5, 5, 1)
    assert there.bus.lanes[0].payload_bytes_received > 0
    here: ConnectionStatistics = await sending.statistics()
    assert (here.messages_sent, here.consumers, here.bus.connections) == (5, 0, 1)
    assert (here.bus.messages_sent, here.bus.lanes[0].messages_sent, here.bus.deliveries) == (5, 5, 0)


async def test_a_transaction_is_counted_until_it_is_committed(api: Api) -> None:
    session = await (await api.connect()).create_session(TRANSACTED)
    producer = await session.create_producer(TOPIC)
    for _ in range(3):
        await producer.send(await session.create_message())
    assert (await session.statistics()).messages_uncommitted == 3
    await session.commit()
    assert (await session.statistics()).messages_uncommitted == 0
    assert (await producer.statistics()).messages_sent == 3


async def test_a_full_consumer_counts_what_it_dropped(api: Api) -> None:
    async with await api.context() as context:
        bounds = {"overflow": "drop_oldest", "messages_max": 2}
        consumer = await context.create_consumer(TOPIC, **bounds)
        producer = await context.create_producer()
        for number in range(6):
            await producer.send(TOPIC, f"{number}")
        await until(consumer, "messages_received", 6)
        statistics = await consumer.statistics()
        assert (statistics.messages_dropped, statistics.messages_held) == (4, 2)
        assert not statistics.is_full


async def test_both_sides_count_how_a_full_consumer_makes_senders_wait(api: Api) -> None:
    async with await api.context() as context:
        await context.create_consumer(TOPIC, messages_max=1)
        producer = await context.create_producer()
        for number in range(3):
            await producer.send(TOPIC, f"{number}")
        await until(context, "consumers_full", 1)
        if not api.is_blocking:  # in the blocking API, another thread waits
            statistics = await producer.statistics()
            assert statistics.sends_waited > 0
            assert statistics.waited_s > 0


async def test_statistics_are_ready_for_json_frozen_and_available_after_the_close(api: Api) -> None:
    context = await api.context()
    await (await context.create_producer()).send(TOPIC, "x")
    before = await context.statistics()
    found = json.loads(json.dumps(dataclasses.asdict(before)))
    assert found["bus"]["lanes"]["0"]["drops"] == {}
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.messages_sent = 7
    await context.close()
    after = await context.statistics()
    assert (after.messages_sent, after.sessions) == (1, 0)
    assert after.bus.lanes[0].datagrams_sent >= before.bus.lanes[0].datagrams_sent


async def test_there_are_no_statistics_before_the_connection_is_open(api: Api) -> None:
    if not api.is_blocking:  # in the blocking API, connections are open when they are made
        with pytest.raises(IllegalStateError, match="not open"):
            api.factory().create_connection().statistics()
