"""Streams of frames and subscriptions, for tests of the router."""

from collections.abc import Iterable

from fjm2.bus.losses.kinds import Loss
from fjm2.bus.reports import BusReport
from fjm2.bus.router import Received, Router
from fjm2.jms import Destination, Message, Selector, TextMessage, Topic
from fjm2.messages.frame import FrameWriter, Parts, seal
from fjm2.messages.header import Header, Transaction
from fjm2.messages.message import open_message
from fjm2.norm.events import StreamReceived

TOPIC = Topic("prices.eu")
NOW = 1_700_000_000_123
CONNECTION = 77
OWN, SENDER, OTHER = 1, 2, 3
STREAM = 500


class Subscriber:
    """A subscriber that keeps the received messages."""

    def __init__(
        self, destination: Destination = TOPIC, selector: str | None = None, left_out: int | None = None
    ) -> None:
        self.destination = destination
        self.selector = None if selector is None else Selector(selector)
        self.left_out = left_out
        self.most = 1 << 30
        self.received: list[Received] = []
        self.losses: list[Loss] = []

    @property
    def is_full(self) -> bool:
        return len(self.received) >= self.most

    def deliver(self, received: Received) -> None:
        self.received.append(received)

    def miss(self, _: Header, loss: Loss) -> None:
        self.losses.append(loss)

    @property
    def texts(self) -> list[str]:
        return [text_of(received) for received in self.received]

    @property
    def gaps(self) -> list[bool]:
        return [received.has_gap for received in self.received]


def text_of(received: Received) -> str:
    text = open_message(received.head, received.body, received.header).get_body(str)
    assert text is not None
    return text


class Bench:
    """A router with a clock that tests can set, and the router's reports."""

    def __init__(self, *subscribers: Subscriber, **settings: int) -> None:
        self.now = 1000.0
        self.reports: list[BusReport] = []
        self.resumed = 0
        self.router = Router(OWN, self.reports.append, on_resume=self._count, clock=lambda: self.now, **settings)
        self._places: dict[tuple[int, int], int] = {}
        for subscriber in subscribers:
            self.router.add(subscriber)

    def _count(self) -> None:
        self.resumed += 1

    def take(self, frames: Iterable[Parts | bytes], sender: int = SENDER, stream: int = STREAM) -> None:
        """Pass frames to the router as one run."""
        data = b"".join(frame if isinstance(frame, bytes) else b"".join(frame) for frame in frames)
        self.take_bytes(data, (0,), sender, stream)

    def take_bytes(
        self, data: bytes, marks: tuple[int, ...], sender: int = SENDER, stream: int = STREAM, start: int | None = None
    ) -> None:
        place = self._places.get((sender, stream), 0) if start is None else start
        self._places[sender, stream] = place + len(data)
        self.router.receive(StreamReceived(sender, stream, place, data, marks))


def message(
    text: str,
    destination: Destination = TOPIC,
    *,
    priority: int = 4,
    expiration: int = 0,
    writer: FrameWriter | None = None,
    transaction: Transaction | None = None,
    **properties: int,
) -> Parts:
    """Return the frame of a text message."""
    made: Message = TextMessage(text)
    for name, value in properties.items():
        made.set_int_property(name, value)
    writer = writer or FrameWriter(CONNECTION)
    parts = writer.write(made, destination, 0, priority, NOW, expiration)
    return parts if transaction is None else seal(parts, transaction)
