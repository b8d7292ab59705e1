"""Tests of acknowledgement and redelivery. Their names begin with the number of the case, A1 to A10."""

import asyncio
import re
from typing import Any

import pytest
from adapter import QUIET_S, WAIT_S, Api, eventually, listener, send_texts, texts

from fjm2.jms import (
    BytesMessage,
    ConsumerFullError,
    IllegalStateError,
    JMSError,
    ListenerError,
    Message,
    MessageFormatError,
    MessagesDroppedError,
    SessionMode,
    StreamMessage,
    TextMessage,
    Topic,
)

TOPIC = Topic("fjm2.acknowledgement")
AUTO, CLIENT = SessionMode.AUTO_ACKNOWLEDGE, SessionMode.CLIENT_ACKNOWLEDGE
DUPS_OK, TRANSACTED = SessionMode.DUPS_OK_ACKNOWLEDGE, SessionMode.SESSION_TRANSACTED


async def pair(api: Api, mode: int, **options: Any) -> tuple[Any, Any, Any]:
    """Return a session in the given mode, a consumer of that session, and another session to send with."""
    connection = await api.connect(**options)
    session = await connection.create_session(mode)
    return session, await session.create_consumer(TOPIC), await connection.create_session()


@pytest.mark.parametrize("mode", [AUTO, DUPS_OK])
async def test_a1_received_messages_are_acknowledged_by_receive(api: Api, mode: int) -> None:
    session, consumer, sender = await pair(api, mode)
    await send_texts(sender, TOPIC, "a", "b")
    assert (await consumer.receive(WAIT_S)).text == "a"
    await session.recover()
    assert await texts(consumer, 1) == ["b"]


async def test_a1_recover_in_a_listener_redelivers_only_the_last_message(api: Api) -> None:
    session, consumer, sender = await pair(api, AUTO)
    heard: list[tuple[str, bool]] = []

    async def hear(message: TextMessage) -> None:
        heard.append((str(message.text), message.redelivered))
        if len(heard) == 2:
            await session.recover()

    consumer.message_listener = listener(api, hear)
    await send_texts(sender, TOPIC, "a", "b", "c")
    await eventually(lambda: len(heard) == 4)
    assert heard == [("a", False), ("b", False), ("b", True), ("c", False)]


async def test_a1_a_loop_acknowledges_when_it_requests_the_next_message(api: Api) -> None:
    session, consumer, sender = await pair(api, AUTO)
    await send_texts(sender, TOPIC, "a", "b", "c")
    with pytest.raises(ZeroDivisionError):
        await fail_at(consumer, "b")
    await session.recover()
    again = await consumer.receive(WAIT_S)
    assert (again.text, again.redelivered) == ("b", True)
    assert await texts(consumer, 1) == ["c"]


async def test_a1_a_receive_within_a_loop_acknowledges_the_message_of_the_loop(api: Api) -> None:
    session, consumer, sender = await pair(api, AUTO)
    await send_texts(sender, TOPIC, "a", "b", "c", "d")
    async for message in consumer:
        following = await consumer.receive(WAIT_S)
        assert (await consumer.statistics()).messages_held == (2 if message.text == "a" else 0)
        if following.text == "d":
            break
    await session.recover()
    assert await consumer.receive(QUIET_S) is None


async def fail_at(consumer: Any, text: str) -> None:
    async for message in consumer:
        if message.text == text:
            raise ZeroDivisionError


async def test_a2_acknowledge_covers_all_delivered_by_the_session_and_nothing_later(api: Api) -> None:
    session, one, sender = await pair(api, CLIENT)
    other = await session.create_consumer(Topic("fjm2.other"))
    await send_texts(sender, TOPIC, "a", "b")
    await send_texts(sender, Topic("fjm2.other"), "c", "d")
    first = await one.receive(WAIT_S)
    await other.receive(WAIT_S)
    await api.acknowledge(first)
    await one.receive(WAIT_S)
    await session.recover()
    assert await texts(one, 1) == ["b"]
    assert await texts(other, 1) == ["d"]


@pytest.mark.parametrize("mode", [AUTO, DUPS_OK, TRANSACTED])
async def test_a2_acknowledge_has_no_effect_in_other_modes(api: Api, mode: int) -> None:
    session, consumer, sender = await pair(api, mode)
    await send_texts(sender, TOPIC, "a")
    await api.acknowledge(await consumer.receive(WAIT_S))
    if mode == TRANSACTED:
        await session.rollback()
        assert await texts(consumer, 1) == ["a"]
    else:
        assert await consumer.receive(QUIET_S) is None


