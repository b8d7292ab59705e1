"""Tests that hostile messages and misbehaving programs do not disturb others."""

import asyncio
import gc
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from adapter import WAIT_S, eventually

from fjm2.jms import (
    BytesMessage,
    Connection,
    ConnectionFactory,
    DeliveryMode,
    Destination,
    FileMessage,
    IllegalStateError,
    InvalidDestinationError,
    JMSError,
    Message,
    MessageFormatError,
    ObjectMessage,
    Queue,
    SessionMode,
    TextMessage,
    Topic,
    TopicRequestor,
    blocking,
)
from fjm2.messages.frame import FrameWriter, Parts
from fjm2.messages.header import FRAME_BYTES, HEADER, PROPERTY_BYTES, SECTION_BYTES

TOPIC = Topic("fjm2.broken")
TRANSACTED = SessionMode.SESSION_TRANSACTED
PROMPTLY_S = 5.0


def uri(port: int) -> str:
    return f"fjm2://239.192.57.40:{port}?interface=127.0.0.1&ttl=0&grtt_s=1ms"


async def two_nodes(port: int) -> tuple[Connection, Connection]:
    """Return two connections on separate nodes: one to publish with, and a started one to subscribe with."""
    sending = await ConnectionFactory(uri(port)).create_connection()
    receiving = await ConnectionFactory(uri(port), dscp=8).create_connection()
    receiving.start()
    return sending, receiving


def malformed(
    message: Message,
    destination: Destination = TOPIC,
    properties: bytes = b"",
    sections: bytes = b"",
    body: bytes = b"",
) -> Parts:
    """Return a frame with the given parts, which may be invalid."""
    head, usual = FrameWriter(77).write(message, destination, 0, 4, round(time.time() * 1000))
    body = body or usual
    fields = list(HEADER.unpack_from(head))
    fields[PROPERTY_BYTES], fields[SECTION_BYTES] = len(properties), len(sections)
    rest = destination.encoded_name + properties + sections
    fields[FRAME_BYTES] = HEADER.size + len(rest) + len(body)
    return HEADER.pack(*fields) + rest, body


def publish(connection: Connection, parts: Parts, destination: Destination = TOPIC) -> None:
    """Publish a frame without checking it."""
    assert connection._core.endpoint is not None
    waiting = connection._core.endpoint.sending._publication.publish(destination, 4, parts)
    assert waiting is None


def section(tag: int, content: bytes) -> bytes:
    return struct.pack("!BI", tag, len(content)) + content


BAD_PROPERTIES = b"\xff\xff\xff"
BAD_CORRELATION = section(1, b"\xff")


async def after_a_gap(sending: Connection, receiving: Connection, parts: Parts) -> None:
    """Publish frames so that the receiver finds a gap in the stream just before the frame `parts`."""
    assert sending._core.endpoint is not None
    assert receiving._core.endpoint is not None
    publish(sending, FrameWriter(78).write(TextMessage("before"), TOPIC, 0, 4, 0))
    sender, router = sending._core.endpoint.bus.node_id, receiving._core.endpoint.bus.router
    await eventually(lambda: router.table.has_stream(sender))
    router.note_missed(sender)
    publish(sending, parts)
    publish(sending, FrameWriter(78).write(TextMessage("after"), TOPIC, 0, 4, 0))


async def test_a_malformed_message_behind_a_gap_ends_no_listener(port: int) -> None:
    sending, receiving = await two_nodes(port)
    session = receiving.create_session()
    consumer = session.create_consumer(TOPIC)
    heard: list[Any] = []
    consumer.message_listener = lambda message: heard.append(message.text)
    await consumer.ready()
    await after_a_gap(sending, receiving, malformed(TextMessage("odd"), properties=BAD_PROPERTIES))
    await eventually(lambda: heard[-1:] == ["after"])
    assert heard == ["before", "odd", "after"]
    await session.close()
    await receiving.close()
    await sending.close()


