"""The rules by which requests are granted or refused, and the records that a grant needs."""

from dataclasses import dataclass
from typing import Final

from fjm2.base.ledger import Ledger
from fjm2.cell.ledger_table import LedgerTable
from fjm2.cell.subscription_table import SUBSCRIPTIONS_MAX, SubscriptionKey, key_of
from fjm2.cell.wire.ranges import Position, Range
from fjm2.cell.wire.records import FenceRecord, Record, Subscription, TableRecord
from fjm2.cell.wire.requests import (
    SELECTOR_CHARACTERS_MAX,
    TEXT_CHARACTERS_MAX,
    Ack,
    Close,
    End,
    Open,
    Request,
    Return,
    Subscribe,
    SubscriptionFlag,
    Unsubscribe,
)

from .cursors import ConsumerKey, Cursor
from .decided import Decided, Session
from .reasons import Reason

SESSIONS_MAX: Final = 10_000
"""Most sessions of all clients."""
CLIENT_SESSIONS_MAX: Final = 200
"""Most sessions of one client."""
CONSUMERS_MAX: Final = 200
"""Most consumers of one session."""
CLIENT_SUBSCRIPTIONS_MAX: Final = 1000
"""Most subscriptions with one client id."""
DESTINATION_SUBSCRIPTIONS_MAX: Final = 500
"""Most subscriptions to one destination. It bounds what an acknowledgement costs."""
ACK_RANGES_MAX: Final = 256
"""Most ranges of one acknowledgement. It bounds what an entry costs a follower at once."""
SHARED_CONSUMERS_MAX: Final = 200
"""Most consumers of one shared subscription."""
_OFFERED: Final = (
    SubscriptionFlag.DURABLE,
    SubscriptionFlag.DURABLE | SubscriptionFlag.NO_LOCAL,
    SubscriptionFlag.DURABLE | SubscriptionFlag.SHARED,
    SubscriptionFlag.SHARED,
)
_TOPIC: Final = 0
"""Kind flags of a topic that is not temporary."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The decision on one request."""

    reason: Reason
    records: tuple[Record, ...] = ()
    """Records that come before the APPLY which grants it."""


