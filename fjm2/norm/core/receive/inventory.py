"""Objects of one remote sender that are being received: which are wanted, how much memory they take, how they end."""

from fjm2.norm.core.config import Sync
from fjm2.norm.core.events import Doubt, LossReason, ObjectCompleted, ObjectLost, ObjectsMissed
from fjm2.norm.core.nack import ObjectLayout
from fjm2.norm.core.partition import UNBOUNDED, ObjectPartition, Partition, StreamPartition, locate
from fjm2.norm.core.ranges import Serial
from fjm2.norm.core.remote_sender import RemoteSender
from fjm2.norm.core.stats import Drop
from fjm2.norm.core.wire import Fti, ObjectFlag, Squelch, kept_from, payload_id_format

from .context import ReceiverContext
from .incoming_object import IncomingData, IncomingObject, code_of
from .incoming_stream import IncomingStream, Resumption
from .leap import LeapGuard
from .stores import FileStore, MemoryStore, Store
from .window import ObjectWindow

_OPEN_FILES_MAX = 256
"""Maximum number of objects in temporary files, of all senders together: file descriptors are scarce."""

_NEAR_OBJECTS = 16
"""Number of objects that a sender may skip without proof that it has sent them: as many may get lost together."""
_LEAP_OBJECTS_MAX = 1 << 14
"""Longest leap that leaves objects where they are: object ids have 16 bits, and must not be taken for others."""
_RESUMED_MAX = 16
"""Streams of a sender whose place is remembered after they were given up."""
_SQUELCH_MIN_S = 0.01
"""Time between two SQUELCHes that confirm each other, at least."""
_SQUELCH_MAX_S, _SQUELCH_MAX_GRTTS = 1.0, 20
"""Time within which a SQUELCH must be confirmed, in seconds and in round trips: the longer of the two."""


