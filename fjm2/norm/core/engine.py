"""One NORM node, sans I/O: it is told what came and what time it is, and says what goes out and what happened.

Five verbs drive it. `receive_train` and `handle_timeout` are inputs; after either, and after any command, the caller
sends what `poll_train` gives until it gives None, takes what `poll_event` gives likewise, and wakes it at
`poll_timeout`. It knows neither sockets nor clocks, and routes: to the sender, or to the receiver of a remote sender.
"""

import struct
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np

from fjm2.base.errors import WireError

from .config import ReceiverConfig, SessionConfig, Sync
from .events import Event, LossReason, NodeIdCollided
from .receive.incoming_object import ObjectProgress
from .receive.inventory import ReceiverContext
from .receive.receiver import Receiver
from .send.sender import Sender
from .send.sources import Source
from .stats import Drop, Stats
from .timers import NEVER
from .train import Address, Train
from .wire import (
    VERSION,
    Ack,
    Application,
    CongestionControl,
    DataReader,
    DataRun,
    EndOfTransmission,
    Flush,
    FromReceiver,
    FromSender,
    Info,
    Message,
    MessageType,
    Nack,
    RepairAdv,
    Squelch,
    decode,
)

_SOURCE = struct.Struct(">I")
_SOURCE_AT = 4
_SHORTEST_SENT = 8
"""Whatever is shorter tells not who sent it."""
_ENDS = struct.Struct(">II")
"""Of feedback: whom it comes from and which sender it is for."""
_SHORTEST_FEEDBACK = 24
_FEEDBACK = frozenset(VERSION << 4 | kind for kind in (MessageType.NACK, MessageType.ACK))
"""First bytes."""
_STALE_S = 10.0
"""For so long, what an earlier incarnation of a sender sent may still be under way."""
_STALE_MAX = 1024
_EVICTION_S = 0.01
"""So often is it looked whether a newcomer may take the place of a sender that has sent something whole."""
_SILENT_PART = 0.25
"""Of the time after which a silent sender is forgotten: from then on a newcomer may take its place."""
_OUTBOX_MAX = 1024
"""Most answers that wait to be sent. What they are for is asked again, by us or of us."""
_COLLISION_REPORT_S = 10.0
_PAUSE_S = 0.01
"""While paused, so often is it looked whether it is over."""


