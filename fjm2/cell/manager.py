"""The manager of one epoch: it recovers what members store, keeps its lease, replicates decisions and commits them."""

import math
from collections.abc import Callable

from .change import MemberChange
from .closing import LedgerClosing
from .context import Context
from .entry_sender import EntrySender
from .outgoing import SendCommand, State
from .replica import Replica
from .reports import Report, Reports
from .service.clients import Clients
from .service.desk import RequestDesk
from .times import CLAIMS_S, HEARTBEAT_S, LEASE_S, PAUSE_S, TELL_S, YIELD_AFTER_S
from .wire.commands import Counted, Heartbeat, HeartbeatFlag, HeartbeatMember, MemberFlag
from .wire.fields import Member
from .wire.ranges import Range
from .wire.records import OpenRecord, Record
from .wire.replacement import Replacement
from .wire.stored import Stored


class _Beats:
    """Times of heartbeats: regular ones, and those that tell what was just committed."""

    def __init__(self, now: float) -> None:
        self._next_at = now
        self._sent_at = now
        self._hurried_at = math.inf
        self.is_asked = False
        """True if a new client waits for the next one, and for the table."""

    @property
    def due_at(self) -> float:
        """Time of the next heartbeat."""
        return min(self._next_at, self._hurried_at)

    def is_regular(self, now: float) -> bool:
        """Return True if a regular heartbeat is due."""
        return now >= self._next_at

    def note_sent(self, now: float) -> None:
        """Note that a heartbeat is sent."""
        if self.is_regular(now):
            self._next_at = now + HEARTBEAT_S
        self._sent_at, self._hurried_at = now, math.inf

    def hurry(self, now: float) -> None:
        """Send one as soon as it may follow the last."""
        self._hurried_at = max(now, self._sent_at + TELL_S)


class _Lease:
    """The time for which W members let a manager go on: since it sent the newest heartbeat that they answered."""

    def __init__(self, now: float) -> None:
        self.began_at = now
        self.until = now + LEASE_S
        self.lost_at = math.inf
        """Time at which it was found to be over; `inf` while it holds."""
        self._sent_at: dict[int, float] = {}
        """Times of the last heartbeats, for as long as their answers renew the lease."""

    def note_sent(self, number: int, now: float) -> None:
        """Note that a heartbeat is sent."""
        self._sent_at[number] = now
        for old in [old for old, at in self._sent_at.items() if at + LEASE_S <= now]:
            del self._sent_at[old]

    def renew(self, is_answered: Callable[[int], bool]) -> None:
        """Renew the lease by the newest heartbeat that W members have answered."""
        for number in sorted(self._sent_at, reverse=True):
            if is_answered(number):
                self.until = max(self.until, self._sent_at[number] + LEASE_S)
                return


