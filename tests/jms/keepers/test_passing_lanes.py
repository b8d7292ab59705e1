"""Tests of lanes that pass by keepers until they carry something that keepers may have to keep."""

import asyncio

import pytest
from adapter import WAIT_S, eventually
from local_keepers import LocalCell, serving, uri

from fjm2.bus.bus import Bus
from fjm2.jms import BytesMessage, Connection, ConnectionFactory, DeliveryMode, SessionMode, TextMessage, Topic

STORED, OTHER = Topic("fjm2.passing.stored"), Topic("fjm2.passing.other")
MANY, SIZE = 300, 2_000


def bus_of(connection: Connection) -> Bus:
    return connection._core.check_open().bus


def heard_bytes(cell: LocalCell) -> list[int]:
    """Return how much each keeper has received of all streams."""
    return [keeper.bus.lanes.session.statistics().payload_bytes_received for keeper in cell.keepers if keeper.bus]


async def pass_by(connection: Connection, count: int = MANY, priority: int = 4) -> None:
    producer = connection.create_session().create_producer(OTHER)
    producer.delivery_mode, producer.priority = DeliveryMode.NON_PERSISTENT, priority
    for _ in range(count):
        message = BytesMessage()
        message.write_bytes(bytes(SIZE))
        await producer.send(message)


async def test_keepers_hear_nothing_before_something_is_to_be_kept(port: int) -> None:
    async with serving(port, 3) as cell:
        await cell.subscribe(STORED)
        async with ConnectionFactory(uri(port)).create_connection() as connection:
            await connection.ready()
            lane, presence = bus_of(connection).lanes.first, bus_of(connection).presence
            for keeper in cell.keepers:
                keeper.announce()
            await eventually(lambda: len(presence.keepers) == len(cell.keepers))
            await pass_by(connection)
            assert not lane.is_kept
            assert heard_bytes(cell) == [0, 0, 0]
            assert lane.named == lane.session.receivers == frozenset()
            producer = connection.create_session().create_producer(STORED)
            await asyncio.wait_for(producer.send(TextMessage("a")), WAIT_S)
            assert lane.is_kept
            assert lane.named == {keeper.node_id for keeper in cell.keepers}
            await pass_by(connection, 1)  # in the same stream
            await asyncio.wait_for(producer.send(TextMessage("b")), WAIT_S)
            for keeper in cell.keepers:
                await eventually(lambda keeper=keeper: keeper.store.bodies() == [b"a", b"b"])
            assert all(SIZE < heard < 3 * SIZE for heard in heard_bytes(cell))


async def test_each_lane_passes_by_itself(port: int) -> None:
    async with serving(port) as cell:
        await cell.subscribe(STORED)
        async with ConnectionFactory(uri(port)).create_connection() as connection:
            await connection.ready()
            await connection.create_session().create_producer(STORED).send(TextMessage("a"))
            before = heard_bytes(cell)
            await pass_by(connection, priority=9)
            assert [lane.is_kept for lane in bus_of(connection).lanes.with_streams] == [True, False]
            assert heard_bytes(cell) == before


@pytest.mark.parametrize("way", ["send", "send_many", "commit"])
async def test_every_way_to_keepers_is_heard(port: int, way: str) -> None:
    async with serving(port) as cell:
        await cell.subscribe(STORED)
        async with ConnectionFactory(uri(port)).create_connection() as connection:
            await connection.ready()
            await pass_by(connection)
            mode = SessionMode.SESSION_TRANSACTED if way == "commit" else SessionMode.AUTO_ACKNOWLEDGE
            session = connection.create_session(mode)
            producer = session.create_producer(STORED)
            async with asyncio.timeout(WAIT_S):
                if way == "send_many":
                    await producer.send_many(["a"])
                else:
                    await producer.send(TextMessage("a"))
                if way == "commit":
                    await session.commit()
            assert cell.keepers[0].store.bodies() == [b"a"]


async def test_a_redrawn_node_is_heard_as_before(port: int) -> None:
    async with serving(port) as cell:
        await cell.subscribe(STORED)
        async with ConnectionFactory(uri(port)).create_connection() as connection:
            await connection.ready()
            await pass_by(connection)
            producer = connection.create_session().create_producer(STORED)
            await producer.send(TextMessage("a"))
            bus_of(connection).lanes.first.redraw_node_id()
            await asyncio.wait_for(producer.send(TextMessage("b")), WAIT_S)
            assert cell.keepers[0].store.bodies() == [b"a", b"b"]
