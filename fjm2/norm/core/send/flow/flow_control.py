"""Flow control in action: asks the acking set for confirmations, and lets writers go on when they arrive."""

from collections import deque

from fjm2.norm.core.events import ReceiverEvicted, ReceiverFull, ReceiverReady, StreamWritable
from fjm2.norm.core.send.context import SenderContext
from fjm2.norm.core.send.flusher import Flusher
from fjm2.norm.core.send.objects import SendObject, SendStream
from fjm2.norm.core.timers import WINDOW, Timer
from fjm2.norm.core.wire import Position

from .flow_window import FlowWindow, Mark

_EARLY_SEGMENTS = 64
"""Segments after the last confirmed one that a newcomer without losses must have to end its trial."""
_EARLY_POSITIONS_MAX = 8
"""Maximum number of such positions that are asked for at once: each costs a FLUSH."""
_FEW_NODES_MAX = 8
"""Maximum number of receivers that need no NACK back-off: so few NACKs at once do no harm, and losses are repaired
sooner."""
_IDLE_MIN_S = 0.01
"""Shortest wait before the end of the sent data is marked: lone messages need not be confirmed one by one."""
_IDLE_MEMBER_S = 0.002
"""Time that each member adds to that wait: every confirmation is read by all nodes of the group."""
_STEADY_S = 0.1
"""Shortest time between two marks of the end of the sent data while a little more is sent all the time. Each mark costs
every member a confirmation, which delays the message that comes next."""
_STEADY_SHARE = 4
"""Share of a stream's ring (1/4) that may be unconfirmed meanwhile: a full ring makes the writer wait."""
_NODE_ID_BYTES = 4
"""Size of one entry in a FLUSH's list of acking nodes."""
_ROOM_SHARE = 8
"""A waiting writer is told once this part (1/8) of the ring is free, so that it does not wake for every segment."""
_PATIENCE_GRTTS = 4
"""Shortest silence, in round trips, for which a receiver is set aside: it may answer when asked a second time."""
_PATIENCE_MEMBER_S = 0.008
"""The same for each member: many spread their answers over more time."""
_STILL_ASK_S = 0.025
"""Shortest interval between requests once a receiver that holds the sender up has been asked for a while."""
_ASIDE_ASK_S = 0.25
"""Interval of requests to receivers that are set aside, while there is nothing else to ask."""
_STALLED_ASK_S = 1.0
"""Interval of requests to receivers that were given up because they made no progress: one that confirms comes back."""
_CHECK_MAX_S = 0.25
"""Longest time between two looks at those that hold the sender up. A receiver that pretends to be far away makes
requests rare, and would otherwise delay its own eviction."""
_LATE_S = 0.05
"""A timer that is later than this shows that this process did not run. Receivers may have answered meanwhile."""


