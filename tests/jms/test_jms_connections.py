"""Tests of connections, sessions, consumers, and which calls are allowed when.

Their names begin with the number of the case, C1 to C16.
"""

import asyncio
import threading
import time
from typing import Any

import pytest
from adapter import QUIET_S, WAIT_S, Api, Blocking, eventually, listener, send_texts, texts

from fjm2.jms import (
    IllegalStateError,
    InvalidClientIDError,
    InvalidDestinationError,
    JMSError,
    SessionMode,
    TextMessage,
    Topic,
)

TOPIC, OTHER = Topic("fjm2.connections"), Topic("fjm2.connections.other")
AUTO, TRANSACTED = SessionMode.AUTO_ACKNOWLEDGE, SessionMode.SESSION_TRANSACTED


class Slow:
    """A slow listener. It records the messages that it has begun and finished handling."""

    def __init__(self, api: Api, seconds: float = 0.05) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.most_at_once = 0
        self.seconds = seconds
        self.hear = listener(api, self._hear)

    async def _hear(self, message: TextMessage) -> None:
        self.begun.append(str(message.text))
        self.most_at_once = max(self.most_at_once, len(self.begun) - len(self.ended))
        await asyncio.sleep(self.seconds)
        self.ended.append(str(message.text))


async def test_c1_a_new_connection_is_stopped_and_buffers(api: Api) -> None:
    connection = await api.connect(is_started=False)
    session = await connection.create_session()
    consumer = await session.create_consumer(TOPIC)
    await send_texts(session, TOPIC, "a")
    assert await consumer.receive(QUIET_S) is None
    await connection.start()
    await connection.start()
    assert await texts(consumer, 1) == ["a"]


async def test_c1_a_context_starts_with_its_first_consumer(api: Api) -> None:
    context = await api.context()
    assert context.auto_start is True
    consumer = await context.create_consumer(TOPIC)
    producer = await context.create_producer()
    await producer.send(TOPIC, "a")
    assert await texts(consumer, 1) == ["a"]
    other = await api.context()
    other.auto_start = False
    waiting = await other.create_consumer(TOPIC)
    await producer.send(TOPIC, "b")
    assert await waiting.receive(QUIET_S) is None
    await other.start()
    assert await texts(waiting, 1) == ["b"]


async def test_c2_stop_waits_for_the_listener_and_ends_deliveries(api: Api) -> None:
    connection = await api.connect()
    session = await connection.create_session()
    consumer = await session.create_consumer(TOPIC)
    slow = Slow(api)
    consumer.message_listener = slow.hear
    await send_texts(await connection.create_session(), TOPIC, "a", "b", "c")
    await eventually(lambda: slow.begun)
    await connection.stop()
    assert slow.begun == slow.ended
    count = len(slow.begun)
    assert 1 <= count < 3
    await connection.stop()
    await asyncio.sleep(QUIET_S)
    assert len(slow.begun) == count
    await connection.start()
    await eventually(lambda: slow.ended == ["a", "b", "c"])


async def test_c2_receives_stay_blocked_and_their_timeouts_keep_running(api: Api) -> None:
    connection = await api.connect()
    session = await connection.create_session()
    consumer = await session.create_consumer(TOPIC)
    await connection.stop()
    begin = time.monotonic()
    assert await consumer.receive(0.1) is None
    assert time.monotonic() - begin >= 0.09
    waiting = asyncio.create_task(consumer.receive(WAIT_S))
    await send_texts(await connection.create_session(), TOPIC, "a")
    await asyncio.sleep(QUIET_S)
    assert not waiting.done()
    await connection.start()
    assert (await waiting).text == "a"


