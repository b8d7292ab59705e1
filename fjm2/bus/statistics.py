"""What connections, sessions, producers and consumers say of themselves: pictures of a moment, which do not change."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fjm2.norm import SessionStatistics as LaneStatistics


@dataclass(frozen=True, slots=True, kw_only=True)
class BusStatistics:
    """A bus so far: what all connections of the process to the same URI share of the network."""

    connections: int
    """Connections of this process that share it."""
    peers: int
    """Connections of other processes that are known."""
    messages_sent: int
    """Messages that the network is fed with, or was."""
    frames_received: int
    """Messages that came from other processes, wanted here or not."""
    deliveries: int
    """Messages given to consumers of this process: one that goes to two counts twice."""
    messages_dropped: int
    """By consumers that were full."""
    frames_expired: int
    """Wanted here, but too old when they came."""
    frames_malformed: int
    """Of which a selector, or their transaction, could not be read."""
    frame_drops: Mapping[str, int]
    """What came and was no message, by reason: `unknown`, `malformed`, `too_large`, `cut`."""
    streams_cut: int
    """Times that a sender's stream had to start over, as messages that had begun took too much memory."""
    announcements_refused: int
    """What others said of themselves that makes no sense, or for which there is no room."""
    reports_suppressed: int
    """Problems that exception listeners did not hear of, as there were too many in a second."""
    transactions_held: int
    """Begun, and not complete yet."""
    consumers: int
    """Of this process."""
    consumers_full: int
    """While there are any, nothing more is taken from the network, and senders wait."""
    messages_held: int
    """By consumers: waiting, or taken and not acknowledged."""
    held_bytes: int
    """Likewise in bytes."""
    lanes: Mapping[int, "LaneStatistics"]
    """By number, the NORM session of each range of priorities that was sent with; the first one also receives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionStatistics:
    """A connection so far, and its bus."""

    sessions: int
    """Open ones."""
    messages_sent: int
    """Messages sent by its producers, those of transactions not yet committed, or rolled back, included."""
    messages_unconfirmed: int
    """Persistent messages that were sent, and not yet confirmed by all subscribers that are known; 0 when closed."""
    messages_dropped: int
    """By consumers that were full."""
    consumers: int
    """Open ones."""
    consumers_full: int
    """Of those that hold the senders back."""
    messages_held: int
    """By consumers: waiting, or taken and not acknowledged."""
    held_bytes: int
    """Likewise in bytes."""
    bus: BusStatistics
    """What it shares with the other connections of this process to the same URI."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStatistics:
    """A session at present."""

    consumers: int
    """Open ones."""
    messages_unacknowledged: int
    """Taken, and not acknowledged; in AUTO and DUPS_OK mode those that loops are working on."""
    messages_uncommitted: int
    """Sent in the open transaction."""
    outcomes_awaited: int
    """Asynchronous sends of which the outcome is not known, or not told, yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerStatistics:
    """A producer so far."""

    messages_sent: int
    """Messages accepted by `send`, those of transactions included."""
    sends_waited: int
    """Sends that found no room and waited: receivers, or the rate, hold the sender back."""
    waited_s: float
    """For how long they did, in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStatistics:
    """A consumer so far. Those of a temporary queue say what holds for the queue as a whole."""

    messages_received: int
    """Messages that it got from the bus, those that it dropped later included."""
    messages_waiting: int
    """Not taken yet."""
    messages_held: int
    """These, and those that were taken and are not acknowledged: `messages_max` is their bound."""
    held_bytes: int
    """Likewise in bytes: `bytes_max` is their bound."""
    messages_dropped: int
    """As it was full."""
    times_full: int
    """How often it had to hold the senders back."""
    is_full: bool
    """It does so at present."""
