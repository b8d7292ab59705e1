"""The sending half of a node: what goes out next, and when (RFC 5740, 5.1, 5.4 and 5.5).

`poll_train` asks in order of urgency: commands, repairs, new data. Whatever arrives or times out only changes what it
will find.
"""

from collections import deque
from collections.abc import Callable, Sequence
from random import Random

from fjm2.base.errors import ConfigError, NormError
from fjm2.norm.core.config import SenderConfig
from fjm2.norm.core.events import CommandSent, Event, FileFailed, ReceiverEvicted, StreamWritable
from fjm2.norm.core.partition import locate
from fjm2.norm.core.ranges import OBJECT_ID
from fjm2.norm.core.repair_set import INFO_INDEX
from fjm2.norm.core.stats import Stats
from fjm2.norm.core.timers import Timer, TimerTable, wire_time
from fjm2.norm.core.train import Address, Train
from fjm2.norm.core.wire import (
    REPAIR_ADV_LIMIT,
    Ack,
    AckType,
    Application,
    CongestionControl,
    EndOfTransmission,
    Message,
    Nack,
    Position,
    Rate,
    RepairAdv,
    Squelch,
    payload_id_format,
)

from .cache import SendCache
from .flow_window import FlowWindow, Mark
from .flusher import Flusher
from .objects import SendData, SendObject, SendStream, stream_fti
from .repair import RepairQueue
from .sources import Source
from .timing import Timing
from .trains import SenderFields, TrainMaker

_RUN_SEGMENTS = 8
"""From so many neighbours on, a repair goes straight from where they lie."""
_REPAIRS_IN_ROW_MAX = 7
_FEW = 8
_IDLE_S = 0.01
"""There is no hurry to have the last of all data confirmed: lone messages need not be confirmed one by one."""


