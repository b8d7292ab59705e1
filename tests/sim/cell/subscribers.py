"""Clients of a cell in virtual time: durable subscribers that also publish, crash and come back.

A client hears the frames of all others as they come, some of them never. Its `Subscriber` does the rest, asked by the
client for random things. Frames are `M`, the number of a topic and a text, or `R` and a request.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from random import Random
from typing import Final, Protocol

from cells import Keeper
from processes import Process
from program_inboxes import ProgramInbox
from subscriber_model import Model

from fjm2.base.ledger import DELAYED_LANE, Ledger
from fjm2.cell.cell import Cell
from fjm2.cell.service.reasons import Reason
from fjm2.cell.stored_tracker import StoredTracker
from fjm2.cell.subscriber.outgoing import (
    AcknowledgementDecided,
    ConsumerClosed,
    ConsumerReady,
    ConsumerRefused,
    Deliver,
    Event,
    Loss,
    SendLeases,
    SendRequest,
    SessionClosed,
    SessionLost,
    SessionOpened,
    SessionRefused,
    Unsubscribed,
)
from fjm2.cell.subscriber.subscriber import Subscriber
from fjm2.cell.wire.commands import Heartbeat, HeartbeatFlag, decode_command
from fjm2.cell.wire.requests import Ack, Place, SubscriptionFlag, encode_request
from fjm2.cell.wire.stored import decode_stored

CLIENT_NODE: Final = 2000
TOPICS: Final = tuple(Place(0, f"topic{number}") for number in range(2))
WINDOW: Final = 12
"""Most frames of a client that are not confirmed."""
DELAY_S: Final = 4.0
"""Longest delay of a message."""
LIAR: Final = 5
"""Number of the client that lies."""
PASSING: Final = (6, 7)
"""Numbers of the clients whose subscription is not durable."""
CREDIT: Final = 24
"""Most messages that a shared consumer holds."""
ROOM: Final = 40
"""Most messages that a consumer takes before it looks again."""


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

    def later(self, delay: float, act: Callable[[], None]) -> None: ...

    def deliver(self, source: object, target: Keeper, act: Callable[[Cell], object]) -> None: ...

    def keeper_at(self, node: int) -> Keeper | None: ...

    def deliver_frames(
        self, source: object, target: Keeper, ledger: Ledger, first: int, frame: bytes, *, is_fetched: bool
    ) -> None: ...

    def tell_client(self, source: object, client: "Client", act: Callable[[], None]) -> None: ...

    def note_confirmed(self, ledger: Ledger, through: int) -> None: ...

    def is_kept(self, ledger: Ledger, sequence: int) -> bool: ...


class Consumer:
    """A consumer as the client knows it."""

    def __init__(self, handle: int, pace: float) -> None:
        self.handle = handle
        self.pace = pace
        """Probability that the program goes on using messages."""
        self.number = 0
        self.is_ready = False
        self.is_closing = False
        """True from the call on that closes it, or its session."""
        self.room = 0
        self.inbox = ProgramInbox()
        """Messages that were delivered and not used."""
        self.unused: deque[int] = deque()
        """Numbers of these that were delivered together."""
        self.waiting: list[list[tuple[Ledger, int, int]]] = []
        """Messages that were used and not acknowledged, by the times at which they were used."""
        self.calls: list[int] = []
        """Calls about messages."""


class Client:
    """A client with one session, which publishes, and has a durable consumer or none."""

    def __init__(self, world: Surroundings, number: int, life: int, client_id: str) -> None:
        self.world = world
        self.random = Random(world.random.getrandbits(32))
        self.node = CLIENT_NODE + number + 100 * life
        self.ledgers = [Ledger(10_000 + number + 100 * life, 0, lane) for lane in (1, 2)]
        """Ledger of all requests and some messages, and that of other messages. The latter goes on under the next epoch
        now and then."""
        self.client_id = client_id
        if number == LIAR:
            world.model.liars.add(self.ledger)
        self.tracker = StoredTracker(self.ledger.producer_id, 10.0)
        self.subscriber: Subscriber[bytes] = Subscriber(self.node, self.random, lambda frame: (frame, len(frame)))
        self.frames: dict[Ledger, list[bytes]] = defaultdict(list)
        self.reachable = True
        self.process = Process(world.later, lambda: self.use(0.9))
        self.is_quiet = False
        """True for a client that starts nothing new, but drains and acknowledges."""
        self.session = 0
        self.is_open = False
        self.consumer: Consumer | None = None
        self.calls: dict[int, float] = {}
        """Times of calls whose outcome nothing has told yet. 0 is the session's."""
        world.later(self.random.uniform(0.0, 0.1), self.turn)

    # Sending

    @property
    def ledger(self) -> Ledger:
        """Ledger of all requests."""
        return self.ledgers[0]

    @property
    def later(self) -> Ledger:
        """The ledger of the client's delayed messages."""
        return self.ledger._replace(lane=self.ledger.lane + DELAYED_LANE)

    @property
    def unconfirmed(self) -> int:
        """Number of frames that are not confirmed, of the ledgers that get more."""
        return sum(len(self.frames[each]) - self.tracker.confirmed(each) for each in (*self.ledgers, self.later))

    def send(self, ledger: Ledger, frame: bytes) -> int:
        self.frames[ledger].append(frame)
        sequence = len(self.frames[ledger])
        self.tracker.note_sent(ledger, sequence, self.world.now)
        self.world.model.note_sent(ledger, sequence, frame, self.world.now, self.tracker.table_version)
        self.publish(ledger, sequence)
        return sequence

    def send_message(self) -> None:
        """Send a message in one of the two ledgers, of which the second one may have been given up."""
        ledger = self.random.choice(self.ledgers)
        if ledger != self.ledger and self.frames[ledger] and self.random.random() < 0.1:
            ledger = ledger._replace(producer_epoch=ledger.producer_epoch + self.random.choice((1, 1, 1, 2)))
            self.ledgers[1] = ledger
            self.world.model.counts["successors"] += 1
        self.send(ledger, b"M%d%d" % (self.random.randrange(len(TOPICS)), len(self.frames[ledger])))

    def publish(self, ledger: Ledger, sequence: int) -> None:
        frame = self.frames[ledger][sequence - 1]
        for keeper in self.world.keepers:
            self.world.deliver_frames(self, keeper, ledger, sequence, frame, is_fetched=False)
        for client in self.world.clients:
            self.world.tell_client(self, client, lambda c=client: c.hear(ledger, sequence, frame))

    def publish_again(self) -> None:
        """Send some frames again: those that are not confirmed, and now and then others, too."""
        random = self.random
        for ledger in (*self.ledgers, self.later):
            for sequence in range(self.tracker.confirmed(ledger) + 1, len(self.frames[ledger]) + 1):
                if random.random() < 0.2:
                    self.publish(ledger, sequence)
        if self.frames and random.random() < 0.15:
            ledger = random.choice(list(self.frames))
            sent = len(self.frames[ledger])
            if sent:
                self.publish(ledger, sent - random.randrange(min(sent, 20)))  # a late copy

    def send_later(self) -> None:
        """Send a message that is due in a while."""
        due_ms = int((self.world.now + self.random.uniform(0.05, DELAY_S)) * 1000)
        self.send(self.later, b"M%d%d@%d" % (self.random.randrange(len(TOPICS)), due_ms, len(self.frames[self.later])))

    def multicast(self, data: bytes) -> None:
        for keeper in self.world.keepers:
            self.world.deliver(self, keeper, lambda cell: cell.receive(data, self.node, self.world.now))

    def flush(self) -> None:
        """Send what the subscriber has to send, and take what it tells."""
        world = self.world
        while (message := self.subscriber.poll_message()) is not None:
            match message:
                case SendRequest() if self.random.random() < 0.02:
                    self.subscriber.note_unsent(message.number, world.now)
                case SendRequest():
                    sequence = self.send(self.ledger, b"R" + message.body)
                    self.subscriber.note_sent(message.number, self.ledger, sequence, world.now)
                case SendLeases():
                    content, keeper = message.content, world.keeper_at(message.to_node)
                    if keeper is not None:
                        renew = lambda cell, c=content: cell.clients.receive_leases(c, world.now)  # noqa: E731
                        world.deliver(self, keeper, renew)
                case _:
                    self.multicast(message.command.encode())
        while (event := self.subscriber.poll_event()) is not None:
            self.take(event)

    # Hearing

    def hear(self, ledger: Ledger, sequence: int, frame: bytes) -> None:
        frame_hash = message_hash(frame)
        if frame_hash is None:
            self.subscriber.receive_others(ledger, sequence, 1, self.world.now)
        else:
            self.subscriber.receive_frames(frame_hash, ledger, sequence, [frame], self.world.now)
        self.flush()

    def receive(self, message: bytes, source: int) -> None:
        now = self.world.now
        if message[:1] == b"\1":
            stored = decode_stored(message)
            assert stored is not None
            self.tracker.receive_stored(stored, now)
        else:
            heartbeat = decode_command(message)
            if isinstance(heartbeat, Heartbeat) and heartbeat.flags & HeartbeatFlag.SERVING:
                self.tracker.receive_heartbeat(heartbeat, now)
            self.subscriber.receive_command(message, source, now)
        for ledger in self.frames:
            self.world.note_confirmed(ledger, self.tracker.confirmed(ledger))
        self.subscriber.note_stored(self.ledger, self.tracker.confirmed(self.ledger), now)
        self.flush()

    def receive_entry(self, epoch: int, index: int, data: bytes) -> None:
        self.subscriber.receive_entry(epoch, index, data, self.world.now)
        self.flush()

    def take(self, event: Event[bytes]) -> None:
        """Take what the subscriber tells."""
        match event:
            case Deliver():
                self.take_messages(event)
            case SessionOpened():
                self.is_open = True
                self.calls.pop(0, None)
            case SessionLost():
                self.world.model.counts["gaps"] += event.loss is Loss.MISSED
                self.lose_session()
            case SessionRefused() | SessionClosed():
                self.lose_session()
            case ConsumerReady() if self.consumer is not None and event.consumer == self.consumer.handle:
                self.consumer.is_ready = True
                self.consumer.number = self.subscriber.number_of(event.consumer) or self.consumer.number
                self.calls.pop(event.consumer, None)
                number = self.subscriber.number_of(event.consumer)
                self.world.model.complete(self.session, number, self.world.now)
            case ConsumerReady():  # one that should have been refused: the consumer before it was about to end
                self.subscriber.close_consumer(event.consumer, self.world.now)
            case ConsumerRefused() | ConsumerClosed():
                self.calls.pop(event.consumer, None)
                if self.consumer is not None and event.consumer == self.consumer.handle:
                    for call in self.consumer.calls:
                        self.calls.pop(call, None)
                    self.consumer = None
            case AcknowledgementDecided():
                assert event.reason is Reason.GRANTED, f"{event}: expected that what was delivered can be acknowledged"
                self.calls.pop(event.number, None)
            case Unsubscribed():
                self.calls.pop(event.number, None)
            case _:
                pass

    def take_messages(self, event: Deliver[bytes]) -> None:
        consumer = self.consumer
        assert consumer is not None, f"{event}: expected nothing after the end of a consumer"
        assert consumer.handle == event.consumer
        consumer.room -= len(event.frames)
        assert consumer.room >= 0, f"{event}: expected no more messages than there is room for"
        consumer.number = self.subscriber.number_of(event.consumer) or consumer.number
        if not consumer.number:  # the same decisions began and ended it: nobody can acknowledge what it got between
            self.world.model.counts["late deliveries"] += len(event.frames)
            return
        for sequence, frame in enumerate(event.frames, event.first):
            self.world.model.deliver(
                self.session,
                consumer.number,
                event.ledger,
                sequence,
                frame,
                is_redelivered=event.is_redelivered,
                is_kept=self.world.is_kept,
                now=self.world.now,
            )
        count = len(event.frames)
        consumer.inbox.add(event.ledger, event.first, count, is_redelivered=event.is_redelivered)
        consumer.unused.append(count)

    def lose_session(self) -> None:
        self.session = 0
        self.is_open = False
        self.consumer = None
        self.calls.clear()

    # Acting

    def turn(self) -> None:
        """Do what is due, again and again for as long as the client lives."""
        world, random, subscriber = self.world, self.random, self.subscriber
        if not self.process.is_alive:
            return
        world.later(random.uniform(0.02, 0.06), self.turn)
        if not subscriber.cell_id or self.process.is_stopped:
            return
        self.use(1.0 if self.is_quiet or self.consumer is None else self.consumer.pace)
        self.publish_again()
        if self.tracker.poll_request(world.now):
            producer_id, node = self.ledger.producer_id, self.node
            for keeper in world.keepers:
                world.deliver(self, keeper, lambda cell: cell.receive_stored_request(producer_id, node))
        if world.now >= subscriber.poll_timeout():
            subscriber.handle_timeout(world.now)
            self.flush()  # before the room changes: what is told counts for the room of before
        if self.unconfirmed < WINDOW:
            self.act()
        self.flush()

    def use(self, probability: float) -> None:
        """Use what was delivered, if the session holds: what is next with a probability, and so on."""
        consumer, subscriber, world = self.consumer, self.subscriber, self.world
        if consumer is None or consumer.is_closing:
            return
        while consumer.unused and self.random.random() < probability:
            if world.now > subscriber.tenure.until:
                world.model.counts["holds"] += 1
                if not subscriber.tenure.is_asked:
                    subscriber.tenure.doubt(world.now)
                    self.flush()
                return
            used: list[tuple[Ledger, int, int]] = []
            for _ in range(consumer.unused.popleft()):
                ledger, sequence, is_redelivered = consumer.inbox.take()
                world.model.use(self.session, consumer.number, ledger, sequence, is_redelivered=is_redelivered)
                is_next = bool(used) and used[-1][0] == ledger and used[-1][2] == sequence - 1
                first = used.pop()[1] if is_next else sequence
                used.append((ledger, first, sequence))
            consumer.waiting.append(used)

    def act(self) -> None:
        """Do one thing, mostly something reasonable."""
        random, consumer = self.random, self.consumer
        chance = random.random()
        if chance < 0.04 and not self.is_quiet and not self.is_liar:
            self.send_later()
        elif chance < 0.3 and not self.is_quiet and not self.is_liar:
            self.send_message()
        elif not self.session:
            self.session = self.subscriber.open_session(2, self.client_id, self.world.now)
            self.calls[0] = self.world.now
        elif not self.is_open:
            pass  # the answer says what to do next
        elif consumer is None:
            self.act_without_consumer(chance)
        elif chance < 0.5:
            self.acknowledge(consumer)
        elif chance < 0.53 and not self.is_quiet:
            self.act_with_consumer(consumer)
        elif chance < 0.7 or consumer.room < 3:
            consumer.room = random.choice((0, 2, ROOM)) if not self.is_quiet else ROOM
            self.subscriber.set_room(consumer.handle, consumer.room, self.world.now)

    def acknowledge(self, consumer: Consumer) -> None:
        """Acknowledge what was delivered: mostly all of it, now and then a part from the middle; or give it back."""
        random, now, model = self.random, self.world.now, self.world.model
        if self.is_liar:
            number = self.subscriber.number_of(consumer.handle)
            if model.last_hand is not None and number:
                self.send(
                    self.ledger, b"R" + encode_request(Ack(self.session, (replace(model.last_hand, consumer=number),)))
                )
            return
        if not consumer.waiting:
            return
        chosen, consumer.waiting = consumer.waiting, []
        if random.random() < 0.3:
            random.shuffle(chosen)
            half = random.randrange(len(chosen))
            consumer.waiting, chosen = chosen[:half], chosen[half:]
        is_returned = self.is_shared and random.random() < 0.2 and not self.is_quiet
        call = self.subscriber.give_back if is_returned else self.subscriber.acknowledge
        consumer.calls.append(call(consumer.handle, chain.from_iterable(chosen), now))
        self.calls[consumer.calls[-1]] = now

    def act_without_consumer(self, chance: float) -> None:
        random, now = self.random, self.world.now
        if chance < 0.35 and not self.is_quiet:
            self.calls[self.subscriber.unsubscribe(self.session, self.name(), now)] = now
        elif chance < 0.38 and not self.is_quiet:
            self.subscriber.close_session(self.session, now)
        else:
            topic = self.world.model.topic_of(self.client_id, self.name(), self.flags)
            if random.random() < 0.1 and not self.is_quiet:
                topic = random.randrange(len(TOPICS))
            self.consumer = Consumer(self.subscribe(topic), random.choice((0.1, 0.9)))

    def subscribe(self, topic: int) -> int:
        now, credit = self.world.now, 0 if self.is_liar else CREDIT
        name = TOPICS[topic].name
        handle = self.subscriber.create_consumer(self.session, self.flags, name, self.name(), "", now, credit=credit)
        self.calls[handle] = now
        return handle

    def act_with_consumer(self, consumer: Consumer) -> None:
        now = self.world.now
        match self.random.randrange(4):
            case 0:
                consumer.is_closing = True
                self.subscriber.close_consumer(consumer.handle, now)
            case 1:
                self.calls[self.subscriber.unsubscribe(self.session, self.name(), now)] = now  # refused
            case 2 if not self.is_shared and consumer.is_ready:
                self.subscribe(0)  # refused
            case _:
                consumer.is_closing = True
                self.subscriber.close_session(self.session, now)

    @property
    def is_liar(self) -> bool:
        """True for a client that is handed nothing, and acknowledges what others hold."""
        return self.ledger in self.world.model.liars

    @property
    def is_shared(self) -> bool:
        """True for a client without a client id, of which several share a subscription."""
        return not self.client_id

    @property
    def is_durable(self) -> bool:
        """True for a client whose subscription stays without it."""
        return (self.node - CLIENT_NODE) % 100 not in PASSING

    @property
    def flags(self) -> SubscriptionFlag:
        """The kind of the client's subscription."""
        if not self.is_durable:
            return SubscriptionFlag.SHARED
        return SubscriptionFlag.DURABLE | (SubscriptionFlag.SHARED if self.is_shared else SubscriptionFlag(0))

    def name(self) -> str:
        return "shared" if self.is_shared else "name"

    def crash(self) -> None:
        """End without a word."""
        self.process.is_alive = False
        self.reachable = False
