"""Tests of when a durable consumer has the cell acknowledge what is done, in each mode."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet
from fjm2.bus.inbox import ConsumerSettings
from fjm2.cell.service.reasons import Reason
from fjm2.jms import SessionMode
from fjm2.jms.durable.consumer import DONE_MAX, DONE_S, DurableConsumer, Wanted
from fjm2.jms.durable.inbox import DurableInbox
from fjm2.messages.destination import Topic
from fjm2.messages.frame import FrameWriter, frame_alone
from fjm2.messages.header import PERSISTENT, Kind
from fjm2.messages.ledgers.ledger_number import with_ledger_number
from fjm2.messages.selector import Selector

TOPIC = Topic("prices")
LEDGER = Ledger(5, 0, 0)
WRITER = FrameWriter(1)


class Owner:
    """A client that notes what it is asked to acknowledge."""

    def __init__(self) -> None:
        self.asked: list[RangeSet] = []
        self.rooms: list[int] = []

    def set_room(self, consumer: DurableConsumer) -> None:
        self.rooms.append(consumer.inbox.room)

    def acknowledge(self, consumer: DurableConsumer, done: dict[Ledger, RangeSet]) -> "asyncio.Future[Reason]":
        assert consumer.handle
        self.asked.append(done[LEDGER])
        return asyncio.get_running_loop().create_future()


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    def run(mode: SessionMode) -> None:
        asyncio.run(test(mode))

    run.__name__ = test.__name__
    return run


def made(mode: SessionMode, selector: str = "") -> tuple[DurableConsumer, Owner]:
    """Return a consumer that the cell knows, and its owner."""
    inbox = DurableInbox(
        TOPIC, Selector(selector) if selector else None, None, ConsumerSettings(), lambda: None, lambda *_: None
    )
    owner = Owner()
    consumer = DurableConsumer(owner, Wanted(TOPIC, "name", selector, False, False), inbox, mode)
    consumer.handle = 1
    return consumer, owner


def handle(consumer: DurableConsumer, count: int, first: int = 1) -> None:
    """Take messages, and be done with them."""
    parts = WRITER.write_body(int(Kind.BYTES), b"", b"body", TOPIC, PERSISTENT, 4, 1)
    frame = frame_alone(b"".join(with_ledger_number(parts, 5, 0, 1)))
    consumer.inbox.take_frames(LEDGER, first, [frame] * count, is_redelivered=False)
    while (received := consumer.inbox.pop()) is not None:
        consumer.inbox.release(received)


auto = pytest.mark.parametrize("mode", [SessionMode.AUTO_ACKNOWLEDGE])
lazy = pytest.mark.parametrize("mode", [SessionMode.DUPS_OK_ACKNOWLEDGE])
by_client = pytest.mark.parametrize("mode", [SessionMode.CLIENT_ACKNOWLEDGE, SessionMode.SESSION_TRANSACTED])


@auto
@in_loop
async def test_each_message_is_acknowledged_before_the_next(mode: SessionMode) -> None:
    consumer, owner = made(mode)
    handle(consumer, 2)
    assert consumer.inbox.is_settling
    await asyncio.sleep(0)
    assert owner.asked == [RangeSet([(1, 2)])]
    assert consumer.settling is consumer.inbox.settling


@lazy
@in_loop
async def test_many_are_acknowledged_together_and_few_a_little_later(mode: SessionMode) -> None:
    consumer, owner = made(mode)
    handle(consumer, DONE_MAX - 1)
    await asyncio.sleep(0)
    assert owner.asked == []
    assert not consumer.inbox.is_settling
    handle(consumer, 2, DONE_MAX)
    await asyncio.sleep(0)
    assert owner.asked == [RangeSet([(1, DONE_MAX + 2)])]
    handle(consumer, 1, DONE_MAX + 2)
    await asyncio.sleep(2 * DONE_S)
    assert owner.asked[1:] == [RangeSet([(DONE_MAX + 2, DONE_MAX + 3)])]


@by_client
@in_loop
async def test_nothing_is_acknowledged_before_the_client_says_so(mode: SessionMode) -> None:
    consumer, owner = made(mode)
    handle(consumer, 2 * DONE_MAX)
    await asyncio.sleep(2 * DONE_S)
    assert owner.asked == []
    assert consumer.flush() is not None
    assert owner.asked == [RangeSet([(1, 2 * DONE_MAX + 1)])]
    assert consumer.flush() is None


@by_client
@in_loop
async def test_what_is_not_wanted_is_acknowledged_a_little_later(mode: SessionMode) -> None:
    consumer, owner = made(mode, "JMSPriority = 9")
    handle(consumer, 3)
    assert owner.asked == []
    await asyncio.sleep(2 * DONE_S)
    assert owner.asked == [RangeSet([(1, 4)])]


@auto
@in_loop
async def test_a_lost_place_begins_a_new_life(mode: SessionMode) -> None:
    consumer, owner = made(mode)
    handle(consumer, 3)
    consumer.lose_place()
    await asyncio.sleep(0)
    assert (owner.asked, consumer.handle) == ([], 0)
    assert (consumer.inbox.held, consumer.inbox.is_settling, consumer.inbox.done_count) == (0, False, 0)
