"""Tests of the first sends of a connection, which does not know yet if keepers store its messages."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from adapter import QUIET_S, WAIT_S, eventually
from local_keepers import LocalCell, serving, uri

from fjm2.bus.bus import Bus
from fjm2.bus.signals.signals import CELL_QUESTION
from fjm2.cell.wire.commands import decode_command
from fjm2.cell.wire.table import CellQuestion
from fjm2.jms import (
    Connection,
    ConnectionFactory,
    DeliveryMode,
    FileMessage,
    IllegalStateError,
    ResourceAllocationError,
    SessionMode,
    TextMessage,
    Topic,
    TransactionRolledBackError,
    blocking,
)
from fjm2.jms.sends.cell_search import Search
from fjm2.messages.frame import Frame
from fjm2.messages.ledgers.ledger_number import ledger_number_of

STORED, OTHER = Topic("fjm2.first"), Topic("fjm2.first.other")
SEARCH_S = 0.5


class Told:
    """A completion listener that notes the outcomes."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.failed: list[Exception] = []

    def on_completion(self, message: Any) -> None:
        self.sent.append(message)

    def on_exception(self, message: Any, error: Exception) -> None:
        assert message is not None
        self.failed.append(error)


class Hearer:
    """A connection that hears everything, and notes bodies, and how many frames had no number."""

    is_full = False

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.bodies: list[str] = []
        self.unnumbered = 0

    def take_run(self, sender_id: int, frames: list[Frame]) -> None:
        assert sender_id
        for buffer, start, _, _, header in frames:
            self.unnumbered += ledger_number_of(buffer, header, start) is None


@asynccontextmanager
async def hearing(port: int) -> AsyncIterator[Hearer]:
    """Subscribe from a bus of its own."""
    async with ConnectionFactory(uri(port, 40)).create_connection() as connection:
        hearer = Hearer(connection._core.check_open().bus)
        connection.start()
        consumer = connection.create_session().create_consumer(STORED)
        consumer.message_listener = lambda message: hearer.bodies.append(message.get_body(str))
        hearer.bus.router.add_tap(hearer)
        await consumer.ready()
        yield hearer


def search_of(connection: Connection) -> Search | None:
    search = connection._core.check_open().sending._cell._search
    return None if search is None else search.state


async def searched(connection: Connection) -> None:
    """Wait until a connection no longer listens for signs of a cell."""
    await eventually(lambda: search_of(connection) is not Search.LISTENING)


# Ways to send one or more messages at once.


async def by_send(connection: Connection) -> list[str]:
    await connection.create_session().create_producer(STORED).send(TextMessage("a"))
    return ["a"]


async def by_send_async(connection: Connection) -> list[str]:
    producer = connection.create_session().create_producer(STORED)
    await asyncio.gather(*(producer.send_async(TextMessage(text)) for text in "abc"))
    return list("abc")


async def by_on_complete(connection: Connection) -> list[str]:
    producer, told = connection.create_session().create_producer(STORED), Told()
    for text in "abc":
        await producer.send(TextMessage(text), on_complete=told)
    await eventually(lambda: len(told.sent) == 3)
    return list("abc")


async def by_send_many(connection: Connection) -> list[str]:
    await connection.create_session().create_producer(STORED).send_many(list("abc"))
    return list("abc")


async def by_large_batch(connection: Connection) -> list[str]:
    bodies = [f"{number:020000}" for number in range(60)]  # more than the gate admits at once
    await connection.create_session().create_producer(STORED).send_many(bodies)
    return bodies


async def by_commit(connection: Connection) -> list[str]:
    session = connection.create_session(SessionMode.SESSION_TRANSACTED)
    producer = session.create_producer(STORED)
    for text in "abc":
        await producer.send(TextMessage(text))
    await session.commit()
    return list("abc")


async def by_close(connection: Connection) -> list[str]:
    producer = connection.create_session().create_producer(STORED)
    outcomes = [producer.send_async(TextMessage(text)) for text in "abc"]
    await connection.close()
    await asyncio.gather(*outcomes)
    return list("abc")


WAYS = (by_send, by_send_async, by_on_complete, by_send_many, by_large_batch, by_commit, by_close)


@pytest.mark.parametrize("way", WAYS)
async def test_the_first_message_of_a_connection_is_stored(
    port: int, way: Callable[[Connection], Awaitable[list[str]]]
) -> None:
    async with serving(port) as cell:
        await cell.subscribe(STORED)
        async with ConnectionFactory(f"{uri(port)}&stream_bytes=1MiB").create_connection() as connection:
            assert search_of(connection) is Search.LISTENING
            bodies = await asyncio.wait_for(way(connection), WAIT_S)
            assert [body.decode() for body in cell.keepers[0].store.bodies()] == bodies


