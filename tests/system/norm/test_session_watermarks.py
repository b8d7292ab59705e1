"""Tests of watermarks and flushes of sessions: which receivers confirm, and what the sender waits for."""

import asyncio
import re

import pytest
from sessions import (
    listening,
    new_session,
    noise,
    on_each_loop,
    soon,
    until,
)

from fjm2 import metrics
from fjm2.errors import NormError
from fjm2.norm import Flow, SenderConfig
from fjm2.norm.events import (
    ObjectCompleted,
    StreamEnded,
)


@on_each_loop
async def test_a_watermark_is_confirmed_by_receivers_that_have_everything(port: int) -> None:
    async with (
        listening(new_session(port, node_id=2)) as first,
        listening(new_session(port, node_id=3)) as second,
        new_session(port, is_sender_only=True) as sender,
    ):
        data = noise(2_000_000)
        await sender.send_data(data)
        outcome = await soon(sender.watermark([2, 3]))
        assert (outcome.acked, outcome.failed) == ({2, 3}, set())
        for heard in (first, second):  # both have the data by now
            assert [event.data for event in heard.all(ObjectCompleted)] == [data]


@on_each_loop
async def test_a_watermark_names_the_missing_receivers(port: int) -> None:
    async with listening(new_session(port, node_id=2)), new_session(port, is_sender_only=True) as sender:
        await sender.send_data(noise(10_000))
        outcome = await soon(sender.watermark([2, 99]))
        assert (outcome.acked, outcome.failed) == ({2}, {99})
        outcome = await soon(sender.watermark([2]))
        assert outcome.acked == {2}


@on_each_loop
async def test_a_watermark_without_nodes_asks_evicted_nodes_too(port: int) -> None:
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
async def test_the_progress_of_an_object_can_be_queried(port: int) -> None:
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
async def test_a_watermark_does_not_wait_for_receivers_that_left(port: int) -> None:
    config = SenderConfig(rate_bps=100e6, robust_factor=1000, grtt_s=0.1)  # requests would go on for minutes
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
async def test_a_watermark_covers_data_just_written_to_a_stream(port: int) -> None:
    config = SenderConfig(rate_bps=100e6, grtt_s=0.002, stream_bytes=1 << 20)
    async with (
        listening(new_session(port, node_id=2)) as heard,
        new_session(port, is_sender_only=True, sender=config) as sender,
    ):
        stream = await sender.open_stream()
        for size in (10, 3_000_000, 20):  # the second is longer than the buffer
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
async def test_flushed_waits_for_data_just_written(port: int) -> None:
    async with listening(new_session(port)) as heard, new_session(port, is_sender_only=True) as sender:
        await soon(sender.flushed())  # returns at once
        stream = await sender.open_stream()
        await soon(sender.flushed())
        for text in (b"one", b"two"):
            await stream.write(text)
            await soon(sender.flushed())
            assert heard.stream_bytes().endswith(text)
        await stream.close()
        await soon(sender.flushed())
        assert heard.all(StreamEnded)


@on_each_loop
async def test_a_sender_that_stands_still_goes_on_at_once_with_other_receivers(port: int) -> None:
    config = SenderConfig(flow=Flow.NAMED, rate_bps=None, ack_timeout_s=30.0, grtt_s=1.0, grtt_min_s=1.0)
    async with (
        listening(new_session(port, node_id=2)) as heard,
        new_session(port, is_sender_only=True, sender=config) as sender,
    ):
        sender.set_receivers([99])
        await sender.send_data(noise(8_000_000))
        await asyncio.sleep(0.3)
        assert not heard.all(ObjectCompleted)
        sent = sender.stats.segments_sent
        sender.set_receivers([])
        await asyncio.sleep(0.1)
        assert sender.stats.segments_sent > sent
