"""Tests of changes of members and of the closing of ledgers, on the manager's side."""

from typing import Any

from single_keepers import CELL_ID, LEDGER, ME, MEMBERS, replica

from fjm2.base.ledger import Ledger
from fjm2.cell.change import ABSENT_S, GONE_S, MemberChange, Replacing
from fjm2.cell.closing import LedgerClosing
from fjm2.cell.outgoing import ReplacementWaits, SendCommand
from fjm2.cell.replica import Replica
from fjm2.cell.reports import REPORTS_MAX, Reports
from fjm2.cell.service.decided import Decided
from fjm2.cell.wire.commands import Heartbeat, HeartbeatFlag, HeartbeatMember, MemberFlag, decode_command
from fjm2.cell.wire.fields import Member
from fjm2.cell.wire.ranges import DECISION_LANE
from fjm2.cell.wire.records import CloseRecord, ConfigureRecord, FenceRecord, OpenRecord, TimeRecord
from fjm2.cell.wire.replacement import Replacement
from fjm2.cell.wire.stored import Progress, Stored, progress_array

EPOCH = 1
WIPED = Member(MEMBERS[2].keeper_id, 2)
"""The third member, after it lost its disk."""
AFTER = (MEMBERS[0], MEMBERS[1], WIPED)
NUMBER = 257


class Bench:
    """A manager's replica and what members report to it."""

    def __init__(self, frames: int = 3) -> None:
        self.held, self.store, self.context = replica()
        self.reports = Reports(EPOCH, CELL_ID)
        self.change = MemberChange(self.context, self.held, self.reports, EPOCH, 0.0)
        self.closing = LedgerClosing(self.context, self.held, self.reports, Decided())
        self.held.store_frames(LEDGER, 1, [b"x"] * frames, 0.0, is_fetched=False)
        self.decide(OpenRecord())

    def decide(self, *records: Any) -> None:
        """Let the manager decide something that is committed at once."""
        index = self.held.propose(EPOCH, records, 0.0)
        self.sync()
        self.held.commit(index, 0.0)

    def sync(self) -> None:
        self.held.handle_synced(self.store.lsn)

    def report(self, member: Member, decided: int, on_disk: int, configuration: int = 1, now: float = 0.0) -> None:
        """Let a member tell how far it has the log and the ledger."""
        ledgers = [
            Progress(Ledger(CELL_ID, EPOCH, DECISION_LANE), decided, decided),
            Progress(LEDGER, on_disk, on_disk),
        ]
        stored = Stored(
            flags=0,
            configuration=configuration,
            cell_id=CELL_ID,
            keeper_id=member.keeper_id,
            incarnation=member.incarnation,
            table_version=0,
            durable_lsn=1,
            promised_epoch=EPOCH,
            heartbeat=1,
            ledgers=progress_array(ledgers),
        )
        self.reports.note(stored, 2, now, self.held.log.membership)


def begun() -> Bench:
    """Return a manager that has begun to put a wiped member's new incarnation in place of the old one."""
    bench = Bench()
    bench.change.next_records(0.0)  # notes what learners have to hold
    bench.report(MEMBERS[1], 2, 3)
    bench.report(WIPED, 2, 3)
    (record,) = bench.change.next_records(2.0)
    assert record == ConfigureRecord(NUMBER, 3, AFTER, False)
    bench.decide(record)
    return bench


def test_a_wiped_member_returns_by_a_configuration_that_names_it() -> None:
    begun()


def test_a_change_waits_for_a_decision_of_the_manager_s_own_epoch() -> None:
    bench = Bench()
    bench.held.log.committed = 1
    bench.report(WIPED, 2, 3)
    assert [bench.change.next_records(now) for now in (0.0, 2.0, 4.0)] == [()] * 3


def test_a_learner_catches_up_first() -> None:
    for decided, on_disk in ((1, 3), (2, 2)):
        bench = Bench()
        bench.change.next_records(0.0)
        bench.report(WIPED, decided, on_disk)
        assert bench.change.next_records(2.0) == ()


def test_one_change_at_a_time() -> None:
    bench = begun()
    bench.report(Member(MEMBERS[1].keeper_id, 9), 3, 3)
    assert [bench.change.next_records(now) for now in (4.0, 6.0)] == [()] * 2


