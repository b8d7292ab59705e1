"""A connection with durable consumers, at a real cell of one. Between them is a network that the test decides about."""

from collections.abc import Callable
from random import Random

from serving_cells import Alone

from fjm2.base.ledger import Ledger
from fjm2.cell.outgoing import Replay, SendCommand, SendEntry
from fjm2.cell.service.reasons import Reason
from fjm2.cell.subscriber.outgoing import ConsumerReady, Deliver, Event, SendLeases, SendRequest, SessionOpened
from fjm2.cell.subscriber.subscriber import Subscriber
from fjm2.cell.wire.catch_up import CatchUpPage, CatchUpQuery
from fjm2.cell.wire.commands import Heartbeat
from fjm2.cell.wire.requests import Place, Request, SubscriptionFlag, decode_request

ORDERS, NEWS = Place(0, "orders"), Place(0, "news")
WRITERS = (Ledger(900, 0, 1), Ledger(901, 0, 1), Ledger(900, 1, 1), Ledger(900, 2, 1))
"""Two writers, and two ledgers under which the first of them goes on."""
SHARED = SubscriptionFlag.DURABLE | SubscriptionFlag.SHARED
Act = Callable[[], None]


class Connection:
    """A connection. The cell gets what it sends at once. What it hears waits in `packets` for the test."""

    def __init__(self, alone: Alone, number: int = 1) -> None:
        self.alone = alone
        self.node = 50 + number
        self.ledger = Ledger(number, 0, 1)
        self.subscriber: Subscriber[bytes] = Subscriber(self.node, Random(number), lambda frame: (frame, len(frame)))
        self.published: dict[Ledger, list[bytes]] = {}
        self.requests: list[Request] = []
        self.queries: list[CatchUpQuery] = []
        self.packets: list[Act] = []
        self.told: list[Event[bytes]] = []
        self.delivered: list[tuple[Ledger, int, bytes, bool]] = []
        self.is_deaf = False
        """True while the cell takes no requests of this connection."""
        self.sent = 0

    # The connection

    def flush(self) -> None:
        """Pass on what the connection sends, and take what it is told."""
        cell, now = self.alone.cell, self.alone.now
        while (message := self.subscriber.poll_message()) is not None:
            match message:
                case SendRequest():
                    self.sent += 1
                    request = decode_request(message.body)
                    assert request is not None
                    self.requests.append(request)
                    self.subscriber.note_sent(message.number, self.ledger, self.sent, now)
                    cell.receive_frames(self.ledger, self.sent, (message.body,), self.node, now)
                    if not self.is_deaf:
                        cell.clients.receive_request(self.ledger, self.sent, message.body)
                case SendLeases():
                    cell.clients.receive_leases(message.content, now)
                case SendCommand():
                    if isinstance(message.command, CatchUpQuery):
                        self.queries.append(message.command)
                    cell.receive(message.command.encode(), self.node, now)
            self.collect()
        self.subscriber.note_stored(self.ledger, self.sent, now)
        while (event := self.subscriber.poll_event()) is not None:
            self.told.append(event)
            if isinstance(event, Deliver):
                self.delivered += (
                    (event.ledger, sequence, frame, event.is_redelivered)
                    for sequence, frame in enumerate(event.frames, event.first)
                )

    def collect(self) -> None:
        """Take what the keeper sends: decisions come at once, pages and frames wait."""
        alone, subscriber = self.alone, self.subscriber
        alone.take()
        for message in alone.sent:
            match message:
                case SendEntry():
                    subscriber.receive_entry(message.epoch, message.index, message.data, alone.now)
                case Heartbeat():
                    subscriber.receive_command(message.encode(), 1, alone.now)
                case CatchUpPage() if message.reply_to == self.node:
                    page = message.encode()
                    self.packets.append(lambda page=page: subscriber.receive_command(page, 1, alone.now))
                case _:
                    pass
        for event in alone.events:
            if isinstance(event, Replay) and event.to_node == self.node:
                for each in event.ranges:
                    for sequence in range(each.first, each.last + 1):
                        self.packets.append(lambda led=each.ledger, seq=sequence: self.hear(led, seq, 1))
        alone.forget()

    def run(self, seconds: float) -> None:
        """Let time go by, in steps of a heartbeat."""
        while seconds > 0.0:
            step = min(seconds, 0.1)
            seconds -= step
            self.alone.run(step)
            self.collect()
            self.subscriber.handle_timeout(self.alone.now)
            self.flush()

    def run_all(self, seconds: float) -> None:
        """Let time go by, and everything come."""
        for _ in range(round(seconds / 0.05)):
            self.run(0.05)
            self.come()

    def come(self) -> None:
        """Let everything come that waits."""
        for _ in range(1000):
            if not self.packets:
                return
            self.packets.pop(0)()
            self.flush()

    # Publishers

    def publish(self, *kinds: bool, writer: int = 0) -> tuple[Ledger, int, int]:
        """Let a writer send frames, True for each message to ORDERS, which the keeper gets. Return where they are."""
        ledger, frames = WRITERS[writer], self.published.setdefault(WRITERS[writer], [])
        first = len(frames) + 1
        for kind in kinds:
            frames.append(b"o%d" % len(frames) if kind else b"n")
            self.alone.cell.receive_frames(ledger, len(frames), (frames[-1],), 60, self.alone.now)
            if kind:
                self.alone.cell.clients.note_messages(ORDERS.frame_hash, ledger, len(frames), 1)
        self.collect()
        return ledger, first, len(kinds)

    def hear(self, ledger: Ledger, first: int, count: int) -> None:
        """Let frames come, each run of one kind at once."""
        frames = self.published[ledger][first - 1 : first - 1 + count]
        at = 0
        while at < len(frames):
            end = at + 1
            is_order = frames[at][:1] == b"o"
            while end < len(frames) and (frames[end][:1] == b"o") == is_order:
                end += 1
            if is_order:
                run, place = frames[at:end], first + at
                self.subscriber.receive_frames(ORDERS.frame_hash, ledger, place, run, self.alone.now)
            else:
                self.subscriber.receive_others(ledger, first + at, end - at, self.alone.now)
            at = end
        self.flush()

    def orders(self, writer: int = 0) -> list[int]:
        """Return the sequences of all messages to ORDERS."""
        frames = self.published.get(WRITERS[writer], [])
        return [sequence for sequence, frame in enumerate(frames, 1) if frame[:1] == b"o"]

    def got(self, writer: int = 0) -> list[int]:
        """Return the sequences that were delivered, in order."""
        return [sequence for ledger, sequence, _, _ in self.delivered if ledger == WRITERS[writer]]

    # Sessions

    def open(self, client_id: str = "client", mode: int = 2) -> int:
        """Open a session. Return its number."""
        session = self.subscriber.open_session(mode, client_id, self.alone.now)
        self.flush()
        self.run(0.6)
        assert SessionOpened(session) in self.told
        return session

    def subscribe(self, session: int, flags: SubscriptionFlag = SubscriptionFlag.DURABLE, room: int = 1000) -> int:
        """Create a consumer, and the subscription. Return its number."""
        consumer = self.subscriber.create_consumer(session, flags, "orders", "name", "", self.alone.now)
        self.flush()
        self.run(0.6)
        assert any(isinstance(event, ConsumerReady) and event.consumer == consumer for event in self.told)
        self.room(consumer, room)
        return consumer

    def room(self, consumer: int, messages: int) -> None:
        self.subscriber.set_room(consumer, messages, self.alone.now)
        self.flush()

    def acknowledge(self, consumer: int, first: int, last: int, writer: int = 0) -> int:
        """Acknowledge messages. Return the number of the call."""
        number = self.subscriber.acknowledge(consumer, [(WRITERS[writer], first, last)], self.alone.now)
        self.flush()
        return number

    def told_of(self, kind: type) -> list[Event[bytes]]:
        """Return the events of a kind."""
        return [event for event in self.told if isinstance(event, kind)]

    def verdict(self, number: int) -> Reason | None:
        """Return the decision on a call."""
        reasons = [event.reason for event in self.told if getattr(event, "number", None) == number]  # type: ignore[union-attr]
        assert len(reasons) <= 1
        return reasons[0] if reasons else None
