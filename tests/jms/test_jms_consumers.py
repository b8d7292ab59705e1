"""Tests of several consumers of one session: receives at the same time, each in a task of its own, and the cost of a
message with many consumers (rows C and A)."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from adapter import QUIET_S, WAIT_S, Api, Asyncio, Blocking, eventually, send_texts

from fjm2.bus.inbox import Inbox
from fjm2.jms import (
    IllegalStateError,
    Message,
    SessionMode,
    TextMessage,
    Topic,
    TransactionRolledBackError,
)

TOPIC, OTHER = Topic("tasks.one"), Topic("tasks.other")
AUTO, CLIENT = SessionMode.AUTO_ACKNOWLEDGE, SessionMode.CLIENT_ACKNOWLEDGE

CONSUMERS = 300
MESSAGES = 600
LOOKS_MAX = 4
"""Looks at an inbox for each message: one finds the message, another finds nothing more, and starting costs some."""


@pytest.fixture
def aio(port: int) -> Api:
    """Return the asyncio API alone: threads may not do this."""
    return Asyncio(port)


@pytest.fixture
def threads(port: int) -> Api:
    return Blocking(port)


async def loop_over(consumer: Any, heard: list[str]) -> None:
    async for message in consumer:
        heard.append(message.text)  # noqa: PERF401 - the test reads it before the loop ends


async def test_two_loops_of_one_context_get_their_messages(aio: Api) -> None:
    context = await aio.context()
    consumers = [await context.create_consumer(topic) for topic in (TOPIC, OTHER)]
    heard: list[list[str]] = [[], []]
    loops = [asyncio.create_task(loop_over(*each)) for each in zip(consumers, heard, strict=True)]
    sender = await (await aio.connect()).create_session()
    for number in range(200):
        await send_texts(sender, (TOPIC, OTHER)[number % 2], str(number))
    await eventually(lambda: len(heard[0]) == len(heard[1]) == 100)
    assert heard == [[str(number) for number in range(first, 200, 2)] for first in (0, 1)]
    await context.close()
    await asyncio.gather(*loops)


async def test_two_receives_wait_at_a_time(aio: Api) -> None:
    session = await (await aio.connect()).create_session()
    one, other = [await session.create_consumer(topic) for topic in (TOPIC, OTHER)]
    waiting = asyncio.create_task(one.receive(WAIT_S))
    await asyncio.sleep(QUIET_S)
    assert await other.receive(0.01) is None
    assert not waiting.done()
    await send_texts(session, OTHER, "b")
    assert (await other.receive(WAIT_S)).text == "b"
    await send_texts(session, TOPIC, "a")
    assert (await waiting).text == "a"


async def test_a_consumer_has_one_receive_at_a_time(api: Api) -> None:
    session = await (await api.connect()).create_session()
    consumer = await session.create_consumer(TOPIC)
    waiting = asyncio.create_task(consumer.receive(WAIT_S))
    await asyncio.sleep(QUIET_S)
    reason = "at this consumer of topic://tasks.one, which can have only one: create a consumer for each task"
    with pytest.raises(IllegalStateError, match=reason):
        await consumer.receive(0)
    await send_texts(session, TOPIC, "a")
    assert (await waiting).text == "a"


async def test_threads_have_one_receive_a_session(threads: Api) -> None:
    session = await (await threads.connect()).create_session()
    one, other = [await session.create_consumer(topic) for topic in (TOPIC, OTHER)]
    waiting = asyncio.create_task(one.receive(WAIT_S))
    await asyncio.sleep(QUIET_S)
    with pytest.raises(
        IllegalStateError, match=r"on this session, which can have only one: .* or context.create_context"
    ):
        await other.receive(0)
    await send_texts(session, TOPIC, "a")
    assert (await waiting).text == "a"


@pytest.mark.parametrize("what", ["consumers", "session", "connection"])
async def test_a_close_wakes_all_receives(aio: Api, what: str) -> None:
    connection = await aio.connect()
    session = await connection.create_session()
    consumers = [await session.create_consumer(topic) for topic in (TOPIC, OTHER)]
    waiting = [asyncio.create_task(consumer.receive()) for consumer in consumers]
    await asyncio.sleep(QUIET_S)
    for one in {"consumers": consumers, "session": [session], "connection": [connection]}[what]:
        async with asyncio.timeout(WAIT_S):
            await one.close()
    assert await asyncio.gather(*waiting) == [None, None]


async def test_receives_wait_through_stop_and_start(aio: Api) -> None:
    connection = await aio.connect()
    session = await connection.create_session()
    consumers = [await session.create_consumer(topic) for topic in (TOPIC, OTHER)]
    waiting = [asyncio.create_task(consumer.receive(WAIT_S)) for consumer in consumers]
    await asyncio.sleep(QUIET_S)
    await connection.stop()
    for topic in (TOPIC, OTHER):
        await send_texts(session, topic, topic.name)
    await asyncio.sleep(QUIET_S)
    assert not any(one.done() for one in waiting)
    await connection.start()
    assert [message.text for message in await asyncio.gather(*waiting)] == [TOPIC.name, OTHER.name]


async def test_a_cancelled_receive_leaves_the_others(aio: Api) -> None:
    session = await (await aio.connect()).create_session()
    consumers = [await session.create_consumer(topic) for topic in (TOPIC, OTHER)]
    waiting = [asyncio.create_task(consumer.receive(WAIT_S)) for consumer in consumers]
    await asyncio.sleep(QUIET_S)
    waiting[0].cancel()
    await send_texts(session, OTHER, "b")
    assert (await waiting[1]).text == "b"
    await send_texts(session, TOPIC, "a")
    assert (await consumers[0].receive(WAIT_S)).text == "a"


async def test_a_listener_is_refused_while_any_receive_waits(aio: Api) -> None:
    session = await (await aio.connect()).create_session()
    consumers = [await session.create_consumer(topic) for topic in (TOPIC, OTHER)]
    waiting = [
        asyncio.create_task(consumer.receive(timeout)) for consumer, timeout in zip(consumers, (0.05, 0.2), strict=True)
    ]
    await waiting[0]
    with pytest.raises(IllegalStateError, match="a receive is waiting"):
        consumers[0].message_listener = print
    await waiting[1]
    consumers[0].message_listener = print


async def test_acknowledge_is_for_what_all_tasks_of_the_session_got(aio: Api) -> None:
    session = await (await aio.connect()).create_session(CLIENT)
    consumers = [await session.create_consumer(topic) for topic in (TOPIC, OTHER)]
    waiting = [asyncio.create_task(consumer.receive(WAIT_S)) for consumer in consumers]
    for topic in (TOPIC, OTHER):
        await send_texts(session, topic, "a")
    first, _ = await asyncio.gather(*waiting)
    assert (await session.statistics()).messages_unacknowledged == 2
    await aio.acknowledge(first)
    assert (await session.statistics()).messages_unacknowledged == 0
    await session.recover()
    assert [await consumer.receive(0) for consumer in consumers] == [None, None]


async def test_recover_is_for_what_all_tasks_of_the_session_got(aio: Api) -> None:
    session = await (await aio.connect()).create_session(AUTO)
    consumers = [await session.create_consumer(topic) for topic in (TOPIC, OTHER)]
    is_recovered = asyncio.Event()
    heard: list[tuple[str, int]] = []

    async def work(consumer: Any) -> None:
        async for message in consumer:
            heard.append((message.destination.name, message.delivery_count))
            await is_recovered.wait()

    tasks = [asyncio.create_task(work(consumer)) for consumer in consumers]
    for topic in (TOPIC, OTHER):
        await send_texts(session, topic, "a")
    await eventually(lambda: len(heard) == 2)
    await session.recover()
    is_recovered.set()
    await eventually(lambda: len(heard) == 4)
    assert sorted(heard) == [(topic.name, count) for topic in (TOPIC, OTHER) for count in (1, 2)]
    await session.close()
    await asyncio.gather(*tasks)


async def test_a_message_that_comes_during_a_commit_belongs_to_the_next_transaction(aio: Api) -> None:
    session = await (await aio.connect()).create_session(transacted=True)
    consumers = [await session.create_consumer(topic) for topic in (TOPIC, OTHER)]
    sender = await (await aio.connect()).create_session()
    await send_texts(sender, TOPIC, "before")
    assert (await consumers[0].receive(WAIT_S)).text == "before"
    waiting = asyncio.create_task(consumers[1].receive(WAIT_S))
    await asyncio.sleep(QUIET_S)
    core = session.inner._core
    commit = core.outbox.commit

    async def slow_commit() -> Any:
        await send_texts(sender, OTHER, "during")
        assert (await waiting).text == "during"
        return await commit()

    core.outbox.commit = slow_commit
    await session.commit()
    assert (await session.statistics()).messages_unacknowledged == 1
    await session.rollback()
    again = await consumers[1].receive(WAIT_S)
    assert (again.text, again.delivery_count) == ("during", 2)
    assert await consumers[0].receive(0) is None

    async def failing_commit() -> Any:
        raise TransactionRolledBackError("no room")

    core.outbox.commit = failing_commit
    with pytest.raises(TransactionRolledBackError):
        await session.commit()
    assert (await consumers[1].receive(WAIT_S)).delivery_count == 3


async def test_tasks_share_a_temporary_queue(aio: Api) -> None:
    context = await aio.context()
    queue = await context.create_temporary_queue()
    heard: list[list[str]] = [[], []]
    consumers = [await context.create_consumer(queue) for _ in heard]
    tasks = [asyncio.create_task(loop_over(*each)) for each in zip(consumers, heard, strict=True)]
    producer = await context.create_producer()
    for number in range(50):
        await producer.send(queue, str(number))
    await eventually(lambda: sum(map(len, heard)) == 50)
    assert sorted(map(int, heard[0] + heard[1])) == list(range(50))
    await context.close()
    await asyncio.gather(*tasks)


# Many consumers.


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    counted: Counter[str] = Counter()
    look = Inbox.has_waiting

    def has_waiting(inbox: Inbox) -> bool:
        counted["looks"] += 1
        return look(inbox)

    monkeypatch.setattr(Inbox, "has_waiting", has_waiting)
    return counted


async def many(session: Any, hear: Callable[[TextMessage], None]) -> list[Any]:
    """Return consumers of different topics, all with the same listener."""
    consumers = [await session.create_consumer(Topic(f"many.{number}")) for number in range(CONSUMERS)]
    for consumer in consumers:
        consumer.message_listener = hear
    return consumers


async def test_a_session_looks_only_at_consumers_that_have_messages(api: Api, looks: Counter[str]) -> None:
    connection = await api.connect()
    heard: list[str] = []
    await many(await connection.create_session(), lambda message: heard.append(str(message.text)))
    sender = await connection.create_session()
    looks.clear()
    for number in range(MESSAGES):
        await send_texts(sender, Topic(f"many.{number % CONSUMERS}"), str(number))
    await eventually(lambda: len(heard) == MESSAGES)
    assert sorted(map(int, heard)) == list(range(MESSAGES))
    assert looks["looks"] <= LOOKS_MAX * MESSAGES + CONSUMERS


async def test_consumers_of_a_session_take_turns(api: Api) -> None:
    """One that always has messages keeps no other from its turn."""
    connection = await api.connect(is_started=False)
    session = await connection.create_session()
    heard: list[str] = []
    busy, quiet = [await session.create_consumer(Topic(name)) for name in ("busy", "quiet")]
    for consumer in (busy, quiet):
        consumer.message_listener = lambda message: heard.append(str(message.text))
    sender = await connection.create_session()
    await send_texts(sender, Topic("busy"), *["busy"] * 1000)
    await send_texts(sender, Topic("quiet"), "quiet")
    await connection.start()
    await eventually(lambda: len(heard) == 1001)
    assert heard.index("quiet") <= 64


async def test_listeners_come_and_go_while_messages_do(api: Api) -> None:
    connection = await api.connect()
    session = await connection.create_session()
    heard: list[str] = []
    consumers = await many(session, lambda message: heard.append(str(message.text)))
    sender = await connection.create_session()
    await send_texts(sender, Topic("many.0"), "a")
    await eventually(lambda: heard == ["a"])
    consumers[0].message_listener = None
    await send_texts(sender, Topic("many.0"), "b")
    await send_texts(sender, Topic("many.1"), "c")
    await eventually(lambda: heard == ["a", "c"])
    consumers[0].message_listener = lambda message: heard.append(f"{message.text} again")
    await eventually(lambda: heard == ["a", "c", "b again"])
    for consumer in consumers[1:]:
        await consumer.close()
    await send_texts(sender, Topic("many.0"), "d")
    await eventually(lambda: heard[-1] == "d again")
    consumers[0].message_listener = None
    await send_texts(sender, Topic("many.0"), "e")
    assert (await consumers[0].receive(WAIT_S)).text == "e"


async def test_messages_recovered_at_many_consumers_come_in_their_old_order(api: Api) -> None:
    connection = await api.connect()
    session = await connection.create_session(SessionMode.CLIENT_ACKNOWLEDGE)
    heard: list[tuple[str, int]] = []
    is_recovered = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hear(message: Message) -> None:
        assert isinstance(message, TextMessage)
        heard.append((str(message.text), message.delivery_count))
        if len(heard) == 20:
            loop.call_soon_threadsafe(is_recovered.set)

    consumers = await many(session, hear)
    sender = await connection.create_session()
    for number in range(20):
        await send_texts(sender, Topic(f"many.{number * 7 % CONSUMERS}"), str(number))
    await is_recovered.wait()
    await connection.stop()
    first = [text for text, _ in heard]
    for consumer in consumers:
        consumer.message_listener = None
    await session.recover()
    for consumer in consumers:
        consumer.message_listener = hear
    await connection.start()
    await eventually(lambda: len(heard) == 40)
    assert heard[20:] == [(text, 2) for text in first]