@pytest.mark.parametrize("call", ["stop", "close", "session"])
async def test_c2_c3_a_listener_cannot_stop_or_close_what_it_belongs_to(api: Api, call: str) -> None:
    connection = await api.connect()
    session = await connection.create_session()
    consumer = await session.create_consumer(TOPIC)
    raised: list[Exception] = []
    target = session.inner.close if call == "session" else getattr(connection.inner, call)

    async def hear(_: object) -> None:
        try:
            result = target()
            if result is not None:
                await result
        except IllegalStateError as error:
            raised.append(error)

    consumer.message_listener = listener(api, hear)
    await send_texts(await connection.create_session(), TOPIC, "a", "b")
    await eventually(lambda: len(raised) == 2)


async def test_c3_close_waits_for_listeners_which_keep_full_service(api: Api) -> None:
    connection = await api.connect()
    session = await connection.create_session(TRANSACTED)
    consumer = await session.create_consumer(TOPIC)
    watching = await (await api.connect()).create_session()
    watcher = await watching.create_consumer(OTHER)
    begun: list[object] = []

    async def hear(message: TextMessage) -> None:
        begun.append(message)
        await asyncio.sleep(0.1)
        await send_texts(session, OTHER, "from the listener")
        await session.commit()

    consumer.message_listener = listener(api, hear)
    await send_texts(watching, TOPIC, "a")
    await eventually(lambda: begun)
    await connection.close()
    assert await texts(watcher, 1) == ["from the listener"]


async def test_c3_close_ends_receives(api: Api) -> None:
    connection = await api.connect()
    consumer = await (await connection.create_session()).create_consumer(TOPIC)
    waiting = asyncio.create_task(consumer.receive(None))
    await asyncio.sleep(QUIET_S)
    await connection.close()
    assert await asyncio.wait_for(waiting, WAIT_S) is None


async def test_c3_everything_is_closed_with_the_connection(api: Api) -> None:
    connection = await api.connect()
    session = await connection.create_session()
    consumer, producer = await session.create_consumer(TOPIC), await session.create_producer(TOPIC)
    await connection.close()
    await connection.close()
    await session.close()
    await consumer.close()
    for call in (
        connection.create_session,
        connection.start,
        connection.stop,
        session.create_text_message,
        session.recover,
        consumer.receive,
    ):
        with pytest.raises(IllegalStateError, match="closed"):
            await call()
    for call in (session.create_producer, session.create_consumer):
        with pytest.raises(IllegalStateError, match="closed"):
            await call(TOPIC)
    with pytest.raises(IllegalStateError, match="closed"):
        await producer.send(TextMessage("a"))
    with pytest.raises(IllegalStateError, match="closed"):
        _ = connection.meta_data


async def test_c4_closing_a_consumer_ends_its_receive_and_its_subscription(api: Api) -> None:
    session = await (await api.connect()).create_session()
    consumer = await session.create_consumer(TOPIC)
    waiting = asyncio.create_task(consumer.receive(None))
    await asyncio.sleep(QUIET_S)
    await consumer.close()
    assert await asyncio.wait_for(waiting, WAIT_S) is None
    await send_texts(session, TOPIC, "a")
    with pytest.raises(IllegalStateError):
        await consumer.receive(0)
    assert [message async for message in consumer] == []


async def test_c4_closing_a_consumer_waits_for_its_listener(api: Api) -> None:
    session = await (await api.connect()).create_session()
    consumer = await session.create_consumer(TOPIC)
    slow = Slow(api)
    consumer.message_listener = slow.hear
    await send_texts(await (await api.connect()).create_session(), TOPIC, "a", "b", "c", "d")
    await eventually(lambda: slow.begun)
    await consumer.close()
    assert slow.begun == slow.ended
    count = len(slow.begun)
    await asyncio.sleep(QUIET_S)
    assert len(slow.begun) == count < 4


async def test_c4_a_listener_may_close_its_own_consumer(api: Api) -> None:
    session = await (await api.connect()).create_session()
    consumer = await session.create_consumer(TOPIC)
    heard: list[str] = []

    async def hear(message: TextMessage) -> None:
        await consumer.close()
        heard.append(str(message.text))

    consumer.message_listener = listener(api, hear)
    await send_texts(await (await api.connect()).create_session(), TOPIC, "a", "b")
    await eventually(lambda: heard)
    await asyncio.sleep(QUIET_S)
    assert heard == ["a"]