class Inventory:
    """Keeper of the objects of one sender: it opens, completes and gives them up, and accounts for their memory."""

    def __init__(self, context: ReceiverContext, remote: RemoteSender) -> None:
        self.window = ObjectWindow(context.config.objects_max)
        self.used_bytes = 0
        self.resume_at: dict[int, Resumption] = {}
        """Streams that ended or were given up, by object id, in case they go on."""
        self._leaps = LeapGuard(_NEAR_OBJECTS)
        self._squelched_at: float | None = None
        """Time of a SQUELCH that is not confirmed yet."""
        self._context = context
        self._config = context.config
        self._remote = remote

    def item(self, count: int, object_id: int, flags: int, fti: Fti | None) -> IncomingObject | None:
        """Return a wanted object, opened if it is new. Return None if it cannot be opened now, or ever."""
        return self.window.open.get(count) or self._open(count, object_id, flags, fti)

    def sync(self, object_id: int, back: int = 0) -> None:
        """Want objects from one on, or from one that is `back` earlier."""
        self.window.sync(object_id, back)
        self._leaps.front = self.window.end

    def admit(self, object_id: int, flags: int, block: int | None, now: float, datagrams: int = 1) -> int | None:
        """Return the count of an object, or None if it is not wanted. `block` is None if its INFO is received."""
        window, drop = self.window, self._context.stats.drop
        if not window.is_synced:
            is_all = self._config.sync is Sync.ALL
            is_stream = bool(flags & ObjectFlag.STREAM)
            if not is_all and (flags & ObjectFlag.REPAIR or (block and not is_stream)):
                drop(Drop.UNSYNCHRONIZED)
                return None
            self.sync(object_id, self._config.objects_max - 1 if is_all else 0)
        count = window.count_of(object_id)
        if not self.is_plausible(count, now):
            drop(Drop.IMPLAUSIBLE, datagrams)
            return None
        count = window.count_of(object_id)
        if window.is_done(count):
            is_stream = bool(flags & ObjectFlag.STREAM)
            resumption = self.resume_at.get(object_id) if is_stream and block is not None else None
            if resumption is not None and block is not None and resumption.is_reached(block):
                window.reopen(count)
            elif not (is_stream and window.reach_back(count)):
                drop(Drop.OUT_OF_WINDOW)
                return None
        return count

    def is_plausible(self, count: int, now: float) -> bool:
        """Return True if the sender may have come to an object. Begin anew if it turns out to be somewhere else."""
        leaps, window = self._leaps, self.window
        distance = count - leaps.front
        is_plausible = leaps.admits(count, count + 1, leaps.front, now)
        if leaps.take_false():
            self._context.disputes.report(self._remote.node_id, self._remote.address, Doubt.FAR_AHEAD, now)
        if is_plausible and distance >= _LEAP_OBJECTS_MAX:
            for known in sorted(window.open):
                self.lose(known, LossReason.OVERRUN)
            window.resync(count & 0xFFFF)
            leaps.front = window.end
        return is_plausible

    def open_streams(self) -> dict[int, Resumption]:
        """Return where the streams that have not ended go on, by object id."""
        items = [item for item in self.window.open.values() if isinstance(item, IncomingStream) and item.is_started]
        return {item.layout.object_id: item.resumption() for item in items[-_RESUMED_MAX:]}

    def _note_resumption(self, item: IncomingStream) -> None:
        """Remember where a stream goes on: anyone can end it, and only its sender can go on."""
        self.resume_at[item.layout.object_id] = item.resumption()
        if len(self.resume_at) > _RESUMED_MAX:
            del self.resume_at[next(iter(self.resume_at))]

    def _open(self, count: int, object_id: int, flags: int, fti: Fti | None) -> IncomingObject | None:
        """Begin to receive an object, if it is supported and there is room."""
        self.extend(count + 1)
        stats = self._context.stats
        if self.window.is_done(count):
            return None
        if fti is None:
            stats.drop(Drop.NO_FTI)
            return None
        code = code_of(fti)
        if code is None:
            stats.drop(Drop.UNSUPPORTED)
            self.lose(count, LossReason.UNSUPPORTED)
            return None
        is_stream, is_file = bool(flags & ObjectFlag.STREAM), bool(flags & ObjectFlag.FILE)
        pid = payload_id_format(fti.fec_id, fti.field_bits)
        self._remote.fec_id, self._remote.field_bits = fti.fec_id, fti.field_bits
        partition: Partition
        item: IncomingObject
        if is_stream:
            partition = StreamPartition(fti.block_segments)
            layout = ObjectLayout(fti.fec_id, pid, object_id, partition)
            ring_bytes = self._config.stream_bytes_max
            emit, node_id = self._context.emit, self._remote.node_id
            item = IncomingStream(layout, fti, code, stats, node_id, ring_bytes, emit)
            if not self._has_room(item.claimed_bytes):
                return None
        else:
            partition = ObjectPartition(fti.object_bytes, fti.segment_bytes, fti.block_segments)
            store = self._store(count, fti, is_file)
            if store is None:
                return None
            item = IncomingData(ObjectLayout(fti.fec_id, pid, object_id, partition), fti, code, stats, store, is_file)
        if not is_stream and count + 1 < self.window.end:
            # Newer objects have been sent, so this one was sent completely.
            item.seen_end = item.askable_end = partition.segments
        item.is_info_expected = bool(flags & ObjectFlag.INFO)
        self.window.add(count, item)
        self.account(item)
        return item

    def start_kept(self, item: IncomingStream) -> bool:
        """Begin reading where the INFO of a stream says that keeping begins, or if that is far away, where the stream
        was heard. Return False if the INFO is still missing, or does not say it, or the stream goes on elsewhere."""
        if self._config.sync is not Sync.KEPT or item.info is None or item.layout.object_id in self.resume_at:
            return False
        payload_id, heard = kept_from(item.info), item.heard
        if payload_id is None and heard is None:
            return False
        pid, size = item.layout.format, item.fti.block_segments
        start = 0 if payload_id is None else pid.block(payload_id) * size + min(pid.symbol(payload_id), size)
        period = size << pid.block_bits
        first, end = heard or (start, start)
        is_near = min((end - start) % period, (start - end) % period) < item.reach
        item.start_at(start if is_near else first)
        self.see(item, end, is_flush=True)
        return True

    def _has_room(self, size: int) -> bool:
        """Return True if there is memory for an object of this size. If not, its data are requested again later."""
        claimed = sum(item.claimed_bytes for item in self.window.open.values())
        if not claimed or claimed + size <= self._config.total_bytes_max:
            return True
        self._context.stats.drop(Drop.NO_MEMORY)
        return False

    def _store(self, count: int, fti: Fti, is_file: bool) -> Store | None:
        """Return a store for an object's bytes, or None if the object is too large."""
        directory = self._config.file_directory if is_file else None
        in_memory = min(self._config.object_bytes_max, self._config.total_bytes_max)
        most = in_memory if directory is None else self._config.file_bytes_max
        if fti.object_bytes > most:
            self._context.stats.drop(Drop.TOO_LARGE)
            self.lose(count, LossReason.TOO_LARGE)
            return None
        if directory is None and not self._has_room(fti.object_bytes):
            return None
        try:
            return MemoryStore(fti.object_bytes) if directory is None else FileStore(directory)
        except (OSError, MemoryError):
            self._context.stats.drop(Drop.NO_MEMORY)
            self.lose(count, LossReason.FAILED)
            return None

    def extend(self, end: int) -> None:
        """Note that the sender has begun all objects before `end`, so that all but the newest were sent completely."""
        if end <= self.window.end:
            return
        for item in self.window.open.values():
            if item.layout.partition.segments != UNBOUNDED:
                item.seen_end = item.askable_end = item.layout.partition.segments
        for count in self.window.extend(end):
            self.lose(count, LossReason.OVERRUN)
        for start, stop in self.window.trim():
            self.miss(start, stop)

    def see(self, item: IncomingObject, end: int, is_flush: bool) -> None:
        """Note that the sender has sent all segments before `end`, so that they may be requested."""
        end = min(end, item.layout.partition.segments)
        item.seen_end = max(item.seen_end, end)
        if is_flush or not item.has_parity:
            item.askable_end = max(item.askable_end, end)
        elif end:
            # Nothing of the block that is being sent counts as missing yet: its parity is still to come.
            block, _ = locate(item.layout.partition, end - 1)
            item.askable_end = max(item.askable_end, item.layout.partition.first_segment(block))

    def complete(self, count: int, item: IncomingObject) -> None:
        """Close an object that is complete, and pass it to the application."""
        self.window.close(count)
        self._charge(item, 0)
        if isinstance(item, IncomingStream):
            self._note_resumption(item)
        if isinstance(item, IncomingData):
            store = item.store
            self._context.stats.objects_received += 1
            self._context.stats.payload_bytes_received += item.fti.object_bytes
            self._context.emit(
                ObjectCompleted(
                    sender_id=self._remote.node_id,
                    object_id=item.layout.object_id,
                    info=item.info,
                    is_file=item.is_file,
                    data=store.data.data if isinstance(store, MemoryStore) else None,
                    path=store.hand_over() if isinstance(store, FileStore) else None,
                    size=item.fti.object_bytes,
                )
            )

    def lose(self, count: int, reason: LossReason) -> None:
        """Give up an object, even if nothing of it has arrived."""
        item = self.window.open.get(count)
        self.window.close(count)
        self._context.stats.objects_lost += not self._is_left(item, reason)
        if isinstance(item, IncomingStream):
            if item.is_started and reason in (LossReason.SQUELCHED, LossReason.OVERRUN):
                self._note_resumption(item)
            item.abandon(reason)
        else:
            missing = tuple(item.missing_bytes()) if item is not None else ()
            self._context.emit(ObjectLost(self._remote.node_id, count & 0xFFFF, missing, reason))
        if item is not None:
            item.close()
            self._charge(item, 0)

    def _is_left(self, item: IncomingObject | None, reason: LossReason) -> bool:
        """Return True for a stream that is no loss: it goes on, or its end comes, when this node leaves."""
        if not isinstance(item, IncomingStream):
            return False
        return self._context.is_leaving or (reason is LossReason.CLOSED and not item.lacks(item.seen_end))

    def miss(self, start: int, end: int) -> None:
        """Report that objects of which nothing has arrived are lost: those with counts from `start` to before `end`."""
        self._context.stats.objects_lost += end - start
        self._context.emit(ObjectsMissed(self._remote.node_id, start & 0xFFFF, end - start))

    def account(self, item: IncomingObject) -> None:
        """Charge the memory that an object uses now."""
        used = item.memory_bytes
        if isinstance(item, IncomingData) and isinstance(item.store, FileStore):
            used += self._config.total_bytes_max // _OPEN_FILES_MAX  # descriptors are scarce, too
        self._charge(item, used)

    def _charge(self, item: IncomingObject, used: int) -> None:
        more = used - item.accounted_bytes
        item.accounted_bytes = used
        self.used_bytes += more
        self._context.used_bytes += more

    def has_heard_of_all_to(self, newest: int) -> bool:
        """Return True if something of every object up to `newest` has arrived."""
        return not any(start <= newest for start, _ in self.window.unheard())

    def missing_to(self, newest: int, end: int) -> list[tuple[int, int]]:
        """Return the counts of the objects up to `newest` that lack segments, each with the end of the segments needed.

        That end is `end` for the newest object. For earlier ones it is the end of what the sender has sent.
        """
        items = self.window.open.items()
        ends = [(count, item, end if count == newest else item.askable_end) for count, item in items if count <= newest]
        return [(count, end) for count, item, end in ends if item.lacks(end)]

    def index_of(self, item: IncomingObject, payload_id: int) -> int:
        """Return the index of the segment that a payload id names, or -1 if the object has no such segment."""
        pid, partition = item.layout.format, item.layout.partition
        block, symbol = pid.block(payload_id), pid.symbol(payload_id)
        if partition.blocks == UNBOUNDED:
            near = max(item.seen_end, item.first_wanted) // item.fti.block_segments
            block = Serial(pid.block_bits).unwrap(block, near)
        if not 0 <= block < partition.blocks or symbol >= partition.block_length(block):
            return -1
        return partition.first_segment(block) + symbol

    def squelch(self, squelch: Squelch, requested_at: float, now: float) -> tuple[int, IncomingStream] | None:
        """Give up what the sender no longer holds. Return the stream that continues after the gap, with its count.

        Nothing is given up by a single SQUELCH, which anyone can send: the sender answers another request with another
        one. `requested_at` is the time of the last request.
        """
        if not self.window.is_synced:
            return None
        lost, unheard, stream = self._squelched(squelch)
        until = None
        if stream is not None:
            index = self.index_of(stream[1], squelch.position.payload_id)
            until = min(index, stream[1].seen_end)
            if until <= stream[1].first_wanted:
                stream = None
        if not lost and not unheard and stream is None:
            return None
        if not self._is_squelch_confirmed(requested_at, now):
            self._context.stats.drop(Drop.IMPLAUSIBLE)
            return None
        for count in lost:
            self.lose(count, LossReason.SQUELCHED)
        for start, end in unheard:
            self.window.skip(start, end)
            self.miss(start, end)
        if stream is not None and until is not None:
            stream[1].give_up(until, LossReason.SQUELCHED)
            stream[1].announce_gap()
        return stream

    def _squelched(
        self, squelch: Squelch
    ) -> tuple[list[int], list[tuple[int, int]], tuple[int, IncomingStream] | None]:
        """Return the known objects, ranges of unknown ones, and the stream, that the sender does not hold completely.

        Objects that are complete here are not returned: they were not requested.
        """
        window = self.window
        oldest = window.count_of(squelch.position.object_id)
        if oldest - window.end > _LEAP_OBJECTS_MAX:
            return [], [], None
        invalid = set(squelch.invalid_objects)
        lost = [
            count
            for count, item in sorted(window.open.items())
            if (count < oldest or count & 0xFFFF in invalid) and item.is_incomplete
        ]
        unheard = [(start, min(end, oldest)) for start, end in window.unheard() if start < oldest]
        if oldest > window.end and (lost or unheard):
            unheard.append((window.end, oldest))
        missing = (count for start, end in window.unheard() for count in range(max(start, oldest), end))
        unheard += [(count, count + 1) for count in missing if count & 0xFFFF in invalid]
        item = window.open.get(oldest)
        return lost, _joined(unheard), (oldest, item) if isinstance(item, IncomingStream) else None

    def _is_squelch_confirmed(self, requested_at: float, now: float) -> bool:
        """Return True if a SQUELCH is the answer to a request that was sent after an earlier one."""
        before = self._squelched_at
        most_s = max(_SQUELCH_MAX_S, _SQUELCH_MAX_GRTTS * self._remote.grtt_s)
        if before is None or now - before > most_s:
            self._squelched_at = now
            return False
        if now - before < _SQUELCH_MIN_S or requested_at < before:
            return False
        self._squelched_at = None
        return True

    def forget_squelch(self, now: float) -> None:
        """Nothing is missing any more: a SQUELCH that was not confirmed was false."""
        if self._squelched_at is not None:
            self._squelched_at = None
            self._context.disputes.report(self._remote.node_id, self._remote.address, Doubt.SQUELCH, now)


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ascending ranges with those that touch made one."""
    joined: list[tuple[int, int]] = []
    for start, end in ranges:
        if joined and joined[-1][1] == start:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((start, end))
    return joined
