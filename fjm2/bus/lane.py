"""Lanes, each of which sends the messages of a range of priorities as one stream of one NORM sender.

Every lane has its own node id, socket, DSCP, window and flow control, so a full lane does not delay the others. Lane 0
uses the session of the bus, which also receives. The other lanes only send, and open at their first message.
"""

from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from typing import Final

from fjm2.base.ledger import DELAYED_LANE
from fjm2.norm import OutgoingStream, Session, SessionStatistics
from fjm2.norm.events import Event

from .config import BusConfig
from .signals.signals import Signals

LANE_OF_PRIORITY: Final = (0, 0, 0, 0, 0, 1, 1, 2, 2, 2)
"""Lane of each priority. JMS separates normal from expedited messages between priorities 4 and 5."""
LANE_COUNT: Final = 3
LEDGER_LANES: Final = (*range(LANE_COUNT), *range(DELAYED_LANE, DELAYED_LANE + LANE_COUNT))
"""Lanes in the names of ledgers. Delayed messages have ledgers of their own, so that nothing is held behind them."""
DSCP_OF_LANE: Final = (10, 18, 26)
"""DSCP of each lane: AF11 for high-throughput data, AF21 for low-latency data, and AF31 (RFC 4594). A `dscp` in the URI
applies to all lanes."""
TOPICS_MAX: Final = 4096
"""Greatest number of topics that a lane remembers. With so many, it assumes that every subscriber wants some of its
messages."""


class Lane:
    """One lane of a bus."""

    def __init__(self, number: int, config: BusConfig, on_event: Callable[["Lane", Event], None]) -> None:
        self.number = number
        self.is_kept = True
        """True if the lane may have something that keepers have to keep. If not, they hear nothing of it."""
        self.stream: OutgoingStream | None = None
        """Stream of the lane; None before its first message."""
        self.topics: set[int] = set()
        """Hashes of the destinations that the lane has published to."""
        self.named: frozenset[int] = frozenset()
        """Receivers that flow control was told to wait for."""
        self.evicted: set[int] = set()
        """Receivers that did not answer in time. Flow control no longer waits for them."""
        self.confirmed_upto: dict[int, int] = {}
        """Position in the stream, in bytes, up to which each known receiver has confirmed it. Receivers that have
        confirmed nothing are missing."""
        self.refreshed_at = 0.0
        """Time of the last refresh frame, in seconds of the loop's clock."""
        self.session = config.session(is_sender_only=number > 0, dscp=config.dscp or DSCP_OF_LANE[number])
        self.refreshes = 0
        """Number of refresh frames sent, which make idle streams known to newcomers. They are not messages of the
        application."""
        self.session.is_counted_alone = False
        self._messages_end = self._refreshes_end = 0
        """Ends of the messages before the latest refresh frames, and of those frames, in bytes of the stream."""
        self._on_event = on_event
        if number:
            self.session.on_events = self._drain_events

    @property
    def node_id(self) -> int:
        return self.session.node_id

    def open_stream(self) -> OutgoingStream:
        """Open the stream for the first message. Raise NormError or OSError if that is not possible."""
        if self.number and self.stream is None:
            self.session.open()
        self.stream = self.session.open_stream_now(is_passing=not self.is_kept)
        return self.stream

    def keep(self) -> None:
        """Let keepers hear everything that is sent from now on."""
        self.is_kept = True
        if self.stream is not None:
            self.stream.keep()

    def redraw_node_id(self) -> None:
        """Continue under another node id. Messages not yet given to the network move to a new stream."""
        messages = [] if self.stream is None else self.stream.take_back()
        self.session.redraw_node_id()
        if self.stream is not None:
            self.stream = self.session.open_stream_now(is_passing=not self.is_kept)
            self.confirmed_upto.clear()
            self._messages_end = self._refreshes_end = 0
            for message in messages:
                self.stream.append(message)

    def refresh(self, head: bytes, body: bytes) -> None:
        """Send a refresh frame on the idle stream."""
        assert self.stream is not None
        written = self._written_bytes
        if written != self._refreshes_end:
            self._messages_end = written
        self._refreshes_end = written + len(head) + len(body)
        self.stream.append(head, body)
        self.refreshes += 1

    @property
    def given_bytes(self) -> int:
        """Bytes that have a place in the stream's buffer. A confirmation asked for now is about these."""
        return 0 if self.stream is None else self.stream.statistics().payload_bytes_sent

    @property
    def _written_bytes(self) -> int:
        return self.given_bytes + self.pending_bytes

    def owing(self, nodes: frozenset[int]) -> frozenset[int]:
        """Return those of `nodes` that have not confirmed all messages. Refresh frames need no confirmation."""
        written = self._written_bytes
        end = self._messages_end if written == self._refreshes_end else written
        return frozenset(node for node in nodes if self.confirmed_upto.get(node, 0) < end)

    def statistics(self) -> SessionStatistics:
        """Return the statistics of the session. Refresh frames do not count as messages."""
        statistics = self.session.statistics()
        return replace(statistics, messages_sent=max(statistics.messages_sent - self.refreshes, 0))

    @property
    def wants_all(self) -> bool:
        """True if the lane has so many topics that every subscriber may want some of its messages."""
        return len(self.topics) >= TOPICS_MAX

    @property
    def pending_bytes(self) -> int:
        """Bytes that were published but do not fit into the stream's buffer yet."""
        return 0 if self.stream is None else self.stream.pending_bytes

    @property
    def unsent_bytes(self) -> int:
        """Size of what was published and not sent yet."""
        return 0 if self.stream is None else self.stream.unsent_bytes

    def _drain_events(self) -> None:
        while (event := self.session.take()) is not None:
            self._on_event(self, event)