def test_a_change_completes_when_a_new_majority_holds_what_an_old_one_reported() -> None:
    bench = begun()
    assert bench.change.next_records(3.0) == ()  # one old member, this one, has reported
    bench.report(MEMBERS[1], 3, 5, NUMBER)
    assert bench.change.next_records(3.0) == ()  # two have, and this one lacks frames 4 and 5
    bench.held.store_frames(LEDGER, 4, [b"x"] * 2, 3.0, is_fetched=True)
    assert bench.change.next_records(3.0) == ()  # which are not on its disk
    bench.sync()
    assert bench.change.next_records(3.0) == (ConfigureRecord(NUMBER, 3, AFTER, True),)


def test_a_change_does_not_wait_for_frames_outside_a_final_set() -> None:
    bench = begun()
    bench.report(MEMBERS[1], 3, 5, NUMBER)  # which has not heard yet that the ledger is closed
    bench.decide(CloseRecord(LEDGER, ((1, 3),)))
    assert bench.change.next_records(3.0) == (ConfigureRecord(NUMBER, 3, AFTER, True),)


def test_reports_from_before_the_change_do_not_complete_it() -> None:
    bench = begun()
    bench.report(MEMBERS[1], 3, 3, configuration=1)
    assert bench.change.next_records(3.0) == ()


def test_a_new_member_s_report_is_none_of_the_old_majority() -> None:
    bench = begun()
    bench.report(WIPED, 3, 3, NUMBER)
    assert bench.change.next_records(3.0) == ()


def test_members_are_replaced_after_a_minute_of_absence() -> None:
    bench = Bench()
    spare = MEMBERS[3]
    for now in (0.0, ABSENT_S - 2):
        bench.report(MEMBERS[1], 2, 3, now=now)
        bench.report(spare, 2, 3, now=now)
        assert bench.change.next_records(now) == ()
    (record,) = bench.change.next_records(ABSENT_S + 1)
    assert isinstance(record, ConfigureRecord)
    assert set(record.members) == {ME, MEMBERS[1], spare}


def replaced_at(bench: Bench, ends_at: float, *, heard: bool = False) -> float:
    """Let a spare report, and the second member. Return the time at which the third one is replaced; 0 if it is not."""
    for now in range(int(ends_at)):
        for member in (MEMBERS[1], MEMBERS[3], *((MEMBERS[2],) if heard else ())):
            bench.report(member, 2, 3, now=float(now))
        bench.change.note_replacement(
            Replacement(cell_id=CELL_ID, lost=MEMBERS[2].keeper_id, spare=MEMBERS[3]),
        )
        records = bench.change.next_records(float(now))
        if records:
            (record,) = records
            assert isinstance(record, ConfigureRecord)
            assert set(record.members) == {ME, MEMBERS[1], MEMBERS[3]}
            return float(now)
    return 0.0


def test_a_member_that_is_given_up_is_replaced_as_soon_as_it_is_seen_to_be_gone() -> None:
    assert GONE_S <= replaced_at(Bench(), ABSENT_S) <= GONE_S + 2


def test_a_member_that_is_heard_is_not_replaced_whatever_a_spare_says() -> None:
    assert not replaced_at(Bench(), ABSENT_S, heard=True)


def test_another_member_that_is_absent_keeps_its_place() -> None:
    bench = Bench()
    for now in range(int(ABSENT_S) - 1):
        bench.report(MEMBERS[2], 2, 3, now=float(now))
        bench.report(MEMBERS[3], 2, 3, now=float(now))
        bench.change.note_replacement(Replacement(cell_id=CELL_ID, lost=MEMBERS[2].keeper_id, spare=MEMBERS[3]))
        assert bench.change.next_records(float(now)) == ()


def test_the_word_of_a_spare_that_does_not_report_counts_for_nothing() -> None:
    bench = Bench()
    bench.change.note_replacement(Replacement(cell_id=CELL_ID, lost=MEMBERS[2].keeper_id, spare=MEMBERS[3]))
    assert bench.reports.get(MEMBERS[3]) is None


# The spare's part


def heartbeat(*flags: int) -> Heartbeat:
    members = [HeartbeatMember(m[0], 7, f, m[1], 1) for m, f in zip(MEMBERS, flags, strict=False)]
    return Heartbeat(
        flags=HeartbeatFlag.SERVING,
        epoch=1,
        cell_id=CELL_ID,
        configuration=1,
        number=1,
        committed=1,
        table_version=0,
        members=tuple(members),
    )


def asked(lost: bytes, *flags: int) -> tuple[list[Any], list[Any]]:
    """Let a spare hear heartbeats twice. Return the members that it names, and what it tells."""
    _, _, context = replica()
    context.outgoing.clear()
    context.events.clear()
    replacing = Replacing(context, lost)
    for _ in range(2):
        replacing.hear(heartbeat(*flags))
    commands = [each.command for each in context.outgoing if isinstance(each, SendCommand)]
    assert all(decode_command(command.encode()) == command for command in commands)
    return [each.lost for each in commands if isinstance(each, Replacement)], list(context.events)


