"""Tests of the turns of a session's listeners: their order, their cost, and that no message is left behind.

The cost is counted in looks at inboxes, not in time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from time import sleep
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.bus.inbox import ConsumerSettings, Delivery, Inbox, Received
from fjm2.bus.router import Received as RoutedMessage
from fjm2.bus.routing.targets import ReceivedRun
from fjm2.jms import SessionMode, TextMessage, Topic
from fjm2.jms.dispatcher import Dispatcher
from fjm2.jms.listener_task import TURN_S
from fjm2.messages.batches.frame_run import find_run
from fjm2.messages.frame import FrameWriter
from fjm2.messages.header import HEADER
from fjm2.messages.object_codec import SAFE_CODEC

BATCH = 64
"""Greatest number of messages of one consumer before the next consumer's turn."""


class CountingInbox(Inbox):
    """An inbox that counts how often a session looks at it."""

    looks = 0
    _wake: Callable[[], None] | None = None

    @property  # type: ignore[override]
    def wake(self) -> Callable[[], None] | None:
        CountingInbox.looks += 1
        return self._wake

    @wake.setter
    def wake(self, wake: Callable[[], None] | None) -> None:
        self._wake = wake

    def has_waiting(self) -> bool:
        CountingInbox.looks += 1
        return super().has_waiting()

    def pop(self) -> Received | None:
        CountingInbox.looks += 1
        return super().pop()

    def pop_again(self) -> Delivery | None:
        CountingInbox.looks += 1
        return super().pop_again()


class Bench:
    """A session's dispatcher, with consumers that note the texts they get."""

    def __init__(self, mode: SessionMode = SessionMode.AUTO_ACKNOWLEDGE) -> None:
        self.errors: list[Exception] = []
        self.dispatcher = Dispatcher(mode, SAFE_CODEC, 6, self.errors.append)
        self.got: list[tuple[int, str, int]] = []
        """Consumer, text and number of deliveries of each message that a listener got."""
        self._writer = FrameWriter(1)
        self._inboxes: list[Inbox] = []

    def add(self, *, listens: bool = True) -> Inbox:
        """Add a consumer of a topic of its own."""
        topic = Topic(f"topic.{len(self._inboxes)}")
        inbox = CountingInbox(topic, None, None, ConsumerSettings(), lambda: None, lambda *_: None)
        self._inboxes.append(inbox)
        self.dispatcher.add(inbox)
        if listens:
            self.listen(inbox)
        return inbox

    def listen(self, inbox: Inbox, then: Callable[[Any], None] = lambda _: None) -> None:
        number = self._inboxes.index(inbox)

        def note(message: Any) -> None:
            self.got.append((number, message.text, message.delivery_count))
            then(message)

        self.dispatcher.listen(inbox, note)

    def put(self, inbox: Inbox, *texts: str, priority: int = 4) -> None:
        for text in texts:
            head, body = self._writer.write(TextMessage(text), inbox.destination, 0, priority, 0)
            inbox.deliver(RoutedMessage(head, body, HEADER.unpack_from(head), 7, None))

    def put_run(self, inbox: Inbox, count: int) -> None:
        """Deliver the texts "10", "11" and so on together, as the router does."""
        frames = b"".join(
            b"".join(self._writer.write(TextMessage(f"{number}"), inbox.destination, 0, 4, 0))
            for number in range(10, 10 + count)
        )
        run = find_run(frames, 0, HEADER.unpack_from(frames), len(frames))
        assert run is not None
        assert len(run) == count
        inbox.deliver_run(ReceivedRun(run, 7))

    async def settle(self, messages: int) -> None:
        """Wait until listeners have got that many messages, and have nothing left to do."""
        async with asyncio.timeout(10):
            while len(self.got) < messages:  # noqa: ASYNC110 - listeners have no event to wait for
                await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(self.got) == messages

    @property
    def texts(self) -> list[str]:
        return [text for _, text, _ in self.got]


