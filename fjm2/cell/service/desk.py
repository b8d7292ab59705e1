"""The manager's part in the service to clients: it judges requests, ends sessions that lapsed, and tells the time."""

import math
from typing import Final

from fjm2.base.ledger import Ledger
from fjm2.cell.context import Context
from fjm2.cell.replica import Replica
from fjm2.cell.reports import Reports
from fjm2.cell.times import SESSION_LEASE_S, TELL_S
from fjm2.cell.wire.records import ApplyRecord, HandRecord, Record, ReturnRecord, TableRecord, TimeRecord, Verdict
from fjm2.cell.wire.requests import Ack, decode_request

from .clients import Clients
from .decided import Decided
from .hands import Hander
from .judge import Judge
from .reasons import Reason, ReturnReason
from .state_codec import decode_state, encode_state
from .table_news import TableNews

ENTRY_REQUESTS_MAX: Final = 256
"""Most requests that one entry decides."""
TABLE_COST: Final = 32
"""Requests that a TABLE record takes the room of: it names the starts of up to 2,000 ledgers."""
ENDINGS_MAX: Final = 64
"""Most subscriptions that one entry ends because their last consumers are gone."""
TURN_REQUESTS_MAX: Final = 16
"""Most requests of one client that an entry decides, so that no client takes the room of others."""
ACK_WAIT_S: Final = 1.0
"""Time that an acknowledgement waits for its messages, which the client had before this keeper."""
LEASE_CHECK_S: Final = 0.25
"""Interval at which leases are looked through."""
TIME_NEAR_MS: Final = 60_000
TIME_NEAR_S: Final = 1.0
TIME_FAR_S: Final = 60.0
"""Something that happens within a minute has the time told each second; what happens later, each minute."""


