"""Tests of back-pressure, cancelled waits, files that shrink, and sessions that close in the middle of a transfer."""

import asyncio
import os
import tempfile
from pathlib import Path

import pytest
from sessions import (
    Listener,
    listening,
    new_session,
    noise,
    on_each_loop,
    open_files,
    soon,
    until,
)

from fjm2.errors import NormError
from fjm2.norm import Drop, ReceiverConfig, SenderConfig, Session
from fjm2.norm.events import (
    Event,
    FileFailed,
    InfoReceived,
    LossReason,
    ObjectCompleted,
    ObjectLost,
    SenderAppeared,
    SenderVanished,
    StreamEnded,
    StreamLost,
    StreamReceived,
)
from fjm2.norm.net import event_queue

# Back-pressure.


@on_each_loop
async def test_reception_pauses_while_events_are_not_read(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_queue, "EVENT_BYTES_MAX", 1 << 20)
    size, count = 200_000, 30
    async with new_session(port) as receiver, new_session(port, is_sender_only=True) as sender:
        await soon(sender.send_data(b"begin"))
        await until(lambda: receiver.stats.objects_received)
        sent = [noise(size, number) for number in range(count)]
        for data in sent:
            await sender.send_data(data)
        await until(lambda: sender.stats.objects_sent == count + 1)
        await until(lambda: receiver.stats.drops[Drop.PAUSED])
        assert receiver.stats.payload_bytes_received < (1 << 20) + 2 * size
        listener = Listener(receiver)
        arrived = [event.data for event in await listener.some(ObjectCompleted, 1 + count)]
        await listener.end()
    assert sorted(arrived[1:], key=bytes) == sorted(sent)
    assert not listener.all(ObjectLost)


@on_each_loop
async def test_a_stream_reports_data_that_its_reader_missed(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_queue, "EVENT_BYTES_MAX", 1 << 19)
    config = SenderConfig(rate_bps=400e6, grtt_s=0.002, stream_bytes=1 << 20, robust_factor=8)
    async with new_session(port) as receiver, new_session(port, is_sender_only=True, sender=config) as sender:
        content = noise(5_000_000)
        async with await soon(sender.open_stream()) as stream:
            await soon(stream.write(content))
            await until(lambda: receiver.stats.drops[Drop.PAUSED])
            listener = Listener(receiver)
            await listener.some(StreamReceived)
        await listener.one(StreamEnded)
        await listener.end()
    at = 0
    for event in listener.events:
        match event:
            case StreamReceived(_, _, start, data):
                assert start == at
                assert data == content[start : start + len(data)]
                at += len(data)
            case StreamLost(_, _, start, end):
                assert start == at < end
                at = end
            case StreamEnded(_, _, length):
                assert at == length == len(content)
            case _:
                pass


# Losses, cancellation and closing.


@on_each_loop
async def test_cancelled_objects_are_reported_as_lost(port: int) -> None:
    slow = SenderConfig(rate_bps=20e6, grtt_s=0.002, robust_factor=8)
    async with listening(new_session(port)) as heard, new_session(port, is_sender_only=True, sender=slow) as sender:
        object_id = await sender.send_data(noise(5_000_000))
        await heard.one(SenderAppeared)
        sender.cancel(object_id)
        sender.cancel(object_id)
        await sender.send_data(b"after it")
        assert (await heard.one(ObjectCompleted)).data == b"after it"
        lost = await heard.one(ObjectLost)
        await soon(sender.flushed())
    assert (lost.object_id, lost.reason) == (object_id, LossReason.SQUELCHED)


@on_each_loop
async def test_a_stream_can_be_cancelled_while_its_writer_waits(port: int) -> None:
    slow = SenderConfig(rate_bps=1e6, grtt_s=0.002, robust_factor=8, stream_bytes=1 << 19)
    async with new_session(port, is_sender_only=True, sender=slow) as sender:
        stream = await sender.open_stream()
        writer = asyncio.create_task(stream.write(bytes(2_000_000)))
        await until(lambda: sender.stats.window_waits)
        sender.cancel(stream.object_id)
        await soon(writer)
        with pytest.raises(NormError, match="write to a closed stream"):
            await stream.write(b"more")
        await soon(stream.close())
        await soon(sender.flushed())


@on_each_loop
async def test_a_file_that_shrinks_is_given_up(port: int, tmp_path: Path) -> None:
    path = tmp_path / "shrinking"
    path.write_bytes(bytes(3_000_000))
    slow = SenderConfig(rate_bps=20e6, grtt_s=0.002, robust_factor=8)
    async with (
        listening(new_session(port)) as heard,
        listening(new_session(port, is_sender_only=True, sender=slow)) as own,
    ):
        sender = own._session
        object_id = await sender.send_file(path)
        await heard.one(InfoReceived)
        os.truncate(path, 100)
        failed = await own.one(FileFailed)
        assert (failed.object_id, failed.error) == (object_id, "file shorter than its 3000000 bytes")
        await sender.send_data(b"next")
        await heard.one(ObjectCompleted)
        assert (await heard.one(ObjectLost)).object_id == object_id


@on_each_loop
async def test_closing_in_the_middle_informs_receivers(port: int) -> None:
    async with listening(new_session(port)) as heard:
        async with new_session(port, is_sender_only=True, sender=SenderConfig(rate_bps=10e6)) as sender:
            stream = await sender.open_stream()
            await stream.write(b"hello")
            object_id = await sender.send_data(bytes(5_000_000))
            await heard.one(StreamReceived)
        lost = await heard.one(ObjectLost)
        assert (lost.object_id, lost.reason) == (object_id, LossReason.SENDER_GONE)
        assert (await heard.one(StreamLost)).object_id == stream.object_id
        assert (await heard.one(SenderVanished)).sender_id == sender.node_id
        await soon(stream.close())
        await soon(sender.close())
        await soon(sender.close())
        for use in (sender.send_data(b"x"), sender.flushed(), sender.watermark([1]), sender.open_stream()):
            with pytest.raises(NormError, match="the session was closed"):
                await soon(use)


