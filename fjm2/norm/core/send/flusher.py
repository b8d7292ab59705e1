"""FLUSH commands, which tell receivers how far the data go, and watermarks, which ask nodes to confirm the data (RFC
5740, 5.1.1 and 5.5.3)."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from fjm2.norm.core.events import TransmissionFlushed, WatermarkCompleted
from fjm2.norm.core.timers import FLUSH, NEVER, Timer
from fjm2.norm.core.wire import Flush, Passing, Position

from .commands import BuildMessage
from .context import SenderContext
from .objects import SendObject, SendStream
from .trains import SenderFields

_STREAMS_MAX = 16
"""Maximum number of streams whose ends are flushed together with an object. Each stream costs one FLUSH."""
_ANSWER_S = 0.002
"""Time in seconds that the answer of each of many nodes may take. Asked sooner, they answer again before the first
answers have been read, and a busy host is kept from ever reading them."""
_AT_ONCE_MAX = 8
"""Maximum number of nodes whose answers take no time to speak of."""
_ANSWERS_MAX_S = 1.0
"""Longest time until nodes are asked again. Busy hosts answer late for a moment, and make the round-trip time long: if
their answers are lost then, nobody should wait for many such round trips."""
_RENEWED_MAX = 4
"""Maximum number of time-outs that pass from when nodes are first asked until a watermark ends. Repairs that are lost
again need some, each with a round trip; a node that requests data for ever must not hold all others up."""
_NODE_ID_BYTES = 4
"""Size in bytes of one entry in a FLUSH's list of acking nodes."""


@dataclass(slots=True)
class Watermark:
    """A position in the data, and the nodes that have not confirmed it yet."""

    number: int
    position: Position
    object_id: int
    index: int
    """Index of the last source segment to be confirmed."""
    tries_left: dict[int, int]
    """Number of times that each node may still be asked, by node id."""
    acked: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    timeout_s: float = NEVER
    """Time in seconds for which nodes are asked. It begins anew when data before the position are requested again."""
    ends_at: float | None = None
    """Time at which it ends; None if no node has been asked since it began anew."""
    ends_by: float = NEVER
    """Time at which it ends at the latest, however often it begins anew; NEVER until a node is asked."""
    is_asked: bool = False
    """True if nodes have been asked to confirm it."""

    def ask(self, node_max: int, now: float) -> tuple[int, ...]:
        """Return the nodes to ask now, at most `node_max`. Nodes that have no tries or no time left count as failed."""
        if not self.is_asked:
            self.ends_by = now + _RENEWED_MAX * self.timeout_s
        if self.ends_at is None:
            self.ends_at = min(now + self.timeout_s, self.ends_by)
        if self.is_asked and self.ends_at <= now:
            self.fail(set(self.tries_left))
        for node in [node for node, left in self.tries_left.items() if left == 0]:
            self.failed.add(node)
            del self.tries_left[node]
        nodes = tuple(self.tries_left)[:node_max]
        self.is_asked = True
        for node in nodes:
            self.tries_left[node] -= 1
        return nodes

    def confirm(self, node: int, position: Position) -> bool:
        """Note a confirmation, and return True if it was awaited."""
        if position != self.position or node not in self.tries_left:
            return False
        del self.tries_left[node]
        self.acked.add(node)
        return True

    def renew(self, tries: int) -> None:
        """Give each remaining node `tries` tries again, because data before the position was sent again."""
        self.tries_left = dict.fromkeys(self.tries_left, tries)
        self.ends_at = None

    def fail(self, nodes: set[int]) -> None:
        """Stop asking nodes that have failed."""
        self.failed |= nodes
        for node in nodes:
            self.tries_left.pop(node, None)

    def excuse(self, node: int) -> None:
        """Stop asking a node that has left. It counts neither as acked nor as failed."""
        self.tries_left.pop(node, None)

    @property
    def is_done(self) -> bool:
        """True if no node remains to be asked."""
        return not self.tries_left

    def event(self) -> WatermarkCompleted:
        """Return the event that reports which nodes confirmed the watermark."""
        return WatermarkCompleted(self.number, frozenset(self.acked), frozenset(self.failed))


