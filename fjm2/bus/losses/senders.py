"""Senders and their streams: how far each was read, and whom the next message of each has to tell of a gap.

A gap of a sender concerns every subscription, since nobody knows where the lost messages went. Marking one takes the
same time however many subscriptions there are: gaps and subscriptions have serial numbers, which are compared when a
message is delivered.

A connection that draws a new node id continues as another sender. It is recognised by the connection id in its first
message that is delivered, so that this message is flagged if the old stream was not read to its end.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeVar

from fjm2.bus.lane import LANE_OF_PRIORITY
from fjm2.messages.frame import SKIPPED_HEADER, FrameDrop, FrameReader
from fjm2.messages.header import CONNECTION_ID, DESTINATION_HASH, NUMBER, PRIORITY, Header

from .kinds import Loss

_K = TypeVar("_K")
_V = TypeVar("_V")

_STREAMS_MAX: Final = 4
"""Greatest number of streams of one sender at a time. Senders of FJM2 have one stream."""
_LEFT_STREAMS_MAX: Final = 1024
"""Greatest number of vanished senders' streams that are remembered in case they go on. It suffices for a large bus."""
_CARRIERS_MAX: Final = 4096
"""Lanes of connections whose sender is remembered, which is as many connections as presence accepts."""
_SKIPS_MAX: Final = 1024
"""Senders for which gaps are counted until the next report. More are hostile, and reports of them are limited, too."""
_TOPICS_MAX: Final = 4
"""Destinations remembered for a sender. They help people to see what is concerned."""
_NONE: Final = -1
"""Serial number before all others."""


class Stream:
    """A stream of one sender."""

    __slots__ = ("bytes", "end", "frames", "reader", "skip_to")

    def __init__(self, start: int, frame_bytes_max: int, skip_to: int | None) -> None:
        self.reader = FrameReader(frame_bytes_max, shows_skips=True)
        self.end = start
        """Position in the stream after the last byte received."""
        self.skip_to = skip_to
        """Position up to which the stream was read before its sender vanished and came back; None otherwise."""
        self.frames = 0
        """Messages received."""
        self.bytes = 0
        """Bytes received. Positions would not tell, because gaps are noted long after the bytes before them arrived, or
        long before the bytes behind them."""

    def messages_in(self, size: int) -> int | None:
        """Return how many messages so many bytes hold, estimated by the mean of those received; None without any."""
        return max(round(size * self.frames / self.bytes), 1) if self.frames and self.bytes else None


class PendingGaps:
    """Subscriptions that learn of a gap with their next message from a sender."""

    __slots__ = ("_left", "_told", "is_new", "upto")

    def __init__(self, is_new: bool = False) -> None:
        self.is_new = is_new
        """True until the first message of the sender is delivered. It tells whose messages the sender carries."""
        self.upto = _NONE
        """Serial number of the last subscription that the latest gap concerns."""
        self._left = 0
        """Number of these subscriptions that have not been told yet."""
        self._told: set[int] = set()
        """Serial numbers of those that have been told. The subscriptions themselves would live as long as this."""

    @property
    def is_over(self) -> bool:
        """True if nobody has to be told of anything."""
        return not (self._left or self.is_new)

    def mark(self, upto: int, count: int) -> None:
        """Note a gap for `count` subscriptions, up to this serial number."""
        self.upto, self._left = upto, count
        self._told.clear()

    def concerns(self, serial: int) -> bool:
        """Return True if there is a gap before the next message to a subscription."""
        return serial <= self.upto and serial not in self._told

    def take(self, serial: int) -> bool:
        """Return True if there is a gap before the next message to a subscription. It is told only once."""
        if not self.concerns(serial):
            return False
        self._told.add(serial)
        self._left -= 1
        return True

    def forget(self, serial: int) -> None:
        """Tell a subscription nothing more: it has ended."""
        self.take(serial)
        self._told.discard(serial)


