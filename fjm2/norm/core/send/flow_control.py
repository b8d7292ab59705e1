"""Flow control of a sender. It asks the acking set for confirmations, and lets writers continue when these arrive."""

from collections import deque

from fjm2.norm.core.events import ReceiverEvicted, StreamWritable
from fjm2.norm.core.timers import Timer
from fjm2.norm.core.wire import Position

from .context import SenderContext
from .flow_window import FlowWindow, Mark
from .flusher import Flusher
from .objects import SendObject, SendStream

_FEW_NODES_MAX = 8
"""Most receivers for which NACK back-off is switched off: so few NACKs do no harm, and repairs begin sooner."""
_IDLE_MIN_S = 0.01
"""Shortest time in seconds that an idle sender waits before it asks to confirm its last data, so that scattered
messages are not confirmed one by one."""
_NODE_ID_BYTES = 4
"""Size in bytes of one entry in a FLUSH's list of acking nodes."""
_ROOM_SHARE = 8
"""Divisor of a ring's size. A waiting writer is woken once 1/8 of the ring is free, and not for every segment."""


class FlowControl:
    """Link between the flow window and the parts that it controls: streams, the cache, and requests to confirm."""

    def __init__(self, context: SenderContext, window: FlowWindow, queue: deque[SendObject], flusher: Flusher) -> None:
        self._config = context.config
        self._window = window
        self._queue = queue
        self._flusher = flusher
        self._cache = context.cache
        self._trains = context.trains
        self._timing = context.timing
        self._timers = context.timers
        self._emit = context.emit

    def set_receivers(self, nodes: frozenset[int], now: float, excluded: frozenset[int]) -> None:
        """Wait for `nodes`, and keep `excluded` nodes from joining by themselves."""
        was_active = self._window.is_active
        self._cache.note_change()
        self._window.set_nodes(nodes, now, excluded)
        self._adapt_backoff()
        if self._window.is_active != was_active:
            self._adapt_streams()

    def forget_receiver(self, node: int, now: float) -> None:
        """Stop waiting for a node that has left."""
        was_active = self._window.is_active
        self._complete(self._window.forget(node, now), now)
        self._adapt_backoff()
        if self._window.is_active != was_active:
            self._adapt_streams()
        self._flusher.excuse(node, now)

    def note_heard(self, node: int, is_answer: bool, now: float) -> None:
        """Note that a receiver is alive. `is_answer` is True if it answered a probe."""
        if self._window.note_heard(node, is_answer, now):
            self._adapt_streams()
            self._timers.set(Timer.WINDOW, now)
        self._adapt_backoff()

    def confirm(self, node: int, position: Position, now: float) -> None:
        """Note that a receiver has everything up to a position."""
        self._complete(self._window.confirm(node, position, now), now)

    def mark(self, item: SendObject, now: float, is_idle: bool) -> None:
        """Ask for confirmation of everything sent so far, if it is time for that. `item` is the object sent last."""
        window = self._window
        if window.is_mark_due(is_idle) and item.next_index:
            streams = {stream.id: stream.next_index for stream in self._queue if isinstance(stream, SendStream)}
            window.set_mark(self._trains.position(item, item.next_index - 1), streams, now)
            self._request_confirmation(now)
        elif window.is_ahead and window.is_active and not self._timers.is_set(Timer.WINDOW):
            self._timers.set(Timer.WINDOW, now + max(self._timing.grtt_s, _IDLE_MIN_S))

    def check(self, now: float) -> None:
        """Act on the window timer: evict silent receivers, repeat a request, or ask to confirm what was sent last."""
        window = self._window
        if window.answers_by is not None and window.answers_by <= now:
            window.stop_waiting()
            self._adapt_streams()
        gone, mark = window.evict(now)
        for node in gone:
            self._emit(ReceiverEvicted(node))
        if gone:
            self._adapt_backoff()
        if gone and not window.is_active:
            self._adapt_streams()
        self._complete(mark, now)
        if window.mark is not None:
            self._request_confirmation(now)
        elif self._flusher.last is not None:
            self.mark(self._flusher.last, now, is_idle=True)

    def announce_room(self, stream: SendStream) -> None:
        """Tell a waiting writer that the stream has room, once there is enough room."""
        if stream.is_room_wanted and stream.room >= stream.ring.rows * stream.ring.segment_bytes // _ROOM_SHARE:
            stream.is_room_wanted = False
            self._emit(StreamWritable(stream.id))

    def _request_confirmation(self, now: float) -> None:
        mark = self._window.mark
        if mark is not None:
            nodes = tuple(mark.waiting)[: self._config.segment_bytes // _NODE_ID_BYTES]
            self._flusher.send(mark.position, nodes)
            self._timers.set(Timer.WINDOW, now + 2 * self._timing.grtt_s)

    def _complete(self, mark: Mark | None, now: float) -> None:
        """Free what a confirmed mark covers, and set the next mark. Do nothing if `mark` is None."""
        if mark is None:
            return
        for object_id, index in mark.streams.items():
            stream = self._cache.get(object_id)
            if isinstance(stream, SendStream) and self._window.is_active:
                stream.confirmed_index = index
                self.announce_room(stream)
        self._cache.make_room()
        if self._flusher.last is not None:
            self.mark(self._flusher.last, now, is_idle=False)

    def _adapt_backoff(self) -> None:
        """Let a few known receivers send NACKs without waiting for each other."""
        are_few = self._window.is_active and len(self._window.acking_set.heard_at) <= _FEW_NODES_MAX
        self._trains.backoff_factor = 0 if are_few else self._config.backoff_factor

    def _adapt_streams(self) -> None:
        """Start to hold stream data until it is confirmed, if the first receiver has joined; stop if the last has left.

        What was sent before the first receiver joined need not be confirmed.
        """
        for item in self._cache:
            if isinstance(item, SendStream):
                if not self._window.is_holding:
                    item.confirmed_index = None
                elif item.confirmed_index is None:
                    item.confirmed_index = item.next_index
                self.announce_room(item)
