"""Tests of signals between buses, on real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from adapter import WAIT_S, eventually

from fjm2.bus.bus import BUS_DEFAULTS, Bus
from fjm2.bus.signals.signals import HEARTBEAT
from fjm2.jms import ConnectionFactory, Overflow, TextMessage, Topic
from fjm2.norm.events import AckReceived, AckRequested
from fjm2.uri import BusConfig

STORED = 16


def uri(port: int, dscp: int = 0) -> str:
    return f"fjm2://239.192.57.40:{port}?interface=127.0.0.1&ttl=0&grtt_s=1ms&dscp={dscp}"


@asynccontextmanager
async def opened(port: int, dscp: int) -> AsyncIterator[Bus]:
    bus = await Bus.open(BusConfig.from_uri(uri(port, dscp), BUS_DEFAULTS))
    try:
        yield bus
    finally:
        await bus.close()


async def test_a_writer_asks_for_acknowledgements_and_gets_them_at_its_lane(port: int) -> None:
    async with opened(port, 0) as writer, opened(port, 8) as keeper:
        acks: list[tuple[int, AckReceived]] = []
        requests: list[AckRequested] = []
        keeper.lanes.signals.hear_requests(STORED, requests.append)
        writer.lanes.signals.hear_acks(STORED, lambda lane, ack: acks.append((lane, ack)))
        lane = writer.lanes.of_priority[9]
        lane.open_stream()
        lane.session.request_acks(STORED, [keeper.node_id], ack_id=5)
        await eventually(lambda: bool(requests))
        assert requests == [AckRequested(lane.node_id, STORED, 5)]
        assert keeper.lanes.session.send_ack(lane.node_id, STORED, b"on disk", ack_id=5)
        await eventually(lambda: bool(acks))
        assert acks == [(lane.number, AckReceived(keeper.node_id, STORED, 5, b"on disk"))]


async def test_commands_of_a_kind_are_heard_and_others_counted(port: int) -> None:
    async with opened(port, 0) as one, opened(port, 8) as other:
        heard: list[tuple[int, bytes]] = []
        other.lanes.signals.hear_commands(HEARTBEAT, lambda node_id, content: heard.append((node_id, content)))
        one.lanes.session.send_command(bytes((HEARTBEAT,)) + b"alive")
        one.lanes.session.send_command(b"\xc8what is this?")
        await eventually(lambda: other.stats.signals_unknown == 1 and bool(heard))
        assert heard == [(one.node_id, b"\x02alive")]


async def test_a_full_consumer_does_not_keep_acknowledgements_waiting(port: int) -> None:
    """A program whose consumer is full may itself wait until keepers have stored a message."""
    topic = Topic("fjm2.signals")
    sending = await ConnectionFactory(uri(port, 8)).create_connection()
    full = await ConnectionFactory(uri(port)).create_connection()
    full.start()
    async with opened(port, 0) as writer, opened(port, 16) as keeper:
        consumer = full.create_session().create_consumer(topic, overflow=Overflow.BLOCK, messages_max=1)
        await consumer.ready()
        await sending.ready()
        producer = sending.create_session().create_producer(topic)
        sends = [asyncio.ensure_future(producer.send(TextMessage("x" * 1000))) for _ in range(2000)]
        await eventually(lambda: writer.router.is_blocked)
        acks: list[AckReceived] = []
        writer.lanes.signals.hear_acks(STORED, lambda _, ack: acks.append(ack))
        writer.lanes.session.request_acks(STORED)
        keeper.lanes.signals.hear_requests(
            STORED, lambda request: keeper.lanes.session.send_ack(request.sender_id, STORED, b"seen") and None
        )
        while not acks:
            writer.lanes.session.request_acks(STORED)
            await asyncio.sleep(0.01)
        assert writer.router.is_blocked
        assert acks[0].content == b"seen"
        await consumer.close()
        await asyncio.wait_for(asyncio.gather(*sends), WAIT_S)
    await full.close()
    await sending.close()


async def test_a_new_table_version_is_announced(port: int) -> None:
    sending = await ConnectionFactory(uri(port)).create_connection()
    async with opened(port, 0) as bus, opened(port, 8) as other:
        await sending.create_session().create_producer(Topic("fjm2.signals")).send(TextMessage("a lane is open now"))
        await eventually(lambda: [peer.node_id for peer in other.presence.publishers_before(3)] == [bus.node_id])
        bus.membership.announcer.table_version = 3
        await eventually(lambda: not other.presence.publishers_before(3))
        assert [peer.table_version for peer in other.presence.peers] == [3]
    await sending.close()