class Sender:
    """A node's own objects on their way out."""

    def __init__(
        self,
        node_id: int,
        config: SenderConfig,
        group: Address,
        random: Random,
        stats: Stats,
        emit: Callable[[Event], None],
    ) -> None:
        self.instance_id = random.getrandbits(16)
        self.timers = TimerTable()
        self.config = config
        self._stats = stats
        self._emit = emit
        self._timing = Timing(config, stats, emit)
        first_sequence = random.getrandbits(16)
        self._trains = TrainMaker(node_id, self.instance_id, first_sequence, config, self._timing, group, stats)
        self._flow = FlowWindow(config)
        self._cache = SendCache(config, random.getrandbits(16), self._is_confirmed, emit)
        self._desk = RepairQueue(self._cache, config, self._trains.layout, stats)
        self._queue: deque[SendObject] = deque()
        """Objects with data never sent, and open streams."""
        self._ready: deque[Train] = deque()
        """Trains that have been stamped already: what is stamped next comes behind them."""
        self._commands: deque[Callable[[SenderFields, float], Message]] = deque()
        self._flusher = Flusher(
            config, self._cache, self._trains, self._timing, self.timers, stats, self._commands.append, emit
        )
        self._robust_commands: deque[tuple[bytes, int]] = deque()
        """Application commands and how often each is still to be sent."""
        self._squelch_at = 0
        self._is_adv_due = False
        self._repairs_in_row = 0
        """Trains of repairs since the last of new data."""

    # What the application wants.

    @property
    def grtt_s(self) -> float:
        """The group's round-trip time as advertised."""
        return self._timing.grtt_s

    def has_room(self, size: int) -> bool:
        """Whether an object of this size can be queued now."""
        return self._cache.has_room(size)

    def enqueue(self, source: Source, info: bytes | None, is_file: bool, now: float) -> int:
        """Send an object after those queued before it; there has to be room. Its transport id."""
        if source.size == 0 and info is None:
            raise ConfigError("an empty object: expected content or info")
        if not self._cache.has_room(source.memory_bytes):
            raise NormError("the cache is full of objects that are still to be sent")
        return self._add(SendData(self._cache.next_id, source, self._checked(info), self.config, is_file), now)

    def open_stream(self, info: bytes | None, now: float) -> int:
        """Begin a stream. Its transport id."""
        object_id = self._cache.next_id
        header = self._trains.data_header(object_id, SendStream.flags, stream_fti(self.config))
        stream = SendStream(object_id, self._checked(info), self.config, header)
        stream.confirmed_index = 0 if self._flow.is_holding else None
        return self._add(stream, now)

    def write(self, object_id: int, data: memoryview, marks: Sequence[int]) -> int:
        """Append to a stream as much as there is room for; marks tell where messages begin. The bytes taken."""
        stream = self._stream(object_id)
        taken = min(len(data), stream.room)
        if taken:
            stream.is_flushed = False
            stream.ring.write(data[:taken], [mark for mark in marks if mark < taken] if marks else marks)
        if taken < len(data):
            stream.is_room_wanted = stream.is_flushed = True
            self._stats.window_waits += 1
        return taken

    def flush_stream(self, object_id: int) -> None:
        """Let what has been written go, even if it fills no train, or no segment."""
        self._flush(self._stream(object_id))

    @staticmethod
    def _flush(stream: SendStream) -> None:
        stream.is_flushed = True
        if stream.ring.has_partial and not stream.ring.is_ended:
            stream.ring.close_segment()

    def end_stream(self, object_id: int) -> None:
        """Close a stream: its receivers will know that nothing more comes."""
        stream = self._stream(object_id)
        stream.ring.end()
        self._cache.note_change()
        stream.is_flushed = True

    def cancel(self, object_id: int, now: float) -> None:
        """Send nothing more of an object; receivers that ask for it are told so."""
        item = self._cache.get(object_id)
        if item is not None:
            self._desk.forget(item)
            self._cache.remove(item)
            if item in self._queue:
                self._queue.remove(item)
            self._flusher.forget(item, now)

    def watermark(self, nodes: Sequence[int], now: float) -> int:
        """Ask nodes to confirm all that has been queued or written so far. The watermark's number."""
        streams = [item for item in self._cache if isinstance(item, SendStream)]
        for stream in streams:
            self._flush(stream)
        candidates = [item for item in (*self._cache, self._flusher.last) if item is not None and item.has_data]
        newest = max(candidates, key=lambda item: item.order, default=None)
        if newest is None:
            raise ConfigError("a watermark before any data: there is nothing to confirm")
        # A confirmation covers all objects up to its own, but of a stream only what receivers know to have been sent.
        return self._flusher.watermark(
            [*(stream for stream in streams if stream.has_data and stream is not newest), newest], nodes, now
        )

    def send_command(self, content: bytes, is_robust: bool, now: float) -> None:
        """Send a CMD(APPLICATION), once or as often as the robust factor says."""
        if len(content) > self.config.segment_bytes:
            raise ConfigError(f"a command of {len(content)} bytes: expected {self.config.segment_bytes} at most")
        self._robust_commands.append((content, self.config.robust_factor if is_robust else 1))
        if not self.timers.is_set(Timer.COMMAND):
            self.timers.set(Timer.COMMAND, now)

    def close(self) -> None:
        """Tell receivers that nothing more will come."""
        if self._flusher.last is not None or self._queue:
            self._commands.append(lambda common, _: EndOfTransmission(**common))
        self._queue.clear()
        for item in list(self._cache):
            self._desk.forget(item)
            self._cache.remove(item)
        for timer in Timer:
            self.timers.stop(timer)

    # What comes from the network.

    def receive_nack(self, nack: Nack, now: float, by_unicast: bool, group_is_multicast: bool) -> None:
        """A receiver asks for repairs."""
        self._cache.note_change()
        self._stats.nacks_received += 1
        is_answer = self._timing.note_feedback(nack, now)
        fresh = self._desk.take(nack, now)
        self._flow.note_repairs(fresh)
        self._hear(nack.source_id, is_answer, now)
        for item in self._desk.reopened:
            self._flusher.renew(item)
        if self._desk.is_squelch_due(now, 2 * self.grtt_s):
            self._commands.append(self._squelch)
        if fresh and by_unicast and group_is_multicast and self._backoff_factor:
            self._is_adv_due = True
            if not self.timers.is_set(Timer.ADVERTISE):
                self.timers.set(Timer.ADVERTISE, now)
        if self._desk.starts_gathering():
            wait = (self._backoff_factor + 1) * self.grtt_s if group_is_multicast else 0.0
            self.timers.set(Timer.REPAIR, now + wait)

    def receive_ack(self, ack: Ack, now: float) -> None:
        """A receiver answers a probe or a watermark."""
        self._cache.note_change()
        self._stats.acks_received += 1
        self._hear(ack.source_id, self._timing.note_feedback(ack, now), now)
        if ack.ack_type == AckType.FLUSH and isinstance(ack.content, Position):
            self._flusher.confirm(ack.source_id, ack.content, now)
            self._move_window(self._flow.confirm(ack.source_id, ack.content, now), now)

    # What the clock brings.

    def handle_timeout(self, now: float) -> None:
        """Act on every timer that has run out."""
        self._cache.note_change()
        timers = self.timers
        timers.expire(Timer.PACE, now)  # poll_train looks for itself
        if timers.expire(Timer.REPAIR, now) and self._desk.end_phase():
            timers.set(Timer.REPAIR, now + self.grtt_s)
        if timers.expire(Timer.ADVERTISE, now) and self._is_adv_due:
            self._is_adv_due = False
            self._advertise()
            timers.set(Timer.ADVERTISE, now + self.grtt_s / 4)
        if timers.expire(Timer.FLUSH, now):
            self._flusher.act(now, not self._is_sending and not self._desk.is_busy)
        if timers.expire(Timer.WINDOW, now):
            self._check_window(now)
        if timers.expire(Timer.PROBE, now):
            self._probe(now)
        if timers.expire(Timer.COMMAND, now):
            self._repeat_command(now)

    # What goes out.

    def poll_train(self, now: float) -> Train | None:
        """The next train to send, if one may go. It is good until the next call."""
        if self._ready:
            return self._ready.popleft()
        if not self._commands and (self._desk.has_repairs or self._queue):
            ready_at = self._timing.pacer.next_train_at(now)
            if ready_at > now:
                self.timers.set(Timer.PACE, ready_at)
                return None
            train = self._data_train(now)
            if train is not None:
                self._timing.pacer.spend(train.data.size)
                return train
        if self._commands:
            return self._trains.message(self._commands.popleft()(self._trains.common(), now))
        return None

    def _data_train(self, now: float) -> Train | None:
        """Repairs come first; but who asks for everything again and again shall not keep the new from going out."""
        is_turn_of_new = self._repairs_in_row >= _REPAIRS_IN_ROW_MAX
        train = (self._new_train(now) if is_turn_of_new else None) or self._repair_train(now)
        self._repairs_in_row = 0 if is_turn_of_new or train is None else self._repairs_in_row + 1
        return train or self._new_train(now)

    def _repair_train(self, now: float) -> Train | None:
        item = self._desk.next_object()
        if item is None:
            return None
        repairs = item.repairs
        try:
            if repairs.info:
                repairs.info = False
                item.recent.add(INFO_INDEX, INFO_INDEX + 1, now + self.grtt_s)
                return self._trains.info(item)
            block = self._desk.next_parity(item)
            if block is not None:
                rows = self._desk.spend_parity(item, block)
                train = self._trains.parity(item, block, rows)
            else:
                train = self._repaired(item, now)
        except OSError as error:
            self._fail(item, error, now)
            return None
        finally:
            self._desk.settle(item)
            self._cache.note_change()
        self._restart_timers(now)
        return train

    def _repaired(self, item: SendObject, now: float) -> Train:
        """Source segments that were asked for again: a whole run of them, or many single ones in one train."""
        segments = item.repairs.segments
        start, end = segments.first_range
        if end - start >= _RUN_SEGMENTS or segments.range_count == 1:
            train = self._trains.segments(item, start, end - start)
            sent = [(start, start + train.count)]
        else:
            train, indexes = self._trains.gathered(item, segments)
            sent = [(index, index + 1) for index in indexes]
        for first, after in sent:
            segments.remove(first, after)
            item.recent.add(first, after, now + self.grtt_s)
        self._stats.repair_segments_sent += train.count
        return train

    def _new_train(self, now: float) -> Train | None:
        if self._flow.room(now, (self.config.backoff_factor + 2) * self.grtt_s) <= 0:
            if self._flow.answers_by is not None:
                self.timers.set(Timer.WINDOW, self._flow.answers_by)
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
            self._mark_window(item, now, is_idle=False)
            return train
        return None

    def _next_of(self, item: SendObject, now: float) -> Train:
        if item.info_due:
            item.info_due = False
            return self._trains.info(item)
        if item.parity_due is not None:
            (block, rows), item.parity_due = item.parity_due, None
            return self._trains.parity(item, block, rows)
        count = min(item.sendable - item.next_index, self._flow.room(now, 0.0))
        if self.config.auto_parity:  # a train may not run past the block whose parity is to follow it
            block, symbol = locate(item.partition, item.next_index)
            length = item.partition.block_length(block)
            count = min(count, length - symbol)
        train, *others = self._trains.in_row(item, item.next_index, count)
        self._ready.extend(others)
        sent = sum(each.count for each in (train, *others))
        item.next_index += sent
        self._flow.note_sent(sent)
        self._stats.segments_sent += sent
        header_bytes = train.segment_bytes - self.config.segment_bytes
        self._stats.payload_bytes_sent += sum(each.data.size for each in (train, *others)) - sent * header_bytes
        if self.config.auto_parity and symbol + sent == length:
            item.parity_due = block, range(self.config.auto_parity)
        return train

    def _after_progress(self, item: SendObject) -> None:
        if isinstance(item, SendStream):
            self._tell_room(item)
            if not item.ring.is_ended:
                self._queue.rotate(-1)  # streams take turns
                return
        if item.is_sent:
            self._cache.note_change()
            self._queue.remove(item)
            item.sent_mark = self._flow.sent
            self._stats.objects_sent += 1

    # Objects.

    def _add(self, item: SendObject, now: float) -> int:
        self._cache.add(item)
        self._queue.append(item)
        if not self.timers.is_set(Timer.PROBE):
            self.timers.set(Timer.PROBE, now)
        return item.id

    def _stream(self, object_id: int) -> SendStream:
        item = self._cache.get(object_id)
        if not isinstance(item, SendStream) or item.ring.is_ended:
            raise NormError(f"object {object_id} is no open stream")
        return item

    def _checked(self, info: bytes | None) -> bytes | None:
        if info is not None and len(info) > self.config.segment_bytes:
            raise ConfigError(f"info of {len(info)} bytes: expected {self.config.segment_bytes} at most")
        return info

    def _fail(self, item: SendObject, error: OSError, now: float) -> None:
        self.cancel(item.id, now)
        self._emit(FileFailed(item.id, str(error)))

    # Commands.

    def _squelch(self, common: SenderFields, _now: float) -> Squelch:
        """What is still held: from the oldest object, and of a stream from its oldest block."""
        self._stats.squelches_sent += 1
        held = {item.id: item for item in self._cache}
        oldest = next(iter(held.values()), None)
        if oldest is None:
            position = Position(self.config.fec.fec_id, self._cache.next_id, 0)
            return Squelch(**common, position=position)
        block = -(-oldest.first_held // self.config.block_segments)
        position = Position(self.config.fec.fec_id, oldest.id, payload_id_format(self.config.fec.fec_id).pack(block, 0))
        span = OBJECT_ID.distance(oldest.id, self._cache.next_id)
        gone = (OBJECT_ID.add(oldest.id, step) for step in range(span))
        invalid = tuple(object_id for object_id in gone if object_id not in held)
        most = self.config.segment_bytes // 2
        if len(invalid) > most:  # a stream outlives many objects: tell of some now, of the others next time
            at = self._squelch_at % len(invalid)
            invalid = (invalid[at:] + invalid[:at])[:most]
            self._squelch_at = at + most
        return Squelch(**common, position=position, invalid_objects=invalid)

    def _advertise(self) -> None:
        """Tell all what some have asked for by unicast."""
        messages = self._desk.requests(self.config.segment_bytes)
        if messages:
            flags = REPAIR_ADV_LIMIT if len(messages) > 1 else 0
            requests = messages[0]
            self._commands.append(lambda common, _: RepairAdv(**common, flags=flags, requests=requests))

    def _repeat_command(self, now: float) -> None:
        content, left = self._robust_commands.popleft()
        self._commands.append(lambda common, _: Application(**common, content=content))
        if left > 1:
            self._robust_commands.append((content, left - 1))
        else:
            self._emit(CommandSent())
        if self._robust_commands:
            # All that wait get their turn within two round trips.
            self.timers.set(Timer.COMMAND, now + 2 * self.grtt_s / len(self._robust_commands))

    # Flow control.

    def set_receivers(self, nodes: frozenset[int], now: float, strangers: frozenset[int] = frozenset()) -> None:
        """Wait for these nodes, as far as flow control is to wait at all, and never for strangers."""
        was_active = self._flow.is_active
        self._cache.note_change()
        self._flow.set_nodes(nodes, now, strangers)
        self._note_crowd()
        if self._flow.is_active != was_active:
            self._note_waiting()

    def forget_receiver(self, node: int, now: float) -> None:
        """It has left: nothing waits for its confirmation any more."""
        was_active = self._flow.is_active
        self._move_window(self._flow.forget(node, now), now)
        self._note_crowd()
        if self._flow.is_active != was_active:
            self._note_waiting()
        self._flusher.excuse(node, now)

    @property
    def receivers(self) -> frozenset[int]:
        """The nodes that flow control waits for."""
        return self._flow.nodes

    @property
    def awaited_receivers(self) -> frozenset[int]:
        """Those of them that have still to confirm what was asked last."""
        return self._flow.awaited

    @property
    def evicted_receivers(self) -> frozenset[int]:
        """Those that were waited for in vain, and have neither come back nor left."""
        return self._flow.evicted

    @property
    def _backoff_factor(self) -> int:
        return self._trains.backoff_factor

    def _note_crowd(self) -> None:
        """A few receivers that are known need not wait for each other's NACKs: a loss is repaired the sooner."""
        are_few = self._flow.is_active and len(self._flow.nodes) <= _FEW
        self._trains.backoff_factor = 0 if are_few else self.config.backoff_factor

    def _hear(self, node: int, is_answer: bool, now: float) -> None:
        if self._flow.hear(node, is_answer, now):
            self._note_waiting()
            self.timers.set(Timer.WINDOW, now)
        self._note_crowd()

    def _note_waiting(self) -> None:
        """There is somebody to wait for, or nobody any more. What was let go of before is not theirs to confirm."""
        for item in self._cache:
            if isinstance(item, SendStream):
                if not self._flow.is_holding:
                    item.confirmed_index = None
                elif item.confirmed_index is None:
                    item.confirmed_index = item.next_index
                self._tell_room(item)

    def _mark_window(self, item: SendObject, now: float, is_idle: bool) -> None:
        """Ask for confirmation of all that has been sent, if it is time to."""
        if self._flow.is_mark_due(is_idle) and item.next_index:
            streams = {stream.id: stream.next_index for stream in self._queue if isinstance(stream, SendStream)}
            self._flow.set_mark(self._trains.position(item, item.next_index - 1), streams, now)
            self._ask_window(now)
        elif self._flow.is_ahead and self._flow.is_active and not self.timers.is_set(Timer.WINDOW):
            self.timers.set(Timer.WINDOW, now + max(self.grtt_s, _IDLE_S))

    def _ask_window(self, now: float) -> None:
        mark = self._flow.mark
        if mark is not None:
            nodes = tuple(mark.waiting)[: self.config.segment_bytes // 4]
            self._flusher.send(mark.position, nodes)
            self.timers.set(Timer.WINDOW, now + 2 * self.grtt_s)

    def _check_window(self, now: float) -> None:
        """Time has passed: ask again, give up the dead, or confirm what an idle sender sent last."""
        if self._flow.answers_by is not None and self._flow.answers_by <= now:
            self._flow.stop_waiting()
            self._note_waiting()
        gone, mark = self._flow.evict(now)
        for node in gone:
            self._emit(ReceiverEvicted(node))
        if gone:
            self._note_crowd()
        if gone and not self._flow.is_active:
            self._note_waiting()
        self._move_window(mark, now)
        if self._flow.mark is not None:
            self._ask_window(now)
        elif self._flusher.last is not None:
            self._mark_window(self._flusher.last, now, is_idle=True)

    def _move_window(self, mark: Mark | None, now: float) -> None:
        """All that are waited for have what was sent up to a mark."""
        if mark is None:
            return
        for object_id, index in mark.streams.items():
            stream = self._cache.get(object_id)
            if isinstance(stream, SendStream) and self._flow.is_active:
                stream.confirmed_index = index
                self._tell_room(stream)
        self._cache.make_room()
        if self._flusher.last is not None:
            self._mark_window(self._flusher.last, now, is_idle=False)

    def _tell_room(self, stream: SendStream) -> None:
        """Let a writer that waits know, once it is worth while."""
        if stream.is_room_wanted and stream.room >= stream.ring.rows * stream.ring.segment_bytes // 8:
            stream.is_room_wanted = False
            self._emit(StreamWritable(stream.id))

    def _is_confirmed(self, item: SendObject) -> bool:
        return not self._flow.is_active or item.sent_mark <= self._flow.confirmed

    # Probing.

    @property
    def _is_sending(self) -> bool:
        return self._desk.has_repairs or not all(item.is_sent for item in self._queue)

    def _restart_timers(self, now: float) -> None:
        """Data went out."""
        self._flusher.restart(now)
        if self._timing.follows_receivers and self.timers.deadline(Timer.PROBE) > now + self.grtt_s:
            self.timers.set(Timer.PROBE, now)  # idle until now: the rate is to follow what comes back

    def _probe(self, now: float) -> None:
        self._commands.append(self._cc_message)
        self.timers.set(Timer.PROBE, now + self._timing.probe(now, self._is_sending))

    def _cc_message(self, common: SenderFields, now: float) -> CongestionControl:
        seconds, microseconds = wire_time(now)
        return CongestionControl(
            **common,
            cc_sequence=self._timing.cc_sequence,
            send_time_s=seconds,
            send_time_us=microseconds,
            nodes=self._timing.nodes,
            extensions=(Rate(self._timing.rate_q),),
        )
