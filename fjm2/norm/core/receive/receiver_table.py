"""The receivers of a node, one for each remote sender, and the bounds that protect them from too many senders."""

import struct
from collections import OrderedDict
from collections.abc import Iterator

from fjm2.norm.core.events import LossReason
from fjm2.norm.core.stats import Drop
from fjm2.norm.core.timers import NEVER
from fjm2.norm.core.train import Address, Train
from fjm2.norm.core.wire import (
    VERSION,
    Application,
    CongestionControl,
    DataRun,
    EndOfTransmission,
    Flush,
    FromReceiver,
    FromSender,
    Info,
    MessageType,
    RepairAdv,
    Squelch,
)

from .context import ReceiverContext
from .incoming_object import ObjectProgress
from .receiver import Receiver

_SOURCE = struct.Struct(">I")
_SOURCE_AT = 4
"""Offset of the source id in every NORM message."""
_SOURCE_END = 8
"""Offset after the source id. A shorter datagram has no source id."""
_ENDS = struct.Struct(">II")
"""Format of the source id and the sender id of feedback: the receiver that it comes from, and the sender it is for."""
_FEEDBACK_BYTES_MIN = 24
"""Length of the shortest NACK or ACK: their fixed header."""
_FEEDBACK = frozenset(VERSION << 4 | kind for kind in (MessageType.NACK, MessageType.ACK))
"""First bytes that feedback messages can have."""
_STALE_S = 10.0
"""Seconds for which messages of an earlier incarnation of a sender may still be on their way."""
_STALE_MAX = 1024
"""Most earlier incarnations remembered: anyone can invent them."""
_EVICTION_INTERVAL_S = 0.01
"""Shortest time in seconds between searches for a proven sender to replace. Each search looks at all senders."""
_SILENT_SHARE = 0.25
"""Share of `inactivity_s` after which a silent sender may be replaced by a new one."""
_PAUSE_CHECK_S = 0.01
"""Interval in seconds at which timers check, while reception is paused, if the pause is over."""