async def test_c4_messages_of_a_closed_consumer_can_still_be_acknowledged(api: Api) -> None:
    session = await (await api.connect()).create_session(SessionMode.CLIENT_ACKNOWLEDGE)
    one, two = await session.create_consumer(TOPIC), await session.create_consumer(TOPIC)
    await send_texts(await (await api.connect()).create_session(), TOPIC, "a")
    message = await one.receive(WAIT_S)
    await two.receive(WAIT_S)
    await one.close()
    await api.acknowledge(message)
    await session.recover()
    assert await two.receive(QUIET_S) is None


async def test_c5_a_client_id_is_set_once_before_anything_else(api: Api) -> None:
    connection = await api.connect(is_started=False)
    assert connection.client_id is None
    for nothing in (None, ""):
        with pytest.raises(InvalidClientIDError):
            connection.client_id = nothing
    connection.client_id = "mine"
    assert connection.client_id == "mine"
    with pytest.raises(IllegalStateError):
        connection.client_id = "other"
    other = await api.connect(is_started=False)
    with pytest.raises(InvalidClientIDError, match="in use"):
        other.client_id = "mine"
    await connection.close()
    other.client_id = "mine"
    used = await api.connect(is_started=False)
    await used.create_session()
    with pytest.raises(IllegalStateError):
        used.client_id = "late"


async def test_c5_a_client_id_of_the_factory_stays(api: Api) -> None:
    connection = await api.connect(is_started=False, client_id="factory's")
    assert connection.client_id == "factory's"
    with pytest.raises(IllegalStateError):
        connection.client_id = "other"
    with pytest.raises(InvalidClientIDError):
        await api.connect(client_id="factory's")
    context = await api.context()
    context.client_id = "context's"
    assert context.client_id == "context's"


async def test_c6_the_exception_listener_gets_one_problem_at_a_time(api: Api) -> None:
    connection = await api.connect()
    session = await connection.create_session(SessionMode.CLIENT_ACKNOWLEDGE)
    consumer = await session.create_consumer(TOPIC)
    begun: list[Exception] = []
    ended: list[Exception] = []

    async def hear(error: Exception) -> None:
        assert len(begun) == len(ended)
        begun.append(error)
        await asyncio.sleep(0.01)
        ended.append(error)

    connection.exception_listener = hear_errors = listener(api, hear)
    assert connection.exception_listener is hear_errors

    def fail(message: TextMessage) -> None:
        raise ValueError(message.text)

    consumer.message_listener = fail
    await send_texts(await connection.create_session(), TOPIC, "a", "b", "c")
    await eventually(lambda: len(ended) == 3)
    assert [str(error.linked_exception) for error in ended if isinstance(error, JMSError)] == ["a", "b", "c"]


async def test_c7_meta_data(api: Api) -> None:
    meta_data = (await api.connect()).meta_data
    assert (meta_data.jms_version, meta_data.jms_major_version, meta_data.jms_minor_version) == ("3.1", 3, 1)
    assert meta_data.jms_provider_name == "FJM2"
    major, minor = meta_data.provider_version.split(".")[:2]
    assert (meta_data.provider_major_version, meta_data.provider_minor_version) == (int(major), int(minor))
    assert {"JMSXGroupID", "JMSXGroupSeq", "JMSXDeliveryCount"} <= set(meta_data.jmsx_property_names)
    assert "queues" in meta_data.not_offered
    assert "durable subscriptions" not in meta_data.not_offered