def test_a_spare_names_the_member_whose_id_begins_as_asked() -> None:
    lost = MEMBERS[2].keeper_id
    assert asked(lost[:4], MemberFlag.LIVE, MemberFlag.LIVE, 0) == ([lost, lost], [])


def test_a_spare_says_once_that_the_member_is_there() -> None:
    lost = MEMBERS[2].keeper_id
    assert asked(lost, 1, 1, 1) == ([lost, lost], [ReplacementWaits(lost, 1)])


def test_a_spare_names_nobody_if_no_id_begins_so() -> None:
    assert asked(b"nobody", 1, 1, 1) == ([], [ReplacementWaits(b"nobody", 0)])
    assert asked(b"", 1, 1, 1) == ([], [])


def test_strangers_drive_no_member_out_of_the_reports() -> None:
    bench = Bench()
    bench.report(MEMBERS[1], 2, 3, now=0.0)
    for number in range(100):
        bench.report(Member(MEMBERS[3].keeper_id, number), 0, 0, now=1.0 + number)
    assert bench.reports.get(MEMBERS[1]) is not None
    assert len(list(bench.reports)) == REPORTS_MAX


# Closing


def fenced() -> Bench:
    bench = Bench()
    bench.decide(FenceRecord(LEDGER))
    return bench


def test_a_ledger_is_closed_with_what_w_fenced_members_have() -> None:
    bench = fenced()
    assert bench.closing.next_records(1.0) == ()
    bench.report(MEMBERS[1], 2, 3)
    assert bench.closing.next_records(1.0) == ()  # it has not confirmed FENCE
    bench.report(MEMBERS[1], 3, 3)
    assert bench.closing.next_records(1.0) == (TimeRecord(1000), CloseRecord(LEDGER, ((1, 3),)))
    assert bench.closing.next_records(1.0) == ()


def test_the_manager_fetches_before_it_closes() -> None:
    bench = fenced()
    bench.report(MEMBERS[1], 3, 5)
    assert bench.closing.next_records(1.0) == ()
    bench.held.store_frames(LEDGER, 4, [b"x"] * 2, 1.0, is_fetched=True)
    assert bench.closing.next_records(1.0) == ()
    bench.sync()
    assert bench.closing.next_records(1.0) == (TimeRecord(1000), CloseRecord(LEDGER, ((1, 5),)))


def test_a_final_set_is_on_w_disks_before_it_is_decided() -> None:
    """A frame that only the manager has is included, but not while its disk is the only one."""
    bench = fenced()
    bench.report(MEMBERS[1], 3, 1)
    assert bench.closing.next_records(1.0) == ()
    bench.report(MEMBERS[1], 3, 3)
    assert bench.closing.next_records(1.0) == (TimeRecord(1000), CloseRecord(LEDGER, ((1, 3),)))


def test_an_uncommitted_fence_closes_nothing() -> None:
    bench = Bench()
    bench.held.propose(EPOCH, (FenceRecord(LEDGER),), 0.0)
    bench.sync()
    bench.report(MEMBERS[1], 3, 3)
    assert bench.closing.next_records(1.0) == ()


def test_ledgers_of_silent_writers_are_fenced() -> None:
    bench = Bench()
    assert bench.closing.next_records(60.0) == ()
    assert bench.closing.next_records(60.1) == (FenceRecord(LEDGER),)


def test_reports_of_earlier_epochs_are_not_taken_for_the_log() -> None:
    bench = Bench()
    older = Progress(Ledger(CELL_ID, EPOCH - 1, DECISION_LANE), 9, 9)
    assert isinstance(bench.held, Replica)
    bench.report(MEMBERS[1], 1, 1)
    report = bench.reports.get(MEMBERS[1])
    assert report is not None
    assert report.stored is not None
    forged = Stored(
        flags=0,
        configuration=1,
        cell_id=CELL_ID,
        keeper_id=MEMBERS[1].keeper_id,
        incarnation=1,
        table_version=0,
        durable_lsn=1,
        promised_epoch=EPOCH,
        heartbeat=1,
        ledgers=progress_array([older]),
    )
    bench.reports.note(forged, 2, 0.0, bench.held.log.membership)
    assert report.decided == 1
    assert older.ledger not in report.progresses
