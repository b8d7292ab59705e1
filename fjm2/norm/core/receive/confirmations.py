"""Confirmation of watermarks: the sender is told when everything before a position has arrived (RFC 5740, 5.5.3)."""

from dataclasses import dataclass

from fjm2.norm.core.remote_sender import RemoteSender
from fjm2.norm.core.timers import NEVER, Timer, TimerTable
from fjm2.norm.core.wire import AckType, Position

from .context import ReceiverContext
from .feedback import FeedbackSender
from .incoming_object import IncomingObject
from .inventory import Inventory

ACKS_AT_ONCE_MAX = 8
"""Maximum number of nodes that confirm a watermark at once, and to the group. If more are asked, they spread their
answers over a round trip (RFC 5740, 5.5.3)."""
_PUBLIC_INTERVAL_S = 0.04
"""Time between two confirmations to the group, by any of the nodes that a sender asks together."""
_POSITIONS_MAX = 4
"""Maximum number of positions that are remembered. A sender asks for two at a time."""
_ANSWERS_MAX = 2
"""Times that the same position is confirmed to the sender alone: a request and an answer may cross."""
_UNHEARD = _ANSWERS_MAX + 1
"""Count of answers that stands for: the sender asked for the position again after `_ANSWERS_MAX` of them, so they seem
not to reach it."""
_UNHEARD_MAX = 3
"""Number of such positions in a row after which everything is confirmed to the group for a while."""
_PUBLIC_S = 30.0
"""Length of that while. Then private confirmations are tried again."""
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
    node_count: int
    """Number of nodes that are asked."""

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


class Audience:
    """Tells which confirmations go to one sender alone.

    They concern no other node, but every node handles each datagram that is sent to the group: the work would grow with
    the square of the number of nodes. So each node of a crowd confirms to the group only now and then, for onlookers.
    A firewall may keep private confirmations from the sender. It then asks again and again, and the answer goes to the
    group.
    """

    __slots__ = ("_answers", "_public_at", "_public_until", "_unheard")

    def __init__(self) -> None:
        self._answers: dict[Position, int] = {}
        """Number of private confirmations of each position, or `_UNHEARD`; oldest position first."""
        self._unheard = 0
        """Number of positions in a row whose private confirmations did not reach the sender."""
        self._public_at = -NEVER
        """Time of the last confirmation to the group that was meant for onlookers."""
        self._public_until = -NEVER

    def is_sender_alone(self, position: Position, node_count: int, now: float) -> bool:
        """Return True if the confirmation of a position, for which `node_count` nodes were asked, is for the sender."""
        answers = self._answers.get(position, 0)
        is_crowd = node_count > ACKS_AT_ONCE_MAX
        if now < self._public_until or not (is_crowd or answers):
            return False
        if not answers and now - self._public_at >= node_count * _PUBLIC_INTERVAL_S:
            self._public_at = now
            return False
        is_private = is_crowd and answers < _ANSWERS_MAX
        self._answers[position] = answers + 1 if is_private else _UNHEARD
        if len(self._answers) > _POSITIONS_MAX and self._answers.pop(next(iter(self._answers))) != _UNHEARD:
            self._unheard = 0
        if not is_private and answers != _UNHEARD:
            self._note_unheard(now)
        return is_private

    def _note_unheard(self, now: float) -> None:
        self._unheard += 1
        if self._unheard >= _UNHEARD_MAX:
            self._unheard = _UNHEARD_MAX - 1
            self._public_until = now + _PUBLIC_S


class Confirmations:
    """Watermarks of one sender that wait for missing data, and the watermark whose confirmation is delayed."""

    __slots__ = (
        "_audience",
        "_context",
        "_delayed",
        "_feedback",
        "_inventory",
        "_owed",
        "_remote",
        "_timers",
        "pending",
    )

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
        self._delayed: dict[Position, int] = {}
        """Watermarks that are to be confirmed after a random delay, oldest first, with the number of nodes asked."""
        self._audience = Audience()

    def prepare(self, position: Position, count: int, end: int, node_count: int) -> None:
        """Note what is missing before a watermark that `node_count` nodes must confirm. Later losses do not matter."""
        if position in self.pending or not self._inventory.has_heard_of_all_to(count):
            return
        if len(self.pending) >= _PENDING_MAX:
            del self.pending[next(iter(self.pending))]
        self.pending[position] = PendingConfirmation(self._inventory.missing_to(count, end), node_count)

    def send_due(self, now: float) -> None:
        """Confirm the watermarks before which nothing is missing any more, or schedule their confirmation."""
        open_items = self._inventory.window.open
        for position in [at for at, confirmation in self.pending.items() if confirmation.is_due(open_items)]:
            node_count = self.pending.pop(position).node_count
            if not self._is_crowd(node_count):
                self._confirm(position, node_count, now)
                continue
            self._delayed[position] = node_count
            if len(self._delayed) > _DELAYED_MAX:
                del self._delayed[next(iter(self._delayed))]
            if not self._timers.is_set(Timer.ACK):
                spread_s = min(self._remote.grtt_s, node_count * _ACK_SPREAD_S)
                self._timers.set(Timer.ACK, now + self._context.random.uniform(0.0, spread_s))

    def _is_crowd(self, node_count: int) -> bool:
        """Return True if so many nodes are asked that they spread their answers."""
        return self._context.group_is_multicast and node_count > ACKS_AT_ONCE_MAX

    def _confirm(self, position: Position, node_count: int, now: float) -> None:
        if position == self._owed:
            self._owed = None
        is_private = self._context.group_is_multicast and self._audience.is_sender_alone(position, node_count, now)
        self._feedback.ack(AckType.FLUSH, position, now, is_private)

    def send_delayed(self, now: float) -> None:
        """Confirm the watermarks whose delay is over."""
        for position, node_count in self._delayed.items():
            self._confirm(position, node_count, now)
        self._delayed.clear()

    def show_life_soon(self, position: Position, node_count: int, now: float) -> None:
        """Show the sender that this receiver lives if, in a moment, it can still not confirm a watermark.

        It may be silent because others request what it lacks, or because its application takes nothing. `node_count`
        nodes are asked.
        """
        self._owed = position
        if not self._timers.is_set(Timer.ALIVE):
            most_s = 2 * node_count * _ACK_SPREAD_S if self._is_crowd(node_count) else 0.0
            spread_s = self._context.random.uniform(0.0, most_s)
            self._timers.set(Timer.ALIVE, now + _ALIVE_INTERVAL_S + spread_s)

    def show_life(self, now: float) -> None:
        """Answer as if to a probe, unless this receiver has said anything a moment ago."""
        if self._owed is not None and not self._delayed and now - self._feedback.sent_at >= _ALIVE_INTERVAL_S:
            self._feedback.ack(AckType.CC, b"", now)