async def test_c8_a_session_that_listens_belongs_to_its_listeners(api: Api) -> None:
    connection = await api.connect()
    session = await connection.create_session(TRANSACTED)
    consumer = await session.create_consumer(TOPIC)
    heard: list[str] = []

    async def hear(message: TextMessage) -> None:
        await session.commit()
        heard.append(str(message.text))

    consumer.message_listener = listener(api, hear)
    await send_texts(await connection.create_session(), TOPIC, "a")
    await eventually(lambda: heard)
    for call in (session.commit, session.rollback, consumer.receive_no_wait):
        with pytest.raises(IllegalStateError, match="listener"):
            await call()


async def test_c8_a_connection_belongs_to_its_event_loop_or_to_all_threads(api: Api) -> None:
    connection = await api.connect()
    session = await connection.create_session()
    consumer = await session.create_consumer(TOPIC)
    raised: list[Exception] = []

    def use() -> None:
        try:
            other = connection.inner.create_session()
            if api.is_blocking:
                other.create_producer(TOPIC).send(TextMessage("a"))
        except IllegalStateError as error:
            raised.append(error)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    if api.is_blocking:
        assert await texts(consumer, 4) == ["a"] * 4
    else:
        assert len(raised) == 4


async def test_senders_can_ask_for_the_number_of_subscribers(api: Api) -> None:
    listening = await api.connect(inactivity_s=50)  # a different setting, so another bus and another node
    await (await listening.create_session()).create_consumer(TOPIC)
    sending = await api.connect()
    await sending.ready()
    assert await sending.subscribers(TOPIC) == 1
    assert await sending.subscribers(OTHER) == 0
    context = await api.context()
    await context.create_consumer(TOPIC)
    await context.ready()
    assert await context.subscribers(TOPIC) == 2
    with pytest.raises(InvalidDestinationError):
        await context.subscribers("connections")


async def test_objects_have_informative_representations(api: Api) -> None:
    connection = await api.connect(client_id="desk-7")
    session = await connection.create_session()
    producer, consumer = await session.create_producer(TOPIC), await session.create_consumer(TOPIC)
    inner = [connection.inner, session.inner, producer.inner, consumer.inner]
    told = [repr(one) for one in inner]
    assert told[0].startswith("<Connection 'desk-7' to fjm2://239.192.57.40:")
    assert told[0].endswith(", open>")
    assert "rate" not in told[0]  # only what differs from the defaults of a bus
    assert told[1:] == [
        "<Session AUTO_ACKNOWLEDGE of desk-7, 1 consumer>",
        f"<MessageProducer to {TOPIC}>",
        f"<MessageConsumer of {TOPIC}>",
    ]
    producer.inner.priority, producer.inner.time_to_live = 7, 5000
    await producer.send(await session.create_text_message("one"))
    assert repr(producer.inner) == f"<MessageProducer to {TOPIC}, 1 message sent, priority 7, time to live 5s>"
    await eventually(lambda: repr(consumer.inner) == f"<MessageConsumer of {TOPIC}, 1 message waiting>")
    await connection.close()
    assert [repr(one) for one in inner[:2]] == [
        told[0].replace("open>", "closed>"),
        "<Session AUTO_ACKNOWLEDGE of desk-7, closed>",
    ]
    assert repr(consumer.inner) == f"<MessageConsumer of {TOPIC}, 1 message waiting, closed>"


@pytest.mark.parametrize("api", [Blocking], indirect=True)  # asyncio needs no threads
async def test_threads_are_named_after_their_connection_and_session(api: Api) -> None:
    connection = await api.connect(client_id="desk-7")
    heard: dict[str, str] = {}
    for name in ("first", "second"):
        consumer = await (await connection.create_session()).create_consumer(Topic(name))
        consumer.message_listener = lambda _, name=name: heard.update({name: threading.current_thread().name})
        await send_texts(await connection.create_session(), Topic(name), "hello")
    await eventually(lambda: len(heard) == 2)
    assert heard == {"first": "fjm2-desk-7-session-1-listeners", "second": "fjm2-desk-7-session-3-listeners"}