async def test_a_file_that_is_sent_first_is_refused_where_it_would_be_stored(port: int, tmp_path: Path) -> None:
    """And goes out elsewhere, although it is not known at once which topics are stored."""
    (tmp_path / "file").write_bytes(b"x" * 200_000)
    async with serving(port) as cell:
        await cell.subscribe(STORED)
        async with ConnectionFactory(uri(port)).create_connection() as connection:
            producer = connection.create_session().create_producer()
            await producer.send(FileMessage(tmp_path / "file"), OTHER)
            with pytest.raises(ResourceAllocationError, match="keepers do not keep files"):
                await producer.send(FileMessage(tmp_path / "file"), STORED)
        async with ConnectionFactory(uri(port)).create_connection() as connection:
            with pytest.raises(ResourceAllocationError, match="keepers do not keep files"):
                await connection.create_session().create_producer(STORED).send(FileMessage(tmp_path / "file"))
        assert cell.keepers[0].store.bodies() == []


@pytest.mark.parametrize("way", ["send", "send_many", "send_async", "commit", "close"])
async def test_the_first_message_of_a_thread_is_stored(port: int, way: str) -> None:
    def run() -> None:
        with blocking.ConnectionFactory(uri(port)).create_connection() as connection:
            mode = SessionMode.SESSION_TRANSACTED if way == "commit" else SessionMode.AUTO_ACKNOWLEDGE
            session = connection.create_session(mode)
            producer = session.create_producer(STORED)
            if way == "send_many":
                producer.send_many(["a", "b"])
            elif way == "send_async":
                for outcome in [producer.send_async(TextMessage(text)) for text in "ab"]:
                    outcome.result(WAIT_S)
            elif way == "close":
                producer.send_async(TextMessage("a"))
                producer.send_async(TextMessage("b"))
            else:
                producer.send(TextMessage("a"))
                producer.send(TextMessage("b"))
                if way == "commit":
                    session.commit()

    async with serving(port) as cell:
        await cell.subscribe(STORED)
        await asyncio.wait_for(asyncio.to_thread(run), WAIT_S)
        assert cell.keepers[0].store.bodies() == [b"a", b"b"]


async def test_a_program_that_computes_first_has_its_message_stored(port: int) -> None:
    async with serving(port) as cell:
        await cell.subscribe(STORED)
        (keeper,) = cell.keepers
        keeper.is_cut_off = True
        async with ConnectionFactory(uri(port)).create_connection() as connection:
            send = asyncio.ensure_future(connection.create_session().create_producer(STORED).send(TextMessage("a")))
            await asyncio.sleep(0)
            time.sleep(2 * SEARCH_S)  # noqa: ASYNC251 - in which nothing is heard, and nothing said by the keepers of this process
            keeper.is_cut_off = False
            await asyncio.wait_for(send, WAIT_S)
            assert keeper.store.bodies() == [b"a"]


async def test_a_new_connection_asks_for_the_cell(port: int) -> None:
    asked: list[bytes] = []
    async with hearing(port) as hearer:
        signals = hearer.bus.lanes.signals
        signals.hear_commands(CELL_QUESTION, lambda _, content: asked.append(content))
        async with ConnectionFactory(uri(port)).create_connection() as connection:
            await searched(connection)
    assert 2 <= len(asked) <= 4
    assert {decode_command(content) for content in asked} == {CellQuestion()}


# Without keepers.


@pytest.mark.parametrize("way", WAYS)
async def test_without_keepers_messages_go_out_after_a_moment(
    port: int, way: Callable[[Connection], Awaitable[list[str]]]
) -> None:
    async with hearing(port) as hearer:
        async with ConnectionFactory(f"{uri(port)}&stream_bytes=1MiB").create_connection() as connection:
            bodies = await asyncio.wait_for(way(connection), WAIT_S)
        await eventually(lambda: hearer.bodies == bodies)
        assert hearer.unnumbered >= len(bodies)


async def test_messages_that_keepers_never_store_do_not_wait(port: int) -> None:
    async with hearing(port) as hearer, ConnectionFactory(uri(port)).create_connection() as connection:
        session = connection.create_session()
        producer = session.create_producer(STORED)
        waiting = asyncio.ensure_future(producer.send(TextMessage("stored perhaps")))
        await asyncio.sleep(0)
        await producer.send(TextMessage("express"), delivery_mode=DeliveryMode.NON_PERSISTENT)
        await producer.send_many(["both", "express"], delivery_mode=DeliveryMode.NON_PERSISTENT)
        queue = session.create_temporary_queue()
        await session.create_producer(queue).send(TextMessage("reply"))
        connection.start()
        reply = await session.create_consumer(queue).receive(timeout=WAIT_S)
        assert reply is not None
        assert search_of(connection) is Search.LISTENING
        assert not waiting.done()
        await waiting
        await eventually(lambda: hearer.bodies == ["express", "both", "express", "stored perhaps"])


