"""Tests of receiving by a thread: what crosses from the event loop to the thread is never lost on its way."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from fjm2.bus.inbox import ConsumerSettings, Inbox
from fjm2.bus.router import Received
from fjm2.jms import SessionMode, TextMessage, Topic
from fjm2.jms.blocking.loop_thread import LOOP, run
from fjm2.jms.blocking.receiver import Receiver
from fjm2.jms.consumer import MessageConsumer
from fjm2.jms.dispatcher import Dispatcher
from fjm2.messages.frame import FrameWriter
from fjm2.messages.header import HEADER
from fjm2.messages.object_codec import SAFE_CODEC

TOPIC = Topic("topic")
WAIT_S = 10.0


class ThreadBench:
    """A started session with one consumer, used by a thread."""

    def __init__(self, mode: SessionMode) -> None:
        self.errors: list[Exception] = []
        self._writer = FrameWriter(1)
        self.dispatcher, self.inbox = run(self._open, mode)
        self.receiver = Receiver(MessageConsumer(self.dispatcher, self.inbox, False, None, None))  # type: ignore[arg-type]

    def _open(self, mode: SessionMode) -> tuple[Dispatcher, Inbox]:
        dispatcher = Dispatcher(mode, SAFE_CODEC, 3, self.errors.append)
        dispatcher.has_threads = True
        inbox = Inbox(TOPIC, None, None, ConsumerSettings(), lambda: None, lambda *_: None)
        dispatcher.add(inbox)
        dispatcher.start()
        return dispatcher, inbox

    def put(self, *texts: str) -> None:
        """Deliver messages. Called in the loop."""
        for text in texts:
            head, body = self._writer.write(TextMessage(text), TOPIC, 0, 4, 0)
            self.inbox.deliver(Received(head, body, HEADER.unpack_from(head), 7, None))

    def interrupt_a_receive(self, *texts: str) -> None:
        """Interrupt a receive that waits, just when messages come: what Ctrl-C does in `LoopThread.call`."""
        receiving = LOOP.submit(self.dispatcher.receive_run(self.inbox, None))
        is_busy, may_go_on = threading.Event(), threading.Event()

        def arrive() -> None:
            self.put(*texts)
            is_busy.set()
            may_go_on.wait(WAIT_S)

        LOOP.loop.call_soon_threadsafe(arrive)
        assert is_busy.wait(WAIT_S)
        assert receiving.cancel()
        may_go_on.set()
        run(lambda: None)

    def texts(self, count: int) -> list[tuple[str, int]]:
        """Receive messages. Return their texts, and how often each was delivered."""
        messages: list[Any] = [self.receiver.receive(None, 1) for _ in range(count)]
        return [(message.text, message.delivery_count) for message in messages]


@pytest.fixture(params=[SessionMode.AUTO_ACKNOWLEDGE, SessionMode.SESSION_TRANSACTED])
def bench(request: pytest.FixtureRequest) -> Iterator[ThreadBench]:
    bench = ThreadBench(request.param)
    yield bench
    LOOP.call(bench.dispatcher.close())
    assert not bench.errors


def test_an_interrupted_receive_leaves_its_message_to_the_next(bench: ThreadBench) -> None:
    bench.interrupt_a_receive("a", "b", "c")
    assert bench.texts(3) == [("a", 1), ("b", 1), ("c", 1)]
    run(bench.dispatcher.acknowledge_all)
    run(bench.receiver.statistics)
    assert not bench.inbox.held


def test_a_rollback_finds_the_message_of_an_interrupted_receive(bench: ThreadBench) -> None:
    bench.interrupt_a_receive("a", "b", "c")
    run(bench.dispatcher.recover)
    assert [delivery.received.body for delivery in bench.inbox.again] == [b"a", b"b", b"c"]
    assert bench.texts(3) == [("a", 1), ("b", 1), ("c", 1)]


@pytest.mark.parametrize("receive", ["receive", "receive_in_loop"])
@pytest.mark.parametrize("closes", [False, True])
def test_what_is_taken_back_from_a_receive_is_asked_for_again(
    bench: ThreadBench, monkeypatch: pytest.MonkeyPatch, closes: bool, receive: str
) -> None:
    dispatcher, inbox, receiver = bench.dispatcher, bench.inbox, bench.receiver
    find, rounds = dispatcher.receive_run, []

    async def find_and_lose(of: Inbox, timeout_s: float | None) -> bool:
        """Do what another thread can: stop, or close the consumer, before this thread takes the message."""
        is_found = await find(of, timeout_s)
        rounds.append(timeout_s)
        if closes:
            await dispatcher.close_inbox(inbox)
        elif len(rounds) == 1:
            await dispatcher.stop()
            dispatcher.start()
        return is_found

    monkeypatch.setattr(dispatcher, "receive_run", find_and_lose)
    run(bench.put, "a")
    message: Any = receiver.receive(None, WAIT_S) if receive == "receive" else receiver.receive_in_loop()
    assert message is None if closes else (message.text, message.delivery_count) == ("a", 1)
    assert len(rounds) == (1 if closes else 2)


def test_the_loop_alone_changes_the_runs_of_a_session(bench: ThreadBench, monkeypatch: pytest.MonkeyPatch) -> None:
    add, threads = bench.dispatcher.add_run, []

    def note(*arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return add(*arguments)

    monkeypatch.setattr(bench.dispatcher, "add_run", note)
    Receiver(MessageConsumer(bench.dispatcher, bench.inbox, False, None, None))  # type: ignore[arg-type]
    assert threads == [run(threading.get_ident)]
