"""The receiving half of a node: one remote sender's objects on their way in (RFC 5740, 5.2 and 5.3).

Whatever arrives updates what is wanted; `Asking` decides when to say so.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from .asking import Asking
from .config import ReceiverConfig, Sync
from .congestion import CcResponder
from .events import (
    CommandReceived,
    Event,
    InfoReceived,
    LossReason,
    ObjectCompleted,
    ObjectLost,
    ObjectsMissed,
    SenderAppeared,
    SenderVanished,
)
from .incoming import IncomingData, IncomingObject, code_of
from .instream import IncomingStream
from .nack import Place
from .partition import UNBOUNDED, ObjectPartition, Partition, StreamPartition, locate
from .ranges import Serial
from .remote import Remote
from .stats import Drop, Stats
from .stores import FileStore, MemoryStore, Store
from .timers import Timer, TimerTable
from .train import TRAIN_SEGMENTS_MAX, Address
from .window import ObjectWindow
from .wire import (
    Ack,
    AckType,
    Application,
    CcFeedback,
    CongestionControl,
    DataRun,
    Flush,
    FromSender,
    Fti,
    Info,
    Message,
    Nack,
    ObjectFlag,
    Position,
    RepairAdv,
    RepairRequest,
    RunHeader,
    Squelch,
    payload_id_format,
)

_SELF_CHECK_MIN_S = 1.0
_SELF_CHECK_ROUNDS = 20
ACKS_AT_ONCE = 8
"""So few nodes may confirm a watermark at once; more spread their answers over a round trip (RFC 5740, 5.5.3)."""
_PROOF_BYTES = 1 << 16
_OPEN_FILES_MAX = 256
"""Objects that all senders together may have in temporary files at once."""
_NO_TAIL = np.empty(0, np.uint8)


@dataclass(slots=True)
class Context:
    """What all receivers of a node share."""

    node_id: int
    config: ReceiverConfig
    random: Random
    stats: Stats
    emit: Callable[[Event], None]
    send: Callable[[Message, Address | None], None]
    """Send a message to an address, or to the group."""
    group_is_multicast: bool
    used_bytes: int = 0
    """Memory that all objects on their way in take."""


class Receiver:
    """One incarnation of a remote sender, and what comes from it."""

    def __init__(self, message: FromSender, address: Address, context: Context, now: float) -> None:
        self.remote = Remote(message.source_id, message.instance_id, address, now, now)
        self.remote.update(message, address)
        self.timers = TimerTable()
        self.used_bytes = 0
        self.data_bytes = 0
        """What it has sent of its objects, repetitions included."""
        self.is_proven = False
        """Whether anything of it ever arrived whole, or at least a lot."""
        self._context = context
        self._config = context.config
        self._window = ObjectWindow(context.config.objects_max)
        self._cc = CcResponder(context.node_id, self.remote, context.random, context.group_is_multicast)
        self._asking = Asking(
            self._window,
            self.remote,
            self.timers,
            context.random,
            context.stats,
            context.group_is_multicast,
            self._send_nack,
        )
        self._ahead: IncomingObject | None = None
        """What the last run went to, if nothing of it is missing: the next one most likely goes on there."""
        self._ahead_header: RunHeader | None = None
        self._ahead_count = 0
        self._ack_position: Position | None = None
        self._self_checks_left = 0
        self.timers.set(Timer.INACTIVE, now + self._config.inactivity_s)
        context.emit(SenderAppeared(self.remote.node_id, self.remote.instance_id, address))

    # What comes from the network.

    def hear(self, message: FromSender, address: Address, now: float) -> None:
        """Any message of the sender's."""
        self.remote.heard_at = now
        self.remote.update(message, address)

    def receive_ahead(self, run: DataRun, address: Address, now: float) -> bool:
        """Take a run that goes on where the last one ended: the way that nearly all data go.

        False, and nothing has been done, where anything is unusual: `receive_run` can take it then.
        """
        item = self._ahead
        if item is None or run.header is not self._ahead_header or run.count > TRAIN_SEGMENTS_MAX:
            return False
        first, count = item.first_wanted, run.count
        is_full = len(run.payloads) == 0 or run.payloads.shape[1] == item.symbol_bytes
        if not is_full or run.tail.size > item.symbol_bytes or first + count >= item.place.partition.segments:
            return False
        if first + count > item.place.partition.region(first).end:
            return False
        payload_ids = run.headers["payload_id"]
        if payload_ids.tobytes() != item.place.payload_ids(first, count).astype(payload_ids.dtype).tobytes():
            return False
        try:
            if not item.append(run.payloads, run.tail):
                return False
        except (OSError, MemoryError):
            return False  # it will fail again there, and be dealt with
        size = run.payloads.size + run.tail.size
        self._cc.note_data(run.headers["sequence"], size, now)
        self._asking.credit_bytes += size
        self.data_bytes += size
        self._see(item, first + count, is_flush=False)
        self.remote.address = address
        self.remote.heard_at = self.remote.data_at = now
        self._self_checks_left = _SELF_CHECK_ROUNDS
        if item.is_complete:
            self._progress(self._ahead_count, item, now)
        else:
            self._account(item)
            self._arm_self_check(now)
        return True

    def receive_run(self, run: DataRun, now: float) -> None:
        """A run of DATA."""
        header = run.header.message
        self._ahead = None
        sequences = run.headers["sequence"]
        size = run.payloads.size + run.tail.size
        self._cc.note_data(sequences, size, now)
        self._asking.credit_bytes += size
        self.data_bytes += size
        fti = run.header.fti
        is_wide = fti is not None and fti.field_bits == 16
        pid = payload_id_format(header.fec_id, 16 if is_wide else 8)
        payload_ids = run.headers["payload_id"].astype(np.int64)
        count = self._admit(header.object_id, header.flags, pid.block(int(run.headers["payload_id"][0])))
        if count is None:
            return
        item = self._window.open.get(count) or self._open(count, header.object_id, header.flags, fti, now)
        if item is None:
            return
        is_other = header.fec_id != item.fti.fec_id or run.header.is_stream != isinstance(item, IncomingStream)
        if is_other or (fti is not None and fti != item.fti):
            self._context.stats.drop(Drop.FTI_MISMATCH, run.count)
            return
        pid = item.place.format
        symbols = payload_ids & ((1 << pid.symbol_bits) - 1)
        blocks = payload_ids >> (pid.symbol_bits + pid.length_bits) & ((1 << pid.block_bits) - 1)
        if not self._start_stream(item, blocks, symbols):
            return
        try:
            self._receive_symbols(item, run, blocks, symbols)
        except (OSError, MemoryError):
            self._context.stats.drop(Drop.NO_MEMORY, run.count)
            self._lose(count, LossReason.FAILED)
            return
        self._progress(count, item, now)
        if count in self._window.open and not item.is_wanting():
            self._ahead, self._ahead_header, self._ahead_count = item, run.header, count

    def _receive_symbols(
        self, item: IncomingObject, run: DataRun, blocks: NDArray[np.int64], symbols: NDArray[np.int64]
    ) -> None:
        """Sort source from parity, cut what is not consecutive, and hand it to the object."""
        partition, stats = item.place.partition, self._context.stats
        if partition.blocks == UNBOUNDED:
            blocks = _unwrap(blocks, item)
        indexes = partition.indexes(blocks, symbols)
        indexes[indexes < 0] = -2  # no two of them are consecutive, nor are the last of them and the first segment
        if max(run.payloads.shape[1] if len(run.payloads) else 0, run.tail.size) > item.symbol_bytes:
            stats.drop(Drop.OVERSIZE, run.count)
            return
        cuts = (np.flatnonzero(np.diff(indexes) != 1) + 1).tolist()
        full = len(run.payloads)
        for start, end in zip([0, *cuts], [*cuts, run.count], strict=True):
            first = int(indexes[start])
            if first < 0:
                payload = run.payloads[start] if start < full else run.tail
                self._receive_odd(item, int(blocks[start]), int(symbols[start]), payload)
                continue
            if first + end - start > item.place.partition.segments:
                stats.drop(Drop.BAD_POSITION, end - start)
                continue
            tail = run.tail if end > full else _NO_TAIL
            item.receive(first, run.payloads[start : min(end, full)], tail)
            self._see(item, first + end - start, is_flush=False)

    def _receive_odd(self, item: IncomingObject, block: int, symbol: int, payload: NDArray[np.uint8]) -> None:
        """A symbol that is no source symbol."""
        partition = item.place.partition
        if not 0 <= block < partition.blocks or symbol - partition.block_length(block) >= item.fti.parity_segments:
            self._context.stats.drop(Drop.BAD_POSITION)
            return
        item.receive_parity(block, symbol - partition.block_length(block), payload)
        self._see(item, partition.first_segment(block) + partition.block_length(block), is_flush=False)

    def receive_info(self, info: Info, now: float) -> None:
        """The INFO of an object."""
        self._cc.loss.note(info.sequence, 1, info.sequence, now, self.remote.grtt_s)
        fti = next((extension for extension in info.extensions if isinstance(extension, Fti)), None)
        flags = info.flags | ObjectFlag.INFO
        count = self._admit(info.object_id, flags, 0)
        if count is None:
            return
        item = self._window.open.get(count) or self._open(count, info.object_id, flags, fti, now)
        if item is None:
            return
        if item.info is None:
            if len(info.content) > item.fti.segment_bytes:
                self._context.stats.drop(Drop.OVERSIZE)
                return
            item.info = info.content
            self._context.emit(InfoReceived(self.remote.node_id, info.object_id, info.content))
        self._progress(count, item, now)

    def receive_flush(self, flush: Flush, now: float) -> None:
        """All up to a position has been sent; perhaps we are to confirm it."""
        self.remote.data_at = now
        is_asked = self._context.node_id in flush.acking_nodes
        fec_id, object_id, payload_id = flush.position
        if not self._window.is_synced:
            if not is_asked:
                return
            self.remote.fec_id, self.remote.field_bits = fec_id, 8
            self._window.sync(object_id)
        count = self._window.count_of(object_id)
        if count >= self._window.end:
            self._extend(count + 1)
        item = self._window.open.get(count)
        if item is not None:
            self._see(item, self._index_of(item, payload_id) + 1, is_flush=True)
        self._asking.check(now)
        if is_asked and self._has_all_to(count):
            self._ack_position = flush.position
            is_crowd = self._context.group_is_multicast and len(flush.acking_nodes) > ACKS_AT_ONCE
            if not is_crowd:
                self._send_ack(AckType.FLUSH, flush.position, now)
            elif not self.timers.is_set(Timer.ACK):
                self.timers.set(Timer.ACK, now + self._context.random.uniform(0.0, self.remote.grtt_s))
        self._arm_self_check(now)

    def receive_squelch(self, squelch: Squelch, now: float) -> None:
        """The sender no longer holds what comes before a position."""
        _, object_id, payload_id = squelch.position
        window = self._window
        if not window.is_synced:
            window.sync(object_id)
            return
        oldest = window.count_of(object_id)
        for count in sorted(window.open):
            if count < oldest:
                self._lose(count, LossReason.SQUELCHED)
        window.end = max(window.end, oldest)
        for start, end in list(window.unheard()):
            if start < oldest:
                window.skip(start, min(end, oldest))
                self._miss(start, min(end, oldest))
        item = window.open.get(oldest)
        if isinstance(item, IncomingStream):
            item.give_up(min(self._index_of(item, payload_id), item.seen_end), LossReason.SQUELCHED)
            self._progress(oldest, item, now)
        invalid = set(squelch.invalid_objects)
        unheard = (count for start, end in window.unheard() for count in range(start, end))
        for count in [count for count in (*window.open, *unheard) if count >= oldest and count & 0xFFFF in invalid]:
            self._lose(count, LossReason.SQUELCHED)

    def receive_probe(self, probe: CongestionControl, now: float) -> None:
        """A CMD(CC), to be answered some time."""
        self._cc.loss.note(probe.sequence, 1, probe.sequence, now, self.remote.grtt_s)
        self.remote.note_probe(probe, now)
        self._cc.note_probe(probe, now)
        self._arm_feedback()

    def receive_application(self, command: Application) -> None:
        """The application's own command."""
        self._context.emit(CommandReceived(self.remote.node_id, command.content))

    def overhear(self, requests: tuple[RepairRequest, ...], feedback: CcFeedback | None) -> None:
        """Another receiver, or the sender on behalf of one, asks for repairs or reports."""
        self._asking.overhear(requests)
        if feedback is not None:
            self._cc.overhear(feedback)
            self._arm_feedback()

    def receive_repair_adv(self, advertised: RepairAdv) -> None:
        """The sender repeats what it was asked by unicast."""
        feedback = next((item for item in advertised.extensions if isinstance(item, CcFeedback)), None)
        self.overhear(advertised.requests, feedback)

    # What the clock brings.

    def handle_timeout(self, now: float) -> bool:
        """Act on every timer that has run out. False when the sender is to be given up."""
        timers = self.timers
        if timers.expire(Timer.BACKOFF, now):
            self._asking.end_phase(now)
        if timers.expire(Timer.ACK, now) and self._ack_position is not None:
            self._send_ack(AckType.FLUSH, self._ack_position, now)
        if timers.expire(Timer.FEEDBACK, now) and self._cc.due_at is not None:
            self._cc.answer(now)
            self._send_ack(AckType.CC, b"", now)
        if timers.expire(Timer.SELF_CHECK, now):
            self._self_check(now)
        if timers.expire(Timer.INACTIVE, now):
            silent_until = self.remote.heard_at + self._config.inactivity_s
            if silent_until <= now:
                return False
            timers.set(Timer.INACTIVE, silent_until)
        return True

    def shed(self) -> None:
        """Give up all that takes memory, for others' sake."""
        for count in sorted(self._window.open):
            self._lose(count, LossReason.NO_MEMORY)

    def vanish(self, reason: LossReason) -> None:
        """The sender is gone, and with it what it still owed."""
        for count in sorted(self._window.open):
            self._lose(count, reason)
        self._context.emit(SenderVanished(self.remote.node_id, reason))

    # Objects come and go.

    def _admit(self, object_id: int, flags: int, block: int) -> int | None:
        """The count of an object that is wanted, or None."""
        window, drop = self._window, self._context.stats.drop
        if not window.is_synced:
            is_all = self._config.sync is Sync.ALL
            is_stream = bool(flags & ObjectFlag.STREAM)
            if not is_all and (flags & ObjectFlag.REPAIR or not (block == 0 or is_stream)):
                drop(Drop.UNSYNCHRONIZED)
                return None
            window.sync(object_id, self._config.objects_max - 1 if is_all else 0)
        count = window.count_of(object_id)
        if window.is_done(count) and not (flags & ObjectFlag.STREAM and window.reach_back(count)):
            drop(Drop.OUT_OF_WINDOW)
            return None
        return count

    def _open(self, count: int, object_id: int, flags: int, fti: Fti | None, now: float) -> IncomingObject | None:
        """Begin to receive an object, if we can and may."""
        self._extend(count + 1)
        stats = self._context.stats
        if self._window.is_done(count):
            return None
        if fti is None:
            stats.drop(Drop.NO_FTI)
            self._asking.check(now)
            return None
        code = code_of(fti)
        if code is None:
            stats.drop(Drop.UNSUPPORTED)
            self._lose(count, LossReason.UNSUPPORTED)
            return None
        is_stream, is_file = bool(flags & ObjectFlag.STREAM), bool(flags & ObjectFlag.FILE)
        pid = payload_id_format(fti.fec_id, fti.field_bits)
        self.remote.fec_id, self.remote.field_bits = fti.fec_id, fti.field_bits
        partition: Partition
        item: IncomingObject
        if is_stream:
            partition = StreamPartition(fti.block_segments)
            place = Place(fti.fec_id, pid, object_id, partition)
            ring_bytes = self._config.stream_bytes_max
            emit, node_id = self._context.emit, self.remote.node_id
            item = IncomingStream(place, fti, code, stats, node_id, ring_bytes, emit)
            if not self._has_room(item.claimed_bytes):
                return None
        else:
            partition = ObjectPartition(fti.object_bytes, fti.segment_bytes, fti.block_segments)
            store = self._store(count, fti, is_file)
            if store is None:
                return None
            item = IncomingData(Place(fti.fec_id, pid, object_id, partition), fti, code, stats, store, is_file)
        if not is_stream and count + 1 < self._window.end:
            item.seen_end = item.askable_end = partition.segments  # newer ones have been sent, so all of it has
        item.is_info_expected = bool(flags & ObjectFlag.INFO)
        self._asking.message_bytes = fti.segment_bytes
        self._window.add(count, item)
        self._account(item)
        return item

    def _has_room(self, size: int) -> bool:
        """Whether that much may be promised to an object besides those open; else it has to be asked for later."""
        claimed = sum(item.claimed_bytes for item in self._window.open.values())
        if not claimed or claimed + size <= self._config.total_bytes_max:
            return True
        self._context.stats.drop(Drop.NO_MEMORY)
        return False

    def _store(self, count: int, fti: Fti, is_file: bool) -> Store | None:
        """A place for an object's bytes, if it is not too large."""
        directory = self._config.file_directory if is_file else None
        in_memory = min(self._config.object_bytes_max, self._config.total_bytes_max)
        most = in_memory if directory is None else self._config.file_bytes_max
        if fti.object_bytes > most:
            self._context.stats.drop(Drop.TOO_LARGE)
            self._lose(count, LossReason.TOO_LARGE)
            return None
        if directory is None and not self._has_room(fti.object_bytes):
            return None
        try:
            return MemoryStore(fti.object_bytes) if directory is None else FileStore(directory)
        except (OSError, MemoryError):
            self._context.stats.drop(Drop.NO_MEMORY)
            self._lose(count, LossReason.FAILED)
            return None

    def _start_stream(self, item: IncomingObject, blocks: NDArray[np.int64], symbols: NDArray[np.int64]) -> bool:
        """Where to begin reading a stream of which a first segment has come."""
        if not isinstance(item, IncomingStream) or item.is_started:
            return True
        sources = np.flatnonzero(symbols < item.fti.block_segments)
        if not sources.size:
            return False
        at = int(sources[0])
        first = int(blocks[at]) * item.fti.block_segments + int(symbols[at])
        is_near = first < item.reach
        item.start_at(0 if self._config.sync is not Sync.CURRENT and is_near else first)
        return True

    def _extend(self, end: int) -> None:
        """The sender has begun an object: it is done with all data objects before."""
        if end <= self._window.end:
            return
        for item in self._window.open.values():
            if item.place.partition.segments != UNBOUNDED:
                item.seen_end = item.askable_end = item.place.partition.segments
        for count in self._window.extend(end):
            self._lose(count, LossReason.OVERRUN)
        for start, stop in self._window.trim():
            self._miss(start, stop)

    def _see(self, item: IncomingObject, end: int, is_flush: bool) -> None:
        """The sender has sent up to a segment: know what may be asked for."""
        end = min(end, item.place.partition.segments)
        item.seen_end = max(item.seen_end, end)
        if is_flush or not item.has_parity:
            item.askable_end = max(item.askable_end, end)
        elif end:
            # Within the block being sent nothing is missing yet: its parity is still to come.
            block, _ = locate(item.place.partition, end - 1)
            item.askable_end = max(item.askable_end, item.place.partition.first_segment(block))

    def _progress(self, count: int, item: IncomingObject, now: float) -> None:
        """Something of an object has come."""
        self.remote.data_at = now
        self._self_checks_left = _SELF_CHECK_ROUNDS
        self.is_proven |= item.is_useful or self.data_bytes >= _PROOF_BYTES
        self._account(item)
        if item.is_complete:
            self._complete(count, item)
        self._asking.check(now)
        self._arm_self_check(now)

    def _complete(self, count: int, item: IncomingObject) -> None:
        self._window.close(count)
        self._discharge(item)
        if isinstance(item, IncomingData):
            store = item.store
            self._context.stats.objects_received += 1
            self._context.stats.payload_bytes_received += item.fti.object_bytes
            self._context.emit(
                ObjectCompleted(
                    sender_id=self.remote.node_id,
                    object_id=item.place.object_id,
                    info=item.info,
                    is_file=item.is_file,
                    data=store.data.data if isinstance(store, MemoryStore) else None,
                    path=store.hand_over() if isinstance(store, FileStore) else None,
                    size=item.fti.object_bytes,
                )
            )

    def _lose(self, count: int, reason: LossReason) -> None:
        """Give up an object, heard of or not."""
        item = self._window.open.get(count)
        self._window.close(count)
        self._context.stats.objects_lost += 1
        if isinstance(item, IncomingStream):
            item.abandon(reason)
        else:
            missing = tuple(item.missing_bytes()) if item is not None else ()
            self._context.emit(ObjectLost(self.remote.node_id, count & 0xFFFF, missing, reason))
        if item is not None:
            item.close()
            self._discharge(item)

    def _miss(self, start: int, end: int) -> None:
        """Objects never heard of will not come."""
        self._context.stats.objects_lost += end - start
        self._context.emit(ObjectsMissed(self.remote.node_id, start & 0xFFFF, end - start))

    def _account(self, item: IncomingObject) -> None:
        used = item.memory_bytes
        if isinstance(item, IncomingData) and isinstance(item.store, FileStore):
            used += self._config.total_bytes_max // _OPEN_FILES_MAX  # descriptors are as scarce as memory
        self._put_down(item, used)

    def _discharge(self, item: IncomingObject) -> None:
        if item is self._ahead:
            self._ahead = None
        self._put_down(item, 0)

    def _put_down(self, item: IncomingObject, used: int) -> None:
        more = used - item.accounted_bytes
        item.accounted_bytes = used
        self.used_bytes += more
        self._context.used_bytes += more

    def _has_all_to(self, newest: int) -> bool:
        """Whether nothing that the sender has sent, up to an object, is missing."""
        if any(start <= newest for start, _ in self._window.unheard()):
            return False
        return not any(item.is_wanting() for count, item in self._window.open.items() if count <= newest)

    def _index_of(self, item: IncomingObject, payload_id: int) -> int:
        """The segment that a position names, as near as it can be."""
        pid, partition = item.place.format, item.place.partition
        block, symbol = pid.block(payload_id), pid.symbol(payload_id)
        if partition.blocks == UNBOUNDED:
            near = max(item.seen_end, item.first_wanted) // item.fti.block_segments
            block = Serial(pid.block_bits).unwrap(block, near)
        if not 0 <= block < partition.blocks or symbol >= partition.block_length(block):
            return -1
        return partition.first_segment(block) + symbol

    # Speaking.

    def _arm_self_check(self, now: float) -> None:
        if not self.timers.is_set(Timer.SELF_CHECK):
            self.timers.set(Timer.SELF_CHECK, now + self._self_check_s)

    @property
    def _self_check_s(self) -> float:
        return max(_SELF_CHECK_MIN_S, 2 * _SELF_CHECK_ROUNDS * self.remote.grtt_s)

    def _self_check(self, now: float) -> None:
        """The sender has said nothing of its data for long: its last FLUSH may be lost."""
        due_at = self.remote.data_at + self._self_check_s
        if due_at > now:
            self.timers.set(Timer.SELF_CHECK, due_at)
            return
        if not self._self_checks_left or not self._window.open:
            return
        self._self_checks_left -= 1
        for item in self._window.open.values():
            item.askable_end = max(item.askable_end, item.seen_end)
        self._asking.check(now)
        self.timers.set(Timer.SELF_CHECK, now + self._self_check_s)

    def _arm_feedback(self) -> None:
        if self._cc.due_at is None:
            self.timers.stop(Timer.FEEDBACK)
        else:
            self.timers.set(Timer.FEEDBACK, self._cc.due_at)

    def _send_nack(self, requests: tuple[RepairRequest, ...], now: float) -> None:
        if self._config.silent:
            return
        response_s, response_us = self.remote.grtt_response(now)
        self._context.stats.nacks_sent += 1
        self._send(
            Nack(
                source_id=self._context.node_id,
                sender_id=self.remote.node_id,
                instance_id=self.remote.instance_id,
                grtt_response_s=response_s,
                grtt_response_us=response_us,
                extensions=(self._cc.feedback(),) if self._cc.is_reporting else (),
                requests=requests,
            )
        )

    def _send_ack(self, ack_type: int, content: bytes | Position, now: float) -> None:
        if self._config.silent:
            return
        response_s, response_us = self.remote.grtt_response(now)
        self._context.stats.acks_sent += 1
        self._send(
            Ack(
                source_id=self._context.node_id,
                sender_id=self.remote.node_id,
                instance_id=self.remote.instance_id,
                grtt_response_s=response_s,
                grtt_response_us=response_us,
                extensions=(self._cc.feedback(),) if self._cc.is_reporting else (),
                ack_type=ack_type,
                content=content,
            )
        )

    def _send(self, message: Message) -> None:
        is_unicast = self._config.unicast_nack or not self._context.group_is_multicast
        self._context.send(message, self.remote.address if is_unicast else None)


def _unwrap(blocks: NDArray[np.int64], item: IncomingObject) -> NDArray[np.int64]:
    """Block numbers of a stream as they would be without wrapping, taken nearest to what was seen last."""
    near = max(item.seen_end, item.first_wanted) // item.fti.block_segments
    bits = item.place.format.block_bits
    half, mask = 1 << (bits - 1), (1 << bits) - 1
    return ((blocks - near + half) & mask) - half + near
