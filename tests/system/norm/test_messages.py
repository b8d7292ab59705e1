"""Tests of messages over sessions: order, losses, late receivers, long messages, several senders, and the end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from netns import Network
from sessions import new_session, noise, on_each_loop, soon

from fjm2.errors import ConfigError, NormError
from fjm2.norm import Flow, IncomingMessages, OutgoingMessages, ReceiverConfig, SenderConfig, Sync
from fjm2.norm.events import Event, LossReason, SenderVanished, StreamEnded, StreamLost, StreamReceived
from fjm2.norm.net.framing import MESSAGE_BYTES_MAX

SIZES = [0, 1, 1024, 1024, 1396, 1397, 3, 200_000, *[64] * 500, 5, *[1024] * 300]


async def take(messages: IncomingMessages, count: int) -> list[bytes]:
    """Take this many messages, and leave the loop over them."""
    taken: list[bytes] = []
    async with asyncio.timeout(20):
        async for message in messages:
            taken.append(message)
            if len(taken) == count:
                break
    return taken


def numbered(count: int, size: int = 100) -> list[bytes]:
    return [number.to_bytes(4) + bytes(size - 4) for number in range(count)]


@on_each_loop
async def test_messages_of_all_sizes_arrive_whole_and_in_order(port: int) -> None:
    sent = [noise(size, seed) for seed, size in enumerate(SIZES)]
    async with new_session(port) as receiver, new_session(port, is_sender_only=True) as sender:
        messages = receiver.messages()
        async with await sender.open_messages() as out:
            for message in sent:
                await out.send(message)
        assert await take(messages, len(sent)) == sent
        assert messages.sender_id == sender.node_id


@on_each_loop
async def test_a_loop_can_be_left_and_begun_again(port: int) -> None:
    sent = numbered(100)
    async with new_session(port) as receiver, new_session(port, is_sender_only=True) as sender:
        messages = receiver.messages()
        out = await sender.open_messages()
        for message in sent:
            await out.send(message)
        assert [*await take(messages, 1), *await take(messages, 50), *await take(messages, 49)] == sent


@on_each_loop
async def test_lone_messages_of_any_kind_of_bytes_arrive(port: int) -> None:
    async with new_session(port) as receiver, new_session(port, is_sender_only=True) as sender:
        messages = receiver.messages()
        out = await sender.open_messages()
        for message in (b"bytes", bytearray(b"bytearray"), memoryview(b"memoryview"), b""):
            await out.send(message)
            assert await take(messages, 1) == [bytes(message)]


@on_each_loop
async def test_messages_of_several_senders_are_told_apart(port: int) -> None:
    async with (
        new_session(port) as receiver,
        new_session(port, node_id=11, is_sender_only=True) as first,
        new_session(port, node_id=12, is_sender_only=True) as second,
    ):
        messages = receiver.messages()
        outs = [await first.open_messages(), await second.open_messages(), await first.open_messages()]
        for message in numbered(200, 700):
            for out in outs:
                await out.send(message)
        got: dict[int, list[bytes]] = {11: [], 12: []}
        async with asyncio.timeout(20):
            async for message in messages:
                got[messages.sender_id].append(message)
                if len(got[11]) + len(got[12]) == 600:
                    break
    assert got[12] == numbered(200, 700)
    assert sorted(got[11]) == sorted(2 * numbered(200, 700))


@on_each_loop
async def test_a_late_receiver_begins_with_a_whole_message(port: int) -> None:
    """Messages take several datagrams, and the first one heard is hardly ever the first of a message."""
    config = ReceiverConfig(sync=Sync.CURRENT)
    async with new_session(port, is_sender_only=True) as sender:
        out = await sender.open_messages()
        for message in numbered(50, 5000):
            await out.send(message)
        await soon(sender.flushed())
        async with new_session(port, receiver=config) as receiver:
            messages = receiver.messages()

            async def publish() -> None:
                for message in numbered(10_000, 5000):
                    await out.send(message)
                    await asyncio.sleep(0.001)

            task = asyncio.create_task(publish())
            got = await take(messages, 20)
            task.cancel()
    first = int.from_bytes(got[0][:4])
    assert got == numbered(first + 20, 5000)[first:]


@pytest.mark.root
def test_losses_are_repaired(network: Network, port: int) -> None:
    sent = numbered(3000, 700)
    config = SenderConfig(flow=Flow.NAMED, rate_bps=200e6, grtt_s=0.002)

    async def main() -> list[bytes]:
        left, right = network.namespace(), network.namespace()
        network.link(left, right)
        for namespace in (left, right):
            namespace.cut_trains("veth0")
            namespace.lose(0.05)
        place = {"interface": "veth0", "ttl": 1, "sender": config}
        sender, receiver = new_session(port, **place), new_session(port, node_id=7, **place)
        with left.entered():
            sender.open()
        with right.entered():
            receiver.open()
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(sender.close)
            stack.push_async_callback(receiver.close)
            sender.set_receivers([7])
            out = await sender.open_messages()

            async def publish() -> None:
                for message in sent:
                    await out.send(message)

            task = asyncio.create_task(publish())
            taken = await take(receiver.messages(), len(sent))
            await task
            assert sender.statistics().repair_segments_sent
        return taken

    assert asyncio.run(main()) == sent


class Script:
    """Events of a session that were written down before."""

    def __init__(self, *events: Event) -> None:
        self._events = list(events)[::-1]

    def take(self) -> Event | None:
        return self._events.pop() if self._events else None

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        raise StopAsyncIteration


def run_of(sender_id: int, start: int, data: bytes, *marks: int) -> StreamReceived:
    return StreamReceived(sender_id, 5, start, data, marks)


def frame(message: bytes) -> bytes:
    return len(message).to_bytes(4) + message


async def told(*events: Event) -> list[bytes | Event]:
    """Return messages, and events that are none, in the order in which the application gets them."""
    seen: list[bytes | Event] = []
    messages = IncomingMessages(Script(*events), seen.append)
    async for message in messages:
        seen.append(message)  # noqa: PERF401 - events are appended in between
    return seen


@on_each_loop
async def test_a_gap_is_told_between_the_messages_and_costs_only_what_it_touches() -> None:
    data = frame(b"one") + frame(b"two") + frame(b"three") + frame(b"four")
    gap = StreamLost(1, 5, 9, 18, LossReason.SQUELCHED)
    seen = await told(run_of(1, 0, data[:9], 0, 7), gap, run_of(1, 18, data[18:], 5))
    assert seen == [b"one", gap, b"four"]


@on_each_loop
async def test_a_gap_of_one_sender_does_not_touch_another() -> None:
    gap = StreamLost(1, 5, 3, 50, LossReason.OVERRUN)
    theirs = frame(b"theirs")
    seen = await told(run_of(1, 0, frame(b"ours")[:3], 0), run_of(2, 0, theirs[:5], 0), gap, run_of(2, 5, theirs[5:]))
    assert seen == [gap, b"theirs"]


@on_each_loop
async def test_the_end_of_a_sender_is_told_behind_its_last_message() -> None:
    ends = StreamEnded(1, 5, 7), SenderVanished(1, LossReason.SENDER_GONE)
    assert await told(run_of(1, 0, frame(b"one"), 0), *ends) == [b"one", *ends]


@on_each_loop
async def test_a_stream_that_holds_no_messages_is_told_as_lost() -> None:
    seen = await told(run_of(1, 0, b"no messages here" * 10, 0), run_of(2, 0, frame(b"one"), 0))
    assert seen == [StreamLost(1, 5, 0, 160, LossReason.FAILED), b"one"]


@on_each_loop
async def test_incomplete_messages_of_many_senders_are_bounded() -> None:
    piece = (MESSAGE_BYTES_MAX).to_bytes(4) + bytes(48 << 20)
    lost: list[Event] = []
    incoming = IncomingMessages(Script(*(run_of(node, 0, piece, 0) for node in range(1, 10))), lost.append)
    async for _ in incoming:
        pass
    assert {type(event) for event in lost} == {StreamLost}
    assert 1 <= len(lost) < 9


@on_each_loop
async def test_greedy_senders_do_not_take_the_messages_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fjm2.norm.net.messages._HELD_BYTES_MAX", 4000)
    greedy = [run_of(node, 0, (5000).to_bytes(4) + bytes(990), 0) for node in range(1, 5)]
    data, pieces = frame(b"x" * 96) * 50, []
    for start in range(0, len(data), 130):  # each piece ends inside a message
        piece = data[start : start + 130]
        pieces.append(
            run_of(9, start, piece, *(at - start for at in range(0, len(data), 100) if 0 <= at - start < 130))
        )
    seen = await told(*greedy, *pieces)
    assert [one for one in seen if isinstance(one, bytes)] == [b"x" * 96] * 50
    assert [one for one in seen if not isinstance(one, bytes)] == [StreamLost(1, 5, 0, 994, LossReason.FAILED)]


@on_each_loop
async def test_mistakes_raise_at_the_call(port: int) -> None:
    async with new_session(port, is_sender_only=True) as sender:
        async with await sender.open_messages(info=b"quotes") as out:
            with pytest.raises(ConfigError, match="message=67108865 bytes: expected at most 67108864 bytes"):
                await out.send(bytes(MESSAGE_BYTES_MAX + 1))
        with pytest.raises(NormError, match="send to a closed stream"):
            await out.send(b"late")
        open_one = await sender.open_messages()
    with pytest.raises(NormError, match="send to a closed stream"):
        await open_one.send(b"late")
    assert isinstance(out, OutgoingMessages)


@on_each_loop
async def test_closing_the_session_ends_the_loop(port: int) -> None:
    async with new_session(port) as receiver:
        task = asyncio.create_task(take(receiver.messages(), 1))
        await asyncio.sleep(0)
        await receiver.close()
        assert await soon(task) == []


_NOT_BYTES = ["text", 5, [1, 2], memoryview(bytes(8)).cast("I"), memoryview(bytes(8))[::2]]


@on_each_loop
@pytest.mark.parametrize("value", _NOT_BYTES, ids=["str", "int", "list", "view of ints", "view with gaps"])
async def test_what_is_no_bytes_is_refused_at_the_call_and_leaves_the_session_whole(port: int, value: Any) -> None:
    async with new_session(port) as receiver, new_session(port, is_sender_only=True) as sender:
        messages = receiver.messages()
        out, stream = await sender.open_messages(), await sender.open_stream()
        with pytest.raises(TypeError, match=r"^message=.*: expected .*; convert "):
            await out.send(value)
        for is_start in (True, False):
            with pytest.raises(TypeError, match=r"^data=.*: expected "):
                await stream.write(value, is_start=is_start)
        with pytest.raises(TypeError, match=r"^head=.*: expected "):
            stream.append(value)
        with pytest.raises(TypeError, match=r"^body=.*: expected "):
            stream.append(b"", value)
        with pytest.raises(TypeError, match=r"^content=.*: expected "):
            sender.send_command(value)
        with pytest.raises(TypeError, match=r"^content=.*: expected "):
            sender.send_ack(7, 16, value)
        with pytest.raises(TypeError, match=r"^info=.*: expected "):
            await sender.send_data(b"x", info=value)
        with pytest.raises(TypeError, match=r"^info=.*: expected "):
            await sender.send_file(__file__, info=value)
        for open_one in (sender.open_stream, sender.open_messages):
            with pytest.raises(TypeError, match=r"^info=.*: expected "):
                await open_one(info=value)
        await out.send(b"whole")
        assert await take(messages, 1) == [b"whole"]


@on_each_loop
async def test_a_text_in_place_of_bytes_is_shown_with_its_remedy(port: int) -> None:
    async with new_session(port, is_sender_only=True) as sender:
        with pytest.raises(TypeError, match=r"^data='text': expected bytes; convert str with \"text\"\.encode\(\)$"):
            await sender.send_data("text")  # type: ignore[arg-type]
        await sender.send_data(memoryview(bytes(8)).cast("I"), info=b"any bytes")
        async with asyncio.timeout(20):
            await sender.flushed()