class Flusher:
    """Source of FLUSH commands: several when everything is sent, and others that ask nodes to confirm watermarks."""

    def __init__(self, context: SenderContext, commands: deque[BuildMessage]) -> None:
        self._config = context.config
        self._cache = context.cache
        self._trains = context.trains
        self._timing = context.timing
        self._timers = context.timers
        self._stats = context.stats
        self._emit = context.emit
        self._commands = commands
        self._watermarks: deque[Watermark] = deque()
        self._watermark_count = 0
        self._left = 0
        """Number of flushes still to be sent."""
        self._named: tuple[int, ...] = ()
        """Nodes that the next flush asks."""
        self._moved: dict[SendObject, None] = {}
        """Streams that sent data lately, oldest first. Each needs a FLUSH of its own, which tells its end."""
        self._latest: SendObject | None = None
        """The object that sent data last, if that is noted in `_moved` and `last`."""
        self.last: SendObject | None = None
        """The newest object of which data was sent."""

    def watermark(self, items: Sequence[SendObject], nodes: Sequence[int], now: float, timeout_s: float = NEVER) -> int:
        """Ask nodes for a time to confirm objects as far as they are written, one by one. Return the number."""
        self._watermark_count += 1
        for item in items:
            index = max(item.sendable - 1, 0)
            tries = dict.fromkeys(nodes, self._config.robust_factor)
            position = self._trains.position(item, index)
            self._watermarks.append(
                Watermark(self._watermark_count, position, item.id, index, tries, timeout_s=timeout_s)
            )
        self._arm_watermark(now)
        return self._watermark_count

    def note_progress(self, item: SendObject) -> None:
        """Note that new data of an object was sent."""
        if item is self._latest:
            return
        self._latest = item
        if self.last is None or item.order > self.last.order:
            self.last = item
        if isinstance(item, SendStream):
            self._moved.pop(item, None)
            self._moved[item] = None
            if len(self._moved) > _STREAMS_MAX:
                del self._moved[next(iter(self._moved))]

    def restart(self, now: float) -> None:
        """Start all flushes over after data was sent, or sent again."""
        self._left = self._config.robust_factor
        if self._watermarks and self._is_passed(self._watermarks[0]):
            self._arm_watermark(now)
        elif not self._watermarks:
            # The next data postpone the flush again: a busy sender never flushes.
            self._timers.set(FLUSH, now + self._timing.grtt_s)

    def repeat(self, nodes: tuple[int, ...], now: float) -> None:
        """Flush once more, when nothing is being sent, and ask nodes to confirm it.

        A node that has come since the last flush has no place in the data. It takes one only if it is asked.
        """
        self._named = nodes
        self._left = max(self._left, 1)
        self._arm(now)

    def forget(self, item: SendObject, now: float) -> None:
        """Stop flushing an object that was cancelled, and flush the others."""
        self._moved.pop(item, None)
        self._latest = None
        if item is self.last:
            self.last = None
        self._left = self._config.robust_factor
        self._arm(now)

    def renew(self, item: SendObject, first: int) -> None:
        """Give nodes all tries again for the watermarks after a segment of an object, because it is being repaired."""
        for watermark in self._watermarks:
            marked = self._cache.get(watermark.object_id)
            if marked is None or item.order > marked.order:
                continue
            if item is not marked or first <= watermark.index:
                watermark.renew(self._config.robust_factor)

    def confirm(self, node: int, position: Position, now: float) -> None:
        """Note that a node confirms a position."""
        if self._watermarks and self._watermarks[0].confirm(node, position) and self._watermarks[0].is_done:
            self._end_watermark(now)

    def excuse(self, node: int, now: float) -> None:
        """Stop waiting for a node that has left."""
        for watermark in self._watermarks:
            watermark.excuse(node)
        while self._watermarks and self._watermarks[0].is_done:
            self._end_watermark(now)

    def end_watermark(self, number: int, now: float) -> None:
        """Complete a watermark now: nodes that have not confirmed it have failed. Harmless if it is complete."""
        for watermark in self._watermarks:
            if watermark.number == number:
                watermark.fail(set(watermark.tries_left))
        while self._watermarks and self._watermarks[0].is_done:
            self._end_watermark(now)

    def act(self, now: float, is_idle: bool) -> None:
        """Act on the flush timer: ask nodes to confirm a watermark, or flush if the sender is idle."""
        while self._watermarks and (self._watermarks[0].ends_by <= now or self._is_passed(self._watermarks[0])):
            watermark = self._watermarks[0]
            nodes = watermark.ask(self._config.segment_bytes // _NODE_ID_BYTES, now)
            if not watermark.is_done:
                self.send(watermark.position, nodes)
                ends_at = NEVER if watermark.ends_at is None else watermark.ends_at
                self._timers.set(Timer.FLUSH, min(now + self.answers_s(len(nodes)), ends_at))
                return
            self._end_watermark(now)
        if is_idle and self._left:
            self._flush_ends()
        if self._left or self._watermarks:
            self._timers.set(Timer.FLUSH, now + 2 * self._timing.grtt_s)

    def answers_s(self, node_count: int) -> float:
        """Return the time in seconds that nodes are given to confirm before they are asked again."""
        round_trips_s = min(2 * self._timing.grtt_s, _ANSWERS_MAX_S)
        return max(round_trips_s, node_count * _ANSWER_S if node_count > _AT_ONCE_MAX else 0.0)

    def send(self, position: Position, nodes: tuple[int, ...]) -> None:
        """Tell receivers that everything up to a position has been sent, and ask nodes to confirm it."""
        self._stats.flushes_sent += 1

        def build(common: SenderFields, _: float) -> Flush:
            item = self._cache.get(position.object_id)
            is_passing = isinstance(item, SendStream) and item.is_passing
            extensions = (Passing(),) if is_passing else ()
            return Flush(**common, position=position, acking_nodes=nodes, extensions=extensions)

        self._commands.append(build)

    def _flush_ends(self) -> None:
        last = self.last
        self._left = 0 if last is None else self._left - 1
        # Each round flushes all streams: a receiver may have missed a whole round.
        self._moved = {stream: None for stream in self._moved if self._cache.get(stream.id) is stream}
        named, self._named = self._named, ()
        if last is not None:
            for item in [*(stream for stream in self._moved if stream is not last), last]:
                self.send(self._trains.position(item, item.sendable - 1), named)
        if not self._left:
            self._emit(TransmissionFlushed(None if last is None else last.id))

    def _arm(self, now: float) -> None:
        if not self._timers.is_set(Timer.FLUSH):
            self._timers.set(Timer.FLUSH, now)

    def _arm_watermark(self, now: float) -> None:
        """Ask nodes to confirm the first watermark at once, unless they have been asked. Then their answers are due."""
        if self._watermarks[0].is_asked:
            self._arm(now)
        else:
            self._timers.set(Timer.FLUSH, now)

    def _is_passed(self, watermark: Watermark) -> bool:
        """Return True if everything up to the watermark has been sent."""
        item = self._cache.get(watermark.object_id)
        if item is None:
            return True
        if item.info_due or (item.next_index <= watermark.index and item.sendable):
            return False
        segments = item.repairs.due.segments
        return not (segments and segments.first <= watermark.index)

    def _end_watermark(self, now: float) -> None:
        done = self._watermarks.popleft()
        if self._watermarks and self._watermarks[0].number == done.number:
            self._watermarks[0].fail(done.failed)  # a node that has not confirmed one object has not confirmed all
        else:
            self._emit(done.event())
        if self._watermarks:
            self._arm_watermark(now)
