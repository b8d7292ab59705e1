"""Tests of connections with outboxes, with keepers inside of the process and without any."""

import asyncio
import errno
import logging
from pathlib import Path
from typing import Any

import pytest
from adapter import eventually

from fjm2.errors import ConfigError
from fjm2.jms import (
    Connection,
    ConnectionFactory,
    DeliveryMode,
    IllegalStateError,
    JMSContext,
    JMSError,
    ResourceAllocationError,
    SessionMode,
    TextMessage,
    Topic,
    blocking,
)
from fjm2.store.drive.os_disk import OsDisk
from fjm2.store.format.identity import IDENTITY, parse_identity

TOPIC, OTHER = Topic("fjm2.outbox"), Topic("fjm2.outbox.other")
BYTES = 32 << 20
WAIT_S = 20.0


@pytest.fixture
def uri(port: int) -> str:
    return f"fjm2://239.192.57.42:{port}?interface=127.0.0.1&ttl=0"


def factory_of(uri: str, directory: Path, **options: Any) -> ConnectionFactory:
    return ConnectionFactory(uri, outbox=directory, outbox_bytes_max=BYTES, **options)


def waiting(context: JMSContext | Connection) -> int:
    """Return the number of messages in the outbox of a connection."""
    return context.statistics().bus.outbox_messages


async def received(consumer: Any, count: int) -> list[str]:
    found: list[str] = []
    for _ in range(count):
        body = await consumer.receive_body(str, timeout=WAIT_S)
        assert body is not None, found
        found.append(body)
    assert await consumer.receive(timeout=0.3) is None
    return found


