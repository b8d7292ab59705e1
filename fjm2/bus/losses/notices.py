"""Losses of senders: marks each in the router, where the next message shows it, and reports it in people's words."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from time import time

from fjm2.bus.presence import PresenceTable
from fjm2.bus.reports import (
    BusReport,
    BytesLost,
    FileDropped,
    LossDetails,
    MessagesUnreadable,
    SenderLost,
    StreamsMissed,
    TransactionDropped,
)
from fjm2.bus.router import Router
from fjm2.norm.events import LossReason, ObjectLost, ObjectsMissed, SenderVanished, StreamGapOpened, StreamLost

from .kinds import Loss

LossEvent = StreamLost | StreamGapOpened | ObjectLost | ObjectsMissed | SenderVanished

_GOING = (LossReason.SENDER_GONE, LossReason.SENDER_RESTARTED, LossReason.CLOSED)
"""Reasons for losses that occur because a sender goes away or this bus is closed. Such a loss is followed by
SenderVanished, or by the end of this bus."""
_QUIET_TICKS = 10
"""Ticks between two reports of one sender: what cannot be read may go on for hours."""
_SENDERS_MAX = 1024
"""Senders that are remembered as reported."""
_TEXTS = {
    Loss.UNREADABLE: "they were larger than this library takes, or of an unknown form",
    Loss.NO_MEMORY: "the bound on memory of incomplete messages was reached",
}


class LossNotices:
    """Handles what NORM and the router find to be lost."""

    router: Router
    """The bus sets it: the router tells of dropped transactions, and so exists only after this object."""

    def __init__(self, presence: PresenceTable, report: Callable[[BusReport], None]) -> None:
        self._presence = presence
        self._report = report
        self._unread: int | None = None
        """Sender of a stream that was given up before anything of it was read, until it is told that it is gone."""
        self._skips: Counter[tuple[int, Loss]] = Counter()
        """Number of places where messages could not be read, by sender and reason, that are not reported yet."""
        self._quiet_until: dict[int, int] = {}
        """Tick at which more of a sender may be reported, by sender."""
        self._ticks = 0
        self.on_lost: Callable[[int, int, int], None] = lambda _sender, _messages, _bytes: None
        """Called with a sender, and the numbers of messages and bytes that were lost; 0 if unknown."""
        self._open_gaps: dict[tuple[int, int], int] = {}
        """Bytes reported of gaps whose end is not known yet, by sender and object id."""

    def note(self, event: LossEvent) -> None:
        """Mark and report a loss."""
        match event:
            case StreamLost(sender, reason=reason):
                if reason in _GOING:
                    self._unread = sender
                else:
                    self._note_bytes(event)
            case StreamGapOpened(sender, stream, start, size):
                self._tell_bytes(event, start, size)
                self._open_gaps[sender, stream] = size
            case ObjectLost(sender, reason=reason):
                if reason not in _GOING:
                    self._note_streams(sender, 1)
            case ObjectsMissed(sender, _, count):
                self._note_streams(sender, count)
            case SenderVanished(sender, reason):
                details = self._details(sender)
                self._open_gaps = {place: size for place, size in self._open_gaps.items() if place[0] != sender}
                is_lost = self.router.forget(sender, self._unread == sender)
                self._unread = None
                if is_lost and not details.sender.is_keeper:  # it has no messages of its own
                    self._tell(SenderLost(sender, self._lane_of(sender), reason, details))

    def _note_bytes(self, lost: StreamLost) -> None:
        """Mark and report lost bytes, but not those that were reported when the gap opened."""
        place = lost.sender_id, lost.object_id
        told = self._open_gaps.pop(place, None)
        size = lost.end - lost.start - (told or 0)
        if told is not None and size <= 0:
            self.router.note_gap(*place)
            return
        self._tell_bytes(lost, lost.start + (told or 0), size)

    def _tell_bytes(self, event: StreamLost | StreamGapOpened, start: int, size: int) -> None:
        sender, stream = event.sender_id, event.object_id
        details = self._details(sender, stream, size)
        self.router.note_gap(sender, stream)
        self.on_lost(sender, 0, size)
        end = start + size if size else None
        self._tell(BytesLost(sender, self._lane_of(sender), start, end, event.reason, details))

    def _tell(self, report: BusReport) -> None:
        """Report lost messages, unless nobody here wants any: then they were never to be received."""
        if self.router.by_hash or self.router.taps:
            self._report(report)

    def _note_streams(self, sender: int, count: int) -> None:
        details = self._details(sender)
        self.router.note_missed(sender)
        self.on_lost(sender, 0, 0)
        self._tell(StreamsMissed(sender, self._lane_of(sender), count, details))

    def note_dropped(self, report: BusReport) -> None:
        """Report a transaction or a file that the router dropped, with the name of its sender."""
        if isinstance(report, TransactionDropped) and report.senders:
            first, *others = sorted(report.senders)
            self.on_lost(first, report.received, 0)
            for sender in others:  # how many each of them sent is not known, and none is to count twice
                self.on_lost(sender, 0, 0)
            report = replace(report, details=self._details(first))
        elif isinstance(report, FileDropped):
            if not report.is_cancelled:
                self.on_lost(report.sender_id, 1, report.size)
            report = replace(report, details=self._details(report.sender_id))
        self._report(report)

    def note_skip(self, sender: int) -> None:
        """Tell a sender at once that a message could not be read, before it is confirmed. `tick` tells of the next."""
        if self.router.table.has_messages(sender) or self._lane_of(sender) is not None:
            self.on_lost(sender, 1, 0)

    def tick(self) -> None:
        """Report what could not be read, at once and then every ten calls for each sender. Call this every second.

        Streams of programs that are not on the bus are no messages: nobody is told of them.
        """
        self._ticks += 1
        for (sender, loss), count in self.router.table.take_skips().items():
            if self.router.table.has_messages(sender) or self._lane_of(sender) is not None:
                self._skips[sender, loss] += count
                if count > 1:
                    self.on_lost(sender, count - 1, 0)  # `note_skip` has told of the first
        for (sender, loss), count in list(self._skips.items()):
            if self._ticks >= self._quiet_until.get(sender, 0):
                del self._skips[sender, loss]
                self._quiet_until[sender] = self._ticks + _QUIET_TICKS
                self._tell(MessagesUnreadable(sender, count, _TEXTS[loss], self._details(sender)))
        if len(self._quiet_until) > _SENDERS_MAX:
            self._quiet_until.clear()

    def _details(self, sender: int, object_id: int | None = None, lost_bytes: int = 0) -> LossDetails:
        topics, messages, since = self.router.table.details(sender, object_id, lost_bytes)
        destinations = tuple(one for topic in topics for one in self.router.targets.destinations_of(topic))
        return LossDetails(self._presence.names.of(sender), destinations, messages, since, time())

    def _lane_of(self, sender: int) -> int | None:
        """Return the number of a sender's lane, if it was announced."""
        found = self._presence.lane_of(sender)
        return None if found is None else found[0]
