"""A message costs a session the same however many consumers it has."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from adapter import WAIT_S, Api, eventually, send_texts

from fjm2.bus.inbox import Inbox
from fjm2.jms import Message, SessionMode, TextMessage, Topic

CONSUMERS = 300
MESSAGES = 600
LOOKS_MAX = 4
"""Looks at an inbox for each message: one finds the message, another finds nothing more, and starting costs some."""


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