async def test_a2_a_context_acknowledges(api: Api) -> None:
    context = await api.context(CLIENT)
    consumer = await context.create_consumer(TOPIC)
    await (await context.create_producer()).send(TOPIC, "a")
    await consumer.receive(WAIT_S)
    await context.acknowledge()
    await context.recover()
    assert await consumer.receive(QUIET_S) is None


async def test_a3_dups_ok_repeats_nothing_without_a_failure(api: Api) -> None:
    _, consumer, sender = await pair(api, DUPS_OK)
    heard: list[str] = []
    consumer.message_listener = lambda message: heard.append(message.text)
    await send_texts(sender, TOPIC, *map(str, range(300)))
    await eventually(lambda: len(heard) >= 300)
    assert heard == [str(number) for number in range(300)]


async def test_a4_acknowledged_messages_are_never_redelivered(api: Api) -> None:
    session, consumer, sender = await pair(api, CLIENT)
    await send_texts(sender, TOPIC, "a", "b", "c")
    await consumer.receive(WAIT_S)
    await api.acknowledge(await consumer.receive(WAIT_S))
    for _ in range(3):
        await session.recover()
        assert await texts(consumer, 1) == ["c"]


async def test_a4_acknowledgements_are_each_subscription_s_own(api: Api) -> None:
    session, consumer, sender = await pair(api, CLIENT)
    other = await (await api.connect()).create_session(CLIENT)
    others = await other.create_consumer(TOPIC)
    await send_texts(sender, TOPIC, "a")
    await others.receive(WAIT_S)
    await api.acknowledge(await consumer.receive(WAIT_S))
    await session.recover()
    await other.recover()
    assert await consumer.receive(QUIET_S) is None
    assert await texts(others, 1) == ["a"]


async def test_a5_recover_starts_over_with_the_first_unacknowledged(api: Api) -> None:
    session, consumer, sender = await pair(api, CLIENT)
    await send_texts(sender, TOPIC, "a", "b", "c", "d")
    await api.acknowledge(await consumer.receive(WAIT_S))
    for expected in (1, 2, 3):
        found = [await consumer.receive(WAIT_S) for _ in range(2)]
        assert [message.text for message in found] == ["b", "c"]
        assert [message.delivery_count for message in found] == [expected] * 2
        assert [message.get_int_property("JMSXDeliveryCount") for message in found] == [expected] * 2
        assert [message.redelivered for message in found] == [expected > 1] * 2
        await session.recover()
    await texts(consumer, 3)


async def test_a5_expired_messages_are_not_redelivered(api: Api) -> None:
    session, consumer, sender = await pair(api, CLIENT)
    await send_texts(sender, TOPIC, "short", time_to_live=300)
    await send_texts(sender, TOPIC, "long")
    assert await texts(consumer, 2) == ["short", "long"]
    await asyncio.sleep(0.35)
    await session.recover()
    assert await texts(consumer, 1) == ["long"]


async def test_a5_recover_is_not_for_transacted_sessions(api: Api) -> None:
    session, _, _ = await pair(api, TRANSACTED)
    with pytest.raises(IllegalStateError, match="roll back"):
        await session.recover()


async def test_a6_a_redelivered_message_is_unchanged(api: Api) -> None:
    session, consumer, sender = await pair(api, CLIENT)
    message = TextMessage("as it was")
    message.set_int_property("number", 1)
    await (await sender.create_producer(TOPIC)).send(message)
    first = await consumer.receive(WAIT_S)
    first.clear_properties()
    first.clear_body()
    first.text, first.type = "spoiled", "spoiled"
    await session.recover()
    again = await consumer.receive(WAIT_S)
    assert (again.text, again.type, again.get_int_property("number")) == ("as it was", None, 1)
    assert again.message_id == message.message_id


@pytest.mark.parametrize("mode", [AUTO, DUPS_OK])
async def test_a7_a_listener_that_raises_gets_the_message_again(api: Api, mode: int) -> None:
    _, consumer, sender = await pair(api, mode)
    heard: list[tuple[str, int]] = []

    def hear(message: TextMessage) -> None:
        heard.append((str(message.text), message.delivery_count))
        if message.text == "a" and message.delivery_count < 3:
            raise ZeroDivisionError

    consumer.message_listener = hear
    await send_texts(sender, TOPIC, "a", "b")
    await eventually(lambda: len(heard) == 4)
    assert heard == [("a", 1), ("a", 2), ("a", 3), ("b", 1)]


