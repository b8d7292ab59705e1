"""Tests of the messages of a consumer that gets last values first."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fjm2.base.ledger import Ledger
from fjm2.bus.inbox import ConsumerSettings, Inbox
from fjm2.bus.losses.kinds import Gap, Loss
from fjm2.bus.routing.targets import Received
from fjm2.cell.wire.last_values import ListedValue, Order
from fjm2.jms import ResourceAllocationError, Topic
from fjm2.jms.last_values.inbox import LastValuesInbox
from fjm2.messages.frame import Frame, FrameReader, FrameWriter
from fjm2.messages.header import PERSISTENT, Kind
from fjm2.messages.last_values.retained import read_retained, retained_parts, retained_section
from fjm2.messages.ledgers.ledger_number import with_ledger_number
from fjm2.messages.properties import encode_properties

TOPIC = Topic("prices")


def frame(stamp: int, key: int = 0, *, is_value: bool = True) -> Frame:
    """Return a frame whose body is its stamp."""
    properties = encode_properties({"id": key})
    parts = FrameWriter(1).write_body(int(Kind.BYTES), properties, b"%d" % stamp, TOPIC, PERSISTENT, 4, 1)
    if is_value:
        parts = retained_parts(parts, retained_section("id", stamp))
    (found,) = FrameReader().feed(b"".join(with_ledger_number(parts, 5, 0, stamp)), (0,))
    return found


def live(stamp: int, key: int = 0, gap: Gap | None = None, *, is_value: bool = True) -> Received:
    buffer, start, body, end, header = frame(stamp, key, is_value=is_value)
    return Received(buffer[start:body], buffer[body:end], header, 1, gap)


def listed(stamp: int, key: int = 0) -> ListedValue:
    buffer, start, _, _, header = frame(stamp, key)
    found = read_retained(buffer, header, start)
    assert found is not None
    return ListedValue(found.identity, Order(stamp, Ledger(5, 0, 0), stamp), 100)


class Consumer:
    """An inbox, and how often it was full."""

    def __init__(self, **limits: Any) -> None:
        self.fulls = 0
        self.inbox = LastValuesInbox(TOPIC, None, None, ConsumerSettings(**limits), lambda: None, self._note_full)

    def _note_full(self, _: Inbox, loss: Loss | None) -> None:
        self.fulls += loss is None

    def take(self, stamp: int, key: int = 0) -> None:
        self.inbox.take_value(frame(stamp, key), listed(stamp, key))

    def got(self) -> list[int]:
        found = []
        while (received := self.inbox.pop()) is not None:
            found.append(int(received.body))
            self.inbox.release(received)
        return found


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())

    run.__name__ = test.__name__
    return run


@in_loop
async def test_live_messages_wait_behind_values() -> None:
    one = Consumer()
    one.inbox.deliver(live(7, is_value=False))
    assert one.got() == []
    assert not one.inbox.has_waiting()
    one.take(3)
    one.take(4, key=1)
    assert one.inbox.has_waiting()
    assert one.got() == [3, 4]
    one.inbox.go_live()
    assert one.got() == [7]


@in_loop
async def test_none_comes_twice_and_none_after_a_newer_one() -> None:
    one = Consumer()
    one.inbox.deliver(live(5))
    one.take(3)  # a newer one was heard
    one.take(6, key=1)
    one.inbox.deliver(live(6, key=1))
    one.inbox.deliver(live(4, key=1))
    one.inbox.deliver(live(8, key=1))
    one.take(6, key=1)
    one.take(7, key=1)
    one.inbox.go_live()
    assert one.got() == [6, 5, 8]
    assert one.inbox.held == 0
    one.inbox.deliver(live(8, key=1))
    one.inbox.deliver(live(9, key=1))
    assert one.got() == [9]


@in_loop
async def test_a_late_copy_is_left_out_though_no_values_are_expected_any_more() -> None:
    one = Consumer()
    one.take(6)
    one.inbox.go_live()
    one.inbox.learns = False
    one.inbox.deliver(live(6))
    one.inbox.deliver(live(7, key=5))
    one.inbox.deliver(live(6, key=5))  # the order of writers of one key is theirs
    assert one.got() == [6, 7, 6]
    assert len(one.inbox._known) == 1


@in_loop
async def test_a_gap_before_a_message_that_is_left_out_is_shown_by_the_next() -> None:
    one = Consumer()
    one.take(6)
    one.inbox.go_live()
    one.inbox.deliver(live(5, gap=Loss.BYTES.gap))
    one.inbox.deliver(live(8, is_value=False))
    assert one.inbox.pop() is not None
    received = one.inbox.pop()
    assert received is not None
    assert received.gap is Loss.BYTES.gap


@in_loop
async def test_it_blocks_nobody_while_it_learns_which_values_there_are() -> None:
    """The answers of keepers would wait behind the messages that are blocked. There is a bound all the same."""
    one = Consumer(messages_max=2)
    for stamp in range(1, 9):
        one.inbox.deliver(live(stamp, is_value=False))
        assert not one.inbox.is_full
    one.inbox.deliver(live(9, is_value=False))
    assert one.inbox.is_full


@in_loop
async def test_it_blocks_when_it_knows_the_values() -> None:
    one = Consumer(messages_max=2)
    one.inbox.is_listing = False
    for stamp in range(1, 4):
        one.inbox.deliver(live(stamp, is_value=False))
    assert one.inbox.is_full


@in_loop
async def test_room_for_values_is_never_taken_by_live_messages() -> None:
    one = Consumer(messages_max=2)
    for stamp in range(1, 8):
        one.inbox.deliver(live(stamp, is_value=False))
    assert one.inbox.value_room[0] == 1
    one.take(3)
    assert one.inbox.value_room[0] == 0
    rooms: list[int] = []
    one.inbox.on_value_room = lambda: rooms.append(one.inbox.value_room[0])
    assert one.got() == [3]
    assert rooms == [1]


@in_loop
async def test_values_count_as_held_and_can_be_put_back() -> None:
    one = Consumer()
    one.take(3)
    one.take(4, key=1)
    received = one.inbox.pop()
    assert received is not None
    one.inbox.put_back(received)
    assert (one.inbox.statistics().messages_waiting, one.inbox.statistics().messages_held) == (2, 2)
    assert one.got() == [3, 4]
    assert (one.inbox.held, one.inbox.held_bytes) == (0, 0)


@in_loop
async def test_a_failure_is_raised_by_whoever_receives() -> None:
    one = Consumer()
    woken: list[bool] = []
    one.inbox.wake = lambda: woken.append(True)
    waiting = asyncio.ensure_future(one.inbox.caught_up())
    await asyncio.sleep(0)
    one.inbox.deliver(live(1))
    woken.clear()
    one.inbox.fail(ResourceAllocationError("no keeper", "no_keeper"))
    assert woken
    for _ in range(2):
        with pytest.raises(ResourceAllocationError, match="no keeper"):
            one.inbox.pop_again()
    with pytest.raises(ResourceAllocationError, match="no keeper"):
        await waiting
    assert not one.inbox.has_waiting()
    assert not one.inbox.is_settling


@in_loop
async def test_whoever_does_not_wait_waits_for_values() -> None:
    one = Consumer()
    assert one.inbox.is_settling
    settled = asyncio.ensure_future(one.inbox.settled())
    await asyncio.sleep(0)
    assert not settled.done()
    one.take(3)
    await settled
    assert not one.inbox.is_settling
    assert one.got() == [3]
    assert one.inbox.is_settling
    one.inbox.go_live()
    assert not one.inbox.is_settling
