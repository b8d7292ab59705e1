"""A blocking inbox that is let go drops its oldest messages, with gaps, until one is taken. Then it blocks again."""

from effort import examples
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from routing import CONNECTION, SENDER, TOPIC, message, text_of

from fjm2.bus.inbox import ConsumerSettings, Delivery, Inbox
from fjm2.bus.losses.kinds import Gap, Loss
from fjm2.bus.router import Received
from fjm2.messages.frame import FrameWriter
from fjm2.messages.header import HEADER

HELD_MAX = 6


def received(number: int, priority: int = 4) -> Received:
    head, body = message(str(number), priority=priority, writer=FrameWriter(CONNECTION))
    return Received(head, body, HEADER.unpack_from(head), SENDER, None)


class Consumer:
    def __init__(self, messages_max: int = HELD_MAX) -> None:
        self.rooms = 0
        self.full: list[Loss | None] = []
        bounds = ConsumerSettings(messages_max=messages_max)
        self.inbox = Inbox(TOPIC, None, None, bounds, self._note_room, lambda _, loss: self.full.append(loss))

    def _note_room(self) -> None:
        self.rooms += 1

    def fill(self, first: int, count: int) -> None:
        for number in range(first, first + count):
            self.inbox.deliver(received(number))

    def take(self) -> str:
        taken = self.inbox.pop()
        assert taken is not None
        self.inbox.release(taken)
        return text_of(taken)


def test_until_it_is_let_go_it_keeps_everything() -> None:
    consumer = Consumer()
    consumer.fill(0, 50)  # the rest of what was taken from the bus
    assert (consumer.inbox.held, consumer.inbox.is_full, consumer.full) == (50, True, [None])


def test_when_it_is_let_go_senders_go_on_and_it_keeps_the_newest() -> None:
    consumer = Consumer()
    consumer.fill(0, 10)
    consumer.inbox.let_go()
    assert (consumer.inbox.is_full, consumer.inbox.is_let_go, consumer.rooms) == (False, True, 1)
    consumer.fill(10, 100)
    assert (consumer.inbox.held, consumer.inbox.is_full) == (HELD_MAX, False)
    assert consumer.inbox.messages_dropped == 104
    assert consumer.inbox.take_losses(Loss.OVERFLOW) == 104
    first = consumer.inbox.pop()
    assert first is not None
    assert text_of(first) == "104"
    assert consumer.inbox.gap_before(first) is Gap.DROPPED


def test_once_a_message_is_taken_it_makes_senders_wait_again() -> None:
    consumer = Consumer()
    consumer.fill(0, 10)
    consumer.inbox.let_go()
    consumer.fill(10, 10)
    assert consumer.take() == "14"
    consumer.fill(20, 1)
    assert not consumer.inbox.is_full  # the message that was taken left room
    consumer.fill(21, 1)
    assert (consumer.inbox.is_full, consumer.inbox.is_let_go) == (True, False)
    assert consumer.full == [None, Loss.OVERFLOW, None]
    assert [consumer.take() for _ in range(7)] == ["15", "16", "17", "18", "19", "20", "21"]


def test_an_acknowledgement_counts_too() -> None:
    consumer = Consumer()
    consumer.fill(0, 3)
    held = consumer.inbox.pop()
    consumer.fill(3, 7)
    consumer.inbox.let_go()
    consumer.fill(10, 1)
    assert not consumer.inbox.is_full
    assert held is not None
    consumer.inbox.release(held)
    consumer.fill(11, 2)
    assert consumer.inbox.is_full


def test_a_batch_in_a_thread_counts_message_by_message() -> None:
    consumer = Consumer()
    consumer.fill(0, 10)
    before = consumer.inbox.progress
    consumer.inbox.handled += 1
    assert consumer.inbox.progress != before


def test_if_all_are_taken_and_none_acknowledged_the_new_ones_are_dropped() -> None:
    consumer = Consumer()
    consumer.fill(0, 8)
    taken = [consumer.inbox.pop() for _ in range(8)]
    assert all(taken)
    consumer.inbox.let_go()
    consumer.fill(8, 20)
    assert (consumer.inbox.held, consumer.inbox.messages_dropped, consumer.inbox.is_full) == (8, 20, False)


def test_a_closed_inbox_makes_nobody_wait_and_does_not_grow() -> None:
    consumer = Consumer()
    consumer.fill(0, 10)
    consumer.inbox.close()
    assert (consumer.inbox.is_full, consumer.rooms) == (False, 1)
    consumer.fill(10, 1000)
    assert (consumer.inbox.is_full, consumer.inbox.held, consumer.full) == (False, 10, [None])


class LetGo(RuleBasedStateMachine):
    """An inbox as a model predicts it, whatever the order of deliveries, takes, acknowledgements and lettings go."""

    @initialize()
    def begin(self) -> None:
        self.consumer = Consumer()
        self.sent = 0
        self.waiting: list[int] = []
        self.taken: list[Received] = []
        self.is_let_go = False
        self.has_moved = False
        self.is_full = False

    @rule()
    def send(self) -> None:
        self.consumer.inbox.deliver(received(self.sent))
        self.waiting.append(self.sent)
        self.sent += 1
        if len(self.waiting) + len(self.taken) <= HELD_MAX:
            return
        if self.is_let_go and self.has_moved:
            self.is_let_go = False
        if self.is_let_go:
            while self.waiting and len(self.waiting) + len(self.taken) > HELD_MAX:
                self.waiting.pop(0)
        else:
            self.is_full = True

    @precondition(lambda self: self.waiting)
    @rule()
    def take(self) -> None:
        found = self.consumer.inbox.pop()
        assert found is not None
        assert text_of(found) == str(self.waiting.pop(0))
        self.taken.append(found)
        self.has_moved = True

    @precondition(lambda self: self.taken)
    @rule()
    def acknowledge(self) -> None:
        self.consumer.inbox.release(self.taken.pop(0))
        self.has_moved = True
        if 2 * (len(self.waiting) + len(self.taken)) <= HELD_MAX:
            self.is_full = False

    @precondition(lambda self: self.taken)
    @rule()
    def deliver_again(self) -> None:
        found = self.taken.pop()
        self.consumer.inbox.again.append(Delivery(found, self.consumer.inbox, 2, 0, None))
        again = self.consumer.inbox.pop_again()
        assert again is not None
        self.taken.append(again.received)

    @precondition(lambda self: self.is_full)
    @rule()
    def let_go(self) -> None:
        self.consumer.inbox.let_go()
        self.is_let_go, self.has_moved, self.is_full = True, False, False

    @invariant()
    def agrees(self) -> None:
        inbox = self.consumer.inbox
        assert inbox.held == len(self.waiting) + len(self.taken)
        assert (inbox.is_full, inbox.is_let_go) == (self.is_full, self.is_let_go)
        assert inbox.messages_dropped == self.sent - inbox.progress[0] - len(self.waiting)


TestLetGo = LetGo.TestCase
TestLetGo.settings = settings(max_examples=examples(100), stateful_step_count=40)