async def test_c8_threads_that_share_a_connection_send_in_their_own_order(api: Api) -> None:
    connection = await api.connect()
    consumer = await (await connection.create_session()).create_consumer(TOPIC)
    producers = [await (await connection.create_session()).create_producer(TOPIC) for _ in range(3)]

    async def send(name: int) -> None:
        for number in range(100):
            await producers[name].send(TextMessage(f"{name} {number}"))

    await asyncio.gather(*(send(name) for name in range(3)))
    found = [(await consumer.receive(WAIT_S)).text.split() for _ in range(300)]
    for name in range(3):
        assert [int(number) for sender, number in found if int(sender) == name] == list(range(100))


async def test_c9_one_listener_at_a_time_over_all_consumers_of_a_session(api: Api) -> None:
    connection = await api.connect()
    session = await connection.create_session()
    slow = Slow(api, 0.01)
    for topic in (TOPIC, OTHER):
        (await session.create_consumer(topic)).message_listener = slow.hear
    sender = await connection.create_session()
    for _ in range(4):
        await send_texts(sender, TOPIC, "a")
        await send_texts(sender, OTHER, "b")
    await eventually(lambda: len(slow.ended) == 8)
    assert slow.most_at_once == 1
    assert sorted(slow.ended) == ["a"] * 4 + ["b"] * 4


async def test_c9_listeners_of_different_sessions_run_concurrently(api: Api) -> None:
    connection = await api.connect()
    slow = Slow(api, 0.1)
    for _ in range(2):
        session = await connection.create_session()
        (await session.create_consumer(TOPIC)).message_listener = slow.hear
    await send_texts(await connection.create_session(), TOPIC, "a")
    await eventually(lambda: len(slow.ended) == 2)
    assert slow.most_at_once == 2


async def test_c10_receive_is_refused_beside_a_listener_or_another_receive(api: Api) -> None:
    session = await (await api.connect()).create_session()
    one, two = await session.create_consumer(TOPIC), await session.create_consumer(OTHER)
    waiting = asyncio.create_task(one.receive(0.3))
    await asyncio.sleep(QUIET_S)
    # With asyncio, different consumers may receive at a time: see test_jms_consumers.py.
    for consumer in (one, two) if api.is_blocking else (one,):
        with pytest.raises(IllegalStateError, match="another receive"):
            await consumer.receive(0)
    with pytest.raises(IllegalStateError):
        two.message_listener = print
    assert await waiting is None
    two.message_listener = print
    with pytest.raises(IllegalStateError, match="listener"):
        await one.receive(0)
    two.message_listener = None
    assert await one.receive(0) is None


async def test_c11_a_receive_that_ended_lost_nothing(api: Api) -> None:
    session = await (await api.connect()).create_session()
    consumer = await session.create_consumer(TOPIC)
    sender = await (await api.connect()).create_session()
    assert await consumer.receive(0.02) is None
    await send_texts(sender, TOPIC, "a")
    found = await consumer.receive(WAIT_S)
    assert (found.text, found.redelivered) == ("a", False)
    if not api.is_blocking:
        for delay in (0, 0.001, 0.01):
            waiting = asyncio.create_task(consumer.receive())
            await asyncio.sleep(0.01)
            asyncio.get_running_loop().call_later(delay, waiting.cancel)
            await send_texts(sender, TOPIC, "b")
            await asyncio.wait([waiting])
            message = waiting.result() if not waiting.cancelled() else await consumer.receive(WAIT_S)
            assert (message.text, message.redelivered) == ("b", False)


async def test_c12_modes_of_sessions(api: Api) -> None:
    connection = await api.connect()
    assert (await connection.create_session()).acknowledge_mode is AUTO
    for mode in SessionMode:
        session = await connection.create_session(mode)
        assert session.acknowledge_mode is mode
        assert session.transacted is (mode is TRANSACTED)
    session = await connection.create_session(SessionMode.CLIENT_ACKNOWLEDGE, transacted=True)
    assert session.acknowledge_mode is TRANSACTED
    assert (await connection.create_session(3)).acknowledge_mode is SessionMode.DUPS_OK_ACKNOWLEDGE
    for unknown in (4, -1, "AUTO"):
        with pytest.raises(JMSError, match="mode"):
            await connection.create_session(unknown)


