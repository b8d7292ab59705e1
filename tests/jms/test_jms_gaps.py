"""The message behind a gap says that there is one, and why; the exception listener says how many are missing."""

import asyncio
from typing import Any

import pytest
from adapter import WAIT_S, Api, eventually, send_texts

from fjm2.jms import ListenerError, MessagesDroppedError, MessagesExpiredError, SessionMode, TextMessage, Topic

TOPIC = Topic("fjm2.gaps")
CLIENT = SessionMode.CLIENT_ACKNOWLEDGE


def flag_of(message: Any) -> str | None:
    """Return the reason of a message's gap, or None if it has none."""
    if not message.property_exists("JMS_FJM2_Gap"):
        assert not message.property_exists("JMS_FJM2_GapReason")
        return None
    assert message.get_boolean_property("JMS_FJM2_Gap") is True
    return str(message.get_string_property("JMS_FJM2_GapReason"))


async def connection_and_errors(api: Api, **options: Any) -> tuple[Any, list[Exception]]:
    connection = await api.connect(**options)
    errors: list[Exception] = []
    connection.exception_listener = errors.append
    return connection, errors


async def taken(consumer: Any, count: int) -> list[tuple[str, str | None]]:
    found = [await consumer.receive(WAIT_S) for _ in range(count)]
    return [(str(message.text), flag_of(message)) for message in found]


async def test_each_gap_of_a_consumer_that_drops_the_newest_is_flagged(api: Api) -> None:
    connection, errors = await connection_and_errors(api)
    session = await connection.create_session()
    consumer = await session.create_consumer(TOPIC, overflow="drop_newest", messages_max=2)
    for burst in range(5):
        await send_texts(session, TOPIC, *(f"{burst}.{number}" for number in range(4)))
        expected = "dropped" if burst else None
        assert await taken(consumer, 2) == [(f"{burst}.0", expected), (f"{burst}.1", None)]
    await send_texts(session, TOPIC, "end")
    assert await taken(consumer, 1) == [("end", "dropped")]
    await eventually(lambda: sum(error.count for error in errors if isinstance(error, MessagesDroppedError)) == 10)


async def test_each_sender_and_priority_has_a_flag_of_its_own(api: Api) -> None:
    connection, _ = await connection_and_errors(api)
    consumer = await (await connection.create_session()).create_consumer(TOPIC, overflow="drop_oldest", messages_max=3)
    senders = [await (await api.connect()).create_session() for _ in range(2)]
    for number in range(3):
        await send_texts(senders[0], TOPIC, f"a{number}", priority=1)
        await send_texts(senders[1], TOPIC, f"b{number}", priority=1)
    await send_texts(senders[0], TOPIC, "urgent", priority=9)
    # Beside the urgent message there is room for two of a0, b0, a1, b1, a2 and b2.
    assert await taken(consumer, 3) == [("urgent", None), ("a2", "dropped"), ("b2", "dropped")]


@pytest.mark.parametrize("is_waiting", [False, True])
async def test_expired_messages_are_flagged_and_told(api: Api, is_waiting: bool) -> None:
    """They may expire while they wait, or before."""
    connection, errors = await connection_and_errors(api)
    session = await connection.create_session()
    consumer = await session.create_consumer(TOPIC)
    await send_texts(session, TOPIC, "first")
    await send_texts(session, TOPIC, "short", "short too", time_to_live=1)
    if is_waiting:
        await send_texts(session, TOPIC, "behind")
    await asyncio.sleep(0.05)
    if not is_waiting:
        assert await taken(consumer, 1) == [("first", None)]
        assert await consumer.receive(0) is None
        await send_texts(session, TOPIC, "behind")
    else:
        assert await taken(consumer, 1) == [("first", None)]
    assert await taken(consumer, 1) == [("behind", "expired")]
    await eventually(lambda: errors)
    (error,) = errors
    assert isinstance(error, MessagesExpiredError)
    assert (error.count, error.destination) == (2, TOPIC)
    assert str(error).startswith("2 messages expired before a consumer of topic://fjm2.gaps took them; see https://")


async def test_expired_messages_are_told_when_the_consumer_closes(api: Api) -> None:
    connection, errors = await connection_and_errors(api)
    session = await connection.create_session()
    consumer = await session.create_consumer(TOPIC)
    await send_texts(session, TOPIC, "short", time_to_live=1)
    await asyncio.sleep(0.05)
    assert await consumer.receive(0) is None
    await consumer.close()
    await eventually(lambda: errors)
    assert isinstance(errors[0], MessagesExpiredError)


@pytest.mark.parametrize("redeliveries_max", [0, 2])
async def test_messages_that_a_listener_is_given_up_at_are_flagged(api: Api, redeliveries_max: int) -> None:
    connection, errors = await connection_and_errors(api, redeliveries_max=redeliveries_max)
    consumer = await (await connection.create_session()).create_consumer(TOPIC)
    heard: list[tuple[str, str | None]] = []

    def hear(message: TextMessage) -> None:
        heard.append((str(message.text), flag_of(message)))
        if message.text in ("bad", "worse"):
            raise ZeroDivisionError

    consumer.message_listener = hear
    await send_texts(await connection.create_session(), TOPIC, "a", "bad", "b", "c", "bad", "worse", "d", "e")
    await eventually(lambda: heard[-1:] == [("e", None)])
    times = redeliveries_max + 1
    assert heard == [
        ("a", None),
        *[("bad", None)] * times,
        ("b", "given_up"),
        ("c", None),
        *[("bad", None)] * times,
        *[("worse", "given_up")] * times,
        ("d", "given_up"),
        ("e", None),
    ]
    await eventually(lambda: len(errors) == 3)
    assert all(isinstance(error, ListenerError) for error in errors)


async def test_a_redelivered_message_has_its_flag_again(api: Api) -> None:
    connection, _ = await connection_and_errors(api)
    session = await connection.create_session(CLIENT)
    consumer = await session.create_consumer(TOPIC, overflow="drop_oldest", messages_max=2)
    await send_texts(await connection.create_session(), TOPIC, "0", "1", "2")
    expected = [("1", "dropped"), ("2", None)]
    assert await taken(consumer, 2) == expected
    await session.recover()
    assert await taken(consumer, 2) == expected


async def test_a_temporary_queue_shows_its_gaps_to_whoever_takes_the_next_message(api: Api) -> None:
    connection, errors = await connection_and_errors(api, overflow="drop_oldest", messages_max=2)
    session = await connection.create_session()
    queue = await session.create_temporary_queue()
    await send_texts(session, queue, "0", "1", "2", "3")
    consumer = await session.create_consumer(queue)
    assert await taken(consumer, 1) == [("2", "dropped")]
    await consumer.close()
    another = await session.create_consumer(queue)
    assert await taken(another, 1) == [("3", None)]
    await send_texts(session, queue, "short", time_to_live=1)
    await asyncio.sleep(0.05)
    assert await another.receive(0) is None
    await send_texts(session, queue, "4")
    assert await taken(another, 1) == [("4", "expired")]
    await eventually(lambda: len(errors) == 2)
    assert {type(error) for error in errors} == {MessagesDroppedError, MessagesExpiredError}