class ReceiverTable:
    """Receivers of a node, by the node id of their sender. They are made when senders appear, and removed again."""

    __slots__ = (
        "_by_id",
        "_config",
        "_context",
        "_evictable_at",
        "_is_receiving",
        "_stale",
        "_unproven",
        "next_at",
    )

    def __init__(self, context: ReceiverContext, is_receiving: bool) -> None:
        self._context = context
        self._config = context.config
        self._is_receiving = is_receiving
        self._by_id: dict[int, Receiver] = {}
        self._unproven: OrderedDict[int, Receiver] = OrderedDict()
        """Receivers whose sender has not proved useful, in order of silence, the longest first."""
        self._stale: dict[tuple[int, int], float] = {}
        """Time until which each incarnation that is over is remembered, by node id and instance id, oldest first."""
        self.next_at = NEVER
        """Time before which no timer of a receiver expires."""
        self._evictable_at = -NEVER

    @property
    def node_ids(self) -> tuple[int, ...]:
        """Node ids of the known senders."""
        return tuple(self._by_id)

    def incoming(self) -> Iterator[ObjectProgress]:
        """Yield the progress of all objects that are being received."""
        return (progress for receiver in self._by_id.values() for progress in receiver.incoming())

    def renew_node_id(self) -> None:
        """Take over the node id of the context, which has changed."""
        for receiver in self._by_id.values():
            receiver.renew_node_id()

    def close(self) -> None:
        """Give up everything that is incomplete, and forget all senders."""
        for node_id in list(self._by_id):
            self._remove(node_id, LossReason.CLOSED)

    # Input.

    def receive_in_order(self, train: Train, now: float) -> bool:
        """Receive a train that is exactly what its sender must send next. Return False, and do nothing, otherwise."""
        if train.data.size < _SOURCE_END:
            return False
        receiver = self._by_id.get(_SOURCE.unpack_from(train.data.data, _SOURCE_AT)[0])
        if receiver is None or not receiver.receive_in_order(train, now):
            return False
        self._after_input(receiver)
        return True

    def is_irrelevant(self, train: Train) -> bool:
        """Return True if a train is feedback between other nodes that changes nothing here.

        In large groups, most messages are such feedback.
        """
        data = train.data.data
        if not _FEEDBACK_BYTES_MIN <= len(data) <= train.segment_bytes or data[0] not in _FEEDBACK:
            return False
        source_id, sender_id = _ENDS.unpack_from(data, _SOURCE_AT)
        receiver = self._by_id.get(sender_id)
        return receiver is not None and not receiver.is_listening and source_id != self._context.node_id != sender_id

    def receive_run(self, run: DataRun, address: Address, now: float, is_paused: bool) -> None:
        """Receive a run of DATA from a remote sender."""
        receiver = self._receiver_of(run.header.message, address, now, is_paused)
        if receiver is not None:
            receiver.receive_run(run, now)
            self._after_input(receiver)

    def receive(self, message: FromSender, address: Address, now: float, is_paused: bool) -> None:
        """Receive a message of a remote sender that is not DATA."""
        receiver = self._receiver_of(message, address, now, is_paused)
        if receiver is None:
            return
        match message:
            case Info():
                receiver.receive_info(message, now)
            case Flush():
                receiver.receive_flush(message, now)
            case CongestionControl():
                receiver.receive_probe(message, now)
            case Squelch():
                receiver.receive_squelch(message, now)
            case RepairAdv():
                receiver.overhear(message)
            case Application():
                receiver.receive_application(message)
            case EndOfTransmission():
                self._remember_stale(receiver, now)
                self._remove(message.source_id, LossReason.SENDER_GONE)
                return
            case _:
                self._context.stats.drop(Drop.UNSUPPORTED)
        self._after_input(receiver)

    def overhear(self, message: FromReceiver) -> None:
        """Note feedback of another receiver to a remote sender."""
        receiver = self._by_id.get(message.sender_id)
        if receiver is None:
            self._context.stats.drop(Drop.NOT_OURS)
            return
        receiver.overhear(message)

    def handle_timeout(self, now: float, is_paused: bool) -> None:
        """Act on all expired timers of receivers. While reception is paused, put them off.

        During a pause, repairs would be dropped on arrival, so it makes no sense to request them.
        """
        if is_paused:
            self.next_at = now + _PAUSE_CHECK_S
            return
        for node_id, receiver in list(self._by_id.items()):
            if receiver.timers.next_at <= now and not receiver.handle_timeout(now):
                self._remove(node_id, LossReason.SENDER_GONE)
        self.next_at = min((receiver.timers.next_at for receiver in self._by_id.values()), default=NEVER)

    # Senders come and go.

    def _receiver_of(self, message: FromSender, address: Address, now: float, is_paused: bool) -> Receiver | None:
        """Return the receiver for the sender of a message, which is made if need be; None to drop the message."""
        node_id, stats = message.source_id, self._context.stats
        if not self._is_receiving:
            stats.drop(Drop.NOT_RECEIVING)
            return None
        # Messages about data are received even in a pause, so that missing data can be requested when it is over.
        if is_paused and not isinstance(message, Flush | CongestionControl | EndOfTransmission):
            stats.drop(Drop.PAUSED)
            if node_id in self._by_id:
                self._by_id[node_id].remote.heard_at = now
            return None
        receiver = self._by_id.get(node_id)
        if receiver is not None and receiver.remote.instance_id == message.instance_id:
            receiver.hear(message, address, now)
            if not receiver.is_proven:
                self._unproven.move_to_end(node_id)
            return receiver
        if self._stale.get((node_id, message.instance_id), 0.0) > now:
            stats.drop(Drop.STALE_INSTANCE)
            return None
        if isinstance(message, EndOfTransmission):
            return None
        if receiver is not None:
            self._remember_stale(receiver, now)
            self._remove(node_id, LossReason.SENDER_RESTARTED)
        elif len(self._by_id) >= self._config.senders_max:
            victim = self._victim(now)
            if victim is None:
                stats.drop(Drop.TOO_MANY_SENDERS)
                return None
            self._remove(victim, LossReason.NO_MEMORY)
        receiver = Receiver(message, address, self._context, now)
        self._by_id[node_id] = self._unproven[node_id] = receiver
        return receiver

    def _after_input(self, receiver: Receiver) -> None:
        """After a receiver has changed, update the next deadline and keep the bound on memory."""
        self.next_at = min(self.next_at, receiver.timers.next_at)
        if receiver.is_proven:
            self._unproven.pop(receiver.remote.node_id, None)
        while self._context.used_bytes > self._config.total_bytes_max:
            # The receiver that holds most memory gives way, so that a greedy sender does no harm to other senders.
            max(
                self._by_id.values(),
                key=lambda holder: (holder.used_bytes > 0, not holder.is_proven, holder.used_bytes),
            ).shed()

    def _victim(self, now: float) -> int | None:
        """Return the node id of a sender that a new one may replace, or None."""
        if self._unproven:
            return next(iter(self._unproven))
        if now < self._evictable_at:
            return None
        self._evictable_at = now + _EVICTION_INTERVAL_S
        longest_silent = min(self._by_id.values(), key=lambda receiver: receiver.remote.heard_at).remote
        is_silent = now - longest_silent.heard_at >= self._config.inactivity_s * _SILENT_SHARE
        return longest_silent.node_id if is_silent else None

    def _remember_stale(self, receiver: Receiver, now: float) -> None:
        """Remember an incarnation that is over, so that its late messages do not bring it back."""
        key = receiver.remote.node_id, receiver.remote.instance_id
        self._stale.pop(key, None)
        self._stale[key] = now + _STALE_S
        while len(self._stale) > _STALE_MAX or next(iter(self._stale.values())) <= now:
            del self._stale[next(iter(self._stale))]

    def _remove(self, node_id: int, reason: LossReason) -> None:
        self._unproven.pop(node_id, None)
        self._by_id.pop(node_id).vanish(reason)