async def test_a_malformed_message_behind_a_gap_can_be_received(port: int) -> None:
    sending, receiving = await two_nodes(port)
    consumer = receiving.create_session().create_consumer(TOPIC)
    await consumer.ready()
    await after_a_gap(sending, receiving, malformed(TextMessage("odd"), properties=BAD_PROPERTIES))
    texts = []
    for _ in range(3):
        message = await consumer.receive(WAIT_S)
        assert isinstance(message, TextMessage)
        texts.append(message.text)
        if message.text == "odd":
            with pytest.raises(MessageFormatError):
                message.property_names()
    assert texts == ["before", "odd", "after"]
    await receiving.close()
    await sending.close()


async def test_unreadable_replies_are_skipped(port: int) -> None:
    connection = await ConnectionFactory(uri(port)).create_connection()
    connection.start()
    requests = connection.create_session().create_consumer(TOPIC)
    replier = connection.create_session()
    producer = replier.create_producer()

    def answer(request: Message) -> Any:
        assert request.reply_to is not None
        publish(connection, malformed(TextMessage("?"), request.reply_to, sections=BAD_CORRELATION), request.reply_to)
        reply = TextMessage("yes")
        reply.correlation_id = request.message_id
        return producer.send(reply, request.reply_to)

    requests.message_listener = answer
    async with TopicRequestor(connection.create_session(), TOPIC) as requestor:
        reply = await requestor.request(TextMessage("?"), WAIT_S)
        assert isinstance(reply, TextMessage)
        assert reply.text == "yes"
    errors: list[Exception] = []
    async with ConnectionFactory(uri(port)).create_context() as context:
        context.exception_listener = errors.append
        reply = await context.request(TOPIC, TextMessage("?"), WAIT_S)
        assert isinstance(reply, TextMessage)
        assert reply.text == "yes"
    assert errors == []
    await connection.close()


async def test_a_listener_fails_when_the_task_it_awaits_is_cancelled(port: int) -> None:
    connection = await ConnectionFactory(uri(port)).create_connection()
    connection.start()
    for mode in (SessionMode.AUTO_ACKNOWLEDGE, SessionMode.CLIENT_ACKNOWLEDGE):
        session = connection.create_session(mode)
        consumer = session.create_consumer(TOPIC)
        heard: list[tuple[Any, int]] = []

        async def hear(message: TextMessage, heard: list[tuple[Any, int]] = heard) -> None:
            heard.append((message.text, message.delivery_count))
            if len(heard) == 1:
                cancelled = asyncio.get_running_loop().create_future()
                cancelled.cancel()
                await cancelled

        consumer.message_listener = hear
        producer = connection.create_session().create_producer(TOPIC)
        for text in "ab":
            await producer.send(TextMessage(text))
        again = [("a", 2)] if mode is SessionMode.AUTO_ACKNOWLEDGE else []
        await eventually(lambda heard=heard, again=again: heard == [("a", 1), *again, ("b", 1)])
        await session.close()
    await connection.close()


async def test_a_completion_listener_that_is_cancelled_does_not_stop_the_next(port: int) -> None:
    completed: list[Any] = []

    class Completion:
        def on_completion(self, message: TextMessage) -> None:
            completed.append(message.text)
            raise asyncio.CancelledError

        def on_exception(self, _: Message, error: Exception) -> None:
            raise AssertionError(error)

    async with ConnectionFactory(uri(port)).create_connection() as connection:
        producer = connection.create_session().create_producer(TOPIC)
        for text in "ab":
            await producer.send(TextMessage(text), on_complete=Completion())
        await eventually(lambda: completed == ["a", "b"])


