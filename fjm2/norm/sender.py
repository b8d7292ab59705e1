"""The sending half of a node: what goes out next, and when (RFC 5740, 5.1, 5.4 and 5.5).

`poll_train` asks in order of urgency: commands, repairs, new data. Whatever arrives or times out only changes what it
will find.
"""

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from fjm2.errors import ConfigError, NormError

from .acking import Watermark
from .cache import SendCache
from .config import SenderConfig
from .events import CommandSent, Event, FileFailed, GrttUpdated, StreamWritable, TransmissionFlushed
from .grtt import Grtt
from .nack import Place
from .objects import Rows, SendData, SendObject, SendStream, stream_fti
from .pacing import Pacer
from .partition import locate
from .quantize import RTT_MIN_S, quantize_group_size, quantize_rate, rtt_of
from .ranges import OBJECT_ID
from .repair import RepairDesk
from .sources import Source
from .stats import Stats
from .tfmcc import Tfmcc
from .timers import NEVER, Timer, TimerTable, time_of_wire, wire_time
from .train import TRAIN_BYTES_MAX, TRAIN_SEGMENTS_MAX, Address, Train
from .wire import (
    REPAIR_ADV_LIMIT,
    Ack,
    AckType,
    Application,
    CcFeedback,
    CongestionControl,
    Data,
    EndOfTransmission,
    Flush,
    FromReceiver,
    Fti,
    HeaderStamp,
    Info,
    Message,
    Nack,
    Position,
    Rate,
    RepairAdv,
    Squelch,
    payload_id_format,
)

PROBE_FIRST_S = 0.05
PROBE_MIN_S = 0.001
PROBE_GROWTH = 1.5
PROBE_MAX_S = 30.0
_UNLIMITED_BYTES_PER_S = 1.25e9  # what is advertised where nothing limits the rate
_HEADER_ROOM = 44  # the longest header of a DATA that we send: FEC id 0's EXT_FTI, and a stream's own


