"""The receiving half of a node: reception from one remote sender (RFC 5740, 5.2 and 5.3).

Input changes what is missing; `NackScheduler` decides when to request the missing parts.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fjm2.norm.core.config import Sync
from fjm2.norm.core.congestion import CcResponder
from fjm2.norm.core.events import Doubt, InfoReceived, LossReason, SenderAppeared, SenderVanished
from fjm2.norm.core.partition import UNBOUNDED
from fjm2.norm.core.remote_sender import RemoteSender
from fjm2.norm.core.stats import Drop
from fjm2.norm.core.timers import SELF_CHECK, Timer, TimerTable
from fjm2.norm.core.train import Address, Train
from fjm2.norm.core.wire import (
    AckType,
    CcFeedback,
    CongestionControl,
    Data,
    DataRun,
    EndOfTransmission,
    Flush,
    FromReceiver,
    FromSender,
    Fti,
    Info,
    Nack,
    ObjectFlag,
    Passing,
    RepairAdv,
    RunHeader,
    Squelch,
    payload_id_format,
)

from .claims import Departed
from .confirmations import Confirmations
from .context import ReceiverContext
from .feedback import FeedbackSender
from .in_order import InOrderMatcher
from .incoming_object import IncomingData, IncomingObject, ObjectProgress
from .incoming_stream import IncomingStream, Resumption
from .inventory import Inventory
from .nack_scheduler import NackScheduler

_SELF_CHECK_MIN_S = 1.0
"""Shortest silence in seconds after which a receiver requests missing data although no FLUSH has arrived. A FLUSH that
is not lost arrives sooner."""
_SELF_CHECKS_MAX = 20
"""Maximum number of checks of a silent sender: as many as a sender sends of each FLUSH (the robust factor of RFC 5740).
"""
_PROOF_BYTES = 1 << 16
"""Bytes that prove a sender useful even if no object is complete: more than an attacker can send in many names."""
_LEAVE_S = 0.25
"""Silence after a goodbye that confirms it: longer than the pauses of a sender that is at work."""
_LATE_S = 0.02
"""Messages that come this soon after a goodbye were overtaken by it."""
_REQUESTS = (Timer.BACKOFF, Timer.ACK, Timer.ALIVE, Timer.FEEDBACK, Timer.SELF_CHECK)
"""Timers of messages to a sender. A sender that said goodbye gets none."""
_NO_TAIL = np.empty(0, np.uint8)


class Receiver:
    """One incarnation of a remote sender, and the objects that come from it."""

    def __init__(
        self,
        message: FromSender,
        address: Address,
        context: ReceiverContext,
        now: float,
        departed: Departed | None = None,
    ) -> None:
        """Receive from the sender of a message. `departed` tells where it was, if it was heard before."""
        began_at = now if departed is None else departed.began_at
        self.remote = RemoteSender(message.source_id, message.instance_id, address, now, now, began_at=began_at)
        self.remote.update(message)
        self.timers = TimerTable()
        self.is_proven = False
        """True if the sender has proved useful: an object arrived completely, or at least a lot of data arrived."""
        self._context = context
        self._config = context.config
        self._inventory = Inventory(context, self.remote)
        if departed is not None:
            self._inventory.resume_at.update(departed.resume_at)
        self._window = self._inventory.window
        self._cc = CcResponder(context.node_id, self.remote, context.random, context.group_is_multicast)
        self.feedback = FeedbackSender(context, self.remote, self._cc)
        """Output of NACKs and ACKs to the sender."""
        self._confirmations = Confirmations(context, self.remote, self.timers, self._inventory, self.feedback)
        self._nack_scheduler = NackScheduler(
            self._window,
            self.remote,
            self.timers,
            context.random,
            context.stats,
            context.group_is_multicast,
            self.feedback.nack,
        )
        self._is_passed_by = context.config.sync is Sync.KEPT
        """True if nothing of the sender is received yet, so that what it sends has no sequence that could be lost."""
        self._matcher: InOrderMatcher | None = None
        """Matcher of the train that most likely comes next; None if none is expected."""
        self._last_matcher: InOrderMatcher | None = None
        self._self_checks_left = 0
        self.timers.set(Timer.INACTIVE, now + self._config.inactivity_s)
        context.emit(SenderAppeared(self.remote.node_id, self.remote.instance_id, address))

    @property
    def used_bytes(self) -> int:
        """Memory of the sender's objects, in bytes."""
        return self._inventory.used_bytes

    @property
    def is_listening(self) -> bool:
        """True if feedback of other receivers matters now, because it may make ours unnecessary."""
        return self._cc.due_at is not None or self._nack_scheduler.cycle.is_listening

    def incoming(self) -> Iterator[ObjectProgress]:
        """Yield the progress of objects that have begun to arrive. Streams are not among them."""
        items = (item for item in self._window.open.values() if isinstance(item, IncomingData))
        return (item.progress(self.remote.node_id) for item in items)

    def renew_node_id(self) -> None:
        """Take over the node id of the context, which has changed."""
        self._cc.node_id = self._context.node_id

    # Input.

    def hear(self, message: FromSender, now: float) -> None:
        """Note the time of a message of the sender, and the fields that all its messages have."""
        if not isinstance(message, EndOfTransmission):
            self.remote.heard_at = now
        self.remote.messages += 1
        self.remote.update(message)
        if not isinstance(message, Data) and not self._is_passed_by:
            self._cc.note_command(message.sequence, now)
        if self.timers.is_set(Timer.LEAVE) and not isinstance(message, EndOfTransmission):
            self._check_goodbye(now)

    def _check_goodbye(self, now: float) -> None:
        """Stop leaving if the sender has been heard since its goodbye, which was forged."""
        if self.remote.heard_at > self.timers.deadline(Timer.LEAVE) - _LEAVE_S + _LATE_S:
            self.timers.stop(Timer.LEAVE)
            for timer in _REQUESTS:
                if self.timers.is_set(timer):
                    self.timers.set(timer, now)
            self._context.stats.drop(Drop.IMPLAUSIBLE)
            self._dispute(Doubt.GOODBYE, now)

    def _dispute(self, doubt: Doubt, now: float) -> None:
        """Report false messages in the sender's name."""
        self._context.disputes.report(self.remote.node_id, self.remote.address, doubt, now)

    def receive_in_order(self, train: Train, data: memoryview, now: float) -> bool:
        """Receive a train that continues where the sender's last train ended, as nearly all trains do. `data` are its
        bytes.

        Return False, and do nothing, if anything about the train is unusual.
        """
        matcher, remote = self._matcher, self.remote
        if matcher is None or train.address != remote.address:
            return False
        item = matcher.item
        first = item.seen_end
        if self._window.open.get(matcher.count) is not item:
            return False
        if train.segment_bytes >= train.data.size and isinstance(item, IncomingStream):
            return self._receive_alone(matcher, item, data, now)
        if not matcher.matches(train, first):
            return False
        matched = matcher.train
        payloads, tail = matched.payloads, matched.tail
        try:
            is_plain = item.first_wanted == first and item.append(payloads, tail)
            if not is_plain:
                taken = item.taken
                item.receive(first, payloads, tail)
                remote.note_stale(matched.size, (item.taken - taken) * item.symbol_bytes)
        except (OSError, MemoryError):
            return False  # the general path meets the same error, and handles it
        segments, size = matched.segments, matched.size
        self._cc.note_data(matched.first_sequence, matched.last_sequence, segments, size, now)
        self._nack_scheduler.credit_bytes += size
        remote.data_bytes += size
        self._inventory.see(item, first + segments, is_flush=False)
        remote.heard_at = remote.data_at = now
        self._self_checks_left = _SELF_CHECKS_MAX
        if item.is_complete or not is_plain:
            self._after_data(matcher.count, item, now)
        else:
            if not item.is_stream:
                self._inventory.account(item)
            self._arm_self_check(now)
        return True

    def _receive_alone(self, matcher: InOrderMatcher, item: IncomingStream, data: memoryview, now: float) -> bool:
        """Do the same for a single datagram with the next segment of a stream."""
        sequence = matcher.matches_alone(data, item.seen_end)
        if sequence is None or not item.append_alone(data, matcher.header_bytes):
            return False
        remote, size = self.remote, len(data) - matcher.header_bytes
        self._cc.note_data(sequence, sequence, 1, size, now)
        self._nack_scheduler.credit_bytes += size
        remote.data_bytes += size
        remote.heard_at = remote.data_at = now
        self._self_checks_left = _SELF_CHECKS_MAX
        if not self.timers.is_set(SELF_CHECK):
            self._arm_self_check(now)
        return True

    def receive_run(self, run: DataRun, now: float) -> None:
        """Receive consecutive DATA of one object."""
        header = run.header.message
        self._matcher = None
        self._is_passed_by = False
        sequences = run.headers["sequence"]
        size = run.payloads.size + run.tail.size
        self._cc.note_data(int(sequences[0]), int(sequences[-1]), run.count, size, now)
        self._nack_scheduler.credit_bytes += size
        remote = self.remote
        remote.data_bytes += size
        remote.stale_bytes += size  # until it has proved to be new
        fti = run.header.fti
        is_wide = fti is not None and fti.field_bits == 16
        pid = payload_id_format(header.fec_id, 16 if is_wide else 8)
        payload_ids = run.headers["payload_id"].astype(np.int64)
        block = pid.block(int(run.headers["payload_id"][0]))
        count = self._inventory.admit(header.object_id, header.flags, block, now, run.count)
        if count is None:
            return
        item = self._inventory.item(count, header.object_id, header.flags, fti)
        if item is None:
            self._nack_scheduler.check(now)
            return
        is_other = header.fec_id != item.fti.fec_id or run.header.is_stream != isinstance(item, IncomingStream)
        if is_other or (fti is not None and fti != item.fti):
            self._context.stats.drop(Drop.FTI_MISMATCH, run.count)
            return
        pid = item.layout.format
        symbols = payload_ids & ((1 << pid.symbol_bits) - 1)
        blocks = payload_ids >> (pid.symbol_bits + pid.length_bits) & ((1 << pid.block_bits) - 1)
        taken = item.taken
        if not self._start_stream(item, blocks, symbols):
            self._after_data(count, item, now)
            return
        try:
            self._receive_symbols(item, run, blocks, symbols, now)
        except (OSError, MemoryError):
            self._context.stats.drop(Drop.NO_MEMORY, run.count)
            self._inventory.lose(count, LossReason.FAILED)
            return
        remote.stale_bytes -= size
        remote.note_stale(size, (item.taken - taken) * item.symbol_bytes)
        self._nack_scheduler.message_bytes = item.fti.segment_bytes
        self._after_data(count, item, now)
        if count in self._window.open and not self.timers.is_set(Timer.LEAVE):
            self._expect_next(run.header, item, count)

    def _expect_next(self, header: RunHeader, item: IncomingObject, count: int) -> None:
        """Expect the next train to continue an object."""
        last = self._last_matcher
        if last is None or last.item is not item or last.header is not header:
            last = self._last_matcher = None if item.layout.format.length_bits else InOrderMatcher(header, item, count)
        self._matcher = last

    def _receive_symbols(
        self, item: IncomingObject, run: DataRun, blocks: NDArray[np.int64], symbols: NDArray[np.int64], now: float
    ) -> None:
        """Cut a run into parity symbols and consecutive source symbols, and pass them to the object."""
        partition, stats = item.layout.partition, self._context.stats
        if partition.blocks == UNBOUNDED:
            blocks = _unwrap(blocks, item)
        indexes = partition.indexes(blocks, symbols)
        indexes[indexes < 0] = -2  # never consecutive: neither two of them, nor the last of them and segment 0
        if max(run.payloads.shape[1] if len(run.payloads) else 0, run.tail.size) > item.symbol_bytes:
            stats.drop(Drop.OVERSIZE, run.count)
            return
        cuts = (np.flatnonzero(np.diff(indexes) != 1) + 1).tolist()
        full = len(run.payloads)
        for start, end in zip([0, *cuts], [*cuts, run.count], strict=True):
            first = int(indexes[start])
            if first < 0:
                payload = run.payloads[start] if start < full else run.tail
                self._receive_parity(item, int(blocks[start]), int(symbols[start]), payload, now)
                continue
            stop = first + end - start
            if stop > item.layout.partition.segments:
                stats.drop(Drop.BAD_POSITION, end - start)
                continue
            if not self._is_plausible(item, first, stop, now):
                stats.drop(Drop.IMPLAUSIBLE, end - start)
                continue
            tail = run.tail if end > full else _NO_TAIL
            item.receive(first, run.payloads[start : min(end, full)], tail)
            self._inventory.see(item, stop, is_flush=False)

    def _is_plausible(self, item: IncomingObject, first: int, end: int, now: float) -> bool:
        """Return True if the sender may be at a range of segments."""
        if not isinstance(item, IncomingStream):
            return True
        is_plausible = item.is_plausible(first, end, now)
        if item.leaps.take_false():
            self._dispute(Doubt.FAR_AHEAD, now)
        return is_plausible

    def _receive_parity(
        self, item: IncomingObject, block: int, symbol: int, payload: NDArray[np.uint8], now: float
    ) -> None:
        """Receive a parity symbol. Drop it if the object cannot have it."""
        partition = item.layout.partition
        if not 0 <= block < partition.blocks or symbol - partition.block_length(block) >= item.fti.parity_segments:
            self._context.stats.drop(Drop.BAD_POSITION)
            return
        first = partition.first_segment(block)
        end = first + partition.block_length(block)
        if not self._is_plausible(item, first, end, now):
            self._context.stats.drop(Drop.IMPLAUSIBLE)
            return
        item.receive_parity(block, symbol - partition.block_length(block), payload)
        self._inventory.see(item, end, is_flush=False)

    def receive_info(self, info: Info, now: float) -> None:
        """Receive the INFO of an object."""
        fti = next((extension for extension in info.extensions if isinstance(extension, Fti)), None)
        flags = info.flags | ObjectFlag.INFO
        count = self._inventory.admit(info.object_id, flags, 0, now)
        if count is None:
            return
        item = self._inventory.item(count, info.object_id, flags, fti)
        if item is None:
            self._nack_scheduler.check(now)
            return
        if item.info is None:
            if len(info.content) > item.fti.segment_bytes:
                self._context.stats.drop(Drop.OVERSIZE)
                return
            item.info = info.content
            self._context.emit(InfoReceived(self.remote.node_id, info.object_id, info.content))
            if isinstance(item, IncomingStream) and not item.is_started:
                self._inventory.start_kept(item)
        self._after_data(count, item, now)

    def receive_flush(self, flush: Flush, now: float) -> None:
        """Note that everything up to a position has been sent, and confirm it if asked to."""
        if self._config.sync is Sync.KEPT and any(isinstance(each, Passing) for each in flush.extensions):
            self._context.stats.drop(Drop.PASSING)
            return
        self.remote.data_at = now
        is_asked = self._context.node_id in flush.acking_nodes
        fec_id, object_id, payload_id = flush.position
        if not self._window.is_synced:
            if not is_asked:
                return
            self.remote.fec_id, self.remote.field_bits = fec_id, 8
            self._inventory.sync(object_id)
        count = self._window.count_of(object_id)
        if not self._inventory.is_plausible(count, now):
            self._context.stats.drop(Drop.IMPLAUSIBLE)
            return
        count = self._window.count_of(object_id)
        if count >= self._window.end:
            self._inventory.extend(count + 1)
        item = self._window.open.get(count)
        end = 0
        if item is not None:
            end = self._inventory.index_of(item, payload_id) + 1
            if not self._is_plausible(item, end - 1, end, now):
                self._context.stats.drop(Drop.IMPLAUSIBLE)
                return
            if self._config.sync is Sync.KEPT and isinstance(item, IncomingStream) and not item.is_started:
                item.hear(end, end)
            else:
                self._inventory.see(item, end, is_flush=True)
            end = end or item.askable_end
        self._nack_scheduler.check(now)
        if is_asked and not (isinstance(item, IncomingStream) and item.is_given_up(end)):
            node_count = len(flush.acking_nodes)
            self._confirmations.prepare(flush.position, count, end, node_count)
            self._confirmations.show_life_soon(flush.position, node_count, now)
            self._confirmations.send_due(now)
        self._arm_self_check(now)

    def receive_squelch(self, squelch: Squelch, now: float) -> None:
        """Give up what the sender no longer holds: everything before a position."""
        self.remote.data_at = now
        stream = self._inventory.squelch(squelch, self._nack_scheduler.requested_at, now)
        if stream is not None:
            self._after_data(*stream, now)
        self._nack_scheduler.check(now)
        self._arm_self_check(now)

    def receive_end(self, now: float) -> None:
        """Note a goodbye. It counts if the sender is silent from now on: anyone can send it."""
        if not self.timers.is_set(Timer.LEAVE):
            self.timers.set(Timer.LEAVE, now + _LEAVE_S)
            self._matcher = None  # the general path hears if the sender goes on

    def receive_probe(self, probe: CongestionControl, now: float) -> None:
        """Note a CMD(CC), and schedule the answer."""
        self.remote.note_probe(probe, now)
        if self._is_passed_by:
            return
        self._cc.note_probe(probe, now)
        self._arm_feedback()

    def overhear(self, message: FromReceiver | RepairAdv) -> None:
        """Note requests and reports of another receiver, even if the sender repeats them. No timer moves closer."""
        if isinstance(message, Nack | RepairAdv):
            self._nack_scheduler.overhear(message.requests)
        for extension in message.extensions:
            if isinstance(extension, CcFeedback):
                self._cc.overhear(extension)
                self._arm_feedback()
                return

    # Timers.

    def handle_timeout(self, now: float, is_paused: bool) -> bool:
        """Act on every timer that has expired. Return False if the sender must be given up.

        While paused, only show the sender that this receiver lives. Repairs would be dropped when they arrive.
        """
        timers = self.timers
        leave_at = timers.deadline(Timer.LEAVE)
        if is_paused and timers.is_set(Timer.LEAVE):
            return True
        if leave_at <= now:
            self._check_goodbye(now)
            if timers.expire(Timer.LEAVE, now):
                return False
        elif timers.is_set(Timer.LEAVE):
            for timer in _REQUESTS:
                if timers.deadline(timer) <= now:
                    timers.set(timer, leave_at)
        if timers.expire(Timer.ACK, now):
            self._confirmations.send_delayed(now)
        if timers.expire(Timer.FEEDBACK, now) and self._cc.due_at is not None:
            self._cc.answer(now)
            self.feedback.ack(AckType.CC, b"", now)
        if timers.expire(Timer.ALIVE, now):
            self._confirmations.show_life(now)
        if is_paused:
            return True
        if timers.expire(Timer.BACKOFF, now):
            self._nack_scheduler.end_phase(now)
        if timers.expire(Timer.SELF_CHECK, now):
            self._self_check(now)
        if timers.expire(Timer.INACTIVE, now):
            silent_until = self.remote.heard_at + self._config.inactivity_s
            if silent_until <= now:
                return False
            timers.set(Timer.INACTIVE, silent_until)
        return True

    def shed(self) -> None:
        """Give up all objects, to free memory for those of other senders."""
        for count in sorted(self._window.open):
            self._inventory.lose(count, LossReason.NO_MEMORY)

    def vanish(self, reason: LossReason) -> dict[int, Resumption]:
        """Give up all objects, and report that the sender is gone. Return where its streams go on, by object id."""
        resume_at = self._inventory.open_streams()
        for count in sorted(self._window.open):
            self._inventory.lose(count, reason)
        self._context.emit(SenderVanished(self.remote.node_id, reason))
        return resume_at

    def _start_stream(self, item: IncomingObject, blocks: NDArray[np.int64], symbols: NDArray[np.int64]) -> bool:
        """Decide where to begin reading a stream, if it is new. Return False if no source segment tells yet."""
        if not isinstance(item, IncomingStream) or item.is_started:
            return True
        resumption = self._inventory.resume_at.pop(item.layout.object_id, None)
        if resumption is not None and resumption.is_reached(int(blocks[0])):
            item.start_at(resumption.index)
            return True
        sources = np.flatnonzero(symbols < item.fti.block_segments)
        if not sources.size:
            return False
        at = int(sources[0])
        first = int(blocks[at]) * item.fti.block_segments + int(symbols[at])
        if self._config.sync is Sync.KEPT and item.is_info_expected:
            item.hear(first, first + len(sources))
            return self._inventory.start_kept(item)
        is_near = first < item.reach
        item.start_at(0 if self._context.config.sync is not Sync.CURRENT and is_near else first)
        return True

    def _after_data(self, count: int, item: IncomingObject, now: float) -> None:
        """Complete an object after data for it have arrived, if nothing is missing. Confirm or request what is due."""
        self.remote.data_at = now
        self._self_checks_left = _SELF_CHECKS_MAX
        self.is_proven |= item.is_useful or self.remote.data_bytes >= _PROOF_BYTES
        self._inventory.account(item)
        if item.is_complete:
            self._inventory.complete(count, item)
        if self._confirmations.pending:
            self._confirmations.send_due(now)
        self._nack_scheduler.check(now)
        if self._nack_scheduler.cycle.is_idle:
            self._inventory.forget_squelch(now)
        self._arm_self_check(now)

    # Requests and answers.

    def _arm_self_check(self, now: float) -> None:
        if not self.timers.is_set(Timer.SELF_CHECK):
            self.timers.set(Timer.SELF_CHECK, now + self._self_check_s)

    @property
    def _self_check_s(self) -> float:
        return max(_SELF_CHECK_MIN_S, 2 * _SELF_CHECKS_MAX * self.remote.grtt_s)

    def _self_check(self, now: float) -> None:
        """Request what is missing if the sender has been silent: its last FLUSH may be lost."""
        due_at = self.remote.data_at + self._self_check_s
        if due_at > now:
            self.timers.set(Timer.SELF_CHECK, due_at)
            return
        if not self._self_checks_left or not self._window.open:
            return
        self._self_checks_left -= 1
        for item in self._window.open.values():
            item.askable_end = max(item.askable_end, item.seen_end)
        self._nack_scheduler.check(now)
        self.timers.set(Timer.SELF_CHECK, now + self._self_check_s)

    def _arm_feedback(self) -> None:
        if self._cc.due_at is None:
            self.timers.stop(Timer.FEEDBACK)
        else:
            self.timers.set(Timer.FEEDBACK, self._cc.due_at)


def _unwrap(blocks: NDArray[np.int64], item: IncomingObject) -> NDArray[np.int64]:
    """Return block numbers of a stream as if they did not wrap: those nearest to the last block seen."""
    near = max(item.seen_end, item.first_wanted) // item.fti.block_segments
    bits = item.layout.format.block_bits
    half, mask = 1 << (bits - 1), (1 << bits) - 1
    return ((blocks - near + half) & mask) - half + near
