"""Waiting, bounded in time and told once: of senders for full consumers, and of callers for dead subscribers."""

import asyncio
import os
import signal
import socket
import sys
import time
from typing import Any

import pytest
from adapter import WAIT_S, Api, eventually, listener, send_texts

from fjm2.errors import ConfigError
from fjm2.jms import ConsumerFullError, MessagesDroppedError, SessionMode, TextMessage, Topic, UnconfirmedError

TOPIC = Topic("fjm2.full")
CLIENT = SessionMode.CLIENT_ACKNOWLEDGE
ACK_TIMEOUT_S = 2.0
AT_ONCE_S = 0.8
"""Time that is well below `ack_timeout_s`, also on a busy machine."""

SUBSCRIBER = """
import sys
from fjm2.jms import Topic
from fjm2.jms.blocking import ConnectionFactory

connection = ConnectionFactory(sys.argv[1], client_id=sys.argv[2]).create_connection()
consumer = connection.create_session().create_consumer(Topic("fjm2.full"))
connection.start()
consumer.ready()
print("ready", flush=True)
while consumer.receive(60) is not None:
    pass
"""


async def observed(api: Api, **options: Any) -> tuple[Any, list[Exception]]:
    connection = await api.connect(**options)
    errors: list[Exception] = []
    connection.exception_listener = errors.append
    return connection, errors


def of_kind(errors: list[Exception], kind: type[Exception]) -> list[Any]:
    return [error for error in errors if isinstance(error, kind)]


async def received(consumer: Any, count: int) -> None:
    """Wait until a consumer has got this many messages, taken or not."""
    deadline = time.monotonic() + WAIT_S
    while (await consumer.statistics()).messages_received < count:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("where", ["factory", "consumer"])
async def test_a11_a_consumer_that_is_never_read_holds_senders_up_for_block_s_at_most(api: Api, where: str) -> None:
    bounds: dict[str, Any] = {"messages_max": 10, "block_s": "300ms"}
    connection, errors = await observed(api, **(bounds if where == "factory" else {}))
    session = await connection.create_session()
    consumer = await session.create_consumer(TOPIC, **(bounds if where == "consumer" else {}))
    other = await session.create_consumer(TOPIC, messages_max=1000, block_s=60)
    sender = await connection.create_session()
    began = time.monotonic()
    await send_texts(sender, TOPIC, *map(str, range(100)))
    for number in range(100):
        assert (await other.receive(WAIT_S)).text == str(number)
    assert 0.25 <= time.monotonic() - began < 5.0
    await eventually(lambda: sum(error.count for error in of_kind(errors, MessagesDroppedError)) == 90)
    (full,) = of_kind(errors, ConsumerFullError)
    assert (full.is_let_go, full.block_s, full.taken, full.destination) == (True, 0.3, 0, TOPIC)
    assert not (await consumer.statistics()).is_full
    found = [await consumer.receive(WAIT_S) for _ in range(10)]
    assert [message.text for message in found] == [str(number) for number in range(90, 100)]
    assert [message.property_exists("JMS_FJM2_Gap") for message in found] == [True, *[False] * 9]
    statistics = await connection.statistics()
    assert (statistics.messages_dropped, statistics.bus.consumers_let_go) == (90, 1)


async def test_a11_once_it_is_read_it_makes_senders_wait_again(api: Api) -> None:
    connection, errors = await observed(api)
    session = await connection.create_session()
    consumer = await session.create_consumer(TOPIC, messages_max=10, block_s=0.2)
    sender = await connection.create_session()
    await send_texts(sender, TOPIC, *map(str, range(50)))
    await eventually(lambda: of_kind(errors, ConsumerFullError))
    dropped = 40
    await eventually(lambda: sum(error.count for error in of_kind(errors, MessagesDroppedError)) == dropped)
    sending = asyncio.create_task(send_texts(sender, TOPIC, *map(str, range(50, 150))))
    found = []
    while "149" not in found:
        found.append((await consumer.receive(WAIT_S)).text)
        await asyncio.sleep(0.01)
    await sending
    assert found[-100:] == [str(number) for number in range(50, 150)]
    assert (await consumer.statistics()).messages_dropped == dropped


async def test_a11_a_consumer_that_keeps_taking_messages_is_never_cut_off(api: Api) -> None:
    connection, errors = await observed(api)
    session = await connection.create_session()
    taken: list[str] = []

    async def take(message: Any) -> None:
        await asyncio.sleep(0.05)
        taken.append(message.text)

    consumer = await session.create_consumer(TOPIC, messages_max=20, block_s=0.5)
    consumer.message_listener = listener(api, take)
    await send_texts(await connection.create_session(), TOPIC, *map(str, range(60)))
    await eventually(lambda: len(taken) == 60)
    assert taken == [str(number) for number in range(60)]
    assert [error for error in of_kind(errors, ConsumerFullError) if error.is_let_go] == []


