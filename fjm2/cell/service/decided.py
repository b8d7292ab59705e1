"""The state that decisions leave: sessions, subscriptions and their cursors. Every member replays it alike.

Nothing here reads a clock, draws a number or goes through a set: two members that applied the same entries have the
same state, to the byte.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from fjm2.base.ledger import Ledger
from fjm2.cell.subscription_table import SubscriptionKey, key_for, key_of
from fjm2.cell.times import REMEMBERED_MS
from fjm2.cell.wire.records import (
    ApplyRecord,
    CloseRecord,
    HandRecord,
    Record,
    ReturnRecord,
    TableRecord,
    TimeRecord,
)
from fjm2.cell.wire.requests import Ack, Close, Open, Request, Return, Subscribe

from .cursors import ClosedLedger, ConsumerKey, Cursor
from .reasons import Reason

FORGOTTEN_AT_ONCE: Final = 10
"""Most closed ledgers that one TIME record makes a member forget."""
FindRequest = Callable[[Ledger, int], Request | None]


class Session:
    """A session of a client."""

    __slots__ = ("client_id", "consumers", "ledger", "mode")

    def __init__(self, ledger: Ledger, mode: int, client_id: str) -> None:
        self.ledger = ledger
        """Ledger of the client's requests. No other client may use the session."""
        self.mode = mode
        self.client_id = client_id
        self.consumers: dict[int, SubscriptionKey] = {}
        """Subscription of each consumer, by the consumer's number."""


class Touched(NamedTuple):
    """A destination of which a subscription may need less than before."""

    frame_hash: int
    ledger: Ledger | None
    """None: all of them."""


