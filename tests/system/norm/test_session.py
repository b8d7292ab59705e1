"""Tests of sessions as applications use them: objects, streams and commands, over the loopback.

Several sessions run in one process.
"""

import asyncio
import contextlib
import os
import time
from pathlib import Path

import pytest
from sessions import (
    QUICK,
    content_of,
    listening,
    new_session,
    noise,
    on_each_loop,
    soon,
)

from fjm2.errors import ConfigError
from fjm2.norm import Drop, Fec, ReceiverConfig, SenderConfig, Sync
from fjm2.norm.events import (
    AckReceived,
    AckRequested,
    CommandReceived,
    CommandSent,
    Event,
    InfoReceived,
    NodeIdCollided,
    ObjectCompleted,
    SenderAppeared,
    SenderVanished,
    StreamEnded,
    StreamLost,
    StreamOpened,
    StreamReceived,
    TransmissionFlushed,
)

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
    assert took_s < 2  # does not wait for flushes, each of which takes 4 s


@on_each_loop
async def test_writers_that_wait_for_room_get_it_in_turn(port: int) -> None:
    config = SenderConfig(rate_bps=20e6, grtt_s=0.002, cache_objects=2)
    async with (
        listening(new_session(port)) as heard,
        new_session(port, is_sender_only=True, sender=config) as sender,
    ):
        await soon(asyncio.gather(*(sender.send_data(bytes([number]) * 5000) for number in range(12))))
        completed = await heard.some(ObjectCompleted, 12)
    assert [event.data[0] for event in completed if event.data] == list(range(12))


@on_each_loop
async def test_one_that_writes_all_the_time_keeps_nobody_waiting(port: int) -> None:
    """A watermark waits for what was written before it, and not for what others write meanwhile."""
    batches_max = 1000
    async with new_session(port, is_sender_only=True, sender=SenderConfig(rate_bps=None)) as sender:
        stream = await sender.open_stream()
        batches = 0

        async def write_all_the_time() -> None:
            nonlocal batches
            while batches < batches_max:
                while not stream.append(bytes(100_000)):
                    pass
                batches += 1
                await stream.drain()

        writing = asyncio.create_task(write_all_the_time())
        await asyncio.sleep(0)  # the writer is the first to wait
        for number in range(5):
            before = batches
            await soon(stream.drain())
            assert batches <= before + 2, number
        batches = batches_max
        await soon(writing)


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
async def test_acknowledgements_of_applications_go_to_one_node(port: int) -> None:
    async with (
        listening(new_session(port, is_sender_only=True)) as writer,
        listening(new_session(port)) as keeper,
        listening(new_session(port)) as other,
    ):
        writer._session.request_acks(16, [keeper._session.node_id], ack_id=3)
        await keeper.some(AckRequested, 1)
        # A request could be forged, at the address of a victim.
        assert not keeper._session.send_ack(writer._session.node_id, 16, bytes(1400), ack_id=3)
        await writer._session.send_data(b"as a sender that lives")
        await keeper.some(ObjectCompleted, 1)
        assert keeper._session.send_ack(writer._session.node_id, 16, bytes(1400), ack_id=3)
        assert not keeper._session.send_ack(other._session.node_id, 16)
        await writer.some(AckReceived, 1)
        with pytest.raises(ConfigError, match="an acknowledgement of 1401 bytes: expected 1400 at most"):
            keeper._session.send_ack(writer._session.node_id, 16, bytes(1401))
    assert writer.all(AckReceived) == [AckReceived(keeper._session.node_id, 16, 3, bytes(1400))]
    assert not other.all(AckRequested)
    assert not other.all(AckReceived)


@on_each_loop
async def test_acknowledgements_need_not_wait_for_other_events(port: int) -> None:
    async with new_session(port) as writer, listening(new_session(port)) as keeper:
        taken: list[Event] = []
        heard = asyncio.Event()

        def take(event: Event) -> bool:
            taken.append(event)
            heard.set()
            return True

        writer.take_ack = take
        writer.request_acks(200)
        await keeper.some(AckRequested, 1)
        assert keeper._session.send_ack(writer.node_id, 200, b"now")
        await soon(heard.wait())
        assert taken == [AckReceived(keeper._session.node_id, 200, 0, b"now")]
        assert not any(isinstance(event, AckReceived) for event in iter(writer.take, None))


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
async def test_a_session_that_only_sends_receives_nothing_from_others(port: int) -> None:
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
async def test_a_wrong_interface_error_lists_the_interfaces(port: int) -> None:
    session = new_session(port, interface="eth77")
    with pytest.raises(ConfigError, match=r"interface='eth77': expected .*; there are lo \(127\.0\.0\.1"):
        await session.__aenter__()
    await session.close()


@on_each_loop
async def test_a_late_receiver_starts_where_its_settings_say(port: int) -> None:
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
                await heard.one(StreamOpened)  # reception begins here
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
async def test_writing_in_a_loop_does_not_block_other_tasks(port: int, writes: int, size: int) -> None:
    """The test measures processor time between two turns of another task, so other programs do not count."""
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