async def test_a_blocking_send_without_keepers_waits_for_no_subscriber(port: int) -> None:
    """Only until it is known that there are no keepers."""

    def run() -> None:
        with blocking.ConnectionFactory(uri(port), confirm_timeout_s=30.0).create_connection() as connection:
            producer = connection.create_session().create_producer(STORED)
            began = time.monotonic()
            producer.send(TextMessage("a"))
            assert time.monotonic() - began < 10.0
            connection.close(timeout=0.1)

    async with hearing(port) as hearer:
        hearer.is_full = True  # confirms nothing
        await asyncio.wait_for(asyncio.to_thread(run), 25.0)


async def test_a_search_that_has_ended_lets_messages_pass_no_gate(port: int) -> None:
    async with ConnectionFactory(uri(port)).create_connection() as connection:
        await searched(connection)
        assert search_of(connection) is Search.ABSENT
        assert not connection._core.check_open().sending.is_gated
        async with ConnectionFactory(uri(port)).create_connection() as other:
            assert not other._core.check_open().sending.is_gated, "its bus has been listened to"


# Keepers that do not serve.


@asynccontextmanager
async def starting(port: int, **options: Any) -> AsyncIterator[tuple[LocalCell, Connection]]:
    """Yield a cell that is announced and does not serve yet, and a connection that knows."""
    async with serving(port, joins=False) as cell:
        await cell.subscribe(STORED)
        cell.keepers[0].announce()
        async with ConnectionFactory(uri(port), **options).create_connection() as connection:
            await eventually(lambda: search_of(connection) is Search.EXPECTED)
            yield cell, connection


@pytest.mark.parametrize("way", WAYS)
async def test_messages_wait_until_a_keeper_serves(
    port: int, way: Callable[[Connection], Awaitable[list[str]]]
) -> None:
    async with starting(port, stream_bytes=1 << 20) as (cell, connection):
        sending = asyncio.ensure_future(way(connection))
        await asyncio.sleep(SEARCH_S)
        assert not sending.done()
        cell.join()
        bodies = await asyncio.wait_for(sending, WAIT_S)
        assert [body.decode() for body in cell.keepers[0].store.bodies()] == bodies


async def test_messages_fail_if_no_keeper_serves_in_time(port: int) -> None:
    async with hearing(port) as hearer, starting(port, confirm_timeout_s=0.3) as (_, connection):
        producer = connection.create_session().create_producer(STORED)
        session = connection.create_session(SessionMode.SESSION_TRANSACTED)
        parts = session.create_producer(STORED)
        await parts.send(TextMessage("c"))
        await parts.send(TextMessage("d"))
        text = r"no keeper on fjm2://\S+ has served for 0\.3 s \(confirm_timeout_s\); 1 keeper is there \(keeper-1\)"
        for send in (producer.send(TextMessage("a")), producer.send_async(TextMessage("b")), producer.send_many(["e"])):
            with pytest.raises(ResourceAllocationError, match=text) as caught:
                await asyncio.wait_for(send, WAIT_S)
            assert caught.value.error_code == "no_keeper"
        with pytest.raises(TransactionRolledBackError, match=text):
            await asyncio.wait_for(session.commit(), WAIT_S)
        await asyncio.sleep(QUIET_S)
        assert hearer.bodies == []


async def test_a_blocking_send_fails_if_no_keeper_serves_in_time(port: int) -> None:
    def run() -> None:
        with blocking.ConnectionFactory(uri(port), confirm_timeout_s=0.3).create_connection() as connection:
            producer = connection.create_session().create_producer(STORED)
            for send in (lambda: producer.send(TextMessage("a")), lambda: producer.send_many(["b", "c"])):
                with pytest.raises(ResourceAllocationError, match="1 keeper is there"):
                    send()

    async with starting(port):
        await asyncio.wait_for(asyncio.to_thread(run), WAIT_S)


async def test_threads_that_wait_for_a_keeper_do_not_hold_each_other_up(port: int) -> None:
    def run() -> None:
        with blocking.ConnectionFactory(uri(port), confirm_timeout_s=1.0).create_connection() as connection:
            session = connection.create_session()
            producer = session.create_producer(STORED)
            outcomes = [producer.send_async(TextMessage("a")) for _ in range(20)]
            session.create_producer(session.create_temporary_queue()).send(TextMessage("reply"))
            assert not any(outcome.done() for outcome in outcomes)
            for outcome in outcomes:
                with pytest.raises(ResourceAllocationError, match="1 keeper is there"):
                    outcome.result(WAIT_S)

    async with starting(port):
        began = time.monotonic()
        await asyncio.wait_for(asyncio.to_thread(run), WAIT_S)
        assert time.monotonic() - began < 10.0  # and not 20 s


