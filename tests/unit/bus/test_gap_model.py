"""Every gap is flagged on exactly the message behind it, and every lost message is counted, whatever made the gap.

The model knows the line of messages of each sender, and which of them the client can still be shown. When one is lost,
the next one in the line that can be shown is flagged. Router, inbox and deliveries must agree with it.
"""

from collections import Counter
from dataclasses import dataclass, field
from itertools import count

import pytest
from effort import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from routing import NOW, STREAM, TOPIC, Bench, message

from fjm2.bus import inbox as inbox_module
from fjm2.bus import router as router_module
from fjm2.bus.inbox import ConsumerSettings, Delivery, Inbox, Overflow
from fjm2.bus.losses.kinds import Gap, Loss
from fjm2.jms import SessionMode
from fjm2.jms import deliveries as deliveries_module
from fjm2.jms.deliveries import GAP, GAP_REASON, Deliveries, Opener
from fjm2.messages.frame import FrameWriter
from fjm2.messages.header import KIND
from fjm2.messages.object_codec import SafeCodec

PRIORITIES = (4, 4, 2, 0)
"""Priority of each sender's messages. Two senders share a queue."""
SENDERS = st.integers(0, len(PRIORITIES) - 1)
HELD_MAX = 5
REDELIVERIES_MAX = 2
LIFE_MS = 1000
NODE_IDS = count(1000)


async def _nothing() -> None:
    pass


@dataclass
class Line:
    """Messages of one sender, by number."""

    node_id: int
    writer: FrameWriter
    sent: int = 0
    to_show: set[int] = field(default_factory=set)
    """Numbers that the client will be shown, unless they get lost: waiting, or to be delivered again."""
    flags: dict[int, Gap] = field(default_factory=dict)
    shown: Counter[int] = field(default_factory=Counter)
    """Number of times that the client was shown each message."""
    expires: dict[int, float] = field(default_factory=dict)
    """Times at which messages expire, in milliseconds."""
    coming: Gap | None = None
    """Flag of the next message, which is not sent yet."""
    is_known: bool = False
    """True if a message was delivered under the present node id, so that the next one is known to continue it."""

    def lose(self, number: int, gap: Gap, was_shown: bool = False) -> None:
        self.to_show.discard(number)
        own = self.flags.pop(number, None)
        if own is not None and not was_shown:
            gap = max(gap, own)
        following = min((each for each in self.to_show if each > number), default=None)
        if following is None:
            self.coming = max(gap, self.coming or gap)
        else:
            self.flags[following] = max(gap, self.flags.get(following, gap))

    def send(self) -> int:
        self.sent += 1
        self.to_show.add(self.sent)
        if self.coming is not None:
            self.flags[self.sent], self.coming = self.coming, None
        return self.sent


Place = tuple[int, int]
"""A sender and the number of its message."""


