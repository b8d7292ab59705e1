"""Tests of the turns of listeners while an acknowledgement settles: the consumer of the next message has none."""

import asyncio

import pytest

from fjm2.base.ledger import Ledger
from fjm2.bus.inbox import ConsumerSettings, Inbox
from fjm2.jms.durable.inbox import OneByOneInbox
from fjm2.jms.ready_queue import ReadyQueue
from fjm2.messages.destination import Topic
from fjm2.messages.frame import Frame, FrameWriter, frame_alone
from fjm2.messages.header import PERSISTENT, Kind

TOPIC = Topic("prices")
LEDGER = Ledger(1, 0, 0)


def frames(count: int) -> list[Frame]:
    writer = FrameWriter(1)
    parts = [writer.write_body(int(Kind.BYTES), b"", b"body", TOPIC, PERSISTENT, 4, 1) for _ in range(count)]
    return [frame_alone(b"".join(each)) for each in parts]


def make_inbox() -> OneByOneInbox:
    return OneByOneInbox(TOPIC, None, None, ConsumerSettings(), lambda: None, lambda *_: None)


def turns(ready: ReadyQueue, most: int = 20) -> list[Inbox]:
    """Give turns in which nobody takes a message that has to wait. Return the inboxes that had one."""
    found: list[Inbox] = []
    while len(found) < most and (inbox := ready.begin_turn()) is not None:
        found.append(inbox)
        delivery = inbox.pop_again()
        received = inbox.pop() if delivery is None else delivery.received
        if received is not None:
            inbox.release(received)
        ready.end_turn(inbox)
    return found


@pytest.mark.parametrize("is_redelivered", [False, True])
@pytest.mark.parametrize("is_listened_to_first", [False, True])
def test_an_inbox_has_no_turns_while_it_settles(is_redelivered: bool, is_listened_to_first: bool) -> None:
    """Otherwise its listener's task would keep the event loop busy until the acknowledgement is stored."""

    async def look() -> None:
        woken: list[int] = []
        inbox, ready = make_inbox(), ReadyQueue(lambda: woken.append(1))
        if is_listened_to_first:
            ready.add(inbox)
        inbox.take_frames(LEDGER, 1, frames(6), is_redelivered=is_redelivered)
        ready.add(inbox)
        inbox.begin_settling()
        assert len(turns(ready)) <= 1
        woken.clear()
        inbox.end_settling(inbox.settling)
        assert woken == [1]
        turns(ready)
        assert not inbox.held

    asyncio.run(look())


def test_others_have_turns_while_an_inbox_with_redelivered_messages_settles() -> None:
    async def look() -> None:
        first, second, ready = make_inbox(), make_inbox(), ReadyQueue(lambda: None)
        first.take_frames(LEDGER, 1, frames(6), is_redelivered=True)
        ready.add(first)
        ready.add(second)
        first.begin_settling()
        second.take_frames(LEDGER, 7, frames(3), is_redelivered=False)
        assert turns(ready).count(second) == 3
        first.end_settling(first.settling)
        turns(ready)
        assert not first.held

    asyncio.run(look())
