"""Tests of closing: it waits for accepted messages as long as there is progress, and no longer."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from adapter import QUIET_S, WAIT_S, Api, Asyncio, Blocking, eventually, listener

from fjm2.jms import BytesMessage, FileMessage, IllegalStateError, TextMessage, Topic, UnconfirmedError, dispatcher

TOPIC, OTHER = Topic("closing"), Topic("closing.other")
MESSAGES, BYTES = 150, 1000
RATE_BPS = 1_000_000
SENDING_S = MESSAGES * BYTES * 8 / RATE_BPS
"""Shortest time in which the sender can send all messages."""
STILL_S = 0.5
BUSY_S = 1.5
"""Delay that a busy machine may add."""


class Slow:
    """A sender with a low rate, and a receiver on another node."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.errors: list[Exception] = []
        self.options = {"rate": RATE_BPS, "close_timeout_s": STILL_S}

    async def open(self) -> "Slow":
        listening = await self.api.connect(inactivity_s=50)
        self.consumer = await (await listening.create_session()).create_consumer(TOPIC)
        self.connection = await self.api.connect(**self.options)
        self.connection.exception_listener = self.errors.append
        await (await (await self.connection.create_session()).create_consumer(Topic("other"))).ready()
        return self

    async def send(self) -> None:
        producer = await (await self.connection.create_session()).create_producer(TOPIC)
        for number in range(MESSAGES):
            message = BytesMessage()
            message.write_bytes(number.to_bytes(2, "big") + bytes(BYTES))
            await producer.send(message)

    async def received(self) -> list[int]:
        numbers = []
        while (message := await self.consumer.receive(STILL_S)) is not None:
            numbers.append(int.from_bytes(message.read_bytes(2), "big"))
        return numbers


async def timed(call: Any) -> float:
    began = time.monotonic()
    await call
    return time.monotonic() - began


@pytest.mark.parametrize("is_shared", [False, True], ids=["alone", "shared"])
async def test_all_accepted_messages_arrive_at_any_rate(api: Api, is_shared: bool) -> None:
    slow = await Slow(api).open()
    if is_shared:
        await api.connect(**slow.options)
    await slow.send()
    assert await timed(slow.connection.close()) > SENDING_S / 2 > STILL_S
    assert await slow.received() == list(range(MESSAGES))
    assert slow.errors == []


async def test_a_timeout_bounds_the_close_and_losses_are_reported(api: Api) -> None:
    slow = await Slow(api).open()
    await slow.send()
    assert await timed(slow.connection.close(timeout=0.2)) < 0.2 + BUSY_S / 2
    await eventually(lambda: slow.errors)
    assert all(isinstance(error, UnconfirmedError) for error in slow.errors)
    assert len(await slow.received()) < MESSAGES


async def test_leaving_the_block_by_ctrl_c_waits_no_longer_than_for_a_dead_peer(api: Api) -> None:
    slow = await Slow(api).open()
    await slow.send()
    assert await timed(api.leave(slow.connection.inner, KeyboardInterrupt, KeyboardInterrupt(), None)) < SENDING_S
    await eventually(lambda: slow.errors)
    await slow.received()


async def test_leaving_the_block_by_another_exception_loses_nothing(api: Api) -> None:
    context = await api.context(rate=RATE_BPS, close_timeout_s=STILL_S)
    slow = await Slow(api).open()
    producer = await context.create_producer()
    for number in range(MESSAGES):
        await producer.send(TOPIC, number.to_bytes(2, "big") + bytes(BYTES))
    await slow.connection.close()
    await api.leave(context.inner, ValueError, ValueError(), None)
    assert await slow.received() == list(range(MESSAGES))


@pytest.mark.parametrize("api", [Asyncio], indirect=True)  # only Ctrl-C cancels a blocking call
async def test_a_cancelled_close_ends_at_once_and_reports_losses(api: Api) -> None:
    slow = await Slow(api).open()
    await slow.send()
    closing = asyncio.create_task(slow.connection.close())
    await asyncio.sleep(0.1)
    closing.cancel()
    began = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert time.monotonic() - began < STILL_S
    await eventually(lambda: slow.errors)


class Outcomes:
    """A completion listener that keeps the outcomes of sends."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []

    def on_completion(self, _: Any) -> None:
        pass

    def on_exception(self, _: Any, error: Exception) -> None:
        self.errors.append(error)


@pytest.mark.parametrize("api", [Blocking], indirect=True)  # only threads have a queue before the send buffers
async def test_sends_that_wait_in_the_queue_fail_when_the_connection_closes(api: Api, tmp_path: Path) -> None:
    connection = (await api.connect(rate=RATE_BPS, stream_bytes=1, repair_bytes=0, close_timeout_s=STILL_S)).inner
    connection.exception_listener = lambda _: None
    await api.connect()  # a node to wait for
    producer = connection.create_session().create_producer(TOPIC)
    outcomes = Outcomes()
    for _ in range(2):
        message = BytesMessage()
        message.write_bytes(bytes(1 << 20))
        producer.send(message)
    pending = producer.send_async(TextMessage("a"))
    producer.send(TextMessage("b"), on_complete=outcomes)
    file = tmp_path / "file"
    file.write_bytes(bytes(10))
    sending = asyncio.ensure_future(asyncio.to_thread(producer.send, FileMessage(file)))
    await asyncio.sleep(QUIET_S)
    await asyncio.to_thread(connection.close, 0.2)
    with pytest.raises(IllegalStateError, match="closed before the message was sent"):
        await asyncio.wait_for(sending, WAIT_S)
    assert isinstance(pending.exception(WAIT_S), IllegalStateError)
    assert [type(error) for error in outcomes.errors] == [IllegalStateError]


async def test_a_listener_uses_its_context_to_its_end_while_the_context_closes(api: Api) -> None:
    context, others = await api.context(), await api.context()
    heard = await others.create_consumer(OTHER)
    await heard.ready()
    begun, go_on, errors = asyncio.Event(), asyncio.Event(), list[Exception]()
    loop = asyncio.get_running_loop()

    async def forward(message: Any) -> None:
        loop.call_soon_threadsafe(begun.set)
        await eventually(go_on.is_set)
        try:
            await context.send(OTHER, message)
        except Exception as error:
            errors.append(error)

    (await context.create_consumer(TOPIC)).message_listener = listener(api, forward)
    await others.send(TOPIC, "a")
    await begun.wait()
    closing = asyncio.create_task(context.close())
    await asyncio.sleep(QUIET_S)
    go_on.set()
    await closing
    assert errors == []
    assert await heard.receive_body(str, WAIT_S) == "a"


async def test_a_listener_that_a_close_waits_for_is_named(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dispatcher, "TOLD_AFTER_S", 0.1)
    context, others = await api.context(), await api.context()
    begun, go_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def stay(_: Any) -> None:
        loop.call_soon_threadsafe(begun.set)
        await eventually(go_on.is_set)

    def told() -> list[str]:
        return [each.getMessage() for each in caplog.records if getattr(each, "event", "") == "listener_runs"]

    (await context.create_consumer(TOPIC)).message_listener = listener(api, stay)
    await others.send(TOPIC, "a")
    await begun.wait()
    closing = asyncio.create_task(context.close())
    await eventually(told)
    go_on.set()
    await closing
    (text,) = told()
    assert "of topic://closing has not returned: stopping and closing wait for it, whatever their timeout" in text