class GapMachine(RuleBasedStateMachine):
    """One consumer, four senders, and everything that loses messages between them."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = float(NOW)
        self.patch = pytest.MonkeyPatch()
        for module in (inbox_module, router_module, deliveries_module):
            self.patch.setattr(module, "time", lambda: self.now_ms / 1000)

    def teardown(self) -> None:
        self.patch.undo()

    @initialize(overflow=st.sampled_from(Overflow), mode=st.sampled_from([1, 2]))
    def begin(self, overflow: Overflow, mode: int) -> None:
        self.overflow = overflow
        bounds = ConsumerSettings(overflow=overflow, messages_max=HELD_MAX)
        self.inbox = Inbox(TOPIC, None, None, bounds, lambda: None, self.note_kind)
        self.bench = Bench()
        self.bench.router.add(self.inbox)
        self.is_tracking = mode == SessionMode.CLIENT_ACKNOWLEDGE
        self.deliveries = Deliveries(SessionMode(mode), REDELIVERIES_MAX, lambda _: None)
        self.opener = Opener(SafeCodec(), _nothing)
        self.lines = [Line(100 + each, FrameWriter(1000 + each)) for each in range(len(PRIORITIES))]
        self.waiting: dict[int, list[Place]] = {priority: [] for priority in sorted(set(PRIORITIES))}
        self.again: list[Place] = []
        self.in_hand: list[Delivery] = []
        """Shown and not acknowledged, in CLIENT_ACKNOWLEDGE mode."""
        self.lost: Counter[Loss] = Counter()
        self.told: set[Loss] = set()
        self.unheard: list[int] = []
        """Node ids that are no longer used, though nobody heard that."""

    def note_kind(self, inbox: Inbox, loss: Loss | None) -> None:
        assert inbox is self.inbox
        if loss is not None:
            self.told.add(loss)

    # Senders.

    def publish(self, sender: int, life_ms: int = 0, *before: bytes) -> None:
        """Send a message, and predict what a full consumer drops."""
        line, priority = self.lines[sender], PRIORITIES[sender]
        number = line.send()
        place = sender, number
        expires = round(self.now_ms) + life_ms if life_ms else 0
        parts = message(f"{sender}.{number}", priority=priority, expiration=expires, writer=line.writer)
        self.bench.take([*before, parts], line.node_id)
        line.is_known = True
        self.waiting[priority].append(place)
        if expires:
            line.expires[number] = expires
        while self.overflow is not Overflow.BLOCK and self.held > HELD_MAX and any(self.waiting.values()):
            queue = next(queue for queue in self.waiting.values() if queue)
            dropped, number = queue.pop(0 if self.overflow is Overflow.DROP_OLDEST else -1)
            self.lines[dropped].lose(number, Gap.DROPPED)
            self.lost[Loss.OVERFLOW] += 1

    @property
    def held(self) -> int:
        return sum(map(len, self.waiting.values())) + len(self.again) + len(self.in_hand)

    @rule(sender=SENDERS, count=st.integers(1, 4))
    def send(self, sender: int, count: int) -> None:
        for _ in range(count):
            self.publish(sender)

    @rule(sender=SENDERS)
    def send_with_short_life(self, sender: int) -> None:
        self.publish(sender, LIFE_MS)

    @rule(sender=SENDERS)
    def arrive_expired(self, sender: int) -> None:
        line = self.lines[sender]
        number = line.send()
        expires = round(self.now_ms) - 1
        parts = message("late", priority=PRIORITIES[sender], expiration=expires, writer=line.writer)
        self.bench.take([parts], line.node_id)
        line.lose(number, Gap.EXPIRED)
        self.lost[Loss.EXPIRED] += 1

    @rule(sender=SENDERS)
    def lose_on_the_network(self, sender: int) -> None:
        line = self.lines[sender]
        line.lose(line.send(), Gap.LOST)
        self.bench.router.note_gap(line.node_id, STREAM)

    @rule(sender=SENDERS)
    def send_behind_something_unreadable(self, sender: int) -> None:
        line = self.lines[sender]
        unreadable = bytearray(b"".join(message("?")))
        unreadable[KIND] = 99
        line.lose(line.send(), Gap.LOST)
        self.publish(sender, 0, bytes(unreadable))

    @rule(sender=SENDERS, is_heard=st.booleans())
    def draw_another_node_id(self, sender: int, is_heard: bool) -> None:
        """Continue under another node id. Others may hear that the old one left, or only of the new one."""
        line = self.lines[sender]
        if not line.is_known:
            return
        if is_heard:
            assert self.bench.router.forget(line.node_id)
        else:
            self.unheard.append(line.node_id)
        line.lose(line.send(), Gap.LOST)
        line.node_id, line.is_known = next(NODE_IDS), False

    @rule()
    def forget_those_that_left_unheard(self) -> None:
        for node_id in self.unheard:
            self.bench.router.forget(node_id)
        self.unheard.clear()

    # The client.

    @rule(seconds=st.integers(1, 3))
    def let_time_pass(self, seconds: int) -> None:
        self.now_ms += seconds * 600

    def is_expired(self, place: Place) -> bool:
        sender, number = place
        return 0 < self.lines[sender].expires.get(number, 0) <= self.now_ms

    def take(self) -> Delivery | None:
        """Take the next message, and compare message and flag with the model's."""
        delivery = self.opener.take(self.inbox)
        expected = self.next_place()
        if expected is None:
            assert delivery is None
            return None
        assert delivery is not None
        sender, number = expected
        taken = self.opener.open(delivery)
        assert taken.get_body(str) == f"{sender}.{number}"
        flag = self.lines[sender].flags.get(number)
        assert taken.property_exists(GAP) == (flag is not None)
        if flag is not None:
            assert taken.get_boolean_property(GAP) is True
            assert taken.get_string_property(GAP_REASON) == flag.word
        return delivery

    def next_place(self) -> Place | None:
        """Return what comes next, and lose what has expired before it."""
        queues = [self.again, *(self.waiting[priority] for priority in sorted(self.waiting, reverse=True))]
        for queue in queues:
            while queue:
                sender, number = place = queue.pop(0)
                if not self.is_expired(place):
                    return place
                self.lines[sender].lose(number, Gap.EXPIRED, was_shown=self.lines[sender].shown[number] > 0)
                self.lost[Loss.EXPIRED] += 1
        return None

    def place_of(self, delivery: Delivery) -> Place:
        sender, number = str(self.opener.open(delivery).get_body(str)).split(".")
        return int(sender), int(number)

    def show(self, delivery: Delivery) -> Place:
        place = sender, number = self.place_of(delivery)
        self.lines[sender].shown[number] += 1
        self.lines[sender].to_show.discard(number)
        return place

    @precondition(lambda self: not self.is_tracking)
    @rule(count=st.integers(1, 3), failing=st.integers(0, 3))
    def listen(self, count: int, failing: int) -> None:
        """Pass a batch to a listener, which raises at one of them. The rest of the batch is given back."""
        batch = [delivery for _ in range(count) if (delivery := self.take()) is not None]
        for delivery in batch[:failing]:
            self.show(delivery)
            self.inbox.release(delivery.received)
        rest = batch[failing + 1 :]
        for delivery in reversed(rest):
            self.deliveries.give_back(delivery)
        self.again[:0] = [self.place_of(delivery) for delivery in rest]
        if failing < len(batch):
            failed = batch[failing]
            place = sender, number = self.show(failed)
            if self.deliveries.retry(failed):
                self.lines[sender].to_show.add(number)
                self.again.insert(0, place)
            else:
                self.lines[sender].lose(number, Gap.GIVEN_UP, was_shown=True)
                self.lost[Loss.GIVEN_UP] += 1

    @precondition(lambda self: self.is_tracking)
    @rule()
    def receive(self) -> None:
        delivery = self.take()
        if delivery is not None:
            self.show(delivery)
            self.deliveries.consume(delivery)
            self.in_hand.append(delivery)

    @precondition(lambda self: self.is_tracking)
    @rule()
    def acknowledge(self) -> None:
        self.deliveries.acknowledge_all()
        self.in_hand.clear()

    @precondition(lambda self: self.is_tracking)
    @rule()
    def recover(self) -> None:
        self.deliveries.recover()
        places = [self.place_of(delivery) for delivery in self.in_hand]
        for sender, number in places:
            self.lines[sender].to_show.add(number)
        self.again[:0] = places
        self.in_hand.clear()

    @rule()
    def send_once_more_and_take_all(self) -> None:
        """Every gap has a message behind it now."""
        if self.is_tracking:
            self.acknowledge()
        while (delivery := self.take()) is not None:
            self.show(delivery)
            self.inbox.release(delivery.received)
        for sender in range(len(self.lines)):
            self.publish(sender)
            delivery = self.take()
            assert delivery is not None
            self.show(delivery)
            self.inbox.release(delivery.received)
            assert self.lines[sender].coming is None
        assert not self.inbox.gaps
        assert self.inbox.held == 0

    @invariant()
    def every_loss_is_counted(self) -> None:
        if not hasattr(self, "inbox"):
            return
        assert self.inbox.held == self.held
        assert self.told == {loss for loss, count in self.lost.items() if count}
        for loss in list(self.told):
            counted = self.inbox.take_losses(loss)
            assert counted == self.lost.pop(loss)
        self.told.clear()


GapMachine.TestCase.settings = settings(max_examples=examples(200), stateful_step_count=60, deadline=None)
TestGaps = GapMachine.TestCase