class Engine:
    """A node of one NORM session: one sender, and a receiver for every remote sender that is heard of."""

    def __init__(
        self, config: SessionConfig, group: Address, *, random: Random, group_is_multicast: bool = True
    ) -> None:
        self.config = config
        """Its settings."""
        self.stats = Stats()
        """What it has done since it began."""
        self.own_address: Address | None = None
        """Whom our datagrams come from, as they are seen when they are looped back."""
        self._group = group
        self._group_is_multicast = group_is_multicast
        self._events: deque[Event] = deque()
        self._outbox: deque[Train] = deque()
        self._reader = DataReader()
        self._sender = Sender(config.node_id, config.sender, group, random, self.stats, self._events.append)
        self._is_receiving = config.receiver is not None
        self._receiver_config = config.receiver or ReceiverConfig()
        self.is_paused = False
        """Set by the caller while nobody takes what is received: data are dropped then, to be asked for later."""
        self._context = ReceiverContext(
            config.node_id,
            self._receiver_config,
            random,
            self.stats,
            self._events.append,
            self._send,
            group_is_multicast,
        )
        self._receivers: dict[int, Receiver] = {}
        self._strangers: OrderedDict[int, Receiver] = OrderedDict()
        """Those of the receivers that never got anything whole, the longest silent first."""
        self._stale: dict[tuple[int, int], float] = {}
        """Sender and instance that is over, and until when to remember; the oldest first."""
        self._receivers_next_at = NEVER
        """No receiver's timer runs out earlier."""
        self._evictable_at = -NEVER
        self._collision_reported_at = -NEVER

    # Inputs.

    def receive_train(self, train: Train, now: float, by_unicast: bool = False) -> None:
        """Datagrams have come, from one address."""
        if train.address == self.own_address:
            self.stats.drop(Drop.OWN, train.count)
            return
        self.stats.datagrams_received += train.count
        self.stats.bytes_received += train.data.size
        if not self.is_paused and self._receive_in_order(train, now):
            return
        if self._is_idle_talk(train):
            return
        for part in self._reader.read(train):
            if isinstance(part, DataRun):
                self._receive_run(part, train.address, now)
                continue
            try:
                message = decode(part)
            except WireError:
                self.stats.drop(Drop.MALFORMED)
                continue
            self._receive_message(message, train.address, now, by_unicast)

    def handle_timeout(self, now: float) -> None:
        """It is time: act on every timer that has run out."""
        if self._sender.timers.next_at <= now:
            self._sender.handle_timeout(now)
        if self._receivers_next_at <= now and self.is_paused:
            self._receivers_next_at = now + _PAUSE_S  # to ask for what nobody takes would be in vain
        if self._receivers_next_at <= now:
            for node_id, receiver in list(self._receivers.items()):
                if receiver.timers.next_at <= now and not receiver.handle_timeout(now):
                    self._remove(node_id, LossReason.SENDER_GONE)
            self._receivers_next_at = min(
                (receiver.timers.next_at for receiver in self._receivers.values()), default=NEVER
            )

    # Outputs.

    def poll_train(self, now: float) -> Train | None:
        """What to send next, if anything may go. Its bytes are good until the next call."""
        if self._outbox:
            return self._outbox.popleft()
        return self._sender.poll_train(now)

    def poll_event(self) -> Event | None:
        """What has happened, one thing at a time."""
        return self._events.popleft() if self._events else None

    def poll_timeout(self) -> float:
        """When to call `handle_timeout` at the latest; infinite if there is no need to."""
        return min(self._sender.timers.next_at, self._receivers_next_at)

    # Commands.

    def has_room(self, size: int) -> bool:
        """Whether an object that takes so much memory can be queued now."""
        return self._sender.has_room(size)

    def enqueue(self, source: Source, info: bytes | None, is_file: bool, now: float) -> int:
        """Send an object. Its transport id."""
        return self._sender.enqueue(source, info, is_file, now)

    def open_stream(self, info: bytes | None, now: float) -> int:
        """Begin a stream. Its transport id."""
        return self._sender.open_stream(info, now)

    def write(self, stream: int, data: memoryview, marks: Sequence[int] = ()) -> int:
        """Append to a stream as many bytes as there is room for; messages begin at the marks. How many fit."""
        return self._sender.write(stream, data, marks)

    def flush(self, stream: int) -> None:
        """Let what was written go, even if it fills no train."""
        self._sender.flush_stream(stream)

    def end_stream(self, stream: int) -> None:
        """Close a stream for good."""
        self._sender.end_stream(stream)

    def cancel(self, object_id: int, now: float) -> None:
        """Send nothing more of an object."""
        self._sender.cancel(object_id, now)

    def watermark(self, nodes: Sequence[int], now: float) -> int:
        """Ask nodes to confirm all that was queued and written so far. The number in `WatermarkCompleted`."""
        return self._sender.watermark(nodes, now)

    def set_receivers(self, nodes: frozenset[int], now: float, strangers: frozenset[int] = frozenset()) -> None:
        """Let flow control wait for these nodes, and not for strangers, whatever they answer."""
        self._sender.set_receivers(nodes, now, strangers)

    def forget_receiver(self, node: int, now: float) -> None:
        """A node has left: wait for its confirmations no more."""
        self._sender.forget_receiver(node, now)

    @property
    def receivers(self) -> frozenset[int]:
        """The nodes that flow control waits for."""
        return self._sender.receivers

    @property
    def awaited_receivers(self) -> frozenset[int]:
        """Those of them that have still to confirm what was asked last."""
        return self._sender.awaited_receivers

    @property
    def evicted_receivers(self) -> frozenset[int]:
        """Those that were waited for in vain, and have neither come back nor left."""
        return self._sender.evicted_receivers

    def set_sync(self, sync: Sync) -> None:
        """Where reception of streams begins that are heard of from now on. Not `Sync.ALL`: that is for good."""
        self._context.config = replace(self._context.config, sync=sync)

    def send_command(self, content: bytes, is_robust: bool, now: float) -> None:
        """Send a short message besides all objects; a robust one is repeated."""
        self._sender.send_command(content, is_robust, now)

    def leave(self) -> None:
        """Say goodbye as a sender: nothing more goes out but that."""
        self._sender.close()

    def renew(self, node_id: int, random: Random) -> None:
        """Go on under another node id, as a sender that has sent nothing yet. What is being received goes on."""
        self.config = replace(self.config, node_id=node_id)
        self._context.node_id = node_id
        self._sender = Sender(node_id, self.config.sender, self._group, random, self.stats, self._events.append)
        for receiver in self._receivers.values():
            receiver.renew_node_id()

    def close(self) -> None:
        """Say goodbye, and give up what is incomplete."""
        self._sender.close()
        for node_id in list(self._receivers):
            self._remove(node_id, LossReason.CLOSED)

    @property
    def grtt_s(self) -> float:
        """The group's round-trip time as this node's sender advertises it."""
        return self._sender.grtt_s

    @property
    def remote_senders(self) -> tuple[int, ...]:
        """Node ids of the senders known."""
        return tuple(self._receivers)

    @property
    def incoming(self) -> tuple[ObjectProgress, ...]:
        """How far the objects are that are on their way in; streams are not among them."""
        return tuple(progress for receiver in self._receivers.values() for progress in receiver.incoming())

    @property
    def memory_bytes(self) -> int:
        """Memory that objects on their way in take."""
        return self._context.used_bytes

    # Routing.

    def _receive_in_order(self, train: Train, now: float) -> bool:
        """Take a train that is just what comes next of its sender's; False, and nothing has been done, else."""
        if train.data.size < _SHORTEST_SENT:
            return False
        receiver = self._receivers.get(_SOURCE.unpack_from(train.data.data, _SOURCE_AT)[0])
        if receiver is None or not receiver.receive_in_order(train, now):
            return False
        self._after(receiver)
        return True

    def _is_idle_talk(self, train: Train) -> bool:
        """Whether it is feedback between others that changes nothing here. Large groups hear little else."""
        data = train.data.data
        if not _SHORTEST_FEEDBACK <= len(data) <= train.segment_bytes or data[0] not in _FEEDBACK:
            return False
        source_id, sender_id = _ENDS.unpack_from(data, _SOURCE_AT)
        receiver = self._receivers.get(sender_id)
        return receiver is not None and not receiver.is_listening and source_id != self.config.node_id != sender_id

    def _receive_run(self, run: DataRun, address: Address, now: float) -> None:
        receiver = self._receiver_of(run.header.message, address, now)
        if receiver is not None:
            receiver.receive_run(run, now)
            self._after(receiver)

    def _receive_message(self, message: Message, address: Address, now: float, by_unicast: bool) -> None:
        if isinstance(message, FromReceiver):
            self._receive_feedback(message, address, now, by_unicast)
            return
        if not isinstance(message, FromSender):
            self.stats.drop(Drop.UNSUPPORTED)
            return
        receiver = self._receiver_of(message, address, now)
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
                self.stats.drop(Drop.UNSUPPORTED)
        self._after(receiver)

    def _receive_feedback(self, message: FromReceiver, address: Address, now: float, by_unicast: bool) -> None:
        if message.source_id == self.config.node_id:
            self._note_own(address, now)
            return
        if message.sender_id == self.config.node_id:
            if message.instance_id != self._sender.instance_id:
                self.stats.drop(Drop.STALE_INSTANCE)
            elif isinstance(message, Nack):
                self._sender.receive_nack(message, now, by_unicast, self._group_is_multicast)
            elif isinstance(message, Ack):
                self._sender.receive_ack(message, now)
            return
        receiver = self._receivers.get(message.sender_id)
        if receiver is None:
            self.stats.drop(Drop.NOT_OURS)
            return
        receiver.overhear(message)

    def _receiver_of(self, message: FromSender, address: Address, now: float) -> Receiver | None:
        """The receiver for the sender of a message, made if need be, if it may be."""
        node_id = message.source_id
        if node_id == self.config.node_id:
            if message.instance_id == self._sender.instance_id:
                self.stats.drop(Drop.OWN)  # it was forwarded back to us
            else:
                self._note_own(address, now)
            return None
        if not self._is_receiving:
            self.stats.drop(Drop.NOT_RECEIVING)
            return None
        # What only tells of data is heard all the same: it is then known what to ask for when the pause is over.
        if self.is_paused and not isinstance(message, Flush | CongestionControl | EndOfTransmission):
            self.stats.drop(Drop.PAUSED)
            if node_id in self._receivers:
                self._receivers[node_id].remote.heard_at = now
            return None
        receiver = self._receivers.get(node_id)
        if receiver is not None and receiver.remote.instance_id == message.instance_id:
            receiver.hear(message, address, now)
            if not receiver.is_proven:
                self._strangers.move_to_end(node_id)
            return receiver
        if self._stale.get((node_id, message.instance_id), 0.0) > now:
            self.stats.drop(Drop.STALE_INSTANCE)
            return None
        if isinstance(message, EndOfTransmission):
            return None
        if receiver is not None:
            self._remember_stale(receiver, now)
            self._remove(node_id, LossReason.SENDER_RESTARTED)
        elif len(self._receivers) >= self._receiver_config.senders_max:
            victim = self._victim(now)
            if victim is None:
                self.stats.drop(Drop.TOO_MANY_SENDERS)
                return None
            self._remove(victim, LossReason.NO_MEMORY)
        receiver = Receiver(message, address, self._context, now)
        self._receivers[node_id] = self._strangers[node_id] = receiver
        return receiver

    def _after(self, receiver: Receiver) -> None:
        """A receiver has been given something."""
        self._receivers_next_at = min(self._receivers_next_at, receiver.timers.next_at)
        if receiver.is_proven:
            self._strangers.pop(receiver.remote.node_id, None)
        while self._context.used_bytes > self._receiver_config.total_bytes_max:
            # Whoever holds most, for a sender that takes all there is must not do so at the expense of others.
            max(
                self._receivers.values(),
                key=lambda holder: (holder.used_bytes > 0, not holder.is_proven, holder.used_bytes),
            ).shed()

    def _victim(self, now: float) -> int | None:
        """Whose place a new sender may take."""
        if self._strangers:
            return next(iter(self._strangers))
        if now < self._evictable_at:
            return None
        self._evictable_at = now + _EVICTION_S
        longest_silent = min(self._receivers.values(), key=lambda receiver: receiver.remote.heard_at).remote
        is_silent = now - longest_silent.heard_at >= self._receiver_config.inactivity_s * _SILENT_PART
        return longest_silent.node_id if is_silent else None

    def _remember_stale(self, receiver: Receiver, now: float) -> None:
        """What a sender's incarnation that is over has sent may come late: it is not to begin it again."""
        key = receiver.remote.node_id, receiver.remote.instance_id
        self._stale.pop(key, None)
        self._stale[key] = now + _STALE_S
        while len(self._stale) > _STALE_MAX or next(iter(self._stale.values())) <= now:
            del self._stale[next(iter(self._stale))]

    def _remove(self, node_id: int, reason: LossReason) -> None:
        self._strangers.pop(node_id, None)
        self._receivers.pop(node_id).vanish(reason)

    def _note_own(self, address: Address, now: float) -> None:
        """A message with our node id that does not come from us: somebody else uses the same."""
        if self.own_address is None:
            self.stats.drop(Drop.OWN)
        elif now - self._collision_reported_at >= _COLLISION_REPORT_S:
            self._collision_reported_at = now
            self._events.append(NodeIdCollided(address))

    def _send(self, message: Message, address: Address | None) -> None:
        if len(self._outbox) >= _OUTBOX_MAX:
            self.stats.drop(Drop.RATE_LIMITED)
            return
        data = np.frombuffer(message.encode(), np.uint8)
        self.stats.datagrams_sent += 1
        self.stats.bytes_sent += data.size
        self._outbox.append(Train(data, data.size, address or self._group))