class Common(TypedDict):
    """The fields that every message of a sender has."""

    sequence: int
    source_id: int
    instance_id: int
    grtt_q: int
    backoff: int
    gsize_q: int


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
        self._node_id = node_id
        self._group = group
        self._stats = stats
        self._emit = emit
        self._sequence = random.getrandbits(16)
        self._gsize_q = quantize_group_size(config.group_size)
        self._format = payload_id_format(config.fec.fec_id)
        self._grtt = Grtt(config)
        self._tfmcc = Tfmcc(config, config.grtt_s) if config.cc else None
        self._pacer = Pacer(self._tfmcc.bytes_per_s * 8 if self._tfmcc else config.rate_bps)
        self._grtt_q = self._grtt.code(self._bytes_per_s)
        self._cache = SendCache(config, random.getrandbits(16), emit)
        self._desk = RepairDesk(self._cache, config, self._place, stats)
        self._queue: deque[SendObject] = deque()
        """Objects with data never sent, and open streams."""
        self._commands: deque[Callable[[Common, float], Message]] = deque()
        self._robust_commands: deque[tuple[bytes, int]] = deque()
        """Application commands and how often each is still to be sent."""
        self._watermarks: deque[Watermark] = deque()
        self._watermark_count = 0
        self._flushes_left = 0
        self._moved: dict[SendObject, None] = {}
        """Streams that have gone on since all was flushed: objects that come after them say nothing of their ends."""
        self._last: SendObject | None = None
        """The newest object that data went out of."""
        self._probe_s = 0.0
        self._cc_sequence = 0
        self._is_adv_due = False
        self._ramp = np.arange(TRAIN_SEGMENTS_MAX, dtype=np.int64)
        stats.grtt_s = self.grtt_s

    # What the application wants.

    @property
    def grtt_s(self) -> float:
        """The group's round-trip time as advertised."""
        return rtt_of(self._grtt_q)

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
        header = self._data_header(object_id, SendStream.flags, stream_fti(self.config))
        return self._add(SendStream(object_id, self._checked(info), self.config, header), now)

    def write(self, object_id: int, data: memoryview, marks: Sequence[int]) -> int:
        """Append to a stream as much as there is room for; marks tell where messages begin. The bytes taken."""
        stream = self._stream(object_id)
        taken = min(len(data), stream.room)
        if taken:
            stream.ring.write(data[:taken], [mark for mark in marks if mark < taken] if marks else marks)
        if taken < len(data):
            stream.is_room_wanted = True
            self._stats.window_waits += 1
        return taken

    def flush_stream(self, object_id: int) -> None:
        """Let what has been written go, even if it fills no segment."""
        ring = self._stream(object_id).ring
        if ring.has_partial:
            ring.close_segment()

    def end_stream(self, object_id: int) -> None:
        """Close a stream: its receivers will know that nothing more comes."""
        self._stream(object_id).ring.end()

    def cancel(self, object_id: int, now: float) -> None:
        """Send nothing more of an object; receivers that ask for it are told so."""
        item = self._cache.get(object_id)
        if item is not None:
            self._desk.forget(item)
            self._cache.remove(item)
            self._moved.pop(item, None)
            if item is self._last:
                self._last = None
            if item in self._queue:
                self._queue.remove(item)
            self._flushes_left = self.config.robust_factor
            self._arm_flush(now)

    def watermark(self, nodes: Sequence[int], now: float) -> int:
        """Ask nodes to confirm all that has been queued or written so far. The watermark's number."""
        item = self._queue[-1] if self._queue else self._last
        if item is None:
            raise ConfigError("a watermark before any data: there is nothing to confirm")
        if isinstance(item, SendStream) and item.ring.has_partial:
            item.ring.close_segment()
        index = max(item.sendable - 1, 0)
        tries = dict.fromkeys(nodes, self.config.robust_factor)
        self._watermark_count += 1
        position = self._end_position(item, index)
        self._watermarks.append(Watermark(self._watermark_count, position, item.id, index, tries))
        self._arm_flush(now)
        return self._watermark_count

    def send_command(self, content: bytes, is_robust: bool, now: float) -> None:
        """Send a CMD(APPLICATION), once or as often as the robust factor says."""
        if len(content) > self.config.segment_bytes:
            raise ConfigError(f"a command of {len(content)} bytes: expected {self.config.segment_bytes} at most")
        self._robust_commands.append((content, self.config.robust_factor if is_robust else 1))
        if not self.timers.is_set(Timer.COMMAND):
            self.timers.set(Timer.COMMAND, now)

    def close(self) -> None:
        """Tell receivers that nothing more will come."""
        if self._last is not None or self._queue:
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
        self._stats.nacks_received += 1
        self._note_feedback(nack, now)
        is_new = self._desk.take(nack, now)
        for item in self._desk.reopened:
            self._renew_watermarks(item)
        if self._desk.is_squelch_due(now, 2 * self.grtt_s):
            self._commands.append(self._squelch)
        if is_new and by_unicast and group_is_multicast and self.config.backoff_factor:
            self._is_adv_due = True
            if not self.timers.is_set(Timer.ADVERTISE):
                self.timers.set(Timer.ADVERTISE, now)
        if self._desk.starts_gathering():
            wait = (self.config.backoff_factor + 1) * self.grtt_s if group_is_multicast else 0.0
            self.timers.set(Timer.REPAIR, now + wait)

    def receive_ack(self, ack: Ack, now: float) -> None:
        """A receiver answers a probe or a watermark."""
        self._stats.acks_received += 1
        self._note_feedback(ack, now)
        if ack.ack_type == AckType.FLUSH and self._watermarks and isinstance(ack.content, Position):
            watermark = self._watermarks[0]
            if watermark.confirm(ack.source_id, ack.content) and watermark.is_done:
                self._end_watermark(now)

    # What the clock brings.

    def handle_timeout(self, now: float) -> None:
        """Act on every timer that has run out."""
        timers = self.timers
        timers.expire(Timer.PACE, now)  # poll_train looks for itself
        if timers.expire(Timer.REPAIR, now) and self._desk.end_phase():
            timers.set(Timer.REPAIR, now + self.grtt_s)
        if timers.expire(Timer.ADVERTISE, now) and self._is_adv_due:
            self._is_adv_due = False
            self._advertise()
            timers.set(Timer.ADVERTISE, now + self.grtt_s / 4)
        if timers.expire(Timer.FLUSH, now):
            self._flush(now)
        if timers.expire(Timer.PROBE, now):
            self._probe(now)
        if timers.expire(Timer.COMMAND, now):
            self._repeat_command(now)

    # What goes out.

    def poll_train(self, now: float) -> Train | None:
        """The next train to send, if one may go. It is good until the next call."""
        if not self._commands and (self._desk.has_repairs or self._queue):
            ready_at = self._pacer.ready_at(now)
            if ready_at > now:
                self.timers.set(Timer.PACE, ready_at)
                return None
            train = self._repair_train(now) or self._new_train(now)
            if train is not None:
                self._pacer.spend(train.data.size)
                return train
        if self._commands:
            return self._message_train(self._commands.popleft()(self._common(), now))
        return None

    def _repair_train(self, now: float) -> Train | None:
        item = self._desk.next_object()
        if item is None:
            return None
        repairs = item.repairs
        try:
            if repairs.info:
                repairs.info = False
                return self._info_train(item)
            block = self._desk.next_parity(item)
            if block is not None:
                rows = self._desk.spend_parity(item, block)
                train = self._parity_train(item, block, rows)
            else:
                start, end = repairs.segments.first_range
                train = self._segment_train(item, start, end - start)
                count = -(-train.data.size // train.segment_bytes)
                repairs.segments.remove(start, start + count)
                item.recent.add(start, start + count, now + self.grtt_s)
                self._stats.repair_segments_sent += count
        except OSError as error:
            self._fail(item, error, now)
            return None
        finally:
            self._desk.settle(item)
        self._restart_flush(now)
        return train

    def _new_train(self, now: float) -> Train | None:
        for _ in range(len(self._queue)):
            item = self._queue[0]
            if item.is_sent:
                self._queue.rotate(-1)
                continue
            if self._last is None or item.order > self._last.order:
                self._last = item
            if isinstance(item, SendStream):
                self._moved[item] = None
            try:
                train = self._next_of(item)
            except OSError as error:
                self._fail(item, error, now)
                return None
            self._after_progress(item)
            self._restart_flush(now)
            return train
        return None

    def _next_of(self, item: SendObject) -> Train:
        if item.info_due:
            item.info_due = False
            return self._info_train(item)
        if item.parity_due is not None:
            (block, rows), item.parity_due = item.parity_due, None
            return self._parity_train(item, block, rows)
        count = item.sendable - item.next_index
        if self.config.auto_parity:  # a train may not run past the block whose parity is to follow it
            block, symbol = locate(item.partition, item.next_index)
            length = item.partition.block_length(block)
            count = min(count, length - symbol)
        train = self._segment_train(item, item.next_index, count)
        sent = train.count
        item.next_index += sent
        if self.config.auto_parity and symbol + sent == length:
            item.parity_due = block, range(self.config.auto_parity)
            item.fresh_parity[block] = self.config.auto_parity
        return train

    def _after_progress(self, item: SendObject) -> None:
        if isinstance(item, SendStream):
            if item.is_room_wanted and item.room >= item.ring.rows * item.ring.segment_bytes // 8:
                item.is_room_wanted = False
                self._emit(StreamWritable(item.id))
            if not item.ring.is_ended:
                self._queue.rotate(-1)  # streams take turns
                return
        if item.is_sent:
            self._queue.remove(item)
            self._stats.objects_sent += 1

    def _segment_train(self, item: SendObject, first: int, count: int) -> Train:
        """Source segments from `first` on: as many as are alike and fit."""
        self._preset(item)
        region = item.partition.region(first)
        row_bytes = self.config.segment_bytes + _HEADER_ROOM
        most = self._pacer.train_bytes(TRAIN_BYTES_MAX) // row_bytes
        count = max(1, min(count, region.end - first, TRAIN_SEGMENTS_MAX, most))
        block, symbol = divmod(first - region.start, region.block_segments)
        payload_ids: NDArray[np.int64] = self._ramp[:count] + self._format.pack(region.first_block + block, symbol)
        if symbol + count > region.block_segments:
            blocks, symbols = np.divmod(self._ramp[:count] + (first - region.start), region.block_segments)
            payload_ids = (blocks + region.first_block) << self._format.symbol_bits | symbols
        # Block numbers of streams wrap; the cast to 32 bits takes care of that.
        rows = item.source_rows(first, count, self._sequence, payload_ids.astype(np.uint32))
        return self._row_train(rows)

    def _parity_train(self, item: SendObject, block: int, rows: range) -> Train:
        self._preset(item)
        symbols = item.parity_rows(block, rows)
        header = self._data_header(item.id, item.flags, item.fti)
        header_bytes = len(header.encode())
        row_bytes = header_bytes + symbols.shape[1]
        buffer = np.zeros(len(symbols) * row_bytes, np.uint8)
        buffer.reshape(-1, row_bytes)[:, header_bytes:] = symbols
        first = item.partition.block_length(block) + rows.start
        payload_ids = self._ramp[: len(symbols)] + self._format.pack(block, first)
        HeaderStamp(buffer, row_bytes, header).stamp(self._sequence, payload_ids.astype(np.uint32))
        self._stats.parity_segments_sent += len(symbols)
        return self._row_train(Rows(buffer, row_bytes, len(symbols)))

    def _row_train(self, rows: Rows) -> Train:
        self._sequence = (self._sequence + rows.count) & 0xFFFF
        return self._sent(Train(rows.data, rows.row_bytes, self._group))

    def _info_train(self, item: SendObject) -> Train:
        assert item.info is not None
        header = self._data_header(item.id, item.flags, item.fti)
        info = Info(
            **self._common(),
            flags=item.flags,
            fec_id=header.fec_id,
            object_id=item.id,
            extensions=header.extensions,
            content=item.info,
        )
        return self._message_train(info)

    def _message_train(self, message: Message) -> Train:
        self._sequence = (self._sequence + 1) & 0xFFFF
        data = np.frombuffer(message.encode(), np.uint8)
        return self._sent(Train(data, data.size, self._group))

    def _sent(self, train: Train) -> Train:
        self._stats.datagrams_sent += train.count
        self._stats.bytes_sent += train.data.size
        return train

    def _common(self) -> Common:
        return {
            "sequence": self._sequence,
            "source_id": self._node_id,
            "instance_id": self.instance_id,
            "grtt_q": self._grtt_q,
            "backoff": self.config.backoff_factor,
            "gsize_q": self._gsize_q,
        }

    def _data_header(self, object_id: int, flags: int, fti: Fti) -> Data:
        return Data(
            **self._common(),
            flags=flags,
            fec_id=fti.fec_id,
            object_id=object_id,
            payload_id=0,
            payload=b"",
            extensions=(fti,),
        )

    def _preset(self, item: SendObject) -> None:
        """Bring an object's headers up to date, if what all of them say has changed."""
        if item.preset_code != self._grtt_q:
            item.preset_code = self._grtt_q
            item.preset(self._data_header(item.id, item.flags, item.fti))

    # Objects.

    def _add(self, item: SendObject, now: float) -> int:
        self._cache.add(item)
        self._queue.append(item)
        if not self.timers.is_set(Timer.PROBE):
            self._probe_s = PROBE_FIRST_S
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

    def _place(self, item: SendObject) -> Place:
        return Place(self.config.fec.fec_id, self._format, item.id, item.partition)

    def _end_position(self, item: SendObject, index: int) -> Position:
        if item.sendable == 0:  # an object that is all INFO
            return Position(self.config.fec.fec_id, item.id, self._format.pack(-1, -1))
        return self._place(item).of(index)

    # Flushing and watermarks.

    def _restart_flush(self, now: float) -> None:
        """Data went out: what is to be flushed lies further on."""
        self._flushes_left = self.config.robust_factor
        if self._tfmcc is not None and self.timers.deadline(Timer.PROBE) > now + self.grtt_s:
            self.timers.set(Timer.PROBE, now)  # idle until now: the rate is to follow what comes back
        if self._watermarks and self._is_passed(self._watermarks[0]):
            if not self.timers.is_set(Timer.FLUSH):
                self.timers.set(Timer.FLUSH, now)
        elif not self._watermarks:
            # The next data will move it on again: a busy sender never flushes.
            self.timers.set(Timer.FLUSH, now + self.grtt_s)

    def _arm_flush(self, now: float) -> None:
        if not self.timers.is_set(Timer.FLUSH):
            self.timers.set(Timer.FLUSH, now)

    def _flush(self, now: float) -> None:
        """Say how far the data go, and ask for the watermark's confirmation where there is one."""
        while self._watermarks and self._is_passed(self._watermarks[0]):
            watermark = self._watermarks[0]
            nodes = watermark.ask(self.config.segment_bytes // 4)
            if not watermark.is_done:
                self._send_flush(watermark.position, nodes)
                self.timers.set(Timer.FLUSH, now + 2 * self.grtt_s)
                return
            self._end_watermark(now)
        is_idle = not self._desk.is_busy and all(item.is_sent for item in self._queue)
        if is_idle and self._flushes_left:
            last = self._last
            if last is None:
                self._flushes_left = 0
            else:
                self._flushes_left -= 1
                for item in [*(stream for stream in self._moved if stream is not last), last]:
                    self._send_flush(self._end_position(item, item.sendable - 1), ())
            if not self._flushes_left:
                self._moved.clear()
                self._emit(TransmissionFlushed(None if last is None else last.id))
        if self._flushes_left or self._watermarks:
            self.timers.set(Timer.FLUSH, now + 2 * self.grtt_s)

    def _send_flush(self, position: Position, nodes: tuple[int, ...]) -> None:
        self._stats.flushes_sent += 1
        self._commands.append(lambda common, _: Flush(**common, position=position, acking_nodes=nodes))

    def _is_passed(self, watermark: Watermark) -> bool:
        """Whether all up to the mark has been sent."""
        item = self._cache.get(watermark.object_id)
        if item is None:
            return True
        if item.info_due or (item.next_index <= watermark.index and item.sendable):
            return False
        return not (item.repairs.segments and item.repairs.segments.first <= watermark.index)

    def _end_watermark(self, now: float) -> None:
        self._emit(self._watermarks.popleft().event())
        if self._watermarks:
            self._arm_flush(now)

    def _renew_watermarks(self, item: SendObject) -> None:
        """Data before a mark are sent again: its nodes get as many more chances."""
        for watermark in self._watermarks:
            marked = self._cache.get(watermark.object_id)
            if marked is not None and item.order <= marked.order:
                watermark.renew(self.config.robust_factor)

    # Commands.

    def _squelch(self, common: Common, _now: float) -> Squelch:
        """What is still held: from the oldest object, and of a stream from its oldest block."""
        self._stats.squelches_sent += 1
        held = {item.id: item for item in self._cache}
        oldest = next(iter(held.values()), None)
        if oldest is None:
            position = Position(self.config.fec.fec_id, self._cache.next_id, 0)
            return Squelch(**common, position=position)
        block = -(-oldest.first_held // self.config.block_segments)
        position = Position(self.config.fec.fec_id, oldest.id, self._format.pack(block, 0))
        span = OBJECT_ID.distance(oldest.id, self._cache.next_id)
        gone = (OBJECT_ID.add(oldest.id, step) for step in range(span))
        invalid = tuple(object_id for object_id in gone if object_id not in held)
        return Squelch(**common, position=position, invalid_objects=invalid[: self.config.segment_bytes // 2])

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

    # Round-trip time.

    def _probe(self, now: float) -> None:
        self._grtt.end_probe()
        self._stats.probes_sent += 1
        self._commands.append(self._cc_message)
        is_sending = self._desk.has_repairs or not all(item.is_sent for item in self._queue)
        if self._tfmcc is not None:
            self._tfmcc.check(now, is_sending)
            self._pacer.set_rate(self._tfmcc.bytes_per_s, now)
        if self._tfmcc is not None and is_sending:
            interval_s = min(self.grtt_s, self._tfmcc.clr_rtt_s or self.grtt_s)
        else:
            interval_s = max(self._probe_s, (self.config.backoff_factor + 2) * self.grtt_s)
            self._probe_s = min(self._probe_s * PROBE_GROWTH, PROBE_MAX_S)
        self._update_grtt()
        self.timers.set(Timer.PROBE, now + max(interval_s, PROBE_MIN_S))

    def _cc_message(self, common: Common, now: float) -> CongestionControl:
        self._cc_sequence = (self._cc_sequence + 1) & 0xFFFF
        seconds, microseconds = wire_time(now)
        return CongestionControl(
            **common,
            cc_sequence=self._cc_sequence,
            send_time_s=seconds,
            send_time_us=microseconds,
            nodes=self._tfmcc.nodes() if self._tfmcc is not None else (),
            extensions=(Rate(quantize_rate(self._bytes_per_s)),),
        )

    def _note_feedback(self, message: FromReceiver, now: float) -> None:
        """What every answer tells: how long the way is, and how the receiver fares."""
        rtt_s = self._rtt_of(message, now)
        if rtt_s is not None:
            self._grtt.sample(rtt_s)
            self._update_grtt()
        if self._tfmcc is not None:
            for extension in message.extensions:
                if isinstance(extension, CcFeedback):
                    self._tfmcc.report(message.source_id, extension, rtt_s, isinstance(message, Nack), now)
                    self._pacer.set_rate(self._tfmcc.bytes_per_s, now)

    def _rtt_of(self, message: FromReceiver, now: float) -> float | None:
        if not (message.grtt_response_s or message.grtt_response_us):
            return None
        rtt_s = now - time_of_wire(message.grtt_response_s, message.grtt_response_us)
        if not -0.001 < rtt_s <= self.config.grtt_max_s:  # nonsense, or an echo from an earlier life
            return None
        return max(rtt_s, RTT_MIN_S)

    def _update_grtt(self) -> None:
        code = self._grtt.code(self._bytes_per_s)
        if code != self._grtt_q:
            self._grtt_q = code
            self._stats.grtt_s = self.grtt_s
            self._emit(GrttUpdated(self.grtt_s))

    @property
    def _bytes_per_s(self) -> float:
        rate = self._pacer.bytes_per_s
        return _UNLIMITED_BYTES_PER_S if rate == NEVER else rate
