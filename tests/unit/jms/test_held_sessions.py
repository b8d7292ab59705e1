"""Tests of what durable consumers deliver after their program was stopped: nothing before the cell has answered."""

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fjm2.base.ledger import Ledger
from fjm2.bus.inbox import ConsumerSettings
from fjm2.jms import SessionMode, Topic
from fjm2.jms.batches.incoming import Batches
from fjm2.jms.blocking.loop_thread import LOOP, run
from fjm2.jms.blocking.receiver import Receiver
from fjm2.jms.consumer import MessageConsumer
from fjm2.jms.dispatcher import Dispatcher
from fjm2.jms.durable.inbox import DurableInbox
from fjm2.jms.durable.lease import Lease
from fjm2.jms.listener_task import ThreadListener
from fjm2.messages.frame import FrameWriter, frame_alone
from fjm2.messages.header import PERSISTENT, Kind
from fjm2.messages.ledgers.ledger_number import with_ledger_number
from fjm2.messages.message import Message
from fjm2.messages.object_codec import SAFE_CODEC

TOPIC = Topic("prices")
LEDGER = Ledger(5, 0, 0)
WRITER = FrameWriter(1)
WAIT_S = 10.0
GATHER_S = 0.5
"""Time for which a batch waits for more."""


class Bench:
    """A started session with one durable consumer, whose lease the test ends and extends."""

    def __init__(self, mode: SessionMode = SessionMode.DUPS_OK_ACKNOWLEDGE) -> None:
        self.ends = 0
        """Number of times that messages were asked for after the end of the lease."""
        self.dispatcher = Dispatcher(mode, SAFE_CODEC, 3, lambda _: None)
        self.inbox = DurableInbox(TOPIC, None, None, ConsumerSettings(), lambda: None, lambda *_: None)
        self.inbox.lease = Lease(self._note_end)
        self.dispatcher.add(self.inbox)
        self.dispatcher.start()
        self.got: list[str] = []
        self._sequence = 1

    def _note_end(self) -> None:
        self.ends += 1

    def put(self, *texts: str) -> None:
        for text in texts:
            parts = WRITER.write_body(int(Kind.TEXT), b"", text.encode(), TOPIC, PERSISTENT, 4, 1)
            frame = frame_alone(b"".join(with_ledger_number(parts, 5, 0, self._sequence)))
            self.inbox.take_frames(LEDGER, self._sequence, [frame], is_redelivered=False)
            self._sequence += 1

    def stop(self) -> None:
        """Let so much time pass that the lease ends."""
        self.inbox.lease.extend(-1.0)

    def keep(self) -> None:
        """Have the cell say that it keeps the session."""
        self.inbox.lease.extend(60.0)
        self.inbox.end_hold()

    def fence(self) -> None:
        """Have the cell say that it has ended the session."""
        self.inbox.begin_life()
        self.keep()

    def note(self, message: Any) -> None:
        self.got.append(message.text)

    async def until(self, count: int) -> None:
        """Wait until the listener has got some messages, and then whether it gets more."""
        for _ in range(int(WAIT_S / 0.01)):
            if len(self.got) >= count:
                break
            await asyncio.sleep(0.01)
        await turns()
        assert len(self.got) == count


async def turns() -> None:
    """Let the loop go round often enough for everything that follows at once."""
    for _ in range(20):
        await asyncio.sleep(0.001)


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run_it() -> None:
        asyncio.run(test())

    run_it.__name__ = test.__name__
    return run_it


@in_loop
async def test_a_receive_waits_for_the_answer_and_gets_what_is_kept() -> None:
    bench = Bench()
    bench.put("a", "b")
    assert await bench.dispatcher.receive(bench.inbox, 0) is not None
    bench.stop()
    assert await bench.dispatcher.receive(bench.inbox, 0.02) is None
    assert bench.ends
    waiting = [asyncio.ensure_future(bench.dispatcher.receive(bench.inbox, 5))]
    await turns()
    assert not waiting[0].done()
    bench.keep()
    assert await waiting[0] is not None


@in_loop
async def test_a_receive_that_waits_for_nothing_waits_for_the_answer() -> None:
    bench = Bench()
    bench.put("a", "b")
    bench.stop()
    waiting = asyncio.ensure_future(bench.dispatcher.receive(bench.inbox, 0))
    await turns()
    assert not waiting.done()
    bench.keep()
    assert await waiting is not None
    bench.stop()
    waiting = asyncio.ensure_future(bench.dispatcher.receive(bench.inbox, 0))
    await turns()
    bench.fence()
    assert await waiting is None
    bench.stop()
    waiting = asyncio.ensure_future(bench.dispatcher.receive(bench.inbox, 0))
    await turns()
    bench.inbox.close()
    assert await asyncio.wait_for(waiting, WAIT_S) is None


