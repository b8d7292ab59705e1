"""Tests of `statistics()` of NORM sessions and streams, on real sockets."""

import asyncio
import dataclasses

import pytest

from fjm2.errors import NormError
from fjm2.norm import Session, Stats
from fjm2.norm.events import StreamReceived
from fjm2.norm.net.statistics import SessionStatistics

GROUP = "239.192.57.77"
WAIT_S = 20.0


def session(port: int) -> Session:
    return Session(GROUP, port, interface="127.0.0.1", ttl=0)


def test_statistics_contain_all_counters_of_a_session() -> None:
    """The class `Stats` has the engine's counters."""
    told = {item.name for item in dataclasses.fields(SessionStatistics)}
    assert {item.name for item in dataclasses.fields(Stats)} <= told


async def _pass_messages(port: int) -> None:
    async with asyncio.timeout(WAIT_S), session(port) as sender, session(port) as receiver:
        stream = await sender.open_stream()
        for _ in range(3):
            await stream.write(b"x" * 100)
        written = stream.statistics()
        assert (written.queue_messages, written.queue_bytes, written.messages_sent) == (3, 300, 0)
        assert sender.statistics().queue_bytes == 300
        taken = 0
        while taken < 300:
            if not receiver.statistics().events_waiting:
                await asyncio.sleep(0.002)
            while (event := receiver.take()) is not None:
                taken += len(event.data) if isinstance(event, StreamReceived) else 0
        assert await stream.close() is None
        sent, received = sender.statistics(), receiver.statistics()
        assert (sent.messages_sent, sent.payload_bytes_sent, sent.queue_bytes) == (3, 300, 0)
        assert (received.payload_bytes_received, received.bytes_lost) == (300, 0)
        assert received.datagrams_received > 0
        assert (sent.is_down, sent.is_paused, sent.send_errors) == (False, False, 0)
        finished = stream.statistics()
        assert (finished.messages_sent, finished.payload_bytes_sent, finished.queue_bytes) == (3, 300, 0)
        assert finished.is_closed
    assert sender.statistics().payload_bytes_sent == 300


def test_data_is_counted_and_counters_remain_after_the_close(port: int) -> None:
    asyncio.run(_pass_messages(port))


def test_before_it_is_open_there_is_nothing_to_say(port: int) -> None:
    with pytest.raises(NormError, match="not open"):
        session(port).statistics()


def test_a_full_queue_of_events_shows(port: int) -> None:
    async def flood() -> None:
        async with asyncio.timeout(WAIT_S), session(port) as sender, session(port) as receiver:
            stream = await sender.open_stream()
            await stream.write(b"y" * 50_000)
            await stream.drain()
            while receiver.statistics().events_waiting_bytes < 50_000:  # noqa: ASYNC110
                await asyncio.sleep(0.002)
            while receiver.take() is not None:
                pass
            assert receiver.statistics().events_waiting_bytes == 0
            assert receiver.statistics().events_waiting == 0

    asyncio.run(flood())