class Decided:
    """Everything that decisions have left."""

    def __init__(self) -> None:
        self.index = 0
        """Index of the last entry that was applied."""
        self.time_ms = 0
        self.table_version = 0
        self.through: dict[Ledger, int] = {}
        """Last request of each client's ledger that is decided, with all before it."""
        self.sessions: dict[int, Session] = {}
        self.cursors: dict[SubscriptionKey, Cursor] = {}
        self.closed: dict[Ledger, ClosedLedger] = {}
        """Closed ledgers, the one that was closed first at the beginning."""
        self.closed_count = 0
        """Number of ledgers that were ever closed."""
        self.touched: dict[Touched, None] = {}
        """Destinations that changed since the caller last cleared this. It is not replicated."""
        self._owners: dict[str, Ledger] = {}
        """Client that has a client id, by client id."""
        self._session_counts: Counter[Ledger | str] = Counter()
        """Number of sessions of each client, and with each client id."""
        self._client_cursors: Counter[str] = Counter()
        self._shared: dict[SubscriptionKey, Cursor] = {}
        self._unused: dict[SubscriptionKey, Cursor] = {}
        """Subscriptions without consumers that are not durable."""
        self._by_hash: dict[int, dict[SubscriptionKey, Cursor]] = {}

    # Questions

    def owner(self, client_id: str) -> Ledger | None:
        """Return the client that has a client id."""
        return self._owners.get(client_id)

    def has_sessions(self, ledger: Ledger) -> bool:
        """Return True if a client has an open session: it lives, even if it writes nothing."""
        return ledger in self._session_counts

    def session_count(self, ledger: Ledger) -> int:
        """Return the number of sessions of a client."""
        return self._session_counts[ledger]

    def cursor_count(self, client_id: str) -> int:
        """Return the number of subscriptions with a client id."""
        return self._client_cursors[client_id]

    def cursors_of(self, frame_hash: int) -> list[Cursor]:
        """Return the cursors of all subscriptions to a destination."""
        return list(self._by_hash.get(frame_hash, {}).values())

    def shared_cursors(self) -> list[Cursor]:
        """Return the cursors of shared subscriptions that have consumers, in the order in which they got them."""
        return list(self._shared.values())

    def unused_cursors(self) -> Iterator[Cursor]:
        """Yield the cursors of subscriptions that are not durable, and have no consumers any more."""
        return iter(self._unused.values())

    def cursor_of(self, session: int, consumer: int) -> Cursor | None:
        """Return the cursor that a consumer of a session moves."""
        found = self.sessions.get(session)
        key = None if found is None else found.consumers.get(consumer)
        return None if key is None else self.cursors.get(key)

    @property
    def waits_until_ms(self) -> int | None:
        """Time at which something is to happen, or None if nothing waits."""
        first = next(iter(self.closed.values()), None)
        return None if first is None else first.since_ms + REMEMBERED_MS

    # Decisions

    def apply(self, records: Sequence[Record], find: FindRequest) -> None:
        """Apply the records of one entry. `find` returns the requests that they grant."""
        for record in records:
            match record:
                case TableRecord():
                    self._apply_table(record)
                case ApplyRecord():
                    self._apply_verdicts(record, find)
                case ReturnRecord():
                    self.end_session(record.session)
                case HandRecord():
                    self._hand_out(record)
                case CloseRecord():
                    self._close_ledger(record)
                case TimeRecord():
                    self._pass_time(record.milliseconds)
                case _:
                    pass  # for the log

    def _apply_table(self, record: TableRecord) -> None:
        if record.version != self.table_version + 1:
            return  # as in the table of all members: a table never goes back
        self.table_version = record.version
        key = key_of(record.subscription)
        self._drop(key)
        if record.is_added:
            cursor = Cursor(record.subscription, record.starts, self.closed, self.closed_count)
            self.cursors[key] = cursor
            self.link(key, cursor)

    def link(self, key: SubscriptionKey, cursor: Cursor) -> None:
        """Count a cursor that was added."""
        self._client_cursors[key.client_id] += 1
        self._by_hash.setdefault(cursor.frame_hash, {})[key] = cursor
        self._note_consumers(key, cursor)

    def _note_consumers(self, key: SubscriptionKey, cursor: Cursor) -> None:
        """Note that a subscription may have its first consumer, or none any more."""
        if cursor.is_shared and cursor.consumers:
            self._shared[key] = cursor
        else:
            self._shared.pop(key, None)
        if cursor.is_durable or cursor.consumers:
            self._unused.pop(key, None)
        else:
            self._unused[key] = cursor

    def _drop(self, key: SubscriptionKey) -> None:
        cursor = self.cursors.pop(key, None)
        if cursor is None:
            return
        for session, number in cursor.consumers:
            del self.sessions[session].consumers[number]
        self._shared.pop(key, None)
        self._unused.pop(key, None)
        _count_down(self._client_cursors, key.client_id)
        others = self._by_hash[cursor.frame_hash]
        del others[key]
        if not others:
            del self._by_hash[cursor.frame_hash]
        self.touched[Touched(cursor.frame_hash, None)] = None

    def _apply_verdicts(self, record: ApplyRecord, find: FindRequest) -> None:
        decided = self.through.get(record.ledger, 0)
        for sequence, reason in record.verdicts:
            if sequence > decided and reason == Reason.GRANTED:
                request = find(record.ledger, sequence)
                if request is not None:
                    self._grant(record.ledger, sequence, request)
        self.through[record.ledger] = max(decided, record.through)

    def _grant(self, ledger: Ledger, sequence: int, request: Request) -> None:
        match request:
            case Open():
                if request.session not in self.sessions:
                    self.add_session(request.session, Session(ledger, request.mode, request.client_id))
            case Subscribe():
                self._attach(request, sequence & 0xFFFF_FFFF)
            case Ack():
                self._acknowledge(request)
            case Return():
                self._give_back(request)
            case Close(consumers=()):
                self.end_session(request.session)
            case Close():
                for consumer in request.consumers:
                    self._detach(request.session, consumer)
            case _:
                pass  # TABLE records in the same entry say what an UNSUBSCRIBE drops

    def add_session(self, number: int, session: Session) -> None:
        """Open a session."""
        self.sessions[number] = session
        self._session_counts[session.ledger] += 1
        if session.client_id:
            self._session_counts[session.client_id] += 1
            self._owners[session.client_id] = session.ledger

    def end_session(self, number: int) -> None:
        """End a session, if it is open, with all its consumers."""
        session = self.sessions.get(number)
        if session is None:
            return
        for consumer in list(session.consumers):
            self._detach(number, consumer)
        del self.sessions[number]
        _count_down(self._session_counts, session.ledger)
        if session.client_id:
            _count_down(self._session_counts, session.client_id)
            if session.client_id not in self._session_counts:
                del self._owners[session.client_id]

    def _attach(self, request: Subscribe, number: int) -> None:
        session = self.sessions.get(request.session)
        if session is None:
            return
        key = key_for(session.client_id, request.name, request.flags)
        cursor = self.cursors.get(key)
        if cursor is not None and number not in session.consumers:
            cursor.consumers[ConsumerKey(request.session, number)] = request.credit
            session.consumers[number] = key
            self._note_consumers(key, cursor)

    def _detach(self, number: int, consumer: int) -> None:
        session = self.sessions.get(number)
        key = None if session is None else session.consumers.pop(consumer, None)
        if key is not None:
            cursor = self.cursors[key]
            del cursor.consumers[ConsumerKey(number, consumer)]
            cursor.give_back(ConsumerKey(number, consumer))
            self._note_consumers(key, cursor)

    def _acknowledge(self, request: Ack) -> None:
        for each in request.ranges:
            cursor = self.cursor_of(request.session, each.consumer)
            if cursor is not None:
                cursor.take(ConsumerKey(request.session, each.consumer), each.ledger, each.first, each.last + 1)
                cursor.acknowledge(each.ledger, each.first, each.last + 1)
                self.touched[Touched(cursor.frame_hash, each.ledger)] = None

    def _give_back(self, request: Return) -> None:
        for each in request.ranges:
            cursor = self.cursor_of(request.session, each.consumer)
            if cursor is not None and cursor.hands_out(each.ledger):
                cursor.take(ConsumerKey(request.session, each.consumer), each.ledger, each.first, each.last + 1)
                cursor.note_again(each.ledger, each.first, each.last + 1)

    def _hand_out(self, record: HandRecord) -> None:
        for each, session in record.hands:
            cursor = self.cursor_of(session, each.consumer)
            if cursor is not None:
                cursor.hand(ConsumerKey(session, each.consumer), each.ledger, each.first, each.last + 1)

    # Closed ledgers

    def _close_ledger(self, record: CloseRecord) -> None:
        if record.ledger not in self.closed:
            self.closed[record.ledger] = ClosedLedger(self.time_ms, record.final, self.closed_count)
            self.closed_count += 1

    def _pass_time(self, milliseconds: int) -> None:
        """Forget ledgers that were closed long ago, but those that a subscription has not acknowledged."""
        self.time_ms = max(self.time_ms, milliseconds)
        for ledger, (since_ms, final, number) in list(islice(self.closed.items(), FORGOTTEN_AT_ONCE)):
            if since_ms + REMEMBERED_MS > self.time_ms:
                return
            del self.closed[ledger]
            if all(cursor.covers(ledger, final) for cursor in self.cursors.values() if ledger in cursor):
                self.through.pop(ledger, None)
                for cursor in self.cursors.values():
                    cursor.forget(ledger)
            else:
                self.closed[ledger] = ClosedLedger(self.time_ms, final, number)


def granted(records: Sequence[Record]) -> Iterator[tuple[Ledger, int]]:
    """Yield ledger and sequence of each request that records grant, and that applying them takes."""
    for record in records:
        if isinstance(record, ApplyRecord):
            for sequence, reason in record.verdicts:
                if reason == Reason.GRANTED:
                    yield record.ledger, sequence


def _count_down(counts: Counter, key: object) -> None:  # type: ignore[type-arg]
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