@in_loop
async def test_a_listener_gets_nothing_of_a_session_that_was_fenced() -> None:
    bench = Bench()
    bench.dispatcher.listen(bench.inbox, bench.note)
    bench.put("a")
    await bench.until(1)
    bench.stop()
    bench.put("b", "c")
    await bench.until(1)
    bench.keep()
    await bench.until(3)
    bench.stop()
    bench.put("d")
    await bench.until(3)
    bench.fence()
    bench.put("e")
    await bench.until(4)
    assert bench.got == ["a", "b", "c", "e"]
    await bench.dispatcher.close()


@in_loop
async def test_a_listener_that_is_stopped_between_two_messages_gets_only_one() -> None:
    bench = Bench()

    def stop_at_a(message: Any) -> None:
        bench.note(message)
        if message.text == "a":
            bench.stop()

    bench.dispatcher.listen(bench.inbox, stop_at_a)
    bench.put("a", "b", "c")
    await bench.until(1)
    bench.keep()
    await bench.until(3)
    await bench.dispatcher.close()


@in_loop
async def test_messages_to_be_delivered_again_wait_without_keeping_the_loop_busy() -> None:
    bench = Bench()
    calls: list[str] = []

    def fail(message: Any) -> None:
        calls.append(message.text)
        if len(calls) == 1:
            bench.stop()
            raise ValueError

    bench.dispatcher.listen(bench.inbox, fail)
    bench.put("a")
    await turns()
    assert calls == ["a"]
    asked = bench.ends
    await turns()
    assert bench.ends == asked, "nobody looks for messages meanwhile"
    bench.keep()
    await turns()
    assert calls == ["a", "a"]
    await bench.dispatcher.close()


@in_loop
async def test_a_batch_that_was_gathered_before_a_stop_goes_back() -> None:
    bench = Bench()
    bench.put("a", "b")
    batches = Batches(bench.dispatcher, bench.inbox, 10, GATHER_S)
    waiting = asyncio.ensure_future(anext(aiter(batches)))
    await turns()
    bench.stop()
    await asyncio.sleep(1.5 * GATHER_S)
    assert not waiting.done()
    bench.put("c")
    bench.keep()
    assert len(await asyncio.wait_for(waiting, WAIT_S)) == 3
    waiting = asyncio.ensure_future(anext(aiter(batches)))
    bench.put("d")
    await turns()
    bench.fence()
    await asyncio.sleep(1.5 * GATHER_S)
    assert not waiting.done(), "it was gathered in a life that is over"
    waiting.cancel()


@in_loop
async def test_a_listener_in_a_thread_gets_no_more_of_its_batch() -> None:
    bench = Bench()

    async def call(messages: list[Message], is_over: Callable[[], bool]) -> tuple[int, BaseException | None]:
        for done, message in enumerate(messages, 1):
            bench.note(message)
            if bench.got == ["a"]:
                bench.stop()
            if is_over():
                return done, None
        return len(messages), None

    bench.put("a", "b", "c")
    bench.dispatcher.listen(bench.inbox, ThreadListener(call, bench.note))
    await bench.until(1)
    bench.keep()
    await bench.until(3)
    await bench.dispatcher.close()


@pytest.mark.parametrize("is_fenced", [False, True])
def test_a_thread_takes_nothing_of_its_run_after_a_stop(is_fenced: bool) -> None:
    def make() -> Bench:
        bench = Bench()
        bench.dispatcher.has_threads = True
        bench.put(*"abcd")
        return bench

    bench = run(make)
    receiver = Receiver(MessageConsumer(bench.dispatcher, bench.inbox, False, None, None))  # type: ignore[arg-type]
    assert receiver.receive(None, 1.0) is not None
    bench.stop()
    assert receiver.receive(None, 0.05) is None
    LOOP.loop.call_soon_threadsafe(bench.fence if is_fenced else bench.keep)
    texts = [receiver.receive(None, 0.2) for _ in range(4)]
    assert [each is not None for each in texts] == [not is_fenced] * 3 + [False]


def test_a_lease_ends_by_a_clock_that_goes_on_while_the_host_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("fjm2.jms.durable.lease._now", lambda: now[0])
    ends: list[bool] = []
    lease = Lease(lambda: ends.append(True))
    assert lease.allows()
    lease.extend(2.0)
    now[0] = 102.0
    assert lease.allows()
    now[0] = 102.1
    assert lease.has_ended
    assert ends == []
    assert not lease.allows()
    assert ends == [True]
    assert lease.has_run_out
    lease.extend(-math.inf)
    assert lease.has_ended
    assert not lease.has_run_out, "the cell is asked already"
