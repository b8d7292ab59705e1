"""The closing of ledgers: members refuse further frames, then the manager records the final set of sequences."""

from typing import Final

from fjm2.base.ledger import Ledger, is_older
from fjm2.base.ranges import RangeSet

from .context import Context
from .doubts.lacks import Lacks
from .doubts.stuck_ledgers import StuckLedgers
from .ledger_table import Span
from .replica import Replica
from .reports import Report, Reports
from .service.decided import Decided
from .times import SILENT_S
from .wire.ranges import Spans
from .wire.records import CloseRecord, FenceRecord, Record, TimeRecord

HOLES_MAX: Final = 100
"""Most holes of a final set: it is a part of one decision."""
_END: Final = 1 << 64


class LedgerClosing:
    """The manager's part in closing ledgers. All that it needs is in the log, so that a new manager goes on with it."""

    def __init__(self, context: Context, replica: Replica, reports: Reports, state: Decided) -> None:
        self._context = context
        self._replica = replica
        self._reports = reports
        self._state = state
        self._closed: set[Ledger] = set()
        """Ledgers whose CLOSE is in the log, and was not committed when this was looked at."""
        self.lacks: Final = Lacks(replica.ledgers)
        self._stuck = StuckLedgers(replica.ledgers)

    def next_records(self, now: float) -> tuple[Record, ...]:
        """Return the FENCE and CLOSE records that are due."""
        self._resolve_closed()
        ledgers = self._replica.ledgers
        self._closed = {ledger for ledger in self._closed if not ledgers.is_closed(ledger)}
        # A client that renews its sessions lives, though it may send nothing for hours.
        silent = (each for each in ledgers.silent_since(now - SILENT_S) if not self._state.has_sessions(each))
        stuck = self._stuck.find(now, is_waiting=self._replica.fetches.lack_room(now))
        ended = dict.fromkeys((*silent, *ledgers.successions.superseded(), *stuck))
        records: list[Record] = [FenceRecord(each) for each in ended if not self._replica.log.fence_index(each)]
        for ledger in ledgers.fenced_ledgers:
            if ledger not in self._closed and self._is_final(ledger):
                self._closed.add(ledger)
                records.append(CloseRecord(ledger, self._final_set(ledger)))
        if any(isinstance(record, CloseRecord) for record in records):
            records.insert(0, TimeRecord(self._context.wall_ms(now)))  # from which on the final set is remembered
        return tuple(records)

    def _has_unknown_before(self, ledger: Ledger, report: Report) -> bool:
        """Return True if a member has frames of an older ledger, which this one has not got yet."""
        ledgers = self._replica.ledgers
        return any(
            is_older(each, ledger) and progress.on_disk and each not in ledgers and not ledgers.is_closed(each)
            for each, progress in report.progresses.items()
        )

    def _lacking(self, ledger: Ledger, end: int) -> RangeSet:
        """Return the doubtful sequences before `end` whose frames cannot come.

        A frame of a final set may have been confirmed because of that, by members that came later: all have to lack it.
        """
        log, ledgers = self._replica.log, self._replica.ledgers
        if ledger not in ledgers.doubts:
            return RangeSet()
        versions = log.versions_after(log.configuration_index())
        newest = min(versions, default=self._replica.readiness.asked + 1) - 1
        return self.lacks.of(
            ledger, end, self._context.me, log.membership, _END if ledgers.is_closed(ledger) else newest
        )

    def _is_cut_off(self, ledger: Ledger) -> bool:
        """Return True if the only member of the cell has lost something, and so fenced a ledger as it returned.

        The entry that names its new incarnation has these FENCE records, too.
        """
        log = self._replica.log
        return log.membership.size == 1 and 0 < log.fence_index(ledger) == log.configuration_index()

    def _end(self, ledger: Ledger) -> int:
        """Return the end of what the final set may have.

        What lies behind a hole was not confirmed, unless the only member of the cell has lost what was there.
        """
        ledgers = self._replica.ledgers
        if self._is_cut_off(ledger):
            return ledgers.highest_seen(ledger) + 1
        return ledgers.progress(ledger).on_disk + 1

    def _final_set(self, ledger: Ledger) -> Spans:
        """Return all that is known of a ledger, without the lowest sequences whose frames cannot come, or are lost.

        Others of them may stay in it: the writer is told of nothing behind the first hole.
        """
        ledgers = self._replica.ledgers
        end = self._end(ledger)
        lacking = self._lacking(ledger, end)
        lacking.update(RangeSet(ledgers.missing(ledger, 1, end)))
        holes = list(lacking)
        for first, stop in holes[HOLES_MAX:]:
            ledgers.doubts.resolve(ledger, first, stop)
            self._replica.give_up([Span(ledger, first, stop)])
        return tuple((first, stop - 1) for first, stop in RangeSet(holes[:HOLES_MAX]).gaps(1, end))

    def _resolve_closed(self) -> None:
        """Resolve what stayed in doubt when a ledger was closed, and nobody has any more."""
        doubts = self._replica.ledgers.doubts
        for ledger in list(doubts.ledgers):
            if self._replica.ledgers.is_closed(ledger):
                for first, end in self._lacking(ledger, _END):
                    doubts.resolve(ledger, first, end)
        self.lacks.forget_settled()

    def _is_final(self, ledger: Ledger) -> bool:
        """Return True if W members, this one among them, are fenced and hold the same.

        It does not while this one may get a frame of a doubtful sequence. Those that nobody has are left out: to call
        them stored would be to tell a writer that waits for one that it is.

        Were a frame of the final set on one disk only, the loss of that disk would leave a decision that nobody can
        confirm. What lies behind a hole was neither confirmed nor delivered, and is left out.
        """
        replica = self._replica
        if replica.ledgers.successions.open_before(ledger):
            return False  # it would be void, and so lost
        index = replica.log.fence_index(ledger)
        if not 0 < index <= min(replica.log.committed, replica.confirmable):
            return False
        # A member that confirms FENCE reports what it has in the same message, and that cannot grow any more but by
        # what this keeper has.
        through = replica.ledgers.progress(ledger).on_disk
        holders = {
            member
            for member, report in self._reports
            if report.decided >= index
            and report.on_disk_through(ledger) == through
            and not self._has_unknown_before(ledger, report)
        }
        if not replica.log.membership.has_majority(holders | {self._context.me}):
            return False
        end = self._end(ledger)
        lacking = self._lacking(ledger, end)
        return all(lacking.covers(*part) for part in replica.ledgers.doubts.within(ledger, 1, end))