async def test_a11_acknowledging_counts_as_taking(api: Api) -> None:
    connection, errors = await observed(api)
    session = await connection.create_session(CLIENT)
    consumer = await session.create_consumer(TOPIC, messages_max=20, block_s=0.5)
    sending = asyncio.create_task(send_texts(await connection.create_session(), TOPIC, *map(str, range(60))))
    for number in range(60):
        message = await consumer.receive(WAIT_S)
        assert message.text == str(number)
        await asyncio.sleep(0.02)
        await api.acknowledge(message)
    await sending
    assert of_kind(errors, MessagesDroppedError) == []


async def test_a11_it_is_reported_once_with_all_that_is_needed_to_find_it(api: Api) -> None:
    connection, errors = await observed(api, client_id="desk-7")
    await connection.create_session()
    session = await connection.create_session()
    consumer = await session.create_consumer(TOPIC, "number >= 0", messages_max=5)
    sender = await connection.create_session()
    producer = await sender.create_producer(TOPIC)

    async def send() -> None:
        for number in range(7):
            message = TextMessage(f"{number}")
            message.set_int_property("number", number)
            await producer.send(message)

    sending = asyncio.create_task(send())
    began = time.monotonic()
    await eventually(lambda: errors)
    assert 0.9 <= time.monotonic() - began < 5.0
    (full,) = errors
    assert isinstance(full, ConsumerFullError)
    assert (full.destination, full.selector, full.session, full.count) == (TOPIC, "number >= 0", 2, 6)
    assert (full.taken, full.is_let_go, full.block_s) == (0, False, 60.0)
    for part in ("topic://fjm2.full", "'number >= 0'", "session 2", "'desk-7'", f"pid {os.getpid()}", "overflow="):
        assert part in str(full)
    assert socket.gethostname() in full.program
    await asyncio.sleep(1.2)
    assert errors == [full]
    await consumer.close()
    await sending


async def test_a11_a_slow_one_is_told_apart_from_one_that_is_not_read(api: Api) -> None:
    connection, errors = await observed(api)
    session = await connection.create_session()
    consumer = await session.create_consumer(TOPIC, messages_max=100)
    sending = asyncio.create_task(send_texts(await connection.create_session(), TOPIC, *map(str, range(103))))
    for _ in range(15):
        await consumer.receive(WAIT_S)
        await asyncio.sleep(0.1)
    await sending
    (full,) = of_kind(errors, ConsumerFullError)
    assert 5 <= full.taken <= 15
    assert "faster" in str(full)


@pytest.mark.parametrize("what", ["consumer", "session", "connection"])
async def test_a11_closing_a_full_consumer_lets_the_others_go_on_at_once(api: Api, what: str) -> None:
    sending, _ = await observed(api)
    holding, _ = await observed(api)
    session = await holding.create_session()
    consumer = await session.create_consumer(TOPIC, messages_max=5)
    let_end = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def hang(_: Any) -> None:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(let_end.wait(), loop))

    consumer.message_listener = listener(api, hang)
    other = await (await sending.create_session()).create_consumer(TOPIC, messages_max=1000)
    began = time.monotonic()
    sends = asyncio.create_task(send_texts(await sending.create_session(), TOPIC, *map(str, range(20))))
    try:
        await received(other, 6)
        await asyncio.sleep(0.3)
        assert (await other.statistics()).messages_received < 20
        closing = asyncio.create_task({"consumer": consumer, "session": session, "connection": holding}[what].close())
        await received(other, 20)
        assert time.monotonic() - began < 2.0
        assert not closing.done()
    finally:
        let_end.set()
    await asyncio.gather(sends, closing)


async def test_a11_a_temporary_queue_is_bounded_in_time_too(api: Api) -> None:
    connection, errors = await observed(api, messages_max=5, block_s=0.2)
    session = await connection.create_session()
    queue = await session.create_temporary_queue()
    await send_texts(await connection.create_session(), queue, *map(str, range(20)))
    await eventually(lambda: of_kind(errors, ConsumerFullError))
    (full,) = of_kind(errors, ConsumerFullError)
    assert (full.is_let_go, full.session) == (True, None)
    consumer = await session.create_consumer(queue)
    assert (await consumer.receive(WAIT_S)).text == "15"


@pytest.mark.parametrize("block_s", [-1, float("nan"), "-1s", "soon", "5 parsecs"])
async def test_a11_wrong_times_are_refused(api: Api, block_s: Any) -> None:
    with pytest.raises(ConfigError, match="block_s="):
        api.factory(block_s=block_s)
    session = await (await api.connect()).create_session()
    with pytest.raises(ConfigError, match="block_s="):
        await session.create_consumer(TOPIC, block_s=block_s)


@pytest.mark.parametrize(("block_s", "error"), [(0, True), ("0s", True), ("inf", False), (float("inf"), False)])
async def test_a11_0_holds_nobody_up_and_infinity_for_ever(api: Api, block_s: Any, error: bool) -> None:
    connection, errors = await observed(api)
    context = await api.context(block_s=block_s)
    consumer = await context.create_consumer(TOPIC, messages_max=5, block_s=block_s)
    sending = asyncio.create_task(send_texts(await connection.create_session(), TOPIC, *map(str, range(12))))
    if error:
        await received(consumer, 12)
        assert (await consumer.receive(WAIT_S)).text == "7"
    else:
        await asyncio.sleep(0.5)
        assert (await consumer.statistics()).messages_received < 12
        assert [(await consumer.receive(WAIT_S)).text for _ in range(12)] == [str(number) for number in range(12)]
    await sending
    assert errors == []


