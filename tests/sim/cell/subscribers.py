"""Clients of a cell in virtual time: durable subscribers that also publish, crash and come back.

A client hears the frames of all others as they come, some of them never; what it lacks it asks the keepers for, page by
page. Frames are `M`, the number of a topic and a text, or `R` and a request.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final, Protocol

from cells import Keeper
from subscriber_model import Model

from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet
from fjm2.cell.cell import Cell
from fjm2.cell.service.reader import DecisionReader
from fjm2.cell.service.reasons import Reason
from fjm2.cell.stored_tracker import StoredTracker
from fjm2.cell.wire.catch_up import CatchUpPage, CatchUpQuery
from fjm2.cell.wire.commands import Heartbeat, HeartbeatFlag, MemberFlag, decode_command
from fjm2.cell.wire.leases import encode_leases
from fjm2.cell.wire.ranges import Range
from fjm2.cell.wire.records import ApplyRecord, HandRecord, Record, ReturnRecord, SectionRecord
from fjm2.cell.wire.requests import (
    Ack,
    Close,
    Open,
    Place,
    Request,
    Return,
    Subscribe,
    SubscriptionFlag,
    Unsubscribe,
    encode_request,
)
from fjm2.cell.wire.stored import decode_stored

CLIENT_NODE: Final = 2000
TOPICS: Final = tuple(Place(0, f"topic{number}") for number in range(2))
WINDOW: Final = 12
"""Most frames of a client that are not confirmed."""
RENEW_S: Final = 1.0
LIAR: Final = 5
"""Number of the client that lies."""
CREDIT: Final = 24
"""Most messages that a shared consumer holds."""


def message_hash(frame: bytes) -> int | None:
    """Return the destination of a frame, or None for a request."""
    return TOPICS[frame[1] - ord("0")].frame_hash if frame[:1] == b"M" else None


class Surroundings(Protocol):
    """Everything of the world that a client uses."""

    now: float
    random: Random
    model: Model
    keepers: list[Keeper]
    clients: list["Client"]
    refusals: Counter[Reason]

    def later(self, delay: float, act: Callable[[], None]) -> None: ...

    def deliver(self, source: object, target: Keeper, act: Callable[[Cell], object]) -> None: ...

    def keeper_at(self, node: int) -> Keeper | None: ...

    def deliver_frames(
        self, source: object, target: Keeper, ledger: Ledger, first: int, frame: bytes, *, is_fetched: bool
    ) -> None: ...

    def tell_client(self, source: object, client: "Client", act: Callable[[], None]) -> None: ...


class View:
    """One ledger, as a durable consumer reads it."""

    def __init__(self) -> None:
        self.next = 1
        """First sequence of which nothing is decided."""
        self.heard: dict[int, bytes] = {}
        self.plan: list[int] = []
        self.plan_through = 0
        self.live_from: int | None = None
        """Sequence from which on frames may be taken as they are heard. None before the first page."""
        self.asked_at = -1.0
        self.acked = RangeSet()
        """Sequences that this consumer has asked to acknowledge."""


class Consumer:
    """A durable consumer: it delivers what its subscription has not acknowledged, in order."""

    def __init__(self, client: "Client", number: int, name: str, topic: int) -> None:
        self.client = client
        self.number = number
        self.name = name
        self.topic = topic
        self.views: dict[Ledger, View] = {}
        self.discover_at = 0.0
        self.discover_from = Ledger(0, 0, 0)
        self.mark = 0
        """Frame of the client whose confirmation says that the subscription is there; 0 before it is sent."""
        self.table_version = 0
        """Version of the table that has the subscription."""
        self.is_complete = False

    def view(self, ledger: Ledger) -> View:
        return self.views.setdefault(ledger, View())

    def hear(self, ledger: Ledger, sequence: int, frame: bytes) -> None:
        view = self.view(ledger)
        if sequence >= view.next:
            view.heard[sequence] = frame
        self.deliver(ledger, view)

    def receive_page(self, page: CatchUpPage) -> None:
        view = self.view(page.ledger)
        if page.first <= view.next <= page.through + 1:
            view.plan = [
                sequence for first, last in page.spans for sequence in range(first, last + 1) if sequence >= view.next
            ]
            view.plan_through = page.through
            view.live_from = page.acknowledged + 1
        if page.next_ledger is not None:
            self.view(page.next_ledger)
            self.discover_from = page.next_ledger
        elif page.ledger >= self.discover_from:
            self.discover_from = Ledger(0, 0, 0)
            self.discover_at = self.client.world.now + 2.0
        self.deliver(page.ledger, view)

    def deliver(self, ledger: Ledger, view: View) -> None:
        """Deliver what is next and there."""
        while view.plan and view.plan[0] in view.heard:
            sequence = view.plan.pop(0)
            self.hand_out(ledger, sequence, view.heard[sequence])
            view.next = sequence + 1
        if not view.plan:
            view.next = max(view.next, view.plan_through + 1)
            while view.live_from is not None and view.next >= view.live_from and view.next in view.heard:
                frame = view.heard[view.next]
                if message_hash(frame) == TOPICS[self.topic].frame_hash:
                    self.hand_out(ledger, view.next, frame)
                view.next += 1
        for sequence in [sequence for sequence in view.heard if sequence < view.next]:
            del view.heard[sequence]

    def hand_out(self, ledger: Ledger, sequence: int, frame: bytes) -> None:
        self.client.world.model.deliver(self.client.session, self.number, ledger, sequence, frame)

    def turn(self) -> None:
        """Ask for what is missing."""
        now = self.client.world.now
        if now >= self.discover_at:
            self.discover_at = now + 0.3
            self.client.query(self.number, self.discover_from, 1, is_exact=False)
        for ledger, view in self.views.items():
            is_behind = view.live_from is None or view.plan or view.heard
            if is_behind and now >= view.asked_at + 0.3:
                view.asked_at = now
                self.client.query(self.number, ledger, view.next, is_exact=True)

    def ack(self) -> None:
        """Acknowledge what was delivered: mostly all of it, now and then a part from the middle."""
        random, ranges = self.client.random, []
        for ledger, view in self.views.items():
            through = view.next - 1
            if through < 1 or view.acked.covers(1, through + 1):
                continue
            first = 1
            if random.random() < 0.3:
                first = random.randint(1, through)
                through = random.randint(first, through)
            view.acked.add(first, through + 1)
            ranges.append(Range(ledger, first, through - first + 1, self.number))
        if ranges:
            self.client.request(Ack(self.client.session, tuple(ranges[:8])))
            for each in ranges[8:]:
                self.views[each.ledger].acked.remove(each.first, each.last + 1)

    def has_delivered(self, ledger: Ledger, through: int) -> bool:
        view = self.views.get(ledger)
        return view is not None and view.next > through


class Portion:
    """A range that was handed to a shared consumer."""

    def __init__(self, each: Range) -> None:
        self.range = each
        self.next = each.first
        """First sequence of which nothing is decided."""
        self.plan: list[int] = []
        self.plan_through = 0
        self.asked_at = -1.0

    @property
    def is_done(self) -> bool:
        return self.next > self.range.last


class SharedConsumer:
    """A consumer of a shared durable subscription: it delivers what it is handed, portion by portion."""

    def __init__(self, client: "Client", number: int, name: str, topic: int) -> None:
        self.client = client
        self.number = number
        self.name = name
        self.topic = topic
        self.portions: list[Portion] = []
        self.heard: dict[tuple[Ledger, int], bytes] = {}
        self.mark = 0
        self.table_version = 0
        self.is_complete = False

    def receive_hand(self, each: Range) -> None:
        self.portions.append(Portion(each))

    def hear(self, ledger: Ledger, sequence: int, frame: bytes) -> None:
        self.heard[ledger, sequence] = frame
        self.deliver()

    def receive_page(self, page: CatchUpPage) -> None:
        for portion in self.portions:
            is_meant = portion.range.ledger == page.ledger and page.first == portion.next and not portion.plan
            if is_meant and page.first <= page.through:
                portion.plan_through = min(page.through, portion.range.last)
                portion.plan = [
                    sequence
                    for first, last in page.spans
                    for sequence in range(first, last + 1)
                    if sequence <= portion.plan_through
                ]
        self.deliver()

    def deliver(self) -> None:
        for portion in self.portions:
            ledger = portion.range.ledger
            while portion.plan and (ledger, portion.plan[0]) in self.heard:
                sequence = portion.plan.pop(0)
                frame = self.heard.pop((ledger, sequence))
                self.client.world.model.deliver(self.client.session, self.number, ledger, sequence, frame)
                portion.next = sequence + 1
            if not portion.plan:
                portion.next = max(portion.next, portion.plan_through + 1)

    def turn(self) -> None:
        """Ask for what is missing."""
        now = self.client.world.now
        for portion in self.portions:
            if not portion.is_done and now >= portion.asked_at + 0.3:
                portion.asked_at = now
                self.client.query(self.number, portion.range.ledger, portion.next, is_exact=True)

    def ack(self) -> None:
        """Acknowledge what was delivered, or give it back."""
        client = self.client
        if client.is_liar and client.sight.overheard is not None:
            client.request(Ack(client.session, (replace(client.sight.overheard, consumer=self.number),)))
            return
        done = [portion for portion in self.portions if portion.is_done][:8]
        if not done:
            return
        ranges = tuple(portion.range for portion in done)
        self.portions = [portion for portion in self.portions if portion not in done]
        is_returned = self.client.random.random() < 0.2 and not self.client.is_quiet
        kind = Return if is_returned else Ack
        self.client.request(kind(self.client.session, ranges))

    def refuse(self, request: Request) -> None:
        """Take back a request that was not granted: the consumer still holds what it names, or has lost it."""
        assert isinstance(request, Ack | Return)
        for each in request.ranges if not self.client.is_liar else ():
            portion = Portion(each)
            portion.next = each.last + 1
            self.portions.append(portion)


class Sight:
    """Everything that a client knows of its cell."""

    def __init__(self, ledger: Ledger) -> None:
        self.tracker = StoredTracker(ledger.producer_id, 10.0)
        self.reader = DecisionReader()
        self.cell_id = 0
        self.epoch_number = (0, 0)
        self.manager_node = 0
        self.keeper_nodes: list[int] = []
        self.overheard: Range | None = None
        """A range that was handed to somebody else."""
        self.renew_at = 0.0


class Client:
    """A client with one session, which publishes, and has a durable consumer or none."""

    def __init__(self, world: Surroundings, number: int, life: int, client_id: str) -> None:
        self.world = world
        self.random = Random(world.random.getrandbits(32))
        self.node = CLIENT_NODE + number + 100 * life
        self.ledger = Ledger(10_000 + number + 100 * life, 0, 1)
        self.client_id = client_id
        self.is_liar = number == LIAR
        """True for a client that is handed nothing, and acknowledges what others hold."""
        self.sight = Sight(self.ledger)
        self.frames: list[bytes] = []
        self.reachable = True
        self.is_alive = True
        self.is_quiet = False
        """True for a client that starts nothing new, but drains and acknowledges."""
        self.session = 0
        self.is_open = False
        self.consumer: Consumer | SharedConsumer | None = None
        self.pending: dict[int, Request] = {}
        world.later(self.random.uniform(0.0, 0.1), self.turn)

    # Sending

    @property
    def confirmed(self) -> int:
        return self.sight.tracker.confirmed(self.ledger)

    @property
    def sent(self) -> int:
        return len(self.frames)

    def send(self, frame: bytes) -> int:
        self.frames.append(frame)
        self.sight.tracker.note_sent(self.ledger, self.sent, self.world.now)
        self.world.model.note_sent(self.ledger, self.sent, frame, self.world.now)
        self.publish(self.sent)
        return self.sent

    def publish(self, sequence: int) -> None:
        frame = self.frames[sequence - 1]
        for keeper in self.world.keepers:
            self.world.deliver_frames(self, keeper, self.ledger, sequence, frame, is_fetched=False)
        for client in self.world.clients:
            self.world.tell_client(self, client, lambda c=client: c.hear(self.ledger, sequence, frame))

    def request(self, request: Request) -> None:
        sequence = self.send(b"R" + encode_request(request))
        self.pending[sequence] = request

    def multicast(self, data: bytes) -> None:
        for keeper in self.world.keepers:
            self.world.deliver(self, keeper, lambda cell: cell.receive(data, self.node, self.world.now))

    def query(self, consumer: int, ledger: Ledger, first: int, *, is_exact: bool) -> None:
        """Ask one of the keepers for a page."""
        if not self.sight.keeper_nodes:
            return
        query = CatchUpQuery(
            is_exact=is_exact,
            reply_to=self.node,
            keeper_node=self.random.choice(self.sight.keeper_nodes),
            consumer=consumer,
            cell_id=self.sight.cell_id,
            session=self.session,
            ledger=ledger,
            first=first,
        )
        self.multicast(query.encode())

    # Hearing

    def hear(self, ledger: Ledger, sequence: int, frame: bytes) -> None:
        if self.consumer is not None:
            self.consumer.hear(ledger, sequence, frame)

    def receive(self, message: bytes, source: int) -> None:
        if message[:1] == b"\1":
            stored = decode_stored(message)
            assert stored is not None
            self.sight.tracker.receive_stored(stored, self.world.now)
            self.world.model.note_confirmed(self.ledger, self.confirmed)
            return
        match decode_command(message):
            case Heartbeat() as heartbeat:
                self.receive_heartbeat(heartbeat, source)
            case CatchUpPage() as page if page.reply_to == self.node and self.consumer is not None:
                if (page.session, page.consumer) == (self.session, self.consumer.number):
                    self.consumer.receive_page(page)
            case _:
                pass

    def receive_heartbeat(self, heartbeat: Heartbeat, source: int) -> None:
        if heartbeat.flags & HeartbeatFlag.SERVING:
            self.sight.tracker.receive_heartbeat(heartbeat, self.world.now)
        self.sight.cell_id = heartbeat.cell_id
        if (heartbeat.epoch, heartbeat.number) >= self.sight.epoch_number:
            self.sight.epoch_number = heartbeat.epoch, heartbeat.number
            self.sight.manager_node = source
            self.sight.keeper_nodes = [each.node_id for each in heartbeat.members if each.flags & MemberFlag.LIVE]
        self.sight.reader.receive_heartbeat(heartbeat)
        self.read()

    def receive_entry(self, epoch: int, index: int, data: bytes) -> None:
        self.sight.reader.receive_entry(epoch, index, data)
        self.read()

    def read(self) -> None:
        for entry in self.sight.reader.read():
            for record in entry.records:
                self.take(record)

    def take(self, record: Record) -> None:
        """Take a decision."""
        match record:
            case ReturnRecord(session=self.session):
                self.lose_session()
            case HandRecord():
                for hand in record.hands:
                    is_mine = hand.session == self.session and isinstance(self.consumer, SharedConsumer)
                    if is_mine and hand.range.consumer == self.consumer.number:
                        self.consumer.receive_hand(hand.range)
                    else:
                        self.sight.overheard = hand.range
            case SectionRecord():
                self.world.model.counts["gaps"] += 1
                self.pending.clear()
                self.lose_session()
            case ApplyRecord(ledger=self.ledger):
                reasons = {verdict.sequence: Reason(verdict.reason) for verdict in record.verdicts}
                for sequence in [sequence for sequence in self.pending if sequence <= record.through]:
                    request = self.pending.pop(sequence)
                    self.learn(sequence, request, reasons.get(sequence))
            case _:
                pass

    def learn(self, sequence: int, request: Request, reason: Reason | None) -> None:
        """Learn what became of a request; None: it was not decided."""
        if reason is not Reason.GRANTED and reason is not None:
            self.world.refusals[reason] += 1
        if request.session != self.session:
            return
        if reason is Reason.NO_SESSION:
            self.lose_session()
        elif isinstance(request, Open):
            self.is_open = reason is Reason.GRANTED
            if not self.is_open:
                self.session = 0
        elif isinstance(request, Subscribe) and reason is Reason.GRANTED:
            topic = TOPICS.index(request.destination)
            kind = SharedConsumer if self.is_shared else Consumer
            self.consumer = kind(self, sequence, request.name, topic)
            self.consumer.table_version = self.world.model.table_version
        elif isinstance(request, Ack | Return) and reason is None and isinstance(self.consumer, SharedConsumer):
            self.consumer.refuse(request)
        elif isinstance(request, Ack) and reason is not Reason.GRANTED and isinstance(self.consumer, Consumer):
            for each in request.ranges:
                self.consumer.view(each.ledger).acked.remove(each.first, each.last + 1)
        elif isinstance(request, Close) and reason is Reason.GRANTED:
            self.consumer = None
            if not request.consumers:
                self.lose_session()

    def lose_session(self) -> None:
        self.session = 0
        self.is_open = False
        self.consumer = None

    # Acting

    def turn(self) -> None:
        """Do what is due, again and again for as long as the client lives."""
        world, random = self.world, self.random
        if not self.is_alive:
            return
        world.later(random.uniform(0.02, 0.06), self.turn)
        if not self.sight.cell_id:
            return
        for sequence in range(self.confirmed + 1, self.sent + 1):
            if random.random() < 0.2:
                self.publish(sequence)
        if self.sent and random.random() < 0.15:
            self.publish(self.sent - random.randrange(min(self.sent, 20)))  # a late copy
        if self.sight.tracker.poll_request(world.now):
            producer_id, node = self.ledger.producer_id, self.node
            for keeper in world.keepers:
                world.deliver(self, keeper, lambda cell: cell.receive_stored_request(producer_id, node))
        fetch = self.sight.reader.poll_fetch(self.node, world.now)
        if fetch is not None:
            self.multicast(fetch.encode())
        if self.session and world.now >= self.sight.renew_at:
            self.renew()
        if self.consumer is not None:
            self.consumer.turn()
            self.complete(self.consumer)
        if self.sent - self.confirmed < WINDOW:
            self.act()

    def renew(self) -> None:
        self.sight.renew_at = self.world.now + RENEW_S
        content = encode_leases((self.session,))
        keeper = self.world.keeper_at(self.sight.manager_node)
        if keeper is not None:
            self.world.deliver(self, keeper, lambda cell: cell.clients.receive_leases(content, self.world.now))

    def complete(self, consumer: Consumer | SharedConsumer) -> None:
        """Find out whether W members keep what the subscription is to get: they confirm a frame under its table."""
        if consumer.is_complete:
            return
        if not consumer.mark and self.sight.tracker.table_version >= consumer.table_version:
            consumer.mark = self.send(b"M0mark")
        if consumer.mark and self.confirmed >= consumer.mark:
            consumer.is_complete = True
            self.world.model.complete(self.session, consumer.number, self.world.now)

    def act(self) -> None:
        """Do one thing, mostly something reasonable."""
        random = self.random
        chance = random.random()
        if chance < 0.3 and not self.is_quiet and not self.is_liar:
            self.send(b"M%d%d" % (random.randrange(len(TOPICS)), self.sent))
        elif any(not isinstance(request, Ack | Return) for request in self.pending.values()):
            pass  # the answer says what to do next
        elif not self.is_open:
            self.session = random.getrandbits(64) or 1
            self.request(Open(self.session, 2, self.client_id))
        elif self.consumer is None:
            self.act_without_consumer(chance)
        elif chance < 0.5:
            self.consumer.ack()
        elif chance < 0.53 and not self.is_quiet:
            self.act_with_consumer(self.consumer)

    def act_without_consumer(self, chance: float) -> None:
        random = self.random
        if chance < 0.35 and not self.is_quiet:
            self.request(Unsubscribe(self.session, self.name()))
        elif chance < 0.38 and not self.is_quiet:
            self.request(Close(self.session))
        else:
            topic = self.world.model.topic_of(self.client_id, self.name())
            if random.random() < 0.1 and not self.is_quiet:
                topic = random.randrange(len(TOPICS))
            self.subscribe(topic)

    def subscribe(self, topic: int) -> None:
        self.request(Subscribe(self.session, self.flags, 0 if self.is_liar else CREDIT, TOPICS[topic], self.name(), ""))

    def act_with_consumer(self, consumer: Consumer | SharedConsumer) -> None:
        match self.random.randrange(4):
            case 0:
                self.request(Close(self.session, (consumer.number,)))
            case 1:
                self.request(Unsubscribe(self.session, consumer.name))  # refused
            case 2 if not self.is_shared:
                self.subscribe(0)  # refused
            case _:
                self.request(Close(self.session))

    @property
    def is_shared(self) -> bool:
        """True for a client without a client id, of which several share a subscription."""
        return not self.client_id

    @property
    def flags(self) -> int:
        return SubscriptionFlag.DURABLE | (SubscriptionFlag.SHARED if self.is_shared else 0)

    def name(self) -> str:
        return "shared" if self.is_shared else "name"

    def crash(self) -> None:
        """End without a word."""
        self.is_alive = False
        self.reachable = False
