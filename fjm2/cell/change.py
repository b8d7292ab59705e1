"""Changes of members: one at a time, in two CONFIGURE records, between which no frame of an old majority gets lost."""

from typing import Final

from fjm2.base.ledger import Ledger

from .configuration import NUMBERS_OF_AN_EPOCH
from .context import Context
from .outgoing import ReplacementWaits, SendCommand
from .replica import Replica
from .reports import Report, Reports
from .wire.commands import Heartbeat, MemberFlag
from .wire.fields import Member
from .wire.records import ConfigureRecord, Record
from .wire.replacement import Replacement

ABSENT_S: Final = 60.0
"""Absence after which a member is replaced. A restart is over sooner, and changes no members."""
GONE_S: Final = 3.0
"""Absence after which a member is replaced that an operator has given up: longer than a takeover, so that nobody loses
the place who is only held up."""
LAG_S: Final = 1.0
"""Age of the state that a learner has to hold before it becomes a member."""


class MemberChange:
    """The manager's part in changes of members."""

    def __init__(self, context: Context, replica: Replica, reports: Reports, epoch: int, now: float) -> None:
        self._context = context
        self._replica = replica
        self._reports = reports
        self._epoch = epoch
        self._count = 0
        self._began_at = now
        self._past: dict[Ledger, int] = {}
        """State of the ledgers that learners have to hold."""
        self._past_committed = 0
        self._past_at = -LAG_S

    def wants(self, member: Member) -> bool:
        """Return True if a keeper that is no member may become one, and has to catch up."""
        configuration = self._replica.log.membership.newest
        return configuration is not None and self._plan(configuration, member, self._past_at) is not None

    def note_replacement(self, replacement: Replacement) -> None:
        """Note that a spare is to take the place of a member as soon as that one is seen to be gone."""
        report = self._reports.get(replacement.spare)
        if report is not None:
            report.lost = replacement.lost

    def next_records(self, now: float) -> tuple[Record, ...]:
        """Return the next CONFIGURE record, if one is due."""
        log = self._replica.log
        if log.committed < log.configuration_index() or log.epoch_at(log.committed) != self._epoch:
            return ()
        newest = log.membership.newest
        if newest is None:
            return ()
        if not newest.is_complete:
            return self._completion(newest)
        if now - self._past_at >= LAG_S:
            caught_up = [member for member, report in self._reports if self._has_caught_up(report)]
            self._note_past(now)
            for member in sorted(caught_up):
                members = self._plan(newest, member, now)
                if members is not None and self._count < NUMBERS_OF_AN_EPOCH - 1:
                    self._count += 1
                    number = self._epoch * NUMBERS_OF_AN_EPOCH + self._count
                    return (ConfigureRecord(number, newest.members_wanted, members, False),)
        return ()

    def _note_past(self, now: float) -> None:
        ledgers = self._replica.ledgers
        self._past = {ledger: ledgers.progress(ledger).on_disk for ledger in ledgers.open_ledgers}
        self._past_committed = self._replica.log.committed
        self._past_at = now

    def _has_caught_up(self, report: Report) -> bool:
        """Return True if a keeper holds what the manager held a second ago."""
        return report.decided >= self._past_committed > 0 and all(
            report.on_disk_through(ledger) >= on_disk for ledger, on_disk in self._past.items()
        )

    def _plan(self, configuration: ConfigureRecord, member: Member, now: float) -> tuple[Member, ...] | None:
        """Return the members of the next configuration if this keeper is to become one of them."""
        members = configuration.members
        if member in members:
            return None
        for old in members:
            if old.keeper_id == member.keeper_id:
                return tuple(member if each == old else each for each in members)
        if len(members) < configuration.members_wanted:
            return (*members, member)
        spare = self._reports.get(member)
        lost = b"" if spare is None else spare.lost
        for old in members:
            report = self._reports.get(old)
            heard_at = self._began_at if report is None else report.heard_at
            absence_s = GONE_S if old.keeper_id == lost else ABSENT_S
            if old != self._context.me and now - heard_at >= absence_s:
                return tuple(member if each == old else each for each in members)
        return None

    def _completion(self, begun: ConfigureRecord) -> tuple[Record, ...]:
        """Return the record that completes a change, once a new majority holds what an old majority reported."""
        old = self._replica.log.membership.configurations[0]
        me = self._context.me
        reported = {member: report for member, report in self._reports if report.configuration == begun.number}
        if sum(member == me or member in reported for member in old.members) < len(old.members) // 2 + 1:
            return ()
        ledgers = self._replica.ledgers
        target = {ledger: ledgers.progress(ledger).on_disk for ledger in ledgers.open_ledgers}
        for report in reported.values():
            for ledger, progress in report.progresses.items():
                if not progress.is_closed and not ledgers.is_closed(ledger):
                    target[ledger] = max(target.get(ledger, 0), progress.on_disk)
        holders = {member for member, report in reported.items() if _holds(report, target)}
        if all(ledgers.is_on_disk(ledger, 1, on_disk + 1) for ledger, on_disk in target.items()):
            holders.add(me)
        if sum(member in holders for member in begun.members) < len(begun.members) // 2 + 1:
            return ()
        return (ConfigureRecord(begun.number, begun.members_wanted, begun.members, True),)


class Replacing:
    """The spare's part: it tells the manager whose place it is to take, for as long as a heartbeat names that one."""

    def __init__(self, context: Context, lost: bytes) -> None:
        """`lost` is the beginning of a keeper id. Without one, this does nothing."""
        self._context = context
        self._lost = lost
        self._told: ReplacementWaits | None = None

    def hear(self, heartbeat: Heartbeat) -> None:
        """Take the heartbeat of a cell that this keeper is no member of."""
        if not self._lost:
            return
        named = [each for each in heartbeat.members if each.keeper_id.startswith(self._lost)]
        if len(named) == 1:
            command = Replacement(cell_id=heartbeat.cell_id, lost=named[0].keeper_id, spare=self._context.me)
            self._context.outgoing.append(SendCommand(command))
        waits = ReplacementWaits(self._lost, len(named))
        if waits != self._told and (len(named) != 1 or named[0].flags & MemberFlag.LIVE):
            self._told = waits
            self._context.events.append(waits)


def _holds(report: Report, target: dict[Ledger, int]) -> bool:
    return all(report.on_disk_through(ledger) >= on_disk for ledger, on_disk in target.items())
