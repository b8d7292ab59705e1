"""Tests of local transactions. Their names begin with the number of the case, X1 to X8."""

import asyncio
import contextlib
import time
from typing import Any

import pytest
from adapter import QUIET_S, WAIT_S, Api, eventually, listener, send_texts, texts

from fjm2.jms import (
    BytesMessage,
    DeliveryMode,
    IllegalStateError,
    JMSError,
    ResourceAllocationError,
    SessionMode,
    TextMessage,
    Topic,
    TransactionRolledBackError,
)

TOPIC, OTHER = Topic("fjm2.transactions"), Topic("fjm2.transactions.other")
TRANSACTED = SessionMode.SESSION_TRANSACTED


async def sessions(api: Api) -> tuple[Any, Any, Any]:
    """Return a transacted session, a session without transactions, and a consumer of the latter session."""
    connection = await api.connect()
    plain = await connection.create_session()
    return await connection.create_session(TRANSACTED), plain, await plain.create_consumer(TOPIC)


def bytes_message(body: bytes) -> BytesMessage:
    made = BytesMessage()
    made.write_bytes(body)
    return made


async def test_x1_nothing_is_visible_before_the_commit(api: Api) -> None:
    session, _, consumer = await sessions(api)
    await send_texts(session, TOPIC, "a", "b")
    assert await consumer.receive(QUIET_S) is None
    await session.commit()
    assert await texts(consumer, 2) == ["a", "b"]
    await send_texts(session, TOPIC, "c")
    await session.commit()
    assert await texts(consumer, 1) == ["c"]


async def test_x2_rollback_drops_sent_and_redelivers_received_messages(api: Api) -> None:
    session, plain, consumer = await sessions(api)
    input_ = await session.create_consumer(OTHER)
    await send_texts(plain, OTHER, "in 1", "in 2")
    assert await texts(input_, 2) == ["in 1", "in 2"]
    await send_texts(session, TOPIC, "out")
    await session.rollback()
    assert await consumer.receive(QUIET_S) is None
    found = [await input_.receive(WAIT_S) for _ in range(2)]
    assert [message.text for message in found] == ["in 1", "in 2"]
    assert [(message.redelivered, message.delivery_count) for message in found] == [(True, 2)] * 2
    await session.commit()
    await session.rollback()
    assert await input_.receive(QUIET_S) is None


async def test_x2_the_block_commits_or_rolls_back(api: Api) -> None:
    session, _, consumer = await sessions(api)
    with pytest.raises(ZeroDivisionError):
        await in_transaction(api, session, "lost", fails=True)
    await in_transaction(api, session, "kept")
    assert await texts(consumer, 1) == ["kept"]


async def test_x2_a_block_in_a_block_of_the_session_is_refused_before_anything_is_sent(api: Api) -> None:
    session, _, consumer = await sessions(api)
    with pytest.raises(IllegalStateError, match="inside such a block already, and has one transaction at a time"):
        await block_in_block(api, session, "take 10 from A", "give 10 to B")
    assert await consumer.receive(QUIET_S) is None  # rolled back, as the block raised
    await in_transaction(api, session, "the next block")
    assert await texts(consumer, 1) == ["the next block"]


async def test_x2_a_block_goes_on_after_a_refused_one(api: Api) -> None:
    session, _, consumer = await sessions(api)
    await block_in_block(api, session, "take 10 from A", "give 10 to B", catches=True)
    assert await texts(consumer, 2) == ["take 10 from A", "give 10 to B"]
    assert await consumer.receive(QUIET_S) is None


async def block_in_block(api: Api, session: Any, first: str, second: str, *, catches: bool = False) -> None:
    """Send in a block, enter another one, which ends at once, and send again."""
    caught = contextlib.suppress(*[IllegalStateError] if catches else [])
    outer, inner = session.inner.transaction(), session.inner.transaction()
    if api.is_blocking:

        def run() -> None:
            with outer:
                session.inner.create_producer(TOPIC).send(TextMessage(first))
                with caught, inner:
                    pass
                session.inner.create_producer(TOPIC).send(TextMessage(second))

        await asyncio.to_thread(run)
        return
    async with outer:
        await session.inner.create_producer(TOPIC).send(TextMessage(first))
        with caught:
            async with inner:
                pass
        await session.inner.create_producer(TOPIC).send(TextMessage(second))


async def in_transaction(api: Api, session: Any, text: str, fails: bool = False) -> None:
    manager = session.inner.transaction()
    if api.is_blocking:

        def run() -> None:
            with manager:
                session.inner.create_producer(TOPIC).send(TextMessage(text))
                if fails:
                    raise ZeroDivisionError

        await asyncio.to_thread(run)
        return
    async with manager:
        await session.inner.create_producer(TOPIC).send(TextMessage(text))
        if fails:
            raise ZeroDivisionError


async def test_x1_what_receivers_would_not_hold_is_refused_at_the_send(api: Api) -> None:
    session, _, consumer = await sessions(api)
    producer = await session.create_producer(TOPIC)
    body = bytes(30 << 20)
    for _ in range(2):
        await producer.send(bytes_message(body))
    with pytest.raises(ResourceAllocationError, match=r"a transaction of 3 messages and 94,37.* at most 67108864"):
        await producer.send(bytes_message(body))
    await session.commit()
    assert [len((await consumer.receive(WAIT_S)).get_body(bytes)) for _ in range(2)] == [len(body)] * 2
    for end in (session.rollback, session.commit):  # either begins the next transaction anew
        for _ in range(2):
            await producer.send(bytes_message(body))
        await end()
    assert await consumer.receive(WAIT_S) is not None
    assert await consumer.receive(WAIT_S) is not None
    assert await consumer.receive(QUIET_S) is None