class Sender:
    """A node whose streams are received, or our own node."""

    __slots__ = ("gaps", "is_followed", "latest", "lost_upto", "node_id", "sampled", "seen_at", "streams", "topics")

    def __init__(self, node_id: int, seen_at: float = 0.0) -> None:
        self.node_id = node_id
        self.streams: dict[int, Stream] = {}
        """Streams by object id."""
        self.gaps: PendingGaps | None = None
        """Gaps that subscriptions will be told of; None for nearly all senders nearly all the time."""
        self.latest: Header | None = None
        """Header of the last message of the last run."""
        self.sampled: Header | None = None
        """The same a moment ago; see `SenderTable.sample`."""
        self.seen_at = seen_at
        """Time of the sample before the last one that found new messages, in seconds since the epoch."""
        self.topics: dict[int, None] = {}
        """Hashes of destinations that it sent to lately."""
        self.lost_upto: int | None = None
        """Serial number of the last subscription that lost messages when the sender went; None if none did, or if the
        sender that continues has been told."""
        self.is_followed = False
        """True if its connection continues under another node id."""

    def note_topic(self, header: Header) -> None:
        """Note the destination of a message. The one noted longest ago gives way."""
        topic = header[DESTINATION_HASH]
        self.topics.pop(topic, None)
        self.topics[topic] = None
        if len(self.topics) > _TOPICS_MAX:
            del self.topics[next(iter(self.topics))]


class SenderDetails(NamedTuple):
    """Facts about a sender for a report of a loss."""

    topics: tuple[int, ...]
    """Hashes of destinations that it sent to lately."""
    messages: int | None
    """Estimated number of messages in the lost bytes; None if it cannot be estimated."""
    seen_at: float | None
    """Time at most a second before the sender's last message came, in seconds since the epoch; None if unknown."""