async def test_a_cancelled_commit_does_not_hold_back_the_next(port: int) -> None:
    sending, receiving = await two_nodes(port)
    consumer = receiving.create_session().create_consumer(TOPIC)
    await consumer.ready()
    session = sending.create_session(TRANSACTED)
    producer = session.create_producer(TOPIC)
    for _ in range(200):
        message = BytesMessage()
        message.write_bytes(bytes(100_000))
        await producer.send(message)
    commit = asyncio.create_task(session.commit())
    await asyncio.sleep(0)
    commit.cancel()
    with pytest.raises(asyncio.CancelledError):
        await commit
    await producer.send(TextMessage("next"))
    await producer.send(TextMessage("last"))
    await session.commit()
    for _ in range(200):
        assert isinstance(await consumer.receive(WAIT_S), BytesMessage)
    for text in ("next", "last"):
        received = await consumer.receive(WAIT_S)
        assert isinstance(received, TextMessage)
        assert received.text == text
    await sending.close()
    await receiving.close()


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_a_close_that_is_cancelled_leaves_the_bus(port: int) -> None:
    files = open_files()
    factory = ConnectionFactory(uri(port), client_id="desk")
    connection = await factory.create_connection()
    connection.start()
    session = connection.create_session()
    consumer = session.create_consumer(TOPIC)
    entered, never = asyncio.Event(), asyncio.Event()

    async def hang(_: Message) -> None:
        entered.set()
        await never.wait()

    consumer.message_listener = hang
    await session.create_producer(TOPIC).send(TextMessage("a"))
    await entered.wait()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(connection.close(), 0.1)
    await connection.close()
    assert open_files() == files
    with pytest.raises(IllegalStateError):
        connection.create_session()
    async with factory.create_connection():
        pass
    never.set()


async def test_a_close_of_a_context_that_is_cancelled_leaves_the_bus(port: int) -> None:
    files = open_files()
    context = await ConnectionFactory(uri(port), client_id="desk").create_context()
    entered, never = asyncio.Event(), asyncio.Event()

    async def hang(_: Message) -> None:
        entered.set()
        await never.wait()

    context.create_consumer(TOPIC).message_listener = hang
    await context.send(TOPIC, "a")
    await entered.wait()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(context.close(), 0.1)
    assert open_files() == files
    await context.close()
    with pytest.raises(IllegalStateError):
        await context.send(TOPIC, "b")
    never.set()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_event_loop_that_has_ended_keeps_neither_sockets_nor_client_ids(port: int) -> None:
    factory = ConnectionFactory(uri(port), client_id="desk")

    async def leave_open() -> Connection:
        return await factory.create_connection()

    async def close_properly() -> None:
        async with factory.create_connection():
            pass

    asyncio.run(close_properly())
    files = open_files()
    left = asyncio.run(leave_open())
    with pytest.raises(IllegalStateError):
        asyncio.run(left.close())
    del left
    for _ in range(3):
        asyncio.run(leave_open())
    asyncio.run(close_properly())
    gc.collect()
    assert open_files() <= files


async def test_thousands_of_topics_are_subscribed_to_and_left_at_once(port: int) -> None:
    async with ConnectionFactory(uri(port)).create_connection() as connection:
        assert connection._core.endpoint is not None
        bus = connection._core.endpoint.bus
        session = connection.create_session()
        begin = time.perf_counter()
        consumers = [session.create_consumer(Topic(f"t.{number}")) for number in range(8_000)]
        twice = session.create_consumer(Topic("t.0"))
        assert bus.subscribers(Topic("t.7999")) == bus.subscribers(Topic("t.0")) == 1
        await consumers[0].close()
        assert bus.subscribers(Topic("t.0")) == 1
        await twice.close()
        assert bus.subscribers(Topic("t.0")) == 0
        await session.close()
        assert bus.subscribers(Topic("t.7999")) == 0
        assert time.perf_counter() - begin < PROMPTLY_S


async def test_deleted_temporary_destinations_are_refused_and_take_no_memory(port: int) -> None:
    async with ConnectionFactory(uri(port)).create_connection() as connection:
        assert connection._core.endpoint is not None
        session = connection.create_session()
        producer = session.create_producer()
        deleted = [session.create_temporary_topic() for _ in range(500)]
        deleted += [session.create_temporary_queue() for _ in range(500)]
        alive = session.create_temporary_topic()
        for each in deleted:
            await each.delete()
        assert connection._core.endpoint.temporaries.alive == {alive}
        for each in (deleted[0], deleted[-1]):
            with pytest.raises(InvalidDestinationError):
                await producer.send(TextMessage("a"), each)
        await producer.send(TextMessage("a"), alive)