class Manager:
    """A member that W members elected for an epoch."""

    def __init__(self, context: Context, replica: Replica, clients: Clients, epoch: int, now: float) -> None:
        self._context = context
        self._replica = replica
        self.epoch = epoch
        self.state = State.RECOVERING
        self.reports = Reports(epoch, context.cell_id)
        self._change = MemberChange(context, replica, self.reports, epoch, now)
        self._closing = LedgerClosing(context, replica, self.reports, clients.state)
        self.desk = RequestDesk(context, replica, clients, self.reports)
        self._number = 0
        self._lease = _Lease(now)
        self._beats = _Beats(now)
        self._open_index = 0
        self._claims_until = 0.0
        self._sender = EntrySender(context, replica.log, now)

    @property
    def next_at(self) -> float:
        if self._lease.lost_at < math.inf:
            return min(self._beats.due_at, self._lease.lost_at + PAUSE_S)
        times = [self._beats.due_at, self._lease.until]
        if self.state is State.CLAIMING:
            times.append(self._claims_until)
        if self.state is State.SERVING:
            times += (self.desk.next_at, self.desk.news.next_at)
        return min(times)

    def is_leased(self, now: float) -> bool:
        """Return True if W members answered a heartbeat that was sent less than the lease ago."""
        return now < self._lease.until

    def has_given_up(self, now: float) -> bool:
        """Return True if W members have not answered since the lease was over, for as long as it is waited for them."""
        return not self.is_leased(now) and now >= self._lease.lost_at + PAUSE_S

    def must_yield(self, now: float) -> bool:
        """Return True if the store has no room for what others hold, so that another member has to be the manager."""
        is_stuck = self.state is State.RECOVERING and now >= self._lease.began_at + YIELD_AFTER_S
        return is_stuck and self._replica.fetches.lack_room(now)

    def handle_timeout(self, now: float) -> None:
        """Send the heartbeat if it is due, and go on with whatever waits."""
        self._has_lease(now)  # a heartbeat says if this manager serves
        if now >= self._beats.due_at:
            if self._beats.is_regular(now):
                self._sender.send_again()
            self._beat(now)
        self.advance(now)

    def _beat(self, now: float) -> None:
        self._number += 1
        self._lease.note_sent(self._number, now)
        log = self._replica.log
        configuration = log.configuration_at(log.committed)
        members = () if configuration is None else configuration.members
        heartbeat = Heartbeat(
            flags=HeartbeatFlag.SERVING if self.state is State.SERVING else 0,
            epoch=self.epoch,
            cell_id=self._context.cell_id,
            configuration=0 if configuration is None else configuration.number,
            number=self._number,
            committed=log.committed,
            table_version=self._replica.table.version,
            members=tuple(self._heartbeat_member(member, now) for member in members),
            committed_epoch=log.epoch_at(log.committed),
        )
        self._context.outgoing.append(SendCommand(heartbeat))
        self._beats.note_sent(now)
        self._renew_lease()
        if self._beats.is_asked:
            self._beats.is_asked = False
            self.desk.news.ask()  # only now: a client takes a table that a heartbeat has named

    def _heartbeat_member(self, member: Member, now: float) -> HeartbeatMember:
        keeper_id, incarnation = member
        if member == self._context.me:
            lsn = self._replica.durable_lsn
            return HeartbeatMember(keeper_id, self._context.node_id, MemberFlag.LIVE, incarnation, lsn)
        report = self.reports.get(member)
        if report is None:
            return HeartbeatMember(keeper_id, 0, 0, incarnation, 0)
        flags = MemberFlag.LIVE if now - report.heard_at < LEASE_S else 0
        return HeartbeatMember(keeper_id, report.node_id, flags, incarnation, report.durable_lsn)

    def receive_stored(self, stored: Stored, source: int, now: float) -> None:
        """Take an answer to a heartbeat that was given in this epoch."""
        membership = self._replica.log.membership
        report = self.reports.note(stored, source, now, membership)
        if report is None:
            return
        member = Member(stored.keeper_id, stored.incarnation)
        self._renew_lease()
        if member in membership:
            self._replica.fetches.ask_for_frames(self._replica.lacking(stored.progresses(), now), now)
        self._help(member, report)
        self.advance(now)

    def _help(self, member: Member, report: Report) -> None:
        """Tell a keeper that lacks something what there is, so that it fetches it."""
        if member not in self._replica.log.membership and not self._change.wants(member):
            return
        held = self._replica.full_progress()[1:]
        lacks = [mine for mine in held if report.on_disk_through(mine.ledger) < mine.on_disk]
        if lacks:
            self._replica.send_stored(report.node_id, lacks)

    def receive_counted(self, counted: Counted, source: int) -> None:
        """Take a member's word that it has no frames for some sequences."""
        membership = self._replica.log.membership
        for member, report in self.reports:
            if report.node_id == source and member in membership:
                self._replica.readiness.tally(counted, member, membership)
                self._closing.lacks.note(counted, member, membership)

    def receive_replacement(self, replacement: Replacement, now: float) -> None:
        """Take a spare's word that it is to take the place of a member that is gone for good."""
        self._change.note_replacement(replacement)
        self.advance(now)

    def _renew_lease(self) -> None:
        membership = self._replica.log.membership

        def is_answered(number: int) -> bool:
            answered = {member for member, report in self.reports if report.answered >= number}
            return membership.has_majority(answered | {self._context.me})

        self._lease.renew(is_answered)

    def answer_question(self, now: float) -> None:
        """Tell a new client soon that this manager serves, and which destinations are stored."""
        if self.state is State.SERVING:
            self._beats.hurry(now)
            self._beats.is_asked = True

    def handle_synced(self, now: float) -> None:
        self.advance(now)

    def propose(self, records: tuple[Record, ...], now: float) -> int:
        """Append decisions to the log, and send them. Return the index of their entry."""
        self.desk.note_proposed(records)
        return self._append(records, now)

    def _append(self, records: tuple[Record, ...], now: float) -> int:
        index = self._replica.propose(self.epoch, records, now)
        self._sender.send(index)
        return index

    def _has_lease(self, now: float) -> bool:
        """Return True if the lease holds. Without one the manager does nothing but ask for another.

        Its own process or the network may have been held up. W members that still answer in its epoch have promised no
        other one, so that the manager goes on as before.
        """
        lease = self._lease
        if not self.is_leased(now):
            lease.lost_at = min(lease.lost_at, now)
            if self.state is State.SERVING:
                self.state = State.CLAIMING
            return False
        if lease.lost_at < math.inf:
            lease.lost_at = math.inf
            self.desk.begin_leases(now)  # what clients sent meanwhile may not be known yet
        return True

    def advance(self, now: float) -> None:
        """Go on to the next state if all that it needs is there."""
        if not self._has_lease(now):
            return
        self._replica.readiness.resolve_alone(self._replica.log.membership)
        if self.state is State.RECOVERING and not self._open_index:
            self._replica.fetches.ask_for_frames(self._replica.lacking_references(), now)
            # The frames that decisions refer to are on W disks, so that they can be had.
            if self._has_read() and self._replica.confirmable == self._replica.log.last_index:
                self._open_index = self.propose((OpenRecord(),), now)
        self._commit(now)
        if self.state is State.RECOVERING and 0 < self._open_index <= self._replica.log.committed:
            self.state = State.CLAIMING
            self._replica.table.hear(self._replica.table.version)
            # The disk of a cell of one has all that was handed out, so that nobody has to claim it.
            is_alone = self._replica.log.membership.size == 1
            self._claims_until = now if is_alone else now + CLAIMS_S
        if self.state is State.CLAIMING and now >= self._claims_until:
            self.state = State.SERVING
            self._beats.hurry(now)  # clients go on when a heartbeat says so
        if self.state is not State.RECOVERING:
            for records in (self._change.next_records(now), self._closing.next_records(now)):
                if records:
                    self.propose(records, now)
        if self.state is State.SERVING:
            due = self.desk.next_records(now)
            if due:
                self._append(due, now)
            self.desk.news.advance(now)

    def _has_read(self) -> bool:
        """Return True if this keeper has on disk all that K - W + 1 members have.

        A member that restarted may not know yet that a ledger is closed, and report a frame outside the final set. That
        frame is refused for ever. The final set itself is on disk when CLOSE is confirmed.
        """
        read = {self._context.me}
        for member, report in self.reports:
            if all(
                self._replica.ledgers.is_on_disk(ledger, 1, progress.on_disk + 1)
                for ledger, progress in report.progresses.items()
                if not progress.is_closed and not self._replica.ledgers.is_closed(ledger)
            ):
                read.add(member)
        return self._replica.log.membership.can_read(read)

    def _commit(self, now: float) -> None:
        """Commit the newest entry of this epoch that W members have confirmed, and all before it."""
        log = self._replica.log
        for index in range(log.last_index, log.committed, -1):
            if log.epoch_at(index) != self.epoch:
                return  # entries of older epochs are committed only together with one of this epoch
            holders = {member for member, report in self.reports if report.decided >= index}
            if self._replica.confirmable >= index:
                holders.add(self._context.me)
            if log.membership.has_majority(holders):
                self._replica.commit(index, now)
                # Clients wait for decisions, and learn by heartbeats that they are committed.
                self._beats.hurry(now)
                return

    def replay_decisions(self, wanted: Range, now: float) -> None:
        """Send entries of the log that another keeper lacks."""
        self._sender.replay(wanted, now)
