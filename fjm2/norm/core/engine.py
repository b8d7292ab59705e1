"""One NORM node without I/O. The caller passes in datagrams and the time, and takes out trains to send and events.

Five methods drive the engine. `receive_train` and `handle_timeout` are inputs. After an input, and after any command,
the caller sends the trains that `poll_train` returns until it returns None, takes the events that `poll_event` returns
until it returns None, and calls `handle_timeout` at `poll_timeout`. The engine uses neither sockets nor clocks. All
that it does itself is to route input to its sender, or to its receivers, of which there is one for each remote sender.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from fjm2.base.errors import ConfigError, WireError

from .collisions import CollisionDetector
from .config import ReceiverConfig, SessionConfig, Sync
from .events import AckReceived, Event, NodeIdCollided
from .receive.context import ReceiverContext
from .receive.feedback import FeedbackQueue
from .receive.incoming_object import ObjectProgress
from .receive.receiver_table import ReceiverTable
from .send.sender import Sender
from .send.sources import Source
from .stats import Drop, Stats
from .timers import NEVER
from .train import Address, Train
from .wire import (
    APPLICATION_ACK_MAX,
    APPLICATION_ACK_MIN,
    Ack,
    DataReader,
    DataRun,
    FromReceiver,
    FromSender,
    Message,
    ObjectFlag,
    decode,
    is_passing,
)

_ACK_ID_MAX = 255
"""Greatest number of a request for acknowledgements, which has one byte."""


class Engine:
    """A node of one NORM session: one sender, and a receiver for every remote sender that it knows."""

    def __init__(
        self, config: SessionConfig, group: Address, *, random: Random, group_is_multicast: bool = True
    ) -> None:
        self.config = config
        """Settings of the node."""
        self.stats = Stats()
        """Counters since the engine was made."""
        self.own_address: Address | None = None
        """Address that our own datagrams come from when they are looped back; None if it is not known."""
        self._is_paused = False
        self._is_kept_only = config.receiver is not None and config.receiver.sync is Sync.KEPT
        self._may_send = False
        """False if the sender had nothing to send, and nothing has happened since."""
        self._group = group
        self.events: deque[Event] = deque()
        """Events that were not taken, oldest first."""
        feedback = FeedbackQueue(group, self.stats)
        self._feedback = feedback.trains
        self._reader = DataReader()
        self._context = ReceiverContext(
            config.node_id,
            config.receiver or ReceiverConfig(),
            random,
            self.stats,
            self.events.append,
            feedback.add,
            group_is_multicast,
            is_silent=config.receiver is not None and config.receiver.silent,
        )
        self._sender = Sender(
            config.node_id, config.sender, group, random, self.stats, self.events.append, group_is_multicast
        )
        self._receivers = ReceiverTable(self._context, config.receiver is not None)
        self.silence_s = self._receivers.silence_s
        """Returns the time since a remote sender was heard; see `ReceiverTable.silence_s`."""
        # Bound once: these two run for every train.
        self._receive_in_order = self._receivers.receive_in_order
        self._relevant_part = self._receivers.relevant_part
        self._collisions = CollisionDetector()

    @property
    def is_paused(self) -> bool:
        """Set by the caller while events are not taken. Data are dropped then, and requested again later.

        Senders are told that this node is full, so that they wait for it.
        """
        return self._is_paused

    @is_paused.setter
    def is_paused(self, is_paused: bool) -> None:
        self._is_paused = self._context.is_full = is_paused

    # Inputs.

    def receive_train(self, train: Train, now: float, by_unicast: bool = False) -> None:
        """Receive datagrams that came from one address."""
        if train.address == self.own_address:
            self.stats.drop(Drop.OWN, train.count)
            return
        stats, size = self.stats, train.data.size
        stats.datagrams_received += 1 if size <= train.segment_bytes else train.count
        stats.bytes_received += size
        if self._is_kept_only and self._is_passing(train):
            self.stats.drop(Drop.PASSING, train.count)
            return
        if not self._is_paused and self._receive_in_order(train, now):
            return
        relevant = self._relevant_part(train, now)
        if relevant is None:
            return
        for part in self._reader.read(relevant):
            if isinstance(part, DataRun):
                if self._is_kept_only and part.header.message.flags & ObjectFlag.PASSING:
                    self.stats.drop(Drop.PASSING, part.count)
                    continue
                if part.header.message.source_id == self.config.node_id:
                    self._receive_own(part.header.message, train.address, now)
                else:
                    self._receivers.receive_run(part, train.address, now, self._is_paused)
                continue
            try:
                message = decode(part)
            except WireError:
                self.stats.drop(Drop.MALFORMED)
                continue
            self._receive_message(message, train.address, now, by_unicast)

    @staticmethod
    def _is_passing(train: Train) -> bool:
        """Return True if nothing of a train is to be kept. A train may lie on both sides of where keeping begins."""
        data = train.data.data
        return is_passing(data, 0) and is_passing(data, (train.count - 1) * train.segment_bytes)

    def handle_timeout(self, now: float) -> None:
        """Act on every timer that has expired."""
        if self._sender.timers.next_at <= now:
            self._may_send = True
            self._sender.handle_timeout(now)
        if self._receivers.next_at <= now:
            self._receivers.handle_timeout(now, self._is_paused)

    # Outputs.

    def poll_train(self, now: float) -> Train | None:
        """Return the next train to send, or None if none may be sent now. Its bytes are valid until the next call."""
        if self._feedback:
            return self._feedback.popleft()
        if not self._may_send:
            return None
        train = self._sender.scheduler.poll_train(now)
        if train is None:
            self._may_send = self._sender.is_paced_out
        return train

    def poll_event(self) -> Event | None:
        """Return the next event, or None if there is none."""
        return self.events.popleft() if self.events else None

    def poll_timeout(self) -> float:
        """Return the time by which `handle_timeout` must be called; infinity if no timer is set."""
        ours, theirs = self._sender.timers.next_at, self._receivers.next_at
        return ours if ours < theirs else theirs

    # Commands.

    def has_room(self, size: int) -> bool:
        """Return True if an object that takes `size` bytes of memory can be queued now."""
        return self._sender.cache.has_room(size)

    def enqueue(self, source: Source, info: bytes | None, is_file: bool, now: float) -> int:
        """Queue an object to be sent, and return its transport id."""
        self._may_send = True
        return self._sender.enqueue(source, info, is_file, now)

    def open_stream(self, info: bytes | None, now: float, *, is_passing: bool = False) -> int:
        """Begin a stream, and return its transport id. If `is_passing`, nothing of it is to be kept: receivers with
        `Sync.KEPT` do not receive it until `keep_stream`."""
        self._may_send = True
        return self._sender.open_stream(info, now, is_passing=is_passing)

    def keep_stream(self, stream: int) -> None:
        """Have what is written to a passing stream from now on received by all. Harmless for other streams."""
        self._may_send = True
        self._sender.keep_stream(stream)

    def write(self, stream: int, data: memoryview, marks: Sequence[int] = ()) -> int:
        """Append to a stream as many bytes as there is room for, and return their number.

        Messages begin at the offsets in `marks`.
        """
        self._may_send = True
        return self._sender.write(stream, data, marks)

    def write_alone(
        self, stream: int, head: bytes, body: bytes, now: float, send: Callable[[memoryview], object]
    ) -> bool:
        """Append a short message, in two parts, to a stream, and pass its datagram to `send`, which must send it to the
        group at once.

        `send` is called as early as possible: the books are kept while the message is on its way. Return False, and do
        nothing, unless the sender has nothing else to send: then `write` the message.
        """
        if self._feedback or self._may_send or not self._sender.scheduler.send_alone(stream, head, body, now, send):
            return False
        self._may_send = bool(self._sender.scheduler.commands)
        return True

    @property
    def may_send(self) -> bool:
        """True if `poll_train` may have a train."""
        return self._may_send or bool(self._feedback)

    def unsent_bytes(self, stream: int) -> int:
        """Return the size of a stream's segments that were written and not sent; 0 if there is no such stream."""
        return self._sender.unsent_bytes(stream)

    def flush(self, stream: int) -> None:
        """Let everything that was written to a stream be sent, even if it does not fill a train."""
        self._may_send = True
        self._sender.flush_stream(stream)

    def repeat_flush(self, nodes: tuple[int, ...], now: float) -> None:
        """Tell receivers once more how far the data go. Of `nodes`, those that have come since they were told begin."""
        self._may_send = True
        self._sender.repeat_flush(nodes, now)

    def end_stream(self, stream: int) -> None:
        """Close a stream, and tell its receivers that nothing more will come."""
        self._may_send = True
        self._sender.end_stream(stream)

    def cancel(self, object_id: int, now: float) -> None:
        """Send nothing more of an object."""
        self._may_send = True
        self._sender.cancel(object_id, now)

    def watermark(self, nodes: Sequence[int], now: float, timeout_s: float = NEVER) -> int:
        """Ask nodes to confirm everything queued and written so far.

        Return a number, which the event `WatermarkCompleted` will carry. Nodes fail that have not confirmed `timeout_s`
        seconds after everything was sent, repairs included, and they were asked; repairs take four such times at most.
        """
        self._may_send = True
        return self._sender.watermark(nodes, now, timeout_s)

    def end_watermark(self, number: int, now: float) -> None:
        """Complete a watermark now: nodes that have not confirmed it have failed. Harmless if it is complete."""
        self._may_send = True
        self._sender.end_watermark(number, now)

    def set_receivers(self, nodes: frozenset[int], now: float, strangers: frozenset[int] = frozenset()) -> None:
        """Let flow control wait for `nodes`, and never for `strangers`, even if those answer."""
        self._may_send = True
        self._sender.flow_control.set_receivers(nodes, now, strangers)

    def forget_receiver(self, node: int, now: float) -> None:
        """Stop waiting for confirmations of a node that has left."""
        self._may_send = True
        self._sender.flow_control.forget_receiver(node, now)

    @property
    def receivers(self) -> frozenset[int]:
        """Nodes that flow control waits for."""
        return self._sender.window.acking_set.nodes

    @property
    def awaited_receivers(self) -> frozenset[int]:
        """Nodes among `receivers` that have not confirmed the position that flow control asked for last."""
        return self._sender.window.awaited

    @property
    def evicted_receivers(self) -> frozenset[int]:
        """Nodes that flow control gave up waiting for, and that have neither come back nor left."""
        return self._sender.window.acking_set.evicted

    @property
    def stalled_receivers(self) -> frozenset[int]:
        """Those of `evicted_receivers` that answered but made no progress, and have shown none since."""
        return self._sender.window.acking_set.stalled

    @property
    def full_receivers(self) -> frozenset[int]:
        """Nodes that flow control waits for, and that say that their application takes nothing."""
        return self._sender.window.acking_set.full

    @property
    def silent_receivers(self) -> frozenset[int]:
        """Nodes that have fallen silent, so that others go on without them. What they lack is kept for a while."""
        return frozenset(self._sender.window.acking_set.aside)

    def set_sync(self, sync: Sync) -> None:
        """Set where reception of new streams begins. Do not pass `Sync.ALL`, which cannot be undone."""
        self._context.config = replace(self._context.config, sync=sync)

    def send_command(self, content: bytes, is_robust: bool, now: float) -> None:
        """Send a short message that belongs to no object. If `is_robust`, it is sent several times."""
        self._may_send = True
        self._sender.send_command(content, is_robust, now)

    def request_acks(self, ack_type: int, nodes: Sequence[int] = (), ack_id: int = 0) -> None:
        """Ask nodes, or all if none is named, for an acknowledgement of a type that the application defines.

        The request is sent once. Answers come as `AckReceived`. Raise ConfigError if an argument is out of range.
        """
        _check_ack(ack_type, ack_id)
        self._may_send = True
        self._sender.request_acks(ack_type, tuple(nodes), ack_id)

    def send_ack(self, sender_id: int, ack_type: int, content: bytes, now: float, ack_id: int = 0) -> bool:
        """Send an acknowledgement of a type that the application defines to a sender, by unicast and once.

        Return False if the sender is not known or was sent too much, or this node is silent. Raise ConfigError if an
        argument is out of range.
        """
        _check_ack(ack_type, ack_id)
        longest = self.config.sender.segment_bytes
        if len(content) > longest:
            raise ConfigError(f"an acknowledgement of {len(content)} bytes: expected {longest} at most")
        return self._receivers.acknowledge(sender_id, ack_type, ack_id, content, now)

    def stop_answering(self) -> None:
        """Send nothing more to remote senders: this node has told them that it leaves."""
        self._context.is_silent = self._context.is_leaving = True

    def leave(self) -> None:
        """Tell the group that this node's sender leaves. After that, the sender sends nothing."""
        self._may_send = True
        self._sender.close()

    def renew(self, node_id: int, random: Random) -> None:
        """Continue under another node id, with a new sender. Reception continues."""
        self.config = replace(self.config, node_id=node_id)
        context = self._context
        context.node_id = node_id
        self._may_send = True
        self._sender = Sender(
            node_id,
            self.config.sender,
            self._group,
            random,
            self.stats,
            self.events.append,
            context.group_is_multicast,
        )
        self._receivers.renew_node_id()

    def close(self) -> None:
        """Tell the group that this node leaves, and give up all incomplete objects."""
        self._may_send = True
        self._sender.close()
        self._receivers.close()

    @property
    def grtt_s(self) -> float:
        """Greatest round-trip time of the group as this node's sender advertises it, in seconds."""
        return self._sender.timing.grtt_s

    @property
    def remote_senders(self) -> tuple[int, ...]:
        """Node ids of the known senders."""
        return self._receivers.node_ids

    @property
    def incoming(self) -> tuple[ObjectProgress, ...]:
        """Progress of the objects that are being received. Streams are not among them."""
        return tuple(self._receivers.incoming())

    @property
    def memory_bytes(self) -> int:
        """Memory of objects that are being received, in bytes."""
        return self._context.used_bytes

    # Routing.

    def _receive_message(self, message: Message, address: Address, now: float, by_unicast: bool) -> None:
        node_id = self.config.node_id
        if not isinstance(message, FromReceiver | FromSender):
            self.stats.drop(Drop.UNSUPPORTED)
        elif message.source_id == node_id:
            self._receive_own(message, address, now)
        elif isinstance(message, FromSender):
            self._receivers.receive(message, address, now, self._is_paused)
        elif message.sender_id == node_id:
            self._may_send = True
            is_current = self._sender.receive_feedback(message, now, by_unicast)
            if is_current and isinstance(message, Ack) and message.ack_type >= APPLICATION_ACK_MIN:
                assert isinstance(message.content, bytes)
                self.events.append(AckReceived(message.source_id, message.ack_type, message.ack_id, message.content))
        else:
            self._receivers.overhear(message)

    def _receive_own(self, message: FromReceiver | FromSender, address: Address, now: float) -> None:
        """Handle a message with our node id: our own message that came back, or one from a node with the same id."""
        is_ours = isinstance(message, FromSender) and message.instance_id == self._sender.instance_id
        if is_ours or self.own_address is None:
            self.stats.drop(Drop.OWN)
        elif self._collisions.is_proven(address, now):
            self.events.append(NodeIdCollided(address))


def _check_ack(ack_type: int, ack_id: int) -> None:
    if not APPLICATION_ACK_MIN <= ack_type <= APPLICATION_ACK_MAX:
        expected = f"{APPLICATION_ACK_MIN} to {APPLICATION_ACK_MAX}, the types of applications"
        raise ConfigError(f"ack_type={ack_type}: expected {expected}")
    if not 0 <= ack_id <= _ACK_ID_MAX:
        raise ConfigError(f"ack_id={ack_id}: expected 0 to {_ACK_ID_MAX}")


def sender_of(engine: Engine) -> Sender:
    """Return an engine's sender, for tests that look behind the public methods."""
    return engine._sender
