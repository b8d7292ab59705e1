"""Flow control: how far a sender may be ahead of the receivers that confirm (RFC 5740, 5.5.3, applied continuously).

The sender marks a position in what it sends, asks its acking set to confirm it, and sets the next mark when all members
have done so. It is never more than one window ahead of the last position that all members have confirmed. The window
adapts to losses: receivers whose kernels drop data are being overrun, and a smaller window keeps the data in flight
within their buffers.
"""

from dataclasses import dataclass

from fjm2.norm.core.config import Flow, SenderConfig
from fjm2.norm.core.timers import NEVER
from fjm2.norm.core.wire import Position

from .acking_set import AckingSet
from .window_size import WindowSize

_MARKS_PER_WINDOW = 3
"""Number of marks in one window: enough that one is always in flight, few enough that answers cost little."""


@dataclass(slots=True)
class Mark:
    """A position that the acking set must confirm."""

    position: Position
    sent: int
    """Number of segments, of all objects, that had been sent at this position."""
    waiting: set[int]
    """Node ids of members that have not confirmed the mark yet."""
    streams: dict[int, int]
    """Index of the first segment that had not been sent yet, for each open stream by its object id."""
    asked_at: float


class FlowWindow:
    """Window of a sender: the mark that members must confirm, and how many segments may be sent until they do."""

    def __init__(self, config: SenderConfig) -> None:
        self._strategy = config.flow
        self._timeout_s = config.ack_timeout_s
        self.acking_set = AckingSet(config)
        """Receivers that the sender waits for."""
        self._members = self.acking_set.heard_at
        self.size = WindowSize(config)
        """Size of the window, and the measurements that it depends on."""
        self._segments = self.size.segments
        self._max_segments = self.size.max_segments
        self.sent = 0
        """Number of segments sent, of all objects. Segments sent again do not count."""
        self.confirmed = 0
        """Number of segments that all members have confirmed."""
        self._answers_by: float | None = None
        """Deadline of the first answers: None until set, and NEVER once the sender no longer waits for them."""
        self.mark: Mark | None = None
        """The mark that members have been asked to confirm; None if there is none."""

    @property
    def is_active(self) -> bool:
        """True if there are receivers to wait for."""
        return bool(self._members) and self._strategy is not Flow.MAX

    @property
    def is_ahead(self) -> bool:
        """True if some of what was sent is not confirmed."""
        return self.sent > self.confirmed

    @property
    def is_holding(self) -> bool:
        """True if sent data must be kept: there are receivers that confirm it, or some may still turn up."""
        return self.is_active or (self._strategy is Flow.MIN and self._answers_by != NEVER)

    @property
    def answers_by(self) -> float | None:
        """Time until which the sender waits for first answers; None if it does not wait for them."""
        return None if self.is_active or self._answers_by == NEVER else self._answers_by

    @property
    def awaited(self) -> frozenset[int]:
        """Members that have not confirmed the current mark."""
        return frozenset() if self.mark is None else frozenset(self.mark.waiting)

    def has_confirmed(self, sent_mark: int) -> bool:
        """Return True if no member may still need any of the first `sent_mark` segments that were sent."""
        return not self.is_active or sent_mark <= self.confirmed

    def room(self, now: float, answers_s: float) -> int:
        """Return the number of segments that may be sent now.

        Before the first answer, the sender fills one window, and waits once, for at most `answers_s` seconds, for
        receivers to appear.
        """
        if not self.is_active:
            if not self.is_holding:
                self.confirmed = self.sent
                return self._max_segments
            if self._answers_by is None:
                self._answers_by = now + answers_s
        return self.confirmed + self._segments - self.sent

    def stop_waiting(self) -> None:
        """Go on without receivers: none has answered in time."""
        self._answers_by = NEVER

    def set_nodes(self, nodes: frozenset[int], now: float, excluded: frozenset[int]) -> None:
        """Wait for `nodes`, and keep `excluded` nodes from joining by themselves."""
        self.acking_set.replace(nodes, now, excluded)
        if self.mark is not None:
            self.mark.waiting &= nodes

    def note_heard(self, node: int, is_answer: bool, now: float) -> bool:
        """Note that a receiver is alive. Return True if it is the first receiver that the sender waits for."""
        was_active = self.is_active
        self.acking_set.note_heard(node, is_answer, now)
        return self.is_active and not was_active

    def note_sent(self, count: int) -> None:
        """Count segments sent for the first time."""
        self.sent += count

    def is_mark_due(self, is_idle: bool) -> bool:
        """Return True if it is time to mark what has been sent."""
        if self.mark is not None or not self.is_active:
            return False
        ahead = self.sent - self.confirmed
        if ahead <= 0:
            return False  # the comparison below would be True: a third of the smallest window is 0 segments
        return is_idle or ahead >= self._segments // _MARKS_PER_WINDOW or self.acking_set.has_newcomers

    def set_mark(self, position: Position, streams: dict[int, int], now: float) -> Mark:
        """Set a mark after everything sent so far, and return it. `position` is that of the last segment sent."""
        self.mark = Mark(position, self.sent, set(self._members), streams, now)
        return self.mark

    def confirm(self, node: int, position: Position, now: float) -> Mark | None:
        """Note a confirmation. Return the mark if all members have confirmed it by now, else None."""
        mark = self.mark
        if mark is None or position != mark.position:
            return None
        if node in mark.waiting:
            mark.waiting.discard(node)
            self.acking_set.note_confirmed(node)
        return self._complete_mark(now)

    def forget(self, node: int, now: float) -> Mark | None:
        """Stop waiting for a node that has left. Return the mark if all other members have confirmed it, else None."""
        self.acking_set.remove(node)
        if self.mark is not None:
            self.mark.waiting.discard(node)
        return self._complete_mark(now)

    def evict(self, now: float) -> tuple[list[int], Mark | None]:
        """Evict the awaited members that are silent. Return their node ids, and the mark if it is complete now."""
        mark = self.mark
        if mark is None or (mark.waiting and now - mark.asked_at < self._timeout_s):
            return [], None
        gone = self.acking_set.evict_silent(mark.waiting, mark.asked_at, now)
        mark.waiting.difference_update(gone)
        return gone, self._complete_mark(now)

    def _complete_mark(self, now: float) -> Mark | None:
        """Return the current mark, and resize the window, if all members have confirmed it."""
        mark = self.mark
        if mark is None or mark.waiting:
            return None
        self.mark = None
        self._segments = self.size.resize(mark.sent - self.confirmed, self.sent, now - mark.asked_at)
        self.confirmed = max(self.confirmed, mark.sent)
        return mark
