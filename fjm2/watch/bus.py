"""A bus as an onlooker hears it: who announces himself, what is sent, what is asked for again. No I/O.

Everything of a bus is multicast, the answers of receivers too, so that listening is enough. Memory is bounded, whatever
comes.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from fjm2.base.errors import WireError
from fjm2.bus.presence import Flag, Peer, PresenceTable
from fjm2.bus.presence import decode as decode_announcement
from fjm2.jms import Destination
from fjm2.messages.frame import Frame
from fjm2.messages.header import CONNECTION_ID
from fjm2.norm import Address, Train
from fjm2.norm.core.wire import (
    Ack,
    Application,
    DataReader,
    DataRun,
    Flush,
    FromReceiver,
    FromSender,
    Message,
    Nack,
    Position,
    decode,
)
from fjm2.traces.observed import ObservedSender

from .answers import Answers, Receiver
from .gateways import Gateway, Gateways
from .report import BusReport, ConnectionReport, GatewayReport, ReceiverReport, SenderReport, TopicReport, hash_label
from .stream_tap import PassingStream
from .topics import PassingTopic, Topics

SENDERS_MAX: Final = 1024
ADDRESSES_MAX: Final = 8192
_STREAMS_MAX: Final = 4
"""Of one sender at a time; FJM2's have one."""
_HELD_BYTES_MAX: Final = 256 << 20
"""Of messages that have begun, in all streams together."""
_SENDER_S: Final = 60.0
"""A sender that was not heard for so long is no more shown, unless it belongs to a connection."""
_OWNERS_SHOWN: Final = 3
"""Connections of one process."""

OnFrame = Callable[[Frame, int], None]
"""What takes each message: its frame, and the node that sent it."""


class _Sender:
    """One NORM sender."""

    __slots__ = ("counts", "heard_at", "instance_id", "is_publishing", "messages", "observed", "streams")

    def __init__(self) -> None:
        self.observed = ObservedSender()
        self.counts: Counter[str] = Counter()
        self.messages = 0
        self.streams: dict[int, PassingStream] = {}
        self.instance_id: int | None = None
        self.is_publishing = False
        """Whether it has sent anything but commands."""
        self.heard_at = 0.0


class _Known(NamedTuple):
    """A connection that has announced itself."""

    since: float
    label: str
    nodes: tuple[int, ...]
    """Who receives for it, and who sends its lanes."""


