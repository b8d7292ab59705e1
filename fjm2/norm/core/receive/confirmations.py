"""Confirmation of watermarks: the sender is told when everything before a position has arrived (RFC 5740, 5.5.3)."""

from dataclasses import dataclass

from fjm2.norm.core.remote_sender import RemoteSender
from fjm2.norm.core.timers import Timer, TimerTable
from fjm2.norm.core.wire import AckType, Position

from .context import ReceiverContext
from .feedback import FeedbackSender
from .incoming_object import IncomingObject
from .inventory import Inventory

ACKS_AT_ONCE_MAX = 8
"""Maximum number of nodes that confirm a watermark at once. If more are asked, they spread their answers over a round
trip (RFC 5740, 5.5.3)."""
_ACK_SPREAD_S = 0.002
"""Time in seconds that each of many nodes adds to the spread of their answers: a busy host handles several in it."""
_PENDING_MAX = 4
"""Maximum number of watermarks that are confirmed as soon as possible. Older watermarks are confirmed when the sender
asks again."""


_DELAYED_MAX = 16
"""Watermarks whose confirmation waits for the end of a delay. Older ones are confirmed when the sender asks again."""
_ALIVE_INTERVAL_S = 0.05
"""Shortest time between two messages of a receiver that only show that it lives: a few in the patience of a sender."""


@dataclass(slots=True)
class PendingConfirmation:
    """The objects that must arrive before a watermark can be confirmed."""

    missing: list[tuple[int, int]]
    """Count of each object that may lack something, and the segment index up to which the object must be complete."""
    spread_s: float
    """Time over which the nodes that are asked spread their answers; 0 if they are few."""

    def is_due(self, open_items: dict[int, IncomingObject]) -> bool:
        """Return True if everything before the watermark has arrived or was given up."""
        missing = self.missing
        while missing:
            count, end = missing[-1]
            item = open_items.get(count)
            if item is not None and item.lacks(end):
                return False
            missing.pop()
        return True


class Confirmations:
    """Watermarks of one sender that wait for missing data, and the watermark whose confirmation is delayed."""

    __slots__ = ("_context", "_delayed", "_feedback", "_inventory", "_owed", "_remote", "_timers", "pending")

    def __init__(
        self,
        context: ReceiverContext,
        remote: RemoteSender,
        timers: TimerTable,
        inventory: Inventory,
        feedback: FeedbackSender,
    ) -> None:
        self._context = context
        self._remote = remote
        self._timers = timers
        self._inventory = inventory
        self._feedback = feedback
        self.pending: dict[Position, PendingConfirmation] = {}
        """Watermarks before which something is missing, oldest first."""
        self._owed: Position | None = None
        """The last watermark that this node was asked to confirm and has not confirmed."""
        self._delayed: dict[Position, None] = {}
        """Watermarks that are to be confirmed after a random delay, oldest first."""

    def prepare(self, position: Position, count: int, end: int, node_count: int) -> None:
        """Note what is missing before a watermark that `node_count` nodes must confirm. Later losses do not matter."""
        if position in self.pending or not self._inventory.has_heard_of_all_to(count):
            return
        if len(self.pending) >= _PENDING_MAX:
            del self.pending[next(iter(self.pending))]
        is_crowd = self._context.group_is_multicast and node_count > ACKS_AT_ONCE_MAX
        spread_s = min(self._remote.grtt_s, node_count * _ACK_SPREAD_S) if is_crowd else 0.0
        self.pending[position] = PendingConfirmation(self._inventory.missing_to(count, end), spread_s)

    def send_due(self, now: float) -> None:
        """Confirm the watermarks before which nothing is missing any more, or schedule their confirmation."""
        open_items = self._inventory.window.open
        for position in [at for at, confirmation in self.pending.items() if confirmation.is_due(open_items)]:
            confirmation = self.pending.pop(position)
            if not confirmation.spread_s:
                self._confirm(position, now)
                continue
            self._delayed[position] = None
            if len(self._delayed) > _DELAYED_MAX:
                del self._delayed[next(iter(self._delayed))]
            if not self._timers.is_set(Timer.ACK):
                self._timers.set(Timer.ACK, now + self._context.random.uniform(0.0, confirmation.spread_s))

    def _confirm(self, position: Position, now: float) -> None:
        if position == self._owed:
            self._owed = None
        self._feedback.ack(AckType.FLUSH, position, now)

    def send_delayed(self, now: float) -> None:
        """Confirm the watermarks whose delay is over."""
        for position in self._delayed:
            self._confirm(position, now)
        self._delayed.clear()

    def show_life_soon(self, position: Position, node_count: int, now: float) -> None:
        """Show the sender that this receiver lives if, in a moment, it can still not confirm a watermark.

        It may be silent because others request what it lacks, or because its application takes nothing. `node_count`
        nodes are asked.
        """
        self._owed = position
        if not self._timers.is_set(Timer.ALIVE):
            is_crowd = self._context.group_is_multicast and node_count > ACKS_AT_ONCE_MAX
            spread_s = self._context.random.uniform(0.0, 2 * node_count * _ACK_SPREAD_S) if is_crowd else 0.0
            self._timers.set(Timer.ALIVE, now + _ALIVE_INTERVAL_S + spread_s)

    def show_life(self, now: float) -> None:
        """Answer as if to a probe, unless this receiver has said anything a moment ago."""
        if self._owed is not None and not self._delayed and now - self._feedback.sent_at >= _ALIVE_INTERVAL_S:
            self._feedback.ack(AckType.CC, b"", now)
