"""Saying how far the data go, and asking that it be confirmed (RFC 5740, 5.1.1 FLUSH and 5.5.3)."""

from collections import deque
from collections.abc import Sequence

from fjm2.norm.core.events import TransmissionFlushed
from fjm2.norm.core.timers import Timer
from fjm2.norm.core.wire import Flush, Position

from .commands import BuildMessage
from .context import SenderContext
from .objects import SendObject, SendStream
from .watermark import Watermark

_STREAMS_MAX = 16
"""The ends of so many streams are flushed with every object."""


class Flusher:
    """The FLUSH commands of a sender: so many when all is sent, and one for each watermark until it is confirmed."""

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
        """Flushes still to be sent."""
        self._moved: dict[SendObject, None] = {}
        """The streams that went on last: objects that come after them say nothing of their ends."""
        self.last: SendObject | None = None
        """The newest object that data went out of."""

    def watermark(self, items: Sequence[SendObject], nodes: Sequence[int], now: float) -> int:
        """Ask nodes to confirm objects as far as they are written, one after the other. The watermark's number."""
        self._watermark_count += 1
        for item in items:
            index = max(item.sendable - 1, 0)
            tries = dict.fromkeys(nodes, self._config.robust_factor)
            position = self._trains.position(item, index)
            self._watermarks.append(Watermark(self._watermark_count, position, item.id, index, tries))
        self._arm(now)
        return self._watermark_count

    def note_progress(self, item: SendObject) -> None:
        """New data go out of an object."""
        if self.last is None or item.order > self.last.order:
            self.last = item
        if isinstance(item, SendStream):
            self._moved.pop(item, None)
            self._moved[item] = None
            if len(self._moved) > _STREAMS_MAX:
                del self._moved[next(iter(self._moved))]

    def restart(self, now: float) -> None:
        """Data went out, or went out again: what is to be flushed lies further on."""
        self._left = self._config.robust_factor
        if self._watermarks and self._is_passed(self._watermarks[0]):
            self._arm(now)
        elif not self._watermarks:
            # The next data will move it on again: a busy sender never flushes.
            self._timers.set(Timer.FLUSH, now + self._timing.grtt_s)

    def forget(self, item: SendObject, now: float) -> None:
        """An object was cancelled. Its end is flushed no more, but that of the others is."""
        self._moved.pop(item, None)
        if item is self.last:
            self.last = None
        self._left = self._config.robust_factor
        self._arm(now)

    def renew(self, item: SendObject) -> None:
        """Data before a mark are to be sent again: its nodes get as many more chances."""
        for watermark in self._watermarks:
            marked = self._cache.get(watermark.object_id)
            if marked is not None and item.order <= marked.order:
                watermark.renew(self._config.robust_factor)

    def confirm(self, node: int, position: Position, now: float) -> None:
        """A node confirms a position."""
        if self._watermarks and self._watermarks[0].confirm(node, position) and self._watermarks[0].is_done:
            self._end_watermark(now)

    def excuse(self, node: int, now: float) -> None:
        """A node has left: nobody waits for what it would confirm."""
        for watermark in self._watermarks:
            watermark.excuse(node)
        while self._watermarks and self._watermarks[0].is_done:
            self._end_watermark(now)

    def act(self, now: float, is_idle: bool) -> None:
        """The flush timer has run out."""
        while self._watermarks and self._is_passed(self._watermarks[0]):
            watermark = self._watermarks[0]
            nodes = watermark.ask(self._config.segment_bytes // 4)
            if not watermark.is_done:
                self.send(watermark.position, nodes)
                self._timers.set(Timer.FLUSH, now + 2 * self._timing.grtt_s)
                return
            self._end_watermark(now)
        if is_idle and self._left:
            self._flush_ends()
        if self._left or self._watermarks:
            self._timers.set(Timer.FLUSH, now + 2 * self._timing.grtt_s)

    def send(self, position: Position, nodes: tuple[int, ...]) -> None:
        """Say that all up to a position has been sent, and ask nodes to confirm it."""
        self._stats.flushes_sent += 1
        self._commands.append(lambda common, _: Flush(**common, position=position, acking_nodes=nodes))

    def _flush_ends(self) -> None:
        last = self.last
        self._left = 0 if last is None else self._left - 1
        # A receiver may have missed all of an earlier round.
        self._moved = {stream: None for stream in self._moved if self._cache.get(stream.id) is stream}
        if last is not None:
            for item in [*(stream for stream in self._moved if stream is not last), last]:
                self.send(self._trains.position(item, item.sendable - 1), ())
        if not self._left:
            self._emit(TransmissionFlushed(None if last is None else last.id))

    def _arm(self, now: float) -> None:
        if not self._timers.is_set(Timer.FLUSH):
            self._timers.set(Timer.FLUSH, now)

    def _is_passed(self, watermark: Watermark) -> bool:
        """Whether all up to the mark has been sent."""
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
            self._watermarks[0].fail(done.failed)  # who has not confirmed one object has not confirmed all
        else:
            self._emit(done.event())
        if self._watermarks:
            self._arm(now)