@on_each_loop
async def test_closing_ends_every_wait(port: int) -> None:
    config = SenderConfig(rate_bps=1e6, cache_objects=2, stream_bytes=1 << 19)
    session = new_session(port, sender=config)
    async with session:
        stream = await session.open_stream()
        await session.send_data(bytes(100_000))
        waiting = [
            asyncio.create_task(wait)
            for wait in (
                session.send_data(bytes(100_000)),
                session.open_stream(),
                session.watermark([99]),
                session.flushed(),
                stream.write(bytes(2_000_000)),
            )
        ]
        events = asyncio.create_task(_list(session))
        await until(lambda: session.stats.datagrams_sent)
    results = await soon(asyncio.gather(*waiting, return_exceptions=True))
    assert [str(result) for result in results] == 5 * ["the session was closed"]
    assert {type(result) for result in results} == {NormError}
    await soon(events)


async def _list(session: Session) -> list[Event]:
    return [event async for event in session]


@on_each_loop
async def test_a_closing_receiver_reports_unfinished_objects(port: int, tmp_path: Path) -> None:
    async with new_session(port, is_sender_only=True, sender=SenderConfig(rate_bps=10e6)) as sender:
        receiver = new_session(port, receiver=ReceiverConfig(file_directory=str(tmp_path)))
        async with receiver:
            with tempfile.NamedTemporaryFile() as file:
                file.write(bytes(5_000_000))
                await sender.send_file(file.name)
            await until(lambda: receiver.stats.datagrams_received > 10)
        events = await soon(_list(receiver))
    assert [event.reason for event in events if isinstance(event, ObjectLost)] == [LossReason.CLOSED]
    assert isinstance(events[-1], SenderVanished)
    assert not os.listdir(tmp_path)


@on_each_loop
async def test_an_exception_leaves_everything_closed(port: int) -> None:
    async def fail() -> None:
        async with new_session(port, sender=SenderConfig(rate_bps=1e5, stream_bytes=1 << 19)) as session:
            await session.send_file(__file__)
            async with await session.open_stream() as stream:
                tasks.append(asyncio.create_task(stream.write(bytes(2_000_000))))
                await until(lambda: session.stats.window_waits)
                raise ZeroDivisionError

    tasks: list[asyncio.Task[None]] = []
    before = open_files()
    with pytest.raises(ZeroDivisionError):
        await soon(fail())
    with pytest.raises(NormError):
        await soon(tasks[0])
    assert open_files() == before


@on_each_loop
async def test_cancelled_waits_leave_the_session_usable(port: int) -> None:
    config = SenderConfig(rate_bps=50e6, grtt_s=0.002, robust_factor=8, cache_objects=3, stream_bytes=1 << 19)
    async with (
        listening(new_session(port, node_id=2)) as heard,
        new_session(port, is_sender_only=True, sender=config) as sender,
    ):
        stream = await sender.open_stream()
        await stream.write(b"the beginning, ")
        ids = [await sender.send_data(bytes(300_000)) for _ in range(2)]
        fds = open_files()
        waits = [
            asyncio.create_task(wait)
            for wait in (
                sender.send_data(b"never"),
                sender.send_file(__file__),
                sender.watermark([77]),
                sender.flushed(),
                stream.write(noise(2_000_000)),
            )
        ]
        await until(lambda: sender.stats.window_waits)
        for wait in waits:
            wait.cancel()
        results = await soon(asyncio.gather(*waits, return_exceptions=True))
        assert {type(result) for result in results} == {asyncio.CancelledError}
        assert open_files() == fds
        await soon(stream.write(b"the end"))
        await soon(stream.close())
        ids.append(await soon(sender.send_data(b"after")))
        assert (await soon(sender.watermark([2]))).acked == {2}
        await soon(sender.flushed())
        assert [event.object_id for event in heard.all(ObjectCompleted)] == ids
        # The cancellation ended only the wait.
        assert heard.stream_bytes() == b"the beginning, " + noise(2_000_000) + b"the end"
        assert heard.all(StreamEnded)


@on_each_loop
async def test_a_cancelled_close_still_ends_the_stream(port: int) -> None:
    slow = SenderConfig(rate_bps=20e6, grtt_s=0.002, robust_factor=8, stream_bytes=1 << 19)
    async with listening(new_session(port)) as heard, new_session(port, is_sender_only=True, sender=slow) as sender:
        stream = await sender.open_stream()
        writer = asyncio.create_task(stream.write(bytes(1_000_000)))
        await until(lambda: sender.stats.window_waits)
        closer = asyncio.create_task(stream.close())
        await asyncio.sleep(0)
        closer.cancel()
        await soon(writer)
        assert (await heard.one(StreamEnded)).size == 1_000_000


@on_each_loop
async def test_a_session_is_used_while_it_is_open(port: int) -> None:
    session = new_session(port)
    for use in (session.send_data(b"x"), session.flushed(), session.watermark([1]), session.open_stream()):
        with pytest.raises(NormError, match="the session is not open"):
            await use
    with pytest.raises(NormError, match="the session is not open"):
        await anext(session)
    await session.close()
    async with session:
        with pytest.raises(NormError, match="a session opens once"):
            await session.__aenter__()