async def test_a7_after_the_last_redelivery_the_exception_listener_is_called(api: Api) -> None:
    connection = await api.connect(redeliveries_max=2)
    errors: list[Exception] = []
    connection.exception_listener = errors.append
    session = await connection.create_session()
    consumer = await session.create_consumer(TOPIC)
    heard: list[str] = []

    def hear(message: TextMessage) -> None:
        heard.append(str(message.text))
        if message.text == "a":
            raise ZeroDivisionError("no price\n" * 1000)

    consumer.message_listener = hear
    await send_texts(await connection.create_session(), TOPIC, "a", "b")
    await eventually(lambda: len(heard) == 4 and errors)
    assert heard == ["a", "a", "a", "b"]
    assert isinstance(errors[0], ListenerError)
    assert isinstance(errors[0].linked_exception, ZeroDivisionError)
    text = str(errors[0])
    assert text.startswith("a message listener raised ZeroDivisionError('no price")
    assert re.search(rf"\.\.\. for ID:\w+-1 from {TOPIC} 3 times, and does not get it again$", text)
    assert "\n" not in text
    assert len(text) < 300


class UnreadableError(Exception):
    """An exception that cannot be printed, as that of an object whose database is closed."""

    def __repr__(self) -> str:
        raise LookupError


@pytest.mark.parametrize("mode", [AUTO, CLIENT])
async def test_a7_an_exception_that_cannot_be_printed_stops_no_listener(api: Api, mode: int) -> None:
    connection = await api.connect(redeliveries_max=0)
    errors: list[Exception] = []

    def hear_of(error: Exception) -> None:
        errors.append(error)
        raise UnreadableError

    connection.exception_listener = hear_of
    consumer = await (await connection.create_session(mode)).create_consumer(TOPIC)

    def hear(_: TextMessage) -> None:
        raise UnreadableError

    consumer.message_listener = hear
    await send_texts(await connection.create_session(), TOPIC, "a", "b")
    await eventually(lambda: len(errors) == 2)
    assert all("raised <UnreadableError> for ID:" in str(error) for error in errors)


@pytest.mark.parametrize("mode", [CLIENT, TRANSACTED])
async def test_a7_other_modes_continue_with_the_next_message(api: Api, mode: int) -> None:
    connection = await api.connect()
    errors: list[Exception] = []
    connection.exception_listener = errors.append
    session = await connection.create_session(mode)
    consumer = await session.create_consumer(TOPIC)
    heard: list[str] = []

    def hear(message: TextMessage) -> None:
        heard.append(str(message.text))
        raise ZeroDivisionError

    consumer.message_listener = hear
    await send_texts(await connection.create_session(), TOPIC, "a", "b")
    await eventually(lambda: len(errors) == 2)
    assert heard == ["a", "b"]
    expected = rf"a message listener raised ZeroDivisionError\(\) for ID:\w+-{{}} from {TOPIC}"
    assert all(re.fullmatch(expected.format(number), str(error)) for number, error in enumerate(errors, 1))


@pytest.mark.parametrize("mode", [AUTO, DUPS_OK])
@pytest.mark.parametrize("sent", [TextMessage("a"), StreamMessage(), Message()], ids=["text", "stream", "none"])
async def test_a8_a_body_of_another_type_stays_for_the_next_call(api: Api, mode: int, sent: Message) -> None:
    context = await api.context(mode)
    consumer = await context.create_consumer(TOPIC)
    producer = await context.create_producer()
    await producer.send(TOPIC, sent)
    await producer.send(TOPIC, "next")
    for _ in range(2):
        with pytest.raises(MessageFormatError):
            await consumer.receive_body(bytes, WAIT_S)
    message = await consumer.receive(WAIT_S)
    assert type(message) is type(sent)
    assert (message.redelivered, message.delivery_count) == (False, 1)
    assert await consumer.receive_body(str, WAIT_S) == "next"
    assert await consumer.receive_body_no_wait(str) is None


@pytest.mark.parametrize("mode", [CLIENT, TRANSACTED])
async def test_a8_a_body_of_another_type_counts_as_delivered(api: Api, mode: int) -> None:
    context = await api.context(mode)
    consumer = await context.create_consumer(TOPIC)
    producer = await (await context.create_context()).create_producer()
    for body in ("a", b"b"):
        await producer.send(TOPIC, body)
    with pytest.raises(MessageFormatError):
        await consumer.receive_body(bytes, WAIT_S)
    assert await consumer.receive_body(bytes, WAIT_S) == b"b"
    await (context.rollback() if mode == TRANSACTED else context.recover())
    again = await consumer.receive(WAIT_S)
    assert (again.text, again.redelivered) == ("a", True)


