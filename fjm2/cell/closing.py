"""The closing of ledgers: members refuse further frames, then the manager records the final set of sequences."""

from fjm2.base.ledger import Ledger, is_older

from .context import Context
from .replica import Replica
from .reports import Report, Reports
from .service.decided import Decided
from .times import SILENT_S
from .wire.records import CloseRecord, FenceRecord, Record, TimeRecord


class LedgerClosing:
    """The manager's part in closing ledgers. All that it needs is in the log, so that a new manager goes on with it."""

    def __init__(self, context: Context, replica: Replica, reports: Reports, state: Decided) -> None:
        self._context = context
        self._replica = replica
        self._reports = reports
        self._state = state
        self._closed: set[Ledger] = set()
        """Ledgers whose CLOSE is in the log, and was not committed when this was looked at."""

    def next_records(self, now: float) -> tuple[Record, ...]:
        """Return the FENCE and CLOSE records that are due."""
        ledgers = self._replica.ledgers
        self._closed = {ledger for ledger in self._closed if not ledgers.is_closed(ledger)}
        # A client that renews its sessions lives, though it may send nothing for hours.
        silent = (each for each in ledgers.silent_since(now - SILENT_S) if not self._state.has_sessions(each))
        ended = dict.fromkeys((*silent, *ledgers.successions.superseded()))
        records: list[Record] = [FenceRecord(each) for each in ended if not self._replica.log.fence_index(each)]
        for ledger in ledgers.fenced_ledgers:
            if ledger not in self._closed and self._is_final(ledger):
                self._closed.add(ledger)
                through = ledgers.progress(ledger).on_disk
                records.append(CloseRecord(ledger, ((1, through),) if through else ()))
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

    def _is_final(self, ledger: Ledger) -> bool:
        """Return True if W members, this one among them, are fenced and hold the same.

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
        return replica.log.membership.has_majority(holders | {self._context.me})