class BusWatch:
    """Takes what comes for the group, and tells what it knows in a `report`."""

    def __init__(self, known: Iterable[Destination] = (), *, now: float, on_frame: OnFrame | None = None) -> None:
        """`known` are destinations whose names are known beforehand."""
        self.presence = PresenceTable()
        """The connections that announce themselves."""
        self.datagrams = 0
        """How many were heard."""
        self.not_norm = 0
        """How many of them make no sense."""
        self.overruns = 0
        """Datagrams that whoever feeds this was too slow for."""
        self.bytes_missed = 0
        """Of streams, that passed by unheard."""
        self._on_frame = on_frame
        self._topics = Topics(known)
        self._answers = Answers()
        self._gateways = Gateways()
        self._senders: dict[int, _Sender] = {}
        self._addresses: dict[int, Address] = {}
        self._known: dict[int, _Known] = {}
        """Connections by id."""
        self._left: dict[int, str] = {}
        """Nodes of connections that have left, and what those were called."""
        self._gone: set[int] = set()
        """Connections that have left since the last report."""
        self._reader = DataReader()
        self._messages = 0
        self._bytes = 0
        self._held_bytes = 0
        self._began_at = self._reported_at = now
        self._before: Counter[tuple[str, int]] = Counter()
        """What had been counted by the last report."""

    # What comes.

    def take(self, train: Train, now: float) -> None:
        """A train for the group."""
        self.datagrams += train.count
        self._bytes += train.data.size
        for part in self._reader.read(train):
            if isinstance(part, DataRun):
                self._take_run(part, train.address, now)
                continue
            try:
                message = decode(part)
            except WireError:
                self.not_norm += 1
                continue
            self._note_address(message.source_id, train.address)
            self._take_message(message, len(part), now)

    def take_beacon(self, train: Train, now: float) -> None:
        """A train for the group of the gateways' beacons."""
        for start in range(0, train.data.size, train.segment_bytes):
            self._gateways.take(train.data[start : start + train.segment_bytes].tobytes(), train.address[0], now)

    def _note_address(self, node_id: int, address: Address) -> None:
        if node_id in self._addresses or len(self._addresses) < ADDRESSES_MAX:
            self._addresses[node_id] = address

    def _take_message(self, message: Message, length: int, now: float) -> None:
        kind = message.TYPE.name.lower()
        if isinstance(message, FromSender):
            sender = self._sender(message.source_id, message.instance_id, now)
            if sender is not None:
                sender.observed.note_sent(kind, message, length)
        elif isinstance(message, FromReceiver):
            asked = self._senders.get(message.sender_id)
            if asked is not None:
                asked.observed.note_answer(kind, message, length)
        match message:
            case Application():
                self._take_announcement(message, now)
            case Flush():
                self._answers.note_asked(message.source_id, message.position, message.acking_nodes, now)
            case Ack():
                position = message.content if isinstance(message.content, Position) else None
                self._answers.note_confirmed(message.sender_id, message.source_id, position, now)
            case Nack():
                self._answers.note_missing(message.source_id, len(message.requests), now)

    def _take_announcement(self, message: Application, now: float) -> None:
        announcement = decode_announcement(message.content)
        if announcement is None:
            return
        connection_id, refused = announcement.connection_id, self.presence.refused
        self.presence.update(message.source_id, announcement, now)
        if self.presence.refused > refused:
            return
        known = self._known.get(connection_id)
        if not announcement.flags & Flag.GOODBYE:
            since = now if known is None else known.since
            nodes = (message.source_id, *filter(None, announcement.lanes))
            self._known[connection_id] = _Known(since, announcement.client_id or f"{connection_id:016x}", nodes)
        elif known is not None:
            self._forget(connection_id)

    def _forget(self, connection_id: int) -> None:
        """It has left. Its nodes go by its name for as long as they are shown."""
        known = self._known.pop(connection_id)
        self._gone.add(connection_id)
        if len(self._left) < ADDRESSES_MAX:
            self._left |= dict.fromkeys(known.nodes, known.label)

    def _take_run(self, run: DataRun, address: Address, now: float) -> None:
        message = run.header.message
        self._note_address(message.source_id, address)
        sender = self._sender(message.source_id, message.instance_id, now)
        if sender is None:
            return
        sender.is_publishing = True
        sender.observed.note_run(run)
        if not run.header.is_stream:
            return
        stream = sender.streams.get(message.object_id)
        if stream is None:
            if len(sender.streams) >= _STREAMS_MAX:
                self._release(sender.streams.pop(next(iter(sender.streams))))
            stream = sender.streams[message.object_id] = PassingStream()
        held, missed = stream.held_bytes, stream.bytes_missed
        frames = stream.read(run)
        self._held_bytes += stream.held_bytes - held
        self.bytes_missed += stream.bytes_missed - missed
        if self._held_bytes > _HELD_BYTES_MAX:
            self._release(stream)
        for frame in frames:
            if frame[4][CONNECTION_ID]:  # without one, it only lets newcomers hear of an idle stream
                sender.messages += 1
                self._messages += 1
                self._topics.note(frame, now)
                if self._on_frame is not None:
                    self._on_frame(frame, message.source_id)

    def _release(self, stream: PassingStream) -> None:
        self._held_bytes -= stream.held_bytes
        stream.release()

    def _sender(self, node_id: int, instance_id: int, now: float) -> _Sender | None:
        sender = self._senders.get(node_id)
        if sender is None:
            if len(self._senders) >= SENDERS_MAX:
                return None
            sender = self._senders[node_id] = _Sender()
        if sender.instance_id != instance_id:
            for stream in sender.streams.values():
                self._release(stream)
            sender.streams.clear()
            sender.instance_id = instance_id
        sender.heard_at = now
        return sender

    # What is known.

    def label_of(self, connection_id: int) -> str:
        """What people know a connection by."""
        known = self._known.get(connection_id)
        return f"{connection_id:016x}" if known is None else known.label

    def report(self, now: float) -> BusReport:
        """All of it. Rates are those since the last report."""
        self._expire(now)
        return _Reporting(self, now).report()

    def _expire(self, now: float) -> None:
        self.presence.expire(now)
        for connection_id in self._known.keys() - {peer.connection_id for peer in self.presence.peers}:
            self._forget(connection_id)
        self._topics.forget_publishers(self._gone, now)
        self._gone.clear()
        ours = {node for peer in self.presence.peers for node in (peer.node_id, *peer.lanes)}
        self._answers.forget(ours, now)
        for node_id, sender in list(self._senders.items()):
            if node_id not in ours and now - sender.heard_at > _SENDER_S:
                for stream in sender.streams.values():
                    self._release(stream)
                del self._senders[node_id]
        nodes = ours | self._senders.keys() | {one.node_id for one in self._answers.receivers}
        self._addresses = {node: address for node, address in self._addresses.items() if node in nodes}
        self._left = {node: label for node, label in self._left.items() if node in nodes}


