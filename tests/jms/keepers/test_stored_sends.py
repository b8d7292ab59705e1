"""Tests of sends that keepers store, with real cells on buses of their own."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from adapter import QUIET_S, WAIT_S, eventually
from local_keepers import LocalCell, serving, uri

from fjm2.base.ledger import Ledger
from fjm2.bus.bus import Bus
from fjm2.bus.presence import Announcement
from fjm2.cell.wire.records import FenceRecord
from fjm2.jms import (
    Connection,
    ConnectionFactory,
    DeliveryMode,
    JMSError,
    Queue,
    ResourceAllocationError,
    SessionMode,
    TextMessage,
    Topic,
    UnconfirmedError,
    blocking,
)
from fjm2.store.config import StoreConfig

STORED, OTHER, QUEUE = Topic("fjm2.keepers.stored"), Topic("fjm2.keepers.other"), Queue("fjm2.keepers.queue")
SMALL = StoreConfig(segment_bytes=8 << 10, store_bytes_max=64 << 10)


def bus_of(connection: Connection) -> Bus:
    return connection._core.check_open().bus


@asynccontextmanager
async def connected(port: int, **options: Any) -> AsyncIterator[Connection]:
    """Open a connection that knows the cell and its table."""
    async with ConnectionFactory(uri(port), **options).create_connection() as connection:
        await connection.ready()
        yield connection


async def knows(cell: LocalCell, connection: Connection) -> None:
    """Wait until a connection knows the newest table."""
    version = cell.manager.cell.replica.table.version
    await eventually(lambda: bus_of(connection).membership.announcer.table_version == version)


async def stored_at_last(producer: Any, text: str) -> None:
    """Send a message again and again until it is stored."""
    async with asyncio.timeout(WAIT_S):
        while True:
            with contextlib.suppress(JMSError):
                return await producer.send(TextMessage(text))


async def called(function: Callable[[], Any]) -> None:
    """Call a function, and await what it returns."""
    await function()


async def fails(sending: Any, kind: type[JMSError], match: str) -> Any:
    """Wait until a send fails, and return its error."""
    with pytest.raises(kind, match=match) as caught:
        await asyncio.wait_for(sending, WAIT_S)
    return caught.value


# Storing.


async def test_a_send_ends_when_the_message_is_on_disk(port: int) -> None:
    async with serving(port) as cell:
        await cell.subscribe(STORED)
        async with connected(port) as connection:
            (keeper,) = cell.keepers
            keeper.store.is_stopped = True
            send = asyncio.ensure_future(connection.create_session().create_producer(STORED).send(TextMessage("a")))
            await eventually(lambda: len(keeper.cell.replica.ledgers.progress_of(producer_of(keeper))) == 1)
            await asyncio.sleep(QUIET_S)
            assert not send.done()
            assert keeper.store.bodies() == []
            keeper.resume_disk()
            await asyncio.wait_for(send, WAIT_S)
            assert keeper.store.bodies() == [b"a"]


def producer_of(keeper: Any) -> int:
    """Return the one producer that a keeper has heard; 0 if there is none yet."""
    return next((ledger.producer_id for ledger in keeper.cell.replica.ledgers.open_ledgers), 0)


async def test_messages_that_keepers_do_not_store_end_at_once_and_are_counted(port: int) -> None:
    async with serving(port) as cell:
        await cell.subscribe(STORED)
        async with connected(port) as connection:
            (keeper,) = cell.keepers
            producer = connection.create_session().create_producer()
            await producer.send(TextMessage("known"), STORED)
            keeper.is_cut_off = True
            await asyncio.wait_for(producer.send(TextMessage("a"), OTHER), WAIT_S)
            express = producer.send(TextMessage("b"), STORED, delivery_mode=DeliveryMode.NON_PERSISTENT)
            await asyncio.wait_for(express, WAIT_S)
            keeper.is_cut_off = False
            await producer.send(TextMessage("c"), OTHER)
            await producer.send_async(TextMessage("d"), OTHER)
        assert keeper.store.bodies() == [b"known"]


@pytest.mark.parametrize("lost", [1, 2])
async def test_w_of_three_disks_are_enough_and_fewer_are_not(port: int, lost: int) -> None:
    async with serving(port, 3) as cell:
        await cell.subscribe(STORED)
        await eventually(lambda: all(each.cell.replica.table.version == 1 for each in cell.keepers))
        async with connected(port) as connection:
            followers = [keeper for keeper in cell.keepers if keeper is not cell.manager]
            for keeper in followers[:lost]:
                keeper.store.is_stopped = True
            outcome = connection.create_session().create_producer(STORED).send_async(TextMessage("a"))
            if lost == 1:
                await asyncio.wait_for(outcome, WAIT_S)
                assert sum(keeper.store.bodies() == [b"a"] for keeper in cell.keepers) == 2
                return
            await eventually(lambda: cell.manager.store.bodies() == [b"a"])
            await asyncio.sleep(QUIET_S)
            assert not outcome.done()
            followers[0].resume_disk()
            await asyncio.wait_for(outcome, WAIT_S)


async def test_every_way_to_send_stores_in_order(port: int) -> None:
    async with serving(port, 3) as cell:
        await cell.subscribe(STORED)
        async with connected(port) as connection:
            producer = connection.create_session().create_producer(STORED)
            transacted = connection.create_session(SessionMode.SESSION_TRANSACTED)
            parts = transacted.create_producer(STORED)
            expected: list[str] = []
            for turn in range(5):
                expected += [f"{turn} {place}" for place in range(8)]
                awaited, *alone, first, second, third, fourth = expected[-8:]
                await producer.send(TextMessage(awaited))
                outcomes = [producer.send_async(TextMessage(text)) for text in alone]
                await producer.send_many([first, second])
                await asyncio.gather(*outcomes)
                await parts.send(TextMessage(third))
                await parts.send(TextMessage(fourth))
                await transacted.commit()
            stored = [[body.decode() for body in keeper.store.bodies()] for keeper in cell.keepers]
            assert stored.count(expected) >= 2  # which two of the three is open


async def test_a_pipeline_of_sends_is_stored_whole(port: int) -> None:
    async with serving(port, 3) as cell:
        await cell.subscribe(STORED)
        async with connected(port) as connection:
            producer = connection.create_session().create_producer(STORED)
            bodies = [f"{number:06}" * 20 for number in range(5000)]
            outcomes = [producer.send_async(TextMessage(body)) for body in bodies]
            await asyncio.wait_for(asyncio.gather(*outcomes), WAIT_S)
            await eventually(lambda: cell.is_serving)
            await eventually(lambda: len(cell.manager.store.bodies()) == len(bodies))
            assert [body.decode() for body in cell.manager.store.bodies()] == bodies


async def test_a_commit_waits_for_all_its_parts(port: int) -> None:
    async with serving(port) as cell, connected(port) as connection:
        await cell.subscribe(STORED)
        await knows(cell, connection)
        (keeper,) = cell.keepers
        session = connection.create_session(SessionMode.SESSION_TRANSACTED)
        producer = session.create_producer(STORED)
        await producer.send(TextMessage("a"), priority=4)
        await producer.send(TextMessage("b"), priority=9)
        keeper.store.is_stopped = True
        commit = asyncio.ensure_future(session.commit())
        await eventually(lambda: len(list(keeper.cell.replica.ledgers.open_ledgers)) == 2)
        await asyncio.sleep(QUIET_S)
        assert not commit.done()
        keeper.resume_disk()
        await asyncio.wait_for(commit, WAIT_S)
        assert keeper.store.bodies() == [b"a", b"b"]


async def test_a_stored_commit_waits_for_no_subscriber(port: int) -> None:
    async with serving(port) as cell:
        await cell.subscribe(STORED)
        async with connected(port, confirm_timeout_s=2.0) as connection:
            silent = Announcement(7, topics=frozenset({STORED.frame_hash, OTHER.frame_hash}))
            bus_of(connection).presence.update(0x1234, silent, asyncio.get_running_loop().time())
            session = connection.create_session(SessionMode.SESSION_TRANSACTED)
            producer = session.create_producer()
            await producer.send(TextMessage("a"), STORED)
            await session.commit()
            await producer.send(TextMessage("b"), STORED)
            await producer.send(TextMessage("not stored"), OTHER)
            await fails(session.commit(), UnconfirmedError, "subscriber")
            assert cell.keepers[0].store.bodies() == [b"a", b"b"]


async def test_connections_of_one_process_share_what_is_heard(port: int) -> None:
    async with serving(port) as cell, connected(port) as one, connected(port) as other:
        await cell.subscribe(STORED)
        await knows(cell, one)
        assert bus_of(one) is bus_of(other)
        sends = [
            asyncio.ensure_future(each.create_session().create_producer(STORED).send(TextMessage(name)))
            for each, name in ((one, "one"), (other, "other"))
        ]
        await asyncio.wait_for(asyncio.gather(*sends), WAIT_S)
        assert sorted(cell.keepers[0].store.bodies()) == [b"one", b"other"]
        await one.close()
        await other.create_session().create_producer(STORED).send(TextMessage("still"))
        async with connected(port) as third:
            await third.create_session().create_producer(STORED).send(TextMessage("third"))
        assert sorted(cell.keepers[0].store.bodies()) == [b"one", b"other", b"still", b"third"]


async def test_a_lost_answer_is_asked_for(port: int) -> None:
    async with serving(port, 3) as cell:
        await cell.subscribe(STORED)
        async with connected(port) as connection:
            for keeper in cell.keepers:
                keeper.tells_unasked = False
            await asyncio.wait_for(connection.create_session().create_producer(STORED).send(TextMessage("a")), WAIT_S)
            await eventually(lambda: all(keeper.requests for keeper in cell.keepers))


# Cells that come and go.

ALONE = """
import asyncio, sys
from fjm2.jms import ConnectionFactory, TextMessage, Topic

