"""Messages whose body is a file."""

import asyncio
import gc
import hashlib
from pathlib import Path
from typing import Any

import pytest
from adapter import QUIET_S, WAIT_S, Api, eventually

from fjm2.jms import (
    FileMessage,
    FileProgress,
    IllegalStateError,
    JMSError,
    MessageFormatError,
    ResourceAllocationError,
    SessionMode,
    TextMessage,
    Topic,
    UnconfirmedError,
)

TOPIC = Topic("fjm2.files")
SIZE = 5 << 20


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "numbers.bin"
    made.write_bytes(b"".join(number.to_bytes(8, "big") for number in range(SIZE // 8)))
    return made


def folder(tmp_path: Path) -> str:
    """Return a folder in which received files are kept until they are saved."""
    made = tmp_path / "received"
    made.mkdir(exist_ok=True)
    return str(made)


def left(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "received").rglob("*") if path.is_file() and path.name != "lock"]


async def two(api: Api, tmp_path: Path, **options: Any) -> tuple[Any, Any]:
    """Return contexts of two nodes."""
    settings = {"files_directory": folder(tmp_path)} | options
    sending, receiving = await api.context(**settings), await api.context(**settings, inactivity_s=50)
    return sending, receiving


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


async def test_a_file_arrives_with_headers_properties_and_progress(api: Api, tmp_path: Path, file: Path) -> None:
    sending, receiving = await two(api, tmp_path)
    consumer = await receiving.create_consumer(TOPIC, "kind = 'numbers'")
    received: list[FileProgress] = []
    sent: list[FileProgress] = []
    consumer.on_progress = received.append
    await consumer.ready()
    producer = await sending.create_producer()
    message = await sending.create_file_message(file, sent.append)
    message.set_string_property("kind", "numbers")
    message.correlation_id = "42"
    await producer.send(TOPIC, message)
    await producer.send(TOPIC, "after", properties={"kind": "numbers"})
    found = await consumer.receive(WAIT_S)
    assert isinstance(found, FileMessage)
    assert (found.name, found.size, found.correlation_id) == ("numbers.bin", SIZE, "42")
    assert found.get_string_property("kind") == "numbers"
    assert found.message_id == message.message_id
    assert found.path is not None
    assert digest(found.path) == digest(file)
    assert (await consumer.receive(WAIT_S)).text == "after"
    for told in (sent, received):
        assert [progress.done for progress in told] == sorted(progress.done for progress in told)
        assert told[-1].is_complete
        assert (told[-1].name, told[-1].size, told[-1].message_id) == ("numbers.bin", SIZE, message.message_id)
    saved = found.save(tmp_path)
    assert saved == tmp_path / "numbers.bin"
    del found
    gc.collect()
    assert digest(saved) == hashlib.sha256(saved.read_bytes()).hexdigest()
    await eventually(lambda: not left(tmp_path))


async def test_a_path_is_a_body_and_a_received_file_can_be_sent_on(api: Api, tmp_path: Path, file: Path) -> None:
    sending, receiving = await two(api, tmp_path)
    first, second = await receiving.create_consumer(TOPIC), await receiving.create_consumer(Topic("fjm2.files.on"))
    await first.ready()
    await (await sending.create_producer()).send(TOPIC, file)
    found = await first.receive(WAIT_S)
    await (await receiving.create_producer()).send(Topic("fjm2.files.on"), found)
    again = await second.receive(WAIT_S)
    assert again.name == "numbers.bin"
    assert digest(again.path) == digest(file)


async def test_listeners_get_files(api: Api, tmp_path: Path, file: Path) -> None:
    sending, receiving = await two(api, tmp_path)
    consumer = await receiving.create_consumer(TOPIC)
    saved: list[Path] = []
    consumer.message_listener = lambda message: saved.append(message.save(tmp_path / "kept"))
    await consumer.ready()
    await (await sending.create_producer()).send(TOPIC, file)
    await eventually(lambda: saved)
    assert digest(saved[0]) == digest(file)
    await eventually(lambda: not left(tmp_path))


async def test_a_file_is_confirmed_as_a_whole(api: Api, tmp_path: Path, file: Path) -> None:
    connection = await api.connect(files_directory=folder(tmp_path))
    listening = await api.connect(files_directory=folder(tmp_path), inactivity_s=50)
    consumer = await (await listening.create_session()).create_consumer(TOPIC)
    await consumer.ready()
    session = await connection.create_session()
    producer = await session.create_producer(TOPIC)
    outcome = await producer.send_async(FileMessage(file))
    await (outcome if not api.is_blocking else asyncio.wrap_future(outcome)) if outcome is not None else None
    assert (await consumer.receive(WAIT_S)).size == SIZE


async def test_several_files_and_messages_at_once(api: Api, tmp_path: Path, file: Path) -> None:
    sending, receiving = await two(api, tmp_path)
    consumer = await receiving.create_consumer(TOPIC)
    await consumer.ready()
    contexts = [await sending.create_context() for _ in range(3)]
    producers = [await context.create_producer() for context in contexts]
    await asyncio.gather(*(producer.send(TOPIC, file) for producer in producers))
    found = [await consumer.receive(WAIT_S) for _ in producers]
    assert {digest(message.path) for message in found} == {digest(file)}


async def test_a_consumer_of_the_same_connection_gets_files(api: Api, tmp_path: Path, file: Path) -> None:
    context = await api.context(files_directory=folder(tmp_path))
    consumer = await context.create_consumer(TOPIC)
    await (await context.create_producer()).send(TOPIC, file)
    assert digest((await consumer.receive(WAIT_S)).path) == digest(file)


async def test_an_empty_file(api: Api, tmp_path: Path) -> None:
    sending, receiving = await two(api, tmp_path)
    consumer = await receiving.create_consumer(TOPIC)
    await consumer.ready()
    empty = tmp_path / "empty"
    empty.touch()
    await (await sending.create_producer()).send(TOPIC, empty)
    assert (await consumer.receive(WAIT_S)).size == 0


async def test_mistakes_are_told_at_the_send(api: Api, tmp_path: Path, file: Path) -> None:
    context = await api.context()
    producer = await context.create_producer()
    with pytest.raises(ResourceAllocationError, match="cannot read the file"):
        await producer.send(TOPIC, tmp_path / "none")
    with pytest.raises(MessageFormatError, match="regular file"):
        await producer.send(TOPIC, tmp_path)
    with pytest.raises(MessageFormatError, match="set its path"):
        await producer.send(TOPIC, FileMessage())
    transacted = await api.context(SessionMode.SESSION_TRANSACTED)
    with pytest.raises(IllegalStateError, match="a file cannot be part of a transaction"):
        await (await transacted.create_producer()).send(TOPIC, file)


async def test_a_progress_listener_that_raises_cancels_the_file_for_both(api: Api, tmp_path: Path, file: Path) -> None:
    sending, receiving = await two(api, tmp_path)
    reports: list[Exception] = []
    receiving.exception_listener = reports.append
    consumer = await receiving.create_consumer(TOPIC)
    await consumer.ready()

    def cancel(progress: FileProgress) -> None:
        if progress.done > SIZE // 2:
            raise ValueError("enough")

    producer = await sending.create_producer()
    with pytest.raises(ValueError, match="enough"):
        await producer.send(TOPIC, FileMessage(file, cancel))
    await producer.send(TOPIC, "next")
    found = await consumer.receive(WAIT_S)
    assert found.text == "next"
    assert found.get_boolean_property("JMS_FJM2_Gap")
    await eventually(lambda: reports)
    assert "cancelled by its sender: enough" in str(reports[0])
    await eventually(lambda: not left(tmp_path))


async def test_a_file_that_becomes_shorter_is_cancelled(api: Api, tmp_path: Path, file: Path) -> None:
    sending, receiving = await two(api, tmp_path)
    consumer = await receiving.create_consumer(TOPIC)
    await consumer.ready()
    producer = await sending.create_producer()
    with pytest.raises(ResourceAllocationError, match="became shorter"):
        await producer.send(TOPIC, FileMessage(file, lambda _: file.write_bytes(b"")))
    assert await consumer.receive(QUIET_S) is None


async def test_a_subscriber_without_room_tells_both(api: Api, tmp_path: Path, file: Path) -> None:
    sending = await api.context()
    receiving = await api.context(files_directory=folder(tmp_path), files_bytes_max=1000)
    told: list[Exception] = []
    heard: list[Exception] = []
    sending.exception_listener, receiving.exception_listener = heard.append, told.append
    consumer = await receiving.create_consumer(TOPIC)
    await consumer.ready()
    await (await sending.create_producer()).send(TOPIC, file)
    await eventually(lambda: told and any(isinstance(error, UnconfirmedError) for error in heard))
    assert "files_bytes_max=1000" in str(told[0])
    await (await sending.create_producer()).send(TOPIC, TextMessage("next"))
    assert (await consumer.receive(WAIT_S)).get_boolean_property("JMS_FJM2_Gap")


async def test_closing_while_a_file_is_sent_ends_the_send(api: Api, tmp_path: Path) -> None:
    """At 8 Mbit/s, the file would take five seconds."""
    sending = await api.context(rate="8mbit", window_bytes=100_000, stream_bytes=200_000)
    _, receiving = await two(api, tmp_path)
    consumer = await receiving.create_consumer(TOPIC)
    await consumer.ready()
    large = tmp_path / "large"
    large.write_bytes(bytes(SIZE))
    began: list[FileProgress] = []
    producer = await sending.create_producer()
    task = asyncio.ensure_future(producer.send(TOPIC, FileMessage(large, began.append)))
    await eventually(lambda: began)
    await sending.close()
    with pytest.raises(JMSError):
        await task
    assert await consumer.receive(QUIET_S) is None


async def test_a_received_path_keeps_its_file(api: Api, tmp_path: Path, file: Path) -> None:
    sending, receiving = await two(api, tmp_path)
    consumer = await receiving.create_consumer(TOPIC)
    await consumer.ready()
    for _ in range(2):
        await sending.send(TOPIC, file)
    path = await consumer.receive_body(Path, WAIT_S)
    gc.collect()
    assert digest(path) == digest(file)
    other = (await consumer.receive(FileMessage, WAIT_S)).path
    gc.collect()
    assert digest(other) == digest(file)
    assert len(left(tmp_path)) == 2
    message = FileMessage(path)
    del path, other
    gc.collect()
    assert message.path is not None
    assert digest(message.path) == digest(file)
    del message
    gc.collect()
    await eventually(lambda: not left(tmp_path))