class RequestDesk:
    """Judges requests on a draft: the state as it will be when all that this manager proposed is committed.

    A manager's entries are committed in order, or it is no manager any more and the draft is dropped with it.
    """

    def __init__(self, context: Context, replica: Replica, clients: Clients, reports: Reports) -> None:
        self._context = context
        self._replica = replica
        self._clients = clients
        self._hander = Hander(replica, clients, reports)
        self.news: Final = TableNews(context, replica.table)
        """News of the table for publishers."""
        self._draft: Decided | None = None
        self._judge = Judge(Decided(), replica.ledgers)
        self._began_at = 0.0
        self._checked_at = 0.0
        self._time_at = 0.0
        self._waits: dict[Ledger, tuple[int, float]] = {}
        """Acknowledgement that each client's requests wait for, and since when."""
        self._decided_at = -math.inf
        self._is_gathering = False
        """True if what comes now waits for the next entry."""

    @property
    def draft(self) -> Decided | None:
        """The state that all proposals make; None before the log of earlier managers is applied."""
        return self._draft

    def note_proposed(self, records: tuple[Record, ...]) -> None:
        """Note records that others proposed."""
        if self._draft is not None:
            self._draft.apply(records, self._clients.find_request)
            self._draft.touched.clear()

    @property
    def next_at(self) -> float:
        """Time at which `next_records` may have some that it does not return now."""
        return self._decided_at + TELL_S if self._is_gathering else math.inf

    def next_records(self, now: float) -> tuple[Record, ...]:
        """Return the records that are due. The draft has them already: the caller proposes them as they are.

        What comes soon after others is gathered for one entry: clients learn by heartbeats what is committed, and these
        do not come more often either.
        """
        self._is_gathering = now < self._decided_at + TELL_S
        draft = None if self._is_gathering else self._draft or self._begin(now)
        if draft is None:
            return ()
        records = [*self._time_records(draft, now), *self._lapses(draft, now)]
        draft.apply(records, self._clients.find_request)
        records += self._judge_requests(draft, now)
        records += self._end_unused(draft)
        hands = self._hander.next_hands(draft, now, self._context.wall_ms(now))
        if hands:
            records.append(HandRecord(hands))
            draft.apply((records[-1],), self._clients.find_request)
        draft.touched.clear()
        if records:
            self._decided_at = now
        return tuple(records)

    def _begin(self, now: float) -> Decided | None:
        """Make the draft once everything in the log is applied. All leases begin anew: their holders could not know."""
        state = self._clients.state
        if state.index != self._replica.log.last_index:
            return None
        self._draft = decode_state(encode_state(state))
        if self._draft is not None:
            self._judge = Judge(self._draft, self._replica.ledgers)
            self.begin_leases(now)
        return self._draft

    def begin_leases(self, now: float) -> None:
        """Begin the leases of all sessions anew."""
        self._began_at = now
        if self._draft is not None:
            self._clients.renewed = dict.fromkeys(self._draft.sessions, now)

    # Time and leases

    def _time_records(self, draft: Decided, now: float) -> list[Record]:
        waits_until = draft.waits_until_ms
        if waits_until is None or now < self._time_at:
            return []
        time_ms = self._context.wall_ms(now)
        is_near = waits_until - time_ms <= TIME_NEAR_MS
        self._time_at = now + (TIME_NEAR_S if is_near else TIME_FAR_S)
        return [TimeRecord(time_ms)]

    def _lapses(self, draft: Decided, now: float) -> list[Record]:
        """Return RETURN records for sessions that were silent for too long."""
        if now < self._checked_at + LEASE_CHECK_S:
            return []
        self._checked_at = now
        renewed = self._clients.renewed
        for session in [session for session in renewed if session not in draft.sessions]:
            del renewed[session]
        requests = self._clients.inbox
        self._waits = {ledger: wait for ledger, wait in self._waits.items() if requests.waiting(ledger, 0)}
        return [
            ReturnRecord(session, ReturnReason.LAPSED)
            for session in draft.sessions
            if now - renewed.get(session, self._began_at) > SESSION_LEASE_S
        ]

    # Requests

    def _judge_requests(self, draft: Decided, now: float) -> list[Record]:
        records: list[Record] = []
        room = ENTRY_REQUESTS_MAX
        for ledger in self._clients.inbox.ledgers():
            if room <= 0:
                break
            turn = self._turn(draft, ledger, min(room, TURN_REQUESTS_MAX), now)
            records += turn
            room -= sum(len(record.verdicts) for record in turn if isinstance(record, ApplyRecord))
            room -= TABLE_COST * sum(isinstance(record, TableRecord) for record in turn)
            if turn:
                self._clients.inbox.move_to_end(ledger)
        return records

    def _turn(self, draft: Decided, ledger: Ledger, most: int, now: float) -> list[Record]:
        """Return the decisions on the next requests of one client."""
        ledgers = self._replica.ledgers
        if ledgers.is_fenced(ledger) and not ledgers.is_closed(ledger):
            return []  # its final set, which is about to be decided, says which requests count
        on_disk = ledgers.end_on_disk(ledger, 1) - 1  # holes of a final set included: nobody has anything there
        records: list[Record] = []
        verdicts: list[Verdict] = []
        for sequence, body in self._clients.inbox.waiting(ledger, draft.through.get(ledger, 0))[:most]:
            request = decode_request(body)
            if sequence > on_disk or (isinstance(request, Ack) and self._waits_for(ledger, sequence, request, now)):
                break
            judgement = self._judge.judge(ledger, sequence, request)
            if judgement.records:
                if verdicts:
                    records.append(ApplyRecord(ledger, verdicts[-1].sequence, tuple(verdicts)))
                    verdicts = []
                records += judgement.records
            verdict = Verdict(sequence, judgement.reason)
            verdicts.append(verdict)
            apply = ApplyRecord(ledger, sequence, (verdict,))
            draft.apply((*judgement.records, apply), self._clients.find_request)
            if request is not None and judgement.reason is not Reason.NO_SESSION:
                self._clients.renewed[request.session] = now
        if verdicts:
            records.append(ApplyRecord(ledger, verdicts[-1].sequence, tuple(verdicts)))
        return records

    def _end_unused(self, draft: Decided) -> list[Record]:
        """Return TABLE records that drop subscriptions which are not durable, and have lost their last consumers."""
        records: list[Record] = []
        while len(records) < ENDINGS_MAX and (record := self._judge.end_unused()) is not None:
            draft.apply((record,), self._clients.find_request)
            records.append(record)
        return records

    def _waits_for(self, ledger: Ledger, sequence: int, request: Ack, now: float) -> bool:
        """Return True while an acknowledgement may wait for its messages."""
        if not self._judge.has_to_wait(request):
            self._waits.pop(ledger, None)
            return False
        waited, since = self._waits.get(ledger, (0, now))
        if waited != sequence:
            waited, since = sequence, now
        self._waits[ledger] = waited, since
        if now - since < ACK_WAIT_S:
            return True
        del self._waits[ledger]
        return False