@pytest.mark.parametrize("flag", [False, True])
async def test_c12_a_bool_is_no_mode(api: Api, flag: bool) -> None:
    """Java's `createSession(false, ...)` begins with one. As an int, it would be a mode, and the opposite one."""
    connection, context = await api.connect(), await api.context()
    hint = f"^mode={flag}: expected a SessionMode; for a transacted session, pass transacted=True$"
    with pytest.raises(JMSError, match=hint):
        await connection.create_session(flag)
    with pytest.raises(JMSError, match=hint):
        await connection.create_session(flag, transacted=True)
    with pytest.raises(JMSError, match=r"^mode="):
        await context.create_context(flag)
    with pytest.raises(JMSError, match=r"^mode="):
        await api.context(flag)


async def test_c13_user_and_password_are_accepted_and_ignored(api: Api) -> None:
    connection = await api.call(api.factory().create_connection, "user", "secret")
    api.opened.append(connection)
    await connection.start()
    session = await connection.create_session()
    consumer = await session.create_consumer(TOPIC)
    await send_texts(session, TOPIC, "a")
    assert not (await consumer.receive(WAIT_S)).property_exists("JMSXUserID")


async def test_c14_contexts_share_a_connection_that_closes_with_the_last(api: Api) -> None:
    first = await api.context()
    second = await first.create_context(TRANSACTED)
    assert second.transacted
    assert second.session_mode is TRANSACTED
    await first.close()
    await first.close()
    consumer = await second.create_consumer(TOPIC)
    await (await second.create_producer()).send(TOPIC, "a")
    await second.commit()
    assert await texts(consumer, 1) == ["a"]
    await second.close()
    with pytest.raises(IllegalStateError):
        await first.create_context()
    with pytest.raises(IllegalStateError):
        await second.create_consumer(TOPIC)


async def test_c15_consumers_take_a_destination(api: Api) -> None:
    connection = await api.connect()
    session = await connection.create_session()
    for nothing in (None, "topic"):
        with pytest.raises(InvalidDestinationError):
            await session.create_consumer(nothing)
        with pytest.raises(InvalidDestinationError):
            await session.create_browser(nothing)
    with pytest.raises(InvalidDestinationError):
        await session.create_durable_consumer(None, "name")


async def test_c16_listeners_are_replaced_between_two_messages(api: Api) -> None:
    connection = await api.connect()
    session = await connection.create_session()
    consumer = await session.create_consumer(TOPIC)
    sender = await connection.create_session()
    first: list[str] = []
    second: list[str] = []

    def hear(message: TextMessage) -> None:
        first.append(str(message.text))

    def hear_too(message: TextMessage) -> None:
        second.append(str(message.text))

    consumer.message_listener = hear
    assert consumer.message_listener is hear
    await send_texts(sender, TOPIC, "a")
    await eventually(lambda: first)
    consumer.message_listener = hear_too
    await send_texts(sender, TOPIC, "b")
    await eventually(lambda: second)
    consumer.message_listener = None
    assert consumer.message_listener is None
    await send_texts(sender, TOPIC, "c")
    assert await texts(consumer, 1) == ["c"]
    assert (first, second) == (["a"], ["b"])


async def test_leaving_the_block_closes(api: Api) -> None:
    connection: Any
    async with await api.connect() as connection, await connection.create_session() as session:
        async with await session.create_consumer(TOPIC) as consumer, await session.create_producer(TOPIC) as producer:
            await producer.send(TextMessage("a"))
            assert await texts(consumer, 1) == ["a"]
        with pytest.raises(IllegalStateError):
            await producer.send(TextMessage("b"))
    with pytest.raises(IllegalStateError):
        await connection.create_session()
