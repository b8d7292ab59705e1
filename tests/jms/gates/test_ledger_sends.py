"""Tests of sends that keepers have to store first, with a stand-in for the keepers: a tap that reads the numbers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from adapter import QUIET_S, WAIT_S, eventually

from fjm2.base.ledger import Ledger
from fjm2.bus.bus import BUS_DEFAULTS
from fjm2.bus.ledgers.ledger_gate import LedgerGate
from fjm2.bus.ledgers.ledger_room import LedgerRoom
from fjm2.jms import (
    BytesMessage,
    Connection,
    ConnectionFactory,
    DeliveryMode,
    ResourceAllocationError,
    SessionMode,
    TextMessage,
    Topic,
    UnconfirmedError,
)
from fjm2.jms.blocking.connection import Connection as BlockingConnection
from fjm2.jms.blocking.loop_thread import LOOP
from fjm2.jms.connection import ConnectionCore
from fjm2.jms.settings import ClientSettings
from fjm2.messages.frame import Frame
from fjm2.messages.ledgers.ledger_number import is_intact, ledger_number_of
from fjm2.uri import BusConfig

STORED, OTHER = Topic("fjm2.ledgers.stored"), Topic("fjm2.ledgers.other")
FULL = ResourceAllocationError("the store is full")


def uri(port: int) -> str:
    return f"fjm2://239.192.57.40:{port}?interface=127.0.0.1&ttl=0&grtt_s=1ms"


class Tap:
    """A stand-in for a keeper: it notes the sequences of what it hears, and confirms nothing by itself."""

    is_full = False

    def __init__(self) -> None:
        self.sequences: list[int] = []
        self.unnumbered = 0

    def take_run(self, sender_id: int, frames: list[Frame]) -> None:
        assert sender_id
        for buffer, start, _, _, header in frames:
            number = ledger_number_of(buffer, header, start)
            if number is None:
                self.unnumbered += 1
            else:
                assert is_intact(buffer, header, start)
                self.sequences.append(number.sequence)


class Lab:
    """A connection behind a gate, another one that hears it, and a tap beside that."""

    def __init__(self, sending: Connection, receiving: Connection, gate: LedgerGate, tap: Tap) -> None:
        self.sending, self.receiving, self.gate, self.tap = sending, receiving, gate, tap
        self.heard: list[str] = []

    def confirm(self, sequence: int | None = None, lane: int = 0) -> None:
        newest = self.gate.newest(lane)
        through = newest.sequence if sequence is None else sequence
        assert self.gate.confirmed_through(Ledger(*newest[:2], lane), through)

    def producer(self, mode: SessionMode = SessionMode.AUTO_ACKNOWLEDGE, topic: Topic = STORED) -> Any:
        return self.sending.create_session(mode).create_producer(topic)


@asynccontextmanager
async def opened(port: int, stream_bytes: int = 16 << 20, **settings: Any) -> AsyncIterator[Lab]:
    gate = LedgerGate(77, 2, LedgerRoom(stream_bytes))
    gate.is_stored = {STORED.frame_hash}.__contains__
    config = BusConfig.from_uri(uri(port), BUS_DEFAULTS)
    sending = await Connection(ConnectionCore(config, ClientSettings(**settings), gate))
    receiving = await ConnectionFactory(uri(port), dscp=8).create_connection()
    receiving.start()
    tap = Tap()
    receiving._core.check_open().bus.router.add_tap(tap)
    lab = Lab(sending, receiving, gate, tap)
    consumer = receiving.create_session().create_consumer(STORED)
    consumer.message_listener = lambda message: lab.heard.append(message.get_body(str))
    await consumer.ready()
    await sending.ready()
    try:
        yield lab
    finally:
        gate.close(UnconfirmedError("the connection closes"))
        await sending.close()
        await receiving.close()


async def test_a_send_ends_when_it_is_stored(port: int) -> None:
    async with opened(port) as lab:
        send = asyncio.ensure_future(lab.producer().send(TextMessage("a")))
        await eventually(lambda: lab.heard == ["a"])
        assert lab.tap.sequences == [1]
        await asyncio.sleep(QUIET_S)
        assert not send.done()
        lab.confirm()
        await asyncio.wait_for(send, WAIT_S)


async def test_sends_that_are_not_stored_end_at_once_and_are_numbered(port: int) -> None:
    async with opened(port) as lab:
        await asyncio.wait_for(lab.producer(topic=OTHER).send(TextMessage("a")), WAIT_S)
        await lab.producer().send(TextMessage("b"), delivery_mode=DeliveryMode.NON_PERSISTENT)
        await eventually(lambda: lab.heard == ["b"])
        assert (lab.tap.sequences, lab.tap.unnumbered) == ([1], 1)
        assert lab.gate.unconfirmed == 0


async def test_asynchronous_sends_pipeline_and_share_futures(port: int) -> None:
    async with opened(port) as lab:
        producer = lab.producer()
        outcomes = [producer.send_async(TextMessage(str(number))) for number in range(200)]
        await eventually(lambda: len(lab.heard) == 200)
        assert lab.tap.sequences == list(range(1, 201))
        done: list[int] = []
        for number, outcome in enumerate(outcomes):
            outcome.add_done_callback(lambda _, number=number: done.append(number))
        assert not any(outcome.done() for outcome in outcomes)
        lab.confirm()
        await asyncio.wait_for(asyncio.gather(*outcomes), WAIT_S)
        assert done == list(range(200))


async def test_a_failure_is_the_outcome_of_every_send(port: int) -> None:
    async with opened(port) as lab:
        producer = lab.producer()
        outcomes = [producer.send_async(TextMessage("a")), asyncio.ensure_future(producer.send(TextMessage("b")))]
        outcomes.append(asyncio.ensure_future(producer.send_many(["c", "d"])))
        await eventually(lambda: lab.gate.unconfirmed == 4)
        lab.gate.fail(FULL)
        for outcome in outcomes:
            with pytest.raises(ResourceAllocationError, match="the store is full"):
                await asyncio.wait_for(outcome, WAIT_S)


@pytest.mark.parametrize("size", [10, 1000])
async def test_a_batch_is_numbered_at_once(port: int, size: int) -> None:
    async with opened(port) as lab:
        count = 10_000 if size == 10 else 3000  # more than one array
        bodies = [f"{number:0{size}}" for number in range(count)]
        send = asyncio.ensure_future(lab.producer().send_many(bodies))
        await eventually(lambda: len(lab.heard) == count)
        assert lab.heard == bodies
        assert lab.tap.sequences == list(range(1, count + 1))
        assert not send.done(), "all arrays are under way before the first is confirmed"
        lab.confirm()
        await asyncio.wait_for(send, WAIT_S)


async def test_a_commit_ends_when_all_its_messages_are_stored(port: int) -> None:
    async with opened(port) as lab:
        session = lab.sending.create_session(SessionMode.SESSION_TRANSACTED)
        producer = session.create_producer(STORED)
        for text in "abc":
            await producer.send(TextMessage(text))
        assert lab.gate.newest(0).sequence == 0
        commit = asyncio.ensure_future(session.commit())
        await eventually(lambda: lab.heard == ["a", "b", "c"])
        assert lab.tap.sequences == [1, 2, 3]
        lab.confirm(2)
        await asyncio.sleep(QUIET_S)
        assert not commit.done()
        lab.confirm(3)
        await asyncio.wait_for(commit, WAIT_S)


async def test_messages_beyond_the_room_wait_and_keep_their_order(port: int) -> None:
    async with opened(port, stream_bytes=20_000) as lab:
        producer, unstored = lab.producer(), lab.producer(topic=OTHER)
        outcomes = [producer.send_async(TextMessage(f"{number:0500}")) for number in range(100)]
        last = asyncio.ensure_future(unstored.send(TextMessage("behind them")))
        await eventually(lambda: len(lab.heard) >= 10)
        await asyncio.sleep(QUIET_S)
        assert len(lab.heard) == lab.gate.unconfirmed < 20
        assert lab.gate._room.used[0] <= 10_000
        assert not last.done(), "a message must not overtake those of its lane"
        for _ in range(100):
            lab.confirm()
            await asyncio.sleep(0.005)
        await asyncio.wait_for(asyncio.gather(*outcomes, last), WAIT_S)
        await eventually(lambda: len(lab.tap.sequences) == 101)
        assert lab.tap.sequences == list(range(1, 102))
        assert lab.heard == [f"{number:0500}" for number in range(100)]


async def test_batches_beyond_the_room_wait_as_a_whole(port: int) -> None:
    async with opened(port, stream_bytes=20_000) as lab:
        producer = lab.producer()
        batches = [[f"{batch} {number:0500}" for number in range(10)] for batch in range(4)]
        sends = [asyncio.ensure_future(producer.send_many(bodies)) for bodies in batches]
        await eventually(lambda: lab.gate.unconfirmed == 10)
        await asyncio.sleep(QUIET_S)
        assert lab.gate.newest(0).sequence == 10
        for count in (2, 3, 4):
            lab.confirm()
            await eventually(lambda count=count: lab.gate.newest(0).sequence == 10 * count)
            assert [send.done() for send in sends][count - 1 :] == [False] * (5 - count)
        lab.gate.fail(FULL)
        with pytest.raises(ResourceAllocationError, match="the store is full"):
            await asyncio.wait_for(sends[3], WAIT_S)
        await asyncio.wait_for(asyncio.gather(*sends[:3]), WAIT_S)
        await eventually(lambda: lab.heard == [body for bodies in batches for body in bodies])
        assert lab.tap.sequences == list(range(1, 41))


@pytest.mark.parametrize("is_transacted", [False, True])
async def test_every_way_to_send_waits_for_room(port: int, is_transacted: bool) -> None:
    async with opened(port, stream_bytes=20_000) as lab:
        bodies = [f"{number:0500}" for number in range(60)]
        if is_transacted:
            session = lab.sending.create_session(SessionMode.SESSION_TRANSACTED)
            producer = session.create_producer(STORED)
            await producer.send_many(bodies)
            send = asyncio.ensure_future(session.commit())
        else:
            send = asyncio.ensure_future(lab.producer().send_many(bodies))
        most = 0
        for _ in range(400):
            most = max(most, lab.gate._room.used[0])
            lab.confirm()
            if send.done():
                break
            await asyncio.sleep(0.005)
        await asyncio.wait_for(send, WAIT_S)
        await eventually(lambda: lab.heard == bodies)
        assert 0 < most <= 10_000


class Listener:
    """A completion listener that notes errors, and None for success."""

    def __init__(self) -> None:
        self.told: list[Exception | None] = []

    def on_completion(self, message: Any) -> None:
        assert message is not None
        self.told.append(None)

    def on_exception(self, message: Any, error: Exception) -> None:
        assert message is not None
        self.told.append(error)


async def test_held_messages_fail_when_the_gate_closes(port: int) -> None:
    async with opened(port, stream_bytes=2000) as lab:
        producer, listener = lab.producer(), Listener()
        outcomes = [asyncio.ensure_future(producer.send(TextMessage("x" * 900))) for _ in range(3)]
        outcomes += [producer.send_async(TextMessage("x" * 900)) for _ in range(3)]
        listened = asyncio.ensure_future(producer.send(TextMessage("x" * 900), on_complete=listener))
        await eventually(lambda: len(lab.heard) == 1)
        lab.gate.close(FULL)
        for outcome in outcomes:
            with pytest.raises(ResourceAllocationError, match="the store is full"):
                await asyncio.wait_for(outcome, WAIT_S)
        with pytest.raises(ResourceAllocationError, match="the store is full"):
            await producer.send(TextMessage("y"))
        await asyncio.wait_for(listened, WAIT_S)  # the listener is told, and nobody else
        await eventually(lambda: listener.told == [FULL])
        await asyncio.sleep(QUIET_S)
        assert len(lab.heard) == 1


@pytest.mark.parametrize("is_awaited", [False, True])
async def test_a_file_that_would_have_to_be_stored_is_refused_and_not_sent(
    port: int, tmp_path: Path, is_awaited: bool
) -> None:
    (tmp_path / "file").write_bytes(bytes(200_000))
    async with opened(port) as lab:
        message, producer = lab.sending.create_session().create_file_message(tmp_path / "file"), lab.producer()
        send = producer.send(message) if is_awaited else producer.send_async(message)
        with pytest.raises(ResourceAllocationError, match="keepers do not keep files: send it with delivery mode NON"):
            await asyncio.wait_for(send, WAIT_S)
        send = asyncio.ensure_future(producer.send(TextMessage("behind")))
        await eventually(lambda: lab.heard == ["behind"])
        lab.confirm()
        await asyncio.wait_for(send, WAIT_S)
        assert (lab.tap.sequences, lab.tap.unnumbered) == ([1], 0)


@pytest.mark.parametrize("topic", [STORED, OTHER])
@pytest.mark.parametrize("is_awaited", [False, True])
async def test_a_file_that_is_not_stored_reaches_subscribers(
    port: int, tmp_path: Path, is_awaited: bool, topic: Topic
) -> None:
    content = bytes(range(256)) * 2000
    (tmp_path / "file").write_bytes(content)
    mode = DeliveryMode.NON_PERSISTENT if topic is STORED else DeliveryMode.PERSISTENT
    async with opened(port) as lab:
        consumer = lab.receiving.create_session().create_consumer(topic)
        await consumer.ready()
        await lab.sending.ready()
        message, producer = (
            lab.sending.create_session().create_file_message(tmp_path / "file"),
            lab.producer(topic=topic),
        )
        how = producer.send if is_awaited else producer.send_async
        await asyncio.wait_for(how(message, delivery_mode=mode), WAIT_S)
        received = await consumer.receive(WAIT_S)
        assert await asyncio.to_thread(Path(received.path).read_bytes) == content
        assert lab.tap.sequences == ([1] if topic is OTHER else [])
        assert lab.tap.unnumbered == -(-len(content) // (64 << 10)) + (topic is STORED)


async def commit(lab: Lab) -> None:
    session = lab.sending.create_session(SessionMode.SESSION_TRANSACTED)
    await session.create_producer(STORED).send_many(["a", "b"])
    await session.commit()


async def send_after_waiting_for_room(lab: Lab) -> None:
    first = lab.producer().send_async(TextMessage("x" * 9000))
    send = asyncio.ensure_future(lab.producer().send(TextMessage("y" * 9000)))
    await eventually(lambda: lab.gate.newest(0).sequence == 1)
    lab.confirm()
    await first
    await send


WAYS: dict[str, Callable[[Lab], Awaitable[None]]] = {
    "a message": lambda lab: lab.producer().send(TextMessage("a")),
    "a message that waited for room": send_after_waiting_for_room,
    "a batch": lambda lab: lab.producer().send_many(["a", "b"]),
    "a batch of several arrays": lambda lab: lab.producer().send_many([str(number) for number in range(5000)]),
    "a batch that is larger than the room": lambda lab: lab.producer().send_many(["x" * 9000, "y" * 9000]),
    "a transaction": commit,
}


@pytest.mark.parametrize("way", WAYS)
async def test_no_way_to_send_waits_for_ever(port: int, way: str) -> None:
    stream_bytes = 20_000 if "room" in way else 16 << 20
    async with opened(port, stream_bytes, confirm_timeout_s=0.2) as lab:
        send = asyncio.ensure_future(WAYS[way](lab))
        if "larger" in way:
            await eventually(lambda: lab.gate.newest(0).sequence == 1)
            lab.confirm()
        with pytest.raises(UnconfirmedError, match="timed out: the message may not have been sent or conf") as caught:
            await asyncio.wait_for(send, WAIT_S)
        assert caught.value.in_doubt


# Threads.


@asynccontextmanager
async def threaded(
    port: int, stream_bytes: int = 16 << 20, **settings: Any
) -> AsyncIterator[tuple[BlockingConnection, LedgerGate, list[Any]]]:
    """Open a blocking connection behind a gate. Its loop runs in a thread of its own."""
    gate = LedgerGate(77, 2, LedgerRoom(stream_bytes))
    gate.is_stored = {STORED.frame_hash}.__contains__
    config = BusConfig.from_uri(uri(port), BUS_DEFAULTS)

    async def create() -> Connection:
        return await Connection(ConnectionCore(config, ClientSettings(**settings), gate))

    connection = BlockingConnection(await asyncio.wrap_future(LOOP.submit(create())))
    problems: list[Any] = []
    connection.exception_listener = problems.append
    try:
        yield connection, gate, problems
    finally:
        await in_loop(gate.close, UnconfirmedError("the connection closes"))
        await asyncio.to_thread(connection.close)


async def in_loop(function: Any, *arguments: Any) -> Any:
    async def call() -> Any:
        return function(*arguments)

    return await asyncio.wrap_future(LOOP.submit(call()))


async def confirm(gate: LedgerGate) -> None:
    newest = gate.newest(0)
    assert await in_loop(gate.confirmed_through, Ledger(*newest[:2], 0), newest.sequence)


async def test_a_blocking_send_raises_at_the_call(port: int) -> None:
    async with threaded(port) as (connection, gate, problems):
        producer = connection.create_session().create_producer(STORED)
        sends = [
            asyncio.ensure_future(asyncio.to_thread(producer.send, TextMessage("a"))),
            asyncio.ensure_future(asyncio.to_thread(producer.send_many, ["b", "c"])),
        ]
        await eventually(lambda: gate.unconfirmed == 3)
        assert not any(send.done() for send in sends)
        await in_loop(gate.fail, FULL)
        for send in sends:
            with pytest.raises(ResourceAllocationError, match="the store is full"):
                await asyncio.wait_for(send, WAIT_S)
        stored = asyncio.ensure_future(asyncio.to_thread(producer.send, TextMessage("d")))
        await eventually(lambda: gate.unconfirmed == 1)
        await confirm(gate)
        await asyncio.wait_for(stored, WAIT_S)
        assert problems == []


async def test_blocking_sends_of_several_threads_and_asynchronous_ones_pipeline(port: int) -> None:
    async with threaded(port) as (connection, gate, problems):
        producers = [connection.create_session().create_producer(STORED) for _ in range(8)]
        with ThreadPoolExecutor(9) as pool:
            sends = [pool.submit(producer.send, TextMessage("a")) for producer in producers]
            futures = [producers[0].send_async(TextMessage("b")) for _ in range(20)]
            sends.append(pool.submit(producers[1].send_many, [bytes(1000)] * 3000))
            await eventually(lambda: gate.unconfirmed == 3028)
            assert not any(send.done() for send in [*sends, *futures])
            await confirm(gate)
            for send in [*sends, *futures]:
                await asyncio.wait_for(asyncio.wrap_future(send), WAIT_S)
        assert problems == []


async def test_a_blocking_commit_pipelines(port: int) -> None:
    async with threaded(port) as (connection, gate, _):
        session = connection.create_session(SessionMode.SESSION_TRANSACTED)
        producer = session.create_producer(STORED)
        await asyncio.to_thread(lambda: [producer.send(BytesMessage(b"x")) for _ in range(50)])
        assert gate.unconfirmed == 0
        commit = asyncio.ensure_future(asyncio.to_thread(session.commit))
        await eventually(lambda: gate.unconfirmed == 50)
        await confirm(gate)
        await asyncio.wait_for(commit, WAIT_S)


async def test_a_blocking_send_that_is_not_stored_does_not_wait(port: int) -> None:
    async with threaded(port) as (connection, gate, _):
        producer = connection.create_session().create_producer(OTHER)
        await asyncio.wait_for(asyncio.to_thread(producer.send, TextMessage("a")), WAIT_S)
        await asyncio.wait_for(asyncio.to_thread(producer.send_many, ["a", "b"]), WAIT_S)
        await eventually(lambda: gate.newest(0).sequence == 3)


async def test_a_message_that_is_never_stored_is_in_doubt(port: int) -> None:
    async with threaded(port, confirm_timeout_s=0.2) as (connection, _, problems):
        producer = connection.create_session().create_producer(STORED)
        for send in (lambda: producer.send(TextMessage("a")), lambda: producer.send_many(["b", "c"])):
            with pytest.raises(UnconfirmedError) as caught:
                await asyncio.wait_for(asyncio.to_thread(send), WAIT_S)
            assert caught.value.in_doubt
        assert problems == []


@pytest.mark.parametrize("is_batch", [False, True])
async def test_a_held_blocking_send_that_fails_is_told_once(port: int, is_batch: bool) -> None:
    async with threaded(port, stream_bytes=2000) as (connection, gate, problems):
        producer = connection.create_session().create_producer(STORED)
        first = producer.send_async(TextMessage("x" * 900))
        send, content = (producer.send_many, ["y" * 400] * 2) if is_batch else (producer.send, TextMessage("y" * 900))
        held = asyncio.ensure_future(asyncio.to_thread(send, content))
        await eventually(lambda: gate.unconfirmed == 1)
        await asyncio.sleep(QUIET_S)
        assert not held.done()
        await in_loop(gate.close, FULL)
        for outcome in (held, asyncio.wrap_future(first)):
            with pytest.raises(ResourceAllocationError, match="the store is full"):
                await asyncio.wait_for(outcome, WAIT_S)
        await asyncio.sleep(QUIET_S)
        assert problems == []


async def test_a_blocking_batch_that_is_larger_than_the_room_ends_when_it_is_stored(port: int) -> None:
    async with threaded(port, stream_bytes=2000) as (connection, gate, problems):
        producer = connection.create_session().create_producer(STORED)
        send = asyncio.ensure_future(asyncio.to_thread(producer.send_many, ["x" * 900] * 3))
        for number in (1, 2, 3):
            await eventually(lambda number=number: gate.newest(0).sequence == number)
            await asyncio.sleep(QUIET_S)
            assert not send.done()
            await confirm(gate)
        await asyncio.wait_for(send, WAIT_S)
        assert problems == []


async def test_a_blocking_batch_that_waits_for_room_ends_when_the_connection_closes(port: int) -> None:
    async with threaded(port, stream_bytes=2000, close_timeout_s=0.2) as (connection, gate, _):
        producer = connection.create_session().create_producer(STORED)
        send = asyncio.ensure_future(asyncio.to_thread(producer.send_many, ["x" * 900] * 3))
        await eventually(lambda: gate.unconfirmed == 1)
        await asyncio.to_thread(connection.close)
        with pytest.raises(UnconfirmedError, match="closed before all messages of the batch were sent"):
            await asyncio.wait_for(send, WAIT_S)