async def test_keepers_that_come_later_are_waited_for(port: int) -> None:
    async with serving(port, joins=False) as cell, hearing(port) as hearer:
        await cell.subscribe(STORED)
        async with ConnectionFactory(uri(port)).create_connection() as connection:
            producer = connection.create_session().create_producer(STORED)
            await producer.send(TextMessage("before"))
            cell.keepers[0].announce()
            await eventually(lambda: search_of(connection) is Search.EXPECTED)
            sending = asyncio.ensure_future(producer.send(TextMessage("a")))
            await asyncio.sleep(SEARCH_S)
            assert not sending.done()
            cell.join()
            await asyncio.wait_for(sending, WAIT_S)
            assert cell.keepers[0].store.bodies() == [b"a"]
            await eventually(lambda: hearer.bodies == ["before", "a"])


async def test_keepers_without_a_cell_are_not_waited_for(port: int) -> None:
    """They found one, and nothing can have been subscribed to there."""
    async with serving(port, joins=False) as cell, hearing(port) as hearer:
        cell.keepers[0].announce(has_cell=False)
        async with ConnectionFactory(uri(port)).create_connection() as connection:
            await asyncio.wait_for(connection.create_session().create_producer(STORED).send(TextMessage("a")), WAIT_S)
            assert search_of(connection) is Search.ABSENT
            assert len(connection._core.check_open().bus.presence.keepers) == 1
        await eventually(lambda: hearer.bodies == ["a"])


async def test_what_waits_for_keepers_that_leave_is_not_sent_as_without_them(port: int) -> None:
    async with starting(port, confirm_timeout_s=1.0) as (cell, connection), hearing(port) as hearer:
        producer = connection.create_session().create_producer(STORED)
        sending = asyncio.ensure_future(producer.send(TextMessage("a")))
        await asyncio.sleep(QUIET_S)
        await cell.keepers[0].leave()
        with pytest.raises(ResourceAllocationError, match="those that were there have gone"):
            await asyncio.wait_for(sending, WAIT_S)
        assert hearer.bodies == []
        await eventually(lambda: search_of(connection) is Search.ABSENT)
        await producer.send(TextMessage("b"))
        await eventually(lambda: hearer.bodies == ["b"])


async def test_a_close_fails_what_waits_for_a_keeper(port: int) -> None:
    async with hearing(port) as hearer, starting(port, close_timeout_s=0.2) as (_, connection):
        producer = connection.create_session().create_producer(STORED)
        sending = asyncio.ensure_future(producer.send(TextMessage("a")))
        outcome = producer.send_async(TextMessage("b"))
        await asyncio.sleep(QUIET_S)
        await asyncio.wait_for(connection.close(), WAIT_S)
        with pytest.raises(IllegalStateError, match="closed before a keeper was heard"):
            await asyncio.wait_for(sending, WAIT_S)
        with pytest.raises(Exception, match="timed out"):
            await asyncio.wait_for(outcome, WAIT_S)
        assert hearer.bodies == []


async def test_senders_wait_for_room_when_much_waits_for_a_keeper(port: int) -> None:
    async with starting(port, stream_bytes=1 << 16) as (cell, connection):
        producer, told = connection.create_session().create_producer(STORED), Told()
        async with asyncio.timeout(WAIT_S):
            for _ in range(3):
                await producer.send(TextMessage("x" * 10_000), on_complete=told)
        fourth = asyncio.ensure_future(producer.send(TextMessage("x" * 10_000), on_complete=told))
        await asyncio.sleep(QUIET_S)
        assert not fourth.done()
        cell.join()
        await asyncio.wait_for(fourth, WAIT_S)
        await eventually(lambda: len(told.sent) == 4)
        assert len(cell.keepers[0].store.bodies()) == 4


async def test_a_cancelled_commit_that_waits_for_a_keeper_is_sent_whole(port: int) -> None:
    async with starting(port) as (cell, connection):
        session = connection.create_session(SessionMode.SESSION_TRANSACTED)
        producer = session.create_producer(STORED)
        for text in "abc":
            await producer.send(TextMessage(text))
        commit = asyncio.ensure_future(session.commit())
        await asyncio.sleep(QUIET_S)
        commit.cancel()
        await asyncio.wait([commit])
        cell.join()
        await eventually(lambda: cell.keepers[0].store.bodies() == [b"a", b"b", b"c"])


async def test_a_durable_consumer_waits_for_keepers_that_are_there(port: int) -> None:
    async with starting(port, confirm_timeout_s=0.3, client_id="desk") as (_, connection):
        session = connection.create_session()
        with pytest.raises(
            ResourceAllocationError, match=r"no keeper serves on \S+ yet; 1 keeper is there \(keeper-1\)"
        ) as caught:
            await session.create_durable_consumer(STORED, "name")
        assert caught.value.error_code == "no_keeper"