async def test_x1_a_message_that_receivers_would_not_take_is_refused_at_the_send(api: Api) -> None:
    session, plain, consumer = await sessions(api)
    for sending in (session, plain):
        producer = await sending.create_producer(TOPIC)
        with pytest.raises(JMSError, match=r"a message of 67108.* bytes cannot be sent: expected at most 67108864"):
            await producer.send(bytes_message(bytes(64 << 20)))
        await producer.send(TextMessage("next"))
    await session.commit()
    assert await texts(consumer, 2) == ["next", "next"]


@pytest.mark.parametrize("call", ["commit", "rollback"])
async def test_x3_only_transacted_sessions_have_transactions(api: Api, call: str) -> None:
    _, plain, _ = await sessions(api)
    with pytest.raises(IllegalStateError, match="not transacted"):
        await getattr(plain, call)()


async def test_x4_a_commit_that_fails_before_sending_is_a_rollback(api: Api) -> None:
    session, plain, consumer = await sessions(api)
    input_ = await session.create_consumer(OTHER)
    await send_texts(plain, OTHER, "in")
    await texts(input_, 1)
    temporary = await plain.create_temporary_topic()
    await send_texts(session, TOPIC, "out")
    await send_texts(session, temporary.inner, "nowhere")
    await temporary.delete()
    with pytest.raises(TransactionRolledBackError, match="deleted"):
        await session.commit()
    assert await consumer.receive(QUIET_S) is None
    again = await input_.receive(WAIT_S)
    assert (again.text, again.redelivered) == ("in", True)
    await send_texts(session, TOPIC, "next")
    await session.commit()
    assert await texts(consumer, 1) == ["next"]


async def test_x5_the_order_is_that_of_the_sends_and_time_counts_from_there(api: Api) -> None:
    session, _, consumer = await sessions(api)
    producers = [await session.create_producer(TOPIC) for _ in range(2)]
    sent = [TextMessage(str(number)) for number in range(20)]
    before = int(time.time() * 1000)
    for number, message in enumerate(sent):
        await producers[number % 2].send(message, time_to_live=60_000)
    after = int(time.time() * 1000)
    await asyncio.sleep(0.05)
    await session.commit()
    found = [await consumer.receive(WAIT_S) for _ in sent]
    assert [message.text for message in found] == [str(number) for number in range(20)]
    assert all(before <= message.timestamp <= after for message in found)
    assert all(message.expiration == message.timestamp + 60_000 for message in found)
    assert all(message.delivery_time == message.timestamp for message in found)


@pytest.mark.parametrize("what", ["session", "connection"])
async def test_x6_closing_rolls_back(api: Api, what: str) -> None:
    _, _, consumer = await sessions(api)
    connection = await api.connect()
    session = await connection.create_session(TRANSACTED)
    await send_texts(session, TOPIC, "lost")
    await (session if what == "session" else connection).close()
    assert await consumer.receive(QUIET_S) is None


async def test_x6_leaving_a_transacted_context_rolls_back(api: Api) -> None:
    _, _, consumer = await sessions(api)
    async with await api.context(TRANSACTED) as context:
        await (await context.create_producer()).send(TOPIC, "lost")
    assert await consumer.receive(QUIET_S) is None


async def test_x7_requests_are_not_for_transacted_sessions(api: Api) -> None:
    session, _, _ = await sessions(api)
    with pytest.raises(IllegalStateError, match="transaction"):
        await api.make("TopicRequestor", session, TOPIC)
    context = await api.context(TRANSACTED)
    with pytest.raises(IllegalStateError, match="transaction"):
        await context.request(TOPIC, TextMessage("x"), 0.1)


@pytest.mark.parametrize("call", ["commit", "rollback"])
async def test_x8_commit_and_rollback_wait_for_completion_listeners(api: Api, call: str) -> None:
    session, _, _ = await sessions(api)
    done: list[str] = []

    class Slow:
        on_completion = staticmethod(listener(api, lambda message: slowly(message)))

        @staticmethod
        def on_exception(_: object, error: Exception) -> None:
            raise AssertionError(error)

    async def slowly(message: TextMessage) -> None:
        await asyncio.sleep(0.05)
        done.append(str(message.text))

    producer = await session.create_producer(TOPIC)
    for text in ("a", "b"):
        await producer.send(TextMessage(text), on_complete=Slow())
    await getattr(session, call)()
    assert done == ["a", "b"]


@pytest.mark.parametrize("call", ["commit", "rollback"])
async def test_x8_a_completion_listener_cannot_commit_or_roll_back(api: Api, call: str) -> None:
    session, _, _ = await sessions(api)
    raised: list[Exception] = []

    async def end(_: object) -> None:
        try:
            await getattr(session, call)()
        except IllegalStateError as error:
            raised.append(error)

    class Listener:
        on_completion = staticmethod(listener(api, end))

        @staticmethod
        def on_exception(_: object, error: Exception) -> None:
            raise AssertionError(error)

    producer = await session.create_producer(TOPIC)
    await producer.send(TextMessage("a"), on_complete=Listener(), delivery_mode=DeliveryMode.NON_PERSISTENT)
    await eventually(lambda: raised)
    await session.rollback()