async def main(uri):
    async with ConnectionFactory(uri).create_connection() as connection:
        await connection.ready()
        session = connection.create_session()
        await session.create_producer(Topic("t")).send(TextMessage("a"))
        names = [name for name in sys.modules if name.startswith("fjm2.cell") or name.endswith("ledger_gate")]
        print(names, connection._core.check_open().sending.is_gated)

asyncio.run(main(sys.argv[1]))
"""


async def test_programs_without_a_cell_load_nothing_of_one_and_pass_no_gate(port: int) -> None:
    ran = await asyncio.create_subprocess_exec(sys.executable, "-c", ALONE, uri(port), stdout=asyncio.subprocess.PIPE)
    said, _ = await asyncio.wait_for(ran.communicate(), WAIT_S)
    assert said.decode().split("\n")[0] == "[] False"


async def test_a_cell_that_is_heard_late_stores_from_then_on(port: int) -> None:
    async with serving(port, joins=False) as cell:
        await cell.subscribe(STORED)
        async with connected(port) as connection:
            session = connection.create_session()
            transacted = connection.create_session(SessionMode.SESSION_TRANSACTED)
            producer, parts = session.create_producer(STORED), transacted.create_producer(STORED)
            await producer.send(TextMessage("before"))
            await parts.send(TextMessage("c"))
            assert connection._core.check_open().sending._cell._driver is None
            cell.join()
            await knows(cell, connection)
            await producer.send(TextMessage("a"))
            await asyncio.wait_for(producer.send_async(TextMessage("b")), WAIT_S)
            await transacted.commit()
            await connection.create_session().create_producer(STORED).send(TextMessage("d"))
            assert cell.keepers[0].store.bodies() == [b"a", b"b", b"c", b"d"]


async def test_a_transaction_that_a_cell_comes_into_is_not_torn(port: int) -> None:
    async with serving(port, joins=False) as cell:
        await cell.subscribe(STORED)
        async with connected(port, stream_bytes=65536) as connection:
            session = connection.create_session(SessionMode.SESSION_TRANSACTED)
            producer = session.create_producer(STORED)
            for number in range(50):
                await producer.send(TextMessage(f"{number:040000}"))
            await connection.create_session().create_producer(STORED).send(TextMessage("no cell is heard by now"))
            commit = asyncio.ensure_future(session.commit())
            await asyncio.sleep(0)
            assert not commit.done()
            cell.join()
            await asyncio.wait_for(commit, WAIT_S)
            await knows(cell, connection)
            assert cell.keepers[0].store.bodies() == []


async def test_a_connection_that_heard_a_cell_never_falls_back(port: int) -> None:
    async with serving(port) as cell, connected(port, confirm_timeout_s=0.5) as connection:
        await cell.subscribe(STORED)
        await knows(cell, connection)
        producer = connection.create_session().create_producer(STORED)
        await producer.send(TextMessage("a"))
        cell.keepers[0].is_cut_off = True
        sends = [
            asyncio.ensure_future(producer.send(TextMessage("b"))),
            asyncio.ensure_future(producer.send_async(TextMessage("c"))),
            asyncio.ensure_future(producer.send_many(["d", "e"])),
        ]
        for send in sends:
            error = await fails(send, UnconfirmedError, r"too few keepers on fjm2://.* answered for 0\.5 s")
            assert error.in_doubt
        await fails(producer.send(TextMessage("f")), UnconfirmedError, "too few keepers")
        cell.keepers[0].is_cut_off = False
        cell.keepers[0].settle()
        # The keeper has missed messages for ever, and takes none behind them. Sends fail until another ledger begins.
        await stored_at_last(producer, "g")
        assert set(cell.keepers[0].store.bodies()) == {b"a", b"g"}
        assert [ledger.producer_epoch for ledger in cell.keepers[0].store.ledgers][:2] == [0, 1]


async def test_sends_wait_through_a_takeover(port: int) -> None:
    async with serving(port, 3) as cell:
        await cell.subscribe(STORED)
        async with connected(port) as connection:
            producer = connection.create_session().create_producer(STORED)
            await producer.send(TextMessage("a"))
            before = cell.manager
            await before.leave()
            await asyncio.wait_for(producer.send(TextMessage("b")), WAIT_S)
            await eventually(lambda: cell.is_serving)
            await asyncio.wait_for(producer.send(TextMessage("c")), WAIT_S)
            await eventually(lambda: cell.manager.store.bodies() == [b"a", b"b", b"c"])


async def test_a_new_subscription_is_known_and_announced(port: int) -> None:
    async with serving(port) as cell, connected(port) as connection:
        (keeper,) = cell.keepers
        producer = connection.create_session().create_producer(OTHER)
        await producer.send(TextMessage("not stored"))
        assert keeper.bus is not None
        presence = keeper.bus.presence
        await cell.subscribe(STORED, OTHER)
        await eventually(lambda: [peer.table_version for peer in presence.peers] == [2])
        assert presence.publishers_before(2) == []
        await producer.send(TextMessage("stored"))
        assert keeper.store.bodies() == [b"stored"]


# Failing.


async def test_a_full_store_fails_the_send_and_takes_messages_again(port: int) -> None:
    async with serving(port, store=SMALL) as cell, connected(port, confirm_timeout_s=0.5) as connection:
        await cell.subscribe(STORED)
        await knows(cell, connection)
        (keeper,) = cell.keepers
        producer = connection.create_session().create_producer(STORED)
        error: JMSError | None = None
        sent = 0
        for _ in range(100):
            try:
                await producer.send(TextMessage("x" * 2000))
                sent += 1
            except ResourceAllocationError as failure:
                error = failure
                break
        assert error is not None
        assert error.error_code == "store_full"
        assert "0.5 s (confirm_timeout_s); it may be stored all the same" in str(error)
        assert len(keeper.store.bodies()) == sent > 3
        keeper.store.journal.release(keeper.store.ledgers[0], [(1, sent + 1)])
        await eventually(lambda: not keeper.store.journal.is_full)
        await stored_at_last(producer, "room")


async def test_a_ledger_that_the_cell_has_closed_is_followed_by_the_next(port: int) -> None:
    async with serving(port) as cell, connected(port, confirm_timeout_s=2.0) as connection:
        await cell.subscribe(STORED)
        await knows(cell, connection)
        (keeper,) = cell.keepers
        producer = connection.create_session().create_producer(STORED)
        await producer.send(TextMessage("a"))
        first = Ledger(producer_of(keeper), 0, 0)
        cell.decide(FenceRecord(first))
        await eventually(lambda: keeper.cell.replica.ledgers.is_closed(first))
        await fails(producer.send(TextMessage("lost")), UnconfirmedError, "keepers on")
        await asyncio.wait_for(producer.send(TextMessage("b")), WAIT_S)
        assert keeper.store.bodies() == [b"a", b"b"]
        assert keeper.store.ledgers == [first, first._replace(producer_epoch=1)]


async def test_a_ledger_that_rests_is_followed_by_the_next(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fjm2.jms.sends.cell_driver._REST_S", 0.1)
    async with serving(port) as cell, connected(port) as connection:
        await cell.subscribe(STORED)
        await knows(cell, connection)
        producer = connection.create_session().create_producer(STORED)
        for text in "abc":
            await producer.send(TextMessage(text))
            await asyncio.sleep(0.3)
        assert cell.keepers[0].store.bodies() == [b"a", b"b", b"c"]
        assert [ledger.producer_epoch for ledger in cell.keepers[0].store.ledgers] == [0, 1, 2]


async def test_a_close_fails_what_is_not_stored(port: int) -> None:
    async with serving(port) as cell:
        await cell.subscribe(STORED)
        async with connected(port, close_timeout_s=0.2) as connection:
            producer = connection.create_session().create_producer(STORED)
            await producer.send(TextMessage("a"))
            cell.keepers[0].is_cut_off = True
            send = asyncio.ensure_future(producer.send(TextMessage("b")))
            outcome = producer.send_async(TextMessage("c"))
            await asyncio.sleep(QUIET_S)
            await asyncio.wait_for(connection.close(), WAIT_S)
            await fails(outcome, UnconfirmedError, "timed out|the connection was closed before")
            await fails(send, UnconfirmedError, "the connection was closed before")


# Queues.


async def test_queues_are_refused_with_keepers_too(port: int) -> None:
    """Nobody could consume what is sent to them, and it would fill the stores."""
    async with serving(port, 3) as cell, connected(port) as connection:
        await connection.ready()
        session = connection.create_session()
        for send in (
            lambda: session.create_producer(QUEUE),
            lambda: session.create_producer().send(TextMessage("a"), QUEUE),
            lambda: session.create_producer().send_many(["a"], QUEUE),
            lambda: session.create_consumer(QUEUE),
        ):
            await fails(called(send), ResourceAllocationError, "queues need a coordinator")
        await eventually(lambda: cell.is_serving)
        assert cell.manager.store.bodies() == []


# Threads.


async def test_a_blocking_send_waits_until_the_message_is_stored(port: int) -> None:
    async with serving(port) as cell:
        await cell.subscribe(STORED)
        (keeper,) = cell.keepers
        factory = blocking.ConnectionFactory(uri(port), confirm_timeout_s=0.5)
        connection = await asyncio.to_thread(factory.create_connection)
        try:
            await asyncio.to_thread(connection.ready)
            session = await asyncio.to_thread(connection.create_session)
            producer = session.create_producer(STORED)
            await asyncio.to_thread(producer.send, TextMessage("a"))
            assert keeper.store.bodies() == [b"a"]
            await asyncio.to_thread(producer.send_many, ["b", "c"])
            assert keeper.store.bodies() == [b"a", b"b", b"c"]
            await asyncio.to_thread(session.create_producer().send, TextMessage("d"), STORED)
            assert keeper.store.bodies()[-1] == b"d"
            keeper.is_cut_off = True
            await fails(asyncio.to_thread(producer.send, TextMessage("e")), UnconfirmedError, "too few keepers")
        finally:
            await asyncio.to_thread(connection.close)
