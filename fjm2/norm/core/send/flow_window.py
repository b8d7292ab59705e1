"""Flow control: how far a sender may be ahead of the receivers that confirm (RFC 5740, 5.5.3, put to steady use).

The sender marks a place in what it sends, asks its acking set to confirm it, and marks the next one when all have. It
is never more than a window ahead of the last place confirmed. The window itself follows what gets lost: receivers whose
kernels drop what they have no time for are outrun, and a smaller window keeps what is under way within their buffers.
"""

import math
from collections import deque
from dataclasses import dataclass

from fjm2.norm.core.config import Flow, SenderConfig
from fjm2.norm.core.timers import NEVER
from fjm2.norm.core.wire import Position

_START_BYTES = 2 << 20
_LEAST_BYTES = 256 << 10
_LIKELY_BUFFER_BYTES = 6 << 20
"""What a receiver's kernel most likely has room for: it is asked for 8 MiB, and counts more than the bytes."""
_MARKS_PER_WINDOW = 3
"""A window has about so many marks: enough that one is always under way, few enough that answers cost little."""
_GROWTH = 0.01
"""Of what is confirmed, where the window comes near to what was too large before; below that it grows by all of it."""
_NEAR_CEILING = 0.8
_CEILING_DROP = 0.75
"""So much lower than what was too large the window stays at first: buffers are not always as empty."""
_QUEUE_S = 0.025
"""Confirmations that take so much longer than the way there and back, or twice as long if that is more, twice in a row
and though nothing was lost, have waited behind data in a receiver's buffer. Once may be an application that was busy.
"""
_TIMES_KEPT = 64
"""The quickest of the last so many confirmations tells how long the way is."""
_OVERRUN_IGNORED = 0.08
_DEVIATIONS = 4.0
"""So far from the mean, in standard deviations, loss may lie by chance."""
_LOSSES_KEPT = 8
_SHRINK_MOST = 0.5
_ACKERS_MAX = 4096
_NEWCOMERS_MAX = 1024
_TRIAL_TIMEOUTS = 4
"""So many times `ack_timeout_s` a newcomer has for its first confirmation, whatever else it says."""
_DISTRUST_TIMEOUTS = 4
_DISTRUST_GROWTH = 2.0
_DISTRUST_MAX_S = 300.0


@dataclass(slots=True)
class Mark:
    """A place that the acking set is to confirm."""

    position: Position
    sent: int
    """Segments sent up to here, of all objects."""
    waiting: set[int]
    """Who has not confirmed it yet."""
    streams: dict[int, int]
    """Object id of each open stream, and its first segment not sent by then."""
    asked_at: float