class SenderTable:
    """All senders and their streams."""

    def __init__(self, frame_bytes_max: int, now: float) -> None:
        """`now` is the time in seconds since the epoch."""
        self.senders: Final[dict[int, Sender]] = {}
        self.held_bytes = 0
        """Bytes of incomplete frames in all streams."""
        self._skips: Counter[tuple[int, Loss]] = Counter()
        """Number of gaps found while streams were read since `take_skips`, by node id and kind."""
        self._frame_bytes_max = frame_bytes_max
        self._left: OrderedDict[tuple[int, int], int] = OrderedDict()
        """Position up to which each stream of a vanished sender was read, by sender id and object id."""
        self._drops: Counter[FrameDrop] = Counter()
        """Frames dropped by streams that have been closed."""
        self._frames = 0
        """Messages received in streams that have been closed."""
        self._joined: dict[object, int] = {}
        """Serial numbers of the subscriptions, in the order in which they were added."""
        self._serial = 0
        """Serial number of the latest subscription."""
        self._carriers: OrderedDict[tuple[int, int], Sender] = OrderedDict()
        """Senders by the connection and the lane that each was last seen to carry."""
        self.on_skip: Callable[[int], None] = lambda _: None
        """Called with a sender's node id at the first gap of a kind since `take_skips`."""
        self._unknown: OrderedDict[int, int] = OrderedDict()
        """Gaps of vanished senders of which no message was ever delivered, by node id: `PendingGaps.upto`."""
        self._sampled_at = now

    def join(self, subscription: object) -> None:
        """Tell a subscription of gaps from now on."""
        self._serial += 1
        self._joined[subscription] = self._serial

    def leave(self, subscription: object, own: Sender) -> None:
        """Tell a subscription nothing more."""
        serial = self._joined.pop(subscription, None)
        if serial is None:
            return
        for sender in (own, *self.senders.values()):
            if sender.gaps is not None:
                sender.gaps.forget(serial)

    def sender(self, sender_id: int) -> Sender:
        """Return the sender with this id. Add it to the table if it is new."""
        sender = self.senders.get(sender_id)
        if sender is None:
            sender = self.senders[sender_id] = Sender(sender_id, self._sampled_at)
            sender.gaps = PendingGaps(is_new=True)
            upto = self._unknown.pop(sender_id, None)
            if upto is not None:
                self._mark(sender, upto)
        return sender

    def has_stream(self, sender_id: int) -> bool:
        """Return True if bytes of the sender's streams have been received."""
        sender = self.senders.get(sender_id)
        return sender is not None and bool(sender.streams)

    def begin(self, sender_id: int, object_id: int, start: int) -> tuple[Sender, Stream]:
        """Add a stream of a sender. Return the sender and the stream, whose `skip_to` is set if the sender vanished and
        came back."""
        sender = self.sender(sender_id)
        if len(sender.streams) >= _STREAMS_MAX:
            self.end(sender, next(iter(sender.streams)))
            self.mark(sender, Loss.NO_MEMORY)
        skip_to = self._left.pop((sender_id, object_id), None)
        stream = sender.streams[object_id] = Stream(start, self._frame_bytes_max, skip_to)
        return sender, stream

    def end(self, sender: Sender, object_id: int) -> None:
        """Remove a stream."""
        stream = sender.streams.pop(object_id)
        self.reset(stream)
        self._drops.update(stream.reader.drops)
        self._frames += stream.frames

    def reset(self, stream: Stream) -> None:
        """Drop the incomplete frame of a stream. Reading goes on at the next mark of a frame."""
        self.held_bytes -= stream.reader.held_bytes
        stream.reader.reset()

    def forget(self, sender_id: int, has_unread: bool = False) -> bool:
        """Remove a sender, but remember how far its streams were read. Return True if its last messages may be lost.

        They may be if the sender had open streams, or (`has_unread`) a stream of which nothing was read.
        """
        sender = self.senders.pop(sender_id, None)
        is_lost = has_unread or (sender is not None and bool(sender.streams))
        if sender is None or (sender.gaps is not None and sender.gaps.is_new):
            upto = self._serial if is_lost else _NONE if sender is None or sender.gaps is None else sender.gaps.upto
            if upto != _NONE:
                _put(self._unknown, sender_id, upto, _LEFT_STREAMS_MAX)
        if sender is None:
            return is_lost
        if is_lost and not sender.is_followed:
            sender.lost_upto = self._serial
        for object_id, stream in list(sender.streams.items()):
            read_to = stream.end - stream.reader.held_bytes if stream.skip_to is None else stream.skip_to
            _put(self._left, (sender_id, object_id), read_to, _LEFT_STREAMS_MAX)
            self.end(sender, object_id)
        return is_lost

    def reset_longest(self) -> int:
        """Reset the stream with the longest incomplete frame, and return the node id of its sender."""
        sender, stream = max(
            ((sender, stream) for sender in self.senders.values() for stream in sender.streams.values()),
            key=lambda item: item[1].reader.held_bytes,
        )
        self.reset(stream)
        self.mark(sender, Loss.NO_MEMORY)
        return sender.node_id

    # Gaps.

    def mark(self, sender: Sender, loss: Loss, upto: int | None = None) -> None:
        """Mark the next message of a sender to each subscription, or to those up to a serial number.

        Losses found while streams are read are also counted, to be reported.
        """
        self._mark(sender, self._serial if upto is None else upto)
        if loss in (Loss.UNREADABLE, Loss.NO_MEMORY) and len(self._skips) < _SKIPS_MAX:
            self._skips[sender.node_id, loss] += 1
            if self._skips[sender.node_id, loss] == 1:
                self.on_skip(sender.node_id)

    def mark_dropped(self, parts: Iterable[tuple[object, Sender] | None]) -> None:
        """Mark the next message of the senders of a transaction that is dropped."""
        for sender in {part[1] for part in parts if part is not None}:
            self.mark(sender, Loss.TRANSACTION)

    def _mark(self, sender: Sender, upto: int) -> None:
        if sender.gaps is None:
            sender.gaps = PendingGaps()
        upto = max(upto, sender.gaps.upto)
        is_everybody = upto == self._serial
        count = len(self._joined) if is_everybody else sum(serial <= upto for serial in self._joined.values())
        sender.gaps.mark(upto, count)

    def may_have_gap(self, sender: Sender, subscription: object) -> bool:
        """Return True if there may be a gap before the next message of a sender to a subscription."""
        gaps = sender.gaps
        return gaps is not None and (gaps.is_new or gaps.concerns(self._joined.get(subscription, self._serial + 1)))

    def take_gap(self, sender: Sender, subscription: object, header: Header) -> bool:
        """Return True if there is a gap before a message that is about to be delivered. It is told only once."""
        gaps = sender.gaps
        if gaps is None:
            return False
        sender.note_topic(header)
        if gaps.is_new:
            gaps.is_new = False
            self._follow(sender, header)
        has_gap = gaps.take(self._joined.get(subscription, self._serial + 1))
        if gaps.is_over:
            sender.gaps = None
        return has_gap

    def _follow(self, sender: Sender, header: Header) -> None:
        """Note whose messages a sender carries. If another sender carried them, its losses are told by this one."""
        key = header[CONNECTION_ID], LANE_OF_PRIORITY[header[PRIORITY]]
        before = self._carriers.get(key)
        _put(self._carriers, key, sender, _CARRIERS_MAX)
        if before is None or before is sender:
            return
        if before.lost_upto is not None:
            self.mark(sender, Loss.SENDER, before.lost_upto)
            before.lost_upto = None
        elif before.streams and _continues(header, before.latest):
            # It has not vanished yet, as nobody heard that it left, but nothing more will come from it.
            before.is_followed = True
            self.mark(sender, Loss.SENDER)

    # Samples, for people.

    def sample(self, now: float) -> None:
        """Note which senders sent something since the last call, and what. Call this every second or so."""
        for sender in self.senders.values():
            header = sender.latest
            if header is None or header is sender.sampled or header is SKIPPED_HEADER:
                continue
            sender.sampled, sender.seen_at = header, self._sampled_at
            sender.is_followed = False
            sender.note_topic(header)
            before = self._carriers.get((header[CONNECTION_ID], LANE_OF_PRIORITY[header[PRIORITY]]))
            # Two senders of one lane, both alive: one of them is forged, so the first one stays.
            if before is None or before.lost_upto is not None:
                self._follow(sender, header)
        self._sampled_at = now

    def details(self, sender_id: int, object_id: int | None, lost_bytes: int) -> SenderDetails:
        """Return what is known of a sender that loses bytes of a stream. Call this before the loss is noted."""
        sender = self.senders.get(sender_id)
        if sender is None:
            return SenderDetails((), None, None)
        stream = None if object_id is None else sender.streams.get(object_id)
        messages = None if stream is None or not lost_bytes else stream.messages_in(lost_bytes)
        if sender.latest is not None and sender.latest is not SKIPPED_HEADER:
            sender.note_topic(sender.latest)
        return SenderDetails(tuple(sender.topics), messages, self._last_seen(sender))

    def has_messages(self, sender_id: int) -> bool:
        """Return True if a sender is known to have sent messages."""
        sender = self.senders.get(sender_id)
        if sender is None:
            return False
        return sender.sampled is not None or sender.latest not in (None, SKIPPED_HEADER)

    def _last_seen(self, sender: Sender) -> float:
        """Return a time at most a second before the sender's last message came, in seconds since the epoch."""
        return sender.seen_at if sender.latest is sender.sampled else self._sampled_at

    @property
    def frames(self) -> int:
        """Messages received in all streams."""
        return self._frames + sum(
            stream.frames for sender in self.senders.values() for stream in sender.streams.values()
        )

    def take_skips(self) -> Counter[tuple[int, Loss]]:
        """Return how many gaps were found while streams were read, since the last call, by node id and kind."""
        skips, self._skips = self._skips, Counter()
        return skips

    def uncount_skip(self) -> None:
        """Subtract one from the messages received: a mark for skipped bytes was counted as a message."""
        self._frames -= 1

    @property
    def drops(self) -> Counter[FrameDrop]:
        """Frames dropped by the readers of all streams."""
        total = Counter(self._drops)
        for sender in self.senders.values():
            for stream in sender.streams.values():
                total.update(stream.reader.drops)
        return total


def _continues(header: Header, latest: Header | None) -> bool:
    """Return True if a message of a connection was sent after another one of the same connection."""
    return latest is not None and latest[CONNECTION_ID] == header[CONNECTION_ID] and latest[NUMBER] < header[NUMBER]


def _put(bounded: "OrderedDict[_K, _V]", key: _K, value: _V, entries_max: int) -> None:
    """Add or renew an entry. The one that was renewed longest ago gives way."""
    bounded[key] = value
    bounded.move_to_end(key)
    if len(bounded) > entries_max:
        bounded.popitem(last=False)