class LanesState(Enum):
    """Lifecycle of a bus's lanes."""

    OPEN = auto()
    """Messages can be published."""
    CLOSING = auto()
    """Nothing more is published. Streams end, and subscribers confirm."""
    CLOSED = auto()
    """The sockets are closed."""


MOVES: Final = {
    LanesState.OPEN: {LanesState.CLOSING},
    LanesState.CLOSING: {LanesState.CLOSED},
    LanesState.CLOSED: set[LanesState](),
}
"""States that may follow each state."""


class Lanes:
    """All lanes of a bus."""

    def __init__(self, config: BusConfig, on_event: Callable[[Lane, Event], None], signals: Signals) -> None:
        self.all: Final = [Lane(number, config, on_event) for number in range(LANE_COUNT)]
        self.first: Final = self.all[0]
        self.session: Final[Session] = self.first.session
        """Session of the first lane, which receives for the whole bus."""
        self.of_priority: Final = tuple(self.all[number] for number in LANE_OF_PRIORITY)
        self.signals: Final = signals
        """Handlers of what travels beside the streams: commands, and acknowledgements that are no confirmations."""
        self.outboxes: Final[list[Callable[[], int]]] = []
        """Functions that return how many messages wait in the outbox of a connection until keepers have them."""
        for lane in self.all:
            lane.session.take_ack = partial(signals.take_ack, lane.number)
        self.on_kept: Callable[[], None] = lambda: None
        """Called when keepers begin to hear a lane that had sent something before."""
        self._state = LanesState.OPEN

    def let_pass(self) -> None:
        """Let lanes that are not open yet pass by keepers until `keep`, which has to be called in time from now on."""
        for lane in self.all:
            lane.is_kept = lane.is_kept and lane.stream is not None

    def keep(self, number: int) -> None:
        """Let keepers hear a lane from now on, before something is sent that they may have to keep."""
        lane = self.all[number]
        if not lane.is_kept:
            lane.keep()
            if lane.stream is not None:
                self.on_kept()

    def keep_all(self) -> None:
        """Let keepers hear all lanes from now on."""
        for lane in self.all:
            self.keep(lane.number)

    @property
    def is_open(self) -> bool:
        return self._state is LanesState.OPEN

    @property
    def with_streams(self) -> list[Lane]:
        """Lanes that have been published to."""
        return [lane for lane in self.all if lane.stream is not None]

    @property
    def refusal(self) -> str | None:
        """Reason of the kernel if it refused what one of the lanes sent last; None if it refused none."""
        opened = dict.fromkeys([self.first, *self.with_streams])
        return next((reason for lane in opened if (reason := lane.session.refusal)), None)

    def ignore_own(self) -> None:
        """Ignore datagrams of our own lanes: local subscriptions got the messages when they were published."""
        addresses = {lane.session.address for lane in self.with_streams} | {self.session.address}
        for lane in {self.first, *self.with_streams}:
            lane.session.ignore(addresses)

    def begin_closing(self) -> None:
        """Refuse to publish further messages."""
        self._move_to(LanesState.CLOSING)

    async def close(self) -> None:
        """Close the sockets."""
        self._move_to(LanesState.CLOSED)
        for lane in reversed(self.all):
            await lane.session.close()

    def _move_to(self, state: LanesState) -> None:
        if state not in MOVES[self._state]:
            raise AssertionError(f"{self._state} to {state}")
        self._state = state
