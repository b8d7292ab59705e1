"""The members' last answers to a manager."""

from collections.abc import Iterator
from typing import Final

from fjm2.base.ledger import Ledger

from .configuration import Membership
from .wire.fields import Member
from .wire.ranges import DECISION_LANE
from .wire.stored import Progress, Stored

REPORTS_MAX: Final = 16
"""Most keepers that a manager listens to: members, and spares that may become members."""


class Report:
    """The last word of one keeper in one incarnation."""

    __slots__ = ("answered", "configuration", "decided", "heard_at", "lost", "node_id", "progresses", "stored")

    def __init__(self) -> None:
        self.node_id = 0
        self.heard_at = 0.0
        self.answered = 0
        """Number of the newest heartbeat that it answered."""
        self.decided = 0
        """Index through which it has the log of this epoch on disk, with all that it refers to."""
        self.configuration = 0
        self.progresses: dict[Ledger, Progress] = {}
        self.stored: Stored | None = None
        self.lost = b""
        """Keeper id of a member whose place it is to take, as an operator says; empty without one."""

    def on_disk_through(self, ledger: Ledger) -> int:
        """Return the sequence through which the keeper has a ledger on disk."""
        progress = self.progresses.get(ledger)
        return 0 if progress is None else progress.on_disk

    @property
    def durable_lsn(self) -> int:
        return 0 if self.stored is None else self.stored.durable_lsn


class Reports:
    """Reports of all keepers that answer the manager of one epoch, by keeper and incarnation."""

    def __init__(self, epoch: int, cell_id: int) -> None:
        self._decisions = Ledger(cell_id, epoch, DECISION_LANE)
        self._reports: dict[Member, Report] = {}

    def __iter__(self) -> Iterator[tuple[Member, Report]]:
        return iter(self._reports.items())

    def get(self, member: Member) -> Report | None:
        return self._reports.get(member)

    def note(self, stored: Stored, source: int, now: float, membership: Membership) -> Report | None:
        """Take a STORED of the manager's epoch. Return None if it is no report, or if there is no room for the keeper.

        Only an answer to a heartbeat is a report, since it is younger than the election, and only one that names the
        decision log, since that one names all open ledgers. To take another STORED for a report is to read nothing,
        and to miss what the keeper has confirmed.

        Keepers that are no members make room for others, so that strangers cannot drive a member out.
        """
        progresses = stored.progresses()
        if not stored.heartbeat or all(progress.ledger != self._decisions for progress in progresses):
            return None
        member = Member(stored.keeper_id, stored.incarnation)
        report = self._reports.get(member)
        if report is None:
            if len(self._reports) >= REPORTS_MAX:
                strangers = [each for each in self._reports if each not in membership]
                if not strangers:
                    return None
                del self._reports[min(strangers, key=lambda each: self._reports[each].heard_at)]
            report = self._reports[member] = Report()
        report.node_id = source
        report.heard_at = now
        report.answered = max(report.answered, stored.heartbeat)
        report.configuration = max(report.configuration, stored.configuration)
        report.stored = stored
        for progress in progresses:
            if progress.ledger == self._decisions:
                report.decided = max(report.decided, progress.on_disk)
            elif progress.ledger.lane != DECISION_LANE:
                before = report.progresses.get(progress.ledger)
                if before is None or progress.on_disk > before.on_disk:
                    report.progresses[progress.ledger] = progress
        return report