class FlowWindow:
    """The acking set, the mark under way, and what may be sent meanwhile. Counts in segments."""

    def __init__(self, config: SenderConfig) -> None:
        self._strategy = config.flow
        self._timeout_s = config.ack_timeout_s
        self._most = max(2, config.window_bytes // config.segment_bytes)
        self._least = max(2, min(self._most, _LEAST_BYTES // config.segment_bytes))
        self._is_fixed = config.cc
        """With congestion control the rate follows what gets lost, and that is enough."""
        start_bytes = config.window_bytes if config.cc else _START_BYTES
        self._window = min(self._most, max(2, start_bytes // config.segment_bytes))
        self._ceiling = min(self._most, max(2, _LIKELY_BUFFER_BYTES // config.segment_bytes))
        """The window that was too large when one was last; before, what is likely to be."""
        self._losses: deque[float] = deque(maxlen=_LOSSES_KEPT)
        """Of the last marks, what part had to be sent again."""
        self._heard_at: dict[int, float] = {}
        """The acking set: node to when it was last heard of."""
        self._newcomers: set[int] = set()
        """Those of them that joined by themselves and have confirmed nothing yet. Anybody can say that he is there."""
        self._distrust_s = _DISTRUST_TIMEOUTS * config.ack_timeout_s
        """For how long nobody may join when the next newcomer has been waited for in vain."""
        self._distrust_until = 0.0
        self._evicted: dict[int, None] = {}
        """Those that were waited for in vain, and have not come back, the last one last."""
        self._strangers: frozenset[int] = frozenset()
        """Those that do not join by themselves."""
        self.sent = 0
        """Segments sent once, of all objects."""
        self.confirmed = 0
        """So many of them everyone in the set has."""
        self._answers_by: float | None = None
        self._repairs = 0
        """Segments asked for again since the last mark was confirmed."""
        self._sent_before = 0
        """Segments that had been sent when it was."""
        self._last_lost = (0, 0)
        """Segments asked for again, and sent, between the last mark and the one before."""
        self._took_s: deque[float] = deque(maxlen=_TIMES_KEPT)
        """How long the last confirmations took."""
        self.mark: Mark | None = None

    @property
    def is_active(self) -> bool:
        """Whether there is anybody to wait for."""
        return bool(self._heard_at) and self._strategy is not Flow.MAX

    @property
    def is_ahead(self) -> bool:
        """Whether anything is still to be confirmed."""
        return self.sent > self.confirmed

    @property
    def is_holding(self) -> bool:
        """Whether what is sent has to be kept for those who confirm, or who may yet turn out to."""
        return self.is_active or (self._strategy is Flow.MIN and self._answers_by != NEVER)

    def room(self, now: float, answers_s: float) -> int:
        """Segments that may be sent now. For first answers the sender waits as long as they may take, once."""
        if not self.is_active:
            if not self.is_holding:
                self.confirmed = self.sent
                return self._most
            if self._answers_by is None:
                self._answers_by = now + answers_s
        return self.confirmed + self._window - self.sent

    @property
    def answers_by(self) -> float | None:
        """Until when first answers are waited for."""
        return None if self.is_active or self._answers_by == NEVER else self._answers_by

    def stop_waiting(self) -> None:
        """Nobody has answered in time: go on without."""
        self._answers_by = NEVER

    @property
    def nodes(self) -> frozenset[int]:
        """The acking set."""
        return frozenset(self._heard_at)

    @property
    def awaited(self) -> frozenset[int]:
        """Those of them that have still to confirm the mark under way."""
        return frozenset() if self.mark is None else frozenset(self.mark.waiting)

    @property
    def evicted(self) -> frozenset[int]:
        """Who was given up, and has neither come back nor left."""
        return frozenset(self._evicted)

    def set_nodes(self, nodes: frozenset[int], now: float, strangers: frozenset[int] = frozenset()) -> None:
        """The application says whom to wait for, and who may not join by himself."""
        self._strangers = strangers - nodes
        self._heard_at = {node: self._heard_at.get(node, now) for node in nodes}
        self._newcomers.clear()
        for node in nodes & self._evicted.keys():
            del self._evicted[node]
        if self.mark is not None:
            self.mark.waiting &= nodes

    def hear(self, node: int, is_answer: bool, now: float) -> bool:
        """Any message of a receiver's: it lives. Whether it is the first that there is to wait for.

        With `flow=min` who answers a probe joins.
        """
        was_active = self.is_active
        if node in self._heard_at:
            self._heard_at[node] = now
        elif is_answer and node not in self._strangers and self._may_join(now):
            self._heard_at[node] = now
            self._newcomers.add(node)
            self._evicted.pop(node, None)
        return self.is_active and not was_active

    def _may_join(self, now: float) -> bool:
        has_room = len(self._heard_at) < _ACKERS_MAX and len(self._newcomers) < _NEWCOMERS_MAX
        return self._strategy is Flow.MIN and has_room and now >= self._distrust_until

    def note_sent(self, count: int) -> None:
        """New segments have gone out."""
        self.sent += count

    def note_repairs(self, count: int) -> None:
        """So many segments were asked for again."""
        self._repairs += count

    def is_mark_due(self, is_idle: bool) -> bool:
        """Whether it is time to mark what has been sent."""
        if self.mark is not None or not self.is_active:
            return False
        ahead = self.sent - self.confirmed
        return ahead >= self._window // _MARKS_PER_WINDOW or (ahead > 0 and (is_idle or bool(self._newcomers)))

    def set_mark(self, position: Position, streams: dict[int, int], now: float) -> Mark:
        """Mark what has been sent so far."""
        self.mark = Mark(position, self.sent, set(self._heard_at), streams, now)
        return self.mark

    def confirm(self, node: int, position: Position, now: float) -> Mark | None:
        """An acknowledgement has come. The mark, if that was the last one it waited for."""
        mark = self.mark
        if mark is None or position != mark.position:
            return None
        if node in mark.waiting:
            mark.waiting.discard(node)
            self._newcomers.discard(node)
        return self._settle(now)

    def forget(self, node: int, now: float) -> Mark | None:
        """A node has left. The mark, if that was the last one it waited for."""
        self._heard_at.pop(node, None)
        self._evicted.pop(node, None)
        self._newcomers.discard(node)
        if self.mark is not None:
            self.mark.waiting.discard(node)
        return self._settle(now)

    def evict(self, now: float) -> tuple[list[int], Mark | None]:
        """Give up those who have not been heard of for too long while they were waited for."""
        mark = self.mark
        if mark is None or (mark.waiting and now - mark.asked_at < self._timeout_s):
            return [], None
        gone = [node for node in mark.waiting if self._is_given_up(node, mark, now)]
        if now >= self._distrust_until and not self._newcomers.isdisjoint(gone):
            self._distrust_until = now + self._distrust_s
            self._distrust_s = min(self._distrust_s * _DISTRUST_GROWTH, _DISTRUST_MAX_S)
        for node in gone:
            mark.waiting.discard(node)
            self._newcomers.discard(node)
            self._heard_at.pop(node, None)
            self._evicted[node] = None
        while len(self._evicted) > _ACKERS_MAX:
            del self._evicted[next(iter(self._evicted))]
        return gone, self._settle(now)

    def _is_given_up(self, node: int, mark: Mark, now: float) -> bool:
        """A newcomer has to confirm something before long. Others may take their time as long as they answer."""
        is_on_trial = node in self._newcomers and now - mark.asked_at >= _TRIAL_TIMEOUTS * self._timeout_s
        return is_on_trial or now - self._heard_at.get(node, 0.0) >= self._timeout_s

    def _settle(self, now: float) -> Mark | None:
        mark = self.mark
        if mark is None or mark.waiting:
            return None
        self.mark = None
        self._resize(mark.sent - self.confirmed, now - mark.asked_at)
        self.confirmed = max(self.confirmed, mark.sent)
        return mark

    def _resize(self, confirmed: int, took_s: float) -> None:
        """Grow with what is confirmed; shrink where it took long, or more than usual had to be sent again."""
        repairs, sent = self._repairs, self.sent - self._sent_before
        self._repairs, self._sent_before = 0, self.sent
        last_s = self._took_s[-1] if self._took_s else 0.0
        self._took_s.append(took_s)
        way_s = min(self._took_s)
        queued_s, patience_s = min(took_s, last_s) - way_s, max(_QUEUE_S, way_s)
        if self._is_fixed:
            return
        # Requests come some time after what they are about. Two marks together even that out.
        before, self._last_lost = self._last_lost, (repairs, sent)
        of = max(before[1] + sent, confirmed)
        loss = min((before[0] + repairs) / of, 1.0)
        self._losses.append(loss)
        # What is lost at any window is the network's doing. What comes on top of it is a buffer that overflows.
        chance = _DEVIATIONS * math.sqrt(sum(self._losses) / len(self._losses) / of)
        overrun = loss - min(self._losses) - chance
        if overrun > _OVERRUN_IGNORED:
            self._ceiling = max(self._least, int(self._window * _CEILING_DROP))
            self._window = max(self._least, int(self._ceiling * (1.0 - overrun / 2)))
        elif queued_s > patience_s and not loss:
            self._ceiling = self._window
            self._window = max(self._least, int(self._window * max(patience_s / queued_s, _SHRINK_MOST)))
        else:
            growth = confirmed * (1.0 if self._window < self._ceiling * _NEAR_CEILING else _GROWTH)
            self._window = min(self._most, self._window + int(growth))
