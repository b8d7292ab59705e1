"""The sending half of a node (RFC 5740, 5.1, 5.4 and 5.5): what the application, the network and the clock ask of it.

Inputs only change state. `poll_train` then finds what to send next, in order of urgency: commands, repairs, new data.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from random import Random

from fjm2.base.errors import ConfigError, NormError
from fjm2.base.quantities import counted
from fjm2.norm.core.config import SenderConfig
from fjm2.norm.core.events import Event
from fjm2.norm.core.stats import Drop, Stats
from fjm2.norm.core.timers import NEVER, Timer, TimerTable
from fjm2.norm.core.train import Address
from fjm2.norm.core.wire import Ack, AckType, FromReceiver, Nack, Position, Status, StatusFlag, kept_info

from .cache import SendCache
from .commands import CommandQueue
from .context import SenderContext
from .flow.flow_control import FlowControl
from .flow.flow_window import FlowWindow
from .flusher import Flusher
from .objects import SendData, SendObject, SendStream, stream_fti
from .repair import RepairQueue
from .scheduler import TrainScheduler
from .sources import Source
from .timing import Timing
from .trains import TrainMaker

_NODE_ID_BYTES = 4
"""Size in bytes of one entry in the list of nodes that a request names."""


class Sender:
    """One incarnation of a node's sender, and the objects that it sends."""

    def __init__(
        self,
        node_id: int,
        config: SenderConfig,
        group: Address,
        random: Random,
        stats: Stats,
        emit: Callable[[Event], None],
        group_is_multicast: bool,
    ) -> None:
        self.instance_id = random.getrandbits(16)
        """Number by which receivers tell this incarnation of the sender from earlier ones."""
        self.timers = TimerTable()
        self.timing = Timing(config, stats, emit)
        """Round-trip time and rate of the sender."""
        self._config = config
        self._stats = stats
        self._group_is_multicast = group_is_multicast
        first_sequence = random.getrandbits(16)
        self._trains = TrainMaker(node_id, self.instance_id, first_sequence, config, self.timing, group, stats)
        self.window = FlowWindow(config)
        """Flow-control window: the receivers that confirm, and how far ahead of them this sender may be."""
        self.cache = SendCache(config, random.getrandbits(16), self.window.has_confirmed, emit)
        """Objects that are being sent or can be repaired."""
        context = SenderContext(config, stats, emit, self.timers, self.timing, self._trains, self.cache)
        queue: deque[SendObject] = deque()
        self._repair_queue = RepairQueue(self.cache, config, self._trains.layout, stats)
        self._commands = CommandQueue(context, self._repair_queue)
        pending = self._commands.pending
        self._flusher = Flusher(context, pending)
        self.flow_control = FlowControl(context, self.window, queue, self._flusher)
        """Flow control, which asks receivers to confirm what was sent."""
        self.scheduler = TrainScheduler(
            context, queue, pending, self.window, self.flow_control, self._repair_queue, self._flusher
        )
        """Choice of what is sent next."""

    @property
    def is_paced_out(self) -> bool:
        """True if there is something to send as soon as the rate allows it."""
        return self.timers.is_set(Timer.PACE)

    # Commands of the application.

    def enqueue(self, source: Source, info: bytes | None, is_file: bool, now: float) -> int:
        """Queue an object to be sent, and return its transport id. Raise NormError if the cache has no room for it."""
        if source.size == 0 and info is None:
            raise ConfigError("an empty object: expected content or info")
        if not self.cache.has_room(source.memory_bytes):
            raise NormError("the cache is full of objects that are still to be sent: wait, or raise cache_objects")
        return self._add(SendData(self.cache.next_id, source, self._checked(info), self._config, is_file), now)

    def open_stream(self, info: bytes | None, now: float, *, is_passing: bool = False) -> int:
        """Begin a stream, and return its transport id. If `is_passing`, nothing of it is to be kept until `keep`."""
        object_id = self.cache.next_id
        blocks = self._ring_blocks()
        header = self._trains.data_header(object_id, SendStream.flags, stream_fti(self._config, blocks))
        stream = SendStream(object_id, self._checked(info), self._config, header, blocks)
        stream.confirmed_index = 0 if self.window.is_holding else None
        if is_passing:
            stream.pass_by()
        return self._add(stream, now)

    def keep_stream(self, object_id: int) -> None:
        """Have what is written to a stream kept from now on, by those who receive nothing else. Harmless if it is."""
        stream = self._stream(object_id)
        if stream.is_passing:
            stream.keep(lambda index: kept_info(self._trains.position(stream, index).payload_id))
            self.cache.note_change()

    def _ring_blocks(self) -> int:
        """Return the number of blocks that a new stream's buffer holds: with history, as far as the cache has room."""
        config = self._config
        block_bytes = config.segment_bytes * config.block_segments
        left = max(self.cache.free_bytes // block_bytes - config.stream_blocks, 0)
        return config.stream_blocks + min(config.history_blocks, left)

    def write(self, object_id: int, data: memoryview, marks: Sequence[int]) -> int:
        """Append to a stream as many bytes as there is room for, and return their number.

        Messages begin at the offsets in `marks`.
        """
        stream = self._stream(object_id)
        taken = min(len(data), stream.room)
        if taken:
            stream.is_flushed = False
            stream.ring.write(data[:taken], marks[: bisect_left(marks, taken)] if taken < len(data) else marks)
        if taken < len(data):
            stream.is_room_wanted = stream.is_flushed = True
            self._stats.window_waits += 1
        return taken

    def unsent_bytes(self, object_id: int) -> int:
        """Return the size of a stream's segments that were written and not sent; 0 if there is no such stream."""
        stream = self.cache.get(object_id)
        if not isinstance(stream, SendStream):
            return 0
        return (stream.ring.closed - stream.next_index) * self._config.segment_bytes

    def flush_stream(self, object_id: int) -> None:
        """Let everything written to a stream be sent, even if it does not fill a segment or a train."""
        self._stream(object_id).flush()

    def repeat_flush(self, nodes: tuple[int, ...], now: float) -> None:
        """Tell receivers once more how far the data go, and ask nodes to confirm it."""
        if len(nodes) * _NODE_ID_BYTES > self._config.segment_bytes:
            most = self._config.segment_bytes // _NODE_ID_BYTES
            raise ConfigError(f"a flush for {counted(len(nodes), 'node')}: expected {most} at most")
        self._flusher.repeat(nodes, now)

    def end_stream(self, object_id: int) -> None:
        """Close a stream, and tell its receivers that nothing more will come."""
        stream = self._stream(object_id)
        stream.ring.end()
        self.cache.note_change()
        stream.is_flushed = True

    def cancel(self, object_id: int, now: float) -> None:
        """Send nothing more of an object. Receivers that request it are told that it is gone."""
        item = self.cache.get(object_id)
        if item is not None:
            self.scheduler.cancel(item, now)

    def watermark(self, nodes: Sequence[int], now: float, timeout_s: float = NEVER) -> int:
        """Ask nodes for a time to confirm everything queued or written so far, and return the watermark's number."""
        streams = [item for item in self.cache if isinstance(item, SendStream)]
        for stream in streams:
            stream.flush()
        candidates = [item for item in (*self.cache, self._flusher.last) if item is not None and item.has_data]
        newest = max(candidates, key=lambda item: item.order, default=None)
        if newest is None:
            raise ConfigError("a watermark before any data: there is nothing to confirm")
        # A confirmation covers all older objects, but of each stream only what the receiver knows to have been sent.
        older = (stream for stream in streams if stream.has_data and stream is not newest)
        return self._flusher.watermark([*older, newest], nodes, now, timeout_s)

    def end_watermark(self, number: int, now: float) -> None:
        """Complete a watermark now: nodes that have not confirmed it have failed. Harmless if it is complete."""
        self._flusher.end_watermark(number, now)

    def send_command(self, content: bytes, is_robust: bool, now: float) -> None:
        """Send a CMD(APPLICATION) once, or, if `is_robust`, as many times as the robust factor says."""
        if len(content) > self._config.segment_bytes:
            raise ConfigError(f"a command of {len(content)} bytes: expected {self._config.segment_bytes} at most")
        self._commands.add_application(content, self._config.robust_factor if is_robust else 1, now)

    def request_acks(self, ack_type: int, nodes: tuple[int, ...], ack_id: int) -> None:
        """Ask nodes once for an acknowledgement of the application."""
        if len(nodes) * _NODE_ID_BYTES > self._config.segment_bytes:
            most = self._config.segment_bytes // _NODE_ID_BYTES
            raise ConfigError(f"a request to {counted(len(nodes), 'node')}: expected {most} at most")
        self._commands.add_ack_request(ack_type, ack_id, nodes)

    def close(self) -> None:
        """Tell receivers that this sender leaves, and forget all objects."""
        if self._flusher.last is not None or not self.scheduler.is_empty:
            self._commands.add_end()
        self.scheduler.clear()
        for item in list(self.cache):
            self._repair_queue.forget(item)
            self.cache.remove(item)
        for timer in Timer:
            self.timers.stop(timer)

    # Messages of receivers.

    def receive_feedback(self, message: FromReceiver, now: float, by_unicast: bool) -> bool:
        """Act on a NACK or an ACK that is meant for this node. Return False if it is for an earlier incarnation."""
        if message.instance_id != self.instance_id:
            self._stats.drop(Drop.STALE_INSTANCE)
            return False
        if isinstance(message, Nack):
            self._receive_nack(message, now, by_unicast)
        elif isinstance(message, Ack):
            self._receive_ack(message, now)
        return True

    def _receive_nack(self, nack: Nack, now: float, by_unicast: bool) -> None:
        self.cache.note_change()
        self._stats.nacks_received += 1
        is_answer = self._note_feedback(nack, now)
        fresh = self._note_requests(nack, now)
        self._note_heard(nack, is_answer, now)
        if nack.requests and nack.requests[0].items:
            self.flow_control.note_missing(nack.source_id, nack.requests[0].items[0], now)
        self.window.note_requested(nack.source_id, fresh)
        for item, first in self._repair_queue.reopened.items():
            self._flusher.renew(item, first)
        if self._repair_queue.is_squelch_due(now, 2 * self.timing.grtt_s):
            self._commands.add_squelch()
        backoff_factor = self._trains.backoff_factor
        if fresh and by_unicast and self._group_is_multicast and backoff_factor:
            self._commands.request_advertisement(now)
        if self._repair_queue.starts_gathering():
            wait_s = (backoff_factor + 1) * self.timing.grtt_s if self._group_is_multicast else 0.0
            self.timers.set(Timer.REPAIR, now + wait_s)

    def _note_requests(self, nack: Nack, now: float) -> int:
        """Note what a NACK requests, as far as its receiver has credit. Return how many segments of it are new."""
        acking_set = self.window.acking_set
        evidence, status = acking_set.evidence_of(nack.source_id), _status_of(nack)
        if evidence is None or status is None:
            return self._repair_queue.add(nack, now)
        segment_bytes = self._config.segment_bytes
        most = evidence.credit.earn(status.progress, now) // segment_bytes
        asked_at = self.timing.asked_at(nack, now)
        fresh = self._repair_queue.add(nack, now, asked_at=asked_at, is_stalled=evidence.is_stalled, most=most)
        evidence.credit.spend(fresh * segment_bytes)
        return fresh

    def _receive_ack(self, ack: Ack, now: float) -> None:
        self.cache.note_change()
        self._stats.acks_received += 1
        self._note_heard(ack, self._note_feedback(ack, now), now)
        if ack.ack_type == AckType.FLUSH and isinstance(ack.content, Position):
            self._flusher.confirm(ack.source_id, ack.content, now)
            self.flow_control.confirm(ack.source_id, ack.content, now)

    def _note_feedback(self, message: FromReceiver, now: float) -> bool:
        return self.timing.note_feedback(message, now, self.window.acking_set.is_measured(message.source_id))

    def _note_heard(self, message: FromReceiver, is_answer: bool, now: float) -> None:
        """Note that a receiver is alive, and what it says of itself."""
        status = _status_of(message)
        if status is not None:
            sent_bytes = self._stats.payload_bytes_sent
            self.window.acking_set.note_counter(message.source_id, status.progress, sent_bytes, now)
        is_full = None if status is None else bool(status.flags & StatusFlag.FULL)
        self.flow_control.note_heard(message.source_id, is_answer, is_full, now)

    # Timers.

    def handle_timeout(self, now: float) -> None:
        """Act on every timer that has expired."""
        self.cache.note_change()
        timers = self.timers
        timers.expire(Timer.PACE, now)  # poll_train asks the pacer itself
        if timers.expire(Timer.REPAIR, now) and self._repair_queue.end_phase():
            timers.set(Timer.REPAIR, now + self.timing.grtt_s)
        if timers.expire(Timer.ADVERTISE, now):
            self._commands.advertise(now)
        if timers.expire(Timer.FLUSH, now):
            self._flusher.act(now, not self.scheduler.is_sending and not self._repair_queue.is_busy)
        due_at = timers.deadline(Timer.WINDOW)
        if timers.expire(Timer.WINDOW, now):
            self.flow_control.check(now, now - due_at)
        if timers.expire(Timer.PROBE, now):
            self._commands.add_probe(now, self.scheduler.is_sending)
        if timers.expire(Timer.COMMAND, now):
            self._commands.repeat_application(now)

    # Objects.

    def _add(self, item: SendObject, now: float) -> int:
        self.cache.add(item)
        self.scheduler.add(item)
        if not self.timers.is_set(Timer.PROBE):
            self.timers.set(Timer.PROBE, now)
        return item.id

    def _stream(self, object_id: int) -> SendStream:
        item = self.cache.get(object_id)
        if not isinstance(item, SendStream) or item.ring.is_ended:
            raise NormError(f"object {object_id} is no open stream")
        return item

    def _checked(self, info: bytes | None) -> bytes | None:
        if info is not None and len(info) > self._config.segment_bytes:
            raise ConfigError(f"info of {len(info)} bytes: expected {self._config.segment_bytes} at most")
        return info


def _status_of(message: FromReceiver) -> Status | None:
    return next((each for each in message.extensions if isinstance(each, Status)), None)
