"""Sessions as applications use them: several in one process, on real sockets over the loopback."""

import asyncio
import contextlib
import functools
import inspect
import os
import re
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest
import uvloop
from netns import Network

from fjm2 import metrics
from fjm2.errors import ConfigError, NormError
from fjm2.norm import Drop, Fec, Flow, ReceiverConfig, SenderConfig, Session, Sync
from fjm2.norm.events import (
    CommandReceived,
    CommandSent,
    Event,
    FileFailed,
    InfoReceived,
    LossReason,
    NodeIdCollided,
    ObjectCompleted,
    ObjectLost,
    SenderAppeared,
    SenderVanished,
    StreamEnded,
    StreamLost,
    StreamOpened,
    StreamReceived,
    TransmissionFlushed,
)
from fjm2.norm.net import event_queue

GROUP = "239.192.57.95"
DEADLINE_S = 10.0
"""For anything that has to happen; it mostly takes milliseconds."""
QUICK = SenderConfig(rate_bps=400e6, grtt_s=0.002, robust_factor=8)
"""Round trips on the loopback are short, and waiting for the end of a flush is dull."""

_Event = TypeVar("_Event", bound=Event)
_Result = TypeVar("_Result")
Test = Callable[..., Coroutine[Any, Any, None]]


def on_each_loop(test: Test) -> Callable[..., None]:
    """Runs a coroutine as a test, on asyncio's own loop and on uvloop. What goes wrong in callbacks fails it."""

    @pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
    @functools.wraps(test)
    def run(loop: str, **fixtures: Any) -> None:
        troubles: list[dict[str, Any]] = []
        factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.get_loop().set_exception_handler(lambda _, trouble: troubles.append(trouble))
            runner.run(test(**fixtures))
        assert not troubles

    signature = inspect.signature(test)
    added = inspect.Parameter("loop", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = signature.replace(parameters=[added, *signature.parameters.values()])  # type: ignore[attr-defined]
    return run


def new_session(port: int, **settings: Any) -> Session:
    return Session(**{"group": GROUP, "port": port, "interface": "127.0.0.1", "ttl": 0, "sender": QUICK, **settings})


async def soon(awaitable: Awaitable[_Result]) -> _Result:
    """Return the result of an awaitable. Fails after the deadline."""
    async with asyncio.timeout(DEADLINE_S):
        return await awaitable


class Listener:
    """Takes a session's events as they come, and keeps them."""

    def __init__(self, session: Session) -> None:
        self.events: list[Event] = []
        self._session = session
        self._came = asyncio.Event()
        self._task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for event in self._session:
            self.events.append(event)
            self._came.set()

    def all(self, kind: type[_Event]) -> list[_Event]:
        return [event for event in self.events if isinstance(event, kind)]

    async def until(self, is_true: Callable[[], object]) -> None:
        """Wait for something that events bring about."""
        async with asyncio.timeout(DEADLINE_S):
            while not is_true():
                self._came.clear()
                await self._came.wait()

    async def some(self, kind: type[_Event], count: int = 1) -> list[_Event]:
        """At least so many events of a kind."""
        try:
            await self.until(lambda: len(self.all(kind)) >= count)
        except TimeoutError:
            told = "\n".join(str(event)[:200] for event in self.events[-20:])
            pytest.fail(f"{len(self.all(kind))} of {count} {kind.__name__}; the last events:\n{told}")
        return self.all(kind)

    async def one(self, kind: type[_Event]) -> _Event:
        return (await self.some(kind))[0]

    def stream_bytes(self) -> bytes:
        return b"".join(event.data for event in self.all(StreamReceived))

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@contextlib.asynccontextmanager
async def listening(session: Session) -> AsyncIterator[Listener]:
    """A session, open, whose events are taken."""
    async with session:
        listener = Listener(session)
        try:
            yield listener
        finally:
            await listener.end()


async def until(is_true: Callable[[], object]) -> None:
    """Wait for something that no event tells of."""
    async with asyncio.timeout(DEADLINE_S):
        while not is_true():  # noqa: ASYNC110 - there is nothing to wait for
            await asyncio.sleep(0.002)


def content_of(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def noise(size: int, seed: int = 1) -> bytes:
    return Random(seed).randbytes(size)


# Objects and streams.


@pytest.mark.parametrize("no_gso", ["0", "1"])
@on_each_loop
async def test_data_files_and_a_stream_arrive(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_gso: str
) -> None:
    monkeypatch.setenv("FJM2_NO_GSO", no_gso)
    data, content, lines = noise(1_000_001), noise(300_000, 2), [noise(size, size) for size in range(1, 400, 7)]
    (tmp_path / "letter.txt").write_bytes(content)
    async with listening(new_session(port)) as heard, new_session(port, is_sender_only=True) as sender:
        ids = [await sender.send_data(data), await sender.send_file(tmp_path / "letter.txt")]
        async with await sender.open_stream(info=b"lines") as stream:
            for line in lines:
                await stream.write(line)
        await soon(sender.flushed())
        completed = await heard.some(ObjectCompleted, 2)
        ended = await heard.one(StreamEnded)
    assert [event.object_id for event in completed] == ids
    assert [event.data for event in completed] == [data, content]
    assert [event.info for event in completed] == [None, b"letter.txt"]
    assert [event.is_file for event in completed] == [False, True]
    assert {event.sender_id for event in completed} == {sender.node_id}
    assert heard.stream_bytes() == b"".join(lines)
    assert ended.size == len(heard.stream_bytes())
    assert [event.info for event in heard.all(InfoReceived)] == [b"letter.txt", b"lines"]


@on_each_loop
async def test_events_come_in_order(port: int) -> None:
    async with listening(new_session(port)) as heard:
        async with new_session(port, is_sender_only=True) as sender:
            await sender.send_data(b"first", info=b"what it is")
            async with await sender.open_stream() as stream:
                await stream.write(b"second")
            await soon(sender.flushed())
        await heard.one(SenderVanished)
    kinds = [type(event) for event in heard.events]
    assert kinds == [
        SenderAppeared,
        InfoReceived,
        ObjectCompleted,
        StreamOpened,
        StreamReceived,
        StreamEnded,
        SenderVanished,
    ]


@on_each_loop
async def test_marks_show_where_messages_begin(port: int) -> None:
    async with listening(new_session(port)) as heard, new_session(port, is_sender_only=True) as sender:
        stream = await sender.open_stream()
        sent = b""
        for number in range(200):
            message = f"message {number};".encode()
            await stream.write(message[:4])
            await stream.write(message[4:], is_start=False)
            sent += message
        await heard.until(lambda: heard.stream_bytes() == sent)
        marks = [event.data[mark:][:8] for event in heard.all(StreamReceived) for mark in event.marks]
    assert marks
    assert set(marks) == {b"message "}


@on_each_loop
async def test_a_stream_older_than_the_first_object_heard_arrives(port: int) -> None:
    async with listening(new_session(port)) as heard, new_session(port, is_sender_only=True) as sender:
        stream = await sender.open_stream()
        await sender.send_data(b"an object")
        await heard.one(ObjectCompleted)
        await stream.write(b"the stream")
        await stream.close()
        await heard.one(StreamEnded)
        assert heard.stream_bytes() == b"the stream"


@on_each_loop
async def test_info_alone_is_an_object(port: int) -> None:
    async with listening(new_session(port)) as heard, new_session(port, is_sender_only=True) as sender:
        await sender.send_data(b"", info=b"nothing but this")
        event = await heard.one(ObjectCompleted)
        with pytest.raises(ConfigError, match="an empty object: expected content or info"):
            await sender.send_data(b"")
        with pytest.raises(ConfigError, match="info of 1401 bytes: expected 1400 at most"):
            await sender.send_data(b"x", info=bytes(1401))
    assert (event.info, event.size, event.data) == (b"nothing but this", 0, b"")


@on_each_loop
async def test_files_arrive_on_disk_where_a_directory_is_given(port: int, tmp_path: Path) -> None:
    content = noise(200_000)
    (tmp_path / "sent").write_bytes(content)
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    receiver = new_session(port, receiver=ReceiverConfig(file_directory=str(inbox)))
    async with listening(receiver) as heard, new_session(port, is_sender_only=True) as sender:
        await sender.send_file(tmp_path / "sent")
        event = await heard.one(ObjectCompleted)
        assert event.data is None
        assert event.path is not None
        assert os.listdir(inbox) == [os.path.basename(event.path)]
        assert content_of(event.path) == content


@on_each_loop
async def test_with_reed_solomon_and_parity_unasked(port: int) -> None:
    config = SenderConfig(fec=Fec.RS, parity_segments=8, auto_parity=2, rate_bps=200e6, grtt_s=0.002)
    data = noise(500_000)
    async with (
        listening(new_session(port)) as heard,
        new_session(port, is_sender_only=True, sender=config) as sender,
    ):
        await sender.send_data(data)
        assert (await heard.one(ObjectCompleted)).data == data
        await soon(sender.flushed())
        assert sender.stats.parity_segments_sent >= 2 * 500_000 // (1400 * 64)


@on_each_loop
async def test_more_than_the_cache_holds_goes_out_without_pauses(port: int) -> None:
    config = SenderConfig(rate_bps=None, grtt_s=0.1, robust_factor=20, cache_objects=4)
    async with (
        listening(new_session(port)) as heard,
        new_session(port, is_sender_only=True, sender=config) as sender,
    ):
        began = time.monotonic()
        ids = [await soon(sender.send_data(noise(3000, number))) for number in range(40)]
        took_s = time.monotonic() - began
        assert [event.object_id for event in await heard.some(ObjectCompleted, 40)] == ids
    assert took_s < 2  # a flush takes 4 s, and need not be waited for


@on_each_loop
async def test_those_who_wait_for_room_get_it_in_turn(port: int) -> None:
    config = SenderConfig(rate_bps=20e6, grtt_s=0.002, cache_objects=2)
    async with (
        listening(new_session(port)) as heard,
        new_session(port, is_sender_only=True, sender=config) as sender,
    ):
        await soon(asyncio.gather(*(sender.send_data(bytes([number]) * 5000) for number in range(12))))
        completed = await heard.some(ObjectCompleted, 12)
    assert [event.data[0] for event in completed if event.data] == list(range(12))


# Acknowledgement.


@on_each_loop
async def test_a_watermark_is_confirmed_by_those_who_have_all(port: int) -> None:
    async with (
        listening(new_session(port, node_id=2)) as first,
        listening(new_session(port, node_id=3)) as second,
        new_session(port, is_sender_only=True) as sender,
    ):
        data = noise(2_000_000)
        await sender.send_data(data)
        outcome = await soon(sender.watermark([2, 3]))
        assert (outcome.acked, outcome.failed) == ({2, 3}, set())
        for heard in (first, second):  # at that moment, not some time later
            assert [event.data for event in heard.all(ObjectCompleted)] == [data]


@on_each_loop
async def test_a_watermark_tells_who_is_missing(port: int) -> None:
    async with listening(new_session(port, node_id=2)), new_session(port, is_sender_only=True) as sender:
        await sender.send_data(noise(10_000))
        outcome = await soon(sender.watermark([2, 99]))
        assert (outcome.acked, outcome.failed) == ({2}, {99})
        outcome = await soon(sender.watermark([2]))
        assert outcome.acked == {2}


@on_each_loop
async def test_a_watermark_without_nodes_asks_those_that_were_given_up_as_well(port: int) -> None:
    config = SenderConfig(flow=Flow.NAMED, rate_bps=None, ack_timeout_s=0.2, grtt_s=0.002)
    async with (
        listening(new_session(port, node_id=2)),
        new_session(port, is_sender_only=True, sender=config) as sender,
    ):
        sender.set_receivers([2, 99])
        await sender.send_data(noise(10_000))
        await until(lambda: sender.evicted_receivers)
        assert (sender.receivers, sender.evicted_receivers) == ({2}, {99})
        assert (sender.statistics().receivers, sender.statistics().receivers_evicted) == (1, 1)
        assert re.search(r"^fjm2_evicted_receivers\{.*\} 1$", metrics.render(sender), re.MULTILINE)
        outcome = await soon(sender.watermark())
        assert (outcome.acked, outcome.failed) == ({2}, {99})


@on_each_loop
async def test_a_watermark_without_nodes_needs_to_know_some(port: int) -> None:
    async with new_session(port, is_sender_only=True) as sender:
        with pytest.raises(NormError, match="flow=max"):
            await sender.watermark()


@on_each_loop
async def test_it_can_be_asked_how_far_an_object_is(port: int) -> None:
    size = 400_001
    sending = SenderConfig(rate_bps=8e6)
    receiver = new_session(port, node_id=2)
    assert receiver.incoming == ()
    async with (
        listening(receiver) as heard,
        new_session(port, node_id=7, is_sender_only=True, sender=sending) as sender,
    ):
        assert receiver.incoming == ()
        number = await sender.send_data(noise(size), info=b"name")
        await until(lambda: receiver.incoming and receiver.incoming[0].info)
        (early,) = receiver.incoming
        assert (early.sender_id, early.object_id, early.info, early.is_file) == (7, number, b"name", False)
        assert early.size == size
        await until(lambda: any(each.bytes_received > early.bytes_received for each in receiver.incoming))
        assert all(each.bytes_received < size for each in receiver.incoming)
        await until(lambda: heard.all(ObjectCompleted))
        assert receiver.incoming == ()
    assert receiver.incoming == ()


@on_each_loop
async def test_a_watermark_does_not_wait_for_who_has_left(port: int) -> None:
    config = SenderConfig(rate_bps=100e6, robust_factor=1000, grtt_s=0.1)  # asked for minutes
    async with (
        listening(new_session(port, node_id=2)),
        new_session(port, is_sender_only=True, sender=config) as sender,
    ):
        await sender.send_data(noise(10_000))
        waiting = [asyncio.create_task(sender.watermark(nodes)) for nodes in ([2, 99], [99])]
        await asyncio.sleep(0.3)
        assert not any(task.done() for task in waiting)
        sender.forget_receiver(99)
        outcomes = await soon(asyncio.gather(*waiting))
        assert [(outcome.acked, outcome.failed) for outcome in outcomes] == [({2}, set()), (set(), set())]


@on_each_loop
async def test_a_watermark_covers_what_a_stream_was_just_given(port: int) -> None:
    config = SenderConfig(rate_bps=100e6, grtt_s=0.002, stream_bytes=1 << 20)
    async with (
        listening(new_session(port, node_id=2)) as heard,
        new_session(port, is_sender_only=True, sender=config) as sender,
    ):
        stream = await sender.open_stream()
        for size in (10, 3_000_000, 20):  # the second is more than the buffer holds
            before = len(heard.stream_bytes())
            await stream.write(noise(size))
            assert (await soon(sender.watermark([2]))).acked == {2}
            assert len(heard.stream_bytes()) == before + size


@on_each_loop
async def test_watermarks_at_once_each_get_their_answer(port: int) -> None:
    async with listening(new_session(port, node_id=2)), new_session(port, is_sender_only=True) as sender:
        await sender.send_data(noise(100_000))
        first = asyncio.create_task(sender.watermark([2]))
        await asyncio.sleep(0)
        await sender.send_data(noise(100_000))
        second = asyncio.create_task(sender.watermark([2, 77]))
        outcomes = await soon(asyncio.gather(first, second))
    assert [(outcome.acked, outcome.failed) for outcome in outcomes] == [({2}, set()), ({2}, {77})]


@on_each_loop
async def test_flushed_waits_for_what_was_just_written(port: int) -> None:
    async with listening(new_session(port)) as heard, new_session(port, is_sender_only=True) as sender:
        await soon(sender.flushed())  # nothing to wait for
        stream = await sender.open_stream()
        await soon(sender.flushed())
        for text in (b"one", b"two"):
            await stream.write(text)
            await soon(sender.flushed())
            assert heard.stream_bytes().endswith(text)
        await stream.close()
        await soon(sender.flushed())
        assert heard.all(StreamEnded)


# Back-pressure.


@on_each_loop
async def test_reception_pauses_while_nobody_takes_events(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
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
async def test_a_stream_that_runs_away_from_its_reader_says_so(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
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


# Losing, giving up, closing.


@on_each_loop
async def test_what_is_cancelled_is_reported_lost(port: int) -> None:
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
async def test_closing_in_the_middle_tells_receivers(port: int) -> None:
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
async def test_a_receiver_that_closes_reports_what_it_was_at(port: int, tmp_path: Path) -> None:
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
        # Only the waiting was cancelled.
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


# Others.


@on_each_loop
async def test_commands_arrive(port: int) -> None:
    async with (
        listening(new_session(port)) as heard,
        listening(new_session(port, is_sender_only=True)) as own,
    ):
        own._session.send_command(b"once")
        own._session.send_command(b"again and again", is_robust=True)
        await own.some(CommandSent, 2)
        await heard.some(CommandReceived, 1 + QUICK.robust_factor)
        with pytest.raises(ConfigError, match="a command of 1401 bytes: expected 1400 at most"):
            own._session.send_command(bytes(1401))
    contents = [event.content for event in heard.all(CommandReceived)]
    assert contents.count(b"once") == 1
    assert contents.count(b"again and again") == QUICK.robust_factor


@on_each_loop
async def test_many_sessions_share_host_and_port(port: int) -> None:
    async with contextlib.AsyncExitStack() as stack:
        heard = [await stack.enter_async_context(listening(new_session(port))) for _ in range(5)]
        sent = {}
        for listener in heard:
            sent[listener._session.node_id] = noise(50_000, listener._session.node_id)
            await listener._session.send_data(sent[listener._session.node_id])
        for listener in heard:
            completed = await listener.some(ObjectCompleted, len(heard) - 1)
            others = {node: data for node, data in sent.items() if node != listener._session.node_id}
            assert {event.sender_id: event.data for event in completed} == others


@on_each_loop
async def test_who_only_sends_hears_nothing_of_others(port: int) -> None:
    async with (
        listening(new_session(port)) as heard,
        listening(new_session(port, is_sender_only=True)) as first,
        new_session(port, is_sender_only=True) as second,
    ):
        await second.send_data(noise(10_000))
        await heard.one(ObjectCompleted)
        await first._session.send_data(noise(10_000))
        await heard.some(ObjectCompleted, 2)
        await first.one(TransmissionFlushed)
        assert not [event for event in first.events if hasattr(event, "sender_id")]
        assert first._session.stats.drops[Drop.NOT_RECEIVING]


@on_each_loop
async def test_a_node_id_in_use_is_noticed(port: int) -> None:
    async with listening(new_session(port, node_id=7)) as one, new_session(port, node_id=7) as other:
        await other.send_data(b"who am I?")
        event = await one.one(NodeIdCollided)
    assert event.address[0] == "127.0.0.1"
    assert not one.all(SenderAppeared)


@on_each_loop
async def test_a_wrong_interface_is_answered_with_what_there_is(port: int) -> None:
    session = new_session(port, interface="eth77")
    with pytest.raises(ConfigError, match=r"interface='eth77': expected .*; there are lo \(127\.0\.0\.1"):
        await session.__aenter__()
    await session.close()


@on_each_loop
async def test_a_late_receiver_gets_what_it_asks_for(port: int) -> None:
    async with new_session(port, is_sender_only=True) as sender:
        stream = await sender.open_stream()
        early = [await sender.send_data(bytes([number])) for number in range(5)]
        await stream.write(b"early ")
        await soon(sender.flushed())
        async with (
            listening(new_session(port, receiver=ReceiverConfig(sync=Sync.CURRENT))) as current,
            listening(new_session(port, receiver=ReceiverConfig(sync=Sync.STREAM))) as from_start,
            listening(new_session(port, receiver=ReceiverConfig(sync=Sync.ALL))) as everything,
        ):
            await stream.write(b"late")
            for heard in (current, from_start, everything):
                await heard.one(StreamOpened)  # where reception begins
            last = await sender.send_data(b"late object")
            await stream.close()
            for heard in (current, from_start, everything):
                await heard.one(StreamEnded)
            for heard, count in ((current, 1), (from_start, 1), (everything, 6)):
                await heard.some(ObjectCompleted, count)
            assert current.stream_bytes() == b"late"
            assert from_start.stream_bytes() == everything.stream_bytes() == b"early late"
            assert {event.object_id for event in everything.all(ObjectCompleted)} == {*early, last}


@pytest.mark.parametrize(("writes", "size"), [(100_000, 20), (300_000, 1), (3_000, 20_000)])
@on_each_loop
async def test_writing_in_a_loop_does_not_hold_others_up(port: int, writes: int, size: int) -> None:
    """The time between two turns of another task, in processor time: other programs do not count."""
    longest_s = 0.0

    async def tick() -> None:
        nonlocal longest_s
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest_s, before = max(longest_s, now - before), now

    config = SenderConfig(rate_bps=None, grtt_s=0.002)
    async with (
        listening(new_session(port)) as heard,
        new_session(port, is_sender_only=True, sender=config) as sender,
    ):
        ticker = asyncio.create_task(tick())
        async with await sender.open_stream() as stream:
            for _ in range(writes):
                await stream.write(bytes(size))
        await heard.one(StreamEnded)
        ticker.cancel()
        received = len(heard.stream_bytes())
        lost = sum(event.end - event.start for event in heard.all(StreamLost))
    assert received + lost == writes * size
    assert longest_s < 0.05


# In networks of their own.


def run_in(network: Network, main: Callable[[], Coroutine[Any, Any, None]], *setup: str) -> None:
    """Runs a coroutine on each kind of loop, on a host of its own."""
    host = network.namespace()
    for command in setup:
        host.ip(*command.split())
    with host.entered():
        for factory in (asyncio.new_event_loop, uvloop.new_event_loop):
            with asyncio.Runner(loop_factory=factory) as runner:
                runner.run(main())


@pytest.mark.root
def test_ipv6_multicast(network: Network, port: int) -> None:
    async def main() -> None:
        settings = {"group": "ff15::57:95", "interface": "lo"}
        async with (
            listening(new_session(port, node_id=2, **settings)) as heard,
            new_session(port, is_sender_only=True, **settings) as sender,
        ):
            data = noise(300_000)
            await sender.send_data(data)
            assert (await soon(sender.watermark([2]))).acked == {2}
            assert (await heard.one(ObjectCompleted)).data == data

    run_in(network, main, "-6 route add local ff00::/8 dev lo table local")


@pytest.mark.root
def test_between_two_by_unicast(network: Network, port: int) -> None:
    async def main() -> None:
        ends = ("10.57.0.1", "10.57.0.2")
        async with (
            listening(new_session(port, group=ends[1], interface=ends[0], node_id=1)) as one,
            listening(new_session(port, group=ends[0], interface=ends[1], node_id=2)) as other,
        ):
            for source, target, node in ((one, other, 2), (other, one, 1)):
                data = noise(300_000, node)
                await source._session.send_data(data)
                assert (await soon(source._session.watermark([node]))).acked == {node}
                assert (await target.one(ObjectCompleted)).data == data

    run_in(network, main, "address add 10.57.0.1/32 dev lo", "address add 10.57.0.2/32 dev lo")
