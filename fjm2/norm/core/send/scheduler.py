"""Choice of a sender's next train: commands, repairs and new data, within rate and window."""

from collections import deque
from collections.abc import Callable

from fjm2.norm.core.events import FileFailed
from fjm2.norm.core.partition import locate
from fjm2.norm.core.repair_set import INFO_INDEX
from fjm2.norm.core.timers import Timer
from fjm2.norm.core.train import Train

from .commands import BuildMessage
from .context import SenderContext
from .flow.flow_control import FlowControl
from .flow.flow_window import FlowWindow
from .flusher import Flusher
from .objects import SendObject, SendStream
from .repair import RepairQueue

_RUN_SEGMENTS_MIN = 8
"""Shortest run of neighbouring segments that is repaired by a train of its own. Shorter runs share one train."""
_REPAIRS_IN_ROW_MAX = 7
"""Number of trains of repairs after which new data get a turn, so that endless requests cannot stop the sender."""


class TrainScheduler:
    """Queue of objects with data to send. It cuts the next train from these objects, or from what must be repaired."""

    def __init__(
        self,
        context: SenderContext,
        queue: deque[SendObject],
        commands: deque[BuildMessage],
        window: FlowWindow,
        flow_control: FlowControl,
        repair_queue: RepairQueue,
        flusher: Flusher,
    ) -> None:
        self._config = context.config
        self._queue = queue
        """Objects with data that was never sent, and open streams."""
        self.commands = commands
        """Commands that wait to be sent."""
        self._window = window
        self._flow_control = flow_control
        self._repair_queue = repair_queue
        self._flusher = flusher
        self._cache = context.cache
        self._trains = context.trains
        self._timing = context.timing
        self._timers = context.timers
        self._stats = context.stats
        self._emit = context.emit
        self._stamped: deque[Train] = deque()
        """Trains whose headers are written already. They must be sent before any train that is stamped later."""
        self._repairs_in_row = 0
        """Number of trains of repairs sent since the last train of new data."""

    @property
    def is_sending(self) -> bool:
        """True if repairs or new data wait to be sent."""
        return bool(self._repair_queue.repairing) or not all(item.is_sent for item in self._queue)

    @property
    def is_empty(self) -> bool:
        """True if no object has data that was never sent, and no stream is open."""
        return not self._queue

    def add(self, item: SendObject) -> None:
        """Queue an object."""
        self._queue.append(item)

    def clear(self) -> None:
        """Empty the queue, so that no object's new data are sent any more."""
        self._queue.clear()

    def cancel(self, item: SendObject, now: float) -> None:
        """Send nothing more of an object, and forget it."""
        self._repair_queue.forget(item)
        self._cache.remove(item)
        if item in self._queue:
            self._queue.remove(item)
        self._flusher.forget(item, now)

    def poll_train(self, now: float) -> Train | None:
        """Return the next train, or None if none may be sent now. Its bytes are valid until the next call."""
        if self._stamped:
            return self._stamped.popleft()
        if not self.commands and (self._repair_queue.repairing or self._queue):
            ready_at = self._timing.pacer.next_train_at(now)
            if ready_at > now:
                if self.is_sending:
                    self._timers.set(Timer.PACE, ready_at)
                return None
            train = self._data_train(now)
            if train is not None:
                self._timing.pacer.spend(train.data.size)
                return train
        if self.commands:
            return self._trains.message(self.commands.popleft()(self._trains.common(), now))
        return None

    def send_alone(
        self, object_id: int, head: bytes, body: bytes, now: float, send: Callable[[memoryview], object]
    ) -> bool:
        """Append a short message to a stream, and pass its datagram to `send`, if nothing else is to be sent.

        Return False, and do nothing, if anything is unusual. The message then takes the general path, which may be
        slower and does not depend on this one.
        """
        stream = self._cache.get(object_id)
        if not isinstance(stream, SendStream):
            return False
        size, ring = len(head) + len(body), stream.ring
        index, window, timing = ring.closed, self._window, self._timing
        if (
            self._stamped
            or self.commands
            or self._repair_queue.repairing
            or stream.next_index != index
            or not 0 < size <= ring.segment_bytes
            or ring.fill
            or stream.info_due
            or len(self._queue) != 1
            or self._config.auto_parity
            or stream.limit <= index
            or window.room(now, timing.grtt_s) <= 0
            or timing.pacer.next_train_at(now) > now
        ):
            return False
        datagram = self._trains.alone(stream, head, body)
        send(datagram)
        ring.close_alone(size)
        stream.is_flushed = True
        stream.next_index = index + 1
        window.note_sent(1, now)
        stats = self._stats
        stats.segments_sent += 1
        stats.payload_bytes_sent += size
        timing.pacer.spend(len(datagram))
        self._flusher.note_progress(stream)
        self._restart_timers(now)
        self._flow_control.mark(stream, now, is_idle=False)
        return True

    def _data_train(self, now: float) -> Train | None:
        """Return a train of repairs or new data. Repairs come first, but endless requests do not stop new data."""
        is_turn_of_new = self._repairs_in_row >= _REPAIRS_IN_ROW_MAX
        train = (self._new_train(now) if is_turn_of_new else None) or self._repair_train(now)
        self._repairs_in_row = 0 if is_turn_of_new or train is None else self._repairs_in_row + 1
        return train or self._new_train(now)

    def _repair_train(self, now: float) -> Train | None:
        item = self._repair_queue.next_object()
        if item is None:
            return None
        repairs = item.repairs
        try:
            if repairs.due.info:
                repairs.due.info = False
                repairs.recent.add(INFO_INDEX, INFO_INDEX + 1, now, now + self._timing.grtt_s)
                return self._trains.info(item)
            block = self._repair_queue.next_parity(item)
            if block is not None:
                rows = self._repair_queue.spend_parity(item, block)
                train = self._trains.parity(item, block, rows)
            else:
                train = self._repaired_segments(item, now)
        except OSError as error:
            self._fail(item, error, now)
            return None
        finally:
            self._repair_queue.settle(item)
            self._cache.note_change()
        self._restart_timers(now)
        return train

    def _repaired_segments(self, item: SendObject, now: float) -> Train:
        """Return a train of source segments that were requested: one run of neighbours, or many scattered segments."""
        segments = item.repairs.due.segments
        start, end = segments.first_range
        if end - start >= _RUN_SEGMENTS_MIN or segments.range_count == 1:
            train = self._trains.segments(item, start, end - start)
            sent = [(start, start + train.count)]
        else:
            train, indexes = self._trains.gathered(item, segments)
            sent = [(index, index + 1) for index in indexes]
        for first, after in sent:
            segments.remove(first, after)
            item.repairs.recent.add(first, after, now, now + self._timing.grtt_s)
        self._stats.repair_segments_sent += train.count
        return train

    def _new_train(self, now: float) -> Train | None:
        window = self._window
        if window.room(now, self._timing.grtt_s) <= 0:
            if window.answers_by is not None:
                self._timers.set(Timer.WINDOW, window.answers_by)
            return None
        for _ in range(len(self._queue)):
            item = self._queue[0]
            if item.is_sent:
                self._queue.rotate(-1)
                continue
            self._flusher.note_progress(item)
            try:
                train = self._next_of(item, now)
            except OSError as error:
                self._fail(item, error, now)
                return None
            self._after_progress(item)
            self._restart_timers(now)
            self._flow_control.mark(item, now, is_idle=False)
            return train
        if window.answers_by is not None and any(
            isinstance(each, SendStream) and each.is_room_wanted for each in self._queue
        ):
            self._timers.set(Timer.WINDOW, window.answers_by)  # a buffer is full that is shorter than a window
        return None

    def _next_of(self, item: SendObject, now: float) -> Train:
        if item.info_due:
            item.info_due = False
            return self._trains.info(item)
        if item.parity_due is not None:
            (block, rows), item.parity_due = item.parity_due, None
            return self._trains.parity(item, block, rows)
        auto_parity = self._config.auto_parity
        count = min(item.sendable - item.next_index, self._window.room(now, 0.0))
        if auto_parity:  # a train must end with the block, so that the block's parity can follow it
            block, symbol = locate(item.partition, item.next_index)
            length = item.partition.block_length(block)
            count = min(count, length - symbol)
        train, *others = self._trains.in_row(item, item.next_index, count)
        self._stamped.extend(others)
        sent = sum(each.count for each in (train, *others))
        item.next_index += sent
        self._window.note_sent(sent, now)
        self._stats.segments_sent += sent
        header_bytes = train.segment_bytes - self._config.segment_bytes
        self._stats.payload_bytes_sent += sum(each.data.size for each in (train, *others)) - sent * header_bytes
        if auto_parity and symbol + sent == length:
            item.parity_due = block, range(auto_parity)
        return train

    def _after_progress(self, item: SendObject) -> None:
        if isinstance(item, SendStream):
            self._flow_control.announce_room(item)
            if not item.ring.is_ended:
                self._queue.rotate(-1)  # streams take turns
                return
        if item.is_sent:
            self._cache.note_change()
            self._queue.remove(item)
            item.sent_mark = self._window.sent
            self._stats.objects_sent += 1

    def _restart_timers(self, now: float) -> None:
        """Postpone the flush, and probe at once if the rate depends on receivers and the sender was idle."""
        self._flusher.restart(now)
        if self._timing.follows_receivers and self._timers.deadline(Timer.PROBE) > now + self._timing.grtt_s:
            self._timers.set(Timer.PROBE, now)

    def _fail(self, item: SendObject, error: OSError, now: float) -> None:
        self.cancel(item, now)
        self._emit(FileFailed(item.id, str(error)))