class FlowControl:
    """Connects the flow window to what it holds back: streams, the cache, and the FLUSH that asks to confirm."""

    def __init__(self, context: SenderContext, window: FlowWindow, queue: deque[SendObject], flusher: Flusher) -> None:
        self._config = context.config
        self._window = window
        self._acking_set = window.acking_set
        self._queue = queue
        self._flusher = flusher
        self._cache = context.cache
        self._trains = context.trains
        self._timing = context.timing
        self._timers = context.timers
        self._emit = context.emit
        self._is_keeping = False
        """True while streams keep what is confirmed for members that are away."""
        self._ask_at = 0.0
        """Time of the next request to those that have not confirmed the mark."""
        self._ask_stalled_at = 0.0
        """Time of the next request to receivers that were given up because they made no progress."""

    def set_receivers(self, nodes: frozenset[int], now: float, excluded: frozenset[int]) -> None:
        """Wait for these nodes, and keep the excluded ones from joining by themselves."""
        was_active = self._window.is_active
        self._cache.note_change()
        self._complete(self._window.set_nodes(nodes, now, excluded), now)
        self._keep_for_absent()
        self._adapt_backoff()
        if self._window.is_active != was_active:
            self._adapt_streams(now)

    def forget_receiver(self, node: int, now: float) -> None:
        """Stop waiting for a node that has left."""
        was_active = self._window.is_active
        self._complete(self._window.forget(node, now), now)
        self._keep_for_absent()
        self._adapt_backoff()
        if self._window.is_active != was_active:
            self._adapt_streams(now)
        self._flusher.excuse(node, now)

    def note_heard(self, node: int, is_answer: bool, is_full: bool | None, now: float) -> None:
        """Note that a receiver is alive, and if it says that it is full. `is_answer`: it answers a probe."""
        acking_set = self._acking_set
        member = acking_set.members.get(node)
        if member is None:
            if is_answer and acking_set.may_join(node, now):
                self._admit(node, now)
            return
        if node in acking_set.aside:
            self._take_back(node, now)
        member.heard_at = now
        if is_full is not None and member.note_full(is_full, now):
            self._emit(ReceiverReady(node))

    def _admit(self, node: int, now: float) -> None:
        """Wait from now on for a node that answers."""
        was_active = self._window.is_active
        self._acking_set.join(node, self._kept_streams(), now)
        if self._window.is_active and not was_active:
            self._adapt_streams(now)
            self._timers.set(Timer.WINDOW, now)
        self._adapt_backoff()

    def _take_back(self, node: int, now: float) -> None:
        """Wait again for a member that was silent, and keep what it may lack until it has caught up."""
        self._window.take_back(node, now)
        self._keep_for_absent()
        last = self._flusher.last
        if self._window.mark is None and last is not None and last.next_index:
            self._set_mark(last, now)

    def confirm(self, node: int, position: Position, now: float) -> None:
        """Note that a receiver has everything up to a position."""
        self._acking_set.note_confirmed(node, position, now)
        mark = self._window.mark
        if mark is not None and position == mark.position:
            self._acking_set.end_stall(node)
        member = self._acking_set.members.get(node)
        if member is not None and position == member.early:
            member.is_on_trial = False
        self._complete(self._window.confirm(node, position, now), now)

    def note_missing(self, node: int, first: Position, now: float) -> None:
        """Note the first position that a NACK requests. That of a newcomer tells where it began to receive."""
        self._acking_set.note_missing(node, first, now)
        member = self._acking_set.members.get(node)
        if member is not None and member.is_on_trial and not member.has_requested:
            member.early, member.has_requested = first, True

    def mark(self, item: SendObject, now: float, is_idle: bool) -> None:
        """Ask for confirmation of everything sent so far, if it is time to. `item` was sent last."""
        window = self._window
        if window.sent <= window.confirmed:
            return
        if window.is_mark_due(is_idle) and item.next_index:
            self._set_mark(item, now)
        elif not self._timers.is_set(WINDOW) and window.is_active:
            self._timers.set(Timer.WINDOW, now + self._idle_s)

    @property
    def _idle_s(self) -> float:
        """Time in seconds without new data after which the end of the sent data is marked."""
        answer_s = self._timing.grtt_s
        return max(answer_s, _IDLE_MIN_S, len(self._acking_set.members) * _IDLE_MEMBER_S)

    def _is_steady(self, item: SendObject, now: float) -> bool:
        """Return True if a stream sends lone messages all the time, so that its end need not be marked yet."""
        window = self._window
        if not isinstance(item, SendStream) or now - window.sent_at >= self._idle_s:
            return False
        ahead_bytes = (window.sent - window.confirmed) * self._config.segment_bytes
        return now - window.marked_at < _STEADY_S and ahead_bytes * _STEADY_SHARE < item.capacity_bytes

    def _set_mark(self, item: SendObject, now: float) -> None:
        streams = {stream.id: stream.next_index for stream in self._queue if isinstance(stream, SendStream)}
        self._window.set_mark(self._trains.position(item, item.next_index - 1), streams, now)
        self._request_confirmation(now)

    def check(self, now: float, late_s: float) -> None:
        """Act on the window timer, `late_s` after it expired.

        Give up receivers or go on without them, request again, or mark what an idle sender sent last.
        """
        window = self._window
        if window.answers_by is not None and window.answers_by <= now:
            window.stop_waiting()
            self._adapt_streams(now)
        if late_s > _LATE_S:
            window.excuse(late_s, now)
        self._evict(now)
        self._set_aside(now)
        self._complete(window.complete_mark(now), now)
        if window.mark is not None:
            self._tell_full(now)
            if now >= self._ask_at:
                self._request_confirmation(now)
            else:
                self._check_again(now)
        elif self._flusher.last is not None:
            self.mark(self._flusher.last, now, is_idle=not self._is_steady(self._flusher.last, now))
            if window.mark is None and self._acking_set.aside:
                self._ask_aside(self._flusher.last, now)

    def _evict(self, now: float) -> None:
        gone = self._window.evict(now, are_answers_due=now >= self._ask_at)
        for node, reason in gone:
            self._emit(ReceiverEvicted(node, reason))
        if gone:
            self._keep_for_absent()
            self._adapt_backoff()
            if not self._window.is_active:
                self._adapt_streams(now)

    def _set_aside(self, now: float) -> None:
        """Let others go on without members that are silent."""
        window, config = self._window, self._config
        least_s = max(_PATIENCE_GRTTS * self._timing.grtt_s, len(self._acking_set.members) * _PATIENCE_MEMBER_S)
        patience_s = min(max(config.patience_s, least_s), config.ack_timeout_s)
        silent = window.silent(patience_s, now)
        if silent:
            window.set_aside(silent, self._kept_streams())
            self._keep_for_absent()

    def _kept_streams(self) -> dict[int, int]:
        """Return the first segment of each stream that is not confirmed."""
        streams = (item for item in self._cache if isinstance(item, SendStream))
        return {item.id: item.confirmed_index for item in streams if item.confirmed_index is not None}

    def _tell_full(self, now: float) -> None:
        """Report the members that hold the sender up because they are full."""
        mark = self._window.mark
        if mark is not None and now - mark.asked_at >= self._config.patience_s:
            for node in mark.waiting:
                if self._acking_set.members[node].is_full_to_tell(now):
                    self._emit(ReceiverFull(node))

    def _keep_for_absent(self) -> None:
        """Keep what members may lack that are silent, or were and have not caught up; nothing if there are none."""
        acking_set = self._acking_set
        returned = acking_set.returned
        is_keeping = bool(acking_set.aside or returned)
        if not is_keeping and not self._is_keeping:
            return
        self._is_keeping = is_keeping
        self._window.update_held()
        for item in self._cache:
            if isinstance(item, SendStream):
                if is_keeping:
                    item.extend()
                else:
                    item.contract()
                item.hold(min((member.kept_streams.get(item.id, 0) for member in returned), default=None))
                self.announce_room(item)

    def announce_room(self, stream: SendStream) -> None:
        """Tell a waiting writer that the stream has room, once there is enough of it."""
        if stream.is_room_wanted and stream.room >= stream.capacity_bytes // _ROOM_SHARE:
            stream.is_room_wanted = False
            self._emit(StreamWritable(stream.id))

    def _request_confirmation(self, now: float) -> None:
        mark = self._window.mark
        if mark is None:
            return
        mark.requests += 1
        if self._acking_set.behind:
            self._ask_newcomers()
        if now >= self._ask_stalled_at:
            self._ask_stalled_at = now + _STALLED_ASK_S
            self._ask(tuple(self._acking_set.stalled), mark.position)
        self._ask((*mark.waiting, *(self._acking_set.aside - mark.waiting)), mark.position)
        is_still = now - mark.asked_at > self._config.patience_s
        wait_s = max(self._flusher.answers_s(len(mark.waiting)), _STILL_ASK_S if is_still else 0.0)
        self._ask_at = now + wait_s
        self._check_again(now)

    def _check_again(self, now: float) -> None:
        self._timers.set(Timer.WINDOW, min(self._ask_at, now + _CHECK_MAX_S))

    def _ask_newcomers(self) -> None:
        """Ask newcomers to confirm where they began. A slow one may take long to reach the mark."""
        item, asked = self._flusher.last, dict[Position, list[int]]()
        if item is None or not item.next_index:
            return
        for node in self._acking_set.on_trial:
            member = self._acking_set.members[node]
            if member.early is None:
                first = member.kept_streams.get(item.id, 0)
                member.early = self._trains.position(item, min(first + _EARLY_SEGMENTS, item.next_index) - 1)
            asked.setdefault(member.early, []).append(node)
        for position, nodes in list(asked.items())[:_EARLY_POSITIONS_MAX]:
            self._ask(tuple(nodes), position)

    def _ask_aside(self, item: SendObject, now: float) -> None:
        """Ask silent members although nothing else is to be asked: they may have come back."""
        self._ask(tuple(self._acking_set.aside), self._trains.position(item, max(item.next_index - 1, 0)))
        self._timers.set(Timer.WINDOW, min(now + _ASIDE_ASK_S, self._timers.deadline(Timer.WINDOW)))

    def _ask(self, nodes: tuple[int, ...], position: Position) -> None:
        """Ask nodes to confirm a position, with as many FLUSHes as their number needs."""
        most = self._config.segment_bytes // _NODE_ID_BYTES
        for start in range(0, len(nodes), most):
            self._flusher.send(position, nodes[start : start + most])

    def _complete(self, mark: Mark | None, now: float) -> None:
        """Free what a confirmed mark covers, and set the next one."""
        if mark is None:
            return
        for object_id, index in mark.streams.items():
            stream = self._cache.get(object_id)
            if isinstance(stream, SendStream) and self._window.is_active:
                stream.confirmed_index = index
                self.announce_room(stream)
        self._keep_for_absent()
        self._cache.make_room()
        if self._flusher.last is not None:
            self.mark(self._flusher.last, now, is_idle=False)

    def _adapt_backoff(self) -> None:
        """Let a few known receivers send NACKs without waiting for each other."""
        are_few = self._window.is_active and len(self._acking_set.members) <= _FEW_NODES_MAX
        self._trains.backoff_factor = 0 if are_few else self._config.backoff_factor

    def _adapt_streams(self, now: float) -> None:
        """Start or stop holding stream data, after the first receiver joined or the last one left.

        What was sent before the first receiver joined need not be confirmed. After the last one left, others may still
        turn up for a moment. The timer ends that even if a stream is full, so that nothing new can be sent.
        """
        if not self._window.is_active and self._window.is_holding:
            self._timers.set(
                Timer.WINDOW, self._window.wait_for_answers(now + self._window.answers_s(self._timing.grtt_s))
            )
        for item in self._cache:
            if isinstance(item, SendStream):
                if not self._window.is_holding:
                    item.confirmed_index = None
                elif item.confirmed_index is None:
                    item.confirmed_index = item.next_index
                self.announce_room(item)