class _Reporting:
    """One report in the making."""

    def __init__(self, watch: BusWatch, now: float) -> None:
        self._watch = watch
        self._now = now
        self._interval_s = max(now - watch._reported_at, 1e-6)
        self._counts: Counter[tuple[str, int]] = Counter()
        self._owners: dict[int, list[str]] = {}
        self._lanes: dict[int, int] = {}
        for peer in watch.presence.peers:
            lanes = {node_id: number for number, node_id in enumerate(peer.lanes) if node_id}
            self._lanes |= {peer.node_id: 0} | lanes  # who receives sends the first lane
            for node_id in {peer.node_id, *lanes}:
                self._owners.setdefault(node_id, []).append(watch.label_of(peer.connection_id))
        nodes = {peer.node_id for peer in watch.presence.peers}
        placed = ((node, watch._addresses[node]) for node in nodes if node in watch._addresses)
        self._gateways = watch._gateways.found(placed, now)

    def report(self) -> BusReport:
        watch, now = self._watch, self._now
        topics = self._topics()
        senders = [self._sender(node_id, one) for node_id, one in watch._senders.items() if one.is_publishing]
        receivers = tuple(map(self._receiver, watch._answers.receivers))
        report = BusReport(
            seconds=now - watch._began_at,
            interval_s=self._interval_s,
            datagrams=watch.datagrams,
            not_norm=watch.not_norm,
            overruns=watch.overruns,
            messages=watch._messages,
            messages_per_s=self._rate("messages", 0, watch._messages),
            bytes_per_s=self._rate("bytes", 0, watch._bytes),
            connections=tuple(sorted(map(self._connection, watch.presence.peers), key=lambda one: one.label)),
            topics=tuple(sorted(topics, key=lambda one: (-one.messages_per_s, -one.messages, one.label))),
            senders=tuple(sorted(senders, key=lambda one: (-one.bytes_per_s, -one.bytes, one.label))),
            receivers=tuple(sorted(receivers, key=_slowness, reverse=True)),
            gateways=tuple(
                GatewayReport(
                    host=one.host,
                    gateway_id=one.gateway_id,
                    is_forwarding=one.is_forwarding,
                    nodes=len(one.nodes),
                )
                for one in self._gateways
            ),
            slowest=max(receivers, key=_slowness, default=None),
        )
        watch._reported_at, watch._before = now, self._counts
        watch._answers.settle(now)
        return report

    def _rate(self, name: str, key: int, count: float) -> float:
        """Of something that was counted, since the last report."""
        self._counts[name, key] = int(count)
        return max(count - self._watch._before[name, key], 0) / self._interval_s

    def _address(self, node_id: int) -> str | None:
        address = self._watch._addresses.get(node_id)
        if address is None:
            return None
        host, port = address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def _owner(self, node_id: int) -> str | None:
        owners = self._owners.get(node_id)
        if owners is None:
            return self._watch._left.get(node_id)
        more = len(owners) - _OWNERS_SHOWN
        return ", ".join(sorted(owners)[:_OWNERS_SHOWN]) + (f" +{more}" if more > 0 else "")

    def _gateway_of(self, node_id: int) -> Gateway | None:
        return next((one for one in self._gateways if node_id in one.nodes), None)

    def _connection(self, peer: Peer) -> ConnectionReport:
        watch, gateway = self._watch, self._gateway_of(peer.node_id)
        return ConnectionReport(
            connection_id=f"{peer.connection_id:016x}",
            client_id=peer.client_id,
            node_id=peer.node_id,
            address=self._address(peer.node_id),
            seen_s=self._now - self._since(peer),
            subscriptions=tuple(sorted(self._name_of(number) for number in peer.topics)),
            subscribes_to_more=peer.wants_all,
            publishes=tuple(
                sorted(
                    one.name or hash_label(one.hash) for one in watch._topics if peer.connection_id in one.publishers
                )
            ),
            gateway=None if gateway is None else gateway.host,
        )

    def _since(self, peer: Peer) -> float:
        known = self._watch._known.get(peer.connection_id)
        return self._now if known is None else known.since

    def _name_of(self, number: int) -> str:
        topic = self._watch._topics.topic(number)
        return hash_label(number) if topic is None or topic.name is None else topic.name

    def _topics(self) -> list[TopicReport]:
        subscribers: dict[int, list[str]] = {}
        for peer in self._watch.presence.peers:
            for number in peer.topics:
                subscribers.setdefault(number, []).append(self._watch.label_of(peer.connection_id))
        for number in subscribers:
            self._watch._topics.topic(number)
        return [
            self._topic(one, subscribers.get(one.hash, []))
            for one in self._watch._topics
            if one.messages or one.hash in subscribers
        ]

    def _topic(self, topic: PassingTopic, subscribers: list[str]) -> TopicReport:
        return TopicReport(
            name=topic.name,
            hash=topic.hash,
            messages=topic.messages,
            messages_per_s=self._rate("topic_messages", topic.hash, topic.messages),
            bytes_per_s=self._rate("topic_bytes", topic.hash, topic.bytes),
            publishers=tuple(sorted(map(self._watch.label_of, topic.publishers))),
            subscribers=tuple(sorted(subscribers)),
        )

    def _sender(self, node_id: int, sender: _Sender) -> SenderReport:
        sender.counts.update(sender.observed.take_counts())
        counts = sender.counts
        return SenderReport(
            node_id=node_id,
            owner=self._owner(node_id),
            lane=self._lanes.get(node_id),
            address=self._address(node_id),
            messages=sender.messages,
            messages_per_s=self._rate("sender_messages", node_id, sender.messages),
            bytes=counts["bytes_sent"],
            bytes_per_s=self._rate("sender_bytes", node_id, counts["bytes_sent"]),
            datagrams=counts["datagrams_sent"],
            repairs=counts["repair_segments_sent"],
            repairs_per_s=self._rate("repairs", node_id, counts["repair_segments_sent"]),
            parity=counts["parity_segments_sent"],
            nacks=counts["nacks_received"],
            nacks_per_s=self._rate("nacks_of", node_id, counts["nacks_received"]),
            datagrams_missed=max(counts["sequence_missed"] - counts["sequence_late"], 0),
            grtt_s=sender.observed.grtt_s,
        )

    def _receiver(self, receiver: Receiver) -> ReceiverReport:
        node_id = receiver.node_id
        return ReceiverReport(
            node_id=node_id,
            owner=self._owner(node_id),
            address=self._address(node_id),
            nacks=receiver.nacks,
            nacks_per_s=self._rate("nacks_by", node_id, receiver.nacks),
            requests=receiver.requests,
            acks=receiver.acks,
            confirm_s=receiver.confirm_s,
            awaited_s=receiver.awaited_s(self._now),
            given_up_by=tuple(
                sorted({self._label(one) for one, at in receiver.given_up_at.items() if self._goes_on(one, at)})
            ),
        )

    def _goes_on(self, node_id: int, at: float) -> bool:
        """Whether a sender has been heard since."""
        sender = self._watch._senders.get(node_id)
        return sender is not None and sender.heard_at > at

    def _label(self, node_id: int) -> str:
        return self._owner(node_id) or f"{node_id:08x}"


def _slowness(receiver: ReceiverReport) -> tuple[bool, float, int]:
    return bool(receiver.given_up_by), receiver.delay_s, receiver.nacks
