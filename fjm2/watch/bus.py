"""Reconstruction of the state of a bus from its packets: connections, topics, senders, receivers, gateways and
keepers. No I/O.

Everything on a bus is multicast, so that listening is enough. Only in crowds most confirmations go to the sender alone:
of these, a few are heard of each receiver. Memory is bounded, whatever is received.
"""

from collections.abc import Callable, Iterable

from fjm2.base.errors import WireError
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

from .observations import Observations
from .rates import Rates
from .report import BusReport
from .reporter import Reporter, slowness

OnFrame = Callable[[Frame, int], None]
"""A function that is called with the frame of each message, and the id of the node that sent it."""


class BusWatch:
    """Takes the packets of a bus, and reports the state that they show.

    `take` and `take_beacon` are called with all packets received. `report` returns the state of the bus.
    """

    def __init__(self, known: Iterable[Destination] = (), *, now: float, on_frame: OnFrame | None = None) -> None:
        """Start a watch.

        Announcements have only hashes of destinations. `known` are destinations whose hashes are recognised.
        """
        self._heard = Observations(known)
        self.presence = self._heard.connections.presence
        """The connections that announce themselves."""
        self.datagrams = 0
        """Number of datagrams received."""
        self.not_norm = 0
        """Number of datagrams received that are not valid NORM."""
        self.overruns = 0
        """Number of datagrams that the kernel dropped because they were not read in time. The owner of the socket sets
        it."""
        self.bytes_missed = 0
        """Number of bytes of streams that were never heard."""
        self._on_frame = on_frame
        self._reader = DataReader()
        self._messages = 0
        self._bytes = 0
        self._began_at = now
        self._rates = Rates(now)

    def take(self, train: Train, now: float) -> None:
        """Handle a train sent to the group of the bus."""
        self.datagrams += train.count
        self._bytes += train.data.size
        for part in self._reader.read(train):
            if isinstance(part, DataRun):
                self._handle_run(part, train.address, now)
                continue
            try:
                message = decode(part)
            except WireError:
                self.not_norm += 1
                continue
            self._heard.note_address(message.source_id, train.address)
            self._handle_message(message, len(part), now)

    def take_beacon(self, train: Train, now: float) -> None:
        """Handle a train sent to the group that gateways announce themselves to."""
        for start in range(0, train.data.size, train.segment_bytes):
            beacon = train.data[start : start + train.segment_bytes].tobytes()
            self._heard.gateways.take(beacon, train.address[0], now)

    def label_of(self, connection_id: int) -> str:
        """Return the client id of a connection, or its connection id in hexadecimal if it has none."""
        return self._heard.connections.label_of(connection_id)

    def report(self, now: float) -> BusReport:
        """Return the state of the bus. Its rates are averages since the last report."""
        heard, rates = self._heard, self._rates
        heard.expire(now)
        rates.begin(now)
        reporter = Reporter(heard, rates, now)
        topics = reporter.topics()  # before connections, which look up the names of what they subscribe to
        receivers = reporter.receivers()
        report = BusReport(
            seconds=now - self._began_at,
            interval_s=rates.interval_s,
            datagrams=self.datagrams,
            not_norm=self.not_norm,
            overruns=self.overruns,
            messages=self._messages,
            messages_per_s=rates.per_s("messages", 0, self._messages),
            bytes_per_s=rates.per_s("bytes", 0, self._bytes),
            connections=reporter.connections(),
            topics=topics,
            senders=reporter.senders(),
            receivers=receivers,
            gateways=reporter.gateways(),
            keepers=reporter.keepers(),
            slowest=max(receivers, key=slowness, default=None),
        )
        heard.answers.settle(now)
        return report

    def _handle_message(self, message: Message, length: int, now: float) -> None:
        senders, answers = self._heard.senders, self._heard.answers
        kind = message.TYPE.name.lower()
        if isinstance(message, FromSender):
            sender = senders.heard(message.source_id, message.instance_id, now)
            if sender is not None:
                sender.observed.note_sent(kind, message, length)
        elif isinstance(message, FromReceiver):
            asked = senders.get(message.sender_id)
            if asked is not None:
                asked.observed.note_answer(kind, message, length)
        match message:
            case Application():
                announcement = decode_announcement(message.content)
                if announcement is not None:
                    self._heard.connections.update(message.source_id, announcement, now)
                else:
                    self._heard.keepers.take(message.content, now)
            case Flush():
                answers.note_asked(message.source_id, message.position, message.acking_nodes, now)
            case Ack():
                position = message.content if isinstance(message.content, Position) else None
                answers.note_confirmed(message.sender_id, message.source_id, position, now)
                answers.note_status(message.source_id, message.extensions)
            case Nack():
                answers.note_missing(message.source_id, len(message.requests), now)
                answers.note_status(message.source_id, message.extensions)

    def _handle_run(self, run: DataRun, address: Address, now: float) -> None:
        message, heard = run.header.message, self._heard
        heard.note_address(message.source_id, address)
        sender = heard.senders.heard(message.source_id, message.instance_id, now)
        if sender is None:
            return
        sender.is_publishing = True
        sender.observed.note_run(run)
        if not run.header.is_stream:
            return
        frames, missed = heard.senders.read(sender, run)
        self.bytes_missed += missed
        for frame in frames:
            if frame[4][CONNECTION_ID]:  # without a connection id, the frame only lets newcomers find an idle stream
                sender.messages += 1
                self._messages += 1
                heard.topics.note(frame, now)
                if self._on_frame is not None:
                    self._on_frame(frame, message.source_id)
