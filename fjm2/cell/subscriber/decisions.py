"""Decisions of a cell, carried to the sessions and consumers that they are about."""

from typing import Final, Generic

from ..service.reader import CommittedEntry, DecisionReader
from ..subscription_table import key_of
from ..wire.commands import Heartbeat
from ..wire.records import ApplyRecord, CloseRecord, HandRecord, Record, ReturnRecord, SectionRecord, TableRecord
from ..wire.requests import Close
from .context import Context
from .marks import Marks
from .outgoing import F, Loss
from .request_line import Decision
from .session import ClientSession


class Decisions(Generic[F]):
    """Reads the decisions of one cell."""

    def __init__(self, context: Context[F], marks: Marks[F], sessions: dict[int, ClientSession[F]]) -> None:
        self.reader: Final = DecisionReader()
        self._context = context
        self._marks = marks
        self._sessions = sessions

    def receive_heartbeat(self, heartbeat: Heartbeat, now: float) -> None:
        """Learn how far decisions are committed."""
        self.reader.receive_heartbeat(heartbeat)
        self._read(now)

    def receive_entry(self, epoch: int, index: int, data: bytes, now: float) -> None:
        """Take an entry of the decision log."""
        self.reader.receive_entry(epoch, index, data)
        self._read(now)

    def lose_all(self, loss: Loss) -> None:
        """End all sessions, and forget all requests."""
        for session in list(self._sessions.values()):
            session.lose(loss)
        self._context.line.clear()
        self._marks.clear()

    def _read(self, now: float) -> None:
        for entry in self.reader.read():
            self._take_entry(entry, now)

    def _take_entry(self, entry: CommittedEntry, now: float) -> None:
        context = self._context
        context.added.clear()
        for record in entry.records:
            if isinstance(record, SectionRecord):
                self._begin_anew(now)
                return
            self._take(record, now)

    def _begin_anew(self, now: float) -> None:
        """Give everything up: decisions about it were missed. The cell is told, so that others need not wait."""
        del now
        context = self._context
        lost = [each.number for each in self._sessions.values()]
        self.lose_all(Loss.MISSED)
        for number in lost:
            context.line.send(None, Close(number))

    def _take(self, record: Record, now: float) -> None:
        """Take a decision."""
        context = self._context
        match record:
            case ApplyRecord():
                for decision in context.line.decide(record):
                    self.tell(decision, now)
            case HandRecord():
                for hand in record.hands:
                    session = self._sessions.get(hand.session)
                    consumer = None if session is None else session.consumer_at(hand.range.consumer)
                    if consumer is not None:
                        consumer.receive_hand(hand.range, now)
            case TableRecord():
                context.table_version = max(context.table_version, record.version)
                if record.is_added:
                    context.added[key_of(record.subscription)] = None
            case ReturnRecord():
                session = self._sessions.get(record.session)
                if session is not None:
                    session.lose(Loss.LAPSED)
            case CloseRecord():
                for decision in context.line.close(record.ledger, record.final):
                    self.tell(decision, now)
                context.routes.close(record.ledger, record.final[-1][1] + 1 if record.final else 1, now)
            case _:
                pass

    def tell(self, decision: Decision, now: float) -> None:
        """Tell a session of a decision."""
        decision.asker.learn(decision.request, decision.sequence, decision.reason, now)
        for consumer in self._context.attached:
            self._marks.add(consumer)
        if self._context.attached:
            self._context.attached.clear()
            heartbeat = self._context.choice.heartbeat
            self._marks.receive_heartbeat(0 if heartbeat is None else heartbeat.table_version)
