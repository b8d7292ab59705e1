"""Flow control: how far a sender may be ahead of the receivers that confirm (RFC 5740, 5.5.3, applied continuously).

The sender marks a position in what it sends, asks its acking set to confirm it, and sets the next mark when all members
have done so. It is never more than one window ahead of the last position that all members have confirmed. The window
adapts to losses: receivers whose kernels drop data are being overrun, and a smaller window keeps the data in flight
within their buffers.
"""

from dataclasses import dataclass

from fjm2.norm.core.config import Flow, SenderConfig
from fjm2.norm.core.events import EvictionReason
from fjm2.norm.core.timers import NEVER
from fjm2.norm.core.wire import Position

from .acking_set import AckingSet
from .window_size import WindowSize

_MARKS_PER_WINDOW = 3
"""Marks in one window: enough that one is always in flight, few enough that answers cost little."""
_ANSWER_GRTTS = 2
"""Time after the back-off within which first answers to a probe arrive, in GRTTs."""
_REQUESTS_MIN = 3
"""Requests that a silent member leaves unanswered before it is set aside: single datagrams get lost."""


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
    requests: int = 0
    """Number of times that members were asked to confirm it."""
    is_disturbed: bool = False
    """True if a member fell silent or came back meanwhile, so that the time it took tells nothing of the network."""


