"""A client of a cell of one: it sends requests, and learns what was decided."""

from serving_cells import Alone

from fjm2.base.ledger import Ledger
from fjm2.cell.outgoing import Decided
from fjm2.cell.service.reasons import Reason
from fjm2.cell.wire.leases import encode_leases
from fjm2.cell.wire.ranges import Range
from fjm2.cell.wire.records import ApplyRecord
from fjm2.cell.wire.requests import (
    Ack,
    Close,
    Open,
    Place,
    Request,
    Subscribe,
    SubscriptionFlag,
    Unsubscribe,
    encode_request,
)

WRITER = Ledger(900, 0, 1)
ORDERS = Place(0, "orders")
NEWS = Place(0, "news")


class Client:
    """A client with a ledger of its own, and one session."""

    def __init__(self, alone: Alone, number: int = 1) -> None:
        self.alone = alone
        self.ledger = Ledger(number, 0, 1)
        self.session = 1000 + number
        self.sent = 0

    def send(self, body: bytes) -> int:
        """Send a request, and let it come to the disk. Return its sequence."""
        self.sent += 1
        cell = self.alone.cell
        cell.receive_frames(self.ledger, self.sent, (body,), 50, self.alone.now)
        cell.clients.receive_request(self.ledger, self.sent, body)
        self.alone.settle()
        return self.sent

    def ask(self, request: Request) -> Reason | None:
        """Send a request. Return the decision, or None if there is none yet."""
        return self.verdict(self.send(encode_request(request)))

    def verdict(self, sequence: int) -> Reason | None:
        """Return the decision on a request."""
        found = [
            verdict.reason
            for event in self.alone.events
            if isinstance(event, Decided)
            for record in event.records
            if isinstance(record, ApplyRecord) and record.ledger == self.ledger
            for verdict in record.verdicts
            if verdict.sequence == sequence
        ]
        assert len(found) <= 1
        return Reason(found[0]) if found else None

    def open(self, client_id: str = "client") -> Reason | None:
        return self.ask(Open(self.session, 2, client_id))

    def close(self, *consumers: int) -> Reason | None:
        return self.ask(Close(self.session, consumers))

    def subscribe(
        self, name: str = "name", place: Place = ORDERS, selector: str = "", flags: int = SubscriptionFlag.DURABLE
    ) -> Reason | None:
        """Subscribe. The number of the consumer is `sent`."""
        return self.ask(Subscribe(self.session, flags, 256, place, name, selector))

    def unsubscribe(self, name: str = "name") -> Reason | None:
        return self.ask(Unsubscribe(self.session, name))

    def ack(self, consumer: int, first: int, last: int, ledger: Ledger = WRITER) -> Reason | None:
        return self.ask(Ack(self.session, (Range(ledger, first, last - first + 1, consumer),)))

    def renew(self) -> None:
        """Renew the lease."""
        assert self.alone.cell.clients.receive_leases(encode_leases((self.session,)), self.alone.now)


def publish(alone: Alone, first: int, count: int = 1, place: Place = ORDERS, ledger: Ledger = WRITER) -> None:
    """Let frames of a writer come, and tell the cell which destination they have."""
    cell = alone.cell
    cell.receive_frames(ledger, first, (b"m",) * count, 60, alone.now)
    cell.clients.note_messages(place.frame_hash, ledger, first, count)
    alone.settle()


def kept(alone: Alone, place: Place = ORDERS, ledger: Ledger = WRITER) -> list[tuple[int, int]]:
    """Return the messages that the keeper knows to be needed, as [first, last]."""
    return [(first, end - 1) for first, end in alone.cell.clients.backlog.ranges(place.frame_hash, ledger)]