@pytest.mark.parametrize(("overflow", "kept"), [("drop_oldest", ["5", "6", "7"]), ("drop_newest", ["0", "1", "2"])])
async def test_a9_a_full_consumer_drops_messages_and_reports_it(api: Api, overflow: str, kept: list[str]) -> None:
    connection = await api.connect()
    errors: list[Exception] = []
    connection.exception_listener = errors.append
    session = await connection.create_session()
    consumer = await session.create_consumer(TOPIC, overflow=overflow, messages_max=3)
    other = await session.create_consumer(TOPIC)
    await send_texts(session, TOPIC, *map(str, range(8)))
    await eventually(lambda: errors)
    found = [await consumer.receive(WAIT_S) for _ in range(3)]
    assert [message.text for message in found] == kept
    await send_texts(session, TOPIC, "next")
    found.append(await consumer.receive(WAIT_S))
    flags = [message.property_exists("JMS_FJM2_Gap") for message in found]
    assert flags == [overflow == "drop_oldest", False, False, overflow == "drop_newest"]
    assert found[flags.index(True)].get_boolean_property("JMS_FJM2_Gap") is True
    assert found[flags.index(True)].get_string_property("JMS_FJM2_GapReason") == "dropped"
    assert await consumer.receive(0) is None
    assert len(await texts(other, 9)) == 9
    (error,) = errors
    assert isinstance(error, MessagesDroppedError)
    assert (error.count, error.destination) == (5, TOPIC)


async def test_a9_bytes_are_limited_too(api: Api) -> None:
    session = await (await api.connect()).create_session()
    consumer = await session.create_consumer(TOPIC, overflow="drop_newest", bytes_max=2500)
    producer = await session.create_producer(TOPIC)
    for _ in range(5):
        message = BytesMessage()
        message.write_bytes(bytes(1000))
        await producer.send(message)
    assert await consumer.receive(WAIT_S) is not None
    assert await consumer.receive(WAIT_S) is not None
    assert await consumer.receive(QUIET_S) is None


async def test_a9_unacknowledged_messages_count(api: Api) -> None:
    session = await (await api.connect()).create_session(CLIENT)
    consumer = await session.create_consumer(TOPIC, overflow="drop_newest", messages_max=2)
    sender = await (await api.connect()).create_session()
    await send_texts(sender, TOPIC, "a", "b")
    await texts(consumer, 2)
    await send_texts(sender, TOPIC, "dropped")
    assert await consumer.receive(QUIET_S) is None
    await session.recover()
    await consumer.receive(WAIT_S)
    await api.acknowledge(await consumer.receive(WAIT_S))
    await send_texts(sender, TOPIC, "c")
    assert await texts(consumer, 1) == ["c"]


async def test_a9_a_consumer_that_blocks_loses_nothing(api: Api) -> None:
    connection = await api.connect()
    errors: list[Exception] = []
    connection.exception_listener = errors.append
    session = await connection.create_session()
    consumer = await session.create_consumer(TOPIC, overflow="block", messages_max=10)
    sending = asyncio.create_task(send_texts(session, TOPIC, *map(str, range(50))))
    await eventually(lambda: errors)
    assert isinstance(errors[0], ConsumerFullError)
    found = [(await consumer.receive(WAIT_S)).text for _ in range(50)]
    await sending
    assert found == [str(number) for number in range(50)]
    assert await consumer.receive(0) is None


@pytest.mark.parametrize("mode", [AUTO, CLIENT])
async def test_a10_after_the_close_a_message_can_be_read_but_not_acknowledged(api: Api, mode: int) -> None:
    session, consumer, sender = await pair(api, mode)
    await send_texts(sender, TOPIC, "a")
    message = await consumer.receive(WAIT_S)
    await session.close()
    with pytest.raises(IllegalStateError, match="closed"):
        await api.acknowledge(message)
    assert message.text == "a"


async def test_a10_closing_a_consumer_acknowledges_nothing(api: Api) -> None:
    session, consumer, sender = await pair(api, CLIENT)
    await send_texts(sender, TOPIC, "a")
    message = await consumer.receive(WAIT_S)
    await consumer.close()
    await api.acknowledge(message)
    await session.close()
    with pytest.raises(JMSError):
        await api.acknowledge(message)