class Subscriber:
    """A subscriber in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, uri: str, client_id: str) -> "Subscriber":
        command = [sys.executable, "-c", SUBSCRIBER, uri, client_id]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        return cls(process)

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


async def timed(call: Any) -> tuple[float, UnconfirmedError]:
    began = time.monotonic()
    with pytest.raises(UnconfirmedError) as raised:
        await call
    return time.monotonic() - began, raised.value


def unconfirmed(errors: list[Exception]) -> list[UnconfirmedError]:
    return [error for error in errors if isinstance(error, UnconfirmedError)]


class Sending:
    """A connection with a session and a transacted one, and the errors of its listener."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.errors: list[Exception] = []

    async def open(self) -> "Sending":
        self.connection = await self.api.connect(ack_timeout_s=ACK_TIMEOUT_S)
        self.connection.exception_listener = self.errors.append
        self.producer = await (await self.connection.create_session()).create_producer(TOPIC)
        self.transacted = await self.connection.create_session(SessionMode.SESSION_TRANSACTED)
        await self.connection.ready()
        await self.confirm()
        return self

    async def confirm(self) -> None:
        future = self.producer.inner.send_async(TextMessage("asked"))
        await (asyncio.wrap_future(future) if self.api.is_blocking else future)

    async def commit(self) -> None:
        await send_texts(self.transacted, TOPIC, "in a transaction")
        await self.transacted.commit()


@pytest.mark.calm
async def test_m2_a_dead_subscriber_delays_one_wait_and_is_reported_once_with_a_summary(api: Api) -> None:
    subscriber, living = [await Subscriber.start(api.uri, client_id) for client_id in ("desk-7", "desk-8")]
    try:
        sending = await Sending(api).open()
        await subscriber.kill()
        waited_s, error = await timed(sending.confirm())
        assert AT_ONCE_S < waited_s < ACK_TIMEOUT_S + 2.0
        for call in (sending.confirm, sending.commit) * 2:
            waited_s, error = await timed(call())
            assert waited_s < AT_ONCE_S
            assert len(error.unacknowledged_nodes) == 1
            assert "'desk-7' at 127.0.0.1" in str(error)
            assert "nobody waits" in str(error)
        assert unconfirmed(sending.errors) == []  # callers were told
        for _ in range(2):  # on a busy machine, the first report may come after all that was sent before it
            for _ in range(20):
                await sending.producer.send(TextMessage("nobody asks"))
                await asyncio.sleep(0.02)
            await eventually(lambda: unconfirmed(sending.errors))
        await sending.connection.close()
        first, summary = unconfirmed(sending.errors)
        assert (first.messages, first.subscribers) == (None, ("'desk-7' at 127.0.0.1",))
        assert summary.messages is not None
        assert 5 <= summary.messages <= 40
        assert "this connection is closed" in str(summary)
    finally:
        await asyncio.gather(subscriber.kill(), living.kill())


@pytest.mark.calm
async def test_m2_one_that_comes_back_is_asked_again(api: Api) -> None:
    subscriber = await Subscriber.start(api.uri, "desk-7")
    try:
        sending = await Sending(api).open()
        subscriber.process.send_signal(signal.SIGSTOP)
        await sending.producer.send(TextMessage("nobody asks"))
        await eventually(lambda: unconfirmed(sending.errors))
        waited_s, _ = await timed(sending.confirm())
        assert waited_s < AT_ONCE_S
        assert len(unconfirmed(sending.errors)) == 1
        subscriber.process.send_signal(signal.SIGCONT)
        await eventually(lambda: len(unconfirmed(sending.errors)) == 2)
        summary = unconfirmed(sending.errors)[1]
        assert "it confirms again" in str(summary)
        assert summary.messages == 2
        assert summary.since is not None
        assert summary.until is not None
        assert 1.0 < summary.until - summary.since < WAIT_S
        await sending.confirm()
        await sending.commit()
        assert len(unconfirmed(sending.errors)) == 2
        assert (await sending.connection.statistics()).bus.outages == 1
    finally:
        await subscriber.kill()


@pytest.mark.calm
async def test_m2_messages_of_a_batch_are_counted_one_by_one(api: Api) -> None:
    subscriber = await Subscriber.start(api.uri, "desk-7")
    try:
        sending = await Sending(api).open()
        subscriber.process.send_signal(signal.SIGSTOP)
        await sending.producer.send_many(["nobody asks"] * 30)
        await eventually(lambda: unconfirmed(sending.errors))
        subscriber.process.send_signal(signal.SIGCONT)
        await eventually(lambda: len(unconfirmed(sending.errors)) == 2)
        assert unconfirmed(sending.errors)[1].messages == 30
        await sending.confirm()
    finally:
        await subscriber.kill()