async def test_messages_wait_on_disk_until_a_cell_comes(
    uri: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for life in range(2):
        async with factory_of(uri, tmp_path / "outbox").create_context() as context:
            for number in range(5):
                await context.send(TOPIC, f"{life}.{number}")
            assert waiting(context) == 5 * (life + 1)
        assert f"{5 * (life + 1)} messages stay in the outbox {tmp_path}/outbox" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        async with ConnectionFactory(uri, keep=tmp_path / "store", client_id="desk").create_context() as keeping:
            consumer = await keeping.create_durable_consumer(TOPIC, "all")
            async with factory_of(uri, tmp_path / "outbox").create_context() as context:
                for number in range(5):
                    await context.send(TOPIC, f"2.{number}")
                expected = [f"{life}.{number}" for life in range(3) for number in range(5)]
                assert await received(consumer, 15) == expected
                await eventually(lambda: waiting(context) == 0)
            # Everything is given up: the next life has nothing to send.
            async with factory_of(uri, tmp_path / "outbox").create_context() as context:
                assert waiting(context) == 0
                await context.send(TOPIC, "3.0")
                assert await received(consumer, 1) == ["3.0"]
                await eventually(lambda: waiting(context) == 0)
    assert "stay in the outbox" not in caplog.text


async def test_an_outbox_that_was_closed_sends_nothing_again(
    uri: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    numbers = [str(number) for number in range(100)]
    async with ConnectionFactory(uri, keep=tmp_path / "first", client_id="desk").create_context() as keeping:
        consumer = await keeping.create_durable_consumer(TOPIC, "all")
        async with factory_of(uri, tmp_path / "outbox").create_context() as context:
            await asyncio.gather(*(context.send(TOPIC, number) for number in numbers))
        assert await received(consumer, 100) == numbers
    with caplog.at_level(logging.WARNING):
        async with factory_of(uri, tmp_path / "outbox").create_context() as context:
            assert waiting(context) == 0
    assert "stay in the outbox" not in caplog.text
    async with ConnectionFactory(uri, keep=tmp_path / "second", client_id="desk").create_context() as keeping:
        consumer = await keeping.create_durable_consumer(TOPIC, "all")
        async with factory_of(uri, tmp_path / "outbox").create_context() as context:
            await context.send(TOPIC, "new")
            assert await received(consumer, 1) == ["new"]


async def test_lives_stay_in_order_where_a_consumer_came_back(uri: str, tmp_path: Path) -> None:
    """It gets the end of one life without a flag, and the next one with it: keepers do not know what it had before."""
    options: dict[str, Any] = {"client_id": "desk", "messages_max": 8}
    async with ConnectionFactory(uri, keep=tmp_path / "store", **options).create_context() as keeping:
        await (await keeping.create_durable_consumer(TOPIC, "all")).close()
        consumer = await keeping.create_durable_consumer(TOPIC, "all")
        async with factory_of(uri, tmp_path / "outbox").create_context() as context:
            is_flagged = True
            while is_flagged:
                await context.send(TOPIC, "first")
                message = await consumer.receive(timeout=WAIT_S)
                assert message is not None
                is_flagged = message.redelivered
            for number in range(12):
                await context.send(TOPIC, f"0.{number}")
        async with factory_of(uri, tmp_path / "outbox").create_context() as context:
            for number in range(8):
                await context.send(TOPIC, f"1.{number}")
            await eventually(lambda: waiting(context) == 0)
        found: list[tuple[str, bool]] = []
        for _ in range(20):
            if len(found) in (0, 4, 8):  # half of the room is free, and is filled again
                await eventually(lambda: consumer.statistics().messages_waiting == 8)
            message = await consumer.receive(timeout=WAIT_S)
            assert message is not None, found
            found.append((message.get_body(str), message.redelivered))
        assert found == [(f"0.{each}", False) for each in range(12)] + [(f"1.{each}", True) for each in range(8)]


async def test_a_close_waits_until_keepers_have_everything(
    uri: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with ConnectionFactory(uri, keep=tmp_path / "store", client_id="desk").create_context() as keeping:
        consumer = await keeping.create_durable_consumer(TOPIC, "all")
        async with factory_of(uri, tmp_path / "outbox").create_connection() as connection:
            await connection.ready()
            producer = connection.create_session().create_producer(TOPIC)
            await asyncio.gather(*(producer.send_async(TextMessage(str(number))) for number in range(500)))
        assert await received(consumer, 500) == [str(number) for number in range(500)]
    assert "stay in the outbox" not in caplog.text


async def test_messages_that_nobody_wants_kept_are_given_up(uri: str, tmp_path: Path) -> None:
    async with ConnectionFactory(uri, keep=tmp_path / "store").create_context() as keeping:
        plain = keeping.create_consumer(OTHER)
        async with factory_of(uri, tmp_path / "outbox").create_context() as context:
            await context.ready()
            for number in range(20):
                await context.send(OTHER, str(number))
            await eventually(lambda: waiting(context) == 0)
            assert await received(plain, 20) == [str(number) for number in range(20)]


async def test_other_messages_do_not_pass_the_outbox(uri: str, tmp_path: Path) -> None:
    async with factory_of(uri, tmp_path / "outbox").create_context() as context:
        consumer = context.create_consumer(TOPIC)
        producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
        await producer.send(TOPIC, "at once")
        assert await consumer.receive_body(str, timeout=WAIT_S) == "at once"
        assert waiting(context) == 0


async def test_batches_and_priorities_keep_their_order(uri: str, tmp_path: Path) -> None:
    async with ConnectionFactory(uri, keep=tmp_path / "store", client_id="desk").create_context() as keeping:
        consumer = await keeping.create_durable_consumer(TOPIC, "all")
        async with factory_of(uri, tmp_path / "outbox").create_connection() as connection:
            session = connection.create_session()
            producer = session.create_producer(TOPIC)
            await producer.send_many([f"a{number}" for number in range(100)])
            await producer.send_many([f"b{number}" for number in range(100)], priority=9)
            bodies = await received(consumer, 200)
    assert [body for body in bodies if body[0] == "a"] == [f"a{number}" for number in range(100)]
    assert [body for body in bodies if body[0] == "b"] == [f"b{number}" for number in range(100)]


async def test_one_connection_at_a_time_uses_a_directory(uri: str, tmp_path: Path) -> None:
    async with factory_of(uri, tmp_path / "outbox").create_connection():
        with pytest.raises(ConfigError, match=r"outbox/lock: held by .*: expected a store that nobody has open"):
            await factory_of(uri, tmp_path / "outbox").create_connection()
    async with factory_of(uri, tmp_path / "outbox").create_connection():
        pass


async def kept(uri: str, directory: Path, count: int = 3) -> None:
    async with factory_of(uri, directory).create_context() as context:
        for number in range(count):
            await context.send(TOPIC, str(number))


async def test_a_damaged_outbox_is_refused_and_left_alone(uri: str, tmp_path: Path) -> None:
    await kept(uri, tmp_path / "outbox", 1)
    await kept(uri, tmp_path / "outbox", 1)
    (segment,) = [path for path in (tmp_path / "outbox").glob("segment-*") if any(path.read_bytes()[512:])]
    content = bytearray(segment.read_bytes())
    content[512 + 100] ^= 1
    segment.write_bytes(content)
    with pytest.raises(ConfigError, match=r"expected what was confirmed; nothing was changed"):
        await factory_of(uri, tmp_path / "outbox").create_connection()
    assert segment.read_bytes() == content


async def test_an_outbox_of_a_newer_version_is_refused(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fjm2.store.format import identity

    monkeypatch.setattr(identity, "VERSION", 2)
    await kept(uri, tmp_path / "outbox")
    monkeypatch.undo()
    with pytest.raises(ConfigError, match="use a newer FJM2"):
        await factory_of(uri, tmp_path / "outbox").create_connection()
    monkeypatch.setattr(identity, "VERSION", 2)
    assert parse_identity((tmp_path / "outbox" / IDENTITY).read_bytes()) is not None


async def test_a_full_outbox_blocks_and_then_raises(uri: str, tmp_path: Path) -> None:
    async with factory_of(uri, tmp_path / "outbox", confirm_timeout_s=0.5).create_context() as context:
        with pytest.raises(ResourceAllocationError, match=r"the outbox is full, and got no room for 0\.5 s") as caught:
            await filled(context)
        assert caught.value.error_code == "outbox_full"
        accepted = waiting(context)
        assert 10 < accepted < BYTES >> 20


async def filled(context: JMSContext) -> None:
    """Send until an error is raised."""
    for number in range(1000):
        await context.send(TOPIC, f"{number} " + "x" * (1 << 20))


async def test_a_full_outbox_goes_on_when_a_cell_comes(uri: str, tmp_path: Path) -> None:
    async with factory_of(uri, tmp_path / "outbox", confirm_timeout_s=0.5).create_context() as context:
        with pytest.raises(ResourceAllocationError):
            await filled(context)
        accepted = waiting(context)
    async with ConnectionFactory(uri, keep=tmp_path / "store", client_id="desk").create_context() as keeping:
        consumer = await keeping.create_durable_consumer(TOPIC, "all")
        async with factory_of(uri, tmp_path / "outbox").create_context() as context:
            await context.send(TOPIC, f"{accepted} ")
            bodies = await received(consumer, accepted + 1)
    assert [int(body.split()[0]) for body in bodies] == list(range(accepted + 1))


async def test_a_disk_that_fails_is_told_and_ends_the_outbox(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[JMSError] = []
    async with factory_of(uri, tmp_path / "outbox").create_connection() as connection:
        connection.exception_listener = told.append
        producer = connection.create_session().create_producer(TOPIC)
        await producer.send(TextMessage("kept"))

        def fail(*_: object) -> None:
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(OsDisk, "fdatasync", fail)
        for _ in range(2):
            with pytest.raises(ResourceAllocationError, match="the disk of the outbox failed") as caught:
                await producer.send(TextMessage("lost"))
            assert caught.value.error_code == "outbox_failed"
        await eventually(lambda: len(told) == 1)
        monkeypatch.undo()
    async with factory_of(uri, tmp_path / "outbox").create_connection() as connection:
        assert waiting(connection) >= 1


async def test_transactions_and_files_are_refused(uri: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    async with factory_of(uri, tmp_path / "outbox").create_connection() as connection:
        with pytest.raises(ResourceAllocationError, match="transactions beside an outbox"):
            connection.create_session(SessionMode.SESSION_TRANSACTED)
        session = connection.create_session()
        with pytest.raises(IllegalStateError, match="a file cannot wait in an outbox"):
            await session.create_producer(TOPIC).send(session.create_file_message(tmp_path / "file"))


async def test_delayed_messages_are_refused_however_they_are_sent(uri: str, tmp_path: Path) -> None:
    """Keepers number them in ledgers of their own: an outbox that sent one would wait for it for ever."""
    async with factory_of(uri, tmp_path / "outbox").create_connection() as connection:
        producer = connection.create_session().create_producer(TOPIC)
        producer.delivery_delay = 1000
        with pytest.raises(IllegalStateError, match="a delayed message cannot wait in an outbox"):
            await producer.send(TextMessage("later"))
        with pytest.raises(IllegalStateError, match="a delayed message cannot wait in an outbox"):
            await producer.send_many(["later", "and later"])
        assert waiting(connection) == 0


@pytest.mark.parametrize(
    "options",
    [{"outbox": ""}, {"outbox": 1}, {"outbox": b"bytes"}, {"outbox_bytes_max": 1000}, {"outbox_bytes_max": "1GB"}],
    ids=repr,
)
def test_wrong_settings_are_refused(uri: str, options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(ConfigError, match=f"^{name}="):
        ConnectionFactory(uri, **options)


def test_threads_have_outboxes_too(uri: str, tmp_path: Path) -> None:
    options = {"outbox": tmp_path / "outbox", "outbox_bytes_max": BYTES}
    with blocking.ConnectionFactory(uri, **options).create_context() as context:
        context.send(TOPIC, "a")
        context.create_producer().send(TOPIC, "b")
    keeping = blocking.ConnectionFactory(uri, keep=tmp_path / "store", client_id="desk").create_context()
    with keeping:
        consumer = keeping.create_durable_consumer(TOPIC, "all")
        with blocking.ConnectionFactory(uri, **options).create_context() as context:
            context.send(TOPIC, "c")
            assert [consumer.receive_body(str, timeout=WAIT_S) for _ in range(3)] == ["a", "b", "c"]
