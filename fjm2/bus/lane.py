"""Lanes: messages of one range of priorities, as one stream of a NORM sender of its own.

A lane has its own node id, socket, DSCP, window and flow control, so that a full one delays no other. The first is that
of the bus's session, which also receives; the others only send, and are opened when they are first used.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from fjm2.norm import OutgoingStream, SessionStatistics
from fjm2.norm.events import Event

from .config import BusConfig

LANE_OF_PRIORITY: Final = (0, 0, 0, 0, 0, 1, 1, 2, 2, 2)
"""JMS draws its line between 4 and 5."""
LANE_COUNT: Final = 3
DSCP_OF_LANE: Final = (10, 18, 26)
"""AF11, high-throughput data; AF21, low-latency data; AF31 (RFC 4594). The bus's own `dscp` is that of all lanes."""
TOPICS_MAX: Final = 4096
"""Of a sender of more topics, every subscriber is taken to want some."""


class Lane:
    """One of a bus's lanes."""

    def __init__(self, number: int, config: BusConfig, on_event: Callable[["Lane", Event], None]) -> None:
        self.number = number
        self.stream: OutgoingStream | None = None
        """Open from the first message on."""
        self.topics: set[int] = set()
        """Hashes of the destinations published to."""
        self.named: frozenset[int] = frozenset()
        """The receivers that flow control was told to wait for."""
        self.evicted: set[int] = set()
        """Those that it has waited for in vain."""
        self.refreshed_at = 0.0
        """When a frame was last sent for newcomers to hear of the stream."""
        self.session = config.session(is_sender_only=number > 0, dscp=config.dscp or DSCP_OF_LANE[number])
        self.refreshes = 0
        """Frames of that kind."""
        self.session.is_counted_alone = False
        self._on_event = on_event
        if number:
            self.session.on_events = self._take_events

    @property
    def node_id(self) -> int:
        return self.session.node_id

    def open_stream(self) -> OutgoingStream:
        """For the first message. NormError, or OSError, where there are no means."""
        if self.number and self.stream is None:
            self.session.open()
        self.stream = self.session.open_stream_now()
        return self.stream

    def redraw_node_id(self) -> None:
        """Go on under another node id. What the network was not given yet goes into a new stream."""
        messages = [] if self.stream is None else self.stream.take_back()
        self.session.redraw_node_id()
        if self.stream is not None:
            self.stream = self.session.open_stream_now()
            for message in messages:
                self.stream.append(message)

    def statistics(self) -> SessionStatistics:
        """Of its session, without the frames that are no messages of the application's."""
        statistics = self.session.statistics()
        return replace(statistics, messages_sent=max(statistics.messages_sent - self.refreshes, 0))

    @property
    def wants_all(self) -> bool:
        """Whether so much is published here that every subscriber may want some."""
        return len(self.topics) >= TOPICS_MAX

    @property
    def pending_bytes(self) -> int:
        return 0 if self.stream is None else self.stream.pending_bytes

    def _take_events(self) -> None:
        while (event := self.session.take()) is not None:
            self._on_event(self, event)