def test_a_blocking_listener_that_exits_ends_neither_its_session_nor_others(port: int) -> None:
    heard: list[Any] = []

    def hear(message: TextMessage) -> None:
        heard.append(message.text)
        if message.text == "exit":
            sys.exit(3)

    class Completion:
        def on_completion(self, _: Message) -> None:
            sys.exit(4)

        def on_exception(self, _: Message, error: Exception) -> None:
            raise AssertionError(error)

    with blocking.ConnectionFactory(uri(port), redeliveries_max=0).create_connection() as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(TOPIC)
        consumer.message_listener = hear
        producer = connection.create_session().create_producer(TOPIC)
        for text in ("exit", "after"):
            producer.send(TextMessage(text), on_complete=Completion())
        deadline = time.monotonic() + WAIT_S
        while len(heard) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert heard == ["exit", "after"]
        producer.send_async(TextMessage("more")).result(WAIT_S)


def leave(*_: object) -> None:
    sys.exit(5)


def test_a_progress_listener_that_exits_ends_neither_the_loop_nor_other_sends(port: int, tmp_path: Path) -> None:
    file = tmp_path / "sent"
    file.write_bytes(bytes(3 << 20))
    with blocking.ConnectionFactory(uri(port)).create_connection() as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(TOPIC)
        consumer.on_progress = leave
        assert consumer.on_progress is leave
        producer = connection.create_session().create_producer(TOPIC)
        with pytest.raises(RuntimeError, match=r"raised SystemExit\(5\), which in a thread does not end the program"):
            producer.send(FileMessage(file, leave))
        with pytest.raises(JMSError, match=r"raised SystemExit\(5\), which in a thread does not end the program"):
            producer.send_async(FileMessage(file, leave)).result(WAIT_S)
        producer.send(FileMessage(file))
        received = consumer.receive(FileMessage, WAIT_S)
        assert received is not None
        assert received.size == 3 << 20


def test_a_log_names_the_exception_listener_that_raised(port: int, caplog: pytest.LogCaptureFixture) -> None:
    with blocking.ConnectionFactory(uri(port), redeliveries_max=0).create_context() as context:
        context.exception_listener = leave
        context.create_consumer(TOPIC).message_listener = leave
        context.send(TOPIC, "a")
        deadline = time.monotonic() + WAIT_S
        while "callback_failed" not in caplog.text and time.monotonic() < deadline:
            time.sleep(0.01)
    (text,) = [one.getMessage() for one in caplog.records if "callback_failed" in one.getMessage()]
    assert text.startswith("callback_failed: leave raised RuntimeError('a callback raised SystemExit(5), which in")
    assert "run" not in text.split(" raised ")[0]


FORKED = """
import os, sys
from fjm2.jms import IllegalStateError, TextMessage, Topic
from fjm2.jms.blocking import ConnectionFactory

factory = ConnectionFactory(sys.argv[1])
connection = factory.create_connection()
if os.fork():
    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
try:
    connection.create_session()
    os._exit(2)
except IllegalStateError:
    connection.close()
with factory.create_context() as context:
    consumer = context.create_consumer(Topic("a"))
    context.create_producer().send(Topic("a"), "mine")
    os._exit(0 if consumer.receive_body(str, 20) == "mine" else 3)
"""


def test_a_forked_process_has_connections_of_its_own(port: int) -> None:
    forking = subprocess.run([sys.executable, "-c", FORKED, uri(port)], timeout=60, capture_output=True, check=False)
    assert forking.returncode == 0, forking.stderr.decode()


# Commands.


def command(port: int, *arguments: str, **options: Any) -> "subprocess.Popen[bytes]":
    environment = os.environ | {"FJM2_URI": uri(port)}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.Popen([sys.executable, "-m", "fjm2", *arguments], env=environment, **pipes)