def run(body: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await body()

    asyncio.run(limited())


async def looks_per_message(consumers: int) -> float:
    bench = Bench()
    inboxes = [bench.add() for _ in range(consumers)]
    bench.dispatcher.start()
    await asyncio.sleep(0)
    CountingInbox.looks = 0
    for place in range(100):
        bench.put(inboxes[place * consumers // 100], str(place))
        if place % 10 == 9:
            await bench.settle(place + 1)
    looks = CountingInbox.looks / 100
    await bench.dispatcher.close()
    return looks


def test_a_message_costs_the_same_however_many_consumers_there_are() -> None:
    async def body() -> None:
        assert await looks_per_message(100) <= 6
        assert await looks_per_message(2000) <= 6

    run(body)


def test_starting_again_and_closing_look_at_no_other_consumer() -> None:
    async def body() -> None:
        bench = Bench()
        inboxes = [bench.add() for _ in range(500)]
        CountingInbox.looks = 0
        for inbox in inboxes:
            bench.dispatcher.start()
            await bench.dispatcher.close_inbox(inbox)
        assert CountingInbox.looks <= 4 * len(inboxes)

    run(body)


def test_busy_consumers_take_turns() -> None:
    async def body() -> None:
        bench = Bench()
        busy, other = bench.add(), bench.add()
        bench.put(busy, *["busy"] * (3 * BATCH))
        bench.put(other, "other")
        bench.dispatcher.start()
        await bench.settle(3 * BATCH + 1)
        assert bench.texts.index("other") <= BATCH

    run(body)


def test_priorities_hold_within_a_consumer() -> None:
    async def body() -> None:
        bench = Bench()
        inbox = bench.add()
        bench.put(inbox, "low", priority=1)
        bench.put(inbox, "high", priority=9)
        bench.dispatcher.start()
        await bench.settle(2)
        assert bench.texts == ["high", "low"]
        bench.put(inbox, "lower", priority=0)
        await bench.settle(3)

    run(body)


def test_redelivered_messages_come_first_in_their_old_order() -> None:
    async def body() -> None:
        bench = Bench(SessionMode.CLIENT_ACKNOWLEDGE)
        inboxes = [bench.add() for _ in range(3)]
        bench.dispatcher.start()
        for number in (2, 0, 1, 0, 2):
            bench.put(inboxes[number], f"{number}")
            await asyncio.sleep(0.001)
        await bench.settle(5)
        bench.dispatcher.halt()
        bench.put(inboxes[1], "new")
        bench.dispatcher.recover()
        bench.dispatcher.start()
        await bench.settle(11)
        assert bench.texts[5:] == ["2", "0", "1", "0", "2", "new"]

    run(body)


def put_again(inbox: Inbox, count: int) -> None:
    """Let all messages of an inbox come as a cell sends them again: the session did not have them before."""
    for _ in range(count):
        received = inbox.pop()
        assert received is not None
        inbox.again.append(Delivery(received, inbox, 2, 0, None))


def test_what_the_session_did_not_have_before_comes_in_turns_of_many() -> None:
    async def body() -> None:
        bench = Bench(SessionMode.CLIENT_ACKNOWLEDGE)
        inboxes = [bench.add(), bench.add()]
        for inbox in inboxes:
            bench.put(inbox, *map(str, range(2 * BATCH)))
            put_again(inbox, 2 * BATCH)
        bench.dispatcher.start()
        await bench.settle(4 * BATCH)
        turns = [number for number, _, _ in bench.got]
        # A busy machine ends some turns early, as they are bounded in time.
        assert sum(turn != before for turn, before in pairwise(turns)) < BATCH
        assert [text for number, text, _ in bench.got if not number] == list(map(str, range(2 * BATCH)))

    run(body)


@pytest.mark.parametrize("comes_again", [False, True])
def test_a_turn_of_slow_listeners_ends_in_time(comes_again: bool) -> None:
    async def body() -> None:
        bench = Bench(SessionMode.CLIENT_ACKNOWLEDGE)
        inbox = bench.add(listens=False)
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        bench.listen(inbox, lambda _: sleep(2 * TURN_S))
        bench.put(inbox, *map(str, range(BATCH // 4)))
        if comes_again:
            put_again(inbox, BATCH // 4)
        counting = asyncio.ensure_future(count())
        bench.dispatcher.start()
        while len(bench.got) < BATCH // 4:  # noqa: ASYNC110 - listeners have no event to wait for
            await asyncio.sleep(0)
        counting.cancel()
        assert turns >= BATCH // 4

    run(body)


def test_a_listener_that_is_set_late_gets_what_was_recovered() -> None:
    async def body() -> None:
        bench = Bench(SessionMode.CLIENT_ACKNOWLEDGE)
        inbox = bench.add(listens=False)
        bench.dispatcher.start()
        bench.put(inbox, "a", "b", "c")
        for _ in range(2):
            delivery = await bench.dispatcher.receive(inbox, 0)
            assert delivery is not None
            bench.dispatcher.deliveries.consume(delivery)
        bench.dispatcher.recover()
        bench.listen(inbox)
        await bench.settle(3)
        assert bench.got == [(0, "a", 2), (0, "b", 2), (0, "c", 1)]

    run(body)


def test_a_listener_may_replace_itself_and_close_its_consumer() -> None:
    async def body() -> None:
        bench = Bench()
        inbox, other = bench.add(), bench.add()

        def replace(_: Any) -> None:
            bench.dispatcher.listen(inbox, None)
            bench.listen(inbox)

        bench.listen(inbox, replace)
        bench.put(inbox, *"abc")
        bench.put(other, *"xy")
        bench.dispatcher.start()
        await bench.settle(5)
        assert [text for number, text, _ in bench.got if number == 0] == ["a", "b", "c"]
        bench.put(inbox, "d")
        await bench.settle(6)

    run(body)


def test_receives_get_the_rest_of_a_run_whose_listener_is_removed() -> None:
    async def body() -> None:
        bench = Bench()
        inbox = bench.add()
        bench.listen(inbox, lambda _: len(bench.got) == 10 and bench.dispatcher.listen(inbox, None))
        bench.dispatcher.start()
        bench.put_run(inbox, 40)
        assert inbox.run_messages == 40
        await bench.settle(10)
        rest: list[str] = []
        while (delivery := await bench.dispatcher.receive(inbox, 0)) is not None:
            rest.append(delivery.received.body.decode())
            bench.dispatcher.deliveries.consume(delivery)
        assert bench.texts + rest == [str(number) for number in range(10, 50)]
        assert not inbox.held

    run(body)


def test_a_session_that_is_stopped_by_a_listener_forgets_nobody() -> None:
    async def body() -> None:
        bench = Bench()
        first, second = bench.add(), bench.add()
        bench.listen(first, lambda _: bench.dispatcher.halt())
        bench.put(first, "a")
        bench.put(second, "b")
        bench.dispatcher.start()
        await bench.settle(1)
        bench.dispatcher.start()
        await bench.settle(2)
        assert bench.texts == ["a", "b"]

    run(body)


@pytest.mark.parametrize("mode", [SessionMode.AUTO_ACKNOWLEDGE, SessionMode.CLIENT_ACKNOWLEDGE])
@given(data=st.data())
def test_nothing_is_left_behind_and_nothing_comes_twice(mode: SessionMode, data: st.DataObject) -> None:
    """Consumers get each message once, in order, whatever else happens to the session meanwhile."""

    async def body() -> None:
        bench = Bench(mode)
        inboxes = [bench.add(listens=data.draw(st.booleans())) for _ in range(4)]
        sent: dict[int, list[str]] = {number: [] for number in range(4)}
        consumer = st.integers(0, 3)
        for step in range(data.draw(st.integers(0, 30))):
            number = data.draw(consumer)
            inbox = inboxes[number]
            match data.draw(
                st.sampled_from(("put", "put", "put", "turn", "start", "halt", "listen", "remove", "recover"))
            ):
                case "put":
                    sent[number].append(str(step))
                    bench.put(inbox, str(step))
                case "turn":
                    await asyncio.sleep(0)
                case "start":
                    bench.dispatcher.start()
                case "halt":
                    bench.dispatcher.halt()
                case "listen":
                    bench.listen(inbox)
                case "remove":
                    bench.dispatcher.listen(inbox, None)
                case "recover":
                    bench.dispatcher.recover()
        for inbox in inboxes:
            bench.listen(inbox)
        bench.dispatcher.start()
        count = sum(map(len, sent.values()))
        async with asyncio.timeout(10):

            def is_done() -> bool:
                got = {(number, text) for number, text, _ in bench.got}
                return len(got) == count and not any(inbox.has_waiting() for inbox in inboxes)

            while not is_done():  # noqa: ASYNC110 - listeners have no event to wait for
                await asyncio.sleep(0)
        for number in range(4):
            firsts = [text for of, text, times in bench.got if of == number and times == 1]
            assert firsts == sent[number]
            if mode is SessionMode.AUTO_ACKNOWLEDGE:
                assert [text for of, text, _ in bench.got if of == number] == sent[number]
        bench.dispatcher.acknowledge_all()
        assert not any(inbox.held for inbox in inboxes)
        await bench.dispatcher.close()

    run(body)
