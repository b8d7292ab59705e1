"""The receiving half of a node: one remote sender's objects on their way in (RFC 5740, 5.2 and 5.3).

Whatever arrives updates what is wanted; `NackScheduler` decides when to say so.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from fjm2.norm.core.config import Sync
from fjm2.norm.core.congestion import CcResponder
from fjm2.norm.core.events import CommandReceived, InfoReceived, LossReason, SenderAppeared, SenderVanished
from fjm2.norm.core.partition import UNBOUNDED
from fjm2.norm.core.remote_sender import RemoteSender
from fjm2.norm.core.stats import Drop
from fjm2.norm.core.timers import Timer, TimerTable
from fjm2.norm.core.train import Address, Train
from fjm2.norm.core.wire import (
    Ack,
    AckType,
    Application,
    CcFeedback,
    CongestionControl,
    Data,
    DataRun,
    Flush,
    FromReceiver,
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

from .in_order import InOrderMatcher
from .incoming_object import IncomingData, IncomingObject, ObjectProgress
from .incoming_stream import IncomingStream
from .inventory import Inventory, ReceiverContext
from .nack_scheduler import NackScheduler

_SELF_CHECK_MIN_S = 1.0
_SELF_CHECK_ROUNDS = 20
ACKS_AT_ONCE = 8
"""So few nodes may confirm a watermark at once; more spread their answers over a round trip (RFC 5740, 5.5.3)."""
_PROOF_BYTES = 1 << 16
_CONFIRMATIONS_MAX = 4
"""So many watermarks at once are confirmed as soon as it can be done; others when the sender asks again."""
_NO_TAIL = np.empty(0, np.uint8)


class FeedbackFields(TypedDict):
    """The fields that every answer to a sender has."""

    source_id: int
    sender_id: int
    instance_id: int
    grtt_response_s: int
    grtt_response_us: int
    extensions: tuple[CcFeedback, ...]


@dataclass(slots=True)
class PendingConfirmation:
    """What is to come before a watermark is confirmed."""

    missing: list[tuple[int, int]]
    """Objects by count, and up to where they have to be whole."""
    is_crowd: bool
    """Whether so many are asked that answers are to be spread."""

    def is_due(self, open_items: dict[int, IncomingObject]) -> bool:
        """Whether all of it is there, or given up."""
        missing = self.missing
        while missing:
            count, end = missing[-1]
            item = open_items.get(count)
            if item is not None and item.lacks(end):
                return False
            missing.pop()
        return True


class Receiver:
    """One incarnation of a remote sender, and what comes from it."""

    def __init__(self, message: FromSender, address: Address, context: ReceiverContext, now: float) -> None:
        self.remote = RemoteSender(message.source_id, message.instance_id, address, now, now)
        self.remote.update(message, address)
        self.timers = TimerTable()
        self.data_bytes = 0
        """What it has sent of its objects, repetitions included."""
        self.is_proven = False
        """Whether anything of it ever arrived whole, or at least a lot."""
        self._context = context
        self._config = context.config
        self._inventory = Inventory(context, self.remote)
        self._window = self._inventory.window
        self._cc = CcResponder(context.node_id, self.remote, context.random, context.group_is_multicast)
        self._nack_scheduler = NackScheduler(
            self._window,
            self.remote,
            self.timers,
            context.random,
            context.stats,
            context.group_is_multicast,
            self._send_nack,
        )
        self._matcher: InOrderMatcher | None = None
        """What most likely comes next."""
        self._last_matcher: InOrderMatcher | None = None
        self._ack_position: Position | None = None
        self._confirmations: dict[Position, PendingConfirmation] = {}
        """Watermarks that are to be confirmed when what is missing before them has come."""
        self._self_checks_left = 0
        self.timers.set(Timer.INACTIVE, now + self._config.inactivity_s)
        context.emit(SenderAppeared(self.remote.node_id, self.remote.instance_id, address))

    @property
    def used_bytes(self) -> int:
        """Memory that its objects take."""
        return self._inventory.used_bytes

    def incoming(self) -> Iterator[ObjectProgress]:
        """How far its objects are that have begun to come."""
        items = (item for item in self._window.open.values() if isinstance(item, IncomingData))
        return (item.progress(self.remote.node_id) for item in items)

    def renew_node_id(self) -> None:
        """Our own has become another."""
        self._cc.node_id = self._context.node_id

    # What comes from the network.

    def hear(self, message: FromSender, address: Address, now: float) -> None:
        """Any message of the sender's."""
        self.remote.heard_at = now
        self.remote.update(message, address)
        if not isinstance(message, Data):
            self._cc.note_command(message.sequence, now)

    def receive_in_order(self, train: Train, now: float) -> bool:
        """Take a train that goes on where the sender was last: the way that nearly all data go.

        False, and nothing has been done, where anything is unusual.
        """
        matcher, remote = self._matcher, self.remote
        if matcher is None or train.address != remote.address:
            return False
        item, first = matcher.item, matcher.item.seen_end
        if self._window.open.get(matcher.count) is not item or not matcher.matches(train, first):
            return False
        try:
            is_plain = item.first_wanted == first and item.append(matcher.payloads, matcher.tail)
            if not is_plain:
                item.receive(first, matcher.payloads, matcher.tail)
        except (OSError, MemoryError):
            return False  # it will fail again there, and be dealt with
        size = matcher.size
        self._cc.note_data(matcher.first_sequence, matcher.last_sequence, matcher.segments, size, now)
        self._nack_scheduler.credit_bytes += size
        self.data_bytes += size
        self._inventory.see(item, first + matcher.segments, is_flush=False)
        remote.heard_at = remote.data_at = now
        self._self_checks_left = _SELF_CHECK_ROUNDS
        if item.is_complete or not is_plain:
            self._progress(matcher.count, item, now)
        else:
            if not item.is_stream:
                self._inventory.account(item)
            self._arm_self_check(now)
        return True

    def receive_run(self, run: DataRun, now: float) -> None:
        """A run of DATA."""
        header = run.header.message
        self._matcher = None
        sequences = run.headers["sequence"]
        size = run.payloads.size + run.tail.size
        self._cc.note_data(int(sequences[0]), int(sequences[-1]), run.count, size, now)
        self._nack_scheduler.credit_bytes += size
        self.data_bytes += size
        fti = run.header.fti
        is_wide = fti is not None and fti.field_bits == 16
        pid = payload_id_format(header.fec_id, 16 if is_wide else 8)
        payload_ids = run.headers["payload_id"].astype(np.int64)
        count = self._inventory.admit(header.object_id, header.flags, pid.block(int(run.headers["payload_id"][0])))
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
        if not self._start_stream(item, blocks, symbols):
            return
        try:
            self._receive_symbols(item, run, blocks, symbols)
        except (OSError, MemoryError):
            self._context.stats.drop(Drop.NO_MEMORY, run.count)
            self._inventory.lose(count, LossReason.FAILED)
            return
        self._nack_scheduler.message_bytes = item.fti.segment_bytes
        self._progress(count, item, now)
        if count in self._window.open:
            self._expect_next(run.header, item, count)

    def _expect_next(self, header: RunHeader, item: IncomingObject, count: int) -> None:
        """The next train most likely goes on here."""
        last = self._last_matcher
        if last is None or last.item is not item or last.header is not header:
            last = self._last_matcher = None if item.layout.format.length_bits else InOrderMatcher(header, item, count)
        self._matcher = last

    def _receive_symbols(
        self, item: IncomingObject, run: DataRun, blocks: NDArray[np.int64], symbols: NDArray[np.int64]
    ) -> None:
        """Sort source from parity, cut what is not consecutive, and hand it to the object."""
        partition, stats = item.layout.partition, self._context.stats
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
            if first + end - start > item.layout.partition.segments:
                stats.drop(Drop.BAD_POSITION, end - start)
                continue
            tail = run.tail if end > full else _NO_TAIL
            item.receive(first, run.payloads[start : min(end, full)], tail)
            self._inventory.see(item, first + end - start, is_flush=False)

    def _receive_odd(self, item: IncomingObject, block: int, symbol: int, payload: NDArray[np.uint8]) -> None:
        """A symbol that is no source symbol."""
        partition = item.layout.partition
        if not 0 <= block < partition.blocks or symbol - partition.block_length(block) >= item.fti.parity_segments:
            self._context.stats.drop(Drop.BAD_POSITION)
            return
        item.receive_parity(block, symbol - partition.block_length(block), payload)
        self._inventory.see(item, partition.first_segment(block) + partition.block_length(block), is_flush=False)

    def receive_info(self, info: Info, now: float) -> None:
        """The INFO of an object."""
        fti = next((extension for extension in info.extensions if isinstance(extension, Fti)), None)
        flags = info.flags | ObjectFlag.INFO
        count = self._inventory.admit(info.object_id, flags, 0)
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
            self._inventory.extend(count + 1)
        item = self._window.open.get(count)
        end = 0
        if item is not None:
            end = self._inventory.index_of(item, payload_id) + 1
            self._inventory.see(item, end, is_flush=True)
            end = end or item.askable_end
        self._nack_scheduler.check(now)
        if is_asked:
            is_crowd = self._context.group_is_multicast and len(flush.acking_nodes) > ACKS_AT_ONCE
            self._prepare_confirmation(flush.position, count, end, is_crowd)
            self._confirm(now)
        self._arm_self_check(now)

    def _prepare_confirmation(self, position: Position, count: int, end: int, is_crowd: bool) -> None:
        """Note what is missing before a watermark. What gets lost behind it later does not matter."""
        if position in self._confirmations or not self._inventory.has_heard_of_all_to(count):
            return
        if len(self._confirmations) >= _CONFIRMATIONS_MAX:
            del self._confirmations[next(iter(self._confirmations))]
        self._confirmations[position] = PendingConfirmation(self._inventory.missing_to(count, end), is_crowd)

    def _confirm(self, now: float) -> None:
        """Confirm the watermarks before which nothing is missing any more."""
        open_items = self._window.open
        for position in [at for at, confirmation in self._confirmations.items() if confirmation.is_due(open_items)]:
            confirmation = self._confirmations.pop(position)
            self._ack_position = position
            if not confirmation.is_crowd:
                self._send_ack(AckType.FLUSH, position, now)
            elif not self.timers.is_set(Timer.ACK):
                self.timers.set(Timer.ACK, now + self._context.random.uniform(0.0, self.remote.grtt_s))

    def receive_squelch(self, squelch: Squelch, now: float) -> None:
        """The sender no longer holds what comes before a position."""
        if not self._window.is_synced:
            self._window.sync(squelch.position.object_id)
            return
        stream = self._inventory.squelch(squelch)
        if stream is not None:
            self._progress(*stream, now)

    def receive_probe(self, probe: CongestionControl, now: float) -> None:
        """A CMD(CC), to be answered some time."""
        self.remote.note_probe(probe, now)
        self._cc.note_probe(probe, now)
        self._arm_feedback()

    def receive_application(self, command: Application) -> None:
        """The application's own command."""
        self._context.emit(CommandReceived(self.remote.node_id, command.content))

    @property
    def is_listening(self) -> bool:
        """Whether what others ask and report matters now: it may make one's own superfluous."""
        return self._cc.due_at is not None or self._nack_scheduler.cycle.is_listening

    def overhear(self, message: FromReceiver | RepairAdv) -> None:
        """Another receiver, or the sender on behalf of one, asks for repairs or reports. Brings no timer closer."""
        if isinstance(message, Nack | RepairAdv):
            self._nack_scheduler.overhear(message.requests)
        for extension in message.extensions:
            if isinstance(extension, CcFeedback):
                self._cc.overhear(extension)
                self._arm_feedback()
                return

    # What the clock brings.

    def handle_timeout(self, now: float) -> bool:
        """Act on every timer that has run out. False when the sender is to be given up."""
        timers = self.timers
        if timers.expire(Timer.BACKOFF, now):
            self._nack_scheduler.end_phase(now)
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
            self._inventory.lose(count, LossReason.NO_MEMORY)

    def vanish(self, reason: LossReason) -> None:
        """The sender is gone, and with it what it still owed."""
        for count in sorted(self._window.open):
            self._inventory.lose(count, reason)
        self._context.emit(SenderVanished(self.remote.node_id, reason))

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
        item.start_at(0 if self._context.config.sync is not Sync.CURRENT and is_near else first)
        return True

    def _progress(self, count: int, item: IncomingObject, now: float) -> None:
        """Something of an object has come."""
        self.remote.data_at = now
        self._self_checks_left = _SELF_CHECK_ROUNDS
        self.is_proven |= item.is_useful or self.data_bytes >= _PROOF_BYTES
        self._inventory.account(item)
        if item.is_complete:
            self._inventory.complete(count, item)
        if self._confirmations:
            self._confirm(now)
        self._nack_scheduler.check(now)
        self._arm_self_check(now)

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
        self._nack_scheduler.check(now)
        self.timers.set(Timer.SELF_CHECK, now + self._self_check_s)

    def _arm_feedback(self) -> None:
        if self._cc.due_at is None:
            self.timers.stop(Timer.FEEDBACK)
        else:
            self.timers.set(Timer.FEEDBACK, self._cc.due_at)

    def _send_nack(self, requests: tuple[RepairRequest, ...], now: float) -> None:
        if not self._config.silent:
            self._context.stats.nacks_sent += 1
            self._send(Nack(**self._answer(now), requests=requests))

    def _send_ack(self, ack_type: int, content: bytes | Position, now: float) -> None:
        if not self._config.silent:
            self._context.stats.acks_sent += 1
            self._send(Ack(**self._answer(now), ack_type=ack_type, content=content))

    def _answer(self, now: float) -> FeedbackFields:
        """What NACK and ACK have in common."""
        response_s, response_us = self.remote.grtt_response(now)
        return {
            "source_id": self._context.node_id,
            "sender_id": self.remote.node_id,
            "instance_id": self.remote.instance_id,
            "grtt_response_s": response_s,
            "grtt_response_us": response_us,
            "extensions": (self._cc.feedback(),) if self._cc.is_reporting else (),
        }

    def _send(self, message: Message) -> None:
        is_unicast = self._config.unicast_nack or not self._context.group_is_multicast
        self._context.send(message, self.remote.address if is_unicast else None)


def _unwrap(blocks: NDArray[np.int64], item: IncomingObject) -> NDArray[np.int64]:
    """Block numbers of a stream as they would be without wrapping, taken nearest to what was seen last."""
    near = max(item.seen_end, item.first_wanted) // item.fti.block_segments
    bits = item.layout.format.block_bits
    half, mask = 1 << (bits - 1), (1 << bits) - 1
    return ((blocks - near + half) & mask) - half + near