class Judge:
    """Judges requests by a state, of which the caller says that all before it is applied."""

    def __init__(self, state: Decided, ledgers: LedgerTable) -> None:
        self._state = state
        self._ledgers = ledgers

    def judge(self, ledger: Ledger, sequence: int, request: Request | None) -> Judgement:
        """Return the decision on a request; None stands for one that cannot be read."""
        if request is None:
            return Judgement(Reason.MALFORMED)
        if isinstance(request, Open):
            return Judgement(self._judge_open(ledger, request))
        if isinstance(request, End):
            return self._judge_end(ledger, request)
        session = self._state.sessions.get(request.session)
        if session is None or session.ledger != ledger:
            return Judgement(Reason.NO_SESSION)
        match request:
            case Subscribe():
                return self._judge_subscribe(session, sequence & 0xFFFF_FFFF, request)
            case Ack():
                return Judgement(self._judge_ack(session, request))
            case Return():
                return Judgement(self._judge_return(session, request))
            case Close():
                is_known = all(consumer in session.consumers for consumer in request.consumers)
                return Judgement(Reason.GRANTED if is_known else Reason.NO_CONSUMER)
            case Unsubscribe():
                return self._judge_unsubscribe(session, request)
            case _:
                return Judgement(Reason.NOT_OFFERED)

    def has_to_wait(self, request: Request | None) -> bool:
        """Return True if a request acknowledges messages that have not come here yet: its client was faster.

        Those that have come to a full store count: their acknowledgement may be what makes room for them.
        """
        return isinstance(request, Ack) and any(self._lacks(each.ledger, each.last + 1) for each in request.ranges)

    def _lacks(self, ledger: Ledger, end: int) -> bool:
        """Return True if some message before `end` may still come."""
        ledgers = self._ledgers
        return not ledgers.is_closed(ledger) and not all(
            ledgers.unstored.covers(ledger, *gap) for gap in ledgers.missing(ledger, 1, end)
        )

    def _judge_open(self, ledger: Ledger, request: Open) -> Reason:
        state = self._state
        known = state.sessions.get(request.session)
        if known is not None:
            is_same = (known.ledger, known.client_id, known.mode) == (ledger, request.client_id, request.mode)
            return Reason.GRANTED if is_same else Reason.SESSION_TAKEN
        if len(request.client_id) > TEXT_CHARACTERS_MAX:
            return Reason.TEXT_TOO_LONG
        if state.owner(request.client_id) not in (None, ledger):
            return Reason.CLIENT_ID_TAKEN
        if len(state.sessions) >= SESSIONS_MAX or state.session_count(ledger) >= CLIENT_SESSIONS_MAX:
            return Reason.TOO_MANY_SESSIONS
        return Reason.GRANTED

    def _judge_end(self, ledger: Ledger, request: End) -> Judgement:
        """Fence an earlier ledger of the writer, whether any member has a frame of it or not: some may be under way."""
        ended = ledger._replace(producer_epoch=request.producer_epoch)
        if request.session or ended.producer_epoch >= ledger.producer_epoch:
            return Judgement(Reason.MALFORMED)
        if self._ledgers.is_fenced(ended):
            return Judgement(Reason.GRANTED)
        if ended not in self._ledgers and not self._ledgers.has_room:
            return Judgement(Reason.TOO_MANY_LEDGERS)
        return Judgement(Reason.GRANTED, (FenceRecord(ended),))

    def _judge_subscribe(self, session: Session, number: int, request: Subscribe) -> Judgement:
        reason = self._check_subscription(session, request)
        if reason is None and (len(session.consumers) >= CONSUMERS_MAX or number in session.consumers):
            reason = Reason.TOO_MANY_CONSUMERS
        if reason is not None:
            return Judgement(reason)
        wanted = Subscription(request.flags, request.destination, session.client_id, request.name, request.selector)
        cursor = self._state.cursors.get(key_of(wanted))
        if cursor is None:
            reason = self._check_room(wanted)
            return Judgement(Reason.GRANTED, (self._addition(wanted, 1),)) if reason is None else Judgement(reason)
        if (cursor.subscription.flags ^ wanted.flags) & SubscriptionFlag.SHARED:
            return Judgement(Reason.OTHER_KIND)
        goes_on = cursor.is_shared if cursor.consumers else cursor.is_durable
        if cursor.subscription == wanted and goes_on:
            has_room = len(cursor.consumers) < SHARED_CONSUMERS_MAX
            return Judgement(Reason.GRANTED if has_room else Reason.TOO_MANY_CONSUMERS)
        if cursor.consumers:
            return Judgement(Reason.CONSUMER_ACTIVE)
        # Another topic, selector or no_local makes it new: what was kept for the old one is gone. So does the end of
        # the last consumer of one that is not durable.
        return Judgement(Reason.GRANTED, (self._removal(cursor), self._addition(wanted, 2)))

    def _check_subscription(self, session: Session, request: Subscribe) -> Reason | None:
        """Return what is wrong with a request to subscribe, whatever subscriptions there are."""
        if request.flags not in _OFFERED:
            return Reason.NOT_OFFERED
        if not session.client_id and not request.flags & SubscriptionFlag.SHARED:
            return Reason.NO_CLIENT_ID
        if not request.name:
            return Reason.NO_NAME
        if len(request.name) > TEXT_CHARACTERS_MAX or len(request.selector) > SELECTOR_CHARACTERS_MAX:
            return Reason.TEXT_TOO_LONG
        if request.destination.kind_flags != _TOPIC or not request.destination.name:
            return Reason.INVALID_DESTINATION
        return None

    def _check_room(self, wanted: Subscription) -> Reason | None:
        state = self._state
        if (
            len(state.cursors) >= SUBSCRIPTIONS_MAX
            or state.cursor_count(wanted.client_id) >= CLIENT_SUBSCRIPTIONS_MAX
            or len(state.cursors_of(wanted.destination.frame_hash)) >= DESTINATION_SUBSCRIPTIONS_MAX
        ):
            return Reason.TOO_MANY_SUBSCRIPTIONS
        return None

    def _addition(self, subscription: Subscription, step: int) -> TableRecord:
        """Return the record that adds a subscription. It begins behind everything that has been seen.

        Ledgers that are closed need no start: it gets nothing of them.
        """
        ledgers = self._ledgers.open_ledgers
        starts = (Position(ledger, self._ledgers.highest_seen(ledger) + 1) for ledger in ledgers)
        return TableRecord(
            self._state.table_version + step, True, subscription, tuple(each for each in starts if each.sequence > 1)
        )

    def end_unused(self) -> TableRecord | None:
        """Return the record that drops a subscription which ended with its last consumer. Return None if there is
        none."""
        cursor = next(self._state.unused_cursors(), None)
        return None if cursor is None else self._removal(cursor)

    def _removal(self, cursor: Cursor) -> TableRecord:
        return TableRecord(self._state.table_version + 1, False, cursor.subscription, ())

    def _judge_ack(self, session: Session, request: Ack) -> Reason:
        if len(request.ranges) > ACK_RANGES_MAX:
            return Reason.TOO_MANY_RANGES
        if any(each.consumer not in session.consumers for each in request.ranges):
            return Reason.NO_CONSUMER
        if self.has_to_wait(request):
            return Reason.UNKNOWN_MESSAGES
        for each in request.ranges:
            cursor = self._state.cursor_of(request.session, each.consumer)
            if cursor is not None and not self._holds(cursor, request.session, each):
                return Reason.NOT_HELD
            if cursor is None or cursor.is_too_scattered(each.ledger, each.first, each.last + 1):
                return Reason.TOO_SCATTERED
        return Reason.GRANTED

    def _judge_return(self, session: Session, request: Return) -> Reason:
        if len(request.ranges) > ACK_RANGES_MAX:
            return Reason.TOO_MANY_RANGES
        for each in request.ranges:
            cursor = self._state.cursor_of(request.session, each.consumer)
            if each.consumer not in session.consumers or cursor is None:
                return Reason.NO_CONSUMER
            if not self._holds(cursor, request.session, each):
                return Reason.NOT_HELD
        return Reason.GRANTED

    @staticmethod
    def _holds(cursor: Cursor, session: int, each: Range) -> bool:
        """Return True if a range is the consumer's: that of an unshared subscription has all that is not handed out."""
        consumer = ConsumerKey(session, each.consumer)
        return not cursor.hands_out(each.ledger) or cursor.holds(consumer, each.ledger, each.first, each.last + 1)

    def _judge_unsubscribe(self, session: Session, request: Unsubscribe) -> Judgement:
        cursor = self._state.cursors.get(SubscriptionKey(session.client_id, request.name))
        if cursor is None:
            return Judgement(Reason.NO_SUBSCRIPTION)
        if cursor.consumers:
            return Judgement(Reason.CONSUMER_ACTIVE)
        return Judgement(Reason.GRANTED, (self._removal(cursor),))
