"""The receivers of a node, one for each remote sender, and the bounds that protect them from too many senders."""

import struct
from collections import OrderedDict
from collections.abc import Iterator

from fjm2.norm.core.events import AckRequested, CommandReceived, Doubt, LossReason
from fjm2.norm.core.remote_sender import RemoteSender
from fjm2.norm.core.stats import Drop
from fjm2.norm.core.timers import NEVER, Timer
from fjm2.norm.core.train import Address, Train
from fjm2.norm.core.wire import (
    APPLICATION_ACK_MIN,
    VERSION,
    AckRequest,
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

from .admission import Admission
from .claims import DEPARTED_S, LATE_S, Claim, Claims, Departed, Part
from .context import ReceiverContext
from .incoming_object import ObjectProgress
from .incoming_stream import Resumption
from .receiver import Receiver

_SOURCE = struct.Struct(">I")
_SOURCE_AT = 4
"""Offset of the source id in every NORM message."""
_SOURCE_END = 8
"""Offset after the source id. A shorter datagram has no source id."""
_SENDER = struct.Struct(">IH")
"""Source id and instance id of messages of a sender."""
_SENDER_BYTES_MIN = 12
"""Length of the shortest message of a sender: the header fields that all of them have."""
_FROM_SENDER = frozenset(VERSION << 4 | kind for kind in (MessageType.INFO, MessageType.DATA, MessageType.CMD))
"""First bytes of messages of a sender."""
_ENDS = struct.Struct(">II")
"""Format of the source id and the sender id of feedback: the receiver that it comes from, and the sender it is for."""
_FEEDBACK_BYTES_MIN = 24
"""Length of the shortest NACK or ACK: their fixed header."""
_FEEDBACK = frozenset(VERSION << 4 | kind for kind in (MessageType.NACK, MessageType.ACK))
"""First bytes that feedback messages can have."""
_DEPARTED_MAX = 1024
"""Maximum number of earlier incarnations remembered: anyone can invent them."""
_EVICTION_INTERVAL_S = 0.01
"""Shortest time in seconds between searches for a proven sender to replace. Each search looks at all senders."""
_STAY_S = 0.005
"""A sender that is heard again after this time keeps its place. Invented ones are heard once."""
_PASSING_S = 1.0
"""Silence after which a sender that was heard only once gives way to a new one."""
_SILENT_SHARE = 0.25
"""Share of `inactivity_s` after which a silent sender may be replaced by a new one."""
_PAUSE_CHECK_S = 0.01
"""While reception is paused, how often timers are looked at: those that request repairs wait until it goes on."""


class ReceiverTable:
    """Receivers of a node, by the node id of their sender. They are made when senders appear, and removed again."""

    __slots__ = (
        "_admission",
        "_admitted",
        "_by_id",
        "_claims",
        "_config",
        "_context",
        "_departed",
        "_evictable_at",
        "_is_receiving",
        "_passing",
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
        self._passing: OrderedDict[int, Receiver] = OrderedDict()
        """Receivers whose sender has proved useful, but was heard only once, oldest first."""
        self._departed: dict[tuple[int, int], Departed] = {}
        """Incarnations that are over, by node id and instance id; oldest first."""
        self._claims = Claims(self._refuse)
        self._admission = Admission()
        self._admitted = 0
        """Node id of the unknown sender that was admitted last; 0 once it has a receiver."""
        self.next_at = NEVER
        """Time before which no timer of a receiver expires."""
        self._evictable_at = -NEVER

    @property
    def node_ids(self) -> tuple[int, ...]:
        """Node ids of the known senders."""
        return tuple(self._by_id)

    def silence_s(self, node_id: int, now: float) -> float:
        """Return the time since a sender was heard, in seconds; infinite if it is not known."""
        receiver = self._by_id.get(node_id)
        return NEVER if receiver is None else now - receiver.remote.heard_at

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
        data = train.data.data
        receiver = self._by_id.get(_SOURCE.unpack_from(data, _SOURCE_AT)[0])
        if receiver is None or not receiver.receive_in_order(train, data, now):
            return False
        self._after_input(receiver)
        return True

    def relevant_part(self, train: Train, now: float) -> Train | None:
        """Return a train without unknown senders at its beginning that are not admitted, or None if nothing is left.

        Nothing is left of feedback between other nodes that changes nothing here, either: in large groups most messages
        are. This costs less than reading the datagrams.
        """
        if self._is_overheard_in_vain(train):
            return None
        if not self._is_receiving:
            return train
        data, step = train.data.data, train.segment_bytes
        at, size = 0, len(data)
        while at < size and self._is_stranger(data, at, train.address, now):
            at += step
        if not at:
            return train
        self._context.stats.drop(Drop.STRANGER, -(-min(at, size) // step))
        return Train(train.data[at:], step, train.address) if at < size else None

    def _is_overheard_in_vain(self, train: Train) -> bool:
        data = train.data.data
        if not _FEEDBACK_BYTES_MIN <= len(data) <= train.segment_bytes or data[0] not in _FEEDBACK:
            return False
        source_id, sender_id = _ENDS.unpack_from(data, _SOURCE_AT)
        receiver = self._by_id.get(sender_id)
        return receiver is not None and not receiver.is_listening and source_id != self._context.node_id != sender_id

    def _is_stranger(self, data: memoryview, at: int, address: Address, now: float) -> bool:
        """Return True if a datagram is of an unknown sender that is not admitted."""
        if data[at] not in _FROM_SENDER or len(data) - at < _SENDER_BYTES_MIN:
            return False
        node_id, instance_id = _SENDER.unpack_from(data, at + _SOURCE_AT)
        return not (
            node_id in self._by_id
            or node_id == self._context.node_id
            or self._is_admitted(node_id, instance_id, address, now)
        )

    def _is_admitted(self, node_id: int, instance_id: int, address: Address, now: float) -> bool:
        if node_id != self._admitted:
            if not self._admission.admits(node_id, instance_id, address, now):
                return False
            self._admitted = node_id
        return True

    def receive_run(self, run: DataRun, address: Address, now: float, is_paused: bool) -> None:
        """Receive a run of DATA from a remote sender."""
        receiver = self._receiver_of(run.header.message, run, address, now, is_paused)
        if receiver is not None:
            receiver.receive_run(run, now)
            self._after_input(receiver)

    def receive(self, message: FromSender, address: Address, now: float, is_paused: bool) -> None:
        """Receive a message of a remote sender that is not DATA."""
        receiver = self._receiver_of(message, message, address, now, is_paused)
        if receiver is not None:
            self._pass(receiver, message, now)
            self._after_input(receiver)

    def _pass(self, receiver: Receiver, message: FromSender, now: float) -> None:
        """Pass a message other than DATA to the receiver of its sender."""
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
                self._context.emit(CommandReceived(message.source_id, message.content))
            case AckRequest(ack_type=ack_type, acking_nodes=nodes) if ack_type >= APPLICATION_ACK_MIN:
                if not nodes or self._context.node_id in nodes:
                    self._context.emit(AckRequested(message.source_id, ack_type, message.ack_id))
                else:
                    self._context.stats.drop(Drop.NOT_OURS)
            case EndOfTransmission():
                receiver.receive_end(now)
            case _:
                self._context.stats.drop(Drop.UNSUPPORTED)

    def acknowledge(self, sender_id: int, ack_type: int, ack_id: int, content: bytes, now: float) -> bool:
        """Send an acknowledgement of the application to a sender. Return False if it is not known or was sent too much,
        or this node is silent."""
        receiver = self._by_id.get(sender_id)
        if receiver is None or self._context.is_silent:
            return False
        return receiver.feedback.application_ack(ack_type, ack_id, content, receiver.is_proven, now)

    def overhear(self, message: FromReceiver) -> None:
        """Note feedback of another receiver to a remote sender."""
        receiver = self._by_id.get(message.sender_id)
        if receiver is None:
            self._context.stats.drop(Drop.NOT_OURS)
            return
        receiver.overhear(message)

    def handle_timeout(self, now: float, is_paused: bool) -> None:
        """Act on all timers of receivers that have expired. While paused, they only show senders that they live."""
        for node_id, receiver in list(self._by_id.items()):
            if receiver.timers.next_at > now:
                continue
            has_left = not is_paused and receiver.timers.deadline(Timer.LEAVE) <= now
            if not receiver.handle_timeout(now, is_paused):
                resume_at = self._remove(node_id, LossReason.SENDER_GONE)
                if has_left:
                    self._remember(receiver.remote, resume_at, Doubt.GOODBYE, now)
        if self._claims and not is_paused:
            for claim in self._claims.take_due(self._remote_of, now):
                self._believe(claim, now)
        self.next_at = min((receiver.timers.next_at for receiver in self._by_id.values()), default=NEVER)
        if self._claims:
            self.next_at = min(self.next_at, self._claims.due_at)
        if is_paused:
            self.next_at = max(self.next_at, now + _PAUSE_CHECK_S)

    # Senders come and go.

    def _receiver_of(
        self, message: FromSender, part: Part, address: Address, now: float, is_paused: bool
    ) -> Receiver | None:
        """Return the receiver for the sender of a message, which is made if need be; None to drop the message."""
        node_id, stats = message.source_id, self._context.stats
        if not self._is_receiving:
            stats.drop(Drop.NOT_RECEIVING)
            return None
        receiver = self._by_id.get(node_id)
        is_known = (
            receiver is not None
            and receiver.remote.instance_id == message.instance_id
            and receiver.remote.address == address
        )
        # Messages about data are received even in a pause, so that missing data can be requested when it is over.
        # Requests for acknowledgements are offered to the application, which takes them at once or loses them.
        if is_paused and not isinstance(message, Flush | CongestionControl | AckRequest | EndOfTransmission):
            stats.drop(Drop.PAUSED)
            if receiver is not None and is_known:
                receiver.remote.heard_at = now
            return None
        if receiver is None:
            return self._appeared(message, address, now)
        if not is_known:
            self._hear_claim(receiver.remote, message, part, address, now)
            return None
        receiver.hear(message, now)
        if not receiver.is_proven:
            self._unproven.move_to_end(node_id)
        return receiver

    def _appeared(self, message: FromSender, address: Address, now: float) -> Receiver | None:
        """Return a receiver for a sender that is not known, unless the sender is not to be received."""
        key = message.source_id, message.instance_id
        departed = self._recently_departed(key, now)
        if departed is not None:
            is_late = now - departed.left_at <= LATE_S
            if is_late or departed.address != address or isinstance(message, EndOfTransmission):
                self._context.stats.drop(Drop.STALE_INSTANCE)
                return None
            del self._departed[key]
            self._context.disputes.report(message.source_id, address, departed.doubt, now)
        elif isinstance(message, EndOfTransmission):
            return None
        elif not self._is_admitted(*key, address, now):
            self._context.stats.drop(Drop.STRANGER)
            return None
        return self._add(message, address, departed, now)

    def _add(self, message: FromSender, address: Address, departed: Departed | None, now: float) -> Receiver | None:
        """Make a receiver, if there is room for one."""
        self._admitted = 0
        if len(self._by_id) >= self._config.senders_max:
            victim = self._victim(now)
            if victim is None:
                self._context.stats.drop(Drop.TOO_MANY_SENDERS)
                return None
            self._remove(victim, LossReason.NO_MEMORY)
        receiver = Receiver(message, address, self._context, now, departed)
        self._by_id[message.source_id] = self._unproven[message.source_id] = receiver
        return receiver

    def _hear_claim(self, remote: RemoteSender, message: FromSender, part: Part, address: Address, now: float) -> None:
        """Hear a message in the name of a known sender that does not come from it, as far as is known."""
        departed = self._recently_departed((message.source_id, message.instance_id), now)
        is_elder = departed is not None and departed.began_at < remote.began_at
        if departed is not None and (departed.address != address or now - departed.left_at <= LATE_S):
            self._context.stats.drop(Drop.STALE_INSTANCE)
            return
        if isinstance(message, EndOfTransmission | Squelch):
            # A claimant has nothing to take back.
            self._context.stats.drop(Drop.IMPOSTOR)
            doubt = Doubt.GOODBYE if isinstance(message, EndOfTransmission) else Doubt.SQUELCH
            self._context.disputes.report(message.source_id, address, doubt, now)
            return
        claim = self._claims.note(remote, message, part, address, now, is_elder)
        if claim is not None:
            self._believe(claim, now)
        self.next_at = min(self.next_at, self._claims.due_at)

    def _believe(self, claim: Claim, now: float) -> None:
        """Let a claimant be the sender, and receive what it has sent so far."""
        receiver = self._by_id.get(claim.node_id)
        if receiver is not None and receiver.remote.instance_id == claim.instance_id:
            receiver.remote.address = claim.address
        else:
            departed = self._departed.pop((claim.node_id, claim.instance_id), None)
            if receiver is not None:
                if departed is not None:
                    address = receiver.remote.address
                    self._context.disputes.report(claim.node_id, address, Doubt.OTHER_INSTANCE, now)
                resume_at = self._remove(claim.node_id, LossReason.SENDER_RESTARTED)
                self._remember(receiver.remote, resume_at, Doubt.OTHER_INSTANCE, now)
            first = claim.parts[0]
            message = first.header.message if isinstance(first, DataRun) else first
            receiver = self._add(message, claim.address, departed, now)
        if receiver is None:
            return
        for part in claim.parts:
            if isinstance(part, DataRun):
                receiver.hear(part.header.message, now)
                receiver.receive_run(part, now)
            else:
                receiver.hear(part, now)
                self._pass(receiver, part, now)
            self._after_input(receiver)
        receiver.remote.heard_at = claim.heard_at

    def _refuse(self, claim: Claim, now: float) -> None:
        """Drop the messages of a claimant that was not believed. Report them if the known sender contradicts them."""
        self._context.stats.drop(Drop.IMPOSTOR, claim.datagrams)
        remote = self._remote_of(claim.node_id)
        if remote is None or not claim.is_refuted(remote.heard_at):
            return
        is_other = remote.instance_id != claim.instance_id
        if is_other or remote.address != claim.address:  # otherwise the claimant is the sender by now
            doubt = Doubt.OTHER_INSTANCE if is_other else Doubt.OTHER_ADDRESS
            self._context.disputes.report(claim.node_id, claim.address, doubt, now)

    def _remote_of(self, node_id: int) -> RemoteSender | None:
        receiver = self._by_id.get(node_id)
        return None if receiver is None else receiver.remote

    def _after_input(self, receiver: Receiver) -> None:
        """After a receiver has changed, update the next deadline and keep the bound on memory."""
        if receiver.timers.next_at < self.next_at:
            self.next_at = receiver.timers.next_at
        if receiver.is_proven and (self._unproven or self._passing):
            remote = receiver.remote
            if self._unproven.pop(remote.node_id, None) is not None:
                self._passing[remote.node_id] = receiver
            elif self._passing and remote.heard_at - remote.began_at >= _STAY_S:
                self._passing.pop(remote.node_id, None)
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
        oldest = next(iter(self._passing.values()), None)
        if oldest is not None and now - oldest.remote.heard_at >= _PASSING_S:
            return oldest.remote.node_id
        if now < self._evictable_at:
            return None
        self._evictable_at = now + _EVICTION_INTERVAL_S
        longest_silent = min(self._by_id.values(), key=lambda receiver: receiver.remote.heard_at).remote
        is_silent = now - longest_silent.heard_at >= self._config.inactivity_s * _SILENT_SHARE
        return longest_silent.node_id if is_silent else None

    def _recently_departed(self, key: tuple[int, int], now: float) -> Departed | None:
        """Return an incarnation that is over and not forgotten, by its node id and instance id."""
        departed = self._departed.get(key)
        return departed if departed is not None and now - departed.left_at < DEPARTED_S else None

    def _remember(self, remote: RemoteSender, resume_at: dict[int, Resumption], doubt: Doubt, now: float) -> None:
        """Remember a sender that left or was replaced, in case it is heard again."""
        key = remote.node_id, remote.instance_id
        self._departed.pop(key, None)
        self._departed[key] = Departed(remote.address, remote.began_at, now, doubt, resume_at)
        while len(self._departed) > _DEPARTED_MAX or self._oldest_left_at + DEPARTED_S <= now:
            del self._departed[next(iter(self._departed))]

    @property
    def _oldest_left_at(self) -> float:
        return next(iter(self._departed.values())).left_at

    def _remove(self, node_id: int, reason: LossReason) -> dict[int, Resumption]:
        """Give up a sender. Return where its streams go on, by object id."""
        self._unproven.pop(node_id, None)
        self._passing.pop(node_id, None)
        return self._by_id.pop(node_id).vanish(reason)