def is_listening(process: "subprocess.Popen[bytes]") -> None:
    assert process.stderr is not None
    assert process.stderr.readline().startswith(b"listening")


HUGE = b"\x00\x03" + struct.pack("!I", 10_000) + b"\x7f" * 10_000


async def test_commands_go_on_after_messages_that_cannot_be_read(port: int) -> None:
    subscriber, replier = command(port, "sub", TOPIC.name), command(port, "reply", TOPIC.name, "yes")
    for process in (subscriber, replier):
        is_listening(process)
    async with ConnectionFactory(uri(port)).create_connection() as connection:
        for parts in (
            malformed(TextMessage("reply-to"), sections=section(3, b"\0")),
            malformed(TextMessage("correlation"), sections=BAD_CORRELATION),
            malformed(TextMessage("queue"), sections=section(3, bytes((Queue.kind_flags,)) + b"q")),
            malformed(ObjectMessage(0), body=HUGE),
        ):
            publish(connection, parts)
        connection.start()
        request = TextMessage("still there?")
        session = connection.create_session()
        request.reply_to = session.create_temporary_topic()
        replies = session.create_consumer(request.reply_to)
        await session.create_producer(TOPIC).send(request, delivery_mode=DeliveryMode.NON_PERSISTENT)
        reply = await replies.receive(WAIT_S)
        assert isinstance(reply, TextMessage)
        assert reply.text == "yes"
    for process in (subscriber, replier):
        process.send_signal(signal.SIGINT)
    out, error = subscriber.communicate(timeout=WAIT_S)
    assert out == b"reply-to\ncorrelation\nqueue\nstill there?\n"
    assert error.count(b"cannot be read") == 1
    error = replier.communicate(timeout=WAIT_S)[1]
    assert error.count(b"cannot be read") == 3
    assert b"warning: no reply to queue://q" in error


def test_replies_of_a_program_that_does_not_read_its_input(port: int) -> None:
    replier = command(port, "reply", TOPIC.name, "--command", "echo yes")
    is_listening(replier)
    size = 2_000_000
    asking = command(port, "request", TOPIC.name, "-", "--timeout", str(WAIT_S), stdin=subprocess.PIPE)
    assert asking.communicate(b"x" * size, timeout=WAIT_S) == (b"yes\n\n", b"")
    replier.send_signal(signal.SIGINT)
    assert b"Traceback" not in replier.communicate(timeout=WAIT_S)[1]


def test_a_missing_program_is_reported(port: int) -> None:
    replier = command(port, "reply", TOPIC.name, "--command", "/no/such/program -x")
    assert b"/no/such/program': no such program" in replier.communicate(timeout=WAIT_S)[1]
    assert replier.returncode == 2


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams(port: int, closed: str) -> None:
    line = f'"$0" -m fjm2 sub "$1" --count 1 --timeout {WAIT_S} {closed}'
    environment = os.environ | {"FJM2_URI": uri(port)}
    with (
        subprocess.Popen(["/bin/sh", "-c", line, sys.executable, TOPIC.name], env=environment) as subscriber,
        blocking.ConnectionFactory(uri(port)).create_context() as context,
    ):
        producer = context.create_producer()
        while subscriber.poll() is None:
            producer.send(TOPIC, "hello")
            time.sleep(0.05)
    assert subscriber.returncode == 0
    line = f'"$0" -m fjm2 pub "$1" - {closed}'
    publisher = subprocess.run(["/bin/sh", "-c", line, sys.executable, TOPIC.name], env=environment, check=False)
    assert publisher.returncode == 0


def test_times_that_are_not_a_number_are_refused(port: int) -> None:
    subscriber = command(port, "sub", TOPIC.name, "--timeout", "nan")
    assert b"nan: expected seconds, or a number with a unit" in subscriber.communicate(timeout=WAIT_S)[1]
    assert subscriber.returncode == 2
