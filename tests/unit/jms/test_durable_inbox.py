"""Tests of the messages that a durable consumer holds."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet
from fjm2.bus.inbox import ConsumerSettings, Inbox, Received
from fjm2.bus.losses.kinds import Gap, Loss
from fjm2.jms.deliveries import Opener
from fjm2.jms.durable import repeats
from fjm2.jms.durable.inbox import MESSAGES_MAX, DurableInbox
from fjm2.messages.destination import Destination, Topic
from fjm2.messages.files.parts import data_parts, encode_begin
from fjm2.messages.frame import FrameWriter, body_place, frame_alone
from fjm2.messages.header import FILE, HEADER, MARKS_AT, PERSISTENT, REDELIVERED, Kind
from fjm2.messages.ledgers.ledger_number import LEDGER_SECTION_BYTES, with_ledger_number
from fjm2.messages.object_codec import SAFE_CODEC
from fjm2.messages.selector import Selector

TOPIC, OTHER = Topic("prices"), Topic("news")
LEDGER, SECOND = Ledger(5, 0, 0), Ledger(6, 0, 0)
OLD, NEW, NEWEST = Ledger(5, 1, 0), Ledger(5, 2, 0), Ledger(5, 3, 0)
"""Ledgers of one outbox, in its order."""
CONNECTION = 77
WRITER = FrameWriter(CONNECTION)
WRITER_HEAD = WRITER.write_body(FILE, b"", b"", TOPIC, PERSISTENT, 4, 1)[0]


def frame(
    body: bytes, destination: Destination = TOPIC, kind: int = Kind.BYTES, priority: int = 4, expiration: int = 0
) -> bytes:
    parts = WRITER.write_body(int(kind), b"", body, destination, PERSISTENT, priority, 1, expiration)
    return b"".join(with_ledger_number(parts, 5, 0, 1))


def sent_again(data: bytes, ledger: Ledger) -> bytes:
    """Return a frame as an outbox sends it again: all but its number is the same."""
    body = body_place(HEADER.unpack_from(data))
    parts = data[: body - LEDGER_SECTION_BYTES], data[body:]
    head = bytearray(parts[0])
    head[4:8] = (len(data) - LEDGER_SECTION_BYTES).to_bytes(4, "big")
    head[20:24] = (int.from_bytes(head[20:24], "big") - LEDGER_SECTION_BYTES).to_bytes(4, "big")
    return b"".join(with_ledger_number((bytes(head), parts[1]), ledger.producer_id, ledger.producer_epoch, 1))


class Consumer:
    """An inbox, and what it tells."""

    def __init__(
        self, selector: str | None = None, left_out: int | None = None, settings: ConsumerSettings | None = None
    ) -> None:
        self.losses: list[Loss | None] = []
        self.done: list[bool] = []
        parsed = None if selector is None else Selector(selector)
        self.rooms = 0
        self.inbox = DurableInbox(
            TOPIC, parsed, left_out, settings or ConsumerSettings(), self._note_room, self._note_loss
        )
        self.inbox.on_done = self.done.append
        self.opener = Opener(SAFE_CODEC, _nothing)
        self.files: list[tuple[str, int]] = []
        self.inbox.on_file = lambda name, size: self.files.append((name, size))

    def _note_room(self) -> None:
        self.rooms += 1

    def _note_loss(self, _: Inbox, loss: Loss | None) -> None:
        self.losses.append(loss)

    def take(self, *frames: bytes, first: int = 1, ledger: Ledger = LEDGER, is_redelivered: bool = False) -> None:
        self.inbox.take_frames(ledger, first, list(map(frame_alone, frames)), is_redelivered=is_redelivered)

    def take_all(self) -> list[tuple[bytes, int]]:
        """Return what the client gets, and how often it may have been delivered then."""
        deliveries = iter(lambda: self.opener.take(self.inbox), None)
        return [(bytes(each.received.body), each.count) for each in deliveries if each is not None]

    def pop(self) -> Received:
        found = self.inbox.pop()
        assert found is not None
        return found


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())

    run.__name__ = test.__name__
    return run


def test_what_is_released_is_done_by_ledger_and_range() -> None:
    one = Consumer()
    one.take(*(frame(b"%d" % number) for number in range(4)), first=7)
    one.take(frame(b"x"), ledger=SECOND)
    for _ in range(5):
        one.inbox.release(one.pop())
    assert one.done == [True] * 5
    assert one.inbox.done_count == 5
    assert one.inbox.take_done() == {LEDGER: RangeSet([(7, 11)]), SECOND: RangeSet([(1, 2)])}
    assert one.inbox.take_done() == {}
    assert (one.inbox.held, one.inbox.done_count) == (0, 0)


def test_what_is_not_wanted_is_done_at_once() -> None:
    one = Consumer("JMSPriority > 4", left_out=CONNECTION + 1)
    one.take(frame(b"low"), frame(b"high", priority=5), frame(b"elsewhere", OTHER), frame(b"low, too"))
    assert one.pop().body == b"high"
    assert one.inbox.pop() is None
    assert one.done == [False]
    assert one.inbox.take_done() == {LEDGER: RangeSet([(1, 2), (3, 5)])}
    assert one.losses == []
    local = Consumer(left_out=CONNECTION)
    local.take(frame(b"mine"))
    assert local.inbox.pop() is None


def test_a_file_is_told_by_its_first_frame_if_it_is_wanted() -> None:
    one = Consumer("JMSPriority > 4")
    begin, data = encode_begin(40_000_000, "disk.img"), data_parts(WRITER_HEAD, 0, b"x")[1]
    one.take(*(frame(body, kind=FILE, priority=priority) for priority in (4, 5) for body in (begin, data, data)))
    assert one.files == [("disk.img", 40_000_000)]
    assert one.losses == []
    assert one.inbox.take_done() == {LEDGER: RangeSet([(1, 7)])}
    one.take(frame(b"", kind=FILE, priority=5), frame(b"malformed", kind=FILE, priority=5), first=7)
    assert len(one.files) == 1
    assert one.losses == [Loss.UNSELECTABLE]
    assert one.inbox.pop() is None


def test_what_was_delivered_before_is_flagged_and_comes_in_its_turn() -> None:
    one = Consumer()
    one.take(frame(b"new"))
    one.take(frame(b"old"), first=2, is_redelivered=True)
    one.take(frame(b"newer"), first=3)
    assert one.inbox.held == 3
    assert one.take_all() == [(b"new", 1), (b"old", 2), (b"newer", 1)]


def test_a_later_life_of_an_outbox_comes_after_the_earlier_one_whatever_is_flagged() -> None:
    one = Consumer()
    one.take(frame(b"0"), frame(b"1"), ledger=OLD, is_redelivered=True)
    one.take(frame(b"2"), frame(b"3"), first=3, ledger=OLD)
    one.take(frame(b"4"), first=2, ledger=NEW, is_redelivered=True)
    one.take(frame(b"5"), first=3, ledger=NEW)
    assert one.take_all() == [(b"0", 2), (b"1", 2), (b"2", 1), (b"3", 1), (b"4", 2), (b"5", 1)]


def test_nothing_new_is_taken_before_what_comes_again() -> None:
    """A turn of a listener that takes new messages may have begun before others came."""
    one = Consumer()
    one.take(frame(b"0"))
    assert one.pop().body == b"0"
    one.take(frame(b"1"), first=2, is_redelivered=True)
    one.take(frame(b"2"), first=3)
    assert one.inbox.pop() is None
    assert one.take_all() == [(b"1", 2), (b"2", 1)]


def test_a_message_that_expired_while_others_came_again_shows_on_the_next() -> None:
    one = Consumer()
    one.take(frame(b"0"), frame(b"1", expiration=1), frame(b"2"))
    one.take(frame(b"3", expiration=1), frame(b"4"), frame(b"5"), first=4, is_redelivered=True)
    taken = [one.opener.take(one.inbox) for _ in range(4)]
    assert [(each.received.body, each.gap) for each in taken if each is not None] == [
        (b"0", None),
        (b"2", Gap.EXPIRED),
        (b"4", Gap.EXPIRED),
        (b"5", None),
    ]


def test_room_is_bounded_in_messages_and_bytes() -> None:
    one = Consumer()
    assert one.inbox.room == MESSAGES_MAX
    few = Consumer(settings=ConsumerSettings(messages_max=3))
    few.take(frame(b"a"), frame(b"b"))
    assert few.inbox.room == 1
    few.take(frame(b"c"), first=3)
    assert few.inbox.room == 0
    large = Consumer(settings=ConsumerSettings(bytes_max=100_000))
    large.take(frame(bytes(30_000)))
    assert large.inbox.room == 2
    large.inbox.close()
    assert large.inbox.room == 0


def test_a_full_inbox_drops_nothing_and_tells_when_it_has_room() -> None:
    one = Consumer(settings=ConsumerSettings(messages_max=2, block_s=0))
    one.take(*(frame(b"%d" % number) for number in range(6)))
    assert one.inbox.messages_dropped == 0
    popped = [one.pop() for _ in range(6)]
    for received in popped[:4]:
        one.inbox.release(received)
    assert one.rooms == 0
    one.inbox.release(popped[4])
    assert one.rooms == 1
    assert one.inbox.room == 1


@in_loop
async def test_a_new_life_forgets_what_waits_and_what_is_done() -> None:
    one = Consumer()
    one.take(*(frame(b"%d" % number) for number in range(4)))
    done, late = one.pop(), one.pop()
    one.take(frame(b"again"), first=5, is_redelivered=True)
    one.inbox.release(done)
    one.inbox.begin_settling()
    one.inbox.begin_life()
    assert not one.inbox.is_settling
    assert one.inbox.pop() is None
    assert one.inbox.pop_again() is None
    assert (one.inbox.held, one.inbox.take_done()) == (1, {})
    assert one.inbox.is_late(late)
    one.inbox.release(late)
    assert (one.inbox.late_count, one.inbox.take_done(), one.inbox.held) == (1, {}, 0)


@in_loop
async def test_messages_wait_while_an_acknowledgement_settles() -> None:
    one = Consumer()
    one.take(frame(b"a"), frame(b"b"))
    one.inbox.begin_settling()
    assert one.inbox.pop() is None
    assert not one.inbox.has_waiting()
    woken: list[bool] = []
    one.inbox.wake = lambda: woken.append(True)
    waiting = asyncio.ensure_future(one.inbox.settled())
    await asyncio.sleep(0)
    assert not waiting.done()
    one.inbox.end_settling(None)
    one.inbox.end_settling(asyncio.get_running_loop().create_future())
    assert one.inbox.is_settling, "that was of another message"
    one.inbox.end_settling(one.inbox.settling)
    await asyncio.wait_for(waiting, 1)
    assert woken == [True]
    assert one.pop().body == b"a"


def test_a_message_that_is_forgone_is_not_acknowledged() -> None:
    one = Consumer()
    one.take(frame(b"a"))
    one.inbox.forgo(one.pop())
    assert (one.inbox.held, one.inbox.take_done(), one.done) == (0, {}, [])


# Messages that an outbox sends again.


@in_loop
async def test_a_message_that_an_outbox_sends_again_comes_once() -> None:
    consumer = Consumer()
    frames = [frame(b"a"), frame(b"b")]
    consumer.take(*frames, ledger=OLD)
    first, second = consumer.pop(), consumer.pop()
    consumer.inbox.release(first)
    assert consumer.inbox.take_done() == {OLD: RangeSet([(1, 2)])}
    consumer.take(*(sent_again(each, NEW) for each in frames), first=2, ledger=NEW)
    assert consumer.inbox.pop() is None
    # The client is done with the first one: so it is with its copy. The second one's copy waits for it.
    assert consumer.inbox.take_done() == {NEW: RangeSet([(2, 3)])}
    consumer.take(sent_again(frames[1], NEWEST), first=2, ledger=NEWEST)
    consumer.inbox.release(second)
    assert consumer.inbox.take_done() == {
        OLD: RangeSet([(2, 3)]),
        NEW: RangeSet([(3, 4)]),
        NEWEST: RangeSet([(2, 3)]),
    }
    consumer.take(sent_again(frames[1], NEWEST), first=3, ledger=NEWEST)
    assert consumer.inbox.take_done() == {NEWEST: RangeSet([(3, 4)])}
    assert consumer.inbox.pop() is None


@in_loop
async def test_in_a_new_life_everything_comes_again() -> None:
    consumer = Consumer()
    data = frame(b"a")
    consumer.take(data, ledger=OLD)
    consumer.inbox.release(consumer.pop())
    consumer.inbox.begin_life()
    consumer.take(data, ledger=OLD, is_redelivered=True)
    assert consumer.inbox.pop_again() is not None


def test_what_is_remembered_of_outboxes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPEN_MAX", "ISLANDS_MAX", "CONNECTIONS_MAX"):
        monkeypatch.setattr(repeats, name, 3)
    known = repeats.Repeats()
    headers = [HEADER.unpack_from(frame(b"a")) for _ in range(20)]
    for header in headers:
        assert known.is_new(header, OLD, 1)
    assert [known.is_new(header, NEW, 1) for header in headers[-3:]] == [False] * 3
    for header in headers[::2]:
        known.finish(header)
    assert [known.is_done(header) for header in headers[::2]] == [False] * 7 + [True] * 3
    for connection in range(5):
        known.finish((*headers[0][:9], connection, *headers[0][10:]))
    assert not known.is_done(headers[-2])


def test_a_message_of_an_earlier_cell_counts_as_delivered_before() -> None:
    for marks, count in ((0, 1), (REDELIVERED, 2)):
        data = bytearray(frame(b"x"))
        data[MARKS_AT] = marks
        consumer = Consumer()
        inbox, opener = consumer.inbox, consumer.opener
        inbox.take_frames(LEDGER, 1, [frame_alone(bytes(data))], is_redelivered=False)
        delivery = opener.take(inbox)
        assert delivery is not None
        message = opener.open(delivery)
        assert (message.delivery_count, message.redelivered) == (count, count > 1)
        assert delivery.count == 1  # it may be delivered again as often as others


async def _nothing() -> None:
    """Acknowledge nothing."""
