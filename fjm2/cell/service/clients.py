"""A member's part in the service to clients: it applies decisions, and knows what subscriptions still need."""

from collections.abc import Sequence
from typing import Final

from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet
from fjm2.cell.context import Context
from fjm2.cell.outgoing import Released, Replay, RequestWanted, SendCommand
from fjm2.cell.replica import Replica
from fjm2.cell.wire.catch_up import CatchUpQuery
from fjm2.cell.wire.fields import Member
from fjm2.cell.wire.leases import decode_leases
from fjm2.cell.wire.ranges import Spans
from fjm2.cell.wire.records import CloseRecord
from fjm2.cell.wire.requests import Request, decode_request

from .backlog import Backlog
from .decided import Decided, Touched, granted
from .early_questions import EarlyQuestions
from .inbox import RequestInbox
from .kept_requests import KeptRequests
from .pages import hint_of, page_of, replayed
from .section import ServiceSection

SWEEPS_AT_ONCE: Final = 64
"""Most pairs of destination and ledger that are looked through at once for what nobody needs any more."""
_ALL: Final = (1, 1 << 64)
"""All sequences of a ledger."""
SWEEP_WORK_MAX: Final = 20_000
"""Number of ranges that are looked through at once, but for the pair that they end in."""


class Clients:
    """The clients of a cell, as one member knows them."""

    def __init__(self, context: Context, replica: Replica, section: ServiceSection) -> None:
        self._context = context
        self._replica = replica
        self._section = section
        self.inbox = RequestInbox()
        self.backlog = Backlog()
        self.renewed: dict[int, float] = {}
        """Time at which each session was heard last."""
        self._requests = KeptRequests()
        self._early = EarlyQuestions()
        self._touched: dict[Touched, None] = {}
        replica.ledgers.pinned = self.backlog

    @property
    def state(self) -> Decided:
        """The state that decisions left."""
        return self._section.state

    @property
    def me(self) -> Member:
        return self._context.me

    # Input

    def receive_request(self, ledger: Ledger, sequence: int, body: bytes) -> None:
        """Take the body of a frame to FJM2.CELL, at once after `Cell.receive_frames` got the frame.

        The driver passes in those that it hears or fetches; at the start all that are in the store and not applied; and
        those that the event `RequestWanted` names. A frame that was not stored is ignored: it comes again.
        """
        self.note_requests(ledger, sequence, 1)
        is_new = sequence > self.state.through.get(ledger, 0) or (ledger, sequence) in self.inbox.wanted
        if is_new and self._replica.ledgers.seen_within(ledger, sequence, sequence + 1):
            self.inbox.add(ledger, sequence, body)

    def note_requests(self, ledger: Ledger, first: int, count: int) -> None:
        """Note that frames which are stored are requests. The driver passes in all that are in the store at the start.

        They are released when the log has no entry any more that names them.
        """
        for low, high in self._replica.ledgers.seen_within(ledger, first, first + count):
            self._requests.add(ledger, low, high)

    def note_messages(self, frame_hash: int, ledger: Ledger, first: int, count: int) -> None:
        """Note that frames which have come are messages to a destination of the table.

        Those that are not stored are no messages here: one that was counted may come again when there is a
        subscription, and no keeper could send it to anybody.
        """
        self.note_ranges(frame_hash, ledger, self._stored_within(ledger, first, first + count))

    def _stored_within(self, ledger: Ledger, first: int, end: int) -> list[tuple[int, int]]:
        """Return the ranges between first and end without frames that were counted, or given up."""
        ledgers = self._replica.ledgers
        known, counting = ledgers.on_disk_within(ledger, first, end), ledgers.counting.within(ledger, first, end)
        if not known and not counting:  # as nearly always: they are new
            return [(first, end)]
        stored = RangeSet([(first, end)])
        for low, high in known:
            stored.remove(low, high)
            stored.update(self._context.storage.live(ledger, low, high))
        for low, high in counting:
            stored.remove(low, high)
        for low, high in ledgers.doubts.writing_within(ledger, first, end):
            stored.add(low, high)
        return list(stored)

    def note_ranges(self, frame_hash: int, ledger: Ledger, ranges: Sequence[tuple[int, int]]) -> None:
        """Note ascending ranges [first, end) of messages to one destination, of which there may be very many.

        The driver passes in those that are in the store: at the start all, and when `TableChanged` makes it reread it
        those from the start of a subscription on.
        """
        if ranges and self._replica.table.stores(frame_hash):
            first, end = ranges[0][0], ranges[-1][1]
            ledgers = self._replica.ledgers
            if ledgers.seen_within(ledger, first, end) != [(first, end)]:
                ranges = [part for each in ranges for part in ledgers.seen_within(ledger, *each)]
            if ranges:
                self.backlog.add_all(frame_hash, ledger, ranges)
            cursors = self.state.cursors_of(frame_hash)
            if not cursors or any(cursor.last(ledger) >= first for cursor in cursors):
                self._touched[Touched(frame_hash, ledger)] = None

    def note_delivery_times(self, ledger: Ledger, first: int, times_ms: Sequence[int]) -> None:
        """Note the delivery times of consecutive messages in a ledger of delayed ones, in milliseconds since 1970. The
        driver passes them in before it calls `note_messages` or `note_ranges` for these."""
        self.backlog.due_times.add(ledger, first, times_ms)

    def set_wall_offset(self, seconds: float) -> None:
        """Set the difference between the time since 1970 and the monotonic one: the clock of the host may be set."""
        self._context.wall_offset_s = seconds

    def receive_leases(self, content: bytes, now: float) -> bool:
        """Take a NORM_ACK of type 17. Return False if it is malformed."""
        sessions = decode_leases(content)
        if sessions is None:
            return False
        for session in sessions:
            if session in self.state.sessions:
                self.renewed[session] = now
        if len(self.renewed) > 2 * len(self.state.sessions) + 100:
            self.renewed = {session: at for session, at in self.renewed.items() if session in self.state.sessions}
        return True

    def answer(self, query: CatchUpQuery) -> None:
        """Send a consumer a page of what its subscription has not acknowledged, if this keeper is asked.

        A keeper that has not applied the decision which made the consumer answers when it has: it may not know yet what
        an earlier consumer acknowledged. So does one that has not been told of all messages in its store. One that may
        lack messages does not answer.
        """
        if query.keeper_node != self._context.node_id:
            return
        cursor = self.state.cursor_of(query.session, query.consumer)
        if cursor is None or not self._replica.readiness.knows_messages(cursor.frame_hash):
            self._early.add(query)
            return
        if not query.is_exact:
            self._context.outgoing.append(SendCommand(hint_of(query, cursor, self.backlog)))
            return
        page = page_of(query, cursor, self.backlog, self._replica.ledgers)
        if page.ledger in self._replica.ledgers.doubts:
            return  # it may have messages that were counted too early
        self._context.outgoing.append(SendCommand(page))
        ranges = replayed(page)
        if ranges:
            self._context.events.append(Replay(query.reply_to, ranges))

    def answer_early(self) -> None:
        """Answer what was asked too early, unless it still is."""
        for query in self._early.take():
            self.answer(query)

    # Decisions

    def find_request(self, ledger: Ledger, sequence: int) -> Request | None:
        """Return a request that is here."""
        body = self.inbox.find(ledger, sequence)
        return None if body is None else decode_request(body)

    @property
    def is_current(self) -> bool:
        """True if all that is committed is applied."""
        return self.state.index == self._replica.log.committed

    def advance(self) -> None:
        """Apply what is committed and on disk with all that it refers to, then look for what nobody needs any more."""
        replica, state = self._replica, self.state
        if self._section.is_adopted:
            self._section.is_adopted = False
            self.inbox.wanted.clear()
            for ledger, final, _ in replica.ledgers.closed_ledgers:
                self._trim(ledger, final)
            self._drop_void()
        is_applied = False
        while state.index < min(replica.log.committed, replica.confirmable):
            entry = replica.log.entry(state.index + 1)
            missing = [each for each in granted(entry.body.records) if self._is_missing(*each)]
            for ledger, sequence in missing:
                if (ledger, sequence) not in self.inbox.wanted:
                    self.inbox.wanted[ledger, sequence] = None
                    self._context.events.append(RequestWanted(ledger, sequence))
            if missing:
                return
            state.apply(entry.body.records, self.find_request)
            state.index += 1
            is_applied = True
            for record in entry.body.records:
                if isinstance(record, CloseRecord):
                    self._trim(record.ledger, record.final)
                    if record.ledger.producer_epoch:
                        self._drop_void()
        self._touched.update(state.touched)
        state.touched.clear()
        for ledger in self.inbox.ledgers():
            self.inbox.forget(ledger, state.through.get(ledger, 0))
        if self._touched and self.is_current:
            self._sweep()
        settled = self._section.settled.before(replica.log.first_index)
        if settled is not None:
            self._requests.settle(settled, replica.ledgers)
        for ledger, ranges in self._requests.released():
            self._tell_released(ledger, ranges)
        if is_applied:
            self.answer_early()

    def _is_missing(self, ledger: Ledger, sequence: int) -> bool:
        if sequence <= self.state.through.get(ledger, 0) or (ledger, sequence) in self._replica.ledgers.lost:
            return False  # one that is lost has no effect
        return self.inbox.find(ledger, sequence) is None

    # Release

    def _trim(self, ledger: Ledger, final: Spans) -> None:
        """Drop what is outside the final set of a ledger: it is neither handed out nor decided."""
        end = final[-1][1] + 1 if final else 1
        self.inbox.forget_from(ledger, end)
        outside = list(RangeSet((first, last + 1) for first, last in final).gaps(*_ALL))
        for frame_hash in self.backlog.hashes_of(ledger):
            self._release(frame_hash, ledger, outside)

    def _drop_void(self) -> None:
        """Drop what is here of ledgers that were never closed, and have a later one that is."""
        successions = self._replica.ledgers.successions
        for ledger in [each for each in self.backlog.ledgers if successions.is_void(each)]:
            self._trim(ledger, ())

    def _sweep(self) -> None:
        """Release what all subscriptions have acknowledged of destinations that changed.

        This waits until all that is committed is applied, and until the subscriptions to a destination that are in the
        log are committed: otherwise one could be added that needs it.
        """
        work = 0
        ahead = self._replica.log.hashes_ahead
        for _ in range(SWEEPS_AT_ONCE):
            touched = next((each for each in self._touched if each.frame_hash not in ahead), None)
            if touched is None or work > SWEEP_WORK_MAX:
                return
            frame_hash, ledger = touched
            del self._touched[touched]
            if ledger is None:
                each_ledger = self.backlog.ledgers_of(frame_hash)
                self._touched.update(dict.fromkeys(Touched(frame_hash, each) for each in each_ledger))
                continue
            # A cursor has few ranges, and the backlog may have very many.
            acked: Sequence[tuple[int, int]] = [_ALL]
            for cursor in self.state.cursors_of(frame_hash):
                acked = [part for first, end in acked for part in cursor.acked_within(ledger, first, end)]
                work += 1 + len(acked)
                if not acked:
                    break
            work += self._release(frame_hash, ledger, acked)

    def _release(self, frame_hash: int, ledger: Ledger, ranges: Sequence[tuple[int, int]]) -> int:
        """Give up the messages in some ranges. Return the number of their ranges."""
        messages = [each for first, end in ranges for each in self.backlog.within(frame_hash, ledger, first, end)]
        if messages:
            self.backlog.remove(frame_hash, ledger, ranges)
            self._tell_released(ledger, messages)
        return len(messages)

    def _tell_released(self, ledger: Ledger, ranges: Sequence[tuple[int, int]]) -> None:
        self._context.events.append(Released(ledger, tuple((first, end - 1) for first, end in ranges)))