class FlowWindow:
    """Window of a sender: the mark that members must confirm, and how many segments may be sent until they do."""

    def __init__(self, config: SenderConfig) -> None:
        self._strategy = config.flow
        self._is_waiting = config.flow is not Flow.MAX
        self._answer_grtts = config.backoff_factor + _ANSWER_GRTTS
        self._timeout_s = config.ack_timeout_s
        self.acking_set = AckingSet(config)
        """The receivers that are waited for."""
        self._members = self.acking_set.members
        self.size = WindowSize(config)
        """Size of the window, and the measurements that it depends on."""
        self._segments = self.size.segments
        self.sent = 0
        """Number of segments sent, of all objects. Segments sent again do not count."""
        self.sent_at = -NEVER
        """Time of the last segment sent for the first time."""
        self.marked_at = -NEVER
        """Time of the last mark. It is -NEVER again once several segments were sent together."""
        self.confirmed = 0
        """Segments that all members have confirmed, without those that are set aside."""
        self.held: int | None = None
        """Segments that all had confirmed that came back after a silence and have not caught up; None if there are
        none. What was sent later is kept for them.
        """
        self._answers_by: float | None = None
        """Deadline of the first answers: None until set, and NEVER once the sender no longer waits for them."""
        self.mark: Mark | None = None
        """The mark that members have been asked to confirm; None if there is none."""

    @property
    def is_active(self) -> bool:
        """True if there are receivers to wait for."""
        return self._is_waiting and bool(self._members)

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
        """Return True if no member may still need what had been sent when `sent` was `sent_mark`."""
        if not self.is_active:
            return True
        return sent_mark <= (self.confirmed if self.held is None else min(self.held, self.confirmed))

    def answers_s(self, grtt_s: float) -> float:
        """Return the time in seconds within which first answers to a probe arrive, if a round trip takes `grtt_s`."""
        return self._answer_grtts * grtt_s

    def room(self, now: float, grtt_s: float) -> int:
        """Return the number of segments that may be sent now.

        Before the first answer, the sender fills one window, and waits once, for as long as first answers take, for
        receivers to appear.
        """
        if not (self._is_waiting and self._members):
            if not self.is_holding:
                self.confirmed = self.sent
                return self.size.max_segments
            self.wait_for_answers(now + self.answers_s(grtt_s))
        return self.confirmed + self._segments - self.sent

    def wait_for_answers(self, until: float) -> float:
        """Wait for first answers, unless a time was set before. Return the time until which the sender waits."""
        if self._answers_by is None:
            self._answers_by = until
        return self._answers_by

    def stop_waiting(self) -> None:
        """Go on without receivers: none has answered in time."""
        self._answers_by = NEVER

    def set_nodes(self, nodes: frozenset[int], now: float, excluded: frozenset[int]) -> Mark | None:
        """Wait for `nodes`, and keep `excluded` nodes from joining by themselves.

        Return the mark if only others had not confirmed it.
        """
        self.acking_set.replace(nodes, now, excluded)
        if self.mark is not None:
            self.mark.waiting &= nodes
        return self.complete_mark(now)

    def note_sent(self, count: int, now: float) -> None:
        """Count segments sent for the first time."""
        self.sent += count
        self.sent_at = now
        if count > 1:
            self.marked_at = -NEVER

    def note_requested(self, node: int, count: int) -> None:
        """Count segments that a receiver requested again. What it lacks since it was away was not lost just now."""
        if node not in self.acking_set.behind:
            self.size.note_requested(count)

    def is_mark_due(self, is_idle: bool) -> bool:
        """Return True if it is time to mark what has been sent."""
        if self.mark is not None or not self.is_active:
            return False
        ahead = self.sent - self.confirmed
        if ahead <= 0:
            return False  # a third of the smallest window is no segment at all
        return is_idle or ahead >= self._segments // _MARKS_PER_WINDOW or bool(self.acking_set.behind)

    def set_mark(self, position: Position, streams: dict[int, int], now: float) -> Mark:
        """Mark what has been sent so far."""
        acking_set = self.acking_set
        self.marked_at = now
        waiting = set(self._members) - acking_set.aside or set(self._members)
        self.mark = Mark(position, self.sent, waiting, streams, now, is_disturbed=self.held is not None)
        return self.mark

    def confirm(self, node: int, position: Position, now: float) -> Mark | None:
        """Note a confirmation. Return the mark if all members have confirmed it by now, else None."""
        mark = self.mark
        if mark is None or position != mark.position:
            return None
        if node in mark.waiting:
            mark.waiting.discard(node)
            self.acking_set.note_caught_up(node)
        return self.complete_mark(now)

    def forget(self, node: int, now: float) -> Mark | None:
        """Stop waiting for a node that has left. Return the mark if its confirmation was the last one missing."""
        self.acking_set.depart(node, now)
        if self.mark is not None:
            self.mark.waiting.discard(node)
        return self.complete_mark(now)

    def evict(self, now: float, are_answers_due: bool) -> list[tuple[int, EvictionReason]]:
        """Evict members that are silent or make no progress. Return them, with the reason.

        Nobody counts as silent before `are_answers_due`: answers to the latest request may still be on their way.
        """
        acking_set, mark = self.acking_set, self.mark
        if mark is not None and now - mark.asked_at < self._timeout_s and not (acking_set.behind or acking_set.aside):
            return []
        waiting = set[int]() if mark is None else mark.waiting
        asked_at = now if mark is None else mark.asked_at
        found = ((node, acking_set.reason_to_evict(node, asked_at, now)) for node in {*waiting, *acking_set.aside})
        gone = [
            (node, reason)
            for node, reason in found
            if reason is EvictionReason.NO_PROGRESS or (reason is EvictionReason.SILENT and are_answers_due)
        ]
        acking_set.evict(gone, now)
        waiting.difference_update(node for node, _ in gone)
        return gone

    def silent(self, patience_s: float, now: float) -> list[int]:
        """Return the members whose silence holds up others.

        While nobody else is there to be held up, there are none: nobody would gain if they lost data.
        """
        mark = self.mark
        if mark is None or mark.requests < _REQUESTS_MIN or now - mark.asked_at < patience_s:
            return []
        members, aside, asked_at = self._members, self.acking_set.aside, mark.asked_at
        silent = [
            node
            for node in mark.waiting
            if node in aside or members[node].silence_s(asked_at, now) >= members[node].patience_s(patience_s, now)
        ]
        return silent if len(aside.union(silent)) < len(members) else []

    def set_aside(self, nodes: list[int], streams: dict[int, int]) -> None:
        """Go on without members that are silent. `streams` tells which segments of each stream all have confirmed."""
        mark = self.mark
        assert mark is not None
        for node in set(nodes) - self.acking_set.aside:
            self.acking_set.set_aside(node, mark.asked_at, self.confirmed, streams)
        mark.waiting.difference_update(nodes)
        mark.is_disturbed = True

    def take_back(self, node: int, now: float) -> None:
        """Wait again for a member that was set aside, beginning with the current mark."""
        self.acking_set.take_back(node, now)
        if self.mark is not None:
            self.mark.waiting.add(node)
            self.mark.is_disturbed = True

    def update_held(self) -> None:
        """Update from which point on data must be kept for members that came back."""
        self.held = min((member.kept_sent for member in self.acking_set.returned), default=None)

    def excuse(self, late_s: float, now: float) -> None:
        """Do not count a time in which this sender asked nothing, because it did not run."""
        self.acking_set.excuse(late_s, now)
        if self.mark is not None:
            self.mark.asked_at = min(self.mark.asked_at + late_s, now)

    def complete_mark(self, now: float) -> Mark | None:
        """Return the current mark, and resize the window, if all members have confirmed it."""
        mark = self.mark
        if mark is None or mark.waiting:
            return None
        self.mark = None
        if mark.is_disturbed:
            self.size.pass_over(self.sent)
        else:
            self._segments = self.size.resize(mark.sent - self.confirmed, self.sent, now - mark.asked_at)
        self.confirmed = max(self.confirmed, mark.sent)
        return mark
